"""Values come as they are, each once: every type, names of every kind, rules on what is no number."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.errors import ReadWarning, UnsupportedError
from chunkmill.readers import ColumnRule, ParquetReader
from hypothesis import given, settings
from hypothesis import strategies as st
from parquet_making import chunks, column, data


@pytest.fixture
def file(tmp_path: Path):
    def written(table: pa.Table | dict[str, Any], **options: Any) -> Path:
        path = tmp_path / "x.parquet"
        pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)
        return path

    return written


# --- values

EVERY = pa.table(
    {
        "i8": pa.array([1, None, 3], pa.int8()),
        "u64": pa.array([1, None, 2**64 - 1], pa.uint64()),
        "s": ["x", None, "z"],
        "ls": pa.array(["a", "b", None], pa.large_string()),
        "bin": [b"a", b"", None],
        "fsb": pa.array([b"ab", b"cd", None], pa.binary(2)),
        "l": [[1, 2], None, []],
        "ll": pa.array([[1], None, []], pa.large_list(pa.int32())),
        "fsl": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
        "st": [{"a": 1, "b": "q"}, None, {"a": None, "b": None}],
        "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "lst": [[{"a": 1}], None, []],
        "dec": [Decimal("1.23"), None, Decimal("4.50")],
        "dec256": pa.array([Decimal(1), None, Decimal(2)], pa.decimal256(50, 3)),
        "ts": pa.array([1, 2, None], pa.timestamp("us", "UTC")),
        "d32": pa.array([1, 2, 3], pa.date32()),
        "d64": pa.array([86_400_000, None, 0], pa.date64()),
        "tm": pa.array([1, 2, 3], pa.time64("us")),
        "dur": pa.array([1, 2, 3], pa.duration("ms")),
        "dict": pa.array(["a", "b", "a"]).dictionary_encode(),
        "b": [True, None, False],
        "nul": pa.nulls(3),
        "f16": pa.array(np.array([1, 2, 3], np.float16)),
    }
)


def test_every_type_passes_through(file) -> None:
    found = data(file(EVERY), column_grouping="individual")
    for name, values in zip(EVERY.column_names, EVERY.columns, strict=True):
        cells = column(found[f"/{name}"], name)
        assert str(cells.values.type).replace("element", "item") == str(values.type).replace("element", "item")
        assert cells.values.to_pylist() == values.to_pylist(), name
        assert cells.null_count == 0 and set(cells.value_lengths().to_pylist()) == {1}


def test_required_columns_have_no_nulls(file) -> None:
    schema = pa.schema([pa.field("p_req", pa.int64(), nullable=False), pa.field("p_opt", pa.int64())])
    path = file(pa.table([[1], [2]], schema=schema))
    kind = column(data(path)["/p"], "data").type.value_type
    assert [f.nullable for f in kind] == [False, True]
    alone = data(path, column_grouping="individual")
    assert [column(alone[f"/p_{n}"], f"p_{n}").type.value_field.nullable for n in ("req", "opt")] == [False, True]


def test_extension_types_come_as_their_storage(file) -> None:
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype=np.float32).reshape(2, 2, 3))
    found = column(data(file(pa.table({"t": tensor})))["/t"], "t")
    assert not isinstance(found.values.type, pa.BaseExtensionType)
    assert found.values.to_pylist() == tensor.storage.to_pylist()


def test_columns_of_one_name_all_come(file) -> None:
    path = file(pa.table([[1], [2]], names=["p_a", "p_a"]))
    flat = [c for c in chunks(path, use_structs=False) if not c.is_static]
    assert [(c.entity_path, column(c, "a").to_pylist()) for c in flat] == [("/p", [[1]]), ("/p", [[2]])]
    (whole,) = (c for c in chunks(path) if not c.is_static)
    struct = column(whole, "data").values
    assert [struct.field(i).to_pylist() for i in range(2)] == [[1], [2]]


def test_names_with_dots_are_told_apart(file) -> None:
    found = data(file({"a": [1], "a.b": [2], "a.c": [{"b": 3}]}), column_grouping="individual")
    assert {e: c.data.components[0].values.to_pylist() for e, c in found.items()} == {
        "/a": [[1]],
        "/a.b": [[2]],
        "/a.c": [[{"b": 3}]],
    }


def test_key_value_pairs_come_first_in_their_order(file) -> None:
    table = pa.table({"v": [1]}).replace_schema_metadata({"k": "v", "a": ""})
    first = chunks(file(table), entity_path_prefix="/robot")[0]
    assert first.is_static and first.entity_path == "/__properties"
    (component,) = first.data.components
    assert component.descriptor.archetype == "ParquetMetadata"
    pairs = component.values.to_pylist()[0][0]
    assert pairs[:2] == [{"first": "k", "second": "v"}, {"first": "a", "second": ""}]
    assert [p["first"] for p in pairs[2:]] == ["ARROW:schema"]


def test_what_a_rule_cannot_join_comes_as_it_is(file) -> None:
    table = {"A_x": [[1.0], [2.0]], "A_y": [1.0, 2.0], "A_z": [1.0, 2.0], "A_k": [1, 2]}
    rule = ColumnRule.translation3d(["_x", "_y", "_z"])
    with pytest.warns(ReadWarning, match="Unsupported column type for archetype mapping"):
        found = data(file(table), column_rules=[rule])["/A"]
    assert [f.name for f in column(found, "data").type.value_type] == ["x", "y", "z", "k"]


def test_nulls_that_a_rule_makes_zeros_are_warned_of(file) -> None:
    table = {"A_x": [None, 2.0], "A_y": ["1", "abc"], "A_z": [True, False]}
    with pytest.warns(ReadWarning) as caught:
        found = data(file(table), column_rules=[ColumnRule.scale3d(["_x", "_y", "_z"])])["/A"]
    assert column(found, "Transform3D:scale").to_pylist() == [[[0.0, 1.0, 1.0]], [[2.0, 0.0, 0.0]]]
    said = " ".join(str(w.message) for w in caught)
    assert "'A_x': nulls become 0" in said and "'A_y': texts that are not numbers become 0" in said


def test_two_matches_of_one_name_both_come(file) -> None:
    names = [f"A_l_{end}" for end in ("ax", "ay", "bx", "by")]
    rules = [
        ColumnRule.scalars(["_ax", "_ay"], names=["x", "y"]),
        ColumnRule.scalars(["_bx", "_by"], names=["a", "b"]),
    ]
    path = file(pa.table([[float(i)] for i in range(4)], names=names))
    found = [c for c in chunks(path, column_rules=rules, use_structs=False) if c.entity_path == "/A/l"]
    assert [column(c, "Scalars:scalars").to_pylist() for c in found[:2]] == [[[[0.0, 1.0]]], [[[2.0, 3.0]]]]
    assert [column(c, "SeriesLines:names").to_pylist() for c in found[2:]] == [[["x", "y"]], [["a", "b"]]]


# --- properties

CELLS = st.one_of(st.none(), st.integers(-(2**31), 2**31), st.floats(width=32), st.text(max_size=5))
COLUMNS = st.dictionaries(
    st.from_regex(r"\A[a-c](_[a-c]){0,2}\Z"),
    st.sampled_from([pa.int64(), pa.float32(), pa.string(), pa.list_(pa.int32())]),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(
    columns=COLUMNS, rows=st.integers(0, 20), group=st.integers(1, 7), structs=st.booleans(), seed=st.integers(0, 99)
)
def test_every_value_comes_once(tmp_path_factory, columns, rows, group, structs, seed) -> None:
    chance = np.random.default_rng(seed)
    makers = {
        pa.int64(): lambda: int(chance.integers(-99, 99)),
        pa.float32(): lambda: float(np.float32(chance.random())),
        pa.string(): lambda: str(chance.integers(9)),
        pa.list_(pa.int32()): lambda: chance.integers(0, 9, chance.integers(4)).tolist(),
    }
    values = {
        name: pa.array([None if chance.random() < 0.2 else makers[kind]() for _ in range(rows)], kind)
        for name, kind in columns.items()
    }
    path = tmp_path_factory.mktemp("p") / "x.parquet"
    pq.write_table(pa.table(values), path, row_group_size=group)
    found: list[tuple[int, str]] = []
    for chunk in chunks(path, use_structs=structs):
        if not chunk.is_static:
            ticks = chunk.data.timelines[0].ticks.tolist()
            for component in chunk.data.components:
                assert component.values.value_lengths().to_pylist() == [1] * len(ticks)
                inner = component.values.flatten()
                parts = inner.flatten() if component.descriptor.component == "data" else [inner]
                found += [(row, repr(v)) for p in parts for row, v in zip(ticks, p.to_pylist(), strict=True)]
    wanted = [(row, repr(v)) for array in values.values() for row, v in enumerate(array.to_pylist())]
    assert sorted(found) == sorted(wanted)


FAR = pa.array([0, None, 32_503_680_000, -30_000_000_000], pa.timestamp("s"))
NEAR = pa.array([0, None, 1_600_000_000, -1_600_000_000], pa.timestamp("s"))


def write_int96(path: Path, table: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(table), path, use_deprecated_int96_timestamps=True, **options)
    return path


def values_of(path: Path, entity: str) -> pa.Array:
    found = [c for c in ParquetReader(path).stream().to_chunks(executor="inline") if c.entity_path == entity]
    return pa.concat_arrays([c.data.components[0].values.flatten() for c in found])


@pytest.mark.parametrize("groups", [1, 4])
def test_int96_beyond_nanoseconds_is_read_in_microseconds(tmp_path: Path, groups: int) -> None:
    path = write_int96(tmp_path / "x.parquet", {"t": FAR, "x": list("abcd")}, store_schema=False, row_group_size=groups)
    with pytest.warns(ReadWarning, match=r"times of column 't' \(INT96\) do not fit into 64 bits of nanoseconds"):
        found = values_of(path, "/t")
    assert found.equals(FAR.cast(pa.timestamp("us")))
    assert ParquetReader(path).stream().filter(content="/x").to_chunks(executor="inline")  # needs no look at t
    write_int96(path, {"t": NEAR, "x": list("abcd")}, store_schema=False)
    assert values_of(path, "/t").equals(NEAR.cast(pa.timestamp("ns")))


def test_int96_in_lists_and_structs_is_read_in_microseconds(tmp_path: Path) -> None:
    year = datetime(9999, 12, 31, 2)  # noqa: DTZ001 (Parquet's INT96 has no zone)
    nested = {
        "l": pa.array([[year], None, []], pa.list_(pa.timestamp("us"))),
        "s": pa.array([{"a": year}, {"a": None}, None], pa.struct([("a", pa.timestamp("us"))])),
        "n": pa.array(["a", "b", "c"]),
    }
    path = write_int96(tmp_path / "x.parquet", nested, store_schema=False)
    with pytest.warns(ReadWarning, match="times of column 'l' and 's'"):
        found = {name: values_of(path, f"/{name}").to_pylist() for name in nested}
    assert found == {name: values.to_pylist() for name, values in nested.items()}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_int96_has_the_unit_of_the_arrow_schema(tmp_path: Path, unit: str) -> None:
    times = (NEAR if unit == "ns" else FAR).cast(pa.timestamp(unit))
    assert values_of(write_int96(tmp_path / "x.parquet", {"t": times}), "/t").equals(times)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", None])
@pytest.mark.parametrize("asked", ["ns", "us"])
def test_an_index_of_int96_is_its_instants_whatever_the_unit(tmp_path: Path, unit: str | None, asked: str) -> None:
    times = NEAR.drop_null().cast(pa.timestamp(unit or "us"))
    path = write_int96(tmp_path / "x.parquet", {"t": times, "x": [1, 2, 3]}, store_schema=unit is not None)
    (chunk,) = [
        c
        for c in ParquetReader(path, index_columns=[("t", "timestamp", asked)]).stream().to_chunks(executor="inline")
        if c.entity_path == "/x"
    ]
    assert chunk.data.timelines[0].ticks.tolist() == [-1_600_000_000 * 10**9, 0, 1_600_000_000 * 10**9]


def test_an_index_of_int96_beyond_nanoseconds_is_warned_of(tmp_path: Path) -> None:
    path = write_int96(tmp_path / "x.parquet", {"t": FAR.drop_null(), "x": [1, 2, 3]})
    with pytest.warns(ReadWarning, match="times of index column 't' do not fit into 64 bits of nanoseconds, and wrap"):
        ParquetReader(path, index_columns=[("t", "timestamp")]).stream().to_chunks(executor="inline")


def test_files_of_one_dataset_have_one_unit_of_int96(tmp_path: Path) -> None:
    (folder := tmp_path / "d").mkdir()
    write_int96(folder / "a.parquet", {"t": NEAR}, store_schema=False)
    write_int96(folder / "b.parquet", {"t": FAR}, store_schema=False)
    with pytest.warns(ReadWarning, match=r"b.parquet: times of column 't' \(INT96\) do not fit"):
        assert values_of(folder, "/t").equals(pa.concat_arrays([NEAR, FAR]).cast(pa.timestamp("us")))
    write_int96(folder / "b.parquet", {"t": FAR.cast(pa.timestamp("ms"))})
    with pytest.warns(ReadWarning, match=r"b.parquet: column 't' \(INT96\) has another unit than in earlier files"):
        assert values_of(folder, "/t").equals(pa.concat_arrays([NEAR, FAR]).cast(pa.timestamp("us")))


def test_a_map_whose_keys_may_be_null_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"m": pa.array([{"a": "b"}], pa.map_(pa.string(), pa.string()))}), path, store_schema=False)
    required, optional = b"\x25\x00\x18\x03key", b"\x25\x02\x18\x03key"
    assert path.read_bytes().count(required) == 1
    path.write_bytes(path.read_bytes().replace(required, optional))
    with pytest.raises(
        UnsupportedError, match=r"Map keys must be annotated as required\. The file is complete, but its"
    ):
        ParquetReader(path).stream().to_chunks(executor="inline")
