"""Lenses as a step of a stream, in this process and in Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.lenses import DeriveLens, MutateLens, Selector


def chunks() -> Iterator[Chunk]:
    for entity, kind in (
        ("/c", pa.int64()),
        ("/a", pa.struct({"x": pa.float64()})),
        ("/b", pa.struct({"x": pa.string()})),
    ):
        name = "Other:z" if entity == "/c" else "M:m"
        rows = pa.array([[None], [None]], pa.list_(kind))
        yield Chunk.from_columns(entity, [TimeColumn("frame", sequence=[0, 1])], [ComponentColumn(name, rows)])


def stream() -> LazyChunkStream:
    return LazyChunkStream.from_iter(chunks())


DOUBLED = DeriveLens("M:m", output_entity="/o").to_component("d", Selector(".x").pipe(lambda a: pc.multiply(a, 2)))


@pytest.mark.parametrize(
    ("mode", "entities"),
    [("drop_unmatched", ["/o"]), ("forward_unmatched", ["/c", "/o"]), ("forward_all", ["/c", "/a", "/o"])],
)
def test_modes_and_skipped_chunks(mode: str, entities: list[str]) -> None:
    found = stream().lenses(DOUBLED, output_mode=mode, on_error="skip").to_chunks(executor="inline")
    assert [c.entity_path for c in found] == entities


def test_content_and_explain() -> None:
    lensed = stream().lenses([DOUBLED, MutateLens("M:m", ".x")], content="/a")
    assert [c.entity_path for c in lensed.to_chunks(executor="inline")] == ["/c", "/a", "/o", "/b"]
    plan = stream().lenses([DOUBLED, MutateLens("M:m", ".x")], content="/a").explain(executor="inline")
    assert "lenses(M:m -> at /o d = .x | <function>; M:m = .x; output_mode='drop_unmatched', content='/a')" in plan


def test_an_error_ends_the_run() -> None:
    with pytest.raises(RuntimeError, match=r"^CM406: Lenses error: Failed to apply operations to component 'd'"):
        stream().lenses(DOUBLED).to_chunks(executor="inline")


def test_a_stream_goes_on_where_lenses_cannot_be_built() -> None:
    source = stream()
    with pytest.raises(ValueError, match="missing output components"):
        source.lenses(DeriveLens("M:m"))
    with pytest.raises(ValueError, match="Unknown output_mode 'x'"):
        source.lenses(DeriveLens("M:m"), output_mode="x")
    with pytest.raises(TypeError, match="argument 'output_mode': 'int' object is not an instance of 'str'"):
        source.lenses(DOUBLED, output_mode=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a DeriveLens or MutateLens, got a 'str' object"):
        source.lenses("x")  # type: ignore[arg-type]
    assert source.lenses(DOUBLED, content="/a").to_chunks(executor="inline")


@pytest.mark.usefixtures("spark")
def test_callables_travel_to_tasks_and_errors_come_back() -> None:
    found = stream().lenses(DOUBLED, on_error="skip").to_chunks(executor="spark")
    assert [c.entity_path for c in found] == ["/o"]
    with pytest.raises(ValueError, match="Lenses error: Failed to apply operations") as caught:
        stream().lenses(DOUBLED).to_chunks(executor="spark")
    assert (caught.value.entity_path, caught.value.selector) == ("/b", ".x | <function>")
