"""Datasets as tables of SQL: the segments, and the table function ``reader`` for rows."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from datafusion import Expr
from datafusion.catalog import Table

from ..errors import ReadError, UnmatchedWarning, UsageError
from ..execution import RunOptions, executor_name
from ..frames import Answer, Measuring, ValueFilter, conjuncts_of, current_call
from ..query import SEGMENT_ID, Query
from ..stream import ContentFilter
from .dataset import DatasetEntry, DatasetView
from .segments import chosen_segments
from .statements import QUERY
from .table import TableEntry


class TableBatches:
    """The batches of a scan, made as they are taken."""

    def __init__(
        self, schema: pa.Schema, columns: Sequence[str] | None, batches: Callable[[], Iterator[pa.RecordBatch]]
    ) -> None:
        names = schema.names if columns is None else columns
        self.projected_schema = pa.schema([schema.field(name) for name in names], schema.metadata)
        self.to_batches = batches


class SegmentScan(ds.Dataset):  # type: ignore[misc]
    """The segments of a dataset, which DataFusion scans: columns as of the plan, rows as of the read.

    The columns ``without`` are left out.
    """

    def __init__(self, entry: DatasetEntry, without: Collection[str] = ()) -> None:
        self._entry = entry
        self._without = without
        self._last: tuple[object, pa.Table] | None = None

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        if self._last is None:
            with failing_the_call():
                self._rows()
        assert self._last is not None
        return self._last[1].schema

    def scanner(self, columns: Sequence[str] | None = None, **_: Any) -> TableBatches:
        """The columns of a scan, for DataFusion's planner."""
        return TableBatches(self.schema, columns, lambda: iter(()))

    def get_fragments(self, filter: pc.Expression | None = None) -> list[_SegmentRows]:  # noqa: A002 (pyarrow's name)
        """The segments as one part."""
        schema = self.schema
        with failing_the_call():
            table = self._rows()
            check_columns_stay(self._entry, schema, table.schema)
        return [_SegmentRows(table.select(schema.names).cast(schema), filter)]

    def _rows(self) -> pa.Table:
        """The segment table of the newest version, cached until the next version."""
        live = self._entry.store_reader().live()
        if self._last is None or self._last[0] is not live:
            table = self._entry.segment_rows()
            table = table.drop_columns([name for name in self._without if name in table.column_names])
            self._last = live, table.cast(_nullable(table.schema))
        return self._last[1]


class _SegmentRows:
    """Rows of segments, in memory, as a part of a dataset."""

    def __init__(self, table: pa.Table, predicate: pc.Expression | None) -> None:
        self._table = table
        terms = tuple(conjuncts_of(pc.scalar(predicate) if isinstance(predicate, pa.Scalar) else predicate))
        self._filter = ValueFilter(terms) if terms else None

    def scanner(self, schema: pa.Schema, columns: Sequence[str] | None = None, **_: Any) -> TableBatches:
        """The rows that pass the filter of the scan."""
        names = schema.names if columns is None else list(columns)
        return TableBatches(schema, columns, lambda: self._batches(names))

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        batches = self._table.to_batches()
        if self._filter is not None:
            yield from self._filter.kept(iter(batches), names)
            return
        for batch in batches:
            yield batch.select(names)


