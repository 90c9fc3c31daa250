"""Stale rows: updated after their computed values were computed, which stay as they were.

Lance moves a row that is updated into another fragment, whose file it writes with all columns, the computed ones as
they were. It keeps the versions in which each row was made and last changed, if the table has stable row ids; but it
counts new files of any column as a change of the row. So of a fragment's columns

- a file of a backfill is known by its name, and has values of its rows as they are, or says that it kept stale ones;
- a file that Lance wrote has stale values in rows that were changed since they were made, unless it is one of those of
  which the field's metadata say that none is. They are named there before anything but an update moves the versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from ..lance import Fragment, FragmentReader, LanceTable
from .definitions import Definition
from .provenance import keeps_stale, provenance_of, token_of
from .targets import has_value

FRESH_FILES: Final = "virtual_column.fresh_files"
"""The entry of a field's metadata with the tokens of files that Lance wrote, in which no value is stale."""

_CHANGED: Final = "_row_last_updated_at_version > _row_created_at_version"


def stale_condition(reader: FragmentReader, columns: Sequence[str], fragment: Fragment) -> str | None:
    """The condition on the stale rows of a fragment, whose ``columns`` one function fills; None where none is.

    Where a backfill has filled some rows of a fragment and kept stale ones, all that have a value count as stale; and
    so they do where row ids are not stable, so that versions of rows are not known.
    """
    files = set(fragment.files_of(columns)) - {""}
    if not files:
        return None
    if any(keeps_stale(file) for file in files):
        return has_value(columns)
    written = {token_of(file) for file in files if provenance_of(file) is None}
    if written <= fresh_tokens(reader.schema, columns):
        return None
    return f"{_CHANGED} AND ({has_value(columns)})" if reader.has_stable_ids else has_value(columns)


def stale_rows(reader: FragmentReader, columns: Sequence[str], fragments: Sequence[Fragment]) -> list[int]:
    """The numbers of stale rows of fragments."""
    conditions = {one.id: stale_condition(reader, columns, one) for one in fragments}
    asked = [one for one in fragments if (condition := conditions[one.id]) and condition.startswith(_CHANGED)]
    for one, changed in zip(asked, reader.counts(asked, [_CHANGED] * len(asked)), strict=True):
        if not changed:  # known without a look at the values
            conditions[one.id] = None
    asked = [one for one in fragments if conditions[one.id] is not None]
    found = dict(zip([one.id for one in asked], reader.counts(asked, [conditions[o.id] for o in asked]), strict=True))
    return [found.get(one.id, 0) for one in fragments]


def groups_of(schema: pa.Schema) -> list[tuple[str, ...]]:
    """The columns that functions fill, those of one function together."""
    found = {
        definition.columns_in(schema): None for field in schema if (definition := Definition.of(field)) is not None
    }
    return list(found)


def note_fresh(
    table: LanceTable,
    *,
    only: Collection[int] | None = None,
    but: Sequence[str] = (),
    made: Mapping[tuple[str, ...], Iterable[str]] | None = None,
) -> None:
    """Say of which files that Lance wrote no value is stale, before something moves the versions of their rows.

    ``only`` are the fragments of which that is asked, ``but`` the columns of which it is not, and ``made`` are such
    files that no version names yet, by the columns that they have.
    """
    reader = table.at()
    changes: dict[str, dict[str, str | None]] = {}
    for columns in groups_of(reader.schema):
        known = fresh_tokens(reader.schema, columns)
        new = {token_of(file) for file in (made or {}).get(columns, ())}
        there = set()
        for fragment in reader.fragments:
            written = {token_of(file) for file in fragment.files_of(columns) if file and provenance_of(file) is None}
            there |= written
            is_asked = columns != tuple(but) and (only is None or fragment.id in only)
            if is_asked and not written <= known and _is_fresh(reader, columns, fragment):
                new |= written
        if not new <= known:
            changes |= {column: {FRESH_FILES: " ".join(sorted(new | known & there))} for column in columns}
    if changes:
        table.describe(changes)


def fresh_tokens(schema: pa.Schema, columns: Sequence[str]) -> set[str]:
    """The tokens of files of columns, written by Lance, in which no value is stale."""
    said = [(schema.field(column).metadata or {}).get(FRESH_FILES.encode(), b"") for column in columns]
    return set.intersection(*(set(one.decode().split()) for one in said))


def _is_fresh(reader: FragmentReader, columns: Sequence[str], fragment: Fragment) -> bool:
    """Whether a fragment has values, and none is stale. Of one without any, nothing need be said."""
    condition = stale_condition(reader, columns, fragment)
    if condition is None or not reader.count(fragment, has_value(columns)):
        return False
    return not reader.count(fragment, condition)
