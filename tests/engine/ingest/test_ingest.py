"""A landing folder becomes recordings, each file once, whatever lands."""

from __future__ import annotations

import queue
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine import Ingest, RecordingStore
from chunkmill.engine.errors import ReadWarning
from chunkmill.engine.ingest import Outcome
from chunkmill.engine.ingest import batch as batch_module
from chunkmill.engine.ingest import query as query_module
from chunkmill.engine.ingest.quarantine import FileQuarantine
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import McapReader, RrdReader
from landed_files import bytes_at, outcomes, parquet_at, rows_by_source, rrd_at, run_once


class TestWhatLands:
    def test_files_of_every_format_become_recordings_in_one_version(
        self, landing: Path, lake: Path, data: Path
    ) -> None:
        shutil.copy2(data / "demo.mcap", landing / "drive.mcap")
        rrd_at(landing / "below" / "run.rrd", "run-1")
        parquet_at(landing / "table.parquet")
        (batch,) = run_once(landing, into=lake)
        assert set(outcomes([batch]).values()) == {Outcome.ADDED}
        assert (batch.number, batch.version) == (1, 1)
        rows = sum(c.num_rows for c in McapReader(landing / "drive.mcap").stream())
        assert rows_by_source(lake)["run.rrd"] == 3
        assert rows_by_source(lake)["table.parquet"] == 4 + 1  # its metadata
        store = RecordingStore.open(lake)
        assert store.version.recordings == 3
        assert next(e for e in store if e.source.endswith("drive.mcap")).rows == rows
        assert store.entry("run-1").application_id == "tests"

    def test_what_a_recovered_file_lost_is_reported(self, landing: Path, lake: Path, data: Path) -> None:
        bytes_at(landing / "cut.mcap", (data / "demo.mcap").read_bytes()[:500_000])
        with pytest.warns(ReadWarning, match="cut.mcap: recovered 2,455 messages"):
            (batch,) = run_once(landing, into=lake, recover=True)
        assert outcomes([batch]) == {"cut.mcap": Outcome.ADDED}

    def test_an_id_is_made_of_the_content_and_stays_the_same(self, landing: Path, tmp_path: Path, data: Path) -> None:
        ids = []
        for name in ("one", "two"):
            shutil.copy2(data / "demo.mcap", landing / f"{name}.mcap")
            run_once(landing, into=tmp_path / name)
            ids += [e.recording_id for e in RecordingStore.open(tmp_path / name)]
            (landing / f"{name}.mcap").unlink()
        assert ids[0] == ids[1]

    def test_a_file_that_fails_goes_into_quarantine_and_stops_nothing(self, landing: Path, lake: Path) -> None:
        bytes_at(landing / "a.mcap", b"no recording at all")
        rrd_at(landing / "b.rrd", "b")
        bytes_at(landing / "empty.parquet", b"")
        found = outcomes(run_once(landing, into=lake))
        assert found == {"a.mcap": Outcome.QUARANTINED, "b.rrd": Outcome.ADDED, "empty.parquet": Outcome.QUARANTINED}
        first, second = FileQuarantine(lake).rows()
        assert Path(first.path).name == "a.mcap"
        assert (first.code, first.offset, first.tries, first.batch) == ("chunkmill.read", 0, 1, 1)
        assert "magic" in first.message
        assert second.size == 0

    def test_a_second_run_takes_only_what_is_new(self, landing: Path, lake: Path) -> None:
        rrd_at(landing / "a.rrd", "a")
        run_once(landing, into=lake)
        assert run_once(landing, into=lake) == []
        rrd_at(landing / "b.rrd", "b")
        assert outcomes(run_once(landing, into=lake)) == {"b.rrd": Outcome.ADDED}
        assert RecordingStore.open(lake).version.number == 2

    def test_the_same_content_under_another_name_is_passed_over(self, landing: Path, lake: Path) -> None:
        rrd_at(landing / "a.rrd", "a")
        run_once(landing, into=lake)
        shutil.copy2(landing / "a.rrd", landing / "copy.rrd")
        shutil.copy2(landing / "a.rrd", landing / "copy2.rrd")
        assert set(outcomes(run_once(landing, into=lake)).values()) == {Outcome.DUPLICATE}
        assert rows_by_source(lake) == {"a.rrd": 3}

    def test_of_two_equal_files_in_one_batch_one_is_taken(self, landing: Path, lake: Path) -> None:
        rrd_at(landing / "a.rrd", "a")
        shutil.copy2(landing / "a.rrd", landing / "b.rrd")
        assert sorted(outcomes(run_once(landing, into=lake)).values()) == [Outcome.ADDED, Outcome.DUPLICATE]

    def test_new_content_under_a_name_is_a_new_segment_version(self, landing: Path, lake: Path) -> None:
        rrd_at(landing / "a.rrd", "a", rows=3)
        parquet_at(landing / "b.parquet", rows=4)
        run_once(landing, into=lake)
        rrd_at(landing / "a.rrd", "a", rows=5, age=10)
        parquet_at(landing / "b.parquet", rows=6, age=10)
        assert set(outcomes(run_once(landing, into=lake)).values()) == {Outcome.REPLACED}
        assert rows_by_source(lake) == {"a.rrd": 5, "b.parquet": 6 + 1}
        assert {e.segment_version for e in RecordingStore.open(lake)} == {2}
        assert sum(e.rows for e in RecordingStore.open(lake, version=1)) == 3 + 4 + 1

    def test_an_earlier_content_that_comes_back_replaces_again(self, landing: Path, lake: Path) -> None:
        for rows in (3, 5, 3):
            rrd_at(landing / "a.rrd", "a", rows=rows, age=100 - rows)
            run_once(landing, into=lake)
        assert [e.segment_version for e in RecordingStore.open(lake)] == [3]

    def test_a_recorder_that_rotates_its_files_loses_none(self, landing: Path, lake: Path) -> None:
        for number in range(4):
            for old in range(number, 0, -1):
                before = landing / ("drive.rrd" if old == 1 else f"drive.{old - 1}.rrd")
                before.rename(landing / f"drive.{old}.rrd")
            rrd_at(landing / "drive.rrd", f"r{number}", rows=3 + number, age=100 - number)
            found = outcomes(run_once(landing, into=lake))
            assert found.pop("drive.rrd") is Outcome.ADDED
            assert set(found.values()) <= {Outcome.DUPLICATE}
            there = {"drive.rrd": 3 + number} | {f"drive.{old}.rrd": 3 + number - old for old in range(1, number + 1)}
            assert rows_by_source(lake) == there
        assert [e.recording_id for e in RecordingStore.open(lake)] == ["r0", "r1", "r2", "r3"]
        assert {e.segment_version for e in RecordingStore.open(lake)} == {1}

    @pytest.mark.parametrize("max_files", [1, None])
    def test_files_that_swap_their_names_are_the_same_files(
        self, landing: Path, lake: Path, max_files: int | None
    ) -> None:
        rrd_at(landing / "a.rrd", "a", rows=3)
        rrd_at(landing / "b.rrd", "b", rows=5)
        run_once(landing, into=lake)
        for one, other in (("a.rrd", "aside"), ("b.rrd", "a.rrd"), ("aside", "b.rrd")):
            (landing / one).rename(landing / other)
        batches = run_once(landing, into=lake, max_files_per_trigger=max_files)
        assert set(outcomes(batches).values()) == {Outcome.DUPLICATE}
        assert rows_by_source(lake) == {"a.rrd": 5, "b.rrd": 3}
        rrd_at(landing / "a.rrd", "c", rows=7, age=10)
        assert outcomes(run_once(landing, into=lake)) == {"a.rrd": Outcome.REPLACED}
        assert rows_by_source(lake) == {"a.rrd": 7, "b.rrd": 3}
        assert run_once(landing, into=lake) == []

    def test_a_copy_over_another_file_takes_its_place(self, landing: Path, lake: Path) -> None:
        for at, name in enumerate("abc"):
            rrd_at(landing / f"{name}.rrd", name, rows=3 + at, age=100 - at)
        run_once(landing, into=lake)
        shutil.copyfile(landing / "a.rrd", landing / "b.rrd")
        assert outcomes(run_once(landing, into=lake)) == {"b.rrd": Outcome.DUPLICATE}
        assert rows_by_source(lake) == {"a.rrd": 3, "c.rrd": 5}
        rrd_at(landing / "a.rrd", "d", rows=9, age=10)
        run_once(landing, into=lake)
        assert rows_by_source(lake) == {"a.rrd": 9, "b.rrd": 3, "c.rrd": 5}

    def test_a_file_whose_content_went_while_it_was_away_is_taken_again(self, landing: Path, lake: Path) -> None:
        rrd_at(landing / "a.rrd", "a", rows=3)
        run_once(landing, into=lake)
        shutil.copy2(landing / "a.rrd", landing / "copy.rrd")
        run_once(landing, into=lake)
        (landing / "copy.rrd").rename(landing / "away")
        rrd_at(landing / "a.rrd", "b", rows=5, age=10)
        assert outcomes(run_once(landing, into=lake)) == {"a.rrd": Outcome.REPLACED}
        (landing / "away").rename(landing / "copy.rrd")
        assert outcomes(run_once(landing, into=lake)) == {"copy.rrd": Outcome.ADDED}
        assert rows_by_source(lake) == {"a.rrd": 5, "copy.rrd": 3}

    def test_two_files_with_one_recording_id_do_not_replace_each_other(self, landing: Path, lake: Path) -> None:
        rrd_at(landing / "a.rrd", "same", value=1.0)
        run_once(landing, into=lake)
        rrd_at(landing / "b.rrd", "same", value=2.0)
        assert outcomes(run_once(landing, into=lake)) == {"b.rrd": Outcome.QUARANTINED}
        (refused,) = FileQuarantine(lake).rows()
        assert refused.code == "chunkmill.same-recording"
        assert str(landing / "a.rrd") in refused.message
        FileQuarantine(lake).request_retry()
        assert outcomes(run_once(landing, into=lake, replace_same_id=True)) == {"b.rrd": Outcome.ADDED}
        assert [Path(e.source).name for e in RecordingStore.open(lake)] == ["b.rrd"]
        assert FileQuarantine(lake).rows() == []

    def test_blueprints_come_along(self, landing: Path, lake: Path, data: Path) -> None:
        shutil.copy2(data / "rrd" / "px4-rerun__both.rbl", landing / "b.rbl")
        run_once(landing, into=lake)
        store = RecordingStore.open(lake)
        assert len(store) == 0
        assert len(store.blueprints()) == 1
        assert len(store.recording(store.blueprints()[0])) > 0


