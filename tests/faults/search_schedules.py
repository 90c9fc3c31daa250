"""Schedules of what happens to a dataset with search indexes: results are those of a look at all that is live.

    python tests/faults/search_schedules.py [--schedules 200] [--seed 1]

Each schedule registers, overwrites and unregisters segments, makes indexes, brings them up to date, trains them anew,
compacts, clears away, and is cut at the steps of making and upkeep: by an error, or by a kill of the process that
does it. After each step the nearest vectors, by two measures, and the words that are found are compared with all that
is live. Every second schedule trains and uses the index of vectors however few they are, the others compare few as
users' datasets do.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from chunkmill import Chunk, LazyChunkStream
from chunkmill.engine import faults
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import WriteError
from chunkmill.engine.faults import PLAN
from chunkmill.engine.lance import indexes

COSINE, L2, TEXT = "/a:cosine", "/a:l2", "/a:text"
POINTS = ("search.rows", "search.index", "search.draft", "search.publish")
ROWS, DIMENSION, STEPS = 100, 8, 9
WORDS = ("rain", "fog", "sun", "snow", "wind")
CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from search_schedules import acted, indexes
indexes._FLAT_ROWS = int(sys.argv[4])
from chunkmill.engine.catalog import CatalogClient
acted(CatalogClient(sys.argv[2]).get_dataset("drives"), sys.argv[3])
"""

Live = dict[str, int]


def vectors(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(ROWS, DIMENSION)).astype(np.float32)


def texts(seed: int) -> list[str]:
    some = random.Random(seed)
    return [" ".join(some.sample(WORDS, some.randint(0, 3))) for _ in range(ROWS)]


def recording(path: Path, id_: str, seed: int) -> str:
    cells = pa.array([[row.tolist()] for row in vectors(seed)], pa.list_(pa.list_(pa.float32(), DIMENSION)))
    words = pa.array([[text] for text in texts(seed)])
    columns = [(ComponentDescriptor("cosine"), cells), (ComponentDescriptor("l2"), cells)]
    chunk = Chunk.build("/a", {"t": pa.array(range(ROWS))}, [*columns, (ComponentDescriptor("text"), words)])
    LazyChunkStream.from_iter([chunk]).write_rrd(path, application_id="t", recording_id=id_, executor="inline")
    return str(path)


def acted(dataset: DatasetEntry, action: str) -> None:
    """Do one thing to the indexes of a dataset."""
    if action == "create":
        dataset.create_vector_search_index(column=COSINE, time_index="t", num_sub_vectors=4)
        dataset.create_vector_search_index(column=L2, time_index="t", num_sub_vectors=4, distance_metric="L2")
        dataset.create_fts_search_index(column=TEXT, time_index="t")
    elif action == "clean":
        dataset.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True)
    else:
        compact = action == "compact"
        dataset.do_maintenance(
            optimize_indexes=not compact, retrain_indexes=action == "train", compact_fragments=compact
        )


def compared(dataset: DatasetEntry, live: Live, some: random.Random) -> int:
    """Search, see that what is found is what is there, and give how many rows were compared."""
    rows = [
        (id_, t, v, w)
        for id_, seed in live.items()
        for t, (v, w) in enumerate(zip(vectors(seed), texts(seed), strict=True))
    ]
    columns = {str(index.column) for index in dataset.list_search_indexes()}
    query = np.random.default_rng(some.randrange(10**6)).normal(size=DIMENSION).astype(np.float32)
    total = 0
    for column in sorted({COSINE, L2} & columns):
        for k in (3, 1000):
            found = dataset.search_vector(query, column, k).to_pydict()
            wanted = sorted((_distance(column, v, query), id_, t) for id_, t, v, _ in rows)[:k]
            assert np.allclose(found["_distance"], [d for d, _, _ in wanted], atol=1e-3), (column, k)
            assert set(zip(found["rerun_segment_id"], found["t"], strict=True)) == {row[1:] for row in wanted}, (
                column,
                k,
            )
            total += len(wanted)
    if TEXT in columns:
        word = some.choice(WORDS)
        found = dataset.search_fts(word, TEXT).to_pydict()
        wanted_words = sorted((id_, t) for id_, t, _, w in rows if word in w.split())
        assert sorted(zip(found["rerun_segment_id"], found["t"], strict=True)) == wanted_words, word
        total += len(wanted_words)
    return total


def _distance(column: str, vector: Any, query: Any) -> float:
    if column == L2:
        return float(((vector - query) ** 2).sum())
    return 1 - float(vector @ query) / float(np.linalg.norm(vector) * np.linalg.norm(query))


def cut(dataset: DatasetEntry, home: Path, action: str, some: random.Random, *, killed: bool) -> str:
    """Do a thing that is cut at a step, and give what came of it."""
    point = some.choice(POINTS)
    if killed:
        plan = f"{point}:kill:{some.randint(1, 2)}"
        program = [
            sys.executable,
            "-c",
            CHILD,
            str(Path(__file__).parent),
            str(home),
            action,
            str(indexes._FLAT_ROWS),
        ]
        done = subprocess.run(program, env={**os.environ, PLAN: plan}, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -9), done.stderr[-2000:]
        return "killed" if done.returncode else "went through"
    faults._here.clear()  # steps are counted for each schedule anew
    os.environ[PLAN] = f"{point}:exception"
    try:
        acted(dataset, action)
    except (RuntimeError, WriteError) as error:
        if "planned failure" not in f"{error} {error.__cause__}":
            raise
        return "failed"
    finally:
        del os.environ[PLAN]
    return "went through"


def run(seed: int, told: Counter[str]) -> None:
    """One schedule."""
    some = random.Random(seed)
    few = 256 if seed % 2 else 20_000  # of fewer Lance trains none
    with tempfile.TemporaryDirectory() as folder, patch.object(indexes, "_FLAT_ROWS", few):
        home = Path(folder) / "lake"
        dataset = CatalogClient(str(home)).create_dataset("drives")
        live: Live = {}
        for step in range(STEPS):
            likely = ["register", "register", "create", "cut", "cut", "optimize", "train", "compact", "clean"]
            action = (
                "register" if step < 2 else "create" if step == 2 else some.choice([*likely, "overwrite", "remove"])
            )
            if action in ("register", "overwrite"):
                id_ = f"s{step}" if action == "register" or not live else some.choice(sorted(live))
                value = some.randrange(10**6)
                dataset.register(recording(Path(folder) / f"{step}.rrd", id_, value)).wait()
                live[id_] = value
            elif action == "remove":
                gone = some.sample(sorted(live), min(len(live) - 1, 2))
                if gone:
                    dataset.unregister(segments_to_drop=gone)
                live = {id_: value for id_, value in live.items() if id_ not in gone}
            elif action == "cut":
                what = some.choice(["create", "optimize", "train"])
                action = f"{what} {cut(dataset, home, what, some, killed=some.random() < 0.3)}"
            else:
                acted(dataset, action)
            told[action] += 1
            told["rows compared"] += compared(CatalogClient(str(home)).get_dataset("drives"), live, some)


def main() -> int:
    """Run schedules, and print how often each thing was done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ.setdefault("CHUNKMILL_EXECUTOR", "inline")
    told: Counter[str] = Counter()
    for number in range(options.schedules):
        try:
            run(options.seed * 1_000_000 + number, told)
        except BaseException:
            print(f"schedule {options.seed * 1_000_000 + number}", dict(told), file=sys.stderr)
            raise
    print(f"{options.schedules} schedules, all the same: {dict(told)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
