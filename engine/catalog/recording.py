"""``Recording``: a segment as one object, with its ids."""

from __future__ import annotations

from collections.abc import Iterable

from ..chunk import Chunk
from ..store import LazyStore


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
