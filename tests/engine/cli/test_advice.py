"""Warnings of convert that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.engine import CatalogClient
from chunkmill.engine.cli.commands import commands
from click.testing import CliRunner, Result

IMU = "/nissan/gps/duro/imu"


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(commands, ["convert", *map(str, arguments), "--executor", "inline", "-q"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--topics", "mag$", "--topics", "/nissan/gps/duro/imuu"],
            [f"for --topics '/nissan/gps/duro/imuu'; did you mean {IMU!r}?"],
        ),
        (
            ["--topics", "imu$", "--topics", "lidar"],
            ["'lidar'; there is /nissan/gps/duro/current_pose, ", "and 2 more"],
        ),
        (
            ["--content", "/nisan/gps/** - /nissan/gps/duro/mag", "--content", IMU],
            ["for --content '/nisan/gps/**'; did you mean '/nissan/gps/**'?"],
        ),
        (
            ["--content", "/nissan/gps/*", "--content", IMU],
            ["--content '/nissan/gps/*': '*' is not a wildcard here", "did you mean '/nissan/gps/**'?"],
        ),
        (["--topics", "/nissan/*"], ["is a regular expression", "write '/nissan/.*'"]),
        (["--exclude-topics", "/nissan/gps/*"], ["--exclude-topics '/nissan/gps/*' is a regular expression"]),
        (
            ["--static-column", "site"],
            ["--static-column does not apply: no input has a format with this option"],
        ),
    ],
)
def test_what_is_of_no_effect_is_warned_of(options: list[str], said: list[str], data: Path, tmp_path: Path) -> None:
    done = convert(data / "demo.mcap", "-o", tmp_path / "a.rrd", *options)
    assert done.exit_code == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "no chunks were left to write" not in line]
    assert len(lines) == 1 and lines[0].startswith("chunkmill: warning: ")
    assert all(part in lines[0] for part in said), lines


@pytest.mark.parametrize(
    "options",
    [
        ["--content", "/nissan/gps/**", "--content", "- /nissan/gps/duro/mag"],
        ["--content", "/** -/nissan/**  + " + IMU],
        ["--topics", "^/nissan/.*imu$", "--exclude-topics", "mag"],
        ["--recover"],
    ],
)
def test_what_has_an_effect_is_not(options: list[str], data: Path, tmp_path: Path) -> None:
    done = convert(data / "demo.mcap", "-o", tmp_path / "a.rrd", *options)
    assert (done.exit_code, done.output) == (0, "")


@pytest.mark.parametrize("output", ["b.rrd", "b.mcap", "b/"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--content", IMU + "u"], f"nothing matches --content '{IMU}u'. Did you mean {IMU!r}?"),
        (["--content", "/nisan/**"], "nothing matches --content '/nisan/**'. Did you mean '/nissan/**'?"),
        (["--content", "/none"], "nothing matches --content '/none'. There are: /nissan/gps/duro/current_pose, "),
        (["--topics", IMU + "u"], f"nothing matches --topics '{IMU}u'. Did you mean {IMU!r}?"),
        (
            ["--topics", "lidar", "--topics", "/radar"],
            "nothing matches --topics '/radar' and --topics 'lidar'. There are: /nissan/gps/duro/current_pose, ",
        ),
    ],
)
def test_without_any_match_nothing_is_written(
    output: str, options: list[str], said: str, data: Path, tmp_path: Path
) -> None:
    done = convert(data / "demo.mcap", "-o", f"{tmp_path}/{output}", *options)
    assert done.exit_code == 2 and f"CM501: {data / 'demo.mcap'}: {said}" in done.stderr, done.output
    assert not (tmp_path / output).exists()


def test_an_rrd_without_any_match_is_refused_by_its_footer(data: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "a.rrd", tmp_path / "b.rrd"
    assert convert(data / "demo.mcap", "-o", source).exit_code == 0
    done = convert(source, "-o", output, "--content", IMU + "u")
    assert done.exit_code == 2 and f"Did you mean {IMU!r}?" in done.stderr and not output.exists()


def test_a_file_without_summary_is_scanned_and_then_warned_of(data: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.mcap"
    cut.write_bytes((data / "demo.mcap").read_bytes()[:400_000])
    done = convert(cut, "-o", tmp_path / "a.rrd", "--recover", "--topics", "/nope")
    assert done.exit_code == 0 and (tmp_path / "a.rrd").exists()
    assert "warning: nothing was written for --topics '/nope'" in done.stderr


@pytest.mark.parametrize("command", ["convert", "merge"])
def test_many_inputs_without_any_match_are_an_error(command: str, data: Path, tmp_path: Path) -> None:
    files = [data / "demo.mcap", data / "mcap" / "rosbag2__talker.mcap"]
    arguments = [*map(str, files), "-o", str(tmp_path / "out"), "--content", "/rosoutt", "--executor", "inline"]
    done = CliRunner().invoke(commands, [command, *arguments])
    assert done.exit_code == 2 and "nothing in 2 inputs matches --content '/rosoutt'. Did you mean '/rosout'?" in (
        done.stderr
    )
    assert not (tmp_path / "out").exists()


def test_of_many_inputs_one_is_enough(data: Path, tmp_path: Path) -> None:
    files = [data / "demo.mcap", data / "mcap" / "rosbag2__talker.mcap"]
    done = convert(*files, "-o", tmp_path / "out", "--content", "/rosout", "--content", IMU, "--content", "/none")
    assert done.exit_code == 0
    (line,) = [line for line in done.stderr.splitlines() if "no chunks were left" not in line]
    assert line.startswith("chunkmill: warning: nothing was written for --content '/none'; there is /nissan/gps/duro/")
    assert line.endswith(" and 2 more")


def test_a_pipeline_may_make_other_entities(data: Path, tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text("def pipeline(stream):\n    return stream.drop(content='/**')\n")
    done = convert(
        *(data / "demo.mcap", "-o", tmp_path / "a.rrd", "--content", IMU, "--pipeline", tmp_path / "pipeline.py")
    )
    assert "nothing was written for" not in done.stderr


def test_a_cut_mcap_says_how_it_is_read(data: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.mcap").write_bytes((data / "demo.mcap").read_bytes()[:400_000])
    for command in (["convert", "-o", str(tmp_path / "a.rrd")], ["inspect"]):
        done = CliRunner().invoke(commands, [*command, str(tmp_path / "cut.mcap")])
        assert done.exit_code == 1 and "--recover" in done.stderr and done.stderr.count("\n") == 1


def test_messages_name_commands_in_place_of_python_calls(data: Path, tmp_path: Path) -> None:
    convert(data / "demo.mcap", "-o", tmp_path / "demo.rrd")
    (tmp_path / "cut.rrd").write_bytes((tmp_path / "demo.rrd").read_bytes()[:100_000])
    done = CliRunner().invoke(commands, ["register", str(tmp_path / "lake"), "drives", str(tmp_path / "cut.rrd")])
    assert (done.exit_code, "read it with `chunkmill convert FILE -o OUT --recover`" in done.stderr) == (1, True)
    CatalogClient(tmp_path / "lake").get_dataset("drives").register(str(tmp_path / "demo.rrd")).wait()
    condition = '"/nissan/vehicle_speed:std_msgs.msg.Float32:message.data" > 5'
    find = ["find", str(tmp_path / "lake"), "drives", condition, "--index", "message_log_time"]
    done = CliRunner().invoke(commands, find)
    assert "; `chunkmill catalog maintain LAKE` creates them" in done.stderr, done.output
