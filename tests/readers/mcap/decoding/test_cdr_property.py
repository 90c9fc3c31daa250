"""Random message types and values: both readers give the values that were written, and agree on damage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cdr_writer import join, message, message_types, same, schema_text, values
from chunkmill.readers.mcap.decoding import cdr_walk
from chunkmill.readers.mcap.decoding.columns import MessageType
from chunkmill.readers.mcap.decoding.ros import Ros2Decoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=[0, 24], ids=["together", "singly"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """From how many rows on elements are found together: with 0, always."""
    monkeypatch.setattr(cdr_walk, "_FEW", max(request.param, 1))
    return int(request.param)


@st.composite
def recordings(draw: st.DrawFn) -> tuple[MessageType, list[Any], list[bytes]]:
    """A type, values of it, and the messages that say them, in either byte order."""
    node = draw(message_types())
    written = draw(st.lists(values(node), max_size=6)) * draw(st.sampled_from([1, 1, 5]))
    orders = draw(st.sampled_from(["<", ">", "<>"]))
    return node, written, [message(node, v, orders[index % len(orders)]) for index, v in enumerate(written)]


@PROPERTY
@given(recordings())
def test_values_come_back(few: int, recording: tuple[MessageType, list[Any], list[bytes]]) -> None:
    node, written, messages = recording
    decoder = Ros2Decoder(node.name, schema_text(node))
    assert decoder.datatype == node.arrow
    decoded = decoder.decode(*join(messages))
    same(decoded, decoder.decode_plain(*join(messages)))
    assert decoded.values.to_pylist() == written
    assert not len(decoded.bad)


@PROPERTY
@given(recordings(), st.data())
def test_damage_is_found_by_both(
    few: int, recording: tuple[MessageType, list[Any], list[bytes]], data: st.DataObject
) -> None:
    node, _, messages = recording
    damaged = []
    for raw in messages:
        changed = bytearray(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
        for _ in range(data.draw(st.integers(0, 2))):
            if len(changed) > 4:
                changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(
                    st.sampled_from([0, 1, 2, 5, 128, 255])
                )
        damaged.append(bytes(changed))
    decoder = Ros2Decoder(node.name, schema_text(node))
    decoded = decoder.decode(*join(damaged))
    same(decoded, decoder.decode_plain(*join(damaged)))
    # What lies between the messages does not matter: nothing outside their own bytes is read.
    same(decoded, decoder.decode(*join(damaged, gap=b"\0\0\0")))
    same(decoded, decoder.decode(*join(damaged, gap=b"")))


def test_no_messages() -> None:
    none = np.empty(0, np.int64)
    decoded = Ros2Decoder("p/T", b"string s\nint32[] n").decode(np.empty(0, np.uint8), none, none)
    assert len(decoded.values) == 0
    assert decoded.reasons == []
