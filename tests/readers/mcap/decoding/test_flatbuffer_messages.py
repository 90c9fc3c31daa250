"""FlatBuffers: schemas, values that come back from the project's own builder, and hostile bytes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cdr_writer import join, same
from chunkmill.readers.mcap.decoding import FlatBufferDecoder, SchemaError
from chunkmill.readers.mcap.decoding.flatbuffer import FlatField, FlatNumber, FlatTable, FlatText, FlatVector
from flatbuffer_writer import message, schema_of, table_values, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from places import DATA

PROPERTY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def recordings(draw: st.DrawFn) -> tuple[FlatTable, list[Any], list[bytes]]:
    """A type, values of it, and the messages that say them."""
    node = draw(tables())
    written = draw(st.lists(table_values(node), max_size=5))
    return node, written, [message(node, value) for value in written]


@PROPERTY
@given(recordings())
def test_values_come_back(recording: tuple[FlatTable, list[Any], list[bytes]]) -> None:
    node, written, messages = recording
    decoder = FlatBufferDecoder("T", schema_of(node))
    assert decoder.datatype == node.arrow
    decoded = decoder.decode(*join(messages))
    same(decoded, decoder.decode_plain(*join(messages)))
    assert not len(decoded.bad), decoded.reasons
    assert decoded.values.to_pylist() == written


@PROPERTY
@given(recordings(), st.data())
def test_damage_is_found_alike(recording: tuple[FlatTable, list[Any], list[bytes]], data: st.DataObject) -> None:
    node, _, messages = recording
    damaged = []
    for raw in messages:
        changed = bytearray(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
        for _ in range(data.draw(st.integers(0, 3))):
            if changed:
                place = data.draw(st.integers(0, len(changed) - 1))
                changed[place] = data.draw(st.sampled_from([0, 1, 2, 4, 8, 128, 255]))
        damaged.append(bytes(changed))
    decoder = FlatBufferDecoder("T", schema_of(node))
    decoded = decoder.decode(*join(damaged))
    same(decoded, decoder.decode_plain(*join(damaged)))
    # What lies between the messages does not matter: nothing outside their own bytes is read.
    same(decoded, decoder.decode(*join(damaged, gap=b"\0\0\0\0")))
    same(decoded, decoder.decode(*join(damaged, gap=b"")))


@PROPERTY
@given(tables(), st.data())
def test_damaged_schemas_are_refused_or_read(node: FlatTable, data: st.DataObject) -> None:
    raw = bytearray(schema_of(node))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(8, len(raw) - 1))] = data.draw(st.sampled_from([0, 1, 2, 15, 17, 128, 255]))
    raw = raw[: data.draw(st.integers(8, len(raw)))] if data.draw(st.booleans()) else raw
    try:
        decoder = FlatBufferDecoder("T", bytes(raw))
    except SchemaError:
        return
    decoder.decode(*join([message(node, data.draw(table_values(node)))])).values.validate(full=True)


def test_a_schema_of_flatc() -> None:
    with (DATA / "mcap" / "derived" / "flatbuffer_pose_in_frame.mcap").open("rb") as file:
        found = list(make_reader(file).iter_messages())
    schema = found[0][0]
    assert schema is not None
    decoder = FlatBufferDecoder(schema.name, schema.data)
    assert decoder.descriptor.component == "foxglove.PoseInFrame:message"
    xyz = [("x", pa.float64()), ("y", pa.float64()), ("z", pa.float64())]
    pose = pa.struct([("position", pa.struct(xyz)), ("orientation", pa.struct([*xyz, ("w", pa.float64())]))])
    stamp = pa.struct([("sec", pa.uint32()), ("nsec", pa.uint32())])
    assert decoder.datatype == pa.struct([("timestamp", stamp), ("frame_id", pa.string()), ("pose", pose)])
    decoded = decoder.decode(*join(record.data for _, _, record in found))
    assert not len(decoded.bad)
    assert set(decoded.values.field("frame_id").to_pylist()) == {"world"}
    q = np.array([list(one.values()) for one in decoded.values.field("pose").field("orientation").to_pylist()])
    assert np.allclose((q**2).sum(axis=1), 1)


def table(*fields: FlatField) -> FlatTable:
    return FlatTable("T", fields)


NUMBERS = table(FlatField("n", 4, FlatNumber("i4"), -5), FlatField("o", 6, FlatNumber("u8"), None))


def test_what_is_not_there() -> None:
    decoder = FlatBufferDecoder("T", schema_of(NUMBERS))
    decoded = decoder.decode(*join([message(NUMBERS, {"n": None, "o": None}), message(NUMBERS, {"n": 1, "o": 2})]))
    assert decoded.values.to_pylist() == [{"n": -5, "o": None}, {"n": 1, "o": 2}]


def test_fields_that_a_newer_writer_has_are_left_out() -> None:
    older = table(NUMBERS.fields[0])
    raw = message(NUMBERS, {"n": 1, "o": 2})
    assert FlatBufferDecoder("T", schema_of(older)).decode(*join([raw])).values.to_pylist() == [{"n": 1}]


def test_the_root_table_serves_where_no_table_has_the_name() -> None:
    assert FlatBufferDecoder("other", schema_of(NUMBERS)).datatype == NUMBERS.arrow


@pytest.mark.parametrize("raw", [b"", b"BFBS", bytes(8), b"\4\0\0\0BFBS", b"\xff\xff\xff\x7fBFBS" + bytes(99)])
def test_refused(raw: bytes) -> None:
    with pytest.raises(SchemaError):
        FlatBufferDecoder("T", raw)


def test_tables_that_contain_themselves_are_refused() -> None:
    inner = FlatTable("T", (FlatField("x", 4, FlatText()),))
    with pytest.raises(SchemaError, match="contains itself"):
        FlatBufferDecoder("T", schema_of(table(FlatField("next", 4, inner))))


def test_shared_bytes_do_not_become_a_bomb() -> None:
    # Each level refers a hundred times to the one table below: a billion tables in a few kilobytes.
    node: FlatTable = FlatTable("L", (FlatField("n", 4, FlatNumber("i8"), 0),))
    for level in range(5):
        node = FlatTable(f"L{level}", (FlatField("v", 4, FlatVector(node)),))
    schema = schema_of(FlatTable("T", node.fields))
    raw = deep(5, 100)
    decoder = FlatBufferDecoder("T", schema)
    began = time.monotonic()
    decoded = decoder.decode(*join([raw, raw]))
    assert time.monotonic() - began < 5
    assert decoded.bad.tolist() == [0, 1]
    assert "same bytes" in decoded.reasons[0]
    assert not len(decoder.decode(*join([deep(5, 3)])).bad)


def deep(levels: int, times: int) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(64)
    builder.StartObject(1)
    below = builder.EndObject()
    for _ in range(levels):
        builder.StartVector(4, times, 4)
        for _ in range(times):
            builder.PrependUOffsetTRelative(below)
        vector = builder.EndVector()
        builder.StartObject(1)
        builder.PrependUOffsetTRelativeSlot(0, vector, 0)
        below = builder.EndObject()
    builder.Finish(below)
    return bytes(builder.Output())
