"""Recovery of cut and damaged files, and the report of what was lost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, NamedTuple, Protocol

import lz4.frame
import numpy as np
import pyarrow as pa
from mcap import records as library
from zlib_ng.zlib_ng import crc32

from ...engine.errors import ReadError
from ...engine.limits import (
    FREE_EXPANSION,
    MAX_CHUNK_UNCOMPRESSED,
    MAX_COMPRESSION_RATIO,
    MAX_SCHEMA_BYTES,
    MIB,
    check_expansion,
)
from .decoders import McapOptions, file_decoders, reads_records
from .file import McapFile, McapLayout, check_beginning, read_layout
from .file_level import NO_FACTS, FileFacts, check_place, facts_of, read_attachment, read_metadata
from .message_indexes import IndexComparison
from .plan import whole
from .records import (
    CHUNK_HEAD_MAX,
    DATA_END_SIZE,
    HEAD,
    MAGIC,
    MESSAGE_FIXED,
    Block,
    ChunkHead,
    MessageHeads,
    Op,
    RecordPlace,
    Registry,
    find_messages,
    heads_of,
    joined,
    parse_chunk_head,
    parse_record,
    take_arena,
)
from .section import GROUP_BYTES, McapSplit, MessageGroup, MessageSection, SectionReader

_SMALLEST_WINDOW: Final = 4096
_LARGEST_WINDOW: Final = 4 * MIB
_CHAIN: Final = 3
_MOST_TRIES: Final = 100_000
"""The maximum number of places and windows to search in one file. After that, only indexed chunks are found."""


class Resync:
    """Searches for believable records: of known kind and credible length, and followed by other such records.

    ``index`` has the summary's places of chunks, in order, if there is a summary.
    """

    def __init__(self, file: McapFile, registry: Registry, end: int, index: Sequence[int] = ()) -> None:
        self._file = file
        self._registry = registry
        self._end = end
        self._index = index
        self._tries = _MOST_TRIES

    def next_record(self, at: int, *, only_chunks_until: int = 0) -> int | None:
        """Return the place of the next believable record from ``at`` on, or None.

        Before byte ``only_chunks_until``, it only searches for chunks.
        """
        indexed_at = self._next_indexed(at)
        begin, window_size = at, _SMALLEST_WINDOW
        while begin < indexed_at and self._tries > 0:
            size = min(window_size, indexed_at - begin)
            window = self._file.read_up_to(begin, size + HEAD.size)
            for place in _places(np.frombuffer(window, np.uint8), self._end - begin):
                if place >= size or self._tries == 0:
                    break
                if begin + place < only_chunks_until and window[place] != Op.CHUNK:
                    continue
                self._tries -= 1
                if self.is_believable(begin + place):
                    return begin + place
            self._tries -= 1
            begin += size
            window_size = min(4 * window_size, _LARGEST_WINDOW)
        return indexed_at if indexed_at < self._end else None

    @property
    def gave_up(self) -> bool:
        """Return whether the tries are used up; then the search stops."""
        return self._tries <= 0

    def _next_indexed(self, at: int) -> int:
        """Return the place of the next indexed chunk, or the end."""
        for offset in self._index[bisect_left(self._index, at) :]:
            if self._is_chunk(offset):
                return offset
        return self._end

    def is_believable(self, at: int) -> bool:
        """Return whether records begin at ``at``: one chunk, or a few records in a row, or the end of the file."""
        for _ in range(_CHAIN):
            if at == self._end:
                return True
            after = self._after(at)
            if after is None:
                return False
            if after < 0:
                return True
            at = after
        return True

    def _is_chunk(self, at: int) -> bool:
        return (self._after(at) or 0) < 0

    def _after(self, at: int) -> int | None:
        """Return the end of the record at ``at``, -1 if it is certainly a chunk, or None if it is not a record."""
        try:
            opcode, length = self._file.head_at(at, self._end)
            if opcode == Op.CHUNK:
                return -1 if self._chunk_is_right(at, length) else None
            return at + HEAD.size + length if self._is_right(opcode, length, at) else None
        except ReadError:
            return None

    def _chunk_is_right(self, at: int, length: int) -> bool:
        body = self._file.read_up_to(at + HEAD.size, min(length, CHUNK_HEAD_MAX))
        head = parse_chunk_head(body, length, path=self._file.path, offset=at)
        is_plain = head.compression == "" and head.size == head.uncompressed_size
        return (is_plain or head.compression in ("lz4", "zstd")) and head.data_at + head.size == length

    def _is_right(self, opcode: int, length: int, at: int) -> bool:
        if opcode == Op.MESSAGE:
            channel = int.from_bytes(self._file.read_up_to(at + HEAD.size, 2), "little")
            return length >= MESSAGE_FIXED and (channel in self._registry.channels or not self._registry.channels)
        if opcode in (Op.SCHEMA, Op.CHANNEL):
            if length > MAX_SCHEMA_BYTES:
                return False
            body = self._file.read_at(at + HEAD.size, length, what="a record")
            read = library.Schema.read if opcode == Op.SCHEMA else library.Channel.read
            parse_record(read, opcode, body, path=self._file.path, offset=at)
            return True
        if opcode == Op.MESSAGE_INDEX:
            return length >= 6 and (length - 6) % 16 == 0
        if opcode == Op.DATA_END:
            return length == DATA_END_SIZE - HEAD.size
        return opcode in (Op.ATTACHMENT, Op.METADATA) and length >= 8


def _places(window: np.ndarray, left: int) -> list[int]:
    """Places in ``window`` where a record of the data section may begin, with a length within ``left``."""
    count = len(window) - HEAD.size + 1
    if count <= 0:
        return []
    opcode = window[:count]
    kinds = (opcode >= Op.SCHEMA) & (opcode <= Op.MESSAGE_INDEX) | (opcode == Op.ATTACHMENT) | (opcode == Op.METADATA)
    kinds |= opcode == Op.DATA_END
    # the upper three bytes of lengths below a terabyte are zero
    for byte in (8, 7, 6):
        kinds &= window[byte : count + byte] == 0
    places = np.flatnonzero(kinds)
    lengths = np.zeros(len(places), np.int64)
    for byte in range(5):
        lengths |= window[places + 1 + byte].astype(np.int64) << (8 * byte)
    candidates: list[int] = places[lengths <= left - places - HEAD.size].tolist()
    return candidates


_STEP: Final = 64 * 1024


def decompress_beginning(head: ChunkHead, data: bytes) -> bytearray:
    """A chunk's records as far as its data decompresses, at most as many bytes as the chunk declares."""
    most = min(head.uncompressed_size, MAX_CHUNK_UNCOMPRESSED, max(FREE_EXPANSION, len(data) * MAX_COMPRESSION_RATIO))
    if head.compression == "zstd":
        return _zstd(data, most)
    if head.compression == "lz4":
        return _lz4(data, most)
    return bytearray(data[:most]) if head.compression == "" else bytearray()


