"""Cut and damaged files give everything that is still there, and a report."""

from __future__ import annotations

import random
import struct
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.readers import McapReader
from chunkmill.readers.mcap import McapRecoveryReport
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.comparison import cells
from tests.conftest import DATA
from tests.readers.mcap.mcap_bytes import (
    MAGIC,
    ChunkOf,
    attachment,
    channel,
    chunk_of,
    header,
    log_times,
    mcap,
    message,
    record,
    schema,
    statistics,
    written,
)

DEFINITIONS = (schema(1, "S"), channel(1, "/a", "json", 1), channel(2, "/b", "json", 1))
COUNT = 6
COMPRESSIONS = ["", "lz4", "zstd"]


def runs_of(compression: str, *, crc: bool = True) -> list[ChunkOf]:
    """Chunks of ten messages each, of random bytes."""
    fill = random.Random(7)
    return [
        chunk_of([message(1 + t % 2, 10 * i + t, fill.randbytes(300)) for t in range(10)], compression, crc=crc)
        for i in range(COUNT)
    ]


def recording(runs: Sequence[ChunkOf | bytes], *, summary: bool = True) -> bytes:
    return mcap([*DEFINITIONS, *runs], [*DEFINITIONS, statistics(10 * COUNT, 2, COUNT)] if summary else None)


