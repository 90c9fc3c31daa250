"""Connections: the tables of a folder or of a prefix of an object store, and references to them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ..errors import AlreadyExistsError, NotFoundError, UnsupportedCallError, UsageError, WriteError
from ..lance import Gate, LanceTable
from ..locations import Location, located
from ..storage import VersionPoint
from ..storage.folder import Folder
from .checkpoints import CheckpointStore
from .search import TableQuery
from .table import ROWS, NativeTable
from .targets import remember
from .view import placeholders, view_of

SUFFIX: Final = ".lance"
"""The suffix of the names of table folders."""


def connect(
    uri: str, *, udf_modules: Collection[str] = (), executor: str | None = None, allow: Collection[str] = ()
) -> TableConnection:
    """Connect to the tables at a place.

    Parameters
    ----------
    uri
        A folder, or a URL of an object store; it need not exist. ``db://`` raises an ``UnsupportedCallError``; the
        place of a file or a table raises a ``UsageError``.
    udf_modules, executor, allow
        As for :class:`~.table.Table`. A table may have files in other tables of the connection.

    Examples
    --------
    >>> import tempfile
    >>> tables = connect(tempfile.mkdtemp())
    >>> readings = tables.create_table("readings", [{"id": 1, "volts": 3.5}])
    >>> tables.table_names(), readings.count_rows()
    (['readings'], 1)
    """
    return TableConnection(uri, udf_modules=udf_modules, executor=executor, allow=allow)


async def connect_async(
    uri: str, *, udf_modules: Collection[str] = (), executor: str | None = None, allow: Collection[str] = ()
) -> AsyncTableConnection:
    """Connect to the tables at a place, for use in coroutines; see :func:`connect`."""
    return AsyncTableConnection(connect(uri, udf_modules=udf_modules, executor=executor, allow=allow))


class TableConnection:
    """The tables at a place: see :func:`connect`. It keeps no files open, and can be pickled."""

    def __init__(
        self, uri: str, *, udf_modules: Collection[str] = (), executor: str | None = None, allow: Collection[str] = ()
    ) -> None:
        if str(uri).startswith("db://"):
            raise UnsupportedCallError(
                f"{uri} is the address of a table service, which is not supported",
                hint="Connect to the folder, or to the object store, that contains the tables.",
            )
        self._location = located(uri)
        if isinstance(self._location, Path) and self._location.is_file():
            raise UsageError("this is a file, not a folder of tables", path=str(self._location))
        if isinstance(self._location, Path) and (self._location / "_versions").is_dir():
            raise UsageError(
                "this is a table, not a folder of tables",
                path=str(self._location),
                hint=f"Connect to {self._location.parent}, or open it as Table({str(uri)!r}).",
            )
        self.uri = str(self._location)
        self._modules = tuple(udf_modules)
        self._executor = executor
        self.gate = Gate.of(allow, self.uri)
        """The places in which its tables may have files."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri})"

    def table_names(self) -> list[str]:
        """The names of the tables, sorted."""
        folders = Folder.at(self._location).folders()
        return sorted(name.removesuffix(SUFFIX) for name in folders if self._is_table(name))

    def create_table(
        self,
        name: str,
        data: Any = None,
        *,
        schema: pa.Schema | None = None,
        mode: str = "create",
        exist_ok: bool = False,
    ) -> NativeTable:
        """Create a table with stable row ids, and return it.

        Parameters
        ----------
        name
            Up to 180 ASCII letters, digits, ``_``, ``-`` and ``.``.
        data
            The rows: a pyarrow Table, a RecordBatch or a reader, a list of dicts, or a pandas DataFrame.
        schema
            The columns; by default those of the rows.
        mode
            ``create``, or ``overwrite`` to replace an existing table.
        exist_ok
            Whether to return an existing table as it is.

        Raises
        ------
        AlreadyExistsError
            There is such a table.
        """
        if mode not in ("create", "overwrite"):
            raise UsageError(f"mode must be create or overwrite, not {mode!r}")
        if data is None and schema is None:
            raise UsageError("a table needs rows, or a schema")
        rows = None if data is None else _as_table(data, schema)
        columns = schema if rows is None else rows.schema
        assert columns is not None
        table = LanceTable(self.place_of(name), name, self.gate)
        is_new = table.create(columns, rows)
        if not is_new and mode == "overwrite":
            table.overwrite(_GivenRows(columns.empty_table() if rows is None else rows))
        elif not is_new and not exist_ok:
            raise self._taken(name)
        return self._table(name)

    def open_table(self, name: str, *, version: VersionPoint | None = None) -> NativeTable:
        """Return a table in its newest version, or read-only in another version: a number, a tag, or a time.

        Raises ``NotFoundError`` if the table, or the version, does not exist.
        """
        if not self._is_table(self.place_of(name).name):
            names = ", ".join(self.table_names())
            raise NotFoundError(f"there is no table {name!r}", path=self.uri, hint=f"There are: {names or 'none'}.")
        table = self._table(name)
        return table if version is None else table.at(version)

    def drop_table(self, name: str) -> None:
        """Remove a table, or a view, with all its files.

        Raises ``NotFoundError`` if it does not exist, and ``WriteError`` if files cannot be removed.
        """
        self.open_table(name)
        place = self.place_of(name)
        Folder.at(place / "_versions").remove()  # an interrupted removal leaves no table that lacks files
        if not self._is_table(place.name):
            Folder.at(place).remove()
        if Folder.at(place).exists():
            raise WriteError(
                f"the table {name!r} cannot be removed completely",
                path=str(place),
                hint="Make its folder and the parent folder writable, and remove the remaining files.",
            )

    def create_materialized_view(self, name: str, query: TableQuery) -> NativeTable:
        """Create a view: a table with the rows of a query. :meth:`~.table.Table.refresh` fills it.

        Until the first refresh, the values of its rows are null.

        Parameters
        ----------
        name
            As for :meth:`create_table`.
        query
            The query: ``table.search(None)`` with ``where``, ``select``, ``limit`` and ``offset``.

        Raises
        ------
        AlreadyExistsError
            A table of this name exists.
        ValueError
            The query has unknown columns, or parts that a view cannot have.
        """
        if not isinstance(query, TableQuery):
            raise TypeError(f"a view needs a query from table.search(None), not {type(query).__name__}")
        place = self.place_of(name)
        definition, schema, functions = view_of(query, place, name)
        view = LanceTable(place, name, self.gate)
        reader = query.table.at(definition.version)
        rows = placeholders(reader, definition, schema)  # raises for an invalid condition before anything is created
        if not view.create(schema, pa.RecordBatchReader.from_batches(schema, rows)):
            raise self._taken(name)
        for udf in functions.values():
            remember(udf)
        return self._table(name)

    def _table(self, name: str) -> NativeTable:
        place = str(self.place_of(name))
        return NativeTable(place, name, udf_modules=self._modules, executor=self._executor, allow=self.gate)

    def place_of(self, name: str) -> Location:
        """Return the place of a table, existing or not. Raises ``UsageError`` for an invalid name."""
        is_name = isinstance(name, str) and 0 < len(name) <= _LONGEST and not name.startswith(".")
        if not is_name or not set(name) <= _LETTERS:
            raise UsageError(
                f"{name!r} is not a valid table name", hint=f"Use up to {_LONGEST} letters, digits, _, - and ."
            )
        return self._location / f"{name}{SUFFIX}"

    def _is_table(self, folder: str) -> bool:
        return folder.endswith(SUFFIX) and bool(LanceTable(self._location / folder, folder).versions())

    def _taken(self, name: str) -> AlreadyExistsError:
        return AlreadyExistsError(
            f"the table {name!r} already exists", path=self.uri, hint="Drop it, or choose another name."
        )


