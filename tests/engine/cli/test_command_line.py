"""The command line as a table: every command's help at two widths, good and bad calls, piped and not."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import itertools
import json
import os
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine import RecordingStore, cli, compare
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.cli import ingest
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.cli.outputs import outputs_of
from chunkmill.engine.recordings.vacuum import NewFiles
from chunkmill.engine.spark import gateway
from chunkmill.engine.tables import Table, connect
from chunkmill.readers import RrdReader
from click.testing import CliRunner, Result
from command_calls import CALLS, MIDDLE
from places import REPOSITORY
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


DOUBLING = """
from chunkmill.engine.tables import udf

@udf
def double(a: int) -> int:
    return a * 2
"""


SPEC = {
    "fps": 30,
    "timeline": "message_log_time",
    "features": {"action": {"entity": "/nissan/vehicle_steering", "selector": ".data"}},
}
"""What `export lerobot` takes of demo.mcap."""


SAMPLES = {
    "index": "message_log_time",
    "timeline_sampling": {"rate_hz": 10},
    "fields": {
        "speed": {"path": "/nissan/vehicle_speed:std_msgs.msg.Float32:message", "select": ".data", "fill": "skip"}
    },
}
"""What `samples` takes of demo.mcap."""


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
    shutil.copytree(folder / "landing", folder / "clean")
    (folder / "landing" / "bad.mcap").write_bytes(b"\x89MCAP0\r\n" + bytes(50))
    done = run("ingest", folder / "landing", "--into", folder / "store", "--once", "--settle", "0s", "-q")
    assert done.exit_code == 1, done.output
    done = run("ingest", folder / "landing", "--into", folder / "lake", "--dataset", "drives", "--once", *FAST)
    assert done.exit_code == 1, done.output
    (folder / "note.txt").write_text("a note")
    (folder / "pipe.py").write_text(PIPELINE)
    (folder / "doubling.py").write_text(DOUBLING)
    (folder / "spec.yaml").write_text(json.dumps(SPEC))
    (folder / "samples.yaml").write_text(json.dumps(SAMPLES))
    add_table(folder)
    return folder


def add_table(folder: Path) -> None:
    """A table of three rows, with a column that nobody has computed, and a view of it with another."""
    lance.write_dataset(pa.table({"a": [0, 1, 2]}), folder / "numbers.lance", enable_stable_row_ids=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        double = importlib.import_module("doubling").double
        Table(str(folder / "numbers.lance")).add_columns({"doubled": double})
        tables = connect(str(folder))
        tables.create_materialized_view("view", tables.open_table("numbers").search(None).select({"twice": double}))


@pytest.mark.parametrize("call", CALLS)
def test_calls(call: str, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # to be as it was, when a command has put its folder there
    laid_out(recordings, tmp_path)
    code, said = CALLS[call]
    before = written(tmp_path)
    done = run(*call.split(), input=b"")
    assert (done.exit_code, said in text(done)) == (code, True), done.output
    assert "Unexpected error" not in done.output
    assert ("Traceback" in done.output) == (code != 0 and "--debug" in call)
    if code:
        assert not list((tmp_path / "out").glob("*.rrd"))
    changed = [name for name, stamp in written(tmp_path).items() if before.get(name) != stamp]
    named = [(tmp_path / place).resolve() for place in places_of(call)]
    assert [name for name in changed if not any(Path(name).resolve().is_relative_to(place) for place in named)] == []


PLACES = {"store", "lake", "new", "landing", "new/lake", "numbers.lance", "view.lance", "out/copy"}
"""Stores, catalogs, landing folders and tables, in which commands work that are given one."""

MAKES = {"--into", "--rrds", "--checkpoint", "--archive", "--secret-file", "--lerobot"}
"""Options that name what a command keeps its own files in."""


def places_of(call: str) -> list[str]:
    """What a call may write: what options of outputs name, and what it works in."""
    words = call.split()
    depth = next((size for size in (3, 2, 1) if tuple(words[:size]) in LEAVES), 1)
    options = {name for option in outputs_of(command_at(tuple(words[:depth]))) for name in option.opts} | MAKES
    named = [value for word, value in itertools.pairwise(words) if word in options]
    return [*named, *(word for word in words if word in PLACES)]


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """The files of a folder, with their sizes and times, without those that Python and Lance keep for themselves."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def laid_out(recordings: Path, folder: Path) -> None:
    """The recordings in a folder of a call's own; stores and landing folders as copies, as a call may change them."""
    for path in recordings.iterdir():
        if path.is_dir():
            shutil.copytree(path, folder / path.name)
        else:
            (folder / path.name).symlink_to(path)
    (folder / "out").mkdir()


