"""Attachments and metadata records: read, checked, and all of a kind as one chunk."""

from __future__ import annotations

import struct
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
from mcap.records import Metadata
from zlib_ng.zlib_ng import crc32

from ...engine.chunk import Chunk, ComponentDescriptor
from ...engine.errors import ReadError, ReadWarning
from ...engine.limits import MAX_ATTACHMENTS, MAX_METADATA, MAX_SCHEMA_BYTES, MIB, check_limit
from .blocks import Bytes
from .decoding import blobs
from .file import McapFile
from .file_level import PAIRS, Columns, FileDecoder, FileFacts, check_place, pairs, static_chunk
from .layout import Summary
from .records import HEAD, Op, RecordPlace, damaged, malformed, parse_record

_TIMES: Final = struct.Struct("<QQ")
_STEP: Final = MIB
_WRITTEN_TWICE: Final = ("rosbag2", "serialized_metadata")
"""rosbag2 writes its metadata when it opens a file, empty, and again when it closes it: only the second counts."""


class _IndexedRecords(FileDecoder):
    """A decoder of records that the summary counts and has an index of; ``name`` is that of their places, too."""

    counted: ClassVar[str]

    @classmethod
    def is_told_by(cls, summary: Summary) -> bool:
        """Whether the summary says where all of them are."""
        statistics = summary.statistics
        return statistics is not None and getattr(statistics, cls.counted) == len(getattr(summary, cls.name))

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:
        """One chunk, if there are any."""
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
        """The data of all is in memory once.

        Raises ``ReadError`` when it is more than ``MAX_ATTACHMENTS``, and where a CRC does not match.
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
    """The decoder ``metadata``: one column for each name of the Metadata records, its pairs sorted by key.

    Records of one name are merged: of two values of a key the later stays, with a ``ReadWarning``.
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
            known = merged.setdefault(record.name, {})
            for key in sorted(record.metadata.keys() & known.keys()):
                if known[key] != record.metadata[key] and (record.name, key) != _WRITTEN_TWICE:
                    _warn_of_two(file.path, record.name, key, known[key], record.metadata[key])
            known.update(record.metadata)
        return [
            (
                ComponentDescriptor(name, archetype="McapMetadata", component_type="rerun.components.KeyValuePairs"),
                pa.array([pairs(dict(sorted(values.items())))], PAIRS),
            )
            for name, values in merged.items()
        ]


class Attachment(NamedTuple):
    """One Attachment record: times are ns; ``offset`` is where the record begins, ``data_at`` where its data does."""

    offset: int
    log_time: int
    create_time: int
    name: str
    media_type: str
    data_at: int
    size: int
    crc: int

    def read_into(self, file: McapFile, out: Bytes) -> None:
        """Fill ``out``, ``size`` bytes long, with the data; raises ``ReadError`` when the CRC does not match."""
        file.read_into(self.data_at, out.data, what="an attachment")
        if self.crc:
            begin = self.offset + HEAD.size
            head = file.read_at(begin, self.data_at - begin, what="an attachment")
            self._check(file.path, crc32(out.data, crc32(head)))

    def check(self, file: McapFile) -> None:
        """Compare the CRC-32 of all fields before it with the record's, if it has one, in pieces of 1 MiB."""
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
    times = _read(file, at, _TIMES.size, end, offset)
    name, at = _read_string(file, at + _TIMES.size, end, offset)
    media_type, at = _read_string(file, at, end, offset)
    size = int.from_bytes(_read(file, at, 8, end, offset), "little")
    at += 8
    if size > end - at - 4:
        raise malformed(Op.ATTACHMENT, "its lengths run past its end", path=file.path, offset=offset)
    crc = int.from_bytes(_read(file, at + size, 4, end, offset), "little")
    log_time, create_time = _TIMES.unpack(times)
    return Attachment(offset, log_time, create_time, name, media_type, at, size, crc)


def _read_string(file: McapFile, at: int, end: int, offset: int) -> tuple[str, int]:
    """The string at ``at``, and where it ends."""
    size = int.from_bytes(_read(file, at, 4, end, offset), "little")
    body = _read(file, at + 4, size, end, offset)
    try:
        return body.decode(), at + 4 + size
    except UnicodeDecodeError as error:
        raise malformed(Op.ATTACHMENT, str(error), path=file.path, offset=offset) from error


def _read(file: McapFile, at: int, size: int, end: int, offset: int) -> bytes:
    if size > end - at:
        why = "it is cut short" if at + size > file.size else "its lengths run past its end"
        raise malformed(Op.ATTACHMENT, why, path=file.path, offset=offset)
    return file.read_at(at, size, what="an attachment", cap=MAX_SCHEMA_BYTES)


def _checked_size(file: McapFile, heads: Sequence[Attachment]) -> int:
    total = sum(head.size for head in heads)
    if total > MAX_ATTACHMENTS:
        raise ReadError(
            f"its attachments have {total:,} bytes together, more than the {MAX_ATTACHMENTS:,} that are read",
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
    """Parse the Metadata record at ``place``. Raises ``ReadError`` when there is none."""
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
