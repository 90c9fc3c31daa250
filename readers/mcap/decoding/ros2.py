"""ROS 2 messages: CDR by the ``ros2msg`` definition that stands in the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from ....engine.chunk.descriptor import ComponentDescriptor
from .cdr_arrow import assemble
from .cdr_columns import read
from .cdr_frame import Batch, Frame
from .cdr_layout import compile_node
from .cdr_plain import COLUMNAR, ENCODINGS, CdrError, plain_reader, read_plain
from .cdr_walk import TooManyElementsError
from .decoded import Decoded, in_order
from .message_types import is_wide
from .ros2_schema import parse_ros2

_HEADER: Final = 4
_LARGEST_BATCH: Final = (1 << 31) - 1
_UNREADABLE: Final = -1

Faults = dict[int, str]


class Ros2Decoder:
    """Decodes CDR messages of one ROS 2 type; a :class:`~chunkmill.readers.mcap.decoding.MessageDecoder`."""

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node = parse_ros2(schema_name, schema_data)
        self._program = compile_node(self._node, "")
        self._reader = plain_reader(self._node)
        self._wide = is_wide(self._node)
        name = schema_name.replace("/", ".")
        self.descriptor = ComponentDescriptor(f"{name}:message", archetype=name)
        self.datatype: pa.DataType = self._node.arrow

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """See :meth:`MessageDecoder.decode`."""
        if int((ends - starts).sum()) > _LARGEST_BATCH:
            raise ValueError("more than 2 GiB of messages in one call")
        return self._decode(data, starts, ends, {} if self._wide else COLUMNAR)

    def decode_plain(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """The same, one message at a time: the reference."""
        return self._decode(data, starts, ends, {})

    def _decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, columnar: dict[int, str]) -> Decoded:
        faults: Faults = {}
        labels = _labels(data, starts, ends, faults)
        pieces: list[tuple[np.ndarray, pa.Array]] = []
        for label in np.unique(labels[labels != _UNREADABLE]).tolist():
            chosen = np.flatnonzero(labels == label)
            if label in columnar:
                pieces += self._columnar(data, starts, ends, chosen, columnar[label], faults)
            else:
                pieces.append(self._singly(data, starts, ends, chosen, label, faults))
        bad = np.array(sorted(faults), np.int64)
        return Decoded(in_order(pieces, self.datatype), bad, [faults[index] for index in bad.tolist()])

    def _columnar(
        self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, chosen: np.ndarray, order: str, faults: Faults
    ) -> Iterator[tuple[np.ndarray, pa.Array]]:
        """Decode the messages ``chosen``; those found wrong are left out and the others read again."""
        while True:
            batch = Batch(data, order)
            base = starts[chosen] + _HEADER
            try:
                columns = read(self._program, Frame(batch, base, base, ends[chosen], chosen, chosen))
            except TooManyElementsError:
                half = len(chosen) // 2
                yield from self._columnar(data, starts, ends, chosen[:half], order, faults)
                yield from self._columnar(data, starts, ends, chosen[half:], order, faults)
                return
            if not batch.faults:
                values = assemble(self._node, iter(columns), len(chosen), batch)
            if not batch.faults:
                yield chosen, values
                return
            for owners, what in batch.faults:
                for owner in owners.tolist():
                    faults.setdefault(owner, what)
            chosen = np.setdiff1d(chosen, np.concatenate([owners for owners, _ in batch.faults]), assume_unique=False)

    def _singly(
        self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, chosen: np.ndarray, label: int, faults: Faults
    ) -> tuple[np.ndarray, pa.Array]:
        values, good = [], []
        for index in chosen.tolist():
            body = data[starts[index] + _HEADER : ends[index]].tobytes()
            try:
                values.append(read_plain(self._reader, body, label, wide=self._wide))
                good.append(index)
            except CdrError as error:
                faults[index] = str(error)
        return np.array(good, np.int64), pa.array(values, self.datatype)


def _labels(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> np.ndarray:
    """The label of the encoding of each message, from its header; :data:`_UNREADABLE` where there is none we read."""
    labels = np.full(len(starts), _UNREADABLE, np.int64)
    headed = np.flatnonzero(ends - starts >= _HEADER)
    first, second = data[starts[headed]], data[starts[headed] + 1]
    known = (first == 0) & np.isin(second, list(ENCODINGS))
    labels[headed[known]] = second[known]
    for index in np.flatnonzero(labels == _UNREADABLE).tolist():
        start, end = int(starts[index]), int(ends[index])
        if end - start < _HEADER:
            faults[index] = f"it has {end - start} bytes, fewer than the header of four"
        else:
            faults[index] = f"{data[start]:02x} {data[start + 1]:02x} names no encoding of CDR that can be read here"
    return labels
