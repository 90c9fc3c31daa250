"""Peak memory of a backfill of many gigabytes of blobs, and of a load from a source of many gigabytes.

    python benchmarks/computed_memory.py [--gigabytes 4] [--folder FOLDER] [--only blobs]

Two workers compute a digest of each blob of 1 MB. Each may map 1 GiB (``RLIMIT_AS``) beside what it has mapped when it
begins, so that more ends it; and its resident size stays below 1 GiB. Then lists of 256 floats are joined by a key from
a Parquet file, and the driver stays below 400 MB; a worker's resident size has pages of files there, which it maps.
What was written is removed. Ends with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from process_tree import watching

BLOB, WIDTH = 1_000_000, 256
LIMIT_MB, DRIVER_MB = 1024, 400.0

FILL = """
import sys, zlib
import pyarrow as pa
from chunkmill.engine.tables import Table, udf

def limit(megabytes):
    import pathlib, resource
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        mapped = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + (megabytes << 20),) * 2)

@udf(data_type=pa.int64(), version="1")
def digest(blob: pa.Array) -> pa.Array:
    limit(int(MEGABYTES))
    return pa.array([zlib.crc32(one.as_buffer()) for one in blob])

if __name__ == "__main__":
    table = Table(sys.argv[1])
    table.add_columns({"digest": digest})
    table.backfill("digest")
"""
LOAD = """
import sys
from chunkmill.engine.tables import Table
table = Table(sys.argv[1])
table.load_columns(sys.argv[2], "key", ["v"])
"""


def ran(program: str, *arguments: str) -> tuple[dict[str, float], float]:
    """The largest resident sizes of the processes of a program, in MB, and its seconds."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "program.py"
        path.write_text(program, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, str(path), *arguments],
            env={**os.environ, "CHUNKMILL_EXECUTOR": "spark", "CHUNKMILL_MASTER": "local[2]"},
        )
        with watching(process.pid) as watch:
            process.wait()
    if process.returncode:
        raise SystemExit("it failed")
    return watch.usage.peak, time.perf_counter() - began


def filled(place: Path, column: str) -> int:
    """The rows of a table that have a value."""
    return int(lance.dataset(place).count_rows(f"{column} IS NOT NULL"))


def blobs(folder: Path, gigabytes: int) -> bool:
    """Backfill a table of blobs."""
    place, noise = folder / "blobs.lance", np.random.default_rng(1).bytes(3 * BLOB)

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, gigabytes * 1000, 50):
            starts = [number * 97 % (2 * BLOB) for number in range(at, at + 50)]
            yield pa.record_batch({"blob": pa.array([noise[one : one + BLOB] for one in starts], pa.binary())})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("blob", pa.binary())]), batches())
    lance.write_dataset(reader, place, enable_stable_row_ids=True, max_rows_per_file=gigabytes * 700)
    peak, seconds = ran(FILL.replace("MEGABYTES", str(LIMIT_MB)), str(place))
    rows = filled(place, "digest")
    shutil.rmtree(place)
    held = rows == gigabytes * 1000 and peak["worker"] < LIMIT_MB * 1.048576
    print(f"blobs   {gigabytes} GB, {rows:,} rows in {seconds:.0f} s: {_said(peak)} (a worker may map {LIMIT_MB} MiB)")
    return held


def load(folder: Path, gigabytes: int) -> bool:
    """Load a column from a source."""
    place, source = folder / "table.lance", folder / "source.parquet"
    rows, group = gigabytes * 1_000_000_000 // (4 * WIDTH), 100_000
    lance.write_dataset(pa.table({"key": np.arange(rows)}), place, enable_stable_row_ids=True)
    rng = np.random.default_rng(1)
    order = rng.permutation(rows)
    schema = pa.schema([("key", pa.int64()), ("v", pa.list_(pa.float32(), WIDTH))])
    numbers = pa.array(rng.random(group * WIDTH, np.float32))
    with pq.ParquetWriter(source, schema, compression="none", use_dictionary=False) as writer:
        for at in range(0, rows, group):
            keys = order[at : at + group]
            values = pa.FixedSizeListArray.from_arrays(numbers.slice(0, len(keys) * WIDTH), WIDTH)
            writer.write_table(pa.table([pa.array(keys), values], schema=schema), row_group_size=group)
    size = source.stat().st_size / 1e9
    peak, seconds = ran(LOAD, str(place), str(source))
    found = filled(place, "v")
    shutil.rmtree(place)
    source.unlink()
    print(
        f"load    {size:.1f} GB, {found:,} rows in {seconds:.0f} s: {_said(peak)} (bar {DRIVER_MB:.0f} MB, the driver)"
    )
    return found == rows and peak["driver"] < DRIVER_MB


def _said(peak: dict[str, float]) -> str:
    return ", ".join(f"{kind} {size:.0f} MB" for kind, size in sorted(peak.items()))


def main() -> int:
    """Print a line for each; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--only", choices=["blobs", "load"], action="append")
    options = parser.parse_args()
    held = True
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        for name in options.only or ["blobs", "load"]:
            held &= {"blobs": blobs, "load": load}[name](Path(scratch), options.gigabytes)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
