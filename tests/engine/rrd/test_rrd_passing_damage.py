"""A file that is not what its footer says is passed on, or refused, as if every chunk were read by itself."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.errors import ReadError
from chunkmill.engine.rrd import Compression, RrdFile, RrdWriter
from chunkmill.engine.rrd.messages import ArrowMsg
from chunkmill.readers import RrdReader, rrd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from passing_runs import TARGET, both_ways
from rrd_bytes import (
    STORE,
    drop_columns,
    image,
    rrd_bytes,
    scalars,
    static,
    undigested,
    with_footer,
    with_manifest,
    write_rrd,
)

pytestmark = pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")
WHOLE = undigested(rrd_bytes(scalars(), static(), image(), scalars("/leg", rows=30_000)))


def places(data: bytes) -> list[tuple[int, int]]:
    """Offset and size of every chunk's message."""
    found, at = [], 12
    while True:
        kind, size = struct.unpack_from("<QQ", data, at)
        if kind == 0:
            return found
        if kind == 2:
            found.append((at + 16, size))
        at += 16 + size


def changed(at: int, new: bytes, message: int = 0) -> bytes:
    """The file with bytes changed in one message, counted from its begin, or from its end if negative."""
    offset, size = places(WHOLE)[message]
    start = offset + (at if at >= 0 else size + at)
    return WHOLE[:start] + new + WHOLE[start + len(new) :]


def in_head(old: bytes, new: bytes) -> bytes:
    offset, _ = places(WHOLE)[0]
    return changed(WHOLE.index(old, offset) - offset, new)


DAMAGE = {
    "another kind of message": changed(-16 - places(WHOLE)[0][1], b"\1"),
    "another size": changed(-8 - places(WHOLE)[0][1], b"\0"),
    "another chunk id": changed(-10, b"\xff\xff"),
    "another static flag": changed(-1, b"\1"),
    "another store": changed(6, b"X"),
    "another encoding": in_head(b"\x20\1\x2a", b"\x20\2\x2a"),
    "another compression": in_head(b"\x10\2\x18", b"\x10\1\x18"),
    "a compression nobody knows": in_head(b"\x10\2\x18", b"\x10\7\x18"),
    "another uncompressed size": changed(
        in_head(b"\x10\2\x18", b"\x10\2\x18").index(b"\x10\2\x18") + 3 - places(WHOLE)[0][0], b"\xff"
    ),
    "no payload": in_head(b"\x20\1\x2a", b"\x20\1\x32"),
}


def outcome(tmp_path: Path, data: bytes) -> object:
    path = tmp_path / "source.rrd"
    path.write_bytes(data)
    ours, expected = both_ways(tmp_path, lambda: [(TARGET, RrdReader(path).stream())])
    assert ours == expected
    return ours


@pytest.mark.parametrize("name", DAMAGE)
def test_messages_that_are_not_as_listed(name: str, tmp_path: Path) -> None:
    assert DAMAGE[name] != WHOLE
    outcome(tmp_path, DAMAGE[name])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.integers(0, 3), at=st.integers(-24, 60), new=st.binary(min_size=1, max_size=3))
def test_any_damage_around_payloads(tmp_path: Path, message: int, at: int, new: bytes) -> None:
    outcome(tmp_path, changed(at, new, message))


