"""Tasks that only pass messages on beside others that do more leave them where they lie, and the commit copies them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunkmill.engine.errors import ReadError
from chunkmill.engine.execution.commit import Extent, Follower, RunPlaces
from chunkmill.engine.rrd import FileRun, StoreEntry
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.lenses import MutateLens, Selector
from chunkmill.readers import RrdReader, rrd
from comparison import cells, rerun_verify
from rrd_bytes import image, scalars, without_footer, write_rrd

CHUNKS = [scalars("/a", start=i) for i in range(4)] + [image(3_000, start=i) for i in range(40)] + [scalars("/b")]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording of many splits, most of them of images alone."""
    monkeypatch.setattr(rrd, "SPLIT_BYTES", 200_000)
    folder = tmp_path / "in"
    folder.mkdir()
    return write_rrd(folder / "source.rrd", CHUNKS)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What tasks left where it lay."""
    found: list[dict[str, Any]] = []
    run = RunPlaces.bring

    def noted(self: RunPlaces, *given: Any) -> dict[str, Any] | None:
        place = run(self, *given)
        if place is not None and place.get("at_source"):
            found.append(place)
        return place

    monkeypatch.setattr(RunPlaces, "bring", noted)
    return found


def double(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 2.0)


def doubled(source: Path) -> LazyChunkStream:
    lens = MutateLens("Scalars:scalars", Selector(".").pipe(double), keep_row_ids=True)
    return RrdReader(source).stream().lenses([lens], output_mode="forward_unmatched")


def write(source: Path, out: Path, recording_id: str = "one", executor: str = "inline") -> None:
    doubled(source).write_rrd(out, application_id="app", recording_id=recording_id, executor=executor)


@pytest.mark.parametrize("recording_id", ["one", "another"])
@pytest.mark.parametrize("early", [True, False])
def test_the_recording_is_the_same(source, tmp_path, left, monkeypatch, recording_id, early):
    if not early:
        monkeypatch.setattr(Follower, "_run", lambda _: None)
    out = tmp_path / "out.rrd"
    write(source, out, recording_id)
    assert len(left) >= 3
    expected = doubled(source).to_chunks(executor="inline")
    found = RrdReader(out).stream().to_chunks(executor="inline")
    assert [c.entity_path for c in found] == [c.entity_path for c in CHUNKS]
    assert cells(found) == cells(expected) != cells(CHUNKS)
    assert RrdReader(out).recordings() == [StoreEntry("recording", "app", recording_id)]
    rerun_verify(out)


def test_through_spark(source, tmp_path):
    out = tmp_path / "out.rrd"
    write(source, out, executor="spark")
    found = RrdReader(out).stream().to_chunks(executor="inline")
    assert cells(found) == cells(doubled(source).to_chunks(executor="inline"))
    rerun_verify(out)


def test_no_part_is_made_of_them(source, tmp_path, monkeypatch):
    copied = []
    append = Extent.append
    monkeypatch.setattr(Follower, "_run", lambda _: None)

    def noted(self, writer, store, folder, destination):
        copied.append((self.at_source, folder.exists(self.file)))
        append(self, writer, store, folder, destination)

    monkeypatch.setattr(Extent, "append", noted)
    write(source, tmp_path / "out.rrd")
    assert set(copied) == {(True, False), (False, True)}


@pytest.mark.parametrize("early", [True, False])
def test_a_source_that_is_gone_by_then(source, tmp_path, monkeypatch, early):
    """It is there when the tasks look at it, and another when the commit does."""
    if not early:
        monkeypatch.setattr(Follower, "_run", lambda _: None)
    out = tmp_path / "out.rrd"
    out.write_bytes(b"before")
    monkeypatch.setattr(FileRun, "copy", lambda *_, **__: False)
    with pytest.raises(ReadError, match="moved while it was read") as caught:
        write(source, out)
    assert caught.value.path == str(source)
    assert out.read_bytes() == b"before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out.rrd"]


def test_without_a_footer_nothing_is_left(source, tmp_path, left):
    expected = cells(doubled(source).to_chunks(executor="inline"))
    source.write_bytes(without_footer(source.read_bytes()))
    write(source, tmp_path / "out.rrd")
    assert left == []
    assert cells(RrdReader(tmp_path / "out.rrd").stream().to_chunks(executor="inline")) == expected


def test_what_is_left_out_is_not_copied(source, tmp_path, left):
    stream = doubled(source).drop(content="/camera/**")
    stream.write_rrd(tmp_path / "out.rrd", application_id="app", recording_id="one", executor="inline")
    kept = [c.entity_path for c in CHUNKS if not c.entity_path.startswith("/camera")]
    assert [c.entity_path for c in RrdReader(tmp_path / "out.rrd").stream().to_chunks(executor="inline")] == kept


def test_the_report_counts_it_as_passed(source, tmp_path):
    report = doubled(source).write_rrd(
        tmp_path / "out.rrd", application_id="app", recording_id="one", executor="inline"
    )
    assert report.chunks == len(CHUNKS)
    assert report.bytes_passed > 40 * 3_000 / 2
