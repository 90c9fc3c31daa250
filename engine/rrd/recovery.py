"""Recovery of a cut or damaged RRD: every whole chunk, and a report of what was lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..chunk.chunk import Chunk
from ..errors import ReadError
from ..objects import is_url
from .framing import STREAM_HEADER_SIZE, MessageKind, parse_stream_header
from .legacy import announced_by, decoded_chunk, store_of
from .open_files import held_file, open_positional
from .positional import GROWING, PositionalFile
from .scan import Message, message_at
from .store_entry import StoreEntry, StoreKey


@dataclass(slots=True)
class RecoveryReport:
    """The report of a recovery: what was had of a file, and what was lost.

    ``whole_until`` is the byte up to which the file is a sequence of whole messages, ``size`` its size; ``reason`` says
    what is there instead (None when the file ends well). ``damaged`` holds offset and reason of messages that were
    whole but could not be read. ``last_times`` maps timelines to the latest time recovered, in nanoseconds or
    sequence numbers.
    """

    path: str
    size: int
    whole_until: int = STREAM_HEADER_SIZE
    chunks: int = 0
    rows: int = 0
    reason: str | None = None
    damaged: list[tuple[int, str]] = field(default_factory=list)
    last_times: dict[str, int] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was lost."""
        return self.reason is None and not self.damaged

    def __str__(self) -> str:
        times = ", ".join(f"{name} {time:,}" for name, time in sorted(self.last_times.items()))
        until = f" (last times: {times})" if times else ""
        text = (
            f"{self.path}: recovered {self.chunks:,} chunks with {self.rows:,} rows"
            f" up to byte {self.whole_until:,} of {self.size:,}{until}"
        )
        if self.reason is not None:
            text += f"; lost the {self.size - self.whole_until:,} bytes from there on: {self.reason}"
        for offset, reason in self.damaged[:3]:
            text += f"; lost one message at byte {offset:,}: {reason}"
        if len(self.damaged) > 3:
            text += f"; and {len(self.damaged) - 3:,} messages more"
        return text


class RecoveringFile:
    """A cut or damaged RRD. Its footer is not looked at: the file is walked from its start.

    Raises :class:`ReadError` only where the file is no RRD at all.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def stores(self) -> list[StoreEntry]:
        """Every store that a whole message announces or a whole chunk names."""
        with open_positional(self.path) as file:
            report = self._report(file)
            messages = list(_walk(file, report))
            stores, legacy_ids = _announced(file, messages, report)
            for message in messages:
                if message.kind == MessageKind.ARROW_MSG and (owner := _owner(file, message, legacy_ids, report)):
                    stores.add(owner)
        return sorted(stores, key=lambda s: s.sort_key)

    def chunks(self, store: StoreEntry, report: RecoveryReport) -> Iterator[Chunk]:
        """The whole chunks of ``store``, in the file's order; ``report`` is filled as they come."""
        held = None if is_url(self.path) else held_file(self.path, None)
        with open_positional(self.path, held=held) as file:
            version = file.version if is_url(self.path) else f"{file.version}{GROWING}"
            _, legacy_ids = _announced(file, list(_walk(file, self._report(file))), self._report(file))
            for message in _walk(file, report):
                if message.kind != MessageKind.ARROW_MSG or _owner(file, message, legacy_ids, report) != store:
                    continue
                try:
                    chunk = decoded_chunk(self.path, message, version, held)
                except ReadError as error:
                    report.damaged.append((message.offset, error.message))
                    continue
                _count(chunk, report)
                yield chunk

    def report(self) -> RecoveryReport:
        """An empty report for :meth:`chunks`."""
        with open_positional(self.path) as file:
            return self._report(file)

    def _report(self, file: PositionalFile) -> RecoveryReport:
        header = file.read(0, min(STREAM_HEADER_SIZE, file.size), what="the stream header")
        parse_stream_header(header, path=self.path)
        return RecoveryReport(self.path, file.size)


def _walk(file: PositionalFile, report: RecoveryReport) -> Iterator[Message]:
    """The whole messages up to the end message, or up to the first that is cut or none."""
    while report.whole_until < file.size:
        try:
            message = message_at(file, report.whole_until, file.size)
        except ReadError as error:
            report.reason = error.message
            return
        report.whole_until = message.offset + message.size
        if message.kind == MessageKind.END:
            return
        yield message


def _announced(
    file: PositionalFile, messages: list[Message], report: RecoveryReport
) -> tuple[set[StoreEntry], dict[StoreKey, str]]:
    stores: set[StoreEntry] = set()
    legacy_ids: dict[StoreKey, str] = {}
    for message in messages:
        if message.kind == MessageKind.SET_STORE_INFO:
            try:
                stores.add(announced_by(file, message, legacy_ids))
            except ReadError as error:
                report.damaged.append((message.offset, error.message))
    return stores, legacy_ids


def _owner(
    file: PositionalFile, message: Message, legacy_ids: dict[StoreKey, str], report: RecoveryReport
) -> StoreEntry | None:
    try:
        return store_of(file, message, legacy_ids)
    except ReadError as error:
        report.damaged.append((message.offset, error.message))
        return None


def _count(chunk: Chunk, report: RecoveryReport) -> None:
    report.chunks += 1
    report.rows += chunk.num_rows
    for timeline in chunk.header.timelines:
        if timeline.end is not None:
            report.last_times[timeline.name] = max(timeline.end, report.last_times.get(timeline.name, timeline.end))
