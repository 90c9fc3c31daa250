"""A landing folder as a streaming source: offsets, restarts, files that go or change, and what is damaged."""

from __future__ import annotations

import itertools
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.data_sources.landings import OPTIONS, LandingStreamReader, Watch
from chunkmill.engine.data_sources.options import Request
from chunkmill.engine.errors import ReadError, SourceMissingError, UsageError
from pyspark import cloudpickle

MCAP = "mcap/rosbag2__cdr_test_0.mcap"


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


def begun(landing: Path, **options: str) -> LandingStreamReader:
    """A reader as a process of Spark's makes it."""
    given = {"path": str(landing), "settle": "0s", "every": "0s", **{k.lower(): v for k, v in options.items()}}
    request = Request.of(None, given, OPTIONS)
    reader: LandingStreamReader = cloudpickle.loads(
        cloudpickle.dumps(LandingStreamReader(request, Watch.of(request, given)))
    )
    return reader


def recordings(reader: LandingStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    """The recordings of a batch, as its tasks give them."""
    parts = cloudpickle.loads(cloudpickle.dumps(reader.partitions(start, end)))
    batches = [batch for part in parts for batch in reader.read(part)]
    return sorted({name for batch in batches for name in batch.column("recording_id").to_pylist()})


def put(landing: Path, data: Path, *names: str) -> None:
    for name in names:
        (landing / name).parent.mkdir(exist_ok=True)
        shutil.copy(data / MCAP, landing / name)


def test_files_come_once_in_entries_that_are_bounded(landing: Path, data: Path) -> None:
    put(landing, data, "a.mcap", "sub/b.mcap", "c.mcap")
    reader = begun(landing, maxFilesPerTrigger="2")
    offsets = [reader.initialOffset()]
    for _ in range(3):
        offsets.append(reader.latestOffset(offsets[-1], None))
    assert [offset["entry"] for offset in offsets] == [0, 1, 2, 2]
    found = [recordings(reader, a, b) for a, b in itertools.pairwise(offsets)]
    assert sorted(map(len, found)) == [0, 1, 2]
    assert sorted(itertools.chain(*found)) == ["a", "c", "sub/b"]
    assert {row.name for row in landing.iterdir()} == {"a.mcap", "sub", "c.mcap", ".chunkmill"}


def test_a_checkpoint_says_where_its_log_is(landing: Path, data: Path) -> None:
    put(landing, data, "a.mcap")
    first = begun(landing)
    start = first.initialOffset()
    end = first.latestOffset(start, None)
    # Before the first batch is done, Spark asks the next process for the beginning.
    again = begun(landing)
    assert again.initialOffset() != start
    assert recordings(again, again.initialOffset(), end) == ["a"]
    assert again.latestOffset(end, None) == end
    put(landing, data, "b.mcap")
    later = again.latestOffset(end, None)
    assert recordings(again, end, later) == ["b"]
    other = begun(landing)
    mine = other.initialOffset()
    assert recordings(other, mine, other.latestOffset(mine, None)) == ["a", "b"]


def test_a_query_of_what_there_is_takes_all_of_it_and_nothing_else(landing: Path, data: Path) -> None:
    put(landing, data, "a.mcap", "b.mcap")
    reader = begun(landing, maxFilesPerTrigger="1", settle="300ms")
    reader.prepareForTriggerAvailableNow()
    offset = reader.initialOffset()
    offset = reader.latestOffset(offset, None)
    put(landing, data, "c.mcap")
    entries = [offset["entry"]]
    for _ in range(2):
        offset = reader.latestOffset(offset, None)
        entries.append(offset["entry"])
    assert entries == [1, 2, 2]


def test_a_named_log_serves_spark_that_says_no_start(landing: Path, data: Path, tmp_path: Path) -> None:
    put(landing, data, "a.mcap")
    with pytest.raises(UsageError, match=r"before Spark 4\.2 a stream needs the option 'log'"):
        begun(landing).latestOffset()
    reader = begun(landing, log=str(tmp_path / "log"))
    assert reader.initialOffset() == {"log": "", "entry": 0}
    assert reader.latestOffset() == {"log": "", "entry": 1}
    assert begun(landing, log=str(tmp_path / "log")).latestOffset() == {"log": "", "entry": 1}
    assert not (landing / ".chunkmill").exists()


def test_a_named_log_is_not_begun_anew_when_it_has_forgotten_its_beginning(
    landing: Path, data: Path, tmp_path: Path
) -> None:
    reader = begun(landing, log=str(tmp_path / "log"))
    offset = reader.initialOffset()
    for number in range(3):
        put(landing, data, f"{number}.mcap")
        offset = reader.latestOffset(offset, None)
    reader._of("").log.compact(3, None)
    reader.commit(offset)
    with pytest.raises(UsageError, match="the first entries of this landing log were removed"):
        begun(landing, log=str(tmp_path / "log")).initialOffset()


def test_what_is_gone_or_changed_is_offered_again_as_it_is(
    landing: Path, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(landing, data, "a.mcap", "b.mcap", "c.mcap")
    reader = begun(landing)
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    (landing / "a.mcap").unlink()
    os.utime(landing / "b.mcap", (1, 1))
    assert recordings(reader, start, end) == ["c"]
    assert "a.mcap was removed before it was read" in caplog.text
    assert "b.mcap changed before it was read" in caplog.text
    put(landing, data, "a.mcap")
    later = reader.latestOffset(end, None)
    assert recordings(reader, end, later) == ["a", "b"]


def test_a_file_that_is_there_again_when_its_batch_runs_again_comes_once(landing: Path, data: Path) -> None:
    put(landing, data, "a.mcap", "b.mcap")
    first = begun(landing)
    start = first.initialOffset()
    end = first.latestOffset(start, None)
    (landing / "a.mcap").rename(landing / ".away")
    assert recordings(first, start, end) == ["b"]
    # The query is killed before the batch is done, and the folder's file system is whole when it starts again.
    (landing / ".away").rename(landing / "a.mcap")
    again = begun(landing)
    assert recordings(again, start, end) == ["a", "b"]
    later = again.latestOffset(end, None)
    assert recordings(again, end, later) == []


def test_a_file_that_changes_while_it_is_read_fails_the_task(landing: Path, data: Path) -> None:
    put(landing, data, "a.mcap")
    reader = begun(landing)
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, None))
    rows = reader.read(part)
    next(rows)
    os.utime(landing / "a.mcap", (1, 1))
    with pytest.raises(ReadError, match="changed while it was read") as caught:
        list(rows)
    assert caught.value.transient


