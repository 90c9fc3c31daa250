"""Times of chunks written: collected chunk by chunk, in pieces that :mod:`.times` describes and reads."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import ChunkData
from .payloads import DIGEST_SIZE, digest_of
from .table_columns import Integers, Numbers
from .times import ABOUT, ID_HALVES, PART_END, PART_MAGIC, Line, States, TimesDirectory, validity_of

PIECE_ROWS: Final = 1 << 18
"""Rows after which a piece ends, at the end of a chunk."""


class TimesWriter:
    """Collects the times of chunks, in the order in which they are given, and makes pieces of them.

    Nothing of a chunk is held: what is kept takes 16 bytes a row and 8 for each of its timelines until the piece ends.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._counts: list[int] = []
        self._begin()

    def _begin(self) -> None:
        self._rows = 0
        self._shapes: list[tuple[int, int]] = []
        self._ids: list[Numbers] = []
        self._lines: dict[Line, list[Integers]] = {}
        self._on: dict[Line, list[int]] = {}
        self._names: dict[str, int] = {}
        self._cells: list[int] = []
        self._mixed: list[States] = []

    def add(self, data: ChunkData) -> None:
        """Take note of a chunk."""
        rows, ids = data.num_rows, data.row_ids
        number = len(self._shapes)
        if rows:
            self._ids.append(np.frombuffer(ids.buffers()[1], ID_HALVES, 2 * rows, 16 * ids.offset).astype(np.uint64))
        for line in data.timelines:
            key = line.name, line.kind
            self._lines.setdefault(key, []).append(line.ticks.copy())  # else all of a payload is held by it
            self._on.setdefault(key, []).append(number)
        for component in data.components:
            state, each = validity_of(component.values)
            code = self._names.setdefault(component.descriptor.component, len(self._names))
            self._cells.append(4 * code + state)
            if each is not None:
                self._mixed.append(each)
        self._shapes.append((rows, len(data.components)))
        self._rows += rows
        if self._rows >= PIECE_ROWS:
            self._close()

    def finish(self) -> tuple[list[bytes], TimesDirectory]:
        """The pieces, and their directory, in which chunks have the order in which they came."""
        if self._shapes:
            self._close()
        counts = np.array(self._counts, dtype=np.int64)
        sizes = np.array([len(piece) for piece in self._pieces], dtype=np.int64)
        places = np.empty((int(counts.sum()), 2), dtype=np.int64)
        places[:, 0] = np.repeat(np.arange(len(counts)), counts)
        places[:, 1] = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        digests = [digest_of(piece) for piece in self._pieces]
        return self._pieces, TimesDirectory(np.cumsum(sizes) - sizes, sizes, digests, places)

    def _close(self) -> None:
        ids = np.concatenate(self._ids) if self._ids else np.empty(0, np.uint64)
        arrays: dict[str, npt.NDArray[Any]] = {
            "shapes": np.array(self._shapes, dtype="<i4"),
            "cells": np.array(self._cells, dtype="<i4"),
            "mixed": np.concatenate(self._mixed) if self._mixed else np.empty(0, np.uint8),
            "high": _differences(ids[::2]),
            "low": _differences(ids[1::2]),
        }
        for at, (key, ticks) in enumerate(self._lines.items()):
            arrays[f"on{at}"] = np.array(self._on[key], dtype="<i4")
            arrays[f"index{at}"] = _differences(np.concatenate(ticks))
        about = {"components": list(self._names), "timelines": [(name, str(kind)) for name, kind in self._lines]}
        self._pieces.append(_packed(arrays, about))
        self._counts.append(len(self._shapes))
        self._begin()


def _differences(values: npt.NDArray[Any]) -> States:
    """The bytes of the differences of 64-bit values, the lowest of all first."""
    found = np.empty(len(values), dtype="<u8")
    values = values.view(np.uint64)
    found[:1] = values[:1]
    np.subtract(values[1:], values[:-1], out=found[1:])
    return np.ascontiguousarray(found.view(np.uint8).reshape(-1, 8).T)


def _packed(arrays: dict[str, npt.NDArray[Any]], about: dict[str, Any]) -> bytes:
    columns = []
    for array in arrays.values():
        ends = pa.py_buffer(np.array([0, array.nbytes], dtype=np.int32))
        columns.append(pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(np.ascontiguousarray(array))]))
    schema = pa.schema([(name, pa.binary()) for name in arrays], {ABOUT: json.dumps(about).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as out:
        out.write_batch(pa.record_batch(columns, schema=schema))
    return bytes(sink.getvalue().to_pybytes())


_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def part_end(times: TimesWriter | None) -> list[bytes]:
    """The bytes that a part with the times of its chunks ends with; with None, of one whose times are not known."""
    if times is None:
        return [PART_END.pack(0, bytes(DIGEST_SIZE), PART_MAGIC)]
    pieces, found = times.finish()
    directory = found.to_bytes()
    return [*pieces, directory, PART_END.pack(found.size + len(directory), digest_of(directory), PART_MAGIC)]
