"""A file's chunks besides its messages: facts, attachments and metadata."""

from __future__ import annotations

import struct
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from mcap.records import Metadata, Statistics
from zlib_ng.zlib_ng import crc32

from ...engine.chunk import Chunk, ChunkData, ComponentDescriptor, parse_entity_path
from ...engine.errors import ReadError, ReadWarning
from ...engine.limits import MAX_ATTACHMENTS, MAX_METADATA, MAX_SCHEMA_BYTES, MIB, check_limit
from .decoding import blobs
from .file import McapFile, Summary
from .records import (
    HEAD,
    Bytes,
    Channel,
    ChunkIndexEntry,
    McapSchema,
    MessageHeads,
    Op,
    RecordPlace,
    Registry,
    damaged,
    malformed,
    parse_record,
    record_name,
)


class FileFacts(NamedTuple):
    """``filled`` are the ids of the channels that have messages. ``statistics`` may be missing."""

    statistics: Statistics | None
    channels: Mapping[int, Channel]
    schemas: Mapping[int, McapSchema]
    filled: frozenset[int]
    attachments: tuple[RecordPlace, ...]
    metadata: tuple[RecordPlace, ...]


NO_FACTS = FileFacts(None, {}, {}, frozenset(), (), ())


def facts_of(summary: Summary) -> FileFacts:
    """Return the facts in a summary."""
    return FileFacts(
        summary.statistics,
        {c.id: c for c in summary.channels},
        {s.id: s for s in summary.schemas},
        _filled(summary),
        tuple(RecordPlace(a.offset, a.length) for a in summary.attachments),
        tuple(RecordPlace(m.offset, m.length) for m in summary.metadata),
    )


@dataclass(slots=True)
class MessageSurvey:
    """Counts the messages of a file by channel, and keeps the first and the last log time (ns)."""

    counts: Counter[int] = field(default_factory=Counter)
    start_time: int | None = None
    end_time: int | None = None

    def add(self, messages: MessageHeads) -> None:
        """Add at least one message."""
        ids, numbers = np.unique(messages.heads["channel"], return_counts=True)
        self.counts.update(dict(zip(ids.tolist(), numbers.tolist(), strict=True)))
        times = messages.heads["log_time"]
        first, last = int(times.min()), int(times.max())
        self.start_time = first if self.start_time is None else min(first, self.start_time)
        self.end_time = last if self.end_time is None else max(last, self.end_time)

    def facts(
        self, registry: Registry, chunks: int, attachments: Sequence[RecordPlace], metadata: Sequence[RecordPlace]
    ) -> FileFacts:
        """Return the facts from the records that were read."""
        made = Statistics(
            message_count=self.counts.total(),
            schema_count=len(registry.schemas),
            channel_count=len(registry.channels),
            attachment_count=len(attachments),
            metadata_count=len(metadata),
            chunk_count=chunks,
            message_start_time=self.start_time or 0,
            message_end_time=self.end_time or 0,
            channel_message_counts=dict(self.counts),
        )
        return FileFacts(
            made, registry.channels, registry.schemas, frozenset(self.counts), tuple(attachments), tuple(metadata)
        )


def _filled(summary: Summary) -> frozenset[int]:
    counts = summary.statistics.channel_message_counts if summary.statistics is not None else {}
    if counts:
        return frozenset(id_ for id_, count in counts.items() if count)
    return frozenset(_indexed(summary))


def _counts_are_known(summary: Summary) -> bool:
    """Return whether the summary says which channels have messages."""
    statistics = summary.statistics
    if statistics is not None and (statistics.channel_message_counts or not statistics.message_count):
        return True
    return bool(summary.chunks) and all(entry.channel_ids for entry in summary.chunks)


def _counted_channels(summary: Summary) -> set[int]:
    """The ids of the channels whose messages the summary counts."""
    counts = summary.statistics.channel_message_counts if summary.statistics is not None else {}
    return set(counts) | _indexed(summary)


def _indexed(summary: Summary) -> set[int]:
    ids = np.frombuffer(b"".join(entry.channel_ids for entry in summary.chunks), "<u2")
    return {int(i) for i in np.unique(ids)}


