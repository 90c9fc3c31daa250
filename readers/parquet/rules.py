"""Which columns of a group each rule takes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...engine.errors import ReadWarning
from .column_rule import ColumnRule


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
