"""Cut and damaged RRDs give their whole chunks, and a report."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.engine.rrd import RrdFile, StoreEntry
from chunkmill.engine.stream import LazyChunkStream, write_stores
from chunkmill.readers import RrdReader
from comparison import cells, rerun_verify
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

STORE = StoreEntry("recording", "a", "r")
COUNT = 12


def chunk(i: int) -> Chunk:
    column = ComponentColumn("x", [float(i * 10 + k) for k in range(10)])
    return Chunk.from_columns(f"/e/{i % 3}", [TimeColumn("frame", sequence=range(i * 10, i * 10 + 10))], [column])


CHUNKS = [chunk(i) for i in range(COUNT)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recovery") / "whole.rrd"
    write_stores(path, [(STORE, LazyChunkStream.from_iter(CHUNKS))], executor="inline")
    return path


def recovered(path: Path) -> tuple[list[Chunk], list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reader = RrdReader(path, recover=True)
        chunks = reader.stream(store=STORE).to_chunks(executor="inline") if reader.recordings() else []
    return chunks, [str(w.message) for w in caught if w.category is ReadWarning]


def test_a_whole_file_is_read_as_ever(whole: Path) -> None:
    chunks, said = recovered(whole)
    assert cells(chunks) == cells(CHUNKS)
    assert said == []


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1, exclude_max=True), beside=st.sampled_from([-1, 0, 1]))
def test_a_cut_file_gives_exactly_the_chunks_before_the_cut(
    whole: Path, tmp_path: Path, where: float, beside: int
) -> None:
    data = whole.read_bytes()
    ends = sorted(e.offset + e.size for e in RrdFile(whole).entries(STORE) or [])
    cut = ends[int(where * len(ends))] + beside
    path = tmp_path / "cut.rrd"
    path.write_bytes(data[:cut])
    chunks, said = recovered(path)
    expected = [e for e in ends if e <= cut]
    assert [c.id for c in chunks] == [c.id for c in CHUNKS[: len(expected)]]
    assert cells(chunks) == cells(CHUNKS[: len(expected)])
    if cut not in ends and expected:
        (line,) = said
        assert f"recovered {len(expected)} chunks" in line
        assert f"up to byte {expected[-1]:,} of {cut:,} (last times: frame {len(expected) * 10 - 1:,})" in line


def test_a_damaged_chunk_costs_itself_alone(whole: Path, tmp_path: Path) -> None:
    data = bytearray(whole.read_bytes())
    entry = (RrdFile(whole).entries(STORE) or [])[4]
    data[entry.offset + 60 : entry.offset + entry.size - 60] = b"\xff" * (entry.size - 120)
    path = tmp_path / "damaged.rrd"
    path.write_bytes(data)
    with pytest.raises(ReadError):
        [c.to_record_batch() for c in RrdReader(path).stream().to_chunks(executor="inline")]
    chunks, (line,) = recovered(path)
    assert cells(chunks) == cells(CHUNKS[:4] + CHUNKS[5:])
    assert f"lost one message at byte {entry.offset:,}" in line


@pytest.mark.parametrize("recover", [True, False])
def test_the_report_without_the_chunks(whole: Path, tmp_path: Path, recover: bool) -> None:
    assert RrdReader(whole, recover=recover).recovery_report().is_whole
    path = tmp_path / "cut.rrd"
    path.write_bytes(whole.read_bytes()[:-1000])
    _, (line,) = recovered(path)
    report = RrdReader(path, recover=recover).recovery_report(store=STORE)
    assert str(report) == line
    assert not report.is_whole


def test_what_was_recovered_opens_with_rerun(whole: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.rrd"
    cut.write_bytes(whole.read_bytes()[:-1000])
    out = tmp_path / "recovered.rrd"
    with pytest.warns(ReadWarning, match="lost the"):
        RrdReader(cut, recover=True).stream().write_rrd(out, application_id="a", recording_id="r", executor="inline")
    rerun_verify(out)


def test_what_is_no_rrd_stays_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.rrd"
    path.write_bytes(b"not a recording at all")
    with pytest.raises(ReadError, match="not an RRD"):
        RrdReader(path, recover=True).recordings()
