"""Rows of a table that are asked for: which of them, and which columns; nothing is read before it is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ..errors import UsageError
from ..lance import FragmentReader, LanceTable
from .adding import single_function
from .asked_columns import AskedColumns, QueryColumn
from .functions import UDF
from .ranking import (
    METRICS,
    RELEVANCE,
    ROW_ID,
    SCORES,
    NearRows,
    RankFusion,
    Reranker,
    RowsWithWords,
    ranked,
    vector_column,
    vector_of,
)
from .targets import quoted

if TYPE_CHECKING:
    import pandas as pd

    from ..execution import DataFrame as SparkFrame

RANKED_ROWS: Final = 10
"""Rows of a ranking, where a query has no limit."""


@dataclass(frozen=True)
class TableQuery:
    """A question to a table, made by ``Table.search``. Each method gives another, and leaves this one as it is.

    ``condition`` is SQL that is true in the rows that are asked for; ``columns`` are, by their names, SQL over the
    table's columns or functions of them (None: all of the table's); ``most`` and ``skipped`` are the number of rows, of
    those that are found in the table's order, or in that of the ranking, and of those before them. ``near`` and
    ``words`` rank rows, one of them or both.
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
    """The column of vectors that :meth:`vector` means; None: the only one."""

    def where(self, condition: str) -> TableQuery:
        """The rows in which an SQL condition is true, too; of a ranking, the best of these."""
        if not isinstance(condition, str) or not condition.strip():
            raise UsageError(f"where() takes an SQL condition, not {condition!r}")
        both = condition if self.condition is None else f"({self.condition}) AND ({condition})"
        return replace(self, condition=both)

    def select(self, columns: Sequence[str] | Mapping[str, str | UDF | tuple[UDF, Sequence[str]]]) -> TableQuery:
        """Some columns: their names, or a mapping of names to SQL, functions, or functions and the names of inputs."""
        if isinstance(columns, str):
            raise TypeError("select() takes a list of names, or a mapping of names to SQL or functions")
        given = columns if isinstance(columns, Mapping) else {name: quoted(name) for name in columns}
        if not given:
            raise UsageError("select() got no columns")
        return replace(self, columns={name: _column(name, one) for name, one in given.items()})

    def limit(self, rows: int | None) -> TableQuery:
        """At most so many rows; None: all, or ten of a ranking."""
        return replace(self, most=None if rows is None else _count("limit", rows))

    def offset(self, rows: int) -> TableQuery:
        """The rows after the first so many."""
        return replace(self, skipped=_count("offset", rows))

    # --- rankings

    def vector(self, query: Any) -> TableQuery:
        """The same with another vector, or, of a hybrid query, with the vector."""
        near = self.near
        schema = self.table.newest().schema
        column = vector_column(schema, self.vector_name) if near is None else near.column
        vector = vector_of(query, column, schema.field(column).type)
        return replace(self, near=NearRows(column, vector) if near is None else replace(near, vector=vector))

    def text(self, query: str) -> TableQuery:
        """The same with other words, or, of a hybrid query, with the words."""
        if not isinstance(query, str):
            raise TypeError(f"text() takes words, not {query!r}")
        return replace(self, words=RowsWithWords(query) if self.words is None else replace(self.words, text=query))

    def metric(self, metric: str) -> TableQuery:
        """By another distance: ``l2``, which is squared, ``cosine``, ``dot`` or ``hamming``."""
        if not isinstance(metric, str) or metric.lower() not in METRICS:
            raise UsageError(f"metric() takes one of {', '.join(METRICS)}, not {metric!r}")
        return replace(self, near=replace(self._near("metric"), metric=metric.lower()))

    def nprobes(self, partitions: int) -> TableQuery:
        """With a look at so many partitions of the index, 20 by default."""
        return replace(self, near=replace(self._near("nprobes"), probes=_count("nprobes", partitions, least=1)))

    def refine_factor(self, times: int) -> TableQuery:
        """With so many times as many vectors compared as they are, by default none of them."""
        return replace(self, near=replace(self._near("refine_factor"), refine=_count("refine_factor", times, least=1)))

    def rerank(self, reranker: Reranker | None = None, *, k: int = 60) -> TableQuery:
        """The ranking of a hybrid query by reciprocal rank fusion with another ``k``, or by a reranker of one's own.

        Its ``rerank_hybrid(query, vector_results, fts_results)`` gets the words and two pyarrow tables, with the
        columns that are asked for, ``_rowid`` and ``_distance`` or ``_score``; it gives one, with
        ``_relevance_score``.
        """
        if not self.is_hybrid:
            raise UsageError("rerank() is of hybrid queries, which have two rankings")
        if reranker is not None and not callable(getattr(reranker, "rerank_hybrid", None)):
            raise TypeError("a reranker has a method rerank_hybrid")
        return replace(self, reranker=reranker or RankFusion(_count("k", k, least=1)))

    def with_row_id(self, wanted: bool = True) -> TableQuery:
        """With the column ``_rowid``."""
        return replace(self, has_row_id=bool(wanted))

    @property
    def is_ranked(self) -> bool:
        """Whether rows come in another order than the table's."""
        return self.is_hybrid or self.near is not None or self.words is not None

    # --- answers

    def to_arrow(self) -> pa.Table:
        """The rows that are asked for. Functions are called in this process."""
        reader = self.table.newest()
        asked = self._asked(reader)
        if self.is_ranked:
            return self._ranked(reader, asked)
        batches = list(asked.scanned(reader, self.condition, self.most, self.skipped))
        return pa.Table.from_batches(batches, batches[0].schema if batches else asked.schema(reader))

    def to_pandas(self) -> pd.DataFrame:
        """The rows that are asked for, as a DataFrame of pandas."""
        return self.to_arrow().to_pandas()

    def to_batches(self, batch_size: int | None = None) -> pa.RecordBatchReader:
        """The rows that are asked for, read as they are taken, in batches of at most ``batch_size`` rows."""
        reader = self.table.newest()
        asked = self._asked(reader)
        if self.is_ranked:
            found = self._ranked(reader, asked)
            schema, given = found.schema, iter(found.to_batches())
        else:
            schema, given = asked.schema(reader), asked.scanned(reader, self.condition, self.most, self.skipped)
        if batch_size is not None:
            given = _cut(given, _count("batch_size", batch_size, least=1))
        return pa.RecordBatchReader.from_batches(schema, given)

    def to_spark(self) -> SparkFrame:
        """The rows that are asked for, as a lazy DataFrame of Spark, whose tasks read fragments and call functions.

        A ranking, and a query with a limit or an offset, is answered here.
        """
        from .spark_query import frame_of_fragments, frame_of_rows

        if self.is_ranked or self.most is not None or self.skipped:
            return frame_of_rows(self.to_arrow())
        reader = self.table.newest()
        return frame_of_fragments(self.table, reader, self._asked(reader), self.condition)

    def _asked(self, reader: FragmentReader) -> AskedColumns:
        scores = _scores_of(self)
        if self.is_ranked and (
            wrong := [name for name in SCORES if name in (self.columns or ()) and name not in scores]
        ):
            raise UsageError(f"such a search gives no {wrong[0]}", hint=f"It gives {scores[0]}.")
        return AskedColumns.of(self.columns, (*scores, *([ROW_ID] * self.has_row_id)), reader)

    def _ranked(self, reader: FragmentReader, asked: AskedColumns) -> pa.Table:
        """The rows of a query that ranks them, the best first."""
        if self.is_hybrid and (self.near is None or self.words is None):
            missing = "vector(…)" if self.near is None else "text(…)"
            raise UsageError("a hybrid search is one for a vector and for words", hint=f"Add .{missing}.")
        window = (RANKED_ROWS if self.most is None else self.most, self.skipped)
        expressions = {name: one for name, one in asked.expressions.items() if name not in SCORES}
        found = ranked(reader, expressions, self.condition, self.near, self.words, self.reranker, window)
        if found.column_names == [*asked.columns]:
            return found
        batches = [asked.finished(batch) for batch in found.combine_chunks().to_batches()]
        return pa.Table.from_batches(batches, asked.finished_schema(found.schema))

    def _near(self, method: str) -> NearRows:
        if self.near is None:
            raise UsageError(f"{method}() is of searches for vectors")
        return self.near


def _scores_of(query: TableQuery) -> tuple[str, ...]:
    """The scores that a query gives."""
    if not query.is_ranked:
        return ()
    return (RELEVANCE,) if query.is_hybrid else (SCORES[0] if query.near is not None else SCORES[1],)


def _cut(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for begin in range(0, batch.num_rows, rows):
            yield batch.slice(begin, rows)


def _column(name: str, given: object) -> QueryColumn:
    if not isinstance(name, str):
        raise TypeError(f"the name of a column is text, not {name!r}")
    if isinstance(given, str):
        return given
    return single_function(name, given)


def _count(what: str, number: int, least: int = 0) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise UsageError(f"{what} is a number of at least {least}, not {number!r}")
    return number
