"""Files put together in unusual ways, all of them right: nothing is lost."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest
from chunkmill.engine.errors import ReadWarning
from chunkmill.readers.mcap import McapSource, plan, section

from tests.conftest import DATA
from tests.readers.mcap.mcap_bytes import (
    ChunkOf,
    attachment,
    channel,
    chunk_of,
    chunks_of,
    log_times,
    mcap,
    message,
    record,
    schema,
    statistics,
    times_of,
    written,
)

DEFINITIONS = [schema(1), channel(1, schema_id=1), channel(2, "/u")]


def run_of(first: int, count: int = 10, **how: object) -> ChunkOf:
    return chunk_of([message(1 + t % 2, t, b"x" * 50) for t in range(first, first + count)], **how)  # type: ignore[arg-type]


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SPLIT_BYTES", 1000)


def splits_of(path: Path) -> int:
    return len(McapSource(str(path)).splits())


def check_tiling(path: Path) -> None:
    """The splits follow each other from the header to the summary, and do not depend on who asks."""
    source = McapSource(str(path))
    splits = source.splits()
    assert all(a.end == b.start for a, b in pairwise(splits))
    assert sum(split.size for split in splits) == splits[-1].end - splits[0].start
    assert McapSource(str(path)).splits() == splits


@pytest.mark.usefixtures("small_splits")
class TestSplits:
    def test_an_indexed_file_is_divided(self, tmp_path: Path) -> None:
        runs = [run_of(10 * i) for i in range(6)]
        path = written(tmp_path, mcap([*DEFINITIONS, *runs], [*DEFINITIONS, statistics(60, 2, 6)]))
        assert splits_of(path) == 5
        check_tiling(path)
        assert times_of(path) == list(range(60))

    def test_a_chunk_that_the_index_forgot_is_read(self, tmp_path: Path) -> None:
        forgotten = run_of(20).data
        path = written(tmp_path, mcap([*DEFINITIONS, run_of(0), run_of(10), forgotten, run_of(30)], DEFINITIONS))
        assert splits_of(path) > 1
        assert times_of(path) == list(range(40))

    @pytest.mark.parametrize("place", [0, 1, 2, 3])
    def test_messages_between_chunks_are_read(self, tmp_path: Path, place: int) -> None:
        parts: list[bytes | ChunkOf] = [run_of(0), run_of(10), run_of(20)]
        parts.insert(place, message(2, 30) + message(1, 31))
        path = written(tmp_path, mcap(parts, DEFINITIONS))
        assert splits_of(path) > 1
        assert times_of(path) == list(range(32))

    def test_a_bare_message_of_a_channel_unknown_to_the_summary(self, tmp_path: Path) -> None:
        parts = [run_of(0), run_of(10), channel(3, "/late") + message(3, 20), run_of(30)]
        path = written(tmp_path, mcap(parts, DEFINITIONS))
        assert splits_of(path) == 1
        assert len(times_of(path)) == 31

    @pytest.mark.parametrize("missing", [0, 1, 2])
    def test_definitions_not_repeated_in_the_summary(self, tmp_path: Path, missing: int) -> None:
        summary = [d for i, d in enumerate(DEFINITIONS) if i != missing]
        path = written(tmp_path, mcap([*DEFINITIONS, run_of(0), run_of(10)], summary))
        assert splits_of(path) == 1
        assert times_of(path) == list(range(20))

    def test_no_message_indexes_and_no_statistics(self, tmp_path: Path) -> None:
        path = written(tmp_path, mcap([*DEFINITIONS, run_of(0, index=False), run_of(10, index=False)], DEFINITIONS))
        assert splits_of(path) == 1
        assert times_of(path) == list(range(20))

    @pytest.mark.parametrize("shift", [-1, 1, 9, 100_000, 2**63])
    def test_an_index_that_points_wrong(self, tmp_path: Path, shift: int) -> None:
        runs = [run_of(0), run_of(10), run_of(20)]
        good = mcap([*DEFINITIONS, *runs], DEFINITIONS)
        offset = good.index(runs[1].chunk)
        wrong = mcap([*DEFINITIONS, *(r.data for r in runs)], [*DEFINITIONS, *(r.entry(offset + shift) for r in runs)])
        path = written(tmp_path, wrong)
        assert splits_of(path) == 1
        assert times_of(path) == list(range(30))

    def test_an_index_out_of_file_order(self, tmp_path: Path) -> None:
        runs = [run_of(0), run_of(10), run_of(20)]
        good = mcap([*DEFINITIONS, *runs], DEFINITIONS)
        entries = [r.entry(good.index(r.chunk)) for r in reversed(runs)]
        path = written(tmp_path, mcap([*DEFINITIONS, *(r.data for r in runs)], [*DEFINITIONS, *entries]))
        assert splits_of(path) == 3
        assert times_of(path) == list(range(30))

    def test_chunks_guarded_by_the_crc_of_the_section_only(self, tmp_path: Path) -> None:
        runs = [run_of(10 * i, crc=False) for i in range(3)]
        path = written(tmp_path, mcap([*DEFINITIONS, *runs], DEFINITIONS, data_crc=True))
        assert splits_of(path) == 1
        assert times_of(path) == list(range(30))

    def test_many_records_outside_of_chunks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "MAX_GAP_RECORDS", 50)
        bare = b"".join(message(1, t) for t in range(20, 80))
        path = written(tmp_path, mcap([*DEFINITIONS, run_of(0), run_of(10), bare], DEFINITIONS))
        assert splits_of(path) == 1
        assert times_of(path) == list(range(80))


@pytest.mark.parametrize("split_bytes", [20_000, 300_000])
@pytest.mark.parametrize("group_bytes", [1, 100_000])
def test_rows_do_not_depend_on_splits_and_groups(
    monkeypatch: pytest.MonkeyPatch, split_bytes: int, group_bytes: int
) -> None:
    path = DATA / "demo.mcap"
    whole = times_of(path)
    monkeypatch.setattr(plan, "SPLIT_BYTES", split_bytes)
    monkeypatch.setattr(section, "GROUP_BYTES", group_bytes)
    check_tiling(path)
    assert times_of(path) == whole


@pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("crc", [True, False])
def test_compressions(tmp_path: Path, compression: str, index: bool, crc: bool) -> None:
    chunk = run_of(0, compression=compression, index=index, crc=crc)
    assert times_of(written(tmp_path, mcap([*DEFINITIONS, chunk]))) == list(range(10))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_chunk_of_several_compressed_frames(tmp_path: Path, compression: str) -> None:
    first, second = run_of(0, compression=compression), run_of(10, compression=compression)
    records = [message(1 + t % 2, t, b"x" * 50) for t in range(20)]
    frames = first.chunk[-first.compressed :] + second.chunk[-second.compressed :]
    chunk = chunk_of(records, compression, data=frames)
    assert times_of(written(tmp_path, mcap([*DEFINITIONS, chunk]))) == list(range(20))


def test_private_records_are_passed_over(tmp_path: Path) -> None:
    private = record(0x80, b"mine") + record(0xFF, b"") + record(0x42, b"later")
    parts = [private, *DEFINITIONS, chunk_of([private, message(1, 0), private, message(2, 1)]), private, message(1, 2)]
    path = written(tmp_path, mcap([*parts, private], [*DEFINITIONS, private]))
    assert times_of(path) == [0, 1, 2]


def test_records_with_fields_added_at_their_end(tmp_path: Path) -> None:
    longer = struct.pack("<BQ", 4, len(channel(1)) - 9 + 3) + channel(1)[9:] + b"new"
    chunk = chunk_of([message(1, 0)]).chunk
    chunk = struct.pack("<BQ", 6, len(chunk) - 9 + 5) + chunk[9:] + b"newer"
    assert times_of(written(tmp_path, mcap([longer, chunk]))) == [0]


def test_definitions_inside_of_chunks_only(tmp_path: Path) -> None:
    first = chunk_of([*DEFINITIONS, message(1, 0), message(2, 1)])
    second = chunk_of([message(2, 2), channel(3, "/w"), message(3, 3)])
    assert times_of(written(tmp_path, mcap([first, second], [], entries=False))) == [0, 1, 2, 3]


def test_bare_messages_of_every_size(tmp_path: Path) -> None:
    sizes = [0, 1, 100, 20_000, 5, 0, 300_000, 17, 70_000, 1] * 3
    between = [attachment(b"a") if t % 7 == 0 else b"" for t in range(len(sizes))]
    bare = b"".join(message(1, t, b"y" * size) + between[t] for t, size in enumerate(sizes))
    path = written(tmp_path, mcap([channel(1), bare], data_crc=True))
    lengths = [
        length.as_py()
        for chunk in chunks_of(path, decoders=["raw"])
        for length in chunk.to_record_batch().column("McapMessage:data").flatten().value_lengths()
    ]
    assert lengths == sizes


def test_an_empty_chunk(tmp_path: Path) -> None:
    for compression in ("", "lz4", "zstd"):
        empty = chunk_of([], compression)
        bare = chunk_of([], compression, data=b"")
        assert times_of(written(tmp_path, mcap([channel(1), empty, bare, message(1, 0)]))) == [0]


class TestMessageIndexes:
    """A message index is used only as far as it agrees with the records."""

    def check(self, tmp_path: Path, index: bytes) -> None:
        chunk = run_of(0)
        assert times_of(written(tmp_path, mcap([*DEFINITIONS, chunk.chunk, index]))) == list(range(10))

    def test_of_one_channel_only(self, tmp_path: Path) -> None:
        indexes = run_of(0).indexes
        self.check(tmp_path, indexes[: len(indexes) // 2])

    def test_of_wrong_offsets(self, tmp_path: Path) -> None:
        self.check(tmp_path, record(7, struct.pack("<HIQQ", 1, 16, 0, 7)))
        self.check(tmp_path, record(7, struct.pack("<HIQQ", 1, 16, 0, 2**64 - 1)))

    def test_of_one_message_twice(self, tmp_path: Path) -> None:
        self.check(tmp_path, run_of(0).indexes + record(7, struct.pack("<HIQQ", 1, 16, 0, 0)))

    def test_of_the_wrong_channel(self, tmp_path: Path) -> None:
        indexes = bytearray(run_of(0).indexes)
        indexes[9] = 2
        self.check(tmp_path, bytes(indexes))

    def test_that_is_malformed(self, tmp_path: Path) -> None:
        self.check(tmp_path, record(7, b"\1"))
        self.check(tmp_path, record(7, struct.pack("<HI", 1, 2**32 - 1)))
        self.check(tmp_path, record(7, struct.pack("<HI", 1, 15) + b"z" * 15))

    def test_of_messages_that_are_not_there(self, tmp_path: Path) -> None:
        good = run_of(0, compression="", crc=False)
        bad = bytearray(good.data)
        bad[bad.index(message(1, 4, b"x" * 50))] = 0x85
        path = written(tmp_path, mcap([*DEFINITIONS, bytes(bad)]))
        with pytest.warns(ReadWarning, match=r"lists 1 missing messages.*no CRC"):
            assert len(times_of(path)) == 9


def test_rows_are_sorted_within_a_chunk(tmp_path: Path) -> None:
    order = [(5, 1), (3, 9), (5, 0), (3, 2), (4, 4)]
    data = [message(1, log, bytes([i]), publish) for i, (log, publish) in enumerate(order)]
    (chunk,) = chunks_of(written(tmp_path, mcap([channel(1), *data])), decoders=["raw"])
    assert log_times(chunk) == [3, 3, 4, 5, 5]
    assert chunk.to_record_batch().column("McapMessage:data").to_pylist() == [[[i]] for i in (3, 1, 4, 2, 0)]


def test_chunks_keep_to_their_size(tmp_path: Path) -> None:
    small = b"".join(message(1, t, b"") for t in range(140_000))
    large = b"".join(message(2, t, b"z" * 700_000) for t in range(9))
    chunks = chunks_of(written(tmp_path, mcap([channel(1), channel(2, "/u"), small, large])), decoders=["raw"])
    rows = [(c.entity_path, len(log_times(c))) for c in chunks]
    assert [n for path, n in rows if path == "/t"] == [46_667, 46_667, 46_666]
    assert max(n for path, n in rows if path == "/u") <= 3
    assert sum(n for path, n in rows if path == "/u") == 9
