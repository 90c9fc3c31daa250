"""Bytes that nobody touched are copied, never decoded; and what is copied is what was there."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path

import pytest
from chunkmill.engine.errors import ReadError
from chunkmill.engine.rrd import (
    Compression,
    EncodedPayload,
    FramedPayload,
    MessageWriter,
    RrdFile,
    RrdWriter,
    StoreEntry,
    arrow_ipc,
    compression,
    payloads,
    runs,
)
from chunkmill.engine.rrd.messages import ArrowMsg
from chunkmill.engine.rrd.payloads import message_digest
from chunkmill.engine.storage.positional import PositionalFile
from rrd_bytes import STORE, content, image, rrd_bytes, scalars, static, without_footer, write_rrd

CHUNKS = [scalars(), image(), static(), scalars("/leg", rows=30_000), image(start=3)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_rrd(tmp_path / "source.rrd", CHUNKS)


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way to a decoded payload explodes."""

    def explode(*_: object, **__: object) -> None:
        raise AssertionError("a payload was decoded")

    monkeypatch.setattr(FramedPayload, "load", explode)
    monkeypatch.setattr(EncodedPayload, "load", explode)
    monkeypatch.setattr(payloads, "decompress", explode)
    monkeypatch.setattr(arrow_ipc, "decode_batch", explode)
    monkeypatch.setattr(compression.lz4.block, "compress", lambda data, store_size: bytes(16))


def messages(path: Path) -> list[object]:
    data = path.read_bytes()
    return [ArrowMsg.FromString(data[m.offset : m.offset + m.size]) for m in RrdFile(path).messages() if m.kind == 2]


def test_rewriting_decodes_nothing(source: Path, tmp_path: Path, no_decoding: None) -> None:
    file = RrdFile(source)
    with (tmp_path / "part").open("wb") as out:
        writer = MessageWriter(out, STORE, path="part")
        for chunk in file.chunks(STORE):
            assert chunk.entity_path
            writer.append(chunk)
        writer.flush()


def test_digests_are_of_what_lies_in_the_file(tmp_path: Path) -> None:
    source = write_rrd(tmp_path / "source.rrd", [*CHUNKS, image(20_000_000)])
    chunks = [*CHUNKS, *RrdFile(source).chunks(STORE)]
    with (tmp_path / "part").open("wb", buffering=0) as out:
        writer = MessageWriter(out, STORE, path="part", digests=True)
        entries = [writer.append(chunk) for chunk in chunks]
        writer.flush()
    data = (tmp_path / "part").read_bytes()
    assert [e.digest for e in entries] == [message_digest(data[e.offset : e.offset + e.size]) for e in entries]


def test_selecting_by_header_decodes_nothing(source: Path, no_decoding: None) -> None:
    chosen = [c for c in RrdFile(source).chunks(STORE) if c.entity_path == "/camera" and "frame" in c.timeline_names]
    assert [c.header.num_rows for c in chosen] == [1, 1]


def test_rewriting_keeps_every_payload_byte(source: Path, tmp_path: Path) -> None:
    other = StoreEntry("blueprint", "another application", "r" * 300)
    copy = write_rrd(tmp_path / "copy.rrd", list(RrdFile(source).chunks(STORE)), other)
    for before, after in zip(messages(source), messages(copy), strict=True):
        assert after.payload == before.payload
        assert after.store_id == other.to_message()
        after.store_id.CopyFrom(before.store_id)
        assert after == before
    assert [content(c) for c in RrdFile(copy).chunks(other)] == [content(c) for c in CHUNKS]


def test_a_touched_chunk_still_knows_its_bytes(source: Path, tmp_path: Path) -> None:
    chunks = list(RrdFile(source).chunks(STORE))
    for chunk in chunks:
        chunk.to_record_batch()
        assert isinstance(chunk.payload, FramedPayload)
    copy = write_rrd(tmp_path / "copy.rrd", chunks)
    assert [m.payload for m in messages(copy)] == [m.payload for m in messages(source)]


def test_a_changed_chunk_is_encoded_anew(source: Path, tmp_path: Path) -> None:
    chunk = next(RrdFile(source).chunks(STORE)).with_entity_path("/moved")
    assert chunk.payload is None
    (found,) = RrdFile(write_rrd(tmp_path / "copy.rrd", [chunk])).chunks(STORE)
    assert content(found) == content(chunk)


