"""FlatBuffers messages, by the binary schema that stands in the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from ....engine.chunk.descriptor import ComponentDescriptor
from ....engine.limits import MAX_CELLS, MIB
from .decoded import Decoded, check_batch, decoded_of
from .flatbuffer_columns import FlatColumns, OverBudgetError, Rows
from .flatbuffer_schema import parse_flatbuffer

_EXPANSION: Final = 64
_FREE: Final = 256 * MIB
_LEAST: Final = 64 * MIB


class FlatBufferDecoder:
    """Decodes FlatBuffers messages of one table; a :class:`~chunkmill.readers.mcap.decoding.MessageDecoder`.

    Fields come in the order of their ids. Numbers that are not there have their default, or are null if the schema
    calls them optional; tables, structs, strings and vectors that are not there are null. An enum's value becomes its
    name and number; a union a struct with a child for each member, beside its type. Every offset is checked.
    """

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node = parse_flatbuffer(schema_name, schema_data)
        name = schema_name or self._node.name
        self.descriptor = ComponentDescriptor(f"{name}:message", archetype=name)
        self.datatype: pa.DataType = self._node.arrow

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """See :meth:`MessageDecoder.decode`."""
        check_batch(starts, ends)
        faults: dict[int, str] = {}
        rows = Rows(starts, starts, ends, np.arange(len(starts)))
        if len(starts) * self._node.leaves > MAX_CELLS:
            why = "messages of its type have more fields than are taken from so many"
            return decoded_of([], self.datatype, dict.fromkeys(range(len(starts)), why))
        total = int((ends - starts).sum())
        return decoded_of(list(self._columnar(data, rows, faults, _LEAST / max(total, 1))), self.datatype, faults)

    def decode_plain(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """The same, one message at a time."""
        faults: dict[int, str] = {}
        pieces = []
        share = _LEAST / max(int((ends - starts).sum()), 1)
        for index in range(len(starts)):
            rows = Rows(
                starts[index : index + 1], starts[index : index + 1], ends[index : index + 1], np.array([index])
            )
            pieces += list(self._columnar(data, rows, faults, share))
        return decoded_of(pieces, self.datatype, faults)

    def _columnar(
        self, data: np.ndarray, rows: Rows, faults: dict[int, str], share: float
    ) -> Iterator[tuple[np.ndarray, pa.Array]]:
        """Decode the messages ``rows``; ``share`` is what a byte of a message may become beyond the usual."""
        size, count = int((rows.end - rows.start).sum()), len(rows.owner)
        budget = min(_EXPANSION * size, _FREE) + int(share * size) + 4 * size + 16 * self._node.leaves * count
        columns = FlatColumns(data, budget)
        try:
            values = columns.root(self._node, rows)
        except OverBudgetError:
            if count == 1:
                faults[int(rows.owner[0])] = "it refers to the same bytes so often that it would become far larger"
                return
            half = np.arange(count) < count // 2
            yield from self._columnar(data, rows.at(half), faults, share)
            yield from self._columnar(data, rows.at(~half), faults, share)
            return
        bad = np.zeros(count, np.bool_)
        first = int(rows.owner[0]) if count else 0
        for owners, what in columns.faults:
            bad[owners - first] = True
            for owner in owners.tolist():
                faults.setdefault(owner, what.lstrip(".: "))
        if bad.any():
            yield rows.owner[~bad], values.filter(pa.array(~bad))
        else:
            yield rows.owner, values
