"""A message in memory is taken apart as a parser of protobuf does, however its fields come."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.engine.errors import ReadError
from chunkmill.engine.rrd import messages
from chunkmill.engine.rrd.messages import ArrowMsg, LocatedMessage, locate
from chunkmill.engine.storage.positional import PositionalFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FIELDS = {
    "store": ArrowMsg(store_id={"recording_id": "one", "application_id": {"id": "app"}}).SerializeToString(),
    "compression": b"\x10\x02",
    "size": b"\x18\xc0\x84\x3d",
    "encoding": b"\x20\x01",
    "payload": b"\x2a\x03abc",
    "long payload": b"\x2a\xe8\x07" + bytes(range(250)) * 4,
    "id": b"\x32\x12\x09" + bytes(8) + b"\x11" + bytes(range(8)),
    "static": b"\x38\x01",
    "unknown": b"\x42\x05other",
    "wide": b"\x79" + bytes(8),
}
USUAL = ["store", "compression", "size", "encoding", "long payload", "id", "static"]


def outcome(path: Path, *, whole: bool) -> tuple[ArrowMsg, bytes] | str:
    with PositionalFile(str(path)) as file:
        try:
            found = locate(file, 0, file.size, whole=whole)
        except ReadError as error:
            return type(error).__name__
        payload = found.payload
        if payload is None:
            payload = file.read(found.payload_offset, found.payload_size, what="it")
    message = ArrowMsg.FromString(found.message.SerializeToString())
    message.ClearField("payload")
    return message, bytes(payload)


def parsed(data: bytes) -> tuple[ArrowMsg, bytes]:
    message = ArrowMsg.FromString(data)
    payload = message.payload
    message.ClearField("payload")
    return message, payload


def without_unknown(found: tuple[ArrowMsg, bytes] | str) -> object:
    if isinstance(found, tuple):
        found[0].DiscardUnknownFields()
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(names=st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=9))
def test_fields_in_any_order(tmp_path: Path, names: list[str]) -> None:
    data = b"".join(FIELDS[name] for name in names)
    (tmp_path / "m").write_bytes(data)
    expected = without_unknown(parsed(data))
    for whole in True, False:
        assert without_unknown(outcome(tmp_path / "m", whole=whole)) == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(at=st.integers(0, 80), value=st.integers(0, 255), keep=st.integers(0, 1200))
def test_damage_is_found_as_by_the_parser(tmp_path: Path, at: int, value: int, keep: int) -> None:
    data = bytearray(b"".join(FIELDS[name] for name in USUAL))
    data[at] = value
    (tmp_path / "m").write_bytes(data[:keep] or b"\x00")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "_taken_apart", lambda *_: None)
        expected = outcome(tmp_path / "m", whole=True)
    assert outcome(tmp_path / "m", whole=True) == expected


def test_the_usual_order_is_not_parsed_as_a_whole(tmp_path: Path) -> None:
    data = b"".join(FIELDS[name] for name in USUAL)
    found = messages._taken_apart(data, "m", 100)
    assert isinstance(found, LocatedMessage)
    assert (found.payload_offset, found.payload_size) == (100 + data.index(bytes(range(250))), 1000)
    assert not found.message.payload
