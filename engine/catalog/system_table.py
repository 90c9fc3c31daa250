"""``__entries``: the table that every catalog has, with a row for every entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from ..chunk import SORBET_VERSION
from ..errors import UnsupportedError, UsageError
from .segment_table import frame_of
from .table_entry import TableEntry

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


class EntriesTable(TableEntry):
    """The table of all entries, hidden ones included, which the catalog makes when it is read."""

    @property
    def storage_url(self) -> str:
        """Empty, as it lies nowhere."""
        return ""

    def arrow_schema(self) -> pa.Schema:
        """The columns of the table."""
        return ENTRIES_SCHEMA

    def reader(self) -> datafusion.DataFrame:
        """The rows of the table, as of now, as a DataFrame of DataFusion."""
        return frame_of(self.rows())

    def to_arrow_reader(self) -> pa.RecordBatchReader:
        """The rows of the table, as of now."""
        return self.rows().to_reader()

    def append(self, batches: Any = None, **named_params: Any) -> NoReturn:  # noqa: ARG002 (as others have it)
        """Raise ``UsageError``: what is in it follows from what is in the catalog."""
        self._refuse()

    overwrite = upsert = update_rows = append

    def do_maintenance(self, **_: Any) -> None:
        """Nothing: there is nothing of it to keep up."""

    def rows(self) -> pa.Table:
        """All rows, as of now."""
        rows = list(self._log.read().all_rows())
        columns = [
            pa.array([row.id.as_bytes() for row in rows], pa.binary(16)),
            pa.array([row.name for row in rows], pa.string()),
            pa.array([int(row.kind) for row in rows], pa.int32()),
            pa.array([row.created_ns for row in rows], pa.timestamp("ns")),
            pa.array([row.updated_ns for row in rows], pa.timestamp("ns")),
        ]
        return pa.Table.from_arrays(columns, schema=ENTRIES_SCHEMA)

    def _refuse(self) -> NoReturn:
        raise UsageError(f"'{self.name}' is the catalog's own table, which cannot be written")

    def __datafusion_table_provider__(self, session: Any = None) -> object:
        """Raise ``UnsupportedError``: it is no table of Lance."""
        raise UnsupportedError(
            "the table of entries is none of Lance", hint="Use its reader(), or its name in client.ctx."
        )
