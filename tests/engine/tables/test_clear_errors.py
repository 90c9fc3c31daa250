"""What users of tables do wrong, and what they are told: at once, and what to do."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.errors import JobFailedError, NoSpaceError, NotFoundError, ReadError, UsageError, WriteError
from chunkmill.engine.lance import LanceTable
from chunkmill.engine.tables import Table, TableConnection, connect, udf


@udf
def inverse(v: int) -> float:
    return 1 / (v - 3)


@udf
def wrong(v: int) -> int:
    return "three" if v == 3 else v


@udf
def square(v: int) -> int:
    return v * v


@pytest.fixture
def tables(tmp_path: Path) -> TableConnection:
    return connect(str(tmp_path), executor="inline")


@pytest.fixture
def source(tables: TableConnection) -> Table:
    return tables.create_table("src", [{"id": n, "v": n, "w": n} for n in range(5)])


@pytest.fixture
def view(tables: TableConnection, source: Table) -> Table:
    query = source.search(None).where("id > 1").select({"v": "v", "ww": "w * 2", "sq": square})
    view = tables.create_materialized_view("mv", query)
    view.refresh()
    return view


@pytest.mark.parametrize(("function", "error"), [(inverse, ZeroDivisionError), (wrong, Exception)])
def test_a_function_that_fails_says_for_which_row(source: Table, function: Any, error: type[Exception]) -> None:
    source.delete("id = 0")
    source.add_columns({"c": function})
    with pytest.raises(JobFailedError, match=r"It is the row where _rowaddr = 3\. Committed values stay") as caught:
        source.backfill("c", checkpoint_size=2)
    assert isinstance(caught.value.__cause__, error)
    assert source.search(None).where("_rowaddr = 3").to_arrow()["v"].to_pylist() == [3]
    (record,) = source.get_errors()
    assert record.row_address is None and "It is the row where _rowaddr = 3." in record.error_trace
    assert source.get_failed_row_addresses(record.job_id, "c") == []


def test_columns_that_are_added_to_a_view_are_its_users(view: Table) -> None:
    view.add_columns({"mine": "v + 1"})
    view.update("v = 2", {"mine": 7})
    assert sorted(view.to_arrow()["mine"].to_pylist()) == [4, 5, 7]


@pytest.mark.parametrize("call", [lambda view: view.refresh(), lambda view: view.plan_refresh()])
def test_a_view_whose_source_is_gone_says_so(
    tables: TableConnection, view: Table, call: Callable[[Table], Any]
) -> None:
    tables.drop_table("src")
    with pytest.raises(
        NotFoundError, match=r"src\.lance: the source table of the view 'mv' is gone\. Restore the source"
    ):
        call(view)
    assert view.count_rows() == 3


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: t.backfill("square", colour=1), r"backfill\(\) got an unexpected keyword argument 'colour'"),
        (lambda t: t.backfill("square", _return_future=True), r"backfill\(\) got an unexpected .* '_return_future'"),
        (lambda t: t.backfill_async("square", timeout=None), r"backfill_async\(\) got an unexpected .* 'timeout'"),
        (lambda t: t.backfill(), r"backfill\(\) missing a required argument: 'columns'"),
        (lambda t: t.load_columns("a.parquet", "v"), r"load_columns\(\) missing a required argument: 'columns'"),
        (lambda t: t.search("a", fts_column="s"), r"search\(\) got an unexpected keyword argument 'fts_column'"),
    ],
)
def test_an_argument_that_a_method_does_not_take_is_a_type_error(
    source: Table, call: Callable[[Table], object], said: str
) -> None:
    source.add_columns({"square": square})
    with pytest.raises(TypeError, match=said):
        call(source)


def test_methods_with_one_list_of_arguments_show_it() -> None:
    waited, background = (inspect.signature(one).parameters for one in (Table.backfill, Table.backfill_async))
    assert waited.keys() - background.keys() == {"timeout", "refresh_status_secs"}
    assert background.keys() - waited.keys() == {"_return_future"}
    assert list(waited)[:2] == ["self", "columns"] and waited["concurrency"].default == 8
    assert inspect.signature(Table.refresh).parameters == inspect.signature(Table.refresh_async).parameters


def test_what_is_no_rows_is_told(tables: TableConnection, source: Table) -> None:
    for call in (source.add, lambda data: tables.create_table("new", data)):
        for data in ({"v": [1]}, 5):
            with pytest.raises(TypeError, match=r"rows must be a list of mappings, .*, not (dict|int)"):
                call(data)
    assert tables.table_names() == ["src"]


def test_places_that_are_no_folder_of_tables_are_told(tmp_path: Path, source: Table) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="this is a file, not a folder of tables"):
        connect(str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"this is a table, .* Connect to .*, or open it as Table\("):
        connect(source.uri)
    with pytest.raises(NotFoundError, match="this is a file, not a Lance table"):
        Table(str(tmp_path / "file")).count_rows()


def test_a_search_of_a_table_that_was_dropped_says_that_it_is_gone(source: Table) -> None:
    assert source.search(None).to_arrow().num_rows == 5
    shutil.rmtree(source.uri)
    with pytest.raises(NotFoundError, match="there is no Lance table here"):
        source.search(None).to_arrow()


def test_a_damaged_file_is_no_fault_of_a_condition(source: Table) -> None:
    (file,) = Path(source.uri, "data").iterdir()
    file.write_bytes(bytes(file.stat().st_size))
    for call in (lambda: source.search(None).where("v > 1").to_arrow(), lambda: source.count_rows("v > 1")):
        with pytest.raises(ReadError, match="table 'src' cannot be read"):
            call()


def test_a_table_that_cannot_be_removed_is_told(
    tables: TableConnection, source: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda path, ignore_errors: None)  # as in a folder that is read-only
        with pytest.raises(WriteError, match=r"src\.lance: the table 'src' cannot be removed completely"):
            tables.drop_table("src")
    assert source.count_rows() == 5
    tables.drop_table("src")
    assert tables.table_names() == []


@pytest.mark.parametrize("name", ["", "a`b", "a\0b", "a.b", "_rowid"])
def test_columns_that_sql_cannot_name_are_refused(tables: TableConnection, tmp_path: Path, name: str) -> None:
    told = "cannot have (a column called|these columns)"
    with pytest.raises(UsageError, match=told):
        tables.create_table("t", pa.table({name: [1]}))
    assert tables.table_names() == []
    table = CatalogClient(tmp_path / "lake").create_table("t", pa.schema([("x", pa.int64())]))
    with pytest.raises(UsageError, match=told):
        table.overwrite(pa.table({name: [1]}))
    table.append(x=[1])
    assert table.reader().to_pydict() == {"x": [1]}


def test_a_field_of_a_struct_has_no_name_that_ends_early(tables: TableConnection) -> None:
    with pytest.raises(UsageError, match="cannot have a column called"):
        tables.create_table("t", pa.table({"a": [{"b\0c": 1}]}))


def test_a_column_with_the_name_of_a_score_cannot_be_ranked_beside_it(tmp_path: Path) -> None:
    vectors = pa.array([[1.0, 0.0]], pa.list_(pa.float32(), 2))
    lance.write_dataset(pa.table({"_distance": [1], "vector": vectors}), tmp_path / "t.lance")
    table = Table(str(tmp_path / "t.lance"))
    assert table.search(None).to_arrow()["_distance"].to_pylist() == [1]
    with pytest.raises(UsageError, match="'_distance' has the reserved name of a score"):
        table.search([1.0, 0.0]).to_arrow()


def test_an_index_that_cannot_be_is_told_in_one_sentence(source: Table) -> None:
    source.add_columns({"vector": "[1.0, 2.0]"})
    with pytest.raises(
        UsageError, match=r"this index cannot be created: BTREE/BITMAP index column vector must be int, "
    ):
        source.create_scalar_index("vector")


def test_a_hybrid_search_that_begins_with_words_looks_in_the_vectors_that_are_named(tables: TableConnection) -> None:
    type_ = pa.list_(pa.float32(), 2)
    columns = {
        "near": pa.array([[0, 0], [9, 9]], type_),
        "far": pa.array([[9, 9], [0, 0]], type_),
        "note": ["wet", "wet"],
    }
    table = tables.create_table("t", pa.table(columns))
    table.create_fts_index("note")
    for name, first in (("near", [0, 0]), ("far", [9, 9])):
        begun = table.search("wet", vector_column_name=name, query_type="hybrid").vector([0, 0])
        both = table.search(query_type="hybrid", vector_column_name=name).vector([0, 0]).text("wet")
        for query in (begun, both):
            assert query.limit(1).to_arrow()["near"].to_pylist() == [first]
    with pytest.raises(UsageError, match="there are several columns of vectors, near, far"):
        table.search("wet", query_type="hybrid").vector([0, 0])
    with pytest.raises(UsageError, match="there is no column 'nearest'"):
        table.search("wet", vector_column_name="nearest", query_type="hybrid")


def test_names_with_dots_are_refused_with_a_way_out(tables: TableConnection) -> None:
    with pytest.raises(UsageError, match=r"cannot contain `\.`.* Choose other names, for example by rename_columns"):
        tables.create_table("t", pa.table({"observation.state": [1]}))


@pytest.mark.parametrize("step", ["written", "make"])
def test_a_table_that_could_not_be_filled_is_not_there(
    step: str, tables: TableConnection, source: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise NoSpaceError("there is no space")

    with monkeypatch.context() as patched:
        patched.setattr(LanceTable, step, full)
        for make in (
            lambda: tables.create_table("new", [{"v": 1}]),
            lambda: tables.create_materialized_view("mv", source.search(None)),
        ):
            with pytest.raises(NoSpaceError):
                make()
    assert tables.table_names() == ["src"]
    assert tables.create_table("new", [{"v": 1}]).count_rows() == 1
    assert tables.create_materialized_view("mv", source.search(None)).count_rows() == 5


def test_rows_of_mixed_types_are_no_table(tables: TableConnection) -> None:
    for rows, schema in (([{"x": 1}, {"x": "a"}], None), ([{"x": "a"}], pa.schema([("x", pa.int64())]))):
        with pytest.raises(UsageError, match="rows do not fit the columns of the table, or each other"):
            tables.create_table("t", rows, schema=schema)
    assert tables.table_names() == []


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ("v", TypeError, "argument 'alteration': 'str' object is not an instance of 'Mapping'"),
        ({"path": "v"}, UsageError, "no change of 'v' is given. Give rename, nullable, data_type, udf,"),
        ({"path": "v", "renam": "x"}, UsageError, "a column has no 'renam' to change. Give path, rename,"),
    ],
)
def test_alterations_that_are_none_are_told(source: Table, change: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        source.alter_columns(change)


def test_a_time_in_a_condition_says_how_it_is_written(tables: TableConnection) -> None:
    times = pa.array([1_700_000_000, 1_800_000_000], pa.timestamp("s")).cast(pa.timestamp("ns"))
    table = tables.create_table("t", pa.table({"at": times}))
    with pytest.raises(UsageError, match=r"Write a time as timestamp '2026-01-31 12:00:00', and a day as date"):
        table.count_rows("at > '2026-01-31'")
    assert table.count_rows("at > timestamp '2026-01-31 12:00:00'") == 1


@pytest.mark.parametrize("name", ["my table", "größe", 'a"b', "../up", ".hidden", "", "x" * 181, None])
def test_names_that_no_folder_should_have_are_no_names_of_tables(tables: TableConnection, name: Any) -> None:
    for call in (tables.open_table, tables.drop_table, lambda name: tables.create_table(name, [{"v": 1}])):
        with pytest.raises(UsageError, match=r"is not a valid table name. Use up to 180 letters, digits, _, - and \."):
            call(name)
    assert tables.create_table("x" * 180, [{"v": 1}]).count_rows() == 1


@pytest.mark.parametrize("odd", ["a\nb", "a\x14b", "a\x7fb"])
def test_a_folder_that_lance_cannot_name_is_refused(tmp_path: Path, odd: str) -> None:
    with pytest.raises(UsageError, match="does not support control characters in a path"):
        connect(str(tmp_path / odd), executor="inline").create_table("t", [{"x": 1}])
    catalog = CatalogClient(tmp_path / odd)
    with pytest.raises(UsageError, match="does not support control characters in a path"):
        catalog.create_table("t", pa.schema([("x", pa.int64())]))
    assert catalog.table_names() == []
    with pytest.raises(UsageError, match="does not support control characters in a path"):
        CatalogClient(tmp_path / "lake").register_table("t", tmp_path / odd / "t")


def test_a_folder_may_have_all_other_characters(tmp_path: Path) -> None:
    folder = tmp_path / "ä b#c?d%20e*f\\g~\"'"
    table = connect(str(folder), executor="inline").create_table("t", [{"x": 1}])
    table.add_columns({"y": square_of_x})
    table.backfill("y")
    assert table.to_arrow().to_pylist() == [{"x": 1, "y": 1}]


@udf
def square_of_x(x: int) -> int:
    return x * x
