"""Folders that are one recording, in a landing folder: one input, once, when nothing in them changes any more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from chunkmill.engine import Ingest, RecordingStore
from chunkmill.engine.ingest import Outcome
from chunkmill.engine.ingest.landing import Lister
from chunkmill.readers import Rosbag2Reader, all_suffixes, lands_whole
from landing_tools import Folder, SetClock
from rosbag2_making import metadata, some, write_bag, write_mcap


def rosbag2(folder: Path) -> Path:
    return write_bag(folder, [some(20), some(20, 9 * 10**9)])


def mcaps(folder: Path) -> Path:
    folder.mkdir(parents=True)
    names = [f"{folder.name}_{i}.mcap" for i in (0, 1)]
    for i, name in enumerate(names):
        write_mcap(folder / name, some(20, 10**9 * (1 + i)))
    (folder / "metadata.yaml").write_text(metadata(names, storage="mcap"))
    return folder


MAKERS = {"db3": rosbag2, "mcap": mcaps}


def ingest(landing: Path, lake: Path, **options: object) -> dict[str, Outcome]:
    query = Ingest(landing, into=lake, executor="inline", settle=0, **options).start(once=True)
    query.await_termination(60)
    results = (result for batch in query.recent for result in batch.files)
    return {str(Path(r.file.path).relative_to(landing)): r.outcome for r in results}


@pytest.fixture(params=MAKERS)
def drive(request: pytest.FixtureRequest, landing: Path) -> Path:
    return MAKERS[request.param](landing / "monday" / "drive")


def test_a_folder_is_one_recording_once(landing: Path, lake: Path, drive: Path) -> None:
    (landing / "notes").mkdir()
    write_mcap(landing / "notes" / "alone_0.mcap", some(4))
    assert ingest(landing, lake) == {"monday/drive": Outcome.ADDED, "notes/alone_0.mcap": Outcome.ADDED}
    assert ingest(landing, lake) == {}
    store = RecordingStore.open(lake)
    (entry,) = (entry for entry in store if entry.source == str(drive))
    streams = (store.recording(entry).stream(), Rosbag2Reader(drive).stream())
    rows = [
        sum(c.num_rows for c in stream.to_chunks(executor="inline") if c.entity_path == "/chatter" and not c.is_static)
        for stream in streams
    ]
    assert rows == [20, 20]
    assert entry.source_size == sum(file.stat().st_size for file in drive.iterdir())


def test_a_copy_is_a_duplicate_and_a_change_replaces(landing: Path, lake: Path, drive: Path) -> None:
    assert ingest(landing, lake) == {"monday/drive": Outcome.ADDED}
    shutil.copytree(drive, landing / "tuesday" / "drive")
    assert ingest(landing, lake) == {"tuesday/drive": Outcome.DUPLICATE}
    third = next(drive.glob("drive_1.*")).suffix
    shutil.copy(drive / f"drive_1{third}", drive / f"drive_2{third}")
    shutil.rmtree(landing / "tuesday")
    with pytest.warns(match=r"does not list are read, too: drive_2"):
        assert ingest(landing, lake) == {"monday/drive": Outcome.REPLACED}
    assert len(list(RecordingStore.open(lake))) == 1


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_folder_that_is_copied_file_by_file_waits_as_a_whole(tmp_path: Path, maker, is_reversed: bool) -> None:
    source = maker(tmp_path / "source" / "drive")
    folder = Folder(tmp_path)
    clock: SetClock = folder.clock
    lister = Lister(str(folder.path), settle_seconds=2, suffixes=all_suffixes(), is_one=lands_whole, clock=clock)
    (folder.path / "drive").mkdir()

    def copied() -> Iterator[None]:
        for file in sorted(source.iterdir(), reverse=is_reversed):
            data = file.read_bytes()
            for end in (len(data) // 2, len(data)):
                folder.put(f"drive/{file.name}", data[:end])
                clock_now()
                yield
        folder.put("drive/.metadata.yaml.Xy12", b"of a copy that is not done")
        clock_now()
        yield
        (folder.path / "drive" / ".metadata.yaml.Xy12").unlink()
        clock_now()
        yield

    def clock_now() -> None:
        folder.date("drive", 0)

    for _ in copied():
        for _ in range(3):  # longer than each file needs to settle, were it alone
            assert lister.look().ready == []
            clock.wait(0.6)
    clock.wait(0.5)
    (whole,) = lister.look().ready
    assert whole.path == str(folder.path / "drive")
    assert whole is lister.look().ready[0]


@pytest.mark.parametrize("done", ["delete", "archive"])
def test_a_folder_is_disposed_of_as_a_whole(landing: Path, lake: Path, tmp_path: Path, drive: Path, done: str) -> None:
    names = {file.name for file in drive.iterdir()}
    more = {"archive": tmp_path / "archive"} if done == "archive" else {}
    kept = tmp_path / "archive" / "monday" / "drive"
    for number, place in enumerate((kept, kept.with_name("drive-2"))):
        assert ingest(landing, lake, source_done=done, **more) == {"monday/drive": Outcome.ADDED}
        assert not drive.exists()
        if done == "archive":
            assert {file.name for file in place.iterdir()} == names
        drive.mkdir(parents=True)
        write_mcap(drive / "drive_0.mcap", some(4 + number))
        names = {"drive_0.mcap"}
    assert len(list(RecordingStore.open(lake))) == 2


def test_what_came_into_a_folder_meanwhile_stays(landing: Path, lake: Path, drive: Path) -> None:
    (drive / "below").mkdir()
    (drive / "below" / "notes.txt").write_text("somebody's")
    assert ingest(landing, lake, source_done="delete") == {"monday/drive": Outcome.ADDED}
    assert [path.name for path in drive.rglob("*")] == ["below", "notes.txt"]


def test_a_damaged_folder_is_in_quarantine_once(landing: Path, lake: Path) -> None:
    folder = rosbag2(landing / "drive")
    data = (folder / "drive_1.db3").read_bytes()
    (folder / "drive_1.db3").write_bytes(data[: len(data) // 2])
    assert ingest(landing, lake) == {"drive": Outcome.QUARANTINED}
    assert ingest(landing, lake) == {}
    (folder / "drive_1.db3").write_bytes(data)
    assert ingest(landing, lake) == {"drive": Outcome.ADDED}
    assert list(RecordingStore.open(lake))
