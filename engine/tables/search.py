"""Queries and searches of a table: filters, columns, vectors, words, and Spark DataFrames of the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from ..errors import UsageError
from ..execution import noting_task, stage_of
from ..lance import FragmentReader, LanceTable
from ..spark import arrow_of, running_session, spark_array, spark_form, spark_schema
from .adding import single_function
from .function import UDF, check_against
from .targets import quoted

if TYPE_CHECKING:
    import pandas as pd

    from ..execution import DataFrame as SparkFrame

DISTANCE: Final = "_distance"
SCORE: Final = "_score"
RELEVANCE: Final = "_relevance_score"
ROW_ID: Final = "_rowid"
SCORES: Final = (DISTANCE, SCORE, RELEVANCE)

METRICS: Final = ("l2", "cosine", "dot", "hamming")
PROBES: Final = 20
"""The default number of partitions of an index that a query searches."""
FUSED: Final = 60
"""The constant of reciprocal rank fusion."""


@dataclass(frozen=True)
class NearRows:
    """The rows whose vector in ``column`` is nearest by ``metric``, by default the index's metric, or squared L2.

    ``probes`` is the number of an index's partitions to search. For ``refine`` times the wanted rows, original vectors
    are compared instead of the index's compressed ones.
    """

    column: str
    vector: pa.Array
    metric: str | None = None
    probes: int = PROBES
    refine: int | None = None

    def ask(self, most: int) -> dict[str, Any]:
        """Return the arguments for Lance's scan."""
        nearest: dict[str, Any] = {"column": self.column, "q": self.vector, "k": most}
        nearest |= {"minimum_nprobes": self.probes, "maximum_nprobes": self.probes}
        nearest |= {} if self.metric is None else {"metric": self.metric}
        nearest |= {} if self.refine is None else {"refine_factor": self.refine}
        return {"nearest": nearest, "limit": most}


@dataclass(frozen=True)
class RowsWithWords:
    """The rows that have words of a text in ``columns``; by default, in all columns with an index of words."""

    text: str
    columns: tuple[str, ...] = ()

    def ask(self, most: int) -> dict[str, Any]:
        """Return the arguments for Lance's scan."""
        query: Any = {"query": self.text, "columns": list(self.columns)} if self.columns else self.text
        return {"full_text_query": query, "limit": most}


class Reranker(Protocol):
    """An object that fuses two rankings."""

    def rerank_hybrid(self, query: str, vector_results: pa.Table, fts_results: pa.Table) -> pa.Table:
        """Return the rows of both, each once, best first, with the column ``_relevance_score``."""
        ...


@dataclass(frozen=True)
class RankFusion:
    """Reciprocal rank fusion: a row's score is the sum of ``1 / (k + rank)`` over the rankings that contain it."""

    k: int = FUSED

    def rerank_hybrid(self, query: str, vector_results: pa.Table, fts_results: pa.Table) -> pa.Table:
        """Return the rows of both, each once, best first; on equal scores, the rows of the vector ranking first."""
        del query
        shares: dict[int, float] = {}
        places: dict[int, int] = {}
        ids = [*vector_results[ROW_ID].to_pylist(), *fts_results[ROW_ID].to_pylist()]
        for place, id_ in enumerate(ids):
            rank = place if place < vector_results.num_rows else place - vector_results.num_rows
            shares[id_] = shares.get(id_, 0.0) + 1 / (self.k + rank + 1)
            places.setdefault(id_, place)
        scores = np.array([shares[id_] for id_ in places], np.float32)
        order = np.argsort(-scores, kind="stable")
        both = pa.concat_tables([vector_results, fts_results], promote_options="default")
        rows = both.take(pa.array(np.array(list(places.values()), np.int64)[order]))
        names = [name for name in rows.column_names if name not in (DISTANCE, SCORE)]
        return rows.select(names).append_column(RELEVANCE, pa.array(scores[order]))


