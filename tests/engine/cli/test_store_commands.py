"""chunkmill inspect, ls, show, export and convert of stores of recordings."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine import Ingest, RecordingStore
from chunkmill.engine.cli.commands import commands
from chunkmill.readers import McapReader, RrdReader
from chunkmill.readers.store_recording import file_name
from click.testing import CliRunner, Result
from comparison import cells


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(commands, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store ``lake`` of three recordings and a blueprint, of which one took the place of another."""
    folder = tmp_path_factory.mktemp("stores")
    landing = folder / "landing"
    landing.mkdir()
    shutil.copy(data / "mcap" / "rosbag2__cdr_test_0.mcap", landing / "talker.mcap")
    write(data, landing / "drive.v2.rrd")
    shutil.copy(data / "rrd" / "px4-rerun__both.rbl", landing)
    ingest(landing, folder / "lake")
    shutil.copy(data / "mcap" / "rosbag2__talker.mcap", landing / "talker.mcap")
    write(data, landing / "run 4.rrd")
    ingest(landing, folder / "lake")
    shutil.rmtree(landing)
    return folder


def write(data: Path, path: Path) -> None:
    stream = McapReader(data / "demo.mcap").stream().filter(content="/nissan/vehicle_speed")
    stream.write_rrd(path, application_id="drives", recording_id=path.stem, executor="inline")


def ingest(landing: Path, into: Path) -> None:
    Ingest(landing, into=into, settle=0, executor="inline", optimize=None).start(once=True).await_termination()


@pytest.fixture
def lake(made: Path) -> Path:
    return made / "lake"


@pytest.fixture
def kept(tmp_path: Path, data: Path) -> Path:
    """What ``collect`` keeps: one recording."""
    stream = McapReader(data / "mcap" / "rosbag2__talker.mcap").stream()
    stream.collect(into=tmp_path / "kept", application_id="app", recording_id="drive 1", executor="inline")
    return tmp_path / "kept"


def contents(store: Path) -> dict[str, Any]:
    opened = RecordingStore.open(store)
    return {e.recording_id: cells(list(opened.recording(e))) for e in opened}


def test_ls_lists_what_is_live(lake: Path) -> None:
    done = run("ls", lake)
    assert done.exit_code == 0, done.stderr
    head, _, headings, *rows = done.stdout.splitlines()
    assert head.startswith(f"{lake}: version 2 of ") and "by ingest: 3 recordings" in head
    assert headings.split() == ["recording", "source", "rows", "chunks", "bytes", "added", "application"]
    assert [row.split("  ")[0] for row in rows] == [
        e.recording_id + " (blueprint)" * (e.kind == "blueprint")
        for e in (*RecordingStore.open(lake).recordings(), *RecordingStore.open(lake).blueprints())
    ]
    assert sum("talker.mcap" in row for row in rows) == 1, "the one that it took the place of is not live"


def test_ls_as_json_and_of_an_earlier_version(lake: Path) -> None:
    lines = [json.loads(line) for line in run("ls", lake, "--json").stdout.splitlines()]
    store = RecordingStore.open(lake)
    assert [(e["recording_id"], e["rows"], e["bytes"]) for e in lines if e["kind"] == "recording"] == [
        (e.recording_id, e.rows, e.bytes) for e in store
    ]
    assert {e["version"] for e in lines} == {2}
    earlier = [json.loads(line) for line in run("ls", lake, "--json", "--version", 1).stdout.splitlines()]
    assert {e["recording_id"] for e in earlier} != {e["recording_id"] for e in lines}
    missing = run("ls", lake, "--version", 9)
    assert missing.exit_code == 1 and "there is no version 9" in missing.stderr


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("command", ["ls", "show", "inspect"])
def test_a_terminal_is_not_overrun(lake: Path, width: int, command: str) -> None:
    words = [command, lake, *(["talker.mcap"] if command == "show" else [])]
    done = run(*words, COLUMNS=str(width), FORCE_COLOR="1")
    tables = [line for line in done.stdout.splitlines() if str(lake) not in line]
    assert done.exit_code == 0 and max(map(len, tables)) <= width
    assert ("rows" in done.stdout and "talker.mcap" in done.stdout) or command != "ls"
    assert run(*words).stdout.splitlines() == [line.rstrip() for line in run(*words).stdout.splitlines()]


