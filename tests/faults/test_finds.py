"""What cutting ingestion has brought to light, each by itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.errors import CommitUnknownError
from chunkmill.engine.ingest import batch
from chunkmill.engine.ingest.files import Outcome
from chunkmill.engine.ingest.ingest import Ingest
from chunkmill.engine.storage import VersionFiles
from chunkmill.engine.store import RecordingStore
from fault_world import LONG_AGO, recording, table


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """A landing folder in which two files of the same content lie."""
    folder = tmp_path / "landing"
    folder.mkdir()
    recording(folder / "a.rrd", 1, rows=3)
    shutil.copy(folder / "a.rrd", folder / "b.rrd")
    for number, name in enumerate(("a.rrd", "b.rrd")):
        os.utime(folder / name, (LONG_AGO + number,) * 2)
    return folder


def ingest(landing: Path, **more: Any) -> list[list[tuple[str, Outcome]]]:
    """What became of the files of each batch."""
    query = Ingest(landing, into=landing.parent / "lake", executor="inline", **more).start(once=True)
    query.await_termination()
    return [[(Path(r.file.path).name, r.outcome) for r in one.files] for one in query.recent]


def test_the_same_content_is_taken_from_another_file_of_the_batch_when_the_first_has_changed(
    landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, touched = batch.run_laid_out, []

    def touching(*arguments: Any) -> Any:
        if not touched:
            touched.append(landing / "a.rrd")
            os.utime(touched[0], (LONG_AGO + 5,) * 2)
        return run(*arguments)

    monkeypatch.setattr(batch, "run_laid_out", touching)
    first, second = ingest(landing)
    assert first == [("a.rrd", Outcome.CHANGED), ("b.rrd", Outcome.ADDED)]
    assert second == [("a.rrd", Outcome.DUPLICATE)]


def test_no_file_is_a_duplicate_of_one_that_failed(landing: Path) -> None:
    data = (landing / "a.rrd").read_bytes()
    for name in ("a.rrd", "b.rrd"):
        (landing / name).write_bytes(data[: len(data) // 2])
        os.utime(landing / name, (LONG_AGO,) * 2)
    assert ingest(landing) == [[("a.rrd", Outcome.QUARANTINED), ("b.rrd", Outcome.QUARANTINED)]]


def test_a_file_that_was_linked_into_the_archive_and_not_yet_removed_is_archived_once(landing: Path) -> None:
    archive = landing.parent / "archive"
    archive.mkdir()
    os.link(landing / "a.rrd", archive / "a.rrd")
    ingest(landing, source_done="archive", archive=archive)
    assert sorted(p.name for p in archive.iterdir()) == ["a.rrd", "b.rrd"]
    assert list(landing.iterdir()) == []


def test_an_interrupt_after_a_version_is_there_removes_nothing_of_it(
    landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = VersionFiles.create

    def interrupted(self: VersionFiles, number: int, data: dict[str, Any]) -> bool:
        publish(self, number, data)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(VersionFiles, "create", interrupted)
        with pytest.raises(CommitUnknownError, match="unknown whether version 1 was committed"):
            ingest(landing)
    store = RecordingStore.open(landing.parent / "lake")
    assert [len(store.recording(entry).stream().to_chunks(executor="inline")) for entry in store] == [2]
    assert ingest(landing) == []
    assert RecordingStore.open(landing.parent / "lake").version == store.version


def test_a_content_that_is_replaced_in_one_place_stays_when_another_file_has_it(landing: Path) -> None:
    table(landing / "c.parquet", 1)
    shutil.copy(landing / "c.parquet", landing / "d.parquet")
    for number, name in enumerate(("c.parquet", "d.parquet")):
        os.utime(landing / name, (LONG_AGO + 2 + number,) * 2)
    ingest(landing)
    table(landing / "c.parquet", 2, rows=21)
    os.utime(landing / "c.parquet", (LONG_AGO + 9,) * 2)
    assert ingest(landing) == [[("c.parquet", Outcome.ADDED)]]
    names = sorted(Path(entry.source).name for entry in RecordingStore.open(landing.parent / "lake"))
    assert names == ["a.rrd", "c.parquet", "d.parquet"]
    assert ingest(landing) == []
