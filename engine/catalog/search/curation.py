"""Labels that people give to segments and events, as rows of a table; and samples of segments."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...chunk import Schema, TimelineKind
from ...errors import AlreadyExistsError, NotFoundError, ReadWarning, UsageError, check_argument
from ...query import SEGMENT_ID, IndexValues
from ...storage import author
from ...tables import Sampler
from ..segments import frame_of

if TYPE_CHECKING:
    import datafusion

    from ..dataset import DatasetEntry, DatasetView
    from ..table import TableEntry

_SPAN: Final = ("start", "end")
_KEY: Final = (SEGMENT_ID, *_SPAN, "who")
_COMPARED: Final = 1000
"""The most ids that are compared to suggest a similar one."""
_SHOWN: Final = 3


def label_schema(index_type: pa.DataType) -> pa.Schema:
    """The columns of a table of labels. Its times have the type of the index."""
    return pa.schema(
        [
            pa.field(SEGMENT_ID, pa.string(), nullable=False),
            pa.field("start", index_type),
            pa.field("end", index_type),
            pa.field("verdict", pa.string(), nullable=False),
            pa.field("note", pa.string()),
            pa.field("who", pa.string()),
            pa.field("made_at", pa.timestamp("us", "UTC"), nullable=False),
        ]
    )


class DatasetCuration:
    """The methods of a dataset or view that choose among its segments."""

    segment_ids: Callable[[], list[str]]
    segment_rows: Callable[[], pa.Table]
    schema: Callable[[], Schema]
    filter_segments: Callable[[Any], DatasetView]

    def label(
        self,
        table: str | TableEntry,
        segments: str | Sequence[str] | TableEntry | datafusion.DataFrame | pa.Table,
        verdict: str,
        *,
        note: str | None = None,
        start: datetime | timedelta | int | None = None,
        end: datetime | timedelta | int | None = None,
        index: str | None = None,
        who: str | None = None,
    ) -> int:
        """Append labels to a table of the catalog, in one commit, and return their number.

        The table is created if missing. Its columns are ``rerun_segment_id``, ``start`` and ``end`` (index values, both
        inclusive; null for the beginning and the end of the segment), ``verdict``, ``note``, ``who`` and ``made_at``.
        Rows are only added, so concurrent writers lose no labels; :meth:`labels` returns the valid labels.

        Parameters
        ----------
        table
            The table, or its name.
        segments
            One segment id, several ids, or a table with ``rerun_segment_id``. If the table also has ``start`` and
            ``end``, like the result of :meth:`find`, each row gets its own label.
        verdict
            ``accept``, ``reject``, or a word of your own.
        note
            A text about the label.
        start, end
            The part of the segment: ticks, nanoseconds, times or durations, depending on the index.
        index
            The index of ``start`` and ``end``; a new table has its type. Optional if all indexes have the same type.
        who
            The author of the label; by default the user of this process.

        Raises
        ------
        NotFoundError
            The view has no such segment.
        ValueError
            ``verdict`` is empty, an ``end`` is before its ``start``, the table has other columns, or ``index`` is
            missing and the indexes have several types.
        """
        check_argument("verdict", verdict, str)
        if not verdict.strip():
            raise UsageError("a label needs a verdict", hint="Give accept, reject, or a word of your own.")
        view: Any = self
        rows = _labelled_rows(segments)
        _check_known(view.dataset.name, rows[SEGMENT_ID].to_pylist(), self.segment_ids())
        entry = self._label_table(table, index)
        kind = entry.arrow_schema().field("start").type
        if start is not None or end is not None:
            if rows.num_columns > 1:
                raise UsageError("start and end are given, but the labelled rows have their own")
            for name, value in zip(_SPAN, (start, end), strict=True):
                rows = rows.append_column(name, pa.repeat(_index_value(name, value, kind), len(rows)))
        labels = _labels_of(rows, kind, {"verdict": verdict, "note": note, "who": author() if who is None else who})
        if len(labels):
            entry.append(labels)
        return len(labels)

    def labels(self, table: str | TableEntry) -> datafusion.DataFrame:
        """The valid labels of the segments: the newest label of each part and author.

        Parameters
        ----------
        table
            A table of :meth:`label`, or its name. With :meth:`TableEntry.at`, the labels are those of a version.

        Raises
        ------
        NotFoundError
            There is no such table.
        ValueError
            The table has other columns.
        """
        view: Any = self
        entry = view.dataset.catalog.get_table(table) if isinstance(table, str) else table
        _check_labels(entry)
        rows = entry.to_arrow_reader().read_all().combine_chunks()
        rows = rows.filter(pc.is_in(rows[SEGMENT_ID], pa.array(self.segment_ids(), pa.string())))
        rows = rows.take(pc.sort_indices(rows["made_at"]))  # stable: at equal times, the later row counts
        numbered = rows.select(_KEY).append_column("row", pa.array(np.arange(len(rows))))
        last = numbered.group_by(list(_KEY), use_threads=False).aggregate([("row", "max")])["row_max"]
        return frame_of(rows.take(pa.array(np.sort(np.asarray(last)))))

    def sample(
        self,
        n: int | None = None,
        *,
        by: str | Sequence[str] | None = None,
        fraction: float | None = None,
        seed: int = 0,
    ) -> DatasetView:
        """The view of randomly chosen segments: ``n`` of each value of ``by``, or a fraction of them.

        The same seed chooses the same segments, independent of the order of their registration.

        Parameters
        ----------
        n
            The number of segments of each value. A value with fewer segments gives all of them, with a warning.
        by
            One or several columns of :meth:`segment_table`, such as the property ``property:info:weather``. Null counts
            as a value. By default ``n`` segments are chosen from all.
        fraction
            The fraction of the segments with each value, instead of ``n``; rounded to the nearest number of segments.
        seed
            The seed of the random choice.

        Raises
        ------
        ValueError
            There is no such column, or both or neither of ``n`` and ``fraction`` are given.

        Examples
        --------
        >>> dataset.sample(20, by="property:info:weather", seed=1)  # doctest: +SKIP
        """
        rows = self.segment_rows()
        sampler = Sampler(n, by, fraction, seed, rows.column_names)
        sampler.add(dict(zip(rows.column_names, rows.columns, strict=True)), [SEGMENT_ID])
        return self.filter_segments(rows[SEGMENT_ID].take(pa.array(sampler.chosen(stacklevel=2))).to_pylist())

    def _label_table(self, table: str | TableEntry, index: str | None) -> TableEntry:
        """A table of labels, created if missing. Raises ``UsageError`` if it has other columns."""
        view: Any = self
        entry: TableEntry
        if isinstance(table, str):
            catalog = view.dataset.catalog
            try:
                entry = catalog.get_table(table)
            except NotFoundError:
                schema = label_schema(self._index_type(index))
                try:
                    entry = catalog.create_table(table, schema)
                except AlreadyExistsError:  # another caller has just created it
                    entry = catalog.get_table(table)
        else:
            entry = table
        _check_labels(entry)
        kind = entry.arrow_schema().field("start").type
        if index is not None and self._index_type(index) != kind:
            raise UsageError(
                f"index {index!r} has {self._index_type(index)}, but the labels in {entry.name!r} use {kind}",
                hint="Use another table for labels by this index.",
            )
        return entry

    def _index_type(self, index: str | None) -> pa.DataType:
        columns = self.schema().index_columns()
        kinds = {column.name: column.kind.arrow_type for column in columns if index in (None, column.name)}
        if index is not None and not kinds:
            names = ", ".join(column.name for column in columns)
            raise UsageError(f"there is no index {index!r}", hint=f"There are: {names}.")
        if len(set(kinds.values())) > 1:
            shown = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
            raise UsageError(
                f"the indexes have several types: {shown}", hint="Give the index that start and end refer to: index=…"
            )
        return next(iter(kinds.values()), pa.timestamp("ns"))


def _labelled_rows(segments: Any) -> pa.Table:
    """The ids of the segments to label, and ``start`` and ``end`` if they come with rows."""
    if isinstance(segments, str):
        return pa.table({SEGMENT_ID: [segments]})
    table = rows_with_segments(segments)
    if table is None:
        for segment in segments:
            check_argument("segments", segment, str)
        return pa.table({SEGMENT_ID: pa.array(list(segments), pa.string())})
    if table[SEGMENT_ID].null_count:
        raise UsageError(f"segments: a row has no {SEGMENT_ID}")
    return table.select([SEGMENT_ID, *(name for name in _SPAN if name in table.column_names)])


def rows_with_segments(given: Any) -> pa.Table | None:
    """Return the rows of a table or of a data frame, or None for anything else.

    Raises ``UsageError`` if they have no column ``rerun_segment_id``.
    """
    if hasattr(given, "__arrow_c_stream__"):
        table = pa.table(given)
    elif callable(getattr(given, "reader", None)):
        table = pa.table(given.reader())
    else:
        return None
    if SEGMENT_ID not in table.column_names:
        raise UsageError(f"segment_ids: the DataFrame has no column '{SEGMENT_ID}'")
    return table


def segments_in(dataset: DatasetEntry, segment_ids: Any) -> frozenset[str]:
    """The ids given to a method. Warns about unknown ids, with the line of the method's call."""
    chosen = _ids_of(segment_ids)
    ids = dataset.segment_ids()
    absent = sorted(chosen.difference(ids))
    if absent:
        listed = ", ".join(map(repr, absent[:_SHOWN]))
        listed += f" and {len(absent) - _SHOWN:,} more" if len(absent) > _SHOWN else ""
        close = difflib.get_close_matches(absent[0], ids[:_COMPARED], 1)
        text = f"dataset {dataset.name!r} has no segment {listed}; ignored."
        warnings.warn(f"{text} Did you mean {close[0]!r}?" if close else text, ReadWarning, stacklevel=3)
    return chosen


