"""Queries by Spark's workers: the same rows as in this process, whatever happens to tasks, and nothing left behind."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import CatalogClient, Chunk
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ReadError, UsageError
from chunkmill.engine.execution import RunOptions, stage
from chunkmill.engine.frames import QueryFrame, plan, query_metrics
from chunkmill.engine.query import Query
from chunkmill.engine.spark import in_task
from datafusion import col, lit
from query_data import chunk, generated_dataset, small_dataset, written

pytestmark = pytest.mark.usefixtures("spark")

ORDER = ["rerun_segment_id", "frame"]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scratch folder in which nothing else is, and which is empty again after each test."""
    folder = tmp_path / "scratch"
    monkeypatch.setenv("CHUNKMILL_SCRATCH", str(folder))
    yield folder
    gc.collect()
    assert not left_in(folder)


def left_in(folder: Path) -> list[Path]:
    return list(folder.glob("run*")) if folder.exists() else []


def table(frame: Any) -> pa.Table:
    """The rows in an order of their own, as batches say nothing."""
    found = frame.to_arrow_table()
    names = [name for name in ORDER if name in found.column_names]
    return found.sort_by([(name, "ascending") for name in names]).combine_chunks()


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.quick), 1, 2, 3])
def test_spark_gives_the_rows_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(plan, "TASK_BYTES", [64 << 20, 2000, 700, 250][seed])  # a segment in several tasks
    dataset = generated_dataset(tmp_path, seed)
    choices: list[dict[str, Any]] = [
        {"fill_latest_at": True, "include_tombstone_columns": True},
        {"using_index_values": [0, 3, 50, 70], "fill_latest_at": True},
        {"include_semantically_empty_columns": True},
        {},
    ]
    both = [dataset.reader("frame", executor=name, **choices[seed]) for name in ("inline", "spark")]
    here, there = map(table, both)
    assert there.equals(here)
    filtered = [
        frame.filter((col("frame") > lit(3)) & (col('"/w:value"').is_not_null())).select("frame", '"/w:value"')
        for frame in both
    ]
    assert filtered[0].count() == filtered[1].count()


def test_a_segment_comes_in_one_partition_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "TASK_BYTES", 300)
    frame = small_dataset(tmp_path).reader("frame", executor="spark")
    seen: list[str] = []
    for stream in frame.execute_stream_partitioned():
        batches = [batch.to_pyarrow() for batch in stream]
        assert all(len(batch) for batch in batches)
        rows = [(row["rerun_segment_id"], row["frame"]) for batch in batches for row in batch.to_pylist()]
        assert rows == sorted(rows)
        seen += sorted({segment for segment, _ in rows})
    assert sorted(seen) == ["s0", "s1", "s2"]


def test_names_and_sizes_alone_pass_the_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[int] = []
    parse_rows = stage.parse_rows

    def counted(batches: Iterator[pa.RecordBatch]) -> Any:
        found = list(batches)
        passed.extend(batch.nbytes for batch in found)
        return parse_rows(found)

    monkeypatch.setattr(stage, "parse_rows", counted)
    noise = random.Random(1).randbytes(3_000_000).hex()
    dataset = CatalogClient(str(tmp_path / "lake")).create_dataset("noise")
    dataset.register([written(tmp_path, "noise", chunk("/a", [1], [[noise]]))]).wait()
    passed.clear()
    assert dataset.reader("frame", executor="spark").to_pylist()[0]["/a:value"] == [noise]
    assert 0 < sum(passed) < 1000


def test_files_go_with_the_rows(tmp_path: Path, scratch: Path) -> None:
    frame = small_dataset(tmp_path).reader("frame", executor="spark")
    stream = frame.execute_stream()
    first = next(stream).to_pyarrow()
    assert left_in(scratch)
    del stream
    gc.collect()
    assert not left_in(scratch)
    assert first["/a:value"][0].as_py() is not None
    assert frame.count() == 300
    assert not left_in(scratch)


def test_what_a_killed_driver_left_goes(tmp_path: Path, scratch: Path) -> None:
    owner = json.dumps({"host": os.uname().nodename, "pid": 2147483, "started": "1"})
    (scratch / "run.chunkmill-0123").mkdir(parents=True)
    (scratch / "run.chunkmill-0123" / "owner.json").write_text(owner)
    small_dataset(tmp_path, 1).reader("frame", executor="spark").count()


@pytest.mark.quick
def test_an_error_names_segment_entity_chunk_and_file(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path)
    path = tmp_path / "s1.rrd"
    data, status = bytearray(path.read_bytes()), path.stat()
    at = data.index(b"1/0")
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    said = []
    for executor in ("inline", "spark"):
        frame = dataset.reader("frame", executor=executor)
        for call in (frame.count, frame.filter(col("frame") > 3).collect, lambda f=frame: list(f.execute_stream())):
            with pytest.raises(ReadError) as raised:
                call()
            said.append(str(raised.value))
    assert len(set(said)) == 1
    assert str(path) in said[0]
    assert "/a, in segment s1" in said[0]


# --- workers and drivers that are stopped


