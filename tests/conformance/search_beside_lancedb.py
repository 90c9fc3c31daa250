"""Search tables that are generated with chunkmill and with lancedb, and compare what is found.

    PYTHON tests/conformance/search_beside_lancedb.py --peer PEER [--tables 50] [--seed 1]

``PEER`` is a Python with lancedb; it opens the same Lance tables. Of half of them it makes the indexes, which chunkmill
then uses. Each table is asked 12 questions: for vectors, for words, and for both, with conditions, limits and offsets,
some rows covered by indexes and some not. Rows with equal scores may come in any order; of those with the score of the
last one, others may be cut off. In a hybrid search ranks count, so words are looked for of which no two rows have one
score.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import lance
import numpy as np
import pyarrow as pa
from chunkmill.engine.tables import Table

WORDS: Final = ("ant", "bee", "cat", "dog", "emu", "fox", "gnu", "hen")
METRICS: Final = ("l2", "cosine", "dot")
KINDS: Final = ("IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ", "IVF_HNSW_PQ")
QUESTIONS: Final = 12
TOLERANCE: Final = 1e-4

PEER: Final = """
import json, sys
import lancedb
from lancedb.index import FTS

tables = {}

def opened(uri):
    folder, _, name = uri.rpartition("/")
    return lancedb.connect(folder).open_table(name.removesuffix(".lance"))

def index(table, kind, metric, parts):
    given = {"num_partitions": parts} | ({"num_sub_vectors": 2} if kind.endswith("PQ") else {})
    table.create_index(metric=metric, vector_column_name="vector", index_type=kind, **given)

def search(table, question):
    kind = question["kind"]
    if kind == "hybrid":
        query = table.search(query_type="hybrid", vector_column_name="vector")
        query = query.vector(question["vector"]).text(question["text"])
    elif kind == "vector":
        query = table.search(question["vector"], vector_column_name="vector")
    else:
        query = table.search(question["text"], query_type="fts")
    if kind != "fts":
        query = query.nprobes(question["probes"])
        query = query.metric(question["metric"]) if question["metric"] else query
        query = query.refine_factor(question["refine"]) if question["refine"] else query
    if question["where"]:
        query = query.where(question["where"], prefilter=True)
    query = query.limit(question["limit"])
    if question["offset"]:
        query = query.offset(question["offset"])
    score = {"vector": "_distance", "fts": "_score", "hybrid": "_relevance_score"}[kind]
    found = query.to_arrow()
    return found["id"].to_pylist(), found[score].to_pylist()

