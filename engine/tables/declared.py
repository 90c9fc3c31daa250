"""The function that fields' metadata name, of values in files without a provenance, as a compaction leaves them.

It is said before the first commit of a run, so that a run that is cut leaves nothing behind that is not so: until all
values are known to be of one function, they are said to be of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from ..lance import LanceTable
from .definitions import Definition
from .planning import SelectedFragment
from .provenance import COMPUTED_BY, SEVERAL
from .staleness import note_fresh
from .targets import OTHER_FUNCTION, FilledColumns, FunctionColumns


def declare(table: LanceTable, target: FilledColumns, selected: Sequence[SelectedFragment]) -> bool:
    """Say what is so from now on, as these fragments get values; gives whether they are of several functions then.

    So are the values of columns that are computed of these, in the same fragments: once they are in other files, nobody
    could tell which of them are out of date.
    """
    schema = table.at().schema
    changes: dict[str, dict[str, str | None]] = {}
    is_mixed = False
    if isinstance(target, FunctionColumns):
        said = {_said_of(schema, column) for column in target.columns}
        is_mixed = not said <= {None, target.token}
        wanted = SEVERAL if is_mixed else target.token
        if said != {wanted}:
            changes |= {column: {COMPUTED_BY: wanted} for column in target.columns}
    for field in schema:
        definition = Definition.of(field)
        if definition is None or not set(definition.inputs_of(schema)) & set(target.columns):
            continue
        if _said_of(schema, field.name) not in (None, SEVERAL) and any(
            one.fragment.files.get(field.name) for one in selected
        ):
            changes[field.name] = {COMPUTED_BY: SEVERAL}
    if changes:
        table.describe(changes)
    note_fresh(table, only={one.fragment.id for one in selected}, but=target.columns)
    return is_mixed


def settle(table: LanceTable, target: FilledColumns) -> None:
    """Say that all values are of one function, if they are."""
    reader = table.at()
    if not isinstance(target, FunctionColumns) or not set(target.columns) <= set(reader.schema.names):
        return
    said = {_said_of(reader.schema, column) for column in target.columns}
    if said <= {None, target.token}:
        return
    now = replace(target, fields=tuple(reader.schema.field(column) for column in target.columns))
    if all(now.state_of(fragment) != OTHER_FUNCTION for fragment in reader.fragments):
        table.describe({column: {COMPUTED_BY: target.token} for column in target.columns})


def _said_of(schema: pa.Schema, column: str) -> str | None:
    """The token that is said of a column; None where none is."""
    if column not in schema.names:
        return None
    said = (schema.field(column).metadata or {}).get(COMPUTED_BY.encode())
    return None if said is None else said.decode()
