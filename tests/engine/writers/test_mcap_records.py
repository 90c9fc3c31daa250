"""``write_mcap``: records copied as they are stored, equal by the official library, and right by the doctor's rules."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chunkmill import LazyChunkStream
from chunkmill.engine.cli import main
from chunkmill.engine.errors import ReadError, ReadWarning, UsageError, WriteError
from chunkmill.engine.writers import mcap as writing
from chunkmill.engine.writers import mcap_chunks
from chunkmill.readers import BagReader, McapReader, Rosbag2Reader
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.exceptions import McapError
from mcap.writer import CompressionType, IndexType, Writer
from mcap_doctor import Line, examined, extras, lines
from places import DATA, recordings
from zstandard import ZstdError

UNREADABLE = (McapError, KeyError, OSError, UnicodeDecodeError, ZstdError, RuntimeError, EOFError, ValueError)
"""What the official library raises for a file that it cannot read."""

CRC_IS_WRONG = ("rob_crc_chunk.mcap", "rob_data_crc.mcap", "rob_crc_summary.mcap", "bitflip_in_zstd_chunk.mcap")
"""Files that the library reads, which compares no CRC."""

KEPT = "records are copied unchanged"


def write(
    path: Path,
    messages: Sequence[tuple[str, int, int, bytes]],
    *,
    chunk_size: int = 300,
    compression: CompressionType = CompressionType.ZSTD,
    schema: bytes = b"{}",
    more: bool = False,
    **options: Any,
) -> Path:
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=chunk_size, compression=compression, **options)
        writer.start("", "test")
        number = writer.register_schema("thing", "jsonschema", schema)
        channels: dict[str, int] = {}
        for topic, time, sequence, data in messages:
            if topic not in channels:
                channels[topic] = writer.register_channel(topic, "json", number, {"topic": topic})
            writer.add_message(channels[topic], time, data, time + 1, sequence)
        if more:
            writer.add_attachment(1, 2, "map.bin", "application/octet-stream", b"\x00\x01" * 1000)
            writer.add_metadata("robot", {"name": "one", "zeta": "2"})
        writer.finish()
    return path


def some(count: int, topics: int = 3, step: int = 10) -> list[tuple[str, int, int, bytes]]:
    return [(f"/t{i % topics}", 1000 + step * i, i, b'{"n": %d}' % i) for i in range(count)]


def sorted_lines(found: Sequence[Line]) -> list[Line]:
    return sorted(found, key=lambda line: line.log_time)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows and runs of some hundred bytes, so that small files have many."""
    monkeypatch.setattr(mcap_chunks, "SPLIT_BYTES", 2000)
    monkeypatch.setattr(writing, "_RUN_BYTES", 500)


@pytest.mark.parametrize("path", recordings("*.mcap", "mcap/*.mcap", "mcap/conformance/*/*.mcap", "generated/*.mcap"))
@pytest.mark.filterwarnings("ignore")
def test_every_readable_file_is_equal_message_by_message(path: Path, tmp_path: Path) -> None:
    try:
        expected = lines(path)
    except UNREADABLE:
        pytest.skip("the official library cannot read it")
    out = tmp_path / "out.mcap"
    stream = McapReader(path).stream()
    try:
        report = stream.write_mcap(out, executor="inline")
    except ReadError:
        assert path.name in CRC_IS_WRONG
        return
    assert KEPT in report.plan
    examined(out)
    # where a file has no index, the library brings its messages in their order: those of one time as in the file
    assert lines(out) == sorted_lines(expected)
    assert report.rows == len(expected)
    stream.write_mcap(out, sort=False, executor="inline")
    examined(out)
    assert sorted(map(repr, lines(out))) == sorted(map(repr, expected))


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_compression_and_chunk_size(compression: str, tmp_path: Path) -> None:
    path, out = write(tmp_path / "in.mcap", some(1000)), tmp_path / "out.mcap"
    report = McapReader(path).stream().write_mcap(out, compression=compression, chunk_bytes=2048, executor="inline")
    doctor = examined(out)
    assert doctor.compressions == {compression.replace("none", "")}
    assert doctor.warnings == []
    assert report.chunks > 10
    assert lines(out) == lines(path)


