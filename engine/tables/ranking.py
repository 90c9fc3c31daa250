"""Ranked rows: those nearest to a vector, those with words, and both, fused by their ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from ..errors import UsageError
from ..lance import FragmentReader

DISTANCE: Final = "_distance"
SCORE: Final = "_score"
RELEVANCE: Final = "_relevance_score"
ROW_ID: Final = "_rowid"
SCORES: Final = (DISTANCE, SCORE, RELEVANCE)

METRICS: Final = ("l2", "cosine", "dot", "hamming")
PROBES: Final = 20
"""Partitions of an index that are looked at, where a query does not say."""
FUSED: Final = 60
"""The constant of reciprocal rank fusion."""


@dataclass(frozen=True)
class NearRows:
    """The rows nearest to a vector in ``column``, by ``metric``; by default that of the index, or squared L2.

    ``probes`` are the partitions of an index that are looked at. Of ``refine`` times as many rows as are asked for, the
    vectors are compared as they are, not as the index has them.
    """

    column: str
    vector: pa.Array
    metric: str | None = None
    probes: int = PROBES
    refine: int | None = None

    def ask(self, most: int) -> dict[str, Any]:
        """The arguments of Lance's scan."""
        nearest: dict[str, Any] = {"column": self.column, "q": self.vector, "k": most}
        nearest |= {"minimum_nprobes": self.probes, "maximum_nprobes": self.probes}
        nearest |= {} if self.metric is None else {"metric": self.metric}
        nearest |= {} if self.refine is None else {"refine_factor": self.refine}
        return {"nearest": nearest, "limit": most}


@dataclass(frozen=True)
class RowsWithWords:
    """The rows that have words of a text in some columns; by default in all that have an index of words."""

    text: str
    columns: tuple[str, ...] = ()

    def ask(self, most: int) -> dict[str, Any]:
        """The arguments of Lance's scan."""
        query: Any = {"query": self.text, "columns": list(self.columns)} if self.columns else self.text
        return {"full_text_query": query, "limit": most}


class Reranker(Protocol):
    """Whatever makes one ranking of two."""

    def rerank_hybrid(self, query: str, vector_results: pa.Table, fts_results: pa.Table) -> pa.Table:
        """The rows of both, each once, the best first, with the column ``_relevance_score``."""
        ...


@dataclass(frozen=True)
class RankFusion:
    """Reciprocal rank fusion: a row has the sum of ``1 / (k + rank)`` of the rankings that it is in."""

    k: int = FUSED

    def rerank_hybrid(self, query: str, vector_results: pa.Table, fts_results: pa.Table) -> pa.Table:
        """The rows of both, each once, the best first; of equal ones those of the vectors first."""
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
        found = both.take(pa.array(np.array(list(places.values()), np.int64)[order]))
        kept = [name for name in found.column_names if name not in (DISTANCE, SCORE)]
        return found.select(kept).append_column(RELEVANCE, pa.array(scores[order]))


def ranked(
    reader: FragmentReader,
    expressions: Mapping[str, str],
    where: str | None,
    near: NearRows | None,
    words: RowsWithWords | None,
    reranker: Reranker,
    window: tuple[int, int],
) -> pa.Table:
    """The rows of a ranking, the best first: SQL expressions, a score, and, where two are made one, the rows' ids.

    ``window`` are the number of rows that are wanted, and of those before them.
    """
    most, skipped = window
    if taken := [name for name in SCORES if name in reader.schema.names]:
        raise UsageError(
            f"the column {taken[0]!r} has the name of a score", hint="Give it another, to search the table."
        )
    if near is not None and words is not None:  # by name alone: an id nobody needs is a fifth of a search for words
        expressions = {**expressions, ROW_ID: ROW_ID}
    found = []
    for one, score in ((near, DISTANCE), (words, SCORE)):
        if one is not None:
            asked = one.ask(max(most + skipped, 1))
            found.append(_scanned(reader, {**expressions, score: score}, where, asked))
    if len(found) == 1:
        return found[0].slice(skipped, most)
    assert words is not None
    fused = reranker.rerank_hybrid(words.text, *found)
    missing = [name for name in (*expressions, RELEVANCE) if name not in fused.column_names]
    if missing:
        raise UsageError(f"the reranker gave no column {missing[0]!r}", hint="It is to give the rows as it gets them.")
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
    """The column of vectors that is meant; without a name, the only one. Raises ``UsageError``."""
    if name is not None:
        if name not in schema.names:
            raise UsageError(f"there is no column {name!r}", hint=f"There are: {', '.join(schema.names)}.")
        if not _is_vector(schema.field(name).type):
            raise UsageError(f"the column {name!r} has no vectors, but {schema.field(name).type}")
        return name
    found = [field.name for field in schema if _is_vector(field.type)]
    if len(found) != 1:
        told = f"there are several columns of vectors, {', '.join(found)}" if found else "there is no column of vectors"
        raise UsageError(told, hint="Name one, as vector_column_name=." if found else None)
    return str(found[0])


def vector_of(query: Any, column: str, type_: pa.DataType, *, shown: str | None = None) -> pa.Array:
    """Return a query as a vector of a column, which errors call ``shown``. Raises ``UsageError`` for what is none."""
    try:
        given = query if isinstance(query, (pa.Array, pa.ChunkedArray)) else pa.array(np.asarray(query))
        given = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
        found = given.cast(type_.value_type)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(f"the query is no vector of numbers: {error}") from None
    if found.null_count or len(found) != type_.list_size:
        raise UsageError(
            f"the query has {len(found) - found.null_count} numbers, "
            f"and vectors of {shown or repr(column)} have {type_.list_size}"
        )
    if pa.types.is_floating(found.type) and not np.isfinite(found.to_numpy(zero_copy_only=False)).all():
        raise UsageError("the query has a number that is not finite, to which nothing has a distance")
    return found


def word_columns(schema: pa.Schema, columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns in which words are looked for. Raises ``UsageError`` for those that are not there."""
    names = () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    if unknown := [name for name in names if name not in schema.names]:
        raise UsageError(f"there is no column {unknown[0]!r}", hint=f"There are: {', '.join(schema.names)}.")
    return names


def _is_vector(type_: pa.DataType) -> bool:
    number = type_.value_type if pa.types.is_fixed_size_list(type_) else None
    return number is not None and (pa.types.is_floating(number) or number in (pa.uint8(), pa.int8()))
