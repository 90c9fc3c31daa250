"""The container of an RRD: its header, frames and protobuf messages, read and written without payloads.

Classes are made from ``messages.binpb`` in their own descriptor pool, so that another package in the same process
(Rerun's, or the user's) may register messages of the same names.

An ``ArrowMsg`` is a sequence of fields. The payload is field 5, a run of bytes; everything else is small. So only the
fields around the payload are parsed on reading, and built on writing.
"""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import xxhash
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ..errors import ReadError, ReadWarning, UnsupportedError
from ..limits import MIB
from ..storage.positional import PositionalFile


def message_classes(compiled: bytes) -> Callable[[str], Any]:
    """Return a function from names in a ``FileDescriptorSet`` to message classes.

    The classes have their own pool. The set, whose only field is the files, is parsed here: importing
    ``descriptor_pb2`` takes a quarter of protobuf's import time.
    """
    pool = descriptor_pool.DescriptorPool()
    at = 0
    while at < len(compiled):
        size, at = _number_at(compiled, at + 1)
        pool.AddSerializedFile(compiled[at : at + size])
        at += size
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _number_at(data: bytes, at: int) -> tuple[int, int]:
    """The varint at a place, and the place after it."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


_message = message_classes(Path(__file__).with_name("messages.binpb").read_bytes())

SetStoreInfo = _message("rerun.log_msg.v1alpha1.SetStoreInfo")
ArrowMsg = _message("rerun.log_msg.v1alpha1.ArrowMsg")
RrdFooter = _message("rerun.log_msg.v1alpha1.RrdFooter")
RrdManifest = _message("rerun.log_msg.v1alpha1.RrdManifest")
StoreId = _message("rerun.common.v1alpha1.StoreId")
Tuid = _message("rerun.common.v1alpha1.Tuid")

SOURCE_OTHER = 6
ENCODING_ARROW_IPC = 1
ENCODER_VERSION_V0 = 1


def parse(kind: Any, data: bytes, *, path: str, offset: int | None) -> Any:
    """Parse ``data`` as a message of ``kind``; raises :class:`ReadError`."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ReadError(
            f"a damaged {kind.DESCRIPTOR.name} message: {error}",
            path=path,
            offset=offset,
            hint="The file is damaged; copy it again, or read it with recover=True.",
        ) from error


def require(message: Any, *fields: str, path: str, offset: int | None) -> None:
    """Raise :class:`ReadError` unless every one of ``fields`` is present in ``message``."""
    for field in fields:
        if not message.HasField(field):
            raise ReadError(
                f"missing required field {message.DESCRIPTOR.full_name}.{field}",
                path=path,
                offset=offset,
                hint="The file is damaged, or the program that wrote it is faulty.",
            )


def tuid_message(tuid: bytes) -> Any:
    """A 16-byte TUID (big-endian halves) as its protobuf message."""
    return Tuid(time_ns=int.from_bytes(tuid[:8], "big"), inc=int.from_bytes(tuid[8:], "big"))


def tuid_bytes(message: Any) -> bytes:
    """The inverse of :func:`tuid_message`."""
    return int(message.time_ns).to_bytes(8, "big") + int(message.inc).to_bytes(8, "big")


