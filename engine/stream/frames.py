"""Frames: a stream's values as a table with one row per message, for Arrow, pandas, polars and Spark.

``engine/chunk/values.py`` makes and names the rows. This module selects a stream's data for them: :class:`FrameRequest`
is an operator before them, so that every executor returns only the requested data; :func:`value_schema` is the schema
of the rows before they are read.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import (
    Chunk,
    Origin,
    Projection,
    Schema,
    TimeBounds,
    ValueSchema,
    columns_of,
    duration_ticks,
    is_message,
    pandas_of,
    polars_of,
    timeline_called,
    timestamp_ticks,
)
from ..errors import ReadWarning, UsageError, check_argument
from ..lazy_names import terminal
from ..rrd import StoreEntry
from .operators import Content, ContentFilter, Operator, content_filter

if TYPE_CHECKING:
    import pandas
    import polars

    from ..execution import Progress
    from ..reports import RunReport

_HINT: Final = "Entity paths begin with '/'; '/imu/**' is /imu and all below it; static=True includes static data."

Moment = int | str | datetime | timedelta | np.datetime64 | np.timedelta64
"""A time on a timeline: nanoseconds or a sequence number; or a date and time (text: ISO 8601; without a zone: UTC)."""


class RowChoices(TypedDict, total=False):
    """The keywords of :meth:`Frames.to_arrow` for the content of rows."""

    index: str | None
    columns: Iterable[str] | None
    start: Moment | None
    end: Moment | None
    flatten: bool
    static: bool
    lists: bool | None


@dataclass(frozen=True, slots=True)
class FrameRequest(Operator):
    """The checked arguments of a frame. As an operator, it keeps only the data of the frame's rows.

    It keeps rows within the time range, and the components and fields of messages for the columns; static chunks only
    with ``static``. The rows do not depend on the columns.
    """

    contents: ContentFilter | None = None
    index: str | None = None
    columns: tuple[str, ...] | None = None
    start: int | None = None
    end: int | None = None
    flatten: bool = False
    static: bool = False
    lists: bool | None = None

    @classmethod
    def of(cls, contents: Content | None = None, **choices: Unpack[RowChoices]) -> FrameRequest:
        """Check the arguments of a method; see :meth:`Frames.to_arrow`. Raises ``TypeError`` and ``UsageError``."""
        index, columns = choices.get("index"), choices.get("columns")
        start, end = choices.get("start"), choices.get("end")
        check_argument("index", index, str, type(None))
        if index is None and (start is not None or end is not None):
            raise UsageError("start and end need a timeline", hint='Give one, such as index="message_log_time".')
        checked: dict[str, Any] = {**choices, "start": tick_of("start", start), "end": tick_of("end", end)}
        if columns is not None:
            checked["columns"] = (columns,) if isinstance(columns, str) else tuple(columns)
        return cls(None if contents is None else content_filter(contents), **checked)

    @property
    def names_entities(self) -> bool:
        """Whether rows may belong to several entities."""
        expressions = [] if self.contents is None else " ".join(self.contents.to_exprs()).split()
        return len(expressions) != 1 or expressions[0].endswith("/**")

    @property
    def projection(self) -> Projection:
        """The columns to decode."""
        return Projection(self.columns)

    @property
    def bounds(self) -> TimeBounds | None:
        """The time range of the rows; None for all rows, on any timelines."""
        return None if self.index is None else TimeBounds(self.index, self.start, self.end)

    def __call__(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunks made from ``chunk``."""
        if chunk.is_static:
            if self.static:
                yield self._projected(chunk)
        elif self._overlaps(chunk):
            part = self._projected(chunk)
            bounds = self.bounds
            inside = None if bounds is None or bounds.is_open else bounds.rows(part.data)
            if inside is None:
                yield part
            elif inside.any():
                yield Chunk.from_data(part.data.take(np.flatnonzero(inside)))

    def describe(self) -> str:
        """One line for the plan."""
        wanted = "all columns" if self.columns is None else ", ".join(self.columns)
        return f"values({wanted})"

    def known(self, columns: Schema, singles: frozenset[Origin] | None) -> tuple[Schema, frozenset[Origin]] | None:
        """Return the known columns of a source, and those with one value per row, or None if chunks must be read.

        Chunks must be read for static data. Without ``singles``, they must be read unless ``lists`` is given, or all
        columns are fields of messages, which have one value per row.
        """
        if self.static:
            return None
        if singles is None and self.lists is None:
            wanted = (c for c in columns.component_columns() if self.projection.has(c.component, c.datatype))
            if not all(is_message(c.component, c.datatype) for c in wanted):
                return None
        return columns, singles or frozenset()

    def schema(
        self,
        columns: Schema,
        singles: frozenset[Origin],
        *,
        entities: Callable[[], Collection[str]] = tuple,
    ) -> ValueSchema:
        """Return the columns of the frame, out of the existing ones.

        Raises ``UsageError`` if one is missing, with suggestions from ``entities``.
        """
        if not list(columns):
            raise self._nothing(entities)
        if self.lists is not None:
            singles = frozenset(
                () if self.lists else ((c.entity_path, c.component) for c in columns.component_columns())
            )
        whole = ValueSchema.of(columns, singles, entities=self.names_entities, flatten=self.flatten)
        chosen = [c.name for c in whole.columns] if self.columns is None else self.columns
        if self.index is None:
            return whole.select(chosen)
        index = whole.timeline(self.index).name
        first = next((name for name in chosen if timeline_called(name, [index]) is not None), index)
        return whole.select(dict.fromkeys([first, *chosen]))

    def table(self, chunks: Iterable[Chunk], value_schema: ValueSchema | None = None) -> pa.Table:
        """Return the rows of chunks from this operator, sorted by the index if there is one."""
        data = [chunk.data for chunk in chunks]
        schema = self.schema(*columns_of(data)) if value_schema is None else value_schema
        bounds = None if self.index is None else TimeBounds(self.index)
        table = pa.Table.from_batches(schema.batches(data, bounds), schema.arrow)
        return table if self.index is None else _sorted(table, schema.columns[0].name)

    def warn_of_no_rows(self, table: pa.Table) -> None:
        """Warn (``ReadWarning``) if no row is within the given times."""
        if not table.num_rows and self._times:
            warnings.warn(f"there are no rows{self._times} on timeline {self.index!r}", ReadWarning, stacklevel=4)

    @property
    def _times(self) -> str:
        """The given times as text for a message; empty if none were given."""
        first = "" if self.start is None else f" from {self.start:,}"
        return first if self.end is None else f"{first} before {self.end:,}"

    def _nothing(self, entities: Callable[[], Collection[str]]) -> UsageError:
        """The error if there is no data for any column."""
        if self.contents is None:
            return UsageError(f"the stream has no rows{self._times}", hint=_HINT)
        paths = entities()
        near = f"{self.contents.nearest(paths)} " if paths and not any(map(self.contents.matches, paths)) else ""
        what = f" on {' '.join(self.contents.to_exprs())}"
        return UsageError(f"the stream has no rows{what}{self._times}", hint=f"{near}{_HINT}")

    def _overlaps(self, chunk: Chunk) -> bool:
        """Return whether a chunk may have rows within the times, by its header."""
        line = None if self.index is None else timeline_called(self.index, chunk.timeline_names)
        if line is None:
            return True
        header = next(t for t in chunk.header.timelines if t.name == line)
        too_early = self.start is not None and header.end is not None and header.end < self.start
        return not too_early and not (self.end is not None and header.start is not None and header.start >= self.end)

    def _projected(self, chunk: Chunk) -> Chunk:
        if self.columns is None:
            return chunk
        projection = self.projection
        parts = ((c, projection.of_component(c.descriptor.component, c.values)) for c in chunk.data.components)
        kept = tuple(
            c if values is c.values else replace(c, values=values) for c, values in parts if values is not None
        )
        return Chunk.from_data(chunk.data.with_components(kept))


