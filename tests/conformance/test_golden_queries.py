"""Queries over datasets: what the reference's server answered, and by default what the contract says instead.

The recordings, the answers and the oracle of the contract lie in ``../shared/golden/query`` and ``../shared/tools``.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import query_oracle
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from datafusion import col
from datafusion import functions as f
from query_oracle import GOLDEN, canonical, plain

pytestmark = [pytest.mark.wide, pytest.mark.skipif(not GOLDEN.exists(), reason="the recorded queries are not at hand")]

LIDAR, CAMERA = '"/lidar:value"', '"/camera:value"'
FILTERS: dict[tuple[str, str], Any] = {
    ("g01_rows", "isnotnull"): col(LIDAR).is_not_null(),
    ("g01_rows", "isnotnull_fill"): col(LIDAR).is_not_null(),
    ("g01_rows", "isnull_fill"): col(LIDAR).is_null(),
    ("g01_rows", "two_isnotnull"): col(LIDAR).is_not_null() & col(CAMERA).is_not_null(),
    ("g01_rows", "idx_eq_fill"): col("frame") == 3,
    ("g01_rows", "idx_ge_fill"): col("frame") >= 3,
    ("g01_rows", "idx_gt_lt"): (col("frame") > 1) & (col("frame") < 4),
    ("g01_rows", "idx_eq_missing"): col("frame") == 99,
    ("g01_rows", "inlist_empty"): f.in_list(col("rerun_segment_id"), []),
    ("g04_fill_latest_at", "fill_filter_ge5"): col("frame") >= 5,
    ("g05_using_index_values", "uiv_filter"): col("frame") >= 15,
    ("g05_using_index_values", "uiv_filter2"): col("frame") == 15,
    ("g07_clear", "notnull"): col('"/w/b:value"').is_not_null(),
}
"""The filters of the oracle's queries, for DataFusion."""


def asked() -> list[tuple[str, str]]:
    if not GOLDEN.exists():
        return []
    return [(case, label) for case, labels in query_oracle.oracle().Q.items() for label in labels]


@functools.cache
def recorded(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"{case}.json").read_text())
    return found | {"by_label": {query["label"]: query for query in found["queries"]}}


@functools.cache
def overrides() -> dict[tuple[str, str], Any]:
    return {
        (o["case"], o["label"]): o["expected_rows"]
        for o in json.loads((GOLDEN / "expected_overrides.json").read_text())
    }


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The dataset of a case, under rules of a name."""
    lake = tmp_path_factory.mktemp("lake")

    @functools.cache
    def dataset_of(case: str, semantics: str) -> DatasetEntry:
        client = CatalogClient(lake, semantics=semantics)
        if case in client.dataset_names():
            return client.get_dataset(case)
        dataset = client.create_dataset(case)
        recordings = recorded(case)["recordings"]
        paths = [str(GOLDEN / recording["rrd"]) for recording in recordings]
        dataset.register(paths, layer_name=[r["layer"] for r in recordings], executor="inline").wait()
        return dataset

    return dataset_of


def in_arrow(values: Any) -> Any:
    """Index values as they were recorded where one is null, which is an array of Arrow's."""
    if not isinstance(values, dict):
        return values
    return {name: pa.array(some, pa.int64()) if None in some else some for name, some in values.items()}


def answer(dataset: DatasetEntry, case: str, label: str, arguments: dict[str, Any]) -> pa.Table:
    """The rows of a query that has the oracle's arguments."""
    view: Any = dataset
    if arguments.get("contents") is not None:
        view = view.filter_contents(arguments["contents"])
    if arguments.get("segments") is not None:
        view = view.filter_segments(arguments["segments"])
    frame = view.reader(
        arguments.get("index", "frame"),
        include_semantically_empty_columns=arguments.get("empty", False),
        include_tombstone_columns=arguments.get("tomb", False),
        fill_latest_at=arguments.get("fill", False),
        using_index_values=in_arrow(arguments.get("uiv")),
    )
    if "flt" in arguments:
        frame = frame.filter(FILTERS[case, label])
    if "sel" in arguments:
        frame = frame.select(*(col(f'"{name}"') for name in arguments["sel"]))
    return frame.to_arrow_table()


def check_columns(found: pa.Table, case: str, label: str) -> None:
    """Names, types and metadata of the columns are those that were recorded."""
    place = recorded(case)["by_label"][label].get("parquet")
    if place is None or not (GOLDEN / place).exists():
        return
    expected = {field.name: field for field in pq.read_schema(GOLDEN / place)}
    assert set(found.schema.names) == set(expected)
    for field in found.schema:
        if (case, field.name) == ("g06b_semantically_empty_multi", "/e:value"):
            continue  # it has a value in one segment: that it was called empty is a defect of that release
        assert field.type == expected[field.name].type, field.name
        assert dict(field.metadata or {}) == dict(expected[field.name].metadata or {}), field.name


@pytest.mark.parametrize(("case", "label"), asked())
def test_the_contract(datasets: Any, case: str, label: str) -> None:
    found = answer(datasets(case, "contract"), case, label, query_oracle.oracle().Q[case][label])
    query = recorded(case)["by_label"][label]
    expected = overrides().get((case, label), query["rows"])
    assert canonical(plain(found)) == canonical(expected)
    if (case, label) not in overrides():
        check_columns(found, case, label)


DEFECTS = {
    ("g01_rows", "isnotnull_fill"),
    ("g01_rows", "two_isnotnull"),
    ("g03_static", "none"),
    ("g03_static", "none_fill"),
    ("g03_static", "uiv_static"),
    ("g06b_semantically_empty_multi", "default"),
    ("g06b_semantically_empty_multi", "default_s1"),
    ("g07_clear", "default"),
    ("g07_clear", "contents_a"),
    ("g07_clear", "contents_a_fill"),
    ("g07_clear", "contents_b"),
    ("g07_clear", "notnull"),
    ("g07_clear", "uiv_nofill"),
    ("g12_static_order", "none"),
}
"""Answers of that release that are in no preset: the defects that the contract names."""


@pytest.mark.parametrize(("case", "label"), [query for query in asked() if query not in DEFECTS])
def test_the_preset_of_the_recorded_release(datasets: Any, case: str, label: str) -> None:
    found = answer(datasets(case, "rerun-0.33"), case, label, query_oracle.oracle().Q[case][label])
    assert canonical(plain(found)) == canonical(recorded(case)["by_label"][label]["rows"])
    check_columns(found, case, label)


def expressions() -> list[Any]:
    if not GOLDEN.exists():
        return []
    queries = recorded("g10_filter_contents")["queries"]
    return [query for query in queries if query["label"][0] in '"[' and "rows" in query]


@pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.UnmatchedWarning")
@pytest.mark.parametrize("query", expressions(), ids=lambda query: query["label"])
def test_expressions_of_contents(datasets: Any, query: dict[str, Any]) -> None:
    expression = json.loads(query["label"].removesuffix(" reader"))
    view = datasets("g10_filter_contents", "contract").filter_contents(expression)
    if query["label"].endswith("reader"):
        found = [name for name in view.reader("frame").schema().names if name not in ("rerun_segment_id", "frame")]
    else:
        found = [column.name for column in view.schema().component_columns()]
    assert sorted(found) == sorted(row["column"] for row in query["rows"])
