"""Rerun's own tools accept what we write, and see in it what we wrote."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.rrd import Compression, RrdFile, RrdWriter, StoreEntry
from rrd_bytes import STORE, content, image, rrd_bytes, scalars, static, write_rrd

pytest.importorskip("rerun")
RERUN = Path(sys.executable).with_name("rerun")
F64 = pa.list_(pa.float64())
NOISE = np.random.default_rng(2).normal(size=200_000).tolist()
"""Written uncompressed, since LZ4 gains nothing."""


def verify(path: Path) -> None:
    result = subprocess.run([RERUN, "rrd", "verify", path], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "1 file verified without error" in result.stdout + result.stderr


def reader(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rerun.chunk import RrdReader

        return RrdReader(path)


def normal(batch: pa.RecordBatch) -> dict[str, Any]:
    """What Rerun and we agree on: Rerun renames inner fields of lists, and bumps the version."""
    metadata = {k: v for k, v in batch.schema.metadata.items() if k != b"sorbet:version"}
    fields = {f.name: (f.metadata or {}).get(b"rerun:component", b"") for f in batch.schema}
    return {"metadata": metadata, "fields": fields, "values": batch.to_pydict()}


def seen(path: Path, store: StoreEntry) -> list[dict[str, Any]]:
    found = reader(path)
    entry = next(
        e
        for e in [*found.recordings(), *found.blueprints()]
        if (e.kind, e.application_id, e.recording_id) == (store.kind, store.application_id, store.recording_id)
    )
    return [normal(c.to_record_batch()) for c in found.stream(store=entry)]


def wanted(chunks: list[Chunk]) -> list[dict[str, Any]]:
    return [normal(c.to_record_batch()) for c in chunks]


def chunk(entity: str, timelines: dict[str, pa.Array], *components: tuple[ComponentDescriptor, list[Any]]) -> Chunk:
    return Chunk.build(entity, timelines, [(d, pa.array(v, F64)) for d, v in components])


def frame(*times: int) -> pa.Array:
    return pa.array(times, pa.int64())


ODD = [
    scalars(),
    static(),
    image(),
    static("/__properties"),
    static("/__properties/sub/path"),
    chunk("/we ird/ü", {"my-rel time": pa.array([1], pa.duration("ns"))}, (ComponentDescriptor("x"), [[1.0]])),
    chunk(
        "/nulls",
        {"frame": frame(1, 2)},
        (ComponentDescriptor("x"), [[1.0], None]),
        (ComponentDescriptor("y"), [None, None]),
    ),
    chunk("/none", {"frame": frame()}, (ComponentDescriptor("x"), [])),
    chunk("/twins", {"frame": frame(1)}, (ComponentDescriptor("x.y"), [[1.0]]), (ComponentDescriptor("x-y"), [[2.0]])),
    chunk("/two", {"frame": frame(1)}, (ComponentDescriptor("A:x", "A", "T1"), [[1.0]])),
    chunk("/two", {"frame": frame(2)}, (ComponentDescriptor("A:x", "A", "T2"), [[1.0]])),
    chunk("/arch", {"frame": frame(1)}, (ComponentDescriptor("x", "A"), [[1.0]])),
    chunk("/arch", {"frame": frame(2)}, (ComponentDescriptor("x", "B"), [[1.0]])),
    Chunk.build("/types", {"frame": frame(1)}, [(ComponentDescriptor("x"), pa.array([[1.0]], F64))]),
    Chunk.build("/types", {"frame": frame(2)}, [(ComponentDescriptor("x"), pa.array([[1]], pa.list_(pa.int32())))]),
    chunk("/noise", {"frame": frame(7)}, (ComponentDescriptor("x"), [NOISE])),
    chunk("/far", {"frame": frame(-(2**63), 2**63 - 1)}, (ComponentDescriptor("x"), [[1.0], [2.0]])),
]


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.NONE])
def test_rerun_sees_what_we_wrote(tmp_path: Path, compression: Compression) -> None:
    path = tmp_path / "a.rrd"
    with RrdWriter(path, compression=compression) as writer:
        writer.begin_store(STORE)
        for found in ODD:
            writer.append(STORE, found)
        writer.finish()
    verify(path)
    assert seen(path, STORE) == wanted(ODD)
    store = reader(path).store()
    assert len(store) == len(ODD)
    assert [normal(c.to_record_batch()) for c in store.stream()] == wanted(ODD)
    assert len(store.summary().splitlines()) == len(ODD)


def test_rerun_sees_copied_bytes(tmp_path: Path) -> None:
    first = write_rrd(tmp_path / "a.rrd", ODD)
    second = write_rrd(tmp_path / "b.rrd", list(RrdFile(first).chunks(STORE)))
    verify(second)
    assert seen(second, STORE) == wanted(ODD)
    assert reader(first).store().summary() == reader(second).store().summary()


def test_several_stores(tmp_path: Path) -> None:
    path = tmp_path / "a.rrd"
    stores = {
        StoreEntry("recording", "b", "1"): [scalars()],
        StoreEntry("blueprint", "a", "2"): [static("/view")],
        StoreEntry("recording", "a", "3"): [scalars("/x"), static()],
        StoreEntry("recording", "a", "4"): [],
    }
    with RrdWriter(path) as writer:
        for store, chunks in stores.items():
            writer.begin_store(store)
            for found in chunks:
                writer.append(store, found)
        writer.finish()
    verify(path)
    theirs = [*reader(path).recordings(), *reader(path).blueprints()]
    assert [repr(e) for e in theirs] == [repr(e) for e in RrdFile(path).stores()]
    for store, chunks in stores.items():
        if chunks:
            assert seen(path, store) == wanted(chunks)


def test_an_empty_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.rrd"
    path.write_bytes(rrd_bytes())
    assert reader(path).recordings() == []


def test_we_see_what_rerun_wrote(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rerun.chunk import Chunk as TheirChunk
        from rerun.chunk import LazyChunkStream
    ours = [c for c in ODD if c.entity_path not in ("/arch", "/types")]
    theirs = [t for c in ours for t in TheirChunk.from_record_batch(c.to_record_batch())]
    path = tmp_path / "a.rrd"
    LazyChunkStream.from_iter(theirs).write_rrd(str(path), application_id="app", recording_id="rec")
    assert RrdFile(path).stores() == [STORE]
    assert [normal(c.to_record_batch()) for c in RrdFile(path).chunks(STORE)] == wanted(ours)
    copy = write_rrd(tmp_path / "b.rrd", list(RrdFile(path).chunks(STORE)))
    assert seen(copy, STORE) == wanted(ours)
    assert reader(copy).store().summary() == reader(path).store().summary()


def test_a_manifest_without_details(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkmill.engine.rrd import manifest_writing

    monkeypatch.setattr(manifest_writing, "_MAX_DETAIL", 0)
    path = write_rrd(tmp_path / "a.rrd", [scalars(), static(), image()])
    verify(path)
    assert seen(path, STORE) == [normal(c.to_record_batch()) for c in reader(path).store().stream()]
    assert len([content(c) for c in RrdFile(path).chunks(STORE)]) == 3