def answer(dataset: Any, done: Callable[[], None]) -> QueryFrame:
    """The rows of a dataset by Spark, whose tasks do something before they read a segment."""

    @dataclass(frozen=True)
    class Source:
        of: Any

        @property
        def stored_bytes(self) -> int:
            return int(self.of.stored_bytes)

        @property
        def has_times(self) -> bool:
            return bool(self.of.has_times)

        def references(self) -> Any:
            if in_task():
                done()
            return self.of.references()

        def times(self) -> Any:
            return self.of.times()

    columns, segments = dataset.filter_segments(dataset.segment_ids()).queried(Query.of("frame"))
    made = [
        replace(
            segment,
            source=Source(segment.source),
            component_keys=segment.component_keys | {("/none", segment.segment_id)},
        )
        for segment in segments
    ]  # with something of its own in each, no two are read together
    return QueryFrame.of(columns, made, RunOptions("spark"))


def test_a_killed_worker_is_tried_again(tmp_path: Path) -> None:
    mark = tmp_path / "killed"

    def die_once() -> None:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    assert answer(small_dataset(tmp_path), die_once).count() == 300
    assert mark.exists()


def test_an_interrupt_cancels_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark, monkeypatched = tmp_path / "begun", signal.getsignal(signal.SIGINT)
    frame = answer(small_dataset(tmp_path), lambda: (mark.touch(), time.sleep(30)))

    def interrupt() -> None:
        while not mark.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    began = time.monotonic()
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            frame.count()
    finally:
        signal.signal(signal.SIGINT, monkeypatched)
    assert time.monotonic() - began < 15


def test_a_limit_does_not_run_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "TASK_BYTES", 64 << 10)  # each segment by itself
    folder = tmp_path / "begun"
    folder.mkdir()
    frame = answer(small_dataset(tmp_path, 60), lambda: ((folder / str(time.time_ns())).touch(), time.sleep(0.3)))
    assert len(frame.limit(10).to_pylist()) == 10
    assert len(list(folder.iterdir())) < 45  # two, eight and 32 tasks on two cores


# --- frames of Spark


def test_rows_go_to_spark_in_its_types(tmp_path: Path) -> None:
    kinds = {
        "u8": pa.array([[1], [255]], pa.list_(pa.uint8())),
        "vector": pa.array([[np.array([1, 2], np.float16)], None], pa.list_(pa.list_(pa.float16(), 2))),
        "text": pa.array([["a", "b"], []], pa.list_(pa.string())),
    }
    index = {
        "frame": pa.array([1, 2], pa.int64()),
        "time": pa.array([1_000_000_001, 2_000_000_002], pa.timestamp("ns")),
        "age": pa.array([5, 6], pa.duration("ns")),
    }
    columns = [(ComponentDescriptor(name), values) for name, values in kinds.items()]
    path = written(tmp_path, "one", Chunk.build("/e", index, columns))
    dataset = CatalogClient(str(tmp_path / "lake")).create_dataset("types")
    dataset.register([path]).wait()
    frame = dataset.to_spark("time")
    types = dict(frame.dtypes)
    assert (types["frame"], types["time"], types["age"]) == ("bigint", "timestamp", "interval day to second")
    assert types["time_nanoseconds"] == types["age_nanoseconds"] == "bigint"
    assert "frame_nanoseconds" not in types
    assert types["/e:u8"] == "array<smallint>"
    assert types["/e:vector"] == "array<array<float>>"
    first, second = frame.orderBy("time").collect()
    assert first["time_nanoseconds"] == 1_000_000_001
    assert first["time"].timestamp() == 1.0
    assert frame.where("time = timestamp'1970-01-01 00:00:01+00:00'").count() == 1
    assert frame.where("age < interval '1' second").count() == 2
    assert first["/e:u8"] == [1]
    assert first["/e:vector"] == [[1.0, 2.0]]
    assert second["/e:vector"] is None
    assert second["/e:text"] == []
    assert second["age"] == timedelta(0)
    assert second["age_nanoseconds"] == 6


def test_a_frame_of_spark_has_the_rows_of_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "TASK_BYTES", 400)
    view = generated_dataset(tmp_path, 7).filter_contents("/w/**")
    rows = view.reader("frame", fill_latest_at=True, executor="inline").to_arrow_table()
    found = view.to_spark("frame", fill_latest_at=True).toArrow()
    keys = [(name, "ascending") for name in ORDER]
    assert found.select(rows.column_names).sort_by(keys).to_pylist() == rows.sort_by(keys).to_pylist()


def test_what_datafusion_made_is_none_of_spark(tmp_path: Path) -> None:
    frame = small_dataset(tmp_path, 1).reader("frame")
    with pytest.raises(UsageError, match="the frame of a reader"):
        frame.select("frame").to_spark()


def test_metrics_are_those_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "TASK_BYTES", 700)  # a segment in several tasks
    dataset = generated_dataset(tmp_path, 3)
    told = []
    for executor in "inline", "spark":
        with query_metrics() as metrics:
            dataset.reader("frame", executor=executor).to_arrow_table()
        (query,) = metrics.queries
        told.append(query)
    here, spark = (
        {name: value for name, value in one.to_dict().items() if name.startswith(("query_", "filters_", "error_"))}
        for one in told
    )
    assert spark == here and here["query_chunks"]
    # every task opens the manifests that it needs, and reads its chunks
    assert told[1].fetch_bytes >= told[0].fetch_bytes >= told[0].query_bytes
    assert None not in (told[1].time_to_first_chunk, told[1].time_to_first_chunk_info)