def _sorted(table: pa.Table, name: str) -> pa.Table:
    """The rows sorted by a column, nulls first; unchanged if already sorted."""
    values = table.column(name).combine_chunks()
    if not values.null_count:
        plain = values.view(pa.int64()).to_numpy() if len(values) else np.empty(0, np.int64)
        if bool((plain[1:] >= plain[:-1]).all()):
            return table
        return table.take(pa.array(np.argsort(plain, kind="stable")))
    order = pc.sort_indices(table, [(name, "ascending")], null_placement="at_start")
    return table.take(order)


def tick_of(argument: str, value: Moment | None) -> int | None:
    """Convert an argument to ns or a sequence number. Raises ``UsageError``, or ``TypeError`` for other types."""
    if value is None or (hasattr(value, "__index__") and not isinstance(value, bool)):
        return None if value is None else int(value)
    check_argument(argument, value, str, datetime, timedelta, np.datetime64, np.timedelta64)
    if isinstance(value, (timedelta, np.timedelta64)):
        return int(duration_ticks([value])[0])
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UsageError(
            f"{argument}: {error}", hint="Write a time such as 2024-05-01T10:00:00, in UTC or with a zone."
        ) from None
    return int(timestamp_ticks([moment])[0])


class FrameChoices(RowChoices, total=False):
    """The arguments of :meth:`Frames.to_arrow` that all methods for frames accept."""

    executor: str | None
    master: str | None
    progress: Progress


