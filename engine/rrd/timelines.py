"""The timelines of one recording: what a file can't hold together is found before it is written."""

from __future__ import annotations

from ..chunk.header import TimelineHeader, TimelineKind
from ..errors import WriteError
from .column_names import START, column_name


class TimelineRegister:
    """The timelines seen so far, by name."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._by_column: dict[str, str] = {}
        self.kinds: dict[str, TimelineKind] = {}

    def add(self, timelines: tuple[TimelineHeader, ...]) -> None:
        """Take note of a chunk's timelines. Raises :class:`WriteError` for two that one manifest can't tell apart."""
        for timeline in timelines:
            known = self.kinds.get(timeline.name)
            if known is None:
                self._add_new(timeline)
            elif known is not timeline.kind:
                raise WriteError(
                    f"the timeline {timeline.name!r} is a {known.value} in one chunk and a {timeline.kind.value} in "
                    "another; one recording can't hold both",
                    path=self._path,
                    hint="Rename one of them, or write them into two recordings.",
                )

    def _add_new(self, timeline: TimelineHeader) -> None:
        column = column_name(timeline.name, None, START)
        other = self._by_column.setdefault(column, timeline.name)
        if other != timeline.name:
            raise WriteError(
                f"the timelines {other!r} and {timeline.name!r} share the column {column!r} in the file's footer",
                path=self._path,
                hint="Rename one of them: space, comma, point, hyphen, backslash and underscore count as the same.",
            )
        self.kinds[timeline.name] = timeline.kind
