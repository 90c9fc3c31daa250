"""Queries as DataFrames of DataFusion: a table whose partitions are segments, each read when its rows are wanted.

DataFusion is given a dataset of pyarrow's kind, whose fragments are segments. What it hands down, columns and filters
that pyarrow can express, is answered exactly; everything else it evaluates above.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from datafusion import DataFrame, SessionContext

from ..errors import ChunkmillError, UnsupportedError
from ..query import AnswerColumns, QueriedSegment, lacking_guarantee, satisfiable, segment_guarantee

_TABLE: Final = "segments"


class QueryFrame(DataFrame):
    """A DataFrame of DataFusion over the answer of a query; what its methods make of it is one, too.

    Errors of reading are those of chunkmill, not DataFusion's words for them.
    """

    def __init__(self, frame: DataFrame, failures: Failures) -> None:
        super().__init__(frame.df)
        self._failures = failures

    @classmethod
    def of(
        cls, columns: AnswerColumns, segments: Sequence[QueriedSegment], *, context: SessionContext | None = None
    ) -> QueryFrame:
        """The rows of segments, a partition for each; no chunk is read before rows are wanted.

        ``context`` is what evaluates it, by default one of its own; no table is left in it.
        """
        failures = Failures()
        context = SessionContext() if context is None else context
        name = f"{_TABLE}_{uuid.uuid4().hex}"
        context.register_dataset(name, _Answer(columns, segments, failures))
        frame = context.table(name)
        context.deregister_table(name)
        return cls(frame, failures)


class Failures:
    """The error that reading ended with, which DataFusion tells as text alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: Exception | None = None

    def add(self, error: Exception) -> None:
        """Keep an error, unless there is one."""
        with self._lock:
            self._first = self._first or error

    def take(self) -> Exception | None:
        """The error, which is forgotten then."""
        with self._lock:
            found, self._first = self._first, None
        return found


def _kept(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose frames are query frames, and whose failures are what reading failed with."""

    @wraps(method)
    def keeping(self: QueryFrame, *args: Any, **kwargs: Any) -> Any:
        try:
            found = method(self, *args, **kwargs)
        except ChunkmillError:
            raise
        except Exception as error:
            failure = self._failures.take()
            if failure is None:
                raise
            raise failure from error
        if isinstance(found, DataFrame) and not isinstance(found, QueryFrame):
            return QueryFrame(found, self._failures)
        return found

    return keeping


for _name, _method in vars(DataFrame).items():
    if callable(_method) and not _name.startswith("_"):
        setattr(QueryFrame, _name, _kept(_method))


class _Answer(ds.Dataset):  # type: ignore[misc]
    """The answer of a query as DataFusion wants it."""

    def __init__(self, columns: AnswerColumns, segments: Sequence[QueriedSegment], failures: Failures) -> None:
        self._columns = columns
        self._segments = segments
        self._failures = failures

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._columns.arrow

    def scanner(self, columns: Sequence[str] | None = None, **_: Any) -> _Scan:
        """The columns of a scan: DataFusion asks for them when it plans."""
        return _Scan(self._columns.arrow, columns, lambda: iter(()))

    def get_fragments(self, filter: pc.Expression | None = None) -> list[_Segment]:  # noqa: A002 (pyarrow's name)
        """The segments that may have rows in which the filter is true; DataFusion wants one at least."""
        segments = [segment for segment in self._segments if segment.may_have_rows]
        if filter is not None:
            lacking: dict[Any, pc.Expression | None] = {}
            guarantees = []
            for segment in segments:
                if id(segment.there) not in lacking:
                    lacking[id(segment.there)] = lacking_guarantee(self._columns, segment.there)
                guarantees.append(
                    segment_guarantee(self._columns, segment.segment_id, segment.bounds, lacking[id(segment.there)])
                )
            try:
                segments = [segments[number] for number in satisfiable(filter, guarantees, self._columns.arrow)]
            except UnsupportedError as error:
                self._failures.add(error)
                raise
        return [_Segment(segment, self._failures) for segment in segments] or [_Segment(None, self._failures)]


class _Segment:
    """A segment as a fragment of a dataset."""

    def __init__(self, segment: QueriedSegment | None, failures: Failures) -> None:
        self._segment = segment
        self._failures = failures

    def scanner(
        self,
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 (pyarrow's name)
        **_: Any,
    ) -> _Scan:
        """The rows in which the filter is true."""
        return _Scan(schema, columns, lambda: self._batches(columns, filter))

    def _batches(self, columns: Sequence[str] | None, predicate: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        if self._segment is None:
            return
        try:
            yield from self._segment.batches(columns, predicate)
        except Exception as error:
            self._failures.add(error)
            raise


class _Scan:
    """The batches of a scan, made as they are taken."""

    def __init__(
        self, schema: pa.Schema, columns: Sequence[str] | None, batches: Callable[[], Iterator[pa.RecordBatch]]
    ) -> None:
        self.projected_schema = (
            schema if columns is None else pa.schema([schema.field(name) for name in columns], schema.metadata)
        )
        self._batches = batches

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The batches."""
        return self._batches()
