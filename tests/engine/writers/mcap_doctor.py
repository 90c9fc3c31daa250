"""What is wrong with an MCAP by the rules of ``mcap doctor``, and its messages by the official library."""

from __future__ import annotations

import io
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lz4.frame
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.reader import make_reader
from mcap.records import (
    AttachmentIndex,
    Channel,
    Chunk,
    ChunkIndex,
    DataEnd,
    Footer,
    Header,
    Message,
    MessageIndex,
    MetadataIndex,
    Schema,
    Statistics,
)
from zlib_ng.zlib_ng import crc32

MAGIC = b"\x89MCAP0\r\n"
KINDS = {
    1: Header,
    2: Footer,
    3: Schema,
    4: Channel,
    5: Message,
    6: Chunk,
    7: MessageIndex,
    8: ChunkIndex,
    10: AttachmentIndex,
    11: Statistics,
    13: MetadataIndex,
    15: DataEnd,
}
WELL_KNOWN = ("", "ros1", "ros2")


class Line(NamedTuple):
    """A message as the official library reads it."""

    topic: str
    log_time: int
    publish_time: int
    sequence: int
    data: bytes
    encoding: str
    schema: tuple[str, str, bytes] | None
    metadata: tuple[tuple[str, str], ...]


def lines(path: Path, *, in_order: bool = False) -> list[Line]:
    """All messages of a file; ``in_order`` of log time as the library brings them, else as in the file."""
    found = []
    with path.open("rb") as file:
        for schema, channel, message in make_reader(file).iter_messages(log_time_order=in_order):
            own = None if schema is None else (schema.name, schema.encoding, schema.data)
            times = (message.log_time, message.publish_time, message.sequence)
            metadata = tuple(channel.metadata.items())
            found.append(Line(channel.topic, *times, message.data, channel.message_encoding, own, metadata))
    return found


def extras(path: Path) -> list[Any]:
    """Attachments and metadata of a file, by the official library."""
    with path.open("rb") as file:
        reader = make_reader(file)
        return [*reader.iter_attachments(), *reader.iter_metadata()]


def records(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, Any, int]]:
    """Place, opcode, record (None of other kinds) and length of each record."""
    while at < end:
        opcode, length = struct.unpack_from("<BQ", data, at)
        body = data[at + 9 : at + 9 + length]
        assert len(body) == length, "a record runs past its end"
        kind = KINDS.get(opcode)
        read = None
        if kind is Message:
            read = Message.read(ReadDataStream(io.BytesIO(body)), length)
        elif kind is not None:
            read = kind.read(ReadDataStream(io.BytesIO(body)))
        yield at, opcode, read, length + 9
        at += 9 + length


def uncompressed(chunk: Chunk) -> bytes:
    """The records of a chunk."""
    if chunk.compression == "zstd":
        return zstandard.ZstdDecompressor().decompress(chunk.data, max_output_size=chunk.uncompressed_size)
    return lz4.frame.decompress(chunk.data) if chunk.compression == "lz4" else chunk.data


