"""Statistics of fields are those of numpy, computed once, and values are normalised by them and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import Chunk, LazyChunkStream, RecordingStore
from chunkmill.engine.catalog import DatasetEntry
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import UsageError
from chunkmill.engine.training import normalisation as module
from chunkmill.engine.training.job import JobReader, ReaderShare
from chunkmill.lenses import Selector
from chunkmill.training import (
    DataSource,
    Field,
    FieldStatistics,
    FixedRateSampling,
    ImageDecoder,
    Normalisation,
    NoShuffle,
    NumericDecoder,
    TextDecoder,
    TrainingJob,
    VideoFrameDecoder,
)
from drives import FRAMES, Drive, lake
from pyspark.sql import SparkSession

JOINTS = "/arm:Scalars:scalars"
GRIP = "/grip:Scalars:scalars"
FIELDS = {
    "joints": Field(JOINTS, NumericDecoder(), window=(-30, 0, 30)),
    "grip": Field(GRIP, NumericDecoder(), fill="skip"),
    "top": Field("/top:EncodedImage:blob", ImageDecoder()),
    "front": Field("/front:VideoStream:sample", VideoFrameDecoder()),
    "task": Field("/task:TextDocument:text", TextDecoder()),
}
Q = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Drive], DatasetEntry]:
    """Three recordings."""
    return lake(tmp_path_factory.mktemp("drives"), 3)


def check(found: FieldStatistics, values: np.ndarray) -> None:
    """Compare statistics with what numpy makes of values, of which NaN do not count."""
    close = {"rtol": 1e-9, "atol": 1e-9}
    assert found.count.tolist() == (~np.isnan(values)).sum(axis=0).tolist()
    for name, made in {"mean": np.nanmean, "std": np.nanstd, "min": np.nanmin, "max": np.nanmax}.items():
        np.testing.assert_allclose(found[name], made(values, axis=0), err_msg=name, **close)
    for name, q in Q.items():
        np.testing.assert_allclose(found[name], np.nanquantile(values, q, axis=0), err_msg=name, **close)


def test_numbers(drives: tuple[list[Drive], DatasetEntry]) -> None:
    """A value counts once, however often windows and their padding show it; what is missing does not."""
    known, dataset = drives
    made = Normalisation.of(DataSource(dataset), "frame", FIELDS)
    assert list(made.modes) == ["joints", "grip"]
    check(made.statistics["joints"], np.concatenate([drive.joints for drive in known]))
    grip = [0.5] + [0.6] * 14 + [3.0] * 15
    check(made.statistics["grip"], np.array(3 * grip)[:, None])


def test_episodes_and_rates_are_samples_of_their_own(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    fields = {"joints": FIELDS["joints"]}
    episodes = pa.table({"segment_id": ["drive_1"], "start": [3], "end": [20]})
    made = Normalisation.of(DataSource(dataset, episodes=episodes), "frame", fields)
    check(made.statistics["joints"], known[1].joints[3:21])
    joints = {"joints": Field(JOINTS, NumericDecoder(), window=(-0.1, 0.0))}
    made = Normalisation.of(DataSource(dataset), "time", joints, timeline_sampling=FixedRateSampling(10))
    check(made.statistics["joints"], np.concatenate([drive.joints[::3] for drive in known]))


def test_nan_does_not_count_and_infinity_is_an_error(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(50, 3))
    values[4, 0] = values[9, 0] = values[7, 1] = np.nan
    values[:, 2] = 7.0

    def kept(name: str, values: np.ndarray) -> DataSource:
        chunk = Chunk.build(
            "/a", {"frame": pa.array(range(50))}, [(ComponentDescriptor("s"), pa.array(values.tolist()))]
        )
        LazyChunkStream.from_iter([chunk]).collect(into=tmp_path / name, recording_id="one", executor="inline")
        return DataSource(RecordingStore.open(tmp_path / name))

    fields = {"s": Field("/a:s", NumericDecoder())}
    source = kept("nan", values)
    for mode in ("mean_std", "min_max", "quantile"):
        made = Normalisation.of(source, "frame", fields, mode)
        check(made.statistics["s"], values)
        moved = made({"s": values})["s"]
        assert moved.dtype == np.float32 and np.isnan(moved[4, 0]) and (moved[:, 2] == 0).all()
        np.testing.assert_allclose(made.undone({"s": moved})["s"], values, rtol=1e-5, atol=1e-5)
    values[3, 1] = np.inf
    with pytest.raises(UsageError, match="'s' has an infinite value"):
        Normalisation.of(kept("infinite", values), "frame", fields)
    values[:] = np.nan
    with pytest.raises(UsageError, match="'s' has no values"):
        Normalisation.of(kept("none", values), "frame", fields)


def test_pictures_have_a_figure_for_each_channel(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    made = Normalisation.of(DataSource(dataset), "frame", FIELDS, {"top": "mean_std", "front": "min_max"})
    for name, pictures in {
        "top": [drive.pictures[frame // 3 * 3] for drive in known for frame in range(FRAMES)],
        "front": [drive.frames[frame] for drive in known for frame in range(FRAMES)],
    }.items():
        pixels = np.stack(pictures).astype(float).transpose(0, 2, 3, 1).reshape(-1, 3)
        found = made.statistics[name]
        assert found.shape == (3, 1, 1) and (found.count == len(pixels)).all()
        for figure, values in {
            "mean": pixels.mean(0),
            "std": pixels.std(0),
            "min": pixels.min(0),
            "max": pixels.max(0),
        }.items():
            np.testing.assert_allclose(found[figure].ravel(), values, rtol=1e-9)
        for figure, q in Q.items():
            ranks = (
                [(pixels[:, c] < found[figure][c]).mean() for c in range(3)],
                [(pixels[:, c] <= found[figure][c]).mean() for c in range(3)],
            )
            assert all(low - 0.003 <= q <= high + 0.003 for low, high in zip(*ranks, strict=True))
    shown = made.to_json()["top"]
    assert np.array(shown["mean"]).shape == (3, 1, 1) and 0 < shown["mean"][0][0][0] < 1
    json.dumps(made.to_json())


def test_quantiles_of_many_values_are_near(
    drives: tuple[list[Drive], DatasetEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, dataset = drives
    monkeypatch.setattr(module, "_EXACT", 100)
    joints = np.concatenate([drive.joints for drive in known])
    made = Normalisation.of(DataSource(dataset), "frame", {"joints": FIELDS["joints"]}).statistics["joints"]
    np.testing.assert_allclose(made["mean"], joints.mean(0), rtol=1e-9)
    for name, q in Q.items():
        ranks = (joints <= made[name]).mean(axis=0)
        assert np.abs(ranks - q).max() < 0.02


def test_tasks_of_spark_find_the_same(drives: tuple[list[Drive], DatasetEntry], spark: SparkSession) -> None:
    _, dataset = drives
    modes = {"joints": "mean_std", "top": "mean_std"}
    made = Normalisation.of(DataSource(dataset), "frame", FIELDS, modes, spark=spark)
    assert made.version == Normalisation.of(DataSource(dataset), "frame", FIELDS, modes, executor="inline").version


def test_the_catalog_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, dataset = lake(tmp_path, 2)
    source = DataSource(dataset)
    fields = {"joints": FIELDS["joints"], "grip": FIELDS["grip"]}
    first = Normalisation.of(source, "frame", fields, table="statistics")
    (table,) = [some for some in dataset.catalog.tables() if some.name == "statistics"]
    assert table.to_arrow_reader().read_all().num_rows == 2

    def refuse(*_: Any) -> None:
        raise AssertionError("it is computed again")

    with monkeypatch.context() as patched:
        patched.setattr(module, "_computed", refuse)
        again = Normalisation.of(source, "frame", fields, {"joints": "min_max", "grip": "mean_std"}, table="statistics")
        np.testing.assert_array_equal(again.statistics["joints"]["mean"], first.statistics["joints"]["mean"])
        for other in (
            {"fields": {"joints": Field(JOINTS, NumericDecoder("float32"))}},
            {"fields": {"joints": Field(JOINTS, NumericDecoder(), select=".")}},
            {"source": DataSource(dataset, ["drive_0"])},
            {
                "index": "time",
                "timeline_sampling": FixedRateSampling(30),
                "fields": {"joints": Field(JOINTS, NumericDecoder())},
            },
        ):
            with pytest.raises(AssertionError, match="computed again"):
                Normalisation.of(
                    **{"source": source, "index": "frame", "fields": fields, "table": "statistics", **other}
                )
    dataset.unregister(segments_to_drop="drive_1", layers_to_drop=[])
    less = Normalisation.of(DataSource(dataset), "frame", fields, table="statistics")
    check(less.statistics["joints"], known[0].joints)
    assert table.to_arrow_reader().read_all().num_rows == 4
    dataset.catalog.create_table("other", pa.schema([("x", pa.int64())]))
    with pytest.raises(UsageError, match="'other' is not a table of statistics"):
        Normalisation.of(source, "frame", fields, table="other")
    by_code = {"joints": Field(JOINTS, NumericDecoder(), select=Selector(".").pipe(lambda v: v))}
    with pytest.raises(UsageError, match="Python functions"):
        Normalisation.of(source, "frame", by_code, table="statistics")


def test_samples_are_normalised_and_the_state_says_by_what(drives: tuple[list[Drive], DatasetEntry]) -> None:
    known, dataset = drives
    source = DataSource(dataset)
    made = Normalisation.of(source, "frame", FIELDS, {"joints": "mean_std", "top": "min_max"})
    fields = {name: FIELDS[name] for name in ("joints", "top", "task")}
    job = TrainingJob.of(source, "frame", fields, shuffle=NoShuffle(), normalisation=made)
    joints = np.concatenate([drive.joints for drive in known])
    (first, *_), *_ = JobReader(job).batches(ReaderShare())
    np.testing.assert_allclose(first["joints"][1], (joints[0] - joints.mean(0)) / joints.std(0), rtol=1e-5)
    assert first["top"].shape == (3, 8, 12) and first["top"].dtype == np.float32
    assert first["top"].min() >= -1 and first["top"].max() <= 1
    assert job.fingerprint["statistics"] == made.version
    other = Normalisation(made.statistics, {**made.modes, "joints": "min_max"})
    assert other.version != made.version
    with pytest.raises(UsageError, match="no field 'top'"):
        TrainingJob.of(source, "frame", {"joints": FIELDS["joints"]}, normalisation=made)


def test_a_state_of_other_statistics_is_refused(drives: tuple[list[Drive], DatasetEntry]) -> None:
    torch = pytest.importorskip("torch")
    from chunkmill.training import IterableSamples

    _, dataset = drives
    source, fields = DataSource(dataset), {"joints": FIELDS["joints"]}
    made = Normalisation.of(source, "frame", fields)
    samples = IterableSamples(source, "frame", fields, batch_size=8, normalisation=made)
    batch = next(iter(samples))
    assert batch["joints"].dtype == torch.float32
    state = samples.state_dict()
    for other in (None, Normalisation.of(source, "frame", fields, "quantile")):
        with pytest.raises(ValueError, match="its statistics is"):
            IterableSamples(source, "frame", fields, batch_size=8, normalisation=other).load_state_dict(state)
    plain = next(iter(IterableSamples(source, "frame", fields, batch_size=8)))
    assert torch.allclose(made(plain)["joints"], batch["joints"], atol=1e-6)
    assert torch.allclose(made.undone(batch)["joints"], plain["joints"].float(), atol=1e-5)


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        ({"legs": "mean_std"}, "no field 'legs'"),
        ({"joints": "median"}, "mean_std, min_max, quantile"),
        ({"task": "mean_std"}, "there are no statistics for"),
        ("median", "mean_std, min_max, quantile"),
        ({}, "no field of numbers"),
    ],
)
def test_modes_that_cannot_be(modes: Any, message: str, drives: tuple[list[Drive], DatasetEntry]) -> None:
    with pytest.raises(UsageError, match=message):
        Normalisation.of(DataSource(drives[1]), "frame", FIELDS, modes)
