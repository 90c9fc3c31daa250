"""Chunks on which a lens fails become rows of a table, and the rest goes through."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import LensError, WriteError
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.lenses import DeriveLens
from chunkmill.readers import RrdReader


def chunk(number: int, *, good: bool) -> Chunk:
    values = [{"a": float(number)}] if good else [number]
    return Chunk.from_columns(
        f"/e/{number}", [TimeColumn("frame", sequence=[number])], [ComponentColumn("in", pa.array(values))]
    )


def stream(table: Path | None, on_error: str = "quarantine") -> LazyChunkStream:
    chunks = [chunk(i, good=i % 3 != 1) for i in range(6)]
    lens = DeriveLens("in").to_component("out", ".a")
    return LazyChunkStream.from_iter(chunks).lenses(lens, on_error=on_error, quarantine=table)


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_failed_chunks_become_rows(executor: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if executor == "spark":
        request.getfixturevalue("spark")
    table, out = tmp_path / "failed.lance", tmp_path / "out.rrd"
    result = stream(table).write_rrd(out, application_id="a", recording_id="r", executor=executor)
    assert result.chunks == 4
    assert [c.entity_path for c in RrdReader(out).stream()] == ["/e/0", "/e/2", "/e/3", "/e/5"]
    rows = lance.dataset(str(table)).to_table().to_pylist()
    assert [(r["entity_path"], r["component"], r["num_rows"], r["code"]) for r in rows] == [
        ("/e/1", "in", 1, "chunkmill.lens"),
        ("/e/4", "in", 1, "chunkmill.lens"),
    ]
    again = Chunk.from_record_batch(pa.ipc.open_stream(rows[1]["chunk"]).read_next_batch())
    assert (again.id, again.entity_path) == (rows[1]["chunk_id"], "/e/4")
    assert again.to_record_batch().column("in").to_pylist() == [[4]]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["failed.lance", "out.rrd"]


def test_rows_are_appended_run_after_run(tmp_path: Path) -> None:
    table = tmp_path / "failed.lance"
    for runs in (1, 2):
        assert len(stream(table).to_chunks()) == 4
        assert lance.dataset(str(table)).count_rows() == 2 * runs
    assert len(list(stream(table))) == 4


@pytest.mark.parametrize("ends", ["first", "early"])
def test_streams_iterated_in_turns_keep_their_own(ends: str, tmp_path: Path) -> None:
    mine, other = tmp_path / "mine.lance", tmp_path / "other.lance"
    one, two = iter(stream(mine)), iter(stream(other))
    next(one), next(two)
    if ends == "first":
        good = LazyChunkStream.from_iter([chunk(0, good=True)])
        lens = DeriveLens("in").to_component("out", ".a")
        assert len(list(good.lenses(lens, on_error="quarantine", quarantine=other))) == 1
        assert len(list(zip(one, two, strict=False))) == 3
        assert list(two) == []
    else:
        next(two)
        assert len(list(one)) == 3
        two.close()  # type: ignore[attr-defined]
    for table in [mine, other] if ends == "first" else [mine]:
        rows = lance.dataset(str(table)).to_table().to_pylist()
        assert [row["entity_path"] for row in rows] == ["/e/1", "/e/4"]
    assert other.exists() is (ends == "first")


def test_a_stream_inside_of_a_stream_keeps_its_own(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.lance", tmp_path / "outer.lance"
    lens = DeriveLens("in").to_component("out", ".a")

    def with_another(c: Chunk) -> Chunk:
        stream(inner).to_chunks(executor="inline")
        return c

    one = LazyChunkStream.from_iter([chunk(1, good=False)]).map(with_another)
    assert one.lenses(lens, on_error="quarantine", quarantine=outer).to_chunks() == []
    assert (lance.dataset(str(inner)).count_rows(), lance.dataset(str(outer)).count_rows()) == (2, 1)


def test_a_run_that_fails_quarantines_nothing(tmp_path: Path) -> None:
    table = tmp_path / "failed.lance"

    def fail(c: Chunk) -> Chunk:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stream(table).map(fail).write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="r")
    assert list(tmp_path.iterdir()) == []


def test_without_quarantine_a_failure_says_where() -> None:
    with pytest.raises(LensError, match=r"Lenses error: .*entity: `/e/1`, input: `in`\)"):
        stream(None, on_error="raise").to_chunks()


def test_a_table_that_cannot_be_written_fails_the_run(tmp_path: Path) -> None:
    table = tmp_path / "failed.lance"
    table.write_text("no table")
    with pytest.raises(WriteError, match="the quarantine table cannot be written"):
        stream(table).write_rrd(tmp_path / "out.rrd", application_id="a", recording_id="r")
    assert not (tmp_path / "out.rrd").exists()