UNTIL_A_SIGNAL = ("serve", "start")  # what is right runs on: see test_serve_command
LEAVES = [path for path in every_command() if path and not isinstance(command_at(path), click.Group)]


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_and_option_is_in_the_table(path: tuple[str, ...]) -> None:
    calls = [call.split() for call in CALLS if tuple(call.split()[: len(path)]) == path]
    codes = {CALLS[" ".join(call)][0] > 0 for call in calls}
    assert codes == ({True} if path == UNTIL_A_SIGNAL else {True, False}), "a call that is right, and one that is wrong"
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


Step = Callable[[pytest.MonkeyPatch], object]

INTERRUPTING = """
import os, signal

def interrupt(chunk):
    os.kill(os.getpid(), signal.{})
    return chunk

def pipeline(stream):
    return stream.map(interrupt)
"""


def signalled(kind: signal.Signals, *, handled_by: str) -> Step:
    """Send a signal to this process as soon as a function of that name handles it."""

    def send() -> None:
        while handled_by not in getattr(signal.getsignal(kind), "__qualname__", ""):
            time.sleep(0.01)
        os.kill(os.getpid(), kind)

    return lambda _: threading.Thread(target=send, daemon=True).start()


def pipeline_that_sends(kind: signal.Signals) -> Step:
    return lambda _: Path("send.py").write_text(INTERRUPTING.format(kind.name))


def overwritten(path: str) -> Step:
    return lambda _: Path(path).write_bytes(b"{")


def with_a_writer(_: pytest.MonkeyPatch) -> None:
    files = NewFiles(CatalogClient("lake").get_dataset("drives").store_reader().folder, None, 1 << 20, base=0)
    files.add_manifest(b"of a writer that is at work")
    files.finish()


INTERRUPTED = "convert demo.rrd -o out/a.rrd --pipeline send.py --executor inline"
ENDS: dict[str, tuple[list[str | Step], list[str]]] = {
    # an example of the page's table of exit codes: what comes before, and calls that end with the code
    "`query` without rows": ([], ["query demo.rrd --index none --contents /none"]),
    "an `ingest` that a signal stopped after its batch": (
        [signalled(signal.SIGTERM, handled_by="_stopped_by_signals")],
        ["ingest clean --into out/a --settle 0s --executor inline -q"],
    ),
    "a `serve` that a signal stopped": (
        [signalled(signal.SIGTERM, handled_by="_stop_signals")],
        ["serve lake --port 0 --drain-seconds 0 -q"],
    ),
    "`status --watch` after Ctrl-C": (
        [lambda patch: patch.setattr(ingest, "_pause", lambda: os.kill(os.getpid(), signal.SIGINT))],
        ["status store --watch"],
    ),
    "an input cannot be read": ([], ["convert demo.rrd note.txt -o out/a/", "inspect none.mcap"]),
    "`verify` or `catalog check` found a fault": (
        ["register lake drives clean/demo.rrd --layer two", overwritten("clean/demo.rrd")],
        ["verify lake", "verify clean", "catalog check lake"],
    ),
    "`doctor` found an error or a warning": (
        [
            "convert demo.rrd -o out/a.rrd --end 2026-01-23T10:43:30",
            "convert demo.rrd -o out/b.rrd --start 2026-01-23T10:43:42",
            "merge out/a.rrd out/b.rrd -o out/c.rrd",
        ],
        ["doctor out/c.rrd --executor inline"],
    ),
    "`catalog forget` left data in the lake": ([with_a_writer], ["catalog forget lake drives demo"]),
    "`compare` found a difference": ([], ["compare demo.rrd pq_base.parquet"]),
    "files of `ingest --once` went into quarantine": (
        [],
        ["ingest landing --into out/a --once --settle 0s --executor inline -q"],
    ),
    "`register` failed for a file": ([], ["register lake drives landing --on-duplicate skip"]),
    "`status` could not read something": ([overwritten("store/ingest/ingest.json")], ["status store"]),
    "an unknown option": ([], ["inspect demo.rrd --nothing"]),
    "an output that may not be replaced": (
        [lambda _: Path("thesis.rrd").write_text("years of work")],
        ["convert demo.mcap -o thesis.rrd", "query demo.rrd --index none -o pq_base.parquet"],
    ),
    "wrong arguments of `convert` that make all inputs fail": (
        [f"merge demo.rrd pq_base.parquet -o out/{name}.rrd" for name in "ab"],
        ["convert out/a.rrd out/b.rrd --to mcap -o out/mcaps"],
    ),
    "unfinished output is removed": ([pipeline_that_sends(signal.SIGINT)], [INTERRUPTED]),
    "the same": ([pipeline_that_sends(signal.SIGTERM)], [INTERRUPTED]),
}


