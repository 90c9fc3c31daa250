"""Finds the fields of many protobuf messages at once: the first field of every message, then the second, and so on."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from ....engine.limits import MAX_ELEMENTS
from .protobuf_schema import ProtoField

_MOST: Final = 10
"""The maximum bytes of a 64-bit number."""


class _Varints(NamedTuple):
    """``values`` as uint64, the places ``after`` them, and ``good``: false if the number is cut short or too long."""

    values: np.ndarray
    after: np.ndarray
    good: np.ndarray


def _read_varints(data: np.ndarray, places: np.ndarray, ends: np.ndarray) -> _Varints:
    """Read the number at each of ``places``, which may extend to ``ends`` (both int64 of one length)."""
    good = places < ends
    first = data[places] if good.all() else data[np.where(good, places, 0)]
    values = (first & 0x7F).astype(np.uint64)
    after = places + 1
    rows = np.flatnonzero((first >= 0x80) & good)
    for index in range(1, _MOST):
        if not len(rows):
            return _Varints(values, after, good)
        inside = after[rows] < ends[rows]
        good[rows[~inside]] = False
        rows = rows[inside]
        byte = data[after[rows]]
        values[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        after[rows] += 1
        if index == _MOST - 1:
            good[rows[byte > 1]] = False
        rows = rows[byte >= 0x80]
    good[rows] = False
    return _Varints(values, after, good)


def split_varints(payload: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all numbers of ``payload``, which has nothing else: values (uint64), and the ends of overlong numbers."""
    last = np.flatnonzero(payload < 0x80)
    if len(last) == len(payload):
        return payload.astype(np.uint64), last[:0]
    starts = np.empty(len(last), np.int64)
    starts[:1] = 0
    starts[1:] = last[:-1] + 1
    lengths = last - starts
    values = (payload[starts] & 0x7F).astype(np.uint64)
    rows = np.flatnonzero(lengths)
    for index in range(1, _MOST):
        if not len(rows):
            break
        values[rows] |= (payload[starts[rows] + index] & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        rows = rows[lengths[rows] > index]
    wrong = (lengths >= _MOST) | ((lengths == _MOST - 1) & (payload[last] > 1))
    return values, last[wrong]


def zigzag(values: np.ndarray) -> np.ndarray:
    """Signed numbers (int64) from their zigzag form (uint64)."""
    return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)


_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5

_FEW: Final = 40
"""With fewer messages than this, fields are located one by one, as array operations cost more than they save."""

_GROUPS: Final = (3, 4)
_LAST_TAG: Final = (1 << 32) - 1
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_WIRE: Final = {
    FieldDescriptor.TYPE_DOUBLE: _FIXED64,
    FieldDescriptor.TYPE_FIXED64: _FIXED64,
    FieldDescriptor.TYPE_SFIXED64: _FIXED64,
    FieldDescriptor.TYPE_FLOAT: _FIXED32,
    FieldDescriptor.TYPE_FIXED32: _FIXED32,
    FieldDescriptor.TYPE_SFIXED32: _FIXED32,
    FieldDescriptor.TYPE_STRING: _BYTES,
    FieldDescriptor.TYPE_BYTES: _BYTES,
    FieldDescriptor.TYPE_MESSAGE: _BYTES,
    FieldDescriptor.TYPE_GROUP: -1,
}
"""The wire type of one value by the field's kind. Other kinds are varints. Groups (-1) are not read here."""


class TooManyCellsError(Exception):
    """A batch has too many values to decode at once; half a batch may work."""


class Places(NamedTuple):
    """Messages in a buffer: they start at ``place`` and stop at ``end``; ``owner`` is the outermost message's index."""

    place: np.ndarray
    end: np.ndarray
    owner: np.ndarray


class Occurrences(NamedTuple):
    """Occurrences of one field: their rows, ascending; in each row they are in the order of the wire.

    For a number of variable width, ``first`` is the value (the bits of a uint64, as int64), else the place where the
    value starts. ``last`` is where it ends. ``packed`` marks stretches of many values.
    """

    rows: np.ndarray
    first: np.ndarray
    last: np.ndarray
    packed: np.ndarray


