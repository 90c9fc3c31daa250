"""Definitions of views (query, source and version), and the changes of rows for a newer version.

A view is a table with ``__source_row_id`` (the id of the source row), ``__is_set`` (whether the row has its values),
and the query's columns. Columns of functions have definitions as computed columns do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import ReadError, UsageError
from ..lance import IS_SET, SOURCE_ROW, Fragment, FragmentReader, LanceTable, by_fragment, row_changes, source_rows
from ..locations import Location, located
from .checkpoints import Offsets
from .digests import token_of
from .function import UDF
from .search import TableQuery, inputs_of
from .targets import Definition, FunctionColumns, metadata_of, quoted

_QUERY: Final = "chunkmill:view:query"
_BASE: Final = "chunkmill:view:base"
_STATE: Final = "chunkmill:view:state"
_MOVING: Final = ("_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version")
"""Lance's columns whose values change in a compaction, or in any write."""
_KEPT: Final = (b"lance-encoding:", b"ARROW:extension:")
"""Prefixes of metadata keys that define how to read a field's values."""


@dataclass(frozen=True)
class ViewState:
    """The source version of a view's rows, and the tokens of the functions that computed them, by column.

    ``identity`` distinguishes the version from another one with the same number. ``rows`` is the number of the view's
    rows at that time: if it has another number, others changed it.
    """

    version: int
    identity: str
    functions: Mapping[str, str]
    rows: int | None = None


@dataclass(frozen=True)
class ViewDefinition:
    """A view: its columns by name, as SQL over the source's columns, or None for a function's column.

    ``source`` is the place of the source. ``version`` is the source's version when the view was created. ``state`` is
    None before the first refresh.
    """

    columns: Mapping[str, str | None]
    condition: str | None
    most: int | None
    skipped: int
    source: str
    source_name: str
    version: int
    is_stable: bool
    state: ViewState | None = None

    @classmethod
    def of(cls, schema: pa.Schema) -> ViewDefinition | None:
        """Return the definition in the metadata of a table's schema, or None if the table is not a view.

        Raises ``ReadError`` if the metadata is not a definition.
        """
        metadata = schema.metadata or {}
        if _QUERY.encode() not in metadata:
            return None
        try:
            query, base = (json.loads(metadata[key.encode()]) for key in (_QUERY, _BASE))
            state = json.loads(metadata.get(_STATE.encode(), b"null"))
            columns = {str(name): sql if sql is None else str(sql) for name, sql in query.pop("columns").items()}
            return cls(columns, **query, **base, state=None if state is None else ViewState(**state))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ReadError(
                f"the definition of the view is damaged: {error!r}", hint="Drop the view, and create it again."
            ) from None

    def metadata(self) -> dict[str, str]:
        """Return the schema metadata of the definition."""
        query = {"columns": self.columns, "condition": self.condition, "most": self.most, "skipped": self.skipped}
        base = {name: getattr(self, name) for name in ("source", "source_name", "version", "is_stable")}
        return {
            _QUERY: json.dumps(query),
            _BASE: json.dumps(base),
            **({} if self.state is None else self.state_metadata(self.state)),
        }

    @staticmethod
    def state_metadata(state: ViewState) -> dict[str, str]:
        """Return the schema metadata with the source version of the rows."""
        return {_STATE: json.dumps(vars(state))}

    @property
    def is_cut(self) -> bool:
        """Return whether the view has a limit or an offset. Then each row depends on earlier rows."""
        return self.most is not None or self.skipped > 0

    @property
    def expressions(self) -> dict[str, str]:
        """The columns that are defined by SQL."""
        return {name: sql for name, sql in self.columns.items() if sql is not None}

    def functions(self, schema: pa.Schema) -> dict[str, Definition]:
        """Return the definitions of the functions' columns in the view's schema."""
        definitions = {name: Definition.of(schema.field(name)) for name, sql in self.columns.items() if sql is None}
        return {name: definition for name, definition in definitions.items() if definition is not None}

    def source_table(self, view: LanceTable) -> LanceTable:
        """Return the source.

        A source that was created next to the view is expected there. Raises ``ForeignFileError`` if the view may not
        read it.
        """
        own = located(view.place)
        place = own.parent / self.source if _is_name(self.source) else located(self.source)
        view.gate.check_source(place, own, view.label)
        return LanceTable(place, self.source_name, view.gate)

    def needs(self, source: pa.Schema, functions: Iterable[tuple[str, ...]]) -> list[str]:
        """Return the source columns that the view may use."""
        text = " ".join([*self.expressions.values(), self.condition or ""]).lower()
        inputs = {name for columns in functions for name in columns}
        return [name for name in source.names if name in inputs or name.lower() in text]


