"""Protobuf messages, by the descriptors that stand in the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from ....engine.chunk.descriptor import ComponentDescriptor
from ....engine.limits import MAX_RECURSIVE_MESSAGE
from .decoded import Decoded, check_batch, decoded_of
from .protobuf_columns import Columns
from .protobuf_plain import build_messages
from .protobuf_scan import Places, TooManyCellsError
from .protobuf_schema import parse_protobuf


class ProtobufDecoder:
    """Decodes protobuf messages of one type; a :class:`~chunkmill.readers.mcap.decoding.MessageDecoder`."""

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node, self._class = parse_protobuf(schema_name, schema_data)
        self.descriptor = ComponentDescriptor(f"{schema_name}:message", archetype=schema_name)
        self.datatype: pa.DataType = self._node.arrow

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """See :meth:`MessageDecoder.decode`."""
        check_batch(starts, ends)
        if self._node.has_opaque:
            return self.decode_plain(data, starts, ends)
        faults: dict[int, str] = {}
        pieces = list(self._columnar(data, starts, ends, np.arange(len(starts)), faults))
        return decoded_of(pieces, self.datatype, faults)

    def _columnar(
        self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, chosen: np.ndarray, faults: dict[int, str]
    ) -> Iterator[tuple[np.ndarray, pa.Array]]:
        """Decode the messages ``chosen`` by column; what is odd about some is left to the library."""
        columns = Columns(data)
        try:
            values = columns.messages(self._node, Places(starts[chosen], ends[chosen], chosen))
        except TooManyCellsError:
            if len(chosen) == 1:
                faults[int(chosen[0])] = "it holds more values than are taken from one message"
                return
            half = len(chosen) // 2
            yield from self._columnar(data, starts, ends, chosen[:half], faults)
            yield from self._columnar(data, starts, ends, chosen[half:], faults)
            return
        odd = np.unique(np.concatenate([np.empty(0, np.int64), *columns.odd]))
        if not len(odd):
            yield chosen, values
            return
        plainly = self.decode_plain(data, starts[odd], ends[odd])
        faults.update(zip(odd[plainly.bad].tolist(), plainly.reasons, strict=True))
        yield np.delete(odd, plainly.bad), plainly.values
        good = ~np.isin(chosen, odd)
        yield chosen[good], values.filter(pa.array(good))

    def decode_plain(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """The same, by the library's message objects: the reference."""
        faults: dict[int, str] = {}
        messages: dict[int, Any] = {}
        view = data.data
        for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            if self._node.has_opaque and end - start > MAX_RECURSIVE_MESSAGE:
                faults[index] = f"it has {end - start:,} bytes, too many for a type that contains itself"
                continue
            try:
                messages[index] = self._class.FromString(bytes(view[start:end]))
            except DecodeError as error:
                faults[index] = f"it is not a protobuf message of this type: {error}"
        try:
            values = build_messages(self._node, list(messages.values()))
        except UnicodeError:
            for index, message in list(messages.items()):
                try:
                    build_messages(self._node, [message])
                except UnicodeError:
                    faults[index] = "a string in it is not UTF-8"
                    del messages[index]
            values = build_messages(self._node, list(messages.values()))
        bad = np.array(sorted(faults), np.int64)
        return Decoded(values, bad, [faults[index] for index in bad.tolist()])
