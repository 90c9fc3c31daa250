"""Iterating a stream gives chunks as they are made, in order, with little ahead: the same inline and on Spark."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import SessionError
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.lenses import DeriveLens
from chunkmill.readers import McapReader, RrdReader


def chunk(i: int) -> Chunk:
    return Chunk.from_columns(f"/arm/{i}", [TimeColumn("frame", sequence=[i])], [ComponentColumn("angle", [float(i)])])


def endless() -> Iterator[Chunk]:
    return map(chunk, itertools.count())


def paths(chunks: Iterator[Chunk]) -> list[str]:
    return [c.entity_path for c in chunks]


def numbered(numbers: range) -> list[str]:
    return [f"/arm/{i}" for i in numbers]


def moved(c: Chunk) -> Chunk:
    return c.with_entity_path("/moved" + c.entity_path)


def many_splits(folder: Path, count: int) -> LazyChunkStream:
    """A stream of ``count`` files with a chunk each."""
    streams = []
    for i in range(count):
        path = folder / f"{i}.rrd"
        LazyChunkStream.from_iter([chunk(i)]).write_rrd(path, application_id="a", recording_id="r", executor="inline")
        streams.append(RrdReader(path).stream())
    return LazyChunkStream.merge(*streams)


def test_an_endless_iterator_gives_its_first_chunks(executor: str) -> None:
    stream = iter(LazyChunkStream.from_iter(endless()).map(moved))
    assert paths(itertools.islice(stream, 30)) == ["/moved" + p for p in numbered(range(30))]
    stream.close()  # type: ignore[attr-defined]


def test_all_chunks_come_in_order_and_can_be_read(executor: str) -> None:
    given = list(
        LazyChunkStream.merge(*(LazyChunkStream.from_iter(map(chunk, range(*r))) for r in ((0, 70), (70, 100))))
    )
    assert paths(iter(given)) == numbered(range(100))
    assert [c.to_record_batch().column("angle").to_pylist() for c in given] == [[[float(i)]] for i in range(100)]


def test_iteration_gives_what_to_chunks_gives(executor: str, data: Path) -> None:
    stream = McapReader(data / "demo.mcap").stream().drop(content="/camera/**")
    one, two = list(stream), stream.to_chunks()
    assert [(c.entity_path, c.num_rows) for c in one] == [(c.entity_path, c.num_rows) for c in two]
    assert one


def test_an_error_comes_after_the_chunks_before_it(executor: str) -> None:
    def fails(c: Chunk) -> Chunk:
        if c.entity_path == "/arm/6":
            raise ZeroDivisionError("the seventh")
        return c

    given: list[Chunk] = []
    with pytest.raises(ZeroDivisionError, match="the seventh"):
        given.extend(LazyChunkStream.from_iter(map(chunk, range(10))).map(fails))
    assert paths(iter(given)) == numbered(range(6))


def test_an_error_of_the_iterator_comes_after_the_chunks_before_it(executor: str) -> None:
    def ends() -> Iterator[Chunk]:
        yield from map(chunk, range(6))
        raise ConnectionResetError("the recorder is gone")

    given: list[Chunk] = []
    with pytest.raises(ConnectionResetError, match="the recorder is gone"):
        given.extend(LazyChunkStream.from_iter(ends()))
    assert paths(iter(given)) == numbered(range(6))


def test_a_slow_iterator_gives_each_chunk_before_it_is_asked_for_the_next(executor: str) -> None:
    asked = []

    def live() -> Iterator[Chunk]:
        for i in range(3):
            time.sleep(0.05)
            asked.append(i)
            yield chunk(i)

    for n, _ in enumerate(LazyChunkStream.from_iter(live())):
        assert asked == list(range(n + 1))


def test_few_tasks_run_ahead_and_those_end_when_the_loop_is_left(executor: str, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def marked(c: Chunk) -> Chunk:
        (marks / c.entity_path.rpartition("/")[2]).touch()
        if c.entity_path == "/arm/3":
            time.sleep(30)
        return c

    stream = iter(many_splits(tmp_path, 40).map(marked))
    assert next(stream).entity_path == "/arm/0"
    time.sleep(1)
    assert len(list(marks.iterdir())) <= 8
    started = time.monotonic()
    stream.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 5
    begun = len(list(marks.iterdir()))
    time.sleep(0.5)
    assert len(list(marks.iterdir())) == begun


def test_loops_may_stand_in_loops(executor: str) -> None:
    pairs = [
        (a.entity_path, b.entity_path)
        for a in LazyChunkStream.from_iter(map(chunk, range(3))).map(moved)
        for b in LazyChunkStream.from_iter([a, a])
    ]
    assert pairs == [(p, p) for p in ("/moved" + n for n in numbered(range(3))) for _ in range(2)]


def test_what_was_given_goes_with_the_last_who_holds_it(
    spark: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "spark")
    monkeypatch.setenv("CHUNKMILL_SCRATCH", str(tmp_path))
    stream = iter(LazyChunkStream.from_iter(endless()))
    kept = next(stream)
    next(itertools.islice(stream, 499, None))
    early = set(tmp_path.rglob("*.part"))
    assert len(early) > 2
    for c in itertools.islice(stream, 30_000):
        if c.entity_path.endswith("00") and len(early & set(tmp_path.rglob("*.part"))) <= 2:
            break  # those that the kept chunk lies in are left
    else:
        pytest.fail("files of chunks that nobody holds stay")
    stream.close()  # type: ignore[attr-defined]
    assert kept.to_record_batch().num_rows == 1
    del c, kept, stream
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_dies_ends_the_loop_behind_what_came(spark: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "spark")

    def dies(c: Chunk) -> Chunk:
        if c.entity_path == "/arm/5":
            time.sleep(0.5)
            os._exit(3)
        return c

    given: list[Chunk] = []
    with pytest.raises(SessionError, match=r"worker ended unexpectedly, in the task for from_iter"):
        given.extend(LazyChunkStream.from_iter(map(chunk, range(10))).map(dies))
    assert paths(iter(given[:1])) == ["/arm/0"]


def test_warnings_and_quarantine_are_as_ever(executor: str, data: Path, tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    source = data / "mcap" / "pj-mcap-server__test_bad_schema.mcap"
    with pytest.warns(UserWarning, match="Garbage"):
        assert list(McapReader(source).stream())
    lens = DeriveLens("angle", output_entity="/out").to_component("out", ".missing")
    table = tmp_path / "quarantine.lance"
    stream = LazyChunkStream.from_iter(map(chunk, range(5))).lenses(lens, on_error="quarantine", quarantine=table)
    assert list(stream) == []
    assert lance.dataset(str(table)).count_rows() == 5
