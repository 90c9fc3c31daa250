"""How much faster two cores convert than one, and how much faster this machine makes two processes than one."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench_bag import write_bag
from conftest import AT_LEAST, FIGURES, ROUNDS

LEAST = 1.7

CONVERT = """
import sys, time
from chunkmill.readers import BagReader, McapReader
source, out, rounds, *options = sys.argv[1:]
how = {"executor": "spark", "master": options[0]} if options else {"executor": "inline"}
for _ in range(int(rounds) + 1):
    started = time.perf_counter()
    reader = (BagReader if source.endswith(".bag") else McapReader)(source)
    reader.stream().write_rrd(out, application_id="b", recording_id="b", **how)
    print(time.perf_counter() - started, flush=True)
"""


def seconds_of(source: Path, out: Path, *masters: str | None) -> float:
    """The median of a warm conversion, in as many processes at the same time as there are masters."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CONVERT, source, out / f"{i}.rrd", str(ROUNDS), *([master] if master else [])],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i, master in enumerate(masters)
    ]
    outputs = [process.communicate()[0] for process in running]
    assert not any(process.returncode for process in running)
    return max(statistics.median([float(line) for line in text.split()][1:]) for text in outputs)


@pytest.mark.timeout(1200)
def test_two_cores_over_one_for_a_bag(benchmark: Any, tmp_path: Path) -> None:
    """Guards: a bag is converted at least 1.5 x as fast with two cores as with one."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core only")
    path = write_bag(tmp_path / "both.bag", "BZ2", 400_000, images=False)
    one = seconds_of(path, tmp_path, "local[1]")
    two = benchmark.pedantic(lambda: seconds_of(path, tmp_path, "local[2]"), rounds=1)
    AT_LEAST.append((f"two cores over one, bag of {path.stat().st_size >> 20} MiB, bz2", one / two, 1.5, "x"))


@pytest.mark.timeout(1200)
def test_two_cores_over_one(benchmark: Any, mixture: Path, tmp_path: Path) -> None:
    """Guards: the mixture is converted at least 1.7 x as fast with two cores as with one.

    Beside it, what the machine gives: two processes that share nothing, each converting the whole file, against one.
    """
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core only")
    one = seconds_of(mixture, tmp_path, "local[1]")
    two = benchmark.pedantic(lambda: seconds_of(mixture, tmp_path, "local[2]"), rounds=1)
    alone = seconds_of(mixture, tmp_path, None)
    beside = seconds_of(mixture, tmp_path, None, None)
    benchmark.extra_info.update(one=one, two=two, speedup=one / two, machine=2 * alone / beside)
    AT_LEAST.append(("two cores over one, mixture", one / two, LEAST, "x"))
    FIGURES.append(("two processes over one, on this machine", 2 * alone / beside, None, "x"))
    FIGURES.append(("one core", one, None, "s"))
    FIGURES.append(("two cores", two, None, "s"))
