"""What each further split costs the driver: planning, scheduling, what tasks tell, and the commit.

Splits are made tiny on purpose, of one MCAP chunk of 3 kB each, so that there are thousands of them.
``CHUNKMILL_BENCH_SPLITS`` says how many, ``1000,2000,4000`` if it is ``1``; the long ones run only where it is set.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from chunkmill.readers import McapReader
from chunkmill.readers.mcap import plan
from conftest import ABSOLUTE, FIGURES
from made_recordings import SCHEMAS, imu
from mcap.writer import CompressionType, Writer
from process_tree import cpu_seconds

GIVEN = os.environ.get("CHUNKMILL_BENCH_SPLITS", "")
COUNTS = [int(n) for n in ("1000,2000,4000" if GIVEN == "1" else GIVEN or "250,500,1000").split(",")]
MOST_SECONDS = 2.0
_CHUNK = 3000


class Cost(NamedTuple):
    """Seconds for a number of splits; ``driver`` is processor time of the driver's Python, ``jvm`` that of Java."""

    splits: int
    wall: float
    plan: float
    commit: float
    tasks: float
    driver: float
    jvm: float


def write_tiny_chunks(path: Path, chunks: int) -> None:
    """An MCAP of as many chunks of a few messages."""
    message = imu(0, np.random.default_rng(1))
    in_each = _CHUNK // (len(message) + 31) + 1
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=_CHUNK, compression=CompressionType.ZSTD)
        writer.start("ros2", "chunkmill benchmarks")
        schema = writer.register_schema("sensor_msgs/msg/Imu", "ros2msg", SCHEMAS["sensor_msgs/msg/Imu"].encode())
        channel = writer.register_channel("/imu/data", "cdr", schema)
        for i in range(chunks * in_each):
            writer.add_message(channel, i * 1000, message, i * 1000, i)
        writer.finish()


def cost_of(splits: int, folder: Path) -> Cost:
    """Convert a recording of as many splits."""
    source = folder / f"{splits}.mcap"
    write_tiny_chunks(source, splits)
    jvm, began, cpu = cpu_seconds(os.getpid(), "jvm"), time.perf_counter(), time.process_time()
    report = (
        McapReader(source)
        .stream()
        .write_rrd(folder / "out.rrd", application_id="b", recording_id="b", executor="spark", master="local[2]")
    )
    wall, driver = time.perf_counter() - began, time.process_time() - cpu
    return Cost(
        report.splits,
        wall,
        report.phases["plan"],
        report.phases["commit"],
        sum(task.seconds for task in report.tasks),
        driver,
        cpu_seconds(os.getpid(), "jvm") - jvm,
    )


def per_thousand(costs: list[Cost], what: Callable[[Cost], float]) -> tuple[float, float]:
    """Seconds for 1,000 splits more, by a line through all; and how far the worst point is from it, relatively."""
    splits, seconds = np.array([c.splits for c in costs]), np.array([what(c) for c in costs])
    slope, start = np.polyfit(splits, seconds, 1)
    return float(slope * 1000), float(np.max(np.abs(slope * splits + start - seconds) / seconds))


def _driver(cost: Cost) -> float:
    return cost.driver


@pytest.mark.timeout(1800)
def test_the_driver_for_each_further_thousand_splits(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards: planning, parsing and commit take the driver at most 2 s for 1,000 splits more, and grow linearly."""
    monkeypatch.setattr(plan, "SPLIT_BYTES", _CHUNK + 1)
    cost_of(50, tmp_path)
    costs = benchmark.pedantic(lambda: [cost_of(n, tmp_path) for n in COUNTS], rounds=1)
    benchmark.extra_info.update(costs=[c._asdict() for c in costs])
    for name, what in (
        ("driver, 1,000 splits more", _driver),
        ("  of it planning", lambda c: c.plan),
        ("  of it the commit", lambda c: c.commit),
        ("  the JVM, all its threads", lambda c: c.jvm),
        ("  from start to end, on two cores", lambda c: c.wall),
        ("  in tasks, added up", lambda c: c.tasks),
    ):
        slope, off = per_thousand(costs, what)
        told = f"{name} (off a line: {off:.0%})"
        if what is _driver:
            ABSOLUTE.append((told, slope, MOST_SECONDS, "s"))
        else:
            FIGURES.append((told, slope, None, "s"))
    assert [c.splits for c in costs] == [n + 1 for n in COUNTS]
