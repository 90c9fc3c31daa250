"""Bags of ROS 1: what comes out is what an MCAP of the same messages gives, and what rosbags reads."""

from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from bag_bytes import (
    COMPRESS,
    CONNECTIONS,
    STAMPED,
    ChunkOf,
    Message,
    bag,
    bag_header,
    chunk,
    connection,
    message,
    messages,
    record,
    recording,
    stamped,
    string,
    u32,
)
from chunkmill.engine import Chunk
from chunkmill.engine.errors import ReadError, ReadWarning, SourceMissingError, UnmatchedWarning, UnsupportedError
from chunkmill.readers import BagReader, McapReader
from chunkmill.readers.bag import BagSource
from chunkmill.readers.bag.records import BagFile
from comparison import Cell, cells
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.writer import Writer

FILE_LEVEL = ("Mcap", "RecordingInfo")


def read(path: Path, **options: Any) -> list[Chunk]:
    return BagReader(path, **options).stream().to_chunks(executor="inline")


def of_messages(chunks: list[Chunk]) -> list[Cell]:
    """The cells of messages; those of the file as a whole name its container."""
    return [cell for cell in cells(chunks) if not cell.component.startswith(FILE_LEVEL)]


def rows(chunks: list[Chunk]) -> list[tuple[str, int, Any]]:
    """Each message: entity, log time, value; sorted."""
    found = []
    for one in chunks:
        times = {t.name: t.ticks.tolist() for t in one.data.timelines}.get("message_log_time")
        for column in one.data.components if times else ():
            found += [(one.entity_path, t, v) for t, v in zip(times, column.values.to_pylist(), strict=True)]
    return sorted(found, key=repr)


def as_mcap(path: Path, entries: list[Message]) -> Path:
    """The same messages as an MCAP."""
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        words = writer.register_schema("std_msgs/String", "ros1msg", b"string data\n")
        other = writer.register_schema("my_msgs/Stamped", "ros1msg", STAMPED.encode())
        ids = [
            writer.register_channel("/words", "ros1", words),
            writer.register_channel("/words", "ros1", words),
            writer.register_channel("/stamped", "ros1", other),
        ]
        for entry in entries:
            writer.add_message(ids[entry.connection], entry.time, entry.data, entry.time)
        writer.finish()
    return path


