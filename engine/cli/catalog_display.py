"""The display of catalogs: their entries, and the segments, layers and columns of a dataset."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from ...readers import TimelineReport
from ..catalog import DatasetEntry, EntryKind, TableEntry, is_catalog
from ..chunk import ComponentColumnDescriptor, IndexColumnDescriptor, TimelineKind
from ..errors import SourceMissingError
from ..locations import located
from ..recordings import RecordingEntry, RecordingsFolder
from ..store import RecordingStore
from ..units import counted, size, utc_time
from .inspection import Heading, print_columns, start_and_length


def kind_of(entry: DatasetEntry | TableEntry) -> str:
    """The kind of an entry in words."""
    return entry.kind.name.lower().replace("_", " ")


def no_catalog(lake: str, or_else: str = "") -> SourceMissingError:
    """Return the error for a place without a catalog; its hint names a catalog next to it with a similar name."""
    place = located(lake)
    names: list[str] = []
    if isinstance(place, Path) and place.parent.is_dir():
        names = [each.name for each in place.parent.iterdir() if each != place and is_catalog(each)]
    close = get_close_matches(place.name, names, 1)
    meant = f"Did you mean {str(Path(lake).with_name(close[0]))!r}? " if close else ""
    create = f"`chunkmill catalog create {shlex.quote(lake)} NAME` creates a catalog with a dataset."
    return SourceMissingError("there is no catalog here", path=lake, hint=f"{meant}{create} {or_else}".rstrip())


def facts_of(entry: DatasetEntry | TableEntry) -> dict[str, Any]:
    """An entry as JSON data; a dataset with the counts of its newest version."""
    facts: dict[str, Any] = {"name": entry.name, "id": str(entry.id), "kind": kind_of(entry)}
    if not isinstance(entry, DatasetEntry):
        return facts | ({"url": entry.storage_url} if entry.storage_url else {})
    newest = RecordingsFolder(os.fspath(entry)).newest()
    counts = ("chunks", "rows", "bytes")
    is_hidden = entry.kind is not EntryKind.DATASET
    segments = len(entry.segment_ids()) if is_hidden else getattr(newest, "recordings", 0)
    return {
        **facts,
        "url": entry.manifest_url,
        "created": utc_time(entry.created_at.timestamp()),
        "updated": utc_time(entry.updated_at.timestamp()),
        "version": 0 if newest is None else newest.number,
        "segments": segments,
        **{name: getattr(newest, name, 0) for name in counts},
        "default_blueprint": entry.default_blueprint(),
    }


def print_entries(lake: str, facts: Sequence[dict[str, Any]]) -> None:
    """Print a line on a catalog, and a table of its entries."""
    datasets = [fact for fact in facts if fact["kind"] == "dataset"]
    tables = sum(fact["kind"] == "table" for fact in facts)
    click.echo(f"{lake}: {counted(len(datasets), 'dataset')}" + f", {counted(tables, 'table')}" * bool(tables))
    if not facts:
        return
    click.echo()
    kinds = {fact["kind"] for fact in facts}
    rows = [
        (
            fact["name"],
            fact["kind"] if len(kinds) > 1 else "",
            *((f"{fact['segments']:,}", size(fact["bytes"]), fact["updated"]) if "segments" in fact else ("", "", "")),
            fact["id"],
        )
        for fact in facts
    ]
    headings = [Heading("name"), Heading("kind", 2), Heading("segments", 0, is_number=True)]
    headings += [Heading("bytes", 1, is_number=True), Heading("changed", 3), Heading("id", 4)]
    print_columns(headings, rows)


def layers_of(dataset: DatasetEntry) -> list[RecordingEntry]:
    """The layers of a dataset, in the order of their arrival; empty if it is new."""
    if RecordingsFolder(os.fspath(dataset)).newest() is None:
        return []
    store = RecordingStore.open(dataset)
    return store.blueprints() if dataset.kind is EntryKind.BLUEPRINT_DATASET else store.recordings()


def show_segments(lake: str, dataset: DatasetEntry, *, everything: bool, as_json: bool) -> None:
    """Print a dataset, as JSON or as tables; ``everything``: also its columns, and the files of layers."""
    facts = facts_of(dataset)
    segments: dict[str, list[RecordingEntry]] = {}
    for layer in layers_of(dataset):
        segments.setdefault(layer.recording_id, []).append(layer)
    if as_json:
        segment_list = [_segment(name, layers) for name, layers in segments.items()]
        columns = [_column(column) for column in dataset.schema()] if everything else None
        data = {**facts, "blueprints": dataset.blueprints(), "segment_list": segment_list, "columns": columns}
        click.echo(json.dumps({k: v for k, v in data.items() if v is not None}, indent=2, ensure_ascii=False))
        return
    counts = [counted(len(segments), "segment"), counted(sum(map(len, segments.values())), "layer")]
    click.echo(
        f"{lake}: {facts['kind']} {facts['name']!r}, {', '.join(counts)}, {counted(facts['rows'], 'row')}, "
        f"{size(facts['bytes'])}, version {facts['version']}"
    )
    click.echo(f"its store is {facts['url']}")
    if facts["default_blueprint"] is not None:
        click.echo(f"its segments are shown with blueprint {facts['default_blueprint']}")
    if segments:
        click.echo()
        _print_segments(segments, everything=everything)
    if everything:
        click.echo()
        _print_schema(dataset)


def _segment(name: str, layers: Sequence[RecordingEntry]) -> dict[str, Any]:
    """A segment as JSON data."""
    return {
        "segment_id": name,
        "application_id": layers[0].application_id,
        "layers": [layer.to_dict() for layer in layers],
    }


def _print_segments(segments: Mapping[str, Sequence[RecordingEntry]], *, everything: bool) -> None:
    """Print a row for each segment, or with ``everything`` for each of its layers."""
    rows = []
    for name, layers in segments.items():
        for some in [[layer] for layer in layers] if everything else [layers]:
            files = ", ".join(dict.fromkeys(layer.source for layer in some))
            name_of_file = some[0].source.rstrip("/").rpartition("/")[2]
            rows.append(
                (
                    name,
                    "" if everything else name_of_file,
                    ", ".join(layer.layer for layer in some),
                    f"{sum(layer.rows for layer in some):,}",
                    f"{sum(layer.chunks for layer in some):,}",
                    size(sum(layer.bytes for layer in some)),
                    *start_and_length(_timelines(some)),
                    utc_time(max(layer.added for layer in some), "seconds"),
                    files if everything else "",
                    ("in place" if some[0].in_place else "in shards") if everything else "",
                )
            )
    headings = [Heading("segment"), Heading("source", 3), Heading("layers", 1), Heading("rows", 0, is_number=True)]
    headings += [Heading("chunks", 6, is_number=True), Heading("bytes", 2, is_number=True), Heading("start", 7)]
    headings += [Heading("length", 4, is_number=True), Heading("added", 5), Heading("file", 8), Heading("stored", 9)]
    print_columns(headings, rows)


def _timelines(layers: Sequence[RecordingEntry]) -> list[TimelineReport]:
    """The timelines of a segment, over all its layers."""
    timelines: dict[str, TimelineReport] = {}
    for index_range in (index_range for layer in layers for index_range in layer.ranges or ()):
        earlier = timelines.get(index_range.name)
        start = index_range.start if earlier is None or earlier.start is None else min(earlier.start, index_range.start)
        end = index_range.end if earlier is None or earlier.end is None else max(earlier.end, index_range.end)
        timelines[index_range.name] = TimelineReport(index_range.name, TimelineKind(index_range.kind), start, end)
    return list(timelines.values())


def _column(column: IndexColumnDescriptor | ComponentColumnDescriptor) -> dict[str, Any]:
    """A column as JSON data."""
    if isinstance(column, IndexColumnDescriptor):
        return {"name": column.name, "type": str(column.kind.arrow_type), "is_index": True, "is_static": False}
    return {"name": column.name, "type": str(column.datatype), "is_index": False, "is_static": column.is_static}


def _print_schema(dataset: DatasetEntry) -> None:
    columns = [_column(column) for column in dataset.schema()]
    kinds = {(True, False): "index", (False, True): "static"}
    rows = [
        (column["name"], kinds.get((column["is_index"], column["is_static"]), ""), column["type"]) for column in columns
    ]
    print_columns([Heading("column"), Heading("kind", 2), Heading("type", 1)], rows)
