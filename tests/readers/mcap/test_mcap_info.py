"""What ``info()`` tells beyond the summary: rates, gaps, compression."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from chunkmill.engine.errors import SourceMissingError
from chunkmill.readers import McapReader, inspect
from chunkmill.readers.mcap import ChannelTiming
from chunkmill.readers.mcap import info as info_module

from tests.conftest import DATA
from tests.readers.mcap.mcap_bytes import channel, chunk_of, log_times, mcap, message, record, written

SECOND = 10**9
DEFINITIONS = (channel(1, "/a", "json"), channel(2, "/b", "json"), channel(3, "/c", "json"))
RUNS = [
    [message(1, t * SECOND) for t in (10, 11, 12)] + [message(2, 11 * SECOND)],
    [message(1, t * SECOND) for t in (20, 21)],
    [message(1, t * SECOND) for t in (14, 13)],
]


def recording(*, summary: bool, index: bool = True, counts: tuple[int, int] = (7, 1)) -> bytes:
    pairs = struct.pack("<IHQHQ", 20, 1, counts[0], 2, counts[1])
    head = struct.pack("<QHIIIIQQ", sum(counts), 0, 3, 0, 0, 3, 10 * SECOND, 21 * SECOND)
    runs = [chunk_of(run, "zstd", index=index) for run in RUNS]
    return mcap([*DEFINITIONS, *runs], [*DEFINITIONS, record(11, head + pairs)] if summary else None)


@pytest.mark.parametrize("summary", [True, False])
def test_rates_and_gaps(tmp_path: Path, summary: bool) -> None:
    info = McapReader(written(tmp_path, recording(summary=summary))).info(timing=True)
    first, second, third = info.channels
    assert first.timing == ChannelTiming(10 * SECOND, 21 * SECOND, 6 * SECOND, 14 * SECOND)
    assert first.rate == pytest.approx(6 / 11)
    assert second.timing == ChannelTiming(11 * SECOND, 11 * SECOND, None, None)
    assert (second.rate, third.timing, third.rate, third.count) == (None, None, None, 0)
    assert info.scanned is not summary


def test_nothing_is_read_for_them_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info_module, "indexed_times", lambda _: pytest.fail("read"))
    assert all(c.timing is None for c in McapReader(written(tmp_path, recording(summary=True))).info().channels)


def test_without_message_indexes_nothing_is_known(tmp_path: Path) -> None:
    info = McapReader(written(tmp_path, recording(summary=True, index=False))).info(timing=True)
    assert all(c.timing is None for c in info.channels)


def test_an_index_that_tells_less_than_there_is_is_not_believed(tmp_path: Path) -> None:
    first, second, _ = McapReader(written(tmp_path, recording(summary=True, counts=(8, 1)))).info(timing=True).channels
    assert first.timing is None
    assert second.timing is not None


@pytest.mark.parametrize("summary", [True, False])
def test_too_many_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, summary: bool) -> None:
    monkeypatch.setattr(info_module, "MAX_INDEXED_TIMES", 5)
    info = McapReader(written(tmp_path, recording(summary=summary))).info(timing=True)
    assert all(c.timing is None for c in info.channels)


def test_compression(tmp_path: Path) -> None:
    for summary in (True, False):
        info = McapReader(written(tmp_path, recording(summary=summary))).info()
        sizes = [chunk_of(run, "zstd") for run in RUNS]
        assert info.compressed_bytes == sum(run.compressed for run in sizes)
        assert info.compression_ratio == info.uncompressed_bytes / info.compressed_bytes


def test_of_a_recording() -> None:
    reader = McapReader(DATA / "demo.mcap", decoders=["raw"])
    chunks = reader.stream().to_chunks()
    for told in reader.info(timing=True).channels:
        times = np.sort([t for c in chunks if c.entity_path == told.topic for t in log_times(c)])
        assert told.timing is not None
        gaps = np.diff(times)
        assert told.timing == (times[0], times[-1], gaps.max(), times[gaps.argmax()])


def test_topics_and_columns_are_known_before_reading(data: Path, tmp_path: Path) -> None:
    reader = McapReader(data / "demo.mcap", include_topic_regex=["imu"])
    assert reader.topics == sorted(channel.topic for channel in reader.info().channels)
    assert len(reader.topics) == 6 and "/nissan/vehicle_speed" in reader.topics
    assert [c.entity_path for c in reader.schema().component_columns()] == ["/nissan/gps/duro/imu"]
    assert [c.name for c in reader.schema().index_columns()] == ["message_log_time", "message_publish_time"]
    bare = written(tmp_path, mcap([channel(2, "/b"), channel(1, "/a"), message(1, 5), channel(3, "/a")]))
    assert McapReader(bare).topics == ["/a", "/b"]


def test_what_inspect_shows_is_an_object(data: Path) -> None:
    report = inspect(data / "demo.mcap")
    assert report.format == "mcap" and report == inspect(str(data / "demo.mcap"))
    assert [e.path for e in report.stores[0].entities] == McapReader(data / "demo.mcap").topics
    with pytest.raises(SourceMissingError):
        inspect(data / "nothing.mcap")
