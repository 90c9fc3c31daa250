"""Digests of the files of tables: written by each commit, compared by checks, and before values are made of others."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from chunkmill.engine import verify
from chunkmill.engine.catalog import CatalogClient, TableEntry
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ReadError, SourceMissingError
from chunkmill.engine.faults import PLAN
from chunkmill.engine.lance import LanceTable, TableVerification
from chunkmill.engine.lance.file_digests import FileDigests
from chunkmill.engine.tables import NativeTable, Table, TableConnection, connect, udf
from click.testing import CliRunner

KEY = {"rerun:is_table_index": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), metadata=KEY), ("v", pa.string())])


@udf(data_type=pa.int64())
def twice(id: int) -> int:  # noqa: A002 (the name of a column)
    return 2 * id


@pytest.fixture
def client(tmp_path: Path) -> CatalogClient:
    return CatalogClient(tmp_path / "lake")


@pytest.fixture
def entry(client: CatalogClient) -> TableEntry:
    made = client.create_table("t", SCHEMA)
    made.append(id=list(range(100)), v=[f"v{number}" for number in range(100)])
    return made


@pytest.fixture
def tables(tmp_path: Path) -> TableConnection:
    return connect(str(tmp_path / "tables"), executor="inline")


@pytest.fixture
def table(tables: TableConnection) -> NativeTable:
    made = tables.create_table("t", [{"id": number, "v": f"v{number}"} for number in range(100)])
    made.add([{"id": number, "v": "more"} for number in range(100, 120)])
    return made


def folder_of(table: TableEntry | Table) -> Path:
    return Path(table.storage_url.removeprefix("file://") if isinstance(table, TableEntry) else table.uri)


def verified(table: TableEntry | Table) -> TableVerification:
    found = verify(folder_of(table))
    assert isinstance(found, TableVerification)
    return found


def flip(path: Path, at: int = -20) -> None:
    """Change a bit where a file of Lance has what its ``at`` says."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def is_whole(table: TableEntry | Table) -> bool:
    found = verified(table)
    return not found.faults and not found.undigested and found.digests == found.chunks > 0


# --- commits


COMMITS: dict[str, Callable[[TableEntry], object]] = {
    "append": lambda t: t.append(id=[200], v=["x"]),
    "overwrite": lambda t: t.overwrite(id=[200], v=["x"]),
    "upsert": lambda t: t.upsert(id=[1, 200], v=["x", "y"]),
    "update_rows": lambda t: t.update_rows(id=[1], v=["x"]),
    "delete": lambda t: t.computed().delete("id = 3"),
    "update": lambda t: t.computed().update("id = 3", {"v": "x"}),
    "scalar index": lambda t: t.computed().create_scalar_index("id"),
    "index of words": lambda t: t.computed().create_fts_index("v"),
    "SQL column": lambda t: t.computed().add_columns({"more": "id + 1"}),
    "computed column": lambda t: (
        t.computed().add_columns({"twice": twice}),
        t.computed(executor="inline").backfill("twice", udf=twice),
    ),
    "dropped column": lambda t: t.computed().drop_columns(["v"]),
    "compaction": lambda t: (t.append(id=[200], v=["x"]), t.do_maintenance(compact_fragments=True)),
    "compaction with an index": lambda t: (
        t.computed().create_scalar_index("id"),
        t.append(id=[200], v=["x"]),
        t.do_maintenance(compact_fragments=True),
    ),
    "cleanup": lambda t: (
        t.append(id=[200], v=["x"]),
        t.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True),
    ),
}


