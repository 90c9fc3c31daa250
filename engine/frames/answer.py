"""The answer of a query as DataFusion wants it: a dataset of pyarrow's kind, whose fragments are segments.

Columns and filters that DataFusion pushes down and pyarrow can express are answered exactly. DataFusion applies filters
on components again; everything else it evaluates above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..errors import UnsupportedError
from ..execution import RunOptions
from ..query import AnswerColumns, QueriedSegment, grouped, lacking_guarantee, satisfiable, segment_guarantee
from .calls import UserCall, current_call
from .execution import Execution
from .filters import ValueFilter, conjuncts_of, divided
from .metrics import Measuring


class Answer(ds.Dataset):  # type: ignore[misc]
    """The answer of a query as a dataset."""

    def __init__(
        self, columns: AnswerColumns, segments: Sequence[QueriedSegment], options: RunOptions, measuring: Measuring
    ) -> None:
        self.columns = columns
        self.segments = segments
        self.options = options
        self._measuring = measuring

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self.columns.arrow

    def scanner(self, columns: Sequence[str] | None = None, **_: Any) -> _Scan:
        """The columns of a scan: DataFusion asks for them when it plans."""
        return _Scan(self.columns.arrow, columns, lambda: iter(()))

    def get_fragments(self, filter: pc.Expression | None = None) -> list[_Segment]:  # noqa: A002 (pyarrow's name)
        """The segments that may have rows for which the filter is true; at least one, as DataFusion requires."""
        call = current_call()
        if isinstance(filter, pa.Scalar):  # DataFusion found out that it is true, or false, of all rows
            filter = pc.scalar(filter)  # noqa: A001
        below, rest = divided(filter, self.columns)
        try:
            segments = possible_segments(self.columns, self.segments, below)
        except UnsupportedError as error:
            call.fail(error)
            raise
        units = grouped(segments)
        measured = self._measuring.scan(self.columns, units, below, conjuncts_of(filter))
        execution = Execution(units, below, self.options, measured)
        call.add(execution)
        return [_Segment(execution, number, call, rest) for number in range(max(len(units), 1))]


def possible_segments(
    columns: AnswerColumns, segments: Sequence[QueriedSegment], predicate: pc.Expression | None
) -> list[QueriedSegment]:
    """Return the segments that may have rows for which a predicate is true, judged by their entries.

    Raises ``UnsupportedError`` for a predicate that Arrow cannot evaluate.
    """
    possible = [segment for segment in segments if segment.may_have_rows]
    if predicate is None:
        return possible
    lacking: dict[Any, pc.Expression | None] = {}
    guarantees = []
    for segment in possible:
        if id(segment.component_keys) not in lacking:
            lacking[id(segment.component_keys)] = lacking_guarantee(columns, segment.component_keys)
        guarantees.append(
            segment_guarantee(columns, segment.segment_id, segment.bounds, lacking[id(segment.component_keys)])
        )
    return [possible[number] for number in satisfiable(predicate, guarantees, columns.arrow)]


class _Segment:
    """A segment as a fragment of a dataset."""

    def __init__(self, execution: Execution, number: int, call: UserCall, rest: ValueFilter | None) -> None:
        self._execution = execution
        self._rest = rest
        self._number = number
        self._call = call

    def scanner(
        self,
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002, ARG002 (pyarrow's name; it is that of the fragments)
        **_: Any,
    ) -> _Scan:
        """The rows in which the filter is true."""
        return _Scan(schema, columns, lambda: self._batches(schema.names if columns is None else columns))

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows(columns)
        except GeneratorExit:
            raise
        except BaseException as error:  # an interrupt too, where the thread that asks is the main one
            self._call.fail(error)
            raise

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._rest is None:
            return self._execution.rows(self._number, columns)
        beside = [name for name in self._rest.names if name not in columns]
        return self._rest.kept(self._execution.rows(self._number, [*columns, *beside]), columns)


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
