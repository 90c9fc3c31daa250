"""Frames of an MCAP: what nobody asks for is not decompressed and not decoded, and what is asked for is the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Projection
from chunkmill.readers import McapReader
from chunkmill.readers.mcap import section
from chunkmill.readers.mcap.decoding import cdr_columns
from chunkmill.readers.mcap.decoding import cdr_columns as cdr_template
from chunkmill.readers.mcap.decoding.columns import MessageType
from chunkmill.readers.mcap.decoding.ros import parse_ros2
from mcap.writer import CompressionType, Writer
from places import recordings

IMU = "/nissan/gps/duro/imu"


def paths(kind: pa.DataType, before: str = "") -> list[str]:
    """The paths of all fields of a struct, those in structs too."""
    found = []
    for field in kind:
        found.append(f"{before}{field.name}")
        if pa.types.is_struct(field.type):
            found += paths(field.type, f"{before}{field.name}.")
    return found


def kept(array: pa.Array, keeps: Callable[[str], bool], before: str = "") -> Any:
    """The values of structs, but for the fields that are not kept at any depth."""

    def of(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: of(child, f"{path}{name}.") for name, child in value.items() if keeps(f"{path}{name}")}

    return [of(value, before) for value in array.to_pylist()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "path", recordings("mcap/*.mcap", "demo.mcap", "generated/proto*.mcap", "generated/misc*.mcap")
)
def test_selected_fields_are_those_of_the_whole(path: Path) -> None:
    if not path.read_bytes().startswith(b"\x89MCAP0\r\n"):
        pytest.skip("its line ends were converted before it came into the collection")
    values = McapReader(path).values()
    chooser = random.Random(7)
    first = {made.entity_path: made for made in reversed(values.to_chunks())}
    for made in chooser.sample(list(first.values()), min(len(first), 6)):
        component = made.data.components[0]
        kind = component.values.type.value_type
        names = paths(kind) if pa.types.is_struct(kind) else []
        if not component.descriptor.component.endswith(":message") or not names:
            continue
        wanted = tuple(chooser.sample(names, min(len(names), chooser.randint(1, 3))))
        content = made.entity_path
        whole = McapReader(path).values().to_arrow(content, columns=list(wanted))
        every = McapReader(path).values().to_arrow(content)
        for name in wanted:
            if name in every.column_names:
                assert whole.column(name).to_pylist() == every.column(name).to_pylist(), name


def test_other_fields_are_not_decoded(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    decoded: list[str] = []
    for module in (cdr_template, cdr_columns):
        for name in ("numbers", "strings"):
            real = getattr(module, name)

            def counted(*args: Any, real: Any = real) -> pa.Array:
                decoded.append(args[-1])
                return real(*args)

            monkeypatch.setattr(module, name, counted)
    values = McapReader(data / "demo.mcap").values()
    table = values.to_arrow(IMU, index="log_time", columns=["linear_acceleration.x", "header.frame_id"])
    assert table.num_rows == 1556
    assert set(decoded) == {"linear_acceleration.x", "header.frame_id"}
    decoded.clear()
    assert values.to_arrow(IMU, columns=["log_time"]).num_rows == 1556
    assert not decoded
    values.to_arrow(IMU)
    assert len(set(decoded)) == 16


@pytest.mark.parametrize("wanted", [("a",), ("b",), ("c", "f"), ("d",), ("e.x",), ("e",), ("g",), ("f", "a")])
def test_fields_of_every_kind_are_stepped_over(wanted: tuple[str, ...]) -> None:
    definition = (
        b"uint8 a\nstring b\nfloat64[] c\nT[] d\nT e\nint16[3] f\nstring[] g\n"
        b"================================================================================\nMSG: p/T\n"
        b"string s\nint64 x\nE none\n"
        b"================================================================================\nMSG: p/E\n"
    )
    node = parse_ros2("p/M", definition)
    keeps = Projection(wanted).keeps
    projected = node.projected(keeps)
    assert isinstance(projected, MessageType)
    chooser = random.Random(3)
    messages = [encoded(chooser, vary) for vary in (False, True) for _ in range(40)]
    from chunkmill.readers.mcap.decoding import Ros2Decoder

    whole, part = Ros2Decoder("p/M", definition), Ros2Decoder("p/M", definition).projected(keeps)
    for some in (messages[:40], messages):
        arena, starts, ends = laid_out(some)
        every, found = whole.decode(arena, starts, ends), part.decode(arena, starts, ends)
        assert not len(every.bad)
        assert not len(found.bad)
        assert found.values.type == part.datatype
        assert found.values.to_pylist() == kept(every.values, keeps)
        assert part.decode_plain(arena, starts, ends).values.equals(found.values)


def encoded(chooser: random.Random, vary: bool) -> bytes:
    """One message of the test's type, all of one layout unless they ``vary``."""
    import struct

    body = bytearray()

    def put(code: str, value: Any) -> None:
        body.extend(bytes(-len(body) % struct.calcsize(code)))
        body.extend(struct.pack(f"<{code}", value))

    def text(value: str) -> None:
        put("I", len(value) + 1)
        body.extend(value.encode() + b"\0")

    def nested() -> None:
        text("n" * (chooser.randint(0, 5) if vary else 3))
        put("q", chooser.getrandbits(40))
        put("B", 0)

    def count() -> int:
        return chooser.randint(0, 4) if vary else 2

    put("B", chooser.getrandbits(8))
    text("t" * (chooser.randint(0, 9) if vary else 4))
    number = count()
    put("I", number)
    for _ in range(number):
        put("d", chooser.random())
    number = count()
    put("I", number)
    for _ in range(number):
        nested()
    nested()
    for _ in range(3):
        put("h", chooser.randint(-9, 9))
    number = count()
    put("I", number)
    for _ in range(number):
        text("g" * (chooser.randint(0, 3) if vary else 1))
    return b"\0\1\0\0" + bytes(body)


