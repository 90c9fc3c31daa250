"""Payloads that LZ4 would not make smaller are stored as they are, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.rrd import Compression, RrdFile, encode_batch
from chunkmill.engine.rrd.arrow_ipc import joined, stream_pieces
from chunkmill.engine.rrd.chunk_encoding import encode_chunk
from chunkmill.engine.rrd.compressibility import GAIN, LEAST, resists
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
    "half noise, half zeros": (blobs(NOISE[:1_000_000] + bytes(1_000_000)), Compression.LZ4),
    "a row of noise among zeros": (blobs(bytes(900_000) + NOISE[:300_000] + bytes(900_000), 7), Compression.LZ4),
    "noise that comes again": (blobs(NOISE[:20_000] * 50), Compression.LZ4),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_compressed(name: str) -> None:
    chunk, expected = CASES[name]
    encoded = encode_chunk(chunk.data)
    assert encoded.compression == expected
    plain, size = encode_batch(chunk.to_record_batch(), Compression.NONE)
    assert encoded.uncompressed_size == size == len(plain)
    if expected == Compression.NONE:
        assert b"".join(encoded.pieces) == bytes(plain)
    else:
        assert b"".join(encoded.pieces) == bytes(encode_batch(chunk.to_record_batch())[0])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    chunks = [Chunk.from_data(replace(chunk.data, entity_path=f"/{i}")) for i, (chunk, _) in enumerate(CASES.values())]
    found = list(RrdFile(write_rrd(tmp_path / "a.rrd", chunks)).chunks(STORE))
    assert [content(chunk) for chunk in found] == [content(chunk) for chunk in chunks]


def test_columns_are_not_copied() -> None:
    chunk = blobs(NOISE[:3_000_000], 10)
    address = chunk.data.components[0].values.values.buffers()[2].address
    pieces = encode_chunk(chunk.data).pieces
    assert address in [pa.py_buffer(piece).address for piece in pieces]


@given(sizes=st.lists(st.integers(0, 100_000), max_size=12), noisy=st.lists(st.booleans(), min_size=12, max_size=12))
@settings(deadline=None, max_examples=60)
def test_noise_resists_however_it_is_cut(sizes: list[int], noisy: list[bool]) -> None:
    pieces = [memoryview(NOISE if noise else bytes(100_000))[:size] for size, noise in zip(sizes, noisy, strict=False)]
    content = b"".join(pieces)
    if all(noise or not piece for piece, noise in zip(pieces, noisy, strict=False)):
        assert resists(pieces) == (len(content) >= LEAST)
    elif not any(noise and piece for piece, noise in zip(pieces, noisy, strict=False)):
        assert not resists(pieces)


@pytest.mark.parametrize("saved", [0.05, 0.3])
def test_the_eighth(saved: float) -> None:
    noise = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)
    lines = noise.reshape(-1, 256)
    lines[:, : int(256 * saved)] = 0
    assert resists([memoryview(noise)]) == (saved < 1 / GAIN)


@pytest.mark.parametrize("name", CASES)
def test_pieces_are_the_stream(name: str) -> None:
    batch = CASES[name][0].to_record_batch()
    pieces = stream_pieces(batch)
    stream, size = encode_batch(batch, Compression.NONE)
    assert bytes(joined(pieces, size)) == bytes(stream)