def ranked(
    reader: FragmentReader,
    expressions: Mapping[str, str],
    where: str | None,
    near: NearRows | None,
    words: RowsWithWords | None,
    reranker: Reranker,
    window: tuple[int, int],
) -> pa.Table:
    """Return the rows of a ranking, best first: SQL expressions, a score, and, for a fused ranking, row ids.

    ``window`` is the number of wanted rows, and the number of rows skipped before them.
    """
    most, skipped = window
    if taken := [name for name in SCORES if name in reader.schema.names]:
        raise UsageError(
            f"the column {taken[0]!r} has the reserved name of a score", hint="Rename it to search the table."
        )
    if near is not None and words is not None:  # not always: ids take a fifth of the time of a word search
        expressions = {**expressions, ROW_ID: ROW_ID}
    rankings = []
    for search, score in ((near, DISTANCE), (words, SCORE)):
        if search is not None:
            asked = search.ask(max(most + skipped, 1))
            rankings.append(_scanned(reader, {**expressions, score: score}, where, asked))
    if len(rankings) == 1:
        return rankings[0].slice(skipped, most)
    assert words is not None
    fused = reranker.rerank_hybrid(words.text, *rankings)
    missing = [name for name in (*expressions, RELEVANCE) if name not in fused.column_names]
    if missing:
        raise UsageError(
            f"the reranker returned no column {missing[0]!r}", hint="A reranker must keep all columns of the rows."
        )
    return fused.slice(skipped, most)


def _scanned(
    reader: FragmentReader, columns: Mapping[str, str], where: str | None, asked: Mapping[str, Any]
) -> pa.Table:
    return reader.scanned(
        columns,
        where,
        prefilter=where is not None,
        disable_scoring_autoprojection=True,
        **asked,
    )


def vector_column(schema: pa.Schema, name: str | None) -> str:
    """Return the named column of vectors; without a name, the only one. Raises ``UsageError``."""
    if name is not None:
        if name not in schema.names:
            raise UsageError(f"there is no column {name!r}", hint=f"There are: {', '.join(schema.names)}.")
        if not _is_vector(schema.field(name).type):
            raise UsageError(f"the column {name!r} has {schema.field(name).type}, not vectors")
        return name
    names = [field.name for field in schema if _is_vector(field.type)]
    if len(names) != 1:
        reason = (
            f"there are several columns of vectors, {', '.join(names)}" if names else "there is no column of vectors"
        )
        raise UsageError(reason, hint="Choose a column by vector_column_name=." if names else None)
    return str(names[0])


def vector_of(query: Any, column: str, type_: pa.DataType, *, shown: str | None = None) -> pa.Array:
    """Return a query as a vector of a column, named ``shown`` in errors. Raises ``UsageError`` if it is invalid."""
    try:
        given = query if isinstance(query, (pa.Array, pa.ChunkedArray)) else pa.array(np.asarray(query))
        given = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
        vector = given.cast(type_.value_type)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(f"the query is not a vector of numbers: {error}") from None
    if vector.null_count or len(vector) != type_.list_size:
        raise UsageError(
            f"the query has {len(vector) - vector.null_count} numbers, but vectors of {shown or repr(column)} have "
            f"{type_.list_size}"
        )
    if pa.types.is_floating(vector.type) and not np.isfinite(vector.to_numpy(zero_copy_only=False)).all():
        raise UsageError("the query has a non-finite number")
    return vector


