"""ROS messages, of version 2 in CDR and of version 1, by the definition that stands in the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ....engine.chunk import ComponentDescriptor
from ....engine.limits import FREE_EXPANSION, MAX_COMPRESSION_RATIO
from .cdr_batch import ColumnarReader, Faults, Messages, Piece
from .cdr_plain import COLUMNAR, ENCODINGS, CdrError, plain_reader, read_plain, read_plain_ros1
from .decoded import Decoded, SchemaError, check_batch, decoded_of
from .gather import pick
from .message_types import CDR, ROS1_WIRE, Struct, is_wide
from .ros_types import ROS1, ROS2, parse_ros

_MAGIC: Final = np.frombuffer(b"\x28\xb5\x2f\xfd", np.uint8)


class _Unpacked(NamedTuple):
    """Messages in one buffer: ``data[starts[i]:ends[i]]`` is what message ``rows[i]`` (all int64) holds."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray


def _packed_rows(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The indices (int64) of the messages that begin as a Zstandard frame does, which no CDR header looks like."""
    rows = np.flatnonzero(ends - starts > len(_MAGIC))
    for offset, byte in enumerate(_MAGIC.tolist()):
        if not len(rows):
            break
        rows = rows[data[starts[rows] + offset] == byte]
    return rows


def _unpack(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, faults: dict[int, str]
) -> _Unpacked:
    """Decompress the messages ``rows``; what is wrong with one goes to ``faults``.

    All together take at most 256 MiB or a hundred times what they have compressed, whatever they declare.
    """
    from zstandard import ZstdDecompressor, ZstdError, frame_content_size

    left = max(FREE_EXPANSION, MAX_COMPRESSION_RATIO * int((ends - starts)[rows].sum()))
    parts: list[bytes] = []
    good: list[int] = []
    decompressor = ZstdDecompressor()
    for index in rows.tolist():
        frame = data[starts[index] : ends[index]].data
        try:
            size = frame_content_size(frame)
            if size > left:
                faults[index] = f"it is compressed, and declares {size:,} bytes, too many"
                continue
            part = decompressor.decompress(frame, max_output_size=left if size < 0 else size, allow_extra_data=False)
        except ZstdError as error:
            faults[index] = f"it is compressed by itself, and cannot be decompressed: {error}"
            continue
        left -= len(part)
        parts.append(part)
        good.append(index)
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    stops = np.cumsum(lengths)
    joined = np.frombuffer(b"".join(parts) if len(parts) != 1 else parts[0], np.uint8)
    return _Unpacked(joined, stops - lengths, stops, np.array(good, np.int64))


def parse_ros2(schema_name: str, schema_data: bytes) -> Struct:
    """The type that ``schema_data`` defines for ``schema_name``; see :func:`parse_ros`."""
    return parse_ros(schema_name, schema_data, ROS2)


_HEADER: Final = CDR.header
_UNREADABLE: Final = -1


class Ros2Decoder:
    """Decodes CDR messages of one type; a :class:`~chunkmill.readers.mcap.decoding.MessageDecoder`.

    ``parse`` reads the definition: ``ros2msg`` text unless another is given. Messages that are compressed one by one
    are decompressed first.
    """

    def __init__(
        self, schema_name: str, schema_data: bytes, parse: Callable[[str, bytes], Struct] = parse_ros2
    ) -> None:
        self._node = parse(schema_name, schema_data)
        self._columnar = ColumnarReader(self._node, CDR)
        self._reader = plain_reader(self._node)
        self._wide = is_wide(self._node)
        name = schema_name.replace("/", ".").replace("::", ".")
        self.descriptor = ComponentDescriptor(f"{name}:message", archetype=name)
        self.datatype: pa.DataType = self._node.arrow

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """See :meth:`MessageDecoder.decode`."""
        check_batch(starts, ends)
        return self._decode(data, starts, ends, {} if self._wide else COLUMNAR)

    def decode_plain(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """The same, one message at a time: the reference."""
        return self._decode(data, starts, ends, {})

    def _decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, columnar: dict[int, str]) -> Decoded:
        faults: Faults = {}
        if self._node.fields and (label := _only_label(data, starts, ends)) is not None:
            every = np.arange(len(starts))
            found = self._labelled(data, starts, ends, every, label, columnar, faults)
            return decoded_of(found, self.datatype, faults)
        packed = _packed_rows(data, starts, ends)
        if not len(packed):
            return decoded_of(self._pieces(data, starts, ends, columnar, faults), self.datatype, faults)
        unpacked = _unpack(data, starts, ends, packed, faults)
        plain = np.setdiff1d(np.arange(len(starts)), packed)
        pieces: list[Piece] = []
        for some in (unpacked, _Unpacked(data, starts[plain], ends[plain], plain)):
            wrong: Faults = {}
            found = self._pieces(some.data, some.starts, some.ends, columnar, wrong)
            pieces += [(some.rows[index], array) for index, array in found]
            faults |= {int(some.rows[index]): why for index, why in wrong.items()}
        return decoded_of(pieces, self.datatype, faults)

    def _pieces(
        self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, columnar: dict[int, str], faults: Faults
    ) -> list[Piece]:
        labels = _labels(data, starts, ends, faults)
        if not self._node.fields:
            labels = _without_content(labels, ends - starts, faults)
        pieces: list[Piece] = []
        for label in np.unique(labels[labels != _UNREADABLE]).tolist():
            chosen = np.flatnonzero(labels == label)
            pieces += self._labelled(data, starts, ends, chosen, label, columnar, faults)
        return pieces

    def _labelled(
        self,
        data: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
        chosen: np.ndarray,
        label: int,
        columnar: dict[int, str],
        faults: Faults,
    ) -> list[Piece]:
        if label in columnar:
            return list(self._columnar.read(Messages(data, starts, ends, columnar[label]), chosen, faults))
        return [self._singly(data, starts, ends, chosen, label, faults)]

    def _singly(
        self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, chosen: np.ndarray, label: int, faults: Faults
    ) -> Piece:
        values, good = [], []
        for index in chosen.tolist():
            body = data[starts[index] + _HEADER : ends[index]].tobytes()
            try:
                values.append(read_plain(self._reader, body, label, wide=self._wide))
                good.append(index)
            except CdrError as error:
                faults[index] = str(error)
        return np.array(good, np.int64), pa.array(values, self.datatype)


def _without_content(labels: np.ndarray, lengths: np.ndarray, faults: Faults) -> np.ndarray:
    """Of a type without fields, messages have a byte and padding: with more, the definition is not theirs. Recorders
    that do not find a definition leave an empty one.
    """
    labels = labels.astype(np.int64)
    for index in np.flatnonzero((labels != _UNREADABLE) & (lengths > 2 * _HEADER)).tolist():
        labels[index] = _UNREADABLE
        faults[index] = f"it holds {lengths[index]} bytes, and its definition has no fields"
    return labels


def _only_label(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> int | None:
    """The label of the encoding of all messages, where all have the same header, of an encoding we read; else None."""
    if not len(starts) or int((ends - starts).min()) < _HEADER:
        return None
    headers = pick(data, _HEADER, starts).view(np.uint32)
    first, label = data[starts[0] : starts[0] + 2].tolist()
    return label if first == 0 and label in ENCODINGS and bool((headers == headers[0]).all()) else None


def _labels(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> np.ndarray:
    """The label of the encoding of each message, from its header; :data:`_UNREADABLE` where there is none we read."""
    headed = ends - starts >= _HEADER
    labels = np.full(len(starts), _UNREADABLE, np.int64)
    rows = np.flatnonzero(headed)
    first, label = data[starts[rows]], data[starts[rows] + 1]
    known = (first == 0) & np.isin(label, list(ENCODINGS))
    labels[rows[known]] = label[known]
    for index in np.flatnonzero(labels == _UNREADABLE).tolist():
        start, end = int(starts[index]), int(ends[index])
        if end - start < _HEADER:
            faults[index] = f"it has {end - start} bytes, fewer than the header of four"
        else:
            faults[index] = f"{data[start]:02x} {data[start + 1]:02x} names no encoding of CDR that can be read here"
    return labels


def parse_ros1(schema_name: str, schema_data: bytes) -> Struct:
    """The type that ``schema_data`` defines for ``schema_name``; see :func:`parse_ros`.

    >>> parse_ros1("my/Stamped", b"time stamp\\nchar c\\nbyte b").arrow
    StructType(struct<stamp: struct<sec: uint32, nanosec: uint32>, c: uint8, b: int8>)
    """
    node = parse_ros(schema_name, schema_data, ROS1)
    if is_wide(node):
        raise SchemaError(f"{schema_name} has a wstring, which ROS 1 does not know")
    return node


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
