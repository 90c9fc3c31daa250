"""SQL expressions of users, and snapshots: one version of a table with a projection and a filter."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from .faults import shortened
from .gate import outer_columns
from .place import LancePlace
from .rows import blobs_as_bytes

if TYPE_CHECKING:
    from types import TracebackType

_BAD_SQL: Final = (
    "parsing",
    "Schema error",
    "No field named",
    "sql parser",
    "Invalid user input",
    "type_coercion",
    "Error during planning",
    "Cast error",
    "This feature is not implemented",
)
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|`[^`]*`|\"((?:[^\"]|\"\")*)\"|;|--|/\*")
"""Quoted text, quoted names (a name in double quotes is the group), and tokens that would end an expression."""
_NO_FIELD: Final = re.compile(r"No field named (.+?)\.(?: Did you mean (.+?)\?| Valid fields are .*|$)")
_PREFIX: Final = re.compile(r"^(?:Invalid user input: |Schema error: )+")
_PLAN: Final = re.compile(r"does not support logical expression (\w+)")
_TIME: Final = re.compile(r"Received literal Utf8.* literal of type '(?:Timestamp|Date)")
_NAME: Final = re.compile(r"`[^`]*`|[A-Za-z_]\w*")
_HINT: Final = "Write it as SQL over the table's columns."


class HasSchema(Protocol):
    """A version of a table, or another object with columns."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        ...


class translate_sql_errors:  # noqa: N801 (reads as a call: `with translate_sql_errors(reader, where=where):`)
    """In the block, Lance's errors about SQL over the columns of ``source`` become ``UsageError``.

    Also raises ``UsageError`` for SQL that Lance would use only in part, and for a column name in double quotes. To
    Lance, that is text: a condition would be true in all rows, or in none.
    """

    def __init__(self, source: HasSchema, *expressions: str, where: str | None = None) -> None:
        self._source = source
        self._where = where
        self._expressions = expressions if where is None else (*expressions, where)

    def __enter__(self) -> None:
        for expression in self._expressions:
            for token in _TOKEN.finditer(expression):
                name, said = token[1], token[0]
                if said in (";", "--", "/*"):
                    raise UsageError(
                        f"{self._named([expression])}: it contains {said!r}",
                        hint="Write a single SQL expression, without comments.",
                    )
                if name is not None and name in self._source.schema.names:
                    raise UsageError(
                        f"{self._named([expression])}: {said} would be text, not the column",
                        hint=f"Write `{name}` for the column, and '{name}' for text.",
                    )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._expressions or not isinstance(error, (OSError, ValueError)) or isinstance(error, UsageError):
            return
        said = shortened(error)
        if "INVERTED index" in said:
            raise UsageError(
                "no column has an index of words", hint="Create one by create_fts_index(column), or give fts_columns=."
            ) from None
        if "request at least one column" in said:
            raise UsageError("the selection names no column of the table", hint="Select a column, too.") from None
        if "Lance file" in said or not any(word in said for word in _BAD_SQL):
            return  # a file is damaged
        expressions = [
            expression
            for expression in self._expressions
            if expression == self._where or not _NAME.fullmatch(expression)
        ]
        reason, hint = _PREFIX.sub("", said), _HINT
        if plan := _PLAN.search(said):
            reason = f"{plan[1]} does not work on single rows"
        if _TIME.search(said):
            hint = "Write a time as timestamp '2026-01-31 12:00:00', and a day as date '2026-01-31'."
        if missing := _NO_FIELD.search(said):
            name = missing[1].strip('"')
            expressions = [expression for expression in expressions if name.lower() in expression.lower()]
            meant = f"; did you mean {missing[2]}?" if missing[2] else ""
            reason, hint = f"there is no column {name!r}{meant}", f"There are: {', '.join(self._source.schema.names)}."
        raise UsageError(f"{self._named(expressions)}: {reason}" if expressions else reason, hint=hint) from None

    def _named(self, expressions: list[str]) -> str:
        kind = "condition" if expressions == [self._where] else "expression"
        return f"{', '.join(expressions)!r} is an invalid {kind} on this table"


_PUBLIC: Final = b"lance-schema:"
_ROWS_OF_A_PART: Final = 2**18
_ROWS_WITHOUT_COLUMNS: Final = 2**16
_ROWS_OF_A_BATCH: Final = 2**17
"""Rows per batch from Lance: with its default, 8,192, passing batches took as long as reading (bench_tables.py)."""
_BYTES_OF_A_BATCH: Final = 2**24
"""The approximate maximum of bytes per batch, for large rows."""


