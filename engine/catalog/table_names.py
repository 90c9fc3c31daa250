"""Names of tables in SQL: a table, one in a schema, or one in a schema of a catalog, with dots between."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ..errors import UsageError
from .entries import check_entry_name

DEFAULT_CATALOG: Final = "datafusion"
DEFAULT_SCHEMA: Final = "public"

_MOST_PARTS: Final = 3
_TOKEN: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[0-9]+|\S)")


class TableName(NamedTuple):
    """A name as SQL has it."""

    catalog: str
    schema: str
    table: str


def check_table_name(name: str) -> None:
    """Raise ``UsageError`` where ``name`` is none that a table may have: SQL says it without quotes.

    >>> check_table_name("created-table")
    Traceback (most recent call last):
    chunkmill.engine.errors.UsageError: Invalid table name. sql parser error: Unexpected token in identifier: -...
    """
    if isinstance(name, str):
        fault = _fault_of(name)
        if fault:
            raise UsageError(
                f"Invalid table name. sql parser error: {fault}",
                hint="A name is letters, digits and _, not beginning with a digit; up to two dots divide it into a "
                "catalog, a schema and a table.",
            )
    check_entry_name(name)


def _fault_of(name: str) -> str | None:
    if not name:
        return "Empty input when parsing identifier"
    wants_name = True
    for word in _TOKEN.findall(name):
        is_name = word[0].isalpha() or word[0] == "_"
        if is_name != wants_name or not (is_name or word == "."):
            return f"Unexpected token in identifier: {word}"
        wants_name = not wants_name
    if wants_name:
        return "Trailing period in identifier"
    if re.search(r"\s", name):
        return "Unexpected space in identifier"
    if name.count(".") >= _MOST_PARTS:
        return f"Unexpected token in identifier: {name.split('.')[_MOST_PARTS]}"
    return None


def parts_of(name: str) -> TableName:
    """The catalog, the schema and the table that a name means.

    >>> parts_of("fleet.drives")
    TableName(catalog='datafusion', schema='fleet', table='drives')
    """
    parts = name.split(".")[-_MOST_PARTS:]
    defaults = (DEFAULT_CATALOG, DEFAULT_SCHEMA, "")
    return TableName(*defaults[: _MOST_PARTS - len(parts)], *parts)
