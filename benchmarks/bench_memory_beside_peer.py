"""Peak memory of all processes while a recording of 4 GB is converted, beside rerun-sdk's one process.

Takes minutes and 14 GB of disk: runs where ``CHUNKMILL_BENCH_LARGE_MB`` (4000) says how large the recording is to be.
``CHUNKMILL_BENCH_MCAP`` names one to use instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ABSOLUTE, FIGURES
from made_recordings import write_mixture
from process_tree import Usage, watching

pytest.importorskip("rerun.chunk")

LARGE_MB = int(os.environ.get("CHUNKMILL_BENCH_LARGE_MB", "0"))
MOST = 1.0

OURS = """
import sys
from chunkmill.readers import McapReader
McapReader(sys.argv[1]).stream().write_rrd(
    sys.argv[2], application_id="b", recording_id="b", executor="spark", master="local[2]"
)
"""
THEIRS = """
import sys
from rerun.chunk import McapReader
McapReader(sys.argv[1]).stream().write_rrd(sys.argv[2], application_id="b", recording_id="b")
"""


def usage_of(program: str, source: Path, out: Path) -> Usage:
    """What a program and all that it starts took."""
    process = subprocess.Popen([sys.executable, "-c", program, str(source), str(out)])
    with watching(process.pid) as watch:
        assert process.wait() == 0
    out.unlink()
    return watch.usage


@pytest.mark.skipif(not LARGE_MB, reason="CHUNKMILL_BENCH_LARGE_MB is not set")
@pytest.mark.timeout(3600)
def test_peak_memory_over_reruns(benchmark: Any, tmp_path: Path) -> None:
    """Guards: driver, JVM and workers together take no more memory at any moment than rerun-sdk's process.

    Pages of mapped files count (PSS): rerun-sdk maps its input, and most of its peak is pages of that, which the system
    may take back. The table also tells what is left without them.
    """
    given = os.environ.get("CHUNKMILL_BENCH_MCAP")
    source = Path(given) if given else tmp_path / "large.mcap"
    if given is None:
        write_mixture(source, LARGE_MB)
    theirs = usage_of(THEIRS, source, tmp_path / "theirs.rrd")
    ours = benchmark.pedantic(lambda: usage_of(OURS, source, tmp_path / "ours.rrd"), rounds=1)
    benchmark.extra_info.update(ours=vars(ours), theirs=vars(theirs))
    size = f"{source.stat().st_size / 1e9:.1f} GB"
    ABSOLUTE.append((f"peak memory over rerun's, {size}", ours.total / theirs.total, MOST, "x"))
    for name, own, other in (
        ("all processes", ours.total, theirs.total),
        ("without the JVM", ours.without_jvm, theirs.without_jvm),
        ("all processes, without mapped files", ours.anonymous, theirs.anonymous),
    ):
        FIGURES.append((name, own / 1000, other / 1000, "GB"))
