"""The Spark stage: one, with no payload through the JVM, and the same output as inline."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import ReadError
from chunkmill.engine.execution import spark_stage as spark_module
from chunkmill.engine.execution.stage import Body, TaskRun, TaskRunner
from chunkmill.engine.execution.work import RowWriter, parse_rows
from chunkmill.engine.optimisation import collect
from chunkmill.engine.rrd import ChunkTable
from chunkmill.engine.store import OptimizationProfile
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import McapReader, RrdReader
from comparison import cells, rerun_verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def blobs(number: int, size: int) -> list[Chunk]:
    column = ComponentColumn("blob", pa.array([[bytes(size)]], pa.list_(pa.binary())))
    return [Chunk.from_columns(f"/b/{i}", [TimeColumn("frame", sequence=[i])], [column]) for i in range(number)]


@pytest.fixture
def stage_rows(monkeypatch: pytest.MonkeyPatch) -> list[pa.RecordBatch]:
    """The rows that came back from Spark's stages."""
    seen: list[pa.RecordBatch] = []
    real = spark_module.run_spark

    def spy(*args: object) -> object:
        for batch in real(*args):  # type: ignore[arg-type]
            seen.append(batch)
            yield batch

    monkeypatch.setattr(spark_module, "run_spark", spy)
    return seen


def test_no_payload_crosses_the_jvm(
    spark: SparkSession, stage_rows: list[pa.RecordBatch], data: Path, tmp_path: Path
) -> None:
    source = data / "demo.mcap"
    result = (
        McapReader(source)
        .stream()
        .write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="r", executor="spark")
    )
    assert result.bytes_out > 100_000
    tables = [table for b in stage_rows for table in b.column("table").to_pylist() if table is not None]
    assert sum(len(ChunkTable.from_stream(table)) for table in tables) == result.chunks
    binary = [
        f.name for b in stage_rows for f in b.schema if pa.types.is_binary(f.type) or pa.types.is_large_binary(f.type)
    ]
    assert set(binary) == {"table"}
    assert all(len(table) < 64 * 1024 for table in tables)
    assert sum(map(len, tables)) < result.bytes_out / 2


def test_rows_stay_small_whatever_the_payload(
    spark: SparkSession, stage_rows: list[pa.RecordBatch], tmp_path: Path
) -> None:
    LazyChunkStream.from_iter(blobs(8, 1_000_000)).map(lambda c: c).write_rrd(
        tmp_path / "out.rrd", application_id="a", recording_id="r", executor="spark"
    )
    assert sum(b.nbytes for b in stage_rows) < 8 * 1024 + 8 * 1024


