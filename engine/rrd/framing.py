"""The frame of an RRD: stream header, message headers, stream footer, and the walk from message to message.

All integers are little-endian.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import xxhash

from ..errors import ReadError, ReadWarning, UnsupportedError
from .positional import PositionalFile

MAGIC: Final = b"RRF2"
FOOTER_MAGIC: Final = b"FOOT"
STREAM_HEADER_SIZE: Final = 12
MESSAGE_HEADER_SIZE: Final = 16
STREAM_FOOTER_SIZE: Final = 32
CRC_SEED: Final = 7_850_921

_OLD_MAGICS: Final = (b"RRF0", b"RRF1")
_SERIALIZER_MSGPACK: Final = 1
_SERIALIZER_PROTOBUF: Final = 2
_MESSAGE_HEADER = struct.Struct("<QQ")
_STREAM_FOOTER = struct.Struct("<QQI4s4sI")
_DAMAGED: Final = "The file is damaged; copy it again, or read it with recover=True."
_MIGRATE: Final = (
    "Convert it once with an older Rerun: `pip install 'rerun-sdk==0.23.2'`, then `rerun rrd migrate FILE` "
    "(it reads 0.20 to 0.22, and simple recordings back to 0.18)."
)


class Version(NamedTuple):
    """The four version bytes of a stream header: who wrote the file."""

    major: int
    minor: int
    patch: int
    meta: int

    @property
    def is_release(self) -> bool:
        """False for alphas and release candidates."""
        return not self.meta & 0xC0

    @property
    def order(self) -> tuple[int, int, int, bool]:
        """A key that sorts versions as they were released, pre-releases before their release."""
        return self.major, self.minor, self.patch, self.is_release

    @property
    def bits(self) -> int:
        """The four bytes as the little-endian signed integer that ``StoreVersion`` holds."""
        return int.from_bytes(bytes(self), "little", signed=True)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        number = self.meta & 0x3F
        suffixes = {0x00: "", 0x40: f"-rc.{number}", 0x80: f"-alpha.{number}", 0xC0: f"-alpha.{number}+dev"}
        return text + suffixes[self.meta & 0xC0]


WRITTEN_VERSION: Final = Version(0, 33, 1, 0)
"""The version that files of ours carry: the release whose format they follow."""

OLDEST_VERSION: Final = Version(0, 23, 0, 0)
"""The first release whose files can be read."""


class MessageKind(IntEnum):
    """The kinds of messages of the container."""

    END = 0
    SET_STORE_INFO = 1
    ARROW_MSG = 2
    BLUEPRINT_ACTIVATION = 3


class StreamFooter(NamedTuple):
    """The place of the ``RrdFooter`` payload, relative to the start of the stream, and its checksum."""

    start: int
    length: int
    crc: int


def stream_header(*, lz4: bool = True) -> bytes:
    """The 12 bytes that open a stream.

    >>> stream_header().hex(" ", 4)
    '52524632 00210100 01020000'
    """
    return MAGIC + bytes(WRITTEN_VERSION) + bytes((int(lz4), _SERIALIZER_PROTOBUF, 0, 0))


def parse_stream_header(data: bytes, *, path: str) -> Version:
    """Check the first 12 bytes of a file and return the writer's version.

    Raises :class:`ReadError` for what is no RRD, :class:`UnsupportedError` for formats that are too old.
    """
    if len(data) < STREAM_HEADER_SIZE:
        raise ReadError(
            f"too small to be an RRD: {len(data)} bytes", path=path, offset=0, hint="The file is empty or cut short."
        )
    version = Version(*data[4:8])
    if data[:4] in _OLD_MAGICS:
        raise _too_old(f"the old format {data[:4].decode()}", version, path)
    if data[:4] != MAGIC:
        raise ReadError(
            f"not an RRD: it begins with {_readable(data[:4])} instead of {MAGIC.decode()!r}",
            path=path,
            offset=0,
            hint="Open a recording (.rrd) or blueprint (.rbl) written by Rerun 0.23 or newer.",
        )
    _check_options(data, version, path)
    if version == (0, 0, 0, 0):
        version = Version(0, 2, 0, 0)
    if version.order < OLDEST_VERSION.order:
        raise _too_old(None, version, path)
    return version


def _check_options(data: bytes, version: Version, path: str) -> None:
    compression, serializer, *reserved = data[8:12]
    if compression > 1:
        raise UnsupportedError(f"unknown compression {compression}", path=path, offset=8, hint=_DAMAGED)
    if serializer == _SERIALIZER_MSGPACK:
        raise _too_old("the msgpack serializer", version, path)
    if serializer != _SERIALIZER_PROTOBUF:
        raise UnsupportedError(f"unknown serializer {serializer}", path=path, offset=9, hint=_DAMAGED)
    if any(reserved):
        raise UnsupportedError("the reserved bytes of the header are not zero", path=path, offset=10, hint=_DAMAGED)


def _too_old(what: str | None, version: Version, path: str) -> UnsupportedError:
    how = f" in {what}" if what else ""
    return UnsupportedError(
        f"written by Rerun {version}{how}; RRDs of {OLDEST_VERSION} and newer can be read",
        path=path,
        offset=0,
        hint=_MIGRATE,
    )


def _readable(magic: bytes) -> str:
    return repr(magic.decode()) if magic.isascii() and magic.decode().isprintable() else f"0x{magic.hex().upper()}"


def message_header(kind: MessageKind, length: int) -> bytes:
    """The 16 bytes before a message of ``length`` bytes."""
    return _MESSAGE_HEADER.pack(kind, length)


def parse_message_header(data: bytes, *, path: str, offset: int, end: int) -> tuple[MessageKind, int]:
    """Kind and length of the message whose header lies at ``offset``; the message must end by ``end``."""
    if data[:4] == MAGIC:
        raise UnsupportedError(
            "a second stream begins here; a file must contain only one",
            path=path,
            offset=offset,
            hint="The file was joined with `cat`; join the originals with `rerun rrd merge`.",
        )
    kind, length = _MESSAGE_HEADER.unpack(data)
    if kind > max(MessageKind):
        raise ReadError(f"unknown message kind {kind}", path=path, offset=offset, hint=_DAMAGED)
    left = end - offset - MESSAGE_HEADER_SIZE
    if length > left:
        raise ReadError(
            f"the file ends inside a message: {length:,} bytes declared, {left:,} left",
            path=path,
            offset=offset,
            hint="The file is cut short; copy it again, or read it with recover=True.",
        )
    return MessageKind(kind), length


def crc_of(payload: bytes) -> int:
    """The checksum of a footer payload.

    >>> hex(crc_of(b"hello"))
    '0xccd3add5'
    """
    return xxhash.xxh32_intdigest(payload, seed=CRC_SEED)


def stream_footer(start: int, payload: bytes) -> bytes:
    """The 32 bytes that close a stream whose ``RrdFooter`` ``payload`` lies at ``start``."""
    return _STREAM_FOOTER.pack(start, len(payload), crc_of(payload), MAGIC, FOOTER_MAGIC, 1)


def parse_stream_footer(data: bytes) -> StreamFooter | None:
    """The footer in the last 32 bytes of a file, or None where there is none (a legacy file)."""
    if len(data) != STREAM_FOOTER_SIZE:
        return None
    start, length, crc, magic, footer_magic, count = _STREAM_FOOTER.unpack(data)
    if magic != MAGIC or footer_magic != FOOTER_MAGIC or count != 1:
        return None
    return StreamFooter(start, length, crc)


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
            "a second stream begins here; a file must contain only one",
            path=file.path,
            offset=position,
            hint="The file was joined with `cat`; join the originals with `rerun rrd merge`.",
        )
    if rest:
        warnings.warn(
            f"{file.path}: {file.size - position:,} bytes after the end of the recording are ignored",
            ReadWarning,
            stacklevel=3,
        )
