"""CDR messages by hand: headers, encodings, wide text, hostile counts."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
import zstandard
from cdr_writer import join, message
from chunkmill.readers.mcap.decoding import Decoded, Ros2Decoder, Surplus, cdr_walk
from chunkmill.readers.mcap.decoding.ros import parse_ros2

LE, BE = b"\0\1\0\0", b"\0\0\0\0"
RULE = b"\n" + b"=" * 80 + b"\n"


def decode(schema: bytes, *messages: bytes) -> Decoded:
    decoded = Ros2Decoder("p/msg/T", schema).decode(*join(messages))
    decoded.values.validate(full=True)
    return decoded


def test_headers() -> None:
    decoded = decode(
        b"string data",
        LE + b"\2\0\0\0a\0",
        b"\0",
        b"\7\1\0\0\2\0\0\0a\0",
        b"\0\x7f\0\0\2\0\0\0a\0",
        LE + b"\2\0\0\0a\0trailing",
        BE + b"\0\0\0\2b\0",
        b"\0\x11\0\0\2\0\0\0c\0",
        LE + b"\2\0\0\0\xff\0",
        LE + b"\1\0\0\0\0",
        LE + b"\0\0\0\0",
        LE + b"\3\0\0\0abc",
        LE + b"\xff\xff\xff\x7fab",
        LE,
        b"",
    )
    assert decoded.values.field("data").to_pylist() == ["a", "a", "b", "c", "", "", "abc"]
    assert decoded.bad.tolist() == [1, 2, 3, 7, 11, 12, 13]
    assert "fewer than its header" in decoded.reasons[0]
    assert "07 01 is not a supported encoding" in decoded.reasons[1]
    assert decoded.reasons[3] == "data: the text is not UTF-8"
    assert decoded.reasons[4] == "data: the string is longer than the rest of the message"


@pytest.mark.parametrize(
    ("label", "body", "value"),
    [
        (0x01, struct.pack("<i4xd", 1, 2.5), 2.5),
        (0x00, struct.pack(">i4xd", 1, 2.5), 2.5),
        # XCDR2 aligns to four bytes at most ...
        (0x11, struct.pack("<id", 1, 2.5), 2.5),
        (0x07, struct.pack("<id", 1, 2.5), 2.5),
        (0x10, struct.pack(">id", 1, 2.5), 2.5),
        (0x15, struct.pack("<Iid", 12, 1, 2.5), 2.5),
        # ... but writers put its labels on what is aligned as ever.
        (0x11, struct.pack("<i4xd", 1, 2.5), 2.5),
        (0x13, struct.pack("<i4xd", 1, 2.5), 2.5),
        (0x15, struct.pack("<id", 1, 2.5), 2.5),
        (0x13, struct.pack("<IIiIId", 24, 0, 1, 0, 0, 2.5), None),
        (0x03, struct.pack("<IIi", 24, 0, 1), None),
    ],
)
def test_encodings(label: int, body: bytes, value: float | None) -> None:
    decoded = decode(b"int32 a\nfloat64 b", bytes([0, label, 0, 0]) + body)
    assert decoded.values.to_pylist() == ([] if value is None else [{"a": 1, "b": value}])


def test_xcdr2_puts_a_length_before_lists_of_anything_but_numbers() -> None:
    schema = b"string[] s\nfloat64[] d"
    node = parse_ros2("p/msg/T", schema)
    value = {"s": ["a", "bc"], "d": [1.5]}
    for order, label in (("<", 0x11), (">", 0x10)):
        raw = message(node, value, order, label, max_align=4, headed=True)
        assert decode(schema, raw).values.to_pylist() == [value]


@pytest.mark.parametrize("unit", [2, 4])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("text", ["", "h", "hi", "hé𝄞"])
def test_wide_text_of_either_width(unit: int, order: str, text: str) -> None:
    schema = b"wstring s\nint16 x\nwstring[] l"
    node = parse_ros2("p/msg/T", schema)
    value = {"s": text, "x": 7, "l": [text, ""]}
    assert decode(schema, message(node, value, order, wide_unit=unit)).values.to_pylist() == [value]


def test_wide_text_that_is_none() -> None:
    decoded = decode(b"wstring s", LE + b"\1\0\0\0\0\xd8", LE + b"\1\0\0\0\0\0\1\0")
    assert decoded.bad.tolist() == [0]


def test_an_empty_message_takes_a_byte() -> None:
    schema = b"p/P a\nint32 b" + RULE + b"MSG: p/P\n# nothing\n"
    assert decode(schema, LE + bytes(4) + struct.pack("<i", 7)).values.to_pylist() == [{"a": {}, "b": 7}]
    assert decode(b"", LE + b"\0").values.to_pylist() == [{}]


def test_a_message_that_ends_before_a_byte_without_a_name() -> None:
    decoded = Ros2Decoder("p/msg/T", b"int32 CONSTANT=1").decode(*join([LE + b"\0", LE]))
    assert (decoded.bad.tolist(), decoded.reasons) == ([1], ["the message ends too early"])
    nested = b"p/Nothing n" + b"\n" + b"=" * 80 + b"\nMSG: p/Nothing\n"
    decoded = Ros2Decoder("p/msg/T", nested).decode(*join([LE]))
    assert decoded.reasons == ["n: the message ends before it"]


@pytest.mark.parametrize("schema", [b"int32 a\nstring s", b"int32 a\nstring s\nint32[] list\nstring[] names"])
@pytest.mark.parametrize("left", range(9))
def test_what_is_behind_the_last_field_is_counted(schema: bytes, left: int) -> None:
    """By a template, by blocks and one by one; up to three bytes are padding."""
    node = parse_ros2("p/msg/T", schema)
    decoder = Ros2Decoder("p/msg/T", schema)
    value = {"a": 7, "s": "abc", "list": [1, 2], "names": ["x"]}
    alike = [message(node, value) + b"\1" * left] * 40
    mixed = [message(node, {**value, "s": "x" * n, "list": [1] * n}) + b"\1" * left for n in range(40)]
    for messages in (alike, mixed):
        wanted = Surplus(40, len(messages[0]), left) if left > 3 else Surplus()
        assert decoder.decode(*join(messages)).surplus == wanted
        assert decoder.decode_plain(*join(messages)).surplus == wanted
        assert decoder.projected(lambda path: path == "a").decode(*join(messages)).surplus == wanted
    mixed[3] = message(node, value)
    packed = [zstandard.compress(raw) if n % 2 else raw for n, raw in enumerate(mixed)]
    assert decoder.decode(*join(packed)).surplus.messages == (39 if left > 3 else 0)


def test_an_empty_sequence_has_no_padding() -> None:
    raw = LE + struct.pack("<Ib", 0, 5)
    assert decode(b"float64[] d\nint8 x", raw).values.to_pylist() == [{"d": [], "x": 5}]


def test_the_value_of_an_enum_is_a_byte() -> None:
    schema = b"p/Mode mode\nbool f" + RULE + b"MSG: p/Mode\nint32 A=0\nint32 B=1\n"
    assert decode(schema, LE + b"\2\1").values.to_pylist() == [{"mode": 2, "f": True}]


def test_layouts_mixed() -> None:
    """Messages of one length and several layouts, others of their own, damaged ones between them."""
    schema = b"string[] names\nfloat64[] values\nbool b"
    node = parse_ros2("p/msg/T", schema)
    some: list[Any] = []
    for index in range(200):
        names = [["left", "right"], ["righ", "lefts"], ["a"], ["x" * (index % 7)] * (index % 3)][index % 4]
        some.append({"names": names, "values": [float(index)] * len(names), "b": index % 2 == 0})
    messages = [message(node, value) for value in some]
    for index in (17, 60, 61):
        messages[index] = messages[index][:-1] + b"\5"
    messages[100] = messages[100].replace(b"left", b"l\xfft\0")
    messages[101] = messages[101][:20]
    decoded = decode(schema, *messages)
    bad = [17, 60, 61, 100, 101]
    assert decoded.bad.tolist() == bad
    assert decoded.values.to_pylist() == [value for index, value in enumerate(some) if index not in bad]


def test_messages_out_of_file_order() -> None:
    schema = b"string s\nuint8[] d"
    node = parse_ros2("p/msg/T", schema)
    some = [{"s": "x" * (index % 5), "d": [index] * (index % 9)} for index in range(50)]
    data, starts, ends = join([message(node, value) for value in some])
    decoded = Ros2Decoder("p/msg/T", schema).decode(data, starts[::-1].copy(), ends[::-1].copy())
    assert decoded.values.to_pylist() == some[::-1]
    again = np.array([3, 3, 3])
    assert Ros2Decoder("p/msg/T", schema).decode(data, starts[again], ends[again]).values.to_pylist() == [some[3]] * 3


@pytest.mark.parametrize(
    "schema",
    [
        b"float64[] d",
        b"string[] s",
        b"p/P[] l" + RULE + b"MSG: p/P\n",
        b"p/P[] l" + RULE + b"MSG: p/P\nstring s\nfloat64 x\n",
        b"p/P[] l" + RULE + b"MSG: p/P\nuint8 a\nfloat64 x\n",
        b"p/P[1000000] l" + RULE + b"MSG: p/P\nstring s\n",
    ],
)
def test_a_hostile_count_takes_no_memory(schema: bytes) -> None:
    decoder = Ros2Decoder("p/msg/T", schema)
    arguments = join([LE + b"\xff\xff\xff\xff" + bytes(12), LE + b"\xff\xff\xff\x7f"] * 50)
    tracemalloc.start()
    decoded = decoder.decode(*arguments)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(decoded.bad) == 100
    assert peak < 1 << 20


def test_elements_are_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdr_walk, "MAX_ELEMENTS", 10)
    schema = b"string[] s"
    node = parse_ros2("p/msg/T", schema)
    some = [{"s": ["x" * (index % 3)] * (index % 12)} for index in range(60)]
    decoded = decode(schema, *[message(node, value) for value in some])
    assert decoded.bad.tolist() == [index for index in range(60) if index % 12 > 10]
    assert decoded.values.to_pylist() == [value for value in some if len(value["s"]) <= 10]


def test_more_than_fits_into_arrow_is_refused() -> None:
    decoder = Ros2Decoder("p/msg/T", b"int8 x")
    with pytest.raises(ValueError, match="2 GiB"):
        decoder.decode(np.zeros(8, np.uint8), np.zeros(1, np.int64), np.array([1 << 31], np.int64))


@pytest.mark.parametrize("lengths", [[3] * 100, [0] * 50 + [3] * 50, [4, 8] * 60, [1, 2, 3] * 40, [3] * 60 + [4]])
def test_elements_that_repeat_within_one_message(lengths: list[int]) -> None:
    schema = b"uint8 shift\np/E[] l\nint8 last" + RULE + b"MSG: p/E\nstring s\nfloat64 x\nstring[] t\n"
    node = parse_ros2("p/msg/T", schema)
    elements = [{"s": "x" * n, "x": float(k), "t": ["y" * n] * (n % 3)} for k, n in enumerate(lengths)]
    value = {"shift": 1, "l": elements, "last": 7}
    assert decode(schema, message(node, value), message(node, value, ">")).values.to_pylist() == [value] * 2
    cut = message(node, value)[:-3]
    assert decode(schema, cut).bad.tolist() == [0]
