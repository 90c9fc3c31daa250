"""Forgetting: remove all data of a segment from a dataset and its catalog."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import NotFoundError, ReadError, SourceMissingError, UsageError, check_argument, writing
from ..execution import Lease, RunOptions
from ..faults import reach
from ..lance import FixedTable, LanceTable, row_ids, rows_elsewhere, tagged_versions, version_holds
from ..locations import Location, exists, is_below, located, true_place
from ..query import SEGMENT_ID
from ..recordings import (
    History,
    LiveEntries,
    RecordingEntry,
    RecordingsFolder,
    StoreReader,
    all_layers_of,
    remove_recordings,
    tags_with,
)
from ..rrd import RrdFile, StoreEntry, digest_of
from ..storage import ObjectUrl, PlacedFile, digest_at, files_at, folder_and_name
from ..storage.folder import Folder
from ..tables import JobTable, ViewDefinition, purged
from ..units import counted, size
from .blueprints import HiddenDatasets
from .entries import EntryKind
from .entry_log import Entry, changing
from .search import SearchIndexes
from .segment_rows import dataset_of_rows, without_segments
from .segments import SegmentProperties

if TYPE_CHECKING:
    from .entry_log import EntryLog

RowIds = npt.NDArray[np.uint64]
OPERATION: Final = "forget"
_PLAN: Final = "plan.json"
_STORES: Final = "datasets/"
_NOT_TABLES: Final = ("search", "quarantine")
_LEROBOT: Final = "meta/chunkmill.json"
_PARQUET: Final = "_chunkmill.json"
_RECORDINGS: Final = (".rrd", ".rbl")
_QUARANTINE: Final = pa.schema([pa.field("path", pa.string(), nullable=False)])
_ROWS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class RemovedItem:
    """A removed item: its kind, its place, and its bytes if it is a file."""

    kind: str
    place: str
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RemainingItem:
    """An item that was not removed, and may hold data of a segment: its place, the reason, and a hint.

    ``is_below``: the item is in the catalog's own folder, so the segment is not forgotten yet.
    """

    place: str
    reason: str
    hint: str
    is_below: bool = False


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """The report of forgetting segments of a dataset.

    ``layers`` are the (segment, layer) pairs with data in any version. ``removed`` are the items that were removed,
    ``remaining`` those that were not. ``tags`` are the removed tags.

    >>> report = ForgetReport("drives", ("monday",), (("monday", "base"),), (RemovedItem("shard", "a.rrd", 7),), (), ())
    >>> report.is_complete, report.bytes
    (True, 7)
    """

    dataset: str
    segments: tuple[str, ...]
    layers: tuple[tuple[str, str], ...]
    removed: tuple[RemovedItem, ...]
    remaining: tuple[RemainingItem, ...]
    tags: tuple[str, ...]
    seconds: float = field(default=0.0, compare=False)

    @property
    def is_complete(self) -> bool:
        """Whether no data of the segments remains in the catalog's folder."""
        return not any(item.is_below for item in self.remaining)

    @property
    def bytes(self) -> int:
        """The bytes of the files that were removed."""
        return sum(item.bytes for item in self.removed)

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            **asdict(self),
            "layers": [list(pair) for pair in self.layers],
            "is_complete": self.is_complete,
            "bytes": self.bytes,
        }

    def table(self) -> pa.Table:
        """One row for each item that was removed or remains: ``state``, ``kind``, ``place``, ``bytes``, ``hint``."""
        rows: list[tuple[Any, ...]] = [("removed", item.kind, item.place, item.bytes, None) for item in self.removed]
        rows += [("remains", item.reason, item.place, None, item.hint) for item in self.remaining]
        return pa.Table.from_pylist([dict(zip(_ROWS.names, row, strict=True)) for row in rows], _ROWS)

    def __str__(self) -> str:
        kinds: dict[str, tuple[int, int]] = {}
        for item in self.removed:
            count, total = kinds.get(item.kind, (0, 0))
            kinds[item.kind] = count + 1, total + item.bytes
        names = ", ".join(map(repr, self.segments))
        lines = [f"removed from {self.dataset!r}: {names} ({counted(len(self.layers), 'layer')})"]
        lines += [
            f"  removed {counted(n, kind)}" + f", {size(total)}" * bool(total) for kind, (n, total) in kinds.items()
        ]
        lines += [f"  removed tag {tag!r}" for tag in self.tags]
        lines += [f"  remains: {item.place}: {item.reason}. {item.hint}" for item in self.remaining]
        if not self.layers and not self.removed:
            lines.append("  there was no data")
        return "\n".join(lines)


