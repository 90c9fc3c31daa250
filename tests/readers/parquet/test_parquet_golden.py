"""What Rerun's own reader made of tables, case by case: ``golden/reader_chunks.txt`` has the chunks of each."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import ReadWarning
from chunkmill.readers import ParquetReader
from parquet_cases import CASES

GOLDEN = Path(__file__).with_name("golden") / "reader_chunks.txt"


def golden() -> dict[str, list[str]]:
    """The lines of each case by its title."""
    cases: dict[str, list[str]] = {}
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        if line.startswith("=== "):
            cases[line.removeprefix("=== ").strip()] = found = []
        elif line.strip():
            found.append(line.rstrip())
    return cases


WANTED = golden()


def shown(chunks: list[Chunk]) -> Iterator[str]:
    """Chunks as the golden file has them."""
    for i, chunk in enumerate(chunks):
        yield f"[{i}] {chunk.entity_path}  rows={chunk.num_rows} static={chunk.is_static}"
        for line in chunk.data.timelines:
            yield f"     index {line.name}: {line.times.type} = {line.ticks.tolist()}"
        for component in chunk.data.components:
            d, values = component.descriptor, component.values
            parts = [
                f"arch={d.archetype}" if d.archetype else "",
                f"type={d.component_type}" if d.component_type else "",
            ]
            yield f"     {d.component}: {type_text(values.type)}  [{' '.join(p for p in parts if p)}]"
            yield f"         = {values_of(values)}"


def type_text(datatype: pa.DataType) -> str:
    def child(field: pa.Field) -> str:
        return ("" if field.nullable else "!") + type_text(field.type)

    if pa.types.is_list(datatype):
        return f"List<{child(datatype.value_field)}>"
    if pa.types.is_fixed_size_list(datatype):
        return f"FSL<{child(datatype.value_field)}, {datatype.list_size}>"
    if pa.types.is_struct(datatype):
        return "Struct{" + ", ".join(f"{f.name}:{child(f)}" for f in datatype) + "}"
    return str(datatype)


def values_of(values: pa.ListArray) -> list[Any]:
    """The rows as Python values; of fields of one name the last, as the golden file has it."""
    inner = values.values
    if pa.types.is_struct(inner.type) and len({f.name for f in inner.type}) < inner.type.num_fields:
        return [[{f.name: inner.field(i)[row].as_py() for i, f in enumerate(inner.type)}] for row in range(len(inner))]
    return values.to_pylist()


def chunks_of(title: str, folder: Path) -> list[Chunk]:
    case = CASES[title]
    pq.write_table(case.table, folder / "x.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadWarning)
        return ParquetReader(folder / "x.parquet", **case.options).stream().to_chunks(executor="inline")


@pytest.mark.parametrize("title", CASES)
def test_chunks_are_those_of_the_reference(title: str, tmp_path: Path) -> None:
    wanted = WANTED[title]
    first = 0 if "__properties" in wanted[0] else 1
    found = list(shown(chunks_of(title, tmp_path)[first:]))
    if not first:  # its key/value pairs hold a schema that differs from one version of Arrow to the next
        wanted, found = wanted[3:], found[3:]
    assert [without_cut(w, f) for w, f in zip(wanted, found, strict=True)] == wanted


def without_cut(wanted: str, found: str) -> str:
    """The line as long as the golden file has it, which cuts long ones."""
    return found[: len(wanted) - 1] + "…" if wanted.endswith("…") else found


def test_every_case_is_there() -> None:
    assert set(CASES) == set(WANTED)
    assert not [line for lines in WANTED.values() for line in lines if re.search(r"EXC|\[log\]", line)]