class _Saved(NamedTuple):
    """Whole records: the offsets of their messages, the records' end, and the reason if they end too early."""

    offsets: list[int]
    end: int
    stop: str | None


def whole_records(records: bytearray, registry: Registry, *, offset: int) -> _Saved:
    """Return the messages in ``records`` up to the first broken record.

    Channels and schemas go to ``registry``.
    """
    at = 0
    offsets: list[int] = []
    while at < len(records):
        if len(records) - at < HEAD.size:
            return _Saved(offsets, at, "its last record is cut off")
        opcode, length = HEAD.unpack_from(records, at)
        body = at + HEAD.size
        if length > len(records) - body:
            return _Saved(offsets, at, "a record in it runs past its end")
        if opcode == Op.MESSAGE and length >= MESSAGE_FIXED:
            offsets.append(at)
        elif opcode in (Op.SCHEMA, Op.CHANNEL):
            try:
                registry.add(opcode, bytes(records[body : body + length]), offset=offset)
            except ReadError as error:
                return _Saved(offsets, at, error.message)
        elif opcode < 0x80:
            return _Saved(offsets, at, "the content after this is not records")
        at = body + length
    return _Saved(offsets, at, None)


def _zstd(data: bytes, most: int) -> bytearray:
    records = bytearray()
    with suppress(OSError, RuntimeError), pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while len(records) < most and (part := stream.read(min(_STEP, most - len(records)))):
            records += part
    return records


