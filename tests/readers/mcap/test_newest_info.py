"""``McapInfo`` by the names of Rerun 0.41."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.readers import McapChunkInfo, McapCompressionInfo, McapReader, McapSchemaInfo
from places import recordings

mcap = pytest.importorskip("mcap.reader")


@pytest.mark.parametrize("path", recordings("mcap/*.mcap"), ids=lambda path: path.name)
def test_names_of_rerun_agree_with_the_official_reader(path: Path) -> None:
    with path.open("rb") as file:
        try:
            summary = mcap.make_reader(file).get_summary()
            info = McapReader(path).info()
        except Exception as error:  # noqa: BLE001 (what others refuse is no matter here)
            pytest.skip(str(error))
    if summary is None or summary.statistics is None or info.scanned:
        pytest.skip("no summary")
    statistics = summary.statistics
    assert (info.message_count, info.channel_count) == (statistics.message_count, len(summary.channels))
    assert (info.schema_count, info.attachment_count) == (len(summary.schemas), statistics.attachment_count)
    assert (info.metadata_count, info.statistics_present, info.summary_source) == (
        statistics.metadata_count,
        True,
        "embedded",
    )
    if statistics.message_count:
        assert (info.message_start_time_ns, info.message_end_time_ns) == (
            statistics.message_start_time,
            statistics.message_end_time,
        )
        assert info.duration_ns == statistics.message_end_time - statistics.message_start_time
    for channel in info.channel_info:
        theirs = summary.channels[channel.id]
        assert (channel.topic, channel.message_encoding, dict(channel.metadata)) == (
            theirs.topic,
            theirs.message_encoding,
            theirs.metadata,
        )
        schema = summary.schemas.get(theirs.schema_id)
        assert channel.schema == (
            None if schema is None else McapSchemaInfo(schema.id, schema.name, schema.encoding, len(schema.data))
        )
        if channel.frequency_hz is not None:
            seconds, count = (info.duration_ns or 0) / 1e9, channel.message_count or 0
            assert channel.frequency_hz == ((count - 1) / seconds, count / seconds)
    sizes = [(c.uncompressed_size, c.compressed_size) for c in summary.chunk_indexes]
    assert info.chunk_info.count == len(sizes)
    assert info.chunk_info.max_uncompressed_size_bytes == max((size for size, _ in sizes), default=None)
    assert sum(c.compressed_size_bytes for c in info.compression_info) == sum(size for _, size in sizes)


def test_chunks_that_overlap_and_compression(data: Path) -> None:
    info = McapReader(data / "generated/rob_comp_zstd.mcap").info()
    (codec,) = info.compression_info
    assert codec.codec == "zstd" and codec.savings_ratio is not None and codec.savings_ratio > 0
    assert McapCompressionInfo("", 0, 0, 0).savings_ratio is None
    assert not info.chunk_info.has_overlapping_time_ranges
    scanned = McapReader(data / "generated/rob_no_chunk_index.mcap").info()
    assert scanned.summary_source == "reconstructed"
    assert scanned.chunk_info == McapChunkInfo(1, None, None, False)
