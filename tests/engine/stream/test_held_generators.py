"""A user's generator that holds a resource lets it go at every way out, while the exception and its frames are kept."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn, ValueSchema
from chunkmill.engine.data_sources.reading import ValueJob
from chunkmill.engine.execution import Part, Piece, chunk_frames
from chunkmill.engine.execution.chunk_frames import PayloadJob
from chunkmill.engine.execution.sink import RrdParts, WriteBody
from chunkmill.engine.execution.stage import TaskRun
from chunkmill.engine.execution.work import RowWriter
from chunkmill.engine.rrd import StoreEntry
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.engine.task_context import TaskContext, as_task, held


class BadError(Exception):
    """What a function of a user raises."""


@contextmanager
def resource(folder: Path) -> Iterator[None]:
    """A resource of whatever process: a file while it is held, and one with another name after."""
    name = uuid.uuid4().hex
    (folder / f"{name}.open").touch()
    try:
        yield
    finally:
        (folder / f"{name}.open").rename(folder / f"{name}.closed")


def of(folder: Path, suffix: str) -> int:
    return len(list(folder.glob(f"*.{suffix}")))


def check_closed(folder: Path, kept: object = None) -> None:
    """Whether every resource was let go, though an exception is ``kept``, and with it the frames it went through."""
    assert of(folder, "open") == 0, kept
    assert of(folder, "closed") > 0


def chunk(name: str = "/a", value: float = 1.0) -> Chunk:
    return Chunk.from_columns(name, [TimeColumn("frame", sequence=[0])], [ComponentColumn("x", [value])])


def holding(folder: Path) -> Callable[[Chunk], Iterator[Chunk]]:
    """A function for ``flat_map`` whose generators hold a resource."""

    def function(given: Chunk) -> Iterator[Chunk]:
        with resource(folder):
            yield given
            yield given

    return function


def bad(given: Chunk) -> Chunk:
    raise BadError(given.entity_path)


def chunks_held(folder: Path, count: int = 3) -> Iterator[Chunk]:
    with resource(folder):
        for number in range(count):
            yield chunk(f"/{number}")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "held"
    made.mkdir()
    gc.disable()  # what only a collection of garbage closes is not closed
    yield made
    gc.enable()


def streams(folder: Path) -> dict[str, Callable[[], LazyChunkStream]]:
    """Pipelines with a generator of a user's in each place that takes one."""
    return {
        "flat_map": lambda: LazyChunkStream.from_iter([chunk(), chunk("/b")]).flat_map(holding(folder)),
        "twice": lambda: (
            LazyChunkStream.from_iter([chunk(), chunk("/b")]).flat_map(holding(folder)).flat_map(holding(folder))
        ),
        "from_iter": lambda: LazyChunkStream.from_iter(chunks_held(folder)),
        "merged": lambda: LazyChunkStream.merge(
            LazyChunkStream.from_iter([chunk()]).flat_map(holding(folder)),
            LazyChunkStream.from_iter(chunks_held(folder)),
        ),
    }


KINDS = ["flat_map", "twice", "from_iter", "merged"]


def written(stream: LazyChunkStream, path: Path) -> object:
    return stream.write_rrd(path / "x.rrd", application_id="a", recording_id="r")


