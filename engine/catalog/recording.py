"""``Recording``: a segment as one object, with its ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..chunk import Chunk
from ..query import QuerySemantics
from ..store import LazyStore, segment_of

if TYPE_CHECKING:
    from .row_view import RecordingView, ViewContentsLike


class Recording(LazyStore):
    """The chunks of a segment, of all its layers, and the ids of its recording. None is read before it is touched."""

    def __init__(self, chunks: Iterable[Chunk], *, name: str, application_id: str, recording_id: str) -> None:
        super().__init__(chunks, name=name)
        self._application_id = application_id
        self._recording_id = recording_id

    def application_id(self) -> str:
        """The id of the application that recorded it."""
        return self._application_id

    def recording_id(self) -> str:
        """The id of the recording: the segment's."""
        return self._recording_id

    def view(
        self,
        *,
        index: str | None,
        contents: ViewContentsLike,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
    ) -> RecordingView:
        """The rows by an index of the entities that ``contents`` name, with filters to be added; see :meth:`reader`.

        ``contents`` are an expression such as ``/imu/**``, or a mapping of expressions to components.

        Raises
        ------
        TypeError
            ``contents`` are something else.
        """
        from .row_view import RecordingView, view_query

        query = view_query(
            index,
            contents,
            QuerySemantics.of(),
            names_segments=False,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
        )
        return RecordingView(segment_of(self, self._recording_id), query)
