"""Files whose footer is missing or untrusted: they are scanned from their start, message by message.

An old file without a footer is read completely. From a truncated or damaged one, every complete chunk is recovered, and
a report names the losses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

from ..chunk import SORBET_VERSION, Chunk, data_from_batch
from ..errors import ReadError
from ..storage import is_url
from ..storage.positional import GROWING, HeldFile, PositionalFile, held_file, open_positional
from . import messages
from .messages import (
    STREAM_HEADER_SIZE,
    Message,
    MessageKind,
    SetStoreInfo,
    StoreEntry,
    StoreKey,
    from_message,
    key_of,
    locate,
    message_at,
    parse_stream_header,
    scan,
)
from .payloads import FramedPayload

_OLDEST_KEPT = tuple(int(n) for n in SORBET_VERSION.split("."))


class AnnouncedStores(NamedTuple):
    """The stores that a file announces, in the order of :attr:`StoreEntry.sort_key`.

    ``legacy_ids`` has the application ids of stores whose chunks lack them (files from before 0.25).
    """

    stores: list[StoreEntry]
    legacy_ids: dict[StoreKey, str]


def scan_stores(file: PositionalFile) -> AnnouncedStores:
    """The stores in ``file``; reads the heads of all messages, but no payloads. Raises :class:`ReadError`."""
    stores: set[StoreEntry] = set()
    legacy_ids: dict[StoreKey, str] = {}
    for message in scan(file):
        if message.kind == MessageKind.SET_STORE_INFO:
            stores.add(announced_by(file, message, legacy_ids))
    return AnnouncedStores(sorted(stores, key=lambda s: s.sort_key), legacy_ids)


def announced_first(path: str) -> list[StoreEntry]:
    """The stores that a file announces before its first chunk, in file order: nearly always all stores.

    Raises :class:`ReadError`.
    """
    legacy_ids: dict[StoreKey, str] = {}
    with open_positional(path) as file:
        parse_stream_header(file.read(0, min(STREAM_HEADER_SIZE, file.size), what="the stream header"), path=path)
        heads = takewhile(lambda message: message.kind == MessageKind.SET_STORE_INFO, scan(file))
        return [announced_by(file, message, legacy_ids) for message in heads]


def announced_by(file: PositionalFile, message: Message, legacy_ids: dict[StoreKey, str]) -> StoreEntry:
    """The store that a ``SetStoreInfo`` announces; an old message's application id is added to ``legacy_ids``."""
    info = _store_info(file, message)
    if info.HasField("application_id") and not info.store_id.HasField("application_id"):
        legacy_ids[key_of(info.store_id)] = info.application_id.id
    return from_message(info.store_id, legacy_ids, path=file.path, offset=message.offset)


def _store_info(file: PositionalFile, message: Message) -> Any:
    data = file.read(message.offset, message.size, what="a SetStoreInfo message")
    info_message = messages.parse(SetStoreInfo, data, path=file.path, offset=message.offset)
    messages.require(info_message, "row_id", "info", path=file.path, offset=message.offset)
    messages.require(info_message.info, "store_id", "store_source", path=file.path, offset=message.offset)
    return info_message.info


def store_of(file: PositionalFile, message: Message, legacy_ids: dict[StoreKey, str]) -> StoreEntry:
    """The store of the ``ArrowMsg`` at ``message``; only reads its head. Raises :class:`ReadError`."""
    return owner_of(
        locate(file, message.offset, message.size).message, legacy_ids, path=file.path, offset=message.offset
    )


def owner_of(head: Any, legacy_ids: dict[StoreKey, str], *, path: str, offset: int) -> StoreEntry:
    """The store that an ``ArrowMsg`` names. Raises :class:`ReadError`."""
    messages.require(head, "store_id", path=path, offset=offset)
    return from_message(head.store_id, legacy_ids, path=path, offset=offset)


def decoded_chunk(path: str, message: Message, version: str | None = None, held: HeldFile | None = None) -> Chunk:
    """The chunk in the ``ArrowMsg`` at ``message``, decoded, and migrated from an older version if needed.

    A chunk that needed no migration remembers its compressed bytes. Raises :class:`ReadError`.
    """
    payload = FramedPayload(path, message.offset, message.size, version=version, held=held)
    batch = payload.load()
    try:
        data = data_from_batch(batch)
    except ValueError as error:
        raise ReadError(
            f"a record batch is not a chunk: {error}",
            path=path,
            offset=message.offset,
            hint="The file is damaged, or the program that wrote it is faulty.",
        ) from error
    return Chunk(data, None, payload) if _is_kept(batch.schema.metadata) else Chunk.from_data(data)


def _is_kept(metadata: dict[bytes, bytes] | None) -> bool:
    text = (metadata or {}).get(b"sorbet:version", b"").decode("utf-8", "replace")
    numbers = text.split(".")
    return len(numbers) == 3 and all(n.isdecimal() for n in numbers) and tuple(map(int, numbers)) >= _OLDEST_KEPT


@dataclass(slots=True)
class RecoveryReport:
    """The report of a recovery: the recovered and the lost data of a file.

    Up to the byte ``whole_until``, the file is a sequence of complete messages; ``size`` is the size of the file.
    ``reason`` describes the data after it (None if the file ends correctly). ``damaged`` has the offset and reason of
    complete messages that could not be read. ``last_times`` maps timelines to the latest time recovered, in nanoseconds
    or sequence numbers.
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
        """Return True if nothing was lost."""
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
    """A truncated or damaged RRD.

    Its footer is ignored: the file is scanned from its start. Raises :class:`ReadError` only if the file is not an RRD.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def stores(self) -> list[StoreEntry]:
        """Every store that a complete message announces or a complete chunk names."""
        with open_positional(self.path) as file:
            report = self._report(file)
            messages = list(_walk(file, report))
            stores, legacy_ids = _announced(file, messages, report)
            for message in messages:
                if message.kind == MessageKind.ARROW_MSG and (owner := _owner(file, message, legacy_ids, report)):
                    stores.add(owner)
        return sorted(stores, key=lambda s: s.sort_key)

    def chunks(self, store: StoreEntry, report: RecoveryReport) -> Iterator[Chunk]:
        """The complete chunks of ``store``, in the file's order. Updates ``report``."""
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
    """Yield the complete messages up to the end message, or up to the first truncated or invalid one."""
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