RUNS: dict[str, Callable[[LazyChunkStream, Path], object]] = {
    "to_chunks": lambda stream, _: stream.to_chunks(),
    "write_rrd": written,
    "collect": lambda stream, _: stream.collect(),
    "iteration": lambda stream, _: list(stream),
    "to_arrow": lambda stream, _: stream.to_arrow(index="frame"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run", RUNS)
def test_where_a_function_behind_it_fails(run: str, kind: str, folder: Path, tmp_path: Path, executor: str) -> None:
    with pytest.raises(BadError) as kept:
        RUNS[run](streams(folder)[kind]().map(bad), tmp_path)
    check_closed(folder, kept)


@pytest.mark.parametrize("kind", KINDS)
def test_where_iteration_stops_early(kind: str, folder: Path, executor: str) -> None:
    taken = iter(streams(folder)[kind]())
    assert next(taken)
    taken.close()
    check_closed(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_loop_over_it_fails(kind: str, folder: Path, executor: str) -> None:
    def loop() -> None:
        for one in streams(folder)[kind]():
            bad(one)

    with pytest.raises(BadError) as kept:
        loop()
    check_closed(folder, kept)


@pytest.mark.parametrize("kind", KINDS)
def test_where_its_chunk_is_none(kind: str, folder: Path) -> None:
    def wrong() -> Iterator[Any]:
        with resource(folder):
            yield chunk()
            yield "no chunk"

    made = {"from_iter": LazyChunkStream.from_iter(wrong())}
    stream = made.get(kind) or LazyChunkStream.from_iter([chunk()]).flat_map(lambda _: wrong())
    with pytest.raises(AttributeError, match="expected a Chunk") as kept:
        stream.to_chunks(executor="inline")
    check_closed(folder, kept)


def takes_one(rows: Iterator[Any], *_: object) -> Iterator[Any]:
    next(rows)
    raise BadError("no room")
    yield


class FullPart(Part):
    """A part for which there is no room."""

    def write(self, piece: Piece) -> None:
        raise BadError("no room")

    def close(self) -> dict[str, Any]:
        return {}

    def discard(self) -> None:
        pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("consumer", ["part", "payload", "values"])
def test_where_what_takes_its_chunks_fails(
    consumer: str, kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frame of the consumer, which the exception keeps, has the generator in a variable."""
    work = streams(folder)[kind]()._plan("inline")
    if consumer == "part":
        monkeypatch.setattr(RrdParts, "open", lambda *_: FullPart())
        parts = RrdParts((StoreEntry("recording", "a", "r"),) * len(work.tasks), str(tmp_path / "x.rrd"))
        run = WriteBody(work, parts).run(TaskRun(0, "0", str(tmp_path), RowWriter(0)))
    elif consumer == "payload":
        monkeypatch.setattr(chunk_frames, "batches_of", takes_one)
        run = PayloadJob(work).run(0)
    else:
        monkeypatch.setattr(ValueSchema, "batches", lambda _, chunks, __: takes_one(chunks))
        run = ValueJob(work, ValueSchema((), {}, frozenset()), None, pa.schema([])).run(0)
    with pytest.raises(BadError, match="no room") as kept:
        list(as_task(run))
    check_closed(folder, kept)


class TestOnSpark:
    @pytest.mark.parametrize("kind", ["flat_map", "twice"])
    def test_the_rows_of_a_frame(self, kind: str, folder: Path, spark) -> None:
        with pytest.raises(Exception, match="BadError") as kept:
            streams(folder)[kind]().map(bad).to_spark(payload=True).collect()
        check_closed(folder, kept)

    @pytest.mark.parametrize("options", [{"payload": True}, {"index": "frame"}], ids=str)
    def test_a_frame_of_which_few_rows_are_taken(self, options: dict[str, Any], folder: Path, spark) -> None:
        frame = streams(folder)["flat_map"]().to_spark(**options)
        assert len(frame.limit(1).collect()) == 1
        check_closed(folder)

    def test_the_tasks_of_a_frame(self, folder: Path) -> None:
        work = streams(folder)["flat_map"]().map(bad)._plan("inline")
        with pytest.raises(BadError) as kept:
            list(as_task(PayloadJob(work).run(0)))
        check_closed(folder, kept)

    def test_partitions_of_a_frame_that_are_transformed(self, folder: Path) -> None:
        work = LazyChunkStream.from_iter([chunk()])._plan("inline")
        rows = [pa.Table.from_batches(list(PayloadJob(work).run(0))).to_batches()[0]]

        def function(given: Iterator[Chunk]) -> Iterator[Chunk]:
            plan = streams(folder)["flat_map"]().map(bad)._plan("inline")
            return plan.over(given)

        with pytest.raises(BadError) as kept:
            list(chunk_frames._transformed(function, rows))
        check_closed(folder, kept)


class TestTasks:
    def numbers(self, folder: Path, fails: bool = False) -> Iterator[int]:
        with resource(folder):
            yield from range(5)
            if fails:
                raise BadError

    def test_two_runs_in_turns_close_their_own(self, folder: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()

        def both() -> Iterator[int]:
            one = as_task(map(int, held(self.numbers(folder))))
            two = as_task(map(int, held(self.numbers(other))))
            assert (next(one), next(two)) == (0, 0)
            one.close()
            check_closed(folder)
            assert of(other, "open") == 1
            yield next(two)

        assert list(as_task(both())) == [1]
        check_closed(other)

    def test_a_task_closes_what_began_within_those_that_it_runs(self, folder: Path) -> None:
        kept: list[Iterator[int]] = []

        def outer() -> Iterator[int]:
            kept.append(as_task(map(int, held(self.numbers(folder)))))
            yield next(kept[0])

        assert list(as_task(outer())) == [0]
        check_closed(folder)

    def test_one_that_is_taken_to_its_end_is_let_go(self, folder: Path) -> None:
        context = TaskContext()
        assert list(context.run(held(self.numbers(folder)))) == [0, 1, 2, 3, 4]
        assert not context._held
        check_closed(folder)

    def test_the_first_error_is_the_one_that_is_raised(self) -> None:
        def stubborn() -> Iterator[int]:
            try:
                yield 1
            finally:
                raise ValueError("it cannot be closed")

        def failing() -> Iterator[int]:
            rows = map(int, held(stubborn()))
            yield next(rows)
            raise BadError("the reason")

        with pytest.raises(BadError, match="the reason") as raised:
            list(as_task(failing()))
        assert raised.value.__notes__ == ["A generator that was closed then raised ValueError: it cannot be closed"]
        with pytest.raises(ValueError, match="it cannot be closed"):
            next(given := as_task(map(int, held(stubborn())))) and given.close()