def test_what_is_damaged_fails_or_is_left_out(landing: Path, data: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(landing, data, "a.mcap")
    (landing / "b.mcap").write_bytes(b"no recording at all")
    reader = begun(landing)
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    with pytest.raises(ReadError, match=r"b\.mcap"):
        recordings(reader, start, end)
    lenient = begun(landing, ignoreCorruptFiles="true")
    assert recordings(lenient, start, end) == ["a"]
    assert "skipped, because of ignoreCorruptFiles" in caplog.text
    whole = (data / MCAP).read_bytes()
    (landing / "cut.mcap").write_bytes(whole[: len(whole) // 2])
    later = lenient.latestOffset(end, None)
    assert recordings(lenient, end, later) in ([], ["cut"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"settle": "soon"}, "is not a duration"),
        ({"maxFilesPerTrigger": "0"}, "is not a number of files"),
        ({"maxBytesPerTrigger": "many"}, "many"),
        ({"ignoreCorruptFiles": "yes"}, "'true' or 'false'"),
        ({"cleanSource": "delete"}, "no option 'cleansource'"),
    ],
)
def test_options_are_checked(landing: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        begun(landing, **options)


def test_there_has_to_be_one_folder(tmp_path: Path) -> None:
    reader = begun(tmp_path / "missing")
    start = reader.initialOffset()
    with pytest.raises(SourceMissingError, match="cannot be listed"):
        reader.latestOffset(start, None)
    given: dict[str, str] = {"path": "a", "paths": '["b"]'}
    with pytest.raises(UsageError, match="one landing folder"):
        Watch.of(Request.of(None, given), given)


def _streamed(spark: Any, landing: Path, checkpoint: Path, store: Path) -> None:
    frame = spark.readStream.format("chunkmill").option("settle", "0s").option("payload", "true").load(str(landing))
    query = (
        frame.writeStream.format("chunkmill.store")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(store))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)


def test_a_landing_folder_streams_into_a_store_once(spark: Any, landing: Path, data: Path, tmp_path: Path) -> None:
    from chunkmill.engine import RecordingStore, get_session
    from chunkmill.readers import McapReader
    from comparison import cells

    checkpoint, store = tmp_path / "checkpoint", tmp_path / "store"
    put(landing, data, "a.mcap", "sub/b.mcap")
    _streamed(get_session(spark.sparkContext.master), landing, checkpoint, store)
    for name in ("0", ".0.crc"):  # killed after the store's commit, before Spark's
        (checkpoint / "commits" / name).unlink()
    put(landing, data, "c.mcap")
    with ThreadPoolExecutor(1) as threads:  # whose JVM thread has no active session
        threads.submit(lambda: _streamed(get_session(spark.sparkContext.master), landing, checkpoint, store)).result()
    if len(RecordingStore.open(store)) < 3:
        _streamed(spark, landing, checkpoint, store)  # before 4.2 a run of what there is takes one batch
    found = RecordingStore.open(store)
    assert sorted(entry.recording_id for entry in found) == ["a", "c", "sub/b"]
    assert all(entry.segment_version == 1 for entry in found)
    wanted = cells(McapReader(data / MCAP).stream().to_chunks(executor="inline"))
    assert cells(found.recording("sub/b").stream().to_chunks(executor="inline")) == wanted
    assert not [path for path in store.iterdir() if ".chunkmill-" in path.name]
