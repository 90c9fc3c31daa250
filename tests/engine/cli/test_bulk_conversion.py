"""A conversion of many inputs that was cut is gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.cli import convert
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.ingest import spark_query
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import McapReader, RrdReader
from click.testing import CliRunner, Result

_MAIN = "from chunkmill.engine.cli import main; main()"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(a) for a in arguments])


def recordings(folder: Path, count: int) -> Path:
    """A folder of small RRDs."""
    folder.mkdir()
    for i in range(count):
        column = ComponentColumn("value", [[float(i)]])
        chunk = Chunk.from_columns("/signal", [TimeColumn("tick", sequence=[i])], [column])
        LazyChunkStream.from_iter([chunk]).write_rrd(
            folder / f"{i:03d}.rrd", application_id="tests", recording_id=f"r{i}", executor="inline"
        )
    return folder


def written(out: Path) -> dict[str, int]:
    """The RRDs in a folder and when they were written."""
    return {p.name: p.stat().st_mtime_ns for p in out.glob("*.rrd")}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return recordings(tmp_path / "in", 10)


@pytest.fixture(autouse=True)
def small_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "JOBS_AT_ONCE", 4)


def cut_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next conversion be interrupted when ``count`` recordings are done."""
    usual, done = convert.tell_result, []

    def telling(*arguments: Any) -> None:
        usual(*arguments)
        done.append(1)
        if len(done) == count:
            raise KeyboardInterrupt

    monkeypatch.setattr(convert, "tell_result", telling)


