"""chunkmill catalog and tables: versions, tag, restore and diff."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from chunk_making import made
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.cli.commands import commands
from click.testing import CliRunner, Result


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A dataset of two versions, and a table of two."""
    client = CatalogClient(tmp_path / "lake")
    dataset = client.create_dataset("drives")
    for name in ("one", "two"):
        path = tmp_path / f"{name}.rrd"
        LazyChunkStream.from_iter([made(range(3))]).write_rrd(path, application_id="tests", recording_id=name)
        dataset.register(str(path)).wait()
    client.create_table("labels", pa.schema([("x", pa.int64())])).append(x=[1, 2])
    return tmp_path / "lake"


def test_versions_are_listed(lake: Path) -> None:
    done = run("catalog", "versions", lake, "drives", "--json")
    assert done.exit_code == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["version"], row["operation"], row["segments"]) for row in rows] == [
        (1, "register", 1),
        (2, "register", 2),
    ]
    assert rows[0]["made_at"].endswith("Z") and "2 rows" in run("catalog", "versions", lake, "labels").stdout
    entries = run("catalog", "versions", lake).stdout
    assert "drives" in entries and "labels" in entries and "create" in entries
    assert "append" in run("tables", "versions", "labels", "--catalog", lake).stdout


@pytest.mark.parametrize(
    "where", [("catalog", ("{lake}", "drives"), ()), ("tables", ("labels",), ("--catalog", "{lake}"))]
)
def test_a_version_is_tagged_compared_and_restored(
    lake: Path, where: tuple[str, tuple[str, ...], tuple[str, ...]]
) -> None:
    group, before, after = where

    def call(command: str, *arguments: str) -> Result:
        words = [word.format(lake=lake) for word in (*before, *arguments, *after)]
        return run(group, command, *words)

    name = before[-1]
    assert call("tag", "v1", "1").stdout == f"{name}: tag 'v1' names version 1\n"
    refused = call("tag", "v1", "2")
    assert refused.exit_code != 0 and "--move" in refused.stderr
    assert call("tag", "v1", "2", "--move").exit_code == 0 and call("tag", "v1", "1", "--move").exit_code == 0
    assert "added" in call("diff", "v1").stdout and call("diff", "2", "2").stdout == "0 rows\n"
    kinds = {"catalog": "change", "tables": "_change"}
    assert {json.loads(line)[kinds[group]] for line in call("diff", "v1", "--json").stdout.splitlines()} == {"added"}
    assert "the newest, has the content of v1" in call("restore", "v1").stdout
    assert call("tag", "v1", "--remove").stdout == f"{name}: tag 'v1' is removed\n"
    for arguments in (("tag", "v1", "--remove"), ("restore", "99"), ("restore", "v1"), ("diff", "nothing")):
        failed = call(*arguments)
        assert failed.exit_code != 0 and "chunkmill: error" in failed.stderr, arguments
    both = call("tag", "v1", "1", "--remove")
    assert both.exit_code == 2 and "--remove takes only a tag" in both.stderr
