"""Attachment records: their CRC is checked as they are passed."""

from __future__ import annotations

import struct
import zlib
from typing import Final

from ...engine.errors import ReadError
from ...engine.limits import MIB
from .file import McapFile
from .records import ATTACHMENT, DAMAGED_HINT, HEAD, malformed

_TIMES: Final = 16
_STEP: Final = MIB


def check_attachment(file: McapFile, offset: int, length: int) -> None:
    """Check the lengths inside the Attachment record at ``offset`` and its CRC-32, if it has one.

    The body: log time, create time (u64 each), name, media type (u32-prefixed strings), data (u64-prefixed), CRC (u32)
    of all fields before it.
    """
    begin = offset + HEAD.size
    end = begin + length
    at = begin + _TIMES
    for prefix in ("<I", "<I", "<Q"):
        size = struct.calcsize(prefix)
        if at + size > end:
            raise malformed(ATTACHMENT, "it is cut short", path=file.path, offset=offset)
        at += size + struct.unpack(prefix, file.read_at(at, size, what="an attachment"))[0]
    if at + 4 > end:
        raise malformed(ATTACHMENT, "its lengths run past its end", path=file.path, offset=offset)
    declared = int.from_bytes(file.read_at(at, 4, what="an attachment"), "little")
    if not declared:
        return
    crc = 0
    for step in range(begin, at, _STEP):
        crc = zlib.crc32(file.read_at(step, min(_STEP, at - step), what="an attachment"), crc)
    if crc != declared:
        raise ReadError(
            "the CRC of an attachment does not match its data", path=file.path, offset=offset, hint=DAMAGED_HINT
        )
