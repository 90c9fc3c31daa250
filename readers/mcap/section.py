"""A split of the data section, read from front to end: its records give groups of decompressed messages."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from zstandard import ZstdDecompressor

from ...engine.errors import ReadError, ReadWarning, UsageError
from ...engine.limits import MAX_CHUNK_UNCOMPRESSED, MAX_OTHER_RECORDS, MAX_SCHEMA_BYTES, MIB, check_limit
from ...engine.stream import Split
from .file import McapFile, RecordCursor
from .file_level import read_attachment
from .message_indexes import times_behind
from .records import (
    CHUNK_HEAD_MAX,
    HEAD,
    Block,
    Bytes,
    ChunkHead,
    ChunkIndexEntry,
    ChunkPool,
    MessageHeads,
    Op,
    RecordPlace,
    Registry,
    check_crc,
    check_declared,
    damaged,
    decompress,
    find_in_all,
    malformed,
    parse_chunk_head,
    record_name,
    take_arena,
    walk,
)

_BEYOND: Final = 2**64

Places = Mapping[int, int]
"""Chunks: the start of each, and the end of its message indexes."""

NOWHERE: Final[Places] = {}
_UNREAD: Final = "unread"


class TimeRange(NamedTuple):
    """Log times from ``start`` (inclusive) to ``end`` (exclusive), in ns as the writer wrote them."""

    start: int
    end: int

    def overlaps(self, head: ChunkHead) -> bool:
        """Return whether a chunk may have messages in this range. If both its times are 0, they are unknown."""
        if head.start_time == head.end_time == 0:
            return head.uncompressed_size > 0
        return head.start_time < self.end and head.end_time >= self.start

    def holds(self, log_times: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return, for each of these times, whether it is in the range."""
        if self.end <= self.start:
            return np.zeros(len(log_times), np.bool_)
        inside: npt.NDArray[np.bool_] = (log_times >= np.uint64(self.start)) & (log_times <= np.uint64(self.end - 1))
        return inside

    @property
    def has_zero(self) -> bool:
        """Return whether log time 0 is in the range. Some writers ignore it in a chunk's declared times."""
        return self.start == 0 < self.end

    def may_be_in(self, head: ChunkHead, file: McapFile, at: int, end: int) -> bool:
        """Return whether a chunk with message indexes from ``at`` on may have messages in this range."""
        if self.overlaps(head):
            return True
        return self.has_zero and any(self.holds(times).any() for times in times_behind(file, at, end))


def checked_range(start: int | None, end: int | None) -> TimeRange | None:
    """The range of the arguments ``start_time_ns`` and ``end_time_ns``; None if neither is given.

    Raises ``TypeError``, ``OverflowError`` or ``UsageError``.

    >>> checked_range(5, None)
    TimeRange(start=5, end=18446744073709551616)
    """
    if start is None and end is None:
        return None
    first = 0 if start is None else checked_integer("start_time_ns", start, 0, _BEYOND)
    last = _BEYOND if end is None else checked_integer("end_time_ns", end, 0, _BEYOND)
    if first > last:
        raise UsageError(f"start_time_ns, {first:,}, is later than end_time_ns, {last:,}")
    return TimeRange(first, last)


def checked_integer(name: str, value: int, low: int, high: int) -> int:
    """Return the argument ``name``, which must be an integer from ``low`` to below ``high``.

    Raises ``TypeError`` or ``OverflowError``.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"argument '{name}': '{type(value).__name__}' object cannot be interpreted as an integer")
    value = value.__index__()
    if not low <= value < high:
        sign = "" if low else " without a sign"
        raise OverflowError(f"argument '{name}': the number does not fit into 64 bits{sign}")
    return value


@dataclass(slots=True)
class Tally:
    """Counts of what was read. ``chunks`` counts by compression; ``uncompressed`` and ``compressed`` are their bytes.

    ``skipped`` is the number of chunks that were skipped because of their times or because they are unwanted.
    """

    messages: int = 0
    chunks: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    uncompressed: int = 0
    compressed: int = 0
    attachments: list[RecordPlace] = field(default_factory=list)
    metadata: list[RecordPlace] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class McapSplit(Split):
    """A run of records of the data section, from one byte to another.

    ``chunks`` and ``messages`` are the numbers of its Chunk and Message records, None if unknown. Skipped chunks count,
    their messages do not. ``check_data_crc``: the split is the whole data section, whose CRC is compared with the
    writer's. ``times``: chunks that do not overlap this range are skipped. Chunks at the places ``unwanted`` are
    skipped, too: their channels are unused, or, for an object in a store, the index puts them outside of the times.
    ``before`` and ``after`` name decoders of the whole file, whose chunks come before and after the split's messages.
    ``is_whole``: there is no other split. If ``is_planned`` is false, nothing else is known yet, and the reader of the
    split must plan it.
    """

    start: int
    end: int
    chunks: int | None = None
    messages: int | None = None
    check_data_crc: bool = False
    times: TimeRange | None = None
    unwanted: Places = field(default_factory=dict)
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    is_whole: bool = False
    is_planned: bool = True

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges of bytes to read from an object in a store: everything except unwanted chunks."""
        if self.check_data_crc:
            return [(self.start, self.end)]
        gaps = sorted((start, end) for start, end in self.unwanted.items() if self.start <= start < self.end)
        starts, ends = [self.start, *(end for _, end in gaps)], [*(start for start, _ in gaps), self.end]
        return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]

    def end_of_unread(self, file: McapFile, at: int, tally: Tally) -> int | None:
        """Return the end of an unwanted chunk at ``at`` of an object in a store, or None. Its index is trusted."""
        end = self.unwanted.get(at) if file.is_remote and not self.check_data_crc else None
        if end is not None:
            tally.chunks[_UNREAD] += 1
            tally.skipped += 1
        return end


