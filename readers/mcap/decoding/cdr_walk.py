"""Stepping over what varies in size: strings and sequences, for all rows of a frame at once."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np

from ....engine.limits import MAX_ELEMENTS
from .cdr_types import ElementsVar, Frame, PlainVar, Program, TextVar, Var
from .columns import offsets_of, read_words

_GROUP: Final = 8
"""After this many elements of equal counts, places have the same alignment again, whatever the elements' size."""

_MOST_WORDS: Final = 256
"""A group with more counts than this is not looked for again."""


class TooManyElementsError(Exception):
    """A batch holds more elements of variable size than are decoded in one piece; half a batch may do."""


class _MisfitError(Exception):
    """An element does not fit into its message."""


class _Walker:
    """Steps over elements within ``data``; ``order`` is their byte order."""

    def __init__(self, data: np.ndarray, order: str) -> None:
        self._array = data
        self._data = data.data
        self._kind = f"{order}u4"
        self._word = struct.Struct(f"{order}I").unpack_from
        self._words: list[tuple[int, int]] = []
        self._total = 0

    def elements(self, var: ElementsVar, count: int, place: int, base: int, end: int) -> tuple[np.ndarray, int]:
        """Return the places of ``count`` elements, the first at ``place``, and where the last one ends.

        Alignment counts from ``base``; raises :class:`_MisfitError` when one reaches past ``end``.
        """
        found = np.empty(count, np.int64)
        index = 0
        pattern: tuple[int, list[tuple[int, int]]] = (-1, [])
        while index < count:
            self._words, start = [], place
            some = min(_GROUP, count - index)
            group = [0] * some
            for k in range(some):
                group[k] = place
                place = self.skip(var.program, place, base, end)
            found[index : index + some] = group
            index += some
            stride = place - start
            before, pattern = pattern, (stride, [(at - start, value) for at, value in self._words])
            if some == _GROUP and before == pattern and stride % _GROUP == 0 and len(self._words) <= _MOST_WORDS:
                times = self._repeats(
                    place, stride, pattern[1], min((count - index) // _GROUP, (end - place) // stride)
                )
                starts = np.add.outer(np.arange(1, times + 1) * stride, found[index - _GROUP : index])
                found[index : index + times * _GROUP] = starts.reshape(-1)
                index, place = index + times * _GROUP, place + times * stride
        return found, place

    def _repeats(self, place: int, stride: int, words: list[tuple[int, int]], most: int) -> int:
        """Count how often ``words`` are there again after ``place``, every ``stride`` bytes; at most ``most``."""
        times, step = 0, 16
        while times < most:
            some = min(step, most - times)
            good = np.ones(some, np.bool_)
            for at, value in words:
                there = np.ndarray((some,), self._kind, self._array, place + times * stride + at, (stride,))
                good &= there == value
            if not good.all():
                return times + int(good.argmin())
            times, step = times + some, 8 * step
        return times

    def skip(self, program: Program, place: int, base: int, end: int) -> int:
        """Return the end of the element that starts at ``place``; raises :class:`_MisfitError` past ``end``."""
        for block, var in program:
            place += block.steps[(place - base) & block.mask]
            if place > end:
                raise _MisfitError(block.cut)
            if isinstance(var, TextVar):
                count = self._word(self._data, place - 4)[0]
                self._words.append((place - 4, count))
                place += count
                if place > end:
                    raise _MisfitError(f"{var.path}: the string is longer than what is left of the message")
            elif var is not None:
                count = var.length
                if count is None:
                    count = self._word(self._data, place - 4)[0]
                    self._words.append((place - 4, count))
                place = self._skip_sequence(var, count, place, base, end) if count else place
        return place

    def _skip_sequence(self, var: PlainVar | ElementsVar, count: int, place: int, base: int, end: int) -> int:
        what = f"{var.path}: it has more elements than the message has room for"
        if isinstance(var, PlainVar):
            place += -(place - base) & (var.block.align - 1)
            place += (count - 1) * var.stride + var.size
            if place > end:
                raise _MisfitError(what)
            return place
        if count * var.least > end - place:
            raise _MisfitError(what)
        self._total += count
        if self._total > MAX_ELEMENTS:
            raise TooManyElementsError
        for _ in range(count):
            place = self.skip(var.program, place, base, end)
        return place


_FEW: Final = 24
"""With fewer rows than this, elements are found one by one: an array operation costs more than it saves."""

_FAR: Final = 1 << 31
"""More bytes than a message has: distances are capped to it, so that products with counts stay within int64."""


class TextRun(NamedTuple):
    """The places of strings; ``lengths`` count bytes, a final NUL among them."""

    starts: np.ndarray
    lengths: np.ndarray
    owner: np.ndarray
    path: str


class PlainRun(NamedTuple):
    """The places of sequences of blocks, and how many blocks each has."""

    starts: np.ndarray
    counts: np.ndarray
    owner: np.ndarray
    var: PlainVar


class ElementsRun(NamedTuple):
    """The number of elements of each sequence, and a frame with one row for each element, in order."""

    counts: np.ndarray
    elements: Frame
    var: ElementsVar


def advance(var: Var, frame: Frame, counts: np.ndarray) -> TextRun | PlainRun | ElementsRun:
    """Step over ``var``, of which each row has ``counts`` bytes or elements; rows where it does not fit are dropped."""
    if isinstance(var, TextVar):
        good = counts <= frame.end - frame.place
        if not frame.require(good, f"{var.path}: the string is longer than what is left of the message"):
            counts = counts[good]
        text = TextRun(frame.place, counts, frame.owner, var.path)
        frame.place = frame.place + counts
        return text
    if isinstance(var, PlainVar):
        return _advance_plain(var, frame, counts)
    good = counts * min(var.least, _FAR) <= frame.end - frame.place
    if not frame.require(good, f"{var.path}: it has more elements than the message has room for"):
        counts = counts[good]
    return _locate(var, frame, counts)


def _advance_plain(var: PlainVar, frame: Frame, counts: np.ndarray) -> PlainRun:
    some = counts > 0
    starts = frame.place + (-(frame.place - frame.base) & (var.block.align - 1)) * some
    # A row without elements takes nothing, not even padding; the last element has no padding after it.
    span = ((counts - 1) * min(var.stride, _FAR) + min(var.size, _FAR)) * some
    good = span <= frame.end - starts
    if not frame.require(good, f"{var.path}: it has more elements than the message has room for"):
        starts, counts, span = starts[good], counts[good], span[good]
    frame.place = starts + span
    return PlainRun(starts, counts, frame.owner, var)


def _locate(var: ElementsVar, frame: Frame, counts: np.ndarray) -> ElementsRun:
    """Find where each element starts: the k-th elements of all rows together, then the next."""
    good = counts <= MAX_ELEMENTS
    if not frame.require(good, f"{var.path}: it has more than {MAX_ELEMENTS:,} elements"):
        counts = counts[good]
    if int(counts.sum()) > MAX_ELEMENTS:
        raise TooManyElementsError
    offsets = offsets_of(counts).astype(np.int64)
    places = np.empty(int(offsets[-1]), np.int64)
    after = frame.place.copy()
    done = counts == 0
    cursor = Frame(frame.batch, frame.place, frame.base, frame.end, frame.owner, np.arange(len(frame)))
    cursor.keep(~done)
    index = 0
    while len(cursor) >= _FEW:
        places[offsets[cursor.row] + index] = cursor.place
        skip(var.program, cursor)
        index += 1
        after[cursor.row] = cursor.place
        more = counts[cursor.row] > index
        if not more.all():
            done[cursor.row[~more]] = True
            cursor.keep(more)
    _locate_singly(var, cursor, index, offsets, places, after, done)
    frame.place = after
    row = np.repeat(np.arange(len(counts)), counts)
    if not done.all():
        mask = done[row]
        places, row = places[mask], row[mask]
        elements = Frame(frame.batch, places, frame.base[row], frame.end[row], frame.owner[row], row)
        frame.keep(done)
        return ElementsRun(counts[done], elements, var)
    elements = Frame(frame.batch, places, frame.base[row], frame.end[row], frame.owner[row], row)
    return ElementsRun(counts, elements, var)


def skip(program: Program, frame: Frame) -> None:
    """Step over one whole ``program`` in every row."""
    for block, var in program:
        residues, common = frame.enter(block)
        frame.place = frame.place + (block.sizes[residues] if common is None else block.layout(common)[1])
        if var is None:
            continue
        if block.counted:
            counts = read_words(frame.batch.data, frame.place - 4, frame.batch.order)
        else:
            counts = constant_counts(var, len(frame))
        advance(var, frame, counts)


def constant_counts(var: Var, rows: int) -> np.ndarray:
    """The element counts of a fixed-size array."""
    return np.full(rows, 0 if isinstance(var, TextVar) else var.length, np.int64)


def _locate_singly(
    var: ElementsVar,
    cursor: Frame,
    index: int,
    offsets: np.ndarray,
    places: np.ndarray,
    after: np.ndarray,
    done: np.ndarray,
) -> None:
    """Do what :func:`_locate` does for the rows that are left, one row after the other."""
    walker = _Walker(cursor.batch.data, cursor.batch.order)
    for row, place, base, end, owner in zip(
        cursor.row.tolist(),
        cursor.place.tolist(),
        cursor.base.tolist(),
        cursor.end.tolist(),
        cursor.owner.tolist(),
        strict=True,
    ):
        start, stop = int(offsets[row]) + index, int(offsets[row + 1])
        try:
            places[start:stop], after[row] = walker.elements(var, stop - start, place, base, end)
        except _MisfitError as misfit:
            cursor.batch.faults.append((np.array([owner]), str(misfit)))
            continue
        done[row] = True
