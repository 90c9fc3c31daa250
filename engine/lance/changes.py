"""Changes of rows: between two versions of a table with stable row ids, and of a view in one commit.

The commit removes rows, adds previously written fragments, and changes the schema's metadata, all at once: it is a
merge of Lance that keeps all fragments. A fragment without remaining rows stays, with a list of its deleted rows, until
the table is compacted.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import NotFoundError
from ..faults import reach
from ..storage.folder import Folder
from .faults import DELETIONS
from .fragments import Fragment, FragmentReader, fragments_of
from .table import LanceTable

SOURCE_ROW: Final = "__source_row_id"
"""The column of a view with the ids of the source rows."""
IS_SET: Final = "__is_set"
"""The column of a view that is true if a row has its values."""

Offsets = npt.NDArray[np.uint32]
RowIds = npt.NDArray[np.uint64]
_ROW_BITS = np.uint64(32)
_ROWS_AT_ONCE: Final = 1 << 22
_ROWS_OF_A_BATCH: Final = 1 << 17


@dataclass(frozen=True)
class RowChanges:
    """The ids of removed, changed and new rows.

    ``places`` are the offsets of changed and new rows, by fragment of the later version.
    """

    gone: RowIds
    changed: RowIds
    new: RowIds
    places: Mapping[int, Offsets]


def row_changes(before: FragmentReader, after: FragmentReader, columns: Sequence[str]) -> RowChanges:
    """Return the changes of rows in some columns between two versions.

    A rewritten row counts as changed, even with the same values. Fragments with the same files are not read. A
    compaction changes no rows. Lance records the last change of each row, except for updates of whole columns. These
    add a file to a fragment, and all rows of the fragment count as changed.
    """
    is_known = before.field_ids(columns) == after.field_ids(columns)
    then, now = before.by_id, after.by_id
    shared = then.keys() & now.keys() if is_known else set()
    alike = [id_ for id_ in sorted(shared) if _files(then[id_], columns) == _files(now[id_], columns)]
    same = {id_ for id_ in alike if then[id_].deletions == now[id_].deletions}
    row_counts = {id_: now[id_].rows for id_ in alike if id_ not in same}
    rewritten = _rows(before, then.keys() - set(alike)), _rows(after, now.keys() - set(alike))
    old, new = (_Rows.joined(parts) for parts in zip(rewritten, *_apart(before, after, row_counts), strict=True))
    order = np.argsort(old.ids, kind="stable")
    old_ids, old_versions = old.ids[order], old.versions[order]
    at = np.minimum(np.searchsorted(old_ids, new.ids), max(len(old_ids) - 1, 0))
    is_old = old_ids[at] == new.ids if len(old_ids) else np.zeros(len(new.ids), np.bool_)
    is_changed = is_old.copy()
    if is_known:
        is_changed[is_old] = old_versions[at[is_old]] != new.versions[is_old]
        fragments = new.places >> _ROW_BITS
        in_place = [id_ for id_ in shared - set(alike) if then[id_].rows == now[id_].rows]
        silent = np.setdiff1d(np.array(in_place, np.uint64), fragments[is_changed])
        is_changed |= is_old & np.isin(fragments, silent)
    is_there = np.zeros(len(old_ids), np.bool_)
    is_there[at[is_old]] = True
    places = by_fragment(new.places[is_changed | ~is_old])
    return RowChanges(old_ids[~is_there], new.ids[is_changed], new.ids[~is_old], places)


def by_fragment(addresses: npt.NDArray[np.uint64]) -> dict[int, Offsets]:
    """Return the offsets of rows by fragment, in order.

    >>> by_fragment(np.array([3, (1 << 32) + 7, 1], np.uint64))
    {0: array([1, 3], dtype=uint32), 1: array([7], dtype=uint32)}
    """
    is_ordered = bool((addresses[1:] > addresses[:-1]).all())
    ordered = addresses if is_ordered else np.sort(addresses)
    numbers = ordered >> _ROW_BITS
    begins = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    parts = np.split(ordered.astype(np.uint32), begins)
    return (
        {int(number): part for number, part in zip(numbers[[0, *begins]], parts, strict=True)} if len(ordered) else {}
    )


@dataclass(frozen=True)
class _Rows:
    """The ids of rows, the versions that wrote them last, and their addresses."""

    ids: RowIds
    versions: RowIds
    places: RowIds

    @classmethod
    def joined(cls, parts: Sequence[_Rows]) -> _Rows:
        """Concatenate the rows of several."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "versions", "places")))

    def at(self, which: Sequence[npt.NDArray[np.int64]]) -> _Rows:
        """Return some of the rows, by number."""
        chosen = np.concatenate([np.empty(0, np.int64), *which])
        return _Rows(self.ids[chosen], self.versions[chosen], self.places[chosen])

    def span(self, fragment: int) -> tuple[int, npt.NDArray[np.int64]]:
        """Return the number of a fragment's first row, and the offsets of the fragment's rows."""
        first = fragment << 32
        begin, end = np.searchsorted(self.places, np.array([first, first + (1 << 32)], np.uint64))
        return int(begin), self.places[begin:end].view(np.int64) - first


