"""IDL definitions: what is understood, what is refused, and that messages decode by them as by the same ``ros2msg``."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from cdr_writer import join, message, message_types, values
from chunkmill.engine.limits import MAX_NESTING
from chunkmill.readers.mcap.decoding import IdlDecoder, SchemaError
from chunkmill.readers.mcap.decoding.columns import MessageType, Node, Primitive, SequenceType
from chunkmill.readers.mcap.decoding.idl import parse_idl
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from ros1_plain import rosbag_plain
from rosbags.typesys import Stores, get_types_from_idl, get_typestore

RULE = "=" * 80

NAV = f"""{RULE}
IDL: nav/msg/Plan
// generated from rosidl_adapter/resource/msg.idl.em
#include "geometry_msgs/msg/Point.idl"

module nav {{
  module msg {{
    module Plan_Constants {{
      const uint8 DONE = 1;
      const string WHAT = "it (says) " "more // here";
      const double HALF = 0.5;
    }};
    typedef geometry_msgs::msg::Point geometry_msgs__msg__Point__2[2];
    typedef double double__9[9];
    @verbatim (language="comment", text=
      "A plan, as " "\\n"
      "one array ) of points")
    struct Plan {{
      @verbatim (language="comment", text="when")
      builtin_interfaces::msg::Time stamp;
      @default (value="map")
      string<22> frame;
      sequence<geometry_msgs::msg::Point, 3> points;
      geometry_msgs__msg__Point__2 ends;
      @unit (value="m")
      double__9 covariance;
      sequence<string<4>> names; /* >> closes
                                    both */
      boolean ok;
      octet raw;
      unsigned long long many;
      long long signed_many;
      unsigned short few, fewer;
      uint32 count;
      wstring wide;
    }};
  }};
}};
{RULE}
IDL: geometry_msgs/msg/Point
module geometry_msgs {{ module msg {{ struct Point {{ double x; float y; }}; }}; }};
"""

POINT = pa.struct([("x", pa.float64()), ("y", pa.float32())])


def arrow(text: str, name: str = "T") -> str:
    return str(parse_idl(name, text.encode()).arrow)


def test_what_rosidl_generates() -> None:
    time = pa.struct([("sec", pa.int32()), ("nanosec", pa.uint32())])
    assert parse_idl("nav/msg/Plan", NAV.encode()).arrow == pa.struct(
        [
            ("stamp", time),
            ("frame", pa.string()),
            ("points", pa.list_(POINT)),
            ("ends", pa.list_(POINT)),
            ("covariance", pa.list_(pa.float64())),
            ("names", pa.list_(pa.string())),
            ("ok", pa.bool_()),
            ("raw", pa.uint8()),
            ("many", pa.uint64()),
            ("signed_many", pa.int64()),
            ("few", pa.uint16()),
            ("fewer", pa.uint16()),
            ("count", pa.uint32()),
            ("wide", pa.string()),
        ]
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("enum Mode { A, @value(5) B, C }; struct T { Mode m; };", "struct<m: int32>"),
        ("@bit_bound(8) enum Mode { A }; struct T { Mode m; };", "struct<m: int8>"),
        ("@bit_bound(value=16) bitmask Flags { a, b }; struct T { Flags f; };", "struct<f: uint16>"),
        ("struct Base { long a; }; struct T : Base { char b; };", "struct<a: int32, b: uint8>"),
        ("const short N = (1 << 2) - 1; struct T { long a[N][2 * 1]; };", "struct<a: list<item: list<item: int32>>>"),
        ("enum E { A, B }; const long N = B + 1; struct T { sequence<octet, N> a; };", "struct<a: list<item: uint8>>"),
        ("module a { struct P { long x; }; module b { struct T { P p; ::a::P q; }; }; };", None),
        ("typedef sequence<sequence<short>> Grid; struct T { Grid g; };", "struct<g: list<item: list<item: int16>>>"),
        ("union U switch (long) { case 1: long a; }; struct T { long x; };", "struct<x: int32>"),
        ("struct Later; struct T { sequence<octet> a; }; struct Later { T t; };", "struct<a: list<item: uint8>>"),
        ("@final @nested(FALSE) struct T { @key @id(3) long a; };", "struct<a: int32>"),
        ("struct T { float a; int8 b; uint64 c; long d, e[2]; };", None),
    ],
)
def test_definitions(text: str, kind: str | None) -> None:
    found = arrow(text)
    assert kind is None or found == kind


def test_names() -> None:
    text = b"module a { module msg { struct T { long x; }; }; };"
    for name in ("a/msg/T", "a::msg::T", "T"):
        assert parse_idl(name, text).arrow == pa.struct([("x", pa.int32())])
    assert IdlDecoder("a::msg::T", text).descriptor.component == "a.msg.T:message"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("struct T { U u; };", "U is not declared"),
        ("struct S { long x; };", "does not declare T"),
        ("struct T { T t; };", "contains itself"),
        ("struct T { sequence<T> t; };", "contains itself"),
        ("struct T { long x; long x; };", "twice"),
        ("struct B { long x; }; struct T : B { long x; };", "twice"),
        ("struct T { @optional long x; };", "'x' is optional"),
        ("@mutable struct T { long x; };", "it is mutable"),
        ("@extensibility(MUTABLE) struct T { long x; };", "it is mutable"),
        ("union U switch (long) { case 1: long a; }; struct T { U u; };", "type union is not supported"),
        ("struct T { map<string, long> m; };", "type map is not"),
        ("struct T { long double x; };", "type long double is not"),
        ("struct T { wchar x; };", "type wchar is not"),
        ("struct T { long x[0]; };", "impossible"),
        ("struct T { long x[4000000000][4000000000]; };", "impossible"),
        ("struct T { long x[N]; };", "whole number"),
        ("struct T { long x", "it ends"),
        ("struct T { unsigned float x; };", "not a type"),
        ("enum T { A };", "not a struct"),
        ("int32 x", "does not begin a definition"),
        ("@a(((", "expected"),
        ("module m {" * 70, "modules are nested"),
        ("struct T { " + "sequence<" * 70 + "long" + ">" * 70 + " x; };", "nest deeper"),
        ("struct T { long x[" + "(" * 999 + "1" + ")" * 999 + "]; };", "nested too deeply"),
        ("struct T { long x[1 << 63 << 63]; };", "too large"),
        (f"{RULE}\nMSG: a/T\nint32 x", "not IDL"),
        ("\ud800", "begins|expected"),
        ("@a " * 600_000, "words"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse_idl("T", text.encode("utf-8", "surrogatepass"))


def test_nesting_is_bounded() -> None:
    chain = "".join(f"struct T{i} {{ T{i + 1} a; }}; " for i in range(MAX_NESTING + 1))
    with pytest.raises(SchemaError, match="levels"):
        parse_idl("T0", f"{chain} struct T{MAX_NESTING + 1} {{ long x; }};".encode())
    wide = "".join(f"struct T{i} {{ T{i + 1} a, b, c, d; }}; " for i in range(12))
    with pytest.raises(SchemaError, match="fields"):
        parse_idl("T0", f"{wide} struct T12 {{ long x; }};".encode())


WORDS = {
    "bool": "boolean",
    "uint8": "uint8",
    "int16": "short",
    "uint32": "unsigned long",
    "int64": "long long",
    "float32": "float",
    "float64": "double",
}


def idl_of(node: MessageType) -> str:
    """The IDL that declares ``node``, as rosidl would write it."""
    declared: dict[str, str] = {}
    _declare(node, declared)
    inner = "\n".join(declared.values())
    return f"module p {{ module msg {{\n{inner}\n}}; }};"


def _declare(node: MessageType, declared: dict[str, str]) -> None:
    lines = []
    for name, child in node.fields:
        kind = _written(child, declared)
        if isinstance(child, SequenceType) and child.length is not None:
            alias = f"{node.name.replace('/', '_')}_{name}_array"
            declared[alias] = f"typedef {kind} {alias}[{child.length}];"
            kind = alias
        lines.append(f"{kind} {name};")
    declared[node.name] = f"struct {node.name.split('/')[-1]} {{ {' '.join(lines)} }};"


def _written(node: Node, declared: dict[str, str]) -> str:
    if isinstance(node, SequenceType):
        element = _written(node.element, declared)
        return element if node.length is not None else f"sequence<{element}>"
    if isinstance(node, MessageType):
        _declare(node, declared)
        return f"p::msg::{node.name.split('/')[-1]}"
    return WORDS.get(node.name, node.name) if isinstance(node, Primitive) else "string"


def has_no_char(node: Any) -> bool:
    """Without ``char`` and ``byte``, which IDL or rosbags has otherwise, and without structs that have no members."""
    if isinstance(node, MessageType):
        return bool(node.fields) and all(has_no_char(child) for _, child in node.fields)
    return (
        has_no_char(node.element)
        if isinstance(node, SequenceType)
        else getattr(node, "name", "") not in ("char", "byte")
    )


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_values_come_back_and_rosbags_reads_the_same(data: st.DataObject) -> None:
    node = data.draw(message_types())
    assume(has_no_char(node))
    written = data.draw(st.lists(values(node), min_size=1, max_size=4))
    messages = [message(node, value) for value in written]
    text = idl_of(node)
    decoder = IdlDecoder("p/msg/T", text.encode())
    assert decoder.datatype == node.arrow
    assert decoder.decode(*join(messages)).values.to_pylist() == written
    store = get_typestore(Stores.EMPTY)
    store.register(get_types_from_idl(text))
    read = [rosbag_plain(store.deserialize_cdr(raw, "p/msg/T"), store) for raw in messages]
    assert repr(decoder.decode(*join(messages)).values.to_pylist()) == repr(read)


def test_a_plan_is_decoded() -> None:
    text = b"module a { struct P { octet a[2][3]; }; struct T { sequence<P> ps; }; };"
    raw = b"\0\1\0\0" + struct.pack("<I", 2) + bytes(range(12))
    decoded = IdlDecoder("a::T", text).decode(*join([raw] * 10))
    assert (
        decoded.values.to_pylist()
        == [
            {"ps": [{"a": [[0, 1, 2], [3, 4, 5]]}, {"a": [[6, 7, 8], [9, 10, 11]]}]},
        ]
        * 10
    )