PAIRS: Final = pa.list_(
    pa.field(
        "item",
        pa.struct([pa.field("first", pa.string(), nullable=False), pa.field("second", pa.string(), nullable=False)]),
        nullable=False,
    )
)
"""Rerun's ``KeyValuePairs``."""


class MessageIndex(Protocol):
    """The chunks in a file's index, and the messages in each chunk."""

    def chunks(self) -> Sequence[ChunkIndexEntry]:
        """The chunks, in file order; none without an index. Raises ``ReadError``."""
        ...

    def messages(self, entry: ChunkIndexEntry, registry: Registry) -> Iterator[tuple[Bytes, MessageHeads]]:
        """The messages of a chunk, in file order, each group with its memory. Raises ``ReadError``."""
        ...


class FileDecoder(ABC):
    """Makes the chunks about a file as a whole. Each split with such chunks has a separate decoder.

    ``entity`` is the entity of the chunks, if it is fixed; ``opcode`` is the kind of records that the decoder reads and
    checks. With ``looks_at_messages``, it receives the file's messages, and its chunks follow them. ``registry`` has
    the file's channels; ``selects`` returns whether a topic is selected.
    """

    name: ClassVar[str]
    entity: ClassVar[str | None] = None
    opcode: ClassVar[int | None] = None
    looks_at_messages: ClassVar[bool] = False

    def __init__(self, registry: Registry, selects: Callable[[str], bool]) -> None:
        self._registry = registry
        self._selects = selects

    @classmethod
    def is_told_by(cls, summary: Summary) -> bool:  # noqa: ARG003 (of those that the summary tells all of)
        """Return whether the summary is enough for all its chunks."""
        return True

    @classmethod
    def has_messages(cls, summary: Summary, selects: Callable[[str], bool]) -> bool:  # noqa: ARG003 (of those that look)
        """Return whether the summary has a channel with messages for this decoder."""
        return False

    def add(self, arena: Bytes, messages: MessageHeads) -> None:  # noqa: B027 (most look at none)
        """Receive the next messages, in file order."""

    def look_up(self, index: MessageIndex) -> None:  # noqa: B027 (most look at none)
        """Find messages by the index, if the file's messages are read in several splits."""

    @abstractmethod
    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:
        """Yield the chunks of a file with these ``facts``. Raises ``ReadError`` on damage."""


def described(archetype: str, field: str, component_type: str) -> ComponentDescriptor:
    """The descriptor of a field of one of Rerun's archetypes.

    >>> described("McapChannel", "id", "ChannelId")
    ComponentDescriptor(component='McapChannel:id', archetype='rerun.archetypes.McapChannel', \
component_type='rerun.components.ChannelId')
    """
    return ComponentDescriptor(
        f"{archetype}:{field}",
        archetype=f"rerun.archetypes.{archetype}",
        component_type=f"rerun.components.{component_type}",
    )


Columns = Iterable[tuple[ComponentDescriptor, pa.Array]]


def static_chunk(entity_path: str, columns: Columns) -> Chunk:
    """Return a chunk of one row; each column is given as the instances of that row."""
    return Chunk.build(entity_path, {}, [(descriptor, _one_row(instances)) for descriptor, instances in columns])


def _one_row(instances: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array([0, len(instances)], pa.int32()), instances)


def pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    """A ``KeyValuePairs`` value, in the order of ``values``."""
    return [{"first": key, "second": value} for key, value in values.items()]


def check_place(file: McapFile, place: RecordPlace, expected: int) -> None:
    """Raise ``ReadError`` unless a record of opcode ``expected`` and of the right length begins at ``place``."""
    opcode, length = file.head_at(place.offset, file.size)
    if opcode != expected or length + HEAD.size != place.length:
        raise damaged(
            f"the summary refers to a record {record_name(expected)} of {place.length:,} bytes, but there is a record "
            f"{record_name(opcode)} of {length + HEAD.size:,}",
            path=file.path,
            offset=place.offset,
        )


