"""Ingestion: how soon a file is in the store, how much goes through, and how soon a folder of many old files starts.

The stated figures are of ``CHUNKMILL_BENCH_DROPS=15``, ``CHUNKMILL_BENCH_OLD_FILES=20000`` and 40 files of 5 MB.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine import Ingest, RecordingStore, get_session, stop_session
from chunkmill.engine.cli.commands import commands
from click.testing import CliRunner
from conftest import ABSOLUTE, RESULTS, ROUNDS
from made_recordings import write_mixture

DROPS = int(os.environ.get("CHUNKMILL_BENCH_DROPS", "5"))
FILES = int(os.environ.get("CHUNKMILL_BENCH_FILES", "40"))
OLD_FILES = int(os.environ.get("CHUNKMILL_BENCH_OLD_FILES", "2000"))
MEGABYTES = 5
LATENCY, THROUGHPUT, START = 3.0, 1.15, 30.0


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Recordings of 5 MB, each of its own content."""
    folder = tmp_path_factory.mktemp("drives")
    paths = [folder / f"drive-{i:03d}.mcap" for i in range(max(FILES, DROPS + 2))]
    for i, path in enumerate(paths):
        write_mixture(path, MEGABYTES, drive=i)
    return paths


def is_visible(lake: Path, name: str) -> bool:
    """Whether a reader who opens the store now sees the recording of a file."""
    return any(Path(entry.source).name == name for entry in RecordingStore.open(lake))


def test_latency(benchmark: Any, drives: list[Path], tmp_path: Path) -> None:
    """Guards the time from a dropped file to a recording in the store, while an ingestion looks each second."""
    landing, lake = tmp_path / "landing", tmp_path / "lake"
    landing.mkdir()
    query = Ingest(landing, into=lake, executor="spark").start(every="1s")

    def drop(path: Path) -> float:
        shutil.copyfile(path, landing / path.name)
        dropped = time.perf_counter()
        while not (lake / "versions").is_dir() or not any((lake / "versions").iterdir()):
            time.sleep(0.01)
        while not is_visible(lake, path.name):
            time.sleep(0.01)
        seconds = time.perf_counter() - dropped
        time.sleep((time.perf_counter() * 7919) % 1.0)  # another moment between two looks
        return seconds

    for path in drives[:2]:
        drop(path)
    times = [drop(path) for path in drives[2 : 2 + DROPS]]
    benchmark.pedantic(lambda: None, rounds=1)
    query.stop()
    query.await_termination()
    benchmark.extra_info.update(seconds=times)
    ABSOLUTE.append((f"ingest latency, {MEGABYTES} MB, median of {DROPS}", statistics.median(times), LATENCY, "s"))
    ABSOLUTE.append((f"ingest latency, {MEGABYTES} MB, worst of {DROPS}", max(times), 2 * LATENCY, "s"))


def test_throughput(benchmark: Any, drives: list[Path], tmp_path: Path) -> None:
    """Guards that a store of the same files takes hardly longer than their conversion; both in one warm session."""
    landing = tmp_path / "landing"
    landing.mkdir()
    for path in drives[:FILES]:
        shutil.copyfile(path, landing / path.name)
    get_session()
    ours: list[float] = []
    theirs: list[float] = []

    def ingest(out: Path) -> None:
        Ingest(landing, into=out, executor="spark").start(once=True).await_termination()

    def convert(out: Path) -> None:
        result = CliRunner().invoke(commands, ["convert", str(landing), "-o", str(out), "--executor", "spark", "-q"])
        assert result.exit_code == 0, result.output

    for number in range(ROUNDS + 1):
        for function, times in ((convert, theirs), (ingest, ours)):
            out = tmp_path / f"{function.__name__}-{number}"
            started = time.perf_counter()
            function(out)
            if number:
                times.append(time.perf_counter() - started)
            shutil.rmtree(out)
    benchmark.pedantic(lambda: None, rounds=1)
    RESULTS.append(
        (
            f"ingest over convert, {FILES} x {MEGABYTES} MB",
            statistics.median(ours),
            statistics.median(theirs),
            THROUGHPUT,
        )
    )


def test_many_old_files(benchmark: Any, tmp_path: Path) -> None:
    """Guards the start on a folder of many files: all new, then all known."""
    landing, lake = tmp_path / "landing", tmp_path / "lake"
    landing.mkdir()
    for i in range(OLD_FILES):
        pq.write_table(pa.table({"value": [float(i)]}), landing / f"{i:06d}.parquet")
    stop_session()
    started = time.perf_counter()
    query = Ingest(landing, into=lake, executor="spark").start(every="1s")
    while not query.recent and query.is_active:
        time.sleep(0.05)
    ABSOLUTE.append((f"ingest, {OLD_FILES} new files: first batch, cold", time.perf_counter() - started, START, "s"))
    while query.is_active and RecordingStore.open(lake).version.recordings < OLD_FILES:
        time.sleep(0.2)
    ABSOLUTE.append((f"ingest, {OLD_FILES} new files: all of them", time.perf_counter() - started, 600.0, "s"))
    query.stop()
    query.await_termination()
    stop_session()
    pq.write_table(pa.table({"value": [-1.0]}), landing / "new.parquet")
    started = time.perf_counter()
    query = Ingest(landing, into=lake, executor="spark").start(every="1s")
    while not query.recent and query.is_active:
        time.sleep(0.05)
    ABSOLUTE.append((f"ingest, {OLD_FILES} known files: next batch, cold", time.perf_counter() - started, START, "s"))
    query.stop()
    query.await_termination()
    benchmark.pedantic(lambda: None, rounds=1)
