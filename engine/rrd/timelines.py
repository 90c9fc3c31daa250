"""The timelines of one recording: what a file can't hold together is found before it is written."""

from __future__ import annotations

from collections.abc import Mapping

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
            if self.kinds.get(timeline.name) is not timeline.kind:
                self._add_other(timeline.name, timeline.kind)

    def add_kinds(self, kinds: Mapping[str, TimelineKind]) -> None:
        """Like :meth:`add`, for the timelines of many chunks."""
        for name, kind in kinds.items():
            if self.kinds.get(name) is not kind:
                self._add_other(name, kind)

    def _add_other(self, name: str, kind: TimelineKind) -> None:
        known = self.kinds.get(name)
        if known is not None:
            raise WriteError(
                f"the timeline {name!r} is a {known.value} in one chunk and a {kind.value} in "
                "another; one recording can't hold both",
                path=self._path,
                hint="Rename one of them, or write them into two recordings.",
            )
        column = column_name(name, None, START)
        other = self._by_column.setdefault(column, name)
        if other != name:
            raise WriteError(
                f"the timelines {other!r} and {name!r} share the column {column!r} in the file's footer",
                path=self._path,
                hint="Rename one of them: space, comma, point, hyphen, backslash and underscore count as the same.",
            )
        self.kinds[name] = kind