_ENTITY: Final = "/__mcap_properties"
_COUNTS: Final = (
    "message_count",
    "schema_count",
    "channel_count",
    "attachment_count",
    "metadata_count",
    "chunk_count",
)
_TIMES: Final = ("message_start_time", "message_end_time")
_LATEST: Final = 2**63 - 1
_CHANNEL_COUNT: Final = pa.struct(
    [pa.field("channel_id", pa.uint16(), nullable=False), pa.field("message_count", pa.uint64(), nullable=False)]
)
_CHANNEL_COUNTS: Final = pa.list_(pa.field("item", _CHANNEL_COUNT, nullable=False))


class RecordingInfo(FileDecoder):
    """The decoder ``recording_info``: when the recording began."""

    name = "recording_info"
    entity = _ENTITY

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:  # noqa: ARG002
        """Yield ``RecordingInfo:start_time``, the first log time in ns; without statistics, a row without columns."""
        if facts.statistics is None:
            yield Chunk.from_data(ChunkData.fresh(_ENTITY, 1, (), ()))
            return
        start = pa.array([min(facts.statistics.message_start_time, _LATEST)], pa.int64())
        yield static_chunk(_ENTITY, [(described("RecordingInfo", "start_time", "Timestamp"), start)])


class Schemas(FileDecoder):
    """The decoder ``schema``: each channel, with its schema, at the entity of its topic."""

    name = "schema"

    @classmethod
    def is_told_by(cls, summary: Summary) -> bool:
        """Return whether the summary repeats the channels, and says which have messages."""
        return _counts_are_known(summary) and _counted_channels(summary) <= {c.id for c in summary.channels}

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:  # noqa: ARG002
        """Yield one chunk for each selected channel with messages, by ascending id."""
        for id_ in sorted(facts.filled & facts.channels.keys()):
            channel = facts.channels[id_]
            if self._selects(channel.topic):
                yield _channel_chunk(channel, facts.schemas.get(channel.schema_id))


class Counts(FileDecoder):
    """The decoder ``stats``: the counts of the summary."""

    name = "stats"
    entity = _ENTITY

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:
        """Yield ``McapStatistics``, or a ``ReadWarning`` without statistics."""
        if facts.statistics is not None:
            yield _statistics_chunk(facts.statistics)
            return
        warnings.warn(
            f"{file.path}: the summary has no Statistics record; the decoders stats and recording_info have no output",
            ReadWarning,
            stacklevel=2,
        )


def _statistics_chunk(statistics: Statistics) -> Chunk:
    """``McapStatistics``: the counts, the first and last log time (ns), and the messages of each channel by id."""
    per_channel = [
        {"channel_id": id_, "message_count": count} for id_, count in sorted(statistics.channel_message_counts.items())
    ]
    columns = [
        *((_described(name, "Count"), pa.array([getattr(statistics, name)], pa.uint64())) for name in _COUNTS),
        *(
            (_described(name, "Timestamp"), pa.array([min(getattr(statistics, name), _LATEST)], pa.int64()))
            for name in _TIMES
        ),
        (_described("channel_message_counts", "ChannelMessageCounts"), pa.array([per_channel], _CHANNEL_COUNTS)),
    ]
    return static_chunk(_ENTITY, columns)


def _described(field: str, component_type: str) -> ComponentDescriptor:
    return described("McapStatistics", field, component_type)


def _channel_chunk(channel: Channel, schema: McapSchema | None) -> Chunk:
    metadata = pairs(dict(sorted(channel.metadata)))
    columns = [
        _column("McapChannel", "id", "ChannelId", channel.id, pa.uint16()),
        _column("McapChannel", "topic", "Text", channel.topic, pa.string()),
        _column("McapChannel", "message_encoding", "Text", channel.message_encoding, pa.string()),
        _column("McapChannel", "metadata", "KeyValuePairs", metadata, PAIRS),
    ]
    if schema is not None:
        columns += [
            _column("McapSchema", "id", "SchemaId", schema.id, pa.uint16()),
            _column("McapSchema", "name", "Text", schema.name, pa.string()),
            _column("McapSchema", "encoding", "Text", schema.encoding, pa.string()),
            (described("McapSchema", "data", "Blob"), blobs(schema.data, [len(schema.data)])),
        ]
    return static_chunk(parse_entity_path(channel.topic), columns)


def _column(
    archetype: str, field: str, component_type: str, value: object, datatype: pa.DataType
) -> tuple[ComponentDescriptor, pa.Array]:
    return described(archetype, field, component_type), pa.array([value], datatype)


