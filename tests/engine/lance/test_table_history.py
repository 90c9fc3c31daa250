"""Versions of tables: at, list_versions, tag, untag, restore and diff, of a catalog's tables and of computed ones."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import lance
import numpy as np
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import AlreadyExistsError, CatalogClient, NotFoundError, TableEntry
from chunkmill.engine.errors import UnsupportedCallError, UsageError
from chunkmill.engine.tables import Table, connect

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata={"rerun:is_table_index": "true"}), ("x", "f8")])


@pytest.fixture
def client(tmp_path: Path) -> CatalogClient:
    return CatalogClient(tmp_path / "lake")


@pytest.fixture
def table(client: CatalogClient) -> TableEntry:
    """A table of four versions: empty, of rows 1 and 2, of rows 1 to 3, and with another 2."""
    table = client.create_table("drives", SCHEMA)
    table.append(id=[1, 2], x=[0.1, 0.2])
    table.append(id=3, x=0.3)
    table.upsert(id=2, x=2.0)
    return table


WANTED = [[], [(1, 0.1), (2, 0.2)], [(1, 0.1), (2, 0.2), (3, 0.3)], [(1, 0.1), (2, 2.0), (3, 0.3)]]


def seen(table: Any) -> list[tuple[Any, ...]]:
    """The rows of a table by each way of reading it, in order."""
    rows = table.to_arrow() if isinstance(table, Table) else table.reader().to_arrow_table()
    if isinstance(table, TableEntry):
        assert table.to_arrow_reader().read_all().sort_by("id") == rows.sort_by("id").cast(table.arrow_schema())
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def test_each_version_is_read_as_it_was(table: TableEntry) -> None:
    then = [table.at(number) for number in (1, 2, 3, 4)]
    table.overwrite(pa.table({"other": ["a"]}))
    assert [seen(version) for version in then] == WANTED == [seen(table.at(n)) for n in (1, 2, 3, 4)]
    assert then[1].version == 2 and table.version is None and "version=2" in repr(then[1])
    assert seen(then[1].computed()) == WANTED[1] and then[1].arrow_schema().names == ["id", "x"]


def test_versions_are_listed_with_what_made_them(table: TableEntry) -> None:
    table.tag("first", 2)
    rows = table.list_versions().to_pylist()
    assert [(row["operation"], row["rows"]) for row in rows] == [
        ("create", 0),
        ("append", 2),
        ("append", 3),
        ("update", 3),
    ]
    assert {row["author"] for row in rows} == {getpass.getuser()}
    assert [row["tags"] for row in rows] == [[], ["first"], [], []]
    lance.dataset(table.storage_url.removeprefix("file://")).delete("id = 1")
    row = table.list_versions().to_pylist()[-1]
    assert (row["author"], row["operation"], row["rows"]) == (None, "delete", 2)


def test_authors_outlive_a_cleanup(table: TableEntry) -> None:
    table.tag("kept", 2)
    table.do_maintenance(cleanup_before=timedelta(), unsafe_allow_recent_cleanup=True)
    rows = table.list_versions().to_pylist()
    assert [(row["version"], row["author"]) for row in rows] == [(2, getpass.getuser()), (4, getpass.getuser())]


def test_a_time_means_the_version_that_was_the_newest_then(table: TableEntry) -> None:
    for number, made_at in enumerate(table.list_versions()["made_at"].to_pylist(), 1):
        for point in (made_at, made_at.replace(tzinfo=None), np.datetime64(made_at.replace(tzinfo=None)), str(made_at)):
            assert table.at(point).version == number
    assert table.at(datetime.now(UTC)).version == 4
    with pytest.raises(UsageError, match="is in the future"):
        table.at(datetime.now(UTC) + timedelta(hours=1))


def test_a_tag_keeps_its_version_until_it_goes(table: TableEntry) -> None:
    assert table.tag("v1.0", 2) == 2 and table.tag("now") == 4 and table.tags() == {"now": 4, "v1.0": 2}
    assert lance.dataset(table.storage_url.removeprefix("file://"), version="v1.0").version == 2
    pinned = table.at("v1.0")

    def cleaned() -> None:
        table.do_maintenance(compact_fragments=True, cleanup_before=timedelta(), unsafe_allow_recent_cleanup=True)

    cleaned()
    assert seen(pinned) == WANTED[1] and table.at("now").version == 4
    with pytest.raises(NotFoundError, match="table 'drives' has no version 3: it was removed"):
        table.at(3)
    with pytest.raises(AlreadyExistsError, match=r"tag 'now' already names version 4.*move=True"):
        table.tag("now", 2)
    assert table.tag("now", 2, move=True) == 2 and table.tag("now", "v1.0") == 2
    table.untag("v1.0")
    table.untag("now")
    cleaned()
    with pytest.raises(NotFoundError, match="the table has no version 2"):
        seen(pinned)
    with pytest.raises(NotFoundError, match=r"there is no tag 'v1.0'"):
        table.untag("v1.0")


def test_restore_is_a_commit_on_top(table: TableEntry) -> None:
    assert table.restore(2) == 5 and seen(table) == WANTED[1]
    assert [seen(table.at(n)) for n in (1, 2, 3, 4)] == WANTED
    row = table.list_versions().to_pylist()[-1]
    assert (row["operation"], row["restored"], row["rows"], row["author"]) == ("restore", 2, 2, getpass.getuser())
    assert table.restore(5) == 5
    table.append(id=9, x=0.9)
    assert seen(table) == [*WANTED[1], (9, 0.9)]
    assert table.diff(4)["_change"].to_pylist() == ["added", "changed", "removed"]
    assert not table._table().verify().faults


def test_diff_has_the_rows_that_are_not_the_same(table: TableEntry) -> None:
    def changes(*points: Any, **options: Any) -> list[tuple[Any, ...]]:
        rows = table.diff(*points, **options).drop_columns(["_rowid"]).to_pylist()
        return [tuple(row.values()) for row in rows]

    assert changes(2, 3) == [("added", 3, 0.3)]
    assert changes(2, 4) == changes(2) == [("added", 3, 0.3), ("changed", 2, 2.0)]
    assert changes(3, 1) == [("removed", *row) for row in WANTED[2]]
    assert changes(2, columns=["x"]) == [("added", 0.3), ("changed", 2.0)]
    table.do_maintenance(compact_fragments=True)
    assert changes(4) == [] and table.at(3).diff(2)["_change"].to_pylist() == ["added"]
    table.overwrite(pa.table({"other": ["a"]}))
    assert {row[0] for row in changes(4)} <= {"added", "changed", "removed"} and changes(4)[0][-1] is None
    with pytest.raises(UsageError, match=r"there is no column 'y'. There are: other, id, x"):
        table.diff(4, columns=["y"])


def test_rows_without_ids_that_last_are_not_compared(client: CatalogClient, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "other")
    table = client.register_table("other", str(tmp_path / "other"))
    assert table.list_versions().to_pylist()[0]["author"] is None
    with pytest.raises(UnsupportedCallError, match="has no stable row ids"):
        table.diff(1)


READS: Final = """
    arrow_schema at blueprints catalog check_changeable computed created_at default_blueprint df diff
    has_blueprint_dataset id kind list_versions name near_duplicates reader sample snapshot spark_rows storage_url tags
    to_arrow_reader to_spark updated_at version blueprint_dataset