class RowScan(ds.Dataset):  # type: ignore[misc]
    """The rows of a ``reader`` call: columns as of the call, segments as of the read."""

    def __init__(self, view: DatasetView, query: Query, executor: str | None) -> None:
        self._view = view
        self._query = query
        self._options = RunOptions(executor)
        self._last = view.dataset.store_reader().live(), self._answer()
        self._schema = _nullable(self._last[1].schema)

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, **_: Any) -> TableBatches:
        """The columns of a scan, for DataFusion's planner."""
        return TableBatches(self._schema, columns, lambda: iter(()))

    def get_fragments(self, filter: pc.Expression | None = None) -> Sequence[Any]:  # noqa: A002 (pyarrow's name)
        """The segments of the newest version that may have rows that pass the filter."""
        with failing_the_call():
            live = self._view.dataset.store_reader().live()
            if self._last[0] is not live:
                self._last = live, self._answer()
                check_columns_stay(self._view.dataset, self._schema, self._last[1].schema)
        return [_SegmentPart(fragment) for fragment in self._last[1].get_fragments(filter)]

    def _answer(self) -> Answer:
        """The query result of the newest version."""
        columns, segments = self._view.queried(self._query)
        if columns.unmatched:
            warnings.warn(columns.unmatched, UnmatchedWarning, stacklevel=2)
        return Answer(columns, segments, self._options, Measuring(str(self._view.dataset.id)))


