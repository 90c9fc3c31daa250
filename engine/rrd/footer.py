"""The footer of a file: found, checked, and taken apart into one manifest message a store."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..bounded import check_limit
from ..errors import ReadError
from ..limits import MAX_FOOTER
from . import messages
from .framing import (
    MESSAGE_HEADER_SIZE,
    STREAM_FOOTER_SIZE,
    STREAM_HEADER_SIZE,
    StreamFooter,
    crc_of,
    parse_stream_footer,
)
from .messages import RrdFooter
from .positional import PositionalFile

_FIRST_PAYLOAD = STREAM_HEADER_SIZE + MESSAGE_HEADER_SIZE


class Footer(NamedTuple):
    """Where the footer's payload begins, and its manifests (protobuf ``RrdManifest``)."""

    start: int
    manifests: list[Any]

    @property
    def messages_end(self) -> int:
        """Where the frame header of the end message begins: all messages lie before it."""
        return self.start - MESSAGE_HEADER_SIZE


def read_footer(file: PositionalFile) -> Footer | None:
    """The footer of ``file``, or None where there is none. A footer that is there and damaged is an error."""
    if file.size < STREAM_HEADER_SIZE + STREAM_FOOTER_SIZE:
        return None
    trailer = file.size - STREAM_FOOTER_SIZE
    found = parse_stream_footer(file.read(trailer, STREAM_FOOTER_SIZE, what="the stream footer"))
    if found is None:
        return None
    payload = _payload(file, found, trailer)
    footer = messages.parse(RrdFooter, payload, path=file.path, offset=found.start)
    return Footer(found.start, list(footer.manifests))


def _payload(file: PositionalFile, found: StreamFooter, trailer: int) -> bytes:
    if found.start < _FIRST_PAYLOAD or found.start + found.length > trailer:
        raise ReadError(
            f"the footer should lie at {found.start:,}..{found.start + found.length:,}, outside of the "
            f"{_FIRST_PAYLOAD}..{trailer:,} where it can",
            path=file.path,
            offset=trailer,
            hint="The file is damaged, or several were joined with `cat`; join the originals with `rerun rrd merge`.",
        )
    check_limit(found.length, MAX_FOOTER, path=file.path, offset=trailer + 8, what="the length of the footer")
    payload = file.read(found.start, found.length, what="the footer")
    crc = crc_of(payload)
    if crc != found.crc:
        raise ReadError(
            f"the checksum of the footer is {crc:08x}, not the {found.crc:08x} that was stored",
            path=file.path,
            offset=found.start,
            hint="The file is damaged, or several were joined with `cat`; read it with recover=True, or join the "
            "originals with `rerun rrd merge`.",
        )
    return payload
