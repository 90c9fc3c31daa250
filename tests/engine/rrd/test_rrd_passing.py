"""Passing messages on as they lie gives, byte for byte, what reading and writing every chunk gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import WriteError
from chunkmill.engine.execution import spark_stage as spark_module
from chunkmill.engine.execution.commit import Regions
from chunkmill.engine.execution.reporting import ProgressState
from chunkmill.engine.reports import RunReport
from chunkmill.engine.rrd import FileRun, MessageWriter, RrdFile, StoreEntry
from chunkmill.engine.stream import LazyChunkStream, write_stores
from chunkmill.lenses import MutateLens, Selector
from chunkmill.readers import RrdReader, rrd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from passing_runs import TARGET, both_ways, recorded
from pyspark.sql import SparkSession
from rrd_bytes import STORE, image, scalars, static, write_rrd
from test_rrd_real_data import OLD, RECORDINGS

pytestmark = pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")
CHUNKS = [
    scalars(),
    image(),
    static(),
    scalars("/leg", rows=30_000),
    image(2_000_000, start=3),
    scalars("/leg", timeline="tick"),
    scalars("/arm", start=9),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_rrd(tmp_path / "source.rrd", CHUNKS)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each passage that was tried, whether it could be made."""
    found: list[bool] = []
    copy = FileRun.copy

    def noted(self: FileRun, *given: Any, **named: Any) -> bool:
        found.append(copy(self, *given, **named))
        return found[-1]

    monkeypatch.setattr(FileRun, "copy", noted)
    return found


@pytest.mark.heavy
def test_every_recording_there_is(tmp_path: Path, passed: list[bool]) -> None:
    for path in (parameters.values[0] for parameters in RECORDINGS):
        if path.name in OLD or path.stat().st_size > 5_000_000:
            continue
        for store in RrdFile(path).stores():
            for target in (StoreEntry(store.kind, "a", "b" * 200), store):
                ours, expected = both_ways(tmp_path, lambda: [(target, RrdReader(path).stream(store=store))])  # noqa: B023
                assert ours == expected, path.name
    assert any(passed)


def test_all_stores_of_a_file_at_once(tmp_path: Path, passed: list[bool]) -> None:
    blueprint = StoreEntry("blueprint", "app", "look")
    a, b = write_rrd(tmp_path / "a.rrd", CHUNKS), write_rrd(tmp_path / "b.rrd", [scalars("/view"), static()], blueprint)
    path = tmp_path / "source.rrd"
    both = [(STORE, RrdReader(a).stream()), (blueprint, RrdReader(b).stream(store=blueprint))]
    write_stores(path, both, executor="inline")
    passed.clear()
    ours, expected = both_ways(tmp_path, lambda: [(s, RrdReader(path).stream(store=s)) for s in (STORE, blueprint)])
    assert ours == expected
    assert passed
    assert all(passed)


SELECTIONS = st.fixed_dictionaries(
    {
        "content": st.sampled_from([None, "/**", "/leg/**", "/** -/camera/**", "/nowhere/**"]),
        "has_timeline": st.sampled_from([None, "frame", "tick", "other"]),
        "is_static": st.sampled_from([None, True, False]),
    }
)


def selected(stream: LazyChunkStream, steps: list[tuple[str, dict[str, Any]]]) -> LazyChunkStream:
    for name, selection in steps:
        if name == "split":
            these, rest = stream.split(**selection)
            stream = LazyChunkStream.merge(rest.filter(has_timeline="frame"), these.drop(content="/arm/**"))
        else:
            stream = getattr(stream, name)(**selection)
    return stream


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(["filter", "drop", "split"]), SELECTIONS), max_size=3))
@pytest.mark.heavy
def test_any_selection(source: Path, tmp_path: Path, passed: list[bool], steps: list[Any]) -> None:
    passed.clear()
    ours, expected = both_ways(tmp_path, lambda: [(TARGET, selected(RrdReader(source).stream(), steps))])
    assert ours == expected
    assert all(passed)


def test_merged_files(source: Path, tmp_path: Path, passed: list[bool]) -> None:
    more = [scalars("/more"), scalars("/arm", start=50)]
    other = write_rrd(tmp_path / "other.rrd", more, StoreEntry("recording", "x", "y"))
    streams = lambda: [(TARGET, LazyChunkStream.merge(RrdReader(other).stream(), RrdReader(source).stream()))]  # noqa: E731
    ours, expected = both_ways(tmp_path, streams)
    assert ours == expected
    assert all(passed)
    assert len(passed) >= 2


def test_beside_chunks_that_are_looked_into(source: Path, tmp_path: Path, passed: list[bool]) -> None:
    other = write_rrd(tmp_path / "other.rrd", [scalars("/more")])

    def streams() -> list[tuple[StoreEntry, LazyChunkStream]]:
        same = RrdReader(other).stream().map(lambda chunk: chunk)
        return [(TARGET, LazyChunkStream.merge(same, RrdReader(source).stream()))]

    ours, expected = both_ways(tmp_path, streams)
    assert ours == expected
    assert passed
    assert all(passed)


