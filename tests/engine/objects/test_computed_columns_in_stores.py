"""Columns that are computed and loaded where the table, and what is loaded, lie in an object store.

The store has a process of its own: Lance does not let other threads run while it writes a column's file.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import view_host
from chunkmill.engine import verify
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import JobFailedError
from chunkmill.engine.lance import TableVerification, file_digests
from chunkmill.engine.locations import located
from chunkmill.engine.storage import storage_options
from chunkmill.engine.storage.folder import Folder
from chunkmill.engine.tables import UDF, NativeTable, Skip, Table, TableConnection, TableReference, connect, udf
from click.testing import CliRunner
from s3_server import CREDENTIALS

ROWS = 6
EVERY_BATCH = {"checkpoint_size": 2, "batch_checkpoint_flush_interval_seconds": 0}


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The address of a server of S3's protocol."""
    pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.fixture
def bucket(store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket, as a URL; the environment names its server."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": store}.items():
        monkeypatch.setenv(name, value)
    name = f"columns-{uuid.uuid4().hex[:8]}"
    client = pytest.importorskip("boto3").client("s3", endpoint_url=store, region_name=CREDENTIALS["AWS_REGION"])
    client.create_bucket(Bucket=name)
    client.close()
    return f"s3://{name}"


@pytest.fixture
def table(bucket: str) -> Table:
    return made(f"{bucket}/numbers.lance")


def made(url: str) -> Table:
    data, at = pa.table({"a": range(20)}), storage_options(located(url))
    lance.write_dataset(data, url, max_rows_per_file=10, enable_stable_row_ids=True, storage_options=at)
    return Table(url, executor="inline")


