"""What every sink has to do, whatever its format: all chunks in order, or nothing."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import LensError, NoSpaceError, SessionError
from chunkmill.engine.execution.commit import Staging
from chunkmill.engine.execution.reporting import Ran
from chunkmill.engine.execution.sink import ShardSink, WriteBody
from chunkmill.engine.execution.stage import TaskRunner
from chunkmill.engine.execution.work import parse_rows
from chunkmill.engine.rrd import StoreEntry
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import RrdReader
from file_limits import largest_file

STORE = StoreEntry("recording", "a", "r")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "sinks.md"
NAMES = [f"/e/{i}" for i in range(6)]


def sink_of_the_page() -> Any:
    """The sink that the documentation makes: a class, and what it imports."""
    block = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert block is not None
    text = block[1]
    assert len(text[text.index("@dataclass") :].splitlines()) <= 60
    names = {"__name__": "__main__"}  # it travels by value, as the class of a script
    exec(compile(text, str(PAGE), "exec", dont_inherit=True), names)
    return names["JsonLines"]


def write(kind: str, stream: LazyChunkStream, path: Path, executor: str) -> int:
    if kind == "lines":
        return stream.write_to(sink_of_the_page()(path), executor=executor).chunks
    if kind == "shards":
        return stream.write_to(ShardSink(path, STORE, 1 << 20), executor=executor).chunks
    return stream.write_rrd(path, application_id="a", recording_id="r", executor=executor).chunks


def names_in(path: Path) -> list[str]:
    if path.is_dir():
        return [name for shard in sorted(path.iterdir()) for name in names_in(shard)]
    if path.suffix == ".rrd":
        return [c.entity_path for c in RrdReader(path).stream().to_chunks(executor="inline")]
    return [json.loads(line)["entity_path"] for line in path.read_text().splitlines()]


def stream(change: Callable[[Chunk], Chunk] = lambda chunk: chunk) -> LazyChunkStream:
    """Three tasks of two chunks each."""
    column = ComponentColumn("x", [1.0, 2.0])
    chunks = [Chunk.from_columns(name, [TimeColumn("frame", sequence=[0, 1])], [column]) for name in NAMES]
    inputs = [LazyChunkStream.from_iter(chunks[i : i + 2]) for i in range(0, 6, 2)]
    return LazyChunkStream.merge(*inputs).map(change)


@pytest.fixture(params=["inline", "spark"])
def executor(request: pytest.FixtureRequest) -> str:
    if request.param == "spark":
        request.getfixturevalue("spark")
    name: str = request.param
    return name


@pytest.fixture(params=["rrd", "shards", "lines"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def path(kind: str, tmp_path: Path) -> Path:
    return tmp_path / {"rrd": "out.rrd", "shards": "out", "lines": "out.jsonl"}[kind]


def test_chunks_come_in_order_and_nothing_else_is_left(kind: str, path: Path, executor: str) -> None:
    assert write(kind, stream(), path, executor) == 6
    assert names_in(path) == NAMES
    assert list(path.parent.iterdir()) == [path]


def test_of_a_run_that_fails_nothing_is_left(kind: str, path: Path, executor: str) -> None:
    def fails(chunk: Chunk) -> Chunk:
        if chunk.entity_path == "/e/3":
            raise LensError("no", component="x")
        return chunk

    with pytest.raises(LensError, match="no"):
        write(kind, stream(fails), path, executor)
    assert list(path.parent.iterdir()) == []


def test_what_stood_there_stays_when_a_run_fails(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write("lines", stream(), path, "inline")
    before = path.read_bytes()

    def fails(chunk: Chunk) -> Chunk:
        raise LensError("no", component="x")

    with pytest.raises(LensError):
        write("lines", stream(fails), path, "inline")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("spark")
def test_of_a_run_whose_worker_is_killed_nothing_is_left(kind: str, path: Path) -> None:
    def dies(chunk: Chunk) -> Chunk:
        if chunk.entity_path == "/e/4":
            os.kill(os.getpid(), signal.SIGKILL)
        return chunk

    with pytest.raises(SessionError):
        write(kind, stream(dies), path, "spark")
    assert list(path.parent.iterdir()) == []


def test_where_there_is_no_room_nothing_is_left(kind: str, path: Path) -> None:
    many = LazyChunkStream.merge(stream(), stream())
    with largest_file(400), pytest.raises(NoSpaceError) as raised:
        write(kind, many, path, "inline")
    assert str(path) in str(raised.value)
    assert list(path.parent.iterdir()) == []


def test_where_a_task_finds_no_room_nothing_is_left(kind: str, path: Path, executor: str) -> None:
    """What is written of a chunk is handed on at once, as it is large, while the limit of the worker holds."""

    def limited(chunk: Chunk) -> Iterator[Chunk]:
        with largest_file(400):
            yield chunk

    blob = ComponentColumn("x", pa.array([[random.Random(1).randbytes(1_200_000)]], pa.list_(pa.binary())))
    large = Chunk.from_columns(f"/{'e' * 10_000}", [TimeColumn("frame", sequence=[0])], [blob])
    inputs = [LazyChunkStream.from_iter([large, large]).flat_map(limited), stream()]
    with pytest.raises(NoSpaceError) as raised:
        write(kind, LazyChunkStream.merge(*inputs), path, executor)
    assert str(path) in str(raised.value)
    assert list(path.parent.iterdir()) == []
    assert write(kind, stream(), path, executor) == 6


def test_of_a_task_that_was_done_twice_one_part_counts(tmp_path: Path) -> None:
    """The first try had its part whole, and was not heard of any more."""
    sink, plan = sink_of_the_page()(tmp_path / "out.jsonl"), stream()._plan("inline")
    with Staging.beside(sink.destination) as staging:
        runner = TaskRunner(WriteBody(plan, sink.begin(plan, staging)), staging.location)
        tries = [list(runner.run(index)) for index in (0, 1, 1, 2)]
        assert sum(name.endswith(".part") for name in staging.folder.names()) == 4
        heard = chain(tries[0], tries[2], tries[3])
        sink.commit(Ran(list(plan.tasks), *parse_rows(heard)), staging)
    assert names_in(tmp_path / "out.jsonl") == NAMES
