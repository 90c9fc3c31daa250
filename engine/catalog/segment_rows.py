"""Rows of a dataset's segments in a table, as a source of views. A call updates the table.

The table's metadata has a token of the layers from which each segment's rows were read. If a segment's layers now have
another token, its rows are read again; one commit replaces the rows of all such segments. The metadata also has the
number of rows. If the table has another number, other writers changed it, and all segments are read again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError, check_argument
from ..faults import reach
from ..lance import FragmentReader, LanceTable, change_rows
from ..query import SEGMENT_ID, SegmentLayers
from ..rrd import digest_of
from ..storage import publish
from ..tables import NativeTable, TableConnection

Places = npt.NDArray[np.uint64]
_QUERY: Final = "chunkmill:rows:query"
_SEGMENTS: Final = "chunkmill:rows:segments"
_COUNT: Final = "chunkmill:rows:count"
_MARKS: Final = ("layer", "added", "segment_version", "source_digest")
"""The columns that distinguish a layer from its replacement."""
_MOST_ROUNDS: Final = 20
_DIGITS: Final = 16


class ViewedSegments(Protocol):
    """The members of ``DatasetView`` that a table of its rows needs."""

    @property
    def dataset(self) -> Any:
        """The dataset."""
        ...

    def layers(self) -> SegmentLayers:
        """The layers of the segments."""
        ...

    def filter_segments(self, segment_ids: Sequence[str], /) -> ViewedSegments:
        """Some of the segments."""
        ...

    def reader(self, index: str | None, *, fill_latest_at: bool = False) -> Any:
        """The rows of the segments, as a DataFrame of DataFusion."""
        ...


def followed(
    view: ViewedSegments,
    tables: TableConnection,
    name: str,
    index: str | None,
    columns: Sequence[str] | None,
    *,
    contents: Sequence[str] | None,
    fill_latest_at: bool,
) -> NativeTable:
    """Create or update the table of :meth:`DatasetView.rows_table`. ``contents`` are the view's entities."""
    check_argument("tables", tables, TableConnection)
    schema = _schema_of(view, index, columns, fill_latest_at=fill_latest_at)
    given = [None if names is None else list(names) for names in (columns, contents)]
    query = json.dumps([str(view.dataset.id), index, *given, fill_latest_at])
    table = LanceTable(tables.place_of(name), name, tables.gate)
    table.create(schema.with_metadata({_QUERY: query, _SEGMENTS: "{}", _COUNT: "0"}))

    def attempt() -> NativeTable | None:
        reader = table.at()
        metadata = reader.schema.metadata or {}
        if metadata.get(_QUERY.encode()) != query.encode():
            raise UsageError(
                f"the table {name!r} already holds other rows than these of {view.dataset.name!r}",
                path=table.place,
                hint="Choose another name, or drop the table.",
            )
        new = [field for field in schema if field.name not in reader.schema.names]
        if new:
            table.add_null_columns(new)
            return None  # try again with the new version
        num_rows = sum(fragment.rows - fragment.deleted for fragment in reader.fragments)
        is_own = metadata.get(_COUNT.encode()) == str(num_rows).encode()
        stored_tokens: dict[str, str] = json.loads(metadata[_SEGMENTS.encode()]) if is_own else {}
        now = layer_tokens(view)
        changed = [segment for segment, token in now.items() if stored_tokens.get(segment) != token]
        if is_own and not changed and stored_tokens.keys() <= now.keys():
            return tables.open_table(name)
        rows = _CountedRows(_rows_of(view, changed, reader.schema, index, fill_latest_at=fill_latest_at))
        written = (
            table.written(pa.RecordBatchReader.from_batches(reader.schema, iter(rows)), "append") if changed else []
        )
        live, going = _places(reader, stored_tokens.keys() - (now.keys() - set(changed)) if is_own else None)
        reach("view.commit")
        new_metadata = {_SEGMENTS: json.dumps(now), _COUNT: str(num_rows - len(going) + rows.count)}
        made = change_rows(table, reader.version, going, live, written, new_metadata, "rows")
        return None if made is None else tables.open_table(name)

    return publish(attempt, f"the table {name!r}", path=table.place, most=_MOST_ROUNDS)


