"""Tables of a catalog: made, registered, written in every form, by many at once, and read by name in SQL."""

from __future__ import annotations

import datetime
import decimal
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import datafusion
import lance
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunkmill.engine.catalog import (
    AlreadyExistsError,
    CatalogClient,
    NotFoundError,
    Server,
    TableEntry,
    TableInsertMode,
)
from chunkmill.engine.errors import ReadError, UnsupportedError, UsageError, WriteError
from datafusion import DataFrameWriteOptions, InsertOp, SessionContext, col, lit

KEY = {"rerun:is_table_index": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int32(), metadata=KEY), ("v", pa.string())])
STRICT = SCHEMA.set(0, SCHEMA.field("id").with_nullable(False))


@pytest.fixture
def client(tmp_path: Path) -> CatalogClient:
    return CatalogClient(tmp_path / "lake")


@pytest.fixture
def table(client: CatalogClient) -> TableEntry:
    return client.create_table("t", SCHEMA)


def batch(*ids: int | None, v: str = "x") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids), "v": [v] * len(ids)}, schema=SCHEMA)


def ids(table: TableEntry) -> list[int]:
    return sorted(table.to_arrow_reader().read_all()["id"].to_pylist())


# --- making


def test_a_table_lies_below_its_url_or_in_the_catalog(client: CatalogClient, tmp_path: Path) -> None:
    first = client.create_table("a", SCHEMA, (tmp_path / "shared").as_uri())
    second = client.create_table("b", SCHEMA, tmp_path / "shared")
    third = client.create_table("c", SCHEMA)
    assert {Path(t.storage_url.removeprefix("file://")).parent for t in (first, second)} == {tmp_path / "shared"}
    assert third.storage_url == (tmp_path / "lake" / "tables" / str(third.id)).as_uri()
    shutil.move(tmp_path / "lake", tmp_path / "moved")
    assert CatalogClient(tmp_path / "moved").get_table("c").reader().count() == 0


def test_a_table_whose_name_was_taken_meanwhile_leaves_nothing(client: CatalogClient, tmp_path: Path) -> None:
    client.create_dataset("t")
    with pytest.raises(AlreadyExistsError):
        client.create_table("t", SCHEMA, tmp_path / "data")
    with ThreadPoolExecutor(4) as threads:
        made = list(
            threads.map(lambda _: _outcome(lambda: client.create_table("u", SCHEMA, tmp_path / "data")), range(4))
        )
    assert sorted(type(one).__name__ for one in made) == ["AlreadyExistsError"] * 3 + ["TableEntry"]
    assert len(list((tmp_path / "data").glob("*/_versions"))) == 1


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 (it is looked at)
        return error


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (pa.schema([("a.b", pa.int8())]), "cannot contain"),
        (pa.schema([("x", pa.month_day_nano_interval())]), "Unsupported data type"),
        (pa.schema([("_rowid", pa.int8())]), "reserved name"),
    ],
)
def test_columns_that_lance_lacks_are_told(client: CatalogClient, schema: pa.Schema, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        client.create_table("t", schema)
    assert client.table_names() == []


def test_columns_come_back_as_they_were_given(client: CatalogClient) -> None:
    fields = [
        pa.field("a", pa.uint64(), False, {"of": "mine"}),
        pa.field("b", pa.list_(pa.float32(), 2)),
        pa.field("/c:d e", pa.dictionary(pa.int32(), pa.string())),
        pa.field("D", pa.duration("ns")),
        pa.field("e", pa.struct([pa.field("f", pa.decimal128(9, 2))])),
        pa.field("g", pa.map_(pa.string(), pa.large_string())),
    ]
    schema = pa.schema(fields, {"sorbet:version": "0.1.3", "mine": "too"})
    made = client.create_table("t", schema)
    assert made.arrow_schema().equals(schema, check_metadata=True)
    assert made.reader().schema().equals(schema, check_metadata=True)
    assert client.create_table("k", STRICT).arrow_schema().field("id").metadata == {b"rerun:is_table_index": b"true"}


def test_a_registered_table_is_that_of_others(client: CatalogClient, tmp_path: Path) -> None:
    place = tmp_path / "foreign"
    lance.write_dataset(pa.table({"k": [1]}), place)
    first, second = client.register_table("first", place), client.register_table("second", place.as_uri())
    first.append(k=2)
    lance.write_dataset(pa.table({"k": [3]}), place, mode="append")
    assert second.reader().count() == 3
    first.delete()
    assert second.reader().count() == 3
    shutil.rmtree(place)
    with pytest.raises(NotFoundError, match="there is no Lance table here"):
        second.reader()


def test_a_server_has_tables(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"k": [1]}), tmp_path / "foreign")
    with Server(tables={"t": tmp_path / "foreign"}) as server:
        assert server.client().table_names() == ["t"]