@pytest.mark.parametrize("through", ["a function", "nothing"])
def test_compaction_in_two_steps_moves_no_payload_through_the_jvm(
    through: str, spark: SparkSession, stage_rows: list[pa.RecordBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks with megabytes of what can't be compressed: of each only the rows that describe it cross, in each step."""
    monkeypatch.setattr(collect, "is_small", lambda _: False)
    blob = pa.array([[os.urandom(250_000)] for _ in range(4)], pa.list_(pa.binary()))
    times = (TimeColumn("frame", sequence=range(4 * i, 4 * i + 4)) for i in range(6))
    chunks = [Chunk.from_columns("/camera", [t], [ComponentColumn("blob", blob)]) for t in times]
    LazyChunkStream.from_iter(chunks).write_rrd(
        tmp_path / "in.rrd", application_id="a", recording_id="r", executor="inline"
    )
    stream = RrdReader(tmp_path / "in.rrd").stream()
    if through == "a function":
        stream = stream.map(lambda c: c)
    store = stream.collect(optimize=OptimizationProfile.OBJECT_STORE, executor="spark")
    assert sorted(c.num_rows for c in store) == [8, 8, 8]
    told = [kind for b in stage_rows for kind in b.column("kind").to_pylist()]
    assert told.count("task") == (2 if through == "a function" else 1)
    assert sum(b.nbytes for b in stage_rows) < 32 * 1024


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The physical plans of the stages that Spark ran."""
    seen: list[str] = []
    real = spark_module.rows_of

    def spy(session: object, stage: Any) -> object:
        seen.append(stage._jdf.queryExecution().executedPlan().toString())
        return real(session, stage)  # type: ignore[arg-type]

    monkeypatch.setattr(spark_module, "rows_of", spy)
    return seen


def test_narrow_operators_with_merges_and_splits_run_as_one_python_stage(
    spark: SparkSession, stages: list[str], rrd: Path, data: Path, tmp_path: Path
) -> None:
    static, rest = RrdReader(rrd).stream().split(is_static=True)
    one, two = rest.map(lambda c: c).split(content="/imu/**")
    other = McapReader(data / "demo.mcap").stream().drop(content="/camera/**").flat_map(lambda c: [c])
    merged = LazyChunkStream.merge(LazyChunkStream.merge(one, static), two.filter(content="/**"), other)
    result = merged.write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="r", executor="spark")
    assert result.splits > 1
    (plan,) = stages
    assert plan.count("MapInArrow") == 1
    assert "Exchange" not in plan and "Python" not in plan.replace("PythonMapInArrow", "")


@pytest.fixture
def rrd(data: Path, tmp_path: Path) -> Path:
    """A real recording as an RRD with a footer."""
    path = tmp_path / "source.rrd"
    McapReader(data / "demo.mcap").stream().write_rrd(path, application_id="a", recording_id="r", executor="inline")
    return path


def test_a_pipeline_is_one_python_stage(spark: SparkSession, rrd: Path) -> None:
    one, two = RrdReader(rrd).stream().split(is_static=True)
    stream = LazyChunkStream.merge(one.map(lambda c: c), two.filter(content="/**"))
    plan = stream._plan("spark")
    frame = spark.range(0, len(plan.tasks), 1, len(plan.tasks)).mapInArrow(lambda b: b, "id bigint")
    assert frame.columns == ["id"]
    assert stream.explain(executor="spark").count("stage (mapInArrow") == 1
    assert re.search(r"1 source\(s\), \d+ split\(s\), 1 stage", stream.explain(executor="spark"))


@pytest.mark.parametrize("name", ["demo.mcap", "mcap/rosbag2__cdr_test_0.mcap", "rrd"])
def test_spark_and_inline_give_the_same_twice(
    name: str, spark: SparkSession, data: Path, rrd: Path, tmp_path: Path
) -> None:
    def stream() -> LazyChunkStream:
        return RrdReader(rrd).stream() if name == "rrd" else McapReader(data / name).stream()

    runs = []
    for i, executor in enumerate(["inline", "spark", "spark"]):
        out = tmp_path / f"{i}.rrd"
        stream().write_rrd(out, application_id="a", recording_id="r", executor=executor)
        runs.append(cells(RrdReader(out).stream().to_chunks(executor="inline")))
    assert runs[0] == runs[1] == runs[2]
    assert runs[0]
    rerun_verify(*(tmp_path / f"{i}.rrd" for i in range(3)))


def test_results_come_back_by_reference_and_in_order(spark: SparkSession) -> None:
    chunks = (
        LazyChunkStream.from_iter([*blobs(3, 2000), *blobs(2, 100)])
        .map(lambda c: c.with_entity_path("/m" + c.entity_path))
        .to_chunks(executor="spark")
    )
    assert [c.entity_path for c in chunks] == [f"/m/b/{i}" for i in (0, 1, 2, 0, 1)]
    assert [c.payload is not None for c in chunks] == [True, True, True, False, False]  # below 1 KiB: in memory
    assert chunks[1].to_record_batch().column("blob").to_pylist() == [[bytes(2000)]]


def fails_with(error: Exception) -> object:
    def fail(chunk: Chunk) -> Chunk:
        raise error

    return fail


@pytest.mark.parametrize("executor", ["inline", "spark"])
@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ZeroDivisionError("division by zero"), ZeroDivisionError, "division by zero"),
        (KeyError("k"), KeyError, "k"),
        (ReadError("cut", path="f", offset=3), ReadError, r"f: cut \(at byte 3\)"),
    ],
)
def test_the_exception_of_a_function_is_raised_as_it_was(
    executor: str, error: Exception, kind: type[Exception], text: str, request: pytest.FixtureRequest
) -> None:
    if executor == "spark":
        request.getfixturevalue("spark")
    stream = LazyChunkStream.from_iter(blobs(1, 10)).map(fails_with(error))  # type: ignore[arg-type]
    with pytest.raises(kind, match=text) as caught:
        stream.to_chunks(executor=executor)
    if executor == "spark":
        assert any("In the task for from_iter" in note for note in caught.value.__notes__)


def test_warnings_of_tasks_are_shown(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    source = data / "mcap" / "pj-mcap-server__test_bad_schema.mcap"
    with pytest.warns(UserWarning, match="Garbage"):
        result = (
            McapReader(source)
            .stream()
            .write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="r", executor="spark")
        )
    assert any("Garbage" in w for w in result.warnings)


class Warns(Body):
    """A body that warns before, between and after its two batches."""

    def label(self, index: int) -> str:
        return str(index)

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        for number in range(2):
            warnings.warn(f"before {number}", stacklevel=1)
            yield task.rows.batch()
        warnings.warn("after", stacklevel=1)
        return {"chunks": 0}


def test_a_body_leaves_all_tasks_to_workers_by_default() -> None:
    assert TaskRunner(Warns()).quick(1) == {}
    assert Warns().quick(TaskRun(0, "0", "", RowWriter(0))) is None


def test_filters_of_warnings_are_as_before_between_two_batches() -> None:
    filters, show = list(warnings.filters), warnings.showwarning
    rows = []
    for batch in TaskRunner(Warns()).run(0):
        assert warnings.filters == filters
        assert warnings.showwarning is show
        rows.append(batch)
    _, notes = parse_rows(rows)
    assert [note.data["text"] for note in notes if note.kind == "warning"] == ["before 0", "before 1", "after"]