def _ids_of(segment_ids: Any) -> frozenset[str]:
    if isinstance(segment_ids, str):
        return frozenset([segment_ids])
    table = rows_with_segments(segment_ids)
    if table is not None:
        return frozenset(table[SEGMENT_ID].drop_null().to_pylist())
    if not isinstance(segment_ids, (Sequence, set, frozenset)):
        check_argument("segment_ids", segment_ids, str, Sequence)
    for segment_id in segment_ids:
        check_argument("segment_ids", segment_id, str)
    return frozenset(segment_ids)


def _check_known(dataset: str, segments: Sequence[str], ids: Sequence[str]) -> None:
    own = set(ids)
    unknown = next((segment for segment in segments if segment not in own), None)
    if unknown is not None:
        close = difflib.get_close_matches(unknown, ids[:_COMPARED], 1)
        hint = f"Did you mean {close[0]!r}?" if close else "segment_ids() lists them."
        raise NotFoundError(f"there is no segment {unknown!r} in dataset {dataset!r}", hint=hint)


def _check_labels(entry: TableEntry) -> None:
    schema = entry.arrow_schema()
    lacking = [field.name for field in label_schema(pa.int64()) if field.name not in schema.names]
    if lacking:
        raise UsageError(f"table {entry.name!r} is not a table of labels: it has no column {lacking[0]!r}")