def examples_of_exit_codes() -> dict[int, list[str]]:
    """The page's table: the examples of each code."""
    page = (REPOSITORY / "docs" / "command_line.md").read_text()
    section = page.split("## Exit codes")[1].split("\n## ")[0]
    return {int(code): cell.split("; ") for code, cell in re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", section, re.M)}


def test_the_page_has_every_exit_code() -> None:
    """0, those of click, and each constant of a function that exits, or whose result a function exits with."""
    codes = {0, click.ClickException.exit_code, click.UsageError.exit_code}
    names = ["spark.gateway", "cli", *(f"cli.{module.name}" for module in pkgutil.iter_modules(cli.__path__))]
    modules = [importlib.import_module(f"chunkmill.engine.{name}") for name in names]
    exits = r"\b(?:Exit|SystemExit|exit|_exit)\("
    results = set(re.findall(exits + r"(?:min\()?(\w+)\(", "".join(map(inspect.getsource, modules))))
    assert "exit_code" in results
    for module in modules:
        for function in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(function, ast.FunctionDef):
                continue
            if re.search(exits, code := ast.unparse(function)) or function.name in results:
                values = {vars(module).get(node.id) for node in ast.walk(function) if isinstance(node, ast.Name)}
                codes |= {value for value in values if type(value) is int and 0 <= value < 256}
                codes |= {int(number) for number in re.findall(exits + r"(\d+)", code)}
    page = examples_of_exit_codes()
    assert codes == set(page)
    assert {code for code, _ in CALLS.values()} == {code for code in page if code < 128}
    assert {int(code) for code in re.findall(r"\b\d+\b", cli.__doc__ or "")} == set(page)
    assert sorted(itertools.chain.from_iterable(page.values())) == sorted(ENDS)


@pytest.mark.parametrize("example", ENDS)
def test_exit_codes_are_those_of_the_page(
    example: str, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = next(code for code, examples in examples_of_exit_codes().items() if example in examples)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gateway._State, "received_at", None)  # two signals at once are taken for one
    laid_out(recordings, tmp_path)
    before, calls = ENDS[example]
    for step in before:
        assert not isinstance(step, str) or run(*step.split()).exit_code == 0, step
        if not isinstance(step, str):
            step(monkeypatch)
    for call in calls:
        done = run(*call.split())
        assert done.exit_code == code, (call, done.output)
        assert code < 128 or list((tmp_path / "out").iterdir()) == []


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
@pytest.mark.heavy
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


@pytest.mark.heavy
def test_a_shown_query_leaves_out_what_is_about_channels(recordings: Path, tmp_path: Path) -> None:
    for name in ("demo.mcap", "demo.rrd", "store"):
        query = ("query", recordings / name, "--index", "message_log_time", "--limit", 2)
        shown = run(*query)
        assert "McapChannel" not in shown.stdout and "McapSchema" not in shown.stdout
        assert "48 columns about channels are left out; --columns selects columns" in shown.stderr, shown.stderr
        assert "McapChannel:id" in run(*query, "--columns", "/nissan/gps/duro/imu:McapChannel:id").stdout
        assert run(*query, "-o", tmp_path / f"{name}.parquet").exit_code == 0
        columns = pq.read_schema(tmp_path / f"{name}.parquet").names
        assert sum("McapChannel" in column or "McapSchema" in column for column in columns) == 48
    alone = ("--index", "none", "--contents", "/nissan/vehicle_speed")
    assert "McapChannel:id" in run("query", recordings / "demo.rrd", *alone).stdout, "there are no others"


def test_scratch_files_of_standard_streams_are_not_shown(recordings: Path, tmp_path: Path) -> None:
    options = ["--executor", "inline", "--report", "run.json", "--overwrite"]
    command = [sys.executable, "-m", "chunkmill", "convert", "-", "-o", "-", *options]
    for data, code in (((recordings / "demo.mcap").read_bytes(), 0), (b"\x89MCAP0\r\n" + bytes(50), 1)):
        done = subprocess.run(command, input=data, capture_output=True, check=False, cwd=tmp_path)
        assert done.returncode == code
        assert b"chunkmill-streams" not in done.stderr
        assert done.stderr.startswith(
            b"- -> -: 3,5" if code == 0 else b"chunkmill: error: CM101: -: the file does not end"
        )
    assert json.loads((tmp_path / "run.json").read_text())["destination"] == "-"
    command = [sys.executable, "-m", "chunkmill", "merge", "-", str(recordings / "demo.rrd"), "-o", "-"]
    done = subprocess.run([*command, "--executor", "inline"], input=b"no", capture_output=True, check=False)
    assert (done.returncode, b"chunkmill-streams" in done.stderr, b"-: " in done.stderr) == (1, False, True)
    for words in (
        ["verify", "-"],
        ["inspect", "-"],
        ["print", "-"],
        ["query", "-", "--index", "x"],
    ):
        assert "chunkmill-streams" not in run(*words, input=b"no recording").output, words
