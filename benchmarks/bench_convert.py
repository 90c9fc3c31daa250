"""MCAP to RRD: a warm session against rerun-sdk in one process, and the whole command from cold."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest
from chunkmill.readers import McapReader
from conftest import ABSOLUTE, ROUNDS, Duel

peer = pytest.importorskip("rerun.chunk")

SCRIPTS = Path(sysconfig.get_path("scripts"))


def test_convert_mixture(benchmark: Any, duel: Duel, mixture: Path, tmp_path: Path) -> None:
    """Guards the ratio to rerun of a warm convert of a mixture; the stated one is of 300 MB."""

    def ours() -> None:
        McapReader(mixture).stream().write_rrd(
            tmp_path / "ours.rrd", application_id="bench", recording_id="bench", executor="spark"
        )

    def theirs() -> None:
        peer.McapReader(mixture).stream().write_rrd(
            tmp_path / "theirs.rrd", application_id="bench", recording_id="bench"
        )

    duel.run(benchmark, ours, theirs, bar=0.5)


def command(*arguments: object, executor: str) -> float:
    """Seconds of a whole ``chunkmill`` process, whose modules are compiled as pip leaves them."""
    started = time.perf_counter()
    environment = {**os.environ, "CHUNKMILL_EXECUTOR": executor, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([SCRIPTS / "chunkmill", *map(str, arguments)], check=True, env=environment, capture_output=True)
    return time.perf_counter() - started


@pytest.mark.parametrize(("executor", "limit"), [("spark", 2.5), ("auto", 0.4)])
def test_cold_convert_of_a_small_file(
    executor: str, limit: float, benchmark: Any, small_mcap: Path, tmp_path: Path
) -> None:
    """Guards: cold ``chunkmill convert`` of a 1 MB file, whole process, and what it imports.

    The wanted 0.4 s are missed. Of about 0.6 s of CPU (2 cores, busy; least of seven in turns), Python, numpy, pyarrow
    and pyarrow.compute take 0.21, protobuf's and click's modules 0.07, a second run in the same process 0.03; the rest
    is some 180 modules of this package and the data classes in them. Where modules are not compiled ahead
    (``PYTHONDONTWRITEBYTECODE``, or an installer that leaves it out) it is 1.24 s.
    """
    out = tmp_path / "out.rrd"
    command("convert", small_mcap, "-o", out, executor=executor)
    times = [command("convert", small_mcap, "-o", out, executor=executor) for _ in range(ROUNDS - 1)]
    benchmark.pedantic(lambda: times.append(command("convert", small_mcap, "-o", out, executor=executor)), rounds=1)
    benchmark.extra_info.update(seconds=statistics.median(times), limit=limit)
    ABSOLUTE.append((f"cold_convert_{executor}", statistics.median(times), limit, "s"))


def test_cold_convert_beside_rerun(benchmark: Any, duel: Duel, small_mcap: Path, tmp_path: Path) -> None:
    """For comparison: rerun's own command on the same file, cold, against ours inline."""
    out = tmp_path / "out.rrd"
    rerun = [sys.executable, "-m", "rerun_cli"] if not (SCRIPTS / "rerun").exists() else [str(SCRIPTS / "rerun")]

    def theirs() -> None:
        subprocess.run([*rerun, "mcap", "convert", str(small_mcap), "-o", str(out)], check=True, capture_output=True)

    duel.run(benchmark, lambda: command("convert", small_mcap, "-o", out, executor="inline"), theirs, bar=None)
