"""Upkeep of tables: compaction, old versions, what creations left; their check; upserts whose turn is over; INSERT."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient, EntryId, NotFoundError, TableEntry, maintenance
from chunkmill.engine.catalog.maintenance import remove_drafts
from chunkmill.engine.cli.catalogs import catalog
from chunkmill.engine.errors import ReadError, SourceMissingError, UnsupportedError, UsageError, WriteError
from chunkmill.engine.execution import Holder
from chunkmill.engine.lance import LanceTable
from chunkmill.engine.lance import table as lance_table
from chunkmill.engine.units import age_of_moment
from click.testing import CliRunner
from datafusion import SQLOptions
from small_recordings import ingest

KEY = {"rerun:is_table_index": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int32(), metadata=KEY), ("v", pa.string())])


@pytest.fixture
def client(tmp_path: Path) -> CatalogClient:
    return CatalogClient(tmp_path / "lake")


@pytest.fixture
def table(client: CatalogClient) -> TableEntry:
    return client.create_table("t", SCHEMA)


def rows(table: TableEntry) -> list[tuple[int, str]]:
    columns = table.to_arrow_reader().read_all().to_pydict()
    return sorted(zip(columns["id"], columns["v"], strict=True))


def folder_of(table: TableEntry) -> Path:
    return Path(table.storage_url.removeprefix("file://"))


def test_a_list_of_deleted_rows_with_one_bad_bit_is_told_where_lance_would_abort(table: TableEntry) -> None:
    table.append(id=list(range(50)), v=["x"] * 50)
    table.upsert(id=[3, 7], v=["y", "y"])
    (place,) = (folder_of(table) / "_deletions").iterdir()
    assert len(rows(table)) == 50
    good = place.read_bytes()
    unpacked = good.index(b"\xff" * 8, 256)  # before the validity, which pyarrow passes over
    place.write_bytes(good[:unpacked] + (1 << 62).to_bytes(8, "little") + good[unpacked + 8 :])
    os.utime(place, (1, 1))  # which is another time, whatever the clock has
    with pytest.raises(ReadError, match="a list of deleted rows is damaged: its buffers declare"):
        rows(table)
    footer = len(good) - 10 - int.from_bytes(good[-10:-6], "little")
    block = good.index((192).to_bytes(8, "little") + (192).to_bytes(4, "little"), footer)
    for at in (block + 5, block + 10, block + 21, footer + 100, 200):
        place.write_bytes(good[:at] + bytes([good[at] ^ 0x02]) + good[at + 1 :])
        for call in (lambda: rows(table), lambda: table.reader().count(), lambda: table.upsert(id=9, v="z")):
            with contextlib.suppress(ReadError, WriteError):
                call()
        if at == block + 21:
            with pytest.raises(ReadError, match="a list of deleted rows is damaged: its footer points beyond the data"):
                rows(table)
    place.write_bytes(good)
    assert len(rows(table)) == 50


def data_files(table: TableEntry) -> set[Path]:
    return set((folder_of(table) / "data").iterdir())


# --- upkeep


def test_small_fragments_are_joined_and_old_versions_go(table: TableEntry) -> None:
    for number in range(4):
        table.append(id=number, v="x")
    written = lance.fragment.write_fragments(pa.table({"id": [9], "v": ["late"]}, schema=SCHEMA), folder_of(table))
    before = rows(table)
    with pytest.raises(UsageError, match="younger than 7 days may be in use"):
        table.do_maintenance(compact_fragments=True, cleanup_before=datetime.now(UTC))
    assert len(data_files(table)) == 5, "nothing is done where something is refused"
    table.do_maintenance(compact_fragments=True)
    assert len(lance.dataset(folder_of(table)).get_fragments()) == 1
    newest = table.snapshot().version
    table.do_maintenance(compact_fragments=True, cleanup_before=datetime.now(UTC) - timedelta(days=8))
    assert table.snapshot().version == newest, "there is nothing to join"
    assert len(data_files(table)) == 6
    table.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True)
    assert rows(table) == before
    assert len(data_files(table)) == 2, "what was written and is not committed yet stays"
    # Who has written before that commits, as if nothing was.
    lance.LanceDataset.commit(folder_of(table), lance.LanceOperation.Append(written), read_version=newest)
    assert (9, "late") in rows(table)


def test_a_version_with_a_tag_stays(table: TableEntry) -> None:
    table.append(id=1, v="x")
    lance.dataset(folder_of(table)).tags.create("best", 2)
    table.overwrite(id=2, v="y")
    table.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True)
    assert lance.dataset(folder_of(table), version="best").to_table()["id"].to_pylist() == [1]


def test_a_compaction_that_others_come_before_is_done_again(table: TableEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    table.append(id=1, v="x")
    table.append(id=2, v="x")
    late = [lambda: table.upsert(id=[1, 2], v=["y", "y"])]
    monkeypatch.setattr(lance_table, "reach", lambda point: late and point == "lance.compact" and late.pop()())
    table.do_maintenance(compact_fragments=True)
    assert not late
    assert rows(table) == [(1, "y"), (2, "y")]


def test_global_maintenance_leaves_tables_of_others_alone(
    client: CatalogClient, table: TableEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "foreign")
    foreign = client.register_table("foreign", tmp_path / "foreign")
    for _ in range(2):
        foreign.append(a=2)
        table.append(id=2, v="x")
    monkeypatch.setattr(maintenance, "WEEK", timedelta())
    client.do_global_maintenance()
    folders = tmp_path / "foreign", folder_of(table)
    assert [len(list((folder / "_versions").glob("*.manifest"))) for folder in folders] == [3, 1]


def abandoned(client: CatalogClient, age: timedelta) -> Path:
    """What a creation of that age has left, as it was cut before there was an entry."""
    stamp = (time.time_ns() - int(age.total_seconds() * 1e9)).to_bytes(8, "big")
    place = Path(client.url, "tables", (stamp + bytes(8)).hex())
    LanceTable(place, "abandoned").create(SCHEMA)
    return place


def test_what_a_creation_left_goes_after_a_week_and_nothing_else(client: CatalogClient, table: TableEntry) -> None:
    old, young, used = (abandoned(client, timedelta(days=days)) for days in (8, 6, 9))
    LanceTable(used, "used").append(_of(3))
    again = client.register_table("again", abandoned(client, timedelta(days=10)))
    other = Path(client.url, "tables", "notes")
    other.mkdir()
    table.delete()
    assert {fault.error.path for fault in client.check()} == {str(old), str(young)}
    client.do_global_maintenance()
    assert not old.exists()
    assert (
        young.exists() and used.exists() and other.exists() and folder_of(again).exists() and folder_of(table).exists()
    )


def _of(number: int) -> Any:
    from chunkmill.engine.lance import rows_of

    return rows_of(pa.table({"id": [number], "v": ["x"]}, schema=SCHEMA), {}, lambda: SCHEMA)


def test_a_table_whose_making_took_too_long_has_no_entry(
    client: CatalogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    minted = EntryId((time.time_ns() - 2 * 86_400 * 10**9).to_bytes(8, "big").hex() + "0" * 16)
    monkeypatch.setattr(EntryId, "new", lambda: minted)
    with pytest.raises(WriteError, match="took too long") as caught:
        client.create_table("t", SCHEMA)
    assert caught.value.transient
    assert client.table_names() == []


# --- the check


def _gone(folder: Path) -> Path:
    path = next((folder / "data").iterdir())
    path.unlink()
    return path


def _cut(folder: Path) -> Path:
    path = next((folder / "data").iterdir())
    os.truncate(path, 10)
    return path


def _undeleted(folder: Path) -> Path:
    path = next((folder / "_deletions").iterdir())
    path.unlink()
    return path


def _unmade(folder: Path) -> Path:
    for path in (folder / "_versions").iterdir():
        path.unlink()
    return folder


def _garbled(folder: Path) -> Path:
    for path in (folder / "_versions").iterdir():
        path.write_bytes(b"nothing")
    return folder


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (_gone, SourceMissingError, "table 't' needs this file, which is missing"),
        (_cut, ReadError, "a file of table 't' has 10 bytes, not "),
        (_undeleted, SourceMissingError, "table 't' needs this file, which is missing"),
        (_unmade, SourceMissingError, "there is no Lance table here"),
        (_garbled, ReadError, "table 't' cannot be read"),
    ],
)
def test_a_check_tells_what_a_table_lacks(
    client: CatalogClient, table: TableEntry, damage: Callable[[Path], Path], kind: type, message: str
) -> None:
    client.create_dataset("drives")
    client.create_table("fine", SCHEMA).append(id=1, v="x")
    table.append(id=[1, 2], v=["x", "y"])
    lance.dataset(folder_of(table)).delete("id = 1")
    assert client.check() == client.check(["t", "drives"]) == []
    path = damage(folder_of(table))
    (fault,) = client.check()
    assert (fault.dataset, fault.table, fault.error.path) == (None, "t", str(path))
    assert type(fault.error) is kind and message in fault.error.message
    assert fault.error.hint and fault.to_dict()["table"] == "t"
    assert client.check(["fine", "drives"]) == []
    with pytest.raises(NotFoundError, match="No entry found with name 'fin'"):
        client.check(["fin"])


# --- turns


@pytest.mark.parametrize("is_empty", [True, False])
def test_who_sleeps_past_the_end_of_his_turn_merges_again(
    client: CatalogClient, table: TableEntry, monkeypatch: pytest.MonkeyPatch, is_empty: bool
) -> None:
    if not is_empty:
        table.append(id=[1, 2], v=["a", "b"])
    other = CatalogClient(client.url).get_table("t")
    monkeypatch.setattr(other, "_alone", nullcontext)
    late = [lambda: other.upsert(id=7, v="other"), lambda: other.append(id=8, v="other")]
    monkeypatch.setattr(lance_table, "reach", lambda point: late and point == "lance.merge" and late.pop(0)())
    table.upsert(id=[7, 9], v=["slept", "slept"])
    assert rows(table)[-3:] == [(7, "slept"), (8, "other"), (9, "slept")]
    assert len(rows(table)) == (3 if is_empty else 5)


# --- INSERT


def test_sql_inserts_rows(client: CatalogClient, table: TableEntry) -> None:
    sql = client.ctx.sql
    assert sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')").to_pylist() == [{"count": 2}]
    version = table.snapshot().version
    counted = sql("INSERT INTO t (id) SELECT id + 10 FROM t WHERE v = 'a'")
    assert counted.to_pylist() == counted.to_pylist() == [{"count": 1}], "rows are written once"
    assert table.snapshot().version == version + 1
    sql("REPLACE INTO t VALUES (1, 'c')")
    assert table.to_arrow_reader().read_all().sort_by("id").to_pylist() == [
        {"id": 1, "v": "c"},
        {"id": 2, "v": "b"},
        {"id": 11, "v": None},
    ]
    sql("INSERT OVERWRITE t SELECT id, 'only' FROM t WHERE id = 2")
    assert rows(table) == [(2, "only")]
    with pytest.raises(UnsupportedError, match="SQL cannot DELETE a table of the catalog"):
        sql("DELETE FROM t WHERE id = 2")
    with pytest.raises(UsageError, match="the catalog's own table, which cannot be written"):
        sql("INSERT INTO __entries SELECT * FROM __entries")
    with pytest.raises(Exception, match="DML not supported"):
        client.ctx.sql_with_options("INSERT INTO t VALUES (3, 'd')", SQLOptions().with_allow_dml(False))
    assert rows(table) == [(2, "only")]
    client.ctx.from_pydict({"a": [1]}, "beside")
    sql("INSERT INTO beside VALUES (2)").collect()
    assert sql("SELECT count(*) AS n FROM beside").to_pylist() == [{"n": 2}]


def test_rows_that_cannot_be_inserted_are_not(client: CatalogClient) -> None:
    strict = client.create_table("strict", pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.string())]))
    with pytest.raises(WriteError, match="column 'id' has nulls"):
        client.ctx.sql("INSERT INTO strict (v) VALUES ('x')")
    with pytest.raises(UsageError, match="requires join keys"):
        client.ctx.sql("REPLACE INTO strict VALUES (1, 'x')")
    assert strict.reader().count() == 0


def test_the_command_tells_of_tables_by_their_names(client: CatalogClient, table: TableEntry) -> None:
    client.create_table("fine", SCHEMA)
    table.append(id=1, v="x")
    path = _gone(folder_of(table))
    ran = CliRunner().invoke(catalog, ["check", client.url])
    assert ran.exit_code == 1
    assert "fine: no faults" in ran.output and "t: 1 fault" in ran.output
    said = json.loads(CliRunner().invoke(catalog, ["check", client.url, "t", "--json"]).stdout)
    assert (said["table"], said["dataset"], said["path"]) == ("t", None, str(path))


# --- the times of upkeep

LONG_AGO = datetime(2024, 3, 1, tzinfo=UTC)
MOMENTS: list[Any] = [
    LONG_AGO,
    LONG_AGO.replace(tzinfo=None),
    pd.Timestamp(LONG_AGO),
    "2024-03-01",
    "2024-03-01T01:00:00+01:00",
    "2024-03-01T00:00:00Z",
    datetime.now(UTC) - LONG_AGO,
    int(LONG_AGO.timestamp()) * 10**9,
    np.int64(int(LONG_AGO.timestamp()) * 10**9),
    np.datetime64("2024-03-01"),
    np.datetime64("2024-03-01", "ns"),
    np.timedelta64(datetime.now(UTC) - LONG_AGO),
]
NO_MOMENTS: list[Any] = [
    1_709_251_200,  # seconds
    1_709_251_200_000_000,  # microseconds
    -1,
    2**70,
    1.7e18,
    True,
    "yesterday",
    "2024-02-30",
    "",
    b"2024-03-01",
    timedelta(days=-1),
    pd.NaT,
    np.datetime64("NaT", "ns"),
    np.float64(1.7e18),
    object(),
]


@pytest.mark.parametrize("moment", MOMENTS, ids=repr)
def test_upkeep_takes_times_of_every_kind(client: CatalogClient, table: TableEntry, moment: Any) -> None:
    assert abs(age_of_moment("cleanup_before", moment) - (datetime.now(UTC) - LONG_AGO)) < timedelta(hours=1)
    table.append(id=[1], v=["a"])
    table.append(id=[2], v=["b"])
    table.do_maintenance(cleanup_before=moment)
    client.create_dataset("d").do_maintenance(cleanup_before=moment)
    assert table.computed().optimize(cleanup_older_than=moment).old_versions == 0
    assert table.computed().cleanup_old_versions(moment).old_versions == 0
    assert rows(table) == [(1, "a"), (2, "b")]


NOW: dict[str, Callable[[], Any]] = {
    "datetime": lambda: datetime.now(UTC),
    "text": lambda: datetime.now(UTC).isoformat(),
    "timedelta": timedelta,
    "nanoseconds": time.time_ns,
    "datetime64": lambda: np.datetime64(time.time_ns(), "ns"),
}


@pytest.mark.parametrize("kind", NOW)
def test_upkeep_that_is_allowed_removes_what_came_before_a_time_of_any_kind(table: TableEntry, kind: str) -> None:
    table.append(id=[1], v=["a"])
    with pytest.raises(UsageError, match="younger than 7 days"):
        table.do_maintenance(cleanup_before=NOW[kind]())

    table.do_maintenance(cleanup_before=NOW[kind](), unsafe_allow_recent_cleanup=True)
    assert len(lance.dataset(folder_of(table)).versions()) == 1


@pytest.mark.parametrize("moment", NO_MOMENTS, ids=repr)
def test_upkeep_says_which_times_it_takes(client: CatalogClient, table: TableEntry, moment: Any) -> None:
    computed, dataset = table.computed(), client.create_dataset("d", exist_ok=True)
    calls: list[Callable[[], object]] = [
        lambda: table.do_maintenance(cleanup_before=moment, unsafe_allow_recent_cleanup=True),
        lambda: dataset.do_maintenance(cleanup_before=moment, unsafe_allow_recent_cleanup=True),
        lambda: computed.optimize(cleanup_older_than=moment),
        lambda: computed.cleanup_old_versions(moment),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="is not a time") as refused:
            call()
        assert "ISO text, a timedelta (how long ago), or nanoseconds since 1970" in str(refused.value)


def test_the_edges_of_the_calendar_are_times(table: TableEntry) -> None:
    for moment in (
        datetime.min.replace(tzinfo=UTC),
        timedelta.max,
        "0001-01-01",
        2**63 - 1,
        datetime.max.replace(tzinfo=UTC),
    ):
        table.do_maintenance(cleanup_before=moment, unsafe_allow_recent_cleanup=True)


# --- what kills leave

WRITES_FOR_EVER = """
import sys, time, lance, pyarrow as pa

