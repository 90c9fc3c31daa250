"""The division of a file into splits: by its summary's index, if the index agrees with the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePath
from typing import Final, NamedTuple

import numpy as np

from ...engine.chunk import alternatives
from ...engine.errors import ReadError, ReadWarning, UnmatchedWarning
from ...engine.limits import SPLIT_BYTES
from .decoders import McapOptions, file_decoders
from .file import McapFile, McapLayout, Summary
from .message_indexes import times_behind
from .records import CHUNK_HEAD_MAX, HEAD, ChunkHead, ChunkIndexEntry, Op, damaged, parse_chunk_head
from .section import NOWHERE, McapSplit, Places, TimeRange

MAX_GAP_RECORDS: Final = 65_536
"""A file with more records than this outside of its indexed chunks is read as one split."""

_INDEX_HEAD: Final = HEAD.size + 6
_INDEX_ENTRY: Final = 16


class SplitPiece(NamedTuple):
    """A chunk: its start, the end of its message indexes, and its uncompressed size.

    ``messages`` is the number of messages by the length of the message indexes, None without indexes. ``is_wanted``:
    the chunk may have messages to read.
    """

    offset: int
    end: int
    uncompressed: int
    messages: int | None
    is_wanted: bool


class _UnusableIndexError(Exception):
    """The summary does not describe the data section well enough to start reading in its middle."""


def _check_channels(summary: Summary) -> None:
    """Raise unless the summary repeats every channel and schema, so that a split needs nothing from other splits."""
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


def says_all_channels(summary: Summary) -> bool:
    """Return whether the summary repeats every channel with messages, and its schema."""
    try:
        _check_channels(summary)
    except _UnusableIndexError:
        return False
    return summary.statistics is not None


def why_nothing(
    file: McapFile, layout: McapLayout, options: McapOptions, *, zero_is_told: bool = False
) -> ReadWarning | None:
    """Return why the options select no message of a file with messages, or None if its summary does not prove that.

    With ``zero_is_told``, the times of chunks include messages at log time 0, which MCAP writers may leave out.
    """
    summary = layout.summary
    if summary is None or not says_all_channels(summary) or summary.statistics is None:
        return None
    if not summary.statistics.message_count or not options.reads_messages:
        return None
    topics = sorted({channel.topic for channel in summary.channels})
    if not any(map(options.selects, topics)):
        return UnmatchedWarning(f"{file.path}: {no_topic(options, topics)}")
    if options.times is None or _holds_some(file, layout, summary, options.times, zero_is_told):
        return None
    first, last = summary.statistics.message_start_time, summary.statistics.message_end_time
    why = f"{no_message(options.times)}; the log times of the file are {first:,} to {last:,}"
    return ReadWarning(f"{file.path}: {why}")


def no_topic(options: McapOptions, topics: Sequence[str]) -> str:
    """Say that no topic matches the patterns of the options."""
    patterns = " ".join([*options.include, *(f"-{pattern}" for pattern in options.exclude)])
    plain = re.sub(r"\\(.)", r"\1", options.include[0].strip("^$")) if options.include else ""
    return f"no topic matches {patterns!r}. {alternatives(plain, topics)}"


def no_message(times: TimeRange) -> str:
    """Say that there is no message in a range of log times."""
    if times.end <= times.start:
        return f"no message is from {times.start:,} ns to before {times.end:,} ns: the range is empty"
    return f"no message is from {times.start:,} ns" + (f" to before {times.end:,} ns" if times.end < 2**64 else " on")


def _holds_some(file: McapFile, layout: McapLayout, summary: Summary, times: TimeRange, zero_is_told: bool) -> bool:
    """Return whether there may be messages in a range, by the times of the file and its chunks."""
    statistics = summary.statistics
    assert statistics is not None
    if times.end <= times.start:
        return False
    first, last = statistics.message_start_time, statistics.message_end_time
    if not summary.chunks or first == last == 0 or (first < times.end and last >= times.start):
        return True
    return any(
        (entry.start_time < times.end and entry.end_time >= times.start)
        or (
            times.has_zero
            and not zero_is_told
            and any(times.holds(t).any() for t in times_behind(file, entry.end, layout.data_end))
        )
        for entry in summary.chunks
    )


def looks_at_messages(summary: Summary, options: McapOptions) -> bool:
    """Return whether a decoder of the whole file reads messages of a channel in the summary."""
    return any(decoder.has_messages(summary, options.selects) for decoder in file_decoders(options.decoders))


class _IndexWalk:
    def __init__(
        self, file: McapFile, layout: McapLayout, summary: Summary, options: McapOptions, unwanted: Places
    ) -> None:
        self._file = file
        self._layout = layout
        self._summary = summary
        self._times = options.times
        self._unwanted = unwanted
        self._channels = {channel.id for channel in summary.channels}
        self._known = {a.offset for a in summary.attachments} | {m.offset for m in summary.metadata}
        self._looks_at_messages = looks_at_messages(summary, options)
        self._left = MAX_GAP_RECORDS
        self._pieces: list[SplitPiece] = []
        self.is_loose = False

    def pieces(self) -> list[SplitPiece]:
        """Return every chunk of the data section in file order, indexed or not. Only heads are read.

        For an object in a store, only the heads that the index does not cover are read; readers of splits see the rest.

        Raises ``UnusableIndexError``, and ``ReadError`` if there are fewer chunks than the summary counts.
        """
        layout, statistics = self._layout, self._summary.statistics
        at = layout.data_start
        if self._times is not None and self._times.has_zero:
            self._file.peek((e.end, e.index_length) for e in self._summary.chunks if e.start_time >= self._times.end)
        for entry in self._summary.chunks:
            self._walk_gap(at, entry.offset)
            self._add(entry.offset, self._check_entry(entry), entry.end, behind(entry), _messages_of(entry))
            at = behind(entry)
        self._walk_gap(at, layout.data_end)
        if statistics is not None and statistics.chunk_count > len(self._pieces):
            why = f"the summary counts {statistics.chunk_count:,} chunks, but there are {len(self._pieces):,}"
            raise damaged(why, path=self._file.path, offset=layout.data_end)
        return self._checked()

    def _checked(self) -> list[SplitPiece]:
        """Return the pieces, without numbers of messages if these cannot be compared with the summary's."""
        statistics, counts = self._summary.statistics, [piece.messages for piece in self._pieces]
        if self.is_loose:  # messages outside of chunks: times exclude no chunk
            return [piece._replace(messages=None, is_wanted=True) for piece in self._pieces]
        if statistics is None or None in counts:
            return [piece._replace(messages=None) for piece in self._pieces]
        if sum(count for count in counts if count is not None) != statistics.message_count:
            raise _UnusableIndexError
        return self._pieces

    def _add(self, offset: int, head: ChunkHead, index: int, end: int, messages: int | None) -> None:
        is_wanted = offset not in self._unwanted and (
            self._times is None or self._times.may_be_in(head, self._file, index, self._layout.data_end)
        )
        if head.uncompressed_size == 0:
            messages = 0
        self._pieces.append(SplitPiece(offset, end, head.uncompressed_size, messages, is_wanted))

    def _walk_gap(self, at: int, end: int) -> None:
        """Walk the heads of the records between two indexed chunks, and add the chunks among them."""
        while at != end:
            if at > end or self._left == 0:
                raise _UnusableIndexError
            opcode, length = self._head(at, end)
            self._look_at(opcode, length, at, end)
            at += HEAD.size + length
            self._left -= 1

    def _look_at(self, opcode: int, length: int, at: int, end: int) -> None:
        if opcode == Op.CHUNK:
            self._add(at, self._chunk_head(at, length), at + HEAD.size + length, at + HEAD.size + length, None)
        elif opcode == Op.MESSAGE:
            self.is_loose = True
            channel = int.from_bytes(self._file.read_up_to(at + HEAD.size, 2), "little")
            if self._layout.data_crc or channel not in self._channels or self._looks_at_messages:
                # only the whole section's CRC guards it, its channel may follow later, or the index does not find it
                raise _UnusableIndexError
        elif (opcode in (Op.ATTACHMENT, Op.METADATA) and at not in self._known) or (
            opcode == Op.DATA_END and at + HEAD.size + length != end
        ):
            raise _UnusableIndexError

    def _check_entry(self, entry: ChunkIndexEntry) -> ChunkHead:
        """Return the head of the chunk at an entry of the index. Raises an error if they disagree."""
        layout = self._layout
        if entry.offset < layout.data_start or behind(entry) > layout.data_end:
            raise _UnusableIndexError
        if self._file.is_remote:
            size, start = entry.compressed_size, entry.length - entry.compressed_size
            return ChunkHead(
                entry.start_time, entry.end_time, entry.uncompressed_size, 0, entry.compression, size, start
            )
        return self._entry_head(entry)

    def check_places(self, offsets: set[int]) -> None:
        """For an object in a store, check the index entries of chunks at these places against the chunks."""
        entries = [entry for entry in self._summary.chunks if self._file.is_remote and entry.offset in offsets]
        self._file.peek((entry.offset, HEAD.size + CHUNK_HEAD_MAX) for entry in entries)
        for entry in entries:
            self._entry_head(entry)

    def _entry_head(self, entry: ChunkIndexEntry) -> ChunkHead:
        layout = self._layout
        opcode, length = self._head(entry.offset, layout.data_end)
        if opcode != Op.CHUNK or HEAD.size + length != entry.length:
            raise _UnusableIndexError
        head = self._chunk_head(entry.offset, length)
        if head.uncompressed_size != entry.uncompressed_size:
            raise _UnusableIndexError
        return head

    def _head(self, at: int, end: int) -> tuple[int, int]:
        try:
            return self._file.head_at(at, end)
        except ReadError as error:
            raise _UnusableIndexError from error

    def _chunk_head(self, at: int, length: int) -> ChunkHead:
        body = self._file.read_up_to(at + HEAD.size, min(length, CHUNK_HEAD_MAX))
        try:
            head = parse_chunk_head(body, length, path=self._file.path, offset=at)
        except ReadError as error:
            raise _UnusableIndexError from error
        if head.crc == 0 and self._layout.data_crc:
            raise _UnusableIndexError  # guarded by the CRC of the whole section only
        return head


