"""References to tables: names and places, which travel to other processes in the place of what is open."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..lance import LanceTable
from ..locations import located
from .checkpoints import CheckpointStore
from .connection import SUFFIX, AsyncTableConnection, TableConnection, connect
from .table import NativeTable


@dataclass(frozen=True)
class TableReference:
    """A reference to a table: the place of its connection, its name, and a version of it (None: the newest).

    It is small, pickles, and holds no credentials: who opens it takes those of its own environment.

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
        """The options with which Lance opens the object store, by this process's environment; None for a folder."""
        return LanceTable(located(self.table_uri), self.table_name).storage_options

    @property
    def namespace_client_properties(self) -> dict[str, str] | None:
        """The properties of a service of names: None, as there is none."""
        return None

    @property
    def namespace_client_pushdown_operations(self) -> list[str] | None:
        """The operations that a service of names does by itself: None, as there is none."""
        return None

    def as_system_table(self, table_name: str) -> TableReference:
        """A reference to another table at the same place, in its newest version."""
        return replace(self, table_name=table_name, version=None)

    def open(self) -> NativeTable:
        """The table, in its ``version``, which is read only, or in its newest one.

        Raises ``NotFoundError`` where there is no such table, or the version is gone.
        """
        return self.open_db().open_table(self.table_name, version=self.version)

    def open_checkpoint_store(self) -> CheckpointStore:
        """The checkpoints of the table's computed columns."""
        return CheckpointStore(self.table_uri)

    def open_db(self) -> TableConnection:
        """The connection in which the table is."""
        return connect(self.uri)

    async def open_db_async(self) -> AsyncTableConnection:
        """The connection in which the table is, for coroutines."""
        return AsyncTableConnection(connect(self.uri))

    async def open_system_db_async(self) -> AsyncTableConnection:
        """The connection in which tables of the system are: the same."""
        return await self.open_db_async()
