"""Bytes that queries read, as the system counts them for the process, and that pass the JVM.

    python benchmarks/query_bytes.py [--folder FOLDER] [--segments 1000]

Guards: a range of an index over 1,000 segments reads 1.1 x the manifests and the chunks that it needs, at most; a
scalar beside images 3 % of the bytes; and of what Spark's workers read, 1 % at most passes the JVM. Each in a process
of its own. Ends with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from query_cases import JOINT, MB, between, camera, drives, registered, taken, written
from scale_catalog import in_process


def read_bytes(pid: int | str = "self") -> int:
    """Bytes that a process got from calls that read, of files, pipes and sockets."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def counted(dataset: Any, frame_of: Any) -> tuple[int, int, int]:
    """Rows, bytes that were read, and bytes of the chunks that are needed; the second as if nothing were known yet."""
    from chunkmill import query_metrics

    frame = frame_of(dataset)
    before = read_bytes()
    rows = taken(frame)
    read = read_bytes() - before
    with query_metrics() as metrics:
        taken(frame_of(dataset))
    last = metrics.last_query()
    assert last is not None
    return rows, read, last.query_bytes


def ranged(paths: list[str], answers: Any) -> None:
    """Read a range of an index of one entity in many segments."""
    from chunkmill import CatalogClient

    with tempfile.TemporaryDirectory() as home:
        client = CatalogClient(home)
        files = list(map(Path, paths))
        taken(registered(client, "warm", files[:2]).reader("frame"))
        dataset = registered(client, "many", files[2:])
        manifests = sum(entry.manifest_size for entry in dataset.store_reader().live())
        found = counted(dataset, lambda one: between(one.filter_contents(JOINT).reader("frame"), 100, 120))
        answers.put((*found, manifests))


def scalars(path: str, answers: Any) -> None:
    """Read scalars that lie beside images, of a recording whose times were made."""
    from chunkmill import CatalogClient

    with tempfile.TemporaryDirectory() as home:
        client = CatalogClient(home)
        dataset = registered(client, "camera", [Path(path)], times=True)
        before = read_bytes()
        rows = taken(dataset.reader("frame").select("rerun_segment_id", "frame", f'"{JOINT}:scalars"'))
        answers.put((rows, read_bytes() - before))


def on_spark(path: str, answers: Any) -> None:
    """Read images by Spark's workers."""
    import psutil
    from chunkmill import CatalogClient

    with tempfile.TemporaryDirectory() as home:
        dataset = registered(CatalogClient(home), "camera", [Path(path)])
        small = dataset.filter_contents(JOINT)
        taken(small.reader("frame", executor="spark"))
        java = next(p for p in psutil.Process().children(recursive=True) if p.name().startswith("java"))
        before = read_bytes(java.pid)
        rows = taken(dataset.reader("frame", executor="spark"))
        time.sleep(0.2)
        answers.put((rows, read_bytes(java.pid) - before))


def main() -> int:
    """Print a line for each; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--segments", type=int, default=1000)
    options = parser.parse_args()
    paths = [str(path) for path in drives(options.folder, options.segments + 2)]
    rows, read, chunks, manifests = in_process(ranged, paths)
    ratio = read / (chunks + manifests)
    print(
        f"a range over {options.segments} segments, {rows:,} rows: {read:,} bytes, of chunks {chunks:,} and manifests ",
        end="",
    )
    print(f"{manifests:,}: {ratio:.3f} x")
    image = options.folder / f"camera_{MB}.rrd"
    if not image.exists():
        written(image, camera(0, MB))
    size = image.stat().st_size
    rows, read = in_process(scalars, str(image))
    part = read / size
    print(f"a scalar beside {size:,} bytes, {rows:,} rows: {read:,} bytes, {part:.3%}")
    rows, through = in_process(on_spark, str(image))
    print(
        f"{size:,} bytes read by Spark's workers, {rows:,} rows: {through:,} bytes into the JVM, {through / size:.3%}"
    )
    return int(ratio > 1.1 or part > 0.03 or through > 0.01 * size)


if __name__ == "__main__":
    sys.exit(main())
