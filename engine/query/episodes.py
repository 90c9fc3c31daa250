"""Tables of episodes: parts of segments, each with the segment's id, a start and an end."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from ..errors import UsageError

_SEGMENTS: Final = ("segment_id", "rerun_segment_id")
_ENDS: Final = ("start", "end")
EPISODES_HINT: Final = "The table needs the columns segment_id, start and end, and may have others."


def episodes_table(given: Any) -> pa.Table:
    """Return a table of episodes as an Arrow table, from an Arrow table, a catalog's table, or a DataFrame.

    Raises ``TypeError`` for other types, and ``ValueError`` if a required column is missing.
    """
    if isinstance(given, pa.Table):
        table = given
    elif callable(getattr(given, "to_arrow_reader", None)):
        table = given.to_arrow_reader().read_all()
    elif hasattr(given, "__arrow_c_stream__"):
        table = pa.table(given)
    else:
        raise TypeError(f"episodes must be an Arrow table, a table of a catalog or a DataFrame, got {type(given)}")
    missing = [name for name in _ENDS if name not in table.column_names]
    if missing or not any(name in table.column_names for name in _SEGMENTS):
        raise UsageError(f"the table of episodes has no column {(missing or _SEGMENTS)[0]!r}", hint=EPISODES_HINT)
    return table


def segment_column(table: pa.Table) -> pa.ChunkedArray:
    """The column with the segment id of each episode."""
    return table[next(name for name in _SEGMENTS if name in table.column_names)]


def in_nanoseconds(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Times or durations of any unit as integers.

    >>> in_nanoseconds(pa.array([2, None], pa.duration("us"))).to_pylist()
    [2000, None]
    """
    kind = column.type
    unit = pa.timestamp("ns", kind.tz) if pa.types.is_timestamp(kind) else pa.duration("ns")
    return column.cast(unit).cast(pa.int64())
