"""An MCAP file around its chunks: channels and schemas by id, other records, and the summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import numpy as np
from mcap import records as mcap
from mcap.data_stream import RecordBuilder
from mcap.opcode import Opcode
from zlib_ng.zlib_ng import crc32

from ..errors import UsageError
from ..limits import MIB
from ..rrd import Output, open_positional
from ..stream import CompressedChunk, CopiedRecords, RecordChannel, RecordFacts, RecordSchema

_MAGIC: Final = b"\x89MCAP0\r\n"
_MOST_IDS: Final = 65_535
_COPY_BYTES: Final = 256 * MIB


class ChannelNumbers:
    """The channels and schemas of the output. Those with the same content are joined."""

    def __init__(self) -> None:
        self.channels: dict[int, RecordChannel] = {}
        self.schemas: dict[int, RecordSchema] = {}
        self.schema_ids: dict[int, int] = {}
        self._ids: dict[RecordChannel, int] = {}
        self._ids_of_schemas: dict[RecordSchema, int] = {}

    def keep(self, facts: RecordFacts, wanted: Iterable[int]) -> None:
        """Add channels of the only file under their own ids, and its schemas."""
        self.channels, self.schemas = {id_: facts.channels[id_] for id_ in wanted}, dict(facts.schemas)
        self.schema_ids = {i: n if (n := facts.schema_ids[i]) in self.schemas else 0 for i in self.channels}

    def add(self, channel: RecordChannel) -> int:
        """Add a channel, and return its id."""
        if channel not in self._ids:
            number = self._ids[channel] = self._next(self._ids, "channels")
            self.channels[number], self.schema_ids[number] = channel, 0
            if channel.schema is not None:
                if channel.schema not in self._ids_of_schemas:
                    self._ids_of_schemas[channel.schema] = self._next(self._ids_of_schemas, "schemas")
                    self.schemas[self._ids_of_schemas[channel.schema]] = channel.schema
                self.schema_ids[number] = self._ids_of_schemas[channel.schema]
        return self._ids[channel]

    @staticmethod
    def _next(ids: Mapping[Any, int], what: str) -> int:
        if len(ids) >= _MOST_IDS:
            raise UsageError(
                f"an MCAP can have at most {_MOST_IDS:,} {what}", hint="Filter topics, or write several files."
            )
        return len(ids) + 1


class McapAssembly:
    """Writes an MCAP from its first byte to its last: channels, given chunks, other records, and the summary.

    https://mcap.dev/spec. ``messages`` counts those in the chunks so far.
    """

    def __init__(self, out: Output, numbering: ChannelNumbers, profile: str) -> None:
        self._out = out
        self._numbering = numbering
        self._counts = dict.fromkeys(sorted(numbering.channels), 0)
        self._chunks = self._attachments = self._metadata = 0
        self._times: tuple[int, int] | None = None
        self._indexes = {kind: RecordBuilder() for kind in (mcap.ChunkIndex, mcap.AttachmentIndex, mcap.MetadataIndex)}
        builder = RecordBuilder()
        mcap.Header(profile, f"chunkmill {version('chunkmill')}").write(builder)
        self._out.write(_MAGIC + _ended(builder) + self._schemas() + self._channels())

    @property
    def messages(self) -> int:
        """The number of messages so far."""
        return sum(self._counts.values())

    def _schemas(self) -> bytes:
        builder = RecordBuilder()
        for id_, schema in sorted(self._numbering.schemas.items()):
            mcap.Schema(id=id_, data=schema.data, encoding=schema.encoding, name=schema.name).write(builder)
        return _ended(builder)

    def _channels(self) -> bytes:
        builder, numbering = RecordBuilder(), self._numbering
        for id_, channel in sorted(numbering.channels.items()):
            mcap.Channel(
                id=id_,
                topic=channel.topic,
                message_encoding=channel.message_encoding,
                metadata=dict(channel.metadata),
                schema_id=numbering.schema_ids[id_],
            ).write(builder)
        return _ended(builder)

    def part(self, place: str, size: int, chunks: np.ndarray, indexes: np.ndarray, compression: str) -> None:
        """Append the chunks of a part."""
        base = self._out.position
        if size:
            with open_positional(place) as file:
                self._out.copy(file, 0, size, what="a part")
            self._out.write_back()
        at = 0
        for row in chunks.tolist():
            offset, length, index_length, start, end, compressed, uncompressed, count = row
            own = indexes[at : at + count].tolist()
            at += count
            figures = (compression, compressed, uncompressed)
            self._index(CompressedChunk(base + offset, length, index_length, start, end, *figures, tuple(own)))

    def stored(self, path: str, chunks: Sequence[CompressedChunk]) -> None:
        """Append chunks of another MCAP; adjacent chunks are copied together."""
        with open_positional(path) as file:
            at = 0
            while at < len(chunks):
                end, begin = at + 1, chunks[at].offset
                stop = begin + chunks[at].length + chunks[at].index_length
                while end < len(chunks) and chunks[end].offset == stop and stop - begin < _COPY_BYTES:
                    stop += chunks[end].length + chunks[end].index_length
                    end += 1
                base = self._out.position
                self._out.copy(file, begin, stop - begin, what="chunks")
                self._out.write_back()
                for chunk in chunks[at:end]:
                    self._index(chunk._replace(offset=base + chunk.offset - begin))
                at = end

    def _index(self, chunk: CompressedChunk) -> None:
        """Describe a chunk in the summary."""
        mcap.ChunkIndex(
            chunk_start_offset=chunk.offset,
            chunk_length=chunk.length,
            message_start_time=chunk.start_time,
            message_end_time=chunk.end_time,
            message_index_offsets={channel: chunk.offset + offset for channel, offset, _ in chunk.indexes},
            message_index_length=chunk.index_length,
            compression=chunk.compression,
            compressed_size=chunk.compressed_size,
            uncompressed_size=chunk.uncompressed_size,
        ).write(self._indexes[mcap.ChunkIndex])
        self._chunks += 1
        for channel, _, count in chunk.indexes:
            self._counts[channel] += count
        if chunk.indexes:
            first, last = self._times or (chunk.start_time, chunk.end_time)
            self._times = min(first, chunk.start_time), max(last, chunk.end_time)

    def extras(self, file: CopiedRecords, facts: RecordFacts) -> None:
        """Append the wanted attachments and metadata of a file."""
        for extra in file.records.extras(facts, file.wants_entity):
            offset = self._out.position
            for piece in extra.pieces:
                self._out.write(piece)
            if extra.is_attachment:
                self._attachments += 1
                mcap.AttachmentIndex(
                    offset=offset,
                    length=extra.length,
                    log_time=extra.log_time,
                    create_time=extra.create_time,
                    data_size=extra.data_size,
                    name=extra.name,
                    media_type=extra.media_type,
                ).write(self._indexes[mcap.AttachmentIndex])
            else:
                self._metadata += 1
                mcap.MetadataIndex(offset, extra.length, extra.name).write(self._indexes[mcap.MetadataIndex])

    def finish(self) -> None:
        """Write the end of the data and the summary."""
        builder = RecordBuilder()
        mcap.DataEnd(0).write(builder)
        self._out.write(_ended(builder))
        start, end = self._times or (0, 0)
        mcap.Statistics(
            message_count=self.messages,
            schema_count=len(self._numbering.schemas),
            channel_count=len(self._numbering.channels),
            attachment_count=self._attachments,
            metadata_count=self._metadata,
            chunk_count=self._chunks,
            message_start_time=start,
            message_end_time=end,
            channel_message_counts=self._counts,
        ).write(builder)
        groups = [
            (Opcode.SCHEMA, self._schemas()),
            (Opcode.CHANNEL, self._channels()),
            (Opcode.STATISTICS, _ended(builder)),
            (Opcode.CHUNK_INDEX, _ended(self._indexes[mcap.ChunkIndex])),
            (Opcode.ATTACHMENT_INDEX, _ended(self._indexes[mcap.AttachmentIndex])),
            (Opcode.METADATA_INDEX, _ended(self._indexes[mcap.MetadataIndex])),
        ]
        summary_start = self._out.position
        crc, at, offsets = 0, summary_start, RecordBuilder()
        for opcode, data in groups:
            if data:
                mcap.SummaryOffset(opcode, at, len(data)).write(offsets)
                self._out.write(data)
                crc, at = crc32(data, crc), at + len(data)
        tail = _ended(offsets)
        mcap.Footer(summary_start, at, 0).write(builder)
        footer = _ended(builder)[:-4]
        self._out.write(tail + footer + crc32(tail + footer, crc).to_bytes(4, "little") + _MAGIC)


def _ended(builder: RecordBuilder) -> bytes:
    """Return the records that were written since the last call."""
    return bytes(builder.end())  # type: ignore[no-untyped-call]