def behind(entry: ChunkIndexEntry) -> int:
    """The end of a chunk and its message indexes."""
    return entry.end + entry.index_length


def _messages_of(entry: ChunkIndexEntry) -> int | None:
    """Count the messages in the MessageIndex records after a chunk, by the records' length."""
    records = len(entry.channel_ids) // 2
    entries, rest = divmod(entry.index_length - records * _INDEX_HEAD, _INDEX_ENTRY)
    return entries if records and not rest and entries >= 0 else None


def plan_splits(
    file: McapFile, layout: McapLayout, options: McapOptions, unwanted: Places = NOWHERE
) -> list[McapSplit]:
    """Divide the data section into runs of chunks of about ``SPLIT_BYTES`` uncompressed.

    A file whose index is missing, incomplete or wrong is one split, read from front to end. The splits have no
    gaps between them, so that nothing is lost even if the index is wrong; they depend only on the file and the options.
    With a range of times, stretches without an overlapping chunk are left out, and so are stretches with only
    ``unwanted`` chunks.

    Only a reader of the whole data section can check the section's CRC. A file is divided, without that check, if every
    message is in a chunk that has its own CRC (or if the writer computed none for the section).

    If the summary is enough for the chunks about the file, they come first. Otherwise they follow the messages, and the
    file is one split.
    """
    summary = layout.summary
    if (
        summary is None
        or layout.data_crc is None
        or sum(entry.uncompressed_size for entry in summary.chunks) <= SPLIT_BYTES
    ):
        return [whole(file, layout, options, unwanted)]
    try:
        walk = _IndexWalk(file, layout, summary, options, unwanted)
        splits = cut(file, layout, options, walk.pieces(), unwanted)
        walk.check_places({split.start for split in splits})
        _check_channels(summary)
    except _UnusableIndexError:
        return [whole(file, layout, options, unwanted)]
    return splits


