"""chunkmill check: whether a pipeline can be run, its plan as text and as a picture."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from chunkmill.engine.cli.commands import commands
from click.testing import CliRunner, Result

PIPELINE = """
import threading

from chunkmill.engine import LazyChunkStream

def same(chunk):
    raise AssertionError("nothing is run")

def pipeline(stream):
    a, b = stream.split(content="/a/**")
    return LazyChunkStream.merge(a.map(same), b)

def forgets(stream):
    return LazyChunkStream.from_iter([])

def nothing(stream):
    stream.filter(content="/a")

def untravelled(stream):
    lock = threading.Lock()
    return stream.map(lambda chunk: lock and chunk)
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, ["check", *(str(a) for a in arguments)])


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.py"
    path.write_text(PIPELINE, encoding="utf-8")
    return path


def test_the_plan_is_shown_without_an_input(pipeline: Path) -> None:
    result = run(pipeline)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"{pipeline}:pipeline can be run"
    assert "  source INPUT: not named yet" in lines
    assert lines[-1] == "  payloads: decoded by map(same)"


def test_the_plan_is_that_of_the_input(data: Path, pipeline: Path, tmp_path: Path) -> None:
    result = run(pipeline, data / "demo.mcap")
    assert result.exit_code == 0, result.output
    assert "demo.mcap): 1 split(s), 771,300 bytes" in result.stdout
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.mcap").write_bytes((data / "demo.mcap").read_bytes())
    assert "a.mcap): 1 split(s)" in run(pipeline, tmp_path / "logs").stdout


def test_the_plan_is_drawn(pipeline: Path, tmp_path: Path) -> None:
    result = run(pipeline, "--svg", tmp_path / "plan.svg")
    assert result.exit_code == 0, result.output
    root = ElementTree.parse(tmp_path / "plan.svg").getroot()
    shown = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert shown.count("split") == shown.count("merge") == shown.count("INPUT") == 1
    assert {"selected", "rest", "map", "same", "output"} <= set(shown)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("nothing", 1, "nothing returned nothing, and a LazyChunkStream was expected"),
        ("untravelled", 1, "cannot be sent to Spark's workers"),
        ("gone", 2, "the file defines no function 'gone'"),
    ],
)
def test_what_is_not_fit_is_said_in_one_paragraph(pipeline: Path, name: str, code: int, said: str) -> None:
    result = run(f"{pipeline}:{name}")
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (code, "", 1)
    assert said in result.stderr


def test_a_pipeline_that_ignores_its_stream_is_warned_of(pipeline: Path) -> None:
    result = run(f"{pipeline}:forgets")
    assert result.exit_code == 0
    assert "warning:" in result.stderr and "the returned stream does not use the given stream" in result.stderr


def test_inputs_and_pictures_are_checked(data: Path, pipeline: Path, tmp_path: Path) -> None:
    assert "no such file" in run(pipeline, tmp_path / "gone.mcap").stderr
    assert "contains no recording" in run(pipeline, data / "rrd" / "px4-rerun__both.rbl").stderr
    assert run(pipeline, "--svg", tmp_path / "plan.png").exit_code == 2
    (tmp_path / "file").touch()
    assert "cannot be written" in run(pipeline, "--svg", tmp_path / "file" / "plan.svg").stderr
