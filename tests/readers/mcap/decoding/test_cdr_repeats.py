"""Values that are the same in many messages, and then are not: the columns are those that every message has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from cdr_writer import join, message, message_types, schema_text, values
from chunkmill.readers.mcap.decoding import Decoded
from chunkmill.readers.mcap.decoding.columns import PRIMITIVES, MessageType, Text
from chunkmill.readers.mcap.decoding.columns import SequenceType as ListOf
from chunkmill.readers.mcap.decoding.ros import Ros2Decoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

JOINTS = MessageType(
    "p/Joints",
    (
        ("sec", PRIMITIVES["int32"]),
        ("frame", Text()),
        ("name", ListOf(Text())),
        ("on", ListOf(PRIMITIVES["bool"])),
        ("position", ListOf(PRIMITIVES["float64"])),
    ),
)
NAMES = ("left_shoulder", "left_elbow", "grüße", "")
OTHERS = ("rechts_schulter"[:13], "right_elbo", "grüßt", "")


def joints(count: int, names: Sequence[str] = NAMES, start: int = 0) -> list[bytes]:
    return [
        message(
            JOINTS,
            {"sec": i, "frame": "base", "name": names, "on": [True, False, True], "position": [i / 2] * len(names)},
        )
        for i in range(start, start + count)
    ]


def decoder() -> Ros2Decoder:
    return Ros2Decoder(JOINTS.name, schema_text(JOINTS))


def checked(by: Ros2Decoder, messages: Sequence[bytes]) -> Decoded:
    """What is decoded, which has to be what the plain reader gives, in columns that end where they should."""
    decoded, plain = by.decode(*join(messages)), by.decode_plain(*join(messages))
    decoded.values.validate(full=True)
    assert repr(decoded.values.to_pylist()) == repr(plain.values.to_pylist())
    assert decoded.bad.tolist() == plain.bad.tolist()
    assert all(len(lists.values) == lists.offsets[-1].as_py() for lists in lists_in(decoded.values) if len(lists))
    return decoded


def lists_in(array: pa.Array) -> Iterator[pa.ListArray]:
    if pa.types.is_list(array.type):
        yield array
        yield from lists_in(array.values)
    elif pa.types.is_struct(array.type):
        for i in range(array.type.num_fields):
            yield from lists_in(array.field(i))


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_values_come_back_however_they_change_within_and_between_pieces(data: st.DataObject) -> None:
    node = data.draw(message_types())
    pool: list[Any] = data.draw(st.lists(values(node), min_size=1, max_size=3))
    by = Ros2Decoder(node.name, schema_text(node))
    runs = st.lists(st.tuples(st.integers(0, len(pool) - 1), st.integers(1, 12)), max_size=4)
    for piece in data.draw(st.lists(runs, min_size=1, max_size=5)):
        checked(by, [message(node, pool[which]) for which, times in piece for _ in range(times)])


@pytest.mark.parametrize("at", [0, 1, 50, 98, 99])
def test_a_single_message_with_other_names_keeps_them(at: int) -> None:
    messages = joints(100)
    messages[at] = joints(1, OTHERS, at)[0]
    assert len(messages[at]) == len(messages[at - 1])
    found = checked(decoder(), messages).values.field("name").to_pylist()
    assert found[at] == list(OTHERS)
    assert found.count(list(NAMES)) == 99


def test_names_may_change_from_piece_to_piece_and_back() -> None:
    by = decoder()
    for names in (NAMES, OTHERS, OTHERS, NAMES):
        found = checked(by, joints(100, names)).values.field("name").to_pylist()
        assert found == [list(names)] * 100


def test_columns_without_and_with_messages_of_few_bytes_or_rows() -> None:
    by = decoder()
    for count in (100, 0, 1, 63, 64, 0, 100):
        assert len(checked(by, joints(count)).values) == count


def test_a_text_that_is_no_text_stays_a_fault_of_every_message() -> None:
    by = decoder()
    wrong = [raw.replace("ü".encode(), b"\xff\xfe") for raw in joints(100)]
    for _ in range(2):
        decoded = checked(by, wrong)
        assert decoded.bad.tolist() == list(range(100))
        assert set(decoded.reasons) == {"name[]: the text is not UTF-8"}
    assert not len(checked(by, joints(100)).bad)


def test_what_changes_again_and_again_is_read_all_the_same() -> None:
    by = decoder()
    for i in range(11):
        messages = joints(100)
        messages[50 + i] = joints(1, OTHERS)[0]
        checked(by, messages)
