"""Metrics of queries: whose they are, and that every number is what a recount finds."""

from __future__ import annotations

import contextvars
import dataclasses
import inspect
import os
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine import Chunk, LazyChunkStream, MetricsCollector, QueryMetrics, query_metrics
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ReadError
from chunkmill.engine.storage.folder import LocalFolder
from datafusion import DataFrame, col, lit
from datafusion import functions as f
from places import SHARED


def chunk(entity: str, times: list[int], size: int = 1) -> Chunk:
    """A chunk of the timeline ``frame``, with values of ``size`` integers."""
    values = pa.array([[time] * size for time in times] or [[0]], pa.list_(pa.int64()))
    return Chunk.build(entity, {"frame": pa.array(times)} if times else {}, [(ComponentDescriptor("value"), values)])


def write(path: Path, segment: str, *chunks: Chunk) -> str:
    """An RRD of chunks."""
    LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="tests", recording_id=segment)
    return str(path)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> DatasetEntry:
    """Three segments: ``a`` has three chunks in two layers, ``b`` two, and ``c`` one of an entity of its own."""
    folder = tmp_path_factory.mktemp("metrics")
    found = CatalogClient(folder / "lake").create_dataset("drives")
    base = [
        write(folder / "a.rrd", "a", chunk("/x", [1, 2]), chunk("/y", [2, 3])),
        write(folder / "b.rrd", "b", chunk("/x", [5, 6]), chunk("/y", [6])),
        write(folder / "c.rrd", "c", chunk("/z", [9], 1000)),
    ]
    found.register(base, executor="inline").wait()
    more = write(folder / "more.rrd", "a", chunk("/x", [7, 8]))
    found.register(more, layer_name="more", executor="inline").wait()
    return found


