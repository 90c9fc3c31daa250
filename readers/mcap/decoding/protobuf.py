"""Protobuf messages, by the descriptors in the file: column by column, and odd messages one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ....engine.limits import MAX_CELLS, MAX_RECURSIVE_MESSAGE
from .columns import (
    Faults,
    MessageDecoder,
    Piece,
    bitmap,
    gather,
    lists,
    names_of,
    not_utf8,
    numbers_of,
    offsets_of,
    pick,
    spread,
    texts_of,
)
from .protobuf_scan import Occurrences, Places, Scan, TooManyCellsError, split_varints, zigzag
from .protobuf_schema import ENUM_TYPE, EnumNames, ProtoField, ProtoMessage, ProtoOneof, parse_protobuf

FIXED: Final[dict[int, np.dtype[Any]]] = {
    FieldDescriptor.TYPE_DOUBLE: np.dtype("<f8"),
    FieldDescriptor.TYPE_FIXED64: np.dtype("<u8"),
    FieldDescriptor.TYPE_SFIXED64: np.dtype("<i8"),
    FieldDescriptor.TYPE_FLOAT: np.dtype("<f4"),
    FieldDescriptor.TYPE_FIXED32: np.dtype("<u4"),
    FieldDescriptor.TYPE_SFIXED32: np.dtype("<i4"),
}


_TILE: Final = 1 << 20
"""The bytes of variable-width numbers to read at once; intermediate arrays are many times as large."""

_LONGEST: Final = 10
"""The bytes of the longest number."""


class _Repeated(NamedTuple):
    """The values of packed stretches, the number of values in each, and the indices of malformed stretches."""

    values: np.ndarray
    counts: np.ndarray
    wrong: np.ndarray


def _read_numbers(data: np.ndarray, kind: int, first: np.ndarray) -> np.ndarray:
    """Return numbers of ``kind`` (``FieldDescriptor.TYPE_…``). ``first`` has places if the width is fixed, or bits."""
    dtype = FIXED.get(kind)
    if dtype is not None:
        return pick(data, dtype.itemsize, first).view(dtype)
    return _from_bits(kind, first)


def _from_bits(kind: int, bits: np.ndarray) -> np.ndarray:
    """Return numbers from the bits (int64) of variable-width numbers, cut to the type's width as the format demands."""
    match kind:
        case FieldDescriptor.TYPE_BOOL:
            truth: np.ndarray = bits != 0
            return truth
        case FieldDescriptor.TYPE_INT32 | FieldDescriptor.TYPE_ENUM:
            return bits.astype(np.int32)
        case FieldDescriptor.TYPE_UINT32:
            return bits.astype(np.uint32)
        case FieldDescriptor.TYPE_UINT64:
            return bits.view(np.uint64)
        case FieldDescriptor.TYPE_SINT32:
            return zigzag(bits.astype(np.uint32).astype(np.uint64)).astype(np.int32)
        case FieldDescriptor.TYPE_SINT64:
            return zigzag(bits.view(np.uint64))
    return bits


