"""Chunks that a Spark DataFrame stands for, as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..chunk import Chunk
from ..execution.frame_reading import check_frame, chunks_of_frame
from .extensions import extension
from .source import Source, Split

if TYPE_CHECKING:
    from ..execution.chunk_frames import DataFrame


class FrameSource:
    """The chunks of a DataFrame of chunk rows; see :meth:`LazyChunkStream.from_spark`.

    Order: (task, position) where the DataFrame has these columns. Every run of a pipeline runs the DataFrame anew.
    """

    def __init__(self, frame: DataFrame) -> None:
        check_frame(frame)
        self._frame = frame

    def describe(self) -> str:
        """One line for the plan."""
        return "from_spark"

    def splits(self) -> Sequence[Split]:
        """Runs of the DataFrame's chunks, by reference."""
        return self.spooled().splits()

    def read(self, split: Any) -> Iterator[Chunk]:
        """The chunks of one run."""
        return iter(split.chunks)

    def spooled(self) -> Source[Any]:
        """The chunks as a source that tasks can read: where they lie, or in scratch parts."""
        made: Source[Any] = extension("chunk_list")("from_spark", tuple(chunks_of_frame(self._frame)))
        return made
