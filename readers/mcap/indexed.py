"""Whether the index in the summary describes the data section, and the chunks that it lists."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ...engine.errors import ReadError
from .file import McapFile
from .layout import Layout, Summary
from .options import McapOptions
from .records import (
    ATTACHMENT,
    CHUNK,
    CHUNK_HEAD_MAX,
    DAMAGED_HINT,
    DATA_END,
    HEAD,
    MESSAGE,
    METADATA,
    ChunkEntry,
    ChunkHead,
    parse_chunk_head,
)
from .urdf import description_channels

MAX_GAP_RECORDS: Final = 65_536
"""A file with more records than this outside of its indexed chunks is read as one split."""

_INDEX_HEAD: Final = HEAD.size + 6
_INDEX_ENTRY: Final = 16


class Piece(NamedTuple):
    """A chunk: where it begins, and how many bytes it uncompresses to.

    ``messages`` is the number that the length of its message indexes tells, None where it has none. ``is_wanted``: it
    may hold messages of the range of times that is read.
    """

    offset: int
    uncompressed: int
    messages: int | None
    is_wanted: bool


class UnusableIndexError(Exception):
    """The summary does not describe the data section well enough to start reading in its middle."""


def indexed_pieces(file: McapFile, layout: Layout, options: McapOptions) -> list[Piece]:
    """Every chunk of the data section in file order, indexed or not. Only heads are read.

    Raises ``UnusableIndexError``, and ``ReadError`` when fewer chunks are there than the summary counts.
    """
    assert layout.summary is not None
    return _IndexWalk(file, layout, layout.summary, options).pieces()


def check_channels(summary: Summary) -> None:
    """Raise unless every channel and schema is repeated in the summary, so that a split needs nothing of the others."""
    channels = {channel.id for channel in summary.channels}
    schemas = {schema.id for schema in summary.schemas} | {0}
    indexed = {int(i) for i in np.unique(np.frombuffer(b"".join(e.channel_ids for e in summary.chunks), "<u2"))}
    complete = indexed <= channels and all(channel.schema_id in schemas for channel in summary.channels)
    statistics = summary.statistics
    if statistics is not None:
        complete = complete and statistics.channel_count <= len(channels)
        complete = complete and set(statistics.channel_message_counts) <= channels
    else:
        complete = complete and all(entry.channel_ids for entry in summary.chunks)
    if not complete:
        raise UnusableIndexError


def describes_robots(summary: Summary, options: McapOptions) -> bool:
    """Whether the summary has a channel of robot descriptions that are to be read."""
    schemas = {schema.id: schema for schema in summary.schemas}
    return "urdf" in options.decoders and bool(
        description_channels({channel.id: channel for channel in summary.channels}, schemas, options)
    )


class _IndexWalk:
    def __init__(self, file: McapFile, layout: Layout, summary: Summary, options: McapOptions) -> None:
        self._file = file
        self._layout = layout
        self._summary = summary
        self._times = options.times
        self._channels = {channel.id for channel in summary.channels}
        self._known = {a.offset for a in summary.attachments} | {m.offset for m in summary.metadata}
        self._describes_robots = describes_robots(summary, options)
        self._left = MAX_GAP_RECORDS
        self._pieces: list[Piece] = []
        self._loose = False

    def pieces(self) -> list[Piece]:
        layout, statistics = self._layout, self._summary.statistics
        at = layout.data_start
        self._file.peek((entry.offset, HEAD.size + CHUNK_HEAD_MAX) for entry in self._summary.chunks)
        for entry in self._summary.chunks:
            self._walk_gap(at, entry.offset)
            self._add(entry.offset, self._check_entry(entry), _messages_of(entry))
            at = entry.end + entry.index_length
        self._walk_gap(at, layout.data_end)
        if statistics is not None and statistics.chunk_count > len(self._pieces):
            why = f"the summary counts {statistics.chunk_count:,} chunks and {len(self._pieces):,} are there"
            raise ReadError(why, path=self._file.path, offset=layout.data_end, hint=DAMAGED_HINT)
        return self._checked()

    def _checked(self) -> list[Piece]:
        """The pieces; without their numbers of messages where these can't be compared with the summary's."""
        statistics, counts = self._summary.statistics, [piece.messages for piece in self._pieces]
        if self._loose:  # messages outside of chunks: nothing is left out for its time
            return [piece._replace(messages=None, is_wanted=True) for piece in self._pieces]
        if statistics is None or None in counts:
            return [piece._replace(messages=None) for piece in self._pieces]
        if sum(count for count in counts if count is not None) != statistics.message_count:
            raise UnusableIndexError
        return self._pieces

    def _add(self, offset: int, head: ChunkHead, messages: int | None) -> None:
        is_wanted = self._times is None or self._times.overlaps(head)
        if head.uncompressed_size == 0:
            messages = 0
        self._pieces.append(Piece(offset, head.uncompressed_size, messages, is_wanted))

    def _walk_gap(self, at: int, end: int) -> None:
        """Walk the heads of the records between two indexed chunks, and add the chunks among them."""
        while at != end:
            if at > end or self._left == 0:
                raise UnusableIndexError
            opcode, length = self._head(at, end)
            self._look_at(opcode, length, at, end)
            at += HEAD.size + length
            self._left -= 1

    def _look_at(self, opcode: int, length: int, at: int, end: int) -> None:
        if opcode == CHUNK:
            self._add(at, self._chunk_head(at, length), None)
        elif opcode == MESSAGE:
            self._loose = True
            channel = int.from_bytes(self._file.read_up_to(at + HEAD.size, 2), "little")
            if self._layout.data_crc or channel not in self._channels or self._describes_robots:
                # guarded by the CRC of the whole section only, of a channel yet to come, or not found by the index
                raise UnusableIndexError
        elif (opcode in (ATTACHMENT, METADATA) and at not in self._known) or (
            opcode == DATA_END and at + HEAD.size + length != end
        ):
            raise UnusableIndexError

    def _check_entry(self, entry: ChunkEntry) -> ChunkHead:
        """The head of the chunk that an entry of the index points at, if they agree."""
        layout = self._layout
        if entry.offset < layout.data_start or entry.end + entry.index_length > layout.data_end:
            raise UnusableIndexError
        opcode, length = self._head(entry.offset, layout.data_end)
        if opcode != CHUNK or HEAD.size + length != entry.length:
            raise UnusableIndexError
        head = self._chunk_head(entry.offset, length)
        if head.uncompressed_size != entry.uncompressed_size:
            raise UnusableIndexError
        return head

    def _head(self, at: int, end: int) -> tuple[int, int]:
        try:
            return self._file.head_at(at, end)
        except ReadError as error:
            raise UnusableIndexError from error

    def _chunk_head(self, at: int, length: int) -> ChunkHead:
        body = self._file.read_up_to(at + HEAD.size, min(length, CHUNK_HEAD_MAX))
        try:
            head = parse_chunk_head(body, length, path=self._file.path, offset=at)
        except ReadError as error:
            raise UnusableIndexError from error
        if head.crc == 0 and self._layout.data_crc:
            raise UnusableIndexError  # guarded by the CRC of the whole section only
        return head


def _messages_of(entry: ChunkEntry) -> int | None:
    """How many messages the MessageIndex records behind a chunk list, by their length."""
    records = len(entry.channel_ids) // 2
    entries, rest = divmod(entry.index_length - records * _INDEX_HEAD, _INDEX_ENTRY)
    return entries if records and not rest and entries >= 0 else None
