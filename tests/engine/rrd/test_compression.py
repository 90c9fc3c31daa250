"""Columns that LZ4 would not make smaller are stored as they are, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lz4.block
import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.rrd import Compression, RrdFile, RrdWriter, encode_batch
from chunkmill.engine.rrd.arrow_ipc import Encoded, encode_chunk, stream_pieces
from chunkmill.engine.rrd.compression import GAIN, LEAST, compress_pieces
from hypothesis import given, settings
from hypothesis import strategies as st
from rrd_bytes import STORE, content, write_rrd

NOISE = np.random.default_rng(5).bytes(4 << 20)


def blobs(content: bytes, rows: int = 1, entity_path: str = "/camera") -> Chunk:
    size = len(content) // rows
    values = pa.array([[content[i * size : (i + 1) * size]] for i in range(rows)], pa.list_(pa.binary()))
    return Chunk.from_columns(
        entity_path, [TimeColumn("frame", sequence=range(rows))], [ComponentColumn("Blob:blob", values)]
    )


CASES = {
    "an image": (blobs(NOISE[:300_000]), Compression.NONE),
    "many images": (blobs(NOISE[:3_000_000], 10), Compression.NONE),
    "a small image": (blobs(NOISE[: LEAST // 2]), Compression.LZ4),
    "zeros": (blobs(bytes(300_000)), Compression.LZ4),
    "many zeros": (blobs(bytes(3_000_000), 10), Compression.LZ4),
    "noise of little weight": (blobs(NOISE[:100_000] + bytes(1_000_000)), Compression.LZ4),
    "half noise, half zeros": (blobs(NOISE[:1_000_000] + bytes(1_000_000)), Compression.LZ4),
    "a row of noise among zeros": (blobs(bytes(900_000) + NOISE[:300_000] + bytes(900_000), 7), Compression.LZ4),
    "noise that comes again": (blobs(NOISE[:20_000] * 50), Compression.LZ4),
    "noise that comes again late": (blobs(NOISE[:60_000] * 20), Compression.LZ4),
}


def decompressed(encoded: Encoded) -> bytes:
    payload = b"".join(encoded.pieces)
    assert len(payload) == encoded.size
    if encoded.compression == Compression.NONE:
        return payload
    return bytes(lz4.block.decompress(payload, uncompressed_size=encoded.uncompressed_size))


@pytest.mark.parametrize("name", CASES)
def test_what_is_compressed(name: str) -> None:
    chunk, expected = CASES[name]
    encoded = encode_chunk(chunk.data)
    assert encoded.compression == expected
    plain, size = encode_batch(chunk.to_record_batch(), Compression.NONE)
    assert encoded.uncompressed_size == size == len(plain)
    assert decompressed(encoded) == bytes(plain)
    whole, _ = encode_batch(chunk.to_record_batch())
    assert encoded.size < len(whole) * 1.2


def test_what_is_written_is_read(tmp_path: Path) -> None:
    chunks = [Chunk.from_data(replace(chunk.data, entity_path=f"/{i}")) for i, (chunk, _) in enumerate(CASES.values())]
    found = list(RrdFile(write_rrd(tmp_path / "a.rrd", chunks)).chunks(STORE))
    assert [content(chunk) for chunk in found] == [content(chunk) for chunk in chunks]


def test_columns_are_not_copied() -> None:
    chunk = blobs(NOISE[:3_000_000], 10)
    address = chunk.data.components[0].values.values.buffers()[2].address
    pieces = encode_chunk(chunk.data).pieces
    assert address in [pa.py_buffer(piece).address for piece in pieces]


def column(kind: str, rows: int) -> np.ndarray:
    random = np.random.default_rng(rows)
    return {
        "noise": random.normal(size=rows),
        "counts": np.arange(rows, dtype=np.float64),
        "zeros": np.zeros(rows),
        "few": random.integers(0, 4, rows).astype(np.float64),
    }[kind]


@given(
    columns=st.lists(
        st.tuples(st.sampled_from(["noise", "counts", "zeros", "few"]), st.booleans()), min_size=1, max_size=6
    ),
    rows=st.integers(0, 40_000),
)
@settings(deadline=None, max_examples=60)
def test_columns_of_any_kinds_come_back(columns: list[tuple[str, bool]], rows: int) -> None:
    values = {
        f"{i}": pa.array(column(kind, rows), mask=np.arange(rows) % 7 == 0 if nulls else None)
        for i, (kind, nulls) in enumerate(columns)
    }
    components = [
        ComponentColumn(name, pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32), array))
        for name, array in values.items()
    ]
    chunk = Chunk.from_columns("/a", [TimeColumn("frame", sequence=range(rows))], components)
    for _ in range(2):
        encoded = encode_chunk(chunk.data)
        plain, size = encode_batch(chunk.to_record_batch(), Compression.NONE)
        assert encoded.uncompressed_size == size
        assert decompressed(encoded) == bytes(plain)


def test_columns_may_be_changed_as_soon_as_they_are_written(tmp_path: Path) -> None:
    """As by a function that makes its values in the same array each time."""
    scratch = np.empty(50_000)

    def made() -> Iterator[Chunk]:
        for number in range(6):
            scratch[:] = np.random.default_rng(number).normal(size=len(scratch)) if number % 2 else float(number)
            values = pa.ListArray.from_arrays(np.arange(50_001, dtype=np.int32), pa.array(scratch))
            yield Chunk.from_columns(
                f"/{number}", [TimeColumn("t", sequence=range(50_000))], [ComponentColumn("x", values)]
            )

    path = tmp_path / "a.rrd"
    with RrdWriter(path) as writer:
        writer.begin_store(STORE)
        for chunk in made():
            writer.append(STORE, chunk)
        writer.finish()
    found = [chunk.data.components[0].values.flatten().to_numpy() for chunk in RrdFile(path).chunks(STORE)]
    for number, values in enumerate(found):
        expected = np.random.default_rng(number).normal(size=50_000) if number % 2 else np.full(50_000, float(number))
        assert (values == expected).all()


@pytest.mark.parametrize("saved", [0.05, 0.3])
def test_how_much_has_to_be_gained(saved: float) -> None:
    noise = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)
    lines = noise.reshape(-1, 256)
    lines[:, : int(256 * saved)] = 0
    assert (compress_pieces([pa.py_buffer(noise)]) is None) == (saved < 1 / GAIN)


@pytest.mark.parametrize("name", CASES)
def test_pieces_are_the_stream(name: str) -> None:
    batch = CASES[name][0].to_record_batch()
    stream, _ = encode_batch(batch, Compression.NONE)
    assert b"".join(stream_pieces(batch)) == bytes(stream)
    schema = len(batch.schema.serialize())
    assert b"".join(stream_pieces(batch, after=schema)) == bytes(stream)[schema:]