def view_of(query: TableQuery, place: Location, name: str) -> tuple[ViewDefinition, pa.Schema, dict[str, UDF]]:
    """Return the definition of a view at a place, its columns, and their functions. Raises ``UsageError``."""
    if query.is_ranked or query.has_row_id:
        raise UsageError("a view cannot have rankings or row ids of its source")
    reader = query.table.at()
    given = query.columns or {
        column: quoted(column) for column in reader.schema.names if column not in (SOURCE_ROW, IS_SET)
    }
    if taken := [column for column in given if column in (SOURCE_ROW, IS_SET)]:
        raise UsageError(f"{taken} are reserved columns of views", hint="Give the query's columns other names.")
    functions = {column: udf for column, udf in given.items() if isinstance(udf, UDF)}
    columns = {column: sql if isinstance(sql, str) else None for column, sql in given.items()}
    source = located(query.table.place)
    definition = ViewDefinition(
        columns,
        query.condition,
        query.most,
        query.skipped,
        source.name if str(source.parent) == str(place.parent) else str(source),
        query.table.label,
        reader.version,
        reader.has_stable_ids,
    )
    if str(source) == str(place):
        raise UsageError(f"{name!r} cannot be a view of itself")
    text = " ".join([*definition.expressions.values(), definition.condition or ""])
    if moving := [word for word in _MOVING if re.search(rf"\b{word}\b", text)]:
        raise UsageError(f"a view cannot select {moving}: they change even if the rows do not")
    inputs_of(functions.values(), reader.schema)
    expressed = reader.expressed_schema(definition.expressions)
    fields = [pa.field(SOURCE_ROW, pa.int64()), pa.field(IS_SET, pa.bool_())]
    for column, udf in given.items():
        if isinstance(udf, UDF):
            if udf.outputs is not None:
                raise UsageError(
                    f"column {column!r}: UDF {udf.name!r} returns several columns, but a view's function must return "
                    "one",
                    hint="Let the function return one of them, or add them to the source.",
                )
            metadata: Mapping[Any, Any] = {**udf.field_metadata, **metadata_of(udf)}
            fields.append(pa.field(column, udf.data_type, metadata=metadata))
        else:
            metadata = {k: v for k, v in (expressed.field(column).metadata or {}).items() if k.startswith(_KEPT)}
            fields.append(pa.field(column, expressed.field(column).type, metadata=metadata or None))
    return definition, pa.schema(fields, definition.metadata()), functions


def _is_name(place: str) -> bool:
    return PurePosixPath(place).name == place


def sources_of(table: LanceTable) -> dict[str, pa.Schema]:
    """Return the schema of a view's source for each computed column; empty if the table is not a view."""
    schema = table.at().schema
    definition = ViewDefinition.of(schema)
    if definition is None:
        return {}
    source = definition.source_table(table).at().schema
    return dict.fromkeys(definition.functions(schema), source)


def check_own(table: LanceTable, columns: Sequence[str]) -> None:
    """Raise ``UsageError`` for columns of a view's query, and for those that every view has."""
    definition = ViewDefinition.of(table.at().schema)
    all_ = () if definition is None else (SOURCE_ROW, IS_SET, *definition.columns)
    if held := [column for column in columns if column in all_]:
        raise UsageError(
            f"{held} are columns of the view {table.label!r}, which only a refresh changes",
            hint="Create another view with another query.",
        )


def check_rows(table: LanceTable) -> None:
    """Raise ``UsageError`` for a view: only its refreshes change its rows."""
    if ViewDefinition.of(table.at().schema) is not None:
        raise UsageError(
            f"only a refresh changes the rows of the view {table.label!r}",
            hint="Change the rows of the source, and refresh the view.",
        )


RowNumbers = npt.NDArray[np.uint64]
"""Ids of rows, or their addresses."""


@dataclass(frozen=True)
class ComingRows:
    """New rows from a source fragment: those at the offsets ``only``; None: all in which the condition is true."""

    fragment: Fragment
    only: Offsets | None
    rows: int


@dataclass(frozen=True)
class ViewChange:
    """A change of a view: the addresses of its rows and of the rows to remove, and the new rows."""

    state: ViewState
    live: RowNumbers
    going: RowNumbers
    coming: tuple[ComingRows, ...]

    @property
    def rows(self) -> int:
        """Return the number of new rows."""
        return sum(entry.rows for entry in self.coming)


