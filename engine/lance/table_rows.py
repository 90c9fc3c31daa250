"""Rows that are written to a table: in every form in which users have them, as the table has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ..errors import UnfitRowsError, UsageError, WriteError
from ..faults import reach

Batches = Any
"""A RecordBatchReader, a RecordBatch, a list of them or of lists of them, a pyarrow Table, a DataFrame of pandas, Spark
or DataFusion, or whatever else gives an Arrow stream."""

_EITHER: Final = "Cannot pass both batches and named parameters. Use one or the other."
_READ_BEFORE: Final = "the table was replaced while rows of a reader were written, and none were"


def rows_of(
    batches: Batches | None, named: Mapping[str, Any], schema: Callable[[], pa.Schema], *, is_whole: bool = True
) -> TableRows | None:
    """The rows that a call gives, or None where it gives none; ``schema`` is asked where it gives values by name.

    By name they have all columns, null where none is given, or, unless ``is_whole``, those that are named.

    Raises
    ------
    KeyError
        There is no column of such a name.
    TypeError
        Both are given, or ``batches`` is nothing that has rows.
    ValueError
        Columns have different numbers of rows, or values don't go with the type of their column.
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
    """Whether something is a DataFrame of Spark, by whatever session."""
    return type(batches).__module__.partition(".")[0] == "pyspark" and hasattr(batches, "toArrow")


class TableRows:
    """Rows with their own columns, which are written under those of a table.

    Rows of a reader are read once, and those of a list again where others replace the table meanwhile.
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
        """Whether there are certainly no rows."""
        return not isinstance(self._batches, pa.RecordBatchReader) and not any(b.num_rows for b in self._batches)

    def under(self, schema: pa.Schema) -> pa.RecordBatchReader | pa.Table:
        """The rows with all columns of ``schema``, in its order; null where they have none.

        Rows in memory are a table, of whose size Lance makes use: it merges 100,000 in three quarters of the time.
        """
        self._check_columns(schema)
        if isinstance(self._batches, pa.RecordBatchReader):
            return self._reader(schema, lambda batch: self._completed(batch, schema))
        return pa.Table.from_batches(self._changed(lambda batch: self._completed(batch, schema)), schema)

    def among(self, schema: pa.Schema) -> pa.RecordBatchReader | pa.Table:
        """The rows with those columns of ``schema`` that they have, in its order."""
        self._check_columns(schema)
        return self.under(pa.schema([field for field in schema if field.name in self._schema.names], schema.metadata))

    def replacing(self, schema: pa.Schema) -> pa.RecordBatchReader:
        """The rows with their own columns. One that the table has too keeps what the table's field says of it."""
        self._check_names()
        fields = []
        for field in self._schema:
            there = schema.field(field.name) if field.name in schema.names else None
            is_same = there is not None and not field.metadata and (there.type == field.type or self._converted)
            fields.append(there if is_same else field)
        own = pa.schema(fields, self._schema.metadata or schema.metadata)
        return self._reader(own, lambda batch: self._completed(batch, own))

    def _reader(self, schema: pa.Schema, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> pa.RecordBatchReader:
        if self._was_read and isinstance(self._batches, pa.RecordBatchReader):
            raise WriteError(_READ_BEFORE, hint="Read them again, and write them again.", transient=True)
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
            raise UsageError(f"the rows have two columns of the name {twice!r}")

    def _check_columns(self, schema: pa.Schema) -> None:
        self._check_names()
        names = self._schema.names
        unexpected = [name for name in names if name not in schema.names]
        if unexpected:
            raise UnfitRowsError(
                f"Append with different schema: fields did not match, missing=[], unexpected=[{', '.join(unexpected)}]",
                hint=f"The table has the columns {', '.join(schema.names) or 'of none'}.",
            )
        for field in self._schema:
            there = schema.field(field.name)
            if not self._converted and _plain(field.type) != _plain(there.type):
                raise UnfitRowsError(
                    f"Append with different schema: `{field.name}` should have type {there.type} "
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
                raise UnfitRowsError(f"column {field.name!r} has nulls, and may have none")
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
    if hasattr(batches, "execute_stream"):  # a DataFrame of DataFusion, whose stream tells our errors
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
    """Rows of frames that have fewer types than Arrow: their values are converted, where nothing is lost by that."""
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
    """The values of a column: those of a sequence, or one of anything else. A list that has no lists is one list."""
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if isinstance(value, pa.Array):
        return value if value.type == type_ else value.cast(type_)
    is_one = value is None or isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable)
    if is_one:
        return exact_array([value], type_)
    values = list(value)
    there = [item for item in values if item is not None]
    if _is_list(type_) and there and not any(_is_sequence(item, type_) for item in there):
        return exact_array([values], type_)
    return exact_array(values, type_)


def exact_array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Values of Python as an array of a type.

    Raises ``pa.ArrowException``, ``TypeError`` or ``ValueError`` where they do not go with it, also where Arrow would
    cut fractions off.
    """
    made = pa.array(values, type_)
    if _has(type_, pa.types.is_integer):
        try:
            own = pa.array(values)
        except OverflowError:  # of integers that only the type that is wanted holds
            return made
        except pa.ArrowException:  # keys and values of maps, which have no type in common
            if made.to_pylist() != list(values):
                raise
            return made
        if _has(own.type, pa.types.is_floating) and not _has(type_, pa.types.is_floating):
            own.cast(type_)
    return made


def _has(type_: pa.DataType, kind: Callable[[pa.DataType], bool]) -> bool:
    """Whether values of a type have some of a kind in them."""
    inner = [type_.field(number).type for number in range(type_.num_fields)]
    return kind(type_) or any(_has(one, kind) for one in inner)


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_map(type_)
    )


def _is_sequence(value: Any, type_: pa.DataType) -> bool:
    """Whether a value is all items of a cell; pairs in a list are those of one map."""
    single = (str, bytes, tuple) if pa.types.is_map(type_) else (str, bytes)
    return isinstance(value, Iterable) and not isinstance(value, single)


def _plain(type_: pa.DataType) -> pa.DataType:
    """A type that other layouts of the same values have too: long offsets, views, dictionaries, names of items."""
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
