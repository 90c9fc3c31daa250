"""Views: made of a query, refreshed to versions of their source, at the cost of what changed."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.errors import (
    AlreadyExistsError,
    JobFailedError,
    NotFoundError,
    PinnedViewError,
    UnsupportedCallError,
    UsageError,
)
from chunkmill.engine.execution import Lease
from chunkmill.engine.lance import FragmentReader
from chunkmill.engine.locations import located
from chunkmill.engine.tables import Table, TableConnection, TableReference, connect, connect_async, udf
from chunkmill.engine.tables.checkpoints import COMPUTED

calls: list[int] = []


@udf
def square(v: int) -> int:
    calls.append(v)
    if v == 13:
        raise ValueError("an unlucky number")
    return v * v


@udf
def cube(v: int) -> int:
    return v**3


@pytest.fixture
def tables(tmp_path: Path) -> TableConnection:
    calls.clear()
    return connect(str(tmp_path), executor="inline")


def made(tables: TableConnection) -> tuple[Table, Table]:
    """A table, and a view of its rows but one, with a column that a function gives."""
    source = tables.create_table("src", [{"id": id_, "v": id_ + 1} for id_ in range(5)])
    query = source.search(None).where("id != 1").select({"id": "id", "v": "v", "sq": square})
    return source, tables.create_materialized_view("mv", query)


def of_lance(table: Table) -> Any:
    return lance.dataset(table.uri)


def rows_of(view: Table) -> list[dict[str, Any]]:
    """The rows of a view, in the order of the source's ids."""
    return sorted(view.to_arrow().to_pylist(), key=lambda row: row["__source_row_id"])


def test_a_view_is_filled_by_its_first_refresh(tables: TableConnection) -> None:
    _, view = made(tables)
    assert view.schema.names == ["__source_row_id", "__is_set", "id", "v", "sq"]
    assert rows_of(view) == [
        {"__source_row_id": id_, "__is_set": False, "id": None, "v": None, "sq": None} for id_ in (0, 2, 3, 4)
    ]
    assert view.plan_refresh().total_rows_pending == 4
    result = view.refresh()
    assert (result.status, result.rows_refreshed, result.new_source_fragments) == ("DONE", 4, 1)
    assert rows_of(view) == [
        {"__source_row_id": id_, "__is_set": True, "id": id_, "v": id_ + 1, "sq": (id_ + 1) ** 2}
        for id_ in (0, 2, 3, 4)
    ]


def test_a_refresh_computes_what_changed_and_nothing_else(tables: TableConnection) -> None:
    source, view = made(tables)
    view.refresh()
    calls.clear()
    of_lance(source).insert(pa.table({"id": [5, 1], "v": [6, 7]}))
    of_lance(source).delete("id = 0")
    of_lance(source).update({"v": "100"}, where="id = 2")
    of_lance(source).optimize.compact_files()
    plan = view.plan_refresh()
    assert (plan.has_work, plan.total_rows_pending, plan.stale_rows, plan.invalidated_fragments) == (True, 2, 2, 1)
    assert view.refresh().rows_refreshed == 2
    assert sorted(calls) == [6, 100]
    assert {row["id"]: row["sq"] for row in rows_of(view)} == {2: 10_000, 3: 16, 4: 25, 5: 36}


def test_a_second_refresh_does_nothing(tables: TableConnection) -> None:
    source, view = made(tables)
    view.refresh()
    version = view.version
    assert not view.plan_refresh().has_work
    assert view.refresh().rows_refreshed == 0
    assert view.version == version
    of_lance(source).optimize.compact_files()
    of_lance(source).add_columns({"w": "v + 1"})
    calls.clear()
    view.refresh()
    assert not calls


def test_a_view_can_go_back_to_an_older_version(tables: TableConnection) -> None:
    source, view = made(tables)
    version = source.version
    view.refresh()
    before = rows_of(view)
    of_lance(source).update({"v": "v * 2"}, where="id > 2")
    of_lance(source).delete("id = 0")
    view.refresh()
    assert rows_of(view) != before
    view.refresh(src_version=version)
    assert rows_of(view) == before


def test_a_change_of_the_function_computes_all_rows_anew(tables: TableConnection) -> None:
    _, view = made(tables)
    view.refresh()
    view.alter_columns({"path": "sq", "udf": cube})
    assert view.plan_refresh().total_rows_pending == 4
    view.refresh()
    assert [row["sq"] for row in rows_of(view)] == [1, 27, 64, 125]
    assert not view.plan_refresh().has_work


