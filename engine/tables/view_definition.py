"""Definitions of views: what is asked of which table, and of which version of it the rows are; kept with the schema.

A view is a table of rows ``__source_row_id``, the id of the row of the source, ``__is_set``, whether it has its values,
and the columns that were asked for. Those of functions have their definitions as computed columns do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow as pa

from ..errors import ReadError, UsageError
from ..lance import IS_SET, SOURCE_ROW, LanceTable
from ..locations import Location, located
from .asked_columns import inputs_of
from .definitions import Definition, metadata_of
from .functions import UDF
from .search import TableQuery
from .targets import quoted

_QUERY: Final = "chunkmill:view:query"
_BASE: Final = "chunkmill:view:base"
_STATE: Final = "chunkmill:view:state"
_MOVING: Final = ("_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version")
"""Columns of Lance whose values a compaction changes, or any write."""
_KEPT: Final = (b"lance-encoding:", b"ARROW:extension:")
"""The beginnings of those entries of a field's metadata that say how its values are to be read."""


@dataclass(frozen=True)
class ViewState:
    """The version of the source of which a view's rows are, what tells it from another of that number,

    and the tokens of the functions that gave the values, by their columns. ``rows`` are those that the view had then:
    if it has others by now, somebody else changed it.
    """

    version: int
    identity: str
    functions: Mapping[str, str]
    rows: int | None = None


@dataclass(frozen=True)
class ViewDefinition:
    """A view: its columns by name, as SQL over those of the source (None: a function's), and where that lies.

    ``version`` is the source's when the view was made, ``state`` None as long as it was not refreshed.
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
        """The definition in the metadata of a table's schema; None where the table is no view.

        Raises ``ReadError`` where they are not what a definition is.
        """
        metadata = schema.metadata or {}
        if _QUERY.encode() not in metadata:
            return None
        try:
            query, base = (json.loads(metadata[key.encode()]) for key in (_QUERY, _BASE))
            state = json.loads(metadata.get(_STATE.encode(), b"null"))
            columns = {str(name): one if one is None else str(one) for name, one in query.pop("columns").items()}
            return cls(columns, **query, **base, state=None if state is None else ViewState(**state))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ReadError(
                f"the definition of the view is damaged: {error!r}", hint="Drop the view, and make it again."
            ) from None

    def metadata(self) -> dict[str, str]:
        """The metadata that say so."""
        query = {"columns": self.columns, "condition": self.condition, "most": self.most, "skipped": self.skipped}
        base = {name: getattr(self, name) for name in ("source", "source_name", "version", "is_stable")}
        return {
            _QUERY: json.dumps(query),
            _BASE: json.dumps(base),
            **({} if self.state is None else self.state_metadata(self.state)),
        }

    @staticmethod
    def state_metadata(state: ViewState) -> dict[str, str]:
        """The metadata that say of which version the rows are."""
        return {_STATE: json.dumps(vars(state))}

    @property
    def is_cut(self) -> bool:
        """Whether rows are counted, so that each depends on those before it."""
        return self.most is not None or self.skipped > 0

    @property
    def expressions(self) -> dict[str, str]:
        """The columns that SQL gives."""
        return {name: one for name, one in self.columns.items() if one is not None}

    def functions(self, schema: pa.Schema) -> dict[str, Definition]:
        """The definitions of the columns of functions, as the view's schema has them."""
        found = {name: Definition.of(schema.field(name)) for name, one in self.columns.items() if one is None}
        return {name: one for name, one in found.items() if one is not None}

    def source_table(self, view: LanceTable) -> LanceTable:
        """The source; one that lay beside the view is looked for there.

        Raises ``ForeignFileError`` where the view's gate does not let it pass.
        """
        own = located(view.place)
        place = own.parent / self.source if _is_name(self.source) else located(self.source)
        view.gate.check_source(place, own, view.label)
        return LanceTable(place, self.source_name, view.gate)

    def needs(self, source: pa.Schema, functions: Iterable[tuple[str, ...]]) -> list[str]:
        """The columns of the source of which something in the view is made, as far as one can tell."""
        told = " ".join([*self.expressions.values(), self.condition or ""]).lower()
        inputs = {name for one in functions for name in one}
        return [name for name in source.names if name in inputs or name.lower() in told]


def view_of(query: TableQuery, place: Location, name: str) -> tuple[ViewDefinition, pa.Schema, dict[str, UDF]]:
    """The definition of a view at a place, its columns, and the functions of some. Raises ``UsageError``."""
    if query.is_ranked or query.has_row_id:
        raise UsageError("a view has rows of its source, and neither rankings nor their ids")
    reader = query.table.at()
    given = query.columns or {one: quoted(one) for one in reader.schema.names if one not in (SOURCE_ROW, IS_SET)}
    if taken := [one for one in given if one in (SOURCE_ROW, IS_SET)]:
        raise UsageError(f"{taken} are columns that every view has", hint="Give those of the query other names.")
    functions = {one: udf for one, udf in given.items() if isinstance(udf, UDF)}
    columns = {one: sql if isinstance(sql, str) else None for one, sql in given.items()}
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
    told = " ".join([*definition.expressions.values(), definition.condition or ""])
    if moving := [one for one in _MOVING if re.search(rf"\b{one}\b", told)]:
        raise UsageError(f"a view cannot ask for {moving}: they change though the rows do not")
    inputs_of(functions.values(), reader.schema)
    expressed = reader.expressed_schema(definition.expressions)
    fields = [pa.field(SOURCE_ROW, pa.int64()), pa.field(IS_SET, pa.bool_())]
    for one, udf in given.items():
        if isinstance(udf, UDF):
            if udf.outputs is not None:
                raise UsageError(
                    f"column {one!r}: UDF {udf.name!r} gives several columns, and a view's gives one",
                    hint="Let the function return one of them, or add them to the source.",
                )
            metadata: Mapping[Any, Any] = {**udf.field_metadata, **metadata_of(udf)}
            fields.append(pa.field(one, udf.data_type, metadata=metadata))
        else:
            metadata = {k: v for k, v in (expressed.field(one).metadata or {}).items() if k.startswith(_KEPT)}
            fields.append(pa.field(one, expressed.field(one).type, metadata=metadata or None))
    return definition, pa.schema(fields, definition.metadata()), functions


def _is_name(place: str) -> bool:
    return PurePosixPath(place).name == place


def sources_of(table: LanceTable) -> dict[str, pa.Schema]:
    """The schema of the source of a view, for each column that a function makes of it; none for another table."""
    schema = table.at().schema
    definition = ViewDefinition.of(schema)
    if definition is None:
        return {}
    source = definition.source_table(table).at().schema
    return dict.fromkeys(definition.functions(schema), source)


def check_own(table: LanceTable, columns: Sequence[str]) -> None:
    """Raise ``UsageError`` for columns that the query of a view asks for, or that every view has."""
    definition = ViewDefinition.of(table.at().schema)
    all_ = () if definition is None else (SOURCE_ROW, IS_SET, *definition.columns)
    if held := [one for one in columns if one in all_]:
        raise UsageError(
            f"{held} are columns of the view {table.label!r}, and made by its refreshes alone",
            hint="Make another view, of another query.",
        )


def check_rows(table: LanceTable) -> None:
    """Raise ``UsageError`` for a view, whose rows come and go by its refreshes alone."""
    if ViewDefinition.of(table.at().schema) is not None:
        raise UsageError(
            f"the rows of the view {table.label!r} are made by its refreshes alone",
            hint="Change those of its source, and refresh it.",
        )
