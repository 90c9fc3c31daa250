"""Peak memory of a long segment that is read and filled, and of a query over many segments.

    python benchmarks/query_memory.py [--gigabytes 1 2 4] [--folder FOLDER]

Recordings of images of 1 MB and of scalars, which lie in FOLDER until the end, one at a time. Each is read by Spark's
workers, all columns, filled; and in the process itself. Guards: 1 GiB for each worker, the same within 10 % whatever
the size. Ends with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from process_tree import watching
from query_cases import chunk_of, written

LIMIT_MB, SLACK = 1024 * 1.048576, 1.1

PROGRAM = """
import sys
from chunkmill import CatalogClient
path, home, executor = sys.argv[1:]
dataset = CatalogClient(home).create_dataset("long")
dataset.register(path).wait()
rows = 0
for batch in dataset.reader("frame", fill_latest_at=True, executor=executor).execute_stream():
    rows += batch.to_pyarrow().num_rows
print(rows)
"""


def images(megabytes: int) -> Iterator[Any]:
    """One image of 1 MB in a chunk, and seven scalars, for each frame."""
    from chunkmill import Chunk
    from chunkmill.engine.chunk import ComponentDescriptor

    noise = np.random.default_rng(1).bytes(3 << 20)
    for frame in range(megabytes):
        start = frame * 97 % (2 << 20)
        blob = pa.array([[noise[start : start + 1_000_000]]], pa.list_(pa.binary()))
        yield Chunk.build("/camera", {"frame": pa.array([frame])}, [(ComponentDescriptor("blob"), blob)])
        if frame % 250 == 0:
            for joint in range(7):
                ticks = np.arange(frame, min(frame + 250, megabytes))
                yield chunk_of(f"/arm/joint_{joint}", {"frame": pa.array(ticks)}, {"scalars": np.sin(ticks)})


def peaks(path: Path, rows: int, executor: str) -> dict[str, float]:
    """The largest resident size of the driver and of a worker, in MB, as the recording is read and filled."""
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path), home, executor],
            env={**os.environ, "CHUNKMILL_MASTER": "local[2]"},
            stdout=subprocess.PIPE,
            text=True,
        )
        with watching(process.pid) as watch:
            text, _ = process.communicate()
    assert process.returncode == 0
    assert int(text) == rows, text
    return watch.usage.peak


def main() -> int:
    """Print a line for each size; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--executors", nargs="+", default=["spark", "inline"])
    options = parser.parse_args()
    worker: list[float] = []
    print("      GB worker MB driver MB inline MB")
    for gigabytes in options.gigabytes:
        path = written(options.folder / f"images_{gigabytes}.rrd", images(1000 * gigabytes))
        try:
            found = {executor: peaks(path, 1000 * gigabytes, executor) for executor in options.executors}
        finally:
            path.unlink()
        worker.append(found["spark"].get("worker", 0.0) if "spark" in found else found["inline"]["driver"])
        driver, inline = (found.get(executor, {}).get("driver", 0.0) for executor in ("spark", "inline"))
        print(f"{gigabytes:8} {worker[-1]:9.0f} {driver:9.0f} {inline:9.0f}", flush=True)
    return int(max(worker) > LIMIT_MB or max(worker) > SLACK * min(worker))


if __name__ == "__main__":
    sys.exit(main())
