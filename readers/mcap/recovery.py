"""Cut and damaged files: a plan to read them, the records that can still be read, and the report of what was lost."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, NamedTuple

import numpy as np
from zlib_ng.zlib_ng import crc32

from ...engine.errors import ReadError
from ...engine.limits import MAX_CHUNK_UNCOMPRESSED, MIB, check_expansion
from .attachments import read_attachment, read_metadata
from .blocks import Block, MessageHeads, find_messages, heads_of, joined, take_arena
from .damage import Resync, decompress_beginning, whole_records
from .decoders import McapOptions, file_decoders, reads_records
from .file import McapFile
from .file_level import NO_FACTS, FileFacts, check_place, facts_of
from .layout import McapLayout, check_beginning, read_layout
from .message_indexes import IndexComparison
from .plan import whole
from .records import (
    CHUNK_HEAD_MAX,
    DATA_END_SIZE,
    HEAD,
    MAGIC,
    ChunkHead,
    Op,
    RecordPlace,
    Registry,
    parse_chunk_head,
)
from .section import GROUP_BYTES, McapSplit, MessageGroup, SectionReader

_NAMED: Final = 3
_KEPT: Final = 1000


@dataclass(slots=True)
class McapRecoveryReport:
    """A report of what was recovered of a file and what was lost.

    ``whole_until`` is the first byte that could not be read as it should be (the size of the file when there is none).
    ``chunks`` and ``messages`` count what was recovered, ``lost_bytes`` what was passed over, ``lost_messages`` the
    messages that the summary counts, or that name no known channel, and that are not among them. ``reason`` says why
    the file does not end as it should, None when it does. ``damaged`` holds offset and reason of what was lost,
    ``doubtful`` of chunks whose messages were recovered without a checksum that confirms them; both hold the first
    1,000. ``last_times`` maps ``message_log_time`` to the latest time recovered, in ns.
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
        """Whether nothing was lost, and nothing is in doubt."""
        return self.reason is None and not self.damaged and not self.doubtful and not self.lost_messages

    def lost(self, offset: int, reason: str) -> None:
        """Note that something at ``offset`` was lost."""
        self._note(self.damaged, offset, reason)

    def doubted(self, offset: int, reason: str) -> None:
        """Note that the messages of the chunk at ``offset`` may be wrong."""
        self._note(self.doubtful, offset, reason)

    def _note(self, notes: list[tuple[int, str]], offset: int, reason: str) -> None:
        self.whole_until = min(self.whole_until or self.size, offset)
        if len(notes) < _KEPT and (offset, reason) not in notes[-1:]:
            notes.append((offset, reason))

    def __str__(self) -> str:
        until = "".join(f" (last time: {name} {time:,})" for name, time in self.last_times.items())
        text = f"{self.path}: recovered {self.messages:,} messages in {self.chunks:,} chunks{until}"
        if not self.is_whole:
            text += f"; the file of {self.size:,} bytes is whole up to byte {self.whole_until:,}"
        if self.reason is not None:
            text += f"; {self.reason}"
        if self.lost_bytes:
            text += f"; {self.lost_bytes:,} bytes were passed over"
        if self.lost_messages:
            text += f"; {self.lost_messages:,} messages are missing"
        text += "".join(f"; lost at byte {offset:,}: {reason}" for offset, reason in self.damaged[:_NAMED])
        text += "".join(f"; in doubt at byte {offset:,}: {reason}" for offset, reason in self.doubtful[:_NAMED])
        more = sum(max(0, len(notes) - _NAMED) for notes in (self.damaged, self.doubtful))
        return f"{text}; and {more:,} places more" if more else text


_OF_SUMMARY: Final = frozenset(
    {Op.CHUNK_INDEX, Op.ATTACHMENT_INDEX, Op.STATISTICS, Op.METADATA_INDEX, Op.SUMMARY_OFFSET, Op.FOOTER}
)


_EFFORT: Final = 20
"""How many times the size of a file its broken chunks may make us read and decompress, besides one large chunk."""


class _Broken(NamedTuple):
    """A damaged chunk: its first records, and where its data begins and ends in the file."""

    head: ChunkHead
    records: bytearray
    data_at: int
    end: int