_ROWS: Final = pa.schema(
    [
        ("state", pa.string()),
        ("kind", pa.string()),
        ("place", pa.string()),
        ("bytes", pa.int64()),
        ("hint", pa.string()),
    ]
)


@dataclass
class _Plan:
    """The plan of forgetting. Its file is in the store until all is done."""

    segments: list[str] = field(default_factory=list)
    layers: list[list[str]] = field(default_factory=list)
    sources: list[list[Any]] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    blueprints: list[str] = field(default_factory=list)

    def add(self, other: _Plan) -> None:
        for name in self.__dataclass_fields__:
            values = getattr(self, name)
            values += [value for value in getattr(other, name) if value not in values]


class _Plans:
    """The file with a dataset's plan. A call continues the plan of an interrupted call."""

    def __init__(self, folder: RecordingsFolder) -> None:
        self._folder = Folder.at(folder.path).sub(OPERATION)

    def read(self) -> _Plan:
        try:
            return _Plan(**json.loads(self._folder.get(_PLAN)))
        except (FileNotFoundError, SourceMissingError):
            return _Plan()
        except (ValueError, TypeError) as error:
            place = self._folder.place(_PLAN)
            raise ReadError(
                f"the list of segments to forget cannot be read: {error}",
                path=place,
                hint="Remove the file, and call forget again.",
            ) from error

    def write(self, plan: _Plan) -> None:
        with writing(self._folder.place(_PLAN)):
            self._folder.make()
            self._folder.replace(_PLAN, json.dumps(asdict(plan)).encode(), "forget.begin")

    def remove(self) -> None:
        reach("forget.end")
        with writing(self._folder.place(_PLAN)):
            self._folder.delete([_PLAN])
            self._folder.remove()


def unfinished(folder: RecordingsFolder) -> list[ReadError]:
    """Return the errors for segments that are being forgotten, or whose forgetting was interrupted."""
    try:
        segments = _Plans(folder).read().segments
    except ReadError as error:
        return [error]
    hint = "Call forget again: it removes the remaining data."
    return [
        ReadError(
            f"segment {segment!r} is being forgotten, and some of its data remains", path=str(folder.path), hint=hint
        )
        for segment in segments
    ]


def forget(
    dataset: HiddenDatasets,
    log: EntryLog,
    segment_ids: Iterable[str],
    *,
    force: bool = False,
    exports: Sequence[Location] = (),
) -> ForgetReport:
    """Forget segments of a dataset; see :meth:`DatasetEntry.forget`."""
    began = time.perf_counter()
    ids = sorted(set(segment_ids))
    if not ids:
        raise UsageError("no segment was given")
    for segment_id in ids:
        check_argument("segment_ids", segment_id, str)
    folder = RecordingsFolder(log.place(log.read().dataset(dataset.id)))
    with Lease.take(folder.path, OPERATION, name=OPERATION):
        report = _Forgetting(dataset, log, folder, ids, force, exports).run()
    return replace(report, seconds=time.perf_counter() - began)


