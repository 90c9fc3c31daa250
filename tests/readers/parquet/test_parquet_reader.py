"""The reader's options and their errors, timelines, static columns."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.errors import ReadError, ReadWarning, SourceMissingError, UnsupportedError, UsageError
from chunkmill.readers import ColumnRule, ParquetReader, StreamingReader
from chunkmill.readers.parquet.options import TARGETS
from parquet_making import chunks, column, data


@pytest.fixture
def file(tmp_path: Path):
    def written(table: pa.Table | dict[str, Any], **options: Any) -> Path:
        path = tmp_path / "x.parquet"
        pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)
        return path

    return written


# --- the constructor


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"prefixes": ["a"]}, "'prefixes' is only valid with column_grouping='explicit_prefixes'"),
        ({"column_grouping": "explicit_prefixes"}, "'explicit_prefixes' requires the 'prefixes' parameter"),
        (
            {"column_grouping": "explicit_prefixes", "prefixes": []},
            "'prefixes' must not be empty for 'explicit_prefixes' grouping",
        ),
        (
            {"column_grouping": "zzz"},
            "Unknown column_grouping: 'zzz'. Expected 'prefix', 'individual', or 'explicit_prefixes'.",
        ),
        ({"delimiter": "__"}, "expected a string of length 1"),
        ({"delimiter": ""}, "expected a string of length 1"),
        (
            {"index_columns": [("t", "foo")]},
            "Unknown index type: 'foo'. Expected 'timestamp', 'duration', or 'sequence'.",
        ),
        (
            {"index_columns": [("t", "sequence", "zz")]},
            "Unknown time unit: 'zz'. Expected 'ns', 'us', 'ms', or 's'.",
        ),
        (
            {"column_rules": [ColumnRule(["_x"], "Nope")]},
            f"Unknown target: 'Nope'. Valid targets: {', '.join(TARGETS)}.",
        ),
        ({"column_rules": [ColumnRule(["_x"], "Scalars")]}, "Scalars target requires 'names'"),
        ({"column_rules": [ColumnRule(["_x"], "Transform")]}, "Transform target requires 'rotation_suffixes'"),
    ],
)
def test_wrong_options_are_refused(file, options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        ParquetReader(file({"t": [1]}), **options)
    assert caught.value.message == text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ColumnRule.translation3d(["a"]), "Translation3D requires exactly 3 suffixes"),
        (lambda: ColumnRule.rotation_quat(["a"]), "RotationQuat requires exactly 4 suffixes"),
        (
            lambda: ColumnRule.rotation_axis_angle(["a"]),
            "RotationAxisAngle requires exactly 4 suffixes (3 axis + 1 angle)",
        ),
        (lambda: ColumnRule.scale3d(["a"]), "Scale3D requires exactly 3 suffixes"),
        (lambda: ColumnRule.scalars(["a"], names=[]), "suffixes and names must have the same length"),
        (lambda: ColumnRule.transform(["a"], ["a"]), "Transform requires exactly 3 translation suffixes"),
        (lambda: ColumnRule.transform(["a"] * 3, ["a"]), "Transform requires exactly 4 rotation suffixes"),
    ],
)
def test_wrong_rules_are_refused(make, text: str) -> None:
    with pytest.raises(ValueError, match=r".*") as caught:
        make()
    assert caught.value.args == (text,)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"Parquet file not found: {tmp_path}/nope.parquet"):
        ParquetReader(tmp_path / "nope.parquet")


def test_a_reader_streams_again_and_again(file) -> None:
    reader = ParquetReader(file({"v": [1]}))
    assert isinstance(reader, StreamingReader)
    assert repr(reader) == f"ParquetReader({reader.path})"
    assert [len(reader.stream().to_chunks(executor="inline")) for _ in range(2)] == [2, 2]


def test_a_rule_that_shadows_another_is_warned_of(file) -> None:
    broad = ColumnRule.translation3d(["_x", "_y", "_z"])
    exact = ColumnRule.translation3d(["_pos_x", "_pos_y", "_pos_z"])
    with pytest.warns(ReadWarning) as caught:
        ParquetReader(file({"v": [1]}), column_rules=[broad, exact])
    assert str(caught[0].message) == (
        'Column rule 0 (suffixes ["_x", "_y", "_z"]) may shadow rule 1 (suffixes ["_pos_x", "_pos_y", "_pos_z"]).'
        " Consider reordering so more specific rules come first."
    )
    with warnings.catch_warnings():
        ParquetReader(file({"v": [1]}), column_rules=[exact, broad])


# --- timelines

INDEX = pa.table(
    {
        "i64": pa.array([30, 10, 20], pa.int64()),
        "i32": pa.array([3, 1, 2], pa.int32()),
        "i16": pa.array([3, 1, 2], pa.int16()),
        "i8": pa.array([3, 1, 2], pa.int8()),
        "u64": pa.array([2**63 + 1, 1, 2], pa.uint64()),
        "u32": pa.array([3, 1, 2], pa.uint32()),
        "u16": pa.array([3, 1, 2], pa.uint16()),
        "f64": pa.array([1.9, -1.9, 0.1]),
        "f32": pa.array([3.5, 0.1, 2.5], pa.float32()),
        "whole": pa.array([3.0, -1.0, 2.0]),
        "tus": pa.array([3, 1, 2], pa.timestamp("us")),
        "tms": pa.array([3, 1, 2], pa.timestamp("ms", "UTC")),
        "dms": pa.array([3, 1, 2], pa.duration("ms")),
        "d32": pa.array([3, 1, 2], pa.date32()),
        "b": [True, False, True],
        "v": [0, 1, 2],
    }
)


@pytest.mark.parametrize(
    ("entry", "times", "rows"),
    [
        (("i64", "sequence"), [10, 20, 30], [1, 2, 0]),
        (("i32", "timestamp", "ms"), [10**6, 2 * 10**6, 3 * 10**6], [1, 2, 0]),
        (("i16", "sequence"), [1, 2, 3], [1, 2, 0]),
        (("u32", "sequence"), [1, 2, 3], [1, 2, 0]),
        (("whole", "sequence"), [-1, 2, 3], [1, 2, 0]),
        (("f64", "timestamp", "s"), [-1_900_000_000, 100_000_000, 1_900_000_000], [1, 2, 0]),
        (("f32", "duration", "s"), [100_000_001, 2_500_000_000, 3_500_000_000], [1, 2, 0]),
        (("f32", "timestamp"), [0, 3, 4], [1, 2, 0]),
        (("tus", "timestamp", "us"), [1000, 2000, 3000], [1, 2, 0]),
        (("tus", "sequence"), [1, 2, 3], [1, 2, 0]),
        (("tms", "timestamp", "ms"), [10**6, 2 * 10**6, 3 * 10**6], [1, 2, 0]),
        (("dms", "duration", "ms"), [10**6, 2 * 10**6, 3 * 10**6], [1, 2, 0]),
    ],
    ids=str,
)
def test_an_index_column_is_a_timeline(file, entry: tuple[str, ...], times: list[int], rows: list[int]) -> None:
    path = file(INDEX)
    found = data(path, index_columns=[entry])["/v"]
    (line,) = found.data.timelines
    kind = {"timestamp": "timestamp[ns]", "duration": "duration[ns]", "sequence": "int64"}[entry[1]]
    assert (line.name, str(line.times.type), line.ticks.tolist()) == (entry[0], kind, times)
    assert column(found, "v").to_pylist() == [[row] for row in rows]
    assert f"/{entry[0]}" not in data(path, index_columns=[entry])


@pytest.mark.parametrize(
    ("entry", "times", "warning"),
    [
        (("u64", "sequence"), [-(2**63) + 1, 1, 2], "index column 'u64': 1 number beyond 2\\^63, wrapped to negative"),
        (("far", "timestamp", "s"), [-(2**63), 0, 2**63 - 1], "index column 'far': 2 values beyond 64 bits of nanosec"),
        (("tms", "timestamp"), [1, 2, 3], "'tms' has type timestamp.ms, tz=UTC., but its numbers are read in ns"),
        (("dms", "duration", "s"), [10**9, 2 * 10**9, 3 * 10**9], "'dms' has type duration.ms., .* read in s;"),
    ],
    ids=str,
)
def test_times_that_may_not_be_meant_are_warned_of(
    file, entry: tuple[str, ...], times: list[int], warning: str
) -> None:
    path = file(INDEX.append_column("far", pa.array([1e30, -math.inf, 0.0])))
    with pytest.warns(ReadWarning, match=warning) as caught:
        found = data(path, index_columns=[entry])["/v"]
    assert len(caught) == 1
    assert found.data.timelines[0].ticks.tolist() == times


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_seconds_of_a_float_column_keep_their_fraction(file, kind: pa.DataType) -> None:
    """As Rerun 0.41: a product of 64-bit floats, rounded half away from zero."""
    seconds = [0.0, 0.1, 0.2, 0.9, 1.0, 1_700_000_000.25, -0.1, 2.5e-9, -1.5e-9]
    path = file({"t": pa.array(seconds, kind), "v": range(9)})
    found = data(path, index_columns=[("t", "duration", "s")])["/v"].data.timelines[0].ticks.tolist()
    products = [Fraction(x * 1e9) for x in pa.array(seconds, kind).cast(pa.float64()).to_pylist()]
    assert found == sorted(int(abs(p) + Fraction(1, 2)) * (1 if p >= 0 else -1) for p in products)


@pytest.mark.parametrize(
    ("values", "entry", "words"),
    [
        ([1.0, 1.5], ("t", "sequence"), "'t' is 1.5 in row 1, but sequence numbers are 64-bit integers"),
        ([1.0, 2.0**63], ("t", "sequence"), "'t' is 9.22.*e.18 in row 1, but sequence"),
        ([math.nan, 1.0], ("t", "sequence"), "'t' is nan in row 0, but sequence"),
        ([0.5, math.nan], ("t", "timestamp", "s"), "'t' is NaN in row 1, but every row needs a time"),
    ],
    ids=str,
)
def test_a_float_that_is_no_time_is_refused(file, values: list[float], entry: tuple[str, ...], words: str) -> None:
    path = file({"t": values, "v": [1, 2]})
    with pytest.raises(ReadError, match=words) as caught:
        chunks(path, index_columns=[entry])
    assert caught.value.path == str(path) and caught.value.hint


@pytest.mark.parametrize("name", ["i8", "u16", "d32", "b"])
def test_a_column_that_can_be_no_timeline_is_dropped_with_a_warning(file, name: str) -> None:
    with pytest.warns(ReadWarning, match="Cannot use column with type .* as a timeline index"):
        found = data(file(INDEX), index_columns=[(name, "sequence")])
    assert f"/{name}" not in found
    assert found["/v"].timeline_names == ["row_index"]


def test_a_missing_index_column_fails_before_anything_comes(file) -> None:
    with pytest.raises(ReadError, match="Parquet error: Index column 'nope' not found in parquet schema"):
        chunks(file(INDEX), index_columns=[("nope", "sequence")])


def test_a_row_without_a_time_is_refused(file) -> None:
    path = file({"t": [1, None, 3], "v": [1, 2, 3]})
    with pytest.raises(ReadError, match="index column 't' is null in row 1") as caught:
        chunks(path, index_columns=[("t", "sequence")])
    assert caught.value.path == str(path) and caught.value.hint


def test_times_that_do_not_fit_wrap_with_a_warning(file) -> None:
    with pytest.warns(ReadWarning, match="wrap around"):
        found = data(file({"big": [2**62, 1, 2], "v": [0, 1, 2]}), index_columns=[("big", "timestamp", "s")])
    assert found["/v"].data.timelines[0].ticks.tolist() == [0, 10**9, 2 * 10**9]


def test_rows_are_sorted_by_all_timelines_in_the_order_of_their_names(file) -> None:
    path = file({"b": [1, 2, 1, 2], "a": [2, 1, 1, 2], "v": [0, 1, 2, 3]})
    found = data(path, index_columns=[("b", "sequence"), ("a", "sequence")])["/v"]
    assert column(found, "v").to_pylist() == [[2], [1], [0], [3]]


# --- static columns


def test_a_static_column_that_varies_ends_the_stream(file) -> None:
    path = file({"v": [1, 1, 2], "n": pa.array([None, None, None], pa.int64())})
    with pytest.raises(ReadError, match="Parquet error: Static column 'v' contains non-uniform values"):
        chunks(path, static_columns=["v"])
    with pytest.raises(ReadError, match="Parquet error: Static column 'n' contains non-uniform values"):
        chunks(path, static_columns=["n"])


@pytest.mark.parametrize("group", [100, 700, 1024, 2500])
def test_a_static_column_is_compared_across_row_groups(file, group: int) -> None:
    changed = {"c": [1] * 1024 + [2] * 1476, "v": list(range(2500))}
    with pytest.raises(ReadError, match="Static column 'c' changed between batches: '1' → '2'"):
        chunks(file(changed, row_group_size=group), static_columns=["c"])
    same = file({"c": ["x"] * 2500, "v": list(range(2500))}, row_group_size=group)
    last = chunks(same, static_columns=["c"])[-1]
    assert last.is_static and last.entity_path == "/" and column(last, "c").to_pylist() == [["x"]]


def test_a_static_column_is_compared_across_splits(file, monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkmill.readers.parquet import source as source_module

    monkeypatch.setattr(source_module, "SPLIT_BYTES", 4000)
    path = file({"c": [1] * 2000 + [2] * 500, "v": list(range(2500))}, row_group_size=500)
    source = ParquetReader(path, static_columns=["c"]).source()
    splits = source.splits()
    assert len(splits) > 2
    for split in splits[:-1]:
        list(source.read(split))
    with pytest.raises(ReadError, match="non-uniform"):
        list(source.read(splits[-1]))


def test_types_that_cannot_be_compared_are_warned_of(file) -> None:
    with pytest.warns(ReadWarning, match="Cannot verify uniformity for column type list"):
        last = chunks(file({"l": [[1], [2]], "v": [1, 2]}), static_columns=["l"])[-1]
    assert column(last, "l").to_pylist() == [[[1]]]


def test_a_file_without_rows_gives_its_properties_only(file) -> None:
    table = pa.table({"c": pa.array([], pa.int64()), "t": pa.array([], pa.int64())})
    found = chunks(file(table), static_columns=["c"], index_columns=[("t", "sequence")])
    assert [c.entity_path for c in found] == ["/__properties"]


# --- files that are none


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    cases = {
        b"": "Parquet error: EOF: Parquet file too small. Size is 0 but need 8",
        b"garbage" * 9: "Parquet error: Parquet error: Invalid Parquet file. Corrupt footer",
    }
    for content, text in cases.items():
        (tmp_path / "x.parquet").write_bytes(content)
        with pytest.raises(ReadError) as caught:
            chunks(tmp_path / "x.parquet")
        assert caught.value.message == text and caught.value.hint and caught.value.offset is not None
    (tmp_path / "x.parquet").write_bytes(b"PAR1" + bytes(20) + b"PARE")
    with pytest.raises(UnsupportedError, match="encrypted"):
        chunks(tmp_path / "x.parquet")
    (tmp_path / "folder").mkdir()
    with pytest.raises(SourceMissingError, match="no Parquet file here"):
        chunks(tmp_path / "folder")
