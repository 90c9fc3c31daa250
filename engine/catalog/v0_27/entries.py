"""Entries as 0.27 has them: handles over those of the catalog."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .. import table_entry
from ..entries import EntryId, EntryKind
from ..entry_log import Entry as EntryOfToday

if TYPE_CHECKING:
    import datafusion

    from .client import CatalogClient


class Entry:
    """An entry of a catalog; it is equal to another handle of the same entry, to its name, and to its id."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, catalog: CatalogClient, entry: EntryOfToday) -> None:
        self._catalog = catalog
        self._entry = entry

    @property
    def id(self) -> EntryId:
        """The entry's id, which never changes."""
        return self._entry.id

    @property
    def name(self) -> str:
        """The entry's name."""
        return self._entry.name

    @property
    def kind(self) -> EntryKind:
        """The entry's kind."""
        return self._entry.kind

    @property
    def catalog(self) -> CatalogClient:
        """The client that this entry was asked for from."""
        return self._catalog

    @property
    def created_at(self) -> datetime:
        """When the entry was made, in UTC."""
        return self._entry.created_at

    @property
    def updated_at(self) -> datetime:
        """When the entry changed last, in UTC."""
        return self._entry.updated_at

    def update(self, *, name: str | None = None) -> None:
        """Give the entry another name; see :meth:`chunkmill.engine.catalog.Entry.update`."""
        self._entry.update(name=name)

    def delete(self) -> None:
        """Take the entry out of the catalog; see :meth:`chunkmill.engine.catalog.Entry.delete`."""
        self._entry.delete()

    def __eq__(self, other: object) -> bool:
        return self._entry == (other._entry if isinstance(other, Entry) else other)

    def __repr__(self) -> str:
        kind = self.kind.name.title().replace("_", "")
        return f"Entry({kind}, {self.name!r})"


class TableEntry(Entry):
    """A table of a catalog."""

    _entry: table_entry.TableEntry

    @property
    def storage_url(self) -> str:
        """The URL of the table; empty for one that the catalog makes itself."""
        return self._entry.storage_url

    def df(self) -> datafusion.DataFrame:
        """The rows of the table, as of now, as a DataFrame of DataFusion."""
        return self._entry.reader()

    def to_arrow_reader(self) -> pa.RecordBatchReader:
        """The rows of the table, as of now, as a stream of batches."""
        return self._entry.to_arrow_reader()

    def __datafusion_table_provider__(self, session: Any = None) -> object:
        """The table as DataFusion takes it from other libraries.

        Raises ``UnsupportedError`` where Lance was built for another DataFusion.
        """
        return self._entry.__datafusion_table_provider__(session)
