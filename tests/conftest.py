"""What every test can ask for: real recordings, and one Spark session for the whole suite.

Property tests take the same examples in every run (the profile ``fixed``). The profile ``fresh`` gives new ones, and
``CHUNKMILL_TEST_EXAMPLES=100`` a hundred times as many::

    python -m pytest -m hypothesis --hypothesis-profile=fresh

The run prints its seed, and for each failure the command that repeats it.
"""

from __future__ import annotations

import atexit
import gc
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from file_limits import SmallDisk, can_mount, small_disk
from hypothesis import HealthCheck, is_hypothesis_test, settings
from marks import set_marks
from places import DATA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("CHUNKMILL_EXECUTOR", "inline")

# A machine under load is slow, and what is slow by itself meets the timeout of a test.
PROFILE = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", PROFILE, derandomize=True)
settings.register_profile("fresh", PROFILE, derandomize=False, print_blob=True)
settings.load_profile("fixed")

EXAMPLES = "CHUNKMILL_TEST_EXAMPLES"
"""The environment variable that multiplies the examples of each property test."""

MEMORY = Path("/dev/shm")
"""A folder in memory, where the machine has one."""

ROOM = 8 << 30
"""Bytes that have to be free for tests to write there: many times what they leave."""

MAKE_ARCHIVE = "from chunkmill.engine.spark.session import make_archive; make_archive()"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the tests of a plain run, the seed of fresh examples, what stops a run, and where tests write."""
    if config.args_source is config.ArgsSource.TESTPATHS and not _chooses_tests(config):
        config.option.markexpr = "quick"
    if config.option.hypothesis_profile == "fresh" and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(secrets.randbits(32))
    if os.environ.get("CI"):
        lines = config.getini("filterwarnings")  # the list that the configuration keeps
        lines[:] = ["error" + line.removeprefix("default") if line.startswith("default") else line for line in lines]
    _write_to_memory(config)


def _chooses_tests(config: pytest.Config) -> bool:
    """Return whether ``-m`` or ``-k`` was given, be it empty."""
    return bool(config.option.keyword) or any(str(part).startswith("-m") for part in config.invocation_params.args)


def _write_to_memory(config: pytest.Config) -> None:
    """Have what tests write lie in memory, where there is room for it and no folder was chosen.

    Stores ask the disk tens of thousands of times to keep what they wrote, which takes some 6 ms each; whether they ask
    in the right order is for ``tests/faults`` to tell.
    """
    if config.option.basetemp or os.environ.get("TMPDIR") or not _has_room(MEMORY):
        return
    for left in MEMORY.glob("chunkmill-test-*"):  # by a run that was killed
        if not Path("/proc", left.name.rpartition("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = MEMORY / f"chunkmill-test-{os.getpid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    config.option.basetemp = str(folder / "t")  # short, as the path of a socket has 107 bytes
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    atexit.register(_remove, folder, os.getpid())  # behind what ends a Spark session, which has its files there


def _has_room(folder: Path) -> bool:
    try:
        system = os.statvfs(folder)
        memory = Path("/proc/meminfo").read_text()
    except OSError:
        return False
    available = int(memory.partition("MemAvailable:")[2].split()[0]) << 10
    is_usable = os.access(folder, os.W_OK) and not system.f_flag & os.ST_NOEXEC
    return is_usable and min(available, system.f_bavail * system.f_frsize) >= ROOM


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _replay(config: pytest.Config, *tests: str) -> str:
    """The command that runs property tests with the seed of this run."""
    factor = f"{EXAMPLES}={os.environ[EXAMPLES]} " if EXAMPLES in os.environ else ""
    options = f"--hypothesis-profile=fresh --hypothesis-seed={config.option.hypothesis_seed}"
    return f"{factor}python -m pytest {options} {shlex.join(tests or ['-m', 'hypothesis'])}"


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which seed the examples have, where it is not the fixed one."""
    is_fresh = config.option.hypothesis_profile == "fresh"
    return [f"fresh examples of property tests; again: {_replay(config)}"] if is_fresh else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how to repeat each property test that failed for a fresh example."""
    if config.option.hypothesis_profile == "fresh":
        for report in terminalreporter.getreports("failed"):
            if "hypothesis" in report.keywords:
                terminalreporter.write_line(f"again: {_replay(config, '-m', 'hypothesis', report.nodeid)}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set the marks, and multiply the examples of property tests: by a tenth, where only quick tests run."""
    set_marks(items)
    factor = float(os.environ.get(EXAMPLES, "0.1" if config.option.markexpr == "quick" else "1"))
    if factor == 1:
        return
    multiplied = set()
    for item in items:
        function = getattr(item, "obj", None)
        if not is_hypothesis_test(function):
            continue
        owner = getattr(function, "__self__", None)
        if hasattr(type(owner), "settings"):  # of a state machine
            if type(owner) not in multiplied:
                type(owner).settings = _times(type(owner).settings, factor)
            multiplied.add(type(owner))
            continue
        function = getattr(function, "__func__", function)
        if function not in multiplied:  # a test with parameters is one function
            function._hypothesis_internal_use_settings = _times(function._hypothesis_internal_use_settings, factor)
        multiplied.add(function)


def _times(usual: settings, factor: float) -> settings:
    return settings(usual, max_examples=max(1, round(usual.max_examples * factor)))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Make the archive of Spark's classes beside the first tests of a whole run, where it is not there yet.

    The suite starts some fifty JVMs, each in 8.5 s of CPU with the archive and in 14.5 without; what a session that
    ends makes in the background has lowest priority, and may take as long as the suite.
    """
    config = session.config
    if config.args_source is config.ArgsSource.TESTPATHS and not config.option.collectonly:
        quiet = subprocess.DEVNULL
        command = [sys.executable, "-c", MAKE_ARCHIVE]
        subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


def pytest_collection_finish() -> None:
    """Leave the tests themselves, half a million objects, out of what each collection of garbage goes through."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of recordings inside the repository."""
    return DATA


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The one Spark session of the suite: two cores, one retry of a failed task."""
    from chunkmill.engine import get_session

    return get_session(master="local[2,4]")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 16 MiB; without the right to mount one, the test is left out."""
    if not can_mount():
        pytest.skip("a disk cannot be mounted here")
    with small_disk(tmp_path / "disk", 16 << 20) as made:
        yield made


@pytest.fixture(params=["inline", "spark"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each executor, as the default."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", request.param)
    name: str = request.param
    return name
