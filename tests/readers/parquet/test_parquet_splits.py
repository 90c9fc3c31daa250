"""Splits, narrowing, chunk sizes; several files as one."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import ColumnRule, ParquetReader
from chunkmill.readers.parquet import source as source_module
from chunkmill.readers.parquet.file import BATCH_ROWS, ParquetFile
from chunkmill.readers.parquet.source import CHUNK_BYTES
from comparison import cells
from parquet_making import chunks, column, data


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """10,000 rows in row groups of 1,000; four prefixes of two columns each, and a static one."""
    table: dict[str, Any] = {f"{p}_{n}": np.arange(10_000.0) + 1000 * n for p in "abcd" for n in range(2)}
    table["site"] = ["north"] * 10_000
    pq.write_table(pa.table(table), tmp_path / "wide.parquet", row_group_size=1000)
    return tmp_path / "wide.parquet"


def test_one_split_for_a_small_file(wide: Path) -> None:
    (split,) = ParquetReader(wide).source().splits()
    assert (split.label, split.start, split.stop, split.begins, split.ends) == ("wide.parquet", 0, 10, True, True)


@pytest.mark.parametrize("size", [20_000, 70_000, 200_000])
def test_splits_give_every_row_once_in_order(wide: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [c for c in chunks(wide, static_columns=["site"]) if not c.is_static]
    monkeypatch.setattr(source_module, "SPLIT_BYTES", size)
    source = ParquetReader(wide, static_columns=["site"]).source()
    splits = source.splits()
    assert len(splits) > 3
    assert [s.begins for s in splits] == [True] + [False] * (len(splits) - 1)
    assert [s.ends for s in splits] == [False] * (len(splits) - 1) + [True]
    found: dict[str, list[tuple[int, Any]]] = {}
    for split in splits:
        for chunk in source.read(split):
            if not chunk.is_static:
                values = column(chunk, "data").to_pylist()
                found.setdefault(chunk.entity_path, []).extend(
                    zip(chunk.data.timelines[0].ticks.tolist(), values, strict=True)
                )
    wanted = {c.entity_path: list(enumerate(column(c, "data").to_pylist())) for c in whole}
    assert found == wanted


def test_a_large_row_group_is_divided_by_entities(wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "SPLIT_BYTES", 35_000)
    splits = ParquetReader(wide).source().splits()
    assert {(s.start, s.stop) for s in splits} == {(i, i + 1) for i in range(10)}
    assert sorted(o for s in splits if s.start == 0 for o in s.outputs) == list(range(5))
    assert sum(s.start == 0 for s in splits) > 1


def test_columns_that_nobody_wants_are_not_read(wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[str]] = []
    real = ParquetFile.batches

    def spy(self: ParquetFile, groups, columns, rows):
        read.append([self.schema.names[c] for c in columns])
        return real(self, groups, columns, rows)

    monkeypatch.setattr(ParquetFile, "batches", spy)
    stream = ParquetReader(wide, index_columns=[("a_0", "sequence")]).stream().filter(content="/b")
    (chunk,) = stream.to_chunks(executor="inline")
    assert (chunk.entity_path, chunk.num_rows, chunk.timeline_names) == ("/b", 10_000, ["a_0"])
    assert read == [["a_0", "b_0", "b_1"]]
    read.clear()
    only_static = ParquetReader(wide, static_columns=["site"]).stream().filter(content="/")
    assert [c.is_static for c in only_static.to_chunks(executor="inline")] == [True]
    assert {name for names in read for name in names} == {"site"}
    read.clear()
    with pytest.warns(ReadWarning, match=r"filter\(content='/nothing'\) keeps nothing"):
        assert ParquetReader(wide).stream().filter(content="/nothing").to_chunks(executor="inline") == []
    assert read == []


def test_chunks_are_of_a_sensible_size(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).random(300_000)
    pq.write_table(pa.table({f"g_{i}": noise for i in range(8)}), tmp_path / "x.parquet")
    found = [c for c in chunks(tmp_path / "x.parquet") if not c.is_static]
    sizes = [sum(v.values.nbytes for v in c.data.components) for c in found]
    assert max(sizes) < 1.6 * CHUNK_BYTES and max(c.num_rows for c in found) <= BATCH_ROWS
    assert sum(c.num_rows for c in found) == 300_000
    assert len(found) <= 10
    ticks = np.concatenate([c.data.timelines[0].ticks for c in found])
    assert (ticks == np.arange(300_000)).all()


def test_values_are_not_copied(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v_a": np.arange(1000.0), "v_b": np.arange(1000.0)}), tmp_path / "x.parquet")
    source = ParquetReader(tmp_path / "x.parquet", use_structs=True).source()
    (chunk,) = (c for c in source.read(source.splits()[0]) if not c.is_static)
    struct = column(chunk, "data").values
    assert struct.field(0).buffers()[1].size >= 8000
    assert column(chunk, "data").offsets.to_pylist() == list(range(1001))


# --- several files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sites with two days each, as folders of the Hive kind name them, and what is to be passed over."""
    row = 0
    for site in ("north gate", "south"):
        for day in (1, 2):
            below = tmp_path / "drives" / f"site={site.replace(' ', '%20')}" / f"day={day}"
            below.mkdir(parents=True)
            pq.write_table(pa.table({"arm_x": [float(row), row + 1.0]}), below / "part-0.parquet")
            row += 2
    (tmp_path / "drives" / "_SUCCESS").write_text("")
    (tmp_path / "drives" / "_metadata.parquet").write_text("none")
    return tmp_path / "drives"