class _Forgetting:
    def __init__(
        self,
        dataset: HiddenDatasets,
        log: EntryLog,
        folder: RecordingsFolder,
        ids: list[str],
        force: bool,
        exports: Sequence[Location],
    ) -> None:
        self._dataset = dataset
        self._log = log
        self._folder = folder
        self._force = force
        self._exports = exports
        self._plans = _Plans(folder)
        self._plan = self._plans.read()
        self._plan.add(_Plan(segments=ids))
        self._ids = frozenset(self._plan.segments)
        self._removed: list[RemovedItem] = []
        self._remaining: list[RemainingItem] = []

    def run(self) -> ForgetReport:
        """Make the plan, store it, carry it out, and remove it."""
        entries = all_layers_of(self._folder, self._ids)
        files = files_at(self._log.root)
        tables = _Tables(self._dataset, self._log, files, self._ids)
        held = tables.held(self._plan.tables)
        tags = self._tags(tables, held)
        self._plan.add(
            _Plan(
                layers=sorted({(e.recording_id, e.layer): [e.recording_id, e.layer] for e in entries}.values()),
                sources=[[e.source, e.source_size, e.source_digest, e.in_place] for e in entries],
                tables=sorted(str(table.place) for table in held),
                blueprints=self._blueprints({entry.source for entry in entries}),
            )
        )
        self._plans.write(self._plan)
        self._copy_shared(entries)
        self._clear_store()
        self._clear_properties()
        for table in held:
            self._clear_table(tables, table)
        self._clear_files(files)
        self._clear_quarantine()
        self._look_elsewhere()
        if all(not item.is_below for item in self._remaining):
            self._plans.remove()
        layers = tuple((segment, layer) for segment, layer in self._plan.layers)
        return ForgetReport(
            self._dataset.name,
            tuple(sorted(self._ids)),
            layers,
            tuple(self._removed),
            tuple(self._remaining),
            tuple(tags),
        )

    def _tags(self, tables: _Tables, held: Sequence[LanceTable]) -> list[str]:
        """Remove the tags whose versions have data of the segments. Without force, raise a ``UsageError`` instead."""
        of_tables = {table.place: tagged_versions(table) for table in held}
        own = tags_with(self._folder, self._ids)
        named = [repr(tag) for tag in own]
        named += [f"{tag!r} of table {located(place).name!r}" for place, tags in of_tables.items() for tag in tags]
        if named and not self._force:
            raise UsageError(
                f"a tag keeps a version that has data of these segments: {', '.join(named)}",
                hint="Remove the tag, or set force=True (--force) to have it removed.",
            )
        tables.drop_tags(of_tables)
        for tag in own:
            History(self._folder, f"dataset {self._dataset.name!r}").untag(tag)
        return named

    def _blueprints(self, sources: Collection[str]) -> list[str]:
        """The blueprints from source files that have no recordings of other segments."""
        columns = ("recording_id", "kind", "source")
        live = StoreReader(self._folder).live().columns(*columns).to_pylist()
        others = {e["source"] for e in live if e["kind"] != "blueprint" and e["recording_id"] not in self._ids}
        return sorted(
            {e["recording_id"] for e in live if e["kind"] == "blueprint" and e["source"] in set(sources) - others}
        )

    # --- the dataset

    def _copy_shared(self, entries: Sequence[RecordingEntry]) -> None:
        """Copy other segments' recordings from files in the catalog's folder, so that the files can be removed."""
        live = StoreReader(self._folder).live()
        for entry in {entry.source: entry for entry in entries if entry.in_place}.values():
            others = [layer for segment, layer in _in_place(live, entry.source) if segment not in self._ids]
            if others and self._is_below(entry.source):
                for layer in sorted(set(others)):
                    self._dataset.register(entry.source, layer_name=layer, copy=True).wait()

    def _clear_store(self) -> None:
        if self._folder.newest() is not None:
            result = remove_recordings(self._folder, {*self._ids, *self._plan.blueprints})
            self._removed += [RemovedItem(file.kind, file.place, file.bytes) for file in result.files]
            for shard, recording in result.unreadable:
                hint = "Unregister that recording, or restore the file, and run this again."
                self._stays(
                    shard,
                    f"recording {recording!r} in this file is damaged, and cannot be copied to another file",
                    hint,
                )
            for run in result.writers:
                place = self._folder.writers.place(f"{run}.json")
                hint = "Run this again when the writer is done."
                self._stays(place, "a writer is running, and its new files may have such data", hint)
        indexes = SearchIndexes(self._folder)
        for name, error in indexes.purge(StoreReader(self._folder).live(), RunOptions(None)).items():
            self._removed.append(RemovedItem("search table", name))
            if error is not None:
                reason = f"the search index of {name} was removed, and could not be rebuilt: {error.message}"
                self._stays(str(self._folder.path), reason, "Create the index again after fixing this.", is_below=False)

    def _clear_properties(self) -> None:
        for segment in sorted(self._ids):
            for place, num_bytes in SegmentProperties(self._folder.path).forget(segment):
                self._removed.append(RemovedItem("property file", place, num_bytes))
        for name in self._dataset.forget_in_assets(self._ids):
            self._removed.append(RemovedItem("asset list", name))

    # --- tables

    def _clear_table(self, tables: _Tables, table: LanceTable) -> None:
        if elsewhere := tables.unclear(table):
            hint = f"Delete its rows where {SEGMENT_ID} is one of these segments, and then remove its old versions."
            self._stays(table.place, f"the table has rows of such segments, perhaps of dataset {elsewhere!r}", hint)
            return
        before = {file.path: file.size for file in files_at(located(table.place))}
        tables.remove_rows(table)
        reach("forget.table")
        purged(table, JobTable(table.place, table.label))
        after = {file.path for file in files_at(located(table.place))}
        self._removed += [
            RemovedItem("table file", f"{table.place}/{path}", num_bytes)
            for path, num_bytes in before.items()
            if path not in after
        ]

    # --- files

    def _clear_files(self, files: Sequence[PlacedFile]) -> None:
        """Remove copies of source files, recordings and exports that are in the catalog's folder outside its stores."""
        sizes: dict[int, set[str]] = {}
        for _, num_bytes, digest, _ in self._plan.sources:
            sizes.setdefault(num_bytes, set()).add(digest)
        places = {self._true(source) for source, _, _, _ in self._plan.sources}
        root = self._log.root
        skipped = self._own_folders()
        for file in files:
            if file.path.startswith(skipped):
                continue
            if file.path.endswith((_LEROBOT, _PARQUET)):
                self._clear_export(file)
                continue
            place = str(root / file.path)
            try:
                is_copy = self._true(place) in places
                if not is_copy and sizes.get(file.size, set()) - {""}:
                    is_copy = digest_at(root, file) in sizes[file.size]
                others = self._others_in(place, file)
            except (FileNotFoundError, SourceMissingError):
                continue
            if is_copy or (others is not None and not others):
                if others and not self._is_free(place):
                    hint = "Register the other recordings with copy=True, and run this again."
                    self._stays(place, f"the file also has other recordings: {', '.join(sorted(others)[:3])}", hint)
                    continue
                self._remove(file)
            elif others:
                hint = "Write the other recordings into another file, and remove this one."
                self._stays(place, f"the file also has other recordings: {', '.join(sorted(others)[:3])}", hint)

    def _own_folders(self) -> tuple[str, ...]:
        """The folders of stores, of tables and of the catalog itself in the catalog's folder."""
        root = true_place(self._log.root)
        places = [true_place(self._log.place(row)) for row in self._log.read().entries.values()]
        below = [place[len(root) :].strip("/") for place in places if is_below(place, root) and place != root]
        return ("catalog/", _STORES, "tables/", ".serve", *(f"{place}/" for place in below))

    def _others_in(self, place: str, file: PlacedFile) -> set[str] | None:
        """Return the other recordings of an RRD that has one of the segments; None for another file."""
        stores = _stores_of(place, file)
        ids = {store.recording_id for store in stores}
        return ids - self._ids if ids & self._ids else None

    def _is_free(self, place: str) -> bool:
        """Return whether no other segment of the catalog has recordings in a file."""
        for row in self._log.read().entries.values():
            if row.kind is EntryKind.TABLE:
                continue
            for segment, _ in _in_place(StoreReader(RecordingsFolder(self._log.place(row))).live(), place):
                if row.id != self._dataset.id or segment not in self._ids:
                    return False
        return True

    def _clear_export(self, file: PlacedFile) -> None:
        root = self._log.root
        names = _exported(*folder_and_name(root, file.path), self._folder)
        if not names & self._ids:
            return
        marker = _LEROBOT if file.path.endswith(_LEROBOT) else _PARQUET
        above = file.path.removesuffix(marker).rstrip("/")
        for each in files_at(root / above) if above else []:
            self._remove(PlacedFile(f"{above}/{each.path}", each.size), "export file")

    def _remove(self, file: PlacedFile, kind: str = "file") -> None:
        folder, name = folder_and_name(self._log.root, file.path)
        reach("forget.file")
        with writing(folder.place(name)):
            folder.delete([name])
        self._removed.append(RemovedItem(kind, folder.place(name), file.size))

    def _clear_quarantine(self) -> None:
        """Remove the rows of the source files from the ingestion's quarantine."""
        place = self._folder.path / "quarantine" / "table.lance"
        table = FixedTable(place, _QUARANTINE, name="the quarantine table", unread="", unwritten="Run this again.")
        if table.versions():
            table.purge("path", [source for source, _, _, _ in self._plan.sources])

    # --- data out of reach

    def _look_elsewhere(self) -> None:
        for source in sorted({source for source, _, _, _ in self._plan.sources}):
            if _exists(source):
                hint = "Remove the file, or register it again to keep it."
                self._stays(source, "the source file", hint, is_below=False)
        self._look_at_exports()
        for row in self._log.read().entries.values():
            if row.id == self._dataset.id or row.kind is not EntryKind.DATASET:
                continue
            live = StoreReader(RecordingsFolder(self._log.place(row))).live()
            for segment in sorted(self._ids):
                if live.of_recording(segment):
                    hint = (
                        f"If it has the same data, forget it there, too: get_dataset({row.name!r}).forget({segment!r})."
                    )
                    self._stays(
                        self._log.place(row), f"dataset {row.name!r} has a segment {segment!r}", hint, is_below=False
                    )
        if isinstance(self._log.root, ObjectUrl):
            hint = "Expire old versions of objects there, if the bucket keeps any."
            self._stays(str(self._log.root), "the bucket may keep old versions of objects", hint, is_below=False)
        live = StoreReader(self._folder).live()
        for segment in sorted(self._ids):
            if live.of_recording(segment):
                reason = f"segment {segment!r} was registered again meanwhile"
                hint = "Run this again to forget it."
                self._stays(str(self._folder.path), reason, hint, is_below=False)
        for tag in tags_with(self._folder, self._ids):
            reason = f"tag {tag!r} was made meanwhile, and keeps a version with such data"
            self._stays(str(self._folder.path), reason, "Run this again with force=True (--force).")

    def _look_at_exports(self) -> None:
        for place in self._exports:
            for file in files_at(place):
                if file.path.endswith((_LEROBOT, _PARQUET)):
                    names = _exported(*folder_and_name(place, file.path), self._folder)
                    if names & self._ids:
                        export = str(place / file.path).removesuffix(_LEROBOT).removesuffix(_PARQUET).rstrip("/")
                        hint = (
                            "Update it with write_lerobot(…, append=True), or write a new export and remove this one."
                        )
                        self._stays(export, "an export with a segment", hint, is_below=False)

    def _stays(self, place: str, reason: str, hint: str, *, is_below: bool = True) -> None:
        self._remaining.append(RemainingItem(place, reason, hint, is_below))

    def _is_below(self, place: str) -> bool:
        return is_below(self._true(place), true_place(self._log.root))

    @staticmethod
    def _true(place: str) -> str:
        return true_place(located(place))


