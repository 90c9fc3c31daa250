"""Rows and columns that users write to a table, checked and converted to the table's schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from ..errors import UnfitRowsError, UsageError, WriteError
from ..faults import reach
from ..limits import MAX_SCHEMA_FIELDS
from .faults import shortened

Batches = Any
"""A RecordBatchReader, a RecordBatch, a (nested) list of RecordBatches, a pyarrow Table, a DataFrame of pandas, Spark
or DataFusion, or any other object with an Arrow stream."""

_EITHER: Final = "Cannot pass both batches and named parameters. Use one or the other."
_READ_BEFORE: Final = "the table was replaced while rows of a reader were written; nothing was written"


def rows_of(
    batches: Batches | None, named: Mapping[str, Any], schema: Callable[[], pa.Schema], *, is_whole: bool = True
) -> TableRows | None:
    """Return the rows passed to a call, or None.

    ``schema`` is called if values are given by name. Such rows have all columns, with nulls for missing ones, or, if
    ``is_whole`` is false, only the named columns.

    Raises
    ------
    KeyError
        A named column does not exist.
    TypeError
        Both are given, or ``batches`` has an unsupported type.
    ValueError
        Columns have different numbers of rows, or values do not fit the type of their column.
    """
    if batches is not None and named:
        raise TypeError(_EITHER)
    if named:
        batch = _of_named(named, schema())
        batch = batch if is_whole else batch.select(list(named))
        return TableRows(batch.schema, [batch])
    if batches is None:
        return None
    return _of_batches(batches)


def is_spark_frame(batches: object) -> bool:
    """Return whether an object is a Spark DataFrame of any kind of session."""
    return type(batches).__module__.partition(".")[0] == "pyspark" and hasattr(batches, "toArrow")


class TableRows:
    """Rows to be written to a table, with their own columns.

    A reader's rows can be read only once. A list's rows are read again if the table is replaced meanwhile.
    """

    def __init__(
        self,
        schema: pa.Schema,
        batches: Sequence[pa.RecordBatch] | pa.RecordBatchReader,
        *,
        converted: bool = False,
    ) -> None:
        self.failure: Exception | None = None
        self._schema = schema
        self._batches = batches
        self._converted = converted
        self._was_read = False

    @property
    def is_empty(self) -> bool:
        """Return True if the rows are known to be empty."""
        return not isinstance(self._batches, pa.RecordBatchReader) and not any(b.num_rows for b in self._batches)

    def under(self, schema: pa.Schema) -> pa.RecordBatchReader | pa.Table:
        """Return the rows with all columns of ``schema``, in its order; missing columns are null.

        Rows in memory are returned as a table: as its size is known, Lance merges 100,000 rows in three quarters of the
        time.
        """
        self._check_columns(schema)
        if isinstance(self._batches, pa.RecordBatchReader):
            return self._reader(schema, lambda batch: self._completed(batch, schema))
        return pa.Table.from_batches(self._changed(lambda batch: self._completed(batch, schema)), schema)

    def among(self, schema: pa.Schema) -> pa.RecordBatchReader | pa.Table:
        """Return the rows with the columns of ``schema`` that they have, in its order."""
        self._check_columns(schema)
        return self.under(pa.schema([field for field in schema if field.name in self._schema.names], schema.metadata))

    def replacing(self, schema: pa.Schema) -> pa.RecordBatchReader:
        """Return the rows with their own columns. A column that the table has, too, gets the table's field."""
        self._check_names()
        fields = []
        for field in self._schema:
            existing = schema.field(field.name) if field.name in schema.names else None
            is_same = existing is not None and not field.metadata and (existing.type == field.type or self._converted)
            fields.append(existing if is_same else field)
        own = pa.schema(fields, self._schema.metadata or schema.metadata)
        return self._reader(own, lambda batch: self._completed(batch, own))

    def _reader(self, schema: pa.Schema, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> pa.RecordBatchReader:
        if self._was_read and isinstance(self._batches, pa.RecordBatchReader):
            raise WriteError(_READ_BEFORE, hint="Read the rows again, and write them again.", transient=True)
        self._was_read = True
        return pa.RecordBatchReader.from_batches(schema, self._changed(change))

    def _changed(self, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                yield change(batch)
            reach("lance.rows")
        except Exception as error:
            self.failure = error
            raise

    def _check_names(self) -> None:
        twice = next((name for name, count in Counter(self._schema.names).items() if count > 1), None)
        if twice is not None:
            raise UsageError(f"the rows have two columns with the name {twice!r}")

    def _check_columns(self, schema: pa.Schema) -> None:
        self._check_names()
        names = self._schema.names
        unexpected = [name for name in names if name not in schema.names]
        if unexpected:
            raise UnfitRowsError(
                f"Append with different schema: fields did not match, missing=[], unexpected=[{', '.join(unexpected)}]",
                hint=f"The table's columns: {', '.join(schema.names) or 'none'}.",
            )
        for field in self._schema:
            existing = schema.field(field.name)
            if not self._converted and _plain(field.type) != _plain(existing.type):
                raise UnfitRowsError(
                    f"Append with different schema: `{field.name}` should have type {existing.type} "
                    f"but type was {field.type}",
                    hint="Cast it, and write it again.",
                )

    def _completed(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        columns = []
        for field in schema:
            if field.name in batch.schema.names:
                column = batch[field.name]
                column = column if column.type == field.type else column.cast(field.type)
            else:
                column = pa.nulls(batch.num_rows, field.type)
            if not field.nullable and column.null_count:
                raise UnfitRowsError(f"column {field.name!r} has nulls, but must not have any")
            columns.append(column)
        if not columns:
            return batch
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _of_batches(batches: Batches) -> TableRows | None:
    if isinstance(batches, pa.RecordBatchReader):
        return TableRows(batches.schema, batches)
    if isinstance(batches, pa.RecordBatch):
        return TableRows(batches.schema, [batches])
    if isinstance(batches, pa.Table):
        return TableRows(batches.schema, batches.to_batches() or [_empty(batches.schema)])
    module = type(batches).__module__.partition(".")[0]
    if module == "pandas":
        return _of_pandas(batches)
    if is_spark_frame(batches):
        return _converted(batches.toArrow())
    if hasattr(batches, "execute_stream"):  # a DataFrame of DataFusion: this stream reports our errors
        stream = (batch.to_pyarrow() for batch in batches.execute_stream())
        return TableRows(batches.schema(), pa.RecordBatchReader.from_batches(batches.schema(), stream))
    if hasattr(batches, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(batches)
        return TableRows(reader.schema, reader)
    if isinstance(batches, (str, bytes, Mapping)) or not isinstance(batches, Iterable):
        raise TypeError(f"Unexpected type: {type(batches)}")
    flat = list(_flat(batches))
    if not flat:
        return None
    other = next((batch.schema for batch in flat if not batch.schema.equals(flat[0].schema)), None)
    if other is not None:
        raise UsageError("the batches have different schemas", hint=f"The first has {flat[0].schema.names}.")
    return TableRows(flat[0].schema, flat)


def _flat(batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for item in batches:
        if isinstance(item, pa.RecordBatch):
            yield item
        elif isinstance(item, pa.Table):
            yield from item.to_batches()
        elif isinstance(item, (list, tuple)):
            yield from _flat(item)
        else:
            raise TypeError(f"Unexpected type: {type(item)}")


def _of_pandas(frame: Any) -> TableRows:
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"Unexpected type: {type(frame)}")
    return _converted(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None))


def _converted(table: pa.Table) -> TableRows:
    """Return rows of a frame with fewer types than Arrow. Values are converted if nothing is lost."""
    return TableRows(table.schema, table.to_batches() or [_empty(table.schema)], converted=True)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def _of_named(named: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    fields = []
    for name in named:
        if name not in schema.names:
            raise KeyError(f"Column {name} does not exist in schema")
        fields.append(schema.field(name))
    columns = [_column(field.type, value) for field, value in zip(fields, named.values(), strict=True)]
    wanted = len(columns[0])
    for field, column in zip(fields, columns, strict=True):
        if len(column) != wanted:
            raise UsageError(
                f"Columns have mismatched number of rows. Column '{field.name}' has {len(column)} rows "
                f"but expected {wanted}."
            )
    rest = [field for field in schema if field.name not in named]
    columns += [pa.nulls(wanted, field.type) for field in rest]
    by_name = dict(zip((field.name for field in (*fields, *rest)), columns, strict=True))
    return pa.RecordBatch.from_arrays([by_name[name] for name in schema.names], schema=schema)


def _column(type_: pa.DataType, value: Any) -> pa.Array:
    """Return a column's values: the items of a sequence, or a single value. For lists, a list without lists is one."""
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if isinstance(value, pa.Array):
        return value if value.type == type_ else value.cast(type_)
    is_one = value is None or isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable)
    if is_one:
        return exact_array([value], type_)
    values = list(value)
    items = [item for item in values if item is not None]
    if _is_list(type_) and items and not any(_is_sequence(item, type_) for item in items):
        return exact_array([values], type_)
    return exact_array(values, type_)


def exact_array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return Python values as an array of a type.

    Raises ``pa.ArrowException``, ``TypeError`` or ``ValueError`` if a value does not fit the type, also if Arrow would
    drop a fraction.
    """
    made = pa.array(values, type_)
    if _has(type_, pa.types.is_integer):
        try:
            own = pa.array(values)
        except OverflowError:  # for integers that only the wanted type can hold
            return made
        except pa.ArrowException:  # for keys and values of maps, which have no common type
            if made.to_pylist() != list(values):
                raise
            return made
        if _has(own.type, pa.types.is_floating) and not _has(type_, pa.types.is_floating):
            own.cast(type_)
    return made


def _has(type_: pa.DataType, kind: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type, or a type inside it, is of a kind."""
    inner = [type_.field(number).type for number in range(type_.num_fields)]
    return kind(type_) or any(_has(child, kind) for child in inner)


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_map(type_)
    )


def _is_sequence(value: Any, type_: pa.DataType) -> bool:
    """Return whether a value is a sequence of items in one cell. A pair is not: it is an entry of a map."""
    single = (str, bytes, tuple) if pa.types.is_map(type_) else (str, bytes)
    return isinstance(value, Iterable) and not isinstance(value, single)


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return one type for all layouts of the same values: large offsets, views, dictionaries, item names."""
    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_map(type_):
        return pa.map_(_plain(type_.key_type), _plain(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(pa.field("item", _plain(type_.value_type)))
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(pa.field("item", _plain(type_.value_type)), type_.list_size)
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in type_])
    return type_


INDEX: Final = b"rerun:is_table_index"
"""The metadata key that marks the fields of a table's key."""
PRIMARY_KEY: Final = b"lance-schema:unenforced-primary-key"
"""The metadata key that marks the fields of Lance's own table key."""

UNNAMEABLE: Final = frozenset("`\0")
"""Characters that column names cannot have: the first ends names in SQL, the second in Arrow's C schemas."""


def keys_of(schema: pa.Schema) -> list[str]:
    """Return the names of the fields that are a table's key."""
    return [field.name for field in schema if (field.metadata or {}).get(INDEX, b"").lower() == b"true"]


def columns_to_write(schema: pa.Schema, table: str) -> pa.Schema:
    """Return the schema for Lance. If no key field is nullable, the key is also Lance's key.

    Raises ``UsageError`` for too many columns, for names or types that SQL or Lance does not support, for columns that
    Arrow could not read back, and for names, time zones or metadata that are not UTF-8.
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
    """In the block, Lance's error for the columns of a ``table`` becomes ``UsageError``."""
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
        raise UsageError(wrong, hint="Combine similar values in a column of lists or maps.")
    try:
        for text in _texts_in(schema):
            text.decode()
        named = [inner.name for field in schema for inner in _with_inner(field)]
    except UnicodeDecodeError as error:
        wrong = f"{table} cannot have the name, time zone or metadata {error.object[:60]!r}, which is not UTF-8"
        raise UsageError(wrong, hint="Encode bytes in metadata as base64.") from None
    odd = next((n for n in schema.names if not n or set(n) & UNNAMEABLE), next((n for n in named if "\0" in n), None))
    if odd is not None:
        raise UsageError(f"{table} cannot have a column called {odd!r}: SQL could not name it")
    dotted = next((name for name in schema.names if "." in name), None)
    if dotted is not None:
        hint = "Choose other names, for example by rename_columns of a pyarrow Table."
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
                hint="Fix or remove the type in its metadata, under ARROW:extension:name and :metadata.",
            ) from None


def _texts_in(schema: pa.Schema) -> Iterator[bytes]:
    """Yield time zones and metadata at every depth. Raises ``UnicodeDecodeError`` if pyarrow cannot decode one."""
    for key, value in (schema.metadata or {}).items():
        yield key
        yield value
    for field in schema:
        for inner in _with_inner(field):
            for key, value in (inner.metadata or {}).items():
                yield key
                yield value
            if pa.types.is_timestamp(inner.type):
                yield (inner.type.tz or "").encode()


def _with_inner(field: pa.Field) -> Iterator[pa.Field]:
    yield field
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if isinstance(kind, pa.DictionaryType):
        yield from _with_inner(pa.field("values", kind.value_type))
    for number in range(kind.num_fields):
        yield from _with_inner(kind.field(number))


_MARK: Final = b"lance-encoding:blob"
_TYPE: Final = "lance.blob.v2"
_NAME_OF_TYPE: Final = b"ARROW:extension:name"


def is_blob(field: pa.Field) -> bool:
    """Return whether a column is a blob column."""
    if isinstance(field.type, pa.BaseExtensionType) and field.type.extension_name == _TYPE:
        return True
    metadata = field.metadata or {}
    return metadata.get(_MARK) == b"true" or metadata.get(_NAME_OF_TYPE) == _TYPE.encode()


def blobs_as_bytes(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which blob columns have the type of their bytes. Their metadata still marks them as blobs."""
    fields = [
        pa.field(field.name, pa.large_binary(), field.nullable, {**(field.metadata or {}), _MARK: b"true"})
        if is_blob(field)
        else field
        for field in schema
    ]
    return pa.schema(fields, schema.metadata)
