"""Changes of the rows of a table with stable row ids from one version to another, older or newer one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .computed_table import Fragment, FragmentReader

Offsets = npt.NDArray[np.uint32]
RowIds = npt.NDArray[np.uint64]
_ROW_BITS = np.uint64(32)


@dataclass(frozen=True)
class RowChanges:
    """The ids of the rows that are gone, whose values changed, and that are new.

    ``places`` are the offsets of the latter two by the fragments of the later version.
    """

    gone: RowIds
    changed: RowIds
    new: RowIds
    places: Mapping[int, Offsets]


def row_changes(before: FragmentReader, after: FragmentReader, columns: Sequence[str]) -> RowChanges:
    """The changes of rows from one version to another, as far as some columns are concerned.

    A row that was written anew counts as changed, whatever its values are. Fragments with the same files are not looked
    at; a compaction, which moves rows, changes none.
    """
    is_known = before.field_ids(columns) == after.field_ids(columns)
    then, now = before.by_id, after.by_id
    same = {id_ for id_ in then.keys() & now.keys() if is_known and _is_same(then[id_], now[id_], columns)}
    old_ids, old_versions, _ = _rows(before, then.keys() - same)
    ids, versions, places = _rows(after, now.keys() - same)
    order = np.argsort(old_ids, kind="stable")
    old_ids, old_versions = old_ids[order], old_versions[order]
    at = np.minimum(np.searchsorted(old_ids, ids), max(len(old_ids) - 1, 0))
    is_old = old_ids[at] == ids if len(old_ids) else np.zeros(len(ids), np.bool_)
    is_changed = is_old.copy()
    if is_known:
        is_changed[is_old] = old_versions[at[is_old]] != versions[is_old]
    is_there = np.zeros(len(old_ids), np.bool_)
    is_there[at[is_old]] = True
    return RowChanges(old_ids[~is_there], ids[is_changed], ids[~is_old], by_fragment(places[is_changed | ~is_old]))


def by_fragment(addresses: npt.NDArray[np.uint64]) -> dict[int, Offsets]:
    """The offsets of rows by their fragments, in order.

    >>> by_fragment(np.array([3, (1 << 32) + 7, 1], np.uint64))
    {0: array([1, 3], dtype=uint32), 1: array([7], dtype=uint32)}
    """
    ordered = np.sort(addresses)
    numbers, begins = np.unique(ordered >> _ROW_BITS, return_index=True)
    parts = np.split(ordered.astype(np.uint32), begins[1:])
    return {int(number): part for number, part in zip(numbers, parts, strict=True)} if len(numbers) else {}


def _is_same(one: Fragment, other: Fragment, columns: Iterable[str]) -> bool:
    columns = tuple(columns)
    return (one.rows, one.deletions, one.files_of(columns)) == (other.rows, other.deletions, other.files_of(columns))


def _rows(reader: FragmentReader, fragments: Collection[int]) -> tuple[RowIds, RowIds, RowIds]:
    """The ids of rows, the versions that wrote them last, and their addresses."""
    names = {"id": "_rowid", "version": "_row_last_updated_at_version", "at": "_rowaddr"}
    found: dict[str, list[RowIds]] = {name: [np.empty(0, np.uint64)] for name in names}
    if fragments:
        for batch in reader.expressed(names, fragments=sorted(fragments)):
            for name in names:
                found[name].append(batch.column(name).to_numpy())
    ids, versions, places = (np.concatenate(found[name]) for name in names)
    return ids, versions, places