def test_a_folder_is_read_as_one(folder: Path) -> None:
    found = [c for c in chunks(folder) if not c.is_static]
    assert [c.entity_path for c in found[:3]] == ["/arm", "/day", "/site"]
    together: dict[str, list[Any]] = {}
    for chunk in found:
        ticks = chunk.data.timelines[0].ticks.tolist()
        values = chunk.data.components[0].values.to_pylist()
        together.setdefault(chunk.entity_path, []).extend(zip(ticks, values, strict=True))
    assert together["/arm"] == [(i, [float(i)]) for i in range(8)]
    assert [v for _, v in together["/day"]] == [[1], [1], [2], [2]] * 2
    assert [v for _, v in together["/site"]] == [["north gate"]] * 4 + [["south"]] * 4


def test_a_partition_can_be_static_where_it_is_the_same(folder: Path) -> None:
    day = chunks(folder / "site=south" / "day=*", static_columns=["nothing"])
    assert {c.entity_path for c in day if not c.is_static} == {"/arm", "/day"}
    last = chunks(folder / "*" / "day=1", static_columns=["day"])[-1]
    assert last.is_static and column(last, "day").to_pylist() == [[1]]
    with pytest.raises(ReadError, match="Static column 'site' contains non-uniform values"):
        chunks(folder, static_columns=["site"])
    with pytest.raises(ReadError, match="Static column 'day' contains"):
        chunks(folder / "site=south", static_columns=["day"])


def test_a_pattern_is_read_as_one(folder: Path) -> None:
    found = data(folder / "site=south" / "*" / "*.parquet")
    assert set(found) == {"/arm", "/day"}
    labels = [s.label for s in ParquetReader(folder).source().splits()]
    assert labels[0] == "site=north%20gate/day=1/part-0.parquet"


def test_files_that_differ_in_a_type_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1], "w": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": [1]}), tmp_path / "b.parquet")
    assert len(chunks(tmp_path)) == 5
    pq.write_table(pa.table({"v": ["x"]}), tmp_path / "c.parquet")
    with pytest.raises(ReadError, match="column 'v' has type string in this file, but type int64") as caught:
        chunks(tmp_path)
    assert caught.value.path == str(tmp_path / "c.parquet")


def test_names_of_series_come_once_for_all_files(tmp_path: Path) -> None:
    for name in "ab":
        pq.write_table(pa.table({"A_x": [1.0], "A_y": [2.0]}), tmp_path / f"{name}.parquet")
    rule = ColumnRule.scalars(["_x", "_y"], names=["x", "y"])
    found = chunks(tmp_path, column_rules=[rule], use_structs=False)
    assert sum(c.is_static and c.entity_path == "/A/scalars" for c in found) == 1


# --- on Spark


def test_spark_gives_the_same(spark, wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "SPLIT_BYTES", 70_000)
    rule = ColumnRule.scalars(["_0", "_1"], names=["x", "y"])

    def stream() -> LazyChunkStream:
        return ParquetReader(wide, static_columns=["site"], column_rules=[rule]).stream()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadWarning)
        assert cells(stream().to_chunks(executor="spark")) == cells(stream().to_chunks(executor="inline"))