def test_a_damaged_table_says_so(table: TableEntry) -> None:
    table.append(id=1)
    folder = Path(table.storage_url.removeprefix("file://"))
    frame = table.reader()
    for file in folder.glob("data/*"):
        file.write_bytes(b"no data")
    with pytest.raises(ReadError, match="table 't' cannot be read"):
        frame.collect()
    for file in folder.glob("_versions/*"):
        file.write_bytes(b"no manifest")
    with pytest.raises(ReadError, match="table 't' cannot be read"):
        table.arrow_schema()


def test_the_table_of_entries_cannot_be_written(client: CatalogClient) -> None:
    entries = client.get_table("__entries")
    for write in (entries.append, entries.overwrite, entries.upsert, entries.update_rows):
        with pytest.raises(UsageError, match="the catalog's own table"):
            write(id=1)
    with pytest.raises(UnsupportedError):
        entries.__datafusion_table_provider__()


# --- writing


class Stream:
    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


FORMS: dict[str, Callable[[], Any]] = {
    "batch": lambda: batch(1, 2),
    "list": lambda: [batch(1), batch(2)],
    "lists": lambda: [[batch(1)], [], (batch(2),)],
    "reader": lambda: pa.RecordBatchReader.from_batches(SCHEMA, [batch(1), batch(2)]),
    "table": lambda: pa.Table.from_batches([batch(1), batch(2)]),
    "stream": lambda: Stream(pa.Table.from_batches([batch(1, 2)])),
    "pandas": lambda: pd.DataFrame({"id": [1, 2], "v": "x"}),
    "datafusion": lambda: SessionContext().create_dataframe([[batch(1, 2)]]),
    "views": lambda: pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array(["x", "x"], pa.string_view())}),
    "dictionaries": lambda: pa.table(
        {"id": pa.array([1, 2], pa.int32()), "v": pa.array(["x"] * 2).dictionary_encode()}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_taken_in_every_form(table: TableEntry, form: str) -> None:
    for write in (table.append, table.upsert, table.overwrite):
        write(FORMS[form]())
        assert table.reader().sort(col("id")).to_pydict() == {"id": [1, 2], "v": ["x", "x"]}
    assert table.snapshot().version == 4


def test_values_by_name_are_those_of_the_column(client: CatalogClient) -> None:
    types = {
        "i": pa.int8(),
        "l": pa.list_(pa.int8()),
        "f": pa.list_(pa.float32(), 2),
        "s": pa.struct([("a", pa.int8())]),
        "b": pa.binary(),
        "t": pa.timestamp("us", "UTC"),
        "m": pa.map_(pa.string(), pa.int8()),
    }
    table = client.create_table("t", pa.schema(list(types.items())))
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    table.append(i=np.int8(1), l=[1, 2], f=np.array([0.5, 1]), s={"a": 1}, b=b"ab", t=now, m=[("k", 1)])
    one = {"i": 1, "l": [1, 2], "f": [0.5, 1.0], "s": {"a": 1}, "b": b"ab", "t": now, "m": [("k", 1)]}
    table.append(**{name: [value] for name, value in one.items()})
    table.append(i=pa.array([1]), f=np.array([[0.5, 1]]))
    assert table.to_arrow_reader().read_all().to_pylist() == [
        one,
        one,
        dict.fromkeys(types) | {"i": 1, "f": [0.5, 1.0]},
    ]
    table.append(i=[2, 3], l=[None, []])
    assert table.reader().count() == 5
    with pytest.raises(pa.ArrowException):
        table.append(m=[("k", 1.5)])
    with pytest.raises(KeyError, match="Column zz does not exist in schema"):
        table.append(zz=1)


def test_rows_that_do_not_fit_are_refused_whole(client: CatalogClient, table: TableEntry) -> None:
    strict = client.create_table("strict", STRICT)

    def failing() -> Any:
        yield batch(1)
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        table.append(pa.RecordBatchReader.from_batches(SCHEMA, failing()))
    with pytest.raises(WriteError, match="'id' has nulls, but must not have any"):
        strict.append(v="x")
    with pytest.raises(UsageError, match="two columns with the name 'id'"):
        table.append(pa.table([pa.array([1], pa.int32())] * 2, names=["id", "id"]))
    with pytest.raises(UsageError, match="different schemas"):
        table.append([batch(1), batch(1).select(["id"])])
    with pytest.raises(pa.ArrowInvalid, match="was truncated converting to int32"):
        table.append(pd.DataFrame({"id": [1.5]}))
    for wrong in (5, "rows", {"id": [1]}, [5], iter([{}])):
        with pytest.raises(TypeError, match="Unexpected type"):
            table.append(wrong)
    assert table.snapshot().version == strict.snapshot().version == 1


def test_a_key_stays_a_key_when_rows_are_replaced(client: CatalogClient) -> None:
    for name, schema in (("nullable", SCHEMA), ("strict", STRICT)):
        table = client.create_table(name, schema)
        table.overwrite(pd.DataFrame({"id": [1, 2], "v": ["a", "b"]}))
        assert table.arrow_schema().field("id") == schema.field("id")
        table.upsert(id=2, v="B")
        assert table.reader().sort(col("id")).to_pydict() == {"id": [1, 2], "v": ["a", "B"]}


def test_a_null_is_no_key_and_one_key_is_given_once(table: TableEntry) -> None:
    table.upsert(batch(1, None))
    table.upsert(batch(1, None, v="y"))
    assert table.reader().count() == 3
    with pytest.raises(UsageError, match="Ambiguous merge inserts"):
        table.upsert(batch(1, 1))
    assert table.snapshot().version == 3


@pytest.mark.parametrize("schema", [SCHEMA, STRICT], ids=["nullable", "primary"])
def test_a_new_key_is_given_once_too(client: CatalogClient, schema: pa.Schema) -> None:
    table = client.create_table("t", schema)
    table.append(id=1, v="a")
    twice = pa.table({"id": pa.array([7, 2, 7], pa.int32()), "v": ["x", "y", "z"]}, schema=schema)
    batches = [twice.slice(0, 1).to_batches()[0], twice.slice(1).to_batches()[0]]
    forms: list[Any] = [
        twice,
        batches,
        pa.RecordBatchReader.from_batches(schema, batches),
        Stream(twice),
        twice.to_pandas(),
    ]
    for form in forms:
        with pytest.raises(UsageError, match=r"several rows have the key \(id = 7\)"):
            table.upsert(form)
    assert table.snapshot().version == 2 and table.reader().to_pydict() == {"id": [1], "v": ["a"]}
    table.upsert(twice.slice(1).to_reader())
    assert table.reader().count() == 3


def test_a_key_of_several_fields_is_given_once(client: CatalogClient) -> None:
    fields = [pa.field("a", pa.int32(), metadata=KEY), pa.field("b", pa.string(), metadata=KEY), ("v", pa.string())]
    table = client.create_table("t", pa.schema(fields))
    table.upsert(a=[1, 1, 2, None, None], b=["x", "y", "x", "x", "x"], v=["v"] * 5)
    with pytest.raises(UsageError, match=r"several rows have the key \(a = 3, b = 'x'\)"):
        table.upsert(a=[3, 1, 3], b=["x", "x", "x"], v=["v"] * 3)
    assert table.reader().count() == 5


def test_rows_are_updated_by_key_in_the_columns_that_are_given(client: CatalogClient) -> None:
    schema = STRICT.append(pa.field("flag", pa.bool_(), nullable=False))
    table = client.create_table("t", schema)
    table.append(pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"], "flag": [False] * 3}, schema=schema))
    flags = pa.table({"flag": [True, True], "id": pa.array([2, 9], pa.int32())})
    for form in (flags, flags.to_reader(), Stream(flags)):
        table.update_rows(form)
        found = table.reader().sort(col("id")).to_pydict()
        assert found == {"id": [1, 2, 3], "v": ["a", "b", "c"], "flag": [False, True, False]}
    table.update_rows(id=[1, 9], v=["new", "none"])
    assert table.reader().filter("id = 1").to_pylist() == [{"id": 1, "v": "new", "flag": False}]
    assert table.arrow_schema().remove_metadata() == schema.remove_metadata()
    version = table.snapshot().version
    wrong: list[tuple[Any, type[Exception], str]] = [
        (flags.select(["flag"]), UsageError, "the rows lack fields of the key of table 't': id"),
        (pa.concat_tables([flags, flags]), UsageError, "Ambiguous merge inserts"),
        (flags.append_column("z", [[1, 2]]), WriteError, r"unexpected=\[z\]"),
        (flags.set_column(0, "flag", [[1, 2]]), WriteError, "`flag` should have type bool"),
        (flags.set_column(0, "flag", [[None, True]]), WriteError, "'flag' has nulls"),
    ]
    for rows, error, text in wrong:
        with pytest.raises(error, match=text):
            table.update_rows(rows)
    with pytest.raises(UsageError, match="requires join keys"):
        client.create_table("without", pa.schema([("id", pa.int32())])).update_rows(flags.select(["id"]))
    table.update_rows(flags.slice(0, 0))
    table.update_rows()
    assert table.snapshot().version == version


@pytest.mark.parametrize("schema", [SCHEMA, STRICT], ids=["nullable", "primary"])
def test_all_who_write_at_once_are_heard(client: CatalogClient, schema: pa.Schema) -> None:
    client.create_table("appended", schema)
    client.create_table("upserted", schema)

    def write(number: int) -> None:
        own = CatalogClient(client.url)
        for _ in range(2):
            own.get_table("appended").append(id=number)
            own.get_table("upserted").upsert(id=7, v=str(number))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert ids(client.get_table("appended")) == sorted([0, 1, 2, 3] * 2)
    assert ids(client.get_table("upserted")) == [7]


def test_rows_are_written_again_where_the_table_was_replaced(
    table: TableEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chunkmill.engine.lance import LanceTable

    opened = LanceTable.open
    replaced = []

    def late(self: LanceTable, version: int | None = None) -> Any:
        found = opened(self, version)
        if len(replaced) < 1:
            replaced.append(lance.write_dataset(pa.Table.from_batches([batch(9)]), self.place, mode="overwrite"))
        return found

    monkeypatch.setattr(LanceTable, "open", late)
    table.append(batch(1))
    assert ids(table) == [1, 9]
    replaced.clear()
    with pytest.raises(WriteError, match="the table was replaced while rows of a reader were written") as caught:
        table.append(pa.RecordBatchReader.from_batches(SCHEMA, [batch(2)]))
    assert caught.value.transient
    assert ids(table) == [9]


# --- reading


def test_filters_and_columns_are_lances_or_pyarrows(client: CatalogClient) -> None:
    columns = {
        "i": pa.array([1, 2, None, 4]),
        "s": pa.array(["a", "b", None, "d"], pa.large_string()),
        "t": pa.array([1, 2, None, 4], pa.timestamp("ns")),
        "d": pa.array([1, 2, None, 4], pa.duration("ns")),
        "f": pa.array([1.0, float("nan"), None, 4.0]),
        "n": pa.array([decimal.Decimal(n) for n in "1234"], pa.decimal128(9, 2)),
        "/a:b c": pa.array([[1], [2], None, []]),
        "UP": pa.array([True, False, None, True]),
    }
    rows = pa.table(columns)
    table = client.create_table("t", rows.schema)
    table.append(rows[:2])
    table.append(rows[2:])
    mine, plain = table.reader(), SessionContext().create_dataframe([rows.to_batches()])
    filters = [
        col("i") > lit(1),
        (col("i") > lit(1)) & (col('"UP"')),
        col("s") == lit("b"),
        col("t") > lit(pa.scalar(1, pa.timestamp("ns"))),
        col("d").is_not_null(),
        col("f") > lit(1.0),
        col('"/a:b c"').is_null(),
        ~col('"UP"'),
        col("n") == lit(pa.scalar(decimal.Decimal(3), pa.decimal128(9, 2))),
        (col("i") == lit(1)) | (col("s") == lit("d")),
    ]
    for wanted in filters:
        assert repr(mine.filter(wanted).to_pylist()) == repr(plain.filter(wanted).to_pylist()), wanted
        assert mine.filter(wanted).count() == plain.filter(wanted).count()
        assert mine.filter(wanted).select("d").to_pylist() == plain.filter(wanted).select("d").to_pylist()
    assert mine.count() == 4
    snapshot = table.snapshot()
    assert [b.num_rows for b in snapshot.batches([], pc.field("i") > 1)] == [1, 1]
    assert [b.num_rows for b in snapshot.batches([], fragments=[1])] == [2]


def test_a_table_is_read_in_parts(table: TableEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkmill.engine.lance.expressions._ROWS_OF_A_PART", 2)
    for number in range(5):
        table.append(id=number)
    assert table.snapshot().parts(2) == [[0, 1, 2], [3, 4]]
    assert table.snapshot().parts(9) == [[0, 1], [2, 3], [4]]
    assert sorted(table.reader().to_pydict()["id"]) == list(range(5))


def test_a_frame_reads_what_is_there_when_it_runs(table: TableEntry) -> None:
    frame = table.reader().select("id")
    table.append(id=1)
    assert frame.to_pydict() == {"id": [1]}
    table.overwrite(pa.table({"other": [1]}))
    with pytest.raises(ReadError, match="table 't' has lost columns since the query was planned: id, v"):
        frame.to_pydict()
    table.delete()
    with pytest.raises(NotFoundError, match="Table with name t not found"):
        frame.to_pydict()


def test_a_capsule_is_given_where_versions_agree(client: CatalogClient, table: TableEntry) -> None:
    table.append(id=1)
    if datafusion.__version__.startswith("54."):
        context = SessionContext()
        context.register_table("mine", table)
        assert context.table("mine").to_pydict() == {"id": [1], "v": [None]}
    else:
        with pytest.raises(UnsupportedError, match="Lance needs DataFusion 54"):
            table.__datafusion_table_provider__()


# --- SQL


def test_every_table_is_there_by_its_name(client: CatalogClient) -> None:
    context, other = client.ctx, CatalogClient(client.url)
    for name in ("t", "fleet.drives", "lab.fleet.Arms"):
        other.create_table(name, SCHEMA).append(id=len(name))
    query = 'select t.id, d.id, a.id from t, fleet.drives d, lab.fleet."Arms" a'
    assert context.sql(query).count() == 1
    assert context.table("datafusion.public.t").count() == 1
    assert context.sql("select * from lab.fleet.arms").count() == 1
    assert context.sql("select count(*) n from __entries").to_pydict() == {"n": [4]}
    assert context.catalog("lab").schema("fleet").table("Arms").schema.names == ["id", "v"]
    assert context.catalog_names() == {"datafusion", "lab"}
    assert context.catalog("datafusion").schema_names() >= {"public", "fleet"}
    shown = context.sql("show tables").to_pydict()
    assert {"t", "drives", "Arms", "__entries"} <= set(shown["table_name"])
    other.get_table("t").set_name("u")
    assert context.table("u").count() == 1
    for wrong in ("t", "nope.t", "a.b.c", "fleet.t"):
        with pytest.raises(Exception, match="there is no table or dataset"):
            context.table(wrong)
    assert context.catalog_names() == {"datafusion", "lab"}


def test_what_is_registered_in_a_session_is_beside_the_tables(client: CatalogClient, table: TableEntry) -> None:
    context = client.ctx
    table.append(id=[1, 2])
    context.register_record_batches("mine", [[pa.record_batch({"id": [2]})]])
    context.sql("create view both as select t.id from t join mine on t.id = mine.id").collect()
    assert context.sql("select * from both").to_pydict() == {"id": [2]}
    assert context.from_pydict({"a": [1]}).count() == 1
    with pytest.raises(Exception, match="already exists"):
        context.register_record_batches("t", [[pa.record_batch({"id": [2]})]])
    with pytest.raises(Exception, match="Table 't' doesn't exist"):
        context.sql("drop table t").collect()
    context.deregister_table("mine")
    assert client.table_names() == ["t"]


def test_a_frame_is_written_to_a_table(client: CatalogClient, table: TableEntry) -> None:
    table.append(batch(1, 2, 3))
    frame = client.ctx.sql("select id, 'new' as v from t where id > 1")
    frame.write_table("t")
    assert ids(table) == [1, 2, 2, 3, 3]
    frame.filter(col("id") == lit(2)).distinct().write_table("T", DataFrameWriteOptions(InsertOp.OVERWRITE))
    assert ids(table) == [2]
    client.ctx.sql("select cast(2 as int) as id, 'newest' as v").write_table(
        "t", DataFrameWriteOptions(InsertOp.REPLACE)
    )
    table.reader().write_table("datafusion.public.t", DataFrameWriteOptions(InsertOp.APPEND))
    assert table.reader().to_pydict() == {"id": [2, 2], "v": ["newest", "newest"]}
    client.ctx.from_pydict({"a": [1]}, name="mine").write_table("mine")
    assert client.ctx.table("mine").count() == 2


def test_names_that_sql_lacks_are_refused(client: CatalogClient, table: TableEntry) -> None:
    create, register = partial(client.create_table, schema=SCHEMA), partial(client.register_table, url="/x")
    for name in ("a-b", "a b", "1", "a.1", "a..b", ".a", "a.", "a.b.c.d", "", "a:b", " a"):
        for call in (create, register, table.set_name):
            with pytest.raises(ValueError, match=r"Invalid table name\. sql parser error: "):
                call(name)
    with pytest.raises(TypeError):
        client.create_table(5, SCHEMA)  # type: ignore[arg-type]


def test_older_names_warn_and_do_the_same(client: CatalogClient) -> None:
    with pytest.warns(DeprecationWarning, match=r"Use create_table\(\) instead"):
        table = client.create_table_entry("t", SCHEMA, client.url)
    with pytest.warns(DeprecationWarning, match=r"Use TableEntry.append\(\) instead"):
        client.append_to_table("t", id=[1, 2])
    with pytest.warns(DeprecationWarning, match=r"Use TableEntry.upsert\(\) instead"):
        client.update_table("t", batch(2, 3))
    with pytest.warns(DeprecationWarning, match=r"Use TableEntry.append\(\), overwrite\(\), or upsert\(\) instead"):
        client.write_table("t", batch(3, 4), TableInsertMode.REPLACE)
    assert ids(table) == [1, 2, 3, 4]
    with (
        pytest.warns(DeprecationWarning, match="append"),
        pytest.raises(NotFoundError, match="Table with name nope not found"),
    ):
        client.append_to_table("nope", id=1)


def test_spark_reads_a_version_and_its_frames_are_written(client: CatalogClient, spark: Any) -> None:
    schema = pa.schema([("a", pa.uint16()), ("t", pa.timestamp("ns")), ("l", pa.list_(pa.float32(), 2))])
    table = client.create_table("t", schema)
    table.append(a=[1, 2], t=[1000, None], l=[[1, 2], None])
    frame = table.to_spark()
    table.append(frame.filter("a = 1"))
    assert [row.a for row in frame.collect()] == [1, 2]
    assert table.reader().sort(col("a")).to_pydict()["l"] == [[1.0, 2.0], [1.0, 2.0], None]
