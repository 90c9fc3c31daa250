"""Parts brought together into one file: in order, whole, and only those that count."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.chunk.tuid import Minter, RunIds
from chunkmill.engine.errors import ReadError
from chunkmill.engine.execution.chunk_rows import parse_rows
from chunkmill.engine.execution.commit import RrdCommit, RunPlaces, all_extents, listed_extents
from chunkmill.engine.execution.rrd_sink import RrdParts
from chunkmill.engine.execution.sink import WriteBody
from chunkmill.engine.execution.stage import TaskRunner
from chunkmill.engine.execution.staging import Staging
from chunkmill.engine.execution.work import Task
from chunkmill.engine.rrd import StoreEntry
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import RrdReader
from comparison import cells, rerun_verify

STORE = StoreEntry("recording", "app", "one")


def chunk(number: int, rows: int) -> Chunk:
    column = ComponentColumn("x", [float(number)] * rows)
    return Chunk.from_columns(f"/e/{number}", [TimeColumn("frame", sequence=range(rows))], [column])


class Made:
    """Work of four tasks; the chunks of each are as many as its number, so that the first writes nothing."""

    def __init__(self) -> None:
        self.tasks = [Task(i, str(i), 1) for i in range(4)]
        self.rows = 1
        self.later = RunIds.begin()

    def run(self, index: int) -> Iterator[Chunk]:
        for i in range(index):
            yield chunk(10 * index + i, self.rows)

    def minter(self, index: int) -> Minter:
        return self.later.task(index)

    def source_paths(self) -> set[str]:
        return set()


@pytest.mark.parametrize("twice", [None, 1, 2, 3])
@pytest.mark.parametrize("runs", [None, RunPlaces()])
def test_the_part_that_counts_is_committed_whichever_came_first(tmp_path, twice, runs):
    """Tasks are done once, but for one that is tried again: its first part is whole, its second one counts."""
    out, work = tmp_path / "out.rrd", Made()
    batches = []
    with Staging.beside(out) as staging, contextlib.closing(RrdCommit(staging, out, [STORE])) as commit:
        body = WriteBody(work, RrdParts((STORE,) * 4, str(out), runs=runs))
        job = TaskRunner(body, staging.location)
        for index in range(4):
            found = list(job.run(index))
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