def word_columns(schema: pa.Schema, columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns to search for words. Raises ``UsageError`` for missing columns."""
    names = () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    if unknown := [name for name in names if name not in schema.names]:
        raise UsageError(f"there is no column {unknown[0]!r}", hint=f"There are: {', '.join(schema.names)}.")
    return names


def _is_vector(type_: pa.DataType) -> bool:
    number = type_.value_type if pa.types.is_fixed_size_list(type_) else None
    return number is not None and (pa.types.is_floating(number) or number in (pa.uint8(), pa.int8()))


QueryColumn = str | UDF
"""A column of a query: SQL, or a function, over the table's columns."""

_INPUT: Final = "__input_"


@dataclass(frozen=True)
class AskedColumns:
    """The columns of a query (SQL and functions), and the inputs of the functions."""

    columns: Mapping[str, QueryColumn]
    inputs: Mapping[str, str]
    source: pa.Schema

    @classmethod
    def of(cls, columns: Mapping[str, QueryColumn] | None, more: Iterable[str], reader: FragmentReader) -> AskedColumns:
        """Return the columns of a query on a version (by default all of the table's columns), and ``more`` columns.

        Raises ``UsageError`` for missing columns.
        """
        columns = dict(columns or {name: quoted(name) for name in reader.schema.names})
        columns |= {name: name for name in more if name not in columns}
        functions = (column for column in columns.values() if isinstance(column, UDF))
        inputs = {f"{_INPUT}{name}": quoted(name) for name in inputs_of(functions, reader.schema)}
        return cls(columns, inputs, reader.schema)

    @property
    def expressions(self) -> dict[str, str]:
        """Return the SQL expressions to read."""
        return {**{name: column for name, column in self.columns.items() if isinstance(column, str)}, **self.inputs}

    def schema(self, reader: FragmentReader) -> pa.Schema:
        """Return the columns of a result without a ranking."""
        return self.finished_schema(reader.expressed_schema({**self.expressions, ROW_ID: ROW_ID}))

    def scanned(
        self,
        reader: FragmentReader,
        condition: str | None,
        most: int | None = None,
        skipped: int = 0,
        fragments: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of some fragments, in order: at most ``most``, after skipping ``skipped``."""
        batches = reader.expressed(self.expressions, condition, fragments=fragments, limit=most, offset=skipped)
        return map(self.finished, batches)

    def finished(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the functions' columns to a batch that was read."""
        if batch.schema.names == [*self.columns]:
            return batch
        arrays = []
        for name, column in self.columns.items():
            if isinstance(column, UDF):
                names = inputs_of([column], self.source)
                given = [batch.column(f"{_INPUT}{input_name}") for input_name in names]
                arrays.append(column.compute(pa.RecordBatch.from_arrays(given, names)))
            else:
                arrays.append(batch.column(name))
        return pa.RecordBatch.from_arrays(arrays, schema=self.finished_schema(batch.schema))

    def finished_schema(self, read: pa.Schema) -> pa.Schema:
        """Add the functions' columns to the schema of a batch that was read."""
        return pa.schema(
            [
                pa.field(name, column.data_type) if isinstance(column, UDF) else read.field(name)
                for name, column in self.columns.items()
            ]
        )


def inputs_of(functions: Iterable[UDF], schema: pa.Schema) -> list[str]:
    """Return the input columns of functions, each once. Raises ``UsageError`` for columns that the table lacks."""
    names: dict[str, None] = {}
    for function in functions:
        check_against(schema, function)
        names |= dict.fromkeys(schema.names if function.inputs is None else function.inputs)
    return list(names)


RANKED_ROWS: Final = 10
"""The default limit of a ranked query."""


@dataclass(frozen=True)
class TableQuery:
    """A query of a table, made by ``Table.search``. It is immutable: each method returns a new query.

    ``condition`` is an SQL condition on rows. ``columns`` maps names to SQL over the table's columns or to functions
    (None: all columns of the table). ``most`` and ``skipped`` are the limit and the offset. ``near`` and ``words`` rank
    the rows; a query may have both.
    """

    table: LanceTable
    condition: str | None = None
    columns: Mapping[str, QueryColumn] | None = None
    most: int | None = None
    skipped: int = 0
    near: NearRows | None = field(default=None, compare=False)
    words: RowsWithWords | None = None
    is_hybrid: bool = False
    reranker: Reranker = field(default_factory=RankFusion)
    has_row_id: bool = False
    vector_name: str | None = None
    """The column of vectors for :meth:`vector`; None: the only one."""

    def where(self, condition: str) -> TableQuery:
        """Select the rows that match an SQL condition; a ranking contains only these."""
        if not isinstance(condition, str) or not condition.strip():
            raise UsageError(f"where() takes an SQL condition, not {condition!r}")
        both = condition if self.condition is None else f"({self.condition}) AND ({condition})"
        return replace(self, condition=both)

    def select(self, columns: Sequence[str] | Mapping[str, str | UDF | tuple[UDF, Sequence[str]]]) -> TableQuery:
        """Select columns: names, or a mapping of names to SQL, functions, or functions and their inputs' names."""
        if isinstance(columns, str):
            raise TypeError("select() takes a list of names, or a mapping of names to SQL or functions")
        given = columns if isinstance(columns, Mapping) else {name: quoted(name) for name in columns}
        if not given:
            raise UsageError("select() got no columns")
        return replace(self, columns={name: _column(name, column) for name, column in given.items()})

    def limit(self, rows: int | None) -> TableQuery:
        """Return at most this number of rows. None: all rows, or ten for a ranking."""
        return replace(self, most=None if rows is None else _count("limit", rows))

    def offset(self, rows: int) -> TableQuery:
        """Skip this number of rows."""
        return replace(self, skipped=_count("offset", rows))

    # --- rankings

    def vector(self, query: Any) -> TableQuery:
        """Set the vector. A hybrid query needs a vector and words."""
        near = self.near
        schema = self.table.newest().schema
        column = vector_column(schema, self.vector_name) if near is None else near.column
        vector = vector_of(query, column, schema.field(column).type)
        return replace(self, near=NearRows(column, vector) if near is None else replace(near, vector=vector))

    def text(self, query: str) -> TableQuery:
        """Set the words. A hybrid query needs words and a vector."""
        if not isinstance(query, str):
            raise TypeError(f"text() takes words, not {query!r}")
        return replace(self, words=RowsWithWords(query) if self.words is None else replace(self.words, text=query))

    def metric(self, metric: str) -> TableQuery:
        """Set the distance: ``l2`` (squared), ``cosine``, ``dot`` or ``hamming``."""
        if not isinstance(metric, str) or metric.lower() not in METRICS:
            raise UsageError(f"metric() takes one of {', '.join(METRICS)}, not {metric!r}")
        return replace(self, near=replace(self._near("metric"), metric=metric.lower()))

    def nprobes(self, partitions: int) -> TableQuery:
        """Search this number of partitions of the index, by default 20."""
        return replace(self, near=replace(self._near("nprobes"), probes=_count("nprobes", partitions, least=1)))

    def refine_factor(self, times: int) -> TableQuery:
        """Compare original vectors for ``times`` times as many rows as the limit; by default for none."""
        return replace(self, near=replace(self._near("refine_factor"), refine=_count("refine_factor", times, least=1)))

    def rerank(self, reranker: Reranker | None = None, *, k: int = 60) -> TableQuery:
        """Rank a hybrid query by reciprocal rank fusion with another ``k``, or by your own reranker.

        The method ``rerank_hybrid(query, vector_results, fts_results)`` gets the words and two pyarrow tables, with the
        query's columns, ``_rowid`` and ``_distance`` or ``_score``. It returns one table with ``_relevance_score``.
        """
        if not self.is_hybrid:
            raise UsageError("rerank() needs a hybrid query, which has two rankings")
        if reranker is not None and not callable(getattr(reranker, "rerank_hybrid", None)):
            raise TypeError("a reranker needs a method rerank_hybrid")
        return replace(self, reranker=reranker or RankFusion(_count("k", k, least=1)))

    def with_row_id(self, wanted: bool = True) -> TableQuery:
        """Add the column ``_rowid``."""
        return replace(self, has_row_id=bool(wanted))

    @property
    def is_ranked(self) -> bool:
        """Return whether the order of rows differs from the table's."""
        return self.is_hybrid or self.near is not None or self.words is not None

    # --- results

    def to_arrow(self) -> pa.Table:
        """Return the rows. Functions run in this process."""
        reader = self.table.newest()
        asked = self._asked(reader)
        if self.is_ranked:
            return self._ranked(reader, asked)
        batches = list(asked.scanned(reader, self.condition, self.most, self.skipped))
        return pa.Table.from_batches(batches, batches[0].schema if batches else asked.schema(reader))

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_batches(self, batch_size: int | None = None) -> pa.RecordBatchReader:
        """Yield the rows lazily, in batches of at most ``batch_size`` rows."""
        reader = self.table.newest()
        asked = self._asked(reader)
        if self.is_ranked:
            rows = self._ranked(reader, asked)
            schema, given = rows.schema, iter(rows.to_batches())
        else:
            schema, given = asked.schema(reader), asked.scanned(reader, self.condition, self.most, self.skipped)
        if batch_size is not None:
            given = _cut(given, _count("batch_size", batch_size, least=1))
        return pa.RecordBatchReader.from_batches(schema, given)

    def to_spark(self) -> SparkFrame:
        """Return the rows as a lazy Spark DataFrame, whose tasks read fragments and call functions.

        A ranking, or a query with a limit or an offset, runs in this process.
        """

        if self.is_ranked or self.most is not None or self.skipped:
            return frame_of_rows(self.to_arrow())
        reader = self.table.newest()
        return frame_of_fragments(self.table, reader, self._asked(reader), self.condition)

    def _asked(self, reader: FragmentReader) -> AskedColumns:
        scores = _scores_of(self)
        if self.is_ranked and (
            wrong := [name for name in SCORES if name in (self.columns or ()) and name not in scores]
        ):
            raise UsageError(f"this search has no column {wrong[0]}", hint=f"It gives {scores[0]}.")
        return AskedColumns.of(self.columns, (*scores, *([ROW_ID] * self.has_row_id)), reader)

    def _ranked(self, reader: FragmentReader, asked: AskedColumns) -> pa.Table:
        """Return the rows of a ranked query, best first."""
        if self.is_hybrid and (self.near is None or self.words is None):
            missing = "vector(…)" if self.near is None else "text(…)"
            raise UsageError("a hybrid search needs a vector and words", hint=f"Add .{missing}.")
        window = (RANKED_ROWS if self.most is None else self.most, self.skipped)
        expressions = {name: expression for name, expression in asked.expressions.items() if name not in SCORES}
        rows = ranked(reader, expressions, self.condition, self.near, self.words, self.reranker, window)
        if rows.column_names == [*asked.columns]:
            return rows
        batches = [asked.finished(batch) for batch in rows.combine_chunks().to_batches()]
        return pa.Table.from_batches(batches, asked.finished_schema(rows.schema))

    def _near(self, method: str) -> NearRows:
        if self.near is None:
            raise UsageError(f"{method}() needs a search for vectors")
        return self.near


def _scores_of(query: TableQuery) -> tuple[str, ...]:
    """Return the score columns of a query's result."""
    if not query.is_ranked:
        return ()
    return (RELEVANCE,) if query.is_hybrid else (SCORES[0] if query.near is not None else SCORES[1],)


def _cut(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for begin in range(0, batch.num_rows, rows):
            yield batch.slice(begin, rows)


def _column(name: str, given: object) -> QueryColumn:
    if not isinstance(name, str):
        raise TypeError(f"the name of a column must be text, not {name!r}")
    if isinstance(given, str):
        return given
    return single_function(name, given)


def _count(what: str, number: int, least: int = 0) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise UsageError(f"{what} must be at least {least}, not {number!r}")
    return number


_MOST_TASKS: Final = 1024


class PartSource(Protocol):
    """A source of rows in numbered parts. Picklable."""

    def rows(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        ...


@dataclass(frozen=True)
class FragmentParts:
    """The rows of fragments in which a condition is true, with a query's columns."""

    table: LanceTable
    version: int
    asked: AskedColumns
    condition: str | None
    parts: tuple[tuple[int, ...], ...]

    def rows(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        return self.asked.scanned(self.table.pinned(self.version), self.condition, fragments=self.parts[index])


@dataclass(frozen=True)
class FoundRows:
    """Rows in memory: the result of a query."""

    table: pa.Table

    def rows(self, index: int) -> Iterator[pa.RecordBatch]:
        """All of them."""
        del index
        return iter(self.table.to_batches())


@dataclass(frozen=True)
class QueryJob:
    """The function of a Spark task that returns a part's rows in Spark's types. Picklable."""

    source: PartSource
    schema: pa.Schema

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        with noting_task(f"part {index} of a query"):
            for batch in self.source.rows(index):
                columns = [
                    spark_array(column, field.type) for column, field in zip(batch.columns, self.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def frame_of_fragments(
    table: LanceTable, reader: FragmentReader, asked: AskedColumns, condition: str | None
) -> SparkFrame:
    """Return a version's rows in which a condition is true as a lazy DataFrame in Spark's types."""
    parts = tuple(map(tuple, table.snapshot(reader.version).parts(_MOST_TASKS)))
    source = FragmentParts(table, reader.version, asked, condition, parts)
    return _frame_of(source, asked.schema(reader), len(parts))


def frame_of_rows(rows: pa.Table) -> SparkFrame:
    """Return rows as a DataFrame in Spark's types."""
    return _frame_of(FoundRows(rows), rows.schema, 1)


def _frame_of(source: PartSource, columns: pa.Schema, parts: int) -> SparkFrame:
    schema = spark_schema(pa.schema([(field.name, spark_form(field.type)) for field in columns]))
    return stage_of(running_session(), QueryJob(source, arrow_of(schema)), range(parts + 1), schema)