def batches():
    print("writing", flush=True)
    while True:
        time.sleep(0.01)
        yield pa.record_batch({"id": pa.array(range(1000), pa.int32()), "v": ["x" * 50] * 1000})

schema = pa.schema([("id", pa.int32()), ("v", pa.string())])
lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), sys.argv[1], mode="append")
"""


def left_by_lance(table: TableEntry) -> list[Path]:
    return list((folder_of(table) / "data").glob(".tmp*"))


@contextlib.contextmanager
def writing_for_ever(table: TableEntry) -> Iterator[subprocess.Popen[str]]:
    """A process that writes rows by Lance until it is killed."""
    command = [sys.executable, "-c", WRITES_FOR_EVER, str(folder_of(table))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 30
        while not left_by_lance(table):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_what_lance_was_writing_when_it_was_killed_goes_a_week_later(client: CatalogClient, table: TableEntry) -> None:
    table.append(id=[1], v=["a"])
    with writing_for_ever(table) as process:
        (path,) = left_by_lance(table)
        client.do_global_maintenance()
        assert path.exists()
        process.send_signal(signal.SIGSTOP)
        os.utime(path, (1, 1))
        remove_drafts(client._log)
        assert path.exists()  # its writer lives, and has it open
    remove_drafts(client._log)
    assert not path.exists()
    with writing_for_ever(table):
        (path,) = left_by_lance(table)
    client.do_global_maintenance()
    assert path.exists()  # it may be that of a writer on another host
    assert rows(table) == [(1, "a")]


def test_drafts_of_all_folders_go_a_week_later_and_nothing_else(client: CatalogClient, table: TableEntry) -> None:
    lake, digits, adopted = Path(client.url), uuid.uuid4().hex, Path(client.url).parent / "adopted"
    client.create_dataset("d")
    ingest(lake.parent / "landing", ["r"], adopted)
    client.create_dataset("away", url=adopted)
    dataset = Path(os.fspath(client.get_dataset("d")))
    table.append(id=[1], v=["a"])
    drafts = [
        lake / "catalog" / "versions" / f".{digits}.draft",
        lake / "uploads" / f".{digits}.draft",
        lake / "uploads" / f".ab12-00003-{'0f' * 32}.draft",
        dataset / "versions" / f".{digits}.draft",
        dataset / "schemas" / f".{digits}.draft",
        dataset / "lease" / "00000001.json.open",
        adopted / "search" / "tables" / "x" / "data" / ".tmpAb12Cd",
        folder_of(table) / "_versions" / f".{digits}.draft",
        folder_of(table) / "_versions" / "18446744073709551614.manifest#1",
        folder_of(table) / "_indices" / "x" / ".tmpAb12Cd",
        folder_of(table) / "_computed" / "jobs" / f"a.json.{digits}.open",
    ]
    others = [
        lake / "uploads" / "drive.open",
        lake / "uploads" / "drive#2",
        dataset / "lease" / "00000001.json",
        lake.parent / f".{digits}.draft",
        lake / "mine" / f".{digits}.draft",
    ]
    for path in [*drafts, *others]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(Holder.here("x", 1.0).release().to_bytes())
    client.do_global_maintenance()
    assert [path for path in [*drafts, *others] if not path.exists()] == [drafts[-1]]  # no job runs
    for path in [*drafts, *others]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1, 1))
    with drafts[1].open("ab"):
        client.do_global_maintenance()
        assert [path for path in drafts if path.exists()] == [drafts[1]]
    client.do_global_maintenance()
    assert not any(path.exists() for path in drafts) and all(path.exists() for path in others)
    assert rows(table) == [(1, "a")] and client.check() == []


def test_a_creation_that_was_cut_in_its_first_write_leaves_nothing(
    client: CatalogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "WEEK", timedelta())
    place = Path(client.url, "tables", str(EntryId.new()))
    client.create_dataset("d")
    LanceTable(place, "cut").create(SCHEMA)
    (place / "data").mkdir()
    (place / "data" / ".tmpAb12Cd").touch()
    client.do_global_maintenance()
    assert not place.exists()
