"""Crashes in the middle: a worker, the driver, the disk. Nothing half-written, nothing lost, and the next run works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import NoSpaceError, WriteError
from chunkmill.engine.execution.commit import Staging
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import RrdReader
from file_limits import largest_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def chunk(number: int, values: int = 100) -> Chunk:
    column = ComponentColumn("x", [float(number * values + i) for i in range(values)])
    return Chunk.from_columns(f"/e/{number}", [TimeColumn("frame", sequence=range(values))], [column])


def values(path: Path) -> dict[str, list[list[float]]]:
    chunks = RrdReader(path).stream().to_chunks(executor="inline")
    return {c.entity_path: c.to_record_batch().column("x").to_pylist() for c in chunks}


class KillsItsWorkerOnce:
    """A function for ``map`` that takes the whole process with it, the first time it sees ``entity``."""

    def __init__(self, entity: str, marker: Path) -> None:
        self.entity, self.marker = entity, str(marker)

    def __call__(self, chunk: Chunk) -> Chunk:
        if chunk.entity_path == self.entity and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return chunk


@pytest.mark.quick
def test_a_killed_worker_is_replaced_and_the_output_is_right(spark: SparkSession, tmp_path: Path) -> None:
    out, marker = tmp_path / "out.rrd", tmp_path / "killed"
    stream = LazyChunkStream.from_iter([chunk(i) for i in range(10)]).map(KillsItsWorkerOnce("/e/7", marker))
    result = stream.write_rrd(out, application_id="a", recording_id="r", executor="spark")
    assert marker.exists()
    assert result.chunks == 10
    assert values(out) == {f"/e/{i}": [[float(i * 100 + j)] for j in range(100)] for i in range(10)}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["killed", "out.rrd"]


SLOW_RUN = """
    import sys, time
    from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
    from chunkmill.engine.stream import LazyChunkStream

    def chunks():
        for i in range(5):
            column = ComponentColumn("x", [float(i)])
            yield Chunk.from_columns(f"/e/{i}", [TimeColumn("frame", sequence=[i])], [column])

    def slow(chunk, pause=float(sys.argv[2])):
        time.sleep(pause)
        return chunk

    LazyChunkStream.from_iter(chunks()).map(slow).write_rrd(
        sys.argv[1], application_id="a", recording_id="r", executor=sys.argv[3]
    )
"""


def slow_run(out: Path, pause: float, executor: str) -> subprocess.Popen[str]:
    program = textwrap.dedent(SLOW_RUN)
    return subprocess.Popen(
        [sys.executable, "-c", program, str(out), str(pause), executor], stderr=subprocess.PIPE, text=True
    )


def children_of(pid: int) -> set[int]:
    """All processes below ``pid``, but for one that makes the class archive, which is let finish on purpose."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if b"engine.spark.session" in (entry / "cmdline").read_bytes():
                    continue
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        below = parents.get(todo.pop(), [])
        found.update(below)
        todo.extend(below)
    return found


def wait_until_gone(processes: set[int]) -> None:
    """Usually a second; Hadoop gives the JVM's shutdown hooks 30 s where they wait for the task that is cut off."""
    deadline = time.monotonic() + 200
    while left := [p for p in processes if Path(f"/proc/{p}").exists() and not is_zombie(p)]:
        assert time.monotonic() < deadline, f"processes of a killed driver go on: {[command_of(p) for p in left]}"
        time.sleep(0.05)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:300]
    except OSError:
        return "gone"


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_a_killed_driver_leaves_nothing_at_the_destination_and_the_next_run_succeeds(
    executor: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.rrd"
    process = slow_run(out, 30, executor)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(".out.rrd.chunkmill-*/*.open")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    below = children_of(process.pid)
    process.kill()
    process.communicate()
    wait_until_gone(below)
    assert not out.exists()
    left = [p for p in tmp_path.iterdir() if p.name.startswith(".out.rrd.chunkmill-")]
    assert len(left) == 1
    again = slow_run(out, 0, executor)
    _, said = again.communicate(timeout=120)
    assert again.returncode == 0, said
    assert values(out) == {f"/e/{i}": [[float(i)]] for i in range(5)}
    assert [p.name for p in tmp_path.iterdir()] == ["out.rrd"]


def test_staging_of_a_run_that_is_alive_is_left_alone(tmp_path: Path) -> None:
    with Staging.beside(tmp_path / "out.rrd") as first, Staging.beside(tmp_path / "out.rrd") as second:
        assert first.folder.exists() and second.folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_stood_at_the_destination_stays_when_a_run_fails(tmp_path: Path) -> None:
    out = tmp_path / "out.rrd"
    out.write_bytes(b"before")

    def fail(c: Chunk) -> Chunk:
        raise ZeroDivisionError("no")

    stream = LazyChunkStream.from_iter([chunk(1)]).map(fail)
    with pytest.raises(ZeroDivisionError):
        stream.write_rrd(out, application_id="a", recording_id="r", executor="inline")
    assert out.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["out.rrd"]


def test_a_file_size_limit_is_a_clear_error(tmp_path: Path) -> None:
    out = tmp_path / "out.rrd"
    stream = LazyChunkStream.from_iter([chunk(i, 20_000) for i in range(4)])
    with largest_file(100_000), pytest.raises(NoSpaceError) as caught:
        stream.write_rrd(out, application_id="a", recording_id="r", executor="inline")
    assert str(out) in str(caught.value) and "No incomplete file was left" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A file system of 1 MiB; needs the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_a_full_disk_is_a_clear_error(executor: str, small_disk: Path, request: pytest.FixtureRequest) -> None:
    if executor == "spark":
        request.getfixturevalue("spark")
    out = small_disk / "out.rrd"
    stream = LazyChunkStream.from_iter([chunk(i, 50_000) for i in range(8)])
    with pytest.raises(NoSpaceError, match="No space left on device"):
        stream.write_rrd(out, application_id="a", recording_id="r", executor=executor)
    assert list(small_disk.iterdir()) == []
    small = LazyChunkStream.from_iter([chunk(1)])
    small.write_rrd(out, application_id="a", recording_id="r", executor=executor)
    assert list(values(out)) == ["/e/1"]


def test_bad_destinations(tmp_path: Path) -> None:
    source = tmp_path / "source.rrd"
    LazyChunkStream.from_iter([chunk(1)]).write_rrd(source, application_id="a", recording_id="r", executor="inline")
    before = source.read_bytes()
    with pytest.raises(ValueError, match=r"ftp://host/x\.rrd is not a supported location"):
        RrdReader(source).stream().write_rrd("ftp://host/x.rrd", application_id="a", recording_id="r")
    for where, text in [
        (tmp_path, "is a folder"),
        (tmp_path / "missing" / "out.rrd", "No such file or directory"),
        (source, "is a source of the same pipeline"),
    ]:
        with pytest.raises(WriteError, match=text):
            RrdReader(source).stream().write_rrd(where, application_id="a", recording_id="r", executor="inline")
    assert source.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["source.rrd"]
