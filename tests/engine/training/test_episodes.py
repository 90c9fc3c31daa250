"""Samples of episodes: parts of segments that a table names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from chunkmill import CatalogClient
from chunkmill.engine.catalog import DatasetEntry
from chunkmill.engine.errors import UsageError
from chunkmill.engine.training.job import JobReader, ReaderShare
from chunkmill.training import (
    BlockShuffle,
    DataSource,
    Field,
    FixedRateSampling,
    Manifest,
    Mixture,
    NoShuffle,
    NumericDecoder,
    RowSampling,
    SampleIndex,
    SampleReader,
    TrainingJob,
    VideoFrameDecoder,
    samples_table,
)
from drives import SECOND, Drive, lake

JOINTS = "/arm:Scalars:scalars"
VIDEO = "/front:VideoStream:sample"
FIELDS = {"joints": Field(JOINTS, NumericDecoder(), window=(-2, 0, 1))}

EPISODES = pa.table(
    {
        "segment_id": ["drive_1", "drive_0", "drive_1", "drive_2"],
        "start": pa.array([3, 10, 12, None], pa.int64()),
        "end": pa.array([9, 14, 40, 1], pa.int64()),
        "task": ["lift", "put", "lift", "put"],
        "reward": [1.0, 0.5, 0.0, 2.0],
    }
)
PLACES = [("drive_1", 3, 9), ("drive_0", 10, 14), ("drive_1", 12, 40), ("drive_2", 0, 1)]


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Drive], DatasetEntry]:
    """Three recordings."""
    return lake(tmp_path_factory.mktemp("drives"), 3, marked=True)


def read(source: DataSource, fields: dict[str, Field], index: str = "frame", **options: Any) -> list[dict[str, Any]]:
    """All samples of a source."""
    found = SampleIndex.build(source, index, fields, **options)
    return list(SampleReader(found).read(np.arange(len(found))).values())


def expected(episodes: list[tuple[str, int, int]]) -> list[tuple[str, int, int, int, int]]:
    """Of each sample its segment, the frames of its window, and the row of its episode."""
    return [
        (segment, max(at - 2, first), at, min(at + 1, last), row)
        for row, (segment, first, last) in enumerate(episodes)
        for at in range(first, last + 1)
    ]


def test_samples_are_of_episodes_alone_and_windows_end_with_them(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    source = DataSource(dataset, episodes=EPISODES, episode_columns=["task", "reward"])
    fields = {**FIELDS, "front": Field(VIDEO, VideoFrameDecoder())}
    made = read(source, fields)
    wanted = expected(PLACES)
    assert len(made) == len(wanted) == 7 + 5 + 29 + 2
    for sample, (segment, *frames, row) in zip(made, wanted, strict=True):
        drive = known[int(segment[-1])]
        assert sample["joints"].tolist() == drive.joints[frames].tolist()
        assert np.array_equal(sample["front"], drive.frames[frames[1]])
        assert (sample["episode"], sample["task"].item(), sample["reward"]) == (
            row, EPISODES["task"][row].as_py(), EPISODES["reward"][row].as_py(),
        )  # fmt: skip
        first, last = PLACES[row][1:]
        assert sample["joints_is_pad"].tolist() == [frames[1] - 2 < first, False, frames[1] + 1 > last]


def test_windows_may_trim_at_the_ends_of_episodes(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    fields = {"joints": Field(JOINTS, NumericDecoder(), window=(-2, 3), edges="trim")}
    made = read(DataSource(dataset, episodes=EPISODES), fields)
    assert [sample["episode"] for sample in made] == [0] * 2 + [2] * 24, "the others are shorter than the window"


@pytest.mark.parametrize("unit", ["ns", "us", None])
def test_ends_are_times(unit: str | None, drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    ends = np.array([[3, 9], [12, 40]]) * SECOND // 30
    if unit == "us":
        ends = -(-ends // 1000) * 1000
    columns = [pa.array(some) if unit is None else pa.array(some).cast(pa.duration("ns")) for some in ends.T]
    if unit == "us":
        columns = [some.cast(pa.duration("us")) for some in columns]
    table = pa.table({"rerun_segment_id": ["drive_1", "drive_1"], "start": columns[0], "end": columns[1]})
    fields = {"joints": Field(JOINTS, NumericDecoder())}
    made = read(DataSource(dataset, episodes=table), fields, "time", timeline_sampling=FixedRateSampling(30))
    firsts = [next(sample for sample in made if sample["episode"] == row) for row in range(2)]
    assert [some["joints"].tolist() for some in firsts] == [known[1].joints[at].tolist() for at in (3, 12)]
    assert len(made) == 7 + 29
    rows = read(DataSource(dataset, episodes=table), fields, "time", timeline_sampling=RowSampling(VIDEO))
    assert abs(len(rows) - (7 + 29)) <= 2 and rows[0]["episode"] == 0


def test_a_table_of_the_catalog_or_a_frame_is_the_same(
    drives: tuple[list[Drive], DatasetEntry], tmp_path: Path
) -> None:
    _, dataset = drives
    client = CatalogClient(tmp_path / "other")
    client.create_table("parts", EPISODES.schema).append(EPISODES.to_batches())
    tables = [EPISODES, client.get_table("parts"), pd.DataFrame({n: EPISODES[n].to_pylist() for n in ("segment_id",)})]
    tables[2]["start"], tables[2]["end"] = [3, 10, 12, 0], [9, 14, 40, 1]
    digests = {SampleIndex.build(DataSource(dataset, episodes=some), "frame", FIELDS).source.digest for some in tables}
    assert len(digests) == 1
    every = SampleIndex.build(DataSource(dataset), "frame", FIELDS).source.digest
    assert every not in digests


def test_a_mixture_of_tasks(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    tasks = DataSource(dataset, episodes=EPISODES, episode_columns=["task"]).split_episodes("task")
    assert list(tasks) == ["lift", "put"]
    job = TrainingJob.of(Mixture(tasks, {"lift": 0.25, "put": 0.75}, 40), "frame", FIELDS, shuffle=BlockShuffle(8, 2))
    made = [sample for batch in JobReader(job).batches(ReaderShare()) for sample in batch]
    assert sum(sample["task"].item() == "lift" for sample in made) == 10 and len(made) == 40
    with pytest.raises(UsageError, match="the same episode_columns"):
        TrainingJob.of(
            Mixture({**tasks, "all": DataSource(dataset)}, dict.fromkeys([*tasks, "all"], 1), 9), "frame", FIELDS
        )
    with pytest.raises(UsageError, match="a column 'robot'"):
        DataSource(dataset, episodes=EPISODES).split_episodes("robot")
    with pytest.raises(UsageError, match="has a null"):
        DataSource(dataset, episodes=EPISODES).split_episodes("start")


def test_episodes_in_tables(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    source = DataSource(dataset, ["drive_1", "drive_2"], episodes=EPISODES, episode_columns=["task", "reward"])
    table = samples_table(TrainingJob.of(source, "frame", FIELDS, shuffle=NoShuffle()), limit=100)
    assert table["episode"].to_pylist() == [0] * 7 + [1] * 29 + [2] * 2, "rows of the episodes of these segments"
    assert table["task"].to_pylist() == ["lift"] * 36 + ["put"] * 2
    assert table["frame"].to_pylist()[:8] == [3, 4, 5, 6, 7, 8, 9, 12]


def test_places_of_samples(drives: tuple[list[Drive], DatasetEntry]) -> None:
    _, dataset = drives
    found = SampleIndex.build(DataSource(dataset, episodes=EPISODES), "frame", FIELDS)
    segment, value = found.global_to_local(20)
    assert (segment.segment_id, segment.index_start, segment.num_samples, value) == ("drive_1", 12, 29, 20)
    with pytest.raises(UsageError, match="the source has episodes"):
        Manifest.generate(DataSource(dataset, episodes=EPISODES), "frame", {"joints": Field(JOINTS, NumericDecoder())})


def one(**columns: Any) -> pa.Table:
    """A table of one episode."""
    return pa.table(
        {name: [value] for name, value in {"segment_id": "drive_0", "start": 1, "end": 5, **columns}.items()}
    )


@pytest.mark.parametrize(
    ("table", "options", "error", "message"),
    [
        (pa.table({"segment_id": ["a"], "start": [1]}), {}, ValueError, "no column 'end'"),
        (pa.table({"start": [1], "end": [1]}), {}, ValueError, "no column 'segment_id'"),
        ([("drive_0", 1, 5)], {}, TypeError, "an Arrow table"),
        (one(segment_id="drive_9"), {}, ValueError, "row 0 .* no segment 'drive_9'"),
        (one(start=7), {}, ValueError, "the episode ends at 5, before its start at 7"),
        (one(start=100, end=200), {}, ValueError, "not within segment 'drive_0', which spans 0 to 44"),
        (one(start=1.5), {}, ValueError, "has double, but the index has int64"),
        (one(start="1"), {}, ValueError, "has string"),
        (one(), {"episode_columns": ["task"]}, ValueError, "no column 'task'"),
        (one(task=[1]), {"episode_columns": ["task"]}, ValueError, "numbers and text"),
        (one(task=None), {"episode_columns": ["task"]}, ValueError, "numbers and text"),
        (one(joints=1), {"episode_columns": ["joints"]}, ValueError, "'joints' has a reserved name"),
        (one(sample=1), {"episode_columns": ["sample"]}, ValueError, "'sample' has a reserved name"),
        (None, {"episode_columns": ["task"]}, ValueError, "need a table of episodes"),
        (one(), {"episode_columns": "task"}, TypeError, "a list of names"),
        (one().slice(0, 0), {}, ValueError, "no samples"),
    ],
)
def test_tables_that_are_wrong(
    table: Any, options: Any, error: type[Exception], message: str, drives: tuple[list[Drive], DatasetEntry]
) -> None:
    with pytest.raises(error, match=message):
        TrainingJob.of(DataSource(drives[1], episodes=table, **options), "frame", FIELDS)
