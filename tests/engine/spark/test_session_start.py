"""What is told when Spark does not start: its reason, the setting, and no input's name."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chunkmill.engine.errors import SessionStartError
from chunkmill.engine.spark import launch
from chunkmill.engine.spark.jvm import without_farewells, write_logging
from chunkmill.engine.spark.launch import await_master, await_server, check_environment, reason_of, start_error
from chunkmill.engine.spark.session_conf import jvm_options

PY4J = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'
\tat org.apache.spark.SparkContext$.org$apache$spark$SparkContext$$createTaskScheduler(SparkContext.scala:3219)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
NESTED = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.lang.IllegalArgumentException: spark.executor.heartbeatInterval should be time, but was bogus
\tat org.apache.spark.internal.config.ConfigHelpers$.toNumber(ConfigBuilder.scala:36)
Caused by: java.lang.NumberFormatException: Failed to parse time string: bogus
\t... 15 more
"""
REASON = "spark.executor.heartbeatInterval should be time, but was bogus (Failed to parse time string: bogus)"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_the_reason_is_what_java_said_in_one_line() -> None:
    assert reason_of(Exception(PY4J)) == "Could not parse Master URL: 'local[x]'"
    assert reason_of(Exception(NESTED)) == REASON
    assert reason_of(OSError("no such thing")) == "no such thing"


def test_the_setting_at_fault_is_named() -> None:
    asked = {"spark.executor.heartbeatInterval": "bogus", "spark.app.name": "mine"}
    told = str(start_error("local[2]", asked, Exception(NESTED)))
    assert told == (f"CM603: Spark did not start on local[2]: {REASON}. Check spark.executor.heartbeatInterval=bogus.")
    assert str(start_error("local[x]", {}, Exception(PY4J))).endswith("Check spark.master=local[x].")
    with pytest.raises(SessionStartError, match=r"spark\.driver\.memory=abc is not a size"):
        jvm_options({"spark.driver.memory": "abc"})


def test_a_spark_home_without_spark_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    check_environment()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(SessionStartError, match=r"SPARK_HOME.*bin/spark-submit") as caught:
        check_environment()
    assert caught.value.path == str(tmp_path)


def test_a_master_that_nobody_answers_for_is_told_and_then_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(launch, "ANSWER_SECONDS", 0.6)
    monkeypatch.setattr(launch, "_WORD_SECONDS", 0.1)
    master = f"spark://127.0.0.1:{free_port()}"
    with pytest.raises(SessionStartError, match=f"{master} did not answer"):
        await_master(master)
    assert [record.message for record in caplog.records] == [f"no answer from {master} yet; waiting up to 1 s"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{listener.getsockname()[1]}")
    await_master("local[2]")


@pytest.mark.parametrize("mute", [True, False])
@pytest.mark.heavy
def test_a_connect_server_that_does_not_answer_is_given_up(mute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused or, worse, accepted and never served: Spark Connect tries for nine minutes."""
    pytest.importorskip("grpc_status")
    monkeypatch.setattr(launch, "ANSWER_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1] if mute else free_port()
        with pytest.raises(SessionStartError, match="did not answer"):
            await_server(f"sc://127.0.0.1:{port}")


def test_that_there_is_no_room_for_executors_is_the_one_thing_logged(tmp_path: Path) -> None:
    text = write_logging(tmp_path).read_text()
    assert "rootLogger.level = off" in text
    assert "Initial job has not accepted any resources" in text


def hung_up_on(tmp_path: Path, module: str, *arguments: str) -> bytes:
    """What a process of pyspark's prints when Spark connects to it, and closes the socket."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "spark"))
        listener.listen()
        environment = {
            **os.environ,
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
            "PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "spark"),
            "PYTHON_WORKER_FACTORY_SOCK_DIR": str(tmp_path),
        }
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-m", module, *arguments], env=environment, **pipes)
        assert process.stdout is not None
        if arguments:  # a daemon, which listens itself
            path = process.stdout.read(int.from_bytes(process.stdout.read(4), "big")).decode()
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(path)
        else:
            connection, _ = listener.accept()
        with connection:
            connection.recv(4, socket.MSG_WAITALL)
        time.sleep(0.5 if arguments else 0)
        return process.communicate(timeout=30)[1]


@pytest.mark.parametrize(
    "words",
    [
        ("pyspark.sql.streaming.python_streaming_source_runner",),
        ("pyspark.daemon", "pyspark.sql.worker.plan_data_source_read"),
    ],
)
def test_what_pyspark_says_when_spark_has_hung_up_is_left_out(words: tuple[str, ...], tmp_path: Path) -> None:
    said = hung_up_on(tmp_path, *words)
    assert b"BrokenPipeError" in said
    assert list(without_farewells([b"before\n", *said.splitlines(keepends=True), b"after\n"])) == [
        b"before\n",
        b"after\n",
    ]


def test_the_traces_of_others_are_shown() -> None:
    frame = b'  File "%s", line 1, in f\n'
    start, end = b"Traceback (most recent call last):\n", b"EOFError\n"
    theirs = [start, frame % b"/x/lib/python3.11/site-packages/pyspark/daemon.py", b"    code = worker()\n", end]
    chained = [b"\n", b"During handling of the above exception, another exception occurred:\n", b"\n"]
    users = [start, theirs[1], frame % b"/jobs/job.py", end]
    failed = [*theirs[:3], b"ValueError: 1\n"]
    for shown in (
        [b"a\n", *users, b"b\n"],
        failed,
        [*users, *chained, *failed],
        [b"\n", *users, b"\n"],
        [start],
        users[:2],
    ):
        assert list(without_farewells(shown)) == shown
    assert list(without_farewells([*theirs, *chained, *theirs, b"b\n"])) == [b"b\n"]
    assert list(without_farewells([*theirs, *chained, *users])) == [*chained, *users]
    assert list(without_farewells([*users, *chained, *theirs, b"b\n"])) == [*users, *chained, b"b\n"]


@pytest.mark.timeout(120)
def test_a_start_that_fails_is_told_in_one_paragraph_without_an_input(data: Path, tmp_path: Path) -> None:
    main = "from chunkmill.engine.cli import main; main()"
    files = [str(data / "demo.mcap"), "-o", str(tmp_path / "out.rrd")]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    command = [sys.executable, "-c", main, "convert", *files, "--executor", "spark", "--master", "local[x]"]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "CHUNKMILL_SCRATCH": str(tmp_path / "scratch")},
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("chunkmill: error: CM603: Spark did not start on local[x]: ")
    assert "Could not parse Master URL" in ran.stderr
    assert ran.stderr.endswith("Check spark.master=local[x].\n")
    assert ran.stderr.count("\n") == 1
    assert not list((tmp_path / "scratch").iterdir())


def test_a_program_ends_quietly_though_its_connect_server_is_gone() -> None:
    code = (
        "import atexit\n"
        "from types import SimpleNamespace\n"
        "from chunkmill.engine.spark.launch import ScriptedSession\n"
        "def release(): raise RuntimeError('the server is gone')\n"
        "class Session(ScriptedSession):\n"
        "    def __init__(self): self._master = 'sc://gone'; self._session = SimpleNamespace(client=client)\n"
        "    def _clear(self): print('cleared')\n"
        "client = SimpleNamespace(release_session=release)\n"
        "atexit.register(Session().stop)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("cleared\n", "")