def test_a_view_of_a_view_follows_it(tables: TableConnection) -> None:
    source, view = made(tables)
    view.refresh()
    query = view.search(None).where("sq > 10").select({"twice": "2 * sq", "id": "id"})
    second = tables.create_materialized_view("second", query)
    second.refresh()
    assert {row["id"]: row["twice"] for row in rows_of(second)} == {3: 32, 4: 50}
    of_lance(source).update({"v": "7"}, where="id = 3")
    assert second.refresh().rows_refreshed == 0
    view.refresh()
    assert second.plan_refresh().total_rows_pending == 1
    second.refresh()
    assert {row["id"]: row["twice"] for row in rows_of(second)} == {3: 98, 4: 50}


def test_rows_that_are_counted_are_counted_anew(tables: TableConnection) -> None:
    source = tables.create_table("src", [{"id": id_, "v": id_} for id_ in range(6)])
    query = source.search(None).where("v < 100").select({"id": "id", "sq": square}).offset(1).limit(3)
    view = tables.create_materialized_view("mv", query)
    view.refresh()
    assert [row["id"] for row in rows_of(view)] == [1, 2, 3]
    of_lance(source).delete("id IN (0, 2)")
    calls.clear()
    view.refresh()
    assert [row["id"] for row in rows_of(view)] == [3, 4, 5]
    assert calls == [4, 5]


def test_a_view_without_rows_gets_several_fragments(tables: TableConnection) -> None:
    source = tables.create_table("src", schema=pa.schema([("v", pa.int64())]))
    view = tables.create_materialized_view("mv", source.search(None).select({"v": "v"}))
    view.refresh()
    source.add([{"v": v} for v in range(5)])
    view.refresh(max_rows_per_fragment=2)
    assert sorted(row["v"] for row in rows_of(view)) == [0, 1, 2, 3, 4]
    assert len(of_lance(view).get_fragments()) == 3


def test_columns_of_the_query_are_the_views_own(tables: TableConnection) -> None:
    source, view = made(tables)
    view.refresh()
    for change in (
        lambda: view.backfill("sq"),
        lambda: view.drop_columns(["v"]),
        lambda: view.alter_columns({"path": "id", "rename": "number"}),
        lambda: view.update("id = 0", {"v": 7}),
        lambda: view.load_columns("none.parquet", "id", ["v"]),
    ):
        with pytest.raises(UsageError, match="columns of the view"):
            change()
    for change in (lambda: view.delete("id = 0"), lambda: view.add([{"id": 7}]), lambda: view.add([], "overwrite")):
        with pytest.raises(UsageError, match="only a refresh changes the rows of the view 'mv'"):
            change()
    view.add_columns({"twice": cube.with_inputs(["sq"])})
    view.backfill("twice")
    source.add([{"id": 9, "v": 2}])
    view.refresh()
    assert [row["twice"] for row in rows_of(view)] == [1, 729, 4096, 15_625, None]


def test_rows_that_another_tool_took_from_a_view_or_gave_it_are_made_good(tables: TableConnection) -> None:
    source, view = made(tables)
    view.refresh()
    wanted = rows_of(view)
    of_lance(view).delete("id = 2")
    assert view.plan_refresh().total_rows_pending == 4
    view.refresh()
    assert rows_of(view) == wanted and not view.plan_refresh().has_work
    of_lance(view).insert(pa.table({"id": [77]}))
    view.refresh()
    assert rows_of(view) == wanted
    source.add([{"id": 9, "v": 2}])
    assert view.refresh().rows_refreshed == 1


def test_values_that_another_tool_wrote_in_place_are_followed(tables: TableConnection) -> None:
    source, view = made(tables)
    view.refresh()
    dataset = of_lance(source)
    new = pa.table({"_rowid": pa.array([2], pa.uint64()), "v": [10]})
    fragment, fields = dataset.get_fragments()[0].update_columns(new)
    update = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    lance.LanceDataset.commit(source.uri, update, read_version=dataset.version)
    assert view.refresh().rows_refreshed == 4
    assert [row["sq"] for row in rows_of(view)] == [1, 100, 16, 25]


