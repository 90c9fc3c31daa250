"""The bytes of one MCAP file, and its header, footer and summary section."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, ClassVar, Final, NamedTuple, NoReturn, Self, cast

import lz4.frame
import zstandard
from mcap import records as library
from zlib_ng.zlib_ng import crc32

from ...engine.errors import ReadError, SourceMissingError, writing
from ...engine.limits import FREE_EXPANSION, MAX_COMPRESSION_RATIO, MAX_FOOTER, MIB, read_sized
from ...engine.storage import RemoteFile, is_url
from .records import (
    CUT_HINT,
    DATA_END_SIZE,
    FOOTER_SIZE,
    HEAD,
    MAGIC,
    Bytes,
    Channel,
    ChunkIndexEntry,
    McapSchema,
    Op,
    Registry,
    damaged,
    parse_chunk_entry,
    parse_record,
    record_name,
)

_MAGIC: Final = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
"""The compression of a file by its first bytes."""
_MAGIC_SIZE: Final = 4


def _unwrapped(file: IO[bytes], wrapping: str, *, path: str, size: int) -> IO[bytes]:
    """Decompress ``file``, ``size`` bytes long, into a private scratch file, which is removed when it is closed.

    The scratch file is in ``CHUNKMILL_SCRATCH`` if that is a folder, else in the system's temporary folder. Raises
    ``ReadError`` if the data is damaged or grows more than ``MAX_COMPRESSION_RATIO`` times, and ``WriteError`` if there
    is no space.
    """
    most = max(FREE_EXPANSION, size * MAX_COMPRESSION_RATIO)
    given = os.environ.get("CHUNKMILL_SCRATCH")
    folder = Path(given) if given and Path(given).is_dir() else None
    with writing(path):
        out = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (the caller closes it)
    try:
        file.seek(0)
        stream = _zstd(file) if wrapping == "zstd" else cast("IO[bytes]", lz4.frame.open(file, "rb"))
        done = 0
        while part := _read(stream, path, done):
            done += len(part)
            if done > most:
                raise ReadError(
                    f"it is compressed as a whole and expands to more than {most:,} bytes",
                    path=path,
                    offset=0,
                    hint="The file is damaged or malicious; if you trust it, decompress it with zstd -d.",
                )
            with writing(path):
                out.write(part)
        with writing(path):
            out.flush()
    except BaseException:
        out.close()
        raise
    return out


def _zstd(file: IO[bytes]) -> IO[bytes]:
    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
    return cast("IO[bytes]", reader)


def _read(stream: IO[bytes], path: str, done: int) -> bytes:
    """Return the next bytes; empty at the end, even if the stream is cut, as the recording in it shows that."""
    try:
        return stream.read(MIB)
    except EOFError:
        return b""
    except (zstandard.ZstdError, RuntimeError) as error:
        why = f"it is compressed as a whole, and cannot be decompressed beyond {done:,} bytes: {error}"
        raise damaged(why, path=path) from error


_ANY: Final = 2**63


class McapFile:
    """An open file of known size, or an object in a store (of ``version``, if given). Use it as a context manager.

    A file compressed as a whole is decompressed first, unless ``unwrap`` is false. ``stored_size`` is its size as
    stored; with a version and a size, no request for an object's size is made.
    """

    kind: ClassVar[str] = "MCAP"

    def __init__(
        self, path: str, version: str | None = None, *, unwrap: bool = True, stored_size: int | None = None
    ) -> None:
        self.path = path
        self._open(path, version, stored_size)
        self.stored_size = self.size
        if unwrap and (wrapping := self._wrapping()) is not None:
            self._unwrap(wrapping)

    @property
    def is_wrapped(self) -> bool:
        """Return whether the open file is compressed as a whole."""
        return self._wrapping() is not None

    def _wrapping(self) -> str | None:
        return _MAGIC.get(self.read_up_to(0, _MAGIC_SIZE))

    def _open(self, path: str, version: str | None, stored_size: int | None = None) -> None:
        self.version: str | None = None
        self._remote = RemoteFile(path, version, stored_size) if is_url(path) else None
        if self._remote is not None:
            self._file: BinaryIO = cast("BinaryIO", self._remote)
            self.size, self.version = self._remote.size, self._remote.version
            return
        try:
            self._file = Path(path).open("rb")  # noqa: SIM115 - closed by __exit__
            status = os.fstat(self._file.fileno())
            self.size = status.st_size
        except FileNotFoundError as error:
            raise SourceMissingError(f"{self.kind} file not found", path=path) from error
        except OSError as error:
            raise ReadError(f"the file cannot be opened: {error.strerror or error}", path=path) from error
        if not stat.S_ISREG(status.st_mode):
            self._file.close()
            raise ReadError("not a file", path=path, hint="Give the path of a file; folders and pipes cannot be read.")

    def _unwrap(self, wrapping: str) -> None:
        with self._file as file:
            self._file = cast("BinaryIO", _unwrapped(file, wrapping, path=self.path, size=self.size))
        self._remote = None
        self.size = self._file.seek(0, os.SEEK_END)

    @property
    def is_remote(self) -> bool:
        """Return whether it is an object in a store: each read may be a request."""
        return self._remote is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read_at(self, offset: int, size: int, *, what: str, cap: int = _ANY) -> bytes:
        """Return exactly ``size`` bytes from ``offset``; ``cap`` bounds sizes that the file declares."""
        try:
            self._file.seek(offset)
            return read_sized(self._file, size, path=self.path, what=what, file_size=self.size, cap=cap)
        except OSError as error:
            raise self._io_error(error, offset) from error

    def read_up_to(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``, or fewer at the end of the file."""
        return self.read_at(offset, max(0, min(size, self.size - offset)), what="the file")

    def read_into(self, offset: int, out: memoryview, *, what: str) -> None:
        """Fill ``out`` with the bytes from ``offset``."""
        try:
            self._file.seek(offset)
            done = 0
            while done < len(out):
                num_bytes = self._file.readinto(out[done:])  # type: ignore[attr-defined]
                if not num_bytes:
                    raise ReadError(f"the file ends inside {what}", path=self.path, offset=offset, hint=CUT_HINT)
                done += num_bytes
        except OSError as error:
            raise self._io_error(error, offset) from error

    def read_some(self, offset: int, out: memoryview) -> int:
        """Read as many bytes as possible from ``offset`` into ``out``, and return their number."""
        try:
            self._file.seek(offset)
            return int(self._file.readinto(out))  # type: ignore[attr-defined]
        except OSError:
            return 0

    def fills(self, offset: int, out: memoryview) -> bool:
        """Fill ``out`` with the bytes from ``offset`` of a local file, in any thread; return False if that fails."""
        try:
            done = 0
            while done < len(out) and (num_bytes := os.preadv(self._file.fileno(), [out[done:]], offset + done)):
                done += num_bytes
        except OSError:
            return False
        return done == len(out)

    def expect(self, *ranges: tuple[int, int]) -> None:
        """Announce that these bytes will be read front to end, so that few requests to a store fetch them."""
        if self._remote is not None:
            self._remote.expect(*ranges)

    def peek(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announce small ``(offset, size)`` ranges to be read, so that one request to a store fetches many of them."""
        if self._remote is not None:
            self._remote.peek(ranges)

    def head_at(self, offset: int, end: int) -> tuple[int, int]:
        """Return opcode and body length of the record at ``offset``. It must be wholly before ``end``."""
        _check_begins(end - offset, path=self.path, offset=offset)
        opcode, length = HEAD.unpack(self.read_at(offset, HEAD.size, what="a record"))
        check_fits(opcode, length, end - offset - HEAD.size, path=self.path, offset=offset)
        return opcode, length

    def _io_error(self, error: OSError, offset: int) -> ReadError:
        return ReadError(f"reading failed: {error.strerror}", path=self.path, offset=offset, transient=True)


def _check_begins(left: int, *, path: str, offset: int) -> None:
    """Raise unless the head of a record fits into the ``left`` bytes."""
    if left < HEAD.size:
        raise damaged(f"{left} bytes are left where a record should begin", path=path, offset=offset)


def check_fits(opcode: int, length: int, left: int, *, path: str, offset: int) -> None:
    """Raise unless a record body of ``length`` bytes fits into the ``left`` bytes after its head."""
    if length > left:
        raise damaged(
            f"a record {record_name(opcode)} claims {length:,} bytes, but {max(left, 0):,} are left",
            path=path,
            offset=offset,
        )


_AHEAD: Final = 32 * 1024
_LARGEST: Final = 4 * MIB
_STEP: Final = MIB


class Window:
    """Reads a file by position, each time a little more than requested.

    For an object in a store it reads no more than requested, as such objects have their own windows.
    """

    def __init__(self, file: McapFile) -> None:
        self._file = file
        self._memory = bytearray()
        self._start = 0
        self._data = memoryview(b"")

    def at(self, offset: int, size: int, *, what: str) -> memoryview:
        """Exactly ``size`` bytes from ``offset``; they stay valid until the next call."""
        begin = offset - self._start
        if begin < 0 or begin + size > len(self._data):
            if not self._move(offset, size):
                return memoryview(self._file.read_at(offset, size, what=what))
            begin = 0
        return self._data[begin : begin + size]

    def known_at(self, offset: int) -> memoryview:
        """The bytes from ``offset`` on that were already read; they stay valid until the next call of :meth:`at`."""
        return self._data[max(offset - self._start, 0) :] if offset >= self._start else memoryview(b"")

    def _move(self, offset: int, size: int) -> bool:
        """Read the window at ``offset``; return False if it is remote or too large for a window, or cannot be read."""
        if self._file.is_remote or size > _LARGEST:
            return False
        self._data = memoryview(b"")
        if len(self._memory) < size + _AHEAD:
            self._memory = bytearray(size + size // 4 + _AHEAD)
        read = self._file.read_some(offset, memoryview(self._memory)[: size + _AHEAD])
        self._start, self._data = offset, memoryview(self._memory)[:read].toreadonly()
        return read >= size


class RecordCursor:
    """Reads from ``start`` to ``end``. With ``checksum``, ``crc`` is the CRC-32 of the file up to ``at``."""

    def __init__(self, file: McapFile, start: int, end: int, *, checksum: bool) -> None:
        self._file = file
        self._window = Window(file)
        self._checksum = checksum
        self.at = start if not checksum else 0
        self.end = end
        self.crc = 0
        if checksum:
            self.skip(start)

    def peek_head(self) -> tuple[int, int]:
        """The opcode and body length of the record that begins here."""
        at, left = self.at, self.end - self.at
        _check_begins(left, path=self._file.path, offset=at)
        opcode, length = HEAD.unpack(self._window.at(at, HEAD.size, what="a record"))
        check_fits(opcode, length, left - HEAD.size, path=self._file.path, offset=at)
        return opcode, length

    def peek_body(self, size: int) -> bytes:
        """The first ``size`` bytes of the body of the record that begins here, fewer only at the end of the file."""
        at = self.at + HEAD.size
        return bytes(self._window.at(at, max(0, min(size, self._file.size - at)), what="the file"))

    def view(self, size: int) -> memoryview:
        """The next ``size`` bytes; they stay valid until the next call of any method."""
        data = self._window.at(self.at, size, what="a record")
        self._passed(data)
        return data

    def take_record(self, length: int) -> bytes:
        """The body of the record that begins here, ``length`` bytes."""
        return bytes(self.view(HEAD.size + length)[HEAD.size :])

    def take_known(self, opcode: int) -> list[bytes]:
        """The bodies of consecutive records of ``opcode`` that begin here, as far as they were already read."""
        window = self._window.known_at(self.at)[: self.end - self.at]
        bodies: list[bytes] = []
        at = 0
        while at + HEAD.size <= len(window):
            code, length = HEAD.unpack_from(window, at)
            begin = at + HEAD.size
            if code != opcode or length > len(window) - begin:
                break
            at = begin + length
            bodies.append(bytes(window[begin:at]))
        self._passed(window[:at])
        return bodies

    def take_into(self, out: Bytes) -> None:
        """Fill ``out`` with the next bytes."""
        self._file.read_into(self.at, out.data, what="a record")
        self._passed(out.data)

    def took(self, data: Bytes) -> None:
        """Skip bytes that were already read from here."""
        self._passed(data.data)

    def skip(self, size: int) -> None:
        """Skip ``size`` bytes; they are only read for the checksum."""
        if not self._checksum:
            self.at += size
            return
        for begin in range(0, size, _STEP):
            self.view(min(_STEP, size - begin))

    def skip_record(self, length: int) -> None:
        """Skip the record that begins here."""
        self.skip(HEAD.size + length)

    def _passed(self, data: bytes | memoryview) -> None:
        if self._checksum:
            self.crc = crc32(data, self.crc)
        self.at += len(data)


class Summary(NamedTuple):
    """The records of the summary section, chunk entries in file order (by offset)."""

    channels: tuple[Channel, ...]
    schemas: tuple[McapSchema, ...]
    chunks: tuple[ChunkIndexEntry, ...]
    statistics: library.Statistics | None
    attachments: tuple[library.AttachmentIndex, ...]
    metadata: tuple[library.MetadataIndex, ...]


class McapLayout(NamedTuple):
    """The places of a file's parts, in bytes from its start.

    The data section is ``data_start`` to ``data_end``, including its DataEnd record. ``data_crc`` is that record's
    CRC-32 of everything before it; 0 if the writer computed none, None if the record is not at its place.
    """

    size: int
    profile: str
    library: str
    data_start: int
    data_end: int
    data_crc: int | None
    summary: Summary | None


def read_layout(file: McapFile) -> McapLayout:
    """Read both ends of ``file``. Raises ``ReadError`` if it is not a whole MCAP file or its summary is damaged."""
    check_beginning(file)
    _check_end(file)
    opcode, length = file.head_at(len(MAGIC), file.size)
    if opcode != Op.HEADER:
        why = f"the file begins with a record {record_name(opcode)} instead of its Header"
        raise damaged(why, path=file.path, offset=len(MAGIC))
    data_start = len(MAGIC) + HEAD.size + length
    body = file.read_at(len(MAGIC) + HEAD.size, length, what="the Header record", cap=MAX_FOOTER)
    header = parse_record(library.Header.read, Op.HEADER, body, path=file.path, offset=len(MAGIC))
    footer_at = file.size - len(MAGIC) - FOOTER_SIZE
    if footer_at < data_start:
        raise ReadError("the file ends after its Header record", path=file.path, offset=data_start, hint=CUT_HINT)
    footer = _read_footer(file, footer_at)
    start = footer.summary_start or footer_at
    if not data_start <= start <= footer_at:
        why = f"the footer gives byte {start:,} as start of the summary, which is outside the records"
        raise damaged(why, path=file.path, offset=footer_at)
    raw = file.read_at(start, footer_at - start, what="the summary section", cap=MAX_FOOTER)
    _check_summary_crc(file, raw, footer, footer_at)
    summary = _read_summary(raw, path=file.path, offset=start) if footer.summary_start else None
    data_crc = _peek_data_crc(file, data_start, start)
    return McapLayout(file.size, header.profile, header.library, data_start, start, data_crc, summary)


def check_beginning(file: McapFile) -> None:
    """Raise ``ReadError`` unless ``file`` begins like an MCAP."""
    begin = file.read_up_to(0, len(MAGIC))
    if not begin:
        raise ReadError("the file is empty", path=file.path, offset=0, hint=CUT_HINT)
    if begin != MAGIC:
        _raise_foreign(file.path, begin)


def _check_end(file: McapFile) -> None:
    if file.size < 2 * len(MAGIC) + FOOTER_SIZE or file.read_up_to(file.size - len(MAGIC), len(MAGIC)) != MAGIC:
        raise ReadError(
            "the file does not end with the magic bytes of MCAP",
            path=file.path,
            offset=max(file.size - len(MAGIC), len(MAGIC)),
            hint="The file is truncated, its recorder was stopped, or data was appended. Read the intact part with "
            "recover=True, or with `chunkmill convert --recover`.",
        )


def _raise_foreign(path: str, begin: bytes) -> NoReturn:
    if MAGIC.startswith(begin):
        raise ReadError(f"the file ends after {len(begin)} bytes", path=path, offset=len(begin), hint=CUT_HINT)
    hint = "Check that it is an MCAP file."
    if begin.startswith(b"\x28\xb5\x2f\xfd"):
        hint = "It is compressed with zstd twice as a whole; decompress it once (zstd -d)."
    elif begin.startswith(b"#ROSBAG"):
        hint = "It is a ROS 1 bag: name it .bag, or open it with BagReader."
    elif begin.startswith(b"\x89MCAP0\n"):
        hint = "Its line endings were converted, which damages binary files; copy it again in binary mode."
    raise ReadError("the file does not begin with the magic bytes of MCAP", path=path, offset=0, hint=hint)


def _read_footer(file: McapFile, offset: int) -> library.Footer:
    raw = file.read_at(offset, FOOTER_SIZE, what="the Footer record")
    opcode, length = HEAD.unpack_from(raw)
    if opcode != Op.FOOTER or length != FOOTER_SIZE - HEAD.size:
        why = f"a record {record_name(opcode)} of {length:,} bytes is in place of the Footer"
        raise damaged(why, path=file.path, offset=offset)
    footer: library.Footer = parse_record(
        library.Footer.read, Op.FOOTER, raw[HEAD.size :], path=file.path, offset=offset
    )
    return footer


def _check_summary_crc(file: McapFile, raw: bytes, footer: library.Footer, footer_at: int) -> None:
    if not footer.summary_crc:
        return
    covered = raw + file.read_at(footer_at, FOOTER_SIZE - 4, what="the Footer record")
    if crc32(covered) != footer.summary_crc:
        raise damaged(
            "the CRC of the summary section does not match its data", path=file.path, offset=footer_at - len(raw)
        )


def _peek_data_crc(file: McapFile, data_start: int, data_end: int) -> int | None:
    offset = data_end - DATA_END_SIZE
    if offset < data_start:
        return None
    raw = file.read_at(offset, DATA_END_SIZE, what="the DataEnd record")
    opcode, length = HEAD.unpack_from(raw)
    if opcode != Op.DATA_END or length != DATA_END_SIZE - HEAD.size:
        return None
    return int.from_bytes(raw[HEAD.size :], "little")


def _read_summary(raw: bytes, *, path: str, offset: int) -> Summary:
    registry = Registry(path)
    chunks: list[ChunkIndexEntry] = []
    statistics: library.Statistics | None = None
    attachments: list[library.AttachmentIndex] = []
    metadata: list[library.MetadataIndex] = []
    for opcode, body, at in _records(raw, path, offset):
        if opcode in (Op.SCHEMA, Op.CHANNEL):
            registry.add(opcode, body, offset=at)
        elif opcode == Op.CHUNK_INDEX:
            chunks.append(parse_chunk_entry(body, path=path, offset=at))
        elif opcode == Op.STATISTICS:
            statistics = parse_record(library.Statistics.read, opcode, body, path=path, offset=at)
        elif opcode == Op.ATTACHMENT_INDEX:
            attachments.append(parse_record(library.AttachmentIndex.read, opcode, body, path=path, offset=at))
        elif opcode == Op.METADATA_INDEX:
            metadata.append(parse_record(library.MetadataIndex.read, opcode, body, path=path, offset=at))
        elif opcode != Op.SUMMARY_OFFSET and opcode <= Op.DATA_END:
            raise damaged(f"a record {record_name(opcode)} is in the summary section", path=path, offset=at)
    chunks.sort(key=lambda entry: entry.offset)
    return Summary(
        tuple(registry.channels.values()),
        tuple(registry.schemas.values()),
        tuple(chunks),
        statistics,
        tuple(attachments),
        tuple(metadata),
    )


def _records(raw: bytes, path: str, offset: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield opcode, body and file offset of each record in ``raw``, which begins at ``offset`` in the file."""
    at = 0
    while at < len(raw):
        if len(raw) - at < HEAD.size:
            why = f"{len(raw) - at} bytes are left at the end of the summary section"
            raise damaged(why, path=path, offset=offset + at)
        opcode, length = HEAD.unpack_from(raw, at)
        body_at = at + HEAD.size
        check_fits(opcode, length, len(raw) - body_at, path=path, offset=offset + at)
        yield opcode, raw[body_at : body_at + length], offset + at
        at = body_at + length
