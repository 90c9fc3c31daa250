"""The generated datasets of ``query_oracle.py`` as RRDs, and with less in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import query_oracle
from chunkmill.engine.chunk import Chunk, ChunkData
from chunkmill.engine.rrd import RrdWriter, StoreEntry

CLEAR = "Clear:is_recursive"


def write_rrds(
    recordings: Sequence[dict[str, Any]], folder: Path
) -> tuple[list[Path], list[str], dict[str, list[ChunkData]]]:
    """An RRD of each recording of a generated dataset, the layers that they are, and what there is in them."""
    folder.mkdir()
    paths: list[Path] = []
    chunks: defaultdict[str, list[ChunkData]] = defaultdict(list)
    for number, recording in enumerate(recordings):
        store = StoreEntry("recording", "tests", recording["segment"])
        made = [query_oracle.chunk_of(one, 100 * number + at) for at, one in enumerate(recording["chunks"])]
        chunks[recording["segment"]] += made
        paths.append(folder / f"{number}.rrd")
        with RrdWriter(paths[-1]) as writer:
            writer.begin_store(store)
            for data in made:
                writer.append(store, Chunk.from_data(data))
            writer.finish()
    return paths, [recording["layer"] for recording in recordings], dict(chunks)


def without_clears(recordings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A generated dataset without clears, some of which end the process of Rerun's client."""
    return _of_columns(recordings, lambda chunk, _: {column["name"] for column in chunk["columns"]} - {CLEAR})


def tamed(recordings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A generated dataset without components that are empty in a part of it, and without second static values."""
    full = {(chunk["entity_path"], name) for r in recordings for chunk in r["chunks"] for name in _full(chunk)}
    seen = {
        (r["segment"], c["entity_path"], name)
        for r in recordings
        for c in r["chunks"]
        if _has_times(c)
        for name in _full(c)
    }

    def kept(chunk: dict[str, Any], segment: str) -> set[str]:
        entity, mine = chunk["entity_path"], set(_full(chunk))
        names = {column["name"] for column in chunk["columns"]}
        names = {name for name in names if name in mine or (entity, name) not in full}
        if not _has_times(chunk):
            chunk["rows"] = [row for row in chunk["rows"] if all(row[name] for name in mine)][:1]
            names -= {name for name in names if (segment, entity, name) in seen}
            seen.update((segment, entity, name) for name in names)
        return names

    return _of_columns(recordings, kept)


def _of_columns(recordings: Sequence[dict[str, Any]], kept: Callable[[dict[str, Any], str], set[str]]) -> list[Any]:
    """A generated dataset with these of the components of each chunk."""
    found = []
    for recording in recordings:
        chunks = []
        for chunk in recording["chunks"]:
            names = kept(chunk, recording["segment"])
            columns = [c for c in chunk["columns"] if c["metadata"].get("rerun:kind") != "data" or c["name"] in names]
            if chunk["rows"] and columns[-1]["metadata"]["rerun:kind"] == "data":
                chunks.append({**chunk, "columns": columns})
        found += [{**recording, "chunks": chunks}] if chunks else []
    return found


def _has_times(chunk: dict[str, Any]) -> bool:
    return any(column["metadata"].get("rerun:kind") == "index" for column in chunk["columns"])


def _full(chunk: dict[str, Any]) -> list[str]:
    """The components of a chunk that have some value."""
    names = [column["name"] for column in chunk["columns"] if column["metadata"].get("rerun:kind") == "data"]
    return [name for name in names if any(row[name] for row in chunk["rows"])]
