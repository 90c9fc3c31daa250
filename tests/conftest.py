"""What every test can ask for: real recordings, and one Spark session for the whole suite."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from file_limits import SmallDisk, can_mount, small_disk
from places import DATA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("CHUNKMILL_EXECUTOR", "inline")


MEMORY = Path("/dev/shm")
"""A folder in memory, where the machine has one."""

ROOM = 8 << 30
"""Bytes that have to be free for tests to write there: many times what they leave."""

MAKE_ARCHIVE = "from chunkmill.engine.spark.session import make_archive; make_archive()"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
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
