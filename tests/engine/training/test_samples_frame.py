"""Samples as a DataFrame of Spark: those of the readers, in the order of the plan, in types of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import DatasetEntry
from chunkmill.engine.training.frames import FieldForm, _starts
from chunkmill.engine.training.job import JobReader, TrainingJob
from chunkmill.training import (
    BlockShuffle,
    DataSource,
    Field,
    FixedRateSampling,
    ImageDecoder,
    Mixture,
    NoShuffle,
    NumericDecoder,
    SampleShuffle,
    TextDecoder,
    VideoFrameDecoder,
    samples_frame,
)
from drives import Drive, lake
from pyspark.sql import SparkSession

FIELDS = {
    "joints": Field("/arm:Scalars:scalars", NumericDecoder(), window=(0, 1, 2)),
    "grip": Field("/grip:Scalars:scalars", NumericDecoder(), fill="skip"),
    "task": Field("/task:TextDocument:text", TextDecoder()),
    "front": Field("/front:VideoStream:sample", VideoFrameDecoder()),
    "top": Field("/top:EncodedImage:blob", ImageDecoder(), window=(0,)),
}


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Drive], DatasetEntry]:
    """Three recordings."""
    return lake(tmp_path_factory.mktemp("drives"), 3, marked=True)


def test_rows_are_the_samples_of_the_plan(drives: tuple[list[Drive], DatasetEntry], spark: SparkSession) -> None:
    _, dataset = drives
    source, shuffle = DataSource(dataset), BlockShuffle(40, 4)
    frame = samples_frame(
        source, "frame", FIELDS, shuffle=shuffle, seed=3, epoch=2, batch_size=7, block_size=10, partitions=4
    )
    rows = frame.collect()
    assert frame.rdd.getNumPartitions() == 4
    job = TrainingJob.of(
        source, "frame", FIELDS, timeline_sampling=None, shuffle=shuffle, seed=3, run=7, block_size=10, cache_bytes=1
    )
    order = job.plan.epoch(2)
    read = list(JobReader(job).in_order(order, np.arange(len(order))))
    wanted = [(place, sample) for place, sample in enumerate(read) if sample is not None]
    assert len(wanted) < len(read)
    assert [row["place"] for row in rows] == [place for place, _ in wanted]
    for row, (_, sample) in zip(rows, wanted, strict=True):
        assert row["sample"] == sample["sample"]
        assert (row["segment_id"], row["frame"]) == job.place(sample["sample"])
        assert row["is_repeat"] is False
        for name in ("joints", "grip", "joints_is_pad"):
            assert row[name] == sample[name].tolist()
        assert row["task"] == sample["task"].item()
        for name in ("front", "top"):
            picture = np.frombuffer(row[name]["data"], np.uint8).reshape(row[name]["shape"])
            assert np.array_equal(picture, sample[name])
    assert frame.schema["joints"].dataType.simpleString() == "array<array<double>>"
    assert frame.schema["joints_is_pad"].dataType.simpleString() == "array<boolean>"
    assert frame.schema["task"].dataType.simpleString() == "string"
    assert frame.schema["front"].dataType.simpleString() == "struct<shape:array<int>,data:binary>"
    assert frame.schema["joints"].metadata == {"shape": [3, 7]}


def test_an_index_of_times_has_all_digits(drives: tuple[list[Drive], DatasetEntry], spark: SparkSession) -> None:
    known, dataset = drives
    fields = {"joints": FIELDS["joints"]}
    frame = samples_frame(
        DataSource(dataset, ["drive_1"]),
        "time",
        {"joints": Field("/arm:Scalars:scalars", NumericDecoder(), window=(0, 0.1))},
        timeline_sampling=FixedRateSampling(30),
        shuffle=NoShuffle(),
    )
    first, second = frame.take(2)
    assert frame.schema["time"].dataType.simpleString() == "interval day to second"
    assert second["time_nanoseconds"] - first["time_nanoseconds"] == 33_333_333
    assert first["joints"] == known[1].joints[[0, 3]].tolist()
    with pytest.raises(TypeError, match="timeline_sampling"):
        samples_frame(DataSource(dataset), "time", fields)


def test_mixtures_mark_repeats(drives: tuple[list[Drive], DatasetEntry], spark: SparkSession) -> None:
    _, dataset = drives
    parts = {"a": DataSource(dataset, ["drive_0"]), "b": DataSource(dataset, ["drive_1", "drive_2"])}
    mixture = Mixture(parts, {"a": 0.75, "b": 0.25}, 120)
    frame = samples_frame(mixture, "frame", {"joints": FIELDS["joints"]}, shuffle=SampleShuffle())
    assert frame.where("is_repeat").count() == 45
    shares = {row["segment_id"] == "drive_0": row["count"] for row in frame.groupBy("segment_id").count().collect()}
    assert shares[True] == 90


def test_names_and_types_that_cannot_be_are_errors(
    drives: tuple[list[Drive], DatasetEntry], spark: SparkSession
) -> None:
    _, dataset = drives
    source = DataSource(dataset)
    joints = FIELDS["joints"]
    for name in ("Place", "frame", "sample", "segment_id", "is_repeat"):
        with pytest.raises(ValueError, match=r"two columns|a reserved name"):
            samples_frame(source, "frame", {name: joints})
    nothing = Field("/grip:Scalars:scalars", NumericDecoder(), max_staleness=0, fill="skip", window=(-100,))
    with pytest.raises(ValueError, match="each of the 45 samples lacks a value"):
        samples_frame(DataSource(dataset, ["drive_0"]), "frame", {"grip": nothing})
    with pytest.raises(ValueError, match="partitions"):
        samples_frame(source, "frame", {"joints": joints}, partitions=0)
    with pytest.raises(ValueError, match="complex128"):
        FieldForm.of("waves", np.zeros(3, np.complex128))
    form = FieldForm.of("joints", np.zeros(3))
    for other in (np.zeros(3, np.float32), np.zeros((3, 1))):
        with pytest.raises(ValueError, match="a single type"):
            form.array([np.zeros(3), other])


@pytest.mark.parametrize(
    "values",
    [
        [np.float32(1), np.float32(2)],
        [np.arange(3, dtype=np.uint16), np.arange(0, dtype=np.uint16)],
        [np.arange(6).reshape(2, 3), np.arange(4).reshape(4, 1), np.zeros((0, 5), np.int64)],
        [np.zeros((2, 0, 3)), np.ones((1, 2, 2))],
        [np.array([["a", "b"]], object)],
        [np.array([True, False])],
    ],
)
def test_arrays_of_any_shape_are_lists(values: list[Any]) -> None:
    arrays = [np.asarray(value) for value in values]
    made = FieldForm.of("x", arrays[0]).array(arrays)
    assert made.to_pylist() == [value.tolist() for value in arrays]
    assert made.type == FieldForm.of("x", arrays[0]).type or pa.types.is_null(made.type)


def test_tasks_have_places_enough() -> None:
    assert _starts(10, 128, None, 8) == (0, 10)
    assert _starts(100_000, 2304, None, 2)[1] < 4 * 2304 + 1000
    assert len(_starts(5000, 128, None, 4)) == 5
    assert _starts(3, 128, 8, None) == (0, 1, 2, 3)


def test_a_damaged_recording_is_an_error(tmp_path: Path, spark: SparkSession) -> None:
    _, dataset = lake(tmp_path, 2)
    fields = {"joints": FIELDS["joints"]}
    frame = samples_frame(DataSource(dataset), "frame", fields, shuffle=NoShuffle())
    path = tmp_path / "drive_1.rrd"
    path.write_bytes(path.read_bytes()[: 1 << 12])
    with pytest.raises(Exception, match=r"chunkmill\.\w+ in the task for places \d+ to 89 of the epoch"):
        frame.count()