def _apart(
    before: FragmentReader, after: FragmentReader, row_counts: Mapping[int, int]
) -> Iterator[tuple[_Rows, _Rows]]:
    """Yield the rows that only one version has, in fragments that lost or regained rows.

    ``row_counts`` has each fragment's number of rows. The other rows are unchanged. Fragments are compared in groups of
    some millions of rows.
    """
    for group in _groups(row_counts):
        old, new = _rows(before, group), _rows(after, group)
        lost: list[npt.NDArray[np.int64]] = []
        gained: list[npt.NDArray[np.int64]] = []
        for id_ in group:
            (old_begin, old_at), (new_begin, new_at) = old.span(id_), new.span(id_)
            for wanted, begin, own, other in ((lost, old_begin, old_at, new_at), (gained, new_begin, new_at, old_at)):
                is_other = np.zeros(row_counts[id_], np.bool_)
                is_other[other] = True
                wanted.append(np.flatnonzero(~is_other[own]) + begin)
        yield old.at(lost), new.at(gained)


def _groups(row_counts: Mapping[int, int]) -> Iterator[list[int]]:
    group: list[int] = []
    rows = 0
    for id_, count in sorted(row_counts.items()):
        if group and rows + count > _ROWS_AT_ONCE:
            yield group
            group, rows = [], 0
        group.append(id_)
        rows += count
    if group:
        yield group


def _files(fragment: Fragment, columns: Iterable[str]) -> tuple[int, tuple[str, ...]]:
    return fragment.rows, fragment.files_of(columns)


def _rows(reader: FragmentReader, fragments: Collection[int]) -> _Rows:
    names = {"id": "_rowid", "version": "_row_last_updated_at_version", "at": "_rowaddr"}
    parts: dict[str, list[RowIds]] = {name: [np.empty(0, np.uint64)] for name in names}
    if fragments:
        for batch in reader.expressed(names, fragments=sorted(fragments), rows=_ROWS_OF_A_BATCH):
            for name in names:
                parts[name].append(batch.column(name).to_numpy())
    return _Rows(*(np.concatenate(parts[name]) for name in names))


def source_rows(reader: FragmentReader) -> tuple[RowIds, RowIds]:
    """Return the ids of the source rows in a version of a view, and the addresses of the view's rows, in order.

    A row without a source row gets the largest number as the id.
    """
    ids, places = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for batch in reader.expressed({"id": SOURCE_ROW, "at": "_rowaddr"}, rows=_ROWS_OF_A_BATCH):
        ids.append(batch.column("id").fill_null(-1).to_numpy().view(np.uint64))
        places.append(batch.column("at").to_numpy())
    return np.concatenate(ids), np.concatenate(places)


