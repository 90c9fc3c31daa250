"""What is said of a cluster: the interpreter of its workers, the room that it has, and executors that end."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
from chunkmill.engine.errors import SessionError, SessionStartError
from chunkmill.engine.execution import spark_stage
from chunkmill.engine.spark import launch
from chunkmill.engine.spark.gateway import WorkerRoom
from chunkmill.engine.spark.jvm import Jvm

AWAITED = (
    "An error occurred while calling o71.collectToPython.\n"
    ": org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
    "\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)\n"
)
LOST = (
    "Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, "
    "most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): "
)


def stage_error(text: str) -> SessionError:
    return spark_stage._session_error(RuntimeError(text))


@pytest.mark.parametrize("around", ["", AWAITED])
def test_a_reason_has_no_names_of_java(around: str) -> None:
    error = stage_error(f"{around}{LOST}java.io.IOException: Stream is corrupted\n\tat x.y(Z.java:1)")
    assert str(error).startswith("CM601: the Spark stage failed: Stream is corrupted. ")
    assert type(error) is SessionError


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (
            'java.io.IOException: Cannot run program "/nope/python": error=2, No such file or directory',
            "Spark's workers cannot be started: /nope/python does not exist",
        ),
        ("x.PythonException: Traceback\nModuleNotFoundError: No module named 'chunkmill.engine'", "cannot be used"),
        ("org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down", "Spark ended"),
    ],
)
def test_what_is_of_no_input_ends_the_run_with_one_message(cause: str, said: str) -> None:
    error = stage_error(f"{AWAITED}{LOST}{cause}\n")
    assert isinstance(error, SessionStartError)
    assert said in str(error)
    assert "awaitResult" not in str(error) and "org.apache" not in str(error)


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("Command exited with code 137", "spark.executor.memoryOverhead"),
        ("The executor with id 1 exited with exit code 137(SIGKILL, possible container OOM).", "memoryOverhead"),
        ("Container killed by YARN for exceeding physical memory limits. 2.1 GB of 2 GB used.", "memoryOverhead"),
        ("Command exited with code 52", "spark.executor.memory,"),
        ("Container marked as failed. Exit status: 143. Diagnostics: x", "spark.task.maxFailures"),
        ("Remote RPC client disassociated. Likely due to containers exceeding thresholds.", "folder 'work'"),
    ],
)
def test_an_executor_that_was_lost_is_named_with_its_reason(reason: str, hint: str) -> None:
    cause = f"ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: {reason}\n\nDriver"
    error = stage_error(f"{AWAITED}{LOST}{cause}")
    assert type(error) is SessionError and error.transient
    assert f"executor 1 was lost: {reason.rstrip('.')}" in str(error) and hint in str(error)


def test_memory_of_the_JVM_is_named() -> None:  # noqa: N802
    error = stage_error(f"{AWAITED}{LOST}java.lang.OutOfMemoryError: Java heap space\n\tat x")
    assert "Java heap space" in str(error) and "spark.executor.memory" in str(error)


def test_a_module_of_the_users_is_one_of_the_stage() -> None:
    error = stage_error(f"{LOST}x.PythonException: Traceback\nModuleNotFoundError: No module named 'mine'")
    assert (type(error), "no mine" in str(error)) == (SessionError, True)


def test_executors_that_ended_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "Executor updated: app-1/0 is now EXITED (Command exited with code 1)"
    monkeypatch.setattr(spark_stage, "said_by_cluster", lambda: words)
    assert words in str(stage_error("Cannot call methods on a stopped SparkContext."))
    found = launch.start_error(
        "spark://a:7077", {}, ValueError("Cannot call methods on a stopped SparkContext."), words
    )
    assert "stopped SparkContext.; Executor updated: app-1/0 is now EXITED" in str(found)


class Session:
    """As much of a session as is looked at."""


def rooms(found: list[WorkerRoom] | Exception) -> Callable[..., list[WorkerRoom]]:
    def ask(*_: object) -> list[WorkerRoom]:
        if isinstance(found, Exception):
            raise found
        return found

    return ask


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            [WorkerRoom("a", 2, 1024), WorkerRoom("b", 0, 512)],
            "8g of memory and 4 cores; free on spark://a:7077: 2 cores and 1,024 MiB on a, 0 cores and 512 MiB on b;",
        ),
        ([WorkerRoom(str(n), 1, 1) for n in range(6)], "1 core and 1 MiB on 3, and 2 more workers;"),
        ([], "waiting for executors: spark://a:7077 has no workers"),
        (RuntimeError("no such class"), "the free resources of spark://a:7077 are unknown (no such class)"),
    ],
)
def test_what_was_asked_and_what_is_free(
    found: list[WorkerRoom] | Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "rooms_of", rooms(found))
    settings = {"spark.executor.memory": "8g", "spark.executor.cores": "4"}
    session: Any = Session()
    assert said in launch.room_text(session, "spark://a:7077", settings)


@pytest.mark.parametrize("has_it", [True, False])
def test_workers_run_the_drivers_interpreter_where_they_have_it(
    has_it: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def use(_session: object, python: str, _seconds: float) -> bool:
        asked.append(python)
        return has_it

    monkeypatch.setattr(launch, "use_python", use)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    session: Any = Session()
    with caplog.at_level(logging.WARNING):
        launch.prefer_driver_python(session, {})
        launch.prefer_driver_python(session, {"spark.pyspark.python": "python3.11"})
        monkeypatch.setenv("PYSPARK_PYTHON", "python3.12")
        launch.prefer_driver_python(session, {})
    assert asked == [sys.executable]
    assert [record.levelname for record in caplog.records] == ([] if has_it else ["WARNING"])


def test_the_jvms_words_are_kept_and_its_wait_is_told_otherwise(capfd: pytest.CaptureFixture[str]) -> None:
    jvm = Jvm.__new__(Jvm)
    told: list[bool] = []
    for name, value in {
        "_last_lines": [],
        "_said": [],
        "_connected": True,
        "tell_of_room": lambda: told.append(True),
    }.items():
        setattr(jvm, name, value)
    reading, writing = os.pipe()
    os.write(
        writing,
        b"chunkmill: Spark says: Executor a/0 is now EXITED\nchunkmill: waiting for Spark: Initial job\nother\n",
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as output:
        process: Any = type("Process", (), {"stdout": output})
        jvm.process = process
        jvm._forward()
    assert (jvm.said(), told, capfd.readouterr().err) == ("Executor a/0 is now EXITED", [True], "other\n")
