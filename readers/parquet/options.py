"""The checked options of a ParquetReader: index columns, groups, and rules that join columns to one component."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypedDict, Unpack

from ...engine.chunk import TimelineKind
from ...engine.errors import ReadWarning, UsageError, check_argument

TARGETS: Final = ("Translation3D", "RotationQuat", "RotationAxisAngle", "Scale3D", "Scalars", "Transform")
"""Everything that a rule can make."""


@dataclass(frozen=True)
class ColumnRule:
    """A rule to join columns with names that differ only in suffixes into one component.

    Use the factory methods. ``suffixes`` are in the order of the component's numbers. The rest of the names (the
    sub-prefix) must be the same for all columns. The component is named after the sub-prefix and
    ``field_name_override``.

    >>> ColumnRule.translation3d(["_x", "_y", "_z"]).target
    'Translation3D'
    """

    suffixes: Sequence[str]
    target: str
    names: Sequence[str] | None = None
    field_name_override: str | None = None
    rotation_suffixes: Sequence[str] | None = None

    @classmethod
    def translation3d(cls, suffixes: Sequence[str], *, field_name_override: str | None = None) -> ColumnRule:
        """Three columns as ``Transform3D:translation``, float32. Raises ``ValueError`` for another number."""
        _check(len(suffixes) == 3, "Translation3D requires exactly 3 suffixes")
        return cls(list(suffixes), "Translation3D", field_name_override=field_name_override)

    @classmethod
    def rotation_quat(cls, suffixes: Sequence[str], *, field_name_override: str | None = None) -> ColumnRule:
        """Four columns (x, y, z, w) as ``Transform3D:quaternion``, float32.

        Raises ``ValueError`` for another number of columns.
        """
        _check(len(suffixes) == 4, "RotationQuat requires exactly 4 suffixes")
        return cls(list(suffixes), "RotationQuat", field_name_override=field_name_override)

    @classmethod
    def rotation_axis_angle(cls, suffixes: Sequence[str], *, field_name_override: str | None = None) -> ColumnRule:
        """Three columns of an axis and one of an angle (rad) as ``Transform3D:rotation_axis_angle``, float32.

        Raises ``ValueError`` for another number of columns.
        """
        _check(len(suffixes) == 4, "RotationAxisAngle requires exactly 4 suffixes (3 axis + 1 angle)")
        return cls(list(suffixes), "RotationAxisAngle", field_name_override=field_name_override)

    @classmethod
    def scale3d(cls, suffixes: Sequence[str], *, field_name_override: str | None = None) -> ColumnRule:
        """Three columns as ``Transform3D:scale``, float32. Raises ``ValueError`` for another number of columns."""
        _check(len(suffixes) == 3, "Scale3D requires exactly 3 suffixes")
        return cls(list(suffixes), "Scale3D", field_name_override=field_name_override)

    @classmethod
    def scalars(
        cls, suffixes: Sequence[str], *, names: Sequence[str], field_name_override: str | None = None
    ) -> ColumnRule:
        """Any number of columns as ``Scalars:scalars``, float64, with a name for each series.

        Raises ``ValueError`` if the numbers of names and suffixes differ.
        """
        _check(len(suffixes) == len(names), "suffixes and names must have the same length")
        return cls(list(suffixes), "Scalars", list(names), field_name_override)

    @classmethod
    def transform(
        cls,
        translation_suffixes: Sequence[str],
        rotation_suffixes: Sequence[str],
        *,
        field_name_override: str | None = None,
    ) -> ColumnRule:
        """Three columns of a translation and four of a quaternion (x, y, z, w) with the same sub-prefix.

        Raises ``ValueError`` for other numbers of columns.
        """
        _check(len(translation_suffixes) == 3, "Transform requires exactly 3 translation suffixes")
        _check(len(rotation_suffixes) == 4, "Transform requires exactly 4 rotation suffixes")
        return cls(list(translation_suffixes), "Transform", None, field_name_override, list(rotation_suffixes))


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UsageError(otherwise)


NANOSECONDS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""The nanoseconds of each unit."""

