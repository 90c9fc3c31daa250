"""Recordings of rosbag2 beside MCAPs of the same messages."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
import rosbags.rosbag2
from chunkmill.engine import ReadError, ReadWarning, UsageError
from chunkmill.engine.errors import UnsupportedError
from chunkmill.engine.locations import located
from chunkmill.readers import McapReader, Rosbag2Reader, detect_format
from chunkmill.readers.rosbag2 import Rosbag2Source
from chunkmill.readers.rosbag2.database import _remove
from comparison import Cell, cells
from places import recordings
from rosbag2_making import (
    KINDS,
    POINT,
    STRING,
    Kind,
    Message,
    compress,
    metadata,
    of_mcap,
    some,
    text,
    write_bag,
    write_database,
    write_mcap,
)
from rosbags.rosbag2.enums import CompressionMode, StoragePlugin
from rosbags.typesys import Stores, get_typestore

STORE = get_typestore(Stores.ROS2_HUMBLE)
COUNTS = "McapStatistics:chunk_count"


def read(path: Path, **options: object) -> list[Cell]:
    return content(Rosbag2Reader(path, **options).stream().to_chunks(executor="inline"))


def read_mcap(path: Path, **options: object) -> list[Cell]:
    return content(McapReader(path, **options).stream().to_chunks(executor="inline"))


def content(chunks: list) -> list[Cell]:
    """The cells in order, but for the number of MCAP's own chunks; static ones first, which MCAP has there."""
    found = [cell for cell in cells(chunks) if cell.component != COUNTS]
    return [*sorted(c for c in found if not c.times), *(c for c in found if c.times)]


