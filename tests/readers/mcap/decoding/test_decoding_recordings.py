"""Real recordings: every message by column as by the libraries of the formats themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import zstandard
from cdr_writer import join
from chunkmill.readers.mcap.decoding import SchemaError
from chunkmill.readers.mcap.decoding.protobuf import ProtobufDecoder
from chunkmill.readers.mcap.decoding.ros import Ros1Decoder, Ros2Decoder
from mcap.records import Channel, Message, Schema
from mcap.stream_reader import StreamReader
from mcap_ros2._dynamic import generate_dynamic
from places import recordings
from ros1_plain import rosbag_plain
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

MOST_COMPARED, MOST_BYTES = 40, 100_000
"""Messages of one channel that are decoded one by one as well, about, and their bytes."""

FOREIGN = ("my", "my_msgs")
"""Packages of made-up types, which the library cannot read or reads without the enum idiom."""


class Recorded(NamedTuple):
    """The messages of one channel."""

    topic: str
    encoding: str
    schema: Schema
    messages: list[bytes]


def channels(path: Path) -> Iterator[Recorded]:
    """What a file holds, as far as it can be read."""
    schemas: dict[int, Schema] = {}
    found: dict[int, Channel] = {}
    messages: dict[int, list[bytes]] = defaultdict(list)
    with path.open("rb") as file:
        try:
            for record in StreamReader(file).records:
                if isinstance(record, Schema):
                    schemas[record.id] = record
                elif isinstance(record, Channel):
                    found[record.id] = record
                elif isinstance(record, Message):
                    messages[record.channel_id].append(record.data)
        except Exception:  # noqa: BLE001 - damaged files fail in many ways; what was read so far is enough here
            pass
    for number, some in messages.items():
        channel = found[number]
        if channel.schema_id in schemas:
            yield Recorded(channel.topic, channel.message_encoding.lower(), schemas[channel.schema_id], some)


def plain(value: Any) -> Any:
    """What the ROS 2 library decodes, as plain data."""
    if hasattr(value, "__slots__") and not isinstance(value, str | bytes | int | float):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, list | tuple | bytes):
        return [plain(element) for element in value]
    return value


def text(values: Any) -> str:
    """Values as text, in which NaN equals NaN."""
    return repr(values)


def unpacked(message: bytes) -> bytes:
    """What is compressed by itself, decompressed: the ROS 2 library does not do that."""
    return zstandard.decompress(message) if message[:4] == b"\x28\xb5\x2f\xfd" else message


def every(messages: list[bytes]) -> int:
    """How far apart the messages are that are compared one by one."""
    return max(len(messages) // MOST_COMPARED, sum(map(len, messages)) // MOST_BYTES) + 1


@pytest.mark.parametrize("path", recordings("mcap/*.mcap", "mcap/derived/*.mcap", "generated/*.mcap"))
def test_messages(path: Path) -> None:
    for _, encoding, schema, messages in channels(path):
        if schema.encoding == "ros2msg" and encoding == "cdr":
            compare_ros2(schema, messages)
        elif schema.encoding == "ros1msg" and encoding == "ros1":
            compare_ros1(schema, messages)
        elif schema.encoding == "protobuf":
            compare_protobuf(schema, messages)


def compare_ros2(schema: Schema, messages: list[bytes]) -> None:
    try:
        decoder = Ros2Decoder(schema.name, schema.data)
    except SchemaError:
        assert schema.name in {"my/msg/Bad", "my/msg/Unres", "broken_msgs/Garbage"}
        return
    decoded = decoder.decode(*join(messages))
    decoded.values.validate(full=True)
    step = every(messages)
    one_by_one = decoder.decode_plain(*join(messages[::step]))
    assert set(one_by_one.bad * step) == {bad for bad in decoded.bad.tolist() if bad % step == 0}
    bad = set(decoded.bad.tolist())
    good = [index for index in range(len(messages)) if index not in bad]
    chosen = [place for place, index in enumerate(good) if index % step == 0]
    values = decoded.values.take(pa.array(chosen, pa.int64())).to_pylist()
    assert text(values) == text(one_by_one.values.to_pylist())
    readable = schema.name.split("/")[0] not in FOREIGN and "/" in schema.name and b"---" not in schema.data
    if readable and chosen:
        read = generate_dynamic(schema.name, schema.data.decode())[schema.name]
        assert text(values) == text([plain(read(unpacked(messages[good[place]]))) for place in chosen])


def compare_ros1(schema: Schema, messages: list[bytes]) -> None:
    decoder = Ros1Decoder(schema.name, schema.data)
    decoded = decoder.decode(*join(messages))
    decoded.values.validate(full=True)
    if schema.name == "std_msgs/String":  # made up, its bytes are no message
        assert decoded.bad.tolist() == list(range(len(messages)))
        return
    assert not len(decoded.bad)
    some = messages[:: every(messages)]
    values = text(decoded.values.take(pa.array(range(0, len(messages), every(messages)))).to_pylist())
    assert values == text(decoder.decode_plain(*join(some)).values.to_pylist())
    store = get_typestore(Stores.EMPTY)
    name = schema.name.replace("/", "/msg/")
    store.register(get_types_from_msg(schema.data.decode(), name))
    assert values == text([rosbag_plain(store.deserialize_ros1(raw, name), store) for raw in some])


def compare_protobuf(schema: Schema, messages: list[bytes]) -> None:
    try:
        decoder = ProtobufDecoder(schema.name, schema.data)
    except SchemaError:
        assert schema.name == "my.pkg.Nope"
        return
    decoded = decoder.decode(*join(messages[:: every(messages)]))
    decoded.values.validate(full=True)
    by_objects = decoder.decode_plain(*join(messages[:: every(messages)]))
    assert decoded.bad.tolist() == by_objects.bad.tolist()
    assert text(decoded.values.to_pylist()) == text(by_objects.values.to_pylist())