def column(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def changed_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
        at = batch.schema.get_field_index(name)
        found = batch.column(at)
        new = pa.array(change(found.to_numpy(zero_copy_only=False)), found.type)
        return batch.set_column(at, batch.schema.field(at), new)

    return changed_batch


def nulls(name: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def changed_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
        at = batch.schema.get_field_index(name)
        return batch.set_column(at, batch.schema.field(at), pa.nulls(len(batch), batch.schema.field(at).type))

    return changed_batch


def moved(by: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: values + np.array([0, *[by] * (len(values) - 1)], values.dtype)


MANIFESTS = {
    "in another order": lambda b: b.take([2, 0, 3, 1]),
    "a chunk twice": lambda b: b.take([0, 1, 1, 2, 3]),
    "a chunk left out": lambda b: b.take([0, 1, 3]),
    "overlapping chunks": column("chunk_byte_offset", lambda v: np.array([*v[:3], v[2] + 1000], v.dtype)),
    "moved offsets": column("chunk_byte_offset", moved(1)),
    "larger sizes": column("chunk_byte_size", moved(1)),
    "other uncompressed sizes": column("chunk_byte_size_uncompressed", moved(1)),
    "other row counts": column("chunk_num_rows", moved(1)),
    "no rows": column("chunk_num_rows", lambda v: v * 0),
    "others are static": column("chunk_is_static", np.flip),
    "all are static": column("chunk_is_static", np.ones_like),
    "ids of others": column("chunk_id", lambda v: np.roll(v, 1)),
    "no ends": nulls("frame:end"),
    "no starts": nulls("frame:start"),
    "no rows of a component": column("frame:Scalars:scalars:num_rows", lambda v: v * 0),
    "no details": lambda b: drop_columns(
        b, ":scalars:start", ":scalars:end", ":scalars:num_rows", ":buffer:start", ":buffer:end", ":buffer:num_rows"
    ),
    "all held statically": column("Scalars:scalars:has_static_data", np.ones_like),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_that_say_something_else(name: str, tmp_path: Path) -> None:
    outcome(tmp_path, with_manifest(WHOLE, MANIFESTS[name]))


def test_two_manifests_of_one_store(tmp_path: Path) -> None:
    outcome(tmp_path, with_footer(WHOLE, lambda f: f.manifests.add().CopyFrom(f.manifests[0])))


def test_fields_in_another_order_are_written_in_ours(tmp_path: Path) -> None:
    offset, size = places(WHOLE)[0]
    message = WHOLE[offset : offset + size]
    turned = message[-22:] + message[:-22]
    assert ArrowMsg.FromString(turned) == ArrowMsg.FromString(message)
    (written, _) = outcome(tmp_path, WHOLE[:offset] + turned + WHOLE[offset + size :])
    assert [kind for kind, _ in written].count(2) == 4


def test_uncompressed_payloads(tmp_path: Path) -> None:
    plain = tmp_path / "plain.rrd"
    with RrdWriter(plain, compression=Compression.NONE) as writer:
        writer.begin_store(STORE)
        for chunk in (scalars(), image()):
            writer.append(STORE, chunk)
        writer.finish()
    outcome(tmp_path, plain.read_bytes())


@pytest.mark.parametrize("kept", [0, 30, 5000, -200])
def test_a_source_that_is_cut_after_the_plan(kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_rrd(tmp_path / "source.rrd", [scalars(), image(), static()])
    size = RrdFile(path).size
    plan = rrd.RrdSource.run_splits

    def planned(*given: object) -> object:
        found = plan(*given)  # type: ignore[arg-type]
        os.truncate(path, kept if kept >= 0 else size + kept)
        return found

    monkeypatch.setattr(rrd.RrdSource, "run_splits", planned)
    stream = RrdReader(path).stream()
    with pytest.raises(ReadError, match="was replaced since it was opened"):
        stream.write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="b", executor="inline")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source.rrd"]


def test_a_source_that_is_replaced_after_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_rrd(tmp_path / "source.rrd", [scalars(), image(), static()])
    plan = rrd.RrdSource.run_splits

    def planned(*given: object) -> object:
        found = plan(*given)  # type: ignore[arg-type]
        write_rrd(path, [scalars(), image(), static()])
        return found

    monkeypatch.setattr(rrd.RrdSource, "run_splits", planned)
    with pytest.raises(ReadError):
        RrdReader(path).stream().write_rrd(
            tmp_path / "out.rrd", application_id="a", recording_id="b", executor="inline"
        )
