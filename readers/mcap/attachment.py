"""Attachment records: what they say of themselves, and their data, checked against their CRC."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from zlib_ng.zlib_ng import crc32

from ...engine.errors import ReadError
from ...engine.limits import MAX_SCHEMA_BYTES, MIB
from .file import McapFile
from .records import ATTACHMENT, DAMAGED_HINT, HEAD, malformed
from .scan import Bytes

_TIMES: Final = struct.Struct("<QQ")
_STEP: Final = MIB


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
