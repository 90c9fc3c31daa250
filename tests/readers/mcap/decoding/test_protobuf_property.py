"""Random protobuf types and messages: by column as by the library's own objects, whole or damaged."""

from __future__ import annotations

import pytest
from cdr_writer import join, same
from chunkmill.readers.mcap.decoding import protobuf_scan
from chunkmill.readers.mcap.decoding.protobuf import ProtobufDecoder
from google.protobuf import descriptor_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proto_types import file_set, files, message_class, messages

PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=[0, 40], ids=["together", "singly"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """From how many messages on fields are found together: with 0, always."""
    monkeypatch.setattr(protobuf_scan, "_FEW", max(request.param, 1))
    return int(request.param)


@st.composite
def recordings(draw: st.DrawFn) -> tuple[descriptor_pb2.FileDescriptorProto, list[bytes]]:
    """A file of types, and serialized messages of its type ``t.M``."""
    file = draw(files())
    written = draw(st.lists(messages(message_class(file, "t.M")), max_size=5)) * draw(st.sampled_from([1, 1, 12]))
    return file, [message.SerializeToString() for message in written]


@PROPERTY
@given(recordings())
def test_values_come_back(few: int, recording: tuple[descriptor_pb2.FileDescriptorProto, list[bytes]]) -> None:
    file, written = recording
    decoder = ProtobufDecoder("t.M", file_set(file))
    decoded = decoder.decode(*join(written))
    assert decoded.values.type == decoder.datatype
    assert not len(decoded.bad)
    same(decoded, decoder.decode_plain(*join(written)))


@PROPERTY
@given(recordings(), st.data())
def test_damage_is_found_by_both(
    few: int, recording: tuple[descriptor_pb2.FileDescriptorProto, list[bytes]], data: st.DataObject
) -> None:
    file, written = recording
    damaged = []
    for raw in written:
        changed = bytearray(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
        for _ in range(data.draw(st.integers(0, 2))):
            if changed:
                changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        damaged.append(bytes(changed) * data.draw(st.sampled_from([1, 1, 2])))
    decoder = ProtobufDecoder("t.M", file_set(file))
    decoded = decoder.decode(*join(damaged))
    same(decoded, decoder.decode_plain(*join(damaged)))
    same(decoded, decoder.decode(*join(damaged, gap=b"")))
