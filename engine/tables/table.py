"""A table with columns that functions compute: a Lance table, its rows and its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..errors import UsageError
from .adding import added, altered, dropped
from .functions import UDF, UnpackedUDF
from .search import TableQuery
from .upkeep import cleaned_checkpoints
from .view_refresh import ViewRefresh

Transforms = Mapping[str, "str | UDF | tuple[UDF, Sequence[str]]"] | UDF | UnpackedUDF


class Table(ViewRefresh):
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
        reader = self._lance.at()
        return sum(reader.count(fragment, filter) for fragment in reader.fragments)

    def to_arrow(self) -> pa.Table:
        """All rows of the newest version."""
        snapshot = self._lance.snapshot()
        return pa.Table.from_batches(snapshot.batches(), snapshot.schema)

    def delete(self, where: str) -> None:
        """Remove the rows in which an SQL condition is true."""
        self._lance.delete(where)

    def search(self, query: None = None) -> TableQuery:
        """A question for rows of the table: by default all of them; see :class:`~.search.TableQuery`."""
        if query is not None:
            raise UsageError(f"search() takes None, for all rows, not {query!r}")
        return TableQuery(self._lance)

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
        self.check_own([str(one.get("path")) for one in alterations if not {"udf", "virtual_column"} & one.keys()])
        altered(self._lance, alterations, self.sources())

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Take columns away. Those that one function computes go together; else it is a ``ValueError``."""
        self.check_own(columns)
        dropped(self._lance, columns)

    def cleanup_checkpoints(self) -> dict[str, int]:
        """Remove checkpoints, and files that hold whole fragments, which no run would use any more."""
        return cleaned_checkpoints(self._lance, self._jobs)


class NativeTable(Table):
    """A table in a folder or an object store, as all tables here are."""
