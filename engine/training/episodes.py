"""Episodes: parts of segments, listed in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..chunk import TimelineKind
from ..errors import UsageError
from ..query import EPISODES_HINT, QueriedSegment, in_nanoseconds, segment_column
from .plan import Integers

EPISODE: Final = "episode"
"""The key of the episode's number in a sample."""


@dataclass(frozen=True)
class PinnedEpisodes:
    """The episodes of a source: the table row of each, and its values of the columns that samples get."""

    rows: Integers
    columns: Mapping[str, Sequence[Any]]

    def values(self, number: int) -> dict[str, Any]:
        """Return the values that an episode's samples get: its number, and its columns."""
        return {EPISODE: int(self.rows[number]), **{name: values[number] for name, values in self.columns.items()}}


def of_episodes(
    table: pa.Table, columns: Sequence[str], segments: Sequence[QueriedSegment], kind: TimelineKind
) -> tuple[list[QueriedSegment], PinnedEpisodes]:
    """Return each episode as a part of one of these segments, and the values that samples get.

    Raises ``ValueError`` for a missing segment, and for an episode that is outside its segment.
    """
    named = {segment.segment_id: segment for segment in segments}
    parts: list[QueriedSegment] = []
    ids = segment_column(table).cast(pa.string()).to_pylist()
    starts, ends = (_ticks(table[name], name, kind) for name in ("start", "end"))
    for row, (segment_id, start, end) in enumerate(zip(ids, starts, ends, strict=True)):
        segment = named.get(segment_id)
        if segment is None:
            raise UsageError(f"row {row} of the table of episodes: the source has no segment {segment_id!r}")
        assert segment.span is not None
        low, high = segment.span
        window = (low if start is None else start, high if end is None else end)
        if window[0] > high or window[1] < low:
            raise UsageError(
                f"row {row} of the table of episodes: {window[0]} to {window[1]} is not within segment "
                f"{segment_id!r}, which spans {low} to {high}",
                hint="start and end are values of the index of samples: steps, times or nanoseconds.",
            )
        if window[0] > window[1]:
            raise UsageError(
                f"row {row} of the table of episodes: the episode ends at {window[1]}, before its start at {window[0]}"
            )
        parts.append(replace(segment, span=(max(window[0], low), min(window[1], high)), window=window))
    lacking = [name for name in columns if name not in table.column_names]
    if lacking:
        raise UsageError(f"the table of episodes has no column {lacking[0]!r}", hint=EPISODES_HINT)
    values = {name: [_value(name, some) for some in table[name].to_pylist()] for name in columns}
    rows = np.arange(len(table))
    return parts, PinnedEpisodes(rows, values)


def _ticks(column: pa.ChunkedArray, name: str, kind: TimelineKind) -> list[int | None]:
    """Return index values in units of the index; None for nulls."""
    whole: pa.Array = column.combine_chunks()
    if pa.types.is_null(whole.type) or pa.types.is_integer(whole.type):
        return [None if some is None else int(some) for some in whole.to_pylist()]
    expected = {TimelineKind.TIMESTAMP: pa.types.is_timestamp, TimelineKind.DURATION: pa.types.is_duration}
    if kind not in expected or not expected[kind](whole.type):
        raise UsageError(
            f"the column {name!r} of the table of episodes has {whole.type}, but the index has {kind.arrow_type}"
        )
    nanoseconds: list[int | None] = in_nanoseconds(whole).to_pylist()
    return nanoseconds


def _value(name: str, value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return np.array(value, dtype=object)
    raise UsageError(
        f"the column {name!r} of the table of episodes has {value!r}: samples can only have numbers and text"
    )
