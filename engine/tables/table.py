"""A table with columns that functions compute: a Lance table, its rows and its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal

import pyarrow as pa

from ..errors import UsageError
from ..lance import exact_array, rows_of
from ..units import Moment, age_of_moment
from .adding import added, altered, dropped
from .functions import UDF, UnpackedUDF
from .literals import assignments
from .table_search import TableSearch
from .upkeep import WEEK, CleanupStats, cleaned, cleaned_checkpoints, joined

Transforms = Mapping[str, "str | UDF | tuple[UDF, Sequence[str]]"] | UDF | UnpackedUDF


class Table(TableSearch):
    """The Lance table at a place, whose columns may be computed by functions.

    Raises ``NotFoundError`` where there is no table, ``ReadError`` where it is damaged, ``WriteError`` where it cannot
    be written, each when it is found.

    Parameters
    ----------
    place
        A folder, or a URL of an object store.
    name
        What it is called; by default the last part of its place, without ``.lance``.
    udf_modules
        The modules whose functions may be used because a column's definition names them; by default those of
        ``CHUNKMILL_UDF_MODULES``.
    executor
        Who runs tasks; by default as for pipelines.
    allow
        Folders, beside the table's own, in which its files and those that its blobs name may be; see "Tables of others"
        in the docs. A table with others is a ``ForeignFileError``.
    version
        The number of a version that is read in the place of the newest. It stays as it is: what would change the table
        is a ``ValueError``.
    """

    # --- rows

    @property
    def schema(self) -> pa.Schema:
        """The columns, with what the metadata of their fields say."""
        return self._lance.at().schema

    @property
    def version(self) -> int:
        """The number of the newest version."""
        return self._lance.at().version

    def count_rows(self, filter: str | None = None) -> int:  # noqa: A002 (the page's name)
        """The number of rows, of those in which an SQL condition is true."""
        return self._lance.at().count_all(filter)

    def to_arrow(self) -> pa.Table:
        """All rows of the newest version."""
        snapshot = self._lance.snapshot()
        return pa.Table.from_batches(snapshot.batches(), snapshot.schema)

    def add(self, data: Any, mode: Literal["append", "overwrite"] = "append") -> None:
        """Add rows, in one commit; columns that they lack are null, computed ones until the next backfill.

        Parameters
        ----------
        data
            A list of mappings; a pyarrow ``Table``, ``RecordBatch`` or ``RecordBatchReader``, or a list of batches; a
            DataFrame of pandas, Spark or DataFusion, or what else gives an Arrow stream.
        mode
            ``overwrite`` puts them in the place of all rows that there are. They bring their columns along, and
            computed ones that they lack are gone then.

        Raises
        ------
        TypeError
            ``data`` is nothing that has rows.
        ValueError
            The table is a view, there is no such mode, or values don't go with the type of their column.
        WriteError
            Columns are not the table's, or have other types. Nothing was written.
        """
        if mode not in ("append", "overwrite"):
            raise UsageError(f"mode is append or overwrite, not {mode!r}")
        self.check_rows()
        try:
            rows = rows_of(_of_mappings(data, self.schema), {}, lambda: self.schema)
        except TypeError as error:
            raise TypeError(f"{ROWS}, not {type(data).__name__}") from error
        if rows is None or (rows.is_empty and mode == "append"):
            return
        if mode == "append":
            self._lance.append(rows)
        else:
            self._lance.overwrite(rows)

    def update(
        self,
        where: str | None = None,
        values: dict[str, Any] | None = None,
        *,
        values_sql: dict[str, str] | None = None,
    ) -> None:
        """Change columns in the rows in which an SQL condition is true, in one commit.

        Computed values of these rows stay as they are: :meth:`plan_backfill` counts them as stale, and
        ``backfill(column, recompute_stale=True)`` computes them again.

        Parameters
        ----------
        where
            The rows; by default all.
        values
            The new values, by their columns.
        values_sql
            SQL over the columns of the row as it was, by the columns that get what it gives.

        Raises
        ------
        ValueError
            A column is missing or is computed by a view, a value does not fit its column, the SQL is invalid, or
            neither or both of ``values`` and ``values_sql`` are given.
        """
        if bool(values) == bool(values_sql):
            raise UsageError("update() takes either values or values_sql")
        self.check_own([*(values or ()), *(values_sql or ())])
        schema = self._lance.at().schema
        if unknown := [name for name in values_sql or () if name not in schema.names]:
            raise UsageError(f"there is no column {unknown[0]!r}", hint=f"There are: {', '.join(schema.names)}.")
        self._lance.set_values(values_sql or assignments(schema, values or {}), where)

    def delete(self, where: str) -> None:
        """Remove the rows in which an SQL condition is true. Raises ``ValueError`` for a view."""
        self.check_rows()
        self._lance.delete(where)

    # --- columns

    def add_columns(self, transforms: Transforms, *args: Any, **kwargs: Any) -> None:
        """Add columns: by SQL, whose values are there at once, or by functions, null until :meth:`backfill`.

        Parameters
        ----------
        transforms
            ``{"name": "SQL over the other columns"}``; ``{"name": udf}``, called with the columns of its parameters'
            names; ``{"name": (udf, ["a", "b"])}``, called with these, by position; several in one mapping, in that
            order. A ``udf`` that returns ``Columns[T]`` by itself adds a column for each field of ``T``, and
            ``UnpackedUDF(udf, prefix="img_")`` does with a prefix.

        Raises
        ------
        ValueError
            A column exists, an input does not, or is of a type that the function does not take; or a function is given
            in a form that is not its own.
        TypeError
            ``transforms`` is none of these.
        """
        if args or kwargs:
            raise TypeError("add_columns() takes the columns as one argument")
        for name, udf in added(self._lance, transforms):
            if udf.auto_backfill:
                self.backfill(name, udf=udf)

    def alter_columns(self, *alterations: Mapping[str, Any]) -> None:
        """Change columns: another function for computed ones, whose values stay until the next backfill.

        Parameters
        ----------
        *alterations
            ``{"path": column, "udf": udf}``, with ``"input_columns"`` where they have other names than its parameters;
            ``{"path": column, "rename": …}``, ``"nullable"`` and ``"data_type"`` as Lance takes them.

        Raises ``ValueError`` for columns that are not there, or are computed together with others.
        """
        of_lance = (one for one in alterations if not {"udf", "virtual_column"} & set(one))
        self.check_own([str(one.get("path")) for one in of_lance if isinstance(one, Mapping)])
        altered(self._lance, alterations, self.sources())

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Take columns away. Those that one function computes go together; else it is a ``ValueError``."""
        self.check_own(columns)
        dropped(self._lance, columns)

    # --- upkeep

    def optimize(self, *, cleanup_older_than: Moment | None = None, delete_unverified: bool = False) -> CleanupStats:
        """Join small fragments, take all rows into the indexes, and do :meth:`cleanup_old_versions`; gives its result.

        Others may write meanwhile. Fragments with stale values are joined with each other alone, so that it stays known
        which values are stale. Raises ``ValueError`` for an age that is none, and a transient ``WriteError`` where
        others change the table all the time.
        """
        if cleanup_older_than is not None:
            cleanup_older_than = age_of_moment("cleanup_older_than", cleanup_older_than)
        joined(self._lance)
        return self.cleanup_old_versions(cleanup_older_than, delete_unverified=delete_unverified)

    def cleanup_old_versions(
        self, older_than: Moment | None = None, *, delete_unverified: bool = False
    ) -> CleanupStats:
        """Remove versions of an age, but those with a tag, and all that only they need; gives how much that was.

        Checkpoints and files of columns go, too, that nothing needs. A job that runs keeps the versions from its own
        on, its checkpoints and its files; a job on another host of which nothing is heard for an hour runs no more.

        Parameters
        ----------
        older_than
            The age, a week by default, as a timedelta; or the time before which they were made, as a datetime (in UTC
            where it has no zone), ISO text, or nanoseconds since 1970. Whoever still reads an older version fails.
        delete_unverified
            Remove what others have written and no version names, too, which otherwise stays for a week. Whoever is
            about to commit it fails. Nothing of that is removed while a job runs, which is warned of.
        """
        age = WEEK if older_than is None else max(age_of_moment("older_than", older_than), timedelta())
        return cleaned(self._lance, self._jobs, age, delete_unverified=delete_unverified)

    def cleanup_checkpoints(self) -> dict[str, int]:
        """Remove checkpoints, and files that hold whole fragments, which no run would use any more."""
        return cleaned_checkpoints(self._lance, self._jobs)


ROWS: Final = "rows are a list of mappings of names to values, Arrow's, or a DataFrame's"
"""What an error says of that which has none."""


class NativeTable(Table):
    """A table in a folder or an object store, as all tables here are."""


def _of_mappings(data: Any, schema: pa.Schema) -> Any:
    """Rows that are a list of mappings as a table, by the types of the columns; others as they are."""
    if not isinstance(data, (list, tuple)) or not data or not all(isinstance(row, Mapping) for row in data):
        return data
    names = dict.fromkeys(name for row in data for name in row)
    if unknown := [name for name in names if name not in schema.names]:
        raise UsageError(f"there is no column {unknown[0]!r}", hint=f"There are: {', '.join(schema.names)}.")
    try:
        return pa.table(
            [exact_array([row.get(name) for row in data], schema.field(name).type) for name in names], list(names)
        )
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"rows do not go with the columns of the table: {error}") from None
