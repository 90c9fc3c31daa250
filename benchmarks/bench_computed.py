"""Columns that functions compute, beside ``lance.add_columns`` with the same function in one process.

    python benchmarks/bench_computed.py                      # everything, 1.2 M rows
    python benchmarks/bench_computed.py --rows 300000 --only scalar --rounds 3

Each round makes a fresh copy of the table for each side and measures them in turns; a ratio is that of the medians.
Sessions of Spark are started before. ``--executor inline`` measures chunkmill in this process.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from chunkmill.engine.tables import Table, udf

BLOB = 64 << 10
SEED = 18


def heavy(values: Any) -> Any:
    """A function of floats that costs some 60 ns a value."""
    x = np.asarray(values)
    for _ in range(3):
        x = np.sin(x) + np.log1p(np.abs(x))
    return x


def digest(value: bytes) -> int:
    """A function of a blob."""
    import zlib

    return zlib.crc32(value)


def plain(a: float) -> float:
    """A scalar function of a microsecond."""
    return (a * 3.0 + 1.0) % 7.0


@udf(data_type=pa.float64(), version="1")
def vectorised(a: pa.Array) -> pa.Array:
    return pa.array(heavy(a))


@udf(data_type=pa.int64(), version="1")
def blobs(blob: pa.Array) -> pa.Array:
    return pa.array([digest(one) for one in blob.to_pylist()], pa.int64())


@udf(data_type=pa.float64(), version="1")
def scalar(a: float) -> float:
    return plain(a)


@udf(data_type=pa.float64(), version="1")
def trivial(a: pa.Array) -> pa.Array:
    return pc.add(a, 1.0)


def of_lance(name: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The same function as Lance takes it."""
    if name == "vectorised":
        return lambda batch: pa.record_batch({"c": pa.array(heavy(batch["a"]))})
    if name == "blobs":
        return lambda batch: pa.record_batch(
            {"c": pa.array([digest(one) for one in batch["blob"].to_pylist()], pa.int64())}
        )
    if name == "scalar":
        return lambda batch: pa.record_batch({"c": pa.array([plain(one) for one in batch["a"].to_pylist()])})
    return lambda batch: pa.record_batch({"c": pc.add(batch["a"], 1.0)})


CASES = {"vectorised": (vectorised, "a"), "blobs": (blobs, "blob"), "scalar": (scalar, "a"), "trivial": (trivial, "a")}


def made(folder: Path, name: str, rows: int) -> Path:
    """The table of a case, without its column."""
    place = folder / f"{name}.source"
    rng = np.random.default_rng(SEED)
    if name == "blobs":
        count = max(rows // 80, 100)

        def batches() -> Any:
            for _ in range(0, count, 100):
                yield pa.record_batch({"blob": pa.array([rng.bytes(BLOB) for _ in range(100)], pa.binary())})

        reader = pa.RecordBatchReader.from_batches(pa.schema([("blob", pa.binary())]), batches())
        lance.write_dataset(reader, place, enable_stable_row_ids=True, max_rows_per_file=count // 4)
    else:
        lance.write_dataset(pa.table({"a": rng.random(rows)}), place, enable_stable_row_ids=True)
    return place


def measure(name: str, source: Path, folder: Path, executor: str) -> tuple[float, float]:
    """Seconds of chunkmill and of Lance."""
    function, column = CASES[name]
    mine, theirs = folder / "mine", folder / "theirs"
    for place in (mine, theirs):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
    table = Table(str(mine), executor=executor)
    table.add_columns({"c": function})
    began = time.perf_counter()
    table.backfill("c")
    ours = time.perf_counter() - began
    dataset = lance.dataset(theirs)
    schema = pa.schema([("c", function.data_type)])
    began = time.perf_counter()
    dataset.add_columns(lance.udf.batch_udf(output_schema=schema)(of_lance(name)), read_columns=[column])
    peers = time.perf_counter() - began
    mine_values, their_values = (lance.dataset(place).to_table(columns=["c"])["c"] for place in (mine, theirs))
    assert mine_values.equals(their_values), name
    return ours, peers


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(CASES), action="append")
    parser.add_argument("--executor", default="spark")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in options.only or CASES:
            source = made(folder, name, options.rows)
            measure(name, source, folder, options.executor)  # starts the session, and lets both sides import
            rounds = [measure(name, source, folder, options.executor) for _ in range(options.rounds)]
            ours, peers = (statistics.median(times) for times in zip(*rounds, strict=True))
            print(f"{name:12} chunkmill {ours:7.3f} s   lance {peers:7.3f} s   ratio {ours / peers:5.2f}", flush=True)
            shutil.rmtree(source)


if __name__ == "__main__":
    main()