messages_of = st.lists(
    st.tuples(
        st.sampled_from(["/a", "/b", "/c/d"]),
        st.integers(0, 60) | st.integers(0, 2**64 - 2),
        st.integers(0, 2**32 - 1),
        st.binary(max_size=80) | st.integers(2000, 3000).map(bytes),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(
    inputs=st.lists(
        st.tuples(messages_of, st.booleans(), st.booleans(), st.sampled_from([200, 1000, 1 << 20])),
        min_size=1,
        max_size=3,
    ),
    sort=st.booleans(),
)
def test_any_messages_of_any_files_come_out_once_and_in_order(
    inputs: list[tuple[list[tuple[str, int, int, bytes]], bool, bool, int]], sort: bool, tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("any")
    paths, expected = [], []
    for i, (messages, chunked, statistics, chunk_size) in enumerate(inputs):
        options = {"use_chunking": chunked, "use_statistics": statistics}
        path = write(folder / f"{i}.mcap", messages, chunk_size=chunk_size, schema=b"%d" % (i % 2), **options)
        paths.append(path)
        expected += lines(path)
    streams = [McapReader(path).stream() for path in paths]
    stream = streams[0] if len(streams) == 1 else LazyChunkStream.merge(*streams)
    out = folder / "out.mcap"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mcap_chunks, "SPLIT_BYTES", 2000)
        patch.setattr(writing, "_RUN_BYTES", 500)
        report = stream.write_mcap(out, sort=sort, chunk_bytes=1024, executor="inline")
    examined(out)
    assert report.rows == len(expected)
    assert lines(out) == (sorted_lines(expected) if sort else expected)


def test_files_are_merged_and_equal_channels_become_one(tmp_path: Path, small_windows: None) -> None:
    first = write(tmp_path / "a.mcap", some(300), more=True)
    second = write(tmp_path / "b.mcap", [(t, time + 5, n, d) for t, time, n, d in some(300, topics=4)])
    other = write(tmp_path / "c.mcap", some(10), schema=b'{"title": "other"}')
    out = tmp_path / "out.mcap"
    streams = [McapReader(path).stream() for path in (first, second, other)]
    report = LazyChunkStream.merge(*streams).write_mcap(out, executor="inline")
    assert lines(out) == sorted_lines([line for path in (first, second, other) for line in lines(path)])
    assert extras(out) == extras(first)
    examined(out)
    assert len(report.tasks) > 3
    info = McapReader(out).info()
    assert sorted(channel.topic for channel in info.channels) == ["/t0", "/t0", "/t1", "/t1", "/t2", "/t2", "/t3"]


def test_filters_choose_topics_and_the_reader_chooses_times(tmp_path: Path) -> None:
    path, out = write(tmp_path / "in.mcap", some(300), more=True), tmp_path / "out.mcap"
    stream = McapReader(path, start_time_ns=1500, end_time_ns=2500).stream().filter(content="/t1")
    report = stream.write_mcap(out, executor="inline")
    wanted = [line for line in lines(path) if line.topic == "/t1" and 1500 <= line.log_time < 2500]
    assert lines(out) == wanted
    assert KEPT in report.plan
    assert extras(out) == []  # an entity of their own, which the filter leaves out
    McapReader(path).stream().drop(content="/t1").write_mcap(out, executor="inline")
    assert lines(out) == [line for line in lines(path) if line.topic != "/t1"]
    assert extras(out) == extras(path)
    assert {channel.topic for channel in McapReader(out).info().channels} == {"/t0", "/t2"}
    examined(out)


def test_branches_of_a_split_are_read_once(tmp_path: Path) -> None:
    path, out = write(tmp_path / "in.mcap", some(100)), tmp_path / "out.mcap"
    one, rest = McapReader(path).stream().split(content="/t1")
    report = LazyChunkStream.merge(rest, one).write_mcap(out, executor="inline")
    assert KEPT in report.plan
    assert lines(out) == lines(path)


def test_chunks_of_one_file_pass_whole_without_a_sort(tmp_path: Path) -> None:
    path, out = write(tmp_path / "in.mcap", some(300)[::-1], more=True), tmp_path / "out.mcap"
    report = McapReader(path).stream().write_mcap(out, sort=False, executor="inline")
    assert "whole chunks" in report.plan
    assert report.bytes_passed > 0
    assert report.rows == 300
    assert lines(out) == lines(path)
    assert extras(out) == extras(path)
    examined(out)
    report = McapReader(path).stream().filter(content="/t1").write_mcap(out, sort=False, executor="inline")
    assert "whole chunks" not in report.plan
    assert lines(out) == [line for line in lines(path) if line.topic == "/t1"]
    report = McapReader(path).stream().write_mcap(out, sort=False, compression="lz4", executor="inline")
    assert "whole chunks" not in report.plan
    assert lines(out) == lines(path)


def test_an_offset_moves_the_times_of_records(tmp_path: Path) -> None:
    path, out = write(tmp_path / "in.mcap", some(10)), tmp_path / "out.mcap"
    McapReader(path, timestamp_offset_ns=7).stream().write_mcap(out, executor="inline")
    moved = [line._replace(log_time=line.log_time + 7, publish_time=line.publish_time + 7) for line in lines(path)]
    assert lines(out) == moved
    with pytest.warns(ReadWarning, match="are clamped"):
        McapReader(path, timestamp_offset_ns=-1050).stream().write_mcap(out, executor="inline")
    assert [line.log_time for line in lines(out)][:6] == [0] * 6
    examined(out)


@pytest.mark.parametrize("start", [1010, 1500])
def test_wrong_times_of_chunks_lose_nothing(start: int, tmp_path: Path, small_windows: None) -> None:
    """The first chunk declares that it begins later than it does, or than it ends."""
    path, out = write(tmp_path / "in.mcap", some(200), enable_crcs=False), tmp_path / "out.mcap"
    data = bytearray(path.read_bytes())
    for at in range(len(data) - 8):
        if data[at : at + 8] == (1000).to_bytes(8, "little") and data[at - 9] in (6, 8):
            data[at : at + 8] = start.to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.warns(ReadWarning, match="outside its declared times"):
        report = McapReader(path).stream().write_mcap(out, executor="inline")
    assert "as runs first" in report.plan
    assert lines(out) == sorted_lines(lines(path))


def test_a_damaged_file_is_repaired_with_recover(tmp_path: Path) -> None:
    path, out = write(tmp_path / "in.mcap", some(300)), tmp_path / "out.mcap"
    whole = lines(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(ReadError):
        McapReader(path).stream().write_mcap(out, executor="inline")
    assert not out.exists()
    with pytest.warns(ReadWarning):
        report = McapReader(path, recover=True).stream().write_mcap(out, executor="inline")
    found = lines(out)
    assert 50 < len(found) < 300
    assert found == whole[: len(found)]
    assert report.rows == len(found)
    examined(out)


def test_an_index_without_all_is_not_trusted(tmp_path: Path) -> None:
    for i, options in enumerate(
        (
            {"index_types": IndexType.NONE},
            {"use_chunking": False},
            {"repeat_channels": False},
            {"repeat_schemas": False},
            {"use_statistics": False},
            {"use_summary_offsets": False},
        )
    ):
        path, out = write(tmp_path / f"{i}.mcap", some(40), more=True, **options), tmp_path / "out.mcap"
        McapReader(path).stream().write_mcap(out, executor="inline")
        examined(out)
        assert [line.data for line in lines(out)] == [data for *_, data in some(40)]
        assert len(extras(out)) == 2


def test_bags_and_databases_are_copied_with_their_schemas(tmp_path: Path) -> None:
    out = tmp_path / "out.mcap"
    bag = DATA / "bag" / "rosbag__example-lz4.bag"
    report = BagReader(bag).stream().write_mcap(out, executor="inline")
    assert KEPT in report.plan
    found = lines(out)
    info = BagReader(bag).info()
    assert len(found) == info.messages
    assert {(line.encoding, line.schema[1]) for line in found if line.schema} == {("ros1", "ros1msg")}
    assert McapReader(out).info().profile == "ros1"
    examined(out)
    entities = {c.entity_path: 0 for c in BagReader(bag).stream().to_chunks(executor="inline")}
    again = {c.entity_path: 0 for c in McapReader(out).stream().to_chunks(executor="inline")}
    assert entities.keys() <= again.keys()
    database = DATA / "rosbag2" / "rosbag2__wbag_4.db3"
    report = Rosbag2Reader(database).stream().write_mcap(out, executor="inline")
    assert KEPT in report.plan
    assert len(lines(out)) == Rosbag2Reader(database).info().messages
    assert McapReader(out).info().profile == "ros2"
    examined(out)


def test_too_many_messages_of_one_time_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = write(tmp_path / "in.mcap", [("/t", 5, i, bytes(100)) for i in range(200)]), tmp_path / "out.mcap"
    monkeypatch.setattr(writing, "SORT_BYTES", 4000)
    with pytest.raises(UsageError, match=r"messages .* have more than .* bytes"):
        McapReader(path).stream().write_mcap(out, chunk_bytes=2000, executor="inline")
    assert list(tmp_path.iterdir()) == [path]
    McapReader(path).stream().write_mcap(out, sort=False, chunk_bytes=2000, executor="inline")
    assert lines(out) == lines(path)


def test_wrong_arguments_and_places(tmp_path: Path) -> None:
    path = write(tmp_path / "in.mcap", some(10))
    stream = McapReader(path).stream()
    with pytest.raises(UsageError, match="compression must be one of zstd, lz4, none"):
        stream.write_mcap(tmp_path / "out.mcap", compression="gzip")
    with pytest.raises(UsageError, match="chunk_bytes"):
        stream.write_mcap(tmp_path / "out.mcap", chunk_bytes=1)
    with pytest.raises(WriteError, match="is a source"):
        stream.write_mcap(path, executor="inline")
    with pytest.raises(WriteError, match="No such file"):
        stream.write_mcap(tmp_path / "no" / "out.mcap", executor="inline")
    with pytest.raises(WriteError, match="is a folder"):
        stream.write_mcap(tmp_path, executor="inline")
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_damaged_leaves_the_destination_as_it_was(tmp_path: Path) -> None:
    path, out = write(tmp_path / "in.mcap", some(300)), tmp_path / "out.mcap"
    out.write_bytes(b"before")
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF  # in the first chunk
    path.write_bytes(data)
    with pytest.raises(ReadError) as caught:
        McapReader(path).stream().write_mcap(out, executor="inline")
    assert caught.value.path == str(path)
    assert caught.value.offset is not None
    assert out.read_bytes() == b"before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.mcap", "out.mcap"]


_SORTED_WITHIN = """
import sys
from pathlib import Path
from chunkmill import LazyChunkStream
from chunkmill.engine.writers import mcap, mcap_chunks
from chunkmill.readers import McapReader
from chunkmill.readers.mcap import section

section.GROUP_BYTES = 4 << 20  # what is read at once
mcap.SORT_BYTES = mcap_chunks.SORT_BYTES = int(sys.argv[2])
mcap_chunks.SPLIT_BYTES = int(sys.argv[2]) // 2

def write(names):
    streams = [McapReader(Path(sys.argv[1], f"{name}.mcap")).stream() for name in names]
    LazyChunkStream.merge(*streams).write_mcap(Path(sys.argv[1], "out.mcap"), chunk_bytes=1 << 20, executor="inline")

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024

write("ab")
Path("/proc/self/clear_refs").write_text("5")
before = peak()
write("cd")
print(peak() - before)
"""


@pytest.mark.parametrize("chunking", [True, False], ids=["by its index", "by runs"])
def test_a_sort_stays_within_its_memory(chunking: bool, tmp_path: Path) -> None:
    """Of 2 x 48 MB in no order, with 4 MiB to be sorted and read at a time: the rest is buffers, and does not grow."""
    noise = random.Random(1)
    for name, count in (("a", 20), ("b", 20), ("c", 4_800), ("d", 4_800)):
        times = [time // 50 * 50 + noise.randrange(50) for time in range(count)]
        messages = [(f"/{name}", time, 0, noise.randbytes(10_000)) for time in times]
        write(tmp_path / f"{name}.mcap", messages, chunk_size=100_000, use_chunking=chunking)
    command = [sys.executable, "-c", _SORTED_WITHIN, str(tmp_path), str(4 << 20)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40 << 20, f"{int(done.stdout) / 2**20:.0f} MiB more"
    found = [line.log_time for line in lines(tmp_path / "out.mcap")]
    assert len(found) == 9_600 and found == sorted(found)


def run(*arguments: object) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["chunkmill", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
    return int(left.value.code or 0)


def test_convert_and_merge_write_mcaps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, out = write(tmp_path / "in.mcap", some(300)), tmp_path / "out.mcap"
    assert run("convert", path, "-o", out, "--executor", "inline", "--verify") == 0
    assert "300 rows" in capfd.readouterr().err
    assert lines(out) == lines(path)
    assert run("convert", path, "-o", out, "--executor", "inline") == 2  # it exists, and is no RRD
    arguments = ("--overwrite", "--executor", "inline", "--start", "1500", "--content", "/t1")
    assert run("convert", path, "-o", out, *arguments) == 0
    assert lines(out) == [line for line in lines(path) if line.topic == "/t1" and line.log_time >= 1500]
    assert (
        run("convert", path, "-o", out, "--overwrite", "--executor", "inline", "--unsorted", "--compression", "lz4")
        == 0
    )
    assert examined(out).compressions == {"lz4"}
    bag = DATA / "bag" / "rosbag__example-lz4.bag"
    assert run("merge", path, bag, "-o", out, "--overwrite", "--executor", "inline") == 0
    assert len(lines(out)) == 300 + (BagReader(bag).info().messages or 0)
    capfd.readouterr()
    for wrong in (("--application-id", "x"), ("--shards",), ("--optimize", "live")):
        assert run("convert", path, "-o", out, "--overwrite", "--executor", "inline", *wrong) == 2
    assert run("convert", path, "-o", tmp_path / "out.rrd", "--executor", "inline", "--unsorted") == 2
    assert "are for MCAPs" in capfd.readouterr().err


def test_on_spark_it_is_the_same_file(spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "in.mcap", some(2000)[::-1])
    unindexed = write(tmp_path / "more.mcap", some(100), use_chunking=False)
    outs = [tmp_path / "inline.mcap", tmp_path / "spark.mcap"]
    for out in outs:
        stream = LazyChunkStream.merge(McapReader(path).stream(), McapReader(unindexed).stream())
        stream.write_mcap(out, executor=out.stem)
    assert outs[0].read_bytes() == outs[1].read_bytes()
    examined(outs[1])
