"""Upkeep of tables: what nobody needs goes, and nothing that a job needs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.errors import JobFailedError, ReadError
from chunkmill.engine.tables import JobTable, Table, jobs, udf
from chunkmill.engine.tables.computed_columns import fill_target
from chunkmill.engine.tables.targets import FunctionColumns

NOW = timedelta(0)


@udf
def double(a: int) -> int:
    return a * 2


@pytest.fixture
def table(tmp_path: Path) -> Table:
    rows = pa.table({"a": pa.array(range(40))})
    lance.write_dataset(rows, tmp_path / "t.lance", max_rows_per_file=10, enable_stable_row_ids=True)
    made = Table(str(tmp_path / "t.lance"), executor="inline")
    made.add_columns({"double": double})
    return made


def _target(table: Table) -> FunctionColumns:
    return fill_target(table._parts, table._lance.at(), "double", None)


def versions(table: Table) -> list[int]:
    return [one["version"] for one in lance.dataset(table.uri).versions()]


def column_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.uri, "data").iterdir() if "-" in path.name}


def named_files(table: Table) -> set[str]:
    return {file.path for one in lance.dataset(table.uri).get_fragments() for file in one.data_files()}


@contextmanager
def held_job(table: Table) -> Iterator[Callable[[], Any]]:
    """A backfill that waits in its second fragment, and gives what ends it."""
    waits, goes = threading.Event(), threading.Event()

    @udf(version="1")
    def waiting(a: int) -> int:
        if a == 15:
            waits.set()
            assert goes.wait(60)
        return a * 3

    table.add_columns({"third": waiting})
    job = table.backfill_async("third", checkpoint_size=5, batch_checkpoint_flush_interval_seconds=0)
    assert waits.wait(60)

    def ended() -> Any:
        goes.set()
        return job.result(60)

    try:
        yield ended
    finally:
        goes.set()


def test_what_a_job_needs_stays(table: Table) -> None:
    with held_job(table) as ended:
        began = table.version
        for number in range(3):
            table.add([{"a": 100 + number}])
        with pytest.warns(UserWarning, match="are kept, because job"):
            table.cleanup_old_versions(NOW, delete_unverified=True)
        assert began in versions(table)
        checkpoints = list(Path(table.uri, "_computed/checkpoints").rglob("*"))
        assert checkpoints and column_files(table) - named_files(table)
        result = ended()
    assert result.columns["third"].rows_processed == 40
    assert table.to_arrow()["third"].to_pylist() == [*(a * 3 for a in range(40)), None, None, None]
    table.cleanup_old_versions(NOW)
    assert versions(table) == [table.version]
    assert column_files(table) <= named_files(table)


def test_a_job_whose_version_goes_under_it_may_run_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_job(table) as ended:
        table.add([{"a": 100}])
        table._lance.compact()
        with monkeypatch.context() as before:  # as if the cleanup had looked before the job was recorded
            before.setattr(JobTable, "running", lambda self: [])
            table.cleanup_old_versions(NOW)
        assert versions(table) == [table.version]
        with pytest.raises(JobFailedError, match="was removed before its use was recorded") as failed:
            ended()
    assert isinstance(failed.value.__cause__, ReadError) and failed.value.__cause__.transient
    table.backfill("third")
    assert table.to_arrow()["third"].to_pylist() == [*(a * 3 for a in range(40)), 300]


def test_a_job_that_is_not_kept_says_that_it_runs(table: Table) -> None:
    running: list[int] = []

    @udf(version="1")
    def looking(a: int) -> int:
        running.append(len(JobTable(table.uri, "t").running()))
        return a

    table.add_columns({"seen": looking})
    table.backfill("seen", _enable_job_tracker_saves=False)
    assert set(running) == {1}
    assert table.jobs() == []


def test_files_of_dead_jobs_go_and_those_of_living_ones_stay(table: Table) -> None:
    table.backfill("double")

    def planted(job: str) -> str:
        target = _target(table)
        name = target.provenance(table._lance.at().fragments[0]).file_name(job)
        Path(table.uri, "data", name).write_bytes(b"half")
        return name

    home = JobTable(table.uri, "t")
    alive = home.begin("alive", "BACKFILL", "double", {}, table.version)
    of_alive, of_dead, of_others = planted("alive"), planted("dead"), "somebody-elses.lance"
    Path(table.uri, "data", of_others).write_bytes(b"half")
    table.cleanup_old_versions()
    there = {path.name for path in Path(table.uri, "data").iterdir()}
    assert {of_alive, of_others} <= there and of_dead not in there

    # On another host nobody can look, so what is heard of it counts.
    def elsewhere(heard: datetime) -> None:
        place = Path(table.uri, "_computed/jobs/alive.json")
        data = json.loads(place.read_text())
        data["process"]["host"], data["heard_at"] = "elsewhere", heard.isoformat()
        place.write_text(json.dumps(data))

    elsewhere(datetime.now(UTC) - timedelta(minutes=50))
    assert [job.job_id for job in home.running()] == [alive.job_id]
    table.cleanup_old_versions()
    assert Path(table.uri, "data", of_alive).exists()
    elsewhere(datetime.now(UTC) - timedelta(minutes=70))
    assert home.running() == [] and home.get("alive").error == "it sent no heartbeat for an hour"
    table.cleanup_old_versions()
    assert not Path(table.uri, "data", of_alive).exists()
    assert table.to_arrow()["double"].to_pylist() == [2 * a for a in range(40)]


def test_a_job_is_heard_of(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_BEAT_SECONDS", 0.01)
    home = JobTable(table.uri, "t")
    with held_job(table) as ended:
        (first,) = home.running()
        assert first.heard_at is not None
        while (now := home.running()[0].heard_at) is not None and now <= first.heard_at:
            pass
        ended()
    assert home.running() == [] and [job.status for job in table.jobs()] == ["DONE"]


def test_files_that_older_versions_or_branches_name_stay(table: Table) -> None:
    table.backfill("double")
    before = column_files(table)
    table.backfill("double", where="1=1")
    table.cleanup_old_versions()
    assert before < column_files(table)
    table.cleanup_old_versions(NOW)
    assert not before & column_files(table)
    old = table.version
    lance.dataset(table.uri).create_branch("kept", old)
    table.backfill("double", where="1=1")
    table.cleanup_old_versions(NOW)
    kept = lance.dataset(table.uri).checkout_version(("kept", None)).to_table()
    assert kept["double"].to_pylist() == [2 * a for a in range(40)]


def test_a_version_that_went_before_its_job_began_is_told(table: Table) -> None:
    old = table.version
    table.add([{"a": 1}])
    table.backfill("double")

    def removed(*_: Any) -> None:
        table._lance.cleanup(NOW)

    table.add([{"a": 2}])
    options = {"read_version": old, "where": "1=1"}
    begin = table._jobs.begin
    table._jobs.begin = lambda *args: (removed(), begin(*args))[1]  # type: ignore[assignment,method-assign]
    with pytest.raises(JobFailedError, match="was removed before"):
        table.backfill("double", **options)


def test_optimize_joins_fragments_and_cleans_up(table: Table) -> None:
    table.backfill("double")
    lance.dataset(table.uri).create_scalar_index("a", "BTREE")
    table.add([{"a": 41}])
    table.optimize(cleanup_older_than=NOW)
    assert len(lance.dataset(table.uri).get_fragments()) == 1
    assert lance.dataset(table.uri).stats.index_stats("a_idx")["num_unindexed_rows"] == 0
    assert {path.name for path in Path(table.uri, "data").iterdir()} == named_files(table)
    assert versions(table) == [table.version]


def test_maintenance_of_a_catalog_does_the_same(tmp_path: Path) -> None:
    client = CatalogClient(str(tmp_path / "lake"))
    entry = client.create_table("numbers", pa.schema([("a", pa.int64())]))
    for number in range(3):
        entry.append(a=[number])
    table = entry.computed(executor="inline")
    table.add_columns({"double": double})
    table.backfill("double")
    folder = Path(table.uri)
    checkpoints = folder / "_computed/checkpoints/0-0-0"
    checkpoints.mkdir(parents=True)
    (checkpoints / ("0" * 8 + "-" + "0" * 8 + "-" + "0" * 32 + ".arrow")).write_bytes(b"old")
    name = _target(table).provenance(table._lance.at().fragments[0]).file_name("dead")
    (folder / "data" / name).write_bytes(b"half")
    client.do_global_maintenance()
    assert not checkpoints.exists() and not (folder / "data" / name).exists()
    assert len(table._lance.at().fragments) == 1
    assert table.plan_backfill("double").stale_rows == 0 and not table.plan_backfill("double").has_work
    entry.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True)
    assert versions(table) == [table.version]