class Doctor:
    """Looks at one file; ``errors`` and ``warnings`` are what is wrong."""

    def __init__(self, data: bytes) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.compressions: set[str] = set()
        self._schemas: dict[int, Schema] = {}
        self._channels: dict[int, Channel] = {}
        self._counts: Counter[int] = Counter()
        self._times: list[int] = []
        self._look(data)

    def _error(self, wrong: bool, what: str) -> None:
        if wrong:
            self.errors.append(what)

    def _look(self, data: bytes) -> None:
        self._error(data[:8] != MAGIC or data[-8:] != MAGIC, "no magic at both ends")
        everything = list(records(data, 8, len(data) - 8))
        kinds = [opcode for _, opcode, _, _ in everything]
        for opcode, what in ((1, "Header"), (15, "DataEnd"), (2, "Footer"), (11, "Statistics")):
            self._error(kinds.count(opcode) != 1, f"{kinds.count(opcode)} records {what}")
        self._error(kinds[0] != 1 or kinds[-1] != 2, "it does not begin with Header and end with Footer")
        header, footer = everything[0][2], everything[-1][2]
        if header.profile not in WELL_KNOWN:
            self.warnings.append(f"unknown profile {header.profile}")
        if not header.library:
            self.warnings.append("no library")
        end = kinds.index(15)
        chunks = self._data(everything[:end])
        crc = crc32(data[footer.summary_start : len(data) - 8 - 4])
        self._error(footer.summary_crc != crc, "the CRC of the summary is wrong")
        self._error(everything[end + 1][0] != footer.summary_start, "the summary is not where the footer says")
        self._summary(everything[end + 1 : -1], chunks, {at: length for at, _, _, length in everything})

    def _data(self, some: list[tuple[int, int, Any, int]]) -> dict[int, tuple[Chunk, int, dict[int, int], int]]:
        """Look at the data section; gives chunks by their places: length, message indexes and their length."""
        chunks: dict[int, tuple[Chunk, int, dict[int, int], int]] = {}
        last: int | None = None
        entries: dict[int, list[tuple[int, int]]] = {}
        for at, opcode, record, length in some:
            if opcode != 7 and last is not None:
                self._indexes(chunks[last][0], entries)
                last = None
            if opcode in (3, 4):
                self._define(record, in_data=True)
            elif opcode == 5:
                self.warnings.append("a message outside of chunks")
            elif opcode == 6:
                self._chunk(record)
                chunks[at] = (record, length, {}, 0)
                last, entries = at, {}
            elif opcode == 7:
                assert last is not None
                chunk, size, places, indexed = chunks[last]
                places[record.channel_id] = at
                chunks[last] = (chunk, size, places, indexed + length)
                entries[record.channel_id] = record.records
        if last is not None:
            self._indexes(chunks[last][0], entries)
        return chunks

    def _define(self, record: Schema | Channel, *, in_data: bool) -> None:
        known: dict[int, Any] = self._schemas if isinstance(record, Schema) else self._channels
        if isinstance(record, Schema):
            self._error(record.id == 0, "schema 0")
            self._error(not record.encoding and bool(record.data), "a schema with data and without an encoding")
        else:
            self._error(record.schema_id not in {0, *self._schemas}, f"channel {record.id} has no schema")
        if record.id in known:
            self._error(known[record.id] != record, f"id {record.id} has two contents")
            if in_data:
                self.warnings.append("duplicate record")
        elif in_data:
            known[record.id] = record
        else:
            self.errors.append(f"id {record.id} is in the summary and not in the data")

    def _chunk(self, chunk: Chunk) -> None:
        self.compressions.add(chunk.compression)
        data = uncompressed(chunk)
        self._error(len(data) != chunk.uncompressed_size, "a chunk of another size")
        self._error(chunk.uncompressed_crc != crc32(data), "a chunk with a wrong CRC")
        times = []
        self._messages: dict[int, list[tuple[int, int]]] = {}
        for at, opcode, record, _ in records(data, 0, len(data)):
            if opcode in (3, 4):
                self._define(record, in_data=True)
                continue
            self._error(opcode != 5, f"a record {opcode} in a chunk")
            self._error(record.channel_id not in self._channels, "a message before its channel")
            self._counts[record.channel_id] += 1
            times.append(record.log_time)
            self._messages.setdefault(record.channel_id, []).append((record.log_time, at))
        self._error(not times, "an empty chunk")
        declared = (chunk.message_start_time, chunk.message_end_time)
        self._error(declared != (min(times), max(times)), "a chunk with wrong times")
        self._times += times

    def _indexes(self, chunk: Chunk, entries: dict[int, list[tuple[int, int]]]) -> None:
        self._error(entries != self._messages, f"message indexes differ from a chunk of {chunk.message_start_time}")

    def _summary(self, some: list[tuple[int, int, Any, int]], chunks: dict[int, Any], lengths: dict[int, int]) -> None:
        repeated: set[tuple[int, int]] = set()
        indexed = set()
        extra = Counter[int]()
        for _, opcode, record, _ in some:
            if opcode in (3, 4):
                self._define(record, in_data=False)
                repeated.add((opcode, record.id))
            elif opcode == 8:
                self._error(record.chunk_start_offset in indexed, "two indexes for a chunk")
                indexed.add(record.chunk_start_offset)
                self._chunk_index(record, *chunks[record.chunk_start_offset])
            elif opcode in (10, 13):
                extra[opcode] += 1
                self._error(
                    lengths.get(record.offset) != record.length, "an index of an attachment or metadata is wrong"
                )
            elif opcode == 11:
                statistics = record
        self._error(indexed != set(chunks), "chunks without an index")
        own = {(3, id_) for id_ in self._schemas} | {(4, id_) for id_ in self._channels}
        self._error(repeated != own, "the summary does not repeat all channels and schemas")
        expected = {
            "message_count": self._counts.total(),
            "schema_count": len(self._schemas),
            "channel_count": len(self._channels),
            "chunk_count": len(chunks),
            "attachment_count": extra[10],
            "metadata_count": extra[13],
            "message_start_time": min(self._times, default=0),
            "message_end_time": max(self._times, default=0),
            "channel_message_counts": {id_: self._counts[id_] for id_ in self._channels},
        }
        for name, value in expected.items():
            self._error(getattr(statistics, name) != value, f"Statistics: {name} is not {value}")

    def _chunk_index(self, record: ChunkIndex, chunk: Chunk, length: int, places: dict[int, int], size: int) -> None:
        found = (
            record.chunk_length,
            record.message_start_time,
            record.message_end_time,
            record.compression,
            record.compressed_size,
            record.uncompressed_size,
            record.message_index_offsets,
            record.message_index_length,
        )
        expected = (
            length,
            chunk.message_start_time,
            chunk.message_end_time,
            chunk.compression,
            len(chunk.data),
            chunk.uncompressed_size,
            places,
            size,
        )
        self._error(found != expected, f"a ChunkIndex says {found}, and it is {expected}")


def examined(path: Path) -> Doctor:
    """Look at a file, which must have no errors."""
    doctor = Doctor(path.read_bytes())
    assert doctor.errors == []
    return doctor
