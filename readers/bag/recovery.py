"""Recovery of cut and damaged bags."""

from __future__ import annotations

from bz2 import BZ2Decompressor
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Final, NamedTuple

import numpy as np

from ...engine.errors import ReadError, UnsupportedError
from ...engine.limits import FREE_EXPANSION, MAX_CHUNK_UNCOMPRESSED, MAX_COMPRESSION_RATIO, MIB
from ..mcap.decoders import McapOptions, file_decoders
from ..mcap.file import McapLayout
from ..mcap.file_level import NO_FACTS, FileFacts, facts_of
from ..mcap.records import Bytes, ChunkHead, MessageHeads, Registry, joined, placed_heads
from ..mcap.recovery import McapRecoveryReport, decompress_beginning
from ..mcap.section import McapSplit, MessageGroup
from .records import (
    LAST_CONNECTION,
    MAGIC,
    U32,
    BagFile,
    BagOp,
    BagRecord,
    bag_header,
    check_version,
    chunk_head,
    made_record,
    read_layout,
)
from .section import BagBlock, BagMessages, BagSection, walk

_STEP: Final = 64 * 1024
_WINDOW: Final = 4 * MIB
_MARK: Final = U32.pack(4) + b"op="
"""The bytes that precede the kind of record in every header."""

_LONGEST_HEAD: Final = 512
"""The number of bytes before an ``op`` that are searched for the start of a record."""

_MOST_TRIES: Final = 100_000
"""The maximum number of places to try in one file."""

_EFFORT: Final = 20
"""The limit on what broken chunks may read and decompress, in multiples of the file's size, besides one large chunk."""


class _Broken(NamedTuple):
    """A damaged chunk: its first records, and where its data begins and ends in the file."""

    head: ChunkHead
    records: bytearray
    data_at: int
    end: int


