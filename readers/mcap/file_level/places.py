"""Records that an index of the summary points at."""

from __future__ import annotations

from ....engine.errors import ReadError
from ..file import McapFile
from ..records import DAMAGED_HINT, HEAD, Place, record_name


def check_place(file: McapFile, place: Place, expected: int) -> None:
    """Raise ``ReadError`` unless a record of opcode ``expected`` and of the right length begins at ``place``."""
    opcode, length = file.head_at(place.offset, file.size)
    if opcode != expected or length + HEAD.size != place.length:
        raise ReadError(
            f"the summary points at a record {record_name(expected)} of {place.length:,} bytes, where there is a record"
            f" {record_name(opcode)} of {length + HEAD.size:,}",
            path=file.path,
            offset=place.offset,
            hint=DAMAGED_HINT,
        )
