"""Where an ingestion takes files from, where it puts recordings, and how it starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine import Ingest, RecordingStore
from chunkmill.engine.errors import PipelineError, ReadError, SourceMissingError, UsageError, WriteError
from chunkmill.engine.execution.lease import Lease
from chunkmill.engine.ingest import Outcome
from chunkmill.engine.ingest.checkpoint import Checkpoint
from chunkmill.readers import RrdReader
from landed_files import bytes_at, outcomes, rrd_at, run_once


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
        with pytest.raises(SourceMissingError, match="not in this store"):
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
    def test_a_second_run_of_an_ingestion_is_refused(self, landing: Path, lake: Path) -> None:
        query = Checkpoint(lake / "ingest").begin(landing).query_id
        with Lease.take(lake, "somebody", name=query), pytest.raises(WriteError, match="somebody"):
            Ingest(landing, into=lake, executor="inline").start()

    def test_a_folder_of_rrds_has_one_ingestion(self, landing: Path, lake: Path, tmp_path: Path) -> None:
        with Lease.take(lake, "somebody", name="rrds"), pytest.raises(WriteError, match="somebody"):
            Ingest(landing, into=lake, rrds=tmp_path / "rrds", executor="inline").start()

    def test_a_checkpoint_belongs_to_one_folder(self, landing: Path, lake: Path, tmp_path: Path) -> None:
        run_once(landing, into=lake)
        (tmp_path / "other").mkdir()
        with pytest.raises(UsageError, match="to the landing folder"):
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
        with pytest.raises(ReadError, match="the checkpoint is damaged") as caught:
            run_once(landing, into=lake)
        assert "ingest.json" in str(caught.value)

    @pytest.mark.parametrize("id_", ["../../elsewhere", "a/b", "", "..", 5, "a" * 65, "a\n"])
    def test_an_id_that_is_none_names_no_file(self, landing: Path, lake: Path, id_: object) -> None:
        run_once(landing, into=lake)
        path = lake / "ingest" / "ingest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "query_id": id_}))
        before = sorted(lake.parent.rglob("*"))
        with pytest.raises(ReadError, match="the checkpoint is damaged"):
            run_once(landing, into=lake)
        assert sorted(lake.parent.rglob("*")) == before

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

    def test_what_a_killed_spark_left_in_the_checkpoint_is_removed(self, lake: Path) -> None:
        from chunkmill.engine.ingest.checkpoint import Checkpoint

        spark = lake / "ingest" / "spark"
        left = [
            ".metadata.17.tmp",
            "..metadata.17.tmp.crc",
            "offsets/..4.17.tmp.crc",
            "commits/.2.crc",
            "offsets/.9.tmp",
        ]
        good = ["metadata", ".metadata.crc", "commits/3", "commits/.3.crc"]
        for name in (*left, *good):
            (spark / name).parent.mkdir(parents=True, exist_ok=True)
            (spark / name).write_bytes(b'v1\n{"nextBatchWatermarkMs":0}')
        Checkpoint(lake / "ingest").check_spark()
        assert sorted(str(p.relative_to(spark)) for p in spark.rglob("*") if p.is_file()) == sorted(good)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({}, "destination"),
            ({"into": "{landing}/lake"}, "is in the landing folder"),
            ({"into": "s3://bucket/lake"}, "needs a local checkpoint"),
            ({"into": "{lake}", "source_done": "burn"}, "keep, archive or delete"),
            ({"into": "{lake}", "source_done": "archive"}, "no archive folder is given"),
            ({"into": "{lake}", "source_done": "archive", "archive": "{landing}/old"}, "is in the landing folder"),
            ({"into": "{lake}", "archive": "{lake}-old"}, "an archive is given"),
            ({"into": "{lake}", "rrds": "{lake}/shards"}, "is inside the store"),
            ({"into": "{lake}", "settle": "soon"}, "not a duration"),
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
