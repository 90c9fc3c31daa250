"""Chunks of which single columns are made anew where they are stored: the same as those that are decoded as a whole."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunkmill import MutateLens, RrdReader, Selector
from chunkmill.engine.chunk import Chunk, ChunkData, ComponentDescriptor, RunIds, minted_by
from chunkmill.engine.errors import LensError, ReadError
from chunkmill.engine.rrd import Compression, RrdFile, RrdWriter, arrow_ipc, difference_of, stream_of, verify_file
from chunkmill.engine.rrd.arrow_ipc import encode_chunk
from chunkmill.engine.rrd.payloads import StoredChunk, StreamPayload
from chunkmill.lenses import LensSet
from hypothesis import given, settings
from hypothesis import strategies as st
from rrd_bytes import STORE, TIMES, VALUES, a_column, image, scalars, write_rrd


def same(values: pa.Array) -> pa.Array:
    return values


def backwards(values: pa.Array) -> pa.Array:
    return values.take(pa.array(range(len(values))[::-1], pa.int64()))


def with_a_null(values: pa.Array) -> pa.Array:
    return values.take(pa.array([None, *range(1, len(values))][: len(values)], pa.int64()))


def of_another_type(values: pa.Array) -> pa.Array:
    return pa.array(range(len(values)), pa.int32())


def nothing(values: pa.Array) -> None:
    """Give nothing."""


def failing(values: pa.Array) -> pa.Array:
    raise ValueError(f"not these {len(values)}")


FUNCTIONS = [same, backwards, with_a_null, of_another_type, nothing, failing]


def outcome(apply: Callable[[Chunk], Iterable[Chunk]], chunk: Chunk, ids: RunIds) -> list[object]:
    """What comes of a chunk, as it is written, or the error."""
    with minted_by(ids.task(0)):
        try:
            chunks = list(apply(chunk))
        except LensError as error:
            return [str(error)]
    outcomes: list[object] = []
    for made in chunks:
        stream = stream_of(made.to_record_batch()).to_pybytes()
        if isinstance(made.made, StreamPayload):
            assert made.made.stream == stream
        assert encode_chunk(made.data).uncompressed_size == len(stream)
        outcomes.append((made.header, made.data, stream))
    return outcomes


def holds_texts(datatype: pa.DataType) -> bool:
    """Return True for types that are checked value by value, or are not taken apart."""
    if datatype.num_fields:
        return any(holds_texts(datatype.field(i).type) for i in range(datatype.num_fields))
    return not (pa.types.is_primitive(datatype) or pa.types.is_fixed_size_binary(datatype))


def stored(chunk: Chunk) -> Chunk:
    return Chunk.lazy(chunk.header, StreamPayload(stream_of(chunk.to_record_batch()).to_pybytes()))


@settings(deadline=None)
@given(
    types=st.lists(st.sampled_from(VALUES), min_size=1, max_size=3),
    rows=st.sampled_from([0, 1, 2, 7, 8, 65]),
    lines=st.integers(0, 3),
    seed=st.integers(0, 2**32),
    function=st.sampled_from(FUNCTIONS),
    options=st.tuples(st.booleans(), st.sampled_from(["forward_unmatched", "forward_all", "drop_unmatched"])),
    kinds=st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=4),
)
def test_a_lens_on_a_stored_chunk_gives_what_it_gives_on_a_decoded_one(
    types: list[pa.DataType],
    rows: int,
    lines: int,
    seed: int,
    function: Callable[[pa.Array], pa.Array],
    options: tuple[bool, str],
    kinds: list[tuple[int, int, int]],
) -> None:
    random, ids = Random(seed), RunIds.begin()
    calls: list[int] = []

    def counted(values: pa.Array) -> pa.Array:
        calls.append(len(values))
        return function(values)

    lens = MutateLens("c0", Selector(".").pipe(counted), keep_row_ids=options[0])
    lenses = LensSet([lens], options[1])
    for nulls, varies, disorder in [*[(9, 9, 9)] * 4, *kinds, (9, 9, 9)]:
        ticks = random.sample(range(100), rows) if disorder == 0 else range(rows)
        times = {f"t{i}": pa.array(ticks, pa.int64()).view(kind) for i, kind in zip(range(lines), TIMES, strict=False)}
        columns = [
            (
                ComponentDescriptor(f"c{i}"),
                a_column(datatype, rows, random, nulls=nulls == 0, is_slice=False, varies=varies == 0),
            )
            for i, datatype in enumerate(types)
        ]
        chunk = Chunk.build("/stored", times, columns)
        if disorder == 1:
            chunk = Chunk.from_data(chunk.data.take(np.arange(rows)[::-1].astype(np.int64)))
        for apply in lenses, lambda c: [c.apply_selector("c0", Selector(".").pipe(counted))]:
            expected = outcome(apply, Chunk.from_data(chunk.data), ids)
            before = list(calls)
            assert outcome(apply, stored(chunk), ids) == expected
            assert calls == [*before, *before[-1:]]
            calls.clear()


@pytest.mark.parametrize("datatype", [t for t in VALUES if not holds_texts(t)], ids=str)
def test_chunks_of_most_types_are_not_decoded(datatype: pa.DataType) -> None:
    lenses, random = LensSet([MutateLens("c0", Selector(".").pipe(backwards))], "forward_all"), Random(1)
    for i in range(6):
        columns = [
            (ComponentDescriptor(f"c{at}"), a_column(datatype, 9, random, nulls=False, is_slice=False, varies=False))
            for at in range(2)
        ]
        chunk = stored(Chunk.build(f"/types/{datatype}", {"t": pa.array(range(9))}, columns))
        (made,) = lenses(chunk)
        encode_chunk(made.data)
        assert (made.made is not None) == (i > 2)
        assert made.payload is None
        assert pickle.loads(pickle.dumps(made)).data == made.data


def doubled(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 2.0)


DOUBLE = MutateLens("Scalars:scalars", Selector(".").pipe(doubled))


@pytest.mark.parametrize("compression", list(Compression)[1:])
def test_only_the_first_chunks_of_a_layout_are_decoded(
    tmp_path: Path, compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = [scalars(f"/layout/{compression}", start=9 * i, rows=9) for i in range(6)]
    with RrdWriter(tmp_path / "a.rrd", compression=compression) as writer:
        writer.begin_store(STORE)
        for chunk in chunks:
            writer.append(STORE, chunk)
        writer.finish()
    decoded: list[str] = []
    decode = arrow_ipc.decode_chunk
    for module in ("payloads", "writer"):
        monkeypatch.setattr(
            f"chunkmill.engine.rrd.{module}.decode_chunk",
            lambda stream, **where: (decoded.append(where["path"]), decode(stream, **where))[1],
        )
    stream = RrdReader(tmp_path / "a.rrd").stream().lenses([DOUBLE])
    stream.write_rrd(tmp_path / "b.rrd", application_id="app", recording_id="rec", executor="inline")
    assert len(decoded) == 3
    monkeypatch.undo()
    made = list(RrdFile(tmp_path / "b.rrd").chunks(STORE))
    assert verify_file(str(tmp_path / "b.rrd")).faults == ()
    for before, after in zip(chunks, made, strict=True):
        assert after.data.timelines == before.data.timelines
        assert after.data.components[0].values.to_pylist() == [
            [2 * value for value in row] for row in before.data.components[0].values.to_pylist()
        ]
        assert difference_of(after.data, after.header) is None
        assert after.id != before.id
        assert after.data.row_ids.to_pylist() == [
            (int.from_bytes(after.data.chunk_id, "big") + i).to_bytes(16, "big") for i in range(1, 10)
        ]


def test_a_stored_chunk_that_is_needed_as_a_whole_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_rrd(tmp_path / "a.rrd", [scalars("/whole", start=9 * i, rows=9) for i in range(4)])
    for chunk in RrdFile(path).chunks(STORE):
        chunk.data  # noqa: B018
    *_, chunk = RrdFile(path).chunks(STORE)
    columns = chunk.stored()
    assert columns is not None
    assert columns is chunk.stored()
    path.unlink()
    assert columns.column("Scalars:scalars") == chunk.data.components[0].values
    assert chunk.stored() is None


def test_large_chunks_long_lists_and_values_that_are_checked_are_decoded() -> None:
    checked = [pa.array([[i] for i in range(3)], pa.list_(kind)) for kind in (pa.date32(), pa.time32("s"))]
    others = [Chunk.build(f"/checked/{column.type}", {}, [(ComponentDescriptor("c"), column)]) for column in checked]
    for chunk in (image(200_000), scalars("/long", rows=6000), *others):
        for _ in range(4):
            again = stored(Chunk.from_data(chunk.data.with_new_id()))
            assert again.stored() is None
            assert again.data.components == chunk.data.components


def changed(stream: bytes, at: int, value: int) -> bytes:
    return stream[:at] + bytes((value,)) + stream[at + 1 :]


STREAM = stream_of(scalars("/damaged", rows=5).to_record_batch()).to_pybytes()


@settings(max_examples=400, deadline=None)
@given(at=st.integers(0, len(STREAM) - 1), value=st.integers(0, 255))
def test_damage_is_found_as_in_a_chunk_that_is_decoded(at: int, value: int) -> None:
    for _ in range(3):
        StreamPayload(STREAM).load_data()
    damaged = StreamPayload(changed(STREAM, at, value))

    try:
        expected: object = damaged.load_data()
    except (ReadError, ValueError) as error:
        expected = str(error)
    try:
        loaded: Any = damaged.load_stored()
    except (ReadError, ValueError) as error:
        loaded = str(error)
    if isinstance(loaded, StoredChunk):
        assert isinstance(expected, ChunkData)
        assert [loaded.column(c.descriptor.component) for c in expected.components] == [
            c.values for c in expected.components
        ]
        loaded = loaded.data()
    assert loaded == expected
