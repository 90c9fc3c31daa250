"""``write_mcap``: messages made of chunks, by what is read of them again."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import Chunk, LazyChunkStream
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ReadError, ReadWarning, UnsupportedError
from chunkmill.readers import BagReader, McapReader, RrdReader
from google.protobuf import descriptor_pb2
from mcap_doctor import examined, extras, lines
from places import recordings

MADE = "messages are made of chunks"
Content = dict[tuple[str, ComponentDescriptor], list[tuple[Any, Any, str]]]


def content(stream: LazyChunkStream, own: str = "") -> Content:
    """Time, value and type of every row that is not empty, by entity and component, in no order.

    ``own`` is a second timeline, whose times go with the first.
    """
    found: Content = defaultdict(list)
    for chunk in stream.to_chunks(executor="inline"):
        by_name = {timeline.name: timeline for timeline in chunk.data.timelines}
        line = by_name.get("log_time") or by_name.get("message_log_time")
        ticks = [None] * chunk.num_rows if line is None else line.ticks.tolist()
        if own in by_name:
            ticks = list(zip(ticks, by_name[own].ticks.tolist(), strict=True))
        for component in chunk.data.components:
            for tick, row in zip(ticks, component.values.to_pylist(), strict=True):
                if row:
                    kind = str(component.values.type.value_type)
                    found[chunk.entity_path, component.descriptor].append((tick, row, kind))
    return {key: sorted(rows, key=repr) for key, rows in found.items()}


def is_message(entity: str, descriptor: ComponentDescriptor) -> bool:
    """Whether components are of messages that are made: not of the file, nor of the recording."""
    return "Mcap" not in descriptor.component and not entity.startswith(("/__properties", "/__mcap"))


@pytest.mark.parametrize("path", recordings("rrd/*.rrd"))
@pytest.mark.filterwarnings("ignore")
def test_recordings_of_rerun_come_back_with_equal_archetypes(path: Path, tmp_path: Path) -> None:
    try:
        before = content(RrdReader(path).stream())
    except UnsupportedError:
        pytest.skip("too old")
    out = tmp_path / "out.mcap"
    report = RrdReader(path).stream().write_mcap(out, executor="inline")
    assert MADE in report.plan
    examined(out)
    after = content(McapReader(out).stream())
    for (entity, descriptor), rows in before.items():
        if is_message(entity, descriptor):
            again = after[entity, descriptor]
            if rows[0][0] is None:  # static
                again = [(None, *row[1:]) for row in again]
            assert sorted(again, key=repr) == rows, (entity, descriptor)


def chunk(archetype: str, times: list[int], **fields: pa.Array) -> Chunk:
    prefix = f"rerun.archetypes.{archetype}"
    columns = [(ComponentDescriptor(f"{archetype}:{n}", prefix, f"rerun.components.{n}"), v) for n, v in fields.items()]
    lines = {"log_time": pa.array(times, pa.timestamp("ns"))} if times else {}
    return Chunk.build("/world/thing", lines, columns)


def lists(rows: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(rows, pa.list_(kind))


F32x3, F32x4 = pa.list_(pa.float32(), 3), pa.list_(pa.float32(), 4)
BLOB = pa.list_(pa.uint8())
FORMAT = pa.struct(
    [
        ("width", pa.uint32()),
        ("height", pa.uint32()),
        ("pixel_format", pa.uint8()),
        ("color_model", pa.uint8()),
        ("channel_datatype", pa.uint8()),
    ]
)
JPEG = list(b"\xff\xd8\xff\xe0jpeg")

CHUNKS: dict[str, Callable[[], Chunk]] = {
    "Log": lambda: chunk(
        "TextLog", [5, 6], text=lists([["a"], ["ö"]], pa.string()), level=lists([["WARN"], None], pa.string())
    ),
    "CompressedImage": lambda: chunk(
        "EncodedImage", [5], blob=lists([[JPEG]], BLOB), media_type=lists([["image/jpeg"]], pa.string())
    ),
    "CompressedVideo": lambda: chunk(
        "VideoStream",
        [5, 6],
        sample=lists([[[0, 0, 0, 1, 0x67]], [[0, 0, 1]]], BLOB),
        codec=lists([[0x61766331], [0x61766331]], pa.uint32()),
    ),
    "RawImage": lambda: chunk(
        "Image",
        [5],
        buffer=lists([[list(range(12))]], BLOB),
        format=lists(
            [[{"width": 2, "height": 2, "pixel_format": None, "color_model": 2, "channel_datatype": 6}]], FORMAT
        ),
    ),
    "PointCloud": lambda: chunk(
        "Points3D",
        [5],
        positions=lists([[[1, 2, 3], [4, 5, 6]]], F32x3),
        colors=lists([[0xFF8000FF, 0x01020304]], pa.uint32()),
    ),
    "FrameTransform": lambda: chunk(
        "Transform3D",
        [5],
        translation=lists([[[1, 2, 3.5]]], F32x3),
        quaternion=lists([[[0, 0, 0.5, 0.5]]], F32x4),
        parent_frame=lists([["map"]], pa.string()),
        child_frame=lists([["base"]], pa.string()),
    ),
    "LocationFix": lambda: chunk("GeoPoints", [5], positions=lists([[[52.5, 13.25]]], pa.list_(pa.float64(), 2))),
    "CameraCalibration": lambda: chunk(
        "Pinhole",
        [5],
        image_from_camera=lists([[[500, 0, 0, 0, 400, 0, 320, 240, 1]]], pa.list_(pa.float32(), 9)),
        resolution=lists([[[640, 480]]], pa.list_(pa.float32(), 2)),
    ),
}


CHUNKS |= {
    "PoseInFrame": lambda: chunk(
        "InstancePoses3D",
        [5],
        translations=lists([[[1, 2, 3.5]]], F32x3),
        quaternions=lists([[[0, 0, 0.5, 0.5]]], F32x4),
    ),
    "PosesInFrame": lambda: chunk(
        "InstancePoses3D",
        [5],
        translations=lists([[[1, 2, 3.5], [4, 5, 6]]], F32x3),
        quaternions=lists([[[0, 0, 0.5, 0.5], [0, 0, 0, 1]]], F32x4),
    ),
    "VoxelGrid": lambda: chunk(
        "VoxelGridMap",
        [5, 6],
        voxel_indices=lists(
            [
                [[x, y, z] for z in range(2) for y in range(3) for x in range(4)],
                [[x, y, 0] for y in range(2) for x in range(2)],
            ],
            pa.list_(pa.int32(), 3),
        ),
        voxel_size=lists([[[0.5, 0.25, 1]], [[1, 1, 1]]], F32x3),
        colors=lists([[0x01020304 + i for i in range(24)], None], pa.uint32()),
        translation=lists([[[1, 2, 3]], None], F32x3),
        quaternion=lists([[[0, 0, 0.5, 0.5]], None], F32x4),
    ),
}


@pytest.mark.parametrize("name", CHUNKS)
def test_archetypes_become_foxglove_messages_and_come_back(name: str, tmp_path: Path) -> None:
    made, out = CHUNKS[name](), tmp_path / "out.mcap"
    LazyChunkStream.from_iter([made]).write_mcap(out, executor="inline")
    found = lines(out)
    assert {line.schema and line.schema[:2] for line in found} == {(f"foxglove.{name}", "protobuf")}
    assert [line.log_time for line in found] == made.data.timelines[0].ticks.tolist()
    assert {line.topic for line in found} == {"/world/thing"}
    after = {d.component: rows for (_, d), rows in content(McapReader(out).stream()).items()}
    for (_, descriptor), rows in content(LazyChunkStream.from_iter([made])).items():
        assert [row[:2] for row in after[descriptor.component]] == [row[:2] for row in rows], descriptor
    examined(out)


@pytest.mark.parametrize(
    "path",
    recordings("generated/fox_*.mcap", "generated/proto*.mcap", "generated/pc2_*.mcap", "mcap/*.mcap", "bag/*.bag"),
)
@pytest.mark.filterwarnings("ignore")
def test_messages_that_were_read_come_back_as_they_were(path: Path, tmp_path: Path) -> None:
    """Also those that became archetypes, with the frames that they name; of Foxglove's with their own times, too."""
    out = tmp_path / "out.mcap"
    reader = (BagReader if path.suffix == ".bag" else McapReader)(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            reader.stream().map(lambda chunk: chunk).write_mcap(out, executor="inline")
        except ReadError:
            pytest.skip("damaged")
    is_whole = not any("without their times on timestamp" in str(warning.message) for warning in caught)
    own = "timestamp" if is_whole and path.name.startswith(("fox_", "proto")) else ""
    before = content(reader.stream(), own)
    examined(out)
    after = content(McapReader(out).stream(), own)
    found = {key: after[key] for key in after if is_message(*key)}
    assert {d.component for key in found if key not in before for d in key[1:]} <= {"EncodedImage:media_type"}, (
        "guessed"
    )
    for key, rows in before.items():
        if is_message(*key):
            again = [(None, *row[1:]) for row in found[key]] if rows[0][0] is None else found[key]
            assert repr(sorted(again, key=repr)) == repr(rows), key


def test_a_frame_is_that_of_the_messages_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "out.mcap"
    frame = ComponentDescriptor("CoordinateFrame:frame", "rerun.archetypes.CoordinateFrame")
    made = [CHUNKS[name]() for name in ("PointCloud", "CompressedImage", "LocationFix", "PoseInFrame")]
    framed = []
    for n, each in enumerate(made):
        columns = [(c.descriptor, c.values) for c in each.data.components]
        lines_ = {"log_time": pa.array([n], pa.timestamp("ns")), "timestamp": pa.array([n + 7], pa.timestamp("ns"))}
        frames = lists([["cam_image_plane" if n == 1 else "lidar"]], pa.string())
        framed.append(Chunk.build(f"/e{n}", lines_, [*columns, (frame, frames)]))
    LazyChunkStream.from_iter(framed).write_mcap(out, executor="inline")
    assert [line.encoding for line in lines(out)] == ["protobuf"] * 4
    after, before = (
        content(McapReader(out).stream(), "timestamp"),
        content(LazyChunkStream.from_iter(framed), "timestamp"),
    )
    for (entity, descriptor), rows in before.items():
        (again,) = [v for (e, d), v in after.items() if (e, d.component) == (entity, descriptor.component)]
        assert [row[:2] for row in again] == [row[:2] for row in rows], descriptor


def test_a_static_frame_holds_for_the_messages_of_its_entity(tmp_path: Path) -> None:
    rrd, out = tmp_path / "in.rrd", tmp_path / "out.mcap"
    kind = "rerun.components.TransformFrameId"
    frame = ComponentDescriptor("CoordinateFrame:frame", "rerun.archetypes.CoordinateFrame", kind)
    static = Chunk.build("/world/thing", {}, [(frame, lists([["lidar"]], pa.string()))])
    stream = LazyChunkStream.from_iter([CHUNKS["PointCloud"](), static])
    stream.write_rrd(rrd, application_id="a", recording_id="b", executor="inline")
    RrdReader(rrd).stream().write_mcap(out, executor="inline")
    found = content(McapReader(out).stream())
    (frames,) = [rows for (_, d), rows in found.items() if d.component == "CoordinateFrame:frame"]
    assert {row[1][0] for row in frames} == {"lidar"}


def test_the_pose_of_points_is_in_their_message(tmp_path: Path) -> None:
    out = tmp_path / "out.mcap"
    columns = [(c.descriptor, c.values) for n in ("PointCloud", "PoseInFrame") for c in CHUNKS[n]().data.components]
    posed = Chunk.build("/cloud", {"log_time": pa.array([5], pa.timestamp("ns"))}, columns)
    LazyChunkStream.from_iter([posed]).write_mcap(out, executor="inline")
    assert [line.schema and line.schema[0] for line in lines(out)] == ["foxglove.PointCloud"]
    after = {d.component: rows for (_, d), rows in content(McapReader(out).stream()).items()}
    for (_, descriptor), rows in content(LazyChunkStream.from_iter([posed])).items():
        assert [row[:2] for row in after[descriptor.component]] == [row[:2] for row in rows], descriptor


def test_a_frame_that_is_no_image_plane_is_named(tmp_path: Path) -> None:
    frame = ComponentDescriptor("CoordinateFrame:frame", "rerun.archetypes.CoordinateFrame")
    columns = [(c.descriptor, c.values) for c in CHUNKS["CompressedImage"]().data.components]
    framed = Chunk.build(
        "/cam", {"log_time": pa.array([5], pa.timestamp("ns"))}, [*columns, (frame, lists([["cam"]], pa.string()))]
    )
    with pytest.warns(ReadWarning) as caught:
        LazyChunkStream.from_iter([framed]).write_mcap(tmp_path / "out.mcap", executor="inline")
    said = "\n".join(str(warning.message) for warning in caught)
    assert "1 images at /cam are assigned to the frame cam_image_plane" in said


def test_definitions_of_foxglove_messages_are_whole(tmp_path: Path) -> None:
    out = tmp_path / "out.mcap"
    LazyChunkStream.from_iter([CHUNKS["Log"]()]).write_mcap(out, executor="inline")
    schema = lines(out)[0].schema
    assert schema is not None
    files = descriptor_pb2.FileDescriptorSet.FromString(schema[2]).file
    assert [file.name for file in files] == ["google/protobuf/timestamp.proto", "foxglove.proto"]
    assert {d for file in files for d in file.dependency} <= {file.name for file in files}


def test_what_foxglove_has_no_place_for_is_json_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "out.mcap"
    points = chunk("Points3D", [5], positions=lists([[[1, 2, 3]]], F32x3), radii=lists([[0.5]], pa.float32()))
    scaled = chunk("Transform3D", [6], translation=lists([[[1, 2, 3]]], F32x3), scale=lists([[[2, 2, 2]]], F32x3))
    LazyChunkStream.from_iter([points, scaled]).write_mcap(out, executor="inline")
    names = [(line.schema[0], line.encoding) for line in lines(out) if line.schema]
    assert names == [
        ("foxglove.PointCloud", "protobuf"),
        ("rerun.archetypes.Points3D", "json"),
        ("rerun.archetypes.Transform3D", "json"),
    ]
    assert json.loads(lines(out)[1].data) == {"radii": [0.5]}
    after = {d.component for _, d in content(McapReader(out).stream())}
    assert {"Points3D:positions", "Points3D:radii", "Transform3D:translation", "Transform3D:scale"} <= after


def test_rows_without_a_form_are_named(tmp_path: Path) -> None:
    out = tmp_path / "out.mcap"
    scalars = Chunk.build(
        "/s",
        {"frame": pa.array([1, 2], pa.int64()), "log_time": pa.array([-5, 7], pa.timestamp("ns"))},
        [
            (
                ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars"),
                lists([[1.0], [float("nan")]], pa.float64()),
            )
        ],
    )
    with pytest.warns(ReadWarning) as caught:
        LazyChunkStream.from_iter([scalars]).write_mcap(out, executor="inline")
    said = "\n".join(str(warning.message) for warning in caught)
    assert "1 messages at /s have null for NaN" in said
    assert "1 rows with times before 0" in said
    assert "2 rows are written without their times on frame" in said
    assert [line.log_time for line in lines(out)] == [0, 7]


def test_static_data_is_at_the_first_log_time(tmp_path: Path) -> None:
    out = tmp_path / "out.mcap"
    static = chunk("TextDocument", [], text=lists([["read me"]], pa.string()))
    LazyChunkStream.from_iter([static, CHUNKS["Log"]()]).write_mcap(out, executor="inline")
    assert [line.log_time for line in lines(out)] == [5, 5, 6]
    assert lines(out)[0].schema == lines(out)[0].schema
    LazyChunkStream.from_iter([static]).write_mcap(out, executor="inline")
    assert [line.log_time for line in lines(out)] == [0]


@pytest.mark.parametrize("path", recordings("generated/ros2_i*.mcap", "generated/ros2_misc.mcap"))
@pytest.mark.filterwarnings("ignore")
def test_messages_of_ros_are_encoded_by_their_schema_again(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mcap"
    reader = McapReader(path, decoders=["ros2_reflection", "raw"])
    report = reader.stream().map(lambda chunk: chunk).write_mcap(out, executor="inline")
    assert MADE in report.plan
    examined(out)
    before, after = [[line._replace(sequence=0) for line in lines(p)] for p in (path, out)]
    assert sorted(after, key=repr) == sorted(before, key=repr)
    assert len(extras(out)) == len(extras(path))


def test_raw_messages_stay_as_they_are(tmp_path: Path) -> None:
    from mcap.writer import Writer

    path, out = tmp_path / "in.mcap", tmp_path / "out.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start(library="test")
        channel = writer.register_channel("/raw bytes", "own", 0, {"k": "v"})
        for i in range(5):
            writer.add_message(channel, 10 + i, bytes([i]) * i, 20 + i)
        writer.finish()
    McapReader(path).stream().map(lambda chunk: chunk).write_mcap(out, executor="inline")
    assert [line._replace(sequence=0) for line in lines(path)] == lines(out)
    rrd, again = tmp_path / "in.rrd", tmp_path / "again.mcap"
    McapReader(path).stream().write_rrd(rrd, application_id="a", recording_id="b", executor="inline")
    RrdReader(rrd).stream().write_mcap(again, executor="inline")
    assert [line for line in lines(again) if line.topic == "/raw bytes"] == lines(out)


def test_messages_are_made_on_spark(spark: Any, tmp_path: Path) -> None:
    outs = [tmp_path / "inline.mcap", tmp_path / "spark.mcap"]
    for out in outs:
        chunks = [make() for make in CHUNKS.values()]
        LazyChunkStream.from_iter(chunks).write_mcap(out, executor=out.stem)
    assert lines(outs[0]) == lines(outs[1])
    assert len(lines(outs[0])) == 14
    assert np.diff([line.log_time for line in lines(outs[1])]).min() >= 0


def test_structs_without_a_writer_are_named(tmp_path: Path) -> None:
    kept = {
        "McapChannel:topic": ["/t", pa.string()],
        "McapChannel:message_encoding": ["flatbuffer", pa.string()],
        "McapSchema:name": ["p.T", pa.string()],
        "McapSchema:encoding": ["flatbuffer", pa.string()],
        "McapSchema:data": [list(b"bfbs"), BLOB],
    }
    columns = [(ComponentDescriptor(n, n.split(":")[0]), lists([[value]], kind)) for n, (value, kind) in kept.items()]
    structs = pa.array([[{"x": 7}], [{"x": 8}]])
    parts = [
        Chunk.build("/t", {}, columns),
        Chunk.build(
            "/t",
            {"log_time": pa.array([1, 2], pa.timestamp("ns"))},
            [(ComponentDescriptor("p.T:message", "p.T"), structs)],
        ),
    ]
    rrd, out = tmp_path / "in.rrd", tmp_path / "out.mcap"
    LazyChunkStream.from_iter(parts).write_rrd(rrd, application_id="a", recording_id="b", executor="inline")
    with pytest.warns(ReadWarning, match=r"2 messages of p\.T, encoded as flatbuffer, are written as JSON"):
        RrdReader(rrd).stream().write_mcap(out, executor="inline")
    assert [(line.encoding, json.loads(line.data)) for line in lines(out)] == [
        ("json", {"message": [{"x": 7}]}),
        ("json", {"message": [{"x": 8}]}),
    ]
