"""Profiles: thresholds that users name, and the settings that the algorithms work with."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import check_argument

_LIVE = (12 * 8 * 4096, 4096, 1024)
_OBJECT_STORE = (2 * 1024 * 1024, 65_536, 8192)


@dataclass(frozen=True, kw_only=True)
class OptimizationProfile:
    """The chunk layout that ``collect(optimize=…)`` produces.

    Two presets: ``LIVE``, small chunks for a viewer, and ``OBJECT_STORE``, large ones for queries over a network.
    Values are checked when the profile is used.

    >>> OptimizationProfile.OBJECT_STORE.max_rows
    65536

    Parameters
    ----------
    max_bytes
        A chunk above this size (in memory, bytes) is split, chunks are merged up to it. ``None``: as ``LIVE``;
        0: chunks are neither split for their size nor merged.
    max_rows
        The same in rows, for chunks in time order.
    max_rows_if_unsorted
        The same in rows, for chunks with a timeline out of order.
    extra_passes
        After the first pass, at most this many more, as long as each leaves fewer chunks.
    gop_batching
        Lay out video streams by groups of pictures: no group is ever split over chunks, whatever its size.
    split_size_ratio
        Put components whose archetypes differ in size by this factor or more into chunks of their own; 10 is a good
        value. ``None``: leave them together.
    fix_keyframe
        Drop the ``VideoStream:is_keyframe`` that a recording has, and derive it from the samples.
    """

    LIVE: ClassVar[OptimizationProfile]
    OBJECT_STORE: ClassVar[OptimizationProfile]

    max_bytes: int | None = None
    max_rows: int | None = None
    max_rows_if_unsorted: int | None = None
    extra_passes: int = 50
    gop_batching: bool = True
    split_size_ratio: float | None = None
    fix_keyframe: bool = False


def _preset(thresholds: tuple[int, int, int]) -> OptimizationProfile:
    max_bytes, max_rows, max_rows_if_unsorted = thresholds
    return OptimizationProfile(max_bytes=max_bytes, max_rows=max_rows, max_rows_if_unsorted=max_rows_if_unsorted)


OptimizationProfile.LIVE = _preset(_LIVE)
OptimizationProfile.OBJECT_STORE = _preset(_OBJECT_STORE)


@dataclass(frozen=True, slots=True)
class Settings:
    """A checked profile: every threshold has its value. A threshold of 0 means "never split" and "never merge"."""

    max_bytes: int
    max_rows: int
    max_rows_if_unsorted: int
    extra_passes: int = 0
    gop_batching: bool = False
    split_size_ratio: float | None = None
    fix_keyframe: bool = False

    @classmethod
    def of(cls, profile: OptimizationProfile | None) -> Settings:
        """The settings of ``collect(optimize=profile)``; without a profile the first pass is the only one.

        Raises ``TypeError`` for a value of the wrong type, ``OverflowError`` for one below 0 or above 64 bits.
        """
        if profile is None:
            return cls(*_LIVE)
        names = ("max_bytes", "max_rows", "max_rows_if_unsorted")
        given = [(name, getattr(profile, name), default) for name, default in zip(names, _LIVE, strict=True)]
        thresholds = [default if value is None else _unsigned(name, value) for name, value, default in given]
        ratio = profile.split_size_ratio
        return cls(
            thresholds[0],
            thresholds[1],
            thresholds[2],
            extra_passes=_unsigned("extra_passes", profile.extra_passes),
            gop_batching=_flag("gop_batching", profile.gop_batching),
            split_size_ratio=None if ratio is None else _real("split_size_ratio", ratio),
            fix_keyframe=_flag("fix_keyframe", profile.fix_keyframe),
        )

    def row_limit(self, ascending: bool) -> int:
        """The most rows of a chunk whose timelines all ascend, or don't."""
        return self.max_rows if ascending else self.max_rows_if_unsorted


INERT = Settings(0, 0, 0)
"""Neither splits nor merges: the store that ``ChunkStore.from_chunks`` fills."""


def _unsigned(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"argument '{name}': '{kind}' object cannot be interpreted as an integer") from None
    if number < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if number >= 1 << 64:
        raise OverflowError("int too big to convert")
    return number


def _flag(name: str, value: Any) -> bool:
    check_argument(name, value, bool)
    return bool(value)


def _real(name: str, value: Any) -> float:
    try:
        return float(value + 0.0)
    except TypeError:
        raise TypeError(f"argument '{name}': must be real number, not {type(value).__name__}") from None
