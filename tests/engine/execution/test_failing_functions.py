"""What a function of a pipeline raises arrives as it was, and says where: the same inline and on Spark."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import ChunkmillError, PipelineError, ReadError, SessionError, UsageError
from chunkmill.engine.execution.groups import PlannedRecording, write_recordings
from chunkmill.engine.execution.stage import RunOptions
from chunkmill.engine.rrd import StoreEntry
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import McapReader


def chunks(number: int = 3) -> list[Chunk]:
    return [
        Chunk.from_columns(f"/arm/{i}", [TimeColumn("frame", sequence=[i])], [ComponentColumn("angle", [float(i)])])
        for i in range(number)
    ]


class TopicError(Exception):
    """Takes more than it gives to its base, and keeps what the base does not know."""

    def __init__(self, topic: str, code: int, *, where: str) -> None:
        super().__init__(f"{topic} has code {code}")
        self.topic, self.code, self.where = topic, code, where


class DriveError(ReadError):
    """One of the project's own, made special by a user."""

    def __init__(self, drive: int) -> None:
        super().__init__(f"drive {drive} is bad", path=f"drive{drive}.mcap")
        self.drive = drive


def raised(error: Callable[[], BaseException]) -> BaseException:
    """What a pipeline raises whose function raises ``error`` for the second of three chunks."""

    def fails(chunk: Chunk) -> Chunk:
        if chunk.entity_path == "/arm/1":
            raise error()
        return chunk

    given = chunks()
    with pytest.raises(BaseException) as caught:  # noqa: PT011 (of any class)
        LazyChunkStream.from_iter(given).map(fails).to_chunks()
    told = "\n".join(caught.value.__notes__)
    assert f"In map(raised.<locals>.fails) for {given[1].id} of /arm/1." in told.replace("test_failing_functions.", "")
    return caught.value


def test_an_exception_keeps_its_class_arguments_and_attributes(executor: str) -> None:
    error = raised(lambda: TopicError("/imu", 7, where="left"))
    assert type(error) is TopicError
    assert (str(error), error.args, error.topic, error.code, error.where) == (
        "/imu has code 7",
        ("/imu has code 7",),
        "/imu",
        7,
        "left",
    )


def test_a_class_that_only_this_function_knows_is_raised(executor: str) -> None:
    class LocalError(ValueError):
        def __init__(self, low: int, high: int) -> None:
            self.low, self.high = low, high

        def __str__(self) -> str:
            return f"not in {self.low}..{self.high}"

    error = raised(lambda: LocalError(2, 5))
    assert type(error) is LocalError and str(error) == "not in 2..5"


@pytest.mark.parametrize(
    "make",
    [
        lambda: FileNotFoundError(2, "No such file or directory", "calibration.yaml"),
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        lambda: ConnectionResetError(104, "Connection reset by peer"),
        lambda: TimeoutError("the calibration server is slow"),
        lambda: DriveError(4),
        lambda: ReadError("is cut", path="f.mcap", offset=3),
        lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
        lambda: SystemExit("no such topic"),
        lambda: ZeroDivisionError(),
    ],
)
def test_exceptions_come_as_they_were(executor: str, make: Callable[[], BaseException]) -> None:
    error, like = raised(make), make()
    assert type(error) is type(like)
    assert (str(error), repr(error.args)) == (str(like), repr(like.args))
    mine, theirs = ({k: repr(v) for k, v in vars(e).items() if k != "__notes__"} for e in (error, like))
    assert mine == theirs


def test_what_an_exception_holds_that_cannot_travel_stays_behind(
    spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "spark")

    def make() -> TopicError:
        error = TopicError("/imu", 7, where="left")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        return error

    error = raised(make)
    assert type(error) is TopicError and str(error) == "/imu has code 7"


def test_a_function_that_ends_the_program_fails_its_recording_alone(executor: str, tmp_path: Path) -> None:
    def leaves(chunk: Chunk) -> Chunk:
        sys.exit("this drive has no lidar")

    good, bad = LazyChunkStream.from_iter(chunks()), LazyChunkStream.from_iter(chunks()).map(leaves)
    store = StoreEntry("recording", "app", "rec")
    recordings = [PlannedRecording(tmp_path / f"{i}.rrd", [(store, s._plan(None))]) for i, s in enumerate((bad, good))]
    outcomes = list(write_recordings(recordings, tmp_path, RunOptions()))
    assert isinstance(outcomes[0].error, PipelineError) and "this drive has no lidar" in str(outcomes[0].error)
    assert outcomes[1].report is not None and (tmp_path / "1.rrd").exists()