class AsyncTableConnection:
    """The methods of :class:`TableConnection` for use in coroutines. Each runs in a thread."""

    def __init__(self, connection: TableConnection) -> None:
        self._connection = connection
        self.uri = connection.uri

    async def table_names(self) -> list[str]:
        """The names of the tables, sorted."""
        return await asyncio.to_thread(self._connection.table_names)

    async def create_table(self, name: str, data: Any = None, **options: Any) -> NativeTable:
        """Create a table; see :meth:`TableConnection.create_table`."""
        return await asyncio.to_thread(partial(self._connection.create_table, name, data, **options))

    async def open_table(self, name: str, *, version: VersionPoint | None = None) -> NativeTable:
        """Return a table; see :meth:`TableConnection.open_table`."""
        return await asyncio.to_thread(partial(self._connection.open_table, name, version=version))

    async def drop_table(self, name: str) -> None:
        """Remove a table with all its files."""
        await asyncio.to_thread(self._connection.drop_table, name)

    async def create_materialized_view(self, name: str, query: TableQuery) -> NativeTable:
        """Create a view; see :meth:`TableConnection.create_materialized_view`."""
        return await asyncio.to_thread(self._connection.create_materialized_view, name, query)


class _GivenRows:
    """Rows for a table with the same columns."""

    failure: Exception | None = None

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def under(self, schema: pa.Schema) -> pa.Table:
        return self._rows.select(schema.names).cast(schema)

    def among(self, schema: pa.Schema) -> pa.Table:
        return self.under(schema)

    def replacing(self, schema: pa.Schema) -> pa.RecordBatchReader:
        del schema
        return self._rows.to_reader()


