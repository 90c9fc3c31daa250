"""Schemas of layers: files named by their content, and the union of a dataset's schemas.

::

    store/schemas/<digest>.arrow     an Arrow IPC schema: row ids, timelines, components with Rerun's metadata

A schema has the columns of :meth:`Schema.to_arrow`. Thousands of recordings of one robot share one file.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from ..chunk import Schema, rust_type_name, text_metadata
from ..errors import ReadError, SchemaConflictError, SourceMissingError, writing
from ..execution import Folder, LocalFolder, replace_file
from ..faults import reach
from ..storage import RESTORE


class _Store(Protocol):
    schemas: Folder


SUFFIX: Final = ".arrow"
"""The suffix of a schema file."""
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_ERRORS: Final = (OSError, pa.ArrowException, ValueError, TypeError)


class SchemaFiles:
    """The schemas of a store; each is read once."""

    def __init__(self, folder: _Store) -> None:
        self._folder = folder.schemas
        self._by_digest: dict[str, pa.Schema] = {}
        self._written: set[str] = set()
        self._last: tuple[pa.Schema | None, str] = (None, "")

    def put(self, schema: pa.Schema) -> str:
        """Store a schema durably, unless it exists; return its digest, 64 hexadecimal digits of SHA-256.

        A damaged file is rewritten. A schema stored by this object before is not checked again. Raises ``WriteError``.
        """
        last_schema, digest = self._last
        if last_schema is schema:
            return digest
        digest = self.remember(schema)
        name, data = digest + SUFFIX, bytes(schema.serialize())
        if digest not in self._written:
            with writing(self._folder.place(name)):
                if not self._is_there(name, data):
                    # Another writer may have been faster: only a damaged file is overwritten, in one step.
                    if not self._folder.create(name, data) and not self._is_there(name, data):
                        self._write_anew(name, data)
                    reach("schema.write", self._folder.place(name))
            self._written.add(digest)
        self._last = schema, digest
        return digest

    def _write_anew(self, name: str, data: bytes) -> None:
        if not isinstance(self._folder, LocalFolder):
            self._folder.put(name, data)
            return
        draft = f".{uuid.uuid4().hex}.draft"
        try:
            self._folder.put(draft, data)
            replace_file(self._folder.location / draft, self._folder.location / name)
        finally:
            self._folder.delete([draft])

    def _is_there(self, name: str, data: bytes) -> bool:
        try:
            return self._folder.get(name) == data
        except (FileNotFoundError, SourceMissingError):
            return False

    def remember(self, schema: pa.Schema) -> str:
        """Return the digest of a schema, and cache it for :meth:`get`, without writing it."""
        digest = hashlib.sha256(schema.serialize()).hexdigest()
        self._by_digest.setdefault(digest, schema)
        return digest

    def get(self, digest: str) -> pa.Schema:
        """Return the schema of a digest. Raises ``ReadError`` if it is missing or damaged."""
        schema = self._by_digest.get(digest)
        if schema is None:
            schema = self._by_digest[digest] = self._read(digest)
        return schema

    def union(self, digests: Iterable[str]) -> pa.Schema:
        """Return the union of schemas, each read once. Raises the errors of :meth:`get` and :func:`join_schemas`."""
        try:
            return join_schemas(self.get(digest) for digest in sorted(set(digests)))
        except (SchemaConflictError, ReadError):
            raise
        except ValueError as error:
            place = self._folder.place("")
            raise ReadError(f"a schema of the store is invalid: {error}", path=place, hint=RESTORE) from error

    def _read(self, digest: str) -> pa.Schema:
        name = digest + SUFFIX
        place = self._folder.place(name)
        try:
            if not _DIGEST.fullmatch(digest):
                raise ValueError(f"{digest!r} is not a digest")
            data = self._folder.get(name)
            if hashlib.sha256(data).hexdigest() != digest:
                raise ValueError("its content changed after it was written: its digest differs")
            return pa.ipc.read_schema(pa.py_buffer(data))
        except (FileNotFoundError, SourceMissingError) as error:
            raise ReadError("a schema of the store is missing", path=place, hint=RESTORE) from error
        except _ERRORS as error:
            raise ReadError(f"a schema cannot be read: {error}", path=place, hint=RESTORE) from error


class NewLayer(NamedTuple):
    """A new layer for a dataset, with the digest of its schema; ``source`` is its file."""

    recording_id: str
    layer: str
    source: str
    schema: str


class SchemaUnion:
    """The union of the schemas of a dataset's layers, updated as layers are added and removed."""

    def __init__(self, schemas: SchemaFiles, digests: Iterable[str | None]) -> None:
        self._schemas = schemas
        self._counts = Counter(digest for digest in digests if digest)
        self._joined: pa.Schema | None = None

    def with_layers(self, layers: Iterable[NewLayer], gone: Iterable[str | None] = ()) -> SchemaUnion:
        """Return the union with new layers, without layers whose schemas are ``gone``.

        Raises ``SchemaConflictError``, which names the layer, if the types of a column conflict.
        """
        union = SchemaUnion(self._schemas, ())
        union._counts = self._counts - Counter(digest for digest in gone if digest)
        union._joined = self._joined if len(union._counts) == len(self._counts) else None
        for layer in layers:
            try:
                union._add(layer.schema)
            except SchemaConflictError as error:
                raise SchemaConflictError(
                    f"schema incompatibility on segment '{layer.recording_id}', layer '{layer.layer}': {error.message}",
                    path=layer.source,
                    hint=error.hint,
                ) from error
        return union

    def _add(self, digest: str) -> None:
        if digest not in self._counts:
            new, joined = self._schemas.get(digest), self._join_all()
            if joined is not None:
                self._joined = join_schemas([joined, new])
            else:
                for other in self._counts:
                    join_schemas([self._schemas.get(other), new])
        self._counts[digest] += 1

    def _join_all(self) -> pa.Schema | None:
        """Return the union so far, or None if it conflicts in itself, as in an adopted store."""
        if self._joined is None:
            with contextlib.suppress(SchemaConflictError):
                self._joined = self._schemas.union(self._counts)
        return self._joined


