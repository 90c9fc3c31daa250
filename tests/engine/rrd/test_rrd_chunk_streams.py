"""Chunks of one shape are encoded and decoded by what is known of the shape, with the same result as without."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import (
    Chunk,
    ChunkData,
    ComponentColumn,
    ComponentDescriptor,
    TimeColumn,
    data_from_batch,
    data_to_batch,
    tuid,
)
from chunkmill.engine.errors import ReadError
from chunkmill.engine.rrd import Compression, RrdFile, arrow_ipc, encode_batch, keeping_open
from chunkmill.engine.rrd.arrow_ipc import Encoded, decode_batch, decode_chunk, encode_chunk
from chunkmill.engine.rrd.compression import decompress
from chunkmill.engine.rrd.messages import ENCODING_ARROW_IPC, ArrowMsg, message_head, message_tail, tuid_message
from chunkmill.engine.storage import positional
from hypothesis import given, settings
from hypothesis import strategies as st
from rrd_bytes import STORE, TIMES, VALUES, a_column, image, scalars, static, write_rrd

WHERE = {"path": "there", "offset": 5, "what": "it"}
FRAMES = TimeColumn("frame", sequence=[3, 1, 2])


def made(values: object, entity: str = "/a") -> Chunk:
    return Chunk.from_columns(
        entity, [FRAMES], [ComponentColumn("c", pa.array(values) if type(values) is list else values)]
    )


CHUNKS = {
    "scalars": scalars(rows=1000),
    "static": static(),
    "large": image(3_000_000),
    "without rows": Chunk.from_columns("/a", [], []),
    "nulls": made([[1], None, [2, 3]]),
    "texts": made([["a"], ["bc", None], []]),
    "structs": made(pa.array([[{"x": 1, "y": [1.5]}], [], [{"x": None, "y": None}]])),
    "booleans": made([[True], [False, None], []]),
    "dictionaries": made(pa.array(["a", "b", "a"]).dictionary_encode()),
    "not nullable": made(pa.array([[1], [2], [3]], pa.list_(pa.field("item", pa.int64(), nullable=False)))),
    "a slice": Chunk.from_data(made([["a"], ["bc", None], []]).data.slice(1, 2)),
    "unsorted ids": Chunk.from_data(scalars().data.take(np.array([2, 0, 1]))),
    "another order": Chunk.from_data(made([[1], [2], [3]]).data.take(np.array([2, 0, 1]))),
    "two timelines": Chunk.from_columns(
        "/a", [TimeColumn("z", duration=[1.0]), TimeColumn("b", timestamp=[2.0])], [ComponentColumn("c", [1])]
    ),
    "descriptors": Chunk.from_columns(
        "/a", [], [ComponentColumn(ComponentDescriptor("A:c", "rerun.archetypes.A", "rerun.components.C"), [1])]
    ),
    "a name of more bytes": made([[1], [2], [3]], "/größe/名"),
}


def stream_of(chunk: Chunk) -> bytes:
    data, size = encode_batch(chunk.to_record_batch())
    return decompress(bytes(data), Compression.LZ4, size, path="", offset=None, what="")


def payload(encoded: Encoded) -> bytes:
    return b"".join(encoded.pieces)


def stream_in(encoded: Encoded) -> bytes:
    return bytes(
        decompress(payload(encoded), encoded.compression, encoded.uncompressed_size, path="", offset=None, what="")
    )


@pytest.mark.parametrize("name", CHUNKS)
def test_encoding_by_shape_gives_the_same_bytes(name: str) -> None:
    for _ in range(3):
        chunk = Chunk.from_data(CHUNKS[name].data.with_new_id())
        for compression in Compression.LZ4, Compression.NONE:
            encoded = encode_chunk(chunk.data, compression)
            assert encoded.compression in (compression, Compression.NONE)
            assert stream_in(encoded) == stream_of(chunk)
            assert encoded.size == len(payload(encoded))


def test_an_entity_that_is_named_after_its_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk_id = tuid.mint()
    monkeypatch.setattr(tuid, "mint", lambda rows=0: chunk_id)
    named = made([[1], [2], [3]], "/" + tuid.tuid_text(chunk_id, "chunk_"))
    monkeypatch.undo()
    for chunk in named, Chunk.from_data(named.data.with_new_id()), named:
        assert payload(encode_chunk(chunk.data)) == bytes(encode_batch(chunk.to_record_batch())[0])
        found = decode_chunk(stream_of(chunk), **WHERE)
        assert (found.chunk_id, found.entity_path) == (chunk.data.chunk_id, chunk.entity_path)


@pytest.mark.parametrize("name", CHUNKS)
def test_decoding_by_shape_gives_the_same_chunk(name: str) -> None:
    for _ in range(3):
        stream = stream_of(Chunk.from_data(CHUNKS[name].data.with_new_id()))
        found = decode_chunk(stream, **WHERE)
        expected = data_from_batch(decode_batch(stream, **WHERE))
        assert found == expected
        assert data_to_batch(found).equals(data_to_batch(expected), check_metadata=True)


def test_a_known_schema_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object, **__: object) -> None:
        raise AssertionError("read again")

    streams = [stream_of(Chunk.from_data(scalars("/known").data.with_new_id())) for _ in range(2)]
    first = decode_chunk(streams[0], **WHERE)
    monkeypatch.setattr(arrow_ipc, "decode_batch", explode)
    second = decode_chunk(streams[1], **WHERE)
    assert first.chunk_id != second.chunk_id
    assert first.components == second.components


@settings(deadline=None)
@given(
    types=st.lists(st.sampled_from(VALUES), max_size=3),
    rows=st.sampled_from([0, 1, 2, 7, 8, 65]),
    lines=st.integers(0, 3),
    seed=st.integers(0, 2**32),
    kinds=st.lists(st.tuples(*[st.integers(0, 9)] * 4), min_size=1, max_size=5),
)
def test_chunks_of_one_layout_are_encoded_as_each_by_itself(
    types: list[pa.DataType], rows: int, lines: int, seed: int, kinds: list[tuple[int, int, int, int]]
) -> None:
    random = Random(seed)
    for nulls, is_slice, varies, disorder in [*kinds, *[(9, 9, 9, 9)] * 3, *kinds]:
        ticks = random.sample(range(100), rows) if disorder == 0 else range(rows)
        times = {f"t{i}": pa.array(ticks, pa.int64()).view(kind) for i, kind in zip(range(lines), TIMES, strict=False)}
        columns = [
            (
                ComponentDescriptor(f"c{i}"),
                a_column(datatype, rows, random, nulls=nulls == 0, is_slice=is_slice == 0, varies=varies == 0),
            )
            for i, datatype in enumerate(types)
        ]
        chunk = Chunk.build("/layout", times, columns)
        if not (lines or types):
            chunk = Chunk.from_data(ChunkData.fresh("/layout", rows, (), ()))
        assert stream_in(encode_chunk(chunk.data)) == stream_of(chunk)


def test_the_batch_of_a_known_layout_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [Chunk.from_data(scalars("/layout/known", rows=9, start=i).data.with_new_id()) for i in range(3)]
    for chunk in chunks[:2]:
        encode_chunk(chunk.data)
    expected = stream_of(chunks[2])
    monkeypatch.setattr(pa.ipc, "get_record_batch_size", None)
    assert stream_in(encode_chunk(chunks[2].data)) == expected


def outcome(stream: bytes, *, by_shape: bool) -> object:
    try:
        if by_shape:
            return decode_chunk(stream, **WHERE)
        return data_from_batch(decode_batch(stream, **WHERE))
    except (ReadError, ValueError) as error:
        return type(error), str(error)


WHOLE = stream_of(made([["a"], ["bc", None], []], "/whole"))


@settings(max_examples=400, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=3))
def test_damage_is_found_as_without_a_shape(changes: list[tuple[int, int]]) -> None:
    decode_chunk(WHOLE, **WHERE)
    damaged = bytearray(WHOLE)
    for at, value in changes:
        damaged[at] = value
    assert outcome(bytes(damaged), by_shape=True) == outcome(bytes(damaged), by_shape=False)


@pytest.mark.parametrize("size", [0, 3, 7, 8, 100, len(WHOLE) - 300, len(WHOLE) - 100, len(WHOLE) - 9])
def test_a_stream_that_ends_early(size: int) -> None:
    decode_chunk(WHOLE, **WHERE)
    assert outcome(WHOLE[:size], by_shape=True) == outcome(WHOLE[:size], by_shape=False)


@pytest.mark.parametrize("compression", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 1, 127, 128, 1 << 14, 1 << 31])
def test_messages_are_what_a_parser_reads(compression: int, size: int) -> None:
    data = message_head(b"", compression, size, 3) + b"abc" + message_tail(bytes(range(16)), is_static=bool(size & 1))
    expected = ArrowMsg(
        compression=compression,
        uncompressed_size=size,
        encoding=ENCODING_ARROW_IPC,
        payload=b"abc",
        chunk_id=tuid_message(bytes(range(16))),
        is_static=bool(size & 1),
    )
    assert data == expected.SerializeToString()


def test_a_file_stays_open_from_chunk_to_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [scalars(start=i) for i in range(5)] + [image()] + [scalars(start=i) for i in range(5)]
    path = write_rrd(tmp_path / "a.rrd", chunks)
    opened: list[str] = []
    begin = positional.KeptFile.__init__
    monkeypatch.setattr(
        positional.KeptFile, "__init__", lambda self, p, *more: (opened.append(p), begin(self, p, *more))[1]
    )
    with keeping_open():
        found = [c.data for c in RrdFile(path).chunks(STORE)]
    assert [d.chunk_id for d in found] == [c.data.chunk_id for c in chunks]
    assert opened == [str(path)]
    assert not any(fd.is_symlink() and fd.readlink() == path for fd in Path("/proc/self/fd").iterdir())
    assert [c.data.chunk_id for c in RrdFile(path).chunks(STORE)] == [d.chunk_id for d in found]
    assert len(opened) == 1


def test_a_file_that_is_replaced_is_read_while_it_is_open(tmp_path: Path) -> None:
    paths = [write_rrd(tmp_path / name, [scalars(start=i)]) for i, name in enumerate(("a.rrd", "b.rrd"))]
    first, second = (pickle.loads(pickle.dumps(next(RrdFile(p).chunks(STORE)))) for p in paths)
    again = pickle.loads(pickle.dumps(first))
    with keeping_open():
        assert len(first.data.row_ids) == 4
        paths[1].replace(paths[0])
        assert again.data.row_ids == first.data.row_ids
        with pytest.raises(ReadError):
            len(second.data.row_ids)