_RECORD_TIMES: Final = struct.Struct("<QQ")
_STEP: Final = MIB
_WRITTEN_TWICE: Final = ("rosbag2", "serialized_metadata")
"""rosbag2 writes its metadata twice: empty when it opens a file, complete when it closes it. Only the second counts."""


class _IndexedRecords(FileDecoder):
    """A decoder of records that the summary counts and indexes; ``name`` is also the name of their places in it."""

    counted: ClassVar[str]

    @classmethod
    def is_told_by(cls, summary: Summary) -> bool:
        """Return whether the summary has the places of all these records."""
        statistics = summary.statistics
        return statistics is not None and getattr(statistics, cls.counted) == len(getattr(summary, cls.name))

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:
        """Yield one chunk, if there are such records."""
        places = getattr(facts, self.name)
        if places:
            yield static_chunk(str(self.entity), self._columns(file, places))

    @abstractmethod
    def _columns(self, file: McapFile, places: Sequence[RecordPlace]) -> Columns: ...


class Attachments(_IndexedRecords):
    """The decoder ``attachments``: one row with one instance for each attachment, in the order of the index."""

    name = "attachments"
    entity = "/__mcap_attachments"
    opcode = Op.ATTACHMENT
    counted = "attachment_count"

    def _columns(self, file: McapFile, places: Sequence[RecordPlace]) -> Columns:
        """Read all attachments; their data is in memory once.

        Raises ``ReadError`` if it is more than ``MAX_ATTACHMENTS``, and if a CRC does not match.
        """
        heads = []
        for place in places:
            check_place(file, place, Op.ATTACHMENT)
            heads.append(read_attachment(file, place.offset, place.length - HEAD.size))
        data = np.empty(_checked_size(file, heads), np.uint8)
        at = 0
        for head in heads:
            head.read_into(file, data[at : at + head.size])
            at += head.size
        return [
            (_descriptor("data", "Blob"), blobs(data, [head.size for head in heads])),
            (_descriptor("media_type", "MediaType"), pa.array([head.media_type for head in heads], pa.string())),
            (_descriptor("metadata", "KeyValuePairs"), pa.array([_pairs(head) for head in heads], PAIRS)),
        ]


class MetadataRecords(_IndexedRecords):
    """The decoder ``metadata``: one column for each name of Metadata records, with pairs sorted by key.

    Records of one name are merged. If a key has two values, the later one stays, with a ``ReadWarning``.
    """

    name = "metadata"
    entity = "/__mcap_metadata"
    opcode = Op.METADATA
    counted = "metadata_count"

    def _columns(self, file: McapFile, places: Sequence[RecordPlace]) -> Columns:
        merged: dict[str, dict[str, str]] = {}
        left = MAX_METADATA
        for place in places:
            left -= check_limit(place.length, left, path=file.path, offset=place.offset, what="the length of metadata")
            record = read_metadata(file, place)
            entries = merged.setdefault(record.name, {})
            for key in sorted(record.metadata.keys() & entries.keys()):
                if entries[key] != record.metadata[key] and (record.name, key) != _WRITTEN_TWICE:
                    _warn_of_two(file.path, record.name, key, entries[key], record.metadata[key])
            entries.update(record.metadata)
        return [
            (
                ComponentDescriptor(name, archetype="McapMetadata", component_type="rerun.components.KeyValuePairs"),
                pa.array([pairs(dict(sorted(values.items())))], PAIRS),
            )
            for name, values in merged.items()
        ]


class Attachment(NamedTuple):
    """One Attachment record. Times are in ns; the record begins at ``offset``, its data at ``data_at``."""

    offset: int
    log_time: int
    create_time: int
    name: str
    media_type: str
    data_at: int
    size: int
    crc: int

    def read_into(self, file: McapFile, out: Bytes) -> None:
        """Fill ``out``, ``size`` bytes long, with the data. Raises ``ReadError`` if the CRC does not match."""
        file.read_into(self.data_at, out.data, what="an attachment")
        if self.crc:
            begin = self.offset + HEAD.size
            head = file.read_at(begin, self.data_at - begin, what="an attachment")
            self._check(file.path, crc32(out.data, crc32(head)))

    def check(self, file: McapFile) -> None:
        """Compare the record's CRC-32, if it has one, with that of the fields before it, in pieces of 1 MiB."""
        if self.crc:
            crc = 0
            end = self.data_at + self.size
            for step in range(self.offset + HEAD.size, end, _STEP):
                crc = crc32(file.read_at(step, min(_STEP, end - step), what="an attachment"), crc)
            self._check(file.path, crc)

    def _check(self, path: str, crc: int) -> None:
        if crc != self.crc:
            raise damaged("the CRC of an attachment does not match its data", path=path, offset=self.offset)