def recovered(path: Path, **options: object) -> tuple[list[Chunk], list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reader = McapReader(path, recover=True, **({"decoders": ["raw"]} | options))  # type: ignore[arg-type]
        chunks = reader.stream().to_chunks(executor="inline")
    return chunks, [str(w.message) for w in caught if w.category is ReadWarning]


def times(chunks: Sequence[Chunk]) -> list[int]:
    return sorted(t for chunk in chunks for t in log_times(chunk))


def report_on(path: Path) -> McapRecoveryReport:
    return McapReader(path, recover=True).recovery_report()


class TestWholeFiles:
    @pytest.mark.parametrize("summary", [True, False])
    def test_they_are_read_as_ever(self, tmp_path: Path, summary: bool) -> None:
        path = written(tmp_path, recording([attachment(b"x"), *runs_of("zstd")], summary=summary))
        decoders = ["raw", "attachments", "recording_info", "schema", "stats"]
        chunks, said = recovered(path, decoders=decoders)
        assert cells(chunks) == cells(McapReader(path, decoders=decoders).stream().to_chunks())
        assert said == []
        report = report_on(path)
        assert report.is_whole
        assert (report.messages, report.chunks, report.last_times) == (60, 6, {"message_log_time": 59})

    def test_a_real_one(self) -> None:
        chunks, said = recovered(DATA / "demo.mcap", decoders=McapReader.available_decoders())
        assert cells(chunks) == cells(McapReader(DATA / "demo.mcap").stream().to_chunks())
        assert said == []


class TestCuts:
    @pytest.mark.parametrize("compression", COMPRESSIONS)
    @settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(where=st.floats(0, 1, exclude_max=True), beside=st.sampled_from([-1, 0, 1, 500]))
    def test_all_chunks_before_the_cut_come_back(
        self, tmp_path: Path, compression: str, where: float, beside: int
    ) -> None:
        runs = runs_of(compression)
        data = recording(runs)
        ends = [data.index(run.chunk) + len(run.chunk) for run in runs]
        cut = ends[int(where * COUNT)] + beside
        path = written(tmp_path, data[:cut])
        with pytest.raises(ReadError):
            McapReader(path, decoders=["raw"]).stream().to_chunks()
        chunks, (line,) = recovered(path)
        whole = 10 * sum(end <= cut for end in ends)
        found = times(chunks)
        assert found[:whole] == list(range(whole))
        assert found == list(range(len(found)))
        assert len(found) <= whole + 10
        assert "does not end with the magic bytes" in line
        assert f"recovered {len(found):,} messages" in line
        report = report_on(path)
        assert (report.messages, report.is_whole, report.size) == (len(found), False, cut)
        assert str(report) == line

    @pytest.mark.parametrize("compression", COMPRESSIONS)
    def test_a_part_of_the_chunk_at_the_cut(self, tmp_path: Path, compression: str) -> None:
        fill = random.Random(3)
        run = chunk_of([message(1, t, fill.randbytes(20_000)) for t in range(50)], compression)
        data = recording([run])
        path = written(tmp_path, data[: data.index(run.chunk) + len(run.chunk) * 3 // 4])
        chunks, (line,) = recovered(path)
        found = times(chunks)
        assert found == list(range(len(found)))
        assert 20 < len(found) < 40
        assert f"doubtful at byte {data.index(run.chunk):,}" in line
        assert f"{len(found)} messages of the chunk were kept" in line

    def test_messages_outside_of_chunks(self, tmp_path: Path) -> None:
        data = mcap([*DEFINITIONS, *[message(1, t, bytes(100)) for t in range(100)]])
        path = written(tmp_path, data[: len(data) // 2])
        chunks, (line,) = recovered(path)
        found = times(chunks)
        assert found == list(range(len(found)))
        assert 40 < len(found) < 50
        assert "a record Message claims 122 bytes" in line

    def test_in_the_summary_nothing_is_lost(self, tmp_path: Path) -> None:
        data = recording(runs_of("zstd"))
        for cut in (1, 8, 9, 40, 100):
            chunks, (line,) = recovered(written(tmp_path, data[:-cut]))
            assert times(chunks) == list(range(60))
            assert "lost at" not in line and "doubtful" not in line

    def test_what_is_told_of_the_file_is_told_of_what_is_left(self, tmp_path: Path) -> None:
        data = recording(runs_of("zstd"))
        path = written(tmp_path, data[: data.index(runs_of("zstd")[3].chunk)])
        chunks, _ = recovered(path, decoders=["recording_info", "schema", "stats"])
        assert [c.entity_path for c in chunks] == ["/__mcap_properties", "/a", "/b", "/__mcap_properties"]
        assert chunks[-1].to_record_batch().column("McapStatistics:message_count").to_pylist() == [[30]]

    def test_bytes_behind_its_end(self, tmp_path: Path) -> None:
        chunks, (line,) = recovered(written(tmp_path, recording(runs_of("zstd")) + bytes(1000)))
        assert times(chunks) == list(range(60))
        assert "data was appended" in line or "does not end with the magic bytes" in line


class TestDamage:
    @pytest.mark.parametrize("summary", [True, False])
    @pytest.mark.parametrize("compression", ["lz4", "zstd"])
    def test_a_chunk_that_does_not_decompress_costs_itself_alone(
        self, tmp_path: Path, compression: str, summary: bool
    ) -> None:
        runs = runs_of(compression)
        data = bytearray(recording(runs, summary=summary))
        at = data.index(runs[2].chunk)
        data[at + 60 : at + len(runs[2].chunk)] = b"\xff" * (len(runs[2].chunk) - 60)
        chunks, (line,) = recovered(written(tmp_path, bytes(data)))
        assert [t for t in times(chunks) if not 20 <= t < 30] == [*range(20), *range(30, 60)]
        assert f"at byte {at:,}" in line
        report = report_on(tmp_path / "x.mcap")
        assert report.whole_until == at
        if summary:
            assert "10 messages are missing" in line

    def test_a_wrong_crc_keeps_the_messages_in_doubt(self, tmp_path: Path) -> None:
        runs = runs_of("")
        data = bytearray(recording(runs))
        data[data.index(runs[2].chunk) + 200] ^= 1
        chunks, (line,) = recovered(written(tmp_path, bytes(data)))
        assert times(chunks) == list(range(60))
        assert "doubtful" in line
        assert "the CRC of a chunk does not match its data; 10 messages of the chunk were kept" in line

    def test_a_record_in_a_chunk_that_runs_past_its_end(self, tmp_path: Path) -> None:
        runs = runs_of("")
        good = [message(1, 100), message(1, 101)]
        bad = chunk_of([*good, message(1, 102)[:-2]])
        chunks, (line,) = recovered(written(tmp_path, recording([*runs, bad])))
        assert times(chunks) == [*range(60), 100, 101]
        assert "a record in it runs past its end; 2 messages of the chunk were kept" in line

    @pytest.mark.parametrize("summary", [True, False])
    @pytest.mark.parametrize("compression", COMPRESSIONS)
    @pytest.mark.parametrize("garbage", [bytes(5000), b"\xff" * 5000, random.Random(1).randbytes(5000)])
    def test_garbage_between_records(self, tmp_path: Path, compression: str, summary: bool, garbage: bytes) -> None:
        runs = runs_of(compression)
        data = recording([*runs[:3], garbage, *runs[3:]], summary=summary)
        chunks, (line,) = recovered(written(tmp_path, data))
        assert times(chunks) == list(range(60))
        assert "5,000 bytes were skipped" in line
        assert report_on(tmp_path / "x.mcap").whole_until == data.index(runs[2].data) + len(runs[2].data)

    @pytest.mark.parametrize("summary", [True, False])
    def test_a_length_that_is_wrong(self, tmp_path: Path, summary: bool) -> None:
        runs = runs_of("zstd")
        for length in (0, 1, 100, len(runs[2].chunk) + 1, 10**6, 2**63, 2**64 - 1):
            data = bytearray(recording(runs, summary=summary))
            at = data.index(runs[2].chunk)
            data[at + 1 : at + 9] = struct.pack("<Q", length)
            chunks, said = recovered(written(tmp_path, bytes(data)))
            assert set(times(chunks)) >= {*range(20), *range(30, 60)}
            assert len(said) == 1

    def test_garbage_among_messages_outside_of_chunks(self, tmp_path: Path) -> None:
        messages = [message(1, t) for t in range(20)]
        garbage = random.Random(2).randbytes(1000)
        data = mcap([*DEFINITIONS, *messages[:10], garbage, *messages[10:]])
        chunks, (line,) = recovered(written(tmp_path, data))
        assert times(chunks) == list(range(20))
        assert "1,000 bytes were skipped" in line

    def test_a_header_that_is_gone(self, tmp_path: Path) -> None:
        data = bytearray(recording(runs_of("zstd"), summary=False))
        data[8:40] = bytes(32)
        chunks, (line,) = recovered(written(tmp_path, bytes(data)))
        assert times(chunks) == list(range(60))
        assert "lost at byte 8" in line

    def test_messages_of_channels_that_are_gone(self, tmp_path: Path) -> None:
        data = mcap([channel(1, "/a"), message(1, 0), message(9, 1), message(9, 2)])
        chunks, (line,) = recovered(written(tmp_path, data))
        assert times(chunks) == [0]
        assert "2 messages belong to undefined channels" in line

    def test_an_attachment_and_metadata(self, tmp_path: Path) -> None:
        bad = [attachment(b"abc", crc=1), record(12, b"\xff" * 20)]
        path = written(tmp_path, mcap([*DEFINITIONS, attachment(b"good"), *bad, *runs_of("zstd")]))
        chunks, (line,) = recovered(path, decoders=["attachments", "metadata", "raw"])
        assert times([c for c in chunks if not c.is_static]) == list(range(60))
        (static,) = [c for c in chunks if c.is_static]
        assert static.to_record_batch().column("data").to_pylist() == [[list(b"good")]]
        assert "the CRC of an attachment" in line and "a Metadata record is malformed" in line

    def test_a_section_whose_only_checksum_does_not_match(self, tmp_path: Path) -> None:
        data = bytearray(mcap([*DEFINITIONS, message(1, 0, b"abcdef")], data_crc=True))
        data[data.index(b"abcdef")] ^= 1
        chunks, (line,) = recovered(written(tmp_path, bytes(data)))
        assert times(chunks) == [0]
        assert "the CRC of the data section does not match" in line

    def test_a_range_of_times(self, tmp_path: Path) -> None:
        data = recording(runs_of("zstd"))
        chunks, _ = recovered(written(tmp_path, data[:-300]), start_time_ns=15, end_time_ns=32)
        assert times(chunks) == list(range(15, 32))

    def test_a_thousand_places_are_kept(self, tmp_path: Path) -> None:
        parts = [b"".join((attachment(b"x", crc=1), message(1, t))) for t in range(1100)]
        chunks, (line,) = recovered(written(tmp_path, mcap([*DEFINITIONS, *parts])))
        assert len(times(chunks)) == 1100
        assert line.endswith("and 997 more places")

    def test_more_places_than_can_be_looked_at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("chunkmill.readers.mcap.recovery._MOST_TRIES", 20)
        runs = runs_of("zstd")
        junk = [b"\0" + b"".join(message(1, 1000 + 3 * t + k) for k in range(3)) for t in range(50)]
        data = recording([*runs[:3], b"".join(junk), *runs[3:]])
        chunks, (line,) = recovered(written(tmp_path, data))
        found = times(chunks)
        assert [t for t in found if t < 1000] == list(range(60))
        assert 9 < sum(t >= 1000 for t in found) < 100
        assert "there are too many damaged places" in str(report_on(tmp_path / "x.mcap").damaged)
        assert "more places" in line

    @pytest.mark.heavy
    def test_many_damaged_places_take_little_time(self, tmp_path: Path) -> None:
        junk = b"".join(b"\0" * (t % 3 == 0) + message(1, t) for t in range(9000))
        path = written(tmp_path, mcap([*DEFINITIONS, junk]))
        begin = time.monotonic()
        chunks, _ = recovered(path)
        assert times(chunks) == list(range(9000))
        assert time.monotonic() - begin < 10


class TestWhatStaysAnError:
    @pytest.mark.parametrize("data", [b"", b"#ROSBAG V2.0\n", b"not a recording", MAGIC[:4]])
    def test_what_is_no_mcap(self, tmp_path: Path, data: bytes) -> None:
        with pytest.raises(ReadError):
            recovered(written(tmp_path, data))

    def test_only_a_beginning(self, tmp_path: Path) -> None:
        for data in (MAGIC, MAGIC + header(), MAGIC + header()[:5]):
            chunks, said = recovered(written(tmp_path, data))
            assert chunks == []
            assert len(said) == 1


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1))
def test_any_damage_gives_a_subset_and_a_report(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(recording(runs_of(chance.choice(COMPRESSIONS)), summary=chance.random() < 0.5))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(MAGIC), len(data))
        size = chance.choice([1, 8, 100, 3000])
        data[at : at + size] = chance.randbytes(chance.choice([size, size, 0, 2 * size]))
    chunks, _ = recovered(written(tmp_path, bytes(data)))
    assert len(times(chunks)) <= 10 * COUNT + 4
    assert report_on(tmp_path / "x.mcap").messages == len(times(chunks))