def _lz4(data: bytes, most: int) -> bytearray:
    records = bytearray()
    decompressor = lz4.frame.LZ4FrameDecompressor()
    with suppress(RuntimeError, EOFError):
        for begin in range(0, len(data), _STEP):
            piece: bytes = data[begin : begin + _STEP]
            while len(records) < most and (
                part := decompressor.decompress(piece, max_length=min(_STEP, most - len(records)))
            ):
                records += part
                piece = b""
            if decompressor.eof or len(records) == most:
                break
    return records


_NAMED: Final = 3
_KEPT: Final = 1000


@dataclass(slots=True)
class McapRecoveryReport:
    """A report of the recovered and the lost parts of a file.

    ``whole_until`` is the offset of the first damage, or the size of an undamaged file. ``chunks`` and ``messages``
    count the recovered ones, ``lost_bytes`` the skipped bytes. ``lost_messages`` is the summary's count minus the
    recovered messages, but at least the number of messages of unknown channels. ``reason`` is the fault at the end of
    the file, or None. ``damaged`` has offset and reason of each loss, ``doubtful`` of each chunk that was recovered
    without a confirming checksum. Both are limited to 1,000 places. ``last_times`` maps ``message_log_time`` to the
    latest recovered time, in ns.
    """

    path: str
    size: int
    whole_until: int = 0
    chunks: int = 0
    messages: int = 0
    lost_bytes: int = 0
    lost_messages: int = 0
    reason: str | None = None
    damaged: list[tuple[int, str]] = field(default_factory=list)
    doubtful: list[tuple[int, str]] = field(default_factory=list)
    last_times: dict[str, int] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Return True if nothing was lost, and nothing is doubtful."""
        return self.reason is None and not self.damaged and not self.doubtful and not self.lost_messages

    def lost(self, offset: int, reason: str) -> None:
        """Record a loss at ``offset``."""
        self._note(self.damaged, offset, reason)

    def doubted(self, offset: int, reason: str) -> None:
        """Record that messages of the chunk at ``offset`` may be wrong."""
        self._note(self.doubtful, offset, reason)

    def _note(self, notes: list[tuple[int, str]], offset: int, reason: str) -> None:
        self.whole_until = min(self.whole_until or self.size, offset)
        if len(notes) < _KEPT and (offset, reason) not in notes[-1:]:
            notes.append((offset, reason))

    def __str__(self) -> str:
        times = {name: np.datetime64(time, "ns") if time < 1 << 63 else time for name, time in self.last_times.items()}
        until = "".join(f" (last time: {name} {time})" for name, time in times.items())
        text = f"{self.path}: recovered {self.messages:,} messages in {self.chunks:,} chunks{until}"
        if not self.is_whole:
            text += f"; the file of {self.size:,} bytes is intact up to byte {self.whole_until:,}"
        if self.reason is not None:
            text += f"; {self.reason}"
        if self.lost_bytes:
            text += f"; {self.lost_bytes:,} bytes were skipped"
        if self.lost_messages:
            text += f"; {self.lost_messages:,} messages are missing"
        text += "".join(f"; lost at byte {offset:,}: {reason}" for offset, reason in self.damaged[:_NAMED])
        text += "".join(f"; doubtful at byte {offset:,}: {reason}" for offset, reason in self.doubtful[:_NAMED])
        more = sum(max(0, len(notes) - _NAMED) for notes in (self.damaged, self.doubtful))
        return f"{text}; and {more:,} more places" if more else text


_OF_SUMMARY: Final = frozenset(
    {Op.CHUNK_INDEX, Op.ATTACHMENT_INDEX, Op.STATISTICS, Op.METADATA_INDEX, Op.SUMMARY_OFFSET, Op.FOOTER}
)


_EFFORT: Final = 20
"""The limit on what broken chunks may read and decompress, in multiples of the file's size, besides one large chunk."""


class Rescue(Protocol):
    """A plan to read a damaged file: its records in ``split``, and the content of its index, if that is credible."""

    @property
    def split(self) -> McapSplit:
        """All records of the file."""
        ...

    @property
    def facts(self) -> FileFacts:
        """The facts in the index."""
        ...

    @property
    def report(self) -> McapRecoveryReport:
        """The report of the recovered and lost parts."""
        ...

    def section(self, file: Any, registry: Registry) -> MessageSection:
        """Return a reader of the records, which fills the report."""
        ...

    def finish(self, file: Any, section: Any) -> None:
        """Complete the report when all records were read."""
        ...