GROUPINGS: Final = ("prefix", "individual", "explicit_prefixes")
"""The ways to put columns together."""


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """A column that becomes a timeline: its name (``path``), kind, and unit of integers, if any.

    Raises ``UsageError`` (a ``ValueError``) for an unknown kind or unit.

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
        """Sequence numbers, without a unit."""
        return cls(path, "sequence")

    @classmethod
    def of(cls, entry: IndexColumn | Sequence[str]) -> IndexColumn:
        """Convert an entry of ``index_columns``: an ``IndexColumn``, ``(name, type)`` or ``(name, type, unit)``."""
        if isinstance(entry, IndexColumn):
            return entry
        if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) not in (2, 3):
            raise UsageError(
                f"index_columns: expected an IndexColumn, (name, type) or (name, type, unit), got {entry!r}"
            )
        return cls(*entry)  # type: ignore[arg-type]

    @property
    def line(self) -> TimelineKind:
        """The kind of timeline."""
        return TimelineKind(self.kind)

    @property
    def factor(self) -> int:
        """The factor that converts the integers to nanoseconds."""
        return 1 if self.line is TimelineKind.SEQUENCE else NANOSECONDS[self.input_unit or "ns"]


class LayoutArguments(TypedDict, total=False):
    """The options of :class:`ParquetReader`, as they are given."""

    entity_path_prefix: str | None
    column_grouping: str
    delimiter: str
    prefixes: Iterable[str] | None
    use_structs: bool
    static_columns: Iterable[str] | None
    index_columns: Iterable[IndexColumn | Sequence[str]] | None
    column_rules: Iterable[ColumnRule] | None


@dataclass(frozen=True)
class ParquetOptions:
    """The options of :class:`ParquetReader`, checked and ready to pickle. Raises ``UsageError`` (a ``ValueError``)."""

    entity_path_prefix: str | None = None
    column_grouping: str = "prefix"
    delimiter: str = "_"
    prefixes: tuple[str, ...] | None = None
    use_structs: bool = True
    static_columns: tuple[str, ...] = ()
    index_columns: tuple[IndexColumn, ...] = ()
    column_rules: tuple[ColumnRule, ...] = ()

    def __post_init__(self) -> None:
        for rule in self.column_rules:
            _check_rule(rule)
        _warn_of_shadows(self.column_rules)
        _check_grouping(self.column_grouping, self.prefixes)
        if len(self.delimiter) != 1:
            raise UsageError("expected a string of length 1")

    def changed(self, **given: Unpack[LayoutArguments]) -> ParquetOptions:
        """Return the options with the given ones replaced."""
        values: dict[str, Any] = dict(given)
        for name in ("static_columns", "index_columns", "column_rules"):
            if name in values:
                values[name] = tuple(values[name] or ())
        if "index_columns" in values:
            values["index_columns"] = tuple(IndexColumn.of(entry) for entry in values["index_columns"])
        if values.get("prefixes") is not None:
            values["prefixes"] = tuple(values["prefixes"])
        return replace(self, **values)


def _check_grouping(name: str, prefixes: tuple[str, ...] | None) -> None:
    if name not in GROUPINGS:
        raise UsageError(f"Unknown column_grouping: '{name}'. Expected 'prefix', 'individual', or 'explicit_prefixes'.")
    if name != "explicit_prefixes":
        if prefixes is not None:
            raise UsageError("'prefixes' is only valid with column_grouping='explicit_prefixes'")
    elif prefixes is None:
        raise UsageError("'explicit_prefixes' requires the 'prefixes' parameter")
    elif not prefixes:
        raise UsageError("'prefixes' must not be empty for 'explicit_prefixes' grouping")


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
    """Warn of rules that take the columns of later, more specific rules."""
    for later, rule in enumerate(rules):
        for earlier, broad in enumerate(rules[:later]):
            same = len(broad.suffixes) == len(rule.suffixes) > 0
            if same and all(s.endswith(b) for s, b in zip(rule.suffixes, broad.suffixes, strict=True)):
                warnings.warn(
                    f"Column rule {earlier} (suffixes {_listed(broad.suffixes)}) may shadow rule {later} (suffixes"
                    f" {_listed(rule.suffixes)}). Consider reordering so more specific rules come first.",
                    ReadWarning,
                    stacklevel=7,
                )


def _listed(texts: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{text}"' for text in texts) + "]"
