"""Which columns go together: the groups of a file's columns, before anything is made of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from .options import ParquetOptions
from .rules import Entry, Named, grouped_entries, individual_entries


class Group(NamedTuple):
    """Columns that come out at one entity: ``path`` below the reader's prefix, as text.

    ``flat``: each entry is a component of its own, whatever ``use_structs`` says.
    """

    path: str
    entries: tuple[Entry, ...]
    flat: bool


def group_columns(columns: Sequence[Named], options: ParquetOptions) -> list[Group]:
    """All groups, in the order in which their chunks come."""
    if options.grouping == "individual":
        return _individual(columns, options)
    if options.grouping == "prefix":
        parted: dict[str, list[Named]] = defaultdict(list)
        for column in columns:
            prefix, name = split_name(column.name, options.delimiter)
            parted[prefix].append(column._replace(name=name))
        return _sorted_groups(parted, options)
    return _explicit(columns, options)


def split_name(name: str, delimiter: str) -> tuple[str, str]:
    """Prefix and rest of a column's name; where it has no such parts, the whole name is both.

    >>> [split_name(n, "_") for n in ("camera_rgb", "camera", "trail_", "_lead", "a__b")]
    [('camera', 'rgb'), ('camera', 'camera'), ('trail_', 'trail_'), ('', 'lead'), ('a', '_b')]
    """
    prefix, _, rest = name.partition(delimiter)
    return (prefix, rest) if rest else (name, name)


def _explicit(columns: Sequence[Named], options: ParquetOptions) -> list[Group]:
    longest_first = sorted(options.prefixes, key=len, reverse=True)
    parted: dict[str, list[Named]] = defaultdict(list)
    alone: list[Group] = []
    for column in columns:
        prefix = next((p for p in longest_first if column.name.startswith(p) and column.name != p), None)
        if prefix is None:
            alone.append(Group(column.name, (Entry(column.name, (column.position,)),), flat=True))
        else:
            parted[prefix].append(column._replace(name=column.name[len(prefix) :].removeprefix("_")))
    return _sorted_groups(parted, options) + alone


def _sorted_groups(parted: dict[str, list[Named]], options: ParquetOptions) -> list[Group]:
    return [
        Group(prefix, tuple(grouped_entries(parted[prefix], options.rules)), flat=not options.use_structs)
        for prefix in sorted(parted, key=lambda p: p.encode("utf-8", "surrogatepass"))
    ]


def _individual(columns: Sequence[Named], options: ParquetOptions) -> list[Group]:
    entries = individual_entries(columns, options.rules)
    matched: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.rule is not None:
            matched[entry.sub_prefix].append(entry)
    groups = [Group(prefix, tuple(matched[prefix]), flat=True) for prefix in sorted(matched)]
    return groups + [Group(e.field_name, (e,), flat=True) for e in entries if e.rule is None]
