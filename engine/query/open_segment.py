"""A segment that is being read: its layers, their times, and the chunks that were read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ..chunk import ChunkData
from ..errors import ReadError
from ..rrd import Times
from .chunk_rows import ChunkRows, LayerRows, ReadRows, ToldRows
from .query import Integers
from .sources import LayerChunks


class OpenSegment:
    """The layers of a segment, and times of those whose chunks are read for values alone.

    Chunks are numbered through, one layer after the other. What was read stays until :meth:`keep`.
    """

    def __init__(self, layers: Sequence[LayerChunks], times: Sequence[Times | None]) -> None:
        self._layers = layers
        self._times = times
        self._bounds = list(pairwise(np.cumsum([0, *(len(layer.table) for layer in layers)]).tolist()))
        self._chunks: dict[int, ChunkData] = {}
        self._sizes = sizes_of(layers)

    def rows(self, numbers: Integers, index: str | None, static: Integers | None = None) -> ChunkRows:
        """The rows of those of some chunks that have an index (None: of all), and of static ones behind them.

        Raises ``ReadError``.
        """
        others = [] if static is None else self._layer_rows(static, None)
        return ChunkRows(self.load, self.unlike, self._sizes, [*self._layer_rows(numbers, index), *others])

    def _layer_rows(self, numbers: Integers, index: str | None) -> list[LayerRows]:
        found: list[LayerRows] = []
        read: list[Integers] = []

        def add_read() -> None:
            if read:
                some = np.concatenate(read)
                found.append(ReadRows(some, self.load(some), index))
                read.clear()

        for layer, times, (first, stop) in zip(self._layers, self._times, self._bounds, strict=True):
            some = numbers[slice(*np.searchsorted(numbers, [first, stop]))]
            if len(some) and times is None:
                read.append(some)
            elif len(some) and times is not None:
                add_read()
                found.append(ToldRows(times, layer.table, first, some, index))
        add_read()
        return found

    def load(self, numbers: Integers) -> list[ChunkData]:
        """These chunks; those that are not there yet are read, in the order of their files. Raises ``ReadError``."""
        missing = np.array([number for number in numbers.tolist() if number not in self._chunks], np.int64)
        missing.sort()
        for layer, (first, stop) in zip(self._layers, self._bounds, strict=True) if len(missing) else ():
            rows = missing[slice(*np.searchsorted(missing, [first, stop]))] - first
            if not len(rows):
                continue
            table = layer.table
            rows = rows[np.lexsort((table.offsets[rows], table.part_codes[0][rows]))]
            (entities, paths), is_static = table.entity_codes, table.is_static
            for row, data in zip(rows.tolist(), layer.read(rows), strict=True):
                if data.entity_path != paths[entities[row]] or bool(data.timelines) == is_static[row]:
                    raise self.unlike(first + row)
                self._chunks[first + row] = data
        return [self._chunks[number] for number in numbers.tolist()]

    def unlike(self, number: int) -> ReadError:
        """The error for a chunk that is not as its manifest or its footer says."""
        at = next(i for i, (_, stop) in enumerate(self._bounds) if number < stop)
        table, row = self._layers[at].table, number - self._bounds[at][0]
        (parts, paths), (entities, names) = table.part_codes, table.entity_codes
        return ReadError(
            f"chunk {bytes(table.chunk_ids[row]).hex()} of {names[entities[row]]} is not as the footer of its file "
            "says: it has another entity, or values at other times",
            path=paths[parts[row]],
            offset=int(table.offsets[row]),
            hint="The file is damaged, or the program that wrote it is faulty; compact or copy it to have it right.",
        )

    def keep(self, numbers: Integers) -> None:
        """Let all chunks go but these, and of times what tells of others."""
        self._chunks = {number: self._chunks[number] for number in numbers.tolist() if number in self._chunks}
        for times, (first, stop) in zip(self._times, self._bounds, strict=True):
            if times is not None:
                times.keep(numbers[(numbers >= first) & (numbers < stop)] - first)


def sizes_of(layers: Sequence[LayerChunks]) -> Integers:
    """The bytes of each chunk of layers, in memory or about so."""
    sizes = [np.maximum(layer.table.uncompressed_sizes, layer.table.sizes).astype(np.int64) for layer in layers]
    return np.concatenate([np.empty(0, np.int64), *sizes])