RECORDING = "recording"
BLUEPRINT = "blueprint"
_BLUEPRINT_NUMBER = 2


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A recording or a blueprint in an RRD; equal by value.

    >>> StoreEntry("recording", "a", "b")
    StoreEntry(kind='recording', application_id='a', recording_id='b')
    """

    kind: str
    application_id: str
    recording_id: str

    def __post_init__(self) -> None:
        if self.kind not in (RECORDING, BLUEPRINT):
            raise ValueError(f"kind must be 'recording' or 'blueprint', not {self.kind!r}")

    @property
    def sort_key(self) -> tuple[bool, bytes, bytes]:
        """The sort key: recordings before blueprints, then application id, then recording id, by their bytes."""
        return self.kind == BLUEPRINT, self.application_id.encode(), self.recording_id.encode()

    @property
    def text(self) -> str:
        """The entry as text for messages.

        >>> StoreEntry("recording", "a", "b").text
        'StoreId(Recording, "a", "b")'
        """
        quoted = (json.dumps(s, ensure_ascii=False) for s in (self.application_id, self.recording_id))
        return f"StoreId({self.kind.capitalize()}, {', '.join(quoted)})"

    def to_message(self) -> Any:
        """The entry as a protobuf ``StoreId``."""
        message = StoreId(kind=_BLUEPRINT_NUMBER if self.kind == BLUEPRINT else 1, recording_id=self.recording_id)
        message.application_id.id = self.application_id
        return message


StoreKey = tuple[str, str]
"""Kind and recording id: the identity of a store in old files, whose store ids have no application id."""


def key_of(message: Any) -> StoreKey:
    """Kind and recording id of a protobuf ``StoreId``; unknown kinds count as recordings."""
    return (BLUEPRINT if message.kind == _BLUEPRINT_NUMBER else RECORDING), message.recording_id


def from_message(message: Any, legacy_ids: dict[StoreKey, str], *, path: str, offset: int | None) -> StoreEntry:
    """The entry of a protobuf ``StoreId``.

    ``legacy_ids`` supplies a missing application id (files from before 0.25). Raises :class:`ReadError` if both lack
    it.
    """
    kind, recording_id = key_of(message)
    if message.HasField("application_id"):
        return StoreEntry(kind, message.application_id.id, recording_id)
    if (kind, recording_id) in legacy_ids:
        return StoreEntry(kind, legacy_ids[kind, recording_id], recording_id)
    raise ReadError(
        f"the {kind} {recording_id!r} has no application id, neither in its store id nor in its store info",
        path=path,
        offset=offset,
        hint="The file is damaged, or the program that wrote it is faulty.",
    )


_PAYLOAD_TAG: Final = b"\x2a"
_ENCODING_FIELD: Final = bytes((0x20, ENCODING_ARROW_IPC))
_ID_HEAD, _ID_MIDDLE = b"\x32\x12\x09", b"\x11"
_STATIC, _TEMPORAL = b"\x38\x01", b"\x38\x00"
_LAST_FIELD: Final = 7
_STORE_TAG: Final = 0x0A
_NUMBER_TAGS: Final = (0x10, 0x18, 0x20)
_WINDOW: Final = 512
_SMALL: Final = 1 << 16
MOST_WHOLE: Final = 16 * MIB
"""The largest message that is read as a whole for parsing."""
_MAX_FIELDS: Final = 256
_MAX_HEAD: Final = MIB
_HINT: Final = "The file is damaged; copy it again, or read it with recover=True."


class LocatedMessage(NamedTuple):
    """An ``ArrowMsg`` without its payload, and the payload's place in the file, or the ``payload`` if it was read."""

    message: Any
    payload_offset: int
    payload_size: int
    payload: bytes | memoryview | None = None

    @property
    def chunk_id(self) -> bytes | None:
        """The chunk id of the message, if any (the one in the Arrow schema counts)."""
        return tuid_bytes(self.message.chunk_id) if self.message.HasField("chunk_id") else None


class _Window:
    """The bytes ``start..end`` of a file, read a little at a time."""

    __slots__ = ("_data", "_file", "_origin", "end", "position")

    def __init__(self, file: PositionalFile, start: int, end: int, data: bytes = b"") -> None:
        self._file = file
        self._origin = self.position = start
        self.end = end
        self._data = data

    def take(self, size: int) -> bytes:
        if size > self.end - self.position:
            raise self.damaged("a field reaches past the end of its message")
        at = self.position - self._origin
        if not 0 <= at <= len(self._data) - size:
            self._origin, at = self.position, 0
            wanted = min(max(size, _WINDOW), self.end - self.position)
            self._data = self._file.read(self.position, wanted, what="a message")
        self.position += size
        return self._data[at : at + size]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF
            shift += 7
            if shift > 63:
                raise self.damaged("a number is longer than ten bytes")

    def skip(self, size: int) -> None:
        if size > self.end - self.position:
            raise self.damaged("a field reaches past the end of its message")
        self.position += size

    def damaged(self, what: str) -> ReadError:
        return ReadError(f"a damaged ArrowMsg: {what}", path=self._file.path, offset=self.position, hint=_HINT)


def locate(file: PositionalFile, offset: int, size: int, *, whole: bool = False, data: bytes = b"") -> LocatedMessage:
    """Parse the ``ArrowMsg`` of ``size`` bytes at ``offset``.

    Only the bytes around the payload of a large message are read. With ``whole``, a message of up to :data:`MOST_WHOLE`
    bytes is read as a whole. ``data`` is the message, if already read. Raises :class:`ReadError`.
    """
    if not data and size <= (MOST_WHOLE if whole else _SMALL):
        data = file.read(offset, size, what="a message")
    if data:
        located_message = _taken_apart(data, file.path, offset)
        if located_message is not None:
            return located_message
    if size <= _SMALL:
        message = parse(ArrowMsg, data, path=file.path, offset=offset)
        payload = message.payload
        return LocatedMessage(message, offset, len(payload), payload)
    if not data:
        file.expect((offset, offset + size))
    window = _Window(file, offset, offset + size, data)
    head = bytearray()
    payload_offset, payload_size = offset + size, 0
    for _ in range(_MAX_FIELDS):
        if window.position >= window.end:
            message = parse(ArrowMsg, bytes(head), path=file.path, offset=offset)
            at = payload_offset - offset
            payload = memoryview(data)[at : at + payload_size] if data else None
            return LocatedMessage(message, payload_offset, payload_size, payload)
        start = window.position
        tag = window.varint()
        length = _value_length(window, tag & 7)
        if tag == _PAYLOAD_TAG[0]:
            payload_offset, payload_size = window.position, length
            window.skip(length)
        elif tag >> 3 > _LAST_FIELD:
            window.skip(length)
        else:
            stop = window.position + length
            if len(head) + stop - start > _MAX_HEAD:
                raise window.damaged("its head is larger than a megabyte")
            window.position = start
            head += window.take(stop - start)
    raise window.damaged(f"more than {_MAX_FIELDS} fields")


