"""What a ParquetReader was asked for, validated."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ...engine.chunk import TimelineKind
from ...engine.errors import ReadWarning, UsageError, check_argument
from .rules import TARGETS, ColumnRule

NANOSECONDS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""How many nanoseconds each unit has."""

GROUPINGS: Final = ("prefix", "individual", "explicit_prefixes")
"""The ways to put columns together."""


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """A column that becomes a timeline: its name (``path``), its kind, and the unit of its integers, if it has one.

    Raises ``UsageError`` (a ``ValueError``) for a kind or unit that does not exist.

    >>> IndexColumn.timestamp("stamp", input_unit="ms").factor
    1000000
    """

    path: str
    kind: Literal["timestamp", "duration", "sequence"]
    input_unit: Literal["ns", "us", "ms", "s"] | None = None

    def __post_init__(self) -> None:
        check_argument("path", self.path, str)
        if self.kind not in tuple(TimelineKind):
            raise UsageError(f"Unknown index type: '{self.kind}'. Expected 'timestamp', 'duration', or 'sequence'.")
        if self.input_unit is not None and self.input_unit not in NANOSECONDS:
            raise UsageError(f"Unknown time unit: '{self.input_unit}'. Expected 'ns', 'us', 'ms', or 's'.")

    @classmethod
    def timestamp(cls, path: str, *, input_unit: Literal["ns", "us", "ms", "s"] = "ns") -> IndexColumn:
        """Times since the Unix epoch."""
        return cls(path, "timestamp", input_unit)

    @classmethod
    def duration(cls, path: str, *, input_unit: Literal["ns", "us", "ms", "s"] = "ns") -> IndexColumn:
        """Times since a start."""
        return cls(path, "duration", input_unit)

    @classmethod
    def sequence(cls, path: str) -> IndexColumn:
        """Numbers in order, which have no unit."""
        return cls(path, "sequence")

    @classmethod
    def of(cls, entry: IndexColumn | Sequence[str]) -> IndexColumn:
        """An entry of ``index_columns``: this, ``(name, type)`` or ``(name, type, unit)``."""
        if isinstance(entry, IndexColumn):
            return entry
        if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) not in (2, 3):
            raise UsageError(
                f"index_columns: an IndexColumn, (name, type) or (name, type, unit) was expected, got {entry!r}"
            )
        return cls(*entry)  # type: ignore[arg-type]

    @property
    def line(self) -> TimelineKind:
        """The kind of timeline."""
        return TimelineKind(self.kind)

    @property
    def factor(self) -> int:
        """What the integers are multiplied by."""
        return 1 if self.line is TimelineKind.SEQUENCE else NANOSECONDS[self.input_unit or "ns"]


@dataclass(frozen=True)
class ParquetOptions:
    """The options of :class:`ParquetReader`, checked and ready to pickle."""

    entity_path_prefix: str = "/"
    grouping: str = "prefix"
    delimiter: str = "_"
    prefixes: tuple[str, ...] = ()
    use_structs: bool = True
    static_columns: tuple[str, ...] = ()
    index_columns: tuple[IndexColumn, ...] = ()
    rules: tuple[ColumnRule, ...] = ()

    @classmethod
    def checked(
        cls,
        entity_path_prefix: str | None = None,
        column_grouping: str = "prefix",
        delimiter: str = "_",
        prefixes: Iterable[str] | None = None,
        use_structs: bool = True,
        static_columns: Iterable[str] | None = None,
        index_columns: Iterable[IndexColumn | Sequence[str]] | None = None,
        column_rules: Iterable[ColumnRule] | None = None,
    ) -> ParquetOptions:
        """Validate the arguments of the reader. Raises ``UsageError`` (a ``ValueError``)."""
        rules = tuple(column_rules or ())
        for rule in rules:
            _check_rule(rule)
        _warn_of_shadows(rules)
        return cls(
            entity_path_prefix or "/",
            _grouping(column_grouping, prefixes),
            _delimiter(delimiter),
            tuple(prefixes or ()),
            bool(use_structs),
            tuple(static_columns or ()),
            tuple(IndexColumn.of(entry) for entry in index_columns or ()),
            rules,
        )


def _grouping(name: str, prefixes: Iterable[str] | None) -> str:
    if name not in GROUPINGS:
        raise UsageError(f"Unknown column_grouping: '{name}'. Expected 'prefix', 'individual', or 'explicit_prefixes'.")
    if name != "explicit_prefixes":
        if prefixes is not None:
            raise UsageError("'prefixes' is only valid with column_grouping='explicit_prefixes'")
    elif prefixes is None:
        raise UsageError("'explicit_prefixes' requires the 'prefixes' parameter")
    elif not tuple(prefixes):
        raise UsageError("'prefixes' must not be empty for 'explicit_prefixes' grouping")
    return name


def _delimiter(text: str) -> str:
    if len(text) != 1:
        raise UsageError("expected a string of length 1")
    return text


def _check_rule(rule: ColumnRule) -> None:
    if rule.target not in TARGETS:
        raise UsageError(f"Unknown target: '{rule.target}'. Valid targets: {', '.join(TARGETS)}.")
    if rule.target == "Scalars":
        if rule.names is None:
            raise UsageError("Scalars target requires 'names'")
        if len(rule.names) != len(rule.suffixes):
            raise UsageError("suffixes and names must have the same length")
    if rule.target == "Transform" and rule.rotation_suffixes is None:
        raise UsageError("Transform target requires 'rotation_suffixes'")


def _warn_of_shadows(rules: Sequence[ColumnRule]) -> None:
    """Say where an earlier rule would take the columns that a later, more specific one is for."""
    for later, rule in enumerate(rules):
        for earlier, broad in enumerate(rules[:later]):
            same = len(broad.suffixes) == len(rule.suffixes) > 0
            if same and all(s.endswith(b) for s, b in zip(rule.suffixes, broad.suffixes, strict=True)):
                warnings.warn(
                    f"Column rule {earlier} (suffixes {_listed(broad.suffixes)}) may shadow rule {later} (suffixes"
                    f" {_listed(rule.suffixes)}). Consider reordering so more specific rules come first.",
                    ReadWarning,
                    stacklevel=5,
                )


def _listed(texts: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{text}"' for text in texts) + "]"
