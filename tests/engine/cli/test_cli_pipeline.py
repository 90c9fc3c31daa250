"""chunkmill convert --pipeline, from a file of Python to the RRD or to what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.engine import Chunk, ComponentColumn, LazyChunkStream, StoreEntry, write_stores
from chunkmill.engine.cli.commands import commands
from chunkmill.readers import RrdReader
from click.testing import CliRunner, Result

ONLY_GPS = """
def renamed(chunk):
    return chunk.with_entity_path(chunk.entity_path.replace("/nissan/gps/duro", "/gps"))

def pipeline(stream):
    return stream.filter(content="/nissan/gps/**", is_static=False).map(renamed)

def fails(stream):
    return stream.map(failing)

def failing(chunk):
    raise LookupError("no calibration")
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(a) for a in arguments])


def entities(path: Path) -> set[str]:
    return {c.entity_path for c in RrdReader(path).stream().to_chunks(executor="inline")}


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.py"
    path.write_text(ONLY_GPS, encoding="utf-8")
    return path


def test_each_recording_goes_through_the_pipeline_behind_the_filter(data: Path, tmp_path: Path, pipeline: Path) -> None:
    out = tmp_path / "out.rrd"
    result = run(
        *("convert", data / "demo.mcap", "-o", out, "--pipeline", pipeline),
        *("--content", "/nissan/** -/nissan/gps/duro/mag"),
    )
    assert result.exit_code == 0, result.output
    assert entities(out) == {"/gps/current_pose", "/gps/imu", "/gps/status_string"}


def test_blueprints_stay_as_they_are(tmp_path: Path) -> None:
    source, out = tmp_path / "in.rrd", tmp_path / "out.rrd"
    (tmp_path / "pipeline.py").write_text("def pipeline(stream):\n    return stream.filter(content='/b')\n")
    stores = [
        (StoreEntry(kind, "app", name), LazyChunkStream.from_iter(_chunks()))
        for kind, name in (("recording", "r1"), ("recording", "r2"), ("blueprint", "b1"))
    ]
    write_stores(source, stores, executor="inline")
    result = run("convert", source, "-o", out, "--pipeline", tmp_path / "pipeline.py")
    assert result.exit_code == 0, result.output
    reader = RrdReader(out)
    found = {
        s.recording_id: [c.entity_path for c in reader.stream(store=s).to_chunks(executor="inline")]
        for s in (*reader.recordings(), *reader.blueprints())
    }
    assert found == {"r1": ["/b"], "r2": ["/b"], "b1": ["/a", "/b"]}


def _chunks() -> list[Chunk]:
    return [Chunk.from_columns(p, [], [ComponentColumn("x", [1])]) for p in ("/a", "/b")]


def test_a_failing_function_is_told_in_one_paragraph_with_its_line(data: Path, tmp_path: Path, pipeline: Path) -> None:
    result = run("convert", data / "demo.mcap", "-o", tmp_path / "out.rrd", "--pipeline", f"{pipeline}:fails")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    number = ONLY_GPS.splitlines().index('    raise LookupError("no calibration")') + 1
    assert line.endswith(f"demo.mcap: {pipeline}: line {number}: LookupError: no calibration.")
    assert not (tmp_path / "out.rrd").exists()


def test_of_many_inputs_each_says_why_it_failed(data: Path, tmp_path: Path, pipeline: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for name in ("a.mcap", "b.mcap"):
        (source / name).write_bytes((data / "mcap" / "rosbag2__talker.mcap").read_bytes())
    result = run("convert", source, "-o", tmp_path / "out", "--pipeline", f"{pipeline}:fails", "-q")
    assert result.exit_code == 1
    assert result.stderr.count("LookupError: no calibration") == 2
    assert "defect" not in result.stderr


@pytest.mark.parametrize(
    ("location", "code", "said"),
    [
        ("gone.py", 2, "gone.py: there is no such file"),
        ("pipeline.py:gone", 2, "pipeline.py: the file defines no function 'gone'"),
        ("broken.py", 1, "broken.py: line 2: the pipeline cannot be loaded: NameError"),
    ],
)
def test_what_cannot_be_loaded_is_said_before_anything_is_read(
    data: Path, tmp_path: Path, pipeline: Path, location: str, code: int, said: str
) -> None:
    (tmp_path / "broken.py").write_text("\nx = y\n")
    result = run("convert", data / "demo.mcap", "-o", tmp_path / "out.rrd", "--pipeline", tmp_path / location)
    assert (result.exit_code, len(result.stderr.splitlines())) == (code, 1)
    assert said in result.stderr
