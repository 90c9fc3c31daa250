"""Peak memory of the driver and of each worker: while a recording of 2 GB is converted, filtered and compacted, while a
bag of 4 GB is converted, and while an episode of 40 minutes becomes a LeRobot dataset.

Guards: under 1 GB for every Python process, 0.6 GB for the bag and the episode. ``CHUNKMILL_BENCH_MEMORY_MB`` changes
the size of the recording, ``CHUNKMILL_BENCH_BAG_MB`` that of the bag.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import ABSOLUTE
from made_recordings import write_mixture
from process_tree import watching

BAG_MB = int(os.environ.get("CHUNKMILL_BENCH_BAG_MB", "4000"))
SIZE_MB = int(os.environ.get("CHUNKMILL_BENCH_MEMORY_MB", "2000"))
LIMIT_GB = 1.0

PROGRAMS = {
    "convert": "McapReader(source).stream().write_rrd(out, application_id='b', recording_id='b')",
    "filter": """
        stream = RrdReader(rrd).stream().filter(content='/camera/**')
        stream.write_rrd(out, application_id='b', recording_id='b')
    """,
    "compact": "RrdReader(rrd).stream().collect(optimize=OptimizationProfile.OBJECT_STORE)",
}


def peak_gb(program: str, **values: Path) -> float:
    """The largest resident size that any Python process of ``program`` reached, in GB."""
    head = "from chunkmill import *\nfrom chunkmill.engine import OptimizationProfile\n"
    names = "".join(f"{name} = {str(value)!r}\n" for name, value in values.items())
    process = subprocess.Popen(
        [sys.executable, "-c", head + names + textwrap.dedent(program)],
        env={**os.environ, "CHUNKMILL_EXECUTOR": "spark", "CHUNKMILL_MASTER": "local[2]"},
    )
    with watching(process.pid) as watch:
        assert process.wait() == 0
    return max(watch.usage.peak[kind] for kind in ("driver", "worker")) / 1000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("memory") / "large.mcap"
    write_mixture(path, SIZE_MB)
    return path


@pytest.fixture(scope="module")
def rrd(source: Path) -> Path:
    path = source.with_suffix(".rrd")
    peak_gb("McapReader(source).stream().write_rrd(out, application_id='b', recording_id='b')", source=source, out=path)
    return path


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("what", list(PROGRAMS))
def test_peak_memory(what: str, benchmark: Any, source: Path, rrd: Path, tmp_path: Path) -> None:
    peak = benchmark.pedantic(
        lambda: peak_gb(PROGRAMS[what], source=source, rrd=rrd, out=tmp_path / "out.rrd"), rounds=1
    )
    benchmark.extra_info.update(peak_gb=peak, limit=LIMIT_GB)
    ABSOLUTE.append((f"peak memory, {what}, {SIZE_MB} MB", peak, LIMIT_GB, "GB"))


@pytest.mark.timeout(3600)
def test_peak_memory_of_a_bag(benchmark: Any, tmp_path: Path) -> None:
    from bench_bag import write_bag

    bag = write_bag(tmp_path / "large.bag", "LZ4", BAG_MB * 1_000_000 // 921_700, images=True)
    program = "BagReader(source).stream().write_rrd(out, application_id='b', recording_id='b')"
    peak = benchmark.pedantic(lambda: peak_gb(program, source=bag, out=tmp_path / "out.rrd"), rounds=1)
    ABSOLUTE.append((f"peak memory, bag of {BAG_MB} MB", peak, 0.6, "GB"))


@pytest.mark.timeout(3600)
def test_peak_memory_of_a_long_episode(benchmark: Any, tmp_path: Path) -> None:
    from bench_lerobot import SPEC, write_episode

    write_episode(tmp_path / "long.rrd", seconds=2400)
    program = f"write_lerobot({{'a': RrdReader(source).stream()}}, out, {{**{SPEC!r}, 'fps': 30}})"
    peak = benchmark.pedantic(lambda: peak_gb(program, source=tmp_path / "long.rrd", out=tmp_path / "set"), rounds=1)
    ABSOLUTE.append(("peak memory, episode of 40 minutes", peak, 0.6, "GB"))
