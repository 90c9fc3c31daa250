"""A DataFrame of Spark that is written as a table, beside one process of pylance that writes the same rows.

    python benchmarks/table_writes.py [--gigabytes 2] [--rounds 3] [--kind bytes] [--folder FOLDER]

The rows lie in Parquet files, which Spark reads, and pyarrow for pylance: a number and a text each, and what ``--kind``
says, 64 kB of bytes, 16 numbers in columns of their own, or 128 floats in a list. Prints
the seconds of each round, their medians, and the ratio; the rows that were written are counted and summed up.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

_BYTES, _NUMBERS, _FLOATS = 65_536, 16, 128
_FILES = 8
_GROUP = 16 << 20  # bytes of a row group, which the JVM has whole in memory


def made(folder: Path, gigabytes: float, kind: str) -> int:
    """Write the rows, and give how many they are."""
    size = {"bytes": _BYTES, "numbers": 8 * _NUMBERS, "floats": 4 * _FLOATS}[kind]
    rows = int(gigabytes * 1e9 / (size + 40)) // _FILES
    random = np.random.default_rng(1)
    folder.mkdir(parents=True)
    for number in range(_FILES):
        ids = np.arange(number * rows, (number + 1) * rows)
        columns = {"id": pa.array(ids), "name": pa.array([f"segment-{i:012}-of-the-fleet" for i in ids.tolist()])}
        if kind == "bytes":
            columns["payload"] = pa.array([random.bytes(_BYTES) for _ in range(rows)])
        elif kind == "numbers":
            columns |= {f"value_{i}": pa.array(random.random(rows)) for i in range(_NUMBERS)}
        else:
            values = pa.array(random.random(rows * _FLOATS, dtype=np.float32))
            columns["values"] = pa.FixedSizeListArray.from_arrays(values, _FLOATS).cast(pa.list_(pa.float32()))
        pq.write_table(
            pa.table(columns), folder / f"{number}.parquet", compression="none", row_group_size=_GROUP // size
        )
    return rows * _FILES


def checked(dataset: Any, rows: int) -> None:
    """See that all rows are there, once each."""
    assert dataset.count_rows() == rows
    assert int(np.asarray(dataset.to_table(columns=["id"])["id"]).sum()) == rows * (rows - 1) // 2


def main() -> int:
    """Print a line for each round; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", choices=("bytes", "numbers", "floats"), default="bytes")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    import lance
    from chunkmill import CatalogClient
    from chunkmill.engine.spark import running_session

    home = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        rows = made(home / "rows", options.gigabytes, options.kind)
        spark = running_session()
        frame = spark.read.parquet(str(home / "rows"))
        table = CatalogClient(str(home / "lake")).create_table("t", ds.dataset(home / "rows").schema)
        frame.limit(10).toArrow()
        seconds: dict[str, list[float]] = {"pylance": [], "chunkmill": []}
        for _ in range(options.rounds):
            began = time.perf_counter()
            table.overwrite(frame)
            seconds["chunkmill"].append(time.perf_counter() - began)
            checked(lance.dataset(table.storage_url), rows)
            began = time.perf_counter()
            reader = ds.dataset(home / "rows").scanner().to_reader()
            written = lance.write_dataset(reader, home / "peer", mode="overwrite")
            seconds["pylance"].append(time.perf_counter() - began)
            checked(written, rows)
            print({who: round(found[-1], 2) for who, found in seconds.items()}, flush=True)
            for data in (home / "peer", Path(table.storage_url.removeprefix("file://"))):
                lance.dataset(data).cleanup_old_versions(older_than=None, delete_unverified=False)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    medians = {who: statistics.median(found) for who, found in seconds.items()}
    ratio = medians["chunkmill"] / medians["pylance"]
    print({who: round(found, 2) for who, found in medians.items()}, f"ratio {ratio:.2f} (bar 0.7)")
    return int(ratio > 0.7)


if __name__ == "__main__":
    sys.exit(main())