def _index_value(name: str, value: Any, kind: pa.DataType) -> pa.Scalar:
    """Convert a value to an index's type. Raises ``TypeError`` or ``UsageError`` if it does not fit."""
    if value is None:
        return pa.scalar(None, kind)
    check_argument(name, value, int, np.integer, datetime, timedelta, np.datetime64, np.timedelta64)
    given = IndexValues.of([value], name)
    if given.missing or given.kinds - {some for some in TimelineKind if some.arrow_type == kind}:
        raise UsageError(f"{name}={value!r} is not a value of type {kind}, the type of the labels in the table")
    assert given.of_all is not None
    return pa.array(given.of_all).cast(kind)[0]


def _labels_of(rows: pa.Table, kind: pa.DataType, values: dict[str, str | None]) -> pa.Table:
    """Return rows with the columns of the table of labels. Raises ``UsageError`` for an end before its start."""
    schema = label_schema(kind)
    spans = []
    for name in _SPAN:
        column = rows[name] if name in rows.column_names else pa.nulls(len(rows), kind)
        if column.type.id not in (kind.id, pa.null().id):
            raise UsageError(
                f"the column {name!r} has {column.type}, but the table of labels has {kind}",
                hint="Use another table for labels by this index.",
            )
        spans.append(column.cast(kind))
    if pc.any(pc.less(spans[1], spans[0])).as_py():
        raise UsageError("the end of a label is before its start")
    texts = [pa.repeat(pa.scalar(values[name], pa.string()), len(rows)) for name in ("verdict", "note", "who")]
    now = pa.repeat(pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC")), len(rows))
    return pa.table([rows[SEGMENT_ID].cast(pa.string()), *spans, *texts, now], schema=schema)