def put(url: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    place = located(url)
    Folder.at(place.parent).put(place.name, sink.getvalue().to_pybytes())


def test_a_backfill_in_a_store_goes_on_where_it_failed(table: Table) -> None:
    calls: list[int] = []
    fails = [13]

    @udf(version="1")
    def double(a: int) -> int:
        calls.append(a)
        if a in fails:
            raise ValueError(f"no {a}")
        return 2 * a

    table.add_columns({"double": double})
    with pytest.raises(JobFailedError, match="no 13"):
        table.backfill("double", udf=double, commit_granularity=1, **EVERY_BATCH)
    assert table.to_arrow()["double"].to_pylist() == [2 * a if a < 10 else None for a in range(20)]
    keys = Folder.at(f"{table.uri}/_computed/checkpoints").folders()
    assert len(keys) == 1 and table.plan_backfill("double", udf=double).total_rows_pending == 10
    (failed,) = table.jobs()
    assert failed.status == "FAILED" and failed.error is not None and "no 13" in failed.error
    assert [(one.row_address, one.error_message) for one in table.get_errors(failed.job_id)] == [(None, "no 13")]
    fails.clear()
    before = len(calls)
    result = Table(table.uri, executor="inline").backfill("double", udf=double, **EVERY_BATCH)
    assert sorted(calls[before:]) == list(range(12, 20)) and result.columns["double"].rows_processed == 10
    assert table.to_arrow()["double"].to_pylist() == [2 * a for a in range(20)]
    assert table.cleanup_checkpoints() == {"batch_deleted": 0, "orphan_frag_deleted": 0, "udtf_batch_deleted": 0}
    assert Folder.at(f"{table.uri}/_computed/checkpoints").folders() == []


def test_checkpoints_in_a_store_are_checked_and_cleaned(table: Table) -> None:
    def doubling(version: str, fails: int = -1) -> UDF:
        @udf(name="double", version=version)
        def double(a: int) -> int:
            if a == fails:
                raise ValueError(f"no {a}")
            return 2 * a

        return double

    table.add_columns({"double": doubling("1")})
    with pytest.raises(JobFailedError, match="no 9"):
        table.backfill("double", udf=doubling("1", 9), **EVERY_BATCH)
    home = Folder.at(f"{table.uri}/_computed/checkpoints")
    folder = home.sub(home.folders()[0])
    names = sorted(folder.names())
    assert len(names) == 4
    folder.put(names[0], folder.get(names[0])[:-20])
    with pytest.warns(RuntimeWarning, match="is damaged, and its rows are computed again"):
        table.backfill("double", udf=doubling("1"))
    assert table.to_arrow()["double"].to_pylist() == [2 * a for a in range(20)] and home.folders() == []
    with pytest.raises(JobFailedError, match="no 9"):
        table.backfill("double", udf=doubling("2", 9), **EVERY_BATCH)
    table.drop_columns(["double"])
    assert table.cleanup_checkpoints()["batch_deleted"] == 4 and home.folders() == []


@pytest.mark.parametrize("kind", ["parquet", "lance"])
def test_columns_are_loaded_from_a_store(table: Table, bucket: str, kind: str) -> None:
    data = pa.table({"a": [3, 5, 99], "name": ["three", "five", "?"]})
    url = f"{bucket}/names.{kind}"
    if kind == "lance":
        lance.write_dataset(data, url, storage_options=storage_options(located(url)))
    else:
        put(url, data)
    job = table.load_columns(url, "a", ["name"])
    wanted = {3: "three", 5: "five"}
    assert table.to_arrow()["name"].to_pylist() == [wanted.get(a) for a in range(20)]
    assert [(one.job_id, one.status, one.job_type) for one in table.jobs()] == [(job, "DONE", "LOAD")]
    assert not Folder.at(f"{table.uri}/_computed/.chunkmill-staging/source").exists()


def test_a_job_of_a_store_is_one_file_that_is_replaced(table: Table, bucket: str) -> None:
    rows: dict[str, Any] = {"a": [1], "name": ["one"]}
    put(f"{bucket}/names.parquet", pa.table(rows))
    for _ in range(2):
        table.load_columns(f"{bucket}/names.parquet", "a", ["name"], job_id="mine")
    assert list(Folder.at(f"{table.uri}/_computed/jobs").names()) == ["mine.json"]
    Folder.at(f"{table.uri}/_computed/jobs").put("mine.json", b"{")
    with pytest.warns(RuntimeWarning, match="the record of a job is damaged"):
        assert table.jobs() == []


def test_the_commands_take_urls(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stored_functions.py").write_text(
        "from chunkmill import skip_on_error, udf\n\n\n"
        "@udf(version='1', on_error=skip_on_error())\n"
        "def inverse(a: int) -> float:\n    return 1 / a\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    table.add_columns({"inverse": importlib.import_module("stored_functions").inverse})

    def said(*words: str) -> str:
        done = CliRunner().invoke(commands, ["tables", *words])
        assert done.exit_code == 0, done.output
        return done.output

    assert "with 20 rows of 20" in said("plan", table.uri, "inverse", "--module", "stored_functions")
    filled = said("backfill", table.uri, "inverse", "--module", "stored_functions", "--executor", "inline", "--quiet")
    assert "19 rows computed, 1 row skipped on errors" in filled
    assert "BACKFILL inverse, 19 rows" in said("jobs", table.uri)
    assert "inverse, row 0: ZeroDivisionError: division by zero" in said("errors", table.uri)


def test_a_policy_that_skips_leaves_records_in_the_store(table: Table) -> None:
    @udf(on_error=[Skip(ZeroDivisionError)])
    def inverse(a: int) -> float:
        return 1 / (a % 10)

    table.add_columns({"inverse": inverse})
    job = table.backfill("inverse", udf=inverse).job_id
    assert table.get_failed_row_addresses(job, "inverse") == [0, 1 << 32]
    assert [row for row, value in enumerate(table.to_arrow()["inverse"].to_pylist()) if value is None] == [0, 10]


def test_a_view_in_a_store_follows_its_source(bucket: str) -> None:
    calls: list[int] = []

    @udf(version="1")
    def square(a: int) -> int:
        calls.append(a)
        return a * a

    tables = connect(f"{bucket}/tables", executor="inline")
    source = tables.create_table("numbers", [{"a": n} for n in range(6)])
    view = tables.create_materialized_view(
        "even", source.search(None).where("a % 2 = 0").select({"a": "a", "sq": square})
    )
    assert tables.table_names() == ["even", "numbers"]
    assert view.refresh().rows_refreshed == 3
    source.add([{"a": 8}])
    source.update("a = 2", {"a": 10})
    source.delete("a = 0")
    source.optimize()
    calls.clear()
    assert view.plan_refresh().total_rows_pending == 2
    assert (view.refresh().rows_refreshed, sorted(calls)) == (2, [8, 10])
    assert sorted(view.to_arrow()["sq"].to_pylist()) == [16, 64, 100]
    assert not view.plan_refresh().has_work
    assert TableReference(f"{bucket}/tables", "even").open().count_rows() == 3
    tables.drop_table("even")
    assert tables.table_names() == ["numbers"]


def test_a_table_in_a_store_is_searched_and_kept(bucket: str) -> None:
    tables = connect(f"{bucket}/tables", executor="inline")
    schema = pa.schema([("id", pa.int64()), ("words", pa.string()), ("vector", pa.list_(pa.float32(), 4))])
    rows = [{"id": n, "words": f"robot {n}", "vector": [float(n)] * 4} for n in range(300)]
    table = tables.create_table("things", rows, schema=schema)
    table.create_index(num_partitions=2, num_sub_vectors=2)
    table.create_fts_index("words")
    table.create_scalar_index("id")
    table.add([{"id": 300, "words": "robot new", "vector": [300.0] * 4}])
    near = table.search([299.9] * 4).nprobes(2).refine_factor(20).limit(2).to_arrow()
    assert near["id"].to_pylist() == [300, 299]
    assert table.search("new", query_type="fts").to_arrow()["id"].to_pylist() == [300]
    table.update("id = 1", {"words": "other"})
    before = len(lance.dataset(table.uri, storage_options=storage_options(located(table.uri))).versions())
    stats = table.optimize(cleanup_older_than=timedelta(0))
    assert stats.old_versions >= before - 1
    assert table.search("other", query_type="fts").to_arrow()["id"].to_pylist() == [1]


@pytest.fixture(params=["folder", "store"])
def tables_of_hosts(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableConnection:
    """Tables in a folder, or in an object store; this process is one of the host ``here``."""
    place = str(tmp_path / "lake") if request.param == "folder" else f"{request.getfixturevalue('bucket')}/lake"
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    return connect(place, executor="inline")


def view_of_hosts(tables: TableConnection) -> NativeTable:
    source = tables.create_table("src", [{"v": v} for v in range(ROWS)])
    return tables.create_materialized_view("mv", source.search(None).select({"v": "v", "sq": view_host.watched}))


def elsewhere(tables: TableConnection, *pace: float) -> subprocess.Popen[str]:
    """A process of another host that refreshes the view, and has called the function."""
    before = len(calls())
    process = subprocess.Popen(
        [sys.executable, view_host.__file__, tables.uri, "mv", *map(str, pace)],
        env={**os.environ, "HOST": "there"},
        stdout=subprocess.PIPE,
        text=True,
    )
    while len(calls()) == before:
        assert process.poll() is None
        time.sleep(0.02)
    return process


def calls() -> list[int]:
    file = Path(os.environ["CALLS"])
    return list(map(int, file.read_text().split())) if file.exists() else []


def test_one_host_computes_and_the_other_waits_and_a_dead_one_is_taken_over(
    tables_of_hosts: TableConnection, caplog: pytest.LogCaptureFixture
) -> None:
    tables = tables_of_hosts
    view = view_of_hosts(tables)
    other = elsewhere(tables, 0.15)
    assert view.refresh().rows_refreshed == 0
    assert other.communicate() == (f"{ROWS}\n", None)
    assert sorted(calls()) == list(range(ROWS))
    assert "no sign of life" not in caplog.text

    tables.open_table("src").add([{"v": v} for v in range(ROWS, 2 * ROWS)])
    dead = elsewhere(tables, 0.0, 3)
    dead.communicate()
    with caplog.at_level(logging.WARNING):
        assert view.refresh().rows_refreshed == ROWS
    assert "on there, since" in caplog.text and "has not renewed its lease for 1 s" in caplog.text
    assert set(Counter(calls()).values()) <= {1, 2}, "what the dead one kept is not computed again"
    assert len(calls()) <= 2 * ROWS + 1
    rows = view.to_arrow().to_pylist()
    assert sorted((row["v"], row["sq"]) for row in rows) == [(v, v * v) for v in range(2 * ROWS)]


def test_files_of_a_table_have_digests_that_are_compared(
    bucket: str, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = connect(f"{bucket}/tables", executor="inline").create_table("t", [{"a": 1}])
    other.add([{"a": number} for number in range(2, 50)])
    other.create_scalar_index("a")
    other.delete("a = 3")
    found = verify(other.uri)
    assert isinstance(found, TableVerification)
    assert (found.rows, found.faults, found.undigested) == (48, (), ()) and found.digests == found.chunks > 10
    assert isinstance(without := verify(table.uri), TableVerification)
    assert without.rows == 20 and not without.faults and len(without.undigested) == 3
    run = CliRunner().invoke(commands, ["verify", f"{bucket}/tables"])
    assert run.exit_code == 0 and "48 rows of version 4" in run.output and "all digests match" in run.output
    folder = Folder.at(located(other.uri))
    dataset = lance.dataset(other.uri, storage_options=storage_options(located(other.uri)))
    for name in dataset.tracked_files().read_all()["path"].unique().to_pylist()[::3]:
        data = folder.get(name)
        folder.put(name, data[:9] + bytes([data[9] ^ 4]) + data[10:])
        (fault,) = verify(other.uri).faults
        assert fault.path == f"{other.uri}/{name}"
        folder.put(name, data)
    monkeypatch.setattr(file_digests, "_PIECE_BYTES", len(data))  # the last file ends with a piece
    assert not verify(other.uri).faults
    other.optimize(cleanup_older_than=timedelta())
    assert len(list(Folder.at(located(other.uri) / "_digests").names())) == 1
    assert not verify(other.uri).faults