class _SegmentPart:
    """A segment's rows with nullable columns."""

    def __init__(self, fragment: Any) -> None:
        self._fragment = fragment

    def scanner(
        self,
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> TableBatches:
        """The rows that pass the filter of the scan."""
        scan = TableBatches(schema, columns, lambda: iter(()))
        batches = self._fragment.scanner(schema, columns=columns, **options).to_batches
        nullable = scan.projected_schema
        if columns is None or columns:
            scan.to_batches = lambda: (pa.RecordBatch.from_arrays(b.columns, schema=nullable) for b in batches())
        else:
            scan.to_batches = batches
        return scan


def _nullable(schema: pa.Schema) -> pa.Schema:
    """The schema with nullable columns: DataFusion cannot join batches of a union if only some are nullable."""
    return pa.schema([field.with_nullable(True) for field in schema], schema.metadata)


@contextmanager
def failing_the_call() -> Iterator[None]:
    """A block whose error is also kept for the call that waits for DataFusion."""
    try:
        yield
    except Exception as error:
        current_call().fail(error)
        raise


def check_columns_stay(entry: DatasetEntry | TableEntry, before: pa.Schema, now: pa.Schema) -> None:
    """Raise ``ReadError`` if an entry has lost columns since a statement was planned."""
    gone = [field.name for field in before if not _has(now, field)]
    if gone:
        what = "table" if isinstance(entry, TableEntry) else "dataset"
        raise ReadError(
            f"{what} '{entry.name}' has lost columns since the query was planned: {', '.join(gone)}",
            hint="Run the query again.",
        )


_FLAGS: Final = ("include_semantically_empty_columns", "include_tombstone_columns", "fill_latest_at")
ARGUMENTS: Final = ("dataset", "index", "contents", "segments", *_FLAGS, "fill", "using_index_values", "executor")
"""The arguments of ``reader`` in SQL. The first two may also be positional."""
_POSITIONAL: Final = ARGUMENTS[:2]


class ReaderFunction:
    """The table function ``reader``. Its arguments are the pairs that :meth:`Statement.planned` makes.

    ``execute`` returns the rows of a query in an argument.
    """

    def __init__(self, dataset_of: Callable[[str], DatasetEntry], execute: Callable[[str], Any]) -> None:
        self._dataset_of = dataset_of
        self._execute = execute

    def __call__(self, *pairs: Any) -> Table:
        """The table of a call. Raises ``UsageError``, ``TypeError`` or ``NotFoundError`` for invalid arguments."""
        with failing_the_call():
            arguments = self._named(pairs)
            name = arguments.get("dataset")
            if name is None:
                raise UsageError("reader: dataset is missing", hint="reader('DATASET', index => 'INDEX')")
            _check("dataset", name, str)
            return Table(_rows_of(self._dataset_of(name), arguments))

    def _named(self, pairs: Sequence[Any]) -> dict[str, Any]:
        """The values of a call by their names. Raises ``UsageError``."""
        values = [value if isinstance(value, Expr) else Expr(value) for value in pairs]
        arguments: dict[str, Any] = {}
        for number, (key, expression) in enumerate(zip(values[::2], values[1::2], strict=True)):
            kind, _, name = str(_value_of("", key)).partition(":")
            if not name:
                if number >= len(_POSITIONAL) or len(arguments) < number:
                    raise UsageError(
                        f"reader: argument {number + 1} has no name", hint=f"Name it: {', '.join(ARGUMENTS)}."
                    )
                name = _POSITIONAL[number]
            name = "fill_latest_at" if name == "fill" else name
            if name in arguments:
                raise UsageError(f"reader: {name} is given twice")
            value = _value_of(name, expression)
            arguments[name] = _rows_of_query(value, self._execute) if kind == QUERY else value
        return arguments


def _value_of(name: str, expression: Expr) -> Any:
    """A constant as a Python value."""
    if expression.variant_name() != "Literal":
        raise UsageError(
            f"reader: {name} is not a constant: {expression.canonical_name()}",
            hint="Arguments are values, lists of values, or queries in parentheses.",
        )
    value = expression.python_value()
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _rows_of_query(text: str, execute: Callable[[str], Any]) -> pa.Table:
    """The rows of a sub-select. Another thread executes it, as DataFusion's planner must not wait."""
    call = current_call()
    tables: list[pa.Table] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            tables.append(execute(text).to_arrow_table())
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            failed.append(error)

    thread = threading.Thread(target=run, name="chunkmill-subquery", daemon=True)
    thread.start()
    thread.join()
    if failed:
        call.fail(failed[0])
        raise failed[0]
    return tables[0]


def _rows_of(entry: DatasetEntry, arguments: dict[str, Any]) -> RowScan:
    """The rows of a ``reader`` call."""
    if "index" not in arguments:
        indexes = ", ".join(column.name for column in entry.schema().index_columns())
        raise UsageError(
            "reader: index is missing",
            hint=f"'{entry.name}' has: {indexes}. index => NULL gives a row of static values for each segment.",
        )
    index = arguments["index"]
    if index is not None:
        _check("index", index, str)
    for name in _FLAGS:
        _check(name, arguments.get(name, False), bool)
    view: DatasetView = entry
    contents = arguments.get("contents")
    if (segments := arguments.get("segments")) is not None:
        known = entry.segment_ids()
        words = _texts("segments", segments)
        is_query = isinstance(segments, pa.Table)
        view = view.filter_segments(list(set(words).intersection(known)) if is_query else chosen_segments(words, known))
    values = arguments.get("using_index_values")
    query = Query.of(
        index,
        ContentFilter.everything() if contents is None else ContentFilter(_texts("contents", contents)),
        using_index_values=None if values is None else _index_values(values),
        semantics=entry.catalog.semantics,
        **{name: arguments[name] for name in _FLAGS if name in arguments},
    )
    executor = arguments.get("executor")
    if executor is not None:
        _check("executor", executor, str)
    executor_name(executor)
    return RowScan(view, query, executor)


def _check(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        wanted = "text" if kind is str else "TRUE or FALSE"
        raise UsageError(f"reader: {name} takes {wanted}, not {value!r}")


def _texts(name: str, value: Any) -> list[str]:
    """One text or several, or the first column of a query."""
    if isinstance(value, pa.Table):
        value = value.column(SEGMENT_ID if SEGMENT_ID in value.column_names else 0).drop_null().to_pylist()
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"reader: {name} takes text, or a list of texts, not {value!r}")
    return texts


def _index_values(value: Any) -> Any:
    """Index values for :meth:`DatasetView.reader`."""
    if isinstance(value, pa.Table):
        return value if SEGMENT_ID in value.column_names else value.column(0)
    is_map = isinstance(value, list) and value and all(isinstance(item, tuple) for item in value)
    return dict(value) if is_map else value


def _has(schema: pa.Schema, field: pa.Field) -> bool:
    return field.name in schema.names and schema.field(field.name).type == field.type
