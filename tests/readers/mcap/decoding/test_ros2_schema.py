"""``ros2msg`` schema text: what is understood, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from chunkmill.engine.limits import MAX_NESTING
from chunkmill.readers.mcap.decoding import Ros2Decoder, SchemaError
from chunkmill.readers.mcap.decoding.ros import parse_ros2

RULE = "=" * 80


def arrow(name: str, main: str, **sections: str) -> str:
    """The Arrow type of a message; the sections' names have ``__`` for ``/``."""
    rest = [f"{RULE}\nMSG: {key.replace('__', '/')}\n{body}" for key, body in sections.items()]
    return str(parse_ros2(name, "\n".join([main, *rest]).encode()).arrow)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("bool x", pa.bool_()),
        ("byte x", pa.uint8()),
        ("char x", pa.uint8()),
        ("uint8 x", pa.uint8()),
        ("int16 x", pa.int16()),
        ("uint64 x", pa.uint64()),
        ("float32 x", pa.float32()),
        ("float64 x", pa.float64()),
        ("string x", pa.string()),
        ("string<=5 x", pa.string()),
        ("wstring x", pa.string()),
        ("uint8[] x", pa.list_(pa.uint8())),
        ("float64[9] x", pa.list_(pa.float64())),
        ("string<=5[<=3] x", pa.list_(pa.string())),
        ("bool[3] x [false, true, false]", pa.list_(pa.bool_())),
        ('string x "a # b = c"', pa.string()),
        ("int32 x 5  # five", pa.int32()),
        ("int32 x# no space", pa.int32()),
        ("  int32\tx\r", pa.int32()),
    ],
)
def test_field_lines(line: str, kind: pa.DataType) -> None:
    assert parse_ros2("p/msg/T", line.encode()).arrow == pa.struct([pa.field("x", kind)])


def test_constants_are_dropped_however_they_are_written() -> None:
    text = 'uint8 A=0x1F\nint32 lower=1\nbool B = True\nstring S="x # y"\nfloat64 F=-1e5\nint8 x'
    assert arrow("p/msg/T", text) == "struct<x: int8>"


def test_descriptor() -> None:
    decoder = Ros2Decoder("sensor_msgs/msg/Imu", b"int8 x")
    assert decoder.descriptor.component == "sensor_msgs.msg.Imu:message"
    assert decoder.descriptor.archetype == "sensor_msgs.msg.Imu"
    assert decoder.descriptor.component_type is None
    assert decoder.datatype == pa.struct([("x", pa.int8())])


@pytest.mark.parametrize("reference", ["std_msgs/Header", "std_msgs/msg/Header", "Header"])
@pytest.mark.parametrize("section", ["std_msgs__Header", "std_msgs__msg__Header"])
def test_names_resolve_as_either_ros_writes_them(reference: str, section: str) -> None:
    assert arrow("p/msg/T", f"{reference} h", **{section: "int32 x"}) == "struct<h: struct<x: int32>>"


def test_a_bare_name_means_its_own_package() -> None:
    sections = {"p__Inner": "int8 mine", "q__Inner": "int8 theirs", "q__Outer": "Inner i"}
    assert arrow("p/msg/T", "Inner a\nq/Outer b", **sections) == (
        "struct<a: struct<mine: int8>, b: struct<i: struct<theirs: int8>>>"
    )


def test_a_bare_name_is_found_where_only_one_has_it() -> None:
    assert arrow("T", "Inner i", Inner="int8 x") == "struct<i: struct<x: int8>>"
    assert arrow("p/msg/T", "Inner i", q__msg__Inner="int8 x") == "struct<i: struct<x: int8>>"


def test_time_is_known_without_a_section() -> None:
    time = "struct<sec: int32, nanosec: uint32>"
    text = "builtin_interfaces/Time a\nbuiltin_interfaces/msg/Duration b\ntime c\nduration d"
    assert arrow("p/msg/T", text) == f"struct<a: {time}, b: {time}, c: {time}, d: {time}>"


def test_messages_without_fields() -> None:
    assert arrow("p/msg/T", "p/E e", p__E="# nothing") == "struct<e: struct<>>"
    assert arrow("p/msg/T", "p/E e\np/E[] l", p__E="int8 A=0\nint8 B=1") == "struct<e: int8, l: list<item: int8>>"
    assert arrow("p/msg/T", "p/E e", p__E="int8 A=0\nuint8 B=1") == "struct<e: struct<>>"
    assert arrow("p/msg/T", "p/E e", p__E="int32 A=0") == "struct<e: int32>"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("int32[ y", "neither a field nor a constant"),
        ("int32", "neither a field"),
        ("foo bar baz", "undefined type"),
        ("THIS IS NOT A DEFINITION }{][", "undefined type"),
        ("other/Missing m", "undefined type"),
        ("int64 a\n---\nint64 b", "service"),
        ("int8 a\nint8 a", "twice"),
        ("int32<=5 a", "only strings have a bound"),
        ("int8[0] a", "impossible"),
        ("int8[99999999999999999999] a", "impossible"),
        ("int8[<=] a", "bound without a number"),
        (f"p/T again\n{RULE}\nMSG: p/T\np/msg/T x", "contains itself"),
        (f"p/A a\n{RULE}\nMSG: p/A\np/B b\n{RULE}\nMSG: p/B\np/A[] a", "contains itself"),
        (f"int8 a\n{RULE}\nIDL: p/A\nmodule p {{}}", "MSG"),
        (
            f"p/A[1000000000] a\n{RULE}\nMSG: p/A\np/B[1000000000] b\n{RULE}\nMSG: p/B\nint8 x",
            "larger than any message can be",
        ),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse_ros2("p/msg/T", text.encode())


def chain(depth: int, fields: int) -> bytes:
    """Types of which each has ``fields`` of the next one's type."""
    sections = [
        f"MSG: p/T{level}\n" + "".join(f"p/T{level + 1} f{i}\n" for i in range(fields)) for level in range(depth)
    ]
    sections.append(f"MSG: p/T{depth}\nint8 x\n")
    return f"\n{RULE}\n".join(["p/T0 top", *sections]).encode()


def test_nesting_is_bounded() -> None:
    parse_ros2("p/msg/T", chain(MAX_NESTING // 2, 1))
    with pytest.raises(SchemaError, match="levels"):
        parse_ros2("p/msg/T", chain(MAX_NESTING + 1, 1))
    with pytest.raises(SchemaError, match="expands to more"):
        parse_ros2("p/msg/T", chain(40, 10))


def test_size_is_bounded() -> None:
    with pytest.raises(SchemaError, match="too many"):
        parse_ros2("p/msg/T", b"# " + bytes(17 << 20))
