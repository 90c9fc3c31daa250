"""The command line as a table: every command's help at two widths, good and bad calls, piped and not."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from chunkmill.engine import RecordingStore, compare
from chunkmill.engine.cli.commands import commands
from chunkmill.readers import RrdReader
from click.testing import CliRunner, Result


def run(*arguments: object, **given: object) -> Result:
    return CliRunner().invoke(commands, [str(a) for a in arguments], **given)  # type: ignore[arg-type]


def text(result: Result) -> str:
    return " ".join(result.output.split())


def every_command(group: click.Group = commands, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))
        else:
            yield (*path, name)


def command_at(path: tuple[str, ...]) -> click.Command:
    command: click.Command = commands
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("path", list(every_command()), ids=" ".join)
def test_help_is_whole_at_every_width(path: tuple[str, ...], columns: int) -> None:
    done = run(*path, "--help", terminal_width=columns - 2)
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= columns
    command = command_at(path)
    plain = "".join(done.output.split())
    said = [command.help or ""]
    context = click.Context(command)
    for param in command.get_params(context):
        if isinstance(param, click.Option):
            assert all(name in done.output for name in param.opts)
            assert param.help, f"{param.opts[0]} says nothing"
            assert param.help.endswith((".", "'_'.", ")")), f"{param.opts[0]}: {param.help!r} is no sentence"
            said.append(param.help)
    if isinstance(command, click.Group):
        said += [(c.help or "").split("\n\n")[0].split(". ")[0] for c in command.commands.values()]
    for sentence in said:
        first = sentence.replace("\b", "").split("\f")[0]
        assert "".join(first.split()).replace("-", "") in plain.replace("-", "")


@pytest.fixture(scope="module")
def recordings(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """demo.mcap, the RRD of it, a table, and a store of both."""
    folder = tmp_path_factory.mktemp("recordings")
    shutil.copy(data / "demo.mcap", folder)
    shutil.copy(data / "generated" / "pq_base.parquet", folder)
    assert run("convert", folder / "demo.mcap", "-o", folder / "demo.rrd", "-q").exit_code == 0
    (folder / "landing").mkdir()
    shutil.copy(folder / "demo.rrd", folder / "landing")
    done = run("ingest", folder / "landing", "--into", folder / "store", "--once", "--settle", "0s", "-q")
    assert done.exit_code == 0, done.output
    (folder / "note.txt").write_text("a note")
    return folder


MIDDLE = "2026-01-23T10:43:33"
CALLS = {
    # what is typed: exit code, and what is printed
    "inspect demo.mcap": (0, "MCAP"),
    "inspect none.mcap": (1, "no such file"),
    "ls store": (0, "demo"),
    "verify demo.mcap demo.rrd store": (0, "3 verified, without a fault"),
    "verify": (2, "Missing argument"),
    "verify note.txt": (1, "neither an MCAP nor"),
    "compare demo.mcap demo.rrd": (0, "hold the same"),
    "compare store demo.mcap": (0, "hold the same"),
    "compare demo.rrd pq_base.parquet": (1, "only in the first"),
    "compare demo.rrd none.rrd": (1, "no such file"),
    "compare demo.rrd": (2, "Missing argument"),
    "compare demo.rrd demo.rrd --tolerance x": (2, "--tolerance"),
    "print store --headers --limit 1": (0, "/__mcap_metadata rows=1"),
    "print none.rrd": (1, "no such file"),
    "print demo.rrd --limit 0": (2, "--limit"),
    "convert demo.mcap -o out/a.rrd": (0, "3,523 rows"),
    "convert demo.mcap pq_base.parquet -o out/many": (0, "2 of 2 inputs -> out/many"),
    "convert demo.mcap note.txt -o out/some": (1, "1 of 2 inputs -> out/some"),
    "convert store -o out/store/": (0, "3,523 rows"),
    f"convert demo.mcap -o out/a.rrd --start {MIDDLE}": (0, "rows in"),
    f"convert demo.rrd -o out/a.rrd --end message_log_time={MIDDLE}": (0, "rows in"),
    "convert demo.rrd -o out/a.rrd --start noon": (2, "neither a number"),
    "convert demo.rrd -o out/a.rrd --start a=1 --end b=2": (2, "two timelines"),
    "convert demo.rrd -o out/a.rrd --start 5 --end 5": (2, "nothing lies between"),
    "convert demo.rrd -o out/a.rrd --start nothing=5": (0, "rows in"),
    "convert demo.mcap -o out/a.rrd --optimize live": (0, "3,523 rows"),
    "convert demo.mcap -o out/a.rrd --optimize best": (2, "--optimize"),
    "convert demo.mcap -o out/shards --shards --optimize object-store": (0, "3,523 rows"),
    "convert demo.mcap pq_base.parquet -o out/shards --shards": (2, "--shards is for one input"),
    "convert demo.mcap -o out/a.rrd --decoder raw --timestamp-offset-ns 7": (0, "rows in"),
    "convert demo.mcap -o out/a.rrd --decoder none": (2, "Unknown decoder"),
    "convert demo.mcap -o out/a.rrd --timeline-type duration": (0, "rows in"),
    "convert demo.rrd -o out/a.rrd --timeline-type duration": (0, "--timeline-type does not apply"),
    "convert demo.rrd -o out/a.rrd --flat": (0, "--flat does not apply"),
    "convert demo.rrd -o out/a.rrd --topics imu": (2, "choose topics of an MCAP"),
    "merge demo.mcap demo.rrd -o out/demo.rrd": (0, "2 inputs -> out/demo.rrd"),
    "merge demo.rrd store -o out/m.rrd --optimize object-store --stats": (0, "2 inputs -> out/m.rrd"),
    "merge demo.rrd -o landing": (2, "this is a folder"),
    "merge demo.rrd -o demo.rrd": (2, "would be written over"),
    "merge demo.rrd none.rrd -o out/m.rrd": (1, "no such file"),
    "convert - -o out/a.rrd": (2, "standard input holds nothing"),
    "convert - - -o out/a.rrd": (2, "named twice"),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls(call: str, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in recordings.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "out").mkdir()
    code, said = CALLS[call]
    done = run(*call.split(), input=b"")
    assert (done.exit_code, said in text(done)) == (code, True), done.output
    assert "should not" not in done.output
    assert "Traceback" not in done.output
    if code:
        assert not list((tmp_path / "out").glob("*.rrd"))


def test_a_range_of_times_is_the_same_from_every_format(recordings: Path, tmp_path: Path) -> None:
    bounds = ("--start", MIDDLE, "--end", "2026-01-23T10:43:35")
    for name in ("demo.mcap", "demo.rrd", "store"):
        out = tmp_path / f"{name}.rrd"
        assert run("convert", recordings / name, "-o", out, "-q", *bounds).exit_code == 0
        assert compare(tmp_path / "demo.mcap.rrd", out)
    times = [t for c in RrdReader(out).store() for t in c.header.timelines if t.name == "message_log_time"]
    start, end = 1769165013_000000000, 1769165015_000000000
    assert times
    assert all(start <= (t.start or 0) and (t.end or 0) < end for t in times)


def test_parts_of_a_recording_are_merged(recordings: Path, tmp_path: Path) -> None:
    for name, bound in (("one", "--end"), ("two", "--start")):
        run("convert", recordings / "demo.rrd", "-o", tmp_path / f"{name}.rrd", "-q", bound, MIDDLE)
    done = run("merge", tmp_path / "one.rrd", tmp_path / "two.rrd", tmp_path / "two.rrd", "-o", tmp_path / "all.rrd")
    assert (done.exit_code, "2 inputs" in done.stderr) == (0, True), done.output
    assert [store.recording_id for store in RrdReader(tmp_path / "all.rrd").recordings()] == ["demo"]
    assert compare(tmp_path / "all.rrd", recordings / "demo.mcap")


def test_what_has_no_id_becomes_one_recording_and_ids_stay_apart(recordings: Path, tmp_path: Path) -> None:
    run("convert", recordings / "demo.mcap", "-o", tmp_path / "a.rrd", "-q", "--recording-id", "other")
    inputs = [recordings / "demo.mcap", recordings / "pq_base.parquet", tmp_path / "a.rrd"]
    assert run("merge", *inputs, "-o", tmp_path / "m.rrd", "-q").exit_code == 0
    assert [store.recording_id for store in RrdReader(tmp_path / "m.rrd").recordings()] == ["m", "other"]
    assert run("merge", *inputs, "-o", tmp_path / "m.rrd", "-q", "--recording-id", "x").exit_code == 0
    assert [store.recording_id for store in RrdReader(tmp_path / "m.rrd").recordings()] == ["x"]


def test_shards_hold_the_recording(recordings: Path, tmp_path: Path) -> None:
    assert run("convert", recordings / "demo.mcap", "-o", tmp_path / "shards", "--shards", "-q").exit_code == 0
    (shard,) = (tmp_path / "shards").iterdir()
    assert compare(shard, recordings / "demo.mcap")
    assert RecordingStore.open(recordings / "store").recordings()


class TestStandardStreams:
    def test_a_pipe(self, recordings: Path, tmp_path: Path) -> None:
        """A process, as only one has a standard output of bytes."""
        command = [sys.executable, "-m", "chunkmill", "convert", "-", "-o", "-", "-q", "--executor", "inline"]
        with (recordings / "demo.mcap").open("rb") as source:
            done = subprocess.run(command, stdin=source, capture_output=True, check=True)
        (tmp_path / "out.rrd").write_bytes(done.stdout)
        assert compare(tmp_path / "out.rrd", recordings / "demo.mcap")
        assert not done.stderr

    @pytest.mark.parametrize("command", [["verify", "-"], ["print", "-", "--headers"], ["compare", "-", "demo.rrd"]])
    def test_input(self, command: list[str], recordings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(recordings)
        done = run(*command, input=(recordings / "demo.mcap").read_bytes())
        assert done.exit_code == 0, done.output

    def test_terminals_are_refused(self, recordings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        from chunkmill.engine.cli import standard_streams

        monkeypatch.setattr(standard_streams.sys, "stdin", Terminal())
        with pytest.raises(Exception, match="standard input is a terminal"), standard_streams.from_standard_input("-"):
            pass
        monkeypatch.setattr(standard_streams.sys, "stdout", Terminal())
        with pytest.raises(Exception, match="not written to a terminal"), standard_streams.to_standard_output("-"):
            pass

    def test_nothing_is_written_after_an_error(self, recordings: Path) -> None:
        command = [sys.executable, "-m", "chunkmill", "convert", "none.mcap", "-o", "-", "--executor", "inline"]
        done = subprocess.run(command, capture_output=True, check=False, cwd=recordings, env={**os.environ})
        assert (done.returncode, done.stdout, b"no such file" in done.stderr) == (1, b"", True)
