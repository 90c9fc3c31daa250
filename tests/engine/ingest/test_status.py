"""How an ingestion stands: from the store, the checkpoint and the landing folder alone."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from chunkmill.engine.errors import ReadError, SourceMissingError
from chunkmill.engine.execution.lease import Lease
from chunkmill.engine.ingest import FileResult, Ingest, LandedFile, Outcome
from chunkmill.engine.ingest.metrics import IngestStatus, StatusReader
from chunkmill.engine.ingest.quarantine import FileQuarantine
from ingest_stores import MadeStore


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    return MadeStore(tmp_path)


def tree(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in folder.rglob("*")}


def status(made: MadeStore) -> IngestStatus:
    found = StatusReader(made.home).read()
    assert not found.problems
    return found


def test_a_run_is_told_by_its_files(tmp_path: Path, data: Path) -> None:
    landing, lake = tmp_path / "landing", tmp_path / "lake"
    landing.mkdir()
    shutil.copy(data / "demo.mcap", landing / "a.mcap")
    shutil.copy(data / "demo.mcap", landing / "b.mcap")
    (landing / "c.mcap").write_bytes(b"no recording")
    Ingest(landing, into=lake, executor="inline", settle=0).start(once=True).await_termination(60)
    (landing / "late.rrd").write_bytes(b"123")
    before = tree(tmp_path)

    found = StatusReader(lake).read()

    assert found.source == str(landing)
    assert (found.batches, found.recordings, found.quarantined) == (1, 1, 1)
    assert found.files == {"added": 1, "duplicate": 1, "quarantined": 1}
    assert (found.chunks, found.rows, found.bytes) > (0, 0, 0)
    assert found.last is not None and found.last.number == 1
    assert abs(found.last.committed - time.time()) < 60
    assert [rate.files for rate in found.rates] == [3, 3]
    assert found.lag is not None and (found.lag.waiting, found.lag.waiting_bytes, found.lag.running) == (1, 3, 0)
    assert found.holder is None
    assert not found.problems
    assert tree(tmp_path) == before


def test_a_store_that_has_nothing_yet_is_told(made: MadeStore) -> None:
    found = status(made)
    assert (found.version, found.batches, found.files, found.last) == (0, 0, {}, None)
    assert [rate.files_per_second for rate in found.rates] == [0, 0]


def test_nothing_ingested_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="neither a store"):
        StatusReader(tmp_path)


def test_the_home_in_a_folder_of_rrds_is_found(tmp_path: Path) -> None:
    (tmp_path / "rrds" / ".chunkmill" / "versions").mkdir(parents=True)
    assert StatusReader(tmp_path / "rrds").home == tmp_path / "rrds" / ".chunkmill"


def test_rates_are_of_the_last_minute_and_of_the_last_quarter_of_an_hour(made: MadeStore) -> None:
    now = time.time()
    made.commit(now - 3600, {"added": 1000}, 10_000_000)
    made.commit(now - 600, {"added": 20, "duplicate": 5}, 3_000_000)
    made.commit(now - 30, {"added": 6}, 600_000)
    minute, quarter = status(made).rates
    assert (minute.window, minute.files, minute.bytes, minute.batches) == (60, 6, 600_000, 1)
    assert (quarter.window, quarter.files, quarter.bytes, quarter.batches) == (900, 31, 3_600_000, 2)
    assert minute.files_per_second == pytest.approx(0.1)
    assert minute.bytes_per_second == pytest.approx(10_000)


def test_the_rate_of_a_young_store_is_of_its_life(made: MadeStore) -> None:
    made.commit(time.time() - 9.5, {"added": 20})
    minute, quarter = status(made).rates
    assert minute.window == quarter.window == pytest.approx(10, abs=1)


def test_the_last_batch_is_found_before_compactions(made: MadeStore) -> None:
    now = time.time()
    for age in range(4000, 3980, -1):
        made.commit(now - age, {"added": 1})
    for age in range(40):
        made.commit(now - 3000 + age, {}, operation="compact")
    found = status(made)
    assert found.last is not None
    assert (found.version, found.last.version, found.last.number) == (60, 20, 20)
    assert found.files == {"added": 20}
    assert [rate.files for rate in found.rates] == [0, 0]


def test_versions_are_read_once(made: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    for number in range(40):
        made.commit(now - 60 + number, {"added": 1})
    reader = StatusReader(made.home)
    reader.read()
    made.commit(now, {"added": 1})
    read: list[int] = []
    real = type(reader._folder).read_version
    monkeypatch.setattr(type(reader._folder), "read_version", lambda f, n: read.append(n) or real(f, n))
    assert reader.read().version == 41
    assert read == [41]


def test_a_version_that_is_vacuumed_meanwhile_is_passed_over(made: MadeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    made.commit(now - 20, {"added": 1})
    made.commit(now - 10, {"added": 2})
    reader = StatusReader(made.home)
    reader._folder.files.delete([1])
    listings = iter([[1, 2], [2]])
    monkeypatch.setattr(reader._folder.files, "numbers", lambda: next(listings))
    assert reader.read().version == 2


def test_a_damaged_version_is_an_error(made: MadeStore) -> None:
    made.commit(time.time(), {"added": 1})
    path = made.home / "versions" / "00000001.json"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ReadError, match=r"00000001\.json"):
        StatusReader(made.home).read()


def test_what_was_not_offered_waits_and_what_was_not_committed_runs(made: MadeStore) -> None:
    made.log.append([made.land("a.mcap"), made.land("b.mcap")])
    made.commit(time.time(), {"added": 2})
    made.log.append([made.land("c.mcap")])
    made.land("d.mcap", 7)
    made.land("e.mcap.part")
    lag = status(made).lag
    assert lag is not None
    assert (lag.waiting, lag.waiting_bytes, lag.running) == (1, 7, 1)


def test_a_replaced_file_waits_again(made: MadeStore) -> None:
    made.log.append([made.land("a.mcap")])
    made.commit(time.time(), {"added": 1})
    made.land("a.mcap", 99)
    lag = status(made).lag
    assert lag is not None and (lag.waiting, lag.waiting_bytes) == (1, 99)


def test_a_reader_sees_the_landing_log_grow(made: MadeStore) -> None:
    reader = StatusReader(made.home)
    file = made.land("a.mcap")
    before = reader.read().lag
    made.log.append([file])
    after = reader.read().lag
    assert before is not None and after is not None
    assert (before.waiting, before.running, after.waiting, after.running) == (1, 0, 0, 1)


def test_a_file_that_was_copied_with_its_old_time_has_not_waited_for_years(made: MadeStore) -> None:
    os.utime(made.land("a.mcap").path, (1.0, 1.0))
    lag = status(made).lag
    assert lag is not None and lag.oldest_seconds < 60


def test_who_writes_is_told(made: MadeStore) -> None:
    with Lease.take(made.home, "ingest", name=made.query_id), Lease.take(made.home, "compact"):
        holder = status(made).holder
    assert holder is not None and (holder.holder, holder.pid) == ("ingest", os.getpid())
    assert status(made).holder is None


def test_the_quarantine_is_counted(made: MadeStore) -> None:
    bad = FileResult(LandedFile("/landing/x.mcap", 1, 1), Outcome.QUARANTINED, error={"code": "c", "message": "m"})
    FileQuarantine(made.home).note(made.query_id, 1, [bad])
    assert status(made).quarantined == 1


def test_a_missing_landing_folder_does_not_hide_the_rest(made: MadeStore) -> None:
    made.commit(time.time(), {"added": 1})
    made.landing.rmdir()
    found = StatusReader(made.home).read()
    assert found.lag is None and found.recordings == 1
    assert len(found.problems) == 1 and str(made.landing) in found.problems[0]


def test_a_torn_checkpoint_does_not_hide_the_rest(made: MadeStore) -> None:
    made.commit(time.time(), {"added": 1})
    (made.home / "ingest" / "ingest.json").write_bytes(b"{")
    found = StatusReader(made.home).read()
    assert (found.source, found.lag, found.recordings) == (None, None, 1)
    assert found.last is not None and found.last.number == 1
    assert "torn" in found.problems[0]


def test_a_checkpoint_elsewhere_is_named(made: MadeStore, tmp_path: Path) -> None:
    (made.home / "ingest").rename(tmp_path / "elsewhere")
    assert StatusReader(made.home).read().source is None
    assert StatusReader(made.home, tmp_path / "elsewhere").read().source == str(made.landing)
