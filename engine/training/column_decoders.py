"""User-defined decoders: they get the rows of a column, and the numbers of the rows that each sample needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import ComponentColumnDescriptor, TimelineKind
from ..errors import ReadError, UsageError
from .fields import Field
from .plan import Integers
from .source import PinnedSource, SegmentReader, Series, is_fresh

if TYPE_CHECKING:
    from ...lenses import Selector

IndexValue = int | np.datetime64 | np.timedelta64
"""A value of an index: a number, or a time or duration in nanoseconds."""

_TYPES: Final = {TimelineKind.TIMESTAMP: np.datetime64, TimelineKind.DURATION: np.timedelta64}


def index_value(value: int, kind: TimelineKind) -> IndexValue:
    """Return an index value in the type of the index.

    >>> index_value(7, TimelineKind.SEQUENCE)
    7
    """
    made: IndexValue = value if kind is TimelineKind.SEQUENCE else _TYPES[kind](value, "ns")
    return made


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """Rows of a :class:`FieldBatch` that one sample needs.

    ``sample_position`` is the sample's position among the samples that are decoded together; ``index_value`` is its
    index value, in the type of the index. ``output_row_indices`` are the rows of its value, one for each offset of a
    window. ``decode_row_indices`` are the rows needed to decode these: the same rows, or, for a decoder with
    ``prior_keyframe_path``, all rows from a key frame on (``starts_at_keyframe``).
    """

    sample_position: int
    segment_id: str
    index_value: IndexValue
    decode_row_indices: tuple[int, ...]
    output_row_indices: tuple[int, ...]
    starts_at_keyframe: bool


class FieldBatch:
    """Rows of one segment's column, in the order of the index: a list of values in each.

    Parameters
    ----------
    column
        The rows.
    select
        A selector that ``take_decode_rows`` and ``take_output_rows`` apply.
    is_windowed
        Whether the field has a window. The first axis of a value is then the offsets.

    Raises
    ------
    TypeError
        The rows are not lists.
    """

    def __init__(
        self, *, column: pa.Array | pa.ChunkedArray, select: Selector | None = None, is_windowed: bool = False
    ) -> None:
        if not pa.types.is_list(column.type):
            raise TypeError(f"column: expected rows with a list of values each, got {column.type}")
        self.column: pa.Array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        self.select = select
        self.is_windowed = is_windowed

    def rows(self, start: int, stop: int) -> pa.Array:
        """The rows from ``start`` (inclusive) to ``stop`` (exclusive)."""
        return self.column.slice(start, stop - start)

    def take_decode_rows(self, request: DecodeRequest) -> pa.Array:
        """Return the rows that are needed to decode a request's rows, after the selector."""
        return self._taken(request.decode_row_indices)

    def take_output_rows(self, request: DecodeRequest) -> pa.Array:
        """Return the rows of a request's value, after the selector.

        Raises ``ValueError`` if the selector gives another number of rows.
        """
        taken = self._taken(request.output_row_indices)
        if len(taken) != len(request.output_row_indices):
            raise UsageError(
                f"the selector returned {len(taken)} rows for {len(request.output_row_indices)} input rows"
            )
        return taken

    def _taken(self, numbers: Sequence[int]) -> pa.Array:
        rows = self.column.take(pa.array(numbers, pa.int64()))
        if self.select is None:
            return rows
        selected = self.select.execute(rows)
        return pa.array([], rows.type) if selected is None else selected