def laid_out(messages: list[bytes]) -> tuple[Any, Any, Any]:
    """The messages in one arena, with their starts and ends."""
    import numpy as np

    lengths = np.array([len(message) for message in messages])
    ends = np.cumsum(lengths)
    return np.frombuffer(b"".join(messages), np.uint8), ends - lengths, ends


def write_topics(path: Path, *, chunk_size: int = 4096, size: int = 1000) -> None:
    """Two topics, each in chunks of its own: twenty chunks of one, then twenty of the other."""
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=chunk_size, compression=CompressionType.ZSTD)
        writer.start("", "")
        schema = writer.register_schema("p/T", "ros2msg", b"uint8[] data\n")
        channels = [writer.register_channel(topic, "cdr", schema) for topic in ("/a", "/b")]
        body = b"\0\1\0\0" + size.to_bytes(4, "little") + bytes(range(250)) * (size // 250)
        for i in range(200):
            writer.add_message(channels[i // 100], i, body, i, i)
        writer.finish()


@pytest.mark.parametrize("size", [1000, 1_000_000])
def test_chunks_of_other_topics_and_times_are_not_decompressed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int
) -> None:
    path = tmp_path / "two.mcap"
    write_topics(path, chunk_size=4 * size, size=size)
    opened: list[int] = []
    real = section.decompress

    def counted(*args: Any, **named: Any) -> Any:
        opened.append(named["offset"])
        return real(*args, **named)

    monkeypatch.setattr(section, "decompress", counted)
    values = McapReader(path).values()
    assert values.to_arrow("/a", columns=["log_time"]).num_rows == 100
    of_one = len(opened)
    opened.clear()
    assert values.to_arrow(columns=["log_time"]).num_rows == 200
    assert of_one <= len(opened) // 2 + 1
    opened.clear()
    assert values.to_arrow("/b", index="log_time", start=150, end=160, columns=["log_time"]).num_rows == 10
    assert len(opened) <= 5
    opened.clear()
    assert values.to_arrow("/b", index="publish_time", start=150, end=160, columns=["log_time"]).num_rows == 10
    assert len(opened) >= of_one - 1