@pytest.mark.parametrize("column", ["id", "v"])
def test_a_source_that_lacks_what_is_asked_for_fails_the_refresh(tables: TableConnection, column: str) -> None:
    """``id`` is in the condition, and ``v`` is an input of the function."""
    source = tables.create_table("src", [{"id": id_, "v": id_, "w": 0} for id_ in range(3)])
    view = tables.create_materialized_view("mv", source.search(None).where("id < 2").select({"w": "w", "sq": square}))
    view.refresh()
    source.alter_columns({"path": column, "rename": "other"})
    for call in (view.plan_refresh, view.refresh):
        with pytest.raises(
            (UsageError, JobFailedError),
            match=f"'src' no longer has the view's columns: .*there is no column '{column}'",
        ):
            call()
    source.alter_columns({"path": "other", "rename": column})
    assert view.refresh().rows_refreshed == 0


def test_a_refresh_does_not_bring_a_view_back_to_what_it_found_first(tables: TableConnection) -> None:
    source, view = made(tables)
    lease = Lease.take(located(view.uri) / COMPUTED, name="refresh")  # as of another refresh, which is not done
    waiting = view.refresh_async()
    source.add([{"id": 9, "v": 2}])
    lease.release()
    waiting.result(60)
    assert rows_of(view)[-1]["sq"] == 4 and not view.plan_refresh().has_work


@udf
def size(blob: bytes | None) -> int | None:
    return None if blob is None else len(blob)


def test_a_table_of_blobs_takes_rows_and_has_views(tables: TableConnection) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), blob])
    given = [{"id": 0, "blob": b"a"}, {"id": 1, "blob": None}, {"id": 2, "blob": b"x" * 100_000}]
    source = tables.create_table("src", given, schema=schema)
    query = source.search(None).select({"id": "id", "blob": "blob", "size": size})
    view = tables.create_materialized_view("mv", query)
    view.refresh()
    source.add([{"id": 3, "blob": b"abc"}])
    source.delete("id = 0")
    assert view.refresh().rows_refreshed == 1
    assert source.to_arrow().to_pylist() == [*given[1:], {"id": 3, "blob": b"abc"}]
    assert [row["blob"] for row in rows_of(view)] == [None, b"x" * 100_000, b"abc"]
    assert [row["size"] for row in rows_of(view)] == [None, 100_000, 3]


def test_a_source_that_was_replaced_makes_the_view_anew(tables: TableConnection) -> None:
    _, view = made(tables)
    view.refresh()
    tables.drop_table("src")
    source = tables.create_table("src", [{"id": 7, "v": 3}])
    source.add([{"id": 8, "v": 4}])
    view.refresh()
    assert [(row["id"], row["sq"]) for row in rows_of(view)] == [(7, 9), (8, 16)]
    source.update("id = 7", {"v": 5})
    source.cleanup_old_versions(timedelta(0), delete_unverified=True)
    calls.clear()
    view.refresh()
    assert sorted(calls) == [4, 5]
    assert [(row["id"], row["sq"]) for row in rows_of(view)] == [(7, 25), (8, 16)]