def change_rows(
    table: LanceTable,
    version: int,
    gone: RowIds,
    live: RowIds,
    written: Sequence[str],
    metadata: Mapping[str, str],
    message: str,
) -> int | None:
    """Remove rows by their addresses, add fragments, and change the schema's metadata, in one commit.

    ``live`` are the addresses of all rows of the version. Return the number of the new version, or None if the table
    was changed meanwhile; then nothing is done.
    """
    import lance
    from lance import LanceOperation

    def changed() -> Any:
        dataset = table.open(version)
        fragments = {fragment.fragment_id: fragment.metadata for fragment in dataset.get_fragments()}
        live_offsets = by_fragment(live)
        for id_, offsets in by_fragment(gone).items():
            is_gone = np.ones(int(fragments[id_].physical_rows), np.bool_)
            is_gone[live_offsets[id_]] = False
            is_gone[offsets] = True
            dead = np.flatnonzero(is_gone).astype(np.uint32)
            fragments[id_].deletion_file = _deletion_file(table, id_, version, dead)
        reach("view.deletions")
        for id_, fragment in enumerate(fragments_of(written), _next_id(dataset, fragments)):
            fragment.id = id_
            fragments[id_] = fragment
        return lance.LanceDataset.commit(
            table.address,
            LanceOperation.Merge(list(fragments.values()), _with_metadata(dataset.lance_schema, metadata)),
            read_version=version,
            storage_options=table.storage_options,
            max_retries=0,
            commit_message=message,
        )

    return table.commit_once(changed, written)


def _deletion_file(table: LanceTable, fragment: int, version: int, dead: Offsets) -> Any:
    """Write the list of a fragment's deleted rows."""
    from lance.fragment import DeletionFile

    file = DeletionFile(version, secrets.randbits(63), "array", len(dead), None)
    batch = pa.record_batch([pa.array(dead)], schema=pa.schema([pa.field("row_id", pa.uint32(), nullable=False)]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    folder = Folder.at(table.location / DELETIONS)
    with table.writing():
        folder.make()
        folder.put(file.path(fragment).removeprefix(f"{DELETIONS}/"), sink.getvalue().to_pybytes())
    return file


def _next_id(dataset: Any, fragments: Mapping[int, Any]) -> int:
    """Return a number for a new fragment that neither the version nor an index uses. To Lance, 0 means no fragment."""
    indexed = {
        id_ for index in dataset.describe_indices() for segment in index.segments for id_ in segment.fragment_ids
    }
    return int(max([0, *fragments, *indexed])) + 1


def _with_metadata(schema: Any, metadata: Mapping[str, str]) -> Any:
    """Return Lance's schema with changed entries in its metadata. Fields keep their numbers."""
    rebuilt, (text, *fields) = schema.__reduce__()
    entries = json.loads(text) | {key: list(value.encode()) for key, value in metadata.items()}
    return rebuilt(json.dumps(entries), *fields)


def version_holds(table: LanceTable, column: str, where: str) -> bool:
    """Return whether any version of a table has a text ``column``, and rows in which ``where`` is true."""
    with table.reading():
        newest = table.open()
        numbers = sorted((int(entry["version"]) for entry in newest.versions()), reverse=True)
    for number in numbers:
        with suppress(NotFoundError), table.reading():
            dataset = newest if number == newest.version else table.open(number)
            names = dataset.schema.names
            if column in names and pa.types.is_string(dataset.schema.field(column).type) and dataset.count_rows(where):
                return True
    return False


def tagged_versions(table: LanceTable) -> dict[str, int]:
    """Return the tags of a table, each with the number of its version."""
    with table.reading():
        return {name: int(tag["version"]) for name, tag in table.open().tags.list().items()}


def row_ids(table: LanceTable, where: str | None = None) -> RowIds:
    """Return the ids of the rows in which ``where`` is true, by default of all rows."""
    batches = table.at().expressed({"id": "_rowid"}, where)
    return np.concatenate([np.empty(0, np.uint64), *(batch.column("id").to_numpy() for batch in batches)])


def rows_elsewhere(view: LanceTable, source: RowIds) -> RowIds:
    """Return the ids of a view's rows whose source rows are not among ``source``."""
    ids = [np.empty(0, np.uint64)]
    for batch in view.at().expressed({"of": SOURCE_ROW, "id": "_rowid"}):
        is_of_others = ~np.isin(batch.column("of").to_numpy().astype(np.uint64), source)
        ids.append(batch.column("id").to_numpy()[is_of_others])
    return np.concatenate(ids)
