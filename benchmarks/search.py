"""Search for vectors beside brute force, and beside pylance's own calls on the same table.

    python benchmarks/search.py [--segments 500] [--rows 400] [--dimension 128] [--rounds 5]

Segments of vectors, in clusters or all of one cloud: recall of the ten nearest with default settings, the median
seconds of a search and of pylance's own on the same version with the same choices, of making an index and of what
pylance takes to write the same rows and index them, and of registering 100 segments with and without an index.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from query_cases import written

COLUMN = "/camera:embedding"


def vectors(count: int, dimension: int, kind: str) -> Any:
    """Vectors in a thousand clusters, or in one cloud."""
    random = np.random.default_rng(1)
    found = random.normal(size=(count, dimension))
    if kind == "clusters":
        found = 0.3 * found + random.normal(size=(1000, dimension))[random.integers(0, 1000, count)]
    return found.astype(np.float32)


def recordings(folder: Path, all_: Any, rows: int) -> list[Path]:
    """Recordings of so many rows each."""
    from chunkmill import Chunk
    from chunkmill.engine.chunk import ComponentDescriptor

    folder.mkdir()
    made = []
    for number in range(len(all_) // rows):
        some = pa.FixedSizeListArray.from_arrays(
            pa.array(all_[number * rows : (number + 1) * rows].ravel()), all_.shape[1]
        )
        cells = pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), some)
        chunk = Chunk.build("/camera", {"frame": pa.array(range(rows))}, [(ComponentDescriptor("embedding"), cells)])
        made.append(written(folder / f"drive_{number:04}.rrd", iter([chunk])))
    return made


def median(rounds: int, call: Callable[[], Any]) -> float:
    """The median seconds of a call."""
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def measured(home: Path, kind: str, options: argparse.Namespace) -> None:
    """Print what searching in vectors of a kind takes."""
    from chunkmill import CatalogClient

    total = options.segments * options.rows
    all_ = vectors(total, options.dimension, kind)
    paths = list(map(str, recordings(home / kind, all_, options.rows)))
    client = CatalogClient(str(home / f"lake_{kind}"))
    dataset = client.create_dataset("drives")
    dataset.register(paths).wait()

    def peer() -> None:
        table = pa.table(
            {"n": pa.array(range(total)), "instance": pa.FixedSizeListArray.from_arrays(all_.ravel(), all_.shape[1])}
        )
        made = lance.write_dataset(table, home / "peer", mode="overwrite", enable_stable_row_ids=True)
        made.create_index("instance", "IVF_PQ", metric="cosine", num_sub_vectors=16, target_partition_size=8192)

    built, peers = [], []
    for _ in range(min(3, options.rounds)):
        built.append(median(1, lambda: dataset.create_vector_search_index(column=COLUMN, time_index="frame")))
        peers.append(median(1, peer))
    ours, theirs = statistics.median(built), statistics.median(peers)
    print(
        f"{kind}: {total:,} vectors: built in {ours:.2f} s, pylance {theirs:.2f} s, ratio {ours / theirs:.2f} (bar 1.2)"
    )

    tables = Path(str(dataset.__fspath__())) / "search" / "tables"
    newest = lance.dataset(max(tables.iterdir()))
    names = [name for name in newest.schema.names if name != "entry"]
    random = np.random.default_rng(2)
    queries = all_[random.integers(0, total, 50)] + random.normal(0, 0.1, (50, options.dimension)).astype(np.float32)
    unit = all_ / np.linalg.norm(all_, axis=1, keepdims=True)
    hits = 0
    for query in queries:
        best = set(np.argsort(-(unit @ (query / np.linalg.norm(query))))[:10].tolist())
        found = dataset.search_vector(query, COLUMN, 10).to_pydict()
        numbers = [
            int(s[6:]) * options.rows + t for s, t in zip(found["rerun_segment_id"], found["frame"], strict=True)
        ]
        hits += len(best & set(numbers))
    print(f"{kind}: recall of the 10 nearest {hits / 500:.3f} (bar 0.95)")
    seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    for query in queries:
        nearest = {"column": "instance", "q": query, "k": 10, "minimum_nprobes": 32, "refine_factor": 200}
        seconds["ours"].append(median(1, lambda q=query: dataset.search_vector(q, COLUMN, 10).to_arrow_table()))
        seconds["peer"].append(median(1, lambda n=nearest: newest.to_table(columns=[*names, "_distance"], nearest=n)))
    ours, theirs = statistics.median(seconds["ours"]), statistics.median(seconds["peer"])
    print(f"{kind}: a search {1e3 * ours:.1f} ms, pylance {1e3 * theirs:.1f} ms, ratio {ours / theirs:.2f} (bar 1.3)")

    def registered(with_index: bool, number: int) -> None:
        other = client.create_dataset(f"other_{with_index}_{number}")
        other.register(paths[:2]).wait()
        if with_index:
            other.create_vector_search_index(column=COLUMN, time_index="frame")
        began = time.perf_counter()
        other.register(paths[2:102]).wait()
        taken[with_index].append(time.perf_counter() - began)

    taken: dict[bool, list[float]] = {True: [], False: []}
    for number in range(options.rounds):
        for with_index in (True, False) if number % 2 else (False, True):
            registered(with_index, number)
    ours, theirs = statistics.median(taken[True]), statistics.median(taken[False])
    told = f"with an index {ours:.3f} s, without {theirs:.3f} s, ratio {ours / theirs:.2f} (bar 1.1)"
    print(f"{kind}: registering 100 {told}")


def main() -> None:
    """Print a line for each measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=500)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=["clusters", "cloud"])
    options = parser.parse_args()
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as home:
            measured(Path(home), kind, options)


if __name__ == "__main__":
    sys.exit(main())
