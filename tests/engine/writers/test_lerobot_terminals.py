"""``write_lerobot`` of streams, stores, and datasets of a lake: what a later run adds, replaces and takes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill import (
    CatalogClient,
    Chunk,
    ChunkStore,
    LazyChunkStream,
    RecordingStore,
    UsageError,
    write_lerobot,
)
from chunkmill.engine.catalog import DatasetEntry
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.writers import ExportReport
from chunkmill.readers import RrdReader
from click.testing import CliRunner

SPEC = {"fps": 10, "features": {"action": {"entity": "/arm"}}}


def recording(seconds: float, value: float = 1.0) -> LazyChunkStream:
    """A number at 10 Hz, and another entity with one."""
    ticks = (np.arange(round(seconds * 10) + 1) * 100_000_000).astype("datetime64[ns]")
    values = pa.array([[value]] * len(ticks), pa.list_(pa.float64()))
    chunks = [Chunk.build(p, {"time": pa.array(ticks)}, [(ComponentDescriptor("v"), values)]) for p in ("/arm", "/leg")]
    return LazyChunkStream.from_iter(chunks)


def register(dataset: DatasetEntry, folder: Path, **recordings: LazyChunkStream) -> None:
    """Add recordings to a dataset, or replace those of their ids."""
    folder.mkdir(exist_ok=True)
    for name, stream in recordings.items():
        path = folder / f"{name}-{len(list(folder.iterdir()))}.rrd"
        stream.write_rrd(path, application_id="t", recording_id=name, executor="inline")
        dataset.register(path.as_uri()).wait()


def lengths(root: Path) -> dict[str, int]:
    """The lengths of the episodes by their recordings, as the account and the rows have them."""
    accounts = json.loads((root / "meta/chunkmill.json").read_text())["episodes"]
    rows = pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    written = [each for each in accounts if each["reason"] is None]
    assert [each["written"] for each in written] == [row["length"] for row in rows]
    total = sum(pq.read_metadata(file).num_rows for file in root.glob("data/*/*.parquet"))
    assert total == sum(row["length"] for row in rows)
    return {each["recording"]: each["written"] for each in written}


def state(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in [root, *root.rglob("*")]}


def figures(report: ExportReport) -> tuple[int, int, tuple[str, ...], tuple[str, ...]]:
    return report.episodes, len(report.accounts), report.skipped, report.removed


def test_streams_and_stores_of_one_recording(tmp_path: Path) -> None:
    where = tmp_path / "set"
    assert recording(1).write_lerobot(where, SPEC, recording_id="a", executor="inline").frames == 11
    stored = ChunkStore.from_chunks(recording(2).to_chunks(executor="inline"))
    stored.write_lerobot(where, SPEC, recording_id="b", append=True)
    assert lengths(where) == {"a": 11, "b": 21}
    assert recording(3).write_lerobot(where, SPEC, recording_id="a", append=True, executor="inline").frames == 52


def test_a_store_of_recordings(tmp_path: Path) -> None:
    recording(1).collect(into=tmp_path / "store", recording_id="a", application_id="t", executor="inline")
    store = RecordingStore.open(tmp_path / "store")
    assert figures(store.write_lerobot(tmp_path / "set", SPEC, executor="inline")) == (1, 1, (), ())
    again = RecordingStore.open(tmp_path / "store").write_lerobot(tmp_path / "set", SPEC, append=True)
    assert figures(again) == (1, 0, ("a",), ())


def test_every_night(tmp_path: Path) -> None:
    """What is new in a dataset is added, what was replaced or deleted is replaced or taken out, and nothing else."""
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    files, where = tmp_path / "files", tmp_path / "set"

    def run(given: Any = dataset) -> tuple[int, int, tuple[str, ...], tuple[str, ...]]:
        return figures(given.write_lerobot(where, SPEC, append=True, executor="inline"))

    register(dataset, files, a=recording(1), b=recording(2))
    assert run() == (2, 2, (), ())
    before = state(where)
    assert run() == (2, 0, ("a", "b"), ())
    assert state(where) == before
    register(dataset, files, c=recording(3))
    assert run() == (3, 1, ("a", "b"), ())
    register(dataset, files, b=recording(4))
    assert run() == (3, 1, ("a", "c"), ())
    assert lengths(where) == {"a": 11, "c": 31, "b": 41}
    dataset.unregister(segments_to_drop=["a"], layers_to_drop=None)
    assert run(dataset.filter_segments(["c"])) == (2, 0, ("c",), ("a",)), "b is in the lake, if not in this view"
    assert lengths(where) == {"c": 31, "b": 41}
    before = state(where)
    assert run() == (2, 0, ("b", "c"), ())
    assert state(where) == before
    dataset.unregister(segments_to_drop=["b", "c"], layers_to_drop=None)
    with pytest.raises(UsageError, match="there is no episode to write: no recording is left"):
        run()
    assert state(where) == before


def test_compaction_changes_no_recording(tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    for name in ("a", "b"):
        recording(1).write_rrd(tmp_path / f"{name}.rrd", application_id="t", recording_id=name, executor="inline")
        dataset.register((tmp_path / f"{name}.rrd").as_uri(), copy=True).wait()
    assert write_lerobot(dataset, tmp_path / "set", SPEC, executor="inline").episodes == 2
    assert RecordingStore.open(dataset).compact(executor="inline").versions
    report = write_lerobot(dataset, tmp_path / "set", SPEC, append=True, executor="inline")
    assert figures(report) == (2, 0, ("a", "b"), ())


def test_a_view_has_its_segments_and_entities_alone(tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    register(dataset, tmp_path / "files", a=recording(1), b=recording(2))
    view = dataset.filter_segments(["b"])
    view.filter_contents("/arm").write_lerobot(tmp_path / "set", SPEC, executor="inline")
    assert lengths(tmp_path / "set") == {"b": 21}
    with pytest.raises(UsageError, match="there is no data at /arm"):
        view.filter_contents("/leg").write_lerobot(tmp_path / "other", SPEC, executor="inline")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", ["file", "store", "dataset"])
def test_a_wrong_entity_is_answered_with_those_of_the_recording(kind: str, tmp_path: Path) -> None:
    spec = {"fps": 10, "features": {"action": {"entity": "/leg"}, "observation.state": {"entity": "/arms"}}}
    given: Any
    if kind == "file":
        recording(1).write_rrd(tmp_path / "a.rrd", application_id="t", recording_id="a", executor="inline")
        given = {"a": RrdReader(tmp_path / "a.rrd").stream()}
    elif kind == "store":
        recording(1).collect(into=tmp_path / "store", recording_id="a", application_id="t", executor="inline")
        given = RecordingStore.open(tmp_path / "store")
    else:
        given = CatalogClient(tmp_path / "lake").create_dataset("drives")
        register(given, tmp_path / "files", a=recording(1))
    with pytest.raises(UsageError, match=r"there is no data at /arms\. Did you mean /arm\?"):
        write_lerobot(given, tmp_path / "set", spec, executor="inline")


def test_a_recording_without_an_episode_is_done_once(tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    register(dataset, tmp_path / "files", a=recording(1), b=recording(2))
    spec = {**SPEC, "episodes": {"by": "ranges", "ranges": [[1.5, 2]]}}
    for accounts in (1, 0):
        report = write_lerobot(dataset, tmp_path / "set", spec, append=True, executor="inline")
        assert (report.episodes, len([a for a in report.accounts if a.reason is None])) == (1, accounts)
    assert report.skipped == ("a", "b")


def test_other_labels_export_a_recording_again(tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    register(dataset, tmp_path / "files", a=recording(1), b=recording(2))
    table = tmp_path / "labels.csv"
    spec = {**SPEC, "episodes": {"by": "labels", "table": str(table), "keep": ["good"]}}
    head = "recording,start,end,verdict\n"
    for text, skipped, whole in (
        ("a,0,0.5,good\nb,0,1,good\n", (), {"a": 6, "b": 11}),
        ("a,0,0.5,good\nb,0,1,good\n", ("a", "b"), {"a": 6, "b": 11}),
        ("a,0,0.5,good\nb,0,0.2,good\n", ("a",), {"a": 6, "b": 3}),
        ("a,0,0.5,bad\nb,0,0.2,good\n", ("b",), {"b": 3}),
    ):
        table.write_text(head + text)
        assert dataset.write_lerobot(tmp_path / "set", spec, append=True, executor="inline").skipped == skipped
        assert lengths(tmp_path / "set") == whole


def test_several_at_once_and_what_cannot_be(tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    register(dataset, tmp_path / "files", a=recording(1))
    recording(2).collect(into=tmp_path / "store", recording_id="b", application_id="t", executor="inline")
    store = RecordingStore.open(tmp_path / "store")
    assert write_lerobot([dataset, store], tmp_path / "set", SPEC, executor="inline").episodes == 2
    with pytest.raises(UsageError, match="recordings have the same name: a"):
        write_lerobot([dataset, dataset], tmp_path / "other", SPEC, executor="inline")
    with pytest.raises(UsageError, match="a LazyChunkStream does not name its recordings"):
        write_lerobot(recording(1), tmp_path / "other", SPEC)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="on_error must be raise or skip"):
        write_lerobot(dataset, tmp_path / "other", SPEC, on_error="pass")


def test_a_recording_that_does_not_fit_is_skipped_with_its_reason(tmp_path: Path) -> None:
    ticks = {"time": pa.array([0, 10**9]).cast(pa.timestamp("ns"))}
    other = Chunk.build("/leg", ticks, [(ComponentDescriptor("v"), pa.array([[1.0], [2.0]]))])
    given = {"a": recording(1), "b": LazyChunkStream.from_iter([other])}
    report = write_lerobot(given, tmp_path / "set", SPEC, executor="inline", on_error="skip")
    assert [(a.recording, a.written) for a in report.accounts] == [("a", 11), ("b", 0)]
    assert "there is no data at /arm" in (report.accounts[1].reason or "")
    with pytest.raises(UsageError, match="there is no data at /arm"):
        write_lerobot(given, tmp_path / "other", SPEC, executor="inline")


def test_spark_opens_segments_in_its_tasks(spark: Any, tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    register(dataset, tmp_path / "files", a=recording(1), b=recording(2))
    assert dataset.write_lerobot(tmp_path / "set", SPEC, executor="spark").episodes == 2
    assert lengths(tmp_path / "set") == {"a": 11, "b": 21}


class TestCommand:
    """``chunkmill export lerobot`` of files, folders and stores, which it knows by their digests."""

    def run(self, folder: Path, *words: str) -> dict[str, Any]:
        (folder / "spec.yaml").write_text(json.dumps(SPEC))
        given = ["export", "lerobot", str(folder / "spec.yaml"), *words, "-o", str(folder / "set")]
        done = CliRunner().invoke(commands, [*given, "--append", "--json", "--executor", "inline", "-q"])
        assert done.exit_code == 0, done.output
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts

    def test_files(self, tmp_path: Path) -> None:
        path = tmp_path / "a.rrd"
        recording(1).write_rrd(path, application_id="t", recording_id="a", executor="inline")
        assert self.run(tmp_path, str(path))["episodes"] == 1
        assert self.run(tmp_path, str(path))["skipped"] == ["a"]
        assert self.run(tmp_path, str(path), "--content", "/arm")["skipped"] == [], "it is read otherwise"
        recording(2).write_rrd(path, application_id="t", recording_id="a", executor="inline")
        assert self.run(tmp_path, str(path))["frames"] == 21

    def test_a_store(self, tmp_path: Path) -> None:
        dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
        register(dataset, tmp_path / "files", a=recording(1), b=recording(2))
        place = str(Path(dataset))
        assert self.run(tmp_path, place)["episodes"] == 2
        before = state(tmp_path / "set")
        assert self.run(tmp_path, place)["skipped"] == ["a", "b"]
        assert state(tmp_path / "set") == before
        dataset.unregister(segments_to_drop=["a"], layers_to_drop=None)
        assert self.run(tmp_path, place)["removed"] == ["a"]
        assert lengths(tmp_path / "set") == {"b": 21}
