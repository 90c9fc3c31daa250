"""chunkmill compact, from its arguments to its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.execution.lease import Lease
from chunkmill.engine.store import RecordingStore
from chunkmill.engine.stream import LazyChunkStream
from click.testing import CliRunner, Result


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(a) for a in arguments])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two recordings of twenty chunks each, ingested as they are, one by one."""
    (tmp_path / "landing").mkdir()
    for at in range(2):
        chunks = [
            Chunk.from_columns(
                "/signal", [TimeColumn("tick", sequence=[tick])], [ComponentColumn("value", [[at + tick / 7]])]
            )
            for tick in range(20)
        ]
        target = tmp_path / "landing" / f"{at}.rrd"
        LazyChunkStream.from_iter(chunks).write_rrd(
            target, application_id="tests", recording_id=f"r{at}", executor="inline"
        )
    options = ["--once", "--settle", "0s", "--executor", "inline", "--max-files", 1, "--optimize", "none"]
    done = run("ingest", tmp_path / "landing", "--into", tmp_path / "lake", *options)
    assert done.exit_code == 0
    return tmp_path / "lake"


def test_it_says_what_was_done(lake: Path) -> None:
    done = run("compact", lake, "--executor", "inline")
    assert done.exit_code == 0
    assert done.stdout.startswith("2 shards -> 1, 2 manifests -> 1, ")
    assert "2 recordings rewritten, 0 with a new layout" in done.stdout
    assert "nothing to do: 1 shard" in run("compact", lake).stdout
    done = run("compact", lake, "--optimize", "object-store", "--executor", "inline")
    assert "2 recordings rewritten, 2 with a new layout" in done.stdout
    assert [(e.chunks, e.rows) for e in RecordingStore.open(lake)] == [(1, 20), (1, 20)]


def test_sizes_of_shards_are_asked_for(lake: Path) -> None:
    assert run("compact", lake, "--min-shard", "1B").stdout.startswith("2 shards -> 2, 2 manifests -> 1")
    assert run("compact", lake, "--min-shard", "many").exit_code == 2
    assert run("compact", lake, "--executor", "inline", "--master", "local[1]").exit_code == 2


def test_what_cannot_be_compacted(lake: Path, tmp_path: Path) -> None:
    assert "neither a store" in run("compact", tmp_path / "landing").stderr
    assert not (tmp_path / "landing" / "versions").exists()
    with Lease.take(lake, "ingest"):
        refused = run("compact", lake)
    assert (refused.exit_code, "ingest" in refused.stderr) == (1, True)