@pytest.mark.parametrize("change", COMMITS.values(), ids=COMMITS)
def test_every_commit_leaves_digests_of_all_its_files(
    entry: TableEntry, change: Callable[[TableEntry], object]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        change(entry)
    assert is_whole(entry)
    named = lance.dataset(folder_of(entry)).tracked_files().read_all()["path"].to_pylist()
    assert verified(entry).digests == len(set(named))


def test_a_view_and_its_refreshes_have_digests(tables: TableConnection, table: NativeTable) -> None:
    view = tables.create_materialized_view(
        "few", table.search(None).where("id > 50").select({"id": "id", "two": twice})
    )
    view.refresh(executor="inline")
    table.delete("id = 60")
    view.refresh(executor="inline")
    assert is_whole(view) and verified(view).rows == 68


def test_large_blobs_beside_the_rows_have_digests(client: CatalogClient) -> None:
    schema = pa.schema([("id", pa.int64()), lance.blob_field("image")])
    entry = client.create_table("blobs", schema)
    entry.append(pa.table({"id": [1, 2], "image": pa.array([b"x" * 300_000, b"y"], pa.large_binary())}))
    (blob,) = (path for path in (folder_of(entry) / "data").rglob("*.blob"))
    assert is_whole(entry)
    flip(blob)
    (fault,) = verified(entry).faults
    assert fault.path == str(blob)
    blob.unlink()
    (fault,) = verified(entry).faults
    assert isinstance(fault, SourceMissingError) and fault.path == str(blob)


def test_writers_at_once_leave_digests_of_what_each_has_added(entry: TableEntry) -> None:
    def write(number: int) -> None:
        for at in range(5):
            entry.append(id=[1000 * number + at], v=["x"])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert is_whole(entry) and verified(entry).rows == 120


def test_tasks_digest_what_they_have_written(entry: TableEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LanceTable(folder_of(entry), "t")
    written = table.written(pa.table({"id": [500], "v": ["x"]}), "append")
    read: list[str] = []
    digest_of = FileDigests.digest_of
    monkeypatch.setattr(FileDigests, "digest_of", lambda own, path: (read.append(path), digest_of(own, path))[1])
    table.append_written(written, table.at().version)
    assert read and not [path for path in read if path.startswith("data/")]
    assert is_whole(entry)


# --- files that are not what was written


def damaged(entry: TableEntry) -> list[Path]:
    """One file of each kind that a table has."""
    entry.computed().create_scalar_index("id")
    entry.upsert(id=[3], v=["y"])
    folder = folder_of(entry)
    kinds = ("data/*", "_deletions/*", "_indices/*/*", "_versions/*.manifest", "_transactions/*", "_digests/*")
    return [max(folder.glob(kind), key=lambda path: (path.stat().st_size, path.name)) for kind in kinds]


@pytest.mark.parametrize("kind", range(6))
@pytest.mark.parametrize("at", [0, 9, -20, -1])
def test_one_bit_of_any_file_is_found(client: CatalogClient, entry: TableEntry, kind: int, at: int) -> None:
    path = damaged(entry)[kind]
    flip(path, at)
    (fault,) = verified(entry).faults
    assert type(fault) is ReadError
    assert fault.path == str(path) and "version " in fault.message and fault.hint
    (told,) = client.check()
    assert (told.table, told.error.path) == ("t", fault.path)
    run = CliRunner().invoke(commands, ["verify", client.url])
    assert run.exit_code == 1 and str(path) in run.output
    assert CliRunner().invoke(commands, ["catalog", "check", client.url]).exit_code == 1


def test_the_fault_of_a_file_names_its_version(entry: TableEntry) -> None:
    entry.append(id=[200], v=["x"])
    version = lance.dataset(folder_of(entry)).version
    (path,) = (
        folder_of(entry) / "data" / file.path
        for one in lance.dataset(folder_of(entry)).get_fragments()[1:]
        for file in one.metadata.files
    )
    flip(path)
    (fault,) = verified(entry).faults
    assert (
        fault.message
        == f"a file of table '{folder_of(entry).name}' has another digest than version {version} has written"
    )
    entry.overwrite(id=[1], v=["x"])
    assert [one.path for one in verified(entry).faults] == [str(path)]  # an old version still needs it


@pytest.mark.parametrize("pattern", ["data/*", "_indices/*/page_data.lance", "_indices/*/page_lookup.lance"])
def test_a_file_that_is_gone_is_found(entry: TableEntry, pattern: str) -> None:
    entry.computed().create_scalar_index("id")
    (path,) = folder_of(entry).glob(pattern)
    path.unlink()
    (fault,) = verified(entry).faults
    assert isinstance(fault, SourceMissingError) and fault.path == str(path)


def test_a_compaction_gives_no_damaged_row_a_new_digest(client: CatalogClient, entry: TableEntry) -> None:
    entry.append(id=[200], v=["x"])
    path = max((folder_of(entry) / "data").iterdir(), key=lambda path: path.stat().st_size)
    flip(path)
    version = lance.dataset(folder_of(entry)).version
    for maintained in (lambda: entry.do_maintenance(compact_fragments=True), client.do_global_maintenance):
        with pytest.raises(ReadError, match="another digest than version 2 has written") as caught:
            maintained()
        assert caught.value.path == str(path)
    assert lance.dataset(folder_of(entry)).version == version


def test_a_cleanup_keeps_what_says_that_a_version_was_damaged(entry: TableEntry) -> None:
    entry.append(id=[200], v=["x"])
    oldest = max((folder_of(entry) / "_versions").glob("*.manifest"))
    flip(oldest)
    with pytest.raises(ReadError, match="another digest than version 1 has written"):
        entry.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True)
    assert oldest.exists()


@pytest.mark.parametrize("damage", ["cut", "gone", "manifest"])
def test_values_are_not_made_of_files_that_are_not_what_was_written(
    tables: TableConnection, table: NativeTable, damage: str
) -> None:
    table.add_columns({"twice": twice})
    view = tables.create_materialized_view("few", table.search(None).select(["id"]))
    folder = folder_of(table)
    path = max((folder / "data").iterdir(), key=lambda path: path.stat().st_size)
    if damage == "cut":
        os.truncate(path, path.stat().st_size - 1)
    elif damage == "gone":
        path.unlink()
    else:
        path = min((folder / "_versions").glob("*.manifest"))
        data = path.read_bytes()
        at = data.rindex(b"twice")  # a letter of the text of an earlier place still opens
        path.write_bytes(data[:at] + b"Twice" + data[at + 5 :])
    made: list[Callable[[], Any]] = [
        lambda: table.backfill("twice", udf=twice),
        lambda: view.refresh(executor="inline"),
        lambda: table.load_columns(pa_source(folder.parent), "id", ["more"]),
    ]
    for attempt in made:
        with pytest.raises(ReadError) as caught:
            attempt()
        assert caught.value.path == str(path)


def pa_source(folder: Path) -> str:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [1], "more": [2]}), folder / "more.parquet")
    return str(folder / "more.parquet")


