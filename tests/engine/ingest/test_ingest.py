"""A landing folder becomes recordings, each file once, whatever lands."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine import Ingest, RecordingStore
from chunkmill.engine.errors import PipelineError, ReadError, SourceMissingError, UsageError, WriteError
from chunkmill.engine.ingest import Outcome
from chunkmill.engine.ingest import batch as batch_module
from chunkmill.engine.ingest.quarantine import FileQuarantine
from chunkmill.engine.recordings.lease import Lease
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import McapReader, RrdReader
from landed_files import bytes_at, outcomes, parquet_at, rows_by_source, rrd_at, run_once


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


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
        usual = batch_module.landed

        def late(path: str) -> Any:
            if Path(path).name == "a.rrd":
                Path(path).unlink(missing_ok=True)
            return usual(path)

        monkeypatch.setattr(batch_module, "landed", late)
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
        running: list[Any] = []

        def stopping(stream: LazyChunkStream) -> LazyChunkStream:
            running[0].stop()
            return stream

        ingest = Ingest(landing, into=lake, executor="inline", pipeline=stopping, max_files_per_trigger=1)
        running.append(ingest.start(every=0.05))
        assert running[0].await_termination(30)
        assert not running[0].is_active
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


class TestSources:
    def test_archive(self, landing: Path, lake: Path, tmp_path: Path) -> None:
        rrd_at(landing / "day" / "a.rrd", "a")
        bytes_at(landing / "bad.rrd", b"broken")
        run_once(landing, into=lake, source_done="archive", archive=tmp_path / "old")
        assert (tmp_path / "old" / "day" / "a.rrd").is_file()
        assert [p.name for p in landing.rglob("*.rrd")] == ["bad.rrd"]
        rrd_at(landing / "day" / "a.rrd", "b", value=7.0)
        run_once(landing, into=lake, source_done="archive", archive=tmp_path / "old")
        assert sorted(p.name for p in (tmp_path / "old" / "day").iterdir()) == ["a-2.rrd", "a.rrd"]
        assert {e.recording_id for e in RecordingStore.open(lake)} == {"a", "b"}

    def test_delete_and_the_next_recording_under_that_name(self, landing: Path, lake: Path, tmp_path: Path) -> None:
        for i in range(3):
            rrd_at(landing / "out.rrd", f"r{i}", value=float(i))
            run_once(landing, into=lake, rrds=tmp_path / "rrds", source_done="delete")
            assert list(landing.iterdir()) == []
        assert {e.recording_id for e in RecordingStore.open(lake)} == {"r0", "r1", "r2"}
        ids = {RrdReader(p).recordings()[0].recording_id for p in (tmp_path / "rrds").glob("*.rrd")}
        assert ids == {"r0", "r1", "r2"}

    def test_duplicates_are_deleted_too(self, landing: Path, lake: Path) -> None:
        rrd_at(landing / "a.rrd", "a")
        shutil.copy2(landing / "a.rrd", landing / "b.rrd")
        run_once(landing, into=lake, source_done="delete")
        assert list(landing.iterdir()) == []


class TestRrds:
    def test_a_folder_of_rrds_alone(self, landing: Path, tmp_path: Path, data: Path) -> None:
        shutil.copy2(data / "demo.mcap", landing / "drive.mcap")
        rrd_at(landing / "day" / "run.rrd", "run-1")
        rrd_at(landing / "drive.rrd", "drive-1")
        rrds = tmp_path / "rrds"
        run_once(landing, rrds=rrds)
        found = sorted(str(p.relative_to(rrds)) for p in rrds.rglob("*.rrd") if ".chunkmill" not in p.parts)
        assert len(found) == 3
        assert {"day/run.rrd", "drive.rrd"} < set(found)
        by_id = {s.recording_id for name in found for s in RrdReader(rrds / name).recordings()}
        assert {"run-1", "drive-1"} < by_id
        assert run_once(landing, rrds=rrds) == []
        entries = RecordingStore.open(rrds / ".chunkmill").recordings()
        assert sorted(e.rrd or "" for e in entries) == found
        with pytest.raises(SourceMissingError, match="not kept"):
            RecordingStore.open(rrds / ".chunkmill").recording(entries[0])

    def test_new_content_takes_the_place_of_its_rrd(self, landing: Path, tmp_path: Path) -> None:
        for rows in (3, 5):
            rrd_at(landing / "a.rrd", "a", rows=rows, age=100 - rows)
            run_once(landing, rrds=tmp_path / "rrds")
        (found,) = (tmp_path / "rrds").glob("*.rrd")
        assert sum(c.num_rows for c in RrdReader(found).stream()) == 5

    def test_a_file_that_is_none_of_ours_is_not_written_over(self, landing: Path, tmp_path: Path) -> None:
        rrds = tmp_path / "rrds"
        rrd_at(rrds / "a.rrd", "somebody's")
        before = (rrds / "a.rrd").read_bytes()
        rrd_at(landing / "a.rrd", "a")
        run_once(landing, rrds=rrds)
        assert (rrds / "a.rrd").read_bytes() == before
        assert RrdReader(rrds / "a.rrd.rrd").recordings()[0].recording_id == "a"


class TestStarting:
    def test_a_second_ingestion_is_refused(self, landing: Path, lake: Path) -> None:
        with Lease.take(lake, "somebody"), pytest.raises(WriteError, match="somebody"):
            Ingest(landing, into=lake, executor="inline").start()

    def test_a_checkpoint_belongs_to_one_folder(self, landing: Path, lake: Path, tmp_path: Path) -> None:
        run_once(landing, into=lake)
        (tmp_path / "other").mkdir()
        with pytest.raises(UsageError, match="of the landing folder"):
            run_once(tmp_path / "other", into=lake)
        rrd_at(tmp_path / "other" / "a.rrd", "a")
        run_once(tmp_path / "other", into=lake, checkpoint=tmp_path / "checkpoint")
        assert RecordingStore.open(lake).version.recordings == 1

    def test_without_its_checkpoint_it_knows_files_by_their_content(self, landing: Path, lake: Path) -> None:
        rrd_at(landing / "a.rrd", "a")
        run_once(landing, into=lake)
        shutil.rmtree(lake / "ingest")
        assert outcomes(run_once(landing, into=lake)) == {"a.rrd": Outcome.DUPLICATE}

    def test_a_torn_checkpoint_is_explained(self, landing: Path, lake: Path) -> None:
        run_once(landing, into=lake)
        (lake / "ingest" / "ingest.json").write_text('{"format"')
        with pytest.raises(ReadError, match="the checkpoint is torn") as caught:
            run_once(landing, into=lake)
        assert "ingest.json" in str(caught.value)

    def test_a_torn_file_of_sparks_is_explained(self, landing: Path, lake: Path) -> None:
        from chunkmill.engine.ingest.checkpoint import Checkpoint

        offsets = lake / "ingest" / "spark" / "offsets"
        offsets.mkdir(parents=True)
        (offsets / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"entry": 1}')
        Checkpoint(lake / "ingest").check_spark()
        for torn in ("", "v1", "v1\n", 'v1\n{"batchWaterm'):
            (offsets / "1").write_text(torn)
            with pytest.raises(ReadError, match="torn") as caught:
                Checkpoint(lake / "ingest").check_spark()
            assert "offsets/1" in str(caught.value)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({}, "destination"),
            ({"into": "{landing}/lake"}, "lies in the landing folder"),
            ({"into": "s3://bucket/lake"}, "needs a checkpoint elsewhere"),
            ({"into": "{lake}", "source_done": "burn"}, "keep, archive and delete"),
            ({"into": "{lake}", "source_done": "archive"}, "no folder to archive into"),
            ({"into": "{lake}", "source_done": "archive", "archive": "{landing}/old"}, "lies in the landing folder"),
            ({"into": "{lake}", "archive": "{lake}-old"}, "need no archive"),
            ({"into": "{lake}", "rrds": "{lake}/shards"}, "lies in the store"),
            ({"into": "{lake}", "settle": "soon"}, "no duration"),
            ({"into": "{lake}", "max_files_per_trigger": 0}, "at least 1"),
            ({"into": "{lake}", "pipeline": "{lake}/none.py"}, "none.py"),
        ],
    )
    def test_what_makes_no_sense_is_refused_before_anything_is_written(
        self, options: dict[str, Any], said: str, landing: Path, lake: Path
    ) -> None:
        given = {k: v.format(landing=landing, lake=lake) if isinstance(v, str) else v for k, v in options.items()}
        with pytest.raises(UsageError, match=said):
            Ingest(landing, executor="inline", **given)
        assert not lake.exists()

    def test_a_pipeline_that_no_file_could_pass_is_refused_before_any_is_blamed(
        self, landing: Path, lake: Path, tmp_path: Path
    ) -> None:
        code = tmp_path / "pipeline.py"
        code.write_text("def pipeline(stream):\n    stream.drop(content='/camera/**')\n")
        with pytest.raises(PipelineError, match="returned nothing"):
            Ingest(landing, into=lake, pipeline=code, executor="inline")
        assert not lake.exists()

    def test_a_missing_folder(self, tmp_path: Path, lake: Path) -> None:
        with pytest.raises(SourceMissingError, match="cannot be listed"):
            Ingest(tmp_path / "none", into=lake, executor="inline").start()


def test_a_pipeline_means_the_same_as_for_a_conversion(landing: Path, lake: Path, data: Path) -> None:
    shutil.copy2(data / "demo.mcap", landing / "drive.mcap")

    def only_imu(stream: LazyChunkStream) -> LazyChunkStream:
        return stream.filter(content="/imu/**")

    run_once(landing, into=lake, pipeline=only_imu)
    store = RecordingStore.open(lake)
    converted = only_imu(McapReader(landing / "drive.mcap").stream())
    assert sum(c.num_rows for c in store.recording(store.recordings()[0])) == sum(c.num_rows for c in converted)


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
    monkeypatch.setattr("chunkmill.engine.store.collecting.SPLIT_BYTES", 1000)
    shutil.copy2(data / "demo.mcap", landing / "drive.mcap")
    rrd_at(landing / "small.rrd", "small")
    bytes_at(landing / "bad.mcap", b"broken")
    found = outcomes(run_once(landing, into=lake, rrds=lake.parent / "rrds"))
    assert found == {"drive.mcap": Outcome.ADDED, "small.rrd": Outcome.ADDED, "bad.mcap": Outcome.QUARANTINED}
    rows = sum(c.num_rows for c in McapReader(landing / "drive.mcap").stream())
    assert rows_by_source(lake) == {"drive.mcap": rows, "small.rrd": 3}
    assert sum(c.num_rows for c in RrdReader(lake.parent / "rrds" / "drive.rrd").stream()) == rows