def indexed_pieces(
    file: McapFile, layout: McapLayout, options: McapOptions, unwanted: Places = NOWHERE
) -> list[SplitPiece] | None:
    """All chunks of the data section in file order, if the summary describes them and all channels; else None.

    Their message counts are known. Raises ``ReadError`` if there are fewer chunks than the summary counts.
    """
    if layout.summary is None or layout.data_crc is None:
        return None
    try:
        walk = _IndexWalk(file, layout, layout.summary, options, unwanted)
        pieces = walk.pieces()
        _check_channels(layout.summary)
    except _UnusableIndexError:
        return None
    return None if walk.is_loose or any(piece.messages is None for piece in pieces) else pieces


def whole(file: McapFile, layout: McapLayout, options: McapOptions, unwanted: Places = NOWHERE) -> McapSplit:
    """The file as one split."""
    summary = layout.summary
    decoders = file_decoders(options.decoders)
    early = [d for d in decoders if not d.looks_at_messages and summary is not None and d.is_told_by(summary)]
    late = [d for d in decoders if d not in early]
    needs_all = [d for d in late if summary is None or not d.is_told_by(summary)]
    is_all_needed = (
        summary is None
        or bool(needs_all)
        or any(not d.looks_at_messages for d in late)
        or looks_at_messages(summary, options)
    )
    left_out = NOWHERE if is_all_needed else unwanted
    is_partial = file.is_remote and bool(left_out)  # each chunk has its own CRC
    split = McapSplit(
        PurePath(file.path).name,
        layout.data_end - layout.data_start,
        layout.data_start,
        layout.data_end,
        check_data_crc=layout.data_crc != 0 and not is_partial,
        times=_times_to_skip_by(layout, options, any(not d.looks_at_messages for d in late)),
        unwanted=left_out,
        before=tuple(d.name for d in early),
        after=tuple(d.name for d in late),
        is_whole=True,
    )
    if options.reads_messages or needs_all or (summary is not None and looks_at_messages(summary, options)):
        return split
    return replace(split, end=split.start, check_data_crc=False, is_whole=False)


