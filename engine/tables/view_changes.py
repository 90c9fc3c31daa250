"""Changes that bring a view to a version of its source: rows of the view that go, rows of the source that come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import UsageError
from ..lance import Fragment, FragmentReader, by_fragment, row_changes, source_rows
from .checkpoints import Offsets
from .provenance import token_of
from .targets import FunctionColumns, quoted
from .view_definition import ViewDefinition, ViewState

RowNumbers = npt.NDArray[np.uint64]
"""Ids of rows, or their addresses."""


@dataclass(frozen=True)
class ComingRows:
    """Rows of a fragment of the source: those at the offsets ``only``; None: all in which the condition is true."""

    fragment: Fragment
    only: Offsets | None
    rows: int


@dataclass(frozen=True)
class ViewChange:
    """A change of a view: the addresses of its rows, of those among them that go, and the rows that come."""

    state: ViewState
    live: RowNumbers
    going: RowNumbers
    coming: tuple[ComingRows, ...]

    @property
    def rows(self) -> int:
        """The number of rows that come."""
        return sum(one.rows for one in self.coming)


def change_of(
    reader: FragmentReader,
    definition: ViewDefinition,
    functions: Sequence[FunctionColumns],
    before: FragmentReader | None,
    after: FragmentReader,
) -> ViewChange:
    """The change that brings a version of the view to a version of its source.

    ``before`` is the version of which its rows are; None where it is to be made anew. Raises ``UsageError`` where the
    source has no longer what is asked for.
    """
    inputs = (quoted(name) for one in functions for name in one.inputs)
    try:
        after.check([*definition.expressions.values(), *inputs], definition.condition)
    except UsageError as error:
        raise UsageError(
            f"{definition.source_name!r} has no longer what the view asks for: {error.message}",
            hint="Add such columns to it, or make another view.",
        ) from None
    ids, places = source_rows(reader)

    def made(going: RowNumbers, coming: tuple[ComingRows, ...]) -> ViewChange:
        rows = len(places) - len(going) + sum(one.rows for one in coming)
        return ViewChange(
            ViewState(after.version, identity_of(after), tokens_of(functions), rows), places, going, coming
        )

    matching = None
    if definition.is_cut:
        matching = _matching(after, definition)
    if before is None:
        coming = _whole(after, definition.condition) if matching is None else _at(after, matching[1])
        return made(places, coming)
    needed = definition.needs(after.schema, [one.inputs for one in functions])
    changes = row_changes(before, after, needed)
    renewed = np.concatenate([changes.changed, changes.new])
    if matching is None:
        is_going = np.isin(ids, np.concatenate([changes.gone, renewed]))
        return made(places[is_going], _of(after, changes.places, definition.condition))
    is_going = ~np.isin(ids, matching[0]) | np.isin(ids, renewed)
    is_coming = ~np.isin(matching[0], ids[~is_going])
    return made(places[is_going], _at(after, matching[1][is_coming]))


def placeholders(reader: FragmentReader, definition: ViewDefinition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a view that has no values yet: one for each that is asked for. Raises ``UsageError`` at once."""
    found = reader.expressed({"id": "_rowid"}, definition.condition, limit=definition.most, offset=definition.skipped)
    first = next(found, None)
    return (_placeholders(batch, schema) for batch in (() if first is None else chain([first], found)))


def _placeholders(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    rows = batch.num_rows
    own = [batch.column("id").cast(pa.int64()), pa.repeat(pa.scalar(value=False), rows)]
    nulls = [pa.nulls(rows, field.type) for field in schema][len(own) :]
    return pa.RecordBatch.from_arrays([*own, *nulls], schema=schema)


def identity_of(reader: FragmentReader) -> str:
    """A token of a version of a table: a table that has its place later has no version of that token."""
    return token_of([[one.id, sorted(set(one.files.values())), one.deletions] for one in reader.fragments])


def tokens_of(functions: Sequence[FunctionColumns]) -> dict[str, str]:
    """The tokens of the functions of columns."""
    return {one.name: token_of(one.token, str(one.fields[0].type)) for one in functions}


def _matching(after: FragmentReader, definition: ViewDefinition) -> tuple[RowNumbers, RowNumbers]:
    """The ids and the addresses of the rows that a view has, where they are counted."""
    names = {"id": "_rowid", "at": "_rowaddr"}
    batches = after.expressed(names, definition.condition, limit=definition.most, offset=definition.skipped)
    found = [np.array([batch.column(name).to_numpy() for name in names]) for batch in batches]
    ids, places = np.concatenate([np.empty((2, 0), np.uint64), *found], axis=1)
    return ids, places


def _whole(after: FragmentReader, where: str | None) -> tuple[ComingRows, ...]:
    counts = after.counts(after.fragments, [where] * len(after.fragments))
    return tuple(ComingRows(one, None, rows) for one, rows in zip(after.fragments, counts, strict=True) if rows)


def _at(after: FragmentReader, places: RowNumbers) -> tuple[ComingRows, ...]:
    return _of(after, by_fragment(places), None)


def _of(after: FragmentReader, places: Mapping[int, Offsets], where: str | None) -> tuple[ComingRows, ...]:
    """The rows at some offsets in which a condition is true."""
    if where is not None and places:
        batches = after.expressed({"at": "_rowaddr"}, where, fragments=sorted(places))
        found = by_fragment(np.concatenate([np.empty(0, np.uint64), *(one.column("at").to_numpy() for one in batches)]))
        none = np.empty(0, np.uint32)
        places = {id_: np.intersect1d(own, found.get(id_, none), assume_unique=True) for id_, own in places.items()}
    coming = []
    for id_, offsets in sorted(places.items()):
        fragment = after.by_id[id_]
        if len(offsets):
            is_all = len(offsets) == fragment.rows - fragment.deleted
            coming.append(ComingRows(fragment, None if is_all else offsets, len(offsets)))
    return tuple(coming)
