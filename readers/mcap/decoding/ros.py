"""ROS messages, of ROS 2 in CDR and of ROS 1, by the definition in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ....engine.limits import FREE_EXPANSION, MAX_COMPRESSION_RATIO
from .cdr_columns import ColumnarReader, Messages
from .cdr_walk import COLUMNAR, ENCODINGS, MOST_PADDING, CdrError, Reader, plain_reader, read_plain, read_plain_ros1
from .columns import CDR, ROS1_WIRE, Faults, MessageDecoder, MessageType, Piece, SchemaError, Surplus, is_wide, pick
from .ros_definitions import ROS1, ROS2, parse_ros

_MAGIC: Final = np.frombuffer(b"\x28\xb5\x2f\xfd", np.uint8)


class _Unpacked(NamedTuple):
    """Messages in one buffer: ``data[starts[i]:ends[i]]`` is the content of message ``rows[i]`` (all int64)."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray


def _packed_rows(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the indices (int64) of messages that begin like a Zstandard frame. No CDR header looks like that."""
    rows = np.flatnonzero(ends - starts > len(_MAGIC))
    for offset, byte in enumerate(_MAGIC.tolist()):
        if not len(rows):
            break
        rows = rows[data[starts[rows] + offset] == byte]
    return rows


def _unpack(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, faults: Faults) -> _Unpacked:
    """Decompress the messages ``rows``; their faults go to ``faults``.

    Whatever sizes the messages declare, all together take at most 256 MiB or a hundred times their compressed size.
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
                faults[index] = f"the message is compressed, and declares too many bytes: {size:,}"
                continue
            part = decompressor.decompress(frame, max_output_size=left if size < 0 else size, allow_extra_data=False)
        except ZstdError as error:
            faults[index] = f"the message is compressed, and cannot be decompressed: {error}"
            continue
        left -= len(part)
        parts.append(part)
        good.append(index)
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    stops = np.cumsum(lengths)
    joined = np.frombuffer(b"".join(parts) if len(parts) != 1 else parts[0], np.uint8)
    return _Unpacked(joined, stops - lengths, stops, np.array(good, np.int64))


def parse_ros2(schema_name: str, schema_data: bytes) -> MessageType:
    """Return the type that ``schema_data`` defines for ``schema_name``; see :func:`parse_ros`."""
    return parse_ros(schema_name, schema_data, ROS2)


_HEADER: Final = CDR.header
_UNREADABLE: Final = -1


class Ros2Decoder(MessageDecoder):
    """Decodes CDR messages of one type, by a ``ros2msg`` schema.

    Individually compressed messages are decompressed first.
    """

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node = self._parse(schema_name, schema_data)
        self._columnar = ColumnarReader(self._node, CDR)
        self._wide = is_wide(self._node)
        super().__init__(schema_name.replace("/", ".").replace("::", "."), self._node.arrow)

    def _parse(self, schema_name: str, schema_data: bytes) -> MessageType:
        return parse_ros2(schema_name, schema_data)

    def projected(self, keeps: Callable[[str], bool]) -> Ros2Decoder:
        """The same for the fields that are kept, at any depth of messages in messages; others are stepped over."""
        node = self._node.projected(keeps)
        return self._with(_node=node, _columnar=ColumnarReader(node, CDR), datatype=node.arrow)

    @cached_property
    def _reader(self) -> Reader:
        return plain_reader(self._node)

    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        return self._read(data, starts, ends, {} if self._wide else COLUMNAR, faults)

    def _one_by_one(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        return self._read(data, starts, ends, {}, faults)

    def _read(
        self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, columnar: dict[int, str], faults: Faults
    ) -> Iterator[Piece]:
        """Read messages; those with a label in ``columnar`` are read by column."""
        if self._node.fields and (label := _only_label(data, starts, ends)) is not None:
            every = np.arange(len(starts))
            yield from self._labelled(data, starts, ends, every, label, columnar, faults)
            return
        packed = _packed_rows(data, starts, ends)
        if not len(packed):
            yield from self._pieces(data, starts, ends, columnar, faults)
            return
        unpacked = _unpack(data, starts, ends, packed, faults)
        plain = np.setdiff1d(np.arange(len(starts)), packed)
        for some in (unpacked, _Unpacked(data, starts[plain], ends[plain], plain)):
            wrong = Faults()
            for index, array in self._pieces(some.data, some.starts, some.ends, columnar, wrong):
                yield some.rows[index], array
            faults |= {int(some.rows[index]): why for index, why in wrong.items()}
            faults.add_surplus(wrong.surplus)

    def _pieces(
        self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, columnar: dict[int, str], faults: Faults
    ) -> Iterator[Piece]:
        labels = _labels(data, starts, ends, faults)
        if not self._node.fields:
            labels = _without_content(labels, ends - starts, faults)
        for label in np.unique(labels[labels != _UNREADABLE]).tolist():
            chosen = np.flatnonzero(labels == label)
            yield from self._labelled(data, starts, ends, chosen, label, columnar, faults)

    def _labelled(
        self,
        data: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
        chosen: np.ndarray,
        label: int,
        columnar: dict[int, str],
        faults: Faults,
    ) -> Iterable[Piece]:
        if label in columnar:
            return self._columnar.read(Messages(data, starts, ends, columnar[label]), chosen, faults)

        def read(body: bytes) -> tuple[Any, int]:
            return read_plain(self._reader, body, label, wide=self._wide)

        return [_singly(read, data, starts + _HEADER, ends, chosen, faults, self.datatype)]


class IdlDecoder(Ros2Decoder):
    """Decodes CDR messages of one type, by a ``ros2idl`` or ``omgidl`` schema."""

    def _parse(self, schema_name: str, schema_data: bytes) -> MessageType:
        from .idl import parse_idl

        return parse_idl(schema_name, schema_data)


def _singly(
    read: Callable[[bytes], tuple[Any, int]],
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    chosen: np.ndarray,
    faults: Faults,
    datatype: pa.DataType,
) -> Piece:
    """Read the messages ``chosen`` one by one."""
    values: dict[int, Any] = {}
    for index in chosen.tolist():
        body = data[starts[index] : ends[index]].tobytes()
        try:
            values[index], left = read(body)
            if left > MOST_PADDING:
                faults.add_surplus(Surplus(1, _HEADER + len(body), left))
        except CdrError as error:
            faults[index] = str(error)
    return np.array(list(values), np.int64), pa.array(values.values(), datatype)


def _without_content(labels: np.ndarray, lengths: np.ndarray, faults: Faults) -> np.ndarray:
    """For a type without fields, reject messages longer than a byte and padding: their definition is wrong.
    Recorders that do not find a definition write an empty one.
    """
    labels = labels.astype(np.int64)
    for index in np.flatnonzero((labels != _UNREADABLE) & (lengths > 2 * _HEADER)).tolist():
        labels[index] = _UNREADABLE
        faults[index] = f"it has {lengths[index]} bytes, but its definition has no fields"
    return labels


def _only_label(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> int | None:
    """Return the encoding label of all messages if they share one header with a supported encoding, else None."""
    if not len(starts) or int((ends - starts).min()) < _HEADER:
        return None
    headers = pick(data, _HEADER, starts).view(np.uint32)
    first, label = data[starts[0] : starts[0] + 2].tolist()
    return label if first == 0 and label in ENCODINGS and bool((headers == headers[0]).all()) else None


def _labels(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> np.ndarray:
    """Return the encoding label in each message's header; :data:`_UNREADABLE` for unsupported encodings."""
    headed = ends - starts >= _HEADER
    labels = np.full(len(starts), _UNREADABLE, np.int64)
    rows = np.flatnonzero(headed)
    first, label = data[starts[rows]], data[starts[rows] + 1]
    valid = (first == 0) & np.isin(label, list(ENCODINGS))
    labels[rows[valid]] = label[valid]
    for index in np.flatnonzero(labels == _UNREADABLE).tolist():
        start, end = int(starts[index]), int(ends[index])
        if end - start < _HEADER:
            faults[index] = f"it has {end - start} bytes, fewer than its header of four"
        else:
            faults[index] = f"{data[start]:02x} {data[start + 1]:02x} is not a supported encoding of CDR"
    return labels


def parse_ros1(schema_name: str, schema_data: bytes) -> MessageType:
    """The type that ``schema_data`` defines for ``schema_name``; see :func:`parse_ros`.

    >>> parse_ros1("my/Stamped", b"time stamp\\nchar c\\nbyte b").arrow
    StructType(struct<stamp: struct<sec: uint32, nanosec: uint32>, c: uint8, b: int8>)
    """
    node = parse_ros(schema_name, schema_data, ROS1)
    if is_wide(node):
        raise SchemaError(f"{schema_name} has a wstring, which ROS 1 does not have")
    return node


class Ros1Decoder(MessageDecoder):
    """Decodes messages of one ROS 1 type, by a ``ros1msg`` schema.

    The format: little-endian numbers without padding, uint32 counts before texts and sequences, ``time`` and
    ``duration`` as two words (``roscpp/Overview/MessagesSerializationAndAdaptingTypes`` of the ROS wiki). Seconds and
    nanoseconds are named ``sec`` and ``nanosec``, as in ROS 2, so that one lens serves both.
    """

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node = parse_ros1(schema_name, schema_data)
        self._columnar = ColumnarReader(self._node, ROS1_WIRE)
        super().__init__(schema_name.replace("/", "."), self._node.arrow)

    def projected(self, keeps: Callable[[str], bool]) -> Ros1Decoder:
        """The same for the fields that are kept, at any depth of messages in messages; others are stepped over."""
        node = self._node.projected(keeps)
        return self._with(_node=node, _columnar=ColumnarReader(node, ROS1_WIRE), datatype=node.arrow)

    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        if not len(starts):
            return ()
        return self._columnar.read(Messages(data, starts, ends, "<"), np.arange(len(starts)), faults)

    def _one_by_one(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        reader = plain_reader(self._node)
        read = partial(read_plain_ros1, reader)
        return [_singly(read, data, starts, ends, np.arange(len(starts)), faults, self.datatype)]