def test_uncompressed_payloads_stay_uncompressed(tmp_path: Path) -> None:
    plain = tmp_path / "plain.rrd"
    with RrdWriter(plain, compression=Compression.NONE) as writer:
        writer.begin_store(STORE)
        for chunk in CHUNKS:
            writer.append(STORE, chunk)
        writer.finish()
    assert plain.read_bytes()[8] == 0
    copy = write_rrd(tmp_path / "copy.rrd", list(RrdFile(plain).chunks(STORE)))
    assert {m.compression for m in messages(copy)} == {Compression.NONE}
    assert all(m.uncompressed_size == len(m.payload) for m in messages(copy))
    assert [content(c) for c in RrdFile(copy).chunks(STORE)] == [content(c) for c in CHUNKS]


def test_chunks_of_a_file_without_footer_keep_their_bytes(source: Path, tmp_path: Path) -> None:
    legacy = tmp_path / "legacy.rrd"
    legacy.write_bytes(without_footer(source.read_bytes()))
    copy = write_rrd(tmp_path / "copy.rrd", list(RrdFile(legacy).chunks(STORE)))
    assert [m.payload for m in messages(copy)] == [m.payload for m in messages(source)]


# --- payloads


def test_payloads_pickle_small(source: Path) -> None:
    for original, chunk in zip(CHUNKS, RrdFile(source).chunks(STORE), strict=True):
        data = pickle.dumps(chunk.payload)
        assert len(data) < 400
        assert pickle.loads(data).load().equals(original.to_record_batch(), check_metadata=True)


def test_a_payload_in_memory(source: Path, tmp_path: Path) -> None:
    chunk = list(RrdFile(source).chunks(STORE))[1]
    assert isinstance(chunk.payload, FramedPayload)
    with PositionalFile(str(source)) as file:
        found = chunk.payload.located(file)
        held = EncodedPayload(
            "gone.rrd",
            0,
            found.size,
            found.uncompressed_size,
            found.compression,
            file.read(found.offset, found.size, what="x"),
        )
    assert pickle.loads(pickle.dumps(held)).load().equals(CHUNKS[1].to_record_batch())
    again = type(chunk).lazy(chunk.header, held)
    (copied,) = RrdFile(write_rrd(tmp_path / "copy.rrd", [again])).chunks(STORE)
    assert content(copied) == content(CHUNKS[1])


def test_a_source_that_was_replaced(source: Path, tmp_path: Path) -> None:
    chunks = list(RrdFile(source).chunks(STORE))
    source.write_bytes(rrd_bytes(*[scalars(), image(), static(), scalars("/leg", rows=30_000), image(start=3)]))
    for chunk in chunks:
        with pytest.raises(ReadError):
            chunk.to_record_batch()
        with pytest.raises(ReadError):
            write_rrd(tmp_path / "copy.rrd", [chunk])


def test_a_source_that_was_cut(source: Path, tmp_path: Path) -> None:
    chunks = list(RrdFile(source).chunks(STORE))
    os.truncate(source, chunks[-1].payload.offset + 10_000)
    for act in (lambda: chunks[-1].to_record_batch(), lambda: write_rrd(tmp_path / "copy.rrd", chunks[-1:])):
        with pytest.raises(ReadError, match="was replaced since it was opened") as caught:
            act()
        assert caught.value.path == str(source)


# --- copies by the kernel


@pytest.mark.parametrize("broken", [(), ("_by_range",), ("_by_range", "_by_sendfile")])
@pytest.mark.parametrize("failure", [OSError(18, "Invalid cross-device link"), None])
def test_every_way_of_copying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: tuple[str, ...], failure: OSError | None
) -> None:
    def fail(*_: object) -> int:
        if failure is not None:
            raise failure
        return 0

    for name in broken:
        monkeypatch.setattr(runs, name, fail)
    (tmp_path / "a").write_bytes(os.urandom(3_000_000))
    with PositionalFile(str(tmp_path / "a")) as source, (tmp_path / "b").open("wb", buffering=0) as target:
        target.write(b"before")
        runs.copy_range(source, 7, 2_500_000, target.fileno())
        target.write(b"after")
    assert (tmp_path / "b").read_bytes() == b"before" + (tmp_path / "a").read_bytes()[7:2_500_007] + b"after"


def test_copying_beyond_the_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"short")
    target = (tmp_path / "b").open("wb", buffering=0)
    with target, PositionalFile(str(tmp_path / "a")) as source, pytest.raises(ReadError, match="shrank"):
        runs.copy_range(source, 0, 50, target.fileno())


def test_a_target_without_a_descriptor(source: Path) -> None:
    file = io.BytesIO()
    writer = RrdWriter(file, path="memory")
    writer.begin_store(STORE)
    for chunk in RrdFile(source).chunks(STORE):
        writer.append(STORE, chunk)
    writer.finish()
    tail = len(file.getvalue()) - len(source.read_bytes())
    assert abs(tail) < 200