def measured(frame: Callable[[], DataFrame], action: Callable[[DataFrame], Any] = DataFrame.collect) -> QueryMetrics:
    """The metrics of one action on a frame."""
    with query_metrics() as metrics:
        made = frame()
    getattr(made, action.__name__)()
    (found,) = metrics.queries
    return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each read of a file, counted where they are read."""
    sizes: list[int] = []
    pread, preadv, get_range = os.pread, os.preadv, LocalFolder.get_range

    def counted_pread(*args: Any) -> bytes:
        found = pread(*args)
        sizes.append(len(found))
        return found

    def counted_preadv(*args: Any) -> int:
        sizes.append(preadv(*args))
        return sizes[-1]

    def counted_range(*args: Any) -> bytes:
        found = get_range(*args)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(os, "pread", counted_pread)
    monkeypatch.setattr(os, "preadv", counted_preadv)
    monkeypatch.setattr(LocalFolder, "get_range", counted_range)
    return sizes


# --- numbers


def test_the_plan_of_a_whole_read(dataset: DatasetEntry) -> None:
    found = measured(lambda: dataset.reader("frame"))
    table = dataset.manifest().to_arrow_table()
    assert found.dataset_id == str(dataset.id)
    assert (found.query_chunks, found.query_segments, found.query_layers) == (6, 3, 2)
    assert (found.query_columns, found.query_entities) == (5, 3)
    assert found.query_chunks_per_segment_min, found.query_chunks_per_segment_max == (1, 3)
    assert found.query_chunks_per_segment_mean == 2.0
    assert 0 < found.query_bytes < sum(table["rerun_size_bytes"].to_pylist())
    assert (found.query_type, found.primary_index_name) == ("full_scan", "frame")
    assert (found.filters_pushed_down, found.filters_applied_client_side) == (0, 0)
    assert not found.entity_path_narrowing_applied
    assert found.error_kind is None and found.direct_terminal_reason is None
    assert timedelta(0) < found.time_to_first_chunk_info <= found.time_to_first_chunk <= found.total_duration


def test_bytes_and_requests_are_what_files_were_asked_for(dataset: DatasetEntry, reads: list[int]) -> None:
    found = measured(lambda: (dataset.reader("frame"), reads.clear())[0])
    assert (found.fetch_bytes, found.fetch_requests) == (sum(reads), len(reads))
    assert (found.fetch_direct_bytes, found.fetch_direct_requests) == (found.fetch_bytes, found.fetch_requests)
    assert found.fetch_direct_merged_ranges == found.fetch_requests <= found.fetch_direct_original_ranges
    assert found.fetch_direct_max_attempt == 2
    assert (found.fetch_grpc_bytes, found.fetch_grpc_requests) == (0, 0)


@pytest.mark.parametrize(
    ("ask", "chunks", "segments", "entities", "kind", "filters"),
    [
        (lambda d: d.filter_segments("b").reader("frame"), 2, 1, 2, "full_scan", (0, 0)),
        (lambda d: d.filter_contents("/x").reader("frame"), 3, 2, 1, "full_scan", (0, 0)),
        (lambda d: d.reader("frame").filter(col("frame") > 8), 1, 1, 3, "range", (1, 0)),
        (lambda d: d.reader("frame", fill_latest_at=True).filter(col("frame") >= 7), 4, 2, 3, "dataframe", (1, 0)),
        (lambda d: d.reader("frame").filter(col("rerun_segment_id") == lit("a")), 3, 1, 3, "full_scan", (1, 0)),
        (lambda d: d.reader("frame").filter(col("frame").between(lit(1), lit(3))), 2, 1, 3, "range", (2, 0)),
        (lambda d: d.reader("frame").filter(col('"/z:value"').is_not_null()), 1, 1, 3, "full_scan", (1, 0)),
        (lambda d: d.reader("frame").filter(f.length(col("rerun_segment_id")) > 9), 6, 3, 3, "full_scan", (0, 0)),
        (lambda d: d.reader("frame", using_index_values=[2], fill_latest_at=True), 2, 1, 3, "latest_at", (0, 0)),
        (lambda d: d.reader("frame", using_index_values={"c": [9]}), 1, 1, 3, "range", (0, 0)),
        (lambda d: d.reader(None), 0, 0, 3, "static", (0, 0)),
    ],
)
def test_the_plan_of_a_narrower_read(
    dataset: DatasetEntry,
    ask: Callable[[DatasetEntry], DataFrame],
    chunks: int,
    segments: int,
    entities: int,
    kind: str,
    filters: tuple[int, int],
) -> None:
    found = measured(lambda: ask(dataset))
    assert (found.query_chunks, found.query_segments, found.query_entities) == (chunks, segments, entities)
    assert (found.query_type, (found.filters_pushed_down, found.filters_applied_client_side)) == (kind, filters)


def test_selected_entities_narrow_by_the_rules_of_rerun(dataset: DatasetEntry) -> None:
    rerun = CatalogClient(dataset.catalog.url, semantics="rerun-0.33").get_dataset("drives")
    found = measured(lambda: rerun.reader("frame").select("frame", "/x:value"))
    assert (found.entity_path_narrowing_applied, found.query_entities, found.query_chunks) == (True, 1, 3)
    found = measured(lambda: rerun.reader("frame", fill_latest_at=True).select("frame", "/x:value"))
    assert (found.entity_path_narrowing_applied, found.query_entities) == (False, 3)


# --- whose they are


def test_scopes_are_bound_when_the_frame_is_made(dataset: DatasetEntry) -> None:
    before = dataset.reader("frame")
    with query_metrics() as outer:
        kept = dataset.reader("frame")
        before.collect()
        with query_metrics() as inner:
            dataset.reader("frame").count()
        assert (len(outer.queries), len(inner.queries)) == (1, 1)
    dataset.reader("frame").collect()
    kept.collect()
    kept.select("frame").collect()
    assert (len(outer.queries), len(inner.queries)) == (3, 1)
    assert outer.last_query() is outer.queries[-1]
    outer.clear()
    assert (outer.queries, outer.last_query(), len(inner.queries)) == ([], None, 1)


def test_other_threads_are_seen_with_the_context_alone(dataset: DatasetEntry) -> None:
    def ask() -> None:
        dataset.reader("frame").collect()

    with query_metrics() as metrics:
        context = contextvars.copy_context()
        for target in (ask, lambda: context.run(ask)):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    assert len(metrics.queries) == 1


def test_what_is_planned_but_not_executed_is_no_query(dataset: DatasetEntry) -> None:
    with query_metrics() as metrics:
        frame = dataset.reader("frame").filter(col("frame") > 1)
        frame.execution_plan()
        frame.schema()
    assert metrics.queries == []


# --- those that do not end as planned


def test_a_limit_ends_a_query_early(dataset: DatasetEntry) -> None:
    limited, whole = (measured(lambda n=n: dataset.reader("frame").limit(n)) for n in (1, 100))
    assert limited.query_chunks == whole.query_chunks == 6
    assert limited.error_kind is None
    assert 0 < limited.fetch_bytes <= whole.fetch_bytes


def test_a_stream_that_is_dropped_is_a_query(dataset: DatasetEntry) -> None:
    with query_metrics() as metrics:
        stream = dataset.filter_segments("a").reader("frame").execute_stream()
        next(stream)
        assert metrics.queries == []
        del stream
    assert metrics.last_query() is not None


@pytest.mark.parametrize(("damage", "kind", "reason"), [("gone", "direct_fetch", "other"), ("bytes", "decode", None)])
def test_a_query_that_fails(dataset: DatasetEntry, tmp_path: Path, damage: str, kind: str, reason: str | None) -> None:
    path = tmp_path / "copy.rrd"
    write(path, "copy", chunk("/x", [1], 500))
    copy = CatalogClient(tmp_path / "lake").create_dataset("copy")
    copy.register(str(path), executor="inline").wait()
    if damage == "gone":
        path.unlink()
    else:
        status, data = path.stat(), bytearray(path.read_bytes())
        middle = len(data) // 3
        data[middle] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with query_metrics() as metrics, pytest.raises(ReadError):
        copy.reader("frame").collect()
    found = metrics.last_query()
    assert found is not None and (found.error_kind, found.direct_terminal_reason) == (kind, reason)


def test_a_collector_can_be_read_afterwards() -> None:
    with query_metrics() as metrics:
        assert isinstance(metrics, MetricsCollector)
    assert metrics.queries == [] and metrics.last_query() is None


# --- the page of the chunk API

PAGE = SHARED / "reference" / "chunk-api.txt"


@pytest.mark.wide
@pytest.mark.parametrize("kind", [MetricsCollector, QueryMetrics])
def test_metrics_have_the_names_of_the_page(kind: type) -> None:
    if not PAGE.exists():
        pytest.skip("the page is not at hand")
    text = PAGE.read_text(encoding="utf-8")
    section = re.split(r"\n(?:class|def query_metrics)", text.split(f"\nclass {kind.__name__}", 1)[1], maxsplit=1)[0]
    named = re.findall(r"^def (\w+)\(|^(\w+) property$", section, re.M)
    assert len(named) >= 2
    for method, prop in named:
        assert callable(getattr(kind, method)) if method else isinstance(getattr(kind, prop), property)
    assert "def query_metrics()" in text and not inspect.signature(query_metrics).parameters


def test_metrics_have_the_fields_of_rerun() -> None:
    theirs = pytest.importorskip("rerun.experimental").QueryMetrics
    fields = {field.name: str(field.type).replace("datetime.", "") for field in dataclasses.fields(theirs)}
    ours = {field.name: str(field.type) for field in dataclasses.fields(QueryMetrics)}
    newer = {"delivered_rows", "delivered_bytes"}  # of 0.41
    assert len(ours) == 32 and newer < ours.keys()
    assert {name: fields.get(name, ours[name] if name in newer else None) for name in ours} == ours
