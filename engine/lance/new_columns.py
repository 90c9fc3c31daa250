"""Columns that a table is made with, or that take the place of others: which there can be, and which are its key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from ..errors import UsageError
from .place import shortened
from .snapshot import PRIMARY_KEY

INDEX: Final = b"rerun:is_table_index"
"""Metadata of the fields that are the key of a table."""


def keys_of(schema: pa.Schema) -> list[str]:
    """The names of the fields that are the key of a table."""
    return [field.name for field in schema if (field.metadata or {}).get(INDEX, b"").lower() == b"true"]


def columns_to_write(schema: pa.Schema, table: str) -> pa.Schema:
    """The schema that Lance is given: with its key as Lance's, which may not be null.

    Raises ``UsageError`` where SQL could not name a column of the ``table``, Arrow could not read it back, as one that
    says that it is of another type, or a name, a time zone or metadata are no UTF-8.
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


def _without(field: pa.Field, key: bytes) -> pa.Field:
    metadata = {name: value for name, value in (field.metadata or {}).items() if name != key}
    return field.with_metadata(metadata or None)


def _check(schema: pa.Schema, table: str) -> None:
    try:
        for text in _bytes_in(schema):
            text.decode()
    except UnicodeDecodeError as error:
        wrong = f"{table} cannot have the name, time zone or metadata {error.object[:60]!r}, which are no UTF-8"
        raise UsageError(wrong, hint="Encode bytes in metadata as base64.") from None
    for field in schema:
        if not field.name or "`" in field.name:
            raise UsageError(f"{table} cannot have a column called {field.name!r}: SQL could not name it")
        try:
            pa.ipc.read_schema(pa.schema([field]).serialize())
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise UsageError(
                f"{table} cannot have the column {field.name!r}, which could not be read back: {shortened(error)}",
                hint="Mend or leave out what its metadata says of its type, under ARROW:extension:name and :metadata.",
            ) from None


def _bytes_in(schema: pa.Schema) -> Iterator[bytes]:
    """All texts in a schema. Raises ``UnicodeDecodeError`` for those that pyarrow decodes by itself."""
    for key, value in (schema.metadata or {}).items():
        yield key
        yield value
    for number in range(len(schema)):
        yield from _bytes_of(schema.field(number))


def _bytes_of(field: pa.Field) -> Iterator[bytes]:
    yield field.name.encode()
    for key, value in (field.metadata or {}).items():
        yield key
        yield value
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        yield (kind.tz or "").encode()
    for number in range(kind.num_fields):
        yield from _bytes_of(kind.field(number))
