"""chunkmill status: for people, for programs, once and over and over."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from chunkmill.engine.cli import ingest
from chunkmill.engine.cli.commands import status
from chunkmill.engine.execution.lease import Lease
from chunkmill.engine.ingest import Ingest
from click.testing import CliRunner, Result


def run(*arguments: object) -> Result:
    return CliRunner().invoke(status, [str(a) for a in arguments])


def facts(result: Result) -> dict[str, str]:
    assert result.exit_code == 0, result.output
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in result.stdout.splitlines())


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    folder = tmp_path_factory.mktemp("ingested")
    (folder / "landing").mkdir()
    shutil.copy(data / "demo.mcap", folder / "landing" / "a.mcap")
    (folder / "landing" / "bad.mcap").write_bytes(b"no recording")
    query = Ingest(folder / "landing", into=folder / "lake", executor="inline", settle=0).start(once=True)
    query.await_termination(60)
    return folder


@pytest.fixture
def lake(ingested: Path, tmp_path: Path) -> Path:
    shutil.copytree(ingested / "lake", tmp_path / "lake")
    return tmp_path / "lake"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Ctrl-C at the second pause of --watch; at the first one, something happens."""

    def between(act: Callable[[], None]) -> None:
        acts = iter([act])

        def pause() -> None:
            try:
                next(acts)()
            except StopIteration:
                raise KeyboardInterrupt from None

        monkeypatch.setattr(ingest, "_pause", pause)

    return between


def test_people_are_told_what_was_done_what_waits_and_who_writes(ingested: Path) -> None:
    lake, late = ingested / "lake", ingested / "landing" / "late.mcap"
    late.write_bytes(b"12345")
    try:
        told = facts(run(lake))
    finally:
        late.unlink()
    assert told["store"] == f"{lake}, version 1"
    assert told["source"] == str(ingested / "landing")
    assert re.fullmatch(r"1; number 1, .* ago: 1 added, 1 quarantined, 782\.5 kB in .*", told["batches"])
    assert told["files"] == "1 added, 1 quarantined"
    assert told["holds"].startswith("1 recording, 16 chunks, 3,523 rows, ")
    assert told["waiting"].startswith("1 file, 5 B, the oldest for ")
    assert told["quarantine"] == f"1 file; see chunkmill quarantine list {lake}"
    assert told["writer"] == "nobody"


def test_the_writer_is_named(lake: Path) -> None:
    with Lease.take(lake) as lease:
        assert facts(run(lake))["writer"] == str(lease.holder)
        found = json.loads(run(lake, "--json").stdout)
    assert found["holder"].keys() == {"holder", "host", "user", "pid", "taken", "renewed", "ttl"}


def test_programs_get_json_with_times_in_utc(lake: Path) -> None:
    result = run(lake, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["batches"], found["recordings"], found["quarantined"]) == (1, 1, 1)
    assert found["files"] == {"added": 1, "quarantined": 1}
    assert found["lag"] == {"waiting": 0, "waiting_bytes": 0, "oldest_seconds": 0.0, "running": 0}
    assert [rate["files"] for rate in found["rates"]] == [2, 2]
    for text in (found["at"], found["last"]["committed"]):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)


def test_where_nothing_was_ingested_there_is_an_error(tmp_path: Path) -> None:
    result = run(tmp_path / "none")
    assert result.exit_code == 1
    assert "neither a store of recordings" in result.stderr
    assert not result.stdout


def test_what_cannot_be_read_is_told_beside_the_rest(lake: Path) -> None:
    (lake / "ingest" / "ingest.json").write_bytes(b"{")
    result = run(lake)
    assert result.exit_code == 1
    assert "1 recording, 16 chunks" in result.stdout
    assert "warning: " in result.stderr and "is damaged" in result.stderr


def test_a_checkpoint_elsewhere_is_named(lake: Path, tmp_path: Path) -> None:
    (lake / "ingest").rename(tmp_path / "elsewhere")
    assert "--checkpoint" in facts(run(lake))["source"]
    assert facts(run(lake, "--checkpoint", tmp_path / "elsewhere"))["source"].endswith("/landing")


def test_without_a_terminal_watch_prints_a_line_each_time(
    lake: Path, looks: Callable[[Callable[[], None]], None]
) -> None:
    with Lease.take(lake) as lease:
        looks(lease.release)
        result = run(lake, "--watch")
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert re.match(r"\S+Z batch 1, .* ago, 2 files, 1 recording, 0 waiting for 0\.00 s, ", first)
    assert "1 in quarantine" in first
    assert first.endswith(", ingest runs") and second.endswith(", no process is writing")


def test_watch_prints_json_by_the_line(lake: Path, looks: Callable[[Callable[[], None]], None]) -> None:
    looks(lambda: None)
    result = run(lake, "--watch", "--json")
    assert result.exit_code == 0
    assert [json.loads(line)["version"] for line in result.stdout.splitlines()] == [1, 1]


def test_watch_goes_on_when_the_store_cannot_be_read(lake: Path, looks: Callable[[Callable[[], None]], None]) -> None:
    looks(lambda: (lake / "versions").rename(lake / "away") and None)
    result = run(lake, "--watch")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1
    assert "this folder contains no store" in result.stderr


def test_on_a_terminal_watch_draws_in_place_until_ctrl_c(lake: Path) -> None:
    code = (
        "import sys; from chunkmill.engine.cli import ingest; ingest.PERIOD = 0.05;"
        "from chunkmill.engine.cli.commands import status; status(sys.argv[1:])"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(lake), "--watch"], stdout=theirs, stderr=subprocess.STDOUT, env=environment
    )
    os.close(theirs)
    drawn, until = b"", time.monotonic() + 60
    while drawn.count(b"quarantine list") < 3 and time.monotonic() < until:
        drawn += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    try:
        while more := os.read(ours, 65536):
            drawn += more
    except OSError:
        pass  # how a terminal ends
    assert process.wait(30) == 0
    os.close(ours)
    assert b"\x1b[1A" in drawn, "it goes up to draw over what was there"
    assert b"Traceback" not in drawn
