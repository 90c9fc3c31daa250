"""``DataFusionTable``: what tables of segments and of tasks came as in 0.27."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from datafusion import DataFrame

from ...query import SEGMENT_ID

PARTITION_ID: Final = "rerun_partition_id"
"""The name that the column of segment ids had."""


class DataFusionTable:
    """Rows under a name."""

    def __init__(self, name: str, frame: DataFrame) -> None:
        self._name = name
        self._frame = frame

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._name

    def df(self) -> DataFrame:
        """The rows as a DataFrame of DataFusion."""
        return self._frame

    def to_arrow_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of batches."""
        return reader_of(self._frame)


def with_partition_ids(frame: DataFrame) -> DataFrame:
    """A frame with segment ids under the name that they had."""
    return frame.with_column_renamed(SEGMENT_ID, PARTITION_ID)


def reader_of(frame: DataFrame) -> pa.RecordBatchReader:
    """The rows of a frame, as a stream that fails as the frame does."""
    batches = (batch.to_pyarrow() for batch in frame.execute_stream())
    return pa.RecordBatchReader.from_batches(frame.schema(), batches)
