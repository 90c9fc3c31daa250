"""Benchmarks beside the peer: each times chunkmill and rerun-sdk in turn, in one run, and reports the ratio.

    pytest benchmarks --benchmark-enable

Sizes can be changed: ``CHUNKMILL_BENCH_MB`` (default 100) is the size of the mixture that is converted. It is grown
from real recordings where their generator is found (``CHUNKMILL_BENCH_GENERATOR``, a script that is called as
``OUT.mcap --target-mb N``), and made here otherwise; ``CHUNKMILL_BENCH_MCAP`` names a file to use instead.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from made_recordings import write_mixture, write_recording

REPOSITORY = Path(__file__).resolve().parent.parent
MB = int(os.environ.get("CHUNKMILL_BENCH_MB", "100"))
ROUNDS = int(os.environ.get("CHUNKMILL_BENCH_ROUNDS", "5"))


@dataclass
class Duel:
    """Times two functions in turn and keeps the medians; ``bar`` is the ratio to reach, if there is one."""

    name: str

    def run(self, benchmark: Any, ours: Callable[[], object], peer: Callable[[], object], bar: float | None) -> float:
        """The ratio of our median to the peer's; the first call of each warms up and does not count."""
        peer()
        ours()
        theirs: list[float] = []
        mine: list[float] = []

        def both() -> None:
            theirs.append(_timed(peer))
            mine.append(_timed(ours))

        for _ in range(ROUNDS - 1):
            both()

        def last() -> None:
            theirs.append(_timed(peer))
            os.sync()

        benchmark.pedantic(ours, setup=last, rounds=1)
        mine.append(benchmark.stats.stats.max)
        own, other = statistics.median(mine), statistics.median(theirs)
        benchmark.extra_info.update(seconds=own, peer_seconds=other, ratio=own / other, bar=bar)
        RESULTS.append((self.name, own, other, bar))
        return own / other


RESULTS: list[tuple[str, float, float, float | None]] = []
"""Name, our seconds, the peer's seconds, the ratio to reach (None: only to compare)."""

ABSOLUTE: list[tuple[str, float, float, str]] = []
"""Name, our figure, the figure to reach, the unit of both."""

AT_LEAST: list[tuple[str, float, float, str]] = []
"""The same, where more is better."""

FIGURES: list[tuple[str, float, float | None, str]] = []
"""Name, our figure, the peer's if it has one, the unit: only to know."""


def _timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes which need not wait for the disk on behalf of an earlier one."""
    os.sync()
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


@pytest.fixture
def duel(request: pytest.FixtureRequest) -> Duel:
    """A comparison named after the test."""
    return Duel(request.node.name.removeprefix("test_"))


@pytest.fixture(scope="session")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MCAP of ROS 2 messages, small and large, zstd-compressed."""
    given = os.environ.get("CHUNKMILL_BENCH_MCAP")
    if given:
        return Path(given)
    out = tmp_path_factory.mktemp("mixture") / f"mixture_{MB}.mcap"
    generator = os.environ.get("CHUNKMILL_BENCH_GENERATOR")
    if generator:
        subprocess.run([sys.executable, generator, str(out), "--target-mb", str(MB)], check=True)
    else:
        write_mixture(out, MB)
    return out


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An RRD of about ``MB`` megabytes: chunks of 1,000 scalars in 40 entities, images in 4, with a footer.

    ``CHUNKMILL_BENCH_RRD`` names a file to use instead.
    """
    given = os.environ.get("CHUNKMILL_BENCH_RRD")
    if given:
        return Path(given)
    return write_recording(tmp_path_factory.mktemp("rrd") / "recording.rrd", MB)


@pytest.fixture(scope="session")
def small_mcap() -> Path:
    """The recording of the README."""
    return REPOSITORY / "tests" / "data" / "demo.mcap"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table: seconds, the peer's seconds, their ratio and the ratio to reach."""
    if not RESULTS and not ABSOLUTE and not AT_LEAST and not FIGURES:
        return
    cores = len(os.sched_getaffinity(0))
    terminalreporter.section(f"beside peers, {cores} cores, medians of {ROUNDS}")
    for name, own, other, bar in RESULTS:
        state = "" if bar is None else f"reach {bar:.2f}  {'reached' if own / other <= bar else 'missed'}"
        terminalreporter.write_line(
            f"{name:44s} {own:8.3f} s   peer {other:8.3f} s   ratio {own / other:5.2f}   {state}"
        )
    for name, own, limit, unit in ABSOLUTE:
        state = "reached" if own <= limit else "missed"
        terminalreporter.write_line(f"{name:44s} {own:8.3f} {unit}   to reach <= {limit:.1f} {unit}  {state}")
    for name, own, least, unit in AT_LEAST:
        state = "reached" if own >= least else "missed"
        terminalreporter.write_line(f"{name:44s} {own:8.3f} {unit}   to reach >= {least:.1f} {unit}  {state}")
    for name, own, peer, unit in FIGURES:
        beside = "" if peer is None else f"   rerun {peer:8.3f} {unit}"
        terminalreporter.write_line(f"{name:44s} {own:8.3f} {unit}{beside}")