# --- commits of others


def test_commits_of_other_programs_are_reported_as_without_digests(client: CatalogClient, entry: TableEntry) -> None:
    lance.write_dataset(pa.table({"id": [300], "v": ["x"]}, schema=SCHEMA), folder_of(entry), mode="append")
    entry.append(id=[301], v=["y"])
    found = verified(entry)
    assert not found.faults and found.rows == 102
    assert [path.partition("/")[0] for path in found.undigested] == ["_versions", "data"]
    run = CliRunner().invoke(commands, ["verify", client.url])
    assert run.exit_code == 0 and "2 have none" in run.output
    assert client.check() == []
    entry.do_maintenance(compact_fragments=True)
    entry.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True)
    assert is_whole(entry)


def test_rows_of_other_programs_are_read(client: CatalogClient, tmp_path: Path) -> None:
    place = tmp_path / "others.lance"
    lance.write_dataset(pa.table({"id": range(50)}), place)
    client.register_table("others", str(place))
    assert verify(place).rows == 50 and not verify(place).digests
    (path,) = (place / "data").iterdir()
    path.write_bytes(bytes(path.stat().st_size))
    (fault,) = client.check()
    assert fault.table == "others" and "cannot be read" in fault.error.message


def test_digests_that_cannot_be_written_are_warned_of(entry: TableEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    version = lance.dataset(folder_of(entry)).version
    monkeypatch.setenv(PLAN, "lance.digests:enospc")
    monkeypatch.setattr("chunkmill.engine.faults._here", {})
    with pytest.warns(UserWarning, match=rf"version {version + 1} of table 't' is written, but has no digests"):
        entry.append(id=[200], v=["x"])
    monkeypatch.delenv(PLAN)
    assert entry.reader().count() == 101
    entry.append(id=[201], v=["x"])
    assert not verified(entry).faults and len(verified(entry).undigested) == 2
    assert not list((folder_of(entry) / "_digests").glob("*.open"))


# --- digests that go


def test_digests_go_with_their_files(entry: TableEntry) -> None:
    for number in range(5):
        entry.upsert(id=[number], v=["x"])
    folder = folder_of(entry) / "_digests"
    (folder / "0.json.abc.open").write_bytes(b"what a killed process leaves")
    assert len(list(folder.iterdir())) == 8
    entry.do_maintenance(compact_fragments=True)
    entry.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True)
    (joined,) = folder.iterdir()
    kept = FileDigests(folder_of(entry), "t")._read(joined.name)
    assert set(kept) == set(lance.dataset(folder_of(entry)).tracked_files().read_all()["path"].to_pylist())
    entry.append(id=[500], v=["x"])
    entry.do_maintenance(cleanup_before=datetime.now(UTC) - timedelta(days=8))
    assert len(list(folder.iterdir())) == 1 and is_whole(entry)