class _Tables:
    """The Lance tables of a catalog, or below its folder, that have rows of segments of a dataset; and their views.

    A table of :meth:`DatasetView.rows_table` names the dataset of its rows. Rows of other tables with a column
    ``rerun_segment_id`` belong to this dataset, unless another dataset has such a segment.
    """

    def __init__(
        self, dataset: HiddenDatasets, log: EntryLog, files: Sequence[PlacedFile], ids: Collection[str]
    ) -> None:
        self._dataset = dataset
        self._log = log
        self._ids = ids
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in sorted(ids))
        self._where = f"{SEGMENT_ID} IN ({names})"
        rows = [row for row in log.read().entries.values() if row.kind is EntryKind.TABLE]
        places = {log.place(row): row.name for row in rows}
        for file in files:
            above, folder, _ = file.path.rpartition("/_versions/")
            if folder and not set(_NOT_TABLES) & set(above.split("/")):
                places.setdefault(str(log.root / above), above.rpartition("/")[2])
        self._tables = [LanceTable(located(place), name, log.gate) for place, name in sorted(places.items())]
        self._views: dict[str, LanceTable] = {}

    def held(self, planned: Sequence[str]) -> list[LanceTable]:
        """The planned tables, tables with rows of the segments in any version, and their views; views first."""
        sources = [t for t in self._tables if t.place in planned or self._holds(t)]
        wanted = {str(t.place) for t in sources}
        depth = {t.place: 0 for t in sources}
        schemas = {t.place: _schema(t) for t in self._tables}
        is_found = True
        while is_found:
            is_found = False
            for table in self._tables:
                definition = None if schemas[table.place] is None else ViewDefinition.of(schemas[table.place])
                source = None if definition is None else definition.source_table(table)
                if source is not None and source.place in wanted:
                    self._views[table.place] = source
                    deeper = depth[source.place] + 1
                    if table.place not in wanted or depth[table.place] < deeper:
                        wanted.add(table.place)
                        depth[table.place] = deeper
                        is_found = True
        return sorted((t for t in self._tables if t.place in wanted), key=lambda t: -depth[t.place])

    def _holds(self, table: LanceTable) -> bool:
        try:
            owner = dataset_of_rows(table.at().schema)
            return owner in (None, str(self._dataset.id)) and version_holds(table, SEGMENT_ID, self._where)
        except NotFoundError:
            return False

    def unclear(self, table: LanceTable) -> str | None:
        """The name of another dataset that a table's rows of these segments may belong to, or None."""
        schema = table.at().schema
        if SEGMENT_ID not in schema.names or dataset_of_rows(schema) is not None:
            return None
        for row in self._log.read().entries.values():
            if row.kind is EntryKind.DATASET and row.id != self._dataset.id:
                live = StoreReader(RecordingsFolder(self._log.place(row))).live()
                if any(live.of_recording(segment) for segment in self._ids):
                    return row.name
        return None

    def drop_tags(self, tags: Mapping[str, Collection[str]]) -> None:
        for table in self._tables:
            for tag in tags.get(table.place, ()):
                with table.writing():
                    table.open().tags.delete(tag)

    def going(self, table: LanceTable) -> RowIds:
        """The ids of the rows of the segments; for a view, also of rows that its source no longer has, or will lose."""
        going = row_ids(table, self._where) if SEGMENT_ID in table.at().schema.names else np.empty(0, np.uint64)
        source = self._views.get(table.place)
        if source is not None:
            staying = np.setdiff1d(row_ids(source), self.going(source))
            going = np.union1d(going, rows_elsewhere(table, staying))
        return going

    def remove_rows(self, table: LanceTable) -> None:
        """Delete the rows of :meth:`going`."""
        if dataset_of_rows(table.at().schema) is not None:
            without_segments(table, self._ids)
        ids = self.going(table).tolist()
        for at in range(0, len(ids), _ROWS_AT_ONCE):
            table.delete(f"_rowid IN ({', '.join(map(str, ids[at : at + _ROWS_AT_ONCE]))})")


