"""``TableEntry``: a Lance table of a catalog, its Spark DataFrame, and the table ``__entries``."""

from __future__ import annotations

import importlib.metadata
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from random import uniform
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self

import pyarrow as pa

from ..chunk import SORBET_VERSION
from ..errors import NotFoundError, UnsupportedCallError, UnsupportedError, UsageError, WriteError
from ..execution import Lease, noting_task, stage_of, told_by_partitions
from ..lance import (
    Batches,
    LanceTable,
    TableHistory,
    TableRows,
    TableSnapshot,
    TableVersions,
    is_spark_frame,
    rows_of,
)
from ..locations import located
from ..spark import arrow_of, running_session, spark_array, spark_schema
from ..storage import VersionPoint
from ..tables import TableCuration
from ..units import Moment
from .dataset import DatasetEntry
from .entries import EntryId, EntryKind, EntryRow, check_table_name, hidden_row
from .entry_log import CatalogVersion, Entry, changing
from .maintenance import maintain_table, table_of
from .segments import frame_of

if TYPE_CHECKING:
    import datafusion

    from ..execution import DataFrame as SparkFrame
    from ..tables import Table

_UPSERTS: Final = "_upserts"
"""The folder in a table's folder for the lease with which catalog clients upsert one at a time."""
_LONGEST_TURN: Final = 120.0
_VERSION: Final = b"sorbet:version"
_DATAFUSION_OF_LANCE: Final = "54"


