"""Many small chunks: what is done for each on its way to tasks and back stays small."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ChunkData, Component, ComponentColumn, ComponentDescriptor, TimeColumn
from chunkmill.engine.errors import ReadError
from chunkmill.engine.execution.scratch import ScratchPart, spool, spool_pieces
from chunkmill.engine.execution.spark_stage import spark_serializer
from chunkmill.engine.stream import LazyChunkStream


def chunks(count: int) -> list[Chunk]:
    return [
        Chunk.from_columns(
            f"/arm/{i % 7}",
            [TimeColumn("frame", sequence=[i])] if i % 5 else [],
            [ComponentColumn("angle", [float(i)]), ComponentColumn("name", [None])],
        )
        for i in range(count)
    ]


def large(value: int) -> Chunk:
    return Chunk.from_columns("/big", [], [ComponentColumn("bytes", [bytes([value]) * 100_000])])


def of_type(values: pa.Array) -> Chunk:
    rows = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return Chunk.build("/t", {"frame": pa.array([1])}, [(ComponentDescriptor("x"), rows)])


def assert_same(found: list[Chunk], given: list[Chunk]) -> None:
    assert [c.header for c in found] == [c.header for c in given]
    for one, other in zip(found, given, strict=True):
        batch = one.to_record_batch()
        assert batch.schema.equals(other.to_record_batch().schema, check_metadata=True)
        assert batch.equals(other.to_record_batch())


def travelled(part: ScratchPart) -> ScratchPart:
    there: ScratchPart = spark_serializer().loads(spark_serializer().dumps(part))
    return there


def test_small_chunks_lie_in_few_batches_and_travel_by_their_places() -> None:
    given = chunks(300)
    (part,) = spool(given)
    there = travelled(part)
    (small,) = there.small
    assert small.count == 300 and len(small.places) == 2  # with a timeline and without
    assert len(spark_serializer().dumps(there)) < 10_000 and travelled(there) == there
    assert_same(list(there.chunks()), given)


def test_small_and_large_ones_keep_their_order() -> None:
    small = chunks(40)
    lazy = Chunk.lazy(None, _Elsewhere(small[20].to_record_batch()))
    given = [large(0), *small[:3], large(1), large(2), *small[3:20], lazy, *small[21:]]
    (part,) = spool(given)
    assert [(s.first, s.count) for s in part.small] == [(1, 39)] and len(part.entries) == 4
    assert_same(list(travelled(part).chunks()), given)


class _Elsewhere:
    """A chunk that is not in memory."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def load(self) -> pa.RecordBatch:
        return self.batch


def test_pieces_have_as_many_chunks_as_before() -> None:
    given = chunks(100)
    parts = list(spool_pieces(given))
    assert [len(list(part.chunks())) for part in parts] == [1, 8, 64, 27]
    assert_same([c for part in parts for c in part.chunks()], given)


TYPES: dict[str, Callable[[], pa.Array]] = {
    "null": lambda: pa.nulls(2),
    "bool": lambda: pa.array([True, None, False]),
    "text": lambda: pa.array(["", "ä", None]),
    "large binary": lambda: pa.array([b"", b"a"], pa.large_binary()),
    "decimal": lambda: pa.array([1, None], pa.decimal128(8, 2)),
    "time": lambda: pa.array([1, 2], pa.timestamp("us", "UTC")),
    "not null": lambda: pa.FixedSizeListArray.from_arrays(
        pa.array([1.0, 2.0, 3.0]), type=pa.list_(pa.field("item", pa.float64(), nullable=False, metadata={"a": "b"}), 3)
    ),
    "struct": lambda: pa.array([{"a": [1], "b": None}, None], pa.struct({"a": pa.list_(pa.int8()), "b": pa.string()})),
    "map": lambda: pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
    "slice": lambda: pa.array([[9], [1, 2], None, [3], [9]])[1:4],
    "dictionary": lambda: pa.array(["a", "b", "a"]).dictionary_encode(),
    "view": lambda: pa.array(["a" * 40, None], pa.string_view()),
    "union": lambda: pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
}