GROUP_BYTES: Final = 34 * MIB
"""The decompressed bytes of a group. Two groups make a split of 64 MiB, whose last chunk ends beyond that."""

_WINDOWS: Final = (16 * 1024, 8 * MIB)
"""The sizes of the smallest and largest piece for records outside of chunks."""


class MessageGroup(NamedTuple):
    """Decompressed records of consecutive chunks, and the messages in them, in file order."""

    arena: Bytes
    messages: MessageHeads


class MessageSection(Protocol):
    """Reads the records of one split. ``tally`` counts what was read so far."""

    tally: Tally

    def groups(self) -> Iterator[MessageGroup]:
        """The messages of the split, in groups of about ``GROUP_BYTES``, in file order. Raises ``ReadError``."""
        ...


class SectionIndex:
    """The :class:`MessageIndex` of an open file, made with the source that reads it."""

    def __init__(self, source: Any, file: McapFile) -> None:
        self._source = source
        self._file = file

    def chunks(self) -> Sequence[ChunkIndexEntry]:
        """The chunks, in file order; none without an index. Raises ``ReadError``."""
        summary = self._source.layout(self._file).summary
        return () if summary is None else summary.chunks

    def messages(self, entry: ChunkIndexEntry, registry: Registry) -> Iterator[MessageGroup]:
        """The messages of a chunk, in file order. Raises ``ReadError``."""
        split = McapSplit("", entry.length, entry.offset, entry.end, chunks=1)
        section: MessageSection = self._source.section(self._file, split, registry)
        return section.groups()