class TableSnapshot:
    """An immutable version of a table."""

    def __init__(self, place: LancePlace, dataset: Any) -> None:
        self._place = place
        self._dataset = dataset
        self.schema = _public(blobs_as_bytes(dataset.schema))
        self._outer = outer_columns(dataset.schema)

    @property
    def version(self) -> int:
        """The number of the version."""
        return int(self._dataset.version)

    def count(self) -> int:
        """The number of rows."""
        with self._place.reading():
            return int(self._dataset.count_rows())

    def provider(self, session: object) -> object:
        """Return the table provider's capsule for the DataFusion version of Lance."""
        import lance

        self.check_blobs()
        with self._place.reading():
            return lance.FFILanceTableProvider(self._dataset).__datafusion_table_provider__(session)

    def parts(self, most: int) -> list[list[int]]:
        """Return the fragments' ids in at most ``most`` lists with about equally many rows; small tables give one."""
        with self._place.reading():
            fragments = [(fragment.fragment_id, fragment.physical_rows) for fragment in self._dataset.get_fragments()]
        size = max(_ROWS_OF_A_PART, -(-sum(rows for _, rows in fragments) // most))
        parts: list[list[int]] = []
        before = 0
        for fragment, rows in fragments:
            if len(parts) <= before // size < most:
                parts.append([])
            parts[-1].append(fragment)
            before += rows
        return parts

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: pc.Expression | None = None,
        fragments: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in which the predicate is true, in order: by default all rows, columns and fragments.

        Blobs are bytes.
        """
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        with self._place.reading():
            if not names and predicate is None:
                yield from _without_columns(self._rows_of(fragments))
                return
            pushed = None if predicate is None else _substrait(predicate, self.schema)
            if predicate is None or pushed is not None:
                for batch in self._scanner(names, pushed, fragments).to_batches():
                    if names:
                        yield pa.RecordBatch.from_arrays(batch.columns[: len(names)], schema=schema)
                    else:
                        yield from _without_columns(batch.num_rows)
                return
            # Lance cannot evaluate this filter, so pyarrow does. The filter's text contains the names of its columns.
            text = str(predicate)
            needed = [name for name in self.schema.names if name in names or name in text]
            for batch in self._scanner(needed, None, fragments).to_batches():
                # For a batch without a match, pyarrow 19 raises an IndexError; for a table it does not.
                for matches in pa.Table.from_batches([batch]).filter(predicate).to_batches():
                    if names:
                        yield pa.RecordBatch.from_arrays([matches[name] for name in names], schema=schema)
                    else:
                        yield from _without_columns(matches.num_rows)

    def _rows_of(self, fragments: Sequence[int] | None) -> int:
        if fragments is None:
            return int(self._dataset.count_rows())
        return sum(self._dataset.get_fragment(fragment).count_rows() for fragment in fragments)

    def check_blobs(self, columns: Collection[str] | None = None, fragments: Sequence[int] | None = None) -> None:
        """Raise ``ForeignFileError`` if blobs of ``columns`` (by default, all) are in files that are not allowed."""
        outer = [name for name in self._outer if columns is None or name in columns]
        with self._place.reading():
            self._place.check_blobs(self._dataset, outer, fragments)

    def _scanner(self, names: Sequence[str], pushed: bytes | None, fragments: Sequence[int] | None) -> Any:
        from lance.dataset import ScannerBuilder

        self.check_blobs(None if pushed else names, fragments)
        builder: Any = ScannerBuilder(self._dataset).columns(list(names))
        builder = builder.batch_size(_ROWS_OF_A_BATCH).batch_size_bytes(_BYTES_OF_A_BATCH).blob_handling("all_binary")
        if not names:
            builder = builder.with_row_id()
        if fragments is not None:
            builder = builder.with_fragments([self._dataset.get_fragment(fragment) for fragment in fragments])
        # Lance's own conversion of an Arrow filter fails on unrelated columns, such as a duration.
        builder._substrait_filter = pushed  # noqa: SLF001 (there is no other way)
        return builder.to_scanner()


def _public(schema: pa.Schema) -> pa.Schema:
    """Return a schema without Lance's own metadata."""
    fields = []
    for field in schema:
        metadata = {key: value for key, value in (field.metadata or {}).items() if not key.startswith(_PUBLIC)}
        fields.append(field.with_metadata(metadata or None))
    return pa.schema(fields, schema.metadata)


def _without_columns(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches with ``rows`` rows in all, without columns."""
    for begin in range(0, rows, _ROWS_WITHOUT_COLUMNS):
        rest = min(_ROWS_WITHOUT_COLUMNS, rows - begin)
        yield pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rest, [None]))


def _substrait(predicate: pc.Expression, schema: pa.Schema) -> bytes | None:
    """Return the filter as Substrait, or None if Lance cannot evaluate it."""
    from pyarrow.substrait import serialize_expressions

    # Each field keeps its number. A placeholder that no filter names stands for a field that Substrait lacks.
    substrait_schema = pa.schema(
        [
            pa.field(field.name, field.type) if _is_in_substrait(field.type) else pa.field(f"\0{number}", pa.int8())
            for number, field in enumerate(schema)
        ]
    )
    try:
        return bytes(serialize_expressions([predicate], ["filter"], substrait_schema))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


@lru_cache(maxsize=1024)
def _is_in_substrait(type_: pa.DataType) -> bool:
    """Return whether Lance understands filters on columns of this type in the same way."""
    of_time = pa.types.is_timestamp(type_) and type_.unit != "ns"
    plain = pa.types.is_integer(type_) or pa.types.is_float32(type_) or pa.types.is_float64(type_)
    return bool(
        of_time
        or plain
        or pa.types.is_boolean(type_)
        or pa.types.is_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_decimal128(type_)
    )
