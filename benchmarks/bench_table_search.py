"""Search in tables beside pylance, which is asked the same of a dataset that it keeps open.

    PYTHON benchmarks/bench_table_search.py [--rows 200000] [--rounds 40]

Guards: a search for vectors, for words, and a scan with a condition take at most 1.1 times pylance's own. Rounds
alternate between the two; the figures are medians, and ratios of them, those of CPU seconds beside.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import lance
import numpy as np
import pyarrow as pa
from chunkmill.engine.tables import Table

LENGTH: Final = 128
WORDS: Final = [f"word{number}" for number in range(2000)]
BAR: Final = 1.1


def made(folder: Path, rows: int) -> Table:
    """A table of vectors and texts, with its indexes."""
    chance = np.random.default_rng(1)
    places = chance.zipf(1.3, (rows, 12)) % len(WORDS)
    notes = [" ".join(WORDS[place] for place in line) for line in places]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(chance.normal(size=rows * LENGTH).astype(np.float32)), LENGTH)
    table = pa.table({"id": range(rows), "note": notes, "vector": vectors})
    lance.write_dataset(table, folder / "t.lance", enable_stable_row_ids=True)
    found = Table(str(folder / "t.lance"))
    found.create_index(num_partitions=64, num_sub_vectors=16)
    found.create_fts_index("note", with_position=False)
    found.create_scalar_index("id")
    return found


def pairs(
    table: Table, dataset: lance.LanceDataset, number: int
) -> dict[str, tuple[Callable[[], pa.Table], Callable[[], pa.Table]]]:
    """The same questions to chunkmill and to pylance."""
    chance = np.random.default_rng(number)
    vector = chance.normal(size=LENGTH).astype(np.float32)
    word = WORDS[int(chance.integers(len(WORDS)))]
    near: dict[str, Any] = {"column": "vector", "q": vector, "k": 10, "minimum_nprobes": 20, "maximum_nprobes": 20}
    where = f"id % 10 = {number % 10}"
    columns = ["id", "note"]
    return {
        "vectors": (
            lambda: table.search(vector).select(columns).to_arrow(),
            lambda: dataset.to_table(columns=[*columns, "_distance"], nearest=near),
        ),
        "vectors, refined": (
            lambda: table.search(vector).refine_factor(10).select(columns).to_arrow(),
            lambda: dataset.to_table(columns=[*columns, "_distance"], nearest={**near, "refine_factor": 10}),
        ),
        "vectors, of some rows": (
            lambda: table.search(vector).where(where).select(columns).to_arrow(),
            lambda: dataset.to_table(columns=[*columns, "_distance"], nearest=near, filter=where, prefilter=True),
        ),
        "words": (
            lambda: table.search(word).select(columns).to_arrow(),
            lambda: dataset.to_table(columns=[*columns, "_score"], full_text_query=word, limit=10),
        ),
        "one row by its number": (
            lambda: table.search().where(f"id = {number}").select(columns).to_arrow(),
            lambda: dataset.to_table(columns=columns, filter=f"id = {number}"),
        ),
        "a tenth of all rows": (
            lambda: table.search().where(where).select(columns).to_arrow(),
            lambda: dataset.to_table(columns=columns, filter=where),
        ),
    }


def main() -> int:
    """Run it, and print medians in milliseconds and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    took: dict[str, tuple[list[float], list[float]]] = {}
    used: dict[str, tuple[list[float], list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        table = made(Path(folder), args.rows)
        dataset = lance.dataset(table.uri)
        for number in range(-3, args.rounds):
            for name, both in pairs(table, dataset, abs(number)).items():
                results = []
                for side, ask in sorted(enumerate(both), reverse=bool(number % 2)):
                    began, cpu = time.perf_counter(), time.process_time()
                    results.append(ask().num_rows)
                    if number >= 0:
                        took.setdefault(name, ([], []))[side].append(time.perf_counter() - began)
                        used.setdefault(name, ([], []))[side].append(time.process_time() - cpu)
                assert results[0] == results[1], (name, results)
    ratios = {}
    for name, (ours, theirs) in took.items():
        mine, other = statistics.median(ours), statistics.median(theirs)
        ratios[name] = mine / other
        cpu = statistics.median(used[name][0]) / statistics.median(used[name][1])
        print(f"{name:24} {mine * 1000:8.2f} ms beside {other * 1000:8.2f} ms: {ratios[name]:.2f}, of CPU {cpu:.2f}")
    return 0 if max(ratios.values()) <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
