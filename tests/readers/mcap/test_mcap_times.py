"""``start_time_ns`` and ``end_time_ns``: which messages come, and which chunks are not even decompressed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.readers import McapReader
from chunkmill.readers.mcap import McapSource, section
from chunkmill.readers.mcap.decoders import McapOptions
from chunkmill.readers.mcap.records import ChunkHead

from tests.conftest import DATA
from tests.readers.mcap.mcap_bytes import (
    ChunkOf,
    channel,
    chunk_of,
    chunks_of,
    log_times,
    mcap,
    message,
    record,
    schema,
    written,
)

DEFINITIONS = (channel(1, "/a", "json"), channel(2, "/b", "json"))
COUNT = 6


def timed(run: ChunkOf, start: int, end: int) -> ChunkOf:
    """A chunk that declares its first and last time."""
    return run._replace(chunk=run.chunk[:9] + struct.pack("<QQ", start, end) + run.chunk[25:])


def run_of(i: int, *, declared: tuple[int, int] | None = None) -> ChunkOf:
    """Ten messages from ``10 * i`` to ``10 * i + 9``."""
    run = chunk_of([message(1 + t % 2, 10 * i + t) for t in range(10)])
    return timed(run, *(declared or (10 * i, 10 * i + 9)))


def stats(messages: int = 10 * COUNT) -> bytes:
    half = messages // 2
    counts = struct.pack("<IHQHQ", 20, 1, half, 2, messages - half)
    return record(11, struct.pack("<QHIIIIQQ", messages, 0, 2, 0, 0, COUNT, 0, messages - 1) + counts)


def recording(*extra: bytes, runs: list[ChunkOf] | None = None, summary: bool = True) -> bytes:
    parts = runs or [run_of(i) for i in range(COUNT)]
    return mcap([*DEFINITIONS, *parts, *extra], [*DEFINITIONS, stats()] if summary else None)


@pytest.fixture(params=[10, 10**6], ids=["many splits", "one split"])
def split_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("chunkmill.readers.mcap.plan.SPLIT_BYTES", request.param)
    return int(request.param)


@pytest.fixture
def decompressed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The start times of the chunks that were decompressed."""
    starts: list[int] = []
    plain = section.decompress

    def decompress(head: ChunkHead, *rest: object, **more: object) -> object:
        starts.append(head.start_time)
        return plain(head, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(section, "decompress", decompress)
    return starts


def times(path: Path, start: int | None, end: int | None, **options: object) -> list[int]:
    chunks = chunks_of(path, start_time_ns=start, end_time_ns=end, **({"decoders": ["raw"]} | options))
    return sorted(t for chunk in chunks for t in log_times(chunk))


@pytest.mark.usefixtures("split_bytes")
class TestRange:
    @pytest.mark.parametrize(
        ("start", "end", "chunks"),
        [
            (15, 32, [10, 20, 30]),
            (20, 30, [20]),
            (29, 30, [20]),
            (None, 10, [0]),
            (None, 11, [0, 10]),
            (59, None, [50]),
            (60, None, []),
            (None, 0, []),
            (30, 30, []),
            (None, 2**64 - 1, list(range(0, 60, 10))),
        ],
    )
    def test_only_chunks_that_overlap_are_decompressed(
        self, tmp_path: Path, decompressed: list[int], start: int | None, end: int | None, chunks: list[int]
    ) -> None:
        path = written(tmp_path, recording())
        assert times(path, start, end) == list(range(start or 0, min(end or 60 * (end is None), 60)))
        assert decompressed == chunks

    def test_the_offset_comes_after(self, tmp_path: Path) -> None:
        assert times(written(tmp_path, recording()), 15, 17, timestamp_offset_ns=1000) == [1015, 1016]

    def test_what_is_told_of_the_file_stays(self, tmp_path: Path, decompressed: list[int]) -> None:
        path = written(tmp_path, recording())
        options = {"decoders": ["raw", "recording_info", "schema", "stats"]}

        def static(start: int | None) -> list[object]:
            chunks = chunks_of(path, start_time_ns=start, **options)
            return [c.to_record_batch().to_pydict().keys() for c in chunks if c.is_static]

        assert static(55) == static(None)
        assert len(static(10**6)) == 4
        assert decompressed.count(50) == 2

    def test_without_a_summary_nothing_is_left_out(self, tmp_path: Path) -> None:
        assert times(written(tmp_path, recording(summary=False)), 15, 32) == list(range(15, 32))

    def test_channels_that_only_a_chunk_defines(self, tmp_path: Path) -> None:
        first = timed(chunk_of([channel(1, "/a", "json"), channel(2, "/b", "json"), message(1, 0)]), 0, 0)
        data = mcap([first, *[run_of(i) for i in range(1, COUNT)]], [])
        assert times(written(tmp_path, data), 15, 32) == list(range(15, 32))

    def test_messages_outside_of_chunks(self, tmp_path: Path) -> None:
        bare = [message(1, t) for t in (25, 100)]
        path = written(tmp_path, mcap([*DEFINITIONS, bare[0], *[run_of(i) for i in range(6)], bare[1]], DEFINITIONS))
        assert times(path, 20, 30) == sorted([*range(20, 30), 25])
        assert times(path, 58, None) == [58, 59, 100]

    def test_chunks_that_declare_no_times_are_read(self, tmp_path: Path, decompressed: list[int]) -> None:
        runs = [run_of(i, declared=(0, 0)) for i in range(COUNT)]
        assert times(written(tmp_path, recording(runs=runs)), 15, 32) == list(range(15, 32))
        assert len(decompressed) == COUNT

    def test_chunks_that_declare_wrong_times_are_warned_of(self, tmp_path: Path) -> None:
        runs = [run_of(i, declared=(10 * i, 10 * i + 5)) for i in range(COUNT)]
        with pytest.warns(ReadWarning, match="has messages outside its declared times"):
            times(written(tmp_path, recording(runs=runs)), 15, 32)

    def test_damage_in_the_range_is_found(self, tmp_path: Path) -> None:
        data = bytearray(recording())
        at = data.index(run_of(2).chunk)
        data[at + 80] ^= 1
        path = written(tmp_path, bytes(data))
        assert times(path, 0, 20) == list(range(20))
        with pytest.raises(ReadError):
            times(path, 0, 21)

    def test_a_missing_chunk_is_found(self, tmp_path: Path) -> None:
        runs = [run_of(i) for i in range(COUNT)]
        data = mcap([*DEFINITIONS, *runs[:-1]], [*DEFINITIONS, stats()])
        with pytest.raises(ReadError, match="the summary counts 6 chunks, but there are 5"):
            times(written(tmp_path, data), 0, 10)

    def test_robots_come_whatever_the_time(self, tmp_path: Path) -> None:
        text = b'<robot name="r"><link name="a"/></robot>\0'
        definitions = (
            *DEFINITIONS,
            schema(1, "std_msgs/msg/String", "ros2msg"),
            channel(3, "/robot_description", "", 1),
        )
        robot = timed(chunk_of([message(3, 1, b"\0\1\0\0" + struct.pack("<I", len(text)) + text)]), 1, 1)
        data = mcap([*definitions, robot, *[run_of(i) for i in range(6)]], definitions)
        chunks = chunks_of(written(tmp_path, data), start_time_ns=55, decoders=["urdf", "raw"])
        assert [c.entity_path for c in chunks] == ["/a", "/b", "/r"]


def test_splits_without_a_chunk_in_the_range_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkmill.readers.mcap.plan.SPLIT_BYTES", 10)
    source = McapSource(
        str(written(tmp_path, recording())), McapOptions.checked(decoders=["raw"], start_time_ns=15, end_time_ns=32)
    )
    splits = source.splits()
    assert [(s.chunks, s.messages) for s in splits] == [(1, 10)] * 3
    assert sum(s.size for s in splits) < (tmp_path / "x.mcap").stat().st_size


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"start_time_ns": "1"}, TypeError, "argument 'start_time_ns': 'str' object cannot be interpreted"),
        ({"end_time_ns": 1.5}, TypeError, "argument 'end_time_ns': 'float' object cannot be interpreted"),
        ({"end_time_ns": True}, TypeError, "argument 'end_time_ns': 'bool' object cannot be interpreted"),
        ({"start_time_ns": -1}, OverflowError, "argument 'start_time_ns': the number does not fit"),
        ({"end_time_ns": 2**64}, OverflowError, "argument 'end_time_ns': the number does not fit"),
        ({"start_time_ns": 2, "end_time_ns": 1}, ValueError, "start_time_ns, 2, is later than end_time_ns, 1"),
    ],
)
def test_wrong_ranges(options: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        McapReader(DATA / "demo.mcap", **options)  # type: ignore[arg-type]


def test_a_part_of_a_recording() -> None:
    info = McapReader(DATA / "demo.mcap").info()
    assert info.start_time is not None and info.end_time is not None
    middle = (info.start_time + info.end_time) // 2
    first, second = (
        McapReader(DATA / "demo.mcap", decoders=["raw"], **part).stream().to_chunks()
        for part in ({"end_time_ns": middle}, {"start_time_ns": middle})
    )
    assert max(t for c in first for t in log_times(c)) < middle <= min(t for c in second for t in log_times(c))
    assert sum(c.num_rows for c in [*first, *second]) == info.messages


@pytest.mark.usefixtures("split_bytes")
class TestTimesThatChunksLeaveOut:
    """Some writers take log time 0 for "not set", and leave it out of the times that a chunk declares."""

    def file(self, tmp_path: Path, left_out: int, *, index: bool = True) -> Path:
        runs = [
            chunk_of([message(1, left_out), *(message(1, 100 * i + t) for t in range(1, 9))], index=index)
            for i in range(1, 4)
        ]
        declared = [timed(run, 100 * i + 1, 100 * i + 8) for i, run in enumerate(runs, 1)]
        counts = struct.pack("<IHQ", 10, 1, 27)
        stats_ = record(11, struct.pack("<QHIIIIQQ", 27, 0, 2, 0, 0, 3, 101, 308) + counts)
        return written(tmp_path, mcap([*DEFINITIONS, *declared], [*DEFINITIONS, stats_]))

    @pytest.mark.parametrize("left_out", [0, 3])
    @pytest.mark.parametrize(("start", "end"), [(None, 5), (0, 4), (0, 100)])
    def test_message_indexes_are_trusted(self, tmp_path: Path, left_out: int, start: int | None, end: int) -> None:
        with pytest.warns(ReadWarning, match="has messages outside its declared times"):
            assert times(self.file(tmp_path, left_out), start, end) == [left_out] * 3

    def test_a_range_without_them_reads_no_more(self, tmp_path: Path, decompressed: list[int]) -> None:
        path = self.file(tmp_path, 0)
        assert times(path, 1, 100) == [] and times(path, 0, 0) == [] and decompressed == []

    @pytest.mark.parametrize("left_out", [0, 50, 1000])
    def test_reading_all_warns(self, tmp_path: Path, left_out: int) -> None:
        with pytest.warns(ReadWarning, match="reading a time range may miss messages of such chunks") as caught:
            found = times(self.file(tmp_path, left_out), None, None)
        assert found.count(left_out) == 3 and len(found) == 27
        assert 1 <= len(caught) <= 3


def test_an_end_of_zero_reads_nothing_of_chunks_that_declare_no_times(tmp_path: Path) -> None:
    path = written(tmp_path, recording(runs=[run_of(0, declared=(0, 0))], summary=False))
    for start in (None, 0):
        with pytest.warns(ReadWarning, match="no message is from 0 ns to before 0 ns: the range is empty"):
            assert times(path, start, 0) == []
    assert times(path, None, 1) == [0]


@pytest.mark.parametrize(
    ("log", "publish", "offset", "count"),
    [
        ([5, 2**63, 2**64 - 1], [7, 7, 7], 0, "2 log or publish times"),
        ([5, 6, 7], [0, 2**63, 1], 0, "1 log or publish time "),
        ([5, 0xFFFFFFFFFAA3B800, 7], [2**64 - 1, 0, 1], 0, "2 log or publish times"),
        ([5, 2**63 - 5, 7], [0, 0, 0], 5, "1 log or publish time "),
    ],
)
def test_times_that_are_clamped_are_counted_once(
    tmp_path: Path, log: list[int], publish: list[int], offset: int, count: str
) -> None:
    messages = [message(1 + i % 2, t, b"{}", p) for i, (t, p) in enumerate(zip(log, publish, strict=True))]
    path = written(tmp_path, mcap([*DEFINITIONS, *messages]))
    with pytest.warns(ReadWarning, match=f"{count}.*clamped to the latest time of a timeline") as caught:
        found = chunks_of(path, timestamp_offset_ns=offset)
    assert len(caught) == 1
    expected = sorted(min(t + offset, 2**63 - 1) for t in log)
    assert sorted(t for chunk in found for t in log_times(chunk)) == expected


def test_times_that_fit_are_not_warned_of(tmp_path: Path) -> None:
    path = written(tmp_path, mcap([*DEFINITIONS, message(1, 2**63 - 1, b"{}", 2**63 - 1)]))
    assert [log_times(chunk) for chunk in chunks_of(path)] == [[2**63 - 1]]
    assert [log_times(chunk) for chunk in chunks_of(path, timestamp_offset_ns=-5)] == [[2**63 - 6]]