def _as_table(data: Any, schema: pa.Schema | None) -> pa.Table:
    try:
        return _of_rows(data, schema)
    except (pa.ArrowException, OverflowError) as error:
        raise UsageError(f"rows do not fit the columns of the table, or each other: {error}") from None


def _of_rows(data: Any, schema: pa.Schema | None) -> pa.Table:
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif isinstance(data, pa.RecordBatchReader):
        data = data.read_all()
    elif isinstance(data, list):
        data = pa.Table.from_pylist(data, schema)
    elif not isinstance(data, pa.Table) and type(data).__module__.partition(".")[0] == "pandas":
        data = pa.Table.from_pandas(data, schema, preserve_index=False)
    if not isinstance(data, pa.Table):
        raise TypeError(f"{ROWS}, not {type(data).__name__}")
    return data if schema is None else data.select(schema.names).cast(schema)


_LONGEST: Final = 180
"""The maximum length of a name, which is also the name of a folder; the same as for entries of a catalog."""
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


@dataclass(frozen=True)
class TableReference:
    """A reference to a table: the place of its connection, its name, and its version (None: the newest).

    You can pickle it, and pass it to other processes. It has no credentials: a process that opens it uses those of its
    own environment.

    Examples
    --------
    >>> reference = TableReference("/lake", "readings")
    >>> reference.table_uri, reference.as_system_table("jobs").table_name
    ('/lake/readings.lance', 'jobs')
    """

    uri: str
    table_name: str
    version: int | None = None

    @property
    def table_uri(self) -> str:
        """The place of the table."""
        return str(located(self.uri) / f"{self.table_name}{SUFFIX}")

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options with which Lance opens the object store, from this process's environment; None for a folder."""
        return LanceTable(located(self.table_uri), self.table_name).storage_options

    @property
    def namespace_client_properties(self) -> dict[str, str] | None:
        """The properties of a namespace service: always None."""
        return None

    @property
    def namespace_client_pushdown_operations(self) -> list[str] | None:
        """The operations that a namespace service executes: always None."""
        return None

    def as_system_table(self, table_name: str) -> TableReference:
        """A reference to another table at the same place, in its newest version."""
        return replace(self, table_name=table_name, version=None)

    def open(self) -> NativeTable:
        """Return the table read-only in its ``version``, or else in its newest version.

        Raises ``NotFoundError`` if the table or the version does not exist.
        """
        return self.open_db().open_table(self.table_name, version=self.version)

    def open_checkpoint_store(self) -> CheckpointStore:
        """The checkpoints of the table's computed columns."""
        return CheckpointStore(self.table_uri)

    def open_db(self) -> TableConnection:
        """The connection with the table."""
        return connect(self.uri)

    async def open_db_async(self) -> AsyncTableConnection:
        """The connection with the table, for use in coroutines."""
        return AsyncTableConnection(connect(self.uri))

    async def open_system_db_async(self) -> AsyncTableConnection:
        """The connection with the system tables: the same as ``open_db_async()``."""
        return await self.open_db_async()
