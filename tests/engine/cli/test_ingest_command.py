"""chunkmill ingest and vacuum, from their arguments to their exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine import LazyChunkStream, RecordingStore
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.cli.start import choice
from chunkmill.engine.execution.lease import Lease
from chunkmill.engine.ingest.checkpoint import Checkpoint
from click.testing import CliRunner, Result

MAIN = [sys.executable, "-c", "from chunkmill.engine.cli import main; main()"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(a) for a in arguments])


def ingest(landing: Path, *arguments: object) -> Result:
    return run("ingest", landing, "--executor", "inline", "--settle", "50ms", *arguments)


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    pq.write_table(pa.table({"speed": [1.0, 2.0]}), folder / "a.parquet")
    (folder / "bad.mcap").write_bytes(b"no recording")
    for file in folder.iterdir():
        os.utime(file, (0, 0))  # both have settled: where only the first one has, they are two batches
    return folder


def test_once(landing: Path, tmp_path: Path) -> None:
    result = ingest(landing, "--into", tmp_path / "lake", "--once")
    assert result.exit_code == 1, result.output
    assert "1 added, 1 quarantined" in result.stderr
    assert "bad.mcap: quarantined: the file does not begin" in result.stderr
    assert f"chunkmill quarantine list {tmp_path / 'lake'}" in result.stderr
    assert len(RecordingStore.open(tmp_path / "lake")) == 1


@pytest.mark.parametrize("way", ["option", "environment"])
def test_auto_runs_what_is_small_here_and_says_so(
    way: str, landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "auto" if way == "environment" else "spark")
    option = ["--executor", "auto"] if way == "option" else []
    result = run("ingest", landing, "--into", tmp_path / "lake", "--once", "--settle", "50ms", *option)
    assert result.exit_code == 1, result.output
    assert re.search(r"executor inline; auto: .* of input is done here before Spark has started", result.stderr)
    assert len(RecordingStore.open(tmp_path / "lake")) == 1


def test_auto_is_spark_for_what_is_not_known_yet() -> None:
    chosen = choice("auto", None, unknown="what is to land")
    assert chosen == ("spark", "auto: what is to land is worth the start of Spark")
    assert choice("inline", None) == ("inline", "")


def test_log_lines_are_json_when_asked(landing: Path, tmp_path: Path) -> None:
    result = ingest(landing, "--into", tmp_path / "lake", "--once", "--log-json")
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    done = next(line for line in lines if line.get("event") == "batch_done")
    assert done["outcomes"] == {"added": 1, "quarantined": 1}


def test_a_pipeline_of_a_file(landing: Path, tmp_path: Path) -> None:
    code = tmp_path / "pipeline.py"
    code.write_text("def pipeline(stream):\n    return stream.filter(content='/nothing/**')\n")
    assert ingest(landing, "--into", tmp_path / "lake", "--once", "--pipeline", code).exit_code == 1
    assert RecordingStore.open(tmp_path / "lake").version.rows == 0


def test_rrds_and_the_archive(landing: Path, tmp_path: Path) -> None:
    done = ["--source-done", "archive", "--archive", tmp_path / "old"]
    assert ingest(landing, "--rrds", tmp_path / "rrds", "--once", *done).exit_code == 1
    assert (tmp_path / "rrds" / "a.rrd").is_file()
    assert [p.name for p in (tmp_path / "old").iterdir()] == ["a.parquet"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "needs a destination"),
        (["--into", "lake", "--once", "--every", "1s"], "exclude each other"),
        (["--into", "lake", "--every", "often"], "not a duration"),
        (["--into", "lake", "--max-bytes", "lots"], "not a size"),
        (["--into", "lake", "--master", "local[1]"], "--executor inline runs without it"),
        (["--into", "lake", "--source-done", "archive"], "no archive folder is given"),
        (["--into", "lake", "--pipeline", "none.py"], "none.py"),
    ],
)
def test_what_makes_no_sense_is_said(
    options: list[str], said: str, landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = ingest(landing, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "lake").exists()


def test_a_second_ingestion_is_told_who_the_first_is(landing: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    query = Checkpoint(lake / "ingest").begin(landing).query_id
    with Lease.take(lake, "night shift", name=query), Lease.take(lake, "night shift"):
        result = ingest(landing, "--into", lake, "--once")
        vacuumed = run("vacuum", lake)
    assert result.exit_code == vacuumed.exit_code == 1
    assert "night shift" in result.stderr
    assert "Traceback" not in result.stderr


def test_vacuum_frees_what_old_versions_held(landing: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ingest(landing, "--into", lake, "--once")
    pq.write_table(pa.table({"speed": [3.0] * 5}), landing / "a.parquet")
    ingest(landing, "--into", lake, "--once")
    (lake / "shards" / "left-by-a-crash.rrd").write_bytes(bytes(1000))
    assert len(list((lake / "shards").iterdir())) == 3
    result = run("vacuum", lake, "--older-than", "1h")
    assert "1.0 kB freed" in result.output
    assert run("vacuum", lake).exit_code == 0
    assert len(list((lake / "shards").iterdir())) == 1
    assert [v.operation for v in RecordingStore.open(lake).versions()] == ["ingest", "vacuum", "vacuum"]
    assert run("vacuum", tmp_path / "landing").exit_code == 1


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_end_in_peace(kind: signal.Signals, landing: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    options = ["--into", str(lake), "--executor", "inline", "--every", "100ms", "--settle", "0s", "--metrics-port", "0"]
    process = subprocess.Popen([*MAIN, "ingest", str(landing), *options], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines: list[str] = []
    deadline = time.monotonic() + 60
    while not any("batch 1:" in line for line in lines) and time.monotonic() < deadline:
        lines.append(process.stderr.readline())
    url = next(word for line in lines for word in line.split() if word.startswith("http://"))
    with urllib.request.urlopen(url, timeout=10) as answer:
        metrics = answer.read().decode()
    assert 'chunkmill_ingest_files_total{outcome="added"} 1.0' in metrics
    assert "chunkmill_ingest_quarantined_files 1.0" in metrics
    process.send_signal(kind)
    rest = process.communicate(timeout=30)[1]
    assert process.returncode == 0, "".join(lines) + rest
    assert "stopping after the running batch" in rest
    with Lease.take(lake, "test"):
        pass


def test_files_that_failed_before_do_not_fail_a_later_run(landing: Path, tmp_path: Path) -> None:
    def once(*arguments: object) -> tuple[int, dict[str, Any]]:
        result = ingest(landing, "--into", tmp_path / "lake", "--dataset", "drives", "--once", "-q", *arguments)
        return result.exit_code, json.loads(result.stdout)

    code, told = once("--json")
    assert (code, told["files"]["added"], told["files"]["quarantined"], told["in_quarantine"]) == (1, 1, 1, 1)
    assert [(Path(one["path"]).name, one["error"]["code"]) for one in told["failed"]] == [
        ("bad.mcap", "chunkmill.read")
    ]
    assert (told["recordings"], told["chunks"] > 0, told["source"]) == (1, True, str(landing))
    code, told = once("--json")
    assert (code, told["batches"], told["failed"], told["in_quarantine"]) == (0, 0, [], 1)


def test_hints_name_a_dataset_as_the_command_did(landing: Path, tmp_path: Path) -> None:
    result = ingest(landing, "--into", tmp_path / "lake", "--dataset", "my drives", "--once")
    words = f"{tmp_path / 'lake'} --dataset 'my drives'"
    assert f"`chunkmill quarantine list {words}` says why" in result.stderr
    done = run("status", tmp_path / "lake", "--dataset", "my drives")
    assert f"see chunkmill quarantine list {words}" in done.stdout
    done = run("show", tmp_path / "lake", "none", "--dataset", "my drives")
    assert f"`chunkmill ls {words}` lists all" in done.stderr
    done = run("compact", tmp_path / "lake", "--dataset", "my drives", "--min-shard", "0", "--executor", "inline")
    assert "datasets/" not in done.output


@pytest.mark.parametrize("dataset", [[], ["--dataset", "drives"]], ids=["store", "dataset"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--checkpoint", "other"], "this checkpoint belongs to the landing folder"),
        (["--pipeline", "none.py"], "no such file"),
        (["--settle", "later"], "is not a duration"),
        (["--archive", "old"], "an archive is given"),
        (["--metrics-port", "0", "--metrics-host", "256.0.0.1"], "metrics cannot be served"),
        (["--topics", "("], "not a regular expression"),
        (["none"], "No such file or directory"),
    ],
)
def test_nothing_is_made_before_all_arguments_are_checked(
    options: list[str], said: str, dataset: list[str], landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    Checkpoint(tmp_path / "other").begin(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    source = [] if options == ["none"] else [str(landing)]
    result = run("ingest", *source, "--executor", "inline", "--into", "lake", *dataset, "--once", *options)
    assert result.exit_code in (1, 2), result.output
    assert said in " ".join(result.stderr.split())
    assert sorted(tmp_path.rglob("*")) == before


def test_a_registration_is_checked_before_its_dataset_is_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "same").mkdir()
    same = [tmp_path / "same" / name for name in ("a.rrd", "b.rrd")]
    for path in same:
        LazyChunkStream.from_iter([]).write_rrd(path, application_id="t", recording_id="one", executor="inline")
    wrong = (["--prefix", tmp_path / "none"], [tmp_path / "none.rrd"], [tmp_path / "empty"], same, [tmp_path / "same"])
    for arguments in wrong:
        result = run("register", tmp_path / "lake", "drives", *arguments, "--executor", "inline")
        assert result.exit_code in (1, 2), result.output
        assert not (tmp_path / "lake").exists(), arguments
