"""chunkmill quarantine list, retry and drop: what they show, what they leave, what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ReadError
from chunkmill.engine.ingest import FileResult, LandedFile, Outcome
from chunkmill.engine.ingest.quarantine import FileQuarantine
from click import unstyle
from click.testing import CliRunner, Result


def failed(path: object, message: str, offset: int | None = None) -> FileResult:
    error = ReadError(message, path=str(path), offset=offset, hint="Land it again.")
    return FileResult(LandedFile(str(path), 10, 5), Outcome.QUARANTINED, error=error.to_dict())


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, ["quarantine", *(str(a) for a in arguments)])


def listed(store: Path) -> dict[str, int]:
    rows = [json.loads(line) for line in run("list", store, "--json").stdout.splitlines()]
    return {row["path"]: row["tries"] for row in rows}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with three files in quarantine, one of which failed twice."""
    path = tmp_path / "lake"
    (path / "versions").mkdir(parents=True)
    quarantine = FileQuarantine(path)
    quarantine.note("q", 1, [failed("/landing/a.mcap", "the magic\n\x1b[31mis [bold]missing", 1_024)])
    quarantine.note(
        "q", 2, [failed(tmp_path / "landing" / "b.rrd", "it ends in the middle " * 20), failed("s3://l/c", "")]
    )
    quarantine.note("q", 3, [failed("/landing/a.mcap", "the magic\n\x1b[31mis [bold]missing", 1_024)])
    return path


def test_the_table_shows_what_failed_and_where(store: Path) -> None:
    result = run("list", store)
    assert result.exit_code == 0, result.output
    heading, *lines = result.stdout.splitlines()
    assert re.split(r"\s{2,}", heading) == ["file", "error", "message", "at byte", "tries", "first seen"]
    assert len(lines) == 4, "a line for each file, whatever its length, and one on all"
    line = next(line for line in lines if "/landing/a.mcap" in line)
    cells = re.split(r"\s{2,}", line)
    assert cells[:5] == ["/landing/a.mcap", "read", "the magic [31mis [bold]missing", "1,024", "2"]
    assert cells[5].startswith("20")
    assert not set(result.stdout) & {"\x1b", "│", "┃", "━"}
    assert result.stdout.splitlines()[-1].startswith("3 files in quarantine")


def test_messages_are_shortened_to_the_terminal(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "140")
    shown = run("list", store, "s3://l/c", "/landing/a.mcap", store.parent / "landing" / "b.rrd").stdout
    lines = unstyle(shown).splitlines()
    assert max(map(len, lines)) <= 140
    assert sum("it ends in the mid" in line for line in lines) == 1
    assert sum("…" in line for line in lines) == 1
    assert any("the magic [31mis [bold]missing" in line for line in lines)


def test_json_holds_everything(store: Path) -> None:
    rows = [json.loads(line) for line in run("list", store, "--json").stdout.splitlines()]
    assert [row["path"] for row in rows] == ["/landing/a.mcap", str(store.parent / "landing" / "b.rrd"), "s3://l/c"]
    first = rows[0]
    assert (first["code"], first["message"]) == ("chunkmill.read", "the magic\n\x1b[31mis [bold]missing")
    assert (first["offset"], first["hint"], first["tries"]) == (1_024, "Land it again.", 2)
    assert (first["batch"], first["query_id"], first["size"], first["modified_ns"]) == (3, "q", 10, 5)
    assert first["first_seen"] < first["last_seen"] and first["first_seen"].endswith("+00:00")


def test_a_retry_is_left_for_the_ingestion(store: Path) -> None:
    result = run("retry", store, "/landing/a.mcap", "s3://l/c")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("2 files will be retried")
    assert list(FileQuarantine(store).pending_retries().values()) == [["/landing/a.mcap", "s3://l/c"]]
    assert len(listed(store)) == 3


def test_all_can_be_tried_again(store: Path) -> None:
    assert len(run("retry", store, "--all", "--json").stdout.splitlines()) == 3
    assert [len(paths) for paths in FileQuarantine(store).pending_retries().values()] == [3]


def test_dropped_files_are_forgotten(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store.parent)
    result = run("drop", "lake", "landing/../landing/b.rrd")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("1 file dropped from quarantine. The files are not deleted")
    assert list(listed(store)) == ["/landing/a.mcap", "s3://l/c"]
    assert run("drop", store, "--all").stdout.startswith("2 files dropped")
    assert run("list", store).stdout == "No files in quarantine.\n"
    assert run("drop", store, "--all").stdout == "No files in quarantine.\n"


@pytest.mark.parametrize("command", ["retry", "drop"])
@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (["/landing/a.mcap", "/landing/x.mcap"], "/landing/x.mcap is not in quarantine"),
        ([], "no file is given"),
        (["/landing/a.mcap", "--all"], "paths and --all exclude each other"),
    ],
)
def test_a_wrong_choice_is_refused_and_nothing_done(store: Path, command: str, chosen: list[str], said: str) -> None:
    before = listed(store)
    result = run(command, store, *chosen)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert said in result.stderr
    assert listed(store) == before
    assert FileQuarantine(store).pending_retries() == {}


def test_a_folder_of_rrds_has_its_quarantine_within(tmp_path: Path) -> None:
    home = tmp_path / "rrds" / ".chunkmill"
    (home / "versions").mkdir(parents=True)
    assert run("list", tmp_path / "rrds").stdout == "No files in quarantine.\n"
    FileQuarantine(home).note("q", 0, [failed("/l/a", "bad")])
    assert listed(tmp_path / "rrds") == listed(home) == {"/l/a": 1}


def test_a_first_batch_of_failures_only_can_be_seen(tmp_path: Path) -> None:
    FileQuarantine(tmp_path).note("q", 0, [failed("/l/a", "bad")])
    assert listed(tmp_path) == {"/l/a": 1}


@pytest.mark.parametrize("command", [["list"], ["retry", "--all"], ["drop", "--all"]])
def test_a_folder_without_an_ingestion_is_refused(tmp_path: Path, command: list[str]) -> None:
    result = run(command[0], tmp_path, *command[1:])
    assert result.exit_code == 1
    assert f"{tmp_path}: there is neither a store of recordings nor a folder of ingested RRDs" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_table_is_one_paragraph(store: Path) -> None:
    for path in (store / "quarantine" / "table.lance" / "_versions").glob("*.manifest"):
        path.write_bytes(b"cut")
    result = run("list", store)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
    assert "the quarantine table cannot be read" in result.stderr
