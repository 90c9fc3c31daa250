"""The command line as a table: every command's help at two widths, good and bad calls, piped and not."""

from __future__ import annotations

import io
import json
import os
import re
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
from rich.cells import cell_len


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


PIPELINE = """
def pipeline(stream):
    return stream.filter(content="/nissan/**")

def other(stream):
    return 5
"""


FAST = ("--settle", "0s", "-q", "--executor", "inline")


@pytest.fixture(scope="module")
def recordings(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """demo.mcap, the RRD of it, a table, a store of both, and a catalog with a dataset of both."""
    folder = tmp_path_factory.mktemp("recordings")
    shutil.copy(data / "demo.mcap", folder)
    shutil.copy(data / "generated" / "pq_base.parquet", folder)
    assert run("convert", folder / "demo.mcap", "-o", folder / "demo.rrd", "-q").exit_code == 0
    (folder / "landing").mkdir()
    shutil.copy(folder / "demo.rrd", folder / "landing")
    (folder / "landing" / "bad.mcap").write_bytes(b"\x89MCAP0\r\n" + bytes(50))
    done = run("ingest", folder / "landing", "--into", folder / "store", "--once", "--settle", "0s", "-q")
    assert done.exit_code == 0, done.output
    done = run("ingest", folder / "landing", "--into", folder / "lake", "--dataset", "drives", "--once", *FAST)
    assert done.exit_code == 0, done.output
    (folder / "note.txt").write_text("a note")
    (folder / "pipe.py").write_text(PIPELINE)
    return folder


MIDDLE = "2026-01-23T10:43:33"
CALLS = {
    # what is typed: exit code, and what is printed
    "inspect demo.mcap": (0, "MCAP"),
    "inspect none.mcap": (1, "no such file"),
    "ls store": (0, "demo"),
    "verify demo.mcap demo.rrd store": (0, "3 verified, no faults"),
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
    "convert demo.rrd -o out/a.rrd --start 5 --end 5": (2, "has to be later"),
    "convert demo.rrd -o out/a.rrd --start nothing=5": (0, "rows in"),
    "convert demo.mcap -o out/a.rrd --optimize live": (0, "3,523 rows"),
    "convert demo.mcap -o out/a.rrd --optimize best": (2, "--optimize"),
    "convert demo.mcap -o out/shards --shards --optimize object-store": (0, "3,523 rows"),
    "convert demo.mcap pq_base.parquet -o out/shards --shards": (2, "--shards takes a single input"),
    "convert demo.mcap -o out/a.rrd --decoder raw --timestamp-offset-ns 7": (0, "rows in"),
    "convert demo.mcap -o out/a.rrd --decoder none": (2, "Unknown decoder"),
    "convert demo.mcap -o out/a.rrd --timeline-type duration": (0, "rows in"),
    "convert demo.rrd -o out/a.rrd --timeline-type duration": (0, "--timeline-type does not apply"),
    "convert demo.rrd -o out/a.rrd --flat": (0, "--flat does not apply"),
    "convert demo.rrd -o out/a.rrd --topics imu": (2, "choose topics of an MCAP"),
    "merge demo.mcap demo.rrd -o out/demo.rrd": (0, "2 inputs -> out/demo.rrd"),
    "merge demo.rrd store -o out/m.rrd --optimize object-store --stats": (0, "2 inputs -> out/m.rrd"),
    "merge demo.rrd -o landing": (2, "this is a folder"),
    "merge demo.rrd -o demo.rrd": (2, "would be overwritten"),
    "merge demo.rrd none.rrd -o out/m.rrd": (1, "no such file"),
    "convert - -o out/a.rrd": (2, "standard input is empty"),
    "convert - - -o out/a.rrd": (2, "given twice"),
    "check pipe.py": (0, "pipeline can be run"),
    "check pipe.py demo.rrd --svg out/plan.svg": (0, "passed through undecoded"),
    "check pipe.py:other": (1, "a LazyChunkStream was expected"),
    "check pipe.py:none --debug": (2, "Traceback"),
    "check none.py": (2, "no such file"),
    "check pipe.py none.rrd": (1, "no such file"),
    "compact store --optimize object-store --min-shard 1MiB --executor inline": (0, "nothing to do: 1 shard"),
    "compact store --executor inline --master local[1] --conf a=b": (2, "--master and --conf need Spark"),
    "compact note.txt --debug": (1, "neither a store of recordings nor"),
    "compact store --min-shard many": (2, "is not a size"),
    "compact store --optimize best": (2, "--optimize"),
    "compare demo.mcap demo.rrd --content /nissan/** --limit 3 -q": (0, ""),
    "compare demo.mcap demo.rrd --ignore-timeline message_log_time --chunks": (0, "hold the same"),
    "compare demo.rrd pq_base.parquet --limit 1": (1, "only in the second"),
    "compare none.rrd none.rrd --debug": (1, "Traceback"),
    "convert demo.rrd --output out/a.rrd --content /nissan/** --application-id a --verify --quiet": (0, ""),
    "convert demo.rrd -o out/a.rrd --content nissan": (0, "nothing was written for --content 'nissan'"),
    "convert demo.rrd -o out/a.rrd --pipeline pipe.py --recording-id b": (0, "3,520 rows"),
    "convert demo.rrd -o out/a.rrd --pipeline none.py": (2, "no such file"),
    "convert demo.rrd -o out/a.rrd --pipeline pipe.py:other": (1, "a LazyChunkStream was expected"),
    "convert demo.rrd -o out/a.rrd --executor inline --master local[1]": (2, "--master and --conf need Spark"),
    "convert demo.rrd -o out/a.rrd --executor auto --stats": (0, "passed through undecoded"),
    "convert demo.rrd -o out/a.rrd --executor cluster": (2, "--executor"),
    "convert demo.rrd -o out/a.rrd --conf nothing": (2, "KEY=VALUE"),
    "convert demo.rrd -o out/a.rrd --report out/run.html": (0, "3,523 rows"),
    "convert none.rrd -o out/a.rrd --debug": (1, "Traceback"),
    "convert demo.mcap -o out/a.rrd --topics imu --exclude-topics mag": (0, "1,561 rows"),
    "convert demo.mcap -o out/a.rrd --topics (": (2, "is not a regular expression"),
    "convert demo.mcap -o out/a.rrd --exclude-topics [": (2, "is not a regular expression"),
    "convert demo.mcap -o out/a.rrd --start-time-ns 0 --end-time-ns 1769165013000000000": (0, "931 rows"),
    "convert demo.mcap -o out/a.rrd --start-time-ns noon": (2, "is not a number of nanoseconds"),
    "convert demo.mcap -o out/a.rrd --end-time-ns -5": (2, "is not from 0 to"),
    "convert demo.mcap -o out/a.rrd --timestamp-offset-ns 99999999999999999999": (
        2,
        "is not from -9223372036854775808",
    ),
    "convert demo.mcap -o out/a.rrd --timeline-type sequence": (2, "--timeline-type"),
    "convert landing/bad.mcap -o out/a.rrd --recover": (0, "recovered 0 messages"),
    "convert landing/bad.mcap -o out/a.rrd": (1, "(--recover)"),
    "convert pq_base.parquet -o out/a.rrd --index-column t:sequence --static-column note --flat": (0, "rows in"),
    "convert pq_base.parquet -o out/a.rrd --entity-path-prefix /x --column-grouping individual": (0, "rows in"),
    "convert pq_base.parquet -o out/a.rrd --column-grouping explicit_prefixes --prefix camera": (0, "rows in"),
    "convert pq_base.parquet -o out/a.rrd --delimiter .": (0, "rows in"),
    "convert pq_base.parquet -o out/a.rrd --delimiter ab": (2, "length 1"),
    "convert pq_base.parquet -o out/a.rrd --index-column nothing": (2, "NAME:TYPE"),
    "convert pq_base.parquet -o out/a.rrd --column-grouping some": (2, "--column-grouping"),
    "convert pq_base.parquet -o out/a.rrd --prefix camera": (2, "column_grouping='explicit_prefixes'"),
    "export store demo --output out/e.rrd --version 1 --content /nissan/** --stats": (0, "3,520 rows"),
    "export store -o out/e/ --quiet --executor inline": (0, ""),
    "export store none -o out/e.rrd": (1, "there is no recording 'none'"),
    "export store demo -o out/e.rrd --version 9": (1, "there is no version 9"),
    "export store demo -o out/e.rrd --conf x": (2, "KEY=VALUE"),
    "export store demo -o out/e.rrd --executor inline --master local[1]": (2, "need Spark"),
    "export note.txt -o out/e.rrd --debug": (1, "Traceback"),
    "ingest landing --into out/a --once --settle 0s --max-files 1 --max-bytes 1MiB -q": (0, "bad.mcap: quarantined"),
    "ingest landing --into out/a --once --settle 0s --pipeline pipe.py --application-id a --content /nissan/**": (
        0,
        "1 added, 1 quarantined",
    ),
    "ingest landing --rrds out/a --once --settle 0s --checkpoint out/b --log-json": (0, '"quarantined"'),
    "ingest landing --into out/a --once --optimize live --replace-same-id --keep-versions 2 --compact-every 1": (
        0,
        "version",
    ),
    "ingest landing --into out/a --once --source-done delete --executor inline": (0, "version"),
    "ingest landing --into out/a --once --source-done archive --archive out/b": (0, "version"),
    "ingest landing --into out/a --once --settle later": (2, "is not a duration"),
    "ingest landing --into out/a --once --source-done burn": (2, "--source-done"),
    "ingest landing --into out/a --once --source-done archive": (2, "no folder to archive into"),
    "ingest landing --into out/a --once --max-files 0": (2, "--max-files"),
    "ingest landing --into out/a --once --max-bytes lots": (2, "is not a size"),
    "ingest landing --into out/a --once --compact-every 0": (2, "--compact-every"),
    "ingest landing --into out/a --once --metrics-port 99999": (2, "--metrics-port"),
    "ingest landing --into out/a --once --metrics-port 0 --metrics-host 256.0.0.1": (2, "metrics cannot be served"),
    "ingest landing --into out/a --once --every 1s": (2, "exclude each other"),
    "ingest landing --into out/a --dataset drives --once --settle 0s -q": (0, "bad.mcap: quarantined"),
    "ingest landing --rrds out/a --dataset drives --once": (2, "names one of a catalog"),
    "ingest landing --once": (2, "needs a destination"),
    "ingest none --into out/a --once --debug": (1, "Traceback"),
    "ingest landing --into out/a --once --executor inline --master local[1] --conf a=b": (2, "need Spark"),
    "ingest landing --into note.txt --once": (1, "cannot be written"),
    "inspect store --all": (0, "/__mcap_metadata (static)"),
    "inspect demo.rrd --json": (0, '"format": "rrd"'),
    "inspect none.mcap --debug": (1, "Traceback"),
    "ls store --version 1 --json": (0, '"recording_id": "demo"'),
    "ls store --version 9": (1, "there is no version 9"),
    "ls note.txt --debug": (1, "Traceback"),
    f"merge demo.mcap demo.rrd --output out/m.rrd --content /nissan/** --start {MIDDLE} -q": (0, ""),
    f"merge demo.mcap demo.rrd -o out/m.rrd --end {MIDDLE} --application-id a --recording-id b": (0, "2 inputs"),
    "merge demo.rrd -o out/m.rrd --executor inline --master local[1] --conf a=b": (2, "need Spark"),
    "merge demo.rrd -o out/m.rrd --start noon": (2, "neither a number"),
    "merge demo.rrd none.rrd -o out/m.rrd --debug": (1, "Traceback"),
    "print demo.rrd --content /nissan/** --limit 1 --width 60": (0, "entity_path: /nissan/gps/duro/current_pose"),
    "print demo.rrd --width 1": (2, "--width"),
    "print none.rrd --debug": (1, "Traceback"),
    "quarantine list store": (0, "1 file in quarantine"),
    "quarantine list store --json": (0, '"code": "chunkmill.read"'),
    "quarantine list store other.mcap": (2, "is not in quarantine"),
    "quarantine list none --debug": (1, "Traceback"),
    "quarantine retry store --all --json": (0, "bad.mcap"),
    "quarantine retry store --all": (0, "1 file will be tried again"),
    "quarantine retry store": (2, "no file is given"),
    "quarantine retry none --all --debug": (1, "Traceback"),
    "quarantine drop store --all --json": (0, "bad.mcap"),
    "quarantine drop store other.mcap": (2, "is not in quarantine"),
    "quarantine drop none --all --debug": (1, "Traceback"),
    "show store demo --version 1 --all": (0, "/__mcap_metadata (static)"),
    "show store demo --json": (0, '"format": "store"'),
    "show store none": (1, "there is no recording 'none'"),
    "show none --debug": (1, "Traceback"),
    "status store --json": (0, '"recordings": 1'),
    "status store --checkpoint none": (0, "no checkpoint was found"),
    "status none --watch": (1, "neither a store of recordings nor"),
    "status none --debug": (1, "Traceback"),
    "vacuum store --keep 1 --older-than 0s": (0, "freed"),
    "vacuum store --keep 0": (2, "--keep"),
    "vacuum store --older-than later": (2, "is not a duration"),
    "vacuum none --debug": (1, "Traceback"),
    "verify demo.rrd --quiet": (0, ""),
    "verify none.rrd --debug": (1, "Traceback"),
    "inspect -": (2, "standard input is empty"),
    "inspect - -": (2, "given twice"),
    "ls -": (2, "standard input cannot be used here"),
    "show -": (2, "standard input cannot be used here"),
    "export - -o out": (2, "standard input cannot be used here"),
    "compact -": (2, "standard input cannot be used here"),
    "vacuum -": (2, "standard input cannot be used here"),
    "ingest - --into out/store --once": (2, "standard input cannot be used here"),
    "check pipeline.py -": (2, "standard input cannot be used here"),
    "catalog ls lake": (0, "drives"),
    "catalog ls lake --all --json": (0, '"kind": "blueprint dataset"'),
    "catalog ls none": (1, "there is no catalog here"),
    "catalog ls store --debug": (1, "a store of recordings, and no catalog"),
    "catalog ls -": (2, "standard input cannot be used here"),
    "catalog show lake": (0, "1 segment, 1 layer"),
    "catalog show lake drives --all": (0, "/nissan/vehicle_speed:std_msgs.msg.Float32:message"),
    "catalog show lake drives --json": (0, '"segment_id": "demo"'),
    "catalog show lake drive --debug": (1, "Did you mean 'drives'?"),
    "catalog create lake other": (0, "dataset 'other' is at"),
    "catalog create lake drives --exist-ok": (0, "dataset 'drives' is at"),
    "catalog create new/lake kept --url store": (0, "/store"),
    "catalog create lake drives --debug": (1, "already exists"),
    "catalog create lake a/b": (2, "invalid character '/'"),
    "catalog rename lake drives trips": (0, "dataset 'drives' is now 'trips'"),
    "catalog rename lake drives drives/1": (2, "invalid character '/'"),
    "catalog rename lake none trips --debug": (1, "No dataset found with name 'none'"),
    "catalog rm lake drives": (0, "removed dataset 'drives'; its store stays at"),
    "catalog rm lake drives none --debug": (1, "No dataset found with name 'none'"),
    "catalog check lake": (0, "drives: no faults"),
    "catalog check lake drives --json --quiet": (0, ""),
    "catalog check lake none --debug": (1, "No dataset found with name 'none'"),
    "register lake drives demo.rrd --layer two --times": (0, "demo.rrd -> demo"),
    "register lake new --prefix landing --on-duplicate skip --verify --json": (1, '"segment_id": "demo"'),
    "register lake drives *.rrd --on-duplicate error --executor inline": (1, "Layer 'base' already exists"),
    "register lake drives demo.rrd landing/bad.mcap --quiet": (1, "landing/bad.mcap: "),
    "register lake drives demo.mcap pq_base.parquet --executor inline": (0, "2 recordings registered with 'drives'"),
    "register lake copied landing --copy": (1, "1 recording registered with 'copied', 1 failed"),
    "register lake drives": (2, "no file is given"),
    "register lake drives none.rrd --debug": (1, "there is no such file"),
    "register lake a/b demo.rrd": (2, "invalid character '/'"),
    "unregister lake drives --segment demo --layer base --force": (0, "1 layer of 1 segment removed from 'drives'"),
    "unregister lake drives": (2, "nothing to remove was named"),
    "unregister lake drives --layer none --debug": (1, "there is no layer 'none'"),
    "query demo.rrd --index message_log_time --contents /nissan/vehicle_speed": (
        0,
        "the first 20 rows: --limit shows more",
    ),
    "query lake drives --index message_log_time --fill --limit 2 --segments d* --semantics rerun-0.33 -q": (
        0,
        "2026-01-",
    ),
    "query lake --index message_log_time --start 2026-01-23T10:43:40 --end 2026-01-23T10:43:42 --explain": (
        0,
        "reads 1 of 1 segment,",
    ),
    "query store --index none -o out/static.arrow": (0, "out/static.arrow: 1 row of 1 segment"),
    "query demo.rrd --index message_log_time --values 1769165013000000000,2026-01-23T10:43 --fill -o out/r.parquet": (
        0,
        "2 rows of 1 segment",
    ),
    "query demo.rrd pq_base.parquet --index none --contents /nissan/** --executor inline": (0, "demo"),
    "query demo.rrd --index message_log_time --columns ros2_timestamp --limit 0": (0, "no rows"),
    "query demo.rrd --index ros2_timestamp --where \"ros2_timestamp\">'2026-01-01' --overwrite -o out/w.arrow": (
        0,
        "rows",
    ),
    "query demo.rrd": (2, "Missing option '--index'"),
    "query demo.rrd --index log_time": (2, "Index 'log_time' does not exist"),
    "query demo.rrd --index message_log_time --columns ros2_time": (2, "Did you mean 'ros2_timestamp'?"),
    "query demo.rrd --index message_log_time --where ros2": (2, "--where: there is no column 'ros2'"),
    "query demo.rrd --index message_log_time --where a>": (2, "A condition is SQL"),
    "query demo.rrd --index message_log_time --values noon": (2, "neither a number"),
    "query demo.rrd --index message_log_time --start noon": (2, "neither a number"),
    "query demo.rrd --index message_log_time --end noon": (2, "neither a number"),
    "query demo.rrd --index message_log_time --start 5 --end 5": (2, "has to be later"),
    "query demo.rrd --index none --start 5": (2, "--index none has none"),
    "query demo.rrd --index message_log_time --limit -1": (2, "--limit"),
    "query demo.rrd --index message_log_time --semantics best": (2, "--semantics"),
    "query demo.rrd --index message_log_time --segments drive-*": (1, "there is no segment 'drive-*'"),
    "query demo.rrd --index message_log_time -o note.txt": (2, "a file or folder .parquet or .arrow"),
    "query demo.rrd --index message_log_time -o pq_base.parquet": (2, "this exists already"),
    "query demo.rrd --index none --contents /none --output out/none.parquet": (0, "0 rows"),
    "query demo.rrd --index none --executor inline --master local[1] --conf a=b": (2, "need Spark"),
    "query lake drive --index none --debug": (1, "Did you mean 'drives'?"),
    "query lake drives more --index none": (2, "Give a catalog and one of its datasets"),
    "query note.txt --index none": (1, "neither an MCAP nor"),
    "ls lake": (2, "`chunkmill catalog ls lake` lists them"),
    "ls lake --dataset drives": (0, "demo"),
    "ls lake --dataset none": (1, "No dataset found with name 'none'"),
    "show lake --dataset drives demo": (0, "recording 'demo'"),
    "export lake --dataset drives -o out/e.rrd --executor inline": (0, "3,523 rows"),
    "vacuum lake --dataset drives": (0, "freed"),
    "compact lake --dataset drives": (0, "nothing to do: 1 shard"),
    "status lake --dataset drives": (0, "1 recording"),
    "status lake": (2, "this is a catalog, and not a store"),
    "quarantine list lake --dataset drives": (0, "1 file in quarantine"),
    "quarantine retry lake --dataset drives --all": (0, "1 file will be tried again"),
    "quarantine drop lake --dataset drives --all": (0, "1 file"),
    "ingest landing --into lake --once": (2, "lake is a catalog"),
    "verify lake": (0, "all digests match"),
    "inspect lake": (0, "3,523 rows"),
    "convert lake -o out/all --executor inline": (0, "out/all/drives/demo.rrd"),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls(call: str, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    laid_out(recordings, tmp_path)
    code, said = CALLS[call]
    done = run(*call.split(), input=b"")
    assert (done.exit_code, said in text(done)) == (code, True), done.output
    assert "Unexpected error" not in done.output
    assert ("Traceback" in done.output) == (code != 0 and "--debug" in call)
    if code:
        assert not list((tmp_path / "out").glob("*.rrd"))


def laid_out(recordings: Path, folder: Path) -> None:
    """The recordings in a folder of a call's own; stores and landing folders as copies, as a call may change them."""
    for path in recordings.iterdir():
        if path.is_dir():
            shutil.copytree(path, folder / path.name)
        else:
            (folder / path.name).symlink_to(path)
    (folder / "out").mkdir()


LEAVES = [path for path in every_command() if path and not isinstance(command_at(path), click.Group)]


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_and_option_is_in_the_table(path: tuple[str, ...]) -> None:
    calls = [call.split() for call in CALLS if tuple(call.split()[: len(path)]) == path]
    codes = {CALLS[" ".join(call)][0] > 0 for call in calls}
    assert codes == {True, False}, "a call that is right, and one that is wrong"
    own = [p for p in command_at(path).params if isinstance(p, click.Option)]
    typed = {word for call in calls for word in call}
    assert [option.opts for option in own if not typed & {*option.opts}] == []


def test_every_option_of_a_format_is_in_the_table() -> None:
    """Those that all commands have that read recordings, made of what readers say of themselves."""
    convert = command_at(("convert",))
    options = [p for p in convert.get_params(click.Context(convert)) if "--help" not in p.opts]
    typed = {word for call in CALLS for word in call.split()}
    assert len(options) > len(convert.params)
    assert [option.opts for option in options if option.opts[0].startswith("-") and not typed & {*option.opts}] == []


TABLES = (
    "inspect demo.rrd",
    "inspect demo.mcap --all",
    "inspect store",
    "inspect pq_base.parquet",
    "ls store",
    "show store demo --all",
    "status store",
    "quarantine list store",
    "catalog ls lake",
    "catalog show lake --all",
    "print demo.rrd --limit 1",
    "query demo.rrd --index message_log_time --limit 3",
    "query lake --index message_log_time --explain",
    "verify demo.rrd store",
    "convert demo.rrd -o out/a.rrd --stats",
)


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("call", TABLES)
def test_tables_fit_a_terminal(
    call: str, columns: int, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    laid_out(recordings, tmp_path)
    done = run(*call.split(), env={"COLUMNS": str(columns), "FORCE_COLOR": "1"})
    assert done.exit_code == 0, done.output
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in done.output.splitlines()]
    rows = [line for line in lines if " -> " not in line and ": version" not in line and ", version" not in line]
    assert len(rows) > 1
    wide = [row for row in rows if cell_len(row) > columns]
    assert all(re.match(r"[\w.]+: [A-Z]{3}|\d+ (file|tasks|verified)|its store is ", row) for row in wide), wide
    piped = run(*call.split(), env={"COLUMNS": str(columns), "FORCE_COLOR": None, "NO_COLOR": None})
    assert "\x1b" not in piped.output


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

    def test_what_is_shown_of_input_has_its_name(self, recordings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(recordings)
        for name in ("demo.mcap", "demo.rrd", "pq_base.parquet"):
            data = (recordings / name).read_bytes()
            piped, read = (json.loads(run("inspect", "--json", of, input=data).stdout) for of in ("-", name))
            assert piped == {**read, "path": "-"}
        done = run("inspect", "-", "demo.mcap", input=(recordings / "demo.rrd").read_bytes())
        assert [line.split()[:2] for line in done.stdout.splitlines()[1:3]] == [["-", "rrd"], ["demo.mcap", "mcap"]]

    def test_terminals_are_refused(self, recordings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        from chunkmill.engine.cli import standard_streams

        monkeypatch.setattr(standard_streams.sys, "stdin", Terminal())
        with (
            pytest.raises(Exception, match="standard input, but that is a terminal"),
            standard_streams.from_standard_input("-"),
        ):
            pass
        monkeypatch.setattr(standard_streams.sys, "stdout", Terminal())
        with (
            pytest.raises(Exception, match="cannot be written to a terminal"),
            standard_streams.to_standard_output("-"),
        ):
            pass

    def test_nothing_is_written_after_an_error(self, recordings: Path) -> None:
        command = [sys.executable, "-m", "chunkmill", "convert", "none.mcap", "-o", "-", "--executor", "inline"]
        done = subprocess.run(command, capture_output=True, check=False, cwd=recordings, env={**os.environ})
        assert (done.returncode, done.stdout, b"no such file" in done.stderr) == (1, b"", True)