class RecoveringSection(BagSection):
    """Reads records like ``BagSection``; it skips what it cannot read, and notes that in ``report``.

    After a damaged place, it continues at the next believable record, and at the latest at the next place in ``index``.
    If a chunk does not decompress to its declared size, the records before the break are kept as doubtful.
    """

    def __init__(
        self, file: BagFile, split: McapSplit, registry: Registry, report: McapRecoveryReport, index: Sequence[int]
    ) -> None:
        super().__init__(file, split, registry)
        self._report = report
        self._index = index
        self._tries = _MOST_TRIES
        self._effort = MAX_CHUNK_UNCOMPRESSED + _EFFORT * file.size

    def _groups(self) -> Iterator[MessageGroup]:
        at, end = self._split.start, self._split.end
        while at < end:
            try:
                record = self._file.record_at(at, end)
                yield from self._make_room(record)
                at = self._take(record)
            except ReadError as error:
                if error.transient:
                    raise
                at = yield from self._pass_over(at, error)
        yield from self._flush()
        self._report.whole_until = self._report.whole_until or self._file.size

    def _pass_over(self, at: int, error: ReadError) -> Generator[MessageGroup, None, int]:
        """Keep the rest of the record at ``at``, and return where to continue."""
        yield from self._flush()
        broken = self._broken_chunk(at)
        begin, inside = at + 1, at
        if broken is not None and broken.records:
            kept = yield from self._saved(broken, at, error)
            begin = broken.data_at + kept if broken.head.compression == "" else begin
        else:
            self._report.lost(at, error.message)
        if broken is not None and broken.head.compression:
            inside = broken.end  # records found inside are parts of the compressed data
        after = self._end_of(at) or self._next_record(begin, inside)
        if broken is None or not broken.records:
            self._report.lost_bytes += after - at
        if self._effort <= 0 and after < self._split.end:
            self._report.lost(after, "there is too much damage to continue")
            self._report.lost_bytes += self._split.end - after
            return self._split.end
        return after

    def _end_of(self, at: int) -> int | None:
        """The end of the record at ``at``, if another record or the end of the split follows it."""
        end = self._split.end
        try:
            record = self._file.record_at(at, end)
            if record.end < end:
                self._file.record_at(record.end, end)
        except ReadError:
            return None
        return record.end if record.size or record.op != BagOp.CHUNK else None

    def _next_record(self, at: int, inside: int) -> int:
        """The place of the next believable record from ``at`` on, or the end; up to ``inside``, only of a chunk."""
        end = self._split.end
        indexed = next((offset for offset in self._index if offset >= at), end)
        begin = at
        while begin < indexed:
            window = self._file.read_up_to(begin, _WINDOW + _LONGEST_HEAD)
            place = -1
            while (place := window.find(_MARK, place + 1)) >= 0:
                kind = window[place + len(_MARK) : place + len(_MARK) + 1]
                if kind == bytes([BagOp.CHUNK]) or (begin + place > inside and kind in (b"\x02", b"\x04", b"\x07")):
                    offset = self._beginning(window, begin, place, kind[0])
                    if offset is not None and (kind[0] == BagOp.CHUNK or offset >= inside):
                        return min(offset, indexed)
                if self._tries <= 0:
                    return indexed
            if len(window) <= _LONGEST_HEAD:
                break
            begin += max(len(window) - _LONGEST_HEAD, 1)
        return indexed

    def _beginning(self, window: bytes, begin: int, place: int, op: int) -> int | None:
        """The start, in the file, of the record whose ``op`` is at ``place`` in the window."""
        for at in range(place - U32.size, max(place - _LONGEST_HEAD, -1), -1):
            size = U32.unpack_from(window, at)[0]
            if not place - at + 4 <= size <= _LONGEST_HEAD:
                continue
            self._tries -= 1
            raw = window[at + U32.size : at + 2 * U32.size + size]
            if self._tries <= 0 or len(raw) < U32.size + size:
                return None
            with suppress(ReadError):
                record = made_record(raw, begin + at, path=self._file.path, place=begin + at)
                is_chunk = record.op == BagOp.CHUNK  # which may be cut
                if record.op == op and (is_chunk or record.end <= self._split.end) and self._is_believable(record):
                    return begin + at
        return None

    def _is_believable(self, record: BagRecord) -> bool:
        if record.op == BagOp.CHUNK:
            chunk_head(record, path=self._file.path)
            return True
        names = {BagOp.MESSAGE: b"time", BagOp.INDEX: b"count", BagOp.CONNECTION: b"topic"}
        return names[record.op] in record.fields and (record.op == BagOp.CONNECTION or b"conn" in record.fields)

    def _broken_chunk(self, at: int) -> _Broken | None:
        """The rest of the chunk at ``at``, if there is one; it ends with the file at the latest."""
        end = self._split.end
        with suppress(ReadError):
            (size,) = U32.unpack(self._file.read_at(at, U32.size, what="a record"))
            data_at = at + size + 2 * U32.size
            if data_at > end or size > _LONGEST_HEAD:
                return None
            record = self._file.record_at(at, 2**63)
            if record.op != BagOp.CHUNK:
                return None
            head = chunk_head(record, path=self._file.path)
            if not head.size and not head.uncompressed_size:  # the recorder fills in sizes when it ends a chunk
                left = end - data_at
                most = min(MAX_CHUNK_UNCOMPRESSED, max(FREE_EXPANSION, left * MAX_COMPRESSION_RATIO))
                head = head._replace(size=left, uncompressed_size=most)
            stop = min(data_at + head.size, end)
            next_chunk = next((offset for offset in self._index if offset > at), end)
            size = min(stop, next_chunk) - data_at
            self._effort -= 2 * size
            data = self._file.read_at(data_at, size, what="a chunk", cap=MAX_CHUNK_UNCOMPRESSED)
            records = _decompressed_beginning(head, data)
            self._effort -= len(records)
            return _Broken(head, records, data_at, data_at + size)
        return None

    def _saved(self, broken: _Broken, at: int, error: ReadError) -> Generator[MessageGroup, None, int]:
        """Yield the messages in a damaged chunk's first records, and return how many bytes of records were whole."""
        arena = np.frombuffer(broken.records, np.uint8)
        block = BagBlock(0, len(arena), at, None)
        messages, end = self._first_of(arena, block)
        count = len(messages.offsets)
        self._report.doubted(at, f"{error.message}; {count:,} messages of the chunk were kept")
        self.tally.chunks[broken.head.compression] += 1
        self.tally.uncompressed += len(arena)
        self.tally.compressed += broken.end - broken.data_at
        if count:
            yield self._group(arena, messages)
        return end

    def _first_of(self, arena: Bytes, block: BagBlock) -> tuple[MessageHeads, int]:
        """The messages of a block up to its first fault, and the fault's place."""
        walked = walk(arena, block, self._registry, path=self._file.path)
        try:
            return self._heads_at(arena, walked, block), walked.end
        except ReadError as error:
            self._report.lost(block.offset, error.message)
            return joined([]), walked.end

    def _messages(self, arena: Bytes, blocks: Sequence[BagBlock]) -> MessageHeads:
        """The messages of blocks; a damaged block gives the messages before the damage."""
        parts = []
        for block in blocks:
            try:
                parts.append(super()._messages(arena, [block]))
            except ReadError as error:
                messages, _ = self._first_of(arena, block)
                self._report.doubted(block.offset, f"{error.message}; {len(messages.offsets):,} messages were kept")
                parts.append(messages)
        return joined(parts)

    def _flush(self) -> Iterator[MessageGroup]:
        for group in super()._flush():
            yield self._group(group.arena, group.messages, counted=True)

    def _group(self, arena: Bytes, messages: MessageHeads, *, counted: bool = False) -> MessageGroup:
        if not counted:
            self.tally.messages += len(messages.offsets)
        last = int(messages.heads["log_time"].max())
        times = self._report.last_times
        times["message_log_time"] = max(times.get("message_log_time", 0), last)
        return MessageGroup(arena, messages)

    def _heads(self, made: BagMessages, offset: int) -> MessageHeads:
        """The messages of known connections; other messages are lost."""
        known = np.array([id_ for id_ in self._registry.channels if id_ <= LAST_CONNECTION], np.int64)
        good = np.isin(made.connections, known)
        count = int((~good).sum())
        if count:
            self._report.lost(offset, f"{count:,} messages belong to undefined connections")
            self._report.lost_messages += count
        return placed_heads(made.starts[good], made.lengths[good], made.connections[good], made.times[good])


