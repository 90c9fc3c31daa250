"""The same bytes give the same chunks in the same order: run after run, on any executor, on any number of cores.

The ids of what a run makes are the same, too, but for when the run began.
"""

from __future__ import annotations

import os
import pickle
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn, tuid
from chunkmill.engine.store import OptimizationProfile
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.engine.stream.lazy_stream import sink_of
from chunkmill.engine.stream.plan import compile_plan
from chunkmill.readers import McapReader, RrdReader
from chunkmill.readers.mcap import plan
from comparison import cells
from mcap.writer import CompressionType, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An MCAP of many chunks and, as splits are made small here, of many splits."""
    monkeypatch.setattr(plan, "SPLIT_BYTES", 20_000)
    path = tmp_path / "drive.mcap"
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=4_000, compression=CompressionType.ZSTD)
        writer.start("ros2", "test")
        schema = writer.register_schema("test_msgs/msg/Value", "ros2msg", b"float64 value\nstring name\n")
        channels = [writer.register_channel(f"/topic/{i}", "cdr", schema) for i in range(3)]
        for i in range(3000):
            name = f"message {i}".encode() + b"\0"
            data = b"\0\1\0\0" + struct.pack("<dI", i / 7, len(name)) + name
            writer.add_message(channels[i % 3], i * 1000, data, i * 1000 + 5, i)
        writer.finish()
    return path


def written(path: Path, out: Path, executor: str) -> list[Chunk]:
    stream = McapReader(path).stream().filter(content="/topic/** - /topic/1")
    result = stream.write_rrd(out, application_id="a", recording_id="r", executor=executor)
    assert result.splits > 5
    assert result.rows == 2000 + 2, "messages, and the schemas of two topics"
    return RrdReader(out).stream().to_chunks(executor="inline")


def test_runs_agree_on_any_executor(recording: Path, tmp_path: Path, spark: SparkSession) -> None:
    runs = [written(recording, tmp_path / f"{i}.rrd", e) for i, e in enumerate(["inline", "spark", "spark", "inline"])]
    first = cells(runs[0])
    assert len(first) > 5
    assert all(cells(run) == first for run in runs)
    collected = McapReader(recording).stream().filter(content="/topic/** - /topic/1").to_chunks(executor="spark")
    assert cells(collected) == first


EXECUTORS = pytest.mark.parametrize("executor", ["inline", "spark"])


def ids_of(chunks: Iterable[Chunk]) -> list[tuple[int, int]]:
    """The ids of chunks, each with those of its rows behind it, as (time, counter)."""
    data = [chunk.data for chunk in chunks]
    every = [i for d in data for i in (d.chunk_id, *d.row_ids.to_pylist())]
    return [(int.from_bytes(i[:8], "big"), int.from_bytes(i[8:], "big")) for i in every]


def since(ids: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ids as they follow from the smallest, which tells when the run began."""
    stamp, counter = min(ids)
    return [(s - stamp, c - counter) for s, c in ids]


def ascend(ids: list[tuple[int, int]]) -> bool:
    return ids == sorted(set(ids))


def slowly(chunk: Chunk) -> Chunk:
    """A chunk with the value of another, under ids of its own; the smaller the value, the longer it takes."""
    value = chunk.data.components[0].values[0].as_py()[0]
    time.sleep(0.3 / (1 + value))
    return numbered(value, is_static=chunk.is_static)


def numbered(value: int, *, is_static: bool = True) -> Chunk:
    indexes = [] if is_static else [TimeColumn("frame", sequence=[7])]
    return Chunk.from_columns("/same", indexes, [ComponentColumn("number", [[value]])])


def values(chunks: Iterable[Chunk]) -> list[int]:
    return [chunk.data.components[0].values[0].as_py()[0] for chunk in chunks]


def slow_inputs(count: int = 4, **kind: bool) -> LazyChunkStream:
    """Several inputs; on many cores the tasks of the last are done first."""
    return LazyChunkStream.merge(*(LazyChunkStream.from_iter([numbered(i, **kind)]).map(slowly) for i in range(count)))


def test_ids_ascend_with_the_output_and_are_the_same_in_every_run(
    recording: Path, tmp_path: Path, spark: SparkSession
) -> None:
    runs = [ids_of(written(recording, tmp_path / f"{i}.rrd", e)) for i, e in enumerate(["inline", "spark", "spark"])]
    assert all(map(ascend, runs))
    assert all(since(run) == since(runs[0]) for run in runs)
    assert max(runs[0]) < min(runs[1])
    assert max(runs[1]) < min(runs[2])