class _RecoveringSection(SectionReader):
    """Reads records like ``SectionReader``; what it cannot read is noted in ``report`` and passed over.

    Behind a damaged place it goes on with the next record that makes sense. Of a chunk that does not decompress to
    what it declares, or whose checksum does not match, the records before the break are kept, as doubtful.
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
        """The messages that could be read, in groups of about ``GROUP_BYTES``, in file order."""
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
        """Keep what is left of the record at ``at``, and go on behind it."""
        self._is_over = False
        self._after_chunk = False
        yield from self._flush()
        broken = self._broken_chunk(at)
        begin, inside = at + 1, at
        if broken is None or not broken.records:
            self._report.lost(at, error.message)
        else:
            kept = yield from self._saved(broken, at, error)
            begin = broken.data_at + kept if broken.head.compression == "" else begin
        if broken is not None and broken.head.compression:
            inside = broken.end  # messages that are found in there are parts of what was compressed
        after = self._end_of(at) or self._resync.next_record(begin, only_chunks_until=inside) or self._cursor.end
        if broken is None or not broken.records:
            self._report.lost_bytes += after - at
        if self._effort <= 0:
            self._report.lost(after, "there is too much damage to go on")
            self._report.lost_bytes += self._cursor.end - after
            after = self._cursor.end
        elif self._resync.gave_up and not self._gave_up:
            self._gave_up = True
            self._report.lost(at, "there are too many damaged places to look for records behind each of them")
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
        """Return what is left of the chunk at ``at``, if it is one."""
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
        """The messages among the first records of a damaged chunk; returns how many bytes of records were whole."""
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
        """The messages of the blocks so far. A block that breaks gives those before the break."""
        arena, blocks = self._arena[: self._used], self._blocks
        self._blocks, self._heads, self._used = [], {}, 0
        self._arena = np.empty(0, np.uint8)
        parts: list[MessageHeads] = []
        for block in blocks:
            try:
                found = find_messages(arena, block, self._registry, path=self._file.path)
                if self._indexes is not None:
                    self._indexes.compare(block, found)
                parts.append(found)
            except ReadError as error:
                parts.append(self._broken(arena, block, error))
        found = joined(parts)
        if len(found.offsets):
            yield from self._known(arena, found, blocks[0].offset)

    def _broken(self, arena: np.ndarray, block: Block, error: ReadError) -> MessageHeads:
        saved = whole_records(bytearray(arena[block.begin : block.end]), self._registry, offset=block.offset)
        self._report.doubted(
            block.offset, f"{saved.stop or error.message}; {len(saved.offsets):,} messages of the chunk were kept"
        )
        return heads_of(arena, np.array(saved.offsets, np.int64) + block.begin)

    def _known(self, arena: np.ndarray, found: MessageHeads, offset: int) -> Iterator[MessageGroup]:
        """The messages whose channel is known."""
        channels = np.array(sorted(self._registry.channels), np.uint16)
        unknown = ~np.isin(found.heads["channel"], channels)
        if unknown.any():
            count = int(unknown.sum())
            self._report.lost(offset, f"{count:,} messages are of channels that no Channel record defines")
            self._report.lost_messages += count
            found = found.at(~unknown)
        if len(found.heads):
            self.tally.messages += len(found.heads)
            self._report.last_times["message_log_time"] = max(
                self._report.last_times.get("message_log_time", 0), int(found.heads["log_time"].max())
            )
            yield MessageGroup(arena, found)

    def _take(self, opcode: int, length: int) -> None:
        """Take a record. Those of the summary, which come where the end of the data section is missing, are skipped."""
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
    """The reading of a damaged file: its records in ``split``, with what its summary tells, if it can be believed."""

    split: McapSplit
    facts: FileFacts
    layout: McapLayout | None
    report: McapRecoveryReport

    def section(self, file: McapFile, registry: Registry, indexes: IndexComparison | None = None) -> _RecoveringSection:
        """A reader of the records; it fills the report, and ``indexes`` where that is there."""
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
    """Look at both ends of ``file``. Raises ``ReadError`` only where it is no MCAP at all."""
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
    """Read the whole file without decoding its messages, and say what can be recovered of it.

    ``indexes`` gets the message indexes of all chunks that are whole, to compare.
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
    """The facts without the attachments and metadata records that cannot be read."""
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