def save(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("per_chunk", [1, 7, 60])
def test_what_an_mcap_of_the_same_messages_gives(
    tmp_path: Path, compression: str, indexed: bool, per_chunk: int
) -> None:
    path = save(tmp_path / "x.bag", recording(compression, indexed=indexed, per_chunk=per_chunk))
    mcap = McapReader(as_mcap(tmp_path / "x.mcap", messages())).stream().to_chunks(executor="inline")
    ours = of_messages(read(path))
    assert ours == of_messages(mcap)
    assert {cell.entity for cell in ours} == {"/words", "/stamped"}
    assert {c.entity_path for c in read(path)} == {c.entity_path for c in mcap}


@given(st.data())
@settings(max_examples=60)
def test_any_order_of_fields_and_cuts(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Headers in any order and with more fields, connections in any order, data of any length."""
    folder = tmp_path_factory.mktemp("bags")
    entries = [
        Message(
            data.draw(st.integers(0, 2)),
            data.draw(st.integers(0, 2**32 * 10**9 - 1)),
            string(data.draw(st.text(max_size=3))),
        )
        for _ in range(data.draw(st.integers(0, 12)))
    ]
    strings = [connection(i, "/words" if i < 2 else "/other") for i in range(3)]
    orders = list(itertools.permutations(("conn", "op", "time")))
    chunks, at = [], 0
    while at < len(entries):
        size = data.draw(st.integers(1, len(entries)))
        made = chunk(entries[at : at + size], data.draw(st.sampled_from(list(COMPRESS))))
        records = b"".join(
            message(e, data.draw(st.sampled_from(orders)), **data.draw(st.sampled_from(({}, {"more": b"x"}))))
            for e in entries[at : at + size]
        )
        odd = record(5, records, compression=b"none", size=u32(len(records)))
        chunks.append(ChunkOf(odd, b"", *made[2:]) if data.draw(st.booleans()) else made)
        at += size
    path = save(folder / "x.bag", bag(chunks, strings))
    frame = rows(read(path, decoders=["ros2_reflection"]))
    topic = {0: "/words", 1: "/words", 2: "/other"}
    wanted = [(topic[e.connection], e.time, [{"data": e.data[4:].decode()}]) for e in entries]
    assert frame == sorted(wanted, key=repr)


@pytest.mark.parametrize("compression", [None, "BZ2", "LZ4"])
def test_what_rosbags_reads(tmp_path: Path, compression: str | None) -> None:
    """A bag that rosbags wrote, of types of ROS with headers, arrays and texts."""
    import numpy as np
    from rosbags.rosbag1 import Reader, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    path = tmp_path / "x.bag"
    writer = Writer(path)
    writer.chunk_threshold = 4096
    if compression:
        writer.set_compression(getattr(Writer.CompressionFormat, compression))
    chance = random.Random(1)
    types = store.types
    with writer:
        joints = [
            writer.add_connection("/joints", "sensor_msgs/msg/JointState", typestore=store, callerid=name)
            for name in ("/left", "/right")
        ]
        path_of = writer.add_connection("/path", "nav_msgs/msg/Path", typestore=store, latching=1)
        for i in range(80):
            stamp = types["builtin_interfaces/msg/Time"](sec=i, nanosec=i * 7)
            header = types["std_msgs/msg/Header"](seq=i, stamp=stamp, frame_id=f"f{i % 3}")
            numbers = np.array([chance.random() for _ in range(i % 5)])
            value = types["sensor_msgs/msg/JointState"](
                header, [f"j{n}" for n in range(i % 5)], numbers, numbers * 2, -numbers
            )
            writer.write(joints[i % 2], 10**9 + i * 1000, store.serialize_ros1(value, value.__msgtype__))
            if i % 10 == 0:
                point = types["geometry_msgs/msg/Point"](1.0, float(i), 2.0)
                pose = types["geometry_msgs/msg/Pose"](point, types["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0))
                poses = [types["geometry_msgs/msg/PoseStamped"](header, pose)] * (i // 10)
                value = types["nav_msgs/msg/Path"](header, poses)
                writer.write(path_of, 10**9 + i * 1000, store.serialize_ros1(value, value.__msgtype__))
    theirs = []
    with Reader(path) as reader:
        for one, at, raw in reader.messages():
            theirs.append((one.topic, at, [plain(store.deserialize_ros1(raw, one.msgtype))]))
        assert BagReader(path).time_bounds() == (reader.start_time, reader.end_time - 1)
    assert rows(read(path, decoders=["ros2_reflection"])) == sorted(theirs, key=repr)


def plain(value: Any) -> Any:
    if hasattr(value, "__msgtype__"):
        return {name: plain(v) for name, v in vars(value).items() if not name.startswith("__")}
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(v) for v in value] if isinstance(value, list) else value


def test_connections_are_channels_with_their_definitions(tmp_path: Path) -> None:
    path = save(tmp_path / "x.bag", recording())
    info = BagReader(path).info(timing=True)
    assert [(c.id, c.topic, c.schema, c.count) for c in info.channels] == [
        (0, "/words", "std_msgs/String", 20),
        (1, "/words", "std_msgs/String", 20),
        (2, "/stamped", "my_msgs/Stamped", 20),
    ]
    assert info.channels[2].timing is not None and info.channels[2].timing.largest_gap == 3_000_000
    scanned = BagReader(save(tmp_path / "y.bag", recording(indexed=False))).info(timing=True)
    assert scanned.scanned and scanned.channels == info.channels and scanned.messages == info.messages == 60
    assert "<table" in BagReader(path)._repr_html_()
    static = [c for c in read(path) if c.is_static and c.entity_path == "/words"]
    metadata = [{p["first"]: p["second"] for p in m} for m in metadata_of(static)]
    assert [m["callerid"] for m in metadata] == ["/a", "/b"] and metadata[1]["latching"] == "1"


def metadata_of(chunks: list[Chunk]) -> list[Any]:
    return [
        c.values.to_pylist()[0][0]
        for chunk in chunks
        for c in chunk.data.components
        if c.descriptor.component == "McapChannel:metadata"
    ]


class Reads:
    """The bytes of the file that were read for chunks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        for name in ("read_into", "view_of"):
            inner = getattr(BagFile, name)

            def counted(file: BagFile, at: int, room: Any, *, _inner: Any = inner, **more: Any) -> Any:
                self.bytes += len(room) if hasattr(room, "__len__") else room
                return _inner(file, at, room, **more)

            monkeypatch.setattr(BagFile, name, counted)


@pytest.mark.parametrize("compression", COMPRESS)
def test_only_chunks_with_the_topics_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    rare = [Message(2, 10**9 * i, stamped(i, i, "rare")) for i in range(10)]
    many = [[Message(0, 10**9 * i + j, string("x" * 500)) for j in range(50)] for i in range(10)]
    chunks = [chunk(part, compression) for i in range(10) for part in (many[i], [rare[i]])]
    path = save(tmp_path / "x.bag", bag(chunks, CONNECTIONS))
    reads = Reads(monkeypatch)
    assert len(rows(read(path, include_topic_regex=["stamped"], decoders=["ros2_reflection"]))) == 10
    filtered = reads.bytes
    assert 0 < filtered < 10 * 400
    assert len(BagReader(path).values().filter(content="/stamped").to_arrow("/stamped")) == 10
    assert reads.bytes == 2 * filtered
    inside = read(path, start_time_ns=3 * 10**9, end_time_ns=4 * 10**9, decoders=["ros2_reflection"])
    assert len(rows(inside)) == 51
    assert reads.bytes - 2 * filtered < 51 * 600
    with pytest.warns(UnmatchedWarning, match="no topic matches"):
        read(path, include_topic_regex=["nothing"])
    with pytest.warns(ReadWarning, match="no message is from 0 ns"):
        read(path, start_time_ns=0, end_time_ns=0)
    with pytest.warns(ReadWarning, match="log times of the file are 0 to 9"):
        read(path, start_time_ns=10**12)


@pytest.mark.parametrize("compression", COMPRESS)
def test_splits_give_what_one_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str) -> None:
    path = save(tmp_path / "x.bag", recording(compression, count=300))
    whole = read(path)
    for module in ("plan", "bag"):
        place = {"plan": "chunkmill.readers.mcap.plan", "bag": "chunkmill.readers.bag.reader"}[module]
        monkeypatch.setattr(f"{place}.SPLIT_BYTES", 4096)
    source = BagReader(path).source()
    splits = source.splits()
    assert len(splits) > 4 and sum(split.messages or 0 for split in splits) == 300
    chunks = [c for split in splits for c in source.read(split)]
    assert rows(chunks) == rows(whole)
    narrow = BagReader(path, include_topic_regex=["stamped"]).source()
    assert rows([c for s in narrow.splits() for c in narrow.read(s)]) == [r for r in rows(whole) if r[0] == "/stamped"]


def test_a_robot_description_is_found_across_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urdf = '<robot name="r"><link name="base"/></robot>'
    connections = [connection(0, "/robot_description", latching=b"1"), connection(1, "/words")]
    chunks = [chunk([Message(0, 1, string(urdf))])]
    chunks += [chunk([Message(1, 2 + i, string("x" * 3000))]) for i in range(6)]
    path = save(tmp_path / "x.bag", bag(chunks, connections))
    wanted = cells([c for c in read(path) if c.is_static])
    monkeypatch.setattr("chunkmill.readers.mcap.plan.SPLIT_BYTES", 4096)
    monkeypatch.setattr("chunkmill.readers.bag.reader.SPLIT_BYTES", 4096)
    source = BagReader(path).source()
    splits = source.splits()
    assert len(splits) > 2
    assert cells([c for s in splits for c in source.read(s) if c.is_static]) == wanted
    assert {"/robot_description", "/r"} <= {cell.entity for cell in wanted}, {cell.entity for cell in wanted}


def test_an_index_that_lists_too_little_or_wrong_places_loses_nothing(tmp_path: Path) -> None:
    """Behind each chunk: the entries are compared with the records, which decide."""
    entries = messages(20)
    right = chunk(entries, connections=CONNECTIONS)
    some = chunk(entries[:6], connections=CONNECTIONS).indexes
    wrong = chunk(entries).indexes
    for indexes in (b"", some, wrong, right.indexes[: -12 - 4] + u32(12) + bytes(12)):
        path = save(tmp_path / "x.bag", bag([right._replace(indexes=indexes)], CONNECTIONS))
        assert len(rows(read(path, decoders=["ros2_reflection"]))) == 20


def test_types_that_nothing_defines_stay_bytes(tmp_path: Path) -> None:
    connections = [connection(0, "/any", "*", "")]
    path = save(tmp_path / "x.bag", bag([chunk([Message(0, 1, b"abc")])], connections))
    with pytest.warns(ReadWarning, match="raw bytes"):
        assert rows(read(path)) == [("/any", 1, [list(b"abc")])] or rows(read(path))


class TestUnfinished:
    """Bags whose recorder was stopped: their index was never written, nor the sizes of the last chunk."""

    def killed(self, compression: str, cut: int) -> tuple[bytes, int]:
        """The bag, and where its last chunk begins."""
        first, last = messages()[:30], messages()[30:]
        whole = bag([chunk(first, compression, connections=CONNECTIONS)], CONNECTIONS, indexed=False)
        records = COMPRESS[compression](b"".join(map(message, last)))
        return whole + record(5, b"", compression=compression.encode(), size=u32(0)) + records[
            : len(records) - cut
        ], len(whole)

    def test_messages_of_the_last_chunk_are_read(self, tmp_path: Path) -> None:
        path = save(tmp_path / "x.bag.active", self.killed("none", 0)[0])
        assert len(rows(read(path, decoders=["ros2_reflection"]))) == 60

    def test_a_message_that_is_cut_is_an_error_there(self, tmp_path: Path) -> None:
        path = save(tmp_path / "x.bag.active", self.killed("none", 5)[0])
        with pytest.raises(ReadError, match="the file ends inside a record") as caught:
            read(path)
        last = message(messages()[-1])
        assert caught.value.offset == path.stat().st_size + 5 - len(last)
        with pytest.warns(ReadWarning, match="recovered 59 messages"):
            assert len(rows(read(path, recover=True, decoders=["ros2_reflection"]))) == 59

    @pytest.mark.parametrize("compression", ["bz2", "lz4"])
    def test_compressed(self, tmp_path: Path, compression: str) -> None:
        data, begin = self.killed(compression, 0)
        path = save(tmp_path / "x.bag.active", data)
        with pytest.raises(ReadError, match="recorder was stopped while it wrote this chunk") as caught:
            read(path)
        assert caught.value.offset == begin
        with pytest.warns(ReadWarning, match="recovered 60 messages"):
            assert len(rows(read(path, recover=True, decoders=["ros2_reflection"]))) == 60


class TestRefused:
    """Files that are no bag of version 2.0, or cannot be read."""

    def test_by_name(self, tmp_path: Path) -> None:
        right = recording()
        for data, kind, text in (
            (b"#ROSBAG V1.2\n" + right[13:], UnsupportedError, "older format, '#ROSBAG V1.2'"),
            (b"#ROSRECORD V1.1\n", UnsupportedError, "older format, '#ROSRECORD V1.1'"),
            (b"#ROSBAG V3.0\n", UnsupportedError, "V3.0"),
            (
                bag([], [], encryptor=b"rosbag/AesCbcEncryptor"),
                UnsupportedError,
                "encrypted, by 'rosbag/AesCbcEncryptor'",
            ),
            (right.replace(b"\n", b"\r\n"), ReadError, "line endings"),
            (b"", ReadError, "ends after 0 bytes"),
            (b"#ROS", ReadError, "ends after 4 bytes"),
            (b"SQLite format 3\0", ReadError, "does not begin like a bag"),
            (right.replace(b"compression=none", b"compression=zstd"), UnsupportedError, "unknown compression 'zstd'"),
        ):
            for recover in (False, True):
                if recover and "zstd" in text:
                    continue
                with pytest.raises(kind, match=text.replace("(", "\\(")) as caught:
                    read(save(tmp_path / "x.bag", data), recover=recover)
                assert caught.value.path and caught.value.hint and caught.value.offset is not None

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(SourceMissingError, match="bag file not found"):
            BagReader(tmp_path / "no.bag")

    def test_an_unencrypted_one_may_say_so(self, tmp_path: Path) -> None:
        assert read(save(tmp_path / "x.bag", recording())) and read(
            save(tmp_path / "y.bag", bag([], [], encryptor=b""))
        )


def places(data: bytes) -> list[tuple[int, int]]:
    """Where the message records of an uncompressed bag end, with where the chunk that holds each begins."""
    found, at = [], 13
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        begin = at + 8 + size
        (length,) = struct.unpack_from("<I", data, begin - 4)
        if b"compression=" in data[at:begin]:
            inner = begin
            while inner < begin + length:
                (inner_size,) = struct.unpack_from("<I", data, inner)
                head = data[inner + 4 : inner + 4 + inner_size]
                end = inner + 8 + inner_size + struct.unpack_from("<I", data, inner + 4 + inner_size)[0]
                if b"op=\x02" in head:
                    found.append((end, at))
                inner = end
        at = begin + length
    return found


@pytest.mark.parametrize("indexed", [True, False])
def test_a_cut_bag_gives_the_byte_and_all_that_is_whole(tmp_path: Path, indexed: bool) -> None:
    """At each of many places, against an oracle of where the records end."""
    data = recording(indexed=indexed, count=30)
    ends = places(data)
    assert len(ends) == 30
    offenders = []
    for cut in [*range(13 + 4096, len(data), 61), len(data) - 1]:
        path = save(tmp_path / "x.bag", data[:cut])
        at_border = not indexed and cut in borders(data)
        try:
            count = len(rows(read(path, decoders=["ros2_reflection"])))
            if not at_border:
                offenders.append((cut, "read", count))
        except ReadError as error:
            if error.offset is None or not 0 < error.offset <= cut or not error.hint:
                offenders.append((cut, "no place", error.offset))
        report = BagReader(path).recovery_report()
        wanted = sum(end <= cut for end, _ in ends)
        if report.messages != wanted or (report.is_whole and not at_border):
            offenders.append((cut, "recovered", report.messages, wanted))
    assert offenders == []


def borders(data: bytes) -> set[int]:
    found, at = {13 + 4096}, 13
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        at += 8 + size + struct.unpack_from("<I", data, at + 4 + size)[0]
        found.add(at)
    return found


@pytest.mark.parametrize("compression", COMPRESS)
def test_a_damaged_chunk_costs_its_own_messages_at_most(tmp_path: Path, compression: str) -> None:
    parts = [messages()[at : at + 10] for at in range(0, 60, 10)]
    chunks = [chunk(part, compression, connections=CONNECTIONS) for part in parts]
    data = bytearray(bag(chunks, CONNECTIONS))
    for what in ("head", "data"):
        broken = bytearray(data)
        at = 13 + 4096 + len(chunks[0].chunk + chunks[0].indexes)
        begin = at + 4 if what == "head" else at + len(chunks[1].chunk) // 2
        broken[begin : begin + 24] = b"\xff" * 24
        path = save(tmp_path / "x.bag", bytes(broken))
        if compression != "none" or what == "head":
            with pytest.raises(ReadError):
                read(path)
        report = BagReader(path, recover=True).recovery_report()
        assert 50 <= report.messages <= 60 and not report.is_whole, (what, report)
        with pytest.warns(ReadWarning, match="recovered"):
            found = rows(read(path, recover=True, decoders=["ros2_reflection", "raw"]))
        whole = rows(read(save(tmp_path / "y.bag", bytes(data)), decoders=["ros2_reflection"]))
        assert len(set(map(repr, whole)) - set(map(repr, found))) <= 10


def test_the_index_decides_what_is_there(tmp_path: Path) -> None:
    """An index that does not describe the bag is an error, and what is there can be recovered."""
    made = chunk(messages(20), connections=CONNECTIONS)
    for header, index in (
        ((3, 2), [made]),
        ((4, 1), [made]),
        ((3, 1), [made._replace(counts={0: 7, 1: 7, 2: 7})]),
        ((3, 1), [made._replace(counts={0: 7, 1: 7, 9: 6})]),
    ):
        body = made.chunk + made.indexes
        at = 13 + 4096
        infos = bag(index, CONNECTIONS)[at + len(body) :]
        path = save(tmp_path / "x.bag", bag([])[:13] + bag_header(at + len(body), *header) + body + infos)
        with pytest.raises(ReadError, match="count"):
            read(path)
        with pytest.warns(ReadWarning, match="recovered 20 messages"):
            assert len(rows(read(path, recover=True, decoders=["ros2_reflection"]))) == 20


def test_a_source_pickles_and_says_what_it_reads(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    path = save(tmp_path / "x.bag", recording())
    source = BagSource(str(path))
    split = source.splits()[0]
    again = cloudpickle.loads(cloudpickle.dumps(source))
    assert cells(list(again.read(split))) == cells(list(source.read(split)))
    assert source.describe() == f"BagReader({path})" and repr(BagReader(path)) == f"BagReader({path})"
    assert source.entities() is None or {"/words", "/stamped"} <= (source.entities() or set())
    assert {c.entity_path for c in BagReader(path).schema().component_columns()} == {"/words", "/stamped"}