class _Broken(NamedTuple):
    """A damaged chunk: its first records, and where its data begins and ends in the file."""

    head: ChunkHead
    records: bytearray
    data_at: int
    end: int


class _RecoveringSection(SectionReader):
    """Reads records like ``SectionReader``; unreadable ones are noted in ``report`` and skipped.

    After a damaged place, it continues with the next believable record. If a chunk does not decompress to its declared
    size, or its checksum does not match, the records before the break are kept as doubtful.
    """

    def __init__(
        self,
        file: McapFile,
        split: McapSplit,
        registry: Registry,
        report: McapRecoveryReport,
        *,
        index: Sequence[int] = (),
        indexes: IndexComparison | None = None,
    ) -> None:
        super().__init__(file, split, registry, check_attachments=not reads_records(Op.ATTACHMENT, split.before))
        self._report = report
        self._indexes = indexes
        self._index_at = 0
        self._resync = Resync(file, registry, split.end, index)
        self._is_over = False
        self._gave_up = False
        self._effort = MAX_CHUNK_UNCOMPRESSED + _EFFORT * file.size

    def groups(self) -> Iterator[MessageGroup]:
        """Yield the readable messages, in groups of about ``GROUP_BYTES``, in file order."""
        cursor = self._cursor
        while cursor.at < cursor.end and not self._is_over:
            at = cursor.at
            try:
                opcode, length = cursor.peek_head()
                need = self._room_for(opcode, length)
                if need > len(self._arena) - self._used:
                    yield from self._flush()
                    self._arena = take_arena(max(GROUP_BYTES, need))
                self._take(opcode, length)
            except ReadError as error:
                if error.transient:
                    raise
                yield from self._pass_over(at, error)
        yield from self._flush()
        self._report.whole_until = self._report.whole_until or cursor.at

    def _pass_over(self, at: int, error: ReadError) -> Iterator[MessageGroup]:
        """Keep the rest of the record at ``at``, and continue after it."""
        self._is_over = False
        self._after_chunk = False
        yield from self._flush()
        broken = self._broken_chunk(at)
        begin, inside = at + 1, at
        if broken is None or not broken.records:
            self._report.lost(at, error.message)
        else:
            num_bytes = yield from self._saved(broken, at, error)
            begin = broken.data_at + num_bytes if broken.head.compression == "" else begin
        if broken is not None and broken.head.compression:
            inside = broken.end  # messages found inside are parts of the compressed data
        after = self._end_of(at) or self._resync.next_record(begin, only_chunks_until=inside) or self._cursor.end
        if broken is None or not broken.records:
            self._report.lost_bytes += after - at
        if self._effort <= 0:
            self._report.lost(after, "there is too much damage to continue")
            self._report.lost_bytes += self._cursor.end - after
            after = self._cursor.end
        elif self._resync.gave_up and not self._gave_up:
            self._gave_up = True
            self._report.lost(at, "there are too many damaged places to search for records after each")
        self._cursor.at = after

    def _end_of(self, at: int) -> int | None:
        """Return the end of the record at ``at``, if records follow there."""
        try:
            opcode, length = self._file.head_at(at, self._cursor.end)
        except ReadError:
            return None
        after = at + HEAD.size + length
        return after if opcode in range(1, 0x10) and self._resync.is_believable(after) else None

    def _broken_chunk(self, at: int) -> _Broken | None:
        """Return the rest of the chunk at ``at``, or None if there is no chunk."""
        left = self._cursor.end - at - HEAD.size
        if left < 0 or self._file.read_up_to(at, 1)[0] != Op.CHUNK:
            return None
        length = int.from_bytes(self._file.read_at(at + 1, 8, what="a record"), "little")
        try:
            body = self._file.read_up_to(at + HEAD.size, min(left, CHUNK_HEAD_MAX))
            head = parse_chunk_head(body, length, path=self._file.path, offset=at)
            check_expansion(head.size, head.uncompressed_size, path=self._file.path, offset=at, what="a chunk")
            most = head.uncompressed_size + head.uncompressed_size // 64 + MIB
            size = max(0, min(head.size, left - head.data_at, most))
            data_at = at + HEAD.size + head.data_at
            data = self._file.read_at(data_at, size, what="a chunk")
        except ReadError:
            return None
        records = decompress_beginning(head, data)
        self._effort -= 2 * size + head.uncompressed_size
        return _Broken(head, records, data_at, data_at + size)

    def _saved(self, broken: _Broken, at: int, error: ReadError) -> Generator[MessageGroup, None, int]:
        """Yield the messages in a damaged chunk's first records, and return how many bytes of records were whole."""
        head = broken.head
        saved = whole_records(broken.records, self._registry, offset=at)
        then = f", then {saved.stop}" if saved.stop else ""
        count = len(saved.offsets)
        self._report.doubted(at, f"{error.message}; {count:,} messages of the chunk were kept{then}")
        self.tally.chunks[head.compression] += 1
        self.tally.uncompressed += len(broken.records)
        self.tally.compressed += head.size
        arena = np.frombuffer(broken.records, np.uint8)
        yield from self._known(arena, heads_of(arena, np.array(saved.offsets, np.int64)), at)
        return saved.end

    def _flush(self) -> Iterator[MessageGroup]:
        """Yield the messages of the blocks so far; a broken block gives the messages before the break."""
        arena, blocks = self._arena[: self._used], self._blocks
        self._blocks, self._heads, self._used = [], {}, 0
        self._arena = np.empty(0, np.uint8)
        parts: list[MessageHeads] = []
        for block in blocks:
            try:
                messages = find_messages(arena, block, self._registry, path=self._file.path)
                if self._indexes is not None:
                    self._indexes.compare(block, messages)
                parts.append(messages)
            except ReadError as error:
                parts.append(self._broken(arena, block, error))
        messages = joined(parts)
        if len(messages.offsets):
            yield from self._known(arena, messages, blocks[0].offset)

    def _broken(self, arena: np.ndarray, block: Block, error: ReadError) -> MessageHeads:
        saved = whole_records(bytearray(arena[block.begin : block.end]), self._registry, offset=block.offset)
        self._report.doubted(
            block.offset, f"{saved.stop or error.message}; {len(saved.offsets):,} messages of the chunk were kept"
        )
        return heads_of(arena, np.array(saved.offsets, np.int64) + block.begin)

    def _known(self, arena: np.ndarray, messages: MessageHeads, offset: int) -> Iterator[MessageGroup]:
        """Yield the messages of known channels."""
        channels = np.array(sorted(self._registry.channels), np.uint16)
        unknown = ~np.isin(messages.heads["channel"], channels)
        if unknown.any():
            count = int(unknown.sum())
            self._report.lost(offset, f"{count:,} messages belong to undefined channels")
            self._report.lost_messages += count
            messages = messages.at(~unknown)
        if len(messages.heads):
            self.tally.messages += len(messages.heads)
            self._report.last_times["message_log_time"] = max(
                self._report.last_times.get("message_log_time", 0), int(messages.heads["log_time"].max())
            )
            yield MessageGroup(arena, messages)

    def _take(self, opcode: int, length: int) -> None:
        """Read a record. Skip those of the summary, which follow if the end of the data section is missing."""
        if opcode == Op.DATA_END or opcode in _OF_SUMMARY:
            self._is_over = opcode in (Op.DATA_END, Op.FOOTER)
            self._cursor.skip_record(length)
            return
        if opcode == Op.METADATA and not reads_records(Op.METADATA, self._split.before):
            read_metadata(self._file, RecordPlace(self._cursor.at, HEAD.size + length))
        super()._take(opcode, length)

    def _take_chunk(self, length: int) -> None:
        self._index_at = self._cursor.at + HEAD.size + length
        super()._take_chunk(length)

    def _take_index(self, body: bytes) -> None:
        if self._indexes is not None:
            self._indexes.take(self._blocks[-1].offset, self._index_at, body)
        self._index_at += HEAD.size + len(body)
        super()._take_index(body)