for line in sys.stdin:
    asked = json.loads(line)
    table = opened(asked["uri"])
    try:
        if asked["do"] == "version":
            answer = lancedb.__version__
        elif asked["do"] == "index":
            answer = index(table, asked["index"], asked["metric"], asked["parts"])
        elif asked["do"] == "words":
            more = {"remove_stop_words": False, "stem": False, "ascii_folding": False}
            answer = table.create_fts_index("note", with_position=True, **more)
        else:
            answer = search(table, asked["question"])
        print(json.dumps({"answer": None if asked["do"] in ("index", "words") else answer}), flush=True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
"""


@dataclass(frozen=True)
class Found:
    """The ids and the scores of what was found, the best first."""

    ids: Sequence[int]
    scores: Sequence[float]


class Peer:
    """A process with lancedb."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, do: str, uri: str, **more: Any) -> Any:
        """Its answer. Raises ``ValueError`` where it has none."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, "uri": uri, **more}) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        if "error" in told:
            raise ValueError(told["error"])
        return told["answer"]

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


class MadeTable:
    """A table of a number, with its indexes, and the questions that are put to it."""

    def __init__(self, number: int, folder: Path, peer: Peer | None, seed: int) -> None:
        self._chance = np.random.default_rng((seed, number))
        self.length = int(self._chance.choice([4, 8, 16]))
        self.rows = int(self._chance.integers(60, 500))
        self.metric = str(self._chance.choice(METRICS))
        self.kind = str(self._chance.choice(KINDS)) if number % 5 else None
        self.by_peer = number % 2 == 1
        self.uri = str(folder / f"t{number}.lance")
        # Texts of different lengths have different scores for a word that each has once.
        self._lengths = self._chance.permutation(self.rows) + 2
        covered = self.rows if number % 3 else int(self.rows * 0.8)
        lance.write_dataset(self._part(0, covered), self.uri, max_rows_per_file=200, enable_stable_row_ids=True)
        self.table = Table(self.uri)
        if self.kind is not None:
            parts = int(self._chance.integers(1, 5))
            if self.by_peer and peer is not None:
                peer.ask("index", self.uri, index=self.kind, metric=self.metric, parts=parts)
            else:
                given = {"num_sub_vectors": 2} if self.kind.endswith("PQ") else {}
                self.table.create_index(self.metric, parts, index_type=self.kind, **given)  # type: ignore[arg-type]
        if self.by_peer and peer is not None:
            peer.ask("words", self.uri)
        else:
            self.table.create_fts_index("note")
        if covered < self.rows:
            self.table.add(self._part(covered, self.rows))
        if number % 4 == 0:
            self.table.delete(f"id % 11 = {number % 11}")

    def _part(self, first: int, end: int) -> pa.Table:
        vectors = self._chance.normal(size=((end - first) * self.length)).astype(np.float32)
        notes = []
        for number in range(first, end):
            others = self._chance.choice(WORDS, int(self._lengths[number]) - 1).tolist()
            mark = ["zebra"] if number % 3 == 0 else []
            notes.append(" ".join([*mark, *others]))
        arrays = [
            pa.array(range(first, end), pa.int64()),
            pa.array(notes),
            pa.FixedSizeListArray.from_arrays(pa.array(vectors), self.length),
        ]
        return pa.table(arrays, ["id", "note", "vector"])

    def questions(self) -> Iterator[dict[str, Any]]:
        """Questions, as JSON data."""
        for number in range(QUESTIONS):
            kind = ("vector", "fts", "hybrid")[number % 3]
            yield {
                "kind": kind,
                "vector": self._chance.normal(size=self.length).astype(np.float32).tolist(),
                "text": "zebra" if kind == "hybrid" else " ".join(self._chance.choice(WORDS, number % 2 + 1)),
                "where": [None, "id % 2 = 0", f"id < {self.rows // 2}"][int(self._chance.integers(3))],
                "limit": int(self._chance.integers(1, 30)),
                "offset": int(self._chance.choice([0, 0, 3])),
                "probes": int(self._chance.choice([1, 20])),
                "refine": None if self._chance.random() < 0.5 else 5,
                "metric": None if self.kind is not None else self.metric,
            }

    def found(self, question: dict[str, Any]) -> Found:
        """The answer of chunkmill."""
        kind = question["kind"]
        if kind == "hybrid":
            query = self.table.search(query_type="hybrid").vector(question["vector"]).text(question["text"])
        else:
            query = self.table.search(question["vector"] if kind == "vector" else question["text"])
        if kind != "fts":
            query = query.nprobes(question["probes"])
            query = query.metric(question["metric"]) if question["metric"] else query
            query = query.refine_factor(question["refine"]) if question["refine"] else query
        if question["where"]:
            query = query.where(question["where"])
        found = query.limit(question["limit"]).offset(question["offset"]).to_arrow()
        score = {"vector": "_distance", "fts": "_score", "hybrid": "_relevance_score"}[kind]
        return Found(found["id"].to_pylist(), found[score].to_pylist())


def difference(one: Found, other: Found) -> str | None:
    """What differs, the order of equal scores apart; None where nothing does."""
    if len(one.ids) != len(other.ids):
        return f"{len(one.ids)} rows, and {len(other.ids)}"
    if not np.allclose(one.scores, other.scores, rtol=TOLERANCE, atol=TOLERANCE):
        return f"scores {one.scores[:5]}, and {other.scores[:5]}"
    last = one.scores[-1] if one.scores else 0.0
    edges = {edge for found in (one, other) for edge in found.scores[:1]}
    for ids, others in ((one, other), (other, one)):
        for id_, score in zip(ids.ids, ids.scores, strict=True):
            if id_ in others.ids:
                there = others.scores[list(others.ids).index(id_)]
                if abs(there - score) > TOLERANCE * max(1, abs(score)):
                    return f"row {id_} has {score}, and {there}"
            elif abs(score - last) > TOLERANCE and not any(abs(score - edge) <= TOLERANCE for edge in edges):
                return f"row {id_} with {score} is in one alone"
    return None


def compared(tables: int, seed: int, python: str) -> tuple[Counter[str], list[str]]:
    """The number of questions of each kind, and what differed."""
    counts, wrong = Counter[str](), []
    peer = Peer(python)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(tables):
            made = MadeTable(number, Path(folder), peer, seed)
            for question in made.questions():
                answer = Found(*peer.ask("search", made.uri, question=question))
                counts[question["kind"]] += 1
                counts["rows"] += len(answer.ids)
                told = difference(made.found(question), answer)
                if told is not None:
                    short = {name: value for name, value in question.items() if name != "vector"}
                    wrong.append(f"table {number} ({made.kind}, {made.metric}, {made.rows} rows): {short}: {told}")
    peer.close()
    return counts, wrong


def main() -> int:
    """Run it, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, metavar="PYTHON")
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    counts, wrong = compared(args.tables, args.seed, args.peer)
    print(f"{args.tables} tables, seed {args.seed}: {dict(counts)}, {len(wrong)} differ")
    print("\n".join(wrong[:40]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
