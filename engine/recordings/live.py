"""The entries of a store that are to be seen, found by columns: an object is made only for one that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .entries import SCHEMA, Key, RecordingEntry, entries_in, rows_of

Rows = npt.NDArray[np.int64]

_ROWS: Final = 512
"""How many entries are objects at a time, where all are asked for."""
_MOST_ADDED: Final = 4096
"""Entries that are kept as objects until they become rows."""


class LiveEntries:
    """Recordings, an entry for each layer, in the order of their arrival.

    A later one takes the place of what it replaces (:meth:`RecordingEntry.takes_place_of`). Those of a store's tables
    are rows, and those that are added since objects, until they are many: an object takes 1.7 kB.
    """

    def __init__(self, entries: Iterable[RecordingEntry] = ()) -> None:
        self._begin(SCHEMA.empty_table())
        for entry in entries:
            self.add(entry)

    @classmethod
    def of_rows(cls, batches: Iterable[pa.RecordBatch]) -> LiveEntries:
        """Those that are live of the rows of a store's tables, oldest first."""
        found = cls()
        whole = pa.Table.from_batches(batches, SCHEMA)
        rows = live_rows(whole)
        as_they_are = len(rows) == len(whole) and bool(np.all(np.diff(rows) == 1))
        found._begin(whole if as_they_are else whole.combine_chunks().take(rows))
        return found

    def _begin(self, table: pa.Table) -> None:
        """Let these rows be all that there is; all of them are live, and in order."""
        self._rows = table
        self._added: list[RecordingEntry] = []
        self._alive = np.ones(len(table), dtype=bool)
        self._alive_added: list[bool] = []
        self._place = list[int]()
        self._next = len(table)
        self._indexes: dict[str, _Index] = {}
        self._table: pa.Table | None = table
        self._count = len(table)
        self.chunks, self.rows, self.bytes = (_sum(table[name]) for name in ("chunks", "rows", "bytes"))
        is_recording = pc.not_equal(table["kind"], "blueprint")
        self.recordings = pc.count_distinct(table["recording_id"].filter(is_recording)).as_py()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[RecordingEntry]:
        return entries_in(self.batches())

    @property
    def table(self) -> pa.Table:
        """The entries as rows of :data:`SCHEMA`, in order."""
        if self._table is None:
            added = [at for at, alive in enumerate(self._alive_added) if alive]
            places = np.array([self._place[at] for at in added], dtype=np.int64)
            kept = np.flatnonzero(self._alive)
            rows = pa.Table.from_batches(rows_of(self._added[at] for at in added), SCHEMA)
            whole = pa.concat_tables([self._rows.take(kept), rows]).combine_chunks()
            order = np.argsort(np.concatenate([kept, places]), kind="stable")
            self._table = whole if bool(np.all(np.diff(order) == 1)) else whole.take(order)
        return self._table

    def columns(self, *names: str) -> pa.Table:
        """Some columns of :attr:`table`."""
        return self.table.select(names)

    def schemas(self, kind: str = "recording") -> list[str | None]:
        """The digest of the schema of each layer of a recording, or of a blueprint."""
        is_such = pc.equal(pc.equal(self.table["kind"], "blueprint"), kind == "blueprint")
        found: list[str | None] = self.table["schema"].filter(is_such).to_pylist()
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of :attr:`table`, some at a time."""
        return iter(self.table.to_batches(max_chunksize=_ROWS))

    def get(self, key: Key) -> RecordingEntry | None:
        """The entry of a key."""
        return next((e for row in self._where("recording_id", key[2]) if (e := self._entry(row)).key == key), None)

    def of_recording(self, recording_id: str, kind: str = "recording") -> list[RecordingEntry]:
        """The layers of a recording, or of a blueprint."""
        found = map(self._entry, self._where("recording_id", recording_id))
        return [entry for entry in found if (entry.kind == "blueprint") == (kind == "blueprint")]

    def of_source(self, source: str) -> list[RecordingEntry]:
        """The recordings of the file that is at this path, if it stays there."""
        return [e for row in self._where("source", source) if (e := self._entry(row)).source_kept]

    def of_digest(self, digest: str) -> list[RecordingEntry]:
        """The recordings of a file of this content."""
        return list(map(self._entry, self._where("source_digest", digest)))

    def of_rrd(self, rrd: str) -> RecordingEntry | None:
        """The recording that was written to an RRD of this name, of several the last."""
        rows = self._where("rrd", rrd)
        return self._entry(rows[-1]) if rows else None

    def add(self, entry: RecordingEntry) -> None:
        """Add an entry; what it takes the place of goes. One that is there already keeps its place."""
        place = self._next
        for row in self._same(entry):
            other = self._entry(row)
            if entry.takes_place_of(other):
                if other.key == entry.key and other.added == entry.added:
                    place = self._place_of(row)
                self._drop(row, other)
        if entry.removed:
            return
        if place == self._next:
            self._next += 1
        row = len(self._rows) + len(self._added)
        self._tally(entry, 1)
        for name, index in self._indexes.items():
            index.add(getattr(entry, name), row)
        self._added.append(entry)
        self._alive_added.append(True)
        self._place.append(place)
        self._table = None
        if len(self._added) >= max(_MOST_ADDED, len(self._rows)):
            self._begin(self.table)

    def _same(self, entry: RecordingEntry) -> list[int]:
        """The entries of the same id or source."""
        found = dict.fromkeys(self._where("recording_id", entry.recording_id))
        if entry.source:
            found |= dict.fromkeys(self._where("source", entry.source))
        return list(found)

    def _drop(self, row: int, entry: RecordingEntry) -> None:
        if row < len(self._rows):
            self._alive[row] = False
        else:
            self._alive_added[row - len(self._rows)] = False
        self._table = None
        self._tally(entry, -1)

    def _tally(self, entry: RecordingEntry, by: int) -> None:
        """Count an entry that comes, or has gone."""
        self._count += by
        if entry.kind != "blueprint" and not self.of_recording(entry.recording_id):
            self.recordings += by
        self.chunks += by * entry.chunks
        self.rows += by * entry.rows
        self.bytes += by * entry.bytes

    def _place_of(self, row: int) -> int:
        return row if row < len(self._rows) else self._place[row - len(self._rows)]

    def _entry(self, row: int) -> RecordingEntry:
        if row >= len(self._rows):
            return self._added[row - len(self._rows)]
        return next(entries_in(self._rows.slice(row, 1).to_batches()))

    def _where(self, name: str, value: str) -> list[int]:
        """The live rows of which a column has a value."""
        index = self._indexes.get(name)
        if index is None:
            index = self._indexes[name] = _Index(self._rows[name].to_pylist())
            for at, entry in enumerate(self._added, len(self._rows)):
                index.add(getattr(entry, name), at)
        first = len(self._rows)
        return [r for r in index.rows(value) if (self._alive[r] if r < first else self._alive_added[r - first])]


class _Index:
    """The rows of each value of a column."""

    def __init__(self, values: list[str | None]) -> None:
        self._first: dict[str, int] = {}
        self._more: dict[str, list[int]] = {}
        for row, value in enumerate(values):
            self.add(value, row)

    def add(self, value: str | None, row: int) -> None:
        """Note that a row has a value."""
        if value is not None and self._first.setdefault(value, row) != row:
            self._more.setdefault(value, []).append(row)

    def rows(self, value: str) -> list[int]:
        """The rows that have a value, ascending."""
        first = self._first.get(value)
        return [] if first is None else [first, *self._more.get(value, ())]


def live_rows(table: pa.Table) -> Rows:
    """The numbers of those rows of tables that are to be seen, in the order of their arrival.

    A row is not where a later one takes its place: one of its key, or, where its source stays where it is, one that
    is no removal and has another content, which is known, of the same source. It has the place of the row of its key
    before it where both were added at the same moment, as one that only got another source was.
    """
    keys, removed = _keys(table), _numpy(table["removed"])
    following = _next_of(keys)
    is_live = ~removed & (following < 0)
    displaced = _displaced(table, removed)
    is_live &= displaced == len(table)
    return _in_order(np.flatnonzero(is_live), keys, _numpy(table["added"]), removed, displaced)


def _keys(table: pa.Table) -> Rows:
    """For each row a number of its key."""
    application = pc.if_else(pc.equal(table["kind"], "blueprint"), table["application_id"], "")
    codes = _codes(table["recording_id"])
    for column in (table["kind"], application, table["layer"]):
        more = _codes(column)
        codes = np.unique(codes * (int(more.max(initial=0)) + 1) + more, return_inverse=True)[1].astype(np.int64)
    return codes


def _next_of(codes: Rows) -> Rows:
    """For each row the next one of the same number, or -1."""
    order = np.argsort(codes, kind="stable")
    same = codes[order][1:] == codes[order][:-1]
    found = np.full(len(codes), -1, dtype=np.int64)
    found[order[:-1][same]] = order[1:][same]
    return found


def _displaced(table: pa.Table, removed: npt.NDArray[Any]) -> Rows:
    """For each row the first later one that is another content of its source; the number of rows where there is none.

    Of one whose source did not stay there is none.
    """
    count = len(table)
    found = np.full(count, count, dtype=np.int64)
    there = np.flatnonzero(~removed & _numpy(pc.not_equal(table["source_digest"], "")))
    sources, digests = _codes(table["source"])[there], _codes(table["source_digest"])[there]
    order = np.argsort(sources, kind="stable")
    if not len(order):
        return found
    sources, digests, rows = sources[order], digests[order], there[order]
    starts = np.append(True, (sources[1:] != sources[:-1]) | (digests[1:] != digests[:-1]))
    run = np.cumsum(starts) - 1
    first = np.flatnonzero(starts)
    follows = np.append(sources[first][1:] == sources[first][:-1], False)
    following = np.where(follows, rows[np.append(first[1:], 0)], count)
    found[rows] = following[run]
    return np.where(_numpy(table["source_kept"]), found, count)


def _in_order(live: Rows, keys: Rows, added: npt.NDArray[Any], removed: npt.NDArray[Any], displaced: Rows) -> Rows:
    """Live rows by their places."""
    order = np.argsort(keys, kind="stable")
    before, after = order[:-1], order[1:]
    stays = (keys[before] == keys[after]) & (added[before] == added[after]) & ~removed[before] & ~removed[after]
    stays &= displaced[before] >= after
    place = np.arange(len(keys))
    for earlier, later in zip(before[stays].tolist(), after[stays].tolist(), strict=True):
        place[later] = place[earlier]
    return live[np.argsort(place[live], kind="stable")]


def _codes(column: pa.ChunkedArray) -> Rows:
    """For each value a number."""
    indices = column.combine_chunks().dictionary_encode().indices
    return np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _numpy(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    return np.asarray(column.to_numpy())


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)