def test_a_damaged_file_of_digests_outlives_a_cleanup(entry: TableEntry) -> None:
    entry.append(id=[200], v=["x"])
    (*_, last) = sorted((folder_of(entry) / "_digests").iterdir())
    flip(last)
    with pytest.raises(ReadError, match="the digests of version 3 cannot be read") as caught:
        entry.do_maintenance(cleanup_before=datetime.now(UTC) - timedelta(days=8))
    assert caught.value.path == str(last) and last.exists()
    with pytest.raises(ReadError, match="the digests of version 3 cannot be read") as caught:
        entry.do_maintenance(compact_fragments=True)
    assert caught.value.path == str(last)
    last.unlink()
    assert len(verified(entry).undigested) == 2


def test_digests_that_are_joined_while_they_are_read_are_read_again(
    entry: TableEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests, read, joins = FileDigests(folder_of(entry), "t"), FileDigests._read, ["once"]

    def joined_before(own: FileDigests, name: str) -> Any:
        if joins:
            joins.pop()
            digests.join()
        return read(own, name)

    monkeypatch.setattr(FileDigests, "_read", joined_before)
    assert is_whole(entry) and not joins


# --- the command


def test_verify_covers_tables_and_views_of_a_lake_and_of_a_folder(
    client: CatalogClient, entry: TableEntry, tables: TableConnection, table: NativeTable
) -> None:
    tables.create_materialized_view("few", table.search(None).select(["id"]))
    client.register_table("view", tables.uri + "/few.lance")
    run = CliRunner().invoke(commands, ["verify", client.url])
    assert run.exit_code == 0
    assert "rows of version 2; 5 files, all digests match" in run.output
    assert "2 verified, no faults: 220 rows in 2 tables are readable" in run.output
    for argument, count in ((tables.uri, 2), (table.uri, 1)):
        run = CliRunner().invoke(commands, ["verify", argument])
        assert run.exit_code == 0 and run.output.count("all digests match") == count
    assert CliRunner().invoke(commands, ["verify", "-q", client.url]).output == ""
    flip(max((folder_of(table) / "data").iterdir()))
    assert CliRunner().invoke(commands, ["verify", tables.uri]).exit_code == 1


def test_a_table_of_a_lake_that_is_gone_is_a_fault(client: CatalogClient, entry: TableEntry) -> None:
    for path in (folder_of(entry) / "_versions").iterdir():
        path.unlink()
    run = CliRunner().invoke(commands, ["verify", client.url])
    assert run.exit_code == 1 and "there is no Lance table here" in run.output
