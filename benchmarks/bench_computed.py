"""Columns that functions compute, beside ``lance.add_columns`` with the same function in one process, and Daft.

    python benchmarks/bench_computed.py                      # everything, 1.2 M rows, 15,000 of 64 kB
    python benchmarks/bench_computed.py --rows 300000 --only scalar --rounds 3
    python benchmarks/bench_computed.py --daft PYTHON        # beside Daft, too, of an environment with daft and pylance

Each round makes a fresh copy of the table for each side and measures them in turns; a ratio is that of the medians.
Sessions of Spark are started before, as is Daft's process. ``--executor inline`` measures chunkmill in this process.
Daft reads the table and writes another with the column (``with_column``, ``write_lance``): it adds none to one that is
there. The functions are in ``computed_functions.py``. Ends with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from chunkmill.engine.tables import UDF, Table, udf
from computed_functions import CASES, SIDE

SEED = 18
BAR_OF_DAFT = 0.8
WORK = ("vectorised", "blobs", "scalar")
"""The functions that do real work: Daft is no bar for others, of which the start of a stage is all."""

_DAFT = """
import sys, time, shutil
import daft
from computed_functions import CASES
for line in sys.stdin:
    name, source, target = line.strip().split("\t")
    case = CASES[name]
    batches = daft.func.batch(return_dtype=daft.DataType.float64())
    made = batches(lambda *given: case.function(*(series.to_arrow() for series in given)))
    began = time.perf_counter()
    frame = daft.read_lance(source)
    frame.with_column("c", made(*(frame[column] for column in case.columns))).write_lance(target)
    print("seconds", time.perf_counter() - began, flush=True)
"""


def of_chunkmill(name: str) -> UDF:
    """The function of a case."""
    case = CASES[name]
    return udf(data_type=pa.float64(), version="1")(case.of_row or case.function)


def made(folder: Path, name: str, rows: int) -> Path:
    """The table of a case, without its column."""
    case, place = CASES[name], folder / f"{name}.source"
    rng = np.random.default_rng(SEED)
    if name == "blobs":
        count = max(rows // case.fewer // 100, 1) * 100
        noise = rng.bytes(1 << 22)

        def batches() -> Iterator[pa.RecordBatch]:
            for at in range(0, count, 100):
                starts = [number * 65_537 % (len(noise) - SIDE**2) for number in range(at, at + 100)]
                yield pa.record_batch({"blob": pa.array([noise[one : one + SIDE**2] for one in starts], pa.binary())})

        reader = pa.RecordBatchReader.from_batches(pa.schema([("blob", pa.binary())]), batches())
        lance.write_dataset(reader, place, enable_stable_row_ids=True, max_rows_per_file=max(count // 4, 1))
    else:
        data = pa.table({column: rng.normal(size=rows) for column in case.columns})
        lance.write_dataset(data, place, enable_stable_row_ids=True)
    return place


def fresh(source: Path, folder: Path, side: str) -> str:
    """A copy of a table."""
    place = folder / side
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place)
    return str(place)


def filled(name: str, place: str, executor: str) -> float:
    """Seconds of chunkmill."""
    table = Table(place, executor=executor)
    table.add_columns({"c": of_chunkmill(name)})
    began = time.perf_counter()
    table.backfill("c")
    return time.perf_counter() - began


def added(name: str, place: str) -> float:
    """Seconds of Lance."""
    case, dataset = CASES[name], lance.dataset(place)

    @lance.batch_udf(output_schema=pa.schema([("c", pa.float64())]))
    def of_lance(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"c": case.function(*(batch[column] for column in case.columns))})

    began = time.perf_counter()
    dataset.add_columns(of_lance, read_columns=list(case.columns))
    return time.perf_counter() - began


class Daft:
    """Daft in a process of its own, which is started once."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, "-c", _DAFT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        )

    def seconds(self, name: str, source: Path, target: Path) -> float:
        """Seconds of Daft."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        shutil.rmtree(target, ignore_errors=True)
        self._process.stdin.write(f"{name}\t{source}\t{target}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("seconds "):
                return float(line.split()[1])
        raise RuntimeError("Daft's process ended")

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(name: str, source: Path, folder: Path, executor: str, daft: Daft | None = None) -> list[float]:
    """Seconds of chunkmill, of Lance, and of Daft if it is there."""
    mine, theirs = fresh(source, folder, "mine"), fresh(source, folder, "theirs")
    seconds = [filled(name, mine, executor), added(name, theirs)]
    places = [mine, theirs]
    if daft is not None:
        places.append(str(folder / "daft"))
        seconds.append(daft.seconds(name, source, folder / "daft"))
    first, second, *others = (lance.dataset(place).to_table(columns=["c"])["c"].to_numpy() for place in places)
    assert np.allclose(first, second), name
    assert all(np.allclose(np.sort(first), np.sort(values)) for values in others), name  # Daft keeps no order
    return seconds


def compared(name: str, rounds: list[list[float]]) -> bool:
    """Print the medians of a case and their ratios; whether bars are held."""
    ours, lances, *dafts = (statistics.median(times) for times in zip(*rounds, strict=True))
    bar = CASES[name].bar
    said = f"{name:12} chunkmill {ours:7.3f} s   lance {lances:7.3f} s   ratio {ours / lances:5.2f}"
    said += f" (bar {bar})" if bar is not None else ""
    for daft in dafts:
        said += f"   daft {daft:7.3f} s   ratio {ours / daft:5.2f}"
        said += f" (bar {BAR_OF_DAFT})" if name in WORK else ""
    print(said, flush=True)
    is_fast = all(ours / daft <= BAR_OF_DAFT for daft in dafts) or name not in WORK
    return (bar is None or ours / lances <= bar) and is_fast


def main() -> int:
    """Run it; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(CASES), action="append")
    parser.add_argument("--executor", default="spark")
    parser.add_argument("--daft", metavar="PYTHON", help="a Python with daft and pylance")
    options = parser.parse_args()
    held = True
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        daft: Any = None
        if options.daft:
            daft = Daft(options.daft)
            stack.callback(daft.end)
        for name in options.only or CASES:
            source = made(folder, name, options.rows)
            for _ in range(2):  # starts the session, lets all sides import and Java compile
                measure(name, source, folder, options.executor, daft)
            held &= compared(
                name, [measure(name, source, folder, options.executor, daft) for _ in range(options.rounds)]
            )
            shutil.rmtree(source)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