# --- joining


def join_schemas(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the union of the schemas of layers, in the order of :meth:`Schema.to_arrow`.

    The result does not depend on the order of the schemas. Columns with the same name are joined: :func:`join_types`
    joins their types; among different archetypes or component types, the alphabetically first is kept. Raises
    :class:`SchemaConflictError` if two types of a column conflict.
    """
    columns: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            existing = columns.get(field.name)
            columns[field.name] = field if existing is None else _join_columns(existing, field)
    return Schema.from_arrow(pa.schema(columns.values())).to_arrow()


_FLAG_OF_ALL: Final = b"rerun:is_semantically_empty"
"""A joined column has this flag only if all columns have it, and other flags if any has them."""


def _join_columns(first: pa.Field, other: pa.Field) -> pa.Field:
    if first.equals(other, check_metadata=True):
        return first
    kinds = [text_metadata(field.metadata).get("rerun:kind", "data") for field in (first, other)]
    if kinds[0] != kinds[1]:
        raise _conflict(first.name, other.type, first.type)
    try:
        joined = _join_fields(first, other)
    except SchemaConflictError as error:
        raise SchemaConflictError(error.message, hint=f"It is in column '{first.name}'. {error.hint}") from error
    metadata = dict(joined.metadata or {})
    if not all(_FLAG_OF_ALL in (field.metadata or {}) for field in (first, other)):
        metadata.pop(_FLAG_OF_ALL, None)
    return joined.with_metadata(metadata)


def join_types(first: pa.DataType, other: pa.DataType, where: str) -> pa.DataType:
    """Return the common type of two types of the column ``where``: structs with the fields of both, recursively.

    Null can be joined with any type, and lists with lists of nullable items. All else must be equal. If the fields of
    structs or their order differ, fields are sorted by name. So the result does not depend on the order of joins.

    >>> join_types(pa.list_(pa.null()), pa.list_(pa.int8()), "/arm:pose")
    ListType(list<item: int8>)

    Raises
    ------
    SchemaConflictError
        The types conflict. ``first`` is the existing type.
    """
    if first.equals(other, check_metadata=True):
        return first
    if pa.types.is_null(first) or pa.types.is_null(other):
        return other if pa.types.is_null(first) else first
    if pa.types.is_struct(first) and pa.types.is_struct(other):
        return _join_structs(first, other, where)
    for is_such, of in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_such(first) and is_such(other):
            return of(_join_fields(first.value_field, other.value_field))
    if not first.equals(other):
        raise _conflict(where, other, first)
    return min(first, other, key=_type_bytes)


def _type_bytes(datatype: pa.DataType) -> bytes:
    return bytes(pa.schema([("", datatype)]).serialize())


def _join_structs(first: pa.StructType, other: pa.StructType, where: str) -> pa.DataType:
    names = [[field.name for field in datatype] for datatype in (first, other)]
    if any(len(set(some)) < len(some) for some in names):  # fields of one name are ambiguous
        if first.equals(other):
            return min(first, other, key=_type_bytes)
        raise _conflict(where, other, first)
    if names[0] == names[1]:
        return pa.struct([_join_fields(first.field(name), other.field(name)) for name in names[0]])
    fields = []
    for name in sorted({*names[0], *names[1]}):
        both = [datatype.field(name) for datatype, some in zip((first, other), names, strict=True) if name in some]
        fields.append(_join_fields(*both) if len(both) > 1 else both[0].with_nullable(True))
    return pa.struct(fields)


def _join_fields(first: pa.Field, other: pa.Field) -> pa.Field:
    metadata: dict[bytes, bytes] = dict(first.metadata or {})
    for key, value in (other.metadata or {}).items():
        metadata[key] = min(value, metadata.get(key, value))
    nullable = first.nullable or other.nullable or pa.types.is_null(first.type) or pa.types.is_null(other.type)
    joined = join_types(first.type, other.type, first.name)
    return pa.field(min(first.name, other.name), joined, nullable, dict(sorted(metadata.items())))


def _conflict(where: str, new: pa.DataType, existing: pa.DataType) -> SchemaConflictError:
    return SchemaConflictError(
        f"Schema error: Fail to merge schema field '{where}' because the from data_type = "
        f"{rust_type_name(new)} does not equal {rust_type_name(existing)}",
        hint="A column must have the same type in all recordings of a store. Rename the different one, or cast it with "
        "a lens.",
    )