def _schema(table: LanceTable) -> pa.Schema | None:
    try:
        return table.at().schema
    except NotFoundError:
        return None  # moved away; a check reports it


def _in_place(live: LiveEntries, place: str) -> list[tuple[str, str]]:
    """The segments and layers whose chunks are in the file at a place."""
    table = live.columns("recording_id", "layer", "source", "in_place")
    rows = table.filter(pc.and_(table["in_place"], pc.equal(table["source"], place)))
    return list(zip(rows["recording_id"].to_pylist(), rows["layer"].to_pylist(), strict=True))


def _stores_of(place: str, file: PlacedFile) -> list[StoreEntry]:
    """The recordings in an RRD; empty for another or a damaged file."""
    if not file.path.endswith(_RECORDINGS) or not file.size:
        return []
    try:
        return RrdFile(place).stores()
    except (OSError, ReadError):
        return []


def _exported(folder: Folder, name: str, store: RecordingsFolder) -> set[str]:
    """The recordings of a store in an export, from the export's file with its recordings; empty for another file."""
    try:
        facts = json.loads(folder.get(name))
        recordings = facts["recordings"]
        path = store.path
        origin = digest_of(str(path.resolve() if isinstance(path, Path) else path).encode()).hex()
        names = {
            str(each.get("name", each.get("recording_id")))
            for each in recordings
            if each.get("origin") in (None, origin)
        }
        return names | {str(each["recording"]) for each in facts.get("episodes", ())} - {
            str(each.get("name")) for each in recordings
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def _exists(source: str) -> bool:
    try:
        return exists(located(source))
    except (OSError, UsageError):
        return False


class DatasetForget(Entry):
    """The method of a dataset that removes all data of segments."""

    @changing
    def forget(
        self,
        segment_ids: str | Iterable[str],
        *,
        force: bool = False,
        exports: Sequence[str | os.PathLike[str]] = (),
    ) -> ForgetReport:
        """Remove all data of segments from the catalog's folder.

        This rewrites the dataset's store and removes its earlier versions. It also removes properties; rows of tables
        and views, with the earlier versions of these; and copies of source files, exports and quarantine entries in the
        catalog's folder. Search indexes are rebuilt. The report lists data outside the catalog. Stop writers of the
        tables first. A segment that is registered again meanwhile stays. Readers of an earlier version get a
        ``ReadError``. Guarantee: the same call completes an interrupted one, and changes nothing when repeated.

        Parameters
        ----------
        segment_ids
            One id, or several.
        force
            Remove tags whose versions have such data. By default such tags are an error.
        exports
            Other folders to search for exports of the dataset, for the report.

        Raises
        ------
        ValueError
            No segment is given, or a tag keeps a version with such data.
        WriteError
            Another process runs forget, compact or vacuum, or a job computes columns of a table.
        """
        names = [segment_ids] if isinstance(segment_ids, str) else segment_ids
        assert isinstance(self, HiddenDatasets), "a dataset also has assets"
        return forget(self, self._log, names, force=force, exports=[located(place) for place in exports])