"""
WRITES: dict[str, tuple[Any, ...]] = {
    "append": (),
    "delete": (),
    "do_maintenance": (),
    "overwrite": (),
    "register_blueprint": ("/a.rbl",),
    "restore": (1,),
    "set_blueprints": (None, None),
    "set_default_blueprint": (None,),
    "set_name": ("other",),
    "tag": ("a",),
    "untag": ("a",),
    "update_rows": (),
    "upsert": (),
    "update": (),
}


def test_every_public_method_either_reads_or_is_refused(table: TableEntry) -> None:
    public = {name for name in dir(TableEntry) if not name.startswith("_")}
    assert public == {*READS.split(), *WRITES}, "say of a new method whether it changes anything"
    pinned = table.at(2)
    for name, arguments in WRITES.items():
        call: Callable[..., Any] = getattr(pinned, name)
        with pytest.raises(UsageError, match="this is version 2 of 'drives', which is read-only"):
            call(name="other") if name == "update" else call(*arguments)
    for change in (lambda t: t.tag("a"), lambda t: t.untag("a"), lambda t: t.restore(1), lambda t: t.add([{"id": 5}])):
        with pytest.raises(UsageError, match="this is version 2 of table 'drives', which is read-only"):
            change(pinned.computed())
    with pytest.raises(UsageError, match="this is version 2"):
        pinned.computed().cleanup_old_versions(timedelta())
    with pytest.raises(UnsupportedCallError, match="whose versions are those of the catalog"):
        table.catalog.get_table("__entries").tags()


@pytest.mark.parametrize("name", ["", "5", "a/b", "a'b", "..", "a.lock", 5])
def test_a_name_that_no_tag_can_have_is_refused(table: TableEntry, name: Any) -> None:
    with pytest.raises(UsageError, match="is not a valid tag name"):
        table.tag(name)


def test_a_connection_opens_a_version_by_number_time_and_tag(tmp_path: Path) -> None:
    connection = connect(tmp_path)
    table = connection.create_table("a", [{"x": 1}])
    table.add([{"x": 2}])
    table.tag("one", 1)
    made_at = table.list_versions()["made_at"][0].as_py()
    for version in (1, "one", made_at):
        opened = connection.open_table("a", version=version)
        assert opened.version == 1 and opened.to_arrow()["x"].to_pylist() == [1]
    assert table.diff(1)["x"].to_pylist() == [2] and table.restore("one") == 3
    with pytest.raises(NotFoundError, match=r"table 'a' has no tag 'two'. There are: one"):
        connection.open_table("a", version="two")


def test_an_older_file_of_digests_says_nothing_of_who_made_a_version(table: TableEntry) -> None:
    import xxhash

    folder = Path(table.storage_url.removeprefix("file://"), "_digests")
    path = sorted(folder.iterdir())[0]
    body = json.loads(path.read_bytes().partition(b"\n")[2])
    del body["authors"]
    data = json.dumps(body).encode()
    path.write_bytes(xxhash.xxh3_128_hexdigest(data).encode() + b"\n" + data)
    authors = [row["author"] for row in table.list_versions().to_pylist()]
    assert authors == [None, *[getpass.getuser()] * 3]