def joined(chunks: list) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """The values of each component by time: what is left when chunks are cut elsewhere."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for chunk in chunks:
        data = chunk.data
        lines = {line.name: line.ticks for line in data.timelines}
        if "message_log_time" not in lines:
            continue
        for c in data.components:
            rows = found.setdefault((chunk.entity_path, c.descriptor.component), [])
            rows += zip(lines["message_log_time"].tolist(), map(repr, c.values.to_pylist()), strict=True)
    return {key: sorted(rows) for key, rows in found.items()}


@pytest.fixture
def mcap(tmp_path: Path) -> Path:
    return write_mcap(tmp_path / "same.mcap", some())


@pytest.mark.parametrize("schema", [1, 2, 3, 4])
def test_every_schema_version_gives_what_the_mcap_gives(tmp_path: Path, mcap: Path, schema: int) -> None:
    path = write_database(tmp_path / "a.db3", some(), schema=schema)
    types = () if schema >= 4 else ("humble",)
    ours = read(path, types=types)
    if schema < 4:  # the texts of the definitions differ
        ours, theirs = ([c for c in some if c.component != "McapSchema:data"] for some in (ours, read_mcap(mcap)))
        assert ours == theirs
    else:
        assert ours == read_mcap(mcap)


@pytest.mark.parametrize("path", recordings("mcap/rosbag2__*.mcap") + recordings("mcap/reductstore*.mcap"), ids=str)
def test_recordings_of_ros2_as_databases(tmp_path: Path, path: Path) -> None:
    kinds, messages = of_mcap(path)
    database = write_database(tmp_path / "a.db3", messages, kinds)
    same = write_mcap(tmp_path / "a.mcap", messages, kinds)
    assert read(database) == read_mcap(same)


@pytest.mark.parametrize("plugin", list(StoragePlugin))
@pytest.mark.parametrize("mode", list(CompressionMode))
@pytest.mark.parametrize("version", [8, 9])
def test_what_rosbags_writes(tmp_path: Path, plugin: StoragePlugin, mode: CompressionMode, version: int) -> None:
    folder = tmp_path / "drive"
    writer = rosbags.rosbag2.Writer(folder, version=version, storage_plugin=plugin)
    if mode is CompressionMode.STORAGE and plugin is StoragePlugin.SQLITE3:
        return  # SQLite has none
    if mode is not CompressionMode.NONE:
        writer.set_compression(mode, rosbags.rosbag2.enums.CompressionFormat.ZSTD)
    with writer:
        connections = [writer.add_connection(k.topic, k.type, typestore=STORE) for k in KINDS]
        for message in some():
            writer.write(connections[message.topic], message.time, message.data)
    ours = joined(Rosbag2Reader(folder).stream().to_chunks(executor="inline"))
    with rosbags.rosbag2.Reader(folder) as reader:
        theirs: dict[str, list[tuple[int, object]]] = {}
        for connection, time, data in reader.messages():
            theirs.setdefault(connection.topic, []).append((time, STORE.deserialize_cdr(data, connection.msgtype)))
    assert set(theirs) == {"/chatter", "/point"}
    chatter = ours["/chatter", "TextDocument:text"]
    assert [time for time, _ in chatter] == sorted(time for time, _ in theirs["/chatter"])
    assert sorted(v for _, v in chatter) == sorted(repr([m.data]) for _, m in theirs["/chatter"])
    points = ours["/point", "geometry_msgs.msg.Point:message"]
    assert sorted(v for _, v in points) == sorted(repr([{"x": m.x, "y": m.y, "z": m.z}]) for _, m in theirs["/point"])


@pytest.mark.parametrize("version", range(1, 10))
def test_parts_are_one_recording(tmp_path: Path, version: int) -> None:
    messages = some(60)
    folder = write_bag(tmp_path / "drive", [messages[:20], messages[20:50], messages[50:]], version=version)
    chunks = Rosbag2Reader(folder).stream().to_chunks(executor="inline")
    mcap = write_mcap(tmp_path / "a.mcap", messages)
    assert joined(chunks) == joined(McapReader(mcap).stream().to_chunks(executor="inline"))
    static = [c for c in content(chunks) if not c.times]
    assert static == [c for c in read_mcap(mcap) if not c.times]


def test_more_than_ten_parts_are_in_order_without_metadata(tmp_path: Path) -> None:
    messages = some(60)
    folder = write_bag(tmp_path / "drive", [messages[i * 5 : i * 5 + 5] for i in range(12)])
    first = read(folder)
    (folder / "metadata.yaml").unlink()
    assert read(folder) == first
    assert detect_format(folder).name == "rosbag2"
    names = [Path(str(file)).name for file in Rosbag2Source(str(folder)).files.files]
    assert names == [f"drive_{i}.db3" for i in range(12)]


def test_metadata_that_is_stale_is_said(tmp_path: Path) -> None:
    messages = some(60)
    folder = write_bag(tmp_path / "drive", [messages[:20], messages[20:]])
    whole = read(folder)
    (folder / "metadata.yaml").write_text(metadata(["drive_0.db3"]))
    with pytest.warns(ReadWarning, match=r"does not list are read, too: drive_1\.db3"):
        assert read(folder) == whole
    (folder / "metadata.yaml").write_text(metadata(["drive_0.db3", "drive_1.db3", "drive_2.db3"]))
    with pytest.warns(ReadWarning, match=r"lacks drive_2\.db3, which metadata\.yaml lists"):
        assert read(folder) == whole
    (folder / "metadata.yaml").write_text(metadata(["../../elsewhere/drive_1.db3", "drive_0.db3"]))
    assert joined(Rosbag2Reader(folder).stream().to_chunks(executor="inline")).keys()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"rosbag2_bagfile_information: [",
        b"rosbag2_bagfile_information: 5",
        b"rosbag2_bagfile_information: {relative_file_paths: 5}",
        b"rosbag2_bagfile_information: {relative_file_paths: [[a]]}",
        b"rosbag2_bagfile_information: &a [*a]",
        b"rosbag2_bagfile_information: !!python/object/apply:os.system [true]",
        b"rosbag2_bagfile_information: " + b"[" * 5000,
        b"- " * 5000 + b"rosbag2_bagfile_information",
        b"a: &a [x, x]\nb: &b [*a, *a]\nrosbag2_bagfile_information: *b",
        b"rosbag2_bagfile_information:\n" + b"# long\n" * 1_300_000,
    ],
    ids=range(12),
)
def test_metadata_that_is_not_usable_is_said(tmp_path: Path, content: bytes) -> None:
    folder = write_bag(tmp_path / "drive", [some()])
    whole = read(folder)
    (folder / "metadata.yaml").write_bytes(content)
    with pytest.warns(ReadWarning, match=r"metadata\.yaml cannot be used"):
        assert read(folder) == whole


def test_without_pyyaml_the_files_say_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_bag(tmp_path / "drive", [some(20), some(20)])
    whole = read(folder)
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.warns(ReadWarning, match=r"PyYAML, which is not installed: pip install '\.\[rosbag2\]'"):
        assert read(folder) == whole


@pytest.mark.parametrize("parts", [1, 2])
def test_a_folder_of_mcaps_is_one_recording(tmp_path: Path, parts: int) -> None:
    folder = tmp_path / "drive"
    folder.mkdir()
    messages = some(60)
    names = [f"drive_{i}.mcap" for i in range(parts)]
    for i, name in enumerate(names):
        write_mcap(folder / name, messages[i * 60 // parts : (i + 1) * 60 // parts])
    (folder / "metadata.yaml").write_text(metadata(names, storage="mcap"))
    whole = write_mcap(tmp_path / "a.mcap", messages)
    ours = Rosbag2Reader(folder).stream().to_chunks(executor="inline")
    theirs = McapReader(whole).stream().to_chunks(executor="inline")
    assert joined(ours) == joined(theirs)
    start = [c.values for c in content(ours) if c.component == "RecordingInfo:start_time"]
    assert start == [c.values for c in content(theirs) if c.component == "RecordingInfo:start_time"]
    info = Rosbag2Reader(folder).info()
    assert (info.messages, len(info.channels), Rosbag2Reader(folder).topics) == (60, 2, ["/chatter", "/point"])


@pytest.mark.parametrize("parts", [1, 3])
def test_files_that_are_compressed_as_a_whole(tmp_path: Path, parts: int) -> None:
    messages = some(60)
    folder = write_bag(tmp_path / "drive", [messages[i * 20 : i * 20 + 60 // parts] for i in range(parts)])
    whole = read(folder)
    packed = [compress(file) for file in sorted(folder.glob("*.db3"))]
    assert read(folder) == whole
    if parts == 1:
        assert read(packed[0]) == whole
        data = packed[0].read_bytes()
        for size in (5, len(data) // 2, len(data) - 1):
            packed[0].write_bytes(data[:size])
            with pytest.raises(ReadError, match=r"drive_0\.db3\.zstd"):
                read(packed[0])
        packed[0].write_bytes(data[:200] + b"\0" * 30 + data[230:])
        with pytest.raises(ReadError, match=r"drive_0\.db3\.zstd"):
            read(packed[0])


def test_a_file_beside_its_compressed_self_is_read_once(tmp_path: Path) -> None:
    folder = write_bag(tmp_path / "drive", [some()])
    whole = read(folder)
    kept = (folder / "drive_0.db3").read_bytes()
    compress(folder / "drive_0.db3")
    (folder / "drive_0.db3").write_bytes(kept)
    assert read(folder) == whole


def left_behind(folder: Path, journal: str) -> Path:
    """A database whose last rows are in a log or journal beside it, as of a process that was killed."""
    source = write_database(folder / "live.db3", some(20))
    copy = folder / "copy"
    copy.mkdir()
    connection = sqlite3.connect(source, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode={journal}")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("PRAGMA cache_size=1")
    connection.execute("BEGIN")
    rows = [(m.topic + 1, m.time, m.data) for m in some(4000)[20:]]
    connection.executemany("INSERT INTO messages (topic_id,timestamp,data) VALUES (?,?,?)", rows)
    if journal == "wal":
        connection.execute("COMMIT")
    for file in folder.glob("live.db3*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, copy)
    connection.close()
    return copy / "live.db3"


@pytest.mark.parametrize(("journal", "count"), [("wal", 4000), ("delete", 20)])
def test_a_log_or_journal_is_applied_to_a_copy(tmp_path: Path, journal: str, count: int) -> None:
    path = left_behind(tmp_path, journal)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    assert len(before) == 2
    mcap = write_mcap(tmp_path / "a.mcap", some(count))
    assert joined(Rosbag2Reader(path).stream().to_chunks(executor="inline")) == joined(
        McapReader(mcap).stream().to_chunks(executor="inline")
    )
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_types_come_from_folders_and_distributions(tmp_path: Path) -> None:
    kind = Kind("/pose", "my_msgs/msg/Pose", "ros2msg", "Inner inner\nstd_msgs/Header header\n")
    data = (
        b"\0\1\0\0" + (7).to_bytes(4, "little") + (1).to_bytes(4, "little") + (2).to_bytes(4, "little") + text("m")[4:]
    )
    path = write_database(tmp_path / "a.db3", [Message(0, 5, data)], [kind], schema=3)
    with pytest.warns(
        ReadWarning,
        match=r"does not define my_msgs/msg/Pose, .* raw bytes; give the definitions with types= \(--types\)",
    ):
        raw = read(path)
    assert [c.component for c in raw if c.times] == ["McapMessage:data"]
    share = tmp_path / "share" / "my_msgs" / "msg"
    share.mkdir(parents=True)
    (share / "Pose.msg").write_text(kind.definition)
    (share / "Inner.msg").write_text("int32 number  # Inner inner\n")
    std = tmp_path / "share" / "std_msgs" / "msg"
    std.mkdir(parents=True)
    (std / "Header.msg").write_text("builtin_interfaces/Time stamp\nstring frame_id\n")
    (cell,) = [c for c in read(path, types=[tmp_path / "share"]) if c.times]
    assert "'number': 7" in cell.values and "'frame_id': 'm'" in cell.values
    (share / "Pose.msg").unlink()
    (share / "Inner.msg").unlink()
    (std / "Header.msg").unlink()
    (share / "Pose.idl").write_text(
        '#include "my_msgs/msg/Inner.idl"\n#include "std_msgs/msg/Header.idl"\n'
        "module my_msgs { module msg { struct Pose { my_msgs::msg::Inner inner; std_msgs::msg::Header header; }; }; };"
    )
    (share / "Inner.idl").write_text("module my_msgs { module msg { struct Inner { int32 number; }; }; };")
    (std / "Header.idl").write_text(
        '#include "builtin_interfaces/msg/Time.idl"\nmodule std_msgs { module msg { struct Header {'
        " builtin_interfaces::msg::Time stamp; string frame_id; }; }; };"
    )
    assert [c for c in read(path, types=tmp_path / "share") if c.times] == [cell]
    with pytest.raises(UsageError, match="neither a folder nor the name of a distribution"):
        Rosbag2Reader(path, types=tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"no distribution 'hmble'"):
        read(path, types="hmble")


def test_types_of_services_are_those_of_their_files(tmp_path: Path) -> None:
    kind = Kind("/add/_service_event", "my_srvs/srv/Add_Request", "ros2msg", "")
    path = write_database(
        tmp_path / "a.db3", [Message(0, 5, b"\0\1\0\0" + (9).to_bytes(8, "little"))], [kind], schema=3
    )
    (tmp_path / "my_srvs" / "srv").mkdir(parents=True)
    (tmp_path / "my_srvs" / "srv" / "Add.srv").write_text("int64 a\n---\nint64 sum\n")
    (cell,) = [c for c in read(path, types=tmp_path) if c.times]
    assert "'a': 9" in cell.values


def test_topics_and_times_are_chosen_as_of_an_mcap(tmp_path: Path, mcap: Path) -> None:
    path = write_database(tmp_path / "a.db3", some())
    for options in (
        {"include_topic_regex": ["point"]},
        {"exclude_topic_regex": ["point"]},
        {"start_time_ns": 1_100_000_000, "end_time_ns": 1_200_000_000},
        {"start_time_ns": 2**63, "end_time_ns": 2**64 - 1},
        {"timeline_type": "duration"},
        {"timestamp_offset_ns": 77},
        {"decoders": ["raw"]},
        {"decoders": ["ros2_reflection", "stats"]},
    ):
        warned = []
        for reading, place in ((read, path), (read_mcap, mcap)):
            with pytest.warns(ReadWarning) if options.get("start_time_ns") == 2**63 else nothing():
                warned.append(reading(place, **options))
        assert warned[0] == warned[1], options
    frame = Rosbag2Reader(path).frame("/point", start=1_100_000_000, end=1_200_000_000)
    assert frame.equals(McapReader(mcap).frame("/point", start=1_100_000_000, end=1_200_000_000))
    assert Rosbag2Reader(path).time_bounds() == McapReader(mcap).time_bounds()
    assert str(Rosbag2Reader(path).schema()) == str(McapReader(mcap).schema())


def nothing() -> object:
    import contextlib

    return contextlib.nullcontext()


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkmill.readers.rosbag2.reader.SPLIT_BYTES", 16 * 1024)


@pytest.mark.usefixtures("small_splits")
def test_splits_give_the_whole(tmp_path: Path) -> None:
    robot = Kind("/robot_description", "std_msgs/msg/String", "ros2msg", "string data\n")
    urdf = text("<robot name='r'><link name='base'/></robot>")
    messages = [*some(300), Message(2, 10**9, urdf), *some(300, 9 * 10**9)]
    path = write_database(tmp_path / "a.db3", messages, (*KINDS, robot))
    mcap = write_mcap(tmp_path / "a.mcap", messages, (*KINDS, robot))
    source = Rosbag2Reader(path).source()
    splits = source.splits()
    assert len(splits) > 3 and splits[-1].only_robots
    chunks = Rosbag2Reader(path).stream().to_chunks(executor="inline")
    theirs = McapReader(mcap).stream().to_chunks(executor="inline")
    assert joined(chunks) == joined(theirs)

    def static(some: list) -> list[Cell]:
        return sorted(c for c in content(some) if not c.times)

    assert static(chunks) == static(theirs)
    assert Rosbag2Reader(path).frame("/point").equals(McapReader(mcap).frame("/point"))


@pytest.mark.usefixtures("small_splits")
def test_ids_with_holes_and_below_zero(tmp_path: Path) -> None:
    path = write_database(
        tmp_path / "a.db3",
        some(300),
        statements=[
            "UPDATE messages SET id = -9223372036854775808 WHERE id = 1",
            "UPDATE messages SET id = 9223372036854775807 WHERE id = 300",
        ],
    )
    mcap = write_mcap(tmp_path / "a.mcap", some(300))
    assert joined(Rosbag2Reader(path).stream().to_chunks(executor="inline")) == joined(
        McapReader(mcap).stream().to_chunks(executor="inline")
    )


def test_one_topic_of_two_types(tmp_path: Path) -> None:
    folder = tmp_path / "drive"
    folder.mkdir()
    write_database(folder / "drive_0.db3", some(10)[::2], [STRING])
    write_database(
        folder / "drive_1.db3", [Message(0, m.time, m.data) for m in some(10)[1::2]], [POINT._replace(topic="/chatter")]
    )
    components = {c.component for c in read(folder) if c.times}
    assert components == {"TextDocument:text", "geometry_msgs.msg.Point:message"}


def test_messages_that_are_compressed_one_by_one(tmp_path: Path, mcap: Path) -> None:
    from zstandard import ZstdCompressor

    packed = [m._replace(data=ZstdCompressor().compress(m.data)) for m in some()]
    path = write_database(tmp_path / "a.db3", packed)
    assert [c for c in read(path) if c.times] == [c for c in read_mcap(mcap) if c.times]


def test_places_that_are_no_recording(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Rosbag2Reader(tmp_path / "none.db3")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReadError, match=r"the folder contains no recording of rosbag2"):
        read(tmp_path / "empty")
    write_bag(tmp_path / "drive", [some()])
    write_mcap(tmp_path / "drive" / "drive_1.mcap", some())
    (tmp_path / "drive" / "metadata.yaml").unlink()
    with pytest.raises(ReadError, match=r"contains databases and MCAPs"):
        read(tmp_path / "drive")
    url = located("s3://bucket/drive/drive_0.db3")
    with pytest.raises(UnsupportedError, match=r"SQLite needs local files"):
        Rosbag2Source(str(url)).splits()
    other = write_bag(tmp_path / "other", [some()])
    (other / "metadata.yaml").write_text(metadata(["other_0.db3"]).replace('format: ""', "format: lz4"))
    with pytest.raises(UnsupportedError, match=r"compression 'lz4'"):
        read(other)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "metadata.yaml").write_text("title: a folder of something else\n")
    write_mcap(tmp_path / "plain" / "a.mcap", some())
    with pytest.raises(ReadError, match="this is a folder"):
        detect_format(tmp_path / "plain")


def test_inspect_and_verify(tmp_path: Path) -> None:
    folder = write_bag(tmp_path / "drive", [some(20), some(20)])
    row = detect_format(folder)
    report = row.inspect(folder)
    assert report.facts["files"] == 2 and report.facts["metadata"] == "version 9"
    assert [(e.path, e.rows, e.schema) for e in report.stores[0].entities] == [
        ("/chatter", 20, "std_msgs/msg/String"),
        ("/point", 20, "geometry_msgs/msg/Point"),
    ]
    verification = row.open(folder).verify()
    assert verification.faults == () and verification.rows
    (folder / "metadata.yaml").write_text(metadata(["drive_0.db3", "drive_1.db3"], count=99))
    assert row.inspect(folder).facts["messages in metadata.yaml"] == "99, which differs from the files"
    data = bytearray((folder / "drive_1.db3").read_bytes())
    data[4096 * 2 : 4096 * 2 + 8] = bytes(8)
    (folder / "drive_1.db3").write_bytes(data)
    assert row.open(folder).verify().faults


def test_a_compressed_database_that_was_replaced_is_not_read_by_the_old_plan(tmp_path: Path) -> None:
    messages = some(20)
    packed = compress(next(write_bag(tmp_path / "drive", [messages]).glob("*.db3")))
    source = Rosbag2Source(str(packed))
    travelled = pickle.dumps((source, source.splits()))
    copy = Path(source.bag.files[0].local.place)
    _remove(str(copy.parent), os.getpid() + 1)  # as in a process that was forked
    assert copy.exists()
    shutil.rmtree(copy.parent)  # as on another machine
    same, splits = pickle.loads(travelled)
    assert sum(chunk.num_rows for split in splits for chunk in same.read(split))
    shutil.rmtree(Path(same.bag.files[0].local.place).parent)
    other = compress(next(write_bag(tmp_path / "other", [messages[:10]]).glob("*.db3")))
    shutil.copy(other, packed)
    late, splits = pickle.loads(travelled)
    with pytest.raises(ReadError, match=r"db3\.zstd.*was replaced since it was opened|was replaced since"):
        [chunk for split in splits for chunk in late.read(split)]