def _decompressed_beginning(head: ChunkHead, data: bytes) -> bytearray:
    """A chunk's records as far as its data decompresses, at most as many bytes as the chunk declares."""
    if head.compression != "bz2":
        return decompress_beginning(head, data)
    most = min(head.uncompressed_size, MAX_CHUNK_UNCOMPRESSED, max(FREE_EXPANSION, len(data) * MAX_COMPRESSION_RATIO))
    records = bytearray()
    decompressor = BZ2Decompressor()
    with suppress(OSError, EOFError):
        for begin in range(0, len(data), _STEP):
            piece = data[begin : begin + _STEP]
            while len(records) < most:
                part = decompressor.decompress(piece, min(_STEP, most - len(records)))
                records += part
                piece = b""
                if not part or decompressor.eof:
                    break
            if decompressor.eof or len(records) >= most:
                break
    return records


class BagSalvage(NamedTuple):
    """A plan to read a damaged bag: its records in ``split``, and the content of its index, if that is credible."""

    split: McapSplit
    facts: FileFacts
    layout: McapLayout | None
    report: McapRecoveryReport

    def section(self, file: BagFile, registry: Registry) -> RecoveringSection:
        """Return a reader of the records, which fills the report."""
        summary = self.layout.summary if self.layout is not None else None
        index = [entry.offset for entry in summary.chunks] if summary is not None else []
        return RecoveringSection(file, self.split, registry, self.report, index)

    def finish(self, file: BagFile, section: RecoveringSection) -> None:
        """Complete the report when all records were read."""
        tally, report = section.tally, self.report
        report.chunks, report.messages = tally.chunks.total(), tally.messages
        if self.layout is not None and file.counts:
            lost = sum(file.counts.values()) - tally.messages
            report.lost_messages = max(report.lost_messages, lost, 0)


def plan_salvage(file: BagFile, options: McapOptions) -> BagSalvage:
    """Read the header and the index. Raises ``ReadError`` only if the file cannot be read as a bag at all."""
    check_version(file)
    report = McapRecoveryReport(file.path, file.size)
    decoders = file_decoders(options.decoders)
    name = PurePath(file.path).name
    try:
        layout = read_layout(file)
    except UnsupportedError:
        raise
    except ReadError as error:
        if error.transient:
            raise
        report.reason = error.message
        start = len(MAGIC)
        with suppress(ReadError):
            start = bag_header(file).end
        after = tuple(d.name for d in decoders)
        return BagSalvage(
            McapSplit(name, file.size, start, file.size, after=after, is_whole=True), NO_FACTS, None, report
        )
    early = [d for d in decoders if layout.summary is not None and not d.looks_at_messages]
    split = McapSplit(
        name,
        file.size,
        layout.data_start,
        layout.data_end,
        before=tuple(d.name for d in early),
        after=tuple(d.name for d in decoders if d not in early),
        is_whole=True,
    )
    facts = facts_of(layout.summary) if layout.summary is not None else NO_FACTS
    return BagSalvage(split, facts, layout, report)
