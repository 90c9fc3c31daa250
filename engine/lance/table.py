"""A Lance table of columns that are known: made in one step, read, and changed by commits."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from ..locations import Location
from .place import LancePlace

_ROWS_OF_A_FRAGMENT: Final = 16_384


class LanceTable(LancePlace):
    """The Lance table at a place, in a folder or an object store, whether it is there or not. Nothing is opened here.

    Every change is one commit. Raises ``WriteError`` where the table cannot be written, ``ReadError`` where it is
    damaged or has other columns than ``schema``.

    Parameters
    ----------
    place, name, unread, unwritten
        As :class:`LancePlace` takes them.
    schema
        Its columns.
    """

    def __init__(self, place: Location, schema: pa.Schema, *, name: str, unread: str, unwritten: str) -> None:
        super().__init__(place, name=name, unread=unread, unwritten=unwritten)
        self.schema = schema

    def open(self) -> Any:
        """The newest version of the table, which is there, as Lance gives it."""
        import lance

        with self.reading():
            dataset = self._admitted(lance.dataset(self._address, storage_options=self.storage_options))
        if not set(self.schema) <= set(dataset.schema):
            raise self._damaged(ValueError("it has other columns"))
        return dataset

    def rows(self, dataset: Any, columns: Collection[str] | None = None) -> pa.Table:
        """The rows of a version that was opened: the columns of ``schema``, or some of them."""
        with self.reading():
            return dataset.to_table(columns=list(columns or self.schema.names))

    def make(self) -> None:
        """Make the table, without rows, unless there is one."""
        self._made(self.schema)

    def append(self, rows: pa.Table) -> None:
        """Add rows to the table, which is made where there is none."""
        import lance

        with self.writing():
            is_there = bool(self._listed())
        if not is_there:
            self.make()
        with self.writing():
            lance.write_dataset(rows, self._address, mode="append", storage_options=self.storage_options)

    def merge(self, dataset: Any, key: str, rows: pa.Table) -> None:
        """Put rows in place of those of the same ``key``, and add the others: on top of this version or not at all."""
        with self.writing():
            merge = dataset.merge_insert(key).when_matched_update_all().when_not_matched_insert_all()
            merge.conflict_retries(0).execute(rows)

    def delete(self, dataset: Any, key: str, values: Collection[str]) -> None:
        """Remove the rows whose ``key`` is one of ``values``: on top of this version or not at all."""
        gone = pa.table({key: pa.array(sorted(values), pa.string())})
        with self.writing():
            dataset.merge_insert(key).when_matched_delete().conflict_retries(0).execute(gone)

    def tidy(self, older_than: timedelta) -> None:
        """Join small fragments, and remove versions of that age."""
        dataset = self.open()
        with self.writing():
            dataset.optimize.compact_files(target_rows_per_fragment=_ROWS_OF_A_FRAGMENT, num_threads=1)
            dataset.cleanup_old_versions(older_than=older_than)
