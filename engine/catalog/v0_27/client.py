"""``CatalogClient`` as 0.27 has it: lists are DataFrames, and entries are got by keywords."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...query import QuerySemantics
from .. import client, dataset, table_entry
from ..client import table_of, write_to
from ..deprecated import TableInsertMode
from ..entries import EntryId, EntryKind
from .dataset import DatasetEntry
from .entries import TableEntry

if TYPE_CHECKING:
    import datafusion

    from ...lance import Batches


class CatalogClient:
    """The catalog in a folder, or below a prefix of an object store, with the calls of Rerun 0.27.

    :class:`chunkmill.engine.catalog.CatalogClient` has the rules, and can have the same catalog open.

    Parameters
    ----------
    address
        A path, a ``file://`` URL, or that of a prefix, such as ``s3://fleet/lake``.
    token
        What a server would want. A folder wants none.
    semantics
        The rules of queries in which engines differ.
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        token: str | None = None,
        *,
        semantics: str | QuerySemantics | None = None,
    ) -> None:
        self._catalog = client.CatalogClient(address, token=token, semantics=semantics)

    @property
    def url(self) -> str:
        """The address, as it was given."""
        return self._catalog.url

    @property
    def ctx(self) -> datafusion.SessionContext:
        """A session of DataFusion in which every table is there by its name."""
        return self._catalog.ctx

    # --- lists

    def entries(self) -> datafusion.DataFrame:
        """One row for each entry, hidden ones included: ``id``, ``name``, ``entry_kind``, and when it changed."""
        return self._catalog.get_table("__entries").reader()

    def datasets(self) -> datafusion.DataFrame:
        """The rows of :meth:`entries` that are of datasets, without the kind."""
        return self._of_kind(EntryKind.DATASET)

    def tables(self) -> datafusion.DataFrame:
        """The rows of :meth:`entries` that are of tables, without the kind."""
        return self._of_kind(EntryKind.TABLE)

    def _of_kind(self, kind: EntryKind) -> datafusion.DataFrame:
        from datafusion import col, lit

        return self.entries().filter(col("entry_kind") == lit(int(kind))).drop("entry_kind")

    def all_entries(self) -> list[DatasetEntry | TableEntry]:
        """All entries, hidden ones included."""
        return [self._entry(entry) for entry in self._catalog.entries(include_hidden=True)]

    def dataset_entries(self) -> list[DatasetEntry]:
        """All datasets, but for those of blueprints."""
        return [DatasetEntry(self, entry) for entry in self._catalog.datasets()]

    def table_entries(self) -> list[TableEntry]:
        """All tables, hidden ones included."""
        return [TableEntry(self, entry) for entry in self._catalog.tables(include_hidden=True)]

    def entry_names(self) -> list[str]:
        """The names of :meth:`all_entries`, sorted."""
        return self._catalog.entry_names(include_hidden=True)

    def dataset_names(self) -> list[str]:
        """The names of :meth:`dataset_entries`, sorted."""
        return self._catalog.dataset_names()

    def table_names(self) -> list[str]:
        """The names of :meth:`table_entries`, sorted."""
        return self._catalog.table_names(include_hidden=True)

    def _entry(self, entry: dataset.DatasetEntry | table_entry.TableEntry) -> DatasetEntry | TableEntry:
        if isinstance(entry, table_entry.TableEntry):
            return TableEntry(self, entry)
        return DatasetEntry(self, entry)

    # --- one entry

    def get_dataset(
        self,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
        name: str | None = None,
    ) -> DatasetEntry:
        """The dataset of this id, or of this name.

        Raises
        ------
        LookupError
            There is none; it is a ``NotFoundError``.
        ValueError
            Neither is given, or both are.
        """
        return DatasetEntry(self, self._catalog.get_dataset(name, id=id))

    def get_dataset_entry(
        self,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
        name: str | None = None,
    ) -> DatasetEntry:
        """The same as :meth:`get_dataset`."""
        return self.get_dataset(id=id, name=name)

    def get_table(
        self,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
        name: str | None = None,
    ) -> TableEntry:
        """The table of this id, or of this name; raises as :meth:`get_dataset` does."""
        return TableEntry(self, self._catalog.get_table(name, id=id))

    def get_table_entry(
        self,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
        name: str | None = None,
    ) -> TableEntry:
        """The same as :meth:`get_table`."""
        return self.get_table(id=id, name=name)

    # --- making, writing and upkeep

    def create_dataset(self, name: str) -> DatasetEntry:
        """Make an empty dataset of this name.

        Raises
        ------
        AlreadyExistsError
            An entry has this name.
        """
        return DatasetEntry(self, self._catalog.create_dataset(name))

    def create_table_entry(self, name: str, schema: pa.Schema, url: str | os.PathLike[str]) -> TableEntry:
        """Make a table of this name with these columns, in a folder of its own below ``url``.

        Raises
        ------
        AlreadyExistsError
            An entry has this name.
        """
        return TableEntry(self, self._catalog.create_table(name, schema, url))

    def register_table(self, name: str, url: str | os.PathLike[str]) -> TableEntry:
        """Give a name to a table of Lance, which stays where it is; writes go there, too.

        Raises
        ------
        AlreadyExistsError
            An entry has this name.
        NotFoundError
            There is no table of Lance at ``url``.
        """
        return TableEntry(self, self._catalog.register_table(name, url))

    def write_table(self, name: str, batches: Batches, insert_mode: TableInsertMode) -> None:
        """Append batches to a table, or put them in place of its rows, as ``insert_mode`` says.

        Raises
        ------
        NotFoundError
            There is no such table.
        """
        write_to(table_of(self._catalog, name), batches, insert_mode)

    def append_to_table(self, table_name: str, **named_params: Any) -> None:
        """Append rows to a table: the values of columns by their names, one or as many for each.

        Raises
        ------
        KeyError
            The table has no such column.
        NotFoundError
            There is no such table.
        ValueError
            The columns are not of one length.
        """
        if named_params:
            table_of(self._catalog, table_name).append(**named_params)

    def do_global_maintenance(self) -> None:
        """Maintain every dataset; see :meth:`chunkmill.engine.catalog.CatalogClient.do_global_maintenance`."""
        self._catalog.do_global_maintenance()

    def __repr__(self) -> str:
        return repr(self._catalog)
