"""How a file is divided into splits, from its heads and its summary."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Final, NamedTuple

import numpy as np

from ...engine.errors import ReadError
from ...engine.limits import SPLIT_BYTES
from ...engine.stream.source import Split
from .file import McapFile
from .layout import Layout, Summary
from .records import (
    CHUNK,
    CHUNK_HEAD_MAX,
    DAMAGED_HINT,
    DATA_END,
    HEAD,
    MESSAGE,
    ChunkEntry,
    ChunkHead,
    parse_chunk_head,
)

MAX_GAP_RECORDS: Final = 65_536
"""A file with more records than this outside of its indexed chunks is read as one split."""


@dataclass(frozen=True, slots=True)
class McapSplit(Split):
    """A run of records of the data section, from one byte to another.

    ``chunks`` is the number of Chunk records to be found there, None where only reading tells.
    ``check_data_crc``: the split is the whole data section, and its CRC is to be compared with the writer's.
    """

    start: int
    end: int
    chunks: int | None = None
    check_data_crc: bool = False


class _Piece(NamedTuple):
    """A chunk, or something between chunks: where it begins and how many bytes it uncompresses to."""

    offset: int
    uncompressed: int


class _UnusableIndexError(Exception):
    """The summary does not describe the data section well enough to start reading in its middle."""


def plan_splits(file: McapFile, layout: Layout) -> list[McapSplit]:
    """Divide the data section into runs of chunks of about ``SPLIT_BYTES`` uncompressed.

    A file whose index is missing, incomplete or wrong is one split, read from front to end. The splits follow each
    other without a gap, so that nothing is lost whatever the index says; they depend on the file alone.

    The CRC of the whole data section can be checked by a reader of the whole only. A file is divided, and that check
    left out, where every message lies in a chunk with a CRC of its own (or the writer computed none for the section).
    """
    summary = layout.summary
    if (
        summary is None
        or layout.data_crc is None
        or sum(entry.uncompressed_size for entry in summary.chunks) <= SPLIT_BYTES
    ):
        return [whole(file, layout)]
    try:
        pieces = _pieces(file, layout, summary)
        _check_channels(summary)
    except _UnusableIndexError:
        return [whole(file, layout)]
    return _cut(file, layout, pieces)


def whole(file: McapFile, layout: Layout) -> McapSplit:
    """The file as one split."""
    return McapSplit(
        PurePath(file.path).name,
        layout.data_end - layout.data_start,
        layout.data_start,
        layout.data_end,
        check_data_crc=layout.data_crc != 0,
    )


def _cut(file: McapFile, layout: Layout, pieces: list[_Piece]) -> list[McapSplit]:
    """Runs of equal uncompressed size, as near as chunk borders allow."""
    total = np.cumsum([piece.uncompressed for piece in pieces])
    count = -(-int(total[-1]) // SPLIT_BYTES)
    wanted = total[-1] * np.arange(1, count) / count
    firsts = [0, *dict.fromkeys(int(i) for i in np.searchsorted(total, wanted) + 1 if i < len(pieces)), len(pieces)]
    starts = [layout.data_start, *(pieces[i].offset for i in firsts[1:-1]), layout.data_end]
    number = len(starts) - 1
    if number == 1:
        return [whole(file, layout)]
    name = PurePath(file.path).name
    return [
        McapSplit(f"{name} [{i + 1}/{number}]", end - start, start, end, chunks=firsts[i + 1] - firsts[i])
        for i, (start, end) in enumerate(pairwise(starts))
    ]


def _pieces(file: McapFile, layout: Layout, summary: Summary) -> list[_Piece]:
    """Every chunk of the data section in file order, indexed or not."""
    pieces: list[_Piece] = []
    at, left = layout.data_start, MAX_GAP_RECORDS
    for entry in summary.chunks:
        left -= _walk_gap(file, layout, at, entry.offset, left, pieces)
        _check_entry(file, layout, entry)
        pieces.append(_Piece(entry.offset, entry.uncompressed_size))
        at = entry.end + entry.index_length
    _walk_gap(file, layout, at, layout.data_end, left, pieces)
    if summary.statistics is not None and summary.statistics.chunk_count > len(pieces):
        why = f"the summary counts {summary.statistics.chunk_count:,} chunks and {len(pieces):,} are there"
        raise ReadError(why, path=file.path, offset=layout.data_end, hint=DAMAGED_HINT)
    return pieces


def _walk_gap(file: McapFile, layout: Layout, at: int, end: int, most: int, pieces: list[_Piece]) -> int:
    """Walk the heads of the records between two indexed chunks, add the chunks among them; returns their number."""
    assert layout.summary is not None
    known = {channel.id for channel in layout.summary.channels} if at < end else set()
    number = 0
    while at != end:
        if at > end or number == most:
            raise _UnusableIndexError
        opcode, length = _head(file, at, end)
        if opcode == CHUNK:
            pieces.append(_Piece(at, _chunk_head(file, layout, at, length).uncompressed_size))
        elif opcode == MESSAGE:
            if layout.data_crc or int.from_bytes(file.read_up_to(at + HEAD.size, 2), "little") not in known:
                raise _UnusableIndexError  # guarded by the CRC of the whole section only, or of a channel yet to come
        elif opcode == DATA_END and at + HEAD.size + length != end:
            raise _UnusableIndexError
        at += HEAD.size + length
        number += 1
    return number


def _check_entry(file: McapFile, layout: Layout, entry: ChunkEntry) -> None:
    """Compare a chunk index entry with the head of the chunk it points at."""
    if entry.offset < layout.data_start or entry.end + entry.index_length > layout.data_end:
        raise _UnusableIndexError
    opcode, length = _head(file, entry.offset, layout.data_end)
    if opcode != CHUNK or HEAD.size + length != entry.length:
        raise _UnusableIndexError
    if _chunk_head(file, layout, entry.offset, length).uncompressed_size != entry.uncompressed_size:
        raise _UnusableIndexError


def _head(file: McapFile, at: int, end: int) -> tuple[int, int]:
    try:
        return file.head_at(at, end)
    except ReadError as error:
        raise _UnusableIndexError from error


def _chunk_head(file: McapFile, layout: Layout, at: int, length: int) -> ChunkHead:
    body = file.read_up_to(at + HEAD.size, min(length, CHUNK_HEAD_MAX))
    try:
        head = parse_chunk_head(body, length, path=file.path, offset=at)
    except ReadError as error:
        raise _UnusableIndexError from error
    if head.crc == 0 and layout.data_crc:
        raise _UnusableIndexError  # guarded by the CRC of the whole section only
    return head


def _check_channels(summary: Summary) -> None:
    """Whether every channel and schema is repeated in the summary, so that a split needs nothing from the others."""
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
        raise _UnusableIndexError
