"""Damage the files that a query reads, and ask: rows are those of before, or an error names the file and the byte.

    python tests/fuzz/fuzz_queries.py [--mutants 2000] [--seed 1]

A dataset has segments that were copied, and some in place with and without times. Of manifests with the times behind
them, of shards, and of files in place (whose time of modification stays) so many are damaged, each by itself, and each
is asked a few of the questions below. The error for a file in place of another size names no byte.
Prints what is wrong, and ends with 1 where something is.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.errors import ReadError
from chunkmill.engine.frames import query_metrics
from chunkmill.engine.rrd import RrdWriter, StoreEntry
from datafusion import col
from mutation import mutate

QUESTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "all": lambda d: d.reader("tick"),
    "filled": lambda d: d.reader("tick", fill_latest_at=True),
    "given": lambda d: d.reader("tick", using_index_values=[-1, 3, 7, 11, 30], fill_latest_at=True),
    "range": lambda d: d.reader("tick").filter((col("tick") >= 3) & (col("tick") < 9)),
    "filled range": lambda d: d.reader("tick", fill_latest_at=True).filter(col("tick") > 12),
    "not null": lambda d: d.reader("tick").filter(col('"/a:x"').is_not_null()),
    "index": lambda d: d.reader("tick").select("rerun_segment_id", "tick"),
    "one component": lambda d: d.reader("tick").select("tick", col('"/b:x"')),
    "other index": lambda d: d.reader("time"),
    "static": lambda d: d.reader(None),
    "contents": lambda d: d.filter_contents("/b/**").reader("tick", fill_latest_at=True),
}
"""Queries of a dataset."""

KINDS: Final = ("manifests", "shards", "in place")


def write_rrd(path: Path, number: int) -> None:
    """A recording of two entities with static values, clears and nulls."""
    store = StoreEntry("recording", "tests", f"s{number}")
    draw = np.random.default_rng(number)
    with RrdWriter(path) as writer:
        writer.begin_store(store)
        for at in range(6):
            count = 4 + at
            ticks = draw.integers(0, 20, count)
            times = {"tick": pa.array(ticks), "time": pa.array(ticks * 1000, pa.timestamp("ns"))}
            values = [[float(v)] if v % 5 else None for v in draw.integers(0, 100, count)]
            components = [(ComponentDescriptor("x"), pa.array(values, pa.list_(pa.float64())))]
            writer.append(store, Chunk.build("/a" if at % 2 else "/b", times, components))
        clear = [(ComponentDescriptor("Clear:is_recursive"), pa.array([[True]], pa.list_(pa.bool_())))]
        writer.append(store, Chunk.build("/a", {"tick": pa.array([10])}, clear))
        name = [(ComponentDescriptor("name"), pa.array([["arm"]]))]
        writer.append(store, Chunk.build("/a", {}, name))
        writer.finish()


def make_dataset(folder: Path) -> tuple[Any, list[Path]]:
    """A dataset of four segments, and the files of it that lie in place."""
    dataset = CatalogClient(folder / "lake").create_dataset("a")
    paths = [folder / f"{number}.rrd" for number in range(4)]
    for number, path in enumerate(paths):
        write_rrd(path, number)
    places = [str(path) for path in paths]
    dataset.register(places[:2], copy=True, executor="inline").wait()
    dataset.register(places[2], times=True, executor="inline").wait()
    dataset.register(places[3], executor="inline").wait()
    return dataset, paths[2:]


def answer(dataset: Any, question: str) -> list[Any]:
    """The rows, and the number of rows that counting gives, read anew: what counts readings keeps nothing."""
    with query_metrics():
        frame = QUESTIONS[question](dataset)
        return [sorted(map(str, frame.to_arrow_table().to_pylist())), frame.count()]


def wrong_answers(folder: Path, mutants: int, start: int) -> tuple[list[str], Counter[str]]:
    """Damage so many of each kind of file, and ask; what is wrong, and how much was refused or the same."""
    folder.mkdir(exist_ok=True)
    dataset, in_place = make_dataset(folder)
    draw = random.Random(start)
    whole = {question: answer(dataset, question) for question in QUESTIONS}
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    for kind in KINDS:
        paths = in_place if kind == "in place" else sorted((Path(dataset) / kind).iterdir())
        for at in range(mutants):
            path = draw.choice(paths)
            data, status = path.read_bytes(), path.stat()
            mutant = mutate(draw, data, ())
            path.write_bytes(mutant.data)
            if kind == "in place":
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            for question in draw.sample(sorted(QUESTIONS), 2):
                found = _outcome(dataset, question, whole[question], path)
                counts[f"{kind}: {found.partition(':')[0]}"] += 1
                if found not in ("same", "refused"):
                    wrong.append(f"{kind} {at}, {mutant.what}, {question}: {found}")
            path.write_bytes(data)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    wrong += [
        f"{question} differs at the end" for question in QUESTIONS if answer(dataset, question) != whole[question]
    ]
    return wrong, counts


def _outcome(dataset: Any, question: str, whole: list[Any], path: Path) -> str:
    try:
        return "same" if answer(dataset, question) == whole else "other rows"
    except ReadError as error:
        if error.path != str(path) or (error.offset is None and "was replaced" not in str(error)):
            return f"the error names {error.path} and byte {error.offset}: {error}"
        return "refused"
    except Exception as error:  # noqa: BLE001 (whatever it is)
        return f"{type(error).__name__}: {error}"


def main() -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong, counts = wrong_answers(Path(folder), options.mutants, options.seed)
    print("\n".join([*wrong[:50], str(dict(counts))]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
