"""Rules that make one component of several columns, and which columns of a group each takes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...engine.errors import ReadWarning, UsageError

TARGETS: Final = ("Translation3D", "RotationQuat", "RotationAxisAngle", "Scale3D", "Scalars", "Transform")
"""Everything a rule can make."""


@dataclass(frozen=True)
class ColumnRule:
    """Columns whose names differ in their ends only become one component. Made by the factory methods.

    ``suffixes`` are the ends of the names, in the order of the component's numbers; what stands before them (the
    sub-prefix) has to be the same for all. The component is named after the sub-prefix and ``field_name_override``.

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

        Raises ``ValueError`` for another number.
        """
        _check(len(suffixes) == 4, "RotationQuat requires exactly 4 suffixes")
        return cls(list(suffixes), "RotationQuat", field_name_override=field_name_override)

    @classmethod
    def rotation_axis_angle(cls, suffixes: Sequence[str], *, field_name_override: str | None = None) -> ColumnRule:
        """Three columns of an axis and one of an angle (rad) as ``Transform3D:rotation_axis_angle``, float32.

        Raises ``ValueError`` for another number.
        """
        _check(len(suffixes) == 4, "RotationAxisAngle requires exactly 4 suffixes (3 axis + 1 angle)")
        return cls(list(suffixes), "RotationAxisAngle", field_name_override=field_name_override)

    @classmethod
    def scale3d(cls, suffixes: Sequence[str], *, field_name_override: str | None = None) -> ColumnRule:
        """Three columns as ``Transform3D:scale``, float32. Raises ``ValueError`` for another number."""
        _check(len(suffixes) == 3, "Scale3D requires exactly 3 suffixes")
        return cls(list(suffixes), "Scale3D", field_name_override=field_name_override)

    @classmethod
    def scalars(
        cls, suffixes: Sequence[str], *, names: Sequence[str], field_name_override: str | None = None
    ) -> ColumnRule:
        """Any number of columns as ``Scalars:scalars``, float64, with a name for each series.

        Raises ``ValueError`` where there are not as many names as suffixes.
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


class Named(NamedTuple):
    """A column of a group: its position in the file, and its name within the group.

    ``refused``: the type of a column that cannot become numbers, which no rule takes.
    """

    position: int
    name: str
    refused: str | None = None


class Entry(NamedTuple):
    """What a group holds: a match of ``rule``, or with ``rule`` None a column as it is.

    ``columns`` are positions in the file, ``rotation`` those of a transform's quaternion; ``sub_prefix`` is what
    stands before the suffixes of a match.
    """

    field_name: str
    columns: tuple[int, ...]
    rule: ColumnRule | None = None
    rotation: tuple[int, ...] = ()
    sub_prefix: str = ""


class _Match(NamedTuple):
    sub_prefix: str
    columns: tuple[int, ...]


def grouped_entries(columns: Sequence[Named], rules: Sequence[ColumnRule]) -> list[Entry]:
    """The entries of a prefix group: matches in the order of the rules, then the columns nobody took.

    A match begins at the start of a name or behind ``_``; one leading ``_`` of a suffix does not count.
    """
    return _entries(columns, rules, bounded=True)


def individual_entries(columns: Sequence[Named], rules: Sequence[ColumnRule]) -> list[Entry]:
    """The entries where each column stands for itself: suffixes count as they are, and match anywhere in a name.

    The field name of a match is its sub-prefix, that of a transform is empty.
    """
    return _entries(columns, rules, bounded=False)


def _entries(columns: Sequence[Named], rules: Sequence[ColumnRule], *, bounded: bool) -> list[Entry]:
    taken: set[int] = set()
    entries: list[Entry] = []
    for rule in rules:
        if rule.target == "Transform":
            found = _transforms(columns, rule, taken, bounded=bounded)
        else:
            found = [
                Entry(_field_name(rule, m.sub_prefix, bounded=bounded), m.columns, rule, (), m.sub_prefix)
                for m in _matches(columns, rule.target, rule.suffixes, taken, bounded=bounded)
            ]
        for entry in found:
            taken.update(entry.columns, entry.rotation)
        entries += found
    return entries + [Entry(c.name, (c.position,)) for c in columns if c.position not in taken]


def _transforms(columns: Sequence[Named], rule: ColumnRule, taken: set[int], *, bounded: bool) -> list[Entry]:
    """Translations and rotations with the same sub-prefix; one without the other is left to later rules."""
    moved = list(_matches(columns, rule.target, rule.suffixes, taken, bounded=bounded))
    used = taken.union(*(m.columns for m in moved))
    rotations = _matches(columns, rule.target, rule.rotation_suffixes or (), used, bounded=bounded)
    turned = {m.sub_prefix: m for m in rotations}
    return [
        Entry(
            _field_name(rule, m.sub_prefix, bounded=bounded) if bounded else "",
            m.columns,
            rule,
            turned[m.sub_prefix].columns,
            m.sub_prefix,
        )
        for m in moved
        if m.sub_prefix in turned
    ]


def _matches(
    columns: Sequence[Named], target: str, suffixes: Sequence[str], taken: set[int], *, bounded: bool
) -> Iterator[_Match]:
    ends = [s.removeprefix("_") for s in suffixes] if bounded else list(suffixes)
    if not ends:
        return
    free: dict[str, Named] = {}
    for column in columns:
        if column.position not in taken:
            free.setdefault(column.name, column)
    for column in columns:
        if free.get(column.name) is not column or not column.name.endswith(ends[0]):
            continue
        before = column.name[: len(column.name) - len(ends[0])]
        if bounded and before and not before.endswith("_"):
            continue
        wanted = [free.get(before + end) for end in ends]
        found = [c for c in wanted if c is not None]
        if len(found) < len(wanted) or _refused(found, target):
            continue
        for c in found:
            free.pop(c.name, None)
        yield _Match(before.removesuffix("_") if bounded else before, tuple(c.position for c in found))


def _refused(columns: Sequence[Named], target: str) -> bool:
    """Whether a match cannot be used, which is said."""
    for column in columns:
        if column.refused is not None:
            what = "scalar" if target == "Scalars" else "archetype"
            warnings.warn(
                f"Unsupported column type for {what} mapping: {column.refused}; the columns that the rule for {target}"
                f" would join come out as they are (column {column.name!r})",
                ReadWarning,
                stacklevel=2,
            )
            return True
    return False


def _field_name(rule: ColumnRule, sub_prefix: str, *, bounded: bool) -> str:
    if not bounded:
        return sub_prefix
    override = rule.field_name_override
    if override:
        return sub_prefix + override if sub_prefix else override.lstrip("_")
    if sub_prefix:
        return sub_prefix
    shared = _common_start([s.removeprefix("_") for s in rule.suffixes]).rstrip("_")
    return shared or ("scalars" if rule.target == "Scalars" else "")


def _common_start(texts: Sequence[str]) -> str:
    """What all texts begin with.

    >>> _common_start(["pos_x", "pos_y", "pos_z"])
    'pos_'
    """
    first, last = min(texts), max(texts)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same]
