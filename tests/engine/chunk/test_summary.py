"""Summaries of stores: one line per chunk."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.chunk.data import summarise_chunks

EXAMPLE = r"""/__properties rows=1 static=True timelines=[] cols=['foo']
/__properties/sub rows=1 static=True timelines=[] cols=['foo']
/a/it\'s rows=1 static=False timelines=['ti'me'] cols=['k'k', 'ti'me']
/b/c rows=1 static=True timelines=[] cols=['TextDocument:text']
/b/c rows=2 static=False timelines=['frame', 'log_time'] cols=['frame', 'log_time', 'x', 'y']
/b/c rows=2 static=False timelines=['frame'] cols=['emp', 'frame', 'nul', 'x']"""


def chunk(path: str, times: dict[str, list[int]], **values: pa.Array) -> Chunk:
    columns = [ComponentColumn(name.replace("__", ":").replace("_q_", "'"), v) for name, v in values.items()]
    return Chunk.from_columns(path, [TimeColumn(n, sequence=t) for n, t in times.items()], columns)


def example() -> list[Chunk]:
    nothing = pa.array([None, None], pa.list_(pa.int8()))
    empty = pa.array([[], []], pa.list_(pa.int8()))
    two = pa.array([1.0, 2.0])
    return [
        chunk("/b/c", {"log_time": [1, 2], "frame": [1, 2]}, x=two, y=two),
        chunk("/b/c", {"frame": [1, 2]}, x=two, nul=nothing, emp=empty),
        chunk("/b/c", {}, TextDocument__text=pa.array(["hi"])),
        chunk("/a/it's", {"ti'me": [1]}, k_q_k=pa.array([1])),
        chunk("/__properties/sub", {}, foo=pa.array([1])),
        chunk("/__properties", {}, foo=pa.array([1])),
    ]


def test_the_example_of_the_specification() -> None:
    assert summarise_chunks(c.header for c in example()) == EXAMPLE


def test_headers_without_their_empty_components_give_the_lazy_form() -> None:
    def lazily(chunk: Chunk) -> str:
        kept = tuple(c for c in chunk.header.components if c.ranges[0].num_rows)
        return summarise_chunks([replace(chunk.header, components=kept)])

    expected = "/b/c rows=2 static=False timelines=['frame'] cols=['emp', 'frame', 'x']"
    assert lazily(example()[1]) == expected


def test_no_chunks_no_lines() -> None:
    assert summarise_chunks([]) == ""


def test_rerun_summarises_the_same() -> None:
    module = pytest.importorskip("rerun.chunk")
    chunks = example()
    store = module.ChunkStore.from_chunks(
        [c for mine in chunks for c in module.Chunk.from_record_batch(mine.to_record_batch())]
    )
    assert store.summary() == summarise_chunks(c.header for c in sorted(chunks, key=lambda c: c.id)) == EXAMPLE
