"""A recording that one task makes is written whole by that task: the driver gives it its name, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import WriteError
from chunkmill.engine.execution import sink
from chunkmill.engine.execution.commit import RrdCommit
from chunkmill.engine.execution.groups import PlannedRecording, write_recordings
from chunkmill.engine.execution.stage import RunOptions
from chunkmill.engine.execution.work import RowWriter
from chunkmill.engine.rrd import ChunkTable, RrdFile, StoreEntry
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.engine.stream.lazy_stream import plan_recording
from chunkmill.readers import McapReader, RrdReader
from comparison import cells, rerun_verify

STORE = StoreEntry("recording", "a", "r")


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose parts were put together after the tasks."""
    seen: list[Path] = []
    real = RrdCommit.finish

    def spy(self: RrdCommit, *args: object) -> int:
        assert isinstance(self._destination, Path)
        seen.append(self._destination)
        return real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(RrdCommit, "finish", spy)
    return seen


def signal(entity: str, rows: int = 3, timeline: TimeColumn | None = None) -> Chunk:
    column = ComponentColumn("value", [float(i) for i in range(rows)])
    return Chunk.from_columns(entity, [timeline or TimeColumn("tick", sequence=range(rows))], [column])


def recordings(folder: Path, streams: dict[str, LazyChunkStream]) -> list[PlannedRecording]:
    return [plan_recording(folder / f"{n}.rrd", [(STORE, s)], executor="inline") for n, s in streams.items()]


def test_a_small_file_is_made_by_its_task_and_is_what_joining_would_give(
    joined: list[Path], data: Path, tmp_path: Path
) -> None:
    source = data / "mcap" / "rosbag2__talker.mcap"
    report = (
        McapReader(source)
        .stream()
        .write_rrd(tmp_path / "whole.rrd", application_id="a", recording_id="r", executor="inline")
    )
    assert joined == []
    assert report.bytes_out == (tmp_path / "whole.rrd").stat().st_size
    LazyChunkStream.merge(McapReader(source).stream(), LazyChunkStream.from_iter(iter(()))).write_rrd(
        tmp_path / "joined.rrd", application_id="a", recording_id="r", executor="inline"
    )
    assert joined == [tmp_path / "joined.rrd"]
    rerun_verify(tmp_path / "whole.rrd", tmp_path / "joined.rrd")
    one, other = (RrdReader(tmp_path / f"{n}.rrd") for n in ("whole", "joined"))
    assert cells(one.stream().to_chunks(executor="inline")) == cells(other.stream().to_chunks(executor="inline"))
    assert [e.entity_path for e in one.store()] == [e.entity_path for e in other.store()]


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_of_many_recordings_those_of_one_task_are_whole(
    executor: str, joined: list[Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if executor == "spark":
        request.getfixturevalue("spark")
    out = tmp_path / "out"
    two = LazyChunkStream.merge(
        LazyChunkStream.from_iter([signal("/one")]), LazyChunkStream.from_iter([signal("/two")])
    )
    planned = recordings(out, {"a": LazyChunkStream.from_iter([signal("/a"), signal("/b")]), "two": two})
    outcomes = list(write_recordings(planned, out, RunOptions(executor)))
    assert [o.error for o in outcomes] == [None, None]
    assert joined == [out / "two.rrd"]
    assert sorted(p.name for p in out.iterdir()) == ["a.rrd", "two.rrd"]
    rerun_verify(out / "a.rrd", out / "two.rrd")
    assert [o.report.bytes_out for o in outcomes if o.report] == [p.stat().st_size for p in sorted(out.iterdir())]
    assert [c.entity_path for c in RrdReader(out / "a.rrd").stream().to_chunks(executor="inline")] == ["/a", "/b"]


def test_chunks_are_told_of_by_a_table_and_by_rows_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chunks = [signal(f"/{i % 3}", rows=i % 5 + 1) for i in range(40)]
    listed: list[int] = []
    real = RowWriter.listing

    def spy(self: RowWriter, table: ChunkTable, name: str) -> None:
        listed.append(len(table))
        real(self, table, name)

    def footer(name: str, count: int) -> pa.RecordBatch:
        one, two = LazyChunkStream.from_iter(chunks[:count]), LazyChunkStream.from_iter(chunks[count:])
        LazyChunkStream.merge(one, two).write_rrd(
            tmp_path / name, application_id="a", recording_id="r", executor="inline"
        )
        file = RrdFile(tmp_path / name)
        table = file.listing(file.stores()[0])
        assert table is not None
        return table.within(lambda _: "").batch

    monkeypatch.setattr(RowWriter, "listing", spy)
    as_tables = footer("listed.rrd", 3)
    assert listed == [3, 37]
    monkeypatch.setattr(sink, "_MOST_LISTED", 10)
    mixed = footer("mixed.rrd", 3)
    assert listed == [3, 37, 3]
    assert mixed.equals(as_tables, check_metadata=True)


def test_the_footer_tells_of_chunks_that_no_listing_can(joined: list[Path], tmp_path: Path) -> None:
    nothing = Chunk.from_columns("/nothing", [TimeColumn("tick", sequence=[])], [ComponentColumn("value", [])])
    LazyChunkStream.from_iter([signal("/a"), nothing, signal("/b")]).write_rrd(
        tmp_path / "o.rrd", application_id="a", recording_id="r", executor="inline"
    )
    assert joined == []
    rerun_verify(tmp_path / "o.rrd")
    file = RrdFile(tmp_path / "o.rrd")
    (store,) = file.stores()
    entries = file.entries(store)
    assert entries is not None
    assert sorted(e.header.entity_path for e in entries) == ["/a", "/b", "/nothing"]


def test_the_footer_is_whole_when_chunks_were_told_of_early(
    joined: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sink, "_MOST_LISTED", 2)
    names = [f"/e{i}" for i in range(5)]
    report = LazyChunkStream.from_iter([signal(n) for n in names]).write_rrd(
        tmp_path / "o.rrd", application_id="a", recording_id="r", executor="inline"
    )
    assert joined == []
    assert (report.chunks, report.rows) == (5, 15)
    rerun_verify(tmp_path / "o.rrd")
    assert [c.entity_path for c in RrdReader(tmp_path / "o.rrd").stream().to_chunks(executor="inline")] == names


def test_what_a_footer_cannot_hold_is_an_error_of_that_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    times = TimeColumn("tick", duration=range(3))
    bad = LazyChunkStream.from_iter([signal("/a"), signal("/b", timeline=times)])
    good = LazyChunkStream.from_iter([signal("/a")])
    first, second = write_recordings(recordings(out, {"bad": bad, "good": good}), out, RunOptions("inline"))
    assert isinstance(first.error, WriteError)
    assert first.error.path == str(out / "bad.rrd")
    assert "'tick' is a sequence in one chunk and a duration in another" in str(first.error)
    assert second.report is not None
    assert [p.name for p in out.iterdir()] == ["good.rrd"]