def test_a_source_without_lasting_ids_is_pinned(tables: TableConnection, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": [1, 2]}), tmp_path / "plain.lance")
    source = tables.open_table("plain")
    view = tables.create_materialized_view("mv", source.search(None).select(["id"]))
    assert view.refresh().status == "DONE"
    assert [(row["__source_row_id"], row["id"]) for row in rows_of(view)] == [(0, 1), (1, 2)]
    of_lance(source).insert(pa.table({"id": [3]}))
    told = (
        r"version 2: it is pinned to source version 1\.\n\nUse refresh\(src_version=1\)\. Note that the view will not"
    )
    with pytest.raises(PinnedViewError, match=told) as raised:
        view.refresh()
    assert isinstance(raised.value, RuntimeError)
    assert view.refresh(src_version=1).rows_refreshed == 0


def test_a_refresh_whose_function_fails_changes_nothing_and_the_next_goes_on(tables: TableConnection) -> None:
    source = tables.create_table("src", [{"v": v} for v in (1, 2, 13, 4)])
    view = tables.create_materialized_view("mv", source.search(None).select({"v": "v", "sq": square}))
    version = view.version
    with pytest.raises(JobFailedError):
        view.refresh(checkpoint_size=1, batch_checkpoint_flush_interval_seconds=0)
    assert view.version == version
    assert view.get_errors()[0].error_type == "ValueError"
    of_lance(source).update({"v": "5"}, where="v = 13")
    calls.clear()
    view.refresh()
    assert sorted(row["sq"] for row in rows_of(view)) == [1, 4, 16, 25]
    assert [job.status for job in view.jobs()] == ["FAILED", "DONE"]


def test_what_no_view_does_is_refused(tables: TableConnection) -> None:
    source, view = made(tables)
    with pytest.raises(UnsupportedCallError, match="where clauses on materialized view refresh not implemented yet"):
        view.refresh(where="id = 1")
    with pytest.raises(ValueError, match="output_limit is only valid for chunker-backed"):
        view.refresh(output_limit=3)
    with pytest.raises(UsageError, match=r"Destination dataset must have view metadata\."):
        source.refresh()
    with pytest.raises(AlreadyExistsError):
        tables.create_materialized_view("mv", source.search(None))
    for query in (source.search(None).where("id >"), source.search(None).where("_rowaddr > 1")):
        with pytest.raises(UsageError):
            tables.create_materialized_view("other", query)
    assert tables.table_names() == ["mv", "src"]


def test_a_condition_that_says_something_else_each_time_is_told_of(
    tables: TableConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, view = made(tables)
    monkeypatch.setattr(FragmentReader, "count", lambda *_: 3)  # of four
    with pytest.raises(JobFailedError, match="must be deterministic"):
        view.refresh()


def test_two_refreshes_at_once_do_the_work_once(tables: TableConnection) -> None:
    source = tables.create_table("src", [{"v": v} for v in range(50, 400)])
    view = tables.create_materialized_view("mv", source.search(None).select({"v": "v", "sq": square}))
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(view.refresh().rows_refreshed)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 0, 0, 350]
    assert sorted(calls) == list(range(50, 400))


@pytest.mark.quick
def test_a_refresh_runs_on_spark(tables: TableConnection, spark: object) -> None:
    source = tables.create_table("src", [{"v": v} for v in range(100, 160)])
    query = source.search(None).where("v % 2 = 0").select({"v": "v", "third": cube})
    view = tables.create_materialized_view("mv", query)
    view.refresh(executor="spark", task_size=16)
    source.update("v < 103", {"v": 104})
    assert view.refresh(executor="spark").rows_refreshed == 3
    assert sorted(row["third"] for row in rows_of(view)) == sorted([104**3] * 3 + [v**3 for v in range(104, 160, 2)])


def test_tables_of_a_connection(tables: TableConnection, tmp_path: Path) -> None:
    first = tables.create_table("a", pa.table({"x": [1]}))
    assert of_lance(first).has_stable_row_ids
    with pytest.raises(AlreadyExistsError):
        tables.create_table("a", pa.table({"x": [1]}))
    assert tables.create_table("a", schema=pa.schema([("x", pa.int64())]), exist_ok=True).count_rows() == 1
    assert tables.create_table("a", [{"y": "z"}], mode="overwrite").to_arrow().to_pylist() == [{"y": "z"}]
    assert pickle.loads(pickle.dumps(tables)).open_table("a").count_rows() == 1
    tables.drop_table("a")
    assert tables.table_names() == []
    with pytest.raises(NotFoundError):
        tables.open_table("a")
    with pytest.raises(UsageError):
        tables.create_table("../a", [{"x": 1}])
    with pytest.raises(UnsupportedCallError, match="db://"):
        connect("db://somewhere")

    async def all_of_it() -> list[str]:
        own = await connect_async(str(tmp_path / "other"))
        await own.create_table("b", [{"x": 1}])
        return await own.table_names()

    assert asyncio.run(all_of_it()) == ["b"]


def test_a_reference_to_a_table_is_small_and_travels(tables: TableConnection, tmp_path: Path) -> None:
    tables.create_table("a", [{"x": 1}])
    data = pickle.dumps(TableReference(str(tmp_path), "a"))
    assert len(data) < 1000
    reference = pickle.loads(data)
    assert reference.open().count_rows() == 1
    assert reference.open_db().table_names() == ["a"]
    assert reference.open_checkpoint_store().keys() == []
    assert reference.storage_options is None
    assert reference.namespace_client_properties is None
    assert reference.namespace_client_pushdown_operations is None
    assert reference.as_system_table("jobs").table_uri == str(tmp_path / "jobs.lance")

    async def opened() -> list[list[str]]:
        return [
            await (await one).table_names() for one in (reference.open_db_async(), reference.open_system_db_async())
        ]

    assert asyncio.run(opened()) == [["a"], ["a"]]


def test_a_reference_opens_its_version_or_says_that_it_is_gone(tables: TableConnection, tmp_path: Path) -> None:
    newest = tables.create_table("a", [{"x": 1}])
    newest.add([{"x": 2}])
    newest.delete("x = 1")
    reference = pickle.loads(pickle.dumps(TableReference(str(tmp_path), "a", 1)))
    table = reference.open()
    assert (table.version, table.count_rows(), table.to_arrow()["x"].to_pylist()) == (1, 1, [1])
    for _ in range(2):
        assert table.search(None).to_arrow()["x"].to_pylist() == [1]
    newest.add([{"x": 3}])
    assert table.count_rows("x > 1") == 0 and table.search(None).where("x > 1").to_arrow().num_rows == 0
    assert TableReference(str(tmp_path), "a").open().to_arrow()["x"].to_pylist() == [2, 3]
    assert tables.open_table("a", version=2).count_rows() == 2
    with pytest.raises(NotFoundError, match="has no version 9"):
        TableReference(str(tmp_path), "a", 9).open()
    newest.cleanup_old_versions(timedelta(), delete_unverified=True)
    with pytest.raises(NotFoundError, match="has no version 1"):
        reference.open()
    with pytest.raises(NotFoundError, match="has no version 1"):
        table.count_rows()


def test_a_version_that_is_read_is_not_changed(tables: TableConnection) -> None:
    newest = tables.create_table("a", [{"x": 1}])
    newest.add_columns({"y": two})
    newest.add([{"x": 2}])
    view = tables.create_materialized_view("v", newest.search(None).select(["x"]))
    view.refresh(executor="inline")
    table, old = tables.open_table("a", version=2), tables.open_table("v", version=1)
    changes: list[Callable[[], object]] = [
        lambda: table.add([{"x": 3}]),
        lambda: table.add([{"x": 3}], mode="overwrite"),
        lambda: table.delete("x = 1"),
        lambda: table.update("x = 1", {"x": 2}),
        lambda: table.add_columns({"z": "x + 1"}),
        lambda: table.add_columns({"z": two}),
        lambda: table.backfill("y", udf=two),
        lambda: table.create_scalar_index("x"),
        lambda: table.drop_columns(["y"]),
        table.optimize,
        table.cleanup_old_versions,
        lambda: old.refresh(executor="inline"),
    ]
    for change in changes:
        with pytest.raises(ValueError, match=r"this is version [12] of table '[av]', which is read-only"):
            change()
        assert (newest.version, view.version) == (3, 2)


@udf(data_type=pa.int64())
def two(x: int) -> int:
    return 2 * x


def test_a_view_follows_a_restoration_of_its_source_when_it_is_refreshed(tables: TableConnection) -> None:
    """Until then it keeps its rows, and says which version of the source they are of."""
    source, view = made(tables)
    view.refresh()
    before, number = rows_of(view), source.version
    source.update("id = 2", {"v": 20})
    source.delete("id = 3")
    source.add([{"id": 7, "v": 8}])
    view.refresh()
    changed = rows_of(view)
    calls.clear()
    source.restore(number)
    assert rows_of(view) == changed != before
    view.refresh()
    assert rows_of(view) == before and sorted(calls) == [3, 4]
    source.add([{"id": 9, "v": 10}])
    view.refresh()
    assert rows_of(view)[:-1] == before and rows_of(view)[-1]["sq"] == 100


def test_a_restored_view_goes_on_from_its_own_version_of_the_source(tables: TableConnection) -> None:
    source, view = made(tables)
    view.refresh()
    number = view.version
    source.add([{"id": 7, "v": 8}])
    view.refresh()
    whole = rows_of(view)
    view.restore(number)
    assert len(rows_of(view)) == len(whole) - 1
    view.refresh()
    assert [row["sq"] for row in rows_of(view)] == [row["sq"] for row in whole]


def test_a_restored_column_has_the_values_of_its_version_and_is_not_said_to_be_current(tables: TableConnection) -> None:
    source = tables.create_table("numbers", [{"v": 1}, {"v": 2}])
    source.add_columns({"sq": square})
    source.backfill("sq")
    filled = source.version
    source.update("v = 2", {"v": 5})
    stale = source.version
    source.backfill("sq", recompute_stale=True)
    assert sorted(source.to_arrow()["sq"].to_pylist()) == [1, 25]
    source.restore(stale)
    assert sorted(source.to_arrow()["sq"].to_pylist()) == [1, 4] and source.plan_backfill("sq").stale_rows == 1
    source.restore(filled)
    assert sorted(source.to_arrow()["sq"].to_pylist()) == [1, 4] and not source.plan_backfill("sq").stale_rows
    source.restore(1)
    assert source.schema.names == ["v"]
