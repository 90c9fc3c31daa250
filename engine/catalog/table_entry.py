"""``TableEntry``: a table of a catalog, and the system table of its entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..chunk import SORBET_VERSION
from .entries import Entry

if TYPE_CHECKING:
    import datafusion

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


class TableEntry(Entry):
    """A table of a catalog. ``__entries`` is there in each: a row for every entry, hidden ones included."""

    @property
    def storage_url(self) -> str:
        """The URL of the table; empty for one that the catalog makes itself."""
        return ""

    def arrow_schema(self) -> pa.Schema:
        """The columns of the table."""
        return ENTRIES_SCHEMA

    def reader(self) -> datafusion.DataFrame:
        """The rows of the table, as of now, as a DataFrame of DataFusion."""
        return frame_of(self._rows())

    def df(self) -> datafusion.DataFrame:
        """The same as :meth:`reader`, by the name that it had."""
        return self.reader()

    def to_arrow_reader(self) -> pa.RecordBatchReader:
        """The rows of the table, as of now."""
        return self._rows().to_reader()

    def _rows(self) -> pa.Table:
        rows = list(self._log.read().all_rows())
        columns = [
            pa.array([row.id.tuid for row in rows], pa.binary(16)),
            pa.array([row.name for row in rows], pa.string()),
            pa.array([int(row.kind) for row in rows], pa.int32()),
            pa.array([row.created_ns for row in rows], pa.timestamp("ns")),
            pa.array([row.updated_ns for row in rows], pa.timestamp("ns")),
        ]
        return pa.Table.from_arrays(columns, schema=ENTRIES_SCHEMA)


def frame_of(table: pa.Table) -> datafusion.DataFrame:
    """A table as a DataFrame of DataFusion, with its schema's metadata."""
    from datafusion import SessionContext

    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return SessionContext().create_dataframe([batches])