class Salvage(NamedTuple):
    """A plan to read a damaged file: its records in ``split``, with the facts of its summary, if that is credible."""

    split: McapSplit
    facts: FileFacts
    layout: McapLayout | None
    report: McapRecoveryReport

    def section(self, file: McapFile, registry: Registry, indexes: IndexComparison | None = None) -> _RecoveringSection:
        """Return a reader of the records; it fills the report, and ``indexes`` if given."""
        summary = self.layout.summary if self.layout is not None else None
        index = [entry.offset for entry in summary.chunks] if summary is not None else []
        return _RecoveringSection(file, self.split, registry, self.report, index=index, indexes=indexes)

    def finish(self, file: McapFile, section: _RecoveringSection) -> None:
        """Complete the report when all records were read."""
        report, tally = self.report, section.tally
        report.chunks, report.messages = tally.chunks.total(), tally.messages
        layout = self.layout
        if layout is None:
            return
        statistics = layout.summary.statistics if layout.summary is not None else None
        if statistics is not None and not tally.skipped:
            report.lost_messages = max(report.lost_messages, statistics.message_count - tally.messages, 0)
        if layout.data_crc and report.is_whole and _crc(file, layout) != layout.data_crc:
            report.doubted(layout.data_start, "the CRC of the data section does not match its data")


