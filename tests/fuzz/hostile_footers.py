"""RRDs whose footers lie about their chunks, registered and asked: an error, or the right rows.

    python tests/fuzz/hostile_footers.py [--seed 1]

Registered with ``verify`` or ``copy`` a file whose footer lies is refused, or its rows are right, or reading it is an
error. In place without these, a chunk that a query reads is compared with what is told of it; what no query reads is
believed, so that a lie about a time or an entity may leave rows out of a query that it rules out. Prints each that is
not so, and ends with 1 where something is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.chunk import Chunk, ChunkHeader, ComponentDescriptor
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.rrd import RrdWriter, StoreEntry
from fuzz_queries import QUESTIONS, answer

STORE: Final = StoreEntry("recording", "tests", "s")
WAYS: Final[dict[str, dict[str, Any]]] = {
    "in place": {},
    "with times": {"times": True},
    "verified": {"verify": True},
    "copied": {"copy": True},
}
READ_WHOLE: Final = {"all", "filled", "other index"}
"""Questions for which all chunks with an index are read, unless their footer says that they lack it."""


def chunks(seed: int) -> list[Chunk]:
    """Chunks of two entities with nulls, a clear and a static value."""
    draw, found = np.random.default_rng(seed), []
    for at in range(6):
        count = 4 + at
        ticks = np.sort(draw.integers(0, 20, count)) + (at // 2) * 5
        times = {"tick": pa.array(ticks), "time": pa.array(ticks * 1000, pa.timestamp("ns"))}
        values = [[float(v)] if v % 5 else None for v in draw.integers(0, 100, count)]
        components = [(ComponentDescriptor("x"), pa.array(values, pa.list_(pa.float64())))]
        found.append(Chunk.build("/a" if at % 2 else "/b", times, components))
    clear = [(ComponentDescriptor("Clear:is_recursive"), pa.array([[True]], pa.list_(pa.bool_())))]
    found.append(Chunk.build("/a", {"tick": pa.array([10])}, clear))
    found.append(Chunk.build("/a", {}, [(ComponentDescriptor("name"), pa.array([["arm"]]))]))
    return found


def _moved(header: ChunkHeader, start: int, end: int, *, lines: bool = True, parts: bool = True) -> ChunkHeader:
    if lines:
        header = replace(
            header, timelines=tuple(replace(t, start=t.start + start, end=t.end + end) for t in header.timelines)
        )
    if parts:
        components = [
            replace(
                c,
                ranges=tuple(
                    r if r.start is None else replace(r, start=r.start + start, end=r.end + end) for r in c.ranges
                ),
            )
            for c in header.components
        ]
        header = replace(header, components=tuple(components))
    return header


def _components(header: ChunkHeader, **changes: Any) -> ChunkHeader:
    return replace(header, components=tuple(replace(c, **changes) for c in header.components))


def _of_timelines(header: ChunkHeader, count: int) -> ChunkHeader:
    components = tuple(replace(c, ranges=c.ranges[:count]) for c in header.components)
    return replace(header, timelines=header.timelines[:count], components=components)


LIES: Final[dict[str, Callable[[ChunkHeader], ChunkHeader]]] = {
    "ranges too early": lambda h: _moved(h, -100, -100),
    "ranges too late": lambda h: _moved(h, 100, 100),
    "ranges too narrow": lambda h: _moved(h, 2, -2),
    "ranges too wide": lambda h: _moved(h, -5, 5),
    "component ranges too late": lambda h: _moved(h, 100, 100, lines=False),
    "timeline ranges too narrow": lambda h: _moved(h, 3, -3, parts=False),
    "more rows": lambda h: replace(h, num_rows=h.num_rows + 1),
    "fewer rows": lambda h: replace(h, num_rows=h.num_rows - 1),
    "static": lambda h: replace(h, is_static=True),
    "static without timelines": lambda h: replace(_of_timelines(h, 0), is_static=True),
    "no timelines": lambda h: _of_timelines(h, 0),
    "one timeline": lambda h: _of_timelines(h, 1),
    "other entity": lambda h: replace(h, entity_path="/c"),
    "no components": lambda h: replace(h, components=()),
    "other component": lambda h: _components(h, descriptor=ComponentDescriptor("y")),
    "empty": lambda h: _components(h, is_empty=True),
    "other type": lambda h: _components(h, datatype=pa.list_(pa.int8())),
    "other id": lambda h: replace(h, chunk_id=bytes(16)),
}
"""What a footer may say of a chunk instead of the truth."""


def _honest(header: ChunkHeader) -> ChunkHeader:
    return header


def write_lying(path: Path, seed: int, lie: Callable[[ChunkHeader], ChunkHeader]) -> None:
    """An RRD whose footer lies about two of its chunks."""
    with RrdWriter(path) as writer:
        writer.begin_store(STORE)
        for number, chunk in enumerate(chunks(seed)):
            header = lie(chunk.header) if number in (0, 3) else chunk.header
            writer.append(STORE, Chunk(chunk.data, header, None))
        writer.finish()


def wrong_answers(
    folder: Path, seed: int, ways: Iterable[str] = tuple(WAYS), questions: Iterable[str] = tuple(QUESTIONS)
) -> list[str]:
    """Register files with each lie in some ways, and ask; what is wrong."""
    client, wrong = CatalogClient(folder / "lake"), []
    honest = folder / "honest.rrd"
    write_lying(honest, seed, _honest)
    dataset = client.create_dataset("honest")
    dataset.register(str(honest), executor="inline").wait()
    whole = {question: answer(dataset, question) for question in questions}
    for way in ways:
        for number, (name, lie) in enumerate(LIES.items()):
            path = folder / f"{way}-{number}.rrd"
            write_lying(path, seed, lie)
            dataset = client.create_dataset(f"{way}-{number}")
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # times that cannot be made
                    dataset.register(str(path), executor="inline", **WAYS[way]).wait()
            except ChunkmillError:
                continue
            for question, rows in whole.items():
                try:
                    is_right = answer(dataset, question) == rows
                except ChunkmillError:
                    continue
                if not is_right and (way in ("verified", "copied") or _reads_all(question, name)):
                    wrong.append(f"{way}, {name}: {question} gives other rows")
    return wrong


def _reads_all(question: str, lie: str) -> bool:
    return question in READ_WHOLE and not (question == "other index" and lie == "one timeline")


def main() -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = wrong_answers(Path(folder), options.seed)
    print("\n".join(wrong) or f"{len(LIES)} lies in {len(WAYS)} ways: an error, or the right rows")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