class Frames(ABC):
    """The methods of :class:`LazyChunkStream` that return tables and DataFrames."""

    @abstractmethod
    def _table(self, request: FrameRequest, **run: Any) -> pa.Table:
        """Run the pipeline for a frame."""

    def to_arrow(
        self,
        contents: Content | None = None,
        *,
        index: str | None = None,
        columns: Iterable[str] | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        flatten: bool = False,
        static: bool = False,
        lists: bool | None = None,
        executor: str | None = None,
        master: str | None = None,
        progress: Progress = None,
    ) -> pa.Table:
        """Run the pipeline, and return its values as an Arrow table, with one row per message (row of a chunk).

        Columns are the times, then the fields of messages (``linear_acceleration``) and other components (``scalars``),
        with the shortest unambiguous names; see ``docs/dataframes.md``. Missing values are null. Spark returns only
        these values.

        Parameters
        ----------
        contents
            The entities, as for :meth:`filter`; by default all. Unless this is the path of one entity, the column
            ``entity_path`` has the entity of each row.
        index
            The timeline that sorts the rows. Its column is the first, and rows without it are left out. By default,
            rows of all timelines are in the order of the stream.
        columns
            The columns, in this order; ``"linear_acceleration.x"`` is a field of a struct. Other columns are not
            decoded, if the format allows that.
        start, end
            The range of the index, excluding ``end``: nanoseconds or a sequence number, a ``datetime``, a
            ``datetime64``, ISO 8601 text (in UTC if it has no zone), or a ``timedelta``.
        flatten
            Make each field of a struct a column (``header.stamp.sec``), instead of the struct.
        static
            Include static data, as rows without times.
        lists
            Whether components other than messages are columns of lists, as in chunks. By default, only components with
            several values in some row are lists.

        Raises
        ------
        UsageError
            There is no such timeline or column, or there are no rows; or a row has several values, with
            ``lists=False``.
        ReadError, PipelineError
            As for :meth:`to_chunks`.

        >>> from chunkmill import Chunk, ComponentColumn, LazyChunkStream, TimeColumn
        >>> times = TimeColumn("frame", sequence=[1, 2])
        >>> chunk = Chunk.from_columns("/arm", [times], [ComponentColumn("volume", [0.5, 1.0])])
        >>> LazyChunkStream.from_iter([chunk]).to_arrow("/arm", index="frame").to_pylist()
        [{'frame': 1, 'volume': 0.5}, {'frame': 2, 'volume': 1.0}]
        """
        request = FrameRequest.of(
            contents,
            index=index,
            columns=columns,
            start=start,
            end=end,
            flatten=flatten,
            static=static,
            lists=lists,
        )
        return self._table(request, executor=executor, master=master, progress=progress)

    def write_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        application_id: str = "chunkmill",
        recording_id: str,
        compression: str = "zstd",
        executor: str | None = None,
        master: str | None = None,
        progress: Progress = None,
    ) -> RunReport:
        """Run the pipeline into a folder of Parquet files: a subfolder per entity, with the columns of its chunks.

        :class:`ParquetReader` reads the same chunks back. Guarantees and errors are those of :func:`write_parquet`,
        which accepts several recordings.
        """
        store = StoreEntry("recording", application_id, recording_id)
        given = {"compression": compression, "executor": executor, "master": master, "progress": progress}
        return cast("RunReport", terminal("write_parquet_recording")(self, path, store, **given))

    def to_pandas(self, contents: Content | None = None, **choices: Unpack[FrameChoices]) -> pandas.DataFrame:
        """Run the pipeline, and return its values as a pandas DataFrame; arguments are as for :meth:`to_arrow`.

        The ``index``, if given, is the index of the DataFrame. Structs become dictionaries, unless ``flatten`` is set.
        Lists become numpy arrays.
        """
        return pandas_of(self.to_arrow(contents, **choices), is_indexed=choices.get("index") is not None)

    def to_polars(self, contents: Content | None = None, **choices: Unpack[FrameChoices]) -> polars.DataFrame:
        """Run the pipeline, and return its values as a polars DataFrame; arguments are as for :meth:`to_arrow`.

        Raises ``MissingExtraError`` if polars is not installed (the extra ``polars``).
        """
        return polars_of(self.to_arrow(contents, **choices))