def read_attachment(file: McapFile, offset: int, length: int) -> Attachment:
    """Parse the Attachment record at ``offset``, whose body has ``length`` bytes, without its data.

    The body: log time, create time (u64 each), name, media type (u32-prefixed strings), data (u64-prefixed), CRC (u32)
    of all fields before it.
    """
    at, end = offset + HEAD.size, offset + HEAD.size + length
    times = _read(file, at, _RECORD_TIMES.size, end, offset)
    name, at = _read_string(file, at + _RECORD_TIMES.size, end, offset)
    media_type, at = _read_string(file, at, end, offset)
    size = int.from_bytes(_read(file, at, 8, end, offset), "little")
    at += 8
    if size > end - at - 4:
        raise malformed(Op.ATTACHMENT, "its lengths exceed its size", path=file.path, offset=offset)
    crc = int.from_bytes(_read(file, at + size, 4, end, offset), "little")
    log_time, create_time = _RECORD_TIMES.unpack(times)
    return Attachment(offset, log_time, create_time, name, media_type, at, size, crc)


def _read_string(file: McapFile, at: int, end: int, offset: int) -> tuple[str, int]:
    """The string at ``at``, and its end."""
    size = int.from_bytes(_read(file, at, 4, end, offset), "little")
    body = _read(file, at + 4, size, end, offset)
    try:
        return body.decode(), at + 4 + size
    except UnicodeDecodeError as error:
        raise malformed(Op.ATTACHMENT, str(error), path=file.path, offset=offset) from error


def _read(file: McapFile, at: int, size: int, end: int, offset: int) -> bytes:
    if size > end - at:
        why = "it is truncated" if at + size > file.size else "its lengths exceed its size"
        raise malformed(Op.ATTACHMENT, why, path=file.path, offset=offset)
    return file.read_at(at, size, what="an attachment", cap=MAX_SCHEMA_BYTES)


def _checked_size(file: McapFile, heads: Sequence[Attachment]) -> int:
    total = sum(head.size for head in heads)
    if total > MAX_ATTACHMENTS:
        raise ReadError(
            f"its attachments have {total:,} bytes in total, more than the limit of {MAX_ATTACHMENTS:,}",
            path=file.path,
            offset=heads[0].offset,
            hint='Read the file without them: leave "attachments" out of decoders=.',
        )
    return total


def _pairs(head: Attachment) -> list[dict[str, str]]:
    return pairs(
        {
            "name": head.name,
            "media_type": head.media_type,
            "log_time": str(head.log_time),
            "create_time": str(head.create_time),
            "data_size": str(head.size),
            "offset": str(head.offset),
        }
    )


def _descriptor(name: str, component_type: str) -> ComponentDescriptor:
    return ComponentDescriptor(name, archetype="McapAttachment", component_type=f"rerun.components.{component_type}")


def read_metadata(file: McapFile, place: RecordPlace) -> Metadata:
    """Parse the Metadata record at ``place``. Raises ``ReadError`` if there is none."""
    check_place(file, place, Op.METADATA)
    size = place.length - HEAD.size
    body = file.read_at(place.offset + HEAD.size, size, what="a metadata record")
    record: Metadata = parse_record(Metadata.read, Op.METADATA, body, path=file.path, offset=place.offset)
    return record


def _warn_of_two(path: str, name: str, key: str, old: str, new: str) -> None:
    warnings.warn(
        f"{path}: metadata records named {name!r} give {key!r} twice: {_short(new)} replaces {_short(old)}",
        ReadWarning,
        stacklevel=5,
    )


def _short(value: str) -> str:
    return repr(value if len(value) <= 60 else value[:57] + "...")
