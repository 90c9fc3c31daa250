"""The decoder ``attachments``: all attachments of a file as one chunk; and their records, checked against their CRC."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from ....engine.chunk import Chunk, ComponentDescriptor
from ....engine.errors import ReadError
from ....engine.limits import MAX_ATTACHMENTS, MAX_SCHEMA_BYTES, MIB
from ..file import McapFile
from ..layout import Summary
from ..records import ATTACHMENT, DAMAGED_HINT, HEAD, Place, malformed
from ..scan import Bytes
from .decoder import BLOB, PAIRS, FileDecoder, check_place, pairs, static_chunk
from .facts import FileFacts

_ENTITY: Final = "/__mcap_attachments"
_TIMES: Final = struct.Struct("<QQ")
_STEP: Final = MIB


class Attachments(FileDecoder):
    """The decoder ``attachments``."""

    name = "attachments"
    entity = _ENTITY
    opcode = ATTACHMENT

    @classmethod
    def is_told_by(cls, summary: Summary) -> bool:
        """Whether the summary says where all of them are."""
        statistics = summary.statistics
        return statistics is not None and statistics.attachment_count == len(summary.attachments)

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:
        """One chunk, if there are any."""
        if facts.attachments:
            yield _attachments_chunk(file, facts.attachments)


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
            why = "the CRC of an attachment does not match its data"
            raise ReadError(why, path=path, offset=self.offset, hint=DAMAGED_HINT)


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
        raise malformed(ATTACHMENT, "its lengths run past its end", path=file.path, offset=offset)
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
        raise malformed(ATTACHMENT, str(error), path=file.path, offset=offset) from error


def _read(file: McapFile, at: int, size: int, end: int, offset: int) -> bytes:
    if size > end - at:
        why = "it is cut short" if at + size > file.size else "its lengths run past its end"
        raise malformed(ATTACHMENT, why, path=file.path, offset=offset)
    return file.read_at(at, size, what="an attachment", cap=MAX_SCHEMA_BYTES)


def _attachments_chunk(file: McapFile, places: Sequence[Place]) -> Chunk:
    """One row with one instance for each attachment, in the order of ``places``.

    The data of all of them is in memory once. Raises ``ReadError`` when it is more than ``MAX_ATTACHMENTS``, and where
    a CRC does not match.
    """
    heads = []
    for place in places:
        check_place(file, place, ATTACHMENT)
        heads.append(read_attachment(file, place.offset, place.length - HEAD.size))
    data = np.empty(_checked_size(file, heads), np.uint8)
    at = 0
    for head in heads:
        head.read_into(file, data[at : at + head.size])
        at += head.size
    return static_chunk(
        _ENTITY,
        [
            (_described("data", "Blob"), _blobs(data, heads)),
            (_described("media_type", "MediaType"), pa.array([head.media_type for head in heads], pa.string())),
            (_described("metadata", "KeyValuePairs"), pa.array([_pairs(head) for head in heads], PAIRS)),
        ],
    )


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


def _blobs(data: np.ndarray, heads: Sequence[Attachment]) -> pa.Array:
    borders = np.cumsum([0, *(head.size for head in heads)], dtype=np.int32)
    values = pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
    return pa.Array.from_buffers(BLOB, len(heads), [None, pa.py_buffer(borders)], children=[values])


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


def _described(name: str, component_type: str) -> ComponentDescriptor:
    return ComponentDescriptor(name, archetype="McapAttachment", component_type=f"rerun.components.{component_type}")
