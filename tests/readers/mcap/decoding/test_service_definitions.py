"""The messages of services and actions, from definitions with ``---`` in them."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from cdr_writer import join
from chunkmill.readers.mcap.decoding import Ros1Decoder, Ros2Decoder, SchemaError
from chunkmill.readers.mcap.decoding.idl import parse_idl
from chunkmill.readers.mcap.decoding.ros import parse_ros2

ADD = b"int64 a\nint64 b\n---\nint64 sum\n"
FIBONACCI = b"int32 order\n---\nint32[] sequence\n---\nint32[] partial\n"
RULE = b"=" * 80 + b"\n"

TIME = pa.struct([("sec", pa.int32()), ("nanosec", pa.uint32())])
UUID = pa.struct([("uuid", pa.list_(pa.uint8()))])
INFO = pa.struct(
    [("event_type", pa.uint8()), ("stamp", TIME), ("client_gid", pa.list_(pa.uint8())), ("sequence_number", pa.int64())]
)


def event(request: pa.DataType, response: pa.DataType) -> pa.DataType:
    return pa.struct([("info", INFO), ("request", pa.list_(request)), ("response", pa.list_(response))])


REQUEST = pa.struct([("a", pa.int64()), ("b", pa.int64())])
RESPONSE = pa.struct([("sum", pa.int64())])
GOAL = pa.struct([("order", pa.int32())])
RESULT = pa.struct([("sequence", pa.list_(pa.int32()))])
FEEDBACK = pa.struct([("partial", pa.list_(pa.int32()))])
SEND = pa.struct([("goal_id", UUID), ("goal", GOAL)])


@pytest.mark.parametrize("head", [b"", RULE + b"SRV: example/srv/Add\n"], ids=["bare", "named"])
@pytest.mark.parametrize(
    ("suffix", "kind"), [("_Request", REQUEST), ("_Response", RESPONSE), ("_Event", event(REQUEST, RESPONSE))]
)
def test_services(head: bytes, suffix: str, kind: pa.DataType) -> None:
    assert parse_ros2(f"example/srv/Add{suffix}", head + ADD).arrow == kind


@pytest.mark.parametrize("head", [b"", RULE + b"ACTION: example/action/Fib\n"], ids=["bare", "named"])
@pytest.mark.parametrize(
    ("suffix", "kind"),
    [
        ("_Goal", GOAL),
        ("_Result", RESULT),
        ("_Feedback", FEEDBACK),
        ("_FeedbackMessage", pa.struct([("goal_id", UUID), ("feedback", FEEDBACK)])),
        ("_SendGoal_Request", SEND),
        ("_SendGoal_Response", pa.struct([("accepted", pa.bool_()), ("stamp", TIME)])),
        ("_SendGoal_Event", event(SEND, pa.struct([("accepted", pa.bool_()), ("stamp", TIME)]))),
        ("_GetResult_Request", pa.struct([("goal_id", UUID)])),
        ("_GetResult_Response", pa.struct([("status", pa.int8()), ("result", RESULT)])),
    ],
)
def test_actions(head: bytes, suffix: str, kind: pa.DataType) -> None:
    assert parse_ros2(f"example/action/Fib{suffix}", head + FIBONACCI).arrow == kind


def test_services_of_ros1() -> None:
    assert Ros1Decoder("example/AddRequest", ADD).datatype == REQUEST
    assert Ros1Decoder("example/AddResponse", ADD).datatype == RESPONSE


IDL = b"""
module example {
  module srv { struct Add_Request { int64 a; int64 b; }; struct Add_Response { int64 sum; }; };
  module action {
    struct Fib_Goal { int32 order; };
    struct Fib_Result { sequence<int32> sequence_; };
    struct Fib_Feedback { sequence<int32> partial; };
  };
};
"""


def test_idl_names_the_parts_only() -> None:
    feedback = pa.struct([("goal_id", UUID), ("feedback", FEEDBACK)])
    assert parse_idl("example/srv/Add_Event", IDL).arrow == event(REQUEST, RESPONSE)
    assert parse_idl("example/srv/Add_Response", IDL).arrow == RESPONSE
    assert parse_idl("example/action/Fib_FeedbackMessage", IDL).arrow == feedback
    accepted = pa.struct([("accepted", pa.bool_()), ("stamp", TIME)])
    assert parse_idl("example/action/Fib_SendGoal_Event", IDL).arrow == event(SEND, accepted)


def test_types_that_a_service_uses_are_found_behind_it() -> None:
    text = b"p/Point at\n---\nbool ok\n" + RULE + b"MSG: p/Point\nfloat32 x\n"
    assert parse_ros2("p/srv/Go_Request", text).arrow == pa.struct([("at", pa.struct([("x", pa.float32())]))])


def test_an_event_is_decoded() -> None:
    info = struct.pack("<BxxxiI16sxxxxq", 1, 7, 8, bytes(range(16)), 3)
    raw = b"\0\1\0\0" + info + struct.pack("<IxxxxqqI", 1, 4, 5, 0)
    decoded = Ros2Decoder("example/srv/Add_Event", ADD).decode(*join([raw] * 9))
    assert decoded.values.to_pylist()[8] == {
        "info": {
            "event_type": 1,
            "stamp": {"sec": 7, "nanosec": 8},
            "client_gid": list(range(16)),
            "sequence_number": 3,
        },
        "request": [{"a": 4, "b": 5}],
        "response": [],
    }


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("p/srv/Add", ADD, "has service messages, but the name p/Add selects none"),
        ("p/action/Fib", FIBONACCI, "has action messages, but the name p/Fib selects none"),
        ("p/action/Fib_Request", FIBONACCI, "has action messages, but the name p/Fib_Request selects none"),
        ("p/srv/Add_Request", b"---\n---\n---\n", "4 parts"),
        ("p/srv/Add_Request", b"int8 a\n" + RULE + b"SRV: p/B\n---\n---\n---\n", "4 parts"),
        ("p/srv/Add_Request", b"p/srv/Add_Event e\n---\n", "contains itself"),
    ],
)
def test_refused(name: str, text: bytes, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse_ros2(name, text)


def test_a_definition_that_was_left_empty_loses_nothing() -> None:
    decoder = Ros2Decoder("p/action/Fib_FeedbackMessage", b"")
    decoded = decoder.decode(*join([b"\0\1\0\0\0", b"\0\1\0\0" + bytes(20), b"\0\1\0\0\0\0\0\0", b"\0\7"]))
    assert decoded.bad.tolist() == [1, 3]
    assert "no fields" in decoded.reasons[0]
    assert decoded.values.to_pylist() == [{}, {}]