class Scan:
    """One pass over messages. ``odd`` collects the owners of bytes that cannot be read here; ``otherwise`` is the form
    of fields unknown to the schema.

    Raises :class:`TooManyCellsError` if there are too many fields to read at once.
    """

    def __init__(
        self,
        data: np.ndarray,
        places: Places,
        fields: Mapping[int, ProtoField],
        odd: list[np.ndarray],
        otherwise: str = "unknown",
    ) -> None:
        self._data = data
        self._places = places
        self._fields = fields
        self._odd = odd
        self._otherwise = otherwise
        self._pieces: dict[int, list[Occurrences]] = {}
        self._total = 0
        rows = np.flatnonzero(places.place < places.end)
        at = places.place[rows]
        while len(rows) >= _FEW:
            rows, at = self._step(rows, at)
        self._singly(rows.tolist(), at.tolist())

    def take(self, number: int) -> Occurrences:
        """Return all occurrences of a field."""
        pieces = self._pieces.get(number, [])
        if not pieces:
            none = np.empty(0, np.int64)
            return Occurrences(none, none, none, np.empty(0, np.bool_))
        if len(pieces) == 1:
            return pieces[0]
        merged = Occurrences(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))
        order = np.argsort(merged.rows, kind="stable")
        return Occurrences(*(column[order] for column in merged))

    def _step(self, rows: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Read one field in each of ``rows``; return the rows with a next field, and its place."""
        ends = self._places.end[rows]
        tags, after, good = _read_varints(self._data, at, ends)
        if not good.all():
            self._reject(rows[~good])
            rows, tags, after, ends = rows[good], tags[good], after[good], ends[good]
        next_at = np.full(len(rows), -1, np.int64)
        if len(rows) and bool((tags == tags[0]).all()):
            next_at = self._read(int(tags[0]), rows, after, ends)
        else:
            for tag in np.unique(tags).tolist():
                some = np.flatnonzero(tags == tag)
                next_at[some] = self._read(tag, rows[some], after[some], ends[some])
        more = (next_at >= 0) & (next_at < ends)
        return (rows, next_at) if more.all() else (rows[more], next_at[more])

    def _read(self, tag: int, rows: np.ndarray, at: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Read the value after a ``tag``; return the start of the next field, or -1 for unreadable bytes."""
        wire = tag & 7
        first, after, good = at, at, np.ones(len(rows), np.bool_)
        if wire == _VARINT:
            values, after, good = _read_varints(self._data, at, ends)
            first = values.view(np.int64)
        elif wire in _FIXED:
            after = at + _FIXED[wire]
            good = after <= ends
        elif wire == _BYTES:
            lengths, first, good = _read_varints(self._data, at, ends)
            good &= lengths <= np.maximum(ends - first, 0).astype(np.uint64)
            after = first + np.where(good, lengths, np.uint64(0)).astype(np.int64)
        form = self._form(tag)
        if form == "odd":
            self._reject(rows)
        if form == "nonsense":
            good = np.zeros(len(rows), np.bool_)
        if good.all():
            self._add(tag >> 3, form, rows, first, after)
            return after
        self._add(tag >> 3, form, rows[good], first[good], after[good])
        self._reject(rows[~good])
        return np.where(good, after, -1)

    def _add(self, number: int, form: str, rows: np.ndarray, first: np.ndarray, last: np.ndarray) -> None:
        if form in ("one", "packed"):
            packed = np.full(len(rows), form == "packed")
            self._pieces.setdefault(number, []).append(Occurrences(rows, first, last, packed))
            self._total += len(rows)
            if self._total > MAX_ELEMENTS:
                raise TooManyCellsError

    def _form(self, tag: int) -> str:
        """Classify a field: wanted ("one", "packed"), "unknown", "odd" (not as the schema says), or "nonsense"."""
        number, wire = tag >> 3, tag & 7
        if number == 0 or tag > _LAST_TAG or wire > _FIXED32:
            return "nonsense"
        if wire in _GROUPS:
            return "odd"
        field = self._fields.get(number)
        if field is None:
            return self._otherwise
        natural = _WIRE.get(field.kind, _VARINT)
        if wire == natural:
            return "one"
        return "packed" if field.repeated and wire == _BYTES and natural in (_VARINT, *_FIXED) else "odd"

    def _reject(self, rows: np.ndarray) -> None:
        self._odd.append(self._places.owner[rows])

    def _singly(self, rows: list[int], at: list[int]) -> None:
        """Read the rest of ``rows``, field by field."""
        for row, place in zip(rows, at, strict=True):
            single = _Single(self._data, self._form, place, int(self._places.end[row]))
            if single.odd:
                self._reject(np.array([row]))
            for tag, (first, last) in single.fields():
                self._add(tag >> 3, self._form(tag), np.full(len(first), row), first, last)


class _Single:
    """Reads one message. Repeated fields of equal size are located together."""

    def __init__(self, data: np.ndarray, form: Callable[[int], str], place: int, end: int) -> None:
        self.odd = False
        self._pieces: dict[int, list[np.ndarray | array[int]]] = {}
        view, forms = data.data, dict[int, str]()
        last_tag = last_size = total = 0
        while place < end:
            start, tag = place, view[place]
            tag, place = (tag, place + 1) if tag < 0x80 else _varint(view, place, end)
            first, place = _value(view, tag & 7, place, end) if place >= 0 else (0, -1)
            kind = forms.get(tag) or forms.setdefault(tag, form(tag))
            if place < 0 or kind == "nonsense":
                self.odd = True
                break
            if kind not in ("one", "packed"):
                self.odd |= kind == "odd"
                continue
            total += 1
            pieces = self._pieces.get(tag) or self._pieces.setdefault(tag, [array("q")])
            if tag == last_tag and place - start == last_size and tag & 7 != _VARINT:
                count = _run_length(data, start, first, place, end)
                size = place - start
                starts = first + np.arange(count + 1) * size
                pieces += [np.stack([starts, starts + (place - first)], axis=1), array("q")]
                place += count * size
                total += count
            else:
                pieces[-1].extend((first, place))  # type: ignore[union-attr]
            last_tag, last_size = tag, place - start
            if total > MAX_ELEMENTS:
                raise TooManyCellsError

    def fields(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each tag with an array of two rows: ``first`` and ``last`` of its occurrences."""
        for tag, pieces in self._pieces.items():
            pairs = np.concatenate([np.asarray(piece, np.int64).reshape(-1, 2) for piece in pieces])
            yield tag, np.ascontiguousarray(pairs.T)


def _run_length(data: np.ndarray, start: int, first: int, last: int, end: int) -> int:
    """Count the fields after the one at ``start`` that have the same tag and length."""
    size, head = last - start, data[start:first]
    most, count, step = (end - last) // size, 0, 32
    while count < most:
        some = min(step, most - count)
        heads: np.ndarray = np.ndarray((some, len(head)), np.uint8, data, last + count * size, (size, 1))
        same = (heads == head).all(axis=1)
        if not same.all():
            return count + int(same.argmin())
        count, step = count + some, 8 * step
        if count > MAX_ELEMENTS:
            raise TooManyCellsError
    return count


def _varint(view: memoryview, place: int, end: int) -> tuple[int, int]:
    """Return the number at ``place`` and its end, or -1 as the end if there is no number."""
    value = shift = 0
    while place < end and shift < 70:
        byte = view[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place if value < 1 << 64 else -1
        shift += 7
    return 0, -1


def _value(view: memoryview, wire: int, place: int, end: int) -> tuple[int, int]:
    """Return one value's ``first`` as in :class:`Occurrences`, and its end, or -1 if there is no value."""
    if wire == _VARINT:
        value, place = _varint(view, place, end)
        return value - (1 << 64) if value >> 63 else value, place
    if wire == _BYTES:
        size = view[place] if place < end else 0x80
        size, start = (size, place + 1) if size < 0x80 else _varint(view, place, end)
        return start, start + size if start >= 0 and size <= end - start else -1
    if wire in _FIXED and place + _FIXED[wire] <= end:
        return place, place + _FIXED[wire]
    return (place, place) if wire in _GROUPS else (0, -1)
