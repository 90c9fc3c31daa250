"""Near-duplicates by vectors, beside an oracle in plain numpy; and columns and rows that cannot be compared."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.errors import ReadWarning, UsageError
from chunkmill.engine.tables import Table, connect
from chunkmill.engine.tables.curation import duplicates

Answer = list[tuple[Any, Any, float]]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "_MOST_ROWS", 37)
    monkeypatch.setattr(duplicates, "_FEWEST_ROWS", 1)
    monkeypatch.setattr(duplicates, "_TILE", 10)


def made(folder: Path, vectors: pa.Array, name: str = "a") -> Table:
    rows = pa.table({"rerun_segment_id": [f"s{n}" for n in range(len(vectors))], "v": vectors})
    return connect(folder, executor="inline").create_table(name, rows)


def answer(table: pa.Table) -> Answer:
    return [tuple(row.values()) for row in table.to_pylist()]


def expected(vectors: np.ndarray, threshold: float) -> dict[int, tuple[int, float]]:
    """Row by row: the first row that stays and is similar."""
    stays: list[int] = []
    found = {}
    for row, vector in enumerate(vectors):
        cosines = [
            float(vector @ vectors[s] / np.sqrt(vector @ vector) / np.sqrt(vectors[s] @ vectors[s])) for s in stays
        ]
        similar = [(s, c) for s, c in zip(stays, cosines, strict=True) if np.float32(c) >= np.float32(threshold)]
        if similar:
            found[row] = similar[0]
        else:
            stays.append(row)
    return found


def clustered(rows: int, size: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    centers = random.normal(size=(rows // 5, size))
    return centers[random.integers(0, len(centers), rows)] + random.normal(0, 0.1, (rows, size))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("threshold", [0.6, 0.97, 0.99, 1.0])
@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32(), 6), pa.list_(pa.float64()), pa.large_list(pa.float32())], ids=str
)
def test_it_finds_what_an_oracle_finds(tmp_path: Path, threshold: float, kind: pa.DataType) -> None:
    vectors = clustered(200, 6, 3).astype(np.float32)
    vectors[150] = vectors[20] * 3
    table = made(tmp_path, pa.array(vectors.tolist(), kind))
    got = {int(a[1:]): (int(b[1:]), c) for a, b, c in answer(table.near_duplicates("v", threshold=threshold))}
    want = expected(vectors.astype(np.float64), threshold)
    assert {row: of for row, (of, _) in got.items()} == {row: of for row, (of, _) in want.items()}
    assert all(abs(got[row][1] - want[row][1]) < 1e-6 for row in want)
    assert want and (threshold < 1 or set(want) == {150})


@pytest.mark.usefixtures("small_blocks")
def test_the_first_of_a_drift_stays_and_then_the_first_that_is_far_from_it(tmp_path: Path) -> None:
    angles = np.radians(np.arange(0, 30, 3))
    table = made(tmp_path, pa.array(np.stack([np.cos(angles), np.sin(angles)], 1).tolist(), pa.list_(pa.float32(), 2)))
    got = answer(table.near_duplicates("v", threshold=float(np.cos(np.radians(7)))))
    assert [(a, b) for a, b, _ in got] == [
        ("s1", "s0"), ("s2", "s0"), ("s4", "s3"), ("s5", "s3"), ("s7", "s6"), ("s8", "s6")
    ]  # fmt: skip


@pytest.mark.usefixtures("small_blocks")
def test_vectors_that_cannot_be_compared_are_no_duplicates_and_are_counted(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    rows = [[1, 1], None, [0, 0], [nan, 1], [1, inf], [None, 1], [2, 2], None, [0, 0], [1e-310, 1e-310], [1e300, 1e300]]
    for number, kind in enumerate([pa.list_(pa.float64(), 2), pa.list_(pa.float64())]):
        table = made(tmp_path, pa.array(rows, kind), f"t{number}")
        with pytest.warns(ReadWarning, match=r"'v': 7 vectors .* \(2 null, 3 not finite, 2 zero\)") as said:
            got = answer(table.near_duplicates("v"))
        assert said[0].filename == __file__
        assert got == [("s6", "s0", 1.0), ("s9", "s0", 1.0), ("s10", "s0", 1.0)]


def test_nothing_to_compare(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, kind in enumerate([pa.list_(pa.float64(), 2), pa.list_(pa.float64())]):
            got = made(tmp_path, pa.array([], kind), f"t{number}").near_duplicates("v")
            assert got.num_rows == 0 and got.column_names == ["rerun_segment_id", "duplicate_of", "similarity"]
    with pytest.warns(ReadWarning, match="1 vector cannot be compared .1 zero"):
        assert made(tmp_path, pa.array([[]], pa.list_(pa.float64())), "none").near_duplicates("v").num_rows == 0


@pytest.mark.parametrize(
    ("vectors", "options", "message"),
    [
        ([[1.0, 2.0], [1.0]], {}, "has 1 numbers in row 1, not 2"),
        ([[1.0]], {"column": "w"}, "there is no column 'w'"),
        ([[1.0]], {"column": "rerun_segment_id"}, "has string, not vectors"),
        ([[1.0]], {"threshold": 0}, "not a similarity above 0 and up to 1"),
        ([[1.0]], {"threshold": 1.1}, "not a similarity above 0 and up to 1"),
        ([[1.0]], {"threshold": float("nan")}, "not a similarity above 0 and up to 1"),
        ([[1.0]], {"key": "w"}, "key: there is no column 'w'"),
        ([[1.0]], {"key": []}, "key: expected columns"),
        ([[1.0]], {"key": "v"}, "cannot identify rows"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, vectors: Any, options: dict[str, Any], message: str) -> None:
    table = made(tmp_path, pa.array(vectors, pa.list_(pa.float64())))
    with pytest.raises(UsageError, match=message):
        table.near_duplicates(**{"column": "v", **options})


def test_rows_are_named_by_the_key_of_the_table_by_a_segment_or_by_their_id(tmp_path: Path) -> None:
    client = CatalogClient(tmp_path / "lake")
    key = {"rerun:is_table_index": "true"}
    fields = [pa.field(name, kind, False, key) for name, kind in (("it's /drive", pa.string()), ("frame", pa.int64()))]
    frames = client.create_table("frames", pa.schema([*fields, ("v", pa.list_(pa.float32(), 2))]))
    frames.append(pa.table([["a", "a", "b"], [1, 2, 1], pa.array([[1, 0], [0, 1], [2, 0]], pa.list_(pa.float32(), 2))],
                           schema=frames.arrow_schema().remove_metadata()))  # fmt: skip
    of = {"it's /drive": "a", "frame": 1}
    assert frames.near_duplicates("v", executor="inline").to_pylist() == [
        {"it's /drive": "b", "frame": 1, "duplicate_of": of, "similarity": 1.0}
    ]
    frames.append(frame=5, v=[[3.0, 0.0]], **{"it's /drive": "c"})
    assert len(frames.near_duplicates("v")) == 2 and len(frames.at(2).near_duplicates("v")) == 1
    plain = client.create_table("plain", pa.schema([("v", pa.list_(pa.float32(), 2)), ("name", pa.string())]))
    plain.append(v=[[1, 0], [1, 0]], name=["x", "x"])
    row = plain.near_duplicates("v").to_pylist()[0]
    assert (row["_rowid"], row["duplicate_of"]) == (1, 0)
    with pytest.raises(UsageError, match="name is the same in several rows"):
        plain.near_duplicates("v", key="name")
    plain.append(v=[[1, 0]], name=[None])
    with pytest.raises(UsageError, match="name has a null"):
        plain.near_duplicates("v", key="name")


@pytest.mark.usefixtures("small_blocks")
def test_deleted_rows_are_not_compared(tmp_path: Path) -> None:
    vectors = clustered(120, 5, 4)
    table = made(tmp_path, pa.array(vectors.tolist(), pa.list_(pa.float64(), 5)))
    gone = [n for n in range(120) if n % 3 == 0]
    table.delete(f"rerun_segment_id IN ({', '.join(repr(f's{n}') for n in gone)})")
    left = np.delete(np.arange(120), gone)
    want = {f"s{left[row]}": f"s{left[of]}" for row, (of, _) in expected(vectors[left], 0.97).items()}
    assert {a: b for a, b, _ in answer(table.near_duplicates("v", threshold=0.97))} == want


@pytest.mark.usefixtures("small_blocks")
def test_tasks_of_spark_find_the_same(tmp_path: Path) -> None:
    vectors = pa.array(clustered(200, 6, 5).tolist(), pa.list_(pa.float64(), 6))
    table = made(tmp_path, vectors)
    on_spark = table.near_duplicates("v", threshold=0.97, executor="spark")
    assert on_spark == table.near_duplicates("v", threshold=0.97, executor="inline") and len(on_spark) > 50