@EXECUTORS
def test_iteration_gives_the_same_ids(
    executor: str, recording: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", executor)
    iterated = ids_of(McapReader(recording).stream())
    assert since(iterated) == since(ids_of(McapReader(recording).stream().to_chunks()))


@EXECUTORS
def test_of_equal_times_the_row_of_the_later_input_has_the_larger_id(executor: str, spark: SparkSession) -> None:
    chunks = slow_inputs(is_static=False).to_chunks(executor=executor)
    assert values(chunks) == [0, 1, 2, 3]
    assert ascend(ids_of(chunks))


@EXECUTORS
@pytest.mark.parametrize("optimize", [None, OptimizationProfile.OBJECT_STORE])
def test_the_static_chunk_of_the_last_input_survives(
    optimize: OptimizationProfile | None, executor: str, spark: SparkSession
) -> None:
    stores = [slow_inputs().collect(executor=executor, optimize=optimize) for _ in range(2)]
    found = [store.stream().to_chunks(executor="inline") for store in stores]
    assert [values(chunks) for chunks in found] == [[3], [3]]
    assert since(ids_of(found[0])) == since(ids_of(found[1]))


@EXECUTORS
def test_stores_of_two_runs_have_the_same_ids(executor: str, recording: Path, spark: SparkSession) -> None:
    """In two stages: a task for each split, then one for each group of entities."""
    profile = OptimizationProfile.OBJECT_STORE
    runs = [McapReader(recording).stream().collect(executor=executor, optimize=profile) for _ in range(2)]
    ids = [ids_of(store.stream().to_chunks(executor="inline")) for store in runs]
    assert since(ids[0]) == since(ids[1])


def test_a_task_that_is_tried_again_mints_the_same_ids(recording: Path) -> None:
    plan = compile_plan(sink_of(McapReader(recording).stream()))
    tries = []
    for _ in range(2):
        there = pickle.loads(pickle.dumps(plan))
        tries.append(ids_of(tuid.minting(there.minter(3), there.run(3))))
    assert tries[0] == tries[1]
    other = ids_of(tuid.minting(plan.minter(4), plan.run(4)))
    assert max(tries[0]) < min(other)


def test_streams_iterated_in_turns_keep_their_ids(recording: Path) -> None:
    alone = since(ids_of(McapReader(recording).stream()))
    turns = list(zip(McapReader(recording).stream(), McapReader(recording).stream(), strict=True))
    first, second = (ids_of(chunks) for chunks in zip(*turns, strict=True))
    assert since(first) == since(second) == alone
    assert not set(first) & set(second)


@EXECUTORS
@pytest.mark.parametrize("iterates", [False, True])
def test_chunks_made_while_they_are_given_keep_the_order_of_the_inputs(
    iterates: bool, executor: str, spark: SparkSession
) -> None:
    """By generators, which run in this process whatever the executor: before tasks, or between their steps."""

    def made(start: int) -> Iterator[Chunk]:
        return (numbered(start + i, is_static=False) for i in range(2))

    def and_another(chunk: Chunk) -> list[Chunk]:
        return [chunk, numbered(10 + values([chunk])[0], is_static=False)]

    stream = LazyChunkStream.merge(
        LazyChunkStream.from_iter([numbered(0, is_static=False)]).map(slowly),
        LazyChunkStream.from_iter(made(1)).flat_map(and_another),
        LazyChunkStream.from_iter([numbered(3, is_static=False)]).map(slowly),
    )
    with mock.patch.dict(os.environ, CHUNKMILL_EXECUTOR=executor):
        chunks = list(stream) if iterates else stream.to_chunks()
    assert values(chunks) == [0, 1, 11, 2, 12, 3]
    by_id = sorted(chunks, key=lambda chunk: chunk.data.chunk_id)
    assert values(by_id) == [0, 1, 2, 11, 12, 3], "what is given to a task is there before what it makes"


@EXECUTORS
def test_a_run_within_a_task_goes_on_with_its_ids(executor: str, spark: SparkSession) -> None:
    def through_another(chunk: Chunk) -> Chunk:
        return LazyChunkStream.from_iter([chunk]).map(slowly).to_chunks(executor="inline")[0]

    inputs = (LazyChunkStream.from_iter([numbered(i)]).map(through_another) for i in range(3))
    chunks = LazyChunkStream.merge(*inputs).to_chunks(executor=executor)
    assert values(chunks) == [0, 1, 2]
    assert ascend(ids_of(chunks))


def test_ids_ascend_though_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[tuple[int, int]]:
        return ids_of([*slow_inputs(2).to_chunks(executor="inline"), numbered(5)])

    before = run()
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    after = [*run(), *run()]
    assert ascend([*before, *after])


def test_a_forked_process_mints_ids_of_its_own() -> None:
    with tuid.minted_by(tuid.RunIds.begin().task(0)):
        tuid.mint()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.write(writing, tuid.mint())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 16) != tuid.mint()
    os.close(reading)
    os.close(writing)


def test_nobody_gets_the_ids_of_the_rows_of_another_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while the clock stands still."""
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    ids = ids_of(Chunk.from_columns("/a", [], [ComponentColumn("x", [[1]] * 5)]) for _ in range(5))
    assert ascend(ids)