class Locked:
    def __init__(self) -> None:
        self.inner = {"guard": threading.Lock()}

    def __call__(self, chunk: Chunk) -> Chunk:
        return chunk


LOCK = threading.Lock()


def stays(kind: str) -> Callable[[Chunk], Chunk]:
    """A function that cannot travel."""
    guard = threading.Lock()
    holder = Locked()

    def uses_a_lock(chunk: Chunk) -> Chunk:
        with guard:
            return chunk

    def uses_a_holder(chunk: Chunk) -> Chunk:
        return holder(chunk)

    def uses_another(chunk: Chunk) -> Chunk:
        return uses_a_lock(chunk)

    functions = {"lock": uses_a_lock, "holder": uses_a_holder, "another": uses_another, "object": holder}
    return functions[kind]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("lock", r"map\(stays.<locals>.uses_a_lock\) cannot be sent .*'guard' of the function .*uses_a_lock"),
        ("holder", r"map\(.*uses_a_holder\) cannot .*\"holder.inner\['guard'\]\" of the function .*uses_a_holder"),
        ("another", r"map\(.*uses_another\) cannot .*'guard' of the function .*uses_a_lock"),
        ("object", r"map\(.*Locked object.*\) cannot .*\"function.inner\['guard'\]\""),
    ],
)
def test_what_cannot_travel_is_named_and_inline_it_runs(kind: str, told: str, spark: object) -> None:
    assert len(LazyChunkStream.from_iter(chunks()).map(stays(kind)).to_chunks(executor="inline")) == 3
    with pytest.raises(PipelineError, match=told) as caught:
        LazyChunkStream.from_iter(chunks()).map(stays(kind)).to_chunks(executor="spark")
    assert 'executor="inline"' in str(caught.value) and "cannot pickle '_thread.lock' object" in str(caught.value)


def test_a_worker_that_dies_names_its_input(spark: object, data: Path) -> None:
    def dies(chunk: Chunk) -> Chunk:
        os._exit(3)

    with pytest.raises(SessionError, match=r"worker ended unexpectedly, in the task for demo.mcap"):
        McapReader(data / "demo.mcap").stream().map(dies).to_chunks(executor="spark")


def paths_within(chunk: Chunk) -> Iterator[Chunk]:
    """A function that runs a pipeline of its own."""
    inner = LazyChunkStream.from_iter([chunk]).map(lambda c: c.with_entity_path("/in" + c.entity_path))
    yield from inner.to_chunks()
    yield from LazyChunkStream.from_iter([chunk])
    yield from LazyChunkStream.from_iter([chunk]).collect()


def test_a_pipeline_within_a_task_runs_there(executor: str) -> None:
    found = LazyChunkStream.from_iter(chunks(2)).flat_map(paths_within).to_chunks()
    assert [c.entity_path for c in found] == ["/in/arm/0", "/arm/0", "/arm/0", "/in/arm/1", "/arm/1", "/arm/1"]
    assert [c.to_record_batch().column("angle").to_pylist() for c in found[:3]] == [[[0.0]]] * 3


def test_spark_within_a_task_is_refused(spark: object) -> None:
    def inside(chunk: Chunk) -> Chunk:
        return LazyChunkStream.from_iter([chunk]).to_chunks(executor="spark")[0]

    def frame(chunk: Chunk) -> Chunk:
        LazyChunkStream.from_iter([chunk]).to_spark()
        return chunk

    for function in (inside, frame):
        with pytest.raises(UsageError, match="cannot run on Spark itself"):
            LazyChunkStream.from_iter(chunks()).map(function).to_chunks(executor="spark")


def test_a_module_whose_folder_came_later_is_told_as_that(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "calibrated.py").write_text("def same(chunk):\n    return chunk\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    same = importlib.import_module("calibrated").same
    assert len(LazyChunkStream.from_iter(chunks()).map(same).to_chunks(executor="inline")) == 3
    with pytest.raises(ChunkmillError, match="No module named 'calibrated'") as caught:
        LazyChunkStream.from_iter(chunks()).map(same).to_chunks(executor="spark")
    assert str(tmp_path) in str(caught.value) and "of the session's start" in str(caught.value)
    del sys.modules["calibrated"]
