"""Protobuf messages, by the descriptors that stand in the file."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from ....engine.chunk.descriptor import ComponentDescriptor
from .decoded import Decoded
from .protobuf_plain import build_messages
from .protobuf_schema import parse_protobuf

_LARGEST_BATCH: Final = (1 << 31) - 1


class ProtobufDecoder:
    """Decodes protobuf messages of one type; a :class:`~chunkmill.readers.mcap.decoding.MessageDecoder`."""

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node, self._class = parse_protobuf(schema_name, schema_data)
        self.descriptor = ComponentDescriptor(f"{schema_name}:message", archetype=schema_name)
        self.datatype: pa.DataType = self._node.arrow

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """See :meth:`MessageDecoder.decode`."""
        if int((ends - starts).sum()) > _LARGEST_BATCH:
            raise ValueError("more than 2 GiB of messages in one call")
        return self.decode_plain(data, starts, ends)

    def decode_plain(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """The same, by the library's message objects: the reference."""
        faults: dict[int, str] = {}
        messages: dict[int, Any] = {}
        view = memoryview(data)
        for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            try:
                messages[index] = self._class.FromString(bytes(view[start:end]))
            except DecodeError as error:
                faults[index] = f"it is not a protobuf message of this type: {error}"
        try:
            values = build_messages(self._node, list(messages.values()))
        except UnicodeDecodeError:
            for index, message in list(messages.items()):
                try:
                    build_messages(self._node, [message])
                except UnicodeDecodeError:
                    faults[index] = "a string in it is not UTF-8"
                    del messages[index]
            values = build_messages(self._node, list(messages.values()))
        bad = np.array(sorted(faults), np.int64)
        return Decoded(values, bad, [faults[index] for index in bad.tolist()])
