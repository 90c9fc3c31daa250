"""Columns that a table is made with, or that take the place of others: which there can be, and which are its key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from ..errors import UsageError, WriteError
from ..limits import MAX_SCHEMA_FIELDS
from .faults import shortened

INDEX: Final = b"rerun:is_table_index"
"""Metadata of the fields that are the key of a table."""
PRIMARY_KEY: Final = b"lance-schema:unenforced-primary-key"
"""Metadata of the fields that are Lance's own key of a table."""

UNNAMEABLE: Final = frozenset("`\0")
"""What no name of a column has: the first ends it in SQL, and Arrow's schemas of C end at the second."""


def keys_of(schema: pa.Schema) -> list[str]:
    """The names of the fields that are the key of a table."""
    return [field.name for field in schema if (field.metadata or {}).get(INDEX, b"").lower() == b"true"]


def columns_to_write(schema: pa.Schema, table: str) -> pa.Schema:
    """The schema that Lance is given: with its key as Lance's, which may not be null.

    Raises ``UsageError`` where there are too many, SQL or Lance could not name a column of the ``table``, Arrow could
    not read it back, as one that says that it is of another type, or a name, a time zone or metadata are no UTF-8.
    """
    _check(schema, table)
    keys = keys_of(schema)
    fields = [_without(field, PRIMARY_KEY) for field in schema]
    if keys and not any(schema.field(key).nullable for key in keys):
        fields = [
            field.with_metadata({**field.metadata, PRIMARY_KEY: b"true"}) if field.name in keys else field
            for field in fields
        ]
    return pa.schema(fields, schema.metadata)


@contextmanager
def refused_columns(table: str) -> Iterator[None]:
    """A block in which Lance may refuse the columns of a ``table``, which raises ``UsageError``."""
    try:
        yield
    except WriteError as error:
        said = "" if error.__cause__ is None else shortened(error.__cause__)
        if "LanceError(Schema)" not in said and "reserved name" not in said:
            raise
        raise UsageError(f"{table} cannot have these columns: {said.removeprefix('LanceError(Schema): ')}") from None


def _without(field: pa.Field, key: bytes) -> pa.Field:
    metadata = {name: value for name, value in (field.metadata or {}).items() if name != key}
    return field.with_metadata(metadata or None)


def _check(schema: pa.Schema, table: str) -> None:
    count = len(schema)
    if count <= MAX_SCHEMA_FIELDS:
        count = sum(1 for field in schema for _ in _with_inner(field))
    if count > MAX_SCHEMA_FIELDS:
        wrong = f"{table} cannot have {count:,} columns: MAX_SCHEMA_FIELDS is {MAX_SCHEMA_FIELDS:,}"
        raise UsageError(wrong, hint="Put values of one kind into a column of lists, or of maps.")
    try:
        for text in _texts_in(schema):
            text.decode()
        named = [one.name for field in schema for one in _with_inner(field)]
    except UnicodeDecodeError as error:
        wrong = f"{table} cannot have the name, time zone or metadata {error.object[:60]!r}, which are no UTF-8"
        raise UsageError(wrong, hint="Encode bytes in metadata as base64.") from None
    odd = next((n for n in schema.names if not n or set(n) & UNNAMEABLE), next((n for n in named if "\0" in n), None))
    if odd is not None:
        raise UsageError(f"{table} cannot have a column called {odd!r}: SQL could not name it")
    dotted = next((name for name in schema.names if "." in name), None)
    if dotted is not None:
        hint = "Take other names, as rename_columns of a pyarrow Table gives them."
        raise UsageError(f"{table} cannot have a column called {dotted!r}: names cannot contain `.`", hint=hint)
    union = next((f for field in schema for f in _with_inner(field) if pa.types.is_union(f.type)), None)
    if union is not None:
        raise UsageError(f"{table} cannot have the column {union.name!r}: Lance has no {union.type}")
    for field in schema:
        try:
            pa.ipc.read_schema(pa.schema([field]).serialize())
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise UsageError(
                f"{table} cannot have the column {field.name!r}, which could not be read back: {shortened(error)}",
                hint="Mend or leave out what its metadata says of its type, under ARROW:extension:name and :metadata.",
            ) from None


def _texts_in(schema: pa.Schema) -> Iterator[bytes]:
    """Time zones and metadata, at every depth. Raises ``UnicodeDecodeError`` where pyarrow decodes one by itself."""
    for key, value in (schema.metadata or {}).items():
        yield key
        yield value
    for field in schema:
        for one in _with_inner(field):
            for key, value in (one.metadata or {}).items():
                yield key
                yield value
            if pa.types.is_timestamp(one.type):
                yield (one.type.tz or "").encode()


def _with_inner(field: pa.Field) -> Iterator[pa.Field]:
    yield field
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if isinstance(kind, pa.DictionaryType):
        yield from _with_inner(pa.field("values", kind.value_type))
    for number in range(kind.num_fields):
        yield from _with_inner(kind.field(number))
