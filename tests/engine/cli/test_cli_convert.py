"""chunkmill convert, from its arguments to its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from chunkmill.engine.cli.commands import commands
from click.testing import CliRunner, Result


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(a) for a in arguments])


def rows(path: Path) -> dict[str, int]:
    """Rows with a time by entity of the first recording of an RRD."""
    from chunkmill.readers import RrdReader

    counts: dict[str, int] = {}
    for chunk in RrdReader(path).stream().to_chunks(executor="inline"):
        if not chunk.is_static:
            counts[chunk.entity_path] = counts.get(chunk.entity_path, 0) + chunk.num_rows
    return counts


def test_an_mcap_becomes_an_rrd(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "demo.rrd"
    result = run("convert", data / "demo.mcap", "-o", out)
    assert result.exit_code == 0, result.output
    assert "rows in" in result.stderr
    assert rows(out)["/nissan/gps/duro/imu"] == 1556


def test_a_cut_recording_is_refused_or_recovered(data: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.rrd"
    run("convert", data / "demo.mcap", "-o", whole, "-q")
    for name, given in (("cut.mcap", data / "demo.mcap"), ("cut.rrd", whole)):
        cut, out = tmp_path / name, tmp_path / "out.rrd"
        cut.write_bytes(given.read_bytes()[: given.stat().st_size * 2 // 3])
        assert run("convert", cut, "-o", out).exit_code == 1
        assert not out.exists()
        result = run("convert", cut, "-o", out, "--recover")
        assert result.exit_code == 0, result.output
        assert "warning:" in result.stderr and "recovered" in result.stderr
        assert 0 < sum(rows(out).values()) < 3513
        out.unlink()


def test_ids_are_the_files_name_or_what_is_asked_for(data: Path, tmp_path: Path) -> None:
    from chunkmill.readers import RrdReader

    run("convert", data / "mcap" / "rosbag2__talker.mcap", "-o", tmp_path / "a.rrd")
    run(
        *("convert", tmp_path / "a.rrd", "-o", tmp_path / "b.rrd"),
        *("--application-id", "demo", "--recording-id", "drive-1"),
    )
    (first,), (second,) = (RrdReader(tmp_path / name).recordings() for name in ("a.rrd", "b.rrd"))
    assert (first.application_id, first.recording_id) == ("chunkmill", "rosbag2__talker")
    assert (second.application_id, second.recording_id) == ("demo", "drive-1")


def test_content_and_topics_choose(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.rrd"
    run("convert", data / "demo.mcap", "-o", out, "--content", "/nissan/gps/**", "--content", "-/nissan/gps/duro/mag")
    assert set(rows(out)) == {f"/nissan/gps/duro/{n}" for n in ("current_pose", "imu", "status_string")}
    run("convert", data / "demo.mcap", "-o", out, "--topics", "vehicle", "--exclude-topics", "steering$")
    assert {e for e in rows(out) if not e.startswith("/__")} == {"/nissan/vehicle_speed"}


def test_an_empty_result_is_warned_of(data: Path, tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("def pipeline(stream):\n    return stream.drop(content='/**')\n")
    words = ["-o", tmp_path / "a.rrd", "--pipeline", tmp_path / "none.py"]
    result = run("convert", data / "mcap" / "rosbag2__talker.mcap", *words)
    assert result.exit_code == 0
    assert "warning:" in result.stderr
    assert "no chunks were left to write" in result.stderr


def test_quiet_says_nothing(data: Path, tmp_path: Path) -> None:
    result = run("convert", data / "mcap" / "rosbag2__talker.mcap", "-o", tmp_path / "a.rrd", "-q")
    assert (result.exit_code, result.output) == (0, "")


def test_a_blueprint_stays_a_blueprint(data: Path, tmp_path: Path) -> None:
    from chunkmill.readers import RrdReader

    result = run("convert", data / "rrd" / "px4-rerun__both.rbl", "-o", tmp_path / "a.rbl")
    assert result.exit_code == 0, result.output
    reader = RrdReader(tmp_path / "a.rbl")
    assert (len(reader.recordings()), len(reader.blueprints())) == (0, 1)


def test_a_failure_does_not_stop_the_others(data: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    whole = (data / "mcap" / "rosbag2__talker.mcap").read_bytes()
    (source / "a.mcap").write_bytes(whole[: len(whole) // 2])
    (source / "b.mcap").write_bytes(whole)
    result = run("convert", source, tmp_path / "gone.mcap", "-o", out)
    assert result.exit_code == 1
    assert [p.name for p in out.glob("*.rrd")] == ["b.rrd"]
    errors = [line for line in result.stderr.splitlines() if "error:" in line]
    assert len(errors) == 3
    assert "a.mcap" in errors[0]
    assert "gone.mcap: there is no such file" in errors[1]
    assert "2 of 3 inputs failed" in errors[2]
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", ["rerun__example.4bb525.rrd"])
def test_an_old_rrd_is_refused_by_its_version(data: Path, tmp_path: Path, name: str) -> None:
    result = run("convert", data / "rrd" / name, "-o", tmp_path / "a.rrd")
    assert result.exit_code == 1
    assert "0.12" in result.stderr
    assert not (tmp_path / "a.rrd").exists()


def test_a_folder_made_for_nothing_is_taken_back(tmp_path: Path) -> None:
    (tmp_path / "bad.mcap").write_bytes(b"\x89MCAP0\r\n" + bytes(50))
    assert run("convert", tmp_path / "bad.mcap", "-o", f"{tmp_path / 'a' / 'b'}/").exit_code == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bad.mcap"]


def test_what_stood_at_the_destination_survives_a_failure(tmp_path: Path) -> None:
    (tmp_path / "bad.mcap").write_bytes(b"\x89MCAP0\r\n" + bytes(50))
    (tmp_path / "a.rrd").write_bytes(b"RRF2 precious")
    assert run("convert", tmp_path / "bad.mcap", "-o", tmp_path / "a.rrd").exit_code == 1
    assert (tmp_path / "a.rrd").read_bytes() == b"RRF2 precious"
    assert {p.name for p in tmp_path.iterdir()} == {"bad.mcap", "a.rrd"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topics", "("], "not a regular expression"),
        (["--conf", "nonsense"], "KEY=VALUE"),
        (["--executor", "dask"], "dask"),
        (["--executor", "inline", "--master", "local[2]"], "inline runs without it"),
        (["--frobnicate"], "--frobnicate"),
    ],
)
def test_bad_usage_is_2(data: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    result = run("convert", data / "mcap" / "rosbag2__talker.mcap", "-o", tmp_path / "a.rrd", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "a.rrd").exists()


def test_options_that_cannot_hold_for_these_inputs_are_bad_usage(data: Path, tmp_path: Path) -> None:
    result = run("convert", data / "mcap", "-o", tmp_path / "out", "--recording-id", "one")
    assert result.exit_code == 2
    result = run("convert", data / "rrd" / "rerun__file1.rrd", "-o", tmp_path / "a.rrd", "--topics", "x")
    assert result.exit_code == 2
    assert run("convert", "-o", tmp_path / "a.rrd").exit_code == 2
    assert run("convert", data / "demo.mcap").exit_code == 2


def test_a_recording_is_known_by_its_first_bytes(data: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").write_bytes((data / "mcap" / "rosbag2__talker.mcap").read_bytes())
    assert run("convert", tmp_path / "bare", "-o", tmp_path / "a.rrd").exit_code == 0
    (tmp_path / "text").write_text("hello")
    result = run("convert", tmp_path / "text", "-o", tmp_path / "b.rrd")
    assert result.exit_code == 1
    assert "neither an MCAP nor an RRD" in result.stderr


def test_starting_loads_no_heavy_library() -> None:
    heavy = "{'numpy', 'pandas', 'pyarrow', 'pyspark', 'rich', 'lance', 'google.protobuf'}"
    code = (
        f"import sys, chunkmill.engine.cli; found = {heavy} & sys.modules.keys(); sys.exit(str(found) if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version_and_help() -> None:
    result = run("--version")
    assert (result.exit_code, result.output.split()[0]) == (0, "chunkmill")
    for command in ([], ["convert"], ["inspect"]):
        assert run(*command, "--help").exit_code == 0


@pytest.mark.quick
def test_spark_gives_what_inline_gives(data: Path, tmp_path: Path, spark: object) -> None:
    for executor in ("spark", "inline"):
        out = tmp_path / f"{executor}.rrd"
        assert run("convert", data / "demo.mcap", "-o", out, "--executor", executor).exit_code == 0
    assert rows(tmp_path / "spark.rrd") == rows(tmp_path / "inline.rrd")


def test_a_pipe_is_told_as_one(data: Path, tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        result = run("convert", f"/dev/fd/{read}", "-o", tmp_path / "out.rrd")
    finally:
        os.close(read)
        os.close(write)
    assert result.exit_code == 1
    assert f"/dev/fd/{read}: this is a pipe or a device, but recordings need random access." in result.stderr


@pytest.mark.parametrize("name", ["x" * 251 + ".rrd", "é" * 125 + ".rrd"])
def test_an_output_may_have_the_longest_name_there_is(name: str, data: Path, tmp_path: Path) -> None:
    result = run("convert", data / "mcap" / "rosbag2__talker.mcap", "-o", tmp_path / name)
    assert result.exit_code == 0, result.output
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("option", ["--application-id", "--recording-id"])
def test_an_empty_id_is_bad_usage(option: str, data: Path, tmp_path: Path) -> None:
    result = run("convert", data / "demo.mcap", "-o", tmp_path / "out.rrd", option, "")
    assert result.exit_code == 2
    assert "an id cannot be empty" in result.stderr


@pytest.mark.parametrize("way", ["option", "environment"])
def test_auto_runs_what_is_small_here_and_says_so(
    way: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkmill.engine.execution.stage._has_session", lambda: False)
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "auto" if way == "environment" else "spark")
    option = ["--executor", "auto"] if way == "option" else []
    done = run("convert", data / "demo.mcap", "-o", tmp_path / "a.rrd", "--stats", *option)
    assert done.exit_code == 0, done.stderr
    assert "executor inline; auto: 782.5 kB of input is done here before Spark has started" in done.stderr
    many = run("convert", data / "rrd", "-o", tmp_path / "out", "--stats", "--content", "/none", *option)
    assert "executor inline; auto: " in many.stderr


def test_the_start_of_a_conversion_here_leaves_out_what_nothing_needs(data: Path, tmp_path: Path) -> None:
    heavy = "{'pandas', 'dateutil', 'pyspark', 'rich', 'numpy.ma', 'lance', 'google.protobuf.descriptor_pb2'}"
    arguments = ["chunkmill", "convert", str(data / "demo.mcap"), "-o", str(tmp_path / "a.rrd"), "--executor", "auto"]
    code = (
        f"import sys, atexit; sys.argv = {arguments!r}\n"
        f"atexit.register(lambda: print(*sorted({heavy} & sys.modules.keys())))\n"
        "from chunkmill.engine.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
    assert rows(tmp_path / "a.rrd")["/nissan/gps/duro/imu"] == 1556


def test_commands_and_their_options_load_no_library_but_click() -> None:
    """Help appears at once; Spark's JVM boots, and a server chooses its allocator, before Arrow is loaded."""
    heavy = "{'numpy', 'pyarrow', 'pyspark', 'datafusion', 'lance', 'rich', 'mcap'}"
    code = f"import sys, chunkmill.engine.cli.commands; print(*sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def test_masked_arrays_come_back_when_they_are_asked_for() -> None:
    code = (
        "import numpy as np, pyarrow as pa\n"
        "from chunkmill.engine.cli.start import leave_out_what_nothing_needs\n"
        "leave_out_what_nothing_needs()\n"
        "assert np.unique(np.array([2, 1, 2])).tolist() == [1, 2] and pa.array(np.arange(2)).to_pylist() == [0, 1]\n"
        "masked = np.ma.masked_array([1, 2], [True, False])\n"
        "assert pa.array(masked).to_pylist() == [None, 2] and np.ma.is_masked(masked)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
