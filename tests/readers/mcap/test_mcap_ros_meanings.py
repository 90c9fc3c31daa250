"""ROS messages in MCAP files as what they mean: ROS 2, ROS 1, IDL; and what becomes of those that mean nothing such."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.errors import ReadWarning
from chunkmill.lenses import DeriveLens, Selector
from chunkmill.readers.mcap.decoders import LensMapping, McapOptions
from mcap.writer import Writer
from places import DATA

from tests.readers.mcap.mcap_bytes import channel, chunk_of, chunks_of, mcap, message, schema, written

RULE = "=" * 80
HEADER = f"{RULE}\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
TIME = f"{RULE}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
TEMPERATURE = f"std_msgs/Header header\nfloat64 temperature\nfloat64 variance\n{HEADER}{TIME}"
TEMPERATURE_1 = (
    "Header header\nfloat64 temperature\nfloat64 variance\n"
    f"{RULE}\nMSG: std_msgs/Header\nuint32 seq\ntime stamp\nstring frame_id\n"
)
TEMPERATURE_IDL = """
module builtin_interfaces { module msg { struct Time { int32 sec; uint32 nanosec; }; }; };
module std_msgs { module msg {
  struct Header { builtin_interfaces::msg::Time stamp; string frame_id; };
}; };
module sensor_msgs { module msg {
  struct Temperature { std_msgs::msg::Header header; double temperature; double variance; };
}; };
"""
STRUCT = "sensor_msgs.msg.Temperature:message"
BOTH = ["ros2msg", "ros2_reflection"]


def cdr(sec: int, value: float) -> bytes:
    """A temperature at ``sec`` and 5 ns in CDR, in a frame whose name leaves nothing to align."""
    return b"\0\1\0\0" + struct.pack("<iII", sec, 5, 4) + b"abc\0" + struct.pack("<dd", value, 0.5)


def ros1(sec: int, value: float) -> bytes:
    return struct.pack("<IIII", 1, sec, 5, 3) + b"abc" + struct.pack("<dd", value, 0.5)


ENCODINGS = {
    "ros2": ("sensor_msgs/msg/Temperature", "ros2msg", TEMPERATURE, "cdr", cdr),
    "ros2 in the old style": ("sensor_msgs/Temperature", "ros2msg", TEMPERATURE, "cdr", cdr),
    "ros1": ("sensor_msgs/Temperature", "ros1msg", TEMPERATURE_1, "ros1", ros1),
    "idl": ("sensor_msgs/msg/Temperature", "ros2idl", TEMPERATURE_IDL, "cdr", cdr),
    "idl of the OMG": ("sensor_msgs::msg::Temperature", "omgidl", TEMPERATURE_IDL, "cdr", cdr),
}


def recording(folder: Path, messages: Sequence[bytes], definition: str = TEMPERATURE) -> Path:
    """A file with messages of ``sensor_msgs/msg/Temperature`` at ``/t``, at the log times 0, 1, …"""
    records = [schema(1, "sensor_msgs/msg/Temperature", "ros2msg", definition.encode()), channel(1, "/t", "cdr", 1)]
    return written(folder, mcap([chunk_of([*records, *(message(1, i, m) for i, m in enumerate(messages))])]))


def cells(chunks: Sequence[Chunk]) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for made in chunks:
        for component in made.data.components:
            found.setdefault(component.descriptor.component, []).extend(component.values.to_pylist())
    return found


def times(chunks: Sequence[Chunk]) -> dict[str, tuple[str, list[int]]]:
    return {line.name: (str(line.times.type), line.ticks.tolist()) for c in chunks for line in c.data.timelines}


@pytest.mark.parametrize("form", list(ENCODINGS))
def test_a_message_means_the_same_however_it_is_encoded(form: str, tmp_path: Path) -> None:
    name, schema_encoding, definition, encoding, encode = ENCODINGS[form]
    records = [schema(1, name, schema_encoding, definition.encode()), channel(1, "/t", encoding, 1)]
    records += [message(1, i, encode(i, 20.5 + i)) for i in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ReadWarning)
        found = chunks_of(written(tmp_path, mcap([chunk_of(records)])), decoders=BOTH)
    assert cells(found) == {
        "CoordinateFrame:frame": [["abc"], ["abc"]],
        "Measurements:units": [["°C"]],
        "Measurements:values": [[20.5], [21.5]],
        "Measurements:variances": [[0.5], [0.5]],
        "Scalars:scalars": [[20.5], [21.5]],
        "SeriesLines:names": [["temperature (°C)"]],
    }
    assert times(found)["ros2_timestamp"] == ("timestamp[ns]", [5, 1_000_000_005])
    assert [c.is_static for c in found] == [False, True]


def test_the_time_in_a_message_is_of_the_type_and_with_the_offset_of_the_reader(tmp_path: Path) -> None:
    path = recording(tmp_path, [cdr(-1, 1.0), cdr(2, 1.0)])
    shifted = times(chunks_of(path, decoders=BOTH, timestamp_offset_ns=7))
    assert shifted["ros2_timestamp"] == ("timestamp[ns]", [-999_999_988, 2_000_000_012])
    assert shifted["message_log_time"] == ("timestamp[ns]", [7, 8])
    lasting = times(chunks_of(path, decoders=BOTH, timeline_type="duration"))
    assert lasting["ros2_timestamp"] == ("duration[ns]", [-999_999_995, 2_000_000_005])


def test_without_the_decoder_messages_stay_structs(tmp_path: Path) -> None:
    found = chunks_of(recording(tmp_path, [cdr(1, 20.5)]), decoders=["ros2_reflection"])
    assert list(cells(found)) == [STRUCT]
    assert sorted(times(found)) == ["message_log_time", "message_publish_time", "ros2_timestamp"]


@pytest.mark.parametrize("form", list(ENCODINGS))
def test_messages_that_stay_structs_are_at_the_time_in_their_header(form: str, tmp_path: Path) -> None:
    _, schema_encoding, definition, encoding, encode = ENCODINGS[form]
    name, definition = "sensor_msgs/msg/Warmth", definition.replace("struct Temperature", "struct Warmth")
    records = [schema(1, name, schema_encoding, definition.encode()), channel(1, "/t", encoding, 1)]
    path = written(tmp_path, mcap([chunk_of([*records, *(message(1, i, encode(i, 20.5)) for i in range(2))])]))
    assert times(chunks_of(path, decoders=BOTH))["ros2_timestamp"] == ("timestamp[ns]", [5, 1_000_000_005])
    shifted = times(chunks_of(path, decoders=BOTH, timestamp_offset_ns=7))
    assert shifted["ros2_timestamp"] == ("timestamp[ns]", [12, 1_000_000_012])
    lasting = times(chunks_of(path, decoders=BOTH, timeline_type="duration", timestamp_offset_ns=7))
    assert lasting["ros2_timestamp"] == ("duration[ns]", [5, 1_000_000_005])


PLAIN = b"\0\1\0\0"
STAMPS = {
    "a header": (f"std_msgs/Header header\nfloat64 x\n{HEADER}{TIME}", lambda i: cdr(i, 1.0)[:-8], 5),
    "nanoseconds beyond a second": (
        f"std_msgs/Header header\n{HEADER}{TIME}",
        lambda i: PLAIN + struct.pack("<iII", i, 4_000_000_000, 4) + b"abc\0",
        4_000_000_000,
    ),
    "a stamp of its own": (
        f"builtin_interfaces/Time stamp\nint32 x\n{TIME}",
        lambda i: PLAIN + struct.pack("<iIi", i, 7, 1),
        7,
    ),
    "a header of another type": (
        f"my/Header header\n{RULE}\nMSG: my/Header\nint32 k\nbuiltin_interfaces/Time stamp\n{TIME}",
        lambda i: PLAIN + struct.pack("<iiI", 3, i, 7),
        7,
    ),
    "a header that is a number": (
        f"int32 header\nbuiltin_interfaces/Time stamp\n{TIME}",
        lambda i: PLAIN + struct.pack("<iiI", 3, i, 7),
        None,
    ),
    "a stamp further inside": (
        f"my/A a\n{RULE}\nMSG: my/A\nstd_msgs/Header header\nint32 x\n{HEADER}{TIME}",
        lambda i: cdr(i, 1.0)[:-12],
        None,
    ),
    "many stamps": (
        f"builtin_interfaces/Time[] stamp\n{TIME}",
        lambda i: PLAIN + struct.pack("<IiI", 1, i, 7),
        None,
    ),
    "a time of another name": (
        f"builtin_interfaces/Time time\n{TIME}",
        lambda i: PLAIN + struct.pack("<iI", i, 7),
        None,
    ),
}
"""By what they have: definitions, their messages at ``i`` seconds, and the rest of the time; None: no timeline."""


@pytest.mark.parametrize("what", STAMPS)
def test_only_the_time_of_the_message_itself_is_a_timeline_as_rerun_has_it(what: str, tmp_path: Path) -> None:
    definition, encode, rest = STAMPS[what]
    path = tmp_path / "stamps.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start("ros2")
        kind = writer.register_schema("my/msg/X", "ros2msg", definition.encode())
        number = writer.register_channel("/t", "cdr", kind)
        for i in range(2):
            writer.add_message(number, i, encode(i), i)
        writer.finish()
    expected = None if rest is None else ("timestamp[ns]", [rest, 1_000_000_000 + rest])
    assert times(chunks_of(path, decoders=BOTH)).get("ros2_timestamp") == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUST_LOG", "off")
        theirs = pytest.importorskip("rerun.chunk").McapReader(path, decoders=["ros2_reflection"]).stream().to_chunks()
    (batch,) = (chunk.to_record_batch() for chunk in theirs if chunk.entity_path == "/t" and not chunk.is_static)
    stamps = batch.column("ros2_timestamp") if "ros2_timestamp" in batch.schema.names else None
    assert (stamps and (str(stamps.type), stamps.cast("int64").to_pylist())) == expected


def test_messages_that_a_meaning_fails_on_are_at_their_own_times_too(tmp_path: Path) -> None:
    path = recording(tmp_path, [cdr(-1, 1.0)] * 2, TEMPERATURE.replace("temperature", "warmth"))
    with pytest.warns(ReadWarning):
        found = chunks_of(path, decoders=BOTH)
    assert times(found)["ros2_timestamp"] == ("timestamp[ns]", [-999_999_995] * 2)


@pytest.mark.parametrize(
    ("definition", "size"),
    [
        (TEMPERATURE.replace("variance", "spread"), 32),
        (TEMPERATURE.replace("float64 temperature", "string temperature"), 24),
        (TEMPERATURE.replace("stamp", "when"), 32),
        ("int32 x\n", 4),
    ],
)
def test_a_definition_with_other_fields_leaves_structs_and_one_warning(
    definition: str, size: int, tmp_path: Path
) -> None:
    data = b"\0\1\0\0" + bytes(size)
    path = recording(tmp_path, [data] * 3, definition)
    with pytest.warns(ReadWarning, match=r"topic /t: 3 messages do not fit the mapping of their type") as caught:
        found = chunks_of(path, decoders=BOTH)
    assert len(caught) == 1
    assert [len(values) for values in cells(found).values()] == [3]
    assert list(cells(found)) == [STRUCT]
    assert times(found)["message_log_time"][1] == [0, 1, 2]


def test_a_message_that_cannot_be_decoded_is_raw_beside_those_that_can(tmp_path: Path) -> None:
    with pytest.warns(ReadWarning, match="1 messages could not be decoded"):
        found = chunks_of(recording(tmp_path, [cdr(1, 20.5), b"\0\1\0\0", cdr(2, 21.5)]), decoders=[*BOTH, "raw"])
    assert cells(found)["Scalars:scalars"] == [[20.5], [21.5]]
    assert cells(found)["McapMessage:data"] == [[[0, 1, 0, 0]]]


@pytest.mark.parametrize("name", ["pc2_bad_offset", "pc2_bad_x_offset", "pc2_bad_datatype", "pc2_short_data"])
def test_a_cloud_that_ends_the_reference_leaves_the_others(name: str) -> None:
    path = DATA / "generated" / f"{name}.mcap"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadWarning)
        found = cells(chunks_of(path, decoders=BOTH))
        raw = chunks_of(path, decoders=["raw"])
    positions = found["Points3D:positions"]
    assert len(positions) == 2
    assert [len(cloud) for cloud in positions if isinstance(cloud, list)] == ([2, 1] if "short" in name else [2, 2])
    kept = found.get("sensor_msgs.msg.PointCloud2:message", [])
    assert len(positions) + len(kept) == sum(c.num_rows for c in raw)


def test_changing_encodings_on_one_topic_are_all_kept() -> None:
    path = DATA / "generated" / "ros2_image_mixed.mcap"
    with (
        pytest.warns(ReadWarning, match="topic /cam: 5 messages have data that ends before the last row"),
        pytest.warns(ReadWarning, match="1 messages do not fit the mapping .* Rerun has no format for its encoding"),
    ):
        found = cells(chunks_of(path, decoders=BOTH))
    assert [len(found[c]) for c in ("Image:buffer", "DepthImage:buffer", "sensor_msgs.msg.Image:message")] == [4, 1, 1]


def few(values: pa.Array) -> pa.Array:
    """The values, unless there are more than three of them, or one is negative."""
    if len(values) > 3 or any(value < 0 for value in values.to_pylist()):
        raise ValueError("too much")
    return values


@pytest.mark.parametrize(
    ("values", "parts", "kept"),
    [([1, 2], [2], []), ([1, 2, 3, 4], [2, 2], []), ([1, -2, 3, 4, 5], [1, 3], [-2]), ([-1, -2], [], [-1, -2])],
)
def test_messages_that_fail_only_together_come_in_parts(values: list[int], parts: list[int], kept: list[int]) -> None:
    lens = DeriveLens("M:message").to_timeline("t", "sequence", ".t").to_component("A:v", Selector(".v").pipe(few))
    column = pa.array([[{"v": v, "t": i}] for i, v in enumerate(values)])
    chunk = Chunk.build("/t", {}, [(ComponentDescriptor("M:message"), column)])
    mapping = LensMapping([lens], McapOptions.checked())
    found = list(mapping.chunks(chunk))
    assert [c.num_rows for c in found if c.timeline_names] == parts
    assert cells(found).get("A:v", []) == [[v] for v in values if v > 0]
    assert [cell[0]["v"] for cell in cells(found).get("M:message", [])] == kept
    assert mapping.unmapped == len(kept)
