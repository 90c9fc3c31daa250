"""Forgetting and copying in object stores: nothing is left in the bucket, and a copy is whole wherever it was cut."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from chunkmill import CatalogClient
from chunkmill.engine import faults
from chunkmill.engine.catalog import DatasetEntry
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.locations import located
from click.testing import CliRunner, Result
from planted_values import GOING, MARKS, STAYING, lake_of, traces, with_tables


@pytest.fixture
def dataset(bucket: str, tmp_path: Path) -> DatasetEntry:
    """A dataset of a lake in a bucket, with tables in it."""
    made = lake_of(f"{bucket}/lake", tmp_path)
    made.make_asset_dataset().register(str(tmp_path / "mesh.rrd"), copy=True).wait()
    with_tables(made, f"{bucket}/lake/views")
    return made


def run(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


def test_nothing_of_a_segment_is_left_in_a_bucket(dataset: DatasetEntry, bucket: str) -> None:
    lake = located(f"{bucket}/lake")
    assert {mark for marks in traces(lake).values() for mark in marks} == set(MARKS)
    report = dataset.forget(GOING)
    assert traces(lake) == {} and report.is_complete and dataset.segment_ids() == list(STAYING)
    assert any("old versions of objects" in item.reason for item in report.remaining)
    assert dataset.reader("frame").count() == 3 * 6 and CatalogClient(f"{bucket}/lake").check() == []
    assert dataset.forget(GOING).removed == ()


@pytest.mark.parametrize("point", ["forget.run", "forget.table"])
def test_forgetting_in_a_bucket_goes_on_where_it_was_cut(
    dataset: DatasetEntry, bucket: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(faults.PLAN, f"{point}:exception:1")
        faults._here.clear()
        with pytest.raises(RuntimeError, match=point):
            dataset.forget(GOING)
    assert dataset.forget(GOING).is_complete and traces(located(f"{bucket}/lake")) == {}
    assert dataset.reader("frame").count() == 3 * 6


def test_copies_from_folder_to_bucket_to_bucket_to_folder(dataset: DatasetEntry, bucket: str, tmp_path: Path) -> None:
    dataset.tag("release")
    places = [f"{bucket}/lake", tmp_path / "folder", f"{bucket}/backup", f"{bucket}/again"]
    for source, target in pairwise(places):
        copied = run("catalog", "copy", source, target, "--json")
        assert copied.exit_code == 0, copied.output
        report = json.loads(copied.output.splitlines()[-1] if copied.output.startswith("{") else copied.output)
        assert report["copied"] > 20 and report["references"] == []
    rows = [CatalogClient(str(place)).get_dataset("drives").reader("frame").count() for place in places]
    assert rows == [4 * 6 + 3] * 4
    assert all(CatalogClient(str(place)).get_dataset("drives").tags() == dataset.tags() for place in places)
    again = run("catalog", "copy", places[0], places[1])
    assert again.exit_code == 0 and "0 files copied" in again.output


@pytest.mark.parametrize("point", ["copy.file:20", "copy.entries:1"])
def test_a_copy_to_a_bucket_goes_on_where_it_was_cut(
    dataset: DatasetEntry, bucket: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = CatalogClient(f"{bucket}/lake")
    name, _, nth = point.partition(":")
    with monkeypatch.context() as patch:
        patch.setenv(faults.PLAN, f"{name}:exception:{nth}")
        faults._here.clear()
        with pytest.raises(RuntimeError, match=name):
            client.copy_to(f"{bucket}/copy")
    client.copy_to(f"{bucket}/copy")
    copy = CatalogClient(f"{bucket}/copy")
    assert copy.check() == [] and copy.entry_names() == client.entry_names()
    rows = [some.get_dataset("drives").reader("frame").sort("rerun_segment_id", "frame") for some in (client, copy)]
    assert rows[0].to_arrow_table() == rows[1].to_arrow_table()