def test_show_tells_of_one_recording(lake: Path, kept: Path) -> None:
    (talker,) = [e for e in RecordingStore.open(lake) if e.source.endswith("talker.mcap")]
    by_id, by_name = run("show", lake, talker.recording_id), run("show", lake, "talker.mcap")
    assert by_id.exit_code == 0 and by_id.stdout == by_name.stdout
    assert "/topic " in by_id.stdout and "message_log_time" in by_id.stdout and "components" not in by_id.stdout
    everything = run("show", lake, "talker.mcap", "--all").stdout
    assert "/rosout" in everything and "(static)" in everything and "components" in everything
    (recording,) = json.loads(run("show", lake, "talker.mcap", "--json").stdout)["recordings"]
    assert (recording["rows"], recording["bytes"]) == (talker.rows, talker.bytes)
    assert "recording 'drive 1' of application 'app'" in run("show", kept).stdout, "there is one, so none is named"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show", "{lake}"], 2, "no recording is given, but the store holds 3"),
        (["show", "{lake}", "talk.mcap"], 1, "Did you mean 'talker.mcap'?"),
        (["show", "{lake}", "*"], 2, "'*' matches 3 recordings"),
        (["export", "{lake}", "nothing", "-o", "{out}"], 1, "there is no recording 'nothing'"),
        (["export", "{lake}", "-o", "{out}.rrd"], 2, "3 inputs cannot be written to one file"),
        (["export", "{lake}"], 2, "--output"),
        (["ls", "{out}"], 1, "there is neither a store of recordings nor"),
        (["inspect", "{lake}/shards"], 2, "Give the folder of the store"),
        (["convert", "{lake}/shards", "-o", "{out}"], 2, "Give the folder of the store"),
        (["convert", "{lake}", "-o", "{out}", "--recording-id", "x"], 2, "--recording-id names one recording"),
    ],
)
def test_what_cannot_be_is_said(lake: Path, tmp_path: Path, words: list[str], code: int, said: str) -> None:
    done = run(*(word.format(lake=lake, out=tmp_path / "out") for word in words))
    assert done.exit_code == code, done.stderr
    assert said in done.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("way", ["convert", "export", "a folder above", "a pattern of shards", "a pattern of stores"])
def test_live_recordings_are_taken_and_no_shards(lake: Path, tmp_path: Path, way: str) -> None:
    out = tmp_path / "out"
    word = {
        "a folder above": lake.parent,
        "a pattern of shards": f"{lake.parent}/**/*.rrd",
        "a pattern of stores": f"{lake.parent}/*",
    }.get(way, lake)
    done = run("export" if way == "export" else "convert", word, "-o", out, "--executor", "inline", "-q")
    assert done.exit_code == 0, done.stderr
    files = sorted(path.relative_to(out) for path in out.rglob("*.rrd"))
    assert [path.name for path in files] == ["drive.v2.rrd", "run 4.rrd", "talker.rrd"]
    found = {}
    for file in files:
        (store,) = RrdReader(out / file).recordings()
        found[store.recording_id] = cells(RrdReader(out / file).stream().to_chunks(executor="inline"))
    assert found == contents(lake)


def test_export_chooses(lake: Path, kept: Path, tmp_path: Path) -> None:
    done = run("export", lake, "r*", "talker.mcap", "-o", f"{tmp_path}/out/", "--executor", "inline")
    assert done.exit_code == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["run 4.rrd", "talker.rrd"]
    earlier = run("export", lake, "talker.mcap", "-o", tmp_path / "a.rrd", "--version", 1, "--executor", "inline", "-q")
    assert earlier.exit_code == 0, earlier.stderr
    (before,) = [e for e in RecordingStore.open(lake, version=1) if e.source.endswith("talker.mcap")]
    assert RrdReader(tmp_path / "a.rrd").recordings()[0].recording_id == before.recording_id
    assert run("export", kept, "-o", tmp_path / "b.rrd", "--executor", "inline", "-q").exit_code == 0
    assert RrdReader(tmp_path / "b.rrd").recordings()[0].recording_id == "drive 1"


def test_inspect_of_a_store(lake: Path, kept: Path) -> None:
    report = json.loads(run("inspect", lake, "--json").stdout)
    assert (report["format"], report["version"], report["by"]) == ("store", 2, "ingest")
    assert {r["recording_id"]: r["rows"] for r in report["recordings"]} == {
        e.recording_id: e.rows for e in RecordingStore.open(lake)
    }
    assert len(report["blueprints"]) == 1
    assert "/topic " in run("inspect", kept).stdout


def test_a_store_that_is_damaged_is_told_of(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    for table in (tmp_path / "lake" / "tables").iterdir():
        table.write_bytes(table.read_bytes()[:-3])
    for words in (["ls"], ["inspect"], ["show", "x"], ["convert", "-o", tmp_path / "out"]):
        done = run(words[0], tmp_path / "lake", *words[1:])
        assert done.exit_code == 1 and "a table of recordings cannot be read" in done.stderr, words
    assert not (tmp_path / "out").exists()


def test_names_of_files_are_safe_and_apart() -> None:
    ids = ["a/b", "a%2Fb", "..", ".", "a\x00", "é", "x" * 300, "x" * 301, "a b", "CON:"]
    names = [file_name(one) for one in ids]
    assert len(set(names)) == len(ids)
    assert all("/" not in n and not n.startswith(".") and len(n.encode()) < 240 for n in names)


def test_a_catalog_is_listed_without_what_only_queries_need(tmp_path: Path) -> None:
    heavy = "{'pandas', 'pyspark', 'lance', 'datafusion', 'numpy.ma', 'obstore', 'py4j'}"
    assert run("catalog", "create", tmp_path / "lake", "drives").exit_code == 0
    code = (
        "import sys, atexit; sys.argv = ['chunkmill', 'catalog', 'ls', 'lake']\n"
        f"atexit.register(lambda: print(*sorted({heavy} & sys.modules.keys())))\n"
        "from chunkmill.engine.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    *listed, loaded = done.stdout.splitlines()
    assert any("drives" in line for line in listed) and loaded == ""
