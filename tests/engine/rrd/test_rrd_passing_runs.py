"""Runs of chunks that nothing looks into are copied between those that are changed: the recording is the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn, tuid
from chunkmill.engine.execution import sink
from chunkmill.engine.rrd import MessageWriter, RrdFile, RunRows, StoreEntry, payloads
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.lenses import DeriveLens, MutateLens, Selector
from chunkmill.readers import RrdReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from passing_runs import TARGET, both_ways
from rrd_bytes import STORE, image, rrd_bytes, scalars, static, write_rrd
from test_rrd_real_data import OLD, RECORDINGS

pytestmark = pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")
CHUNKS = [
    scalars(),
    image(),
    static(),
    image(2_000_000, start=3),
    scalars("/leg", rows=30_000),
    image(start=4),
    image(start=5),
    scalars("/leg", timeline="tick"),
    scalars("/arm", start=9),
    scalars("/leg", start=40_000),
    static("/another"),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_rrd(tmp_path / "source.rrd", CHUNKS)


@pytest.fixture(autouse=True)
def same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run mints the same ids."""
    of_paths: dict[bytes, Iterator[int]] = {}

    def mint(rows: int = 0) -> bytes:
        return (1 << 64 | next(of_paths.setdefault(b"", itertools.count(0, 1 << 32)))).to_bytes(16, "big")

    monkeypatch.setattr(tuid, "mint", mint)
    monkeypatch.setattr(payloads, "mint", mint)
    with_ids = MessageWriter.__init__

    def begin(self: MessageWriter, *given: Any, **named: Any) -> None:
        of_paths.clear()
        with_ids(self, *given, **named)

    monkeypatch.setattr(MessageWriter, "__init__", begin)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of messages of each run that was copied."""
    found: list[int] = []
    append_run = MessageWriter.append_run

    def noted(self: MessageWriter, run: RunRows) -> int:
        found.append(run.stop - run.start)
        return append_run(self, run)

    monkeypatch.setattr(MessageWriter, "append_run", noted)
    return found


def double(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 2.0)


LENSES = [MutateLens("Scalars:scalars", Selector(".").pipe(double))]


def changed(stream: LazyChunkStream, **more: Any) -> LazyChunkStream:
    return stream.lenses(LENSES, output_mode="forward_unmatched", **more)


@pytest.mark.parametrize("target", [TARGET, STORE], ids=["another recording", "the same"])
def test_what_a_lens_leaves_alone(source: Path, tmp_path: Path, runs: list[int], target: StoreEntry) -> None:
    ours, expected = both_ways(tmp_path, lambda: [(target, changed(RrdReader(source).stream()))])
    assert ours == expected
    assert runs == [3, 2, 1]


def test_what_lies_between_is_in_the_order_of_the_file(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.rrd"
    changed(RrdReader(source).stream()).write_rrd(path, application_id="a", recording_id="b", executor="inline")
    found = RrdReader(path).stream().to_chunks(executor="inline")
    assert [c.entity_path for c in found] == [c.entity_path for c in CHUNKS]
    assert [c.id for c in found if c.entity_path == "/camera"] == [c.id for c in CHUNKS if c.entity_path == "/camera"]
    assert [len(c) for c in found] == [len(c) for c in CHUNKS]


@pytest.mark.parametrize("mode", ["drop_unmatched", "forward_all"])
def test_other_modes(source: Path, tmp_path: Path, mode: str) -> None:
    stream = lambda: [(TARGET, RrdReader(source).stream().lenses(LENSES, output_mode=mode))]  # noqa: E731
    ours, expected = both_ways(tmp_path, stream)
    assert ours == expected


STEPS = {
    "of some entities": lambda s: changed(s, content="/leg/**"),
    "after a filter": lambda s: changed(s.filter(has_timeline="frame")),
    "before a filter": lambda s: changed(s).filter(content="/camera/**"),
    "of a component": lambda s: s.filter(content="/** -/camera/**", components="Scalars:scalars"),
    "on one side of a split": lambda s: LazyChunkStream.merge(*_lens_on_one(*s.split(content="/arm/**"))),
    "derived": lambda s: s.lenses(DeriveLens("Scalars:scalars", output_entity="/new").to_component("a:b", ".")),
    "given twice": lambda s: changed(LazyChunkStream.merge(*s.split(is_static=True))),
    "a function first": lambda s: changed(s.map(lambda chunk: chunk)),
    "a function behind": lambda s: changed(s).map(lambda chunk: chunk),
}


def _lens_on_one(these: LazyChunkStream, rest: LazyChunkStream) -> tuple[LazyChunkStream, LazyChunkStream]:
    return changed(these), rest


@pytest.mark.parametrize("name", STEPS)
def test_other_pipelines(source: Path, tmp_path: Path, name: str) -> None:
    ours, expected = both_ways(tmp_path, lambda: [(TARGET, STEPS[name](RrdReader(source).stream()))])
    assert ours == expected


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.lists(st.integers(0, len(CHUNKS) - 1), max_size=12))
def test_any_order(tmp_path: Path, order: list[int]) -> None:
    chunks = [Chunk.from_data(CHUNKS[i].data.with_new_id()) for i in order] or [static()]
    path = write_rrd(tmp_path / "source.rrd", [static("/first"), *chunks])
    ours, expected = both_ways(tmp_path, lambda: [(TARGET, changed(RrdReader(path).stream()))])
    assert ours == expected


@pytest.mark.heavy
def test_every_recording_there_is(tmp_path: Path, runs: list[int]) -> None:
    for path in (parameters.values[0] for parameters in RECORDINGS):
        if path.name in OLD or path.stat().st_size > 2_000_000:
            continue
        store = RrdFile(path).stores()[0]
        names = [c.descriptor.component for e in RrdFile(path).entries(store) or () for c in e.header.components]
        lens = MutateLens(names[len(names) // 2] if names else "a:b", ".", keep_row_ids=True)
        stream = lambda: RrdReader(path).stream(store=store).lenses(lens, output_mode="forward_unmatched")  # noqa: B023, E731
        ours, expected = both_ways(tmp_path, lambda: [(TARGET, stream())])  # noqa: B023
        assert ours == expected, path.name
    assert runs


def test_components_that_are_described_in_two_ways(tmp_path: Path, runs: list[int]) -> None:
    times = [TimeColumn("frame", sequence=[1])]
    texts = Chunk.from_columns("/arm", times, [ComponentColumn("Scalars:scalars", ["a"])])
    path = write_rrd(tmp_path / "source.rrd", [texts, scalars(), static(), scalars("/leg")])
    lens = MutateLens("Scalars:scalars", ".")
    stream = lambda: RrdReader(path).stream().lenses(lens, output_mode="forward_unmatched", content="/leg")  # noqa: E731
    ours, expected = both_ways(tmp_path, lambda: [(TARGET, stream())])
    assert ours == expected


def test_a_component_that_is_changed_here_and_passed_on_there(tmp_path: Path, runs: list[int]) -> None:
    path = write_rrd(tmp_path / "source.rrd", [scalars(), static(), scalars(timeline="tick"), static("/b")])

    def streams() -> list[tuple[StoreEntry, LazyChunkStream]]:
        these, rest = RrdReader(path).stream().split(has_timeline="tick")
        texts = these.lenses(MutateLens("Scalars:scalars", Selector(".").pipe(as_text)))
        return [(TARGET, LazyChunkStream.merge(texts, rest))]

    ours, expected = both_ways(tmp_path, streams)
    assert ours == expected
    assert runs == [2, 1]


def as_text(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def test_messages_that_are_not_as_listed(tmp_path: Path, runs: list[int]) -> None:
    data = rrd_bytes(scalars(), static(), image())
    at = data.rindex(b"\x38\x01")
    path = tmp_path / "source.rrd"
    path.write_bytes(data[: at + 1] + b"\0" + data[at + 2 :])
    ours, expected = both_ways(tmp_path, lambda: [(TARGET, changed(RrdReader(path).stream()))])
    assert ours == expected
    assert runs == []


def test_where_chunks_are_too_many_to_be_kept_there_are_rows(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: list[int]
) -> None:
    monkeypatch.setattr(sink, "_MOST_LISTED", 1)
    ours, expected = both_ways(tmp_path, lambda: [(TARGET, changed(RrdReader(source).stream()))])
    assert ours == expected
    assert runs == [3, 2, 1]


def test_what_is_told_of_a_run(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.rrd"
    report = changed(RrdReader(source).stream()).write_rrd(
        path, application_id="a", recording_id="b", executor="inline"
    )
    assert (report.chunks, report.rows) == (len(CHUNKS), sum(map(len, CHUNKS)))
    assert report.sizes_in.chunks == report.sizes_out.chunks == len(CHUNKS)
    assert 2_000_000 < report.bytes_passed < report.bytes_in
