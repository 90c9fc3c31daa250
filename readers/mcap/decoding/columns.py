"""The decoder of messages, and its columns: bytes picked from many places at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import accumulate
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from ....engine.chunk import ComponentDescriptor

_LARGEST_BATCH: Final = (1 << 31) - 1

_STRING: Final = pa.string()

BLOB: Final = pa.list_(pa.field("item", pa.uint8(), nullable=False))
"""Bytes as Rerun's ``Blob`` has them."""

Piece = tuple[np.ndarray, pa.Array]
"""Some messages: their indices (int64), and their values."""

Faults = dict[int, str]
"""The reasons why messages could not be decoded, by index."""


class SchemaError(ValueError):
    """A message definition that cannot be used; the text says why. The channel's messages stay raw bytes."""


class Decoded(NamedTuple):
    """Many messages of one channel as one column.

    ``values`` has one element per good message, in order. ``bad`` are the indices (int64, ascending) of the messages
    that could not be decoded, ``reasons`` one text for each of them.
    """

    values: pa.Array
    bad: np.ndarray
    reasons: list[str]


class MessageDecoder(ABC):
    """Decodes messages of one definition, many at a time.

    ``descriptor`` is the component that the messages become, ``sensor_msgs.msg.Imu:message``; ``datatype`` the type of
    one message.
    """

    def __init__(self, name: str, datatype: pa.DataType) -> None:
        self.descriptor = ComponentDescriptor(f"{name}:message", archetype=name)
        self.datatype = datatype

    @property
    def column(self) -> pa.ListType:
        """The type of the messages' component: one of them in each row."""
        return pa.list_(pa.field("item", self.datatype, nullable=not isinstance(self, RawDecoder)))

    def projected(self, keeps: Callable[[str], bool]) -> MessageDecoder:
        """The same for the fields that are kept, by their paths (``header.stamp``): the others are not decoded.

        Here all fields are, as of JSON and CBOR, which are parsed whole.
        """
        del keeps
        return self

    def _with(self, **parts: Any) -> Self:
        """A copy with other parts."""
        made = copy(self)
        vars(made).update(parts)
        return made

    def decode(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """Decode messages in ``data`` (uint8, 1-D): message ``i`` is ``data[starts[i]:ends[i]]``.

        ``starts`` and ``ends`` are int64 of equal length. Nothing outside a message's own bytes is read for it. A
        damaged message never raises: it is reported in :attr:`Decoded.bad`. At most 2 GiB of messages per call, more
        raise ``ValueError``: a list array cannot hold them.
        """
        if int((ends - starts).sum()) > _LARGEST_BATCH:
            raise ValueError("more than 2 GiB of messages in one call")
        return self._decoded(self._by_column, data, starts, ends)

    def decode_plain(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        """Decode the same, one message at a time: the reference."""
        return self._decoded(self._one_by_one, data, starts, ends)

    def _decoded(self, read: _Read, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Decoded:
        faults: Faults = {}
        values = _in_order(list(read(data, starts, ends, faults)), self.datatype)
        bad = np.array(sorted(faults), np.int64)
        return Decoded(values, bad, [faults[index] for index in bad.tolist()])

    @abstractmethod
    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        """Decode messages; what is wrong with one goes to ``faults``."""

    def _one_by_one(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        for index in range(len(starts)):
            message, wrong = slice(index, index + 1), Faults()
            yield from (
                (rows + index, values) for rows, values in self._by_column(data, starts[message], ends[message], wrong)
            )
            faults |= {index: wrong[0]} if wrong else {}


_Read = Callable[[np.ndarray, np.ndarray, np.ndarray, Faults], Iterable[Piece]]


def _in_order(pieces: list[Piece], datatype: pa.DataType) -> pa.Array:
    """Join arrays of messages by ascending index."""
    if not pieces:
        return pa.array([], datatype)
    if len(pieces) == 1:
        return pieces[0][1]
    indices = np.concatenate([indices for indices, _ in pieces])
    values = pa.concat_arrays([array for _, array in pieces])
    rank = np.argsort(indices)
    return values if bool((rank == np.arange(len(rank))).all()) else values.take(pa.array(rank))


class RawDecoder(MessageDecoder):
    """Gives each message as one blob, ``list<uint8>``; every message is good."""

    def __init__(self) -> None:
        self.descriptor = _RAW_DESCRIPTOR
        self.datatype = BLOB

    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, _: Faults) -> Iterable[Piece]:
        lengths = ends - starts
        return [(np.arange(len(starts)), blobs(gather(data, starts, lengths), lengths))]


_RAW_DESCRIPTOR: Final = ComponentDescriptor(
    "McapMessage:data", archetype="rerun.archetypes.McapMessage", component_type="rerun.components.Blob"
)


_EQUAL_CAP: Final = 1024
"""Up to this many bytes, pieces of equal length are picked by one indexed read of a sliding view."""


def _sliding(data: np.ndarray, size: int) -> np.ndarray:
    """``data`` seen as a piece of ``size`` bytes at every offset; no copy. Empty when ``data`` is shorter."""
    return np.ndarray((max(len(data) - size + 1, 0),), f"V{size}", data, strides=(1,))


def pick(data: np.ndarray, size: int, places: np.ndarray) -> np.ndarray:
    """The ``size`` bytes at each of ``places`` (int64 offsets), as an array of void."""
    picked: np.ndarray = _sliding(data, size)[places]
    return picked


def strided(data: np.ndarray, places: np.ndarray, size: int) -> tuple[np.ndarray, int, int]:
    """Return a buffer with the ``size`` bytes at each of ``places``, the first of these, and their distance.

    The buffer is ``data`` itself if the distances are equal, else a copy of the bytes.
    """
    if len(places) > 1 and bool((np.diff(places) == (step := int(places[1] - places[0]))).all()) and step > 0:
        return data, int(places[0]), step
    return pick(data, size, places), 0, size


def read_words(data: np.ndarray, places: np.ndarray, order: str) -> np.ndarray:
    """The uint32 at each of ``places`` (int64 offsets), as int64; ``order`` is ``"<"`` or ``">"``."""
    return pick(data, 4, places).view(f"{order}u4").astype(np.int64)


def gather(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The bytes ``data[starts[i] : starts[i] + lengths[i]]``, one after the other, as uint8.

    Each is copied once; a single piece is not copied at all.
    """
    if len(starts) == 1:
        single: np.ndarray = data[starts[0] : starts[0] + lengths[0]]
        return single
    if not len(starts) or not lengths.any():
        return np.empty(0, np.uint8)
    first = int(lengths[0])
    if 0 < first <= _EQUAL_CAP and bool((lengths == first).all()):
        return pick(data, first, starts).view(np.uint8)
    stops = starts + lengths
    if bool((starts[1:] >= stops[:-1]).all()):
        return _gather_ordered(data, starts, stops)
    view = data.data
    pieces = [view[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return np.frombuffer(b"".join(pieces), np.uint8)


def _gather_ordered(data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The pieces and the gaps between them are one Arrow binary array over ``data``; take every second value."""
    wide = len(data) > np.iinfo(np.int32).max
    width = np.int64 if wide else np.int32
    offsets = np.empty(2 * len(starts) + 1, width)
    offsets[0:-1:2] = starts
    offsets[1::2] = stops
    offsets[-1] = stops[-1]
    kind = pa.large_binary() if wide else pa.binary()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(kind, 2 * len(starts), buffers)
    picked = pieces.take(pa.Array.from_buffers(pa.int64(), len(starts), [None, pa.py_buffer(_evens(len(starts)))]))
    return np.frombuffer(picked.buffers()[2], np.uint8)[: int((stops - starts).sum())]


def _evens(count: int) -> np.ndarray:
    return np.arange(0, 2 * count, 2, dtype=np.int64)


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Arrow list offsets (int32) for lists of ``counts`` elements."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def regular_offsets(counts: Sequence[int], rows: int) -> np.ndarray:
    """Return Arrow list offsets (int32) for ``rows`` times lists of ``counts`` elements."""
    *starts, total = accumulate(counts, initial=0)
    offsets = np.empty(rows * len(counts) + 1, np.int32)
    lines = offsets[:-1].reshape(rows, -1)
    np.add.outer(np.arange(rows, dtype=np.int32) * np.int32(total), np.array(starts, np.int32), out=lines)
    offsets[-1] = rows * total
    return offsets


def not_utf8(payload: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Indices (int64) of the strings ``payload[offsets[i] : offsets[i + 1]]`` that are not UTF-8."""
    none = np.empty(0, np.int64)
    if not len(payload) or int(payload.max()) < 0x80:
        return none
    strings = texts_of(payload, offsets, kind=pa.binary())
    try:
        strings.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([i for i, value in enumerate(strings) if not _is_utf8(value.as_py())], np.int64)
    return none


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def bitmap(valid: np.ndarray | None) -> pa.Buffer | None:
    """Return an Arrow validity bitmap; None when all is valid."""
    return None if valid is None or bool(valid.all()) else pa.py_buffer(np.packbits(valid, bitorder="little"))


def numbers_of(kind: pa.DataType, values: np.ndarray, valid: np.ndarray | None = None) -> pa.Array:
    """Return numbers, or bools given as 0 and 1, as an array."""
    buffer = np.packbits(values, bitorder="little") if pa.types.is_boolean(kind) else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [bitmap(valid), pa.py_buffer(buffer)])


def texts_of(
    payload: np.ndarray, offsets: np.ndarray, valid: np.ndarray | None = None, kind: pa.DataType = _STRING
) -> pa.Array:
    """Return the strings, or bytes, ``payload[offsets[i] : offsets[i + 1]]`` as an array."""
    return pa.Array.from_buffers(kind, len(offsets) - 1, [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(payload)])


def lists(kind: pa.DataType, counts: np.ndarray, values: pa.Array, valid: np.ndarray | None = None) -> pa.Array:
    """Return lists of ``counts`` of the values each, which follow each other."""
    buffers = [bitmap(valid), pa.py_buffer(offsets_of(counts))]
    return pa.Array.from_buffers(kind, len(counts), buffers, children=[values])


def blobs(data: bytes | np.ndarray, sizes: Sequence[int] | np.ndarray) -> pa.Array:
    """Return ``data``, taken apart into values of these ``sizes``, without a copy."""
    return lists(BLOB, np.asarray(sizes), pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)]))


def spread(values: pa.Array, places: np.ndarray, rows: int) -> pa.Array:
    """Return ``values`` at ``places`` (ascending) of ``rows`` rows, null elsewhere."""
    if len(places) == rows:
        return values
    index = np.zeros(rows, np.int64)
    index[places] = np.arange(len(places))
    absent = np.ones(rows, np.bool_)
    absent[places] = False
    return values.take(pa.array(index, mask=absent))


def names_of(values: np.ndarray, names: Mapping[int, str]) -> tuple[pa.Array, np.ndarray]:
    """Return the name of each value of an enum, null for unknown numbers, and a mask of those (bool)."""
    numbers = np.array(sorted(names), np.uint64 if values.dtype == np.uint64 else np.int64)
    if not len(numbers):
        return pa.nulls(len(values), pa.string()), np.ones(len(values), np.bool_)
    index = np.searchsorted(numbers, values).clip(max=len(numbers) - 1)
    unknown: np.ndarray = numbers[index] != values
    texts = pa.array([names[number] for number in numbers.tolist()], pa.string())
    return texts.take(pa.array(index, mask=unknown if unknown.any() else None)), unknown
