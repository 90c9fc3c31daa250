"""chunkmill inspect, as tables and as JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
import zstandard
from chunkmill import Chunk, LazyChunkStream
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.cli.commands import commands
from click.testing import CliRunner, Result


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(a) for a in arguments])


def inspected(path: Path) -> Any:
    result = run("inspect", path, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_an_mcap_as_json(data: Path) -> None:
    report = inspected(data / "demo.mcap")
    assert (report["format"], report["bytes"], report["profile"]) == ("mcap", 782_496, "ros2")
    assert not report["scanned"]
    (recording,) = report["recordings"]
    assert recording["rows"] == 3513
    imu = next(e for e in recording["entities"] if e["path"] == "/nissan/gps/duro/imu")
    assert (imu["rows"], imu["schema"], imu["encoding"]) == (1556, "sensor_msgs/msg/Imu", "cdr/ros2msg")
    assert {t["name"]: t["type"] for t in recording["timelines"]}["message_log_time"] == "timestamp"


def test_rates_gaps_and_compression_of_an_mcap(data: Path, tmp_path: Path) -> None:
    (recording,) = inspected(data / "demo.mcap")["recordings"]
    imu = next(e for e in recording["entities"] if e["path"] == "/nissan/gps/duro/imu")
    assert imu["rate"] == pytest.approx(99.3, abs=0.5)
    assert 10**7 < imu["largest_gap"] < 10**8
    table = run("inspect", data / "demo.mcap").stdout
    for word in ("rate", "gap", " Hz", "compression none", "compression ratio 1.00"):
        assert word in table


def test_an_mcap_that_is_compressed_as_a_whole(data: Path, tmp_path: Path) -> None:
    wrapped = tmp_path / "demo.mcap.zstd"
    wrapped.write_bytes(zstandard.compress((data / "demo.mcap").read_bytes()))
    report = inspected(wrapped)
    assert (report["format"], report["bytes"]) == ("mcap", wrapped.stat().st_size)
    assert report["recordings"] == inspected(data / "demo.mcap")["recordings"]


def test_what_convert_wrote_as_json(data: Path, tmp_path: Path) -> None:
    run("convert", data / "demo.mcap", "-o", tmp_path / "demo.rrd", "-q")
    report = inspected(tmp_path / "demo.rrd")
    (recording,) = report["recordings"]
    assert (recording["application_id"], recording["recording_id"]) == ("chunkmill", "demo")
    imu = next(e for e in recording["entities"] if e["path"] == "/nissan/gps/duro/imu")
    assert imu["rows"] == 1556 + 2, "messages, and the static rows of its schema and of the names of its series"
    assert imu["bytes"] > 0
    assert "message_log_time" in imu["timelines"]
    before = inspected(data / "demo.mcap")["recordings"][0]["timelines"]
    assert {t["name"]: (t["start"], t["end"]) for t in recording["timelines"]}.items() >= {
        t["name"]: (t["start"], t["end"]) for t in before
    }.items()


@pytest.mark.parametrize("name", ["rerun__file1.rrd", "unity-rerun-sdk__phase3_scene.rrd"])
def test_an_rrd_with_and_without_a_footer(data: Path, name: str) -> None:
    (recording,) = inspected(data / "rrd" / name)["recordings"]
    expected = {"rerun__file1.rrd": (16, 60, 5), "unity-rerun-sdk__phase3_scene.rrd": (206, 206, 4)}[name]
    entities = [e for e in recording["entities"] if not e["path"].startswith("/__")]
    counts = sum(e["chunks"] for e in entities), sum(e["rows"] for e in entities), len(entities)
    assert counts == expected


def test_blueprints_are_listed_apart(data: Path) -> None:
    report = inspected(data / "rrd" / "px4-rerun__both.rbl")
    assert report["recordings"] == []
    assert report["blueprints"][0]["application_id"] == "px4-rerun"


@pytest.mark.parametrize("name", ["demo.mcap", "rrd/rerun__file1.rrd", "rrd/px4-rerun__both.rbl"])
def test_tables(data: Path, name: str) -> None:
    result = run("inspect", data / name)
    assert result.exit_code == 0, result.output
    for word in ("rows", "timeline", "start"):
        assert word in result.stdout


def test_what_is_missing_or_damaged_is_one_paragraph(data: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.mcap").write_bytes((data / "demo.mcap").read_bytes()[:5000])
    for name in ("cut.mcap", "gone.rrd", "."):
        result = run("inspect", tmp_path / name)
        assert result.exit_code == 1
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith("chunkmill: error: ")


@pytest.fixture
def logs(data: Path, tmp_path: Path) -> Path:
    """A folder of two recordings, and one that is cut."""
    folder = tmp_path / "logs"
    folder.mkdir()
    shutil.copy(data / "demo.mcap", folder)
    shutil.copy(data / "mcap" / "rosbag2__talker.mcap", folder)
    (folder / "cut.mcap").write_bytes((data / "demo.mcap").read_bytes()[:5000])
    return folder


@pytest.mark.parametrize("word", ["{}", "{}/*.mcap", "{}/**/*.mcap"])
def test_a_folder_or_a_pattern_gives_a_line_a_file(logs: Path, word: str) -> None:
    done = run("inspect", word.format(logs))
    assert done.exit_code == 1, "one is cut"
    assert done.stderr.count("\n") == 1 and "cut.mcap" in done.stderr
    heading, *rows, _, total = done.stdout.splitlines()
    assert heading.split() == ["file", "format", "rows", "length", "start", "bytes"]
    assert [row.split()[:3] for row in rows] == [
        [str(logs / "demo.mcap"), "mcap", "3,513"],
        [str(logs / "rosbag2__talker.mcap"), "mcap", "20"],
    ]
    assert total.startswith("2 files, ")


def test_many_files_whole_and_as_json(logs: Path) -> None:
    (logs / "cut.mcap").unlink()
    done = run("inspect", logs, "--json")
    assert [json.loads(line)["recordings"][0]["rows"] for line in done.stdout.splitlines()] == [3513, 20]
    everything = run("inspect", logs, "--all")
    assert everything.exit_code == 0
    for part in ("/nissan/vehicle_speed", "/rosout", "cdr/ros2msg", "encoding"):
        assert part in everything.stdout
    assert "cdr/ros2msg" not in run("inspect", logs / "demo.mcap").stdout


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", ["demo.mcap", "rrd/px4-rerun__both.rbl"])
def test_a_terminal_of_any_width(data: Path, width: int, name: str) -> None:
    done = CliRunner(env={"COLUMNS": str(width), "FORCE_COLOR": "1"}).invoke(commands, ["inspect", str(data / name)])
    shown = click.unstyle(done.stdout)
    assert max(len(line) for line in shown.splitlines() if str(data) not in line) <= width
    assert "rows" in shown and "…" not in shown


def test_what_headers_of_chunks_tell_of_times(data: Path, tmp_path: Path) -> None:
    run("convert", data / "demo.mcap", "-o", tmp_path / "demo.rrd", "-q")
    (recording,) = inspected(tmp_path / "demo.rrd")["recordings"]
    imu = next(e for e in recording["entities"] if e["path"] == "/nissan/gps/duro/imu")
    assert imu["rate"] == pytest.approx(99.2, abs=0.1) and imu["largest_gap"] is None
    shown = run("inspect", tmp_path / "demo.rrd").stdout
    assert "≥ 0.01 s" in shown and "2 more entities are static or describe the recording; --all shows them" in shown
    assert "/__mcap_properties (static)" in run("inspect", tmp_path / "demo.rrd", "--all").stdout


def test_the_order_of_rows(data: Path, tmp_path: Path) -> None:
    generated = data / "generated"
    report = json.loads(run("inspect", generated / "rob_out_of_order_chunks.mcap", "--orders", "--json").stdout)
    topic = next(order for order in report["orders"] if order["path"] == "/temp")
    assert topic["late_chunks"] == {"message_log_time": 3, "message_publish_time": 3}
    assert topic["late_rows"]["message_log_time"] == 3 and topic["disagreeing"] == []
    assert "all rows are in the order of their times" in run("inspect", data / "demo.mcap", "--orders").stdout
    lines = {"a": pa.array([1, 2, 3]), "b": pa.array([5, 7, 6])}
    chunk = Chunk.build("/x", lines, [(ComponentDescriptor("v"), pa.array([[1], [2], [3]]))])
    path = tmp_path / "x.rrd"
    stream = LazyChunkStream.from_iter([chunk])
    stream.write_rrd(path, application_id="app", recording_id="id", executor="inline")
    assert "1 late row on b, a and b disagree" in run("inspect", path, "--orders").stdout
    (order,) = json.loads(run("inspect", path, "--orders", "--json").stdout)["orders"]
    assert (order["recording_id"], order["disagreeing"], order["late_chunks"]) == ("id", [["a", "b"]], {})