class TableEntry(Entry, TableVersions, TableCuration):
    """A table of a catalog.

    Each write is one commit: readers see all of it or nothing. Other processes may write to the same table, through a
    catalog or Lance itself; the next read sees their rows. :meth:`at` returns an earlier version.
    """

    @property
    def version(self) -> int | None:
        """The number of the version that :meth:`at` opened. If None, each call reads the newest version."""
        return self._version

    def at(self, version: VersionPoint | None = None) -> Self:
        """The table as of a version, read-only.

        Once the version is removed, reading raises ``NotFoundError``; a tag prevents the removal.

        Parameters
        ----------
        version
            A version number; a tag; or a time, for the version that was newest then: a datetime (by default in UTC), a
            ``numpy.datetime64``, or RFC 3339 text. By default the newest version.

        Raises
        ------
        NotFoundError
            The version or tag does not exist, or was removed.
        ValueError
            ``version`` has another type, or is a time in the future.
        """
        return self._pinned(self._history().number(version))

    tag = changing(TableVersions.tag)
    untag = changing(TableVersions.untag)
    restore = changing(TableVersions.restore)

    def _history(self) -> TableHistory:
        return TableHistory(self._table())

    @property
    def storage_url(self) -> str:
        """The URL of the table."""
        place = located(self._log.place(self._last_row))
        url = place.as_uri() if isinstance(place, Path) else str(place)
        return url if place.name == str(self.id) else f"{url.rstrip('/')}/"

    def arrow_schema(self) -> pa.Schema:
        """The columns of the table."""
        return self.snapshot().schema

    def reader(self) -> datafusion.DataFrame:
        """The rows of the table as a DataFusion DataFrame. Each execution reads the newest version."""
        rows: datafusion.DataFrame = self._catalog.ctx.frame_of(self)
        return rows

    def df(self) -> datafusion.DataFrame:
        """The earlier name of :meth:`reader`."""
        return self.reader()

    def to_arrow_reader(self) -> pa.RecordBatchReader:
        """The rows of the newest version, as a lazy stream of batches."""
        snapshot = self.snapshot()
        return pa.RecordBatchReader.from_batches(snapshot.schema, snapshot.batches())

    def to_spark(self) -> SparkFrame:
        """The rows of the newest version, as a lazy Spark DataFrame."""

        return spark_frame_of(self._table(), self.snapshot())

    def spark_rows(self) -> TableTasks:
        """The rows of the newest version, for a Spark data source."""
        return TableTasks.of_version(self._table(), self.snapshot())

    def computed(self, *, udf_modules: Collection[str] = (), executor: str | None = None) -> Table:
        """The same table, with computed columns, search and maintenance; see :class:`~.tables.Table`.

        Parameters
        ----------
        udf_modules
            The modules or packages with functions that column definitions may name.
        executor
            The executor of tasks; by default the same as for pipelines.
        """
        from ..tables import Table

        table = self._table()
        return Table(
            table.place,
            self.name,
            udf_modules=udf_modules,
            executor=executor,
            allow=table.gate,
            version=self._version,
        )

    @changing
    def append(self, batches: Batches | None = None, **named_params: Any) -> None:
        """Add rows, in one commit. Missing columns are null.

        Parameters
        ----------
        batches
            A ``RecordBatchReader``, a ``RecordBatch``, a list of them, or the lists of ``DataFrame.collect()``; a
            pyarrow ``Table``, a DataFrame of pandas, Spark or DataFusion, or any Arrow stream.
        **named_params
            Values by column name: a single value for one row, or a sequence. In a column of lists, a list of values is
            a single value.

        Raises
        ------
        KeyError
            There is no such column.
        NotFoundError
            The entry was deleted, or its table is gone.
        TypeError
            Both ``batches`` and named values are given, or ``batches`` has another type.
        ValueError
            Named columns have different numbers of rows, or values of other types.
        UnfitRowsError
            Columns have other names or types than the table's, or nulls that the table does not allow. The error is
            also a ``WriteError``.
        WriteError
            The table cannot be written. Nothing was written.
        """
        table = self._table()
        if is_spark_frame(batches) and not named_params:
            self._write_frame(table, batches, replacing=False)
            return
        rows = self._rows_of(table, batches, named_params)
        if rows is not None and not rows.is_empty:
            table.append(rows)

    @changing
    def overwrite(self, batches: Batches | None = None, **named_params: Any) -> None:
        """Replace all rows, in one commit. Columns may change.

        Without ``batches`` or named values, or with an empty list, nothing changes. Parameters and errors are those of
        :meth:`append`.
        """
        table = self._table()
        if is_spark_frame(batches) and not named_params:
            self._write_frame(table, batches, replacing=True)
            return
        rows = self._rows_of(table, batches, named_params)
        if rows is not None:
            table.overwrite(rows)

    @changing
    def upsert(self, batches: Batches | None = None, **named_params: Any) -> None:
        """Replace the rows with the same key, and append the others, in one commit.

        The key consists of all fields with the metadata ``{"rerun:is_table_index": "true"}``. The whole row is
        replaced: missing columns become null. A key with a null matches no row. Concurrent upserts of one key result in
        one row. Parameters and errors are those of :meth:`append`, and the following.

        Raises
        ------
        ValueError
            The table has no key, or several rows have the same key.
        """
        table = self._table()
        rows = self._rows_of(table, batches, named_params)
        if rows is not None and not rows.is_empty:
            table.upsert(rows, self._alone)

    @changing
    def update_rows(self, batches: Batches | None = None, **named_params: Any) -> None:
        """Set values in the rows with the same key, in one commit. Append no rows.

        Pass rows with the key of :meth:`upsert` and the columns to change; the table keeps its other values. Rows with
        unknown keys are ignored. Parameters and errors are those of :meth:`append`, and the following.

        Raises
        ------
        ValueError
            The rows lack a field of the key.
        """
        table = self._table()
        rows = self._rows_of(table, batches, named_params, is_whole=False)
        if rows is not None and not rows.is_empty:
            table.update(rows)

    def set_name(self, name: str) -> None:
        """Rename the table; SQL must be able to write the name without quotes. See :meth:`Entry.set_name`."""
        check_table_name(name)
        super().set_name(name)

    def delete(self) -> None:
        """Delete the table from the catalog. Its data stays, and can be registered again.

        Raises ``NotFoundError`` if it was deleted before.
        """
        super().delete()

    @changing
    def do_maintenance(
        self,
        *,
        compact_fragments: bool = False,
        cleanup_before: Moment | None = None,
        unsafe_allow_recent_cleanup: bool = False,
    ) -> None:
        """Compact the table, and remove its old versions. Others may write to it meanwhile.

        Files of finished jobs on its columns are removed with old versions; files of a running job stay.

        Parameters
        ----------
        compact_fragments
            Join small fragments, drop deleted rows, and add all rows to the table's indexes.
        cleanup_before
            Remove versions that are older than this time and have no tag, and the files that only they need. A datetime
            (by default in UTC), ISO text, a timedelta (how long ago), or nanoseconds since 1970. Uncommitted files stay
            for a week in any case.
        unsafe_allow_recent_cleanup
            Allow a time less than a week ago. Readers and writers that began before it may then fail.

        Raises
        ------
        ReadError
            A file to rewrite, or the file of a version, is damaged.
        ValueError
            ``cleanup_before`` is not a time, or is less than a week ago without ``unsafe_allow_recent_cleanup``.
        WriteError
            The table cannot be written; transient if other writers kept changing the fragments.
        """
        maintain_table(
            self._table(),
            compact=compact_fragments,
            cleanup_before=cleanup_before,
            allow_recent=unsafe_allow_recent_cleanup,
        )

    # --- blueprints

    def blueprint_dataset(self) -> DatasetEntry:
        """The hidden dataset of this table's blueprints, created on first use.

        It is deleted with the table.
        """
        version = self._log.transact(self._with_blueprints)
        hidden = version.row(self.id).blueprints
        assert hidden is not None
        return DatasetEntry(self._catalog, self._log, version.dataset(hidden))

    @changing
    def register_blueprint(self, uri: str | os.PathLike[str], set_default: bool = True) -> None:
        """Register the blueprint in an ``.rbl`` file, as the default one unless ``set_default=False``.

        Raises
        ------
        NotFoundError
            There is no such file. It is a ``LookupError``.
        ValueError
            The file holds no blueprint.
        """
        registered = self.blueprint_dataset().register(uri).wait().segment_ids
        if set_default:
            self.set_default_blueprint(registered[0])

    def blueprints(self) -> list[str]:
        """The ids of all blueprints of the table, in the order of their registration."""
        return self.blueprint_dataset().segment_ids() if self.has_blueprint_dataset() else []

    def _with_blueprints(self, entries: Mapping[EntryId, EntryRow]) -> Mapping[EntryId, EntryRow]:
        row = entries.get(self.id)
        if row is None or row.blueprints is not None:
            return entries
        hidden = hidden_row(EntryKind.BLUEPRINT_DATASET, self.id, time.time_ns())
        return {**entries, hidden.id: hidden, row.id: replace(row, blueprints=hidden.id)}

    def has_blueprint_dataset(self) -> bool:
        """Whether the table has a blueprint dataset."""
        return self._row().blueprints is not None

    def default_blueprint(self) -> str | None:
        """The default blueprint of the table, or None."""
        return self._row().default_blueprint

    @changing
    def set_default_blueprint(self, blueprint_name: str | None) -> None:
        """Set the default blueprint of the table; None clears it. You can register the blueprint later."""
        self._log.change(self.id, lambda row: replace(row, default_blueprint=blueprint_name))

    @changing
    def set_blueprints(self, dataset: EntryId | None, default: str | None) -> None:
        """Set the default blueprint, and the dataset (by default its own) whose segments are the table's blueprints."""
        if dataset is None:
            self._log.transact(self._with_blueprints)
        self._log.change(
            self.id, lambda row: replace(row, blueprints=dataset or row.blueprints, default_blueprint=default)
        )

    def snapshot(self) -> TableSnapshot:
        """The newest version of the table, as an immutable snapshot."""
        snapshot = self._table().snapshot()
        snapshot.schema = snapshot.schema.with_metadata({_VERSION: SORBET_VERSION, **(snapshot.schema.metadata or {})})
        return snapshot

    def __datafusion_table_provider__(self, session: Any = None) -> object:
        """The table in DataFusion's interface for other libraries, if Lance was built for the installed DataFusion.

        Otherwise raises ``UnsupportedError``: another DataFusion would misread Lance's memory.
        """
        version = importlib.metadata.version("datafusion")
        if version.partition(".")[0] != _DATAFUSION_OF_LANCE:
            raise UnsupportedError(
                f"Lance needs DataFusion {_DATAFUSION_OF_LANCE} to share tables, but {version} is installed",
                hint="Use the table's reader(), or its name in client.ctx.",
            )
        return self.snapshot().provider(self._catalog.ctx if session is None else session)

    def _table(self) -> LanceTable:
        try:
            row = self._row()
        except NotFoundError:
            raise NotFoundError(f"Table with name {self.name} not found", hint="It was deleted.") from None
        return table_of(self._log, row, self._version)

    _read_table = _table

    def _write_frame(self, table: LanceTable, frame: Any, *, replacing: bool) -> None:

        write_frame(table, frame, replacing=replacing)

    def _rows_of(
        self, table: LanceTable, batches: Batches | None, named: dict[str, Any], *, is_whole: bool = True
    ) -> TableRows | None:
        return rows_of(batches, named, lambda: table.snapshot().schema, is_whole=is_whole)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A block in which no other catalog client upserts into this table."""
        home = located(self._log.place(self._last_row)) / _UPSERTS
        until = time.monotonic() + _LONGEST_TURN
        while True:
            try:
                lease = Lease.take(home, "upsert")
                break
            except WriteError as error:
                if not error.transient or time.monotonic() > until:
                    raise
            time.sleep(uniform(0.005, 0.05))  # noqa: S311 (it is a wait)
        with lease:
            yield


_MOST_TASKS: Final = 1024


@dataclass(frozen=True)
class TableJob:
    """The picklable function of a Spark task that returns the rows of some fragments in Spark's types."""

    table: LanceTable
    version: int
    parts: tuple[tuple[int, ...], ...]
    schema: pa.Schema

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        with noting_task(f"part {index} of {self.table.place}"):
            for batch in self.table.snapshot(self.version).batches(fragments=self.parts[index]):
                columns = [
                    spark_array(column, field.type) for column, field in zip(batch.columns, self.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True)
class HeldRows:
    """The picklable function of a Spark task that returns rows from memory in Spark's types."""

    rows: pa.Table
    schema: pa.Schema

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """All rows: there is one task."""
        del index
        for batch in self.rows.to_batches():
            columns = [spark_array(c, field.type) for c, field in zip(batch.columns, self.schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


class TableTasks(NamedTuple):
    """Rows for Spark: columns, the function of a task, and the number of tasks."""

    columns: pa.Schema
    job: TableJob | HeldRows
    num_tasks: int

    @classmethod
    def of_version(cls, table: LanceTable, snapshot: TableSnapshot) -> TableTasks:
        """The rows of a version of a table."""
        parts = tuple(map(tuple, snapshot.parts(_MOST_TASKS)))
        form = arrow_of(spark_schema(snapshot.schema))
        return cls(snapshot.schema, TableJob(table, snapshot.version, parts, form), len(parts))

    @classmethod
    def of_rows(cls, rows: pa.Table) -> TableTasks:
        """Rows in memory."""
        return cls(rows.schema, HeldRows(rows, arrow_of(spark_schema(rows.schema))), 1)


def spark_frame_of(table: LanceTable, snapshot: TableSnapshot) -> SparkFrame:
    """The rows of a version as a lazy Spark DataFrame, in types that Spark supports."""
    rows = TableTasks.of_version(table, snapshot)
    return stage_of(running_session(), rows.job, range(rows.num_tasks + 1), spark_schema(rows.columns))


@dataclass(frozen=True)
class WriteRows:
    """The picklable function of a Spark task that writes the rows of a partition as fragments of a table."""

    table: LanceTable
    schema: pa.Schema
    replacing: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
        """Write the rows, and yield for each fragment the data that its commit needs."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
        rows = TableRows(first.schema, reader, converted=True)
        try:
            yield from self.table.written(rows.under(self.schema), "overwrite" if self.replacing else "append")
        except Exception:
            if rows.failure is not None:
                raise rows.failure from None
            raise


def write_frame(table: LanceTable, frame: SparkFrame, *, replacing: bool) -> None:
    """Append the rows of a DataFrame, or replace all rows by them: tasks write, one commit publishes.

    Raises the errors of :meth:`TableEntry.append`; a transient ``WriteError`` if others replace the table meanwhile.
    """
    version, schema = table.version_and_schema()
    rows = TableRows(arrow_of(frame.schema), [], converted=True)
    form = table.to_write(rows.replacing(schema).schema) if replacing else rows.under(schema).schema
    written = told_by_partitions(frame, WriteRows(table, form, replacing), "the DataFrame")
    if replacing:
        table.overwrite_written(written, form)
    elif written:
        table.append_written(written, version)


ENTRIES_SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("entry_kind", pa.int32(), nullable=False),
        pa.field("created_at", pa.timestamp("ns"), nullable=False),
        pa.field("updated_at", pa.timestamp("ns"), nullable=False),
    ],
    metadata={"sorbet:version": SORBET_VERSION},
)
"""The columns of ``__entries``."""


class EntriesTable(TableEntry):
    """The table of all entries, including hidden ones. The catalog generates it for each read."""

    @property
    def storage_url(self) -> str:
        """Empty, as the table is not stored."""
        return ""

    def arrow_schema(self) -> pa.Schema:
        """The columns of the table."""
        return ENTRIES_SCHEMA

    def reader(self) -> datafusion.DataFrame:
        """The current rows of the table as a DataFusion DataFrame."""
        return frame_of(self.rows())

    def to_arrow_reader(self) -> pa.RecordBatchReader:
        """The current rows of the table."""
        return self.rows().to_reader()

    def append(self, batches: Any = None, **named_params: Any) -> NoReturn:  # noqa: ARG002 (as others have it)
        """Raise ``UsageError``: the catalog generates the rows."""
        self._refuse()

    overwrite = upsert = update_rows = append

    def _history(self) -> TableHistory:
        raise UnsupportedCallError(
            f"'{self.name}' is the catalog's own table, whose versions are those of the catalog",
            hint="client.list_versions() lists them.",
        )

    def do_maintenance(self, **_: Any) -> None:
        """Do nothing: the table has no stored data."""

    def spark_rows(self) -> TableTasks:
        """All current rows, for a Spark data source."""
        return TableTasks.of_rows(self.rows())

    def rows(self) -> pa.Table:
        """All current rows."""
        return entries_table(self._log.read())

    def _refuse(self) -> NoReturn:
        raise UsageError(f"'{self.name}' is the catalog's own table, which cannot be written")

    def __datafusion_table_provider__(self, session: Any = None) -> object:
        """Raise ``UnsupportedError``: this is not a Lance table."""
        raise UnsupportedError(
            "the table of entries is not a Lance table", hint="Use its reader(), or its name in client.ctx."
        )


def entries_table(version: CatalogVersion) -> pa.Table:
    """The entries of a catalog version as rows of ``__entries``."""
    rows = list(version.all_rows())
    columns = [
        pa.array([row.id.as_bytes() for row in rows], pa.binary(16)),
        pa.array([row.name for row in rows], pa.string()),
        pa.array([int(row.kind) for row in rows], pa.int32()),
        pa.array([row.created_ns for row in rows], pa.timestamp("ns")),
        pa.array([row.updated_ns for row in rows], pa.timestamp("ns")),
    ]
    return pa.Table.from_arrays(columns, schema=ENTRIES_SCHEMA)
