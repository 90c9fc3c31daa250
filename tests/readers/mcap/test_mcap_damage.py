"""Damaged and hostile files: a ``ReadError`` that says where, soon, and without much memory."""

from __future__ import annotations

import _thread
import random
import signal
import struct
import threading
import time
import tracemalloc
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard
from chunkmill.engine import verify
from chunkmill.engine.errors import ReadError, ReadWarning, SourceMissingError, UnsupportedError
from chunkmill.engine.limits import MIB
from chunkmill.readers import McapReader
from chunkmill.readers.mcap import McapSource
from chunkmill.readers.mcap.decoders import McapOptions
from chunkmill.readers.mcap.records import ChunkPool

from tests.conftest import DATA
from tests.readers.mcap.mcap_bytes import (
    MAGIC,
    ChunkOf,
    attachment,
    channel,
    chunk_of,
    chunks_of,
    header,
    mcap,
    message,
    record,
    schema,
    statistics,
    times_of,
    written,
)

RECORDS = [message(1, t, bytes(range(40))) for t in range(12)]


def sound(compression: str = "zstd", **how: bool) -> bytes:
    """A file in which a CRC guards every byte that matters."""
    chunks = [chunk_of(RECORDS[:6], compression, **how), chunk_of(RECORDS[6:], compression, **how)]
    parts = [schema(1), channel(1, schema_id=1), *chunks, attachment(b"attached"), message(1, 99)]
    return mcap(parts, [schema(1), channel(1, schema_id=1), statistics(13, 1, 2)], data_crc=True)


def refused(path: Path, match: str | None = None, within: float = 2.0) -> ReadError:
    """Read ``path``, which must raise; returns the error after looking at its shape."""
    begin = time.process_time()
    with pytest.raises(ReadError, match=match) as caught:
        times_of(path)
    assert time.process_time() - begin < within
    error = caught.value
    assert error.path == str(path)
    assert error.offset is not None
    assert 0 <= error.offset <= path.stat().st_size
    assert error.hint
    return error


@pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
def test_cut_anywhere(tmp_path: Path, compression: str) -> None:
    data = sound(compression)
    for end in range(0, len(data), 5):
        refused(written(tmp_path, data[:end]))


def test_cut_and_closed_with_the_magic(tmp_path: Path) -> None:
    data = sound()
    for end in range(len(MAGIC), len(data) - len(MAGIC), 3):
        refused(written(tmp_path, data[:end] + MAGIC))


@pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
@pytest.mark.heavy
def test_flipped_bits_are_noticed(tmp_path: Path, compression: str) -> None:
    data = sound(compression)
    path = written(tmp_path, data)
    right = [c.to_record_batch().column("McapMessage:data") for c in chunks_of(path, decoders=["raw"])]
    chance = random.Random(7)
    for _ in range(700):
        bit = chance.randrange(8 * len(data))
        mutant = bytearray(data)
        mutant[bit // 8] ^= 1 << bit % 8
        path.write_bytes(mutant)
        try:
            read = [c.to_record_batch().column("McapMessage:data") for c in chunks_of(path, decoders=["raw"])]
        except ReadError:
            continue
        assert read == right, f"bit {bit} changed what was read"


@pytest.mark.parametrize("name", ["demo.mcap"])
def test_flipped_bits_in_a_recording_give_no_foreign_error(tmp_path: Path, name: str) -> None:
    data = (DATA / name).read_bytes()
    chance = random.Random(11)
    for _ in range(60):
        mutant = bytearray(data)
        for _ in range(chance.choice((1, 1, 4))):
            bit = chance.randrange(8 * len(data))
            mutant[bit // 8] ^= 1 << bit % 8
        path = written(tmp_path, bytes(mutant))
        with suppress(ReadError, ReadWarning):  # the chunk has no CRC, so some are seen by the message index only
            times_of(path)


class TestLengths:
    """Lengths up to the largest number, in every field that holds one."""

    @pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
    def test_of_every_record(self, tmp_path: Path, value: int) -> None:
        for data in (sound(""), mcap([schema(1), channel(1, schema_id=1), *RECORDS])):
            at = len(MAGIC)
            while at < len(data) - len(MAGIC):
                (length,) = struct.unpack_from("<Q", data, at + 1)
                mutant = data[: at + 1] + struct.pack("<Q", value) + data[at + 9 :]
                if length != value:
                    refused(written(tmp_path, mutant))
                at += 9 + length

    @pytest.mark.parametrize("size", [4, 8])
    @pytest.mark.heavy
    def test_anywhere(self, tmp_path: Path, size: int) -> None:
        data = sound("lz4")
        tracemalloc.start()
        for at in range(len(MAGIC), len(data) - len(MAGIC) - size, 2):
            mutant = data[:at] + b"\xff" * size + data[at + size :]
            path = written(tmp_path, mutant)
            with suppress(ReadError):
                times_of(path)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
        tracemalloc.stop()

    def test_of_a_message_index(self, tmp_path: Path) -> None:
        index = record(7, struct.pack("<HI", 1, 2**32 - 1) + bytes(32))
        assert len(times_of(written(tmp_path, mcap([channel(1), chunk_of(RECORDS).chunk, index])))) == 12


class TestBombs:
    """A few bytes that say they are little and become much, or say at once that they are much."""

    GIB = 1024 * MIB

    @pytest.mark.parametrize("declared", [16, 1024 * MIB, 2**40, 2**63])
    @pytest.mark.parametrize("pack", [zstandard.compress, lz4.frame.compress])
    @pytest.mark.heavy
    def test_one_gib(self, tmp_path: Path, pack: object, declared: int) -> None:
        bomb = pack(bytes(self.GIB))  # type: ignore[operator]
        compression = "zstd" if pack is zstandard.compress else "lz4"
        path = written(tmp_path, mcap([channel(1), chunk_of([], compression, data=bomb, size=declared)]))
        del bomb
        refused(path, within=1.0)

    def test_many_frames(self, tmp_path: Path) -> None:
        frames = zstandard.compress(bytes(100_000)) * 10_000
        path = written(tmp_path, mcap([channel(1), chunk_of([], "zstd", data=frames, size=4096)]))
        refused(path, within=1.0)
        frames = lz4.frame.compress(bytes(1000)) * 10_000
        path = written(tmp_path, mcap([channel(1), chunk_of([], "lz4", data=frames, size=4096)]))
        refused(path, within=1.0)

    @pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
    @pytest.mark.parametrize("wrong", [-1, 1, 100_000])
    def test_sizes_that_lie(self, tmp_path: Path, compression: str, wrong: int) -> None:
        size = sum(map(len, RECORDS)) + wrong
        path = written(tmp_path, mcap([channel(1), chunk_of(RECORDS, compression, crc=False, size=size)]))
        refused(path)

    @pytest.mark.parametrize("filler", [record(0x80, b""), channel(1), bytes(9)])
    @pytest.mark.heavy
    def test_records_without_end(self, tmp_path: Path, filler: bytes) -> None:
        path = written(tmp_path, mcap([channel(1), chunk_of([filler * (200 * MIB // len(filler))], "zstd")]))
        refused(path, within=10.0)

    def test_a_chunk_that_compresses_well_is_read(self, tmp_path: Path) -> None:
        big = message(1, 5, bytes(20 * MIB))
        assert times_of(written(tmp_path, mcap([channel(1), chunk_of([big], "zstd")]))) == [5]


class TestGarbage:
    def test_alone(self, tmp_path: Path) -> None:
        refused(written(tmp_path, random.Random(1).randbytes(MIB)), "does not begin with the magic bytes")

    @pytest.mark.parametrize("seed", range(5))
    def test_within_a_file(self, tmp_path: Path, seed: int) -> None:
        garbage = random.Random(seed).randbytes(MIB)
        refused(written(tmp_path, MAGIC + garbage))
        refused(written(tmp_path, MAGIC + garbage + MAGIC))
        refused(written(tmp_path, mcap([channel(1), garbage])))
        refused(written(tmp_path, mcap([channel(1), message(1, 0)], [garbage])))
        refused(written(tmp_path, mcap([channel(1), chunk_of([garbage])])))

    def test_behind_the_end(self, tmp_path: Path) -> None:
        refused(written(tmp_path, sound() + b"xyz"), "does not end with the magic bytes")

    def test_zeros(self, tmp_path: Path) -> None:
        refused(written(tmp_path, MAGIC + bytes(MIB) + MAGIC))

    def test_other_formats_are_named(self, tmp_path: Path) -> None:
        assert "zstd -d" in str(refused(written(tmp_path, zstandard.compress(zstandard.compress(sound())))))
        assert "ROS 1 bag" in str(refused(written(tmp_path, b"#ROSBAG V2.0\n")))
        assert "binary mode" in str(refused(written(tmp_path, sound().replace(b"\r\n", b"\n"))))
        assert "empty" in str(refused(written(tmp_path, b"")))


class TestContradictions:
    def test_a_message_of_no_channel(self, tmp_path: Path) -> None:
        refused(written(tmp_path, mcap([channel(1), message(2, 0)])), "undefined channel")

    def test_a_channel_defined_twice(self, tmp_path: Path) -> None:
        refused(written(tmp_path, mcap([channel(1), channel(1, "/other")])), "two different definitions")
        refused(written(tmp_path, mcap([schema(1), schema(1, "other")])), "two different definitions")

    def test_schema_number_zero(self, tmp_path: Path) -> None:
        refused(written(tmp_path, mcap([schema(0)])), "means no schema")

    def test_an_unknown_compression(self, tmp_path: Path) -> None:
        body = struct.pack("<QQQI", 0, 0, 10, 0) + b"\3\0\0\0bz2" + struct.pack("<Q", 10) + bytes(10)
        error = refused(written(tmp_path, mcap([channel(1), record(6, body)])), "'bz2'")
        assert isinstance(error, UnsupportedError)

    def test_a_chunk_in_a_chunk(self, tmp_path: Path) -> None:
        inner = chunk_of(RECORDS).chunk
        refused(written(tmp_path, mcap([channel(1), chunk_of([inner])])), "another chunk inside")

    def test_a_message_without_room_for_its_times(self, tmp_path: Path) -> None:
        short = record(5, b"\1\0" + bytes(10))
        refused(written(tmp_path, mcap([channel(1), short])), "fewer than 22 bytes")
        refused(written(tmp_path, mcap([channel(1), chunk_of([short])])), "fewer than 22 bytes")

    def test_the_crc_of_an_attachment(self, tmp_path: Path) -> None:
        refused(written(tmp_path, mcap([attachment(b"data", crc=7)])), "CRC of an attachment")
        assert times_of(written(tmp_path, mcap([attachment(b"data", crc=0)]))) == []

    def test_the_crc_of_the_data_section(self, tmp_path: Path) -> None:
        good = mcap([channel(1), message(1, 5, b"right")], data_crc=True)
        refused(written(tmp_path, good.replace(b"right", b"wrong")), "CRC of the data section")

    @pytest.mark.parametrize(("messages", "chunks", "what"), [(13, 1, "messages"), (12, 2, "chunks")])
    def test_a_summary_that_counts_more(self, tmp_path: Path, messages: int, chunks: int, what: str) -> None:
        summary = [channel(1), statistics(messages, 1, chunks)]
        refused(written(tmp_path, mcap([channel(1), chunk_of(RECORDS)], summary)), f"counts .* {what}, but")

    def test_data_behind_its_end(self, tmp_path: Path) -> None:
        refused(written(tmp_path, mcap([channel(1), record(15, bytes(4)), message(1, 0)])), "follow the end")

    def test_messages_in_the_summary(self, tmp_path: Path) -> None:
        refused(written(tmp_path, mcap([channel(1)], [message(1, 0)])), "is in the summary")

    def test_no_header(self, tmp_path: Path) -> None:
        data = sound()
        refused(written(tmp_path, MAGIC + data[len(MAGIC) + len(header()) :]), "instead of its Header")


def test_a_file_that_changes_after_it_was_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkmill.readers.mcap.plan.SPLIT_BYTES", 100)
    chunks: list[ChunkOf] = [chunk_of(RECORDS), chunk_of(RECORDS)]
    path = written(tmp_path, mcap([channel(1), *chunks], [channel(1)]))
    source = McapSource(str(path), McapOptions.checked(decoders=["raw"]))
    first, *_ = source.splits()
    data = bytearray(path.read_bytes())
    data[data.index(chunks[0].chunk)] = 0x86
    path.write_bytes(data)
    with pytest.raises(ReadError, match="expected 1 chunks here, but found 0"):
        list(source.read(first))


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="cannot be opened"):
        McapSource(str(tmp_path)).splits()
    with pytest.raises(SourceMissingError):
        McapSource(str(tmp_path / "missing.mcap")).splits()


@pytest.mark.heavy
def test_as_many_channels_as_there_are_ids(tmp_path: Path) -> None:
    channels = [channel(i, f"/t{i}") for i in range(65_536)]
    begin = time.monotonic()
    assert times_of(written(tmp_path, mcap([*channels, message(7, 1)], channels))) == [1]
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_several_threads_find_what_one_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compression: str) -> None:
    chunks = [chunk_of([message(1, t, bytes(range(40)))], compression) for t in range(8)]
    data = mcap(
        [schema(1), channel(1, schema_id=1), *chunks], [schema(1), channel(1, schema_id=1), statistics(8, 1, 8)]
    )
    chance = random.Random(11)
    found = set()
    monkeypatch.setattr("chunkmill.readers.mcap.records._SMALLEST_AT_ONCE", 1)

    def outcome(path: Path, threads: int) -> object:
        monkeypatch.setattr("chunkmill.readers.mcap.reader._threads", lambda _: threads)
        try:
            return times_of(path)
        except (ReadError, UnsupportedError) as error:
            return type(error), error.message, error.offset

    for _ in range(60):
        damaged = bytearray(data)
        for at in chance.sample(range(len(MAGIC), len(data)), 3):
            damaged[at] ^= 1 << chance.randrange(8)
        path = written(tmp_path, bytes(damaged))
        one = outcome(path, 1)
        assert outcome(path, 4) == one
        found.add(str(one))
    assert len(found) > 10


INDEXED = [message(1, 10), message(2, 20, b"two"), message(1, 30), message(1, 40)]
FIRSTS = [sum(map(len, INDEXED[:i])) for i in range(len(INDEXED))]


def index_of(channel_id: int, *pairs: tuple[int, int], size: int | None = None) -> bytes:
    data = b"".join(struct.pack("<QQ", *pair) for pair in pairs)
    return record(7, struct.pack("<HI", channel_id, len(data) if size is None else size) + data)


ONE = index_of(1, (10, FIRSTS[0]), (30, FIRSTS[2]), (40, FIRSTS[3]))
TWO = index_of(2, (20, FIRSTS[1]))
INDEXES: dict[str, tuple[list[bytes], list[tuple[int | None, str]]]] = {
    "right": ([TWO, ONE], []),
    "in another order": ([TWO, index_of(1, (40, FIRSTS[3]), (10, FIRSTS[0]), (30, FIRSTS[2]))], []),
    "none": ([], []),
    "another time": (
        [index_of(1, (10, 0), (31, FIRSTS[2]), (40, FIRSTS[3])), TWO],
        [(0, "channel 1 has wrong log times of 1 message, first 31 instead of 30")],
    ),
    "no message there": (
        [ONE, index_of(2, (20, FIRSTS[1] + 1))],
        [
            (1, "channel 2 lists 1 message missing from the chunk"),
            (None, "leave out 1 message of channel 2"),
        ],
    ),
    "far behind": ([ONE, TWO, index_of(3, (1, 2**64 - 1))], [(2, "channel 3 lists 1 message")]),
    "of another channel": (
        [index_of(2, (10, 0), (30, FIRSTS[2]), (40, FIRSTS[3])), TWO],
        [(0, "channel 2 lists 3 messages missing from the chunk, the first at byte 0")],
    ),
    "one left out": (
        [index_of(1, (10, 0), (40, FIRSTS[3])), TWO],
        [(None, "leave out 1 message of channel 1")],
    ),
    "a channel left out": ([ONE], [(None, "leave out 1 message of channel 2")]),
    "twice": ([ONE, index_of(2, (20, FIRSTS[1]), (20, FIRSTS[1]))], [(1, "lists 1 message more than once")]),
    "malformed": ([ONE, index_of(2, (20, FIRSTS[1]), size=15)], [(1, "but 15 bytes of entries")]),
    "longer than it is": ([index_of(1, (10, 0), size=16 * 3), TWO], [(0, "but 48 bytes of entries")]),
    "too short": ([ONE, record(7, b"\2\0\1"), TWO], [(1, "a MessageIndex record is malformed: it has 3 bytes")]),
}


@pytest.mark.parametrize("crc", [True, False], ids=["CRC", "no CRC"])
@pytest.mark.parametrize("kind", INDEXES)
@pytest.mark.filterwarnings("ignore::chunkmill.engine.ReadWarning")
def test_verify_compares_message_indexes_with_the_messages(kind: str, crc: bool, tmp_path: Path) -> None:
    indexes, expected = INDEXES[kind]
    made = chunk_of(INDEXED, crc=crc)._replace(indexes=b"".join(indexes))
    before = [channel(1), channel(2), channel(3)]
    path = written(tmp_path, mcap([*before, made, chunk_of([message(1, 50)])]))
    chunk_at = path.read_bytes().index(made.chunk)
    places = [chunk_at + len(made.chunk) + sum(map(len, indexes[:i])) for i in range(len(indexes))]
    found = verify(path)
    told = [(fault.offset, fault.message) for fault in found.faults]
    assert len(told) == len(expected), told
    for place, said in expected:
        offset = chunk_at if place is None else places[place]
        assert any(at == offset and said in message for at, message in told), told
    assert found.rows >= 5


def test_an_index_that_is_compared_keeps_other_faults(tmp_path: Path) -> None:
    wrong = chunk_of(INDEXED)._replace(indexes=index_of(1, (11, 0)) + TWO)
    cut = chunk_of([message(1, 50)], data=b"\x28\xb5\x2f\xfd damaged")
    found = verify(written(tmp_path, mcap([channel(1), channel(2), wrong, cut])))
    said = " ".join(fault.message for fault in found.faults)
    assert all(part in said for part in ("has wrong log times", "leave out 2 messages", "does not decompress")), said


def chunks_of_threads(tmp_path: Path, number: int, size: int) -> Path:
    """Chunks of one message each, in a file of which four are decompressed at once."""
    head = [schema(1), channel(1, schema_id=1)]
    chunks = [chunk_of([message(1, t, bytes(size))], "zstd") for t in range(number)]
    return written(tmp_path, mcap([*head, *chunks], [*head, statistics(number, 1, number)]))


def running() -> int:
    return sum(thread.name.startswith("chunkmill-chunks") for thread in threading.enumerate())


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_threads_end_with_who_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: type[BaseException]
) -> None:
    path = chunks_of_threads(tmp_path, 200, MIB // 2)  # three arenas
    monkeypatch.setattr("chunkmill.readers.mcap.reader._threads", lambda _: 4)
    threads: list[int] = []
    numbers = count()  # one for each call, whichever threads make them at once
    real = ChunkPool._is_done

    def slow(self: ChunkPool, *arguments: Any) -> bool:
        threads.append(running())
        if next(numbers) == 100:
            _thread.interrupt_main()  # while chunks are waited for
        time.sleep(0.02)
        return real(self, *arguments)

    def read() -> None:
        for _ in McapReader(path).stream():
            if threads and error is ValueError:
                raise ValueError

    monkeypatch.setattr(ChunkPool, "_is_done", slow)
    begin = time.monotonic()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # commands that ran in this process left theirs
    try:
        with pytest.raises(error):
            read()
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
    while running() and time.monotonic() - begin < 10:  # the signal may come while they are waited for
        time.sleep(0.01)
    assert running() == 0
    assert max(threads) == 4
    assert len(threads) < 190
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(("size", "most"), [(40, 0), (20_000, 34 * MIB // 20_000)])
def test_chunks_that_wait_for_a_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, most: int) -> None:
    path = chunks_of_threads(tmp_path, 2_500, size)
    monkeypatch.setattr("chunkmill.readers.mcap.reader._threads", lambda _: 4)
    waiting = [0]
    real = ChunkPool.begin

    def counted(self: ChunkPool, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        waiting.append(len(self._begun))

    monkeypatch.setattr(ChunkPool, "begin", counted)
    assert len(times_of(path)) == 2_500
    assert most / 2 <= max(waiting) <= most
