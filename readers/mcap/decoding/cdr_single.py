"""Stepping over the elements of one sequence, one after the other; those that repeat a pattern are found together."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from ....engine.limits import MAX_ELEMENTS
from .cdr_layout import ElementsVar, PlainVar, Program, TextVar

_GROUP: Final = 8
"""After this many elements of equal counts, places have the same alignment again, whatever the elements' size."""

_MOST_WORDS: Final = 256
"""A group with more counts than this is not looked for again."""


class TooManyElementsError(Exception):
    """A batch holds more elements of variable size than are decoded in one piece; half a batch may do."""


class MisfitError(Exception):
    """An element does not fit into its message."""


class Walker:
    """Steps over elements within ``data``; ``order`` is their byte order."""

    def __init__(self, data: np.ndarray, order: str) -> None:
        self._array = data
        self._data = data.data
        self._kind = f"{order}u4"
        self._word = struct.Struct(f"{order}I").unpack_from
        self._words: list[tuple[int, int]] = []
        self._total = 0

    def elements(self, var: ElementsVar, count: int, place: int, base: int, end: int) -> tuple[np.ndarray, int]:
        """Where ``count`` elements start, the first at ``place``, and where the last one ends.

        Alignment counts from ``base``; raises :class:`MisfitError` when one reaches past ``end``.
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
        """How often the counts ``words`` are there again after ``place``, every ``stride`` bytes; at most ``most``."""
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
        """Where the element that starts at ``place`` ends; raises :class:`MisfitError` past ``end``."""
        for block, var in program:
            place += block.steps[(place - base) & block.mask]
            if place > end:
                raise MisfitError(f"{block.parts[-1].path if block.parts else ''}: the message ends before it")
            if isinstance(var, TextVar):
                count = self._word(self._data, place - 4)[0]
                self._words.append((place - 4, count))
                place += count
                if place > end:
                    raise MisfitError(f"{var.path}: the string is longer than what is left of the message")
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
                raise MisfitError(what)
            return place
        if count * var.least > end - place:
            raise MisfitError(what)
        self._total += count
        if self._total > MAX_ELEMENTS:
            raise TooManyElementsError
        for _ in range(count):
            place = self.skip(var.program, place, base, end)
        return place
