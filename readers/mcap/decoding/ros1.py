"""ROS 1 messages: its serialization by the ``ros1msg`` definition that stands in the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ....engine.chunk.descriptor import ComponentDescriptor
from .cdr_batch import ColumnarReader, Faults, Messages
from .cdr_plain import CdrError, plain_reader, read_plain_ros1
from .decoded import Decoded, check_batch, decoded_of
from .message_types import ROS1_WIRE
from .ros1_schema import parse_ros1


class Ros1Decoder:
    """Decodes messages of one ROS 1 type; a :class:`~chunkmill.readers.mcap.decoding.MessageDecoder`.

    The format: little-endian numbers without padding, uint32 counts before texts and sequences, ``time`` and
    ``duration`` as two words (``roscpp/Overview/MessagesSerializationAndAdaptingTypes`` of the ROS wiki). Seconds and
    nanoseconds are named ``sec`` and ``nanosec``, as in ROS 2, so that one lens serves both.
    """

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node = parse_ros1(schema_name, schema_data)
        self._columnar = ColumnarReader(self._node, ROS1_WIRE)
        self._reader = plain_reader(self._node)
        name = schema_name.replace("/", ".")
        self.descriptor = ComponentDescriptor(f"{name}:message", archetype=name)
        self.datatype: pa.DataType = self._node.arrow

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """See :meth:`MessageDecoder.decode`."""
        check_batch(starts, ends)
        faults: Faults = {}
        pieces = []
        if len(starts):
            pieces = list(self._columnar.read(Messages(data, starts, ends, "<"), np.arange(len(starts)), faults))
        return decoded_of(pieces, self.datatype, faults)

    def decode_plain(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """The same, one message at a time: the reference."""
        faults: Faults = {}
        values: dict[int, Any] = {}
        for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            try:
                values[index] = read_plain_ros1(self._reader, data[start:end].tobytes())
            except CdrError as error:
                faults[index] = str(error)
        good = np.array(list(values), np.int64)
        return decoded_of([(good, pa.array(values.values(), self.datatype))], self.datatype, faults)
