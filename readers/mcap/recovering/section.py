"""The data section of a damaged file: what can be read, and what was lost."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from ....engine.bounded import check_expansion
from ....engine.errors import ReadError
from ....engine.limits import MAX_CHUNK_UNCOMPRESSED, MIB
from ..arena import take_arena
from ..file import McapFile
from ..file_level.metadata import read_metadata
from ..finding import find_messages, joined
from ..records import (
    ATTACHMENT_INDEX,
    CHUNK,
    CHUNK_HEAD_MAX,
    CHUNK_INDEX,
    DATA_END,
    FOOTER,
    HEAD,
    METADATA,
    METADATA_INDEX,
    STATISTICS,
    SUMMARY_OFFSET,
    ChunkHead,
    Place,
    parse_chunk_head,
)
from ..registry import Registry
from ..scan import Block, Found, heads_of
from ..section import GROUP_BYTES, Group, SectionReader
from ..split import McapSplit
from .partial import decompress_beginning, whole_records
from .report import McapRecoveryReport
from .resync import Resync

_OF_SUMMARY: Final = frozenset({CHUNK_INDEX, ATTACHMENT_INDEX, STATISTICS, METADATA_INDEX, SUMMARY_OFFSET, FOOTER})


_EFFORT: Final = 20
"""How many times the size of a file its broken chunks may make us read and decompress, besides one large chunk."""


class _Broken(NamedTuple):
    """A damaged chunk: its first records, and where its data begins and ends in the file."""

    head: ChunkHead
    records: bytearray
    data_at: int
    end: int


class RecoveringSection(SectionReader):
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
    ) -> None:
        super().__init__(file, split, registry, check_attachments="attachments" not in split.before)
        self._report = report
        self._resync = Resync(file, registry, split.end, index)
        self._is_over = False
        self._gave_up = False
        self._effort = MAX_CHUNK_UNCOMPRESSED + _EFFORT * file.size

    def groups(self) -> Iterator[Group]:
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

    def _pass_over(self, at: int, error: ReadError) -> Iterator[Group]:
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
        """Where the record at ``at`` ends, if records follow there."""
        try:
            opcode, length = self._file.head_at(at, self._cursor.end)
        except ReadError:
            return None
        after = at + HEAD.size + length
        return after if opcode in range(1, 0x10) and self._resync.is_believable(after) else None

    def _broken_chunk(self, at: int) -> _Broken | None:
        """What is left of the chunk at ``at``, if it is one."""
        left = self._cursor.end - at - HEAD.size
        if left < 0 or self._file.read_up_to(at, 1)[0] != CHUNK:
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

    def _saved(self, broken: _Broken, at: int, error: ReadError) -> Generator[Group, None, int]:
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

    def _flush(self) -> Iterator[Group]:
        """The messages of the blocks so far. A block that breaks gives those before the break."""
        arena, blocks = self._arena[: self._used], self._blocks
        self._blocks, self._heads, self._used = [], {}, 0
        self._arena = np.empty(0, np.uint8)
        parts: list[Found] = []
        for block in blocks:
            try:
                parts.append(find_messages(arena, block, self._registry, path=self._file.path))
            except ReadError as error:
                parts.append(self._broken(arena, block, error))
        found = joined(parts)
        if len(found.offsets):
            yield from self._known(arena, found, blocks[0].offset)

    def _broken(self, arena: np.ndarray, block: Block, error: ReadError) -> Found:
        saved = whole_records(bytearray(arena[block.begin : block.end]), self._registry, offset=block.offset)
        self._report.doubted(
            block.offset, f"{saved.stop or error.message}; {len(saved.offsets):,} messages of the chunk were kept"
        )
        return heads_of(arena, np.array(saved.offsets, np.int64) + block.begin)

    def _known(self, arena: np.ndarray, found: Found, offset: int) -> Iterator[Group]:
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
            yield Group(arena, found)

    def _take(self, opcode: int, length: int) -> None:
        """Take a record. Those of the summary, which come where the end of the data section is missing, are skipped."""
        if opcode == DATA_END or opcode in _OF_SUMMARY:
            self._is_over = opcode in (DATA_END, FOOTER)
            self._cursor.skip_record(length)
            return
        if opcode == METADATA and "metadata" not in self._split.before:
            read_metadata(self._file, Place(self._cursor.at, HEAD.size + length))
        super()._take(opcode, length)
