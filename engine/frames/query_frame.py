"""Query results as DataFusion DataFrames: tables whose partitions are segments, each read when its rows are needed."""

from __future__ import annotations

import re
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from datafusion import DataFrame, RecordBatch, RecordBatchStream, SessionContext

from ..chunk import format_batch, rows_panel
from ..errors import ChunkmillError, UsageError
from ..execution import RunOptions
from ..markup import panel_or_error
from ..query import AnswerColumns, QueriedSegment, no_column
from ..spark import interruptible
from .answer import Answer, UserCall, calling, outer_call
from .metrics import Measuring

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as SparkFrame

_TABLE: Final = "segments"

_NO_FIELD: Final = re.compile(
    rf'^DataFusion error: .*?No field named (?:{_TABLE}_[0-9a-f]{{32}}\.)?(?:"((?:[^"]|"")+)"|(.+?))\.(?:\s|$)',
    re.DOTALL,
)
"""DataFusion's message about a missing column."""

SHOWN_ROWS: Final = 20
"""The most printed rows of a frame."""
_MORE: Final = "Data truncated due to size."
_TITLE: Final = "DataFrame"


class QueryFrame(DataFrame):
    """A DataFusion DataFrame of the result of a query.

    Its methods also return such frames. Read errors are those of chunkmill, not of DataFusion. Files that Spark's
    workers write for a call are removed when the call ends. If the call returns a stream, they are removed when the
    stream ends.
    """

    def __init__(self, frame: DataFrame, answer: Answer | None = None) -> None:
        super().__init__(frame.df)
        self._answer = answer

    @classmethod
    def of(
        cls,
        columns: AnswerColumns,
        segments: Sequence[QueriedSegment],
        options: RunOptions | None = None,
        *,
        dataset_id: str = "",
        context: SessionContext | None = None,
    ) -> QueryFrame:
        """The rows of segments, with one partition for each segment. Chunks are read when rows are requested.

        ``options`` choose the executor. If neither an argument nor the environment names one, the number of bytes to
        read decides. ``dataset_id`` is the id of the segments' dataset, if any, for metrics. ``context`` is the session
        that evaluates the frame, by default a new one; no table stays in it.
        """
        context = SessionContext() if context is None else context
        answer = Answer(columns, segments, RunOptions() if options is None else options, Measuring(dataset_id))
        name = f"{_TABLE}_{uuid.uuid4().hex}"
        context.register_dataset(name, answer)
        frame = context.table(name)
        context.deregister_table(name)
        return cls(frame, answer)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """A block that reports a missing column without DataFusion's name of the table."""
        try:
            yield
        except (ChunkmillError, StopIteration, StopAsyncIteration):
            raise
        except Exception as error:
            missing = missing_column(error, super().schema().names)
            if missing is None:
                raise
            raise missing from None

    def derived(self, frame: DataFrame) -> QueryFrame:
        """Return a frame made by a method of this frame, as a query frame."""
        return QueryFrame(frame)

    def to_spark(self) -> SparkFrame:
        """The same rows as a lazy Spark DataFrame; see the page on Spark for its types.

        Raises
        ------
        UsageError
            The frame is not a reader's own frame: Spark cannot execute a plan of DataFusion.
        """
        if self._answer is None:
            raise UsageError(
                "to_spark() needs the frame of a reader, not a frame derived from it",
                hint="Call reader(...).to_spark() first, and select and filter in Spark; or pass the rows: "
                "spark.createDataFrame(frame.to_pandas()).",
            )
        from .spark_frame import spark_frame

        return spark_frame(self._answer)

    def __repr__(self) -> str:
        rows, is_all = self._first_rows()
        if not len(rows) or not rows.num_columns:
            return "No data to display"
        return format_batch(rows) if is_all else f"{format_batch(rows)}\n{_MORE}"

    def _repr_html_(self) -> str:
        def draw() -> str:
            rows, is_all = self._first_rows()
            return rows_panel(_TITLE, rows, is_all=is_all)

        return panel_or_error(_TITLE, draw)

    def _first_rows(self) -> tuple[pa.RecordBatch, bool]:
        """The rows to print, and whether they are all rows."""
        table = self.limit(SHOWN_ROWS + 1).to_arrow_table().combine_chunks()
        columns = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=table.schema)
        return rows[:SHOWN_ROWS], len(rows) <= SHOWN_ROWS


