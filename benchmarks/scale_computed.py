"""What checkpoints, a resumed run, a load and a second core make of computed columns.

    python benchmarks/scale_computed.py                           # everything
    python benchmarks/scale_computed.py --only load --rounds 3

Each is a ratio of medians of what is run in turns, and has a bar: ``checkpoints``, a backfill that keeps its work four
times a second to one that never does; ``resume``, a run after one that was killed with 90 % done to a whole one;
``load``, ``load_columns`` of 1.2 M lists of 128 floats from Parquet, in another order, to ``lance``'s merge in one
process; ``cores``, two cores to one for a function of 1 ms a row. Sessions of Spark are started before; the process
that is killed in ``resume`` has its own. Ends with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from chunkmill.engine.tables import Table, udf

SEED = 18


def churn(a: float) -> float:
    """A function that keeps a core busy for 1 ms."""
    end, x = time.thread_time() + 0.001, a
    while time.thread_time() < end:
        x = x * 1.0000001 + 1e-9
    return a + 1.0


millisecond = udf(data_type=pa.float64(), version="1")(churn)


def table_of(place: Path, rows: int) -> Path:
    """A table with a number in each row."""
    shutil.rmtree(place, ignore_errors=True)
    lance.write_dataset(pa.table({"a": np.arange(float(rows))}), place, enable_stable_row_ids=True)
    return place


def seconds_of(place: Path, **options: object) -> float:
    """Seconds of a backfill, by a function of 1 ms a row, with workers that have nothing to do but that."""
    table = Table(str(place))
    if "c" not in table.schema.names:
        table.add_columns({"c": millisecond})
    began = time.perf_counter()
    table.backfill("c", udf=millisecond, **options)
    seconds = time.perf_counter() - began
    assert np.array_equal(table.to_arrow()["c"].to_numpy(), np.arange(float(table.count_rows())) + 1.0)
    return seconds


def checkpoints(folder: Path, rounds: int) -> tuple[float, str]:
    """A backfill of 4,000 rows that keeps its work four times a second, to one that keeps nothing before the end."""

    def seconds(every: float) -> float:
        place = table_of(folder / "t", 4_000)
        return seconds_of(place, batch_checkpoint_flush_interval_seconds=every, checkpoint_size=250)

    pairs = [(seconds(0.25), seconds(3600.0)) for _ in range(rounds)]
    kept, unkept = (statistics.median(times) for times in zip(*pairs, strict=True))
    return kept / unkept, f"every 0.25 s {kept:.2f} s, never {unkept:.2f} s"


def resume(folder: Path, rounds: int) -> tuple[float, str]:
    """What is left of 10,000 rows after a kill at 90 %, to all of them."""
    whole, rest, shares = [], [], []
    for _ in range(max(rounds // 2, 1)):
        whole.append(seconds_of(table_of(folder / "whole", 10_000), checkpoint_size=100))
        place = table_of(folder / "killed", 10_000)
        Table(str(place)).add_columns({"c": millisecond})
        process = subprocess.Popen(
            [sys.executable, __file__, "--fill", str(place)], start_new_session=True, stderr=subprocess.DEVNULL
        )
        while done(place) < 9_000 and process.poll() is None:
            time.sleep(0.02)
        assert process.poll() is None, "it ended before it was killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shares.append(done(place) / 10_000)
        rest.append(seconds_of(place, checkpoint_size=100))
    ours, all_ = statistics.median(rest), statistics.median(whole)
    return ours / all_, f"{ours:.2f} s after a kill at {statistics.median(shares):.0%}, all {all_:.2f} s"


def done(place: Path) -> int:
    """The rows that checkpoints have: their names say the first and the last."""
    spans = [path.name.split("-")[:2] for path in place.glob("_computed/checkpoints/*/*.arrow")]
    return sum(int(last, 16) - int(first, 16) + 1 for first, last in spans)


def fill(place: str) -> None:
    """The run that is killed."""
    Table(place).backfill("c", udf=millisecond, checkpoint_size=100, batch_checkpoint_flush_interval_seconds=0.1)


def load(folder: Path, rounds: int, rows: int = 1_200_000, width: int = 128) -> tuple[float, str]:
    """``load_columns`` to ``merge``."""
    rng = np.random.default_rng(SEED)
    order = rng.permutation(rows)
    numbers = rng.random(rows * width, np.float32)
    values = pa.FixedSizeListArray.from_arrays(pa.array(numbers), width)
    source, table = folder / "source.parquet", folder / "table"
    pq.write_table(pa.table({"key": order, "v": values}), source, row_group_size=100_000, compression="none")
    lance.write_dataset(pa.table({"key": np.arange(rows)}), table, enable_stable_row_ids=True)
    pairs = []
    for _ in range(rounds + 1):
        seconds = []
        for side in (_loaded, _merged):
            place = folder / "side"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(table, place)
            began = time.perf_counter()
            side(str(place), str(source))
            seconds.append(time.perf_counter() - began)
            row = rows // 3
            found = lance.dataset(place).take([row], columns=["v"])["v"][0].values.to_numpy()
            assert np.array_equal(found, numbers.reshape(rows, width)[np.flatnonzero(order == row)[0]])
        pairs.append(seconds)
    ours, peers = (statistics.median(times) for times in zip(*pairs[1:], strict=True))
    return ours / peers, f"chunkmill {ours:.2f} s, lance {peers:.2f} s"


def _loaded(place: str, source: str) -> None:
    Table(place).load_columns(source, "key", ["v"])


def _merged(place: str, source: str) -> None:
    lance.dataset(place).merge(pq.ParquetFile(source).iter_batches(), left_on="key", schema=pq.read_schema(source))


def cores(folder: Path, rounds: int) -> tuple[float, str]:
    """Two cores to one, as the part of the time of one that two take."""
    pairs = [
        tuple(seconds_of(table_of(folder / "t", 6_000), concurrency=many) for many in (2, 1)) for _ in range(rounds)
    ]
    two, one = (statistics.median(times) for times in zip(*pairs, strict=True))
    return two / one, f"one core {one:.2f} s, two {two:.2f} s: {one / two:.2f} times as fast"


MEASURES: dict[str, tuple[Callable[[Path, int], tuple[float, str]], float]] = {
    "checkpoints": (checkpoints, 1.1),
    "resume": (resume, 0.2),
    "load": (load, 0.8),
    "cores": (cores, 1 / 1.7),
}


def main() -> int:
    """Run it; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(MEASURES), action="append")
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        fill(options.fill)
        return 0
    held = True
    with tempfile.TemporaryDirectory() as scratch:
        seconds_of(table_of(Path(scratch) / "first", 200))  # starts the session
        for name in options.only or MEASURES:
            measure, bar = MEASURES[name]
            ratio, said = measure(Path(scratch), options.rounds)
            print(f"{name:12} {said}   ratio {ratio:.2f} (bar {bar:.2f})", flush=True)
            held &= ratio <= bar
            for left in Path(scratch).iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
