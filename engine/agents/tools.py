"""Tools with which an agent reads a lake. They only take names of its entries, so that nothing else can be read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import json_of
from ..errors import NotFoundError, UsageError
from ..query import Query
from ..rrd import ChunkTable
from ..stream import ContentFilter
from .answers import AnswerPage, Row, plotted, shown_text

if TYPE_CHECKING:
    from ..catalog import CatalogClient, CatalogContext, DatasetEntry, DatasetView

TOOLS: Final = ("list_entries", "describe", "segments", "rates", "rows", "sql", "find", "plot")

_PLACES: Final = "rerun_storage_urls"
"""The column of segments with the places of files, which agents do not need."""
_ABOUT_CHANNELS: Final = re.compile(r":Mcap(Channel|Schema):")
_READING: Final = re.compile(r"\(*\s*(select|with|values|table|show|describe|desc|explain)\b", re.IGNORECASE)
_COMMENT: Final = re.compile(r"\s+|--[^\n]*(\n|$)|/\*.*?\*/", re.DOTALL)
_PATH: Final = re.compile(r"\.|(\.?\[\d+\]|\.[A-Za-z_]\w*)+")
_EXECUTOR: Final = re.compile(r"\bexecutor\b[\"`]?\s*(=>|:=)", re.IGNORECASE)


@dataclass(frozen=True)
class LakeTools:
    """The tools of a lake. The docstring of each tool shows the agent how to use it.

    ``most_rows`` and ``most_bytes`` limit one answer.
    """

    client: CatalogClient
    most_rows: int
    most_bytes: int

    # --- tools

    def list_entries(self, limit: int = 500, offset: int = 0) -> Row:
        """List the datasets and tables of the lake, with the number of segments or rows of each.

        Args:
            limit: The most entries to return.
            offset: The number of entries to skip.
        """
        return self._page(limit, offset).of_rows(self._entries())

    def describe(self, name: str, contents: list[str] | None = None, limit: int = 200, offset: int = 0) -> Row:
        """Describe a dataset or a table: its columns with types; for a dataset, also its indexes with ranges.

        The tool `rates` has the rates of a dataset's components, the tool `segments` its segments.

        Args:
            name: The name of the entry; see list_entries.
            contents: Only columns of these entities of a dataset, such as "/imu/**".
            limit: The most columns to return.
            offset: The number of columns to skip.
        """
        page = self._page(limit, offset)
        if name in self.client.table_names():
            frame = self.client.get_table(name).reader()
            fields = [(field.name, field.type) for field in frame.schema()]
            return {"name": name, "kind": "table", "num_rows": frame.count(), **_columns(page, fields)}
        dataset = self._dataset(name)
        view = dataset if contents is None else dataset.filter_contents(contents)
        types, schema = view.arrow_schema(), view.schema()
        segments = self._segments_of(dataset)
        fields = [(column.name, types.field(column.name).type) for column in schema.component_columns()]
        return {
            "name": name,
            "kind": "dataset",
            "num_segments": len(segments),
            "indexes": [
                {"name": c.name, "type": str(types.field(c.name).type), **_range(segments, c.name)}
                for c in schema.index_columns()
            ],
            "segment_columns": segments.column_names[: self.most_rows],
            **_columns(page, fields),
        }

    def segments(self, dataset: str, where: str | None = None, limit: int = 50, offset: int = 0) -> Row:
        """List segments (recordings, drives, episodes) of a dataset: sizes, properties, start and end of each index.

        Args:
            dataset: The name of the dataset.
            where: An SQL condition on these columns, such as "rerun_size_bytes" > 1000000.
            limit: The most segments to return.
            offset: The number of segments to skip, in the order of their ids.
        """
        name = self._dataset(dataset).name
        condition = "" if where is None else f"WHERE (\n{where}\n)"
        statement = f"SELECT * FROM {_quoted(name)} {condition} ORDER BY rerun_segment_id"  # noqa: S608 (it may read)
        return self._answered(statement, limit, offset)

    def rates(
        self,
        dataset: str,
        contents: list[str] | None = None,
        index: str | None = None,
        segments: list[str] | None = None,
        limit: int = 500,
        offset: int = 0,
    ) -> Row:
        """Show how often each component was logged in each segment: rows, first and last index value, rate in Hz.

        Reads only manifests, no data. A segment without a row in the answer lacks these components.

        Args:
            dataset: The name of the dataset.
            contents: Only components of these entities, such as "/imu" or "/camera/**".
            index: The index (timeline) of the rates; required if the dataset has several.
            segments: The ids of segments, or patterns such as "drive-*".
            limit: The most rows to return.
            offset: The number of rows to skip.
        """
        view = self._view(dataset, segments, contents)
        return self._page(limit, offset).of_rows(_rates_of(view, self._index(view, index), contents))

    def rows(
        self,
        dataset: str,
        index: str | None = None,
        contents: list[str] | None = None,
        columns: list[str] | None = None,
        segments: list[str] | None = None,
        where: str | None = None,
        fill_latest: bool = False,
        limit: int = 100,
        offset: int = 0,
    ) -> Row:
        """Read rows of a dataset by an index: one row for each index value of each segment. Values are lists.

        Args:
            dataset: The name of the dataset.
            index: An index (timeline), see describe; required if there are several.
            contents: Only columns of these entities, such as "/imu/**". Select some: by default, all are read.
            columns: The component columns to return, such as "/imu:Imu:accel".
            segments: The ids of segments, or patterns such as "drive-*".
            where: An SQL condition on the columns, such as "/car:speed"[1] > 20.
            fill_latest: Fill nulls with the latest earlier value.
            limit: The most rows to return.
            offset: The number of rows to skip. Rows are in the order of segments, then of the index.
        """
        view = self._view(dataset, segments, contents)
        chosen = self._index(view, index)
        batches = self._rows_of(view, chosen, columns, where, fill_latest)
        return self._page(limit, offset).of_batches(batches)

    def sql(self, statement: str, limit: int = 100, offset: int = 0) -> Row:
        """Run a read-only SQL query (of DataFusion) over the tables and datasets of the lake.

        A dataset's name is the table of its segments; reader('NAME', index => 'INDEX', contents => '/entity/**') is the
        table of its rows. Write column names in double quotes: "/car:speed"[1] is the first value of a list.

        Args:
            statement: One query. Use ORDER BY if you page through the rows with offset.
            limit: The most rows to return.
            offset: The number of rows to skip.
        """
        return self._answered(statement, limit, offset)

    def find(
        self,
        dataset: str,
        condition: str,
        index: str | None = None,
        window: str | None = None,
        contents: list[str] | None = None,
        segments: list[str] | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Row:
        """Find events: runs of rows in which a condition on values is true, with segment, start, end and peak.

        Args:
            dataset: The name of the dataset.
            condition: Comparisons of values, such as /imu:Imu:accel[0] < -5 AND /car:mode = 'auto'.
            index: The index of rows; required if there are several.
            window: The largest distance between matching rows of one event: "10s", or steps for an index of numbers.
            contents: Only columns of these entities.
            segments: The ids of segments, or patterns such as "drive-*".
            limit: The most events to return.
            offset: The number of events to skip.
        """
        view = self._view(dataset, segments, contents)
        steps: Any = int(window) if window is not None and window.strip().isdecimal() else window
        events = view.find(condition, index=index, window=steps, executor="inline").to_arrow_table()
        return {"num_events": len(events), **self._page(limit, offset).of_batches(events.to_batches())}

    def plot(self, dataset: str, segment: str, column: str, index: str | None = None, select: str = ".") -> bytes:
        """Plot numbers of one column of a segment over an index, as a PNG of 1000 x 400 pixels.

        Args:
            dataset: The name of the dataset.
            segment: The id of the segment.
            column: The column, such as "/imu:Imu:accel".
            index: An index (timeline); required if there are several.
            select: The path of a number within each value, such as .linear_acceleration.x or .[0].
        """
        if not _PATH.fullmatch(select):
            raise UsageError(
                f"{select!r} is not a path to a number", hint="Write it like .linear_acceleration.x or .[0]."
            )
        view = self._view(dataset, [segment], [column.partition(":")[0]])
        chosen = self._index(view, index)
        batches = self._rows_of(view, chosen, [column], None, False)
        return plotted(batches, title=f"{segment}: {column}", select=select)

    # --- parts of the tools

    @cached_property
    def _context(self) -> CatalogContext:
        from ..catalog import CatalogContext

        return CatalogContext(partial(self.client.entries), without=(_PLACES,))

    def _page(self, limit: int, offset: int) -> AnswerPage:
        return AnswerPage(limit, offset, self.most_rows, self.most_bytes)

    def _entries(self) -> Iterator[Row]:
        for name in self.client.dataset_names():
            with _counting() as row:
                row |= {"name": name, "kind": "dataset"}
                row["num_segments"] = len(self.client.get_dataset(name).segment_ids())
            yield row
        for name in self.client.table_names():
            with _counting() as row:
                row |= {"name": name, "kind": "table"}
                row["num_rows"] = self.client.get_table(name).reader().count()
            yield row

    def _dataset(self, name: str) -> DatasetEntry:
        if name not in self.client.dataset_names():
            raise NotFoundError(f"there is no dataset {name!r}", hint="The tool 'list_entries' lists them.")
        return self.client.get_dataset(name)

    def _segments_of(self, dataset: DatasetEntry) -> pa.Table:
        return dataset.segment_rows().drop_columns([_PLACES])

    def _view(self, name: str, segments: list[str] | None, contents: list[str] | None) -> DatasetView:
        from ..catalog import chosen_segments

        view: DatasetView = self._dataset(name)
        if segments is not None:
            view = view.filter_segments(chosen_segments(segments, view.segment_ids()))
        return view if contents is None else view.filter_contents(contents)

    def _index(self, view: DatasetView, index: str | None) -> str:
        names = [column.name for column in view.dataset.schema().index_columns()]
        if index in names:
            return str(index)
        if index is None and len(names) == 1:
            return names[0]
        hint = f"There are: {', '.join(names[:20])}." if names else "The dataset has none."
        raise UsageError("index is missing" if index is None else f"there is no index {index!r}", hint=hint)

    def _rows_of(
        self, view: DatasetView, index: str, columns: Sequence[str] | None, where: str | None, fill_latest: bool
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the segments, one segment after another. Each is read when it is needed."""
        names = [column.name for column in view.schema().component_columns()]
        wanted = [name for name in names if not _ABOUT_CHANNELS.search(name)] if columns is None else columns
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise UsageError(f"there is no column {unknown[0]!r}", hint="The tool 'describe' lists them.")
        for segment in view.segment_ids():
            frame: Any = view.filter_segments(segment).reader(
                index=index, fill_latest_at=fill_latest, executor="inline", include_semantically_empty_columns=True
            )
            if where is not None:
                frame = frame.filter(where)
            yield from _streamed(frame.select(*map(_quoted, ("rerun_segment_id", index, *wanted))))

    def _answered(self, statement: str, limit: int, offset: int) -> Row:
        if not _READING.match(_begun(statement)):
            raise UsageError(
                "statements must only read: SELECT, WITH, VALUES, SHOW, DESCRIBE or EXPLAIN",
                hint="Nothing was changed.",
            )
        if _EXECUTOR.search(statement):
            raise UsageError("reader() cannot have an executor here", hint="Leave it out.")
        return self._page(limit, offset).of_batches(_streamed(self._context.sql(statement, _reading())))


@contextmanager
def _counting() -> Iterator[Row]:
    """A block that fills the row of an entry. If the entry cannot be read, its row has an error."""
    row: Row = {}
    try:
        yield row
    except OSError:
        raise
    except Exception:  # noqa: BLE001 (whatever a damaged table is)
        row["error"] = "it cannot be read"


def _reading() -> Any:
    from datafusion import SQLOptions

    return SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)


def _begun(statement: str) -> str:
    """The statement without the comments before its first word."""
    place = 0
    while comment := _COMMENT.match(statement, place):
        place = comment.end()
    return statement[place:]


def _streamed(frame: Any) -> Iterator[pa.RecordBatch]:
    for batch in frame.execute_stream():
        yield batch.to_pyarrow()


def _quoted(name: str) -> str:
    """A name in SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _columns(page: AnswerPage, fields: Iterable[tuple[str, pa.DataType]]) -> Row:
    """The answer's columns, and whether they were cut."""
    answer = page.of_rows({"name": name, "type": shown_text(str(kind))} for name, kind in fields)
    return {"columns": answer.pop("rows"), **answer}


def _range(segments: pa.Table, index: str) -> Row:
    """The first start and the last end of an index over all segments."""
    ends = {}
    for name, of in (("start", pc.min), ("end", pc.max)):
        column = f"{index}:{name}"
        ends[name] = json_of(of(segments[column])) if column in segments.column_names else None
    return ends


# --- rates, from manifests only


def _rates_of(view: DatasetView, index: str, contents: Sequence[str] | None) -> Iterator[Row]:
    """The rows, the first and last index value, and the rate of each component in each segment.

    Rows with the same index value in two layers count twice. Raises ``ReadError`` for a damaged manifest.
    """
    chosen = ContentFilter.everything() if contents is None else ContentFilter(tuple(contents))
    schema = view.dataset.arrow_schema()
    kind = schema.field(index).type
    names = set(schema.names)
    query = Query.of(index, chosen, semantics=view.dataset.catalog.semantics)
    for segment in view.queried(query)[1]:
        totals: dict[str, list[int]] = {}
        for layer in segment.source.references():
            for name, rows, start, end in _of_layer(layer.table, index, chosen):
                total = totals.setdefault(name, [0, start, end])
                total[:] = total[0] + rows, min(total[1], start), max(total[2], end)
        for name in sorted(totals.keys() & names):
            rows, start, end = totals[name]
            yield {
                "rerun_segment_id": segment.segment_id,
                "column": name,
                "rows": rows,
                "start": json_of(pa.scalar(start, kind)),
                "end": json_of(pa.scalar(end, kind)),
                "rate_hz": None if pa.types.is_integer(kind) else _rate(rows, end - start),
            }


def _rate(rows: int, nanoseconds: int) -> float | None:
    return float(f"{(rows - 1) * 1e9 / nanoseconds:.6g}") if rows > 1 and nanoseconds > 0 else None


def _of_layer(table: ChunkTable, index: str, chosen: ContentFilter) -> Iterator[tuple[str, int, int, int]]:
    """The column name, the number of rows, and the first and last index value of each component of each chunk.

    A component has a range on each timeline of its chunk, in the order of the timelines.
    """
    lines, parts = table.timelines, table.components
    codes, paths = table.entity_codes
    matching = np.array([chosen.matches(path) for path in paths], np.bool_)
    is_index = np.array([name == index for name, _ in lines.keys], np.bool_)
    if not len(parts.num_rows) or not is_index.any():
        return
    cell = np.searchsorted(parts.range_ends, np.arange(len(parts.num_rows)), side="right") - 1
    chunk = np.searchsorted(parts.ends, cell, side="right") - 1
    line = lines.ends[chunk] + np.arange(len(cell)) - parts.range_ends[cell]
    wanted = is_index[lines.codes[line]] & parts.is_known & (parts.num_rows > 0) & matching[codes[chunk]]
    for at in np.flatnonzero(wanted).tolist():
        component = parts.descriptors[parts.codes[cell[at]]].component
        path = paths[codes[chunk[at]]]
        yield f"{path}:{component}", int(parts.num_rows[at]), int(parts.start[at]), int(parts.end[at])
