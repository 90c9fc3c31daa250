"""The two ends of an MCAP file: its header, its footer and its summary section."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from mcap import records as library
from zlib_ng.zlib_ng import crc32

from ...engine.errors import ReadError
from ...engine.limits import MAX_FOOTER
from .file import McapFile, check_fits
from .records import (
    CUT_HINT,
    DATA_END_SIZE,
    FOOTER_SIZE,
    HEAD,
    MAGIC,
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


class Summary(NamedTuple):
    """The records of the summary section, chunk entries in file order (by offset)."""

    channels: tuple[Channel, ...]
    schemas: tuple[McapSchema, ...]
    chunks: tuple[ChunkIndexEntry, ...]
    statistics: library.Statistics | None
    attachments: tuple[library.AttachmentIndex, ...]
    metadata: tuple[library.MetadataIndex, ...]


class McapLayout(NamedTuple):
    """The places of the parts of a file, in bytes from its start.

    The data section is ``data_start`` to ``data_end``, its DataEnd record included. ``data_crc`` is the CRC-32 of
    everything before that record, 0 when the writer computed none, None when the record is not where it should be.
    """

    size: int
    profile: str
    library: str
    data_start: int
    data_end: int
    data_crc: int | None
    summary: Summary | None


def read_layout(file: McapFile) -> McapLayout:
    """Read both ends of ``file``. Raises ``ReadError`` when it is not a whole MCAP file or the summary is damaged."""
    check_beginning(file)
    _check_end(file)
    opcode, length = file.head_at(len(MAGIC), file.size)
    if opcode != Op.HEADER:
        why = f"the file begins with a record {record_name(opcode)} where its Header should be"
        raise damaged(why, path=file.path, offset=len(MAGIC))
    data_start = len(MAGIC) + HEAD.size + length
    body = file.read_at(len(MAGIC) + HEAD.size, length, what="the Header record", cap=MAX_FOOTER)
    header = parse_record(library.Header.read, Op.HEADER, body, path=file.path, offset=len(MAGIC))
    footer_at = file.size - len(MAGIC) - FOOTER_SIZE
    if footer_at < data_start:
        raise ReadError("the file ends behind its Header record", path=file.path, offset=data_start, hint=CUT_HINT)
    footer = _read_footer(file, footer_at)
    start = footer.summary_start or footer_at
    if not data_start <= start <= footer_at:
        why = f"the footer says that the summary begins at byte {start:,}, outside of the file's records"
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
            hint="The file was cut short, its recorder was stopped, or something was added behind its end. Read what "
            "is there with recover=True (--recover).",
        )


def _raise_foreign(path: str, begin: bytes) -> NoReturn:
    if MAGIC.startswith(begin):
        raise ReadError(f"the file ends after {len(begin)} bytes", path=path, offset=len(begin), hint=CUT_HINT)
    hint = "Check that it is an MCAP file."
    if begin.startswith(b"\x28\xb5\x2f\xfd"):
        hint = "It is compressed with zstd twice as a whole; decompress it once (zstd -d)."
    elif begin.startswith(b"#ROSBAG"):
        hint = "It is a ROS 1 bag; convert it to MCAP first (mcap convert)."
    elif begin.startswith(b"\x89MCAP0\n"):
        hint = "Its line ends were converted on the way, which damages binary files; copy it again in binary mode."
    raise ReadError("the file does not begin with the magic bytes of MCAP", path=path, offset=0, hint=hint)


def _read_footer(file: McapFile, offset: int) -> library.Footer:
    raw = file.read_at(offset, FOOTER_SIZE, what="the Footer record")
    opcode, length = HEAD.unpack_from(raw)
    if opcode != Op.FOOTER or length != FOOTER_SIZE - HEAD.size:
        why = f"a record {record_name(opcode)} of {length:,} bytes stands where the Footer should be"
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
            raise damaged(f"a record {record_name(opcode)} stands in the summary section", path=path, offset=at)
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
    """Opcode, body and file offset of each record in ``raw``, which begins at ``offset`` in the file."""
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