def unpack(data: np.ndarray, kind: int, first: np.ndarray, last: np.ndarray) -> _Repeated:
    """Return all values of the stretches ``data[first[i]:last[i]]``."""
    dtype = FIXED.get(kind)
    lengths = last - first
    if dtype is not None:
        wrong = lengths % dtype.itemsize != 0
        lengths = np.where(wrong, 0, lengths)
        payload = gather(data, first, lengths).view(dtype)
        values = payload if payload.flags.aligned else payload.copy()
        return _Repeated(values, lengths // dtype.itemsize, np.flatnonzero(wrong))
    some = np.flatnonzero(lengths > 0)
    open_ended = some[data[last[some] - 1] >= 0x80]
    lengths[open_ended] = 0
    payload, ends = gather(data, first, lengths), np.cumsum(lengths)
    counts = np.zeros(len(lengths), np.int64)
    some = np.flatnonzero(lengths)
    if len(some):
        counts[some] = np.add.reduceat(payload < 0x80, (ends - lengths)[some], dtype=np.int64)
    values, too_long = _unpack_tiles(payload, kind, int(counts.sum()))
    return _Repeated(values, counts, np.concatenate([open_ended, np.searchsorted(ends, too_long, side="right")]))


def _unpack_tiles(payload: np.ndarray, kind: int, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``total`` numbers from their bytes, a tile at a time, and the ends of the numbers that are too long."""
    values = np.empty(total, _from_bits(kind, np.empty(0, np.int64)).dtype)
    wrong, start, filled = [np.empty(0, np.int64)], 0, 0
    while start < len(payload):
        stop = _number_end(payload, start + _TILE)
        bits, too_long = split_varints(payload[start:stop])
        values[filled : filled + len(bits)] = _from_bits(kind, bits.view(np.int64))
        wrong.append(too_long + start)
        start, filled = stop, filled + len(bits)
    return values, np.concatenate(wrong)


def _number_end(payload: np.ndarray, place: int) -> int:
    """Return the first place from ``place`` on where a number ends; the payload's end is such a place."""
    if place >= len(payload):
        return len(payload)
    near = payload[place - 1 : place + _LONGEST] < 0x80
    ends = near if near.any() else payload[place - 1 :] < 0x80
    return place + int(ends.argmax())


_TEXT: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


class _Columns:
    """Builds arrays from one buffer. ``odd`` collects the owners of messages that must be read in another way; their
    values here are invalid.
    """

    def __init__(self, data: np.ndarray) -> None:
        self._data = data
        self.odd: list[np.ndarray] = []

    def messages(self, node: ProtoMessage, places: Places, otherwise: str = "unknown") -> pa.Array:
        """One struct for each of ``places``. Raises :class:`TooManyCellsError`."""
        rows = len(places.place)
        if rows * node.leaves > MAX_CELLS:
            raise TooManyCellsError
        scan = Scan(self._data, places, node.fields, self.odd, otherwise)
        children = [
            self._oneof(entry, scan, places) if isinstance(entry, ProtoOneof) else self._field(entry, scan, places)
            for entry in node.entries
        ]
        return pa.Array.from_buffers(node.arrow, rows, [None], null_count=0, children=children)

    def _field(self, field: ProtoField, scan: Scan, places: Places) -> pa.Array:
        occurrences, rows = scan.take(field.number), len(places.place)
        if field.is_map:
            return self._map(field, occurrences, places)
        if field.repeated:
            return self._repeated(field, occurrences, places)
        if not len(occurrences.rows) and field.present:
            return pa.nulls(rows, field.element)
        again = occurrences.rows[1:] == occurrences.rows[:-1]
        if again.any():
            if field.message is not None:
                self.odd.append(places.owner[occurrences.rows[1:][again]])
            last = np.append(~again, True)
            occurrences = Occurrences(*(column[last] for column in occurrences))
        valid = None
        if field.present and len(occurrences.rows) < rows:
            valid = np.zeros(rows, np.bool_)
            valid[occurrences.rows] = True
        if field.message is not None:
            return self._nested(field.message, occurrences, places, valid)
        return self._values(field, occurrences, places.owner, rows, valid)

    def _oneof(self, entry: ProtoOneof, scan: Scan, places: Places) -> pa.Array:
        rows = len(places.place)
        chosen = np.zeros(rows, np.int64)
        for member in entry.members:
            chosen += np.bincount(scan.take(member.number).rows, minlength=rows)
        self.odd.append(places.owner[chosen > 1])
        children = [self._field(member, scan, places) for member in entry.members]
        return pa.Array.from_buffers(entry.arrow.type, rows, [bitmap(chosen > 0)], children=children)

    def _nested(
        self, node: ProtoMessage, occurrences: Occurrences, places: Places, valid: np.ndarray | None
    ) -> pa.Array:
        """Return messages within messages, null if unset."""
        rows = len(places.place)
        if len(occurrences.rows) == rows:
            return self.messages(node, Places(occurrences.first, occurrences.last, places.owner))
        if valid is not None and 2 * len(occurrences.rows) < rows:
            some = self.messages(node, Places(occurrences.first, occurrences.last, places.owner[occurrences.rows]))
            return spread(some, occurrences.rows, rows)
        first, last = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        first[occurrences.rows], last[occurrences.rows] = occurrences.first, occurrences.last
        array = self.messages(node, Places(first, last, places.owner))
        if valid is None:
            return array
        children = [array.field(index) for index in range(array.type.num_fields)]
        return pa.Array.from_buffers(node.arrow, rows, [bitmap(valid)], children=children)

    def _values(
        self, field: ProtoField, occurrences: Occurrences, owner: np.ndarray, rows: int, valid: np.ndarray | None
    ) -> pa.Array:
        """Return numbers, texts and enum values in their rows, defaults elsewhere; ``owner`` has one entry per row."""
        dense = len(occurrences.rows) == rows
        if field.kind in _TEXT:
            lengths = occurrences.last - occurrences.first
            payload = gather(self._data, occurrences.first, lengths)
            if not dense:
                lengths = _with_default(lengths, occurrences.rows, rows, 0)
            return self._text(field, payload, offsets_of(lengths), owner, valid)
        values = _read_numbers(self._data, field.kind, occurrences.first)
        if not dense:
            values = _with_default(values, occurrences.rows, rows, 0 if field.enum is None else field.enum.default)
        return self._numbers(field, values, owner, valid)

    def _text(
        self, field: ProtoField, payload: np.ndarray, offsets: np.ndarray, owner: np.ndarray, valid: np.ndarray | None
    ) -> pa.Array:
        if field.kind == FieldDescriptor.TYPE_STRING:
            self.odd.append(owner[not_utf8(payload, offsets)])
        return texts_of(payload, offsets, valid, field.element)

    def _numbers(self, field: ProtoField, values: np.ndarray, owner: np.ndarray, valid: np.ndarray | None) -> pa.Array:
        if field.enum is not None:
            return self._enum(field.enum, values, owner, valid)
        return numbers_of(field.element, values, valid)

    def _enum(self, enum: EnumNames, values: np.ndarray, owner: np.ndarray, valid: np.ndarray | None) -> pa.Array:
        names, unknown = names_of(values, enum.names)
        if enum.closed:
            self.odd.append(owner[unknown if valid is None else unknown & valid])
        children = [names, numbers_of(pa.int32(), values)]
        return pa.Array.from_buffers(ENUM_TYPE, len(values), [bitmap(valid)], children=children)

    def _repeated(self, field: ProtoField, occurrences: Occurrences, places: Places) -> pa.Array:
        rows = len(places.place)
        if not len(occurrences.rows):
            return pa.nulls(rows, field.arrow.type)
        owner = places.owner[occurrences.rows]
        if field.message is not None:
            values = self.messages(field.message, Places(occurrences.first, occurrences.last, owner))
            counts = np.bincount(occurrences.rows, minlength=rows)
        elif occurrences.packed.any():
            unpacked = self._unpack(field, occurrences, owner)
            counts = np.bincount(occurrences.rows, weights=unpacked.counts, minlength=rows).astype(np.int64)
            values = self._numbers(field, unpacked.values, np.repeat(owner, unpacked.counts), None)
        else:
            if len(occurrences.rows) > MAX_CELLS:
                raise TooManyCellsError
            every = occurrences._replace(rows=np.arange(len(occurrences.rows)))
            values = self._values(field, every, owner, len(occurrences.rows), None)
            counts = np.bincount(occurrences.rows, minlength=rows)
        return lists(field.arrow.type, counts, values, counts > 0)

    def _unpack(self, field: ProtoField, occurrences: Occurrences, owner: np.ndarray) -> _Repeated:
        single = ~occurrences.packed
        if single.any():
            self.odd.append(owner[single])
            empty = np.where(single, 0, occurrences.last)
            occurrences = occurrences._replace(first=np.where(single, 0, occurrences.first), last=empty)
        if field.kind not in FIXED and int((occurrences.last - occurrences.first).sum()) > MAX_CELLS:
            raise TooManyCellsError
        unpacked = unpack(self._data, field.kind, occurrences.first, occurrences.last)
        self.odd.append(owner[unpacked.wrong])
        return unpacked

    def _map(self, field: ProtoField, occurrences: Occurrences, places: Places) -> pa.Array:
        """Return maps with entries by ascending key."""
        assert field.message is not None
        rows = len(places.place)
        if not len(occurrences.rows):
            return pa.nulls(rows, field.arrow.type)
        owner = places.owner[occurrences.rows]
        # The library decides whether an entry with more than key and value is valid.
        pairs = self.messages(field.message, Places(occurrences.first, occurrences.last, owner), otherwise="odd")
        keys = pairs.field(0)
        if pa.types.is_boolean(keys.type):
            keys = keys.cast(pa.uint8())
        table = pa.table({"row": occurrences.rows, "key": keys})
        order = pc.sort_indices(table, sort_keys=[("row", "ascending"), ("key", "ascending")])
        pairs, keys = pairs.take(order), keys.take(order)
        same = (occurrences.rows[1:] == occurrences.rows[:-1]) & pc.equal(keys[1:], keys[:-1]).to_numpy(
            zero_copy_only=False
        )
        self.odd.append(owner[1:][same])
        kind = field.arrow.type
        entries = pa.struct([kind.key_field, kind.item_field])
        children = [pairs.field(0), pairs.field(1)]
        pairs = pa.Array.from_buffers(entries, len(owner), [None], null_count=0, children=children)
        counts = np.bincount(occurrences.rows, minlength=rows)
        return lists(kind, counts, pairs, counts > 0)


def _with_default(values: np.ndarray, places: np.ndarray, rows: int, default: int) -> np.ndarray:
    spread = np.full(rows, default, values.dtype)
    spread[places] = values
    return spread


def _build_messages(node: ProtoMessage, messages: list[Any]) -> pa.Array:
    """Return one struct for each of ``messages``. Raises ``UnicodeError`` for a string that is not UTF-8."""
    children = [
        _oneof(entry, messages) if isinstance(entry, ProtoOneof) else _field(entry, messages) for entry in node.entries
    ]
    return pa.Array.from_buffers(node.arrow, len(messages), [None], null_count=0, children=children)


def _field(field: ProtoField, messages: list[Any]) -> pa.Array:
    get = attrgetter(field.name)
    if field.is_map:
        return _map(field, [get(message) for message in messages])
    if field.repeated:
        return _repeated(field, [get(message) for message in messages])
    if field.present:
        name = field.name
        return _values(field, [get(message) if message.HasField(name) else None for message in messages])
    return _values(field, [get(message) for message in messages])


def _values(field: ProtoField, values: list[Any]) -> pa.Array:
    """Single values, None if unset."""
    if field.opaque:
        serialized = [None if value is None else value.SerializePartialToString() for value in values]
        return pa.array(serialized, pa.binary())
    if field.enum is not None:
        names = [None if value is None else field.enum.names.get(value) for value in values]
        children = [pa.array(names, pa.string()), pa.array(values, pa.int32())]
        return _structs(ENUM_TYPE, children, [value is not None for value in values])
    if field.message is None:
        return pa.array(_texts(values) if field.kind == FieldDescriptor.TYPE_STRING else values, field.element)
    present = [row for row, value in enumerate(values) if value is not None]
    return spread(
        _build_messages(field.message, [values[row] for row in present]), np.array(present, np.int64), len(values)
    )


def _texts(values: list[Any]) -> list[Any]:
    """Return texts. Raises ``UnicodeError`` for bytes, the library's result for proto2 strings that are not UTF-8."""
    if any(isinstance(value, bytes) for value in values):
        raise UnicodeError("a string is not UTF-8")
    return values


def _structs(kind: pa.DataType, children: list[pa.Array], valid: list[bool]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(valid), [bitmap(np.array(valid, np.bool_))], children=children)


def _repeated(field: ProtoField, several: list[Any]) -> pa.Array:
    """Return lists; an empty list is null."""
    counts = np.fromiter(map(len, several), np.int64, len(several))
    values = _values(field, list(chain.from_iterable(several)))
    return lists(field.arrow.type, counts, values, counts > 0)


def _map(field: ProtoField, maps: list[Any]) -> pa.Array:
    """Return maps with entries by ascending key; an empty map is null."""
    assert field.message is not None
    key, value = field.message.entries
    assert isinstance(key, ProtoField)
    assert isinstance(value, ProtoField)
    counts = np.fromiter(map(len, maps), np.int64, len(maps))
    text = key.kind == FieldDescriptor.TYPE_STRING
    ordered = [(single, sorted(_texts(list(single)) if text else single)) for single in maps]
    keys = pa.array([name for _, names in ordered for name in names], key.element)
    values = _values(value, [single[name] for single, names in ordered for name in names])
    kind = field.arrow.type
    entries = pa.struct([kind.key_field, kind.item_field])
    pairs = pa.Array.from_buffers(entries, len(keys), [None], null_count=0, children=[keys, values])
    return lists(kind, counts, pairs, counts > 0)


def _oneof(entry: ProtoOneof, messages: list[Message]) -> pa.Array:
    which = [message.WhichOneof(entry.name) for message in messages]
    children = []
    for member in entry.members:
        get, name = attrgetter(member.name), member.name
        chosen = [get(m) if w == name else None for m, w in zip(messages, which, strict=True)]
        children.append(_values(member, chosen))
    return _structs(entry.arrow.type, children, [name is not None for name in which])


class ProtobufDecoder(MessageDecoder):
    """Decodes protobuf messages of one type, by a ``protobuf`` schema, which is a ``FileDescriptorSet``."""

    def __init__(self, schema_name: str, schema_data: bytes) -> None:
        self._node, self._class = parse_protobuf(schema_name, schema_data)
        super().__init__(schema_name, self._node.arrow)

    def projected(self, keeps: Callable[[str], bool]) -> ProtobufDecoder:
        """Return a decoder of only those of the message's own fields that are kept."""
        node = replace(self._node, entries=tuple(entry for entry in self._node.entries if keeps(entry.arrow.name)))
        return self._with(_node=node, datatype=node.arrow)

    def _by_column(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterable[Piece]:
        if self._node.has_opaque:
            return self._one_by_one(data, starts, ends, faults)
        return self._columnar(data, starts, ends, np.arange(len(starts)), faults)

    def _columnar(
        self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, chosen: np.ndarray, faults: Faults
    ) -> Iterator[Piece]:
        """Decode the messages ``chosen`` by column; odd messages are left to the library."""
        columns = _Columns(data)
        try:
            values = columns.messages(self._node, Places(starts[chosen], ends[chosen], chosen))
        except TooManyCellsError:
            if len(chosen) == 1:
                faults[int(chosen[0])] = "it has more values than allowed in one message"
                return
            half = len(chosen) // 2
            yield from self._columnar(data, starts, ends, chosen[:half], faults)
            yield from self._columnar(data, starts, ends, chosen[half:], faults)
            return
        odd = np.unique(np.concatenate([np.empty(0, np.int64), *columns.odd]))
        if not len(odd):
            yield chosen, values
            return
        wrong = Faults()
        yield from ((odd[rows], some) for rows, some in self._one_by_one(data, starts[odd], ends[odd], wrong))
        faults.update((int(odd[row]), why) for row, why in wrong.items())
        good = ~np.isin(chosen, odd)
        yield chosen[good], values.filter(pa.array(good))

    def _one_by_one(self, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, faults: Faults) -> Iterator[Piece]:
        """Decode messages with the library's message objects."""
        messages: dict[int, Any] = {}
        view = data.data
        for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            if self._node.has_opaque and end - start > MAX_RECURSIVE_MESSAGE:
                faults[index] = f"it has {end - start:,} bytes, too many for a recursive type"
                continue
            try:
                messages[index] = self._class.FromString(bytes(view[start:end]))
            except DecodeError as error:
                faults[index] = f"it is not a protobuf message of this type: {error}"
        try:
            values = _build_messages(self._node, list(messages.values()))
        except UnicodeError:
            for index, message in list(messages.items()):
                try:
                    _build_messages(self._node, [message])
                except UnicodeError:
                    faults[index] = "a string in it is not UTF-8"
                    del messages[index]
            values = _build_messages(self._node, list(messages.values()))
        yield np.array(list(messages), np.int64), values