def dataset_of_rows(schema: pa.Schema) -> str | None:
    """Return the dataset id of a table that :func:`followed` made, or None for another table."""
    query = (schema.metadata or {}).get(_QUERY.encode())
    return None if query is None else str(json.loads(query)[0])


def without_segments(table: LanceTable, segment_ids: Collection[str]) -> None:
    """Remove the rows and the metadata of segments, in one commit, from a table that :func:`followed` made."""

    def attempt() -> bool | None:
        reader = table.at()
        metadata = reader.schema.metadata or {}
        tokens: dict[str, str] = json.loads(metadata[_SEGMENTS.encode()])
        live, going = _places(reader, segment_ids)
        if not len(going) and not tokens.keys() & set(segment_ids):
            return False
        count = int(metadata[_COUNT.encode()]) - len(going)
        kept = {segment: token for segment, token in tokens.items() if segment not in segment_ids}
        new_metadata = {_SEGMENTS: json.dumps(kept), _COUNT: str(count)}
        made = change_rows(table, reader.version, going, live, (), new_metadata, "rows")
        return None if made is None else True

    publish(attempt, table.title, path=table.place, most=_MOST_ROUNDS)


def layer_tokens(view: ViewedSegments) -> dict[str, str]:
    """A token of each segment's layers. It changes when a layer is added, removed or replaced."""
    layers = view.layers()
    marks = list(zip(*(layers.rows[mark].to_pylist() for mark in _MARKS), strict=True))
    bounds = [*layers.starts.tolist(), len(marks)]
    return {
        segment: digest_of(json.dumps(sorted(marks[begin:end], key=str)).encode()).hex()[:_DIGITS]
        for segment, begin, end in zip(layers.segments.to_pylist(), bounds, bounds[1:], strict=False)
    }


def _schema_of(
    view: ViewedSegments, index: str | None, columns: Sequence[str] | None, *, fill_latest_at: bool
) -> pa.Schema:
    """The columns of the table: the segment, the index, and the chosen columns, by default all."""
    whole: pa.Schema = view.reader(index, fill_latest_at=fill_latest_at).schema()
    names = whole.names if columns is None else [SEGMENT_ID, *([] if index is None else [index]), *columns]
    if missing := [name for name in names if name not in whole.names]:
        raise UsageError(f"there are no columns {missing}", hint=f"There are: {', '.join(whole.names)}.")
    wanted = dict.fromkeys(names)
    by_name: dict[str, str] = {}
    for name in wanted:
        other = by_name.setdefault(_in_table(name), name)
        if other != name:
            raise UsageError(
                f"{other!r} and {name!r} would have the same name {_in_table(name)!r} in the table",
                hint="Choose one of them by columns=.",
            )
    return pa.schema([pa.field(_in_table(name), whole.field(name).type) for name in wanted])


def _in_table(column: str) -> str:
    """The name of a dataset's column in a table, without dots: Lance does not allow them."""
    return column.replace(".", "_")


def _rows_of(
    view: ViewedSegments, segments: Sequence[str], schema: pa.Schema, index: str | None, *, fill_latest_at: bool
) -> Iterator[pa.RecordBatch]:
    frame = view.filter_segments(segments).reader(index, fill_latest_at=fill_latest_at)
    source_names = {_in_table(name): name for name in frame.schema().names}
    for datafusion_batch in frame.execute_stream():
        batch: pa.RecordBatch = datafusion_batch.to_pyarrow()
        rows = batch.num_rows
        columns = [
            batch.column(source_names[field.name]).cast(field.type)
            if field.name in source_names
            else pa.nulls(rows, field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


class _CountedRows:
    """Batches, and the number of rows taken so far."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.count = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.count += batch.num_rows
            yield batch


def _places(reader: FragmentReader, segments: Collection[str] | None) -> tuple[Places, Places]:
    """The addresses of all rows, and of the rows of some segments (None: all)."""
    live, going = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    wanted = None if segments is None else pa.array(sorted(segments), pa.string())
    for batch in reader.expressed({"id": SEGMENT_ID, "at": "_rowaddr"}):
        places = batch.column("at").to_numpy()
        live.append(places)
        is_going = ... if wanted is None else np.asarray(pc.is_in(batch.column("id"), wanted), dtype=bool)
        going.append(places[is_going])
    return np.concatenate(live), np.concatenate(going)
