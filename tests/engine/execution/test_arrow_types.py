"""Every Arrow type is the same on both sides of a task: its fields' names, their "not null", their metadata."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.store import ChunkStore
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.lenses import Selector
from chunkmill.readers import RrdReader
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = (
    *map(pa.type_for_alias, ("null", "bool", "int8", "uint16", "int32", "uint64", "halffloat", "float", "double")),
    *map(pa.type_for_alias, ("string", "binary", "large_string", "large_binary", "string_view", "binary_view")),
    *map(pa.type_for_alias, ("date32", "date64", "time32[ms]", "time64[ns]", "duration[ms]")),
    *(pa.binary(16), pa.month_day_nano_interval(), pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin")),
    *(pa.decimal128(20, 3), pa.decimal256(50, -3)),
)
POSITION = pa.list_(pa.field("item", pa.float32(), nullable=False), 3)


def nested(item: pa.DataType, unit: str = "m") -> Iterator[pa.DataType]:
    """Every type that holds another one, with all that can get lost of a field: ``unit`` is in the metadata."""

    def field(name: str, datatype: pa.DataType = item) -> pa.Field:
        return pa.field(name, datatype, nullable=pt.is_null(datatype), metadata={"unit": unit})

    one = field("odd name")
    yield from (pa.list_(one), pa.large_list(one), pa.list_(one, 2), pa.list_view(one), pa.large_list_view(one))
    yield pa.struct([one, pa.field("other", pa.string())])
    # Arrow's own reader of streams names what is in a map "key" and "value", whatever the stream says.
    yield from (
        pa.map_(pa.string(), field("value")),
        pa.map_(field("key", pa.int8()), field("value"), keys_sorted=True),
    )
    yield pa.dense_union([one, field("other", pa.bool_())], [5, 7])
    yield pa.sparse_union([one, field("other", pa.bool_())], [7, 5])
    yield from (pa.run_end_encoded(pa.int16(), item), pa.opaque(item, "type", "vendor"))
    yield from (pa.dictionary(pa.int8(), item), pa.dictionary(pa.uint32(), item, ordered=True))


TYPES = st.recursive(st.sampled_from(PLAIN), lambda inner: inner.flatmap(lambda t: st.sampled_from(list(nested(t)))))


def exact(datatype: pa.DataType) -> tuple[object, ...]:
    """Equal for types that are alike in everything: their own ``==`` looks at no name and no metadata."""
    if isinstance(datatype, pa.BaseExtensionType):
        return str(datatype), exact(datatype.storage_type)
    if pt.is_dictionary(datatype):
        return str(datatype), exact(datatype.value_type)
    fields = [datatype.field(i) for i in range(datatype.num_fields)]
    return str(datatype), *(
        (f.name, f.nullable, tuple(sorted((f.metadata or {}).items())), exact(f.type)) for f in fields
    )


@settings(max_examples=300, deadline=None)
@given(TYPES)
def test_a_type_pickles_whole(datatype: pa.DataType) -> None:
    for pickled in (pickle.dumps(datatype), cloudpickle.dumps(lambda: datatype)):
        back = pickle.loads(pickled)
        assert exact(back if isinstance(back, pa.DataType) else back()) == exact(datatype)


def values_of(datatype: pa.DataType, rows: int = 2) -> pa.Array:
    """An array of so many values, none null that must not be."""
    if pt.is_fixed_size_list(datatype):
        items = values_of(datatype.value_type, rows * datatype.list_size)
        return pa.Array.from_buffers(datatype, rows, [None], children=[items])
    if pt.is_list(datatype) or pt.is_map(datatype):
        counts = pa.array(range(rows + 1), pa.int32()).buffers()[1]
        return pa.Array.from_buffers(datatype, rows, [None, counts], children=[values_of(datatype.field(0).type, rows)])
    if pt.is_struct(datatype):
        return pa.Array.from_buffers(datatype, rows, [None], children=[values_of(f.type, rows) for f in datatype])
    if pt.is_dictionary(datatype):
        numbers = pa.array([0] * rows, datatype.index_type)
        return pa.DictionaryArray.from_arrays(numbers, values_of(datatype.value_type), ordered=datatype.ordered)
    if pt.is_nested(datatype) or pt.is_null(datatype) or isinstance(datatype, pa.BaseExtensionType):
        return pa.nulls(rows, datatype)
    for value in (0, False, "0", bytes(16), (0, 0, 0)):
        try:
            return pa.array([value] * rows, datatype)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
            continue
    raise AssertionError(datatype)


def chunk_of(number: int, datatype: pa.DataType, entity_path: str) -> Chunk:
    values = values_of(datatype)
    column = ComponentColumn("value", pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values))
    return Chunk.from_columns(entity_path, [TimeColumn("frame", sequence=[number])], [column])


def types_in(chunks: Iterable[Chunk]) -> list[tuple[object, object]]:
    """The type of the one column of each chunk: that of the values, and what the header says."""
    in_order = sorted(chunks, key=lambda c: int(c.data.timelines[0].ticks[0]))
    return [(exact(c.data.components[0].values.type), exact(c.header.components[0].datatype)) for c in in_order]


End = Callable[[LazyChunkStream, str, Path], Iterable[Chunk]]


def written(stream: LazyChunkStream, executor: str, folder: Path) -> Iterable[Chunk]:
    """What the footer of a file says, and what its chunks hold."""
    path = folder / f"{executor}.rrd"
    stream.write_rrd(path, application_id="a", recording_id="r", executor=executor)
    return RrdReader(path).store().stream().to_chunks(executor="inline")


def stored(stream: LazyChunkStream, executor: str, folder: Path) -> Iterable[Chunk]:
    """A store of chunks that was sent to tasks again, and its footer."""
    store = ChunkStore.from_chunks(stream.to_chunks(executor="inline"))
    path = folder / f"{executor}.rrd"
    store.stream().write_rrd(path, application_id="a", recording_id="r", executor=executor)
    return RrdReader(path).store().stream().to_chunks(executor="inline")


def collected(stream: LazyChunkStream, executor: str, folder: Path) -> Iterable[Chunk]:
    """A store that tasks wrote, sent to tasks again."""
    return stream.collect(executor=executor).stream().map(lambda c: c).to_chunks(executor=executor)


def to_chunks(stream: LazyChunkStream, executor: str, folder: Path) -> Iterable[Chunk]:
    return stream.to_chunks(executor=executor)


@pytest.mark.parametrize("executor", ["inline", "spark"])
@pytest.mark.parametrize("end", [written, stored, collected, to_chunks])
def test_types_come_out_of_a_task_as_they_went_in(end: End, executor: str, spark: SparkSession, tmp_path: Path) -> None:
    types = [*PLAIN, *(t for unit in "ms" for item in (pa.float32(), POSITION) for t in nested(item, unit))]
    given = [chunk_of(i, datatype, f"/{i}") for i, datatype in enumerate(types)]
    came = end(LazyChunkStream.from_iter(given).map(lambda chunk: chunk), executor, tmp_path)
    assert types_in(came) == types_in(given)


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_types_that_differ_only_in_metadata_are_told_apart(executor: str, spark: SparkSession, tmp_path: Path) -> None:
    given = [chunk_of(i, next(nested(pa.float32(), unit)), "/same") for i, unit in enumerate("msms")]
    stream = LazyChunkStream.from_iter(given).map(lambda chunk: chunk)
    assert types_in(to_chunks(stream, executor, tmp_path)) == types_in(given)
    assert len(set(types_in(given))) == 2


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_what_a_function_refers_to_is_the_same_in_a_task(executor: str, spark: SparkSession) -> None:
    """A type, an array and a chunk in a closure, and the type of a cast."""
    array, inner = values_of(POSITION), chunk_of(0, POSITION, "/inner")
    cast = Selector(".").cast(POSITION)

    def seen(chunk: Chunk) -> Chunk:
        types = [POSITION, array.type, inner.data.components[0].values.type, cast.execute(array).type]
        texts = pa.array([[repr(exact(datatype)) for datatype in types]])
        return Chunk.from_columns("/seen", [], [ComponentColumn("types", texts)])

    inline, there = (
        LazyChunkStream.from_iter([inner]).map(seen).to_chunks(executor=e)[0] for e in ("inline", executor)
    )
    assert there.data.components[0].values.to_pylist() == inline.data.components[0].values.to_pylist()
    assert repr(exact(POSITION)) in there.data.components[0].values.to_pylist()[0]
