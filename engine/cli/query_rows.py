"""The rows of the answer to ``chunkmill query``: filtered, in the order of segments and of the index."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionConfig, SessionContext, col, lit

from ..catalog import Queried
from ..errors import ChunkmillError, UsageError
from ..execution import RunOptions
from ..frames import Explanation, QueryFrame, explain_frame, missing_column
from ..query import SEGMENT_ID, AnswerColumns, QueriedSegment, no_column
from .options import QueryOptions

_IN_ORDER: Final = "datafusion.optimizer.enable_round_robin_repartition"
"""The setting by which DataFusion deals the rows of a partition out to others."""


@dataclass(frozen=True)
class AnswerRows:
    """The rows of these segments that the options select."""

    columns: AnswerColumns
    segments: Sequence[QueriedSegment]
    options: QueryOptions

    @classmethod
    def of(cls, queried: Queried, options: QueryOptions) -> AnswerRows:
        """The rows of segments. Raises ``UsageError`` for missing columns."""
        columns, segments = queried
        for name in options.columns:
            if name not in columns.arrow.names:
                raise no_column(name, columns.arrow.names, where="--columns: ")
        return cls(columns, segments, replace(options, index=columns.query.index))

    @property
    def names(self) -> list[str]:
        """The selected columns: segments and the index, and then the chosen ones, or all."""
        names: list[str] = self.columns.arrow.names
        if not self.options.columns:
            return names
        first = [name for name in (SEGMENT_ID, self.options.index) if name is not None]
        return list(dict.fromkeys([*first, *self.options.columns]))

    @property
    def schema(self) -> pa.Schema:
        """The selected columns, with Rerun's metadata."""
        whole = self.columns.arrow
        return pa.schema([whole.field(name) for name in self.names], whole.metadata)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows. Raises ``UsageError`` for conditions that cannot be evaluated, ``ReadError``."""
        left = self.options.limit
        if left == 0:
            return
        run = RunOptions(self.options.executor, self.options.master, dict(self.options.conf) or None)
        context = SessionContext(SessionConfig().set(_IN_ORDER, "false"))
        frame = self.asked(QueryFrame.of(self.columns, self.segments, run, context=context))
        schema = self.schema
        with self._explained():
            for stream in frame.execute_stream_partitioned():
                for some in stream:
                    batch = some.to_pyarrow()[:left]
                    if len(batch):
                        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                    if left is not None:
                        left -= len(batch)
                        if not left:
                            return

    def explanation(self) -> Explanation:
        """The chunks to read for the rows; raises as :meth:`batches` does."""
        with self._explained():
            return explain_frame(self.columns, self.segments, self.asked)

    def asked(self, frame: DataFrame) -> DataFrame:
        """The rows and columns of a frame that the options select."""
        index, options = self.options.index, self.options
        if index is not None:
            kind = self.columns.arrow.field(index).type
            start, end = (
                None if tick is None else lit(pa.scalar(tick, pa.int64()).cast(kind))
                for tick in (options.start, options.end)
            )
            if start is not None:
                frame = frame.filter(_column(index) >= start)
            if end is not None:
                frame = frame.filter(_column(index) < end)
        with self._explained():
            for condition in options.where:
                try:
                    frame = frame.filter(condition)
                except UsageError as error:
                    raise UsageError(_WHERE + error.message, hint=error.hint) from error
            frame = frame.select(*map(_column, self.names))
            if options.where:
                frame.optimized_logical_plan()
        return frame

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Report a condition that DataFusion refuses, in words of the command line."""
        try:
            yield
        except ChunkmillError:
            raise
        except Exception as error:
            if not self.options.where or not str(error).startswith("DataFusion error"):
                raise
            missing = missing_column(error, self.columns.arrow.names, where=_WHERE)
            if missing is not None:
                raise missing from error
            text = re.sub(r"\s+", " ", str(error).removeprefix("DataFusion error: "))[:_LONGEST]
            raise UsageError(
                _WHERE + text,
                hint="A condition is SQL, with names of columns in double quotes, and values in lists: "
                "'\"/speed:value\"[1] > 3'.",
            ) from error


_WHERE: Final = "--where: "
_LONGEST: Final = 300
"""Characters of what DataFusion says of a condition."""


def _column(name: str) -> Expr:
    escaped = name.replace('"', '""')
    return col(f'"{escaped}"')
