"""Parquet on the command line: convert with the reader's options, inspect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.cli.commands import commands
from chunkmill.readers import RrdReader
from click.testing import CliRunner, Result


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, list(map(str, arguments)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    table = {"stamp": [1, 2, 3], "a:b": [4, 5, 6], "arm_x": [0.5, 1.5, None], "arm_y": [1, 2, 3], "site": ["n"] * 3}
    pq.write_table(pa.table(table), tmp_path / "drive.parquet", row_group_size=2)
    return tmp_path / "drive.parquet"


def chunks(path: Path) -> list[Any]:
    return RrdReader(path).stream().to_chunks(executor="inline")


def test_a_file_becomes_a_recording(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.rrd"
    result = run("convert", file, "-o", out, "--executor", "inline")
    assert result.exit_code == 0, result.stderr
    (store,) = RrdReader(out).recordings()
    assert (store.application_id, store.recording_id) == ("chunkmill", "drive")
    found = {c.entity_path: c for c in chunks(out)}
    assert set(found) == {"/__properties", "/a\\:b", "/arm", "/site", "/stamp"}
    assert found["/arm"].timeline_names == ["row_index"]


def test_options_go_to_the_reader(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.rrd"
    options = ["--index-column", "stamp:timestamp:ms", "--index-column", "a:b:sequence", "--static-column", "site"]
    options += ["--entity-path-prefix", "/robot", "--flat", "--content", "/robot/**"]
    assert run("convert", file, "-o", out, "--executor", "inline", *options).exit_code == 0
    found = {(c.entity_path, c.is_static): c for c in chunks(out)}
    assert set(found) == {("/robot/arm", False), ("/robot", True)}
    arm = found["/robot/arm", False].data
    assert {t.name: t.ticks.tolist() for t in arm.timelines} == {
        "a:b": [4, 5, 6],
        "stamp": [10**6, 2 * 10**6, 3 * 10**6],
    }
    assert [c.descriptor.component for c in arm.components] == ["x", "y"]
    assert run("convert", file, "-o", out, "--executor", "inline", "--column-grouping", "individual").exit_code == 0
    assert "/arm_x" in {c.entity_path for c in chunks(out)}


@pytest.mark.parametrize("value", ["stamp", "stamp:date", ":timestamp", "stamp:timestamp:min"])
def test_an_index_column_that_makes_no_sense_is_refused(file: Path, tmp_path: Path, value: str) -> None:
    result = run("convert", file, "-o", tmp_path / "out.rrd", "--index-column", value)
    assert result.exit_code == 2
    assert "NAME:TYPE[:UNIT]" in result.stderr


def test_a_folder_and_first_bytes_are_known(file: Path, tmp_path: Path) -> None:
    result = run("convert", tmp_path, "-o", tmp_path / "out/", "--executor", "inline")
    assert result.exit_code == 0, result.stderr
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["drive.rrd"]
    (tmp_path / "bare").write_bytes(file.read_bytes())
    assert run("convert", tmp_path / "bare", "-o", tmp_path / "bare.rrd", "--executor", "inline").exit_code == 0


def test_a_damaged_file_is_one_line(file: Path, tmp_path: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])
    result = run("convert", file, "-o", tmp_path / "out.rrd", "--executor", "inline")
    assert result.exit_code == 1
    assert "drive.parquet" in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "out.rrd").exists()


def test_topics_are_not_for_parquet(file: Path, tmp_path: Path) -> None:
    result = run("convert", file, "-o", tmp_path / "out.rrd", "--topics", "x")
    assert result.exit_code == 2 and "choose topics of an MCAP" in result.stderr


def test_inspect_tells_of_columns(file: Path) -> None:
    text = run("inspect", file).stdout
    for part in ("rows 3", "row groups 2", "stamp (index?)", "double", "snappy", "ARROW:schema"):
        assert part in text
    found = json.loads(run("inspect", "--json", file).stdout)
    assert (found["format"], found["rows"], found["row_groups"]) == ("parquet", 3, 2)
    stamp = found["columns"][0]
    assert (stamp["name"], stamp["type"], stamp["values"], stamp["compression"]) == ("stamp", "int64", 3, ["snappy"])
    assert stamp["index_candidate"] and not found["columns"][2]["index_candidate"]
    metadata = pq.read_metadata(file)
    sizes = [metadata.row_group(g).column(0).total_compressed_size for g in range(2)]
    assert stamp["bytes"] == sum(sizes)
