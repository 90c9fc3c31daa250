"""Which files the arguments of convert stand for, and what each becomes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chunkmill.engine.cli.jobs import plan_jobs
from chunkmill.engine.errors import SourceMissingError, UsageError


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``logs/`` with recordings in two days, and things that are none."""
    monkeypatch.chdir(tmp_path)
    for name in (
        "logs/day1/run.mcap",
        "logs/day2/run.mcap",
        "logs/day2/view.rbl",
        "logs/top.RRD",
        "logs/.hidden.mcap",
        "logs/.trash/old.mcap",
        "logs/notes.txt",
    ):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def planned(arguments: list[str], output: str) -> dict[str, str]:
    return {str(j.source): str(j.destination) for j in plan_jobs(arguments, output)}


def test_one_file_becomes_the_output() -> None:
    assert planned(["logs/day1/run.mcap"], "a.rrd") == {"logs/day1/run.mcap": "a.rrd"}
    assert planned(["logs/day1/run.mcap"], "no-suffix") == {"logs/day1/run.mcap": "no-suffix"}


def test_one_file_goes_into_a_folder_that_is_there_or_is_spelled_as_one() -> None:
    Path("out").mkdir()
    assert planned(["logs/day1/run.mcap"], "out") == {"logs/day1/run.mcap": "out/run.rrd"}
    assert planned(["logs/day1/run.mcap"], "new/") == {"logs/day1/run.mcap": "new/run.rrd"}


def test_a_folder_keeps_the_paths_below_it() -> None:
    assert planned(["logs"], "out") == {
        "logs/top.RRD": "out/top.rrd",
        "logs/day1/run.mcap": "out/day1/run.rrd",
        "logs/day2/run.mcap": "out/day2/run.rrd",
        "logs/day2/view.rbl": "out/day2/view.rbl",
    }
    assert [j.name for j in plan_jobs(["logs"], "out")] == ["top", "day1-run", "day2-run", "day2-view"]


def test_a_pattern_keeps_the_paths_below_its_fixed_part() -> None:
    expected = {"logs/day1/run.mcap": "out/day1/run.rrd", "logs/day2/run.mcap": "out/day2/run.rrd"}
    assert planned(["logs/**/*.mcap"], "out") == expected
    assert planned(["logs/day*/run.mcap"], "out") == expected
    assert planned(["./logs/day[12]/*.mcap"], "out") == expected


def test_a_file_whose_name_looks_like_a_pattern_is_that_file() -> None:
    Path("run[1].mcap").touch()
    assert planned(["run[1].mcap"], "a.rrd") == {"run[1].mcap": "a.rrd"}


def test_a_pattern_with_one_match_may_become_one_file() -> None:
    assert planned(["logs/*1/*.mcap"], "a.rrd") == {"logs/day1/run.mcap": "a.rrd"}


def test_a_file_given_twice_is_converted_once() -> None:
    once = planned(["logs/day1/run.mcap", str(Path("logs/day1/run.mcap").absolute())], "out/")
    assert once == {"logs/day1/run.mcap": "out/run.rrd"}


def test_a_missing_file_is_for_its_reader_to_report() -> None:
    assert planned(["gone.mcap"], "a.rrd") == {"gone.mcap": "a.rrd"}


def test_many_inputs_do_not_become_one_file() -> None:
    with pytest.raises(UsageError, match="4 inputs cannot be written to one file"):
        plan_jobs(["logs"], "all.rrd")


def test_two_inputs_never_become_one_output() -> None:
    with pytest.raises(UsageError, match=r"both logs/day1/run\.mcap and logs/day2/run\.mcap"):
        plan_jobs(["logs/day1/run.mcap", "logs/day2/run.mcap"], "out")


@pytest.mark.parametrize("output", ["logs/top.RRD", "logs/../logs/top.RRD"])
def test_an_input_is_never_an_output(output: str) -> None:
    with pytest.raises(UsageError, match="would be overwritten"):
        plan_jobs(["logs/top.RRD"], output)


def test_an_input_is_never_an_output_through_a_link() -> None:
    Path("link.rrd").symlink_to(Path("logs/top.RRD").absolute())
    with pytest.raises(UsageError, match="would be overwritten"):
        plan_jobs(["logs/top.RRD"], "link.rrd")


@pytest.mark.parametrize("argument", ["logs/*.bag", "logs/*.txt", "nowhere/**"])
def test_a_pattern_without_a_match_fails(argument: str) -> None:
    with pytest.raises(SourceMissingError, match="matches this pattern"):
        plan_jobs([argument], "out")


def test_a_folder_without_recordings_fails() -> None:
    Path("empty").mkdir()
    with pytest.raises(SourceMissingError, match="contains no recording"):
        plan_jobs(["empty"], "out")


def test_files_compressed_as_a_whole_are_found_and_named_without() -> None:
    for name in (
        "logs/day1/a.mcap.zst",
        "logs/day1/b.MCAP.ZSTD",
        "logs/day2/c.mcap.lz4",
        "logs/day2/no.zst",
        "logs/.zst",
    ):
        Path(name).touch()
    found = planned(["logs"], "out")
    compressed = {source: target for source, target in found.items() if source.lower().endswith(("zst", "zstd", "lz4"))}
    assert compressed == {
        "logs/day1/a.mcap.zst": "out/day1/a.rrd",
        "logs/day1/b.MCAP.ZSTD": "out/day1/b.rrd",
        "logs/day2/c.mcap.lz4": "out/day2/c.rrd",
    }
    assert planned(["logs/day1/a.mcap.zst"], "new/") == {"logs/day1/a.mcap.zst": "new/a.rrd"}
    assert planned(["logs/**/*.zst"], "new") == {"logs/day1/a.mcap.zst": "new/day1/a.rrd"}


def test_such_files_do_not_take_each_others_names() -> None:
    Path("logs/day1/run.mcap.zst").touch()
    with pytest.raises(UsageError, match="run"):
        plan_jobs(["logs"], "out")


def test_what_is_passed_over_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("elsewhere").mkdir()
    Path("logs/linked").symlink_to(Path("elsewhere").absolute())
    Path("logs/gone.mcap").symlink_to("nowhere.mcap")
    os.mkfifo("logs/pipe.mcap")
    Path(os.fsdecode(b"logs/\xff.mcap")).touch()
    usual = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("day1"):
            raise PermissionError(13, "Permission denied", path)
        return usual(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert planned(["logs"], "out").keys() == {"logs/top.RRD", "logs/day2/run.mcap", "logs/day2/view.rbl"}
    told = capsys.readouterr().err
    assert "logs/linked is a link to a folder, which is not followed" in told
    assert "logs/gone.mcap is a link to a file that does not exist" in told
    assert "logs/pipe.mcap is not a file, and is skipped" in told
    assert "logs/day1 cannot be listed, and is skipped: Permission denied" in told
    assert "has a name that is not UTF-8, and is skipped" in told
    assert told.count("warning") == 5


def test_names_that_are_no_text_are_bad_usage() -> None:
    with pytest.raises(UsageError, match="is not UTF-8"):
        plan_jobs([os.fsdecode(b"\xff.mcap")], "out")
    assert planned(["logs/top.RRD"], "./-") == {"logs/top.RRD": "-"}