def missing_column(error: Exception, columns: Sequence[str], *, where: str = "") -> UsageError | None:
    """Return the error for DataFusion's message about a missing column, else None; see :func:`no_column`."""
    missing = _NO_FIELD.search(str(error))
    return None if missing is None else no_column((missing[1] or missing[2]).replace('""', '"'), columns, where=where)


class QueryStream(RecordBatchStream):
    """A stream of a query frame's batches. It raises the read errors behind DataFusion's errors."""

    def __init__(
        self, stream: RecordBatchStream, call: UserCall, explaining: Callable[[], AbstractContextManager[None]]
    ) -> None:
        super().__init__(stream.rbs)
        self._call = call
        self._explaining = explaining
        self._let_go = weakref.finalize(self, call.held())

    def __del__(self) -> None:
        # first drop the stream: closing the call waits, for metrics, until DataFusion has dropped it
        del self.rbs

    def __next__(self) -> RecordBatch:
        """The next batch."""
        with self._until_the_end():
            batch = self._call.answer(lambda: next(self.rbs, None))
            if batch is None:
                raise StopIteration
            return RecordBatch(batch)

    async def __anext__(self) -> RecordBatch:
        """The next batch."""
        with self._until_the_end():
            return await super().__anext__()

    @contextmanager
    def _until_the_end(self) -> Iterator[None]:
        try:
            with self._explaining(), self._call.telling():
                yield
        except BaseException:
            self._let_go()
            raise


def _wrap_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method, so that it returns query frames, and raises the read errors behind DataFusion's errors."""
    is_run = method.__name__ in _RUNNING

    @wraps(method)
    def wrapped(self: QueryFrame, *args: Any, **kwargs: Any) -> Any:
        outer, lasts = outer_call(), False
        call = outer or UserCall()
        work = partial(method, self, *args, **kwargs)
        with interruptible():
            try:
                with self._explaining(), call.telling(), calling(call):
                    answer = call.answer(work) if is_run else work()
                if isinstance(answer, DataFrame):
                    return answer if isinstance(answer, QueryFrame) else self.derived(answer)
                streams = answer if isinstance(answer, list) else [answer]
                lasts = any(map(_is_stream, streams))
                if not lasts or _is_capsule(answer) or isinstance(answer, QueryStream):
                    return answer
                made = [QueryStream(stream, call, self._explaining) for stream in streams]
                return made if isinstance(answer, list) else made[0]
            finally:
                if not lasts and outer is None:
                    call.close()

    return wrapped


def _is_stream(answer: Any) -> bool:
    return _is_capsule(answer) or isinstance(answer, RecordBatchStream)


def _is_capsule(answer: Any) -> bool:
    return type(answer).__name__ == "PyCapsule"


_WITH_UNDERSCORES: Final = ("__getitem__", "__arrow_c_stream__", "__iter__", "__aiter__")

_RUNNING: Final = (
    *("cache", "collect", "collect_column", "collect_partitioned", "count", "describe"),
    *("explain", "show", "to_arrow_table", "to_pandas", "to_polars", "to_pydict", "to_pylist"),
    *("write_csv", "write_json", "write_parquet", "write_parquet_with_options", "write_table"),
)
"""The methods that wait for rows."""

for _name, _method in vars(DataFrame).items():
    if callable(_method) and (not _name.startswith("_") or _name in _WITH_UNDERSCORES):
        setattr(QueryFrame, _name, _wrap_method(_method))
