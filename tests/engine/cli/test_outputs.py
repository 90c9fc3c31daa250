"""The one rule of outputs, over every command and option that names what is written."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from chunkmill.engine import CatalogClient, Chunk, LazyChunkStream
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.cli.outputs import DASH, RECORDINGS, OutputOption, WritingCommand, outputs_of
from chunkmill.engine.cli.standard_streams import as_known, name_place
from click.testing import CliRunner, Result

CALLS = {
    # the command and the option: a call that is right, to which the option is added
    "convert -o": "convert a.rrd",
    "convert --report": "convert a.rrd -o out.rrd",
    "check --svg": "check pipe.py",
    "doctor --html": "doctor a.rrd",
    "find -o": "find lake drives /speed:value>1 --index frame",
    "merge -o": "merge a.rrd",
    "export -o": "export store",
    "query -o": "query a.rrd --index frame",
    "query --report": "query a.rrd --index frame",
    "sql -o": 'sql lake select*from"__entries"',
    "export-lerobot -o": "export-lerobot spec.yaml a.rrd",
    "export-lerobot --report": "export-lerobot spec.yaml a.rrd -o out",
}
MISSING = {
    # what a call names, and something in its place that is not there
    "a.rrd": "none.rrd",
    "pipe.py": "none.py",
    "__entries": "nope",
    "export store": "export none",
    "lake drives": "lake none",
}
KEEPS = b"years of work"


def run(call: str, *arguments: object) -> Result:
    return CliRunner().invoke(commands, [*call.split(), *map(str, arguments)], input=b"")


def leaves(group: click.Group = commands, path: tuple[str, ...] = ()) -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found += leaves(command, (*path, name))
        else:
            found.append((" ".join((*path, name)), command))
    return found


WRITERS = {f"{name} {option.opts[0]}": option for name, command in leaves() for option in outputs_of(command)}


FILES = [name for name in CALLS if WRITERS[name].writes]
FOLDERS = [name for name in CALLS if not WRITERS[name].writes]


def suffix_of(writer: str) -> str:
    return next(iter(WRITERS[writer].writes), "")


def names_an_output(option: click.Parameter) -> bool:
    """Whether an option says that a command writes a file, by its name or the word in its help."""
    if getattr(option, "is_flag", False):
        return False
    words = {*option.opts, getattr(option, "metavar", None) or ""}
    text = (getattr(option, "help", None) or "").split(" ")[0]
    return bool(words & {"-o", "--output", "--out", "OUT"}) or text in ("Write", "Save", "Draw")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an RRD, a store and a catalog, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")
    import pyarrow as pa

    lines = {"frame": pa.array([1, 2]), "time": pa.array([0, 10**9]).cast(pa.timestamp("ns"))}
    chunk = Chunk.build("/speed", lines, [(ComponentDescriptor("value"), pa.array([[1], [2]]))])
    LazyChunkStream.from_iter([chunk]).write_rrd(tmp_path / "a.rrd", application_id="t", recording_id="a")
    LazyChunkStream.from_iter([chunk]).collect(into=tmp_path / "store", recording_id="a", application_id="t")
    CatalogClient(tmp_path / "lake").create_dataset("drives").register([str(tmp_path / "a.rrd")], copy=True).wait()
    (tmp_path / "pipe.py").write_text("def pipeline(stream):\n    return stream\n")
    (tmp_path / "spec.yaml").write_text('{"fps": 10, "features": {"action": {"entity": "/speed"}}}')
    return tmp_path


def test_every_output_of_every_command_is_in_the_table() -> None:
    assert sorted(WRITERS) == sorted(CALLS)
    for name, command in leaves():
        named = [option for option in command.params if names_an_output(option)]
        assert all(isinstance(option, OutputOption) for option in named), name
        assert isinstance(command, WritingCommand) or not outputs_of(command), name


@pytest.mark.parametrize("writer", FILES)
@pytest.mark.parametrize("there", ["a file", "an empty file", "a link", "a link to nothing"])
def test_a_file_is_replaced_only_with_overwrite(writer: str, there: str, folder: Path) -> None:
    option = WRITERS[writer]
    out, kept = folder / f"thesis{option.writes[0]}", folder / "kept"
    kept.write_bytes(KEEPS if there != "an empty file" else b"")
    if there == "a link":
        out.symlink_to(kept)
    elif there == "a link to nothing":
        out.symlink_to(folder / "nothing")
    else:
        out.write_bytes(kept.read_bytes())
    done = run(CALLS[writer], option.opts[0], out)
    assert (done.exit_code, "Replace it with --overwrite" in " ".join(done.stderr.split())) == (2, True), done.output
    assert out.is_symlink() == (there not in ("a file", "an empty file"))
    assert out.is_symlink() or out.read_bytes() == kept.read_bytes()
    done = run(CALLS[writer], option.opts[0], out, "--overwrite")
    assert done.exit_code == 0, done.output
    assert out.read_bytes() not in (KEEPS, b"")


@pytest.mark.parametrize("writer", FILES)
def test_an_rrd_is_replaced(writer: str, folder: Path) -> None:
    option = WRITERS[writer]
    out = folder / f"old{option.writes[0]}"
    out.write_bytes((folder / "a.rrd").read_bytes())
    assert run(CALLS[writer], option.opts[0], out).exit_code == 0


@pytest.mark.parametrize("writer", FILES)
@pytest.mark.parametrize("suffix", [".docx", ".csv", ".mkv"])
def test_a_suffix_without_a_writer_is_refused_with_those_that_there_are(writer: str, suffix: str, folder: Path) -> None:
    option = WRITERS[writer]
    (folder / f"thesis{suffix}").write_bytes(KEEPS)
    for name in (f"thesis{suffix}", f"other{suffix}"):
        for overwrite in ([], ["--overwrite"]):
            done = run(CALLS[writer], option.opts[0], name, *overwrite)
            assert (done.exit_code, f"there is no writer for files {suffix}" in done.stderr) == (2, True), done.output
            assert all(known in done.stderr for known in option.writes)
    assert (folder / f"thesis{suffix}").read_bytes() == KEEPS
    assert not (folder / f"other{suffix}").exists()


@pytest.mark.parametrize("writer", CALLS)
def test_missing_folders_are_made_and_taken_back_after_an_error(writer: str, folder: Path) -> None:
    option = WRITERS[writer]
    out = folder / "new" / "er" / f"out{suffix_of(writer)}"
    assert run(CALLS[writer], option.opts[0], out).exit_code == 0
    assert out.exists()
    before = sorted(folder.rglob("*"))
    gone = CALLS[writer]
    for there, missing in MISSING.items():
        gone = gone.replace(there, missing)
    done = run(gone, option.opts[0], folder / "not" / f"out{suffix_of(writer)}")
    assert done.exit_code in (1, 2), done.output
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("writer", FILES)
def test_pipes_and_devices_are_never_replaced(writer: str, folder: Path) -> None:
    option = WRITERS[writer]
    pipe = folder / f"pipe{option.writes[0]}"
    os.mkfifo(pipe)
    for overwrite in ([], ["--overwrite"]):
        done = run(CALLS[writer], option.opts[0], pipe, *overwrite)
        assert (done.exit_code, "a device or a pipe" in done.stderr) == (2, True), done.output
    assert pipe.is_fifo()


@pytest.mark.parametrize("writer", FOLDERS)
def test_a_folder_takes_the_place_of_nothing(writer: str, folder: Path) -> None:
    (folder / "thesis").write_bytes(KEEPS)
    (folder / "link").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe")
    before = sorted(folder.rglob("*"))
    for name, said in (
        ("thesis", "is not a folder"),
        ("link", "is not a folder"),
        ("pipe", "is not a folder"),
        ("store", "is there already"),
        ("s3://bucket/set", "local folder only"),
    ):
        done = run(CALLS[writer], WRITERS[writer].opts[0], name)
        assert (done.exit_code in (1, 2), said in " ".join(done.stderr.split())) == (True, True), done.output
    assert (folder / "thesis").read_bytes() == KEEPS
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("writer", [name for name, option in WRITERS.items() if not option.piped])
def test_what_cannot_be_piped_is_refused(writer: str, folder: Path) -> None:
    done = run(CALLS[writer], WRITERS[writer].opts[0], DASH)
    assert (done.exit_code, "does not write to standard output" in done.stderr) == (2, True), done.output
    assert not (folder / DASH).exists()


@pytest.mark.parametrize("writer", CALLS)
def test_a_name_that_is_no_text_is_refused(writer: str, folder: Path) -> None:
    done = run(CALLS[writer], WRITERS[writer].opts[0], os.fsdecode(b"\xff.rrd"))
    assert (done.exit_code, "is not UTF-8" in done.stderr) == (2, True), done.output


def test_files_in_a_folder_follow_the_rule_before_any_is_written(folder: Path) -> None:
    for name in ("b", "c"):
        (folder / f"{name}.rrd").write_bytes((folder / "a.rrd").read_bytes())
    (folder / "out").mkdir()
    (folder / "out" / "b.rrd").write_bytes(KEEPS)
    done = run("convert a.rrd b.rrd c.rrd -o out")
    assert (done.exit_code, "out/b.rrd: this file exists" in done.stderr) == (2, True), done.output
    assert [path.name for path in (folder / "out").iterdir()] == ["b.rrd"]
    assert (folder / "out" / "b.rrd").read_bytes() == KEEPS
    assert run("convert a.rrd b.rrd c.rrd -o out --overwrite").exit_code == 0
    assert run("convert a.rrd b.rrd c.rrd -o out").exit_code == 0  # they are RRDs now


def test_an_input_is_not_replaced_with_overwrite_either(folder: Path) -> None:
    assert run("query a.rrd --index frame -o rows.parquet").exit_code == 0
    (folder / "link.parquet").symlink_to("rows.parquet")
    for call in (
        "query rows.parquet --index none -o rows.parquet --overwrite",
        "query rows.parquet --index none -o link.parquet --overwrite",
        "convert a.rrd -o a.rrd --overwrite",
        "merge a.rrd -o a.rrd --overwrite",
    ):
        done = run(call)
        assert (done.exit_code, "is an input and would be overwritten" in done.stderr) == (2, True), done.output


def test_names_that_a_user_knows() -> None:
    name_place("/lake/datasets/187A", "lake --dataset drives")
    text = "/lake/datasets/187A: torn. See /lake/datasets/187A/versions and /lake/datasets/187AB."
    assert as_known(text) == text.replace("/lake/datasets/187A:", "lake --dataset drives:")


def test_recordings_need_no_suffix(folder: Path) -> None:
    assert run("convert a.rrd -o plain").exit_code == 0
    assert run("convert a.rrd -o plain").exit_code == 0
    assert (folder / "plain").read_bytes().startswith(b"RRF")
    assert RECORDINGS == (".rrd", ".rbl", ".mcap")
