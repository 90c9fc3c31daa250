"""The same rows cut into other chunks, layers, windows and files, asked the same: answers must not differ.

    python tests/conformance/query_invariance.py --count 2000 --stores 100 --seed 0

``count`` generated datasets (``query_oracle.py``) are asked as they are, and with the rows of each component in other
chunks: split, joined, in any order, in any layers, each segment cut into windows of some bytes. ``stores`` are asked on
disk: in place, with and without times, copied, compacted, and laid out by profiles. Prints what differs, and ends with
1 then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from chunkmill.engine import OptimizationProfile
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.chunk import ChunkData
from chunkmill.engine.store import RecordingStore
from generated_rrds import write_rrds
from query_oracle import Dataset, Reading, canonical, generated, plain, query_of

_CONTENTS = (None, None, "/w/**", "/w/a /z", "/** -/w/a/**", "/__properties/** /**")
_PROFILES = (
    OptimizationProfile.LIVE,
    OptimizationProfile(max_rows=1, max_rows_if_unsorted=1),
    OptimizationProfile(max_bytes=200, split_size_ratio=1.0),
    OptimizationProfile(max_rows=3, max_rows_if_unsorted=100),
)


def rechunked(random_: random.Random, layers: list[list[ChunkData]]) -> list[list[ChunkData]]:
    """The rows of some layers in other chunks, in another order, in other layers."""
    pieces: list[ChunkData] = []
    for data in (data for layer in layers for data in layer):
        at = 0
        while at < data.num_rows:
            length = random_.randint(1, data.num_rows - at)
            pieces.append(data.slice(at, length))
            at += length
    random_.shuffle(pieces)
    chunks: list[ChunkData] = []
    for piece in pieces:
        alike = [i for i, c in enumerate(chunks) if (c.entity_path, c.shape) == (piece.entity_path, piece.shape)]
        if alike and random_.random() < 0.5:
            chunks[alike[0]] = _by_row_id(ChunkData.join([chunks[alike[0]], piece], piece.chunk_id))
        else:
            chunks.append(piece)
    found: list[list[ChunkData]] = [[] for _ in range(random_.randint(1, 4))]
    for number, data in enumerate(chunks):
        random_.choice(found).append(ChunkData((number + 1000).to_bytes(16, "big"), *_columns(data)))
    return found


def _columns(data: ChunkData) -> tuple[Any, ...]:
    return data.entity_path, data.row_ids, data.timelines, data.components


def _by_row_id(data: ChunkData) -> ChunkData:
    ids = data.row_ids.to_pylist()
    return data.take(np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64))


def questions(random_: random.Random, indexes: list[str], count: int) -> Iterator[dict[str, Any]]:
    """Arguments as the oracle has them."""
    for _ in range(count):
        asked: dict[str, Any] = {
            "index": random_.choice([*indexes, *indexes, None]),
            "contents": random_.choice(_CONTENTS),
            "empty": random_.random() < 0.3,
            "tomb": random_.random() < 0.3,
            "fill": random_.random() < 0.5,
        }
        if asked["index"] is not None and random_.random() < 0.3:
            asked["uiv"] = random_.sample(range(-5, 11), random_.randint(0, 6))
        if random_.random() < 0.3:
            asked["profile"] = "0.33.1"
        yield asked


def compared(seed: int, queries: int = 4) -> int:
    """Compare a generated dataset with others of the same rows; gives the number of rows. Raises ``AssertionError``."""
    random_ = random.Random(seed)
    dataset = Dataset(generated(random_))
    other = Dataset([])
    for segment, layers in dataset.layers.items():
        other.layers[segment] = rechunked(random_, layers)
    other.schemas, other.schema = dataset.schemas, dataset.schema
    indexes = sorted({line.name for _, data in _chunks(dataset) for line in data.timelines})
    count = 0
    for asked in questions(random_, indexes, queries):
        query, cut = query_of(asked), random_.choice([None, 1, 10, 50, 1000])
        reading = Reading(
            cut, random_.choice([1, 100, 1 << 20]), tuple(random_.sample(range(4), random_.randint(0, 4)))
        )
        expected = dataset.rows(query)
        found = other.rows(query, reading=reading)
        assert canonical(found) == canonical(expected), f"seed {seed}: {asked}, {reading}"
        count += len(found)
    return count


def _chunks(dataset: Dataset) -> Iterator[tuple[str, ChunkData]]:
    for segment, layers in dataset.layers.items():
        yield from ((segment, data) for layer in layers for data in layer)


def compared_stores(seed: int, folder: Path, queries: int = 4) -> int:
    """Compare a generated dataset in place with what is made of it on disk; gives the number of rows.

    Raises ``AssertionError``.
    """
    random_ = random.Random(seed)
    paths, layers, chunks = write_rrds(generated(random_), folder / f"files-{seed}")
    client = CatalogClient(folder / "lake")
    indexes = sorted({line.name for some in chunks.values() for data in some for line in data.timelines})
    asked = list(questions(random_, indexes, queries))

    def registered(name: str, **options: Any) -> Any:
        dataset = client.create_dataset(f"{name}-{seed}")
        dataset.register([str(path) for path in paths], layer_name=layers, executor="inline", **options).wait()
        return dataset

    in_place = registered("in-place")
    expected = [answer(in_place, one) for one in asked]
    copied = registered("copied", copy=True)
    compared_with = {"with times": registered("times", times=True), "copied": copied}
    for way, dataset in compared_with.items():
        _check(f"seed {seed}, {way}", dataset, asked, expected)
    in_place.do_maintenance(optimize_indexes=True)
    _check(f"seed {seed}, times made later", in_place, asked, expected)
    copied.do_maintenance(compact_fragments=True)
    _check(f"seed {seed}, compacted", copied, asked, expected)
    profile = random_.choice(_PROFILES)
    RecordingStore.open(os.fspath(copied)).compact(optimize=profile, executor="inline")
    _check(f"seed {seed}, {profile}", copied, asked, expected)
    return sum(map(len, expected))


def _check(what: str, dataset: Any, asked: list[dict[str, Any]], expected: list[list[str]]) -> None:
    for one, rows in zip(asked, expected, strict=True):
        assert answer(dataset, one) == rows, f"{what}: {one}"


def answer(dataset: Any, asked: dict[str, Any]) -> list[str]:
    """The rows of a dataset of a catalog, in an order of their own."""
    view = dataset if asked["contents"] is None else dataset.filter_contents(asked["contents"])
    frame = view.reader(
        asked["index"],
        include_semantically_empty_columns=asked["empty"],
        include_tombstone_columns=asked["tomb"],
        fill_latest_at=asked["fill"],
        using_index_values=asked.get("uiv"),
    )
    return canonical(plain(frame.to_arrow_table()))


def main() -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="datasets")
    parser.add_argument("--stores", type=int, default=100, help="datasets on disk")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    arguments = parser.parse_args()
    rows, differ = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.seed, arguments.seed + max(arguments.count, arguments.stores)):
            try:
                rows += compared(number) if number < arguments.seed + arguments.count else 0
                rows += compared_stores(number, Path(folder)) if number < arguments.seed + arguments.stores else 0
            except Exception as error:  # noqa: BLE001 (whatever it is)
                differ.append(f"{type(error).__name__}: {error}")
                print(number, differ[-1][:600], flush=True)
    figures = {"datasets": arguments.count, "stores": arguments.stores, "rows": rows, "differ": len(differ)}
    print(json.dumps(figures))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
