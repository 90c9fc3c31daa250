"""The fixed-size parts, against the vectors of the format."""

from __future__ import annotations

import re
import struct

import pytest
from chunkmill.engine.errors import ReadError, UnsupportedError
from chunkmill.engine.rrd import RrdWriter
from chunkmill.engine.rrd.messages import (
    MessageKind,
    StreamFooter,
    Version,
    crc_of,
    message_header,
    parse_message_header,
    parse_stream_footer,
    parse_stream_header,
    stream_footer,
    stream_header,
)
from rrd_bytes import STORE, rrd_bytes


def test_stream_header() -> None:
    assert stream_header() == bytes.fromhex("525246320021010001020000")
    assert parse_stream_header(stream_header(), path="x") == (0, 33, 1, 0)


@pytest.mark.parametrize(("data", "crc"), [(b"", 0x2A973671), (b"hello", 0xCCD3ADD5), (bytes(range(100)), 0x49069731)])
def test_checksums(data: bytes, crc: int) -> None:
    assert crc_of(data) == crc


@pytest.mark.parametrize(
    ("meta", "text", "release"),
    [
        (0, "0.33.1", True),
        (0x41, "0.33.1-rc.1", False),
        (0x81, "0.33.1-alpha.1", False),
        (0xC1, "0.33.1-alpha.1+dev", False),
    ],
)
def test_versions(meta: int, text: str, release: bool) -> None:
    version = Version(0, 33, 1, meta)
    assert str(version) == text
    assert version.is_release is release


def test_version_bits() -> None:
    assert Version(0, 33, 1, 0).bits == 73984


def test_prereleases_come_before_their_release() -> None:
    assert Version(0, 23, 0, 0xC1).order < Version(0, 23, 0, 0).order < Version(0, 23, 1, 0x41).order


def header(magic: bytes = b"RRF2", version: bytes = b"\0\x21\1\0", options: bytes = b"\1\2\0\0") -> bytes:
    return magic + version + options


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", ReadError, "too small"),
        (header()[:11], ReadError, "too small"),
        (header(b"RRF3"), ReadError, "'RRF3'"),
        (header(b"\x89PNG"), ReadError, "0x89504E47"),
        (header(b"RRF0", b"\0\x05\0\0"), UnsupportedError, "RRF0"),
        (header(b"RRF1", b"\0\x14\3\0"), UnsupportedError, "Rerun 0.20.3"),
        (header(options=b"\2\2\0\0"), UnsupportedError, "unknown compression 2"),
        (header(version=b"\0\x16\1\0", options=b"\1\1\0\0"), UnsupportedError, "0.22.1 in the msgpack serializer"),
        (header(options=b"\1\3\0\0"), UnsupportedError, "unknown serializer 3"),
        (header(options=b"\1\2\0\1"), UnsupportedError, "reserved"),
        (header(version=b"\0\x16\1\0"), UnsupportedError, "Rerun 0.22.1"),
        (header(version=b"\0\0\0\0"), UnsupportedError, "Rerun 0.2.0"),
        (header(version=b"\0\x17\0\xc1"), UnsupportedError, "0.23.0-alpha.1+dev"),
    ],
)
def test_headers_that_are_refused(data: bytes, error: type[ReadError], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)) as caught:
        parse_stream_header(data, path="x.rrd")
    assert caught.value.path == "x.rrd"
    assert caught.value.offset is not None
    assert caught.value.hint


def test_old_formats_say_what_to_do() -> None:
    with pytest.raises(UnsupportedError, match="rerun rrd migrate"):
        parse_stream_header(header(b"RRF1"), path="x.rrd")


@pytest.mark.parametrize("version", [b"\0\x17\0\0", b"\0\x21\1\0", b"\0\x29\0\0", b"\7\0\0\0"])
def test_headers_that_are_read(version: bytes) -> None:
    assert bytes(parse_stream_header(header(version=version), path="x")) == version


def test_message_header() -> None:
    data = message_header(MessageKind.ARROW_MSG, 5)
    assert data == struct.pack("<QQ", 2, 5)
    assert parse_message_header(data, path="x", offset=12, end=33) == (MessageKind.ARROW_MSG, 5)


@pytest.mark.parametrize("length", [6, 10**12, 2**64 - 1])
def test_message_length_is_bounded_by_the_file(length: int) -> None:
    with pytest.raises(ReadError, match="ends inside a message"):
        parse_message_header(struct.pack("<QQ", 2, length), path="x", offset=12, end=33)


def test_unknown_message_kind() -> None:
    with pytest.raises(ReadError, match="unknown message kind 4") as caught:
        parse_message_header(struct.pack("<QQ", 4, 0), path="x", offset=12, end=99)
    assert caught.value.offset == 12


def test_a_second_stream_is_named() -> None:
    with pytest.raises(UnsupportedError, match="second stream"):
        parse_message_header(stream_header() + b"\1\0\0\0", path="x", offset=12, end=99)


def test_stream_footer() -> None:
    data = stream_footer(123, b"")
    assert data == struct.pack("<QQ", 123, 0) + bytes.fromhex("7136972a") + b"RRF2FOOT" + b"\1\0\0\0"
    assert parse_stream_footer(data) == StreamFooter(123, 0, 0x2A973671)


@pytest.mark.parametrize("damage", [(20, b"RRF3"), (24, b"FEET"), (28, b"\0"), (28, b"\2")])
def test_other_last_bytes_mean_no_footer(damage: tuple[int, bytes]) -> None:
    data = bytearray(stream_footer(123, b"x"))
    data[damage[0] : damage[0] + len(damage[1])] = damage[1]
    assert parse_stream_footer(bytes(data)) is None


def test_an_empty_recording_is_155_bytes() -> None:
    data = rrd_bytes(store=type(STORE)("recording", "a", "b"))
    assert len(data) == 155 - len("rerun-sdk-python-chunk-pipeline") + len("chunkmill")
    assert data[-48:-32] == bytes(16)
    assert data[-32:] == struct.pack("<Q", len(data) - 32) + bytes(8) + bytes.fromhex(
        "7136972a5252463246 4f4f5401000000"
    )


def test_store_info_frame(tmp_path) -> None:
    path = tmp_path / "a.rrd"
    with RrdWriter(path) as writer:
        writer.begin_store(STORE, source="poc")
        writer.finish()
    data = path.read_bytes()
    assert data[12:28] == struct.pack("<QQ", 1, 55)
    assert data[48:83].hex() == ("1221120e080112037265631a050a036170702a09080612050a03706f6332040880c204")