def _taken_apart(data: bytes, path: str, offset: int) -> LocatedMessage | None:
    """The message in ``data``, if its fields are in the usual order: small ones, the payload, small ones."""
    at = size = shift = 0
    try:
        while (tag := data[at]) != _PAYLOAD_TAG[0]:
            if tag == _STORE_TAG and data[at + 1] < 0x80:
                at += 2 + data[at + 1]
            elif tag in _NUMBER_TAGS:
                at += 1
                while data[at] >= 0x80:
                    at += 1
                at += 1
            else:
                return None
        start = at + 1
        while True:
            byte = data[start]
            size |= (byte & 0x7F) << shift
            start, shift = start + 1, shift + 7
            if byte < 0x80:
                break
    except IndexError:
        return None
    stop = start + size
    if stop > len(data) or shift > 63 or len(data) - size > _MAX_HEAD:
        return None
    message = parse(ArrowMsg, data[:at] + data[stop:], path=path, offset=offset)
    if message.payload:
        return None
    return LocatedMessage(message, offset + start, size, memoryview(data)[start:stop])


def _value_length(window: _Window, wire_type: int) -> int:
    """The remaining bytes of the field whose tag was just read; a varint is read, and counts as 0."""
    if wire_type == 0:
        window.varint()
        return 0
    if wire_type == 1:
        return 8
    if wire_type == 2:
        return window.varint()
    if wire_type == 5:
        return 4
    raise window.damaged(f"invalid wire type {wire_type}")


def message_head(store_field: bytes, compression: int, uncompressed_size: int, payload_size: int) -> bytes:
    """The bytes of an ``ArrowMsg`` before its payload. ``store_field`` comes from :func:`store_field`."""
    named = bytes((0x10, compression)) if compression else b""
    expanded = b"\x18" + _varint(uncompressed_size) if uncompressed_size else b""
    return b"".join((store_field, named, expanded, _ENCODING_FIELD, _PAYLOAD_TAG, _varint(payload_size)))


def store_field(store_id: Any) -> bytes:
    """Field 1 of an ``ArrowMsg``, serialised; the same for every chunk of a store."""
    return bytes(ArrowMsg(store_id=store_id).SerializeToString())


def message_tail(chunk_id: bytes, is_static: bool) -> bytes:
    """The bytes of an ``ArrowMsg`` after its payload."""
    return b"".join((_ID_HEAD, chunk_id[7::-1], _ID_MIDDLE, chunk_id[:7:-1], _STATIC if is_static else _TEMPORAL))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


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
    """The four version bytes of a stream header: the writer's version."""

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
"""The version in files of chunkmill: the Rerun release with their format."""

OLDEST_VERSION: Final = Version(0, 23, 0, 0)
"""The oldest Rerun release with readable files."""


class MessageKind(IntEnum):
    """The kinds of messages of the container."""

    END = 0
    SET_STORE_INFO = 1
    ARROW_MSG = 2
    BLUEPRINT_ACTIVATION = 3


_LAST_KIND: Final = max(MessageKind)


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

    Raises :class:`ReadError` for other files, :class:`UnsupportedError` for formats that are too old.
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
    """Return kind and length of the message with a header at ``offset``; the message must end by ``end``."""
    if data[:4] == MAGIC:
        raise UnsupportedError(
            "a second stream begins here; a file must contain only one",
            path=path,
            offset=offset,
            hint="The file was joined with `cat`; join the originals with `rerun rrd merge`.",
        )
    kind, length = _MESSAGE_HEADER.unpack(data)
    if kind > _LAST_KIND:
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
    """Return the last 32 bytes of a stream with the ``RrdFooter`` ``payload`` at ``start``."""
    return _STREAM_FOOTER.pack(start, len(payload), crc_of(payload), MAGIC, FOOTER_MAGIC, 1)


def parse_stream_footer(data: bytes) -> StreamFooter | None:
    """Return the footer in the last 32 bytes of a file, or None for a legacy file without one."""
    if len(data) != STREAM_FOOTER_SIZE:
        return None
    start, length, crc, magic, footer_magic, count = _STREAM_FOOTER.unpack(data)
    if magic != MAGIC or footer_magic != FOOTER_MAGIC or count != 1:
        return None
    return StreamFooter(start, length, crc)


class Message(NamedTuple):
    """One message: its kind, and ``size`` bytes at ``offset``, after its frame header of 16 bytes."""

    kind: MessageKind
    offset: int
    size: int


def scan(file: PositionalFile, start: int = STREAM_HEADER_SIZE) -> Iterator[Message]:
    """The messages from the frame header at ``start`` to the end message, inclusive.

    A file without an end message gives a ``ReadWarning``: its recorder may have been interrupted. Raises
    :class:`ReadError` at the first damaged or truncated message, after yielding those before it.
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
    """Return the message with a frame header at ``position``; it must end by ``end``."""
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