class TestMeanwhile:
    def test_a_file_that_is_gone_when_it_is_to_be_read(
        self, landing: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rrd_at(landing / "a.rrd", "a")
        rrd_at(landing / "b.rrd", "b")
        usual = batch_module.file_at

        def late(path: str) -> Any:
            if Path(path).name == "a.rrd":
                Path(path).unlink(missing_ok=True)
            return usual(path)

        monkeypatch.setattr(batch_module, "file_at", late)
        assert outcomes(run_once(landing, into=lake)) == {"a.rrd": Outcome.VANISHED, "b.rrd": Outcome.ADDED}
        assert FileQuarantine(lake).rows() == []

    def test_a_file_that_changes_while_it_is_read_is_taken_later(self, landing: Path, lake: Path) -> None:
        rrd_at(landing / "a.rrd", "a", rows=3, age=100)

        def growing(stream: LazyChunkStream) -> LazyChunkStream:
            if not (landing / "done").exists():
                (landing / "done").touch()
                rrd_at(landing / "a.rrd", "a", rows=5, age=50)
            return stream

        batches = run_once(landing, into=lake, pipeline=growing)
        assert [b.files[0].outcome for b in batches] == [Outcome.CHANGED, Outcome.ADDED]
        assert rows_by_source(lake) == {"a.rrd": 5}

    def test_a_file_that_is_still_written_is_waited_for(self, landing: Path, lake: Path) -> None:
        whole = rrd_at(landing.parent / "whole.rrd", "a").read_bytes()
        query = Ingest(landing, into=lake, executor="inline", settle=0.4).start(every=0.05)
        with (landing / "a.rrd").open("wb", buffering=0) as file:
            for start in range(0, len(whole), 300):
                file.write(whole[start : start + 300])
                time.sleep(0.1)
        deadline = time.monotonic() + 20
        while not query.recent and time.monotonic() < deadline:
            time.sleep(0.05)
        query.stop()
        query.await_termination()
        assert outcomes(query.recent) == {"a.rrd": Outcome.ADDED}
        assert FileQuarantine(lake).rows() == []

    def test_stopping_lets_the_running_batch_end(self, landing: Path, lake: Path) -> None:
        for i in range(3):
            rrd_at(landing / f"{i}.rrd", f"r{i}", value=float(i), age=1000 - i)
        running: queue.Queue[Any] = queue.Queue()

        def stopping(stream: LazyChunkStream) -> LazyChunkStream:
            running.get(timeout=30).stop()
            return stream

        ingest = Ingest(landing, into=lake, executor="inline", pipeline=stopping, max_files_per_trigger=1)
        started = ingest.start(every=0.05)
        running.put(started)
        assert started.await_termination(30)
        assert not started.is_active
        assert RecordingStore.open(lake).version.recordings == 1
        run_once(landing, into=lake)
        assert rows_by_source(lake) == {"0.rrd": 3, "1.rrd": 3, "2.rrd": 3}

    def test_batches_are_bounded(self, landing: Path, lake: Path) -> None:
        for i in range(5):
            rrd_at(landing / f"{i}.rrd", f"r{i}", value=float(i), age=1000 - i)
        batches = run_once(landing, into=lake, max_files_per_trigger=2)
        assert [[Path(f.file.path).name for f in b.files] for b in batches] == [
            ["0.rrd", "1.rrd"],
            ["2.rrd", "3.rrd"],
            ["4.rrd"],
        ]
        assert [v.number for v in RecordingStore.open(lake).versions()] == [1, 2, 3]


class TestQuarantine:
    def test_a_file_is_tried_again_when_asked(self, landing: Path, lake: Path) -> None:
        rrd_at(landing / "a.rrd", "a")

        def failing(stream: LazyChunkStream) -> LazyChunkStream:
            raise ValueError("not today")

        assert outcomes(run_once(landing, into=lake, pipeline=failing)) == {"a.rrd": Outcome.QUARANTINED}
        (row,) = FileQuarantine(lake).rows()
        assert "not today" in row.message
        assert "test_ingest.py" in row.message or "line" in row.message
        assert run_once(landing, into=lake) == []
        FileQuarantine(lake).request_retry()
        assert outcomes(run_once(landing, into=lake, pipeline=failing)) == {"a.rrd": Outcome.QUARANTINED}
        assert [r.tries for r in FileQuarantine(lake).rows()] == [2]
        FileQuarantine(lake).request_retry()
        assert outcomes(run_once(landing, into=lake)) == {"a.rrd": Outcome.ADDED}
        assert FileQuarantine(lake).rows() == []

    def test_a_mended_file_needs_no_asking(self, landing: Path, lake: Path) -> None:
        bytes_at(landing / "a.rrd", b"broken", age=100)
        run_once(landing, into=lake)
        rrd_at(landing / "a.rrd", "a", age=50)
        assert outcomes(run_once(landing, into=lake)) == {"a.rrd": Outcome.ADDED}
        assert FileQuarantine(lake).rows() == []


def test_a_pipeline_means_the_same_as_for_a_conversion(landing: Path, lake: Path, data: Path) -> None:
    shutil.copy2(data / "demo.mcap", landing / "drive.mcap")

    def only_gps(stream: LazyChunkStream) -> LazyChunkStream:
        return stream.filter(content="/nissan/gps/**")

    run_once(landing, into=lake, pipeline=only_gps)
    store = RecordingStore.open(lake)
    converted = only_gps(McapReader(landing / "drive.mcap").stream())
    assert sum(c.num_rows for c in store.recording(store.recordings()[0])) == sum(c.num_rows for c in converted)


@pytest.mark.quick
def test_on_spark_each_entry_is_a_batch_and_a_restart_goes_on(
    landing: Path, lake: Path, data: Path, spark: Any
) -> None:
    shutil.copy2(data / "demo.mcap", landing / "drive.mcap")
    bytes_at(landing / "bad.mcap", b"broken")
    batches = run_once(landing, into=lake, executor="spark", max_files_per_trigger=1)
    assert outcomes(batches) == {"drive.mcap": Outcome.ADDED, "bad.mcap": Outcome.QUARANTINED}
    assert [b.number for b in batches] == [1, 2]
    ingest = Ingest(landing, into=lake, executor="spark", settle=0.1)
    query = ingest.start(every=0.1)
    rrd_at(landing / "a.rrd", "a")
    deadline = time.monotonic() + 30
    while not query.recent and query.is_active and time.monotonic() < deadline:
        time.sleep(0.05)
    query.stop()
    query.await_termination()
    assert outcomes(query.recent) == {"a.rrd": Outcome.ADDED}
    assert RecordingStore.open(lake).version.recordings == 2
    commits = [p for p in (lake / "ingest" / "spark" / "commits").iterdir() if p.name.isdigit()]
    for commit in sorted(commits, key=lambda p: int(p.name))[-2:]:
        commit.unlink()
    before = RecordingStore.open(lake).version
    assert run_once(landing, into=lake, executor="spark") == []
    assert RecordingStore.open(lake).version == before


def test_a_recording_of_many_splits_is_laid_out_in_two_steps(
    landing: Path, lake: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkmill.engine.optimisation.collect.SPLIT_BYTES", 1000)
    shutil.copy2(data / "demo.mcap", landing / "drive.mcap")
    rrd_at(landing / "small.rrd", "small")
    bytes_at(landing / "bad.mcap", b"broken")
    found = outcomes(run_once(landing, into=lake, rrds=lake.parent / "rrds"))
    assert found == {"drive.mcap": Outcome.ADDED, "small.rrd": Outcome.ADDED, "bad.mcap": Outcome.QUARANTINED}
    rows = sum(c.num_rows for c in McapReader(landing / "drive.mcap").stream())
    assert rows_by_source(lake) == {"drive.mcap": rows, "small.rrd": 3}
    assert sum(c.num_rows for c in RrdReader(lake.parent / "rrds" / "drive.rrd").stream()) == rows


def test_on_spark_a_stop_just_before_a_batch_begins_is_no_failure(
    landing: Path, lake: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rrd_at(landing / "a.rrd", "a")
    ingest = Ingest(landing, into=lake, executor="spark", settle=0)
    begins = query_module._Spark._handle

    def stopped(executing: Any, number: int, files: Any) -> None:
        executing.query.stop()
        begins(executing, number, files)

    monkeypatch.setattr(query_module._Spark, "_handle", stopped)
    assert ingest.start(every=0.05).await_termination(30)
    monkeypatch.undo()
    run_once(landing, into=lake, executor="spark")
    assert rows_by_source(lake) == {"a.rrd": 3}