class SectionReader:
    """Reads the records of one split.

    It reads every record of the split, or raises ``ReadError``. If the split has ``times``, chunks without a message in
    that range are not decompressed. ``check_attachments`` is false if a decoder reads them and checks their CRCs. Up to
    ``threads`` small chunks of a local file are decompressed at once.
    """

    def __init__(
        self, file: McapFile, split: McapSplit, registry: Registry, *, check_attachments: bool = True, threads: int = 1
    ) -> None:
        self._file = file
        self._split = split
        self._registry = registry
        self._check_attachments = check_attachments
        self._times_are_wrong = False
        self._skips = False
        self._cursor = RecordCursor(file, split.start, split.end, checksum=split.check_data_crc)
        self._zstd = ZstdDecompressor()
        self._pool: ChunkPool | None = None
        if threads > 1 and not file.is_remote and not split.check_data_crc:
            self._pool = ChunkPool(file.fills, self._fill, threads)
        self._arena: Bytes = np.empty(0, np.uint8)
        self._used = 0
        self._blocks: list[Block] = []
        self._heads: dict[int, ChunkHead] = {}
        self._window = _WINDOWS[0]
        self._after_chunk = False
        self.tally = Tally()

    def groups(self) -> Iterator[MessageGroup]:
        """The messages of the split, in groups of about ``GROUP_BYTES``, in file order."""
        try:
            yield from self._groups()
        except Exception:
            try:
                self._wait()
            except ReadError as earlier:  # in a chunk before the failed place
                raise earlier from None
            raise
        finally:
            if self._pool is not None:
                self._pool.close()
                self._pool = None

    def _groups(self) -> Iterator[MessageGroup]:
        cursor = self._cursor
        while cursor.at < cursor.end:
            behind = self._split.end_of_unread(self._file, cursor.at, self.tally)
            if behind is not None:
                cursor.skip(behind - cursor.at)
                self._after_chunk = False
                continue
            opcode, length = cursor.peek_head()
            need = self._room_for(opcode, length)
            if need > len(self._arena) - self._used:
                yield from self._flush()
                self._arena = take_arena(max(GROUP_BYTES, need))
            self._take(opcode, length)
        yield from self._flush()
        self._check_counts()

    def _wait(self) -> None:
        """Wait until pending chunks are decompressed."""
        if self._pool is not None:
            self._pool.finish(lambda at, size: self._file.read_at(at, size, what="a record"))

    def _check_counts(self) -> None:
        split, chunks, messages = self._split, self.tally.chunks.total(), self.tally.messages
        if split.chunks is not None and chunks != split.chunks:
            raise self._miscounted("chunks", split.chunks, chunks)
        if split.messages is not None and messages < split.messages:
            raise self._miscounted("messages", split.messages, messages)

    def _miscounted(self, what: str, expected: int, count: int) -> ReadError:
        return ReadError(
            f"expected {expected:,} {what} here, but found {count:,}",
            path=self._file.path,
            offset=self._split.start,
            hint="The file changed while it was read, or its index is wrong.",
        )

    def _room_for(self, opcode: int, length: int) -> int:
        """The arena bytes that the next record needs."""
        if opcode == Op.CHUNK:
            at = self._cursor.at
            body = self._cursor.peek_body(min(length, CHUNK_HEAD_MAX))
            self._head = parse_chunk_head(body, length, path=self._file.path, offset=at)
            self._skips = self._is_left_out(self._head, at + HEAD.size + length)
            return 0 if self._skips else check_declared(self._head, path=self._file.path, offset=at)
        if opcode == Op.MESSAGE:
            size = HEAD.size + length
            check_limit(
                size,
                MAX_CHUNK_UNCOMPRESSED,
                path=self._file.path,
                offset=self._cursor.at,
                what="the length of a message",
            )
            return min(max(self._window, size), self._cursor.end - self._cursor.at)
        return 0

    def _take(self, opcode: int, length: int) -> None:
        cursor, after_chunk = self._cursor, self._after_chunk
        self._after_chunk = opcode == Op.CHUNK or (after_chunk and opcode == Op.MESSAGE_INDEX)
        if opcode == Op.CHUNK:
            self._take_chunk(length)
        elif opcode == Op.MESSAGE:
            self._take_window(length)
        elif opcode == Op.MESSAGE_INDEX:
            if after_chunk:
                for body in cursor.take_known(Op.MESSAGE_INDEX) or [cursor.take_record(length)]:
                    self._take_index(body)
            else:
                cursor.skip_record(length)
        elif opcode in (Op.SCHEMA, Op.CHANNEL):
            at = cursor.at
            check_limit(
                length, MAX_SCHEMA_BYTES, path=self._file.path, offset=at, what=f"the length of a {record_name(opcode)}"
            )
            self._registry.add(opcode, cursor.take_record(length), offset=at)
        elif opcode == Op.ATTACHMENT:
            self._take_attachment(length)
        elif opcode == Op.DATA_END:
            self._take_data_end(length)
        elif opcode > Op.DATA_END or opcode == Op.METADATA:
            if opcode == Op.METADATA:
                self._note(self.tally.metadata, length)
            cursor.skip_record(length)
        else:
            why = f"a record {record_name(opcode)} is in the data section"
            raise damaged(why, path=self._file.path, offset=cursor.at)

    def _is_left_out(self, head: ChunkHead, behind: int) -> bool:
        """Return whether the chunk from here to ``behind`` is not needed."""
        times = self._split.times
        if self._cursor.at in self._split.unwanted:
            return True
        return times is not None and not times.may_be_in(head, self._file, behind, self._split.end)

    def _take_attachment(self, length: int) -> None:
        attachment = read_attachment(self._file, self._cursor.at, length)
        if self._check_attachments:
            attachment.check(self._file)
        self._note(self.tally.attachments, length)
        self._cursor.skip_record(length)

    def _note(self, places: list[RecordPlace], length: int) -> None:
        place = RecordPlace(self._cursor.at, HEAD.size + length)
        places.append(place)
        what = "the number of attachments or metadata records"
        check_limit(len(places), MAX_OTHER_RECORDS, path=self._file.path, offset=place.offset, what=what)

    def _take_chunk(self, length: int) -> None:
        cursor, head, path = self._cursor, self._head, self._file.path
        if self._skips:
            self._after_chunk = False
            self._count(head)
            self.tally.skipped += 1
            cursor.skip_record(length)
            return
        offset, size = cursor.at, head.uncompressed_size
        cursor.skip(HEAD.size + head.data_at)
        out = self._arena[self._used : self._used + size]
        if head.compression == "":
            cursor.take_into(out)
            check_crc(head, out, path=path, offset=offset)
        elif self._pool is not None and self._pool.takes(head):
            self._pool.begin(head, cursor.at, out, offset=offset)
            cursor.skip(head.size)
        else:
            records = decompress(head, cursor.view(head.size), out, self._zstd, path=path, offset=offset)
            if records is not out and size == len(self._arena):
                self._arena = records  # a chunk that fills the arena replaces it
            elif records is not out:
                out[:] = records
        cursor.skip(length - head.data_at - head.size)
        checked = head.crc != 0 or self._split.check_data_crc
        self._blocks.append(Block(self._used, self._used + size, offset, True, checked, []))
        self._heads[offset] = head
        self._used += size
        self._count(head)

    def _fill(self, head: ChunkHead, data: bytes | memoryview, out: Bytes, zstd: ZstdDecompressor, offset: int) -> None:
        """Decompress a small chunk into its place, in any thread."""
        records = decompress(head, data, out, zstd, path=self._file.path, offset=offset)
        if records is not out:
            out[:] = records

    def _count(self, head: ChunkHead) -> None:
        self.tally.chunks[head.compression] += 1
        self.tally.uncompressed += head.uncompressed_size
        self.tally.compressed += head.size

    def _take_index(self, body: bytes) -> None:
        """Keep the offsets of a MessageIndex record that belongs to the chunk before it."""
        block = self._blocks[-1]
        size = int.from_bytes(body[2:6], "little")
        if block.indexed is None or len(body) < 6 or size % 16 or size > len(body) - 6:
            self._blocks[-1] = block._replace(indexed=None)
            return
        block.indexed.append((int.from_bytes(body[:2], "little"), body[6 : 6 + size]))

    def _take_window(self, length: int) -> None:
        """Read a run of records outside of chunks, beginning with a message."""
        cursor = self._cursor
        offset = cursor.at
        size = min(max(self._window, HEAD.size + length), cursor.end - offset)
        out = self._arena[self._used : self._used + size]
        self._file.read_into(offset, out.data, what="a message")
        block = Block(self._used, self._used + size, offset, False, True, None)
        _, end = walk(self._arena, block, self._registry, path=self._file.path, window=True)
        smallest, largest = _WINDOWS
        self._window = min(4 * self._window, largest) if 2 * (end - self._used) > size else smallest
        cursor.took(out[: end - self._used])
        self._blocks.append(block._replace(end=end))
        self._used = end

    def _take_data_end(self, length: int) -> None:
        cursor, path = self._cursor, self._file.path
        offset, data_crc = cursor.at, cursor.crc
        body = cursor.take_record(check_limit(length, MIB, path=path, offset=cursor.at, what="the length of DataEnd"))
        if len(body) < 4:
            raise malformed(Op.DATA_END, f"it has {len(body)} bytes", path=path, offset=offset)
        crc = int.from_bytes(body[:4], "little")
        if self._split.check_data_crc and crc and crc != data_crc:
            raise damaged("the CRC of the data section does not match its data", path=path, offset=offset)
        if cursor.at != cursor.end:
            why = f"{cursor.end - cursor.at:,} bytes follow the end of the data section"
            raise damaged(why, path=path, offset=cursor.at)

    def _flush(self) -> Iterator[MessageGroup]:
        self._wait()
        arena, blocks = self._arena[: self._used], self._blocks
        messages = find_in_all(arena, blocks, self._registry, path=self._file.path)
        borders = np.searchsorted(messages.offsets, [block.begin for block in blocks])
        for block, times in zip(blocks, np.split(messages.heads["log_time"], borders)[1:], strict=True):
            self._compare_with_head(block, times)
        self._blocks, self._heads, self._used = [], {}, 0
        self._arena = np.empty(0, np.uint8)
        if len(messages.offsets):
            self.tally.messages += len(messages.offsets)
            yield MessageGroup(arena, messages)

    def _compare_with_head(self, block: Block, times: npt.NDArray[np.uint64]) -> None:
        """Warn once if a chunk's declared times are wrong, as they select the chunks for a range of times."""
        head = self._heads.get(block.offset)
        if head is None or not len(times) or self._times_are_wrong or head.start_time == head.end_time == 0:
            return
        if int(times.min()) < head.start_time or int(times.max()) > head.end_time:
            self._times_are_wrong = True
            warnings.warn(
                f"{self._file.path}: the chunk at byte {block.offset:,} has messages outside its declared times; "
                "reading a time range may miss messages of such chunks",
                ReadWarning,
                stacklevel=2,
            )
