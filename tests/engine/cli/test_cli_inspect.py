"""chunkmill inspect, as tables and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
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
