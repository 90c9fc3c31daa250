"""Many recordings in few stages: each whole or not at all, one failure alone, and no task with more than its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chunkmill.engine import spark
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import ReadError, SessionError, WriteError
from chunkmill.engine.execution import groups
from chunkmill.engine.execution import work as work_module
from chunkmill.engine.execution.groups import PlannedRecording, RecordingOutcome, write_recordings
from chunkmill.engine.execution.stage import RunOptions
from chunkmill.engine.execution.work import JoinedWork
from chunkmill.engine.rrd import StoreEntry
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.engine.stream.lazy_stream import plan_recording
from chunkmill.readers import McapReader, RrdReader
from pyspark.serializers import CloudPickleSerializer

STORE = StoreEntry("recording", "a", "r")
INLINE = RunOptions("inline")


def stream(name: str, rows: int = 3) -> LazyChunkStream:
    column = ComponentColumn("c", [float(i) for i in range(rows)])
    return LazyChunkStream.from_iter(
        [Chunk.from_columns(f"/{name}", [TimeColumn("t", sequence=range(rows))], [column])]
    )


def failing(chunk: Chunk) -> Chunk:
    raise ReadError(f"no good: {chunk.entity_path}", path="x.mcap", offset=3)


def planned(folder: Path, name: str, chunks: LazyChunkStream) -> PlannedRecording:
    return plan_recording(folder / f"{name}.rrd", [(STORE, chunks)], executor="inline")


def run(recordings: Any, folder: Path, options: RunOptions = INLINE) -> list[RecordingOutcome]:
    return list(write_recordings(recordings, folder, options))


def entities(path: Path) -> list[str]:
    return [c.entity_path for c in RrdReader(path).stream().to_chunks(executor="inline")]


def test_every_recording_gets_its_own_chunks_and_report(tmp_path: Path) -> None:
    names = [f"sub{i % 2}/r{i}" for i in range(7)]
    found = run((planned(tmp_path / "out", n, stream(n, i + 1)) for i, n in enumerate(names)), tmp_path / "out")
    assert [o.index for o in found] == list(range(7))
    for i, (name, outcome) in enumerate(zip(names, found, strict=True)):
        assert outcome.report is not None
        assert (outcome.report.rows, outcome.report.chunks) == (i + 1, 1)
        assert outcome.report.destination.endswith(f"{name}.rrd")
        assert entities(tmp_path / "out" / f"{name}.rrd") == [f"/{name}"]
    assert not [p for p in (tmp_path / "out").iterdir() if p.name.startswith(".")]


def test_one_that_fails_leaves_the_others_alone_and_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    good, bad = planned(folder, "good", stream("good")), planned(folder, "bad", stream("bad").map(failing))
    later = planned(folder, "later", stream("later"))
    found = run([good, bad, later], folder)
    assert [o.report is not None for o in found] == [True, False, True]
    assert isinstance(found[1].error, ReadError)
    assert "no good: /bad" in str(found[1].error)
    assert sorted(p.name for p in folder.iterdir()) == ["good.rrd", "later.rrd"]


def test_the_other_tasks_of_a_failed_recording_do_not_begin(tmp_path: Path) -> None:
    begun: list[str] = []

    def note(chunk: Chunk) -> Chunk:
        begun.append(chunk.entity_path)
        return chunk

    bad = [(STORE, stream("first").map(failing)), (StoreEntry("recording", "a", "q"), stream("second").map(note))]
    outputs = plan_recording(tmp_path / "bad.rrd", bad, executor="inline")
    run([outputs, planned(tmp_path, "good", stream("good").map(note))], tmp_path)
    assert begun == ["/good"]


def test_what_cannot_be_written_is_an_outcome(tmp_path: Path) -> None:
    (tmp_path / "there.rrd").mkdir()
    source = tmp_path / "source.rrd"
    stream("s").write_rrd(source, application_id="a", recording_id="r", executor="inline")
    own = plan_recording(source, [(STORE, RrdReader(source).stream())], executor="inline")
    found = run([planned(tmp_path, "there", stream("x")), own, planned(tmp_path, "good", stream("good"))], tmp_path)
    assert [type(o.error) for o in found] == [WriteError, WriteError, type(None)]
    assert entities(source) == ["/s"]


@pytest.mark.parametrize(("times", "there"), [(1, [0, 0, 3, 3, 3, 6, 6, 6]), (2, [0, 0, 0, 0, 0, 6, 6, 6])])
def test_recordings_are_divided_into_stages(
    times: int, there: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "STAGE_TASKS", 3)
    monkeypatch.setattr(groups, "stages_at_once", lambda _: times)
    seen: list[list[str]] = []

    def recordings() -> Iterator[PlannedRecording]:
        for i in range(8):
            yield planned(tmp_path, f"r{i}", stream(f"r{i}"))
            seen.append(sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".rrd"))

    assert len(run(recordings(), tmp_path)) == 8
    assert [len(s) for s in seen] == there


def test_stages_grow_with_the_cores_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def cluster_of(cores: int) -> int:
        context = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=cores))
        monkeypatch.setattr(spark, "running_session", lambda *_: context)
        return groups.stages_at_once(RunOptions("spark"))

    assert [cluster_of(cores) for cores in (2, 64, 65, 1600)] == [1, 1, 2, 25]
    assert groups.stages_at_once(RunOptions("inline")) == 1


def test_when_spark_itself_fails_each_recording_is_tried_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = groups.run_tasks

    def crashing(work: Any, *more: Any) -> Any:
        if any("poison" in str(c.entity_path) for t in work.tasks for c in work.run(t.index)):
            raise SessionError("the Spark stage failed: a worker was killed")
        return usual(work, *more)

    def kept(name: str) -> LazyChunkStream:
        source = tmp_path / f"{name}.source.rrd"
        stream(name).write_rrd(source, application_id="a", recording_id="r", executor="inline")
        return RrdReader(source).stream()

    monkeypatch.setattr(groups, "run_tasks", crashing)
    names = ["one", "poison", "two"]
    found = run([planned(tmp_path / "out", n, kept(n)) for n in names], tmp_path / "out")
    assert [type(o.error) for o in found] == [type(None), SessionError, type(None)]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["one.rrd", "two.rrd"]


def test_a_task_unpacks_its_own_work_only(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works = [
        w
        for _ in range(5)
        for _, w in plan_recording("x.rrd", [(STORE, McapReader(data / "demo.mcap").stream())]).outputs
    ]
    wire = CloudPickleSerializer()
    travelled = wire.loads(wire.dumps(JoinedWork(works)))
    unpacked: list[int] = []

    class Counting(CloudPickleSerializer):
        def loads(self, obj: bytes, encoding: str = "bytes") -> Any:
            unpacked.append(len(obj))
            return super().loads(obj, encoding)

    monkeypatch.setattr(work_module, "spark_serializer", Counting)
    chunks = list(travelled.run(3))
    assert [c.num_rows for c in chunks] == [c.num_rows for c in works[3].run(0)]
    assert len(unpacked) == 2, "its work, and the splits of that"
    assert [t.label for t in travelled.tasks] == ["demo.mcap"] * 5
    with pytest.raises(IndexError):
        travelled.run(5)


def test_spark_writes_many_recordings_in_one_stage(data: Path, tmp_path: Path, spark: Any) -> None:
    sources = []
    for i in range(4):
        sources.append(tmp_path / f"s{i}.mcap")
        shutil.copy(data / "mcap" / "rplidar-zenoh-driver__out.mcap", sources[-1])
    damaged = bytearray(sources[2].read_bytes())
    damaged[100_000] ^= 0xFF
    sources[2].write_bytes(damaged)
    recordings = []
    for source in sources:
        reader = McapReader(source, decoders=["raw"])
        recordings.append(plan_recording(tmp_path / "out" / f"{source.stem}.rrd", [(STORE, reader.stream())]))
    jobs_before = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    found = run(recordings, tmp_path / "out", RunOptions("spark"))
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == jobs_before + 1
    assert [o.error is None for o in found] == [True, True, False, True]
    assert isinstance(found[2].error, ReadError)
    assert [o.report.rows for o in found if o.report is not None] == [256] * 3
    assert len({o.report.tasks[0].worker for o in found if o.report is not None}) >= 1
