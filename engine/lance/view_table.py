"""A Lance table whose rows are made of those of another: read by the ids of these, and changed in one commit.

The commit takes rows away, adds fragments that were written before, and changes what the schema's metadata say, all at
once: it is a merge of Lance that keeps every fragment there is. A fragment all of whose rows are gone stays, with a
list of them, until the table is compacted.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import WriteError
from ..faults import reach
from ..folders import Folder
from .changed_rows import Offsets, by_fragment
from .computed_table import ComputedTable
from .fragments import FragmentReader, fragments_of
from .user_table import DELETIONS, is_conflict

SOURCE_ROW: Final = "__source_row_id"
"""The column of a view with the ids of the rows that its own are made of."""
IS_SET: Final = "__is_set"
"""The column of a view that says whether a row has its values."""

_ROWS_OF_A_BATCH: Final = 1 << 17

RowIds = npt.NDArray[np.uint64]


class ViewTable(ComputedTable):
    """The Lance table of a view."""

    def source_rows(self, reader: FragmentReader) -> tuple[RowIds, RowIds]:
        """The ids of the source's rows that a version of the view has, and the addresses of its own, in order.

        A row that was added by something else has none, which is told as the last number there is.
        """
        ids, places = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for batch in reader.expressed({"id": SOURCE_ROW, "at": "_rowaddr"}, rows=_ROWS_OF_A_BATCH):
            ids.append(batch.column("id").fill_null(-1).to_numpy().view(np.uint64))
            places.append(batch.column("at").to_numpy())
        return np.concatenate(ids), np.concatenate(places)

    def change_rows(
        self,
        version: int,
        gone: npt.NDArray[np.uint64],
        live: npt.NDArray[np.uint64],
        written: Sequence[str],
        metadata: Mapping[str, str],
        told: str,
    ) -> int | None:
        """Take rows away by their addresses, add fragments, and change the schema's metadata, in one commit.

        ``live`` are the addresses of all rows of the version. Gives the number of the new version; None where others
        changed the table meanwhile: nothing was done then.
        """
        import lance
        from lance import LanceOperation

        try:
            with self.writing():
                dataset = self._opened(version)
                fragments = {one.fragment_id: one.metadata for one in dataset.get_fragments()}
                kept = by_fragment(live)
                for id_, offsets in by_fragment(gone).items():
                    is_gone = np.ones(int(fragments[id_].physical_rows), np.bool_)
                    is_gone[kept[id_]] = False
                    is_gone[offsets] = True
                    dead = np.flatnonzero(is_gone).astype(np.uint32)
                    fragments[id_].deletion_file = self._deletion_file(id_, version, dead)
                reach("view.deletions")
                for id_, fragment in enumerate(fragments_of(written), _next_id(dataset, fragments)):
                    fragment.id = id_
                    fragments[id_] = fragment
                made = lance.LanceDataset.commit(
                    self._address,
                    LanceOperation.Merge(list(fragments.values()), _with_metadata(dataset.lance_schema, metadata)),
                    read_version=version,
                    storage_options=self.storage_options,
                    max_retries=0,
                    commit_message=told,
                )
            self._keep_digests(made, written)
            reach("lance.commit")
        except WriteError as error:
            if not is_conflict(error.__cause__):
                raise
            return None
        return int(made.version)

    def _deletion_file(self, fragment: int, version: int, dead: Offsets) -> Any:
        """A new list of a fragment's rows that are gone."""
        from lance.fragment import DeletionFile

        file = DeletionFile(version, secrets.randbits(63), "array", len(dead), None)
        batch = pa.record_batch([pa.array(dead)], schema=pa.schema([pa.field("row_id", pa.uint32(), nullable=False)]))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        folder = Folder.at(self._location / DELETIONS)
        with self.writing():
            folder.make()
            folder.put(file.path(fragment).removeprefix(f"{DELETIONS}/"), sink.getvalue().to_pybytes())
        return file


def _next_id(dataset: Any, fragments: Mapping[int, Any]) -> int:
    """The number of a new fragment: one that neither the version nor an index of it has. 0 means none to Lance."""
    indexed = {id_ for index in dataset.describe_indices() for one in index.segments for id_ in one.fragment_ids}
    return int(max([0, *fragments, *indexed])) + 1


def _with_metadata(schema: Any, metadata: Mapping[str, str]) -> Any:
    """Lance's schema, its fields with the numbers that they have, with other entries in its metadata."""
    rebuilt, (text, *fields) = schema.__reduce__()
    entries = json.loads(text) | {key: list(value.encode()) for key, value in metadata.items()}
    return rebuilt(json.dumps(entries), *fields)