def change_of(
    reader: FragmentReader,
    definition: ViewDefinition,
    functions: Sequence[FunctionColumns],
    before: FragmentReader | None,
    after: FragmentReader,
) -> ViewChange:
    """Return the change that brings the view to a version of its source.

    ``before`` is the source version of the view's rows; None: all rows are recomputed. Raises ``UsageError`` if the
    source no longer has the view's columns.
    """
    inputs = (quoted(name) for target in functions for name in target.inputs)
    try:
        after.check([*definition.expressions.values(), *inputs], definition.condition)
    except UsageError as error:
        raise UsageError(
            f"{definition.source_name!r} no longer has the view's columns: {error.message}",
            hint="Add these columns to the source, or create another view.",
        ) from None
    ids, places = source_rows(reader)

    def made(going: RowNumbers, coming: tuple[ComingRows, ...]) -> ViewChange:
        rows = len(places) - len(going) + sum(entry.rows for entry in coming)
        return ViewChange(
            ViewState(after.version, identity_of(after), tokens_of(functions), rows), places, going, coming
        )

    matching = None
    if definition.is_cut:
        matching = _matching(after, definition)
    if before is None:
        coming = _whole(after, definition.condition) if matching is None else _at(after, matching[1])
        return made(places, coming)
    needed = definition.needs(after.schema, [target.inputs for target in functions])
    changes = row_changes(before, after, needed)
    renewed = np.concatenate([changes.changed, changes.new])
    if matching is None:
        is_going = np.isin(ids, np.concatenate([changes.gone, renewed]))
        return made(places[is_going], _of(after, changes.places, definition.condition))
    is_going = ~np.isin(ids, matching[0]) | np.isin(ids, renewed)
    is_coming = ~np.isin(matching[0], ids[~is_going])
    return made(places[is_going], _at(after, matching[1][is_coming]))


def placeholders(reader: FragmentReader, definition: ViewDefinition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Return a view's rows without values, one for each row of the query. Raises ``UsageError`` at once."""
    batches = reader.expressed({"id": "_rowid"}, definition.condition, limit=definition.most, offset=definition.skipped)
    first = next(batches, None)
    return (_placeholders(batch, schema) for batch in (() if first is None else chain([first], batches)))


def _placeholders(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    rows = batch.num_rows
    own = [batch.column("id").cast(pa.int64()), pa.repeat(pa.scalar(value=False), rows)]
    nulls = [pa.nulls(rows, field.type) for field in schema][len(own) :]
    return pa.RecordBatch.from_arrays([*own, *nulls], schema=schema)


def identity_of(reader: FragmentReader) -> str:
    """Return a token of a table's version. A later table at the same place has no version with this token."""
    return token_of(
        [[fragment.id, sorted(set(fragment.files.values())), fragment.deletions] for fragment in reader.fragments]
    )


def tokens_of(functions: Sequence[FunctionColumns]) -> dict[str, str]:
    """Return the tokens of the columns' functions."""
    return {target.name: token_of(target.token, str(target.fields[0].type)) for target in functions}


def _matching(after: FragmentReader, definition: ViewDefinition) -> tuple[RowNumbers, RowNumbers]:
    """Return the ids and the addresses of the source rows for a view with a limit or an offset."""
    names = {"id": "_rowid", "at": "_rowaddr"}
    batches = after.expressed(names, definition.condition, limit=definition.most, offset=definition.skipped)
    arrays = [np.array([batch.column(name).to_numpy() for name in names]) for batch in batches]
    ids, places = np.concatenate([np.empty((2, 0), np.uint64), *arrays], axis=1)
    return ids, places


def _whole(after: FragmentReader, where: str | None) -> tuple[ComingRows, ...]:
    counts = after.counts(after.fragments, [where] * len(after.fragments))
    return tuple(
        ComingRows(fragment, None, rows) for fragment, rows in zip(after.fragments, counts, strict=True) if rows
    )


def _at(after: FragmentReader, places: RowNumbers) -> tuple[ComingRows, ...]:
    return _of(after, by_fragment(places), None)


def _of(after: FragmentReader, places: Mapping[int, Offsets], where: str | None) -> tuple[ComingRows, ...]:
    """Return the rows at some offsets that match a condition."""
    if where is not None and places:
        batches = after.expressed({"at": "_rowaddr"}, where, fragments=sorted(places))
        matches = by_fragment(
            np.concatenate([np.empty(0, np.uint64), *(batch.column("at").to_numpy() for batch in batches)])
        )
        none = np.empty(0, np.uint32)
        places = {id_: np.intersect1d(own, matches.get(id_, none), assume_unique=True) for id_, own in places.items()}
    coming = []
    for id_, offsets in sorted(places.items()):
        fragment = after.by_id[id_]
        if len(offsets):
            is_all = len(offsets) == fragment.rows - fragment.deleted
            coming.append(ComingRows(fragment, None if is_all else offsets, len(offsets)))
    return tuple(coming)
