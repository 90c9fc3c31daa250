"""The calls of Rerun's SDK that read a dataset with one recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from datafusion import col, lit
from rerun.catalog import ComponentColumnSelector, ContentFilter
from sdk_answers import Ask, digests

try:
    from rerun.chunk import RrdReader
except ImportError:
    from rerun.experimental import RrdReader

FEW = 3

MOST, MOST_BYTES = 30_000, 20_000_000
"""The rows and bytes up to which all entities are read at once.

The SDK joins them to a wide table: of 120,000 rows of 27 entities it makes more than 20 GB.
"""

Calls = Iterator[tuple[str, Ask]]


def recording_calls(dataset: Any, segments: list[str], folder: Path) -> Calls:
    """All calls that read, by what they are called here."""
    yield "segment ids", partial(sorted_of, dataset.segment_ids)
    yield "arrow schema", dataset.arrow_schema
    yield from schema_calls(dataset.schema())
    yield "segment table", dataset.segment_table
    yield "manifest", dataset.manifest
    yield "whole manifest", partial(dataset.manifest, include_diagnostic_data=True)
    yield "ranges", dataset.get_index_ranges
    yield "static", partial(dataset.reader, None)
    yield "by no such index", partial(dataset.reader, "no such index")
    paths, is_large = sorted(dataset.schema().entity_paths()) or ["/none"], is_much(dataset, segments)
    read = dataset.filter_contents(paths[:FEW]) if is_large else dataset
    for index in indexes_of(read):
        yield from index_calls(read, segments, index, dataset.catalog.ctx)
    yield from selection_calls(dataset, segments)
    for name, contents in [] if is_large else contents_of(paths):
        yield from contents_calls(name, dataset.filter_contents(contents), segments)
    if hasattr(dataset, "info"):
        yield "info", dataset.info
        yield from layer_calls(dataset)
    for segment in segments:
        yield from segment_calls(dataset, segment, folder)


def schema_calls(schema: Any) -> Calls:
    """The calls of a schema."""
    for properties in (False, True):
        options, name = {"include_properties": properties}, "with properties" if properties else "schema"
        yield f"{name}: entities", partial(schema.entity_paths, **options)
        yield f"{name}: archetypes", partial(schema.archetypes, **options)
        yield f"{name}: component types", partial(schema.component_types, **options)
        yield f"{name}: columns", partial(by_name, schema.columns_for, **options)
        yield f"{name}: names of columns", partial(sorted_of, schema.column_names_for, **options)
    yield "schema: indexes", partial(by_name, schema.index_columns)
    yield "schema: components", partial(by_name, schema.component_columns)
    yield "schema: names", partial(sorted_of, schema.column_names)
    if hasattr(schema, "to_arrow"):
        yield "schema: as Arrow", schema.to_arrow
    for column in by_name(schema.component_columns)[:FEW]:
        yield "schema: one column", partial(schema.column_for, column.entity_path, column.component)
        yield "schema: one by a text", partial(schema.column_for_selector, column.name)
        selector = ComponentColumnSelector(column.entity_path, column.component)
        yield "schema: one by a selector", partial(schema.column_for_selector, selector)
        yield "schema: the selector", lambda selector=selector: selector
    yield "schema: no column", partial(schema.column_for, "/none", "none")
    yield "schema: no selector", partial(schema.column_for_selector, "/none:none")


def index_calls(dataset: Any, segments: list[str], index: str, context: Any) -> Calls:
    """Reading rows by an index, in all ways."""
    read, by = partial(dataset.reader, index), col(f'"{index}"')
    yield f"rows by {index}", read
    yield f"count by {index}", lambda: read().count()
    every = {"include_semantically_empty_columns": True, "include_tombstone_columns": True}
    yield f"all columns by {index}", partial(read, **every)
    yield f"filled by {index}", partial(read, fill_latest_at=True)
    names = sorted(name for name in read().schema().names if ":" in name)
    for name in sorted({*names[:1], *names[-1:]}):
        yield f"{name} by {index}", partial(columns_of, read, "rerun_segment_id", index, name)
    values = values_of(read(), index)
    if not len(values):
        return
    frame = pa.table({"rerun_segment_id": segments, index: values.take([0] * len(segments))})
    array = values.to_numpy(zero_copy_only=False)
    ways = {"all": array, "each": dict.fromkeys(segments, array), "a frame": context.from_arrow(frame)}
    for way, wanted in ways.items():
        at = partial(read, using_index_values=wanted)
        yield f"at values of {index}, for {way}", at
        yield f"filled at values of {index}, for {way}", partial(at, fill_latest_at=True)
    first, last = lit(values[0]), lit(values[-1])
    yield f"{index} from a value on", lambda: read().filter(by >= first)
    yield f"{index} at a value", lambda: read().filter(by == last)
    one = col("rerun_segment_id") == lit(segments[0])
    yield f"{index} up to a value, of a segment", lambda: read(fill_latest_at=True).filter((by < last) & one)


def columns_of(read: Any, *names: str) -> Any:
    """Some columns of a frame."""
    return read().select(*(f'"{name}"' for name in names))


def is_much(dataset: Any, segments: list[str]) -> bool:
    """Whether the SDK cannot read all entities at once in a few GB."""
    rows = size = 0
    for segment in segments:
        for chunk in dataset.segment_store(segment).stream().to_chunks():
            rows += chunk.num_rows
            size += chunk.to_record_batch().nbytes
    return rows > MOST or size > MOST_BYTES


def selection_calls(dataset: Any, segments: list[str]) -> Calls:
    """The calls of a view of some segments."""
    some, nothing = dataset.filter_segments(segments[:1]), dataset.filter_segments("no such segment")
    yield "view: dataset", lambda: some.dataset.name == dataset.name
    yield "view: segment ids", some.segment_ids
    yield "view: segment table", some.segment_table
    yield "view: schema", partial(by_name, some.schema().component_columns)
    yield "view: arrow schema", some.arrow_schema
    yield "view: ranges", some.get_index_ranges
    yield "view: segments of it", lambda: some.filter_segments(segments).segment_ids()
    yield "view: contents of it", lambda: some.filter_contents("/**").arrow_schema()
    yield "view: of a frame", lambda: sorted(dataset.filter_segments(dataset.segment_table()).segment_ids())
    yield "view: expressions", partial(ContentFilter.everything().exclude("/a").to_exprs)
    yield "view: of no such segment", nothing.segment_ids
    yield "view: table of no such segment", nothing.segment_table
    yield "view: static of no such segment", partial(nothing.reader, None)


def contents_of(paths: list[str]) -> Iterator[tuple[str, Any]]:
    """Filters of contents, each with a name."""
    yield "one entity", paths[:1]
    yield "all but one entity", ["/**", f"- {paths[0]}"]
    yield "no such entity", "/no/such/entity"
    yield "everything", ContentFilter.everything()
    yield "nothing", ContentFilter.nothing()
    yield "one entity and properties", ContentFilter.nothing().include(paths[0]).include_properties()
    yield "all but the last", ContentFilter.everything().exclude(paths[-1])


def contents_calls(name: str, view: Any, segments: list[str]) -> Calls:
    """The calls of a view of some contents."""
    yield f"{name}: schema", view.arrow_schema
    yield f"{name}: static", partial(view.reader, None)
    for index in indexes_of(view)[:1]:
        yield f"{name}: by {index}", partial(view.reader, index)
        yield f"{name}: filled by {index}", partial(view.filter_segments(segments).reader, index, fill_latest_at=True)


def layer_calls(dataset: Any) -> Calls:
    """The calls of a layer."""
    layer = dataset.layer("base")
    yield "layer: name", lambda: layer.name
    yield "layer: dataset", lambda: layer.dataset.name == dataset.name
    yield "layer: segment ids", partial(sorted_of, layer.segment_ids)


def segment_calls(dataset: Any, segment: str, folder: Path) -> Calls:
    """The calls of one segment."""
    yield "url", partial(dataset.segment_url, segment)
    for index in indexes_of(dataset):
        yield f"url at {index}", partial(dataset.segment_url, segment, index, 1, 2)
        yield f"url after {index}", partial(dataset.segment_url, segment, index, timedelta(seconds=1))
    store = dataset.segment_store(segment)
    yield "store: summary", store.summary
    yield "store: schema", partial(by_name, store.schema().component_columns)
    yield "store: chunks", lambda: by_ids(store.stream().to_chunks())
    yield "store: static chunks", lambda: by_ids(store.stream().filter(is_static=True).to_chunks())
    yield "store: written", lambda: written(store, folder / "written.rrd")
    if hasattr(dataset, "download_segment"):
        yield "download", lambda: values_in(dataset.download_segment(segment).chunks())
    if hasattr(dataset, "segment"):
        yield from segment_object_calls(dataset, segment)


def segment_object_calls(dataset: Any, segment: str) -> Calls:
    """What there is of one segment from 0.41 on."""
    one = dataset.segment(segment)
    yield "segment: id", lambda: one.id
    yield "segment: text", lambda: str(one)
    yield "segment: dataset", lambda: one.dataset.name == dataset.name
    yield "segment: url", lambda: one.url
    yield "segment: layers", one.layers
    yield "segment: schema", lambda: one.schema().to_arrow()
    yield "segment: schema with assets", lambda: one.schema(include_assets=True).to_arrow()
    yield "segment: assets", partial(dataset.assets_for_segment, segment)
    without = dataset.segment_store(segment, include_assets=False)
    yield "store without assets", lambda: by_ids(without.stream().to_chunks())


def by_name(call: Any, **options: Any) -> list[Any]:
    """Columns in the order of their names, as they come in none."""
    return sorted(call(**options), key=lambda column: str(column.name))


def sorted_of(call: Any, **options: Any) -> list[Any]:
    """A list that comes in no order."""
    return sorted(call(**options))


def indexes_of(dataset: Any) -> list[str]:
    """The names of all indexes, sorted."""
    return sorted(column.name for column in dataset.schema().index_columns())


def values_of(frame: Any, index: str) -> Any:
    """A few values of an index that are in a frame."""
    if index not in frame.schema().names:
        return []
    values = frame.select(f'"{index}"').to_arrow_table()[0].drop_null().unique().sort()
    return values[:: max(1, len(values) // FEW)]


def by_ids(chunks: list[Any]) -> dict[str, Any]:
    """Chunks by their ids, which are those in the file."""
    return {f"chunk {chunk.id}": chunk.to_record_batch() for chunk in chunks}


def values_in(chunks: Iterable[Any]) -> dict[str, Any]:
    """Each value with its row, whatever chunk it is in: a store in memory joins some, by the order they come in."""
    found: dict[str, list[Any]] = {"entity": [], "row": [], "column": [], "digest": []}
    for batch in (chunk.to_record_batch() for chunk in chunks):
        entity, rows = batch.schema.metadata[b"rerun:entity_path"].decode(), batch["rerun.controls.RowId"].to_pylist()
        for field in batch.schema:
            if field.name == "rerun.controls.RowId":
                continue
            column = batch[field.name]
            for row, value, is_valid in zip(rows, digests(column), column.is_valid().to_pylist(), strict=True):
                if is_valid:
                    found["entity"].append(entity)
                    found["row"].append(row.hex())
                    found["column"].append(f"{field.name} {field.type}")
                    found["digest"].append(value)
    return {"values": pa.RecordBatch.from_pydict(found)}


def written(store: Any, target: Path) -> dict[str, Any]:
    """The chunks of the file that a store writes."""
    store.write_rrd(target, application_id="tests", recording_id="written")
    return by_ids(RrdReader(target).stream().to_chunks())
