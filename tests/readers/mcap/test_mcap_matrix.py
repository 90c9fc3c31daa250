"""Every recording there is, message by message, against the official library."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from chunkmill.engine.chunk import Chunk, parse_entity_path
from chunkmill.engine.errors import ReadError
from chunkmill.readers.mcap import McapSource
from chunkmill.readers.mcap.decoders import McapOptions
from mcap.records import Channel, Message
from mcap.stream_reader import StreamReader
from places import DATA, recordings

DAMAGED = {
    "bitflip_in_zstd_chunk.mcap",
    "empty_file.mcap",
    "keelson__2024-05-15.mcap",
    "magic_only.mcap",
    "no_footer_all_chunks_intact.mcap",
    "rob_crc_chunk.mcap",
    "rob_crc_summary.mcap",
    "rob_empty0.mcap",
    "rob_magic.mcap",
    "rob_magic2.mcap",
    "rob_text.mcap",
    "rob_trail_garbage.mcap",
    "rob_trunc_half.mcap",
    "rob_trunc_tail1.mcap",
    "rob_trunc_tail40.mcap",
    "rob_zstd_corrupt.mcap",
    "rob_zstd_corrupt_2ndchunk.mcap",
    "trailing_garbage.mcap",
    "truncated_lz4_midchunk.mcap",
}
"""Damaged on purpose (or, for one, by a conversion of line ends)."""

Row = tuple[str, int, int, bytes]


def row(topic: str, log_time: int, publish_time: int, data: bytes) -> Row:
    return topic, log_time, publish_time, hashlib.blake2b(data, digest_size=12).digest()


def expected(path: Path) -> Counter[Row]:
    """Topic (as entity path), log time, publish time, data of every message, by the official library."""
    topics: dict[int, str] = {}
    rows: Counter[Row] = Counter()
    latest = 2**63 - 1
    with path.open("rb") as file:
        for record in StreamReader(file, validate_crcs=True).records:
            if isinstance(record, Channel):
                topics[record.id] = parse_entity_path(record.topic)
            elif isinstance(record, Message):
                times = min(record.log_time, latest), min(record.publish_time, latest)
                rows[row(topics[record.channel_id], *times, bytes(record.data))] += 1
    return rows


def rows_of(chunk: Chunk) -> list[Row]:
    batch = chunk.to_record_batch()
    log_times = batch.column("message_log_time").cast("int64").to_pylist()
    publish_times = batch.column("message_publish_time").cast("int64").to_pylist()
    column = batch.column("McapMessage:data")
    blobs = column.flatten()
    assert len(blobs) == len(column), "one blob in each row"
    offsets = blobs.offsets.to_numpy()
    data = blobs.values.to_numpy().tobytes()
    cells = [data[a:b] for a, b in pairwise(offsets.tolist())]
    assert sorted(zip(log_times, publish_times, strict=True)) == list(zip(log_times, publish_times, strict=True))
    return [row(chunk.entity_path, *cell) for cell in zip(log_times, publish_times, cells, strict=True)]


def read_raw(path: Path) -> Counter[Row]:
    source = McapSource(str(path), McapOptions.checked(decoders=["raw"]))
    return Counter(r for split in source.splits() for chunk in source.read(split) for r in rows_of(chunk))


def check(path: Path) -> None:
    if path.name not in DAMAGED:
        assert read_raw(path) == expected(path)
        return
    begin = time.process_time()
    with pytest.raises(ReadError) as caught:
        read_raw(path)
    assert time.process_time() - begin < 2
    assert caught.value.path == str(path)
    assert caught.value.offset is not None
    assert caught.value.hint


@pytest.mark.parametrize("path", recordings("*.mcap", "mcap/*.mcap", "mcap/derived/*.mcap"))
def test_recordings(path: Path) -> None:
    check(path)


@pytest.mark.filterwarnings("ignore:.*clamped to the latest time:chunkmill.engine.errors.ReadWarning")
@pytest.mark.parametrize("path", recordings("generated/*.mcap"))
def test_generated_edge_cases(path: Path) -> None:
    check(path)


CONFORMANCE = DATA / "mcap" / "conformance"


@pytest.mark.parametrize("case", sorted(p.name for p in CONFORMANCE.iterdir()))
def test_conformance(case: str) -> None:
    for path in (CONFORMANCE / case).iterdir():
        assert read_raw(path) == expected(path), path.name
