"""Walking through the messages of a stream, heads only."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import ReadError, ReadWarning, UnsupportedError
from .framing import (
    MAGIC,
    MESSAGE_HEADER_SIZE,
    STREAM_FOOTER_SIZE,
    STREAM_HEADER_SIZE,
    MessageKind,
    parse_message_header,
    parse_stream_footer,
)
from .positional import PositionalFile


class Message(NamedTuple):
    """One message: its kind, and ``size`` bytes at ``offset`` (16 past its frame header)."""

    kind: MessageKind
    offset: int
    size: int


def scan(file: PositionalFile, start: int = STREAM_HEADER_SIZE) -> Iterator[Message]:
    """The messages from the frame header at ``start`` on, up to and with the end message.

    A file without an end message gives a ``ReadWarning``: its recorder may have been interrupted. Raises
    :class:`ReadError` at the first message that is broken or cut; those before it have been given.
    """
    position = start
    while position < file.size:
        message = message_at(file, position, file.size)
        yield message
        position = message.offset + message.size
        if message.kind == MessageKind.END:
            _check_rest(file, message, position)
            return
    warnings.warn(
        f"{file.path}: the recording has no end message; its recorder may have been interrupted",
        ReadWarning,
        stacklevel=2,
    )


def message_at(file: PositionalFile, position: int, end: int) -> Message:
    """The message whose frame header lies at ``position``; it must end by ``end``."""
    if end - position < MESSAGE_HEADER_SIZE:
        raise ReadError(
            f"the file ends inside a message header: {end - position} bytes of {MESSAGE_HEADER_SIZE}",
            path=file.path,
            offset=position,
            hint="The file is cut short; copy it again, or read it with recover=True.",
        )
    header = file.read(position, MESSAGE_HEADER_SIZE, what="a message header")
    kind, size = parse_message_header(header, path=file.path, offset=position, end=end)
    return Message(kind, position + MESSAGE_HEADER_SIZE, size)


def _check_rest(file: PositionalFile, end: Message, position: int) -> None:
    """Check what follows the end message: nothing, or a stream footer; a second stream is an error."""
    left = file.size - position
    if end.size and 0 < left < STREAM_FOOTER_SIZE:
        raise ReadError(
            f"the file ends inside its footer: {left} bytes of {STREAM_FOOTER_SIZE}",
            path=file.path,
            offset=position,
            hint="The file is cut short; copy it again, or read it with recover=True.",
        )
    rest = file.read(position, min(STREAM_FOOTER_SIZE, file.size - position), what="the end of the file")
    if parse_stream_footer(rest) is not None:
        position += STREAM_FOOTER_SIZE
        rest = file.read(position, min(4, file.size - position), what="the end of the file")
    if rest[:4] == MAGIC:
        raise UnsupportedError(
            "a second stream begins here; a file must hold one",
            path=file.path,
            offset=position,
            hint="The file was joined with `cat`; join the originals with `rerun rrd merge`.",
        )
    if rest:
        warnings.warn(
            f"{file.path}: {file.size - position:,} bytes after the end of the recording are passed over",
            ReadWarning,
            stacklevel=3,
        )
