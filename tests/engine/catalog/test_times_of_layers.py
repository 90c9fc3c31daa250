"""Times of layers that stay in their files: made when they are registered, or by maintenance; never in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.errors import ReadWarning
from chunkmill.engine.execution import RunOptions
from chunkmill.engine.recordings import RecordingsFolder, StoreWriter, make_times, times_in, verify_store
from chunkmill.engine.storage import VersionFiles
from small_recordings import rrd_at


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetEntry:
    return CatalogClient(tmp_path / "lake").create_dataset("drives")


def stored(dataset: DatasetEntry) -> RecordingsFolder:
    return RecordingsFolder(dataset.manifest_url)


def are_made(dataset: DatasetEntry) -> dict[str, bool]:
    """Which segments have times; those that do have the times of their chunks."""
    folder = stored(dataset)
    newest = folder.newest()
    assert newest is not None
    found = {}
    for entry in folder.live(newest):
        times = times_in(folder, entry)
        found[entry.recording_id] = times is not None
        if times is not None:
            for number, chunk in enumerate(folder.references(entry).chunks()):
                times.expect(number, chunk.data)
    return found


def test_registration_makes_them_where_asked_for(dataset: DatasetEntry, tmp_path: Path) -> None:
    one, other, copied = (rrd_at(tmp_path / f"{name}.rrd", name) for name in ("one", "other", "copied"))
    dataset.register([str(one)], times=True, executor="inline").wait()
    dataset.register([str(other)]).wait()
    dataset.register([str(copied)], copy=True, executor="inline").wait()
    assert are_made(dataset) == {"one": True, "other": False, "copied": True}
    assert verify_store(stored(dataset)).faults == ()


def test_maintenance_makes_those_that_are_missing(dataset: DatasetEntry, tmp_path: Path) -> None:
    paths = [rrd_at(tmp_path / f"{name}.rrd", name) for name in ("one", "other", "gone")]
    dataset.register(list(map(str, paths))).wait()
    before = dataset.segment_ids()
    paths[2].unlink()
    with pytest.warns(ReadWarning, match="gone"):
        dataset.do_maintenance(optimize_indexes=True)
    assert are_made(dataset) == {"one": True, "other": True, "gone": False}
    assert dataset.segment_ids() == before
    dataset.do_maintenance(compact_fragments=True)
    assert are_made(dataset) == {"one": True, "other": True, "gone": False}
    number = stored(dataset).files.newest()
    with pytest.warns(ReadWarning, match="gone"):
        dataset.do_maintenance(optimize_indexes=True)
    assert stored(dataset).files.newest() == number


def test_what_is_replaced_meanwhile_stays_replaced(
    dataset: DatasetEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rrd_at(tmp_path / "one.rrd", "one")
    dataset.register([str(path)]).wait()
    other = rrd_at(tmp_path / "again" / "one.rrd", "one")
    publish = VersionFiles.create

    def late(self: VersionFiles, number: int, data: dict[str, Any]) -> bool:
        if data["operation"] == "times":
            monkeypatch.setattr(VersionFiles, "create", publish)
            dataset.register([str(other)]).wait()
        return publish(self, number, data)

    monkeypatch.setattr(VersionFiles, "create", late)
    assert make_times(StoreWriter(stored(dataset)), RunOptions("inline")) == 1
    assert are_made(dataset) == {"one": True}
    newest = stored(dataset).newest()
    assert newest is not None
    assert [entry.source for entry in stored(dataset).live(newest)] == [str(other)]
    assert verify_store(stored(dataset)).faults == ()