def cut(
    file: McapFile, layout: McapLayout, options: McapOptions, pieces: list[SplitPiece], unwanted: Places
) -> list[McapSplit]:
    """Return runs of nearly equal uncompressed size, cut at chunk borders."""
    decoders = file_decoders(options.decoders)
    runs = _runs(pieces) if options.reads_messages else []
    if len(runs) == 1 and len(runs[0]) == len(pieces):
        return [whole(file, layout, options, unwanted)]
    ends = {piece.offset: end.offset for piece, end in pairwise(pieces)}
    number = len(runs)
    name = PurePath(file.path).name
    splits = []
    for i, run in enumerate(runs):
        start = layout.data_start if run[0] is pieces[0] else run[0].offset
        end = ends.get(run[-1].offset, layout.data_end)
        counts = [piece.messages for piece in run if piece.is_wanted]
        splits.append(
            McapSplit(
                f"{name} [{i + 1}/{number}]",
                end - start,
                start,
                end,
                chunks=len(run),
                messages=None if None in counts else sum(c for c in counts if c is not None),
                times=options.times,
                unwanted={
                    piece.offset: piece.end
                    for piece in run
                    if not piece.is_wanted and (file.is_remote or piece.offset in unwanted)
                },
            )
        )
    if not splits:
        splits = [McapSplit(name, 0, layout.data_start, layout.data_start)]
    splits[0] = replace(splits[0], before=tuple(d.name for d in decoders if not d.looks_at_messages))
    splits[-1] = replace(splits[-1], after=tuple(d.name for d in decoders if d.looks_at_messages))
    return splits


def _runs(pieces: list[SplitPiece]) -> list[list[SplitPiece]]:
    """Group neighbouring pieces to about ``SPLIT_BYTES``, without unwanted pieces at the ends of groups."""
    total = np.cumsum([piece.uncompressed if piece.is_wanted else 0 for piece in pieces])
    count = max(1, -(-int(total[-1]) // SPLIT_BYTES))
    wanted = total[-1] * np.arange(1, count) / count
    firsts = [0, *dict.fromkeys(int(i) for i in np.searchsorted(total, wanted) + 1 if i < len(pieces)), len(pieces)]
    runs = (pieces[first:last] for first, last in pairwise(firsts))
    return [trimmed for run in runs if (trimmed := _trimmed(run))]


def _trimmed(run: list[SplitPiece]) -> list[SplitPiece]:
    wanted = [i for i, piece in enumerate(run) if piece.is_wanted]
    return run[wanted[0] : wanted[-1] + 1] if wanted else []


def _times_to_skip_by(layout: McapLayout, options: McapOptions, needs_all: bool) -> TimeRange | None:
    """Return the range of times if chunks outside of it are not needed, else None.

    For that, the summary must repeat every channel, and be enough for the decoders of the file (not ``needs_all``).
    """
    summary = layout.summary
    if options.times is None or summary is None or needs_all:
        return None
    try:
        _check_channels(summary)
    except _UnusableIndexError:
        return None
    return None if looks_at_messages(summary, options) else options.times