@pytest.mark.parametrize("name", TYPES)
def test_every_type_comes_back_as_it_was(name: str) -> None:
    given = [*chunks(3), of_type(TYPES[name]()), of_type(TYPES[name]()), *chunks(3)]
    (part,) = spool(given)
    assert_same(list(travelled(part).chunks()), given)


def test_alike_types_that_differ_in_metadata_are_told_apart() -> None:
    plain, told = pa.field("item", pa.float64()), pa.field("item", pa.float64(), metadata={"a": "b"})
    given = [of_type(pa.array([[1.0]], pa.list_(field))) for field in (plain, told, plain, told)]
    (part,) = spool(given)
    assert_same(list(part.chunks()), given)


def test_chunks_beside_others_have_no_bitmaps_of_theirs() -> None:
    given = [of_type(pa.array(v)) for v in ([[1]], [[None]], [[2]], [[3], None])]
    (part,) = spool(given)
    found = list(part.chunks())
    assert_same(found, given)
    bitmaps = [[b is None for b in c.data.components[0].values.buffers()] for c in found]
    assert bitmaps == [[b is None for b in c.data.components[0].values.buffers()] for c in given]


def test_chunks_without_rows_come_back() -> None:
    empty = [Chunk.from_data(_sliced(c.data)) for c in chunks(3)]
    (part,) = spool([*empty, *chunks(2), *empty])
    assert [len(c) for c in part.chunks()] == [0, 0, 0, 1, 1, 0, 0, 0]


def _sliced(data: ChunkData) -> ChunkData:
    return data.with_components(tuple(Component(c.descriptor, c.values) for c in data.components)).slice(0, 0)


@pytest.mark.parametrize("harm", [lambda p, s: p.write_bytes(b""), lambda p, s: p.write_bytes(bytes(s)), "gone"])
def test_a_part_that_was_damaged_is_told(harm: Callable[[Path, int], object] | str) -> None:
    (part,) = spool(chunks(10))
    path = Path(part.path)
    if callable(harm):
        harm(path, part.size)
    else:
        path.unlink()
    with pytest.raises(ReadError) as caught:
        list(part.chunks())
    assert caught.value.path == part.path


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_many_small_chunks_come_back_in_order(executor: str, request: pytest.FixtureRequest) -> None:
    if executor == "spark":
        request.getfixturevalue("spark")
    given = [*chunks(1000), large(1), *chunks(1000)]
    found = LazyChunkStream.from_iter(given).map(lambda c: c).to_chunks(executor=executor)
    assert [(c.id, c.entity_path) for c in found] == [(c.id, c.entity_path) for c in given]
    assert found[-1].to_record_batch() == given[-1].to_record_batch()
    assert [c.entity_path for c in found if c.payload is not None] == (["/big"] if executor == "spark" else [])
    again = LazyChunkStream.from_iter(iter(given)).drop(content="/arm/1").to_chunks(executor=executor)
    assert [(c.id, c.entity_path) for c in again] == [(c.id, c.entity_path) for c in given if c.entity_path != "/arm/1"]


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_what_is_only_selected_from_a_list_stays_where_it_is(
    executor: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if executor == "spark":
        request.getfixturevalue("spark")
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", executor)
    given = chunks(20)

    def stream() -> LazyChunkStream:
        arm, others = LazyChunkStream.from_iter(given).drop(content="/arm/2").split(content="/arm/1")
        return LazyChunkStream.merge(arm, others.filter(has_timeline="frame"))

    kept = [c for c in given if c.entity_path == "/arm/1" or (c.entity_path != "/arm/2" and not c.is_static)]
    assert all(one is other for one, other in zip(stream().to_chunks(), kept, strict=True))
    assert all(one is other for one, other in zip(stream(), kept, strict=True))
    both = LazyChunkStream.merge(stream(), LazyChunkStream.from_iter(given[:1]).map(lambda c: c)).to_chunks()
    assert [c.id for c in both] == [c.id for c in [*kept, given[0]]]