class ColumnDecoder(ABC):
    """A user-defined decoder. The reading process calls it, in one thread at a time.

    >>> class Count(ColumnDecoder):
    ...     def decode(self, batch, requests):
    ...         return [np.array(len(batch.take_output_rows(request).flatten())) for request in requests]
    >>> Count()
    Count()
    """

    @abstractmethod
    def decode(self, batch: FieldBatch, requests: Sequence[DecodeRequest]) -> Sequence[Any | None]:
        """Return the value of each request: a tensor, an array, or None if it is missing.

        Requests are in ascending order of index values.
        """

    def prior_keyframe_path(self, field_path: str) -> str | None:  # noqa: ARG002
        """Return the column that marks the rows at which decoding can begin; None: any row."""
        return None

    @property
    def fill_latest_at(self) -> bool:
        """Whether a time without a row gets the value of the preceding row."""
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ColumnReading:
    """The rows of a column that some samples of a segment need, for a user-defined decoder.

    ``times`` are the samples' times; ``wanted`` has the times of each sample's values.
    """

    def __init__(
        self, source: PinnedSource, reader: SegmentReader, field: Field, times: Integers, wanted: Integers
    ) -> None:
        self._field = field
        self._kind = source.kind
        self._segment_id = reader.segment_id
        self._times = times
        self._wanted = wanted
        self._lows: Integers = wanted.min(axis=1)
        self._keyframes: Integers | None = None
        self._reader = reader
        path = field.decode.prior_keyframe_path(field.path)
        if path is not None:
            marks = source.columns.component(path)
            if marks is None:
                raise UsageError(f"the decoder of {field.path} needs key frames from {path}, which is missing")
            self._keyframes = reader.marked(marks, int(wanted.max()))

    def chunks(self, column: ComponentColumnDescriptor) -> Integers:
        """Return the numbers of the column's chunks that are needed."""
        first = int(self._lows.min())
        if self._keyframes is not None:
            earlier = self._keyframes[self._keyframes <= first]
            first = int(earlier[-1]) if len(earlier) else first
        return self._reader.needed(column, first, int(self._wanted.max()))

    def values(self, series: Series) -> list[npt.NDArray[Any] | None]:
        """Return the decoder's value for each sample; None if it has none.

        Raises ``ReadError`` if the decoder returns another number of values.
        """
        field = self._field
        requests = [request for request in self._requests(series) if request is not None]
        decoded: list[npt.NDArray[Any] | None] = [None] * len(self._times)
        if not requests:
            return decoded
        select = field.selector
        batch = FieldBatch(column=series.values, select=select, is_windowed=field.window is not None)
        made = field.decode.decode(batch, requests)
        if len(made) != len(requests):
            raise ReadError(f"{field.decode!r} made {len(made)} values of {field.path} for {len(requests)} samples")
        for request, value in zip(requests, made, strict=True):
            decoded[request.sample_position] = value
        return decoded

    def _requests(self, series: Series) -> list[DecodeRequest | None]:
        if not len(series.times):
            return []
        latest = series.latest(self._wanted)
        since = series.times[np.maximum(latest, 0)]
        has_value = (latest >= 0) & series.values.is_valid().to_numpy(zero_copy_only=False)[np.maximum(latest, 0)]
        if self._keyframes is None and not self._field.decode.fill_latest_at:
            has_value &= since == self._wanted
        has_value &= is_fresh(self._field, since, self._wanted, is_time=self._kind is not TimelineKind.SEQUENCE)
        return [
            self._request(series, number, latest[number]) for number in np.flatnonzero(has_value.all(axis=1)).tolist()
        ]

    def _request(self, series: Series, number: int, rows: Integers) -> DecodeRequest | None:
        value = index_value(int(self._times[number]), self._kind)
        outputs = tuple(rows.tolist())
        if self._keyframes is None:
            return DecodeRequest(number, self._segment_id, value, outputs, outputs, starts_at_keyframe=False)
        low = int(self._lows[number])
        before = int(np.searchsorted(self._keyframes, low, side="right")) - 1
        first = int(np.searchsorted(series.times, self._keyframes[before] if before >= 0 else low))
        if first > min(outputs):
            return None
        needed = tuple(range(first, max(outputs) + 1))
        return DecodeRequest(number, self._segment_id, value, needed, outputs, starts_at_keyframe=before >= 0)