def plan_salvage(file: McapFile, options: McapOptions) -> Salvage:
    """Read both ends of ``file``. Raises ``ReadError`` only if it is not an MCAP at all."""
    check_beginning(file)
    report = McapRecoveryReport(file.path, file.size)
    try:
        layout = read_layout(file)
    except ReadError as error:
        if error.transient:
            raise
        report.reason = error.message
        return Salvage(_without_summary(file, options, report), NO_FACTS, None, report)
    summary = layout.summary
    facts = _sound(file, facts_of(summary), report) if summary is not None else NO_FACTS
    split = whole(file, layout, options)
    return Salvage(_unchecked(split, layout), facts, layout, report)


def recovery_report(file: McapFile, options: McapOptions, indexes: IndexComparison | None = None) -> McapRecoveryReport:
    """Read the whole file without decoding messages, and report what can be recovered.

    ``indexes`` gets the message indexes of all whole chunks, and compares them.
    """
    salvage = plan_salvage(file, options)
    registry = Registry(file.path, salvage.facts.channels.values(), salvage.facts.schemas.values())
    section = salvage.section(file, registry, indexes)
    for _ in section.groups():
        pass
    salvage.finish(file, section)
    return salvage.report


def _unchecked(split: McapSplit, layout: McapLayout) -> McapSplit:
    return McapSplit(
        split.label,
        split.size,
        split.start,
        layout.data_end if split.is_whole else split.end,
        times=split.times,
        before=split.before,
        after=split.after,
        is_whole=True,
    )


def _without_summary(file: McapFile, options: McapOptions, report: McapRecoveryReport) -> McapSplit:
    after = tuple(d.name for d in file_decoders(options.decoders))
    start = len(MAGIC)
    try:
        opcode, length = file.head_at(start, file.size)
        if opcode == Op.HEADER:
            start += HEAD.size + length
    except ReadError as error:
        report.lost(start, error.message)
    return McapSplit(PurePath(file.path).name, file.size, start, file.size, after=after, is_whole=True)


def _sound(file: McapFile, facts: FileFacts, report: McapRecoveryReport) -> FileFacts:
    """The facts, without unreadable attachments and metadata records."""
    return facts._replace(
        attachments=tuple(_readable(file, facts.attachments, _check_attachment, report)),
        metadata=tuple(_readable(file, facts.metadata, read_metadata, report)),
    )


def _readable(
    file: McapFile,
    places: Iterable[RecordPlace],
    check: Callable[[McapFile, RecordPlace], object],
    report: McapRecoveryReport,
) -> Iterator[RecordPlace]:
    for place in places:
        try:
            check(file, place)
        except ReadError as error:
            report.lost(place.offset, error.message)
        else:
            yield place


def _check_attachment(file: McapFile, place: RecordPlace) -> None:
    check_place(file, place, Op.ATTACHMENT)
    read_attachment(file, place.offset, place.length - HEAD.size).check(file)


def _crc(file: McapFile, layout: McapLayout) -> int:
    """The CRC-32 of everything before the DataEnd record."""
    crc, end = 0, layout.data_end - DATA_END_SIZE
    for begin in range(0, end, MIB):
        crc = crc32(file.read_at(begin, min(MIB, end - begin), what="the data section"), crc)
    return crc
