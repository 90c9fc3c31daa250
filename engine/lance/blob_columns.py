"""Columns of blobs, which Lance keeps beside the rows, and gives as descriptions unless it is asked for their bytes."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_MARK: Final = b"lance-encoding:blob"
_TYPE: Final = "lance.blob.v2"
_NAME_OF_TYPE: Final = b"ARROW:extension:name"


def is_blob(field: pa.Field) -> bool:
    """Whether a column is one of blobs."""
    if isinstance(field.type, pa.BaseExtensionType) and field.type.extension_name == _TYPE:
        return True
    metadata = field.metadata or {}
    return metadata.get(_MARK) == b"true" or metadata.get(_NAME_OF_TYPE) == _TYPE.encode()


def blobs_as_bytes(schema: pa.Schema) -> pa.Schema:
    """A schema whose columns of blobs are of the type that their bytes are read as; the metadata say what they are."""
    fields = [
        pa.field(field.name, pa.large_binary(), field.nullable, {**(field.metadata or {}), _MARK: b"true"})
        if is_blob(field)
        else field
        for field in schema
    ]
    return pa.schema(fields, schema.metadata)
