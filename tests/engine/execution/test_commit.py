"""Parts brought into the file while other tasks run: in order, whole, and only those that count."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.chunk.tuid import Minter, RunIds
from chunkmill.engine.errors import ReadError
from chunkmill.engine.execution.commit import Follower, RrdCommit, RunPlaces, Staging, all_extents, listed_extents
from chunkmill.engine.execution.sink import RrdParts, WriteBody
from chunkmill.engine.execution.stage import TaskRunner
from chunkmill.engine.execution.work import Task, Work, parse_rows
from chunkmill.engine.rrd import StoreEntry
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import RrdReader
from comparison import cells, rerun_verify

STORE = StoreEntry("recording", "app", "one")


def chunk(number: int, rows: int) -> Chunk:
    column = ComponentColumn("x", [float(number)] * rows)
    return Chunk.from_columns(f"/e/{number}", [TimeColumn("frame", sequence=range(rows))], [column])


class Made(Work):
    """Work of four tasks; the chunks of each are as many as its number, so that the first writes nothing."""

    def __init__(self) -> None:
        self.rows = 1
        self._ids = RunIds.begin()

    @property
    def tasks(self) -> list[Task]:
        return [Task(i, str(i), 1) for i in range(4)]

    @property
    def later(self) -> RunIds:
        return self._ids

    def run(self, index: int) -> Iterator[Chunk]:
        for i in range(index):
            yield chunk(10 * index + i, self.rows)

    def minter(self, index: int) -> Minter:
        return self._ids.task(index)

    def source_paths(self) -> set[str]:
        return set()


def until(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it takes too long")


def put_part(folder: Path, name: str, data: bytes) -> None:
    (folder / f"{name}.part").write_bytes(data)
    (folder / f"{name}.done").write_bytes(b"{}")


def test_parts_are_taken_in_the_order_of_their_tasks(tmp_path):
    (tmp_path / "file").write_bytes(b"head")
    follower = Follower(tmp_path, tmp_path / "file", 4, [(None, STORE)] * 4)
    put_part(tmp_path, "000001-b", b"second")
    put_part(tmp_path, "000000-a", b"")
    put_part(tmp_path, "000003-d", b"last")
    until(lambda: not (tmp_path / "000001-b.part").exists())
    assert follower.stop() == [("000000-a.part", 4, 0), ("000001-b.part", 4, 6)]
    assert (tmp_path / "file").read_bytes() == b"headsecond"
    assert (tmp_path / "000003-d.part").read_bytes() == b"last"


def test_what_cannot_be_taken_is_left_to_the_commit(tmp_path):
    (tmp_path / "file").write_bytes(b"head")
    follower = Follower(tmp_path, tmp_path / "file", 4, [(None, STORE)] * 2)
    (tmp_path / "000000-a.done").touch()  # its part is not there
    put_part(tmp_path, "000001-b", b"second")
    until(lambda: not follower._thread.is_alive())
    assert follower.stop() == []
    assert (tmp_path / "000001-b.part").exists()


@pytest.mark.parametrize("twice", [None, 1, 2, 3])
@pytest.mark.parametrize("runs", [None, RunPlaces()])
def test_the_part_that_counts_is_committed_whichever_was_taken(tmp_path, twice, runs):
    """Tasks are done once, but for one that is tried again: its first part is taken, its second one counts."""
    out, work = tmp_path / "out.rrd", Made()
    batches = []
    with Staging.beside(out) as staging, contextlib.closing(RrdCommit(staging, out, [STORE])) as commit:
        commit.follow([(None, STORE)] * 4)
        body = WriteBody(work, RrdParts((STORE,) * 4, str(out), runs=runs))
        job = TaskRunner(body, staging.location)
        for index in range(4):
            found = list(job.run(index))
            until(lambda: len(commit._follower._copied) > index)  # noqa: B023 - it is called here
            if index == twice:
                work.rows = 3  # another part, and a longer one
                found = list(job.run(index))
                work.rows = 1
            batches += found
        chunks, notes = parse_rows(batches)
        size = commit.finish((STORE,) * 4, all_extents(chunks, listed_extents(work, notes)))
    assert out.stat().st_size == size
    assert [p.name for p in tmp_path.iterdir()] == ["out.rrd"]
    expected = [chunk(10 * i + j, 3 if i == twice else 1) for i in range(4) for j in range(i)]
    found = RrdReader(out).stream().to_chunks(executor="inline")
    assert [(c.entity_path, c.num_rows) for c in found] == [(c.entity_path, c.num_rows) for c in expected]
    assert cells(found) == cells(expected)
    if twice == 2:  # each takes a second
        rerun_verify(out)


def test_a_run_that_fails_after_parts_were_written_leaves_nothing(tmp_path):
    def fails(given: Chunk) -> Chunk:
        if given.entity_path == "/e/3":
            time.sleep(0.05)
            raise ReadError("broken")
        return given

    stream = LazyChunkStream.from_iter([chunk(i, 2) for i in range(4)]).map(fails)
    with pytest.raises(ReadError, match="broken"):
        stream.write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="r", executor="inline")
    assert list(tmp_path.iterdir()) == []