def test_nothing_is_left_of_a_whole_run(source: Path, tmp_path: Path) -> None:
    assert run("convert", source, "-o", tmp_path / "out").exit_code == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(p.name for p in source.iterdir())


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_an_interrupted_run_goes_on(
    executor: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if executor == "spark":
        request.getfixturevalue("spark")
    out = tmp_path / "out"
    cut_after(6, monkeypatch)
    assert run("convert", source, "-o", out, "--executor", executor).exit_code in (1, 130)
    monkeypatch.undo()
    before = written(out)
    assert 6 <= len(before) < 10
    result = run("convert", source, "-o", out, "--executor", executor)
    assert result.exit_code == 0, result.output
    assert "5 of 10 inputs were converted by an earlier run" in result.output
    after = written(out)
    assert len(after) == 10
    assert sum(after[name] == when for name, when in before.items()) == 5
    ids = {RrdReader(out / name).recordings()[0].recording_id for name in after}
    assert ids == {f"r{i}" for i in range(10)}
    assert not (out / convert.CHECKPOINTS).exists()


def test_what_was_removed_or_has_changed_is_done_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    cut_after(6, monkeypatch)
    run("convert", source, "-o", out)
    monkeypatch.undo()
    (out / "000.rrd").unlink()
    os.utime(source / "001.rrd", (1, 1))
    result = run("convert", source, "-o", out)
    assert "3 of 10 inputs were converted" in result.output
    assert len(written(out)) == 10


@pytest.mark.parametrize("option", [["--content", "/signal"], ["--application-id", "other"]])
def test_with_other_options_everything_is_done_anew(
    option: list[str], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    cut_after(6, monkeypatch)
    run("convert", source, "-o", out)
    monkeypatch.undo()
    before = written(out)
    result = run("convert", source, "-o", out, *option)
    assert "earlier run" not in result.output
    assert not set(before.items()) & set(written(out).items())


def test_with_another_pipeline_everything_is_done_anew(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "pipeline.py"
    out = tmp_path / "out"
    code.write_text("def pipeline(stream):\n    return stream\n")
    cut_after(6, monkeypatch)
    run("convert", source, "-o", out, "--pipeline", code)
    monkeypatch.undo()
    assert "5 of 10" in run("convert", source, "-o", out, "--pipeline", code).output
    cut_after(6, monkeypatch)
    run("convert", source, "-o", out, "--pipeline", code)
    monkeypatch.undo()
    code.write_text("def pipeline(stream):\n    return stream.drop(content='/none')\n")
    assert "earlier run" not in run("convert", source, "-o", out, "--pipeline", code).output


def test_after_failures_only_those_are_tried_again(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    good = (source / "003.rrd").read_bytes()
    (source / "003.rrd").write_bytes(b"broken")
    result = run("convert", source, "-o", out)
    assert result.exit_code == 1
    assert "1 of 10 inputs failed" in result.output
    before = written(out)
    (source / "003.rrd").write_bytes(good)
    result = run("convert", source, "-o", out)
    assert result.exit_code == 0
    assert "9 of 10 inputs were converted" in result.output
    assert before.items() < written(out).items()
    assert not (out / convert.CHECKPOINTS).exists()


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    source, out = recordings(tmp_path / "in", 150), tmp_path / "out"
    command = [sys.executable, "-c", _MAIN, "convert", source, "-o", out, "--executor", "inline"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while len(written(out) if out.exists() else ()) < 70 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = written(out)
    assert 70 <= len(before) < 150
    result = run("convert", source, "-o", out, "--executor", "inline")
    assert result.exit_code == 0, result.output
    kept = sum(written(out)[name] == when for name, when in before.items())
    assert len(written(out)) == 150
    assert kept >= len(before) - 1


def test_many_need_no_streaming_query_which_a_connect_session_does_not_have(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    monkeypatch.setattr(spark_query, "SparkQuery", None)
    assert run("convert", source, "-o", tmp_path / "out", "--executor", "spark").exit_code == 0
    assert len(written(tmp_path / "out")) == 10


def test_outputs_by_relative_paths_come_out_where_tasks_have_other_folders(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    """Workers stay in the folder in which their daemon was started, as those of a cluster are in another."""
    assert spark.range(2).count() == 2
    monkeypatch.chdir(tmp_path)
    result = run("convert", source.name, "-o", "out", "--executor", "spark")
    assert result.exit_code == 0, result.output
    assert "in/003.rrd -> out/003.rrd" in result.stderr
    assert len(written(tmp_path / "out")) == 10


def test_a_dataset_that_cannot_be_read_stops_nothing_else(source: Path, tmp_path: Path) -> None:
    (source / "broken" / "meta").mkdir(parents=True)
    (source / "broken" / "meta" / "info.json").write_text("{")
    result = run("convert", source, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert len(written(tmp_path / "out")) == 10
    assert "info.json: is not JSON" in result.stderr
    assert "1 of 11 inputs failed" in result.stderr


def test_the_figures_of_many_have_the_start_in_them(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = convert._checkpoint

    def slow(*arguments: Any) -> Path:
        time.sleep(0.5)  # as Spark takes to start
        return usual(*arguments)

    monkeypatch.setattr(convert, "_checkpoint", slow)
    out = tmp_path / "run.json"
    result = run("convert", source, "-o", tmp_path / "out", "--stats", "--report", out)
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert 0.5 <= report["phases"]["start"] < report["seconds"]
    assert min(task["start"] for task in report["tasks"]) >= 0.5
    assert "until the first task began" in result.stderr


def test_an_interrupt_of_many_tells_what_was_finished(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_after(3, monkeypatch)
    result = run("convert", source, "-o", tmp_path / "out")
    assert result.exit_code == 130
    assert "interrupted; 3 of 10 inputs were converted; run the same command again for the others" in result.stderr


def test_each_input_of_a_folder_becomes_an_mcap(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source / "below").mkdir()
    (source / "000.rrd").rename(source / "below" / "first.rrd")
    out, given = tmp_path / "out", ("convert", source, "-o", tmp_path / "out", "--to", "mcap", "--compression", "lz4")
    usual, calls = convert.convert_one, []

    def cut(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return usual(*arguments)

    monkeypatch.setattr(convert, "convert_one", cut)
    assert run(*given).exit_code in (1, 130)
    monkeypatch.undo()
    result = run(*given)
    assert result.exit_code == 0, result.output
    assert "5 of 10 inputs were converted by an earlier run" in result.output
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert names == [*(f"{i:03d}.mcap" for i in range(1, 10)), "below/first.mcap"]
    values = [
        component.values.to_pylist()
        for name in names
        for chunk in McapReader(out / name).stream().filter(content="/signal").to_chunks(executor="inline")
        for component in chunk.data.components
        if component.descriptor.component == "value"
    ]
    assert sorted(values) == [[[float(i)]] for i in range(10)]
    (out / "001.mcap").unlink()
    assert run(*given[:-1], "zstd").exit_code == 2, "the others are there, and are no RRDs"


def test_an_input_that_is_no_recording_stops_no_other(source: Path, tmp_path: Path) -> None:
    (source / "bad.mcap").write_bytes(b"no recording")
    out = tmp_path / "out"
    result = run("convert", source, "-o", out, "--to", "mcap")
    assert result.exit_code == 1
    assert "1 of 11 inputs failed" in result.output
    assert len(list(out.glob("*.mcap"))) == 10


@pytest.mark.parametrize("to", ["rrd", "mcap", "parquet"])
def test_the_output_is_a_folder_with_a_format(to: str, source: Path, tmp_path: Path) -> None:
    """Also of a single input: the suffix of a file says what it is, and ``--to`` what a folder holds."""
    result = run("convert", source / "003.rrd", "-o", tmp_path / "out", "--to", to)
    assert result.exit_code == 0, result.output
    assert "1 row in 1 chunk," in result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == ({f"003.{to}"} if to != "parquet" else {"signal", "_chunkmill.json"})