def test_timelines_that_one_recording_cannot_hold(tmp_path: Path) -> None:
    paths = [write_rrd(tmp_path / f"{t}.rrd", [scalars(timeline=t)]) for t in ("a-b", "a_b")]
    streams = lambda: [(TARGET, LazyChunkStream.merge(*(RrdReader(p).stream() for p in paths)))]  # noqa: E731
    ours, expected = both_ways(tmp_path, streams)
    assert ours == expected
    assert ours[0] is WriteError


def test_no_chunk_is_made(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise AssertionError("a chunk was made")

    monkeypatch.setattr(Chunk, "lazy", explode)
    monkeypatch.setattr(MessageWriter, "append", explode)
    stream = RrdReader(source).stream().filter(content="/**")
    report = stream.write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="b", executor="inline")
    assert (report.chunks, report.bytes_passed) == (7, report.bytes_in)
    assert report.sizes_in.chunks == report.sizes_out.chunks == 7
    assert report.tasks[0].phases["read"] > 0 < report.tasks[0].phases["write"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.rrd", "source.rrd"]


def test_a_task_that_can_pass_nothing_on_does_it_chunk_by_chunk(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rrd, "_PASSED_BYTES", 300_000)
    copy = FileRun.copy
    calls: list[int] = []

    def refused(self: FileRun, *given: Any, **named: Any) -> bool:
        calls.append(len(calls))
        return len(calls) != 2 and copy(self, *given, **named)

    monkeypatch.setattr(FileRun, "copy", refused)
    ours, expected = both_ways(tmp_path, lambda: [(TARGET, RrdReader(source).stream())])
    assert ours == expected
    assert len(calls) > 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["by_chunk.rrd", "passed.rrd", "source.rrd"]


def test_tasks_on_another_machine_write_parts_of_their_own(
    source: Path, tmp_path: Path, passed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rrd, "_PASSED_BYTES", 300_000)
    of = Regions.of
    monkeypatch.setattr(Regions, "of", lambda *given: replace(of(*given), host="elsewhere"))
    ours, expected = both_ways(tmp_path, lambda: [(TARGET, RrdReader(source).stream())])
    assert ours == expected
    assert len(passed) > 2
    assert all(passed)


class Listener:
    """Keeps what it is told last."""

    def started(self, total_splits: int, total_bytes: int) -> None:
        self.total = total_splits, total_bytes

    def advanced(self, done: ProgressState) -> None:
        self.done = done

    def finished(self, result: RunReport) -> None:
        self.result = result


def test_progress(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rrd, "_PASSED_BYTES", 300_000)
    listener = Listener()
    stream = RrdReader(source).stream()
    stream.write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="b", executor="inline", progress=listener)
    done = listener.done
    assert (done.splits_done, done.bytes_done) == listener.total
    assert (done.splits_done, done.chunks) == (listener.result.splits, 7)
    assert 0 < done.bytes_written < listener.result.bytes_out


@pytest.mark.usefixtures("spark")
def test_tasks_write_into_one_file(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rrd, "_PASSED_BYTES", 300_000)
    for executor in ("inline", "spark"):
        stream = RrdReader(source).stream().drop(content="/arm/**")
        stream.write_rrd(tmp_path / executor, application_id="a", recording_id="b", executor=executor)
    assert recorded(tmp_path / "spark") == recorded(tmp_path / "inline")


def test_spark_is_asked_only_for_tasks_that_look_into_chunks(
    spark: SparkSession, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rrd, "SPLIT_BYTES", 300_000)
    monkeypatch.setattr(rrd, "_PASSED_BYTES", 300_000)
    run, asked = spark_module.run_spark, []

    def noting(*given: Any, **named: Any) -> Any:
        asked.append(len(given[2]))
        return run(*given, **named)

    monkeypatch.setattr(spark_module, "run_spark", noting)

    def write(name: str, stream: LazyChunkStream) -> RunReport:
        return stream.write_rrd(tmp_path / name, application_id="a", recording_id="b", executor=name.split("-")[0])

    all_passed = write("spark-passed", RrdReader(source).stream())
    assert not asked
    assert recorded(tmp_path / "spark-passed")[0]
    lens = MutateLens("Scalars:scalars", Selector("."))
    some = [
        write(name, RrdReader(source).stream().lenses([lens], output_mode="forward_unmatched", content="/leg"))
        for name in ("inline-lens", "spark-lens")
    ]
    assert asked
    assert all(0 < number < some[0].splits for number in asked)
    assert some[0].splits == some[1].splits
    assert all_passed.splits > 1
