"""The search indexes of a dataset: their list, the layers that each covers, and their creation.

::

    search/versions/00000007.json      the list of indexes, in versions like those of a store
    search/made/<name>.arrow           the layers that an index covers, by their numbers in its rows
    search/made/<name>.table           an empty file: the table of this name may exist
    search/tables/<name>               the rows of an index: one version of a Lance table

A version file puts all data of an index in use in one step. Until then, the index before it is in use, and new data has
no effect.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from ...errors import ChunkmillError, ReadError, WriteError, writing
from ...execution import Lease, RunOptions, Stage, Task, dealt, query_executor, raise_failure, warn_of
from ...faults import reach
from ...lance import IndexTable, SearchIndex, TextIndex, VectorIndex
from ...recordings import LiveEntries, RecordingEntry, RecordingsFolder
from ...rrd import digest_of
from ...storage import VersionFiles, is_url, publish
from ...storage.folder import Folder
from .elements import Elements, ElementsBody, Numbered

_HOW: Final = "Create one by create_vector_search_index() or create_fts_search_index()."
_POINTS: Final = "search.draft", "search.publish"
_TASK_BYTES: Final = 256 << 20
"""The bytes of the layers that one task indexes."""
_MOST_TASKS: Final = 64
_MARKS: Final = ("recording_id", "layer", "added", "segment_version", "source_digest")
_COVERED: Final = pa.schema(
    [
        ("number", pa.uint32()),
        ("recording_id", pa.string()),
        ("layer", pa.string()),
        ("added", pa.float64()),
        ("segment_version", pa.int64()),
        ("source_digest", pa.string()),
    ]
)
_TABLE: Final = ".table"
_LIST: Final = ".arrow"
_NAME: Final = re.compile(r"(?P<since>[0-9a-f]{16})-[0-9a-f]{12}\.(table|arrow)")

Mark = tuple[Any, ...]
"""The values that distinguish a layer from its replacement."""


@dataclass(frozen=True)
class StoredIndex:
    """An index: its elements, its table and the table's version, and its list of layers.

    ``covers`` is the name of the list, ``digest`` its digest, and ``next_number`` the first unused layer number.
    """

    elements: Elements
    index: SearchIndex
    table: str = ""
    version: int = 0
    covers: str = ""
    digest: str = ""
    next_number: int = 0
    choices: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The component of its elements."""
        return f"{self.elements.entity}:{self.elements.component}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        types = pa.schema([("timepoint", self.elements.timepoint), ("instance", self.elements.instance)])
        return {
            "entity": self.elements.entity,
            "component": self.elements.component,
            "index": self.elements.index,
            "types": types.serialize().to_pybytes().hex(),
            "text" if isinstance(self.index, TextIndex) else "vector": asdict(self.index),
            **{name: getattr(self, name) for name in _PLAIN},
        }

    @classmethod
    def of(cls, data: dict[str, Any]) -> StoredIndex:
        """The inverse of :meth:`to_dict`. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for something else."""
        types = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(data["types"])))
        timepoint, instance = (types.field(name).type for name in ("timepoint", "instance"))
        index = TextIndex(**data["text"]) if "text" in data else VectorIndex(**data["vector"])
        elements = Elements(data["entity"], data["component"], data["index"], timepoint, instance)
        return cls(elements, index, **{name: data[name] for name in _PLAIN})


_PLAIN: Final = ("table", "version", "covers", "digest", "next_number", "choices")


@dataclass(frozen=True)
class Coverage:
    """The layers of a dataset compared with those of an index. Rows with the layer numbers ``dead`` are left out."""

    kept: tuple[tuple[int, Mark], ...]
    dead: tuple[int, ...]
    missing: tuple[RecordingEntry, ...]


class SearchIndexes:
    """The search indexes of a dataset whose store is at ``folder``."""

    def __init__(self, folder: RecordingsFolder) -> None:
        self._store = folder
        self._home = folder.path / "search"
        self._files = VersionFiles(Folder.at(self._home / "versions"), str(self._home), _HOW, _POINTS)

    def all(self) -> list[StoredIndex]:
        """All indexes, in the order of their creation. Raises ``ReadError``."""
        return self._read()[1]

    def named(self, entity: str, component: str) -> StoredIndex | None:
        """The index of a component."""
        return next((index for index in self.all() if _key(index) == (entity, component)), None)

    def table(self, index: StoredIndex) -> IndexTable:
        """The rows of an index."""
        return IndexTable(self._home / "tables" / index.table, index.name)

    def create(self, index: StoredIndex, live: LiveEntries, run: RunOptions) -> StoredIndex:
        """Create an index of all layers, and put it in use. It replaces an index of the same component."""
        made = self._made(index, live, run)

        def added(all_: list[StoredIndex]) -> list[StoredIndex]:
            if not Folder.at(self._home / "made").exists(f"{made.table}{_TABLE}"):
                raise WriteError(
                    f"the new search index of {made.name} was removed, because recordings were forgotten meanwhile",
                    path=str(self._home),
                    hint="Make it again.",
                    transient=True,
                )
            return [*(stored for stored in all_ if _key(stored) != _key(made)), made]

        self._change(added)
        return made

    def delete(self, entity: str, component: str) -> list[StoredIndex]:
        """Take the indexes of a component out of use, and return them."""
        gone: list[StoredIndex] = []

        def without(all_: list[StoredIndex]) -> list[StoredIndex] | None:
            gone[:] = [index for index in all_ if _key(index) == (entity, component)]
            return [index for index in all_ if index not in gone] if gone else None

        self._change(without)
        return gone

    def coverage(self, index: StoredIndex, live: LiveEntries) -> Coverage:
        """The comparison of the live layers with those that an index covers. Raises ``ReadError``."""
        covered = self._covered(index)
        live_marks = dict(zip(_marks(live.table), range(len(live)), strict=True))
        kept = tuple((number, mark) for number, mark in covered if mark in live_marks)
        covered_marks = {mark for _, mark in kept}
        dead = tuple(number for number, mark in covered if mark not in live_marks)
        if len(covered_marks) == len(live_marks):
            return Coverage(kept, dead, ())
        missing = (entry for entry in live if _mark_of(entry) not in covered_marks)
        return Coverage(kept, dead, tuple(entry for entry in missing if entry.kind != "blueprint"))

    def maintain(self, live: LiveEntries, run: RunOptions, *, retrain: bool) -> None:
        """Update all indexes; with ``retrain``, train them again.

        Raises a transient ``WriteError`` if another process updates or changes them.
        """
        if not self.all():
            return
        with Lease.take(self._home, "search"):
            for index in self.all():
                self._bring_up_to_date(index, live, run, retrain=retrain)

    def clean(self, age_seconds: float, *, unverified: bool = False) -> None:
        """Remove older files that are not in use; with ``unverified``, also those that no table version ever had."""
        indexes = self.all()
        limit = time.time() - age_seconds
        named = {f"{index.table}{_TABLE}" for index in indexes} | {f"{index.covers}{_LIST}" for index in indexes}
        folder = Folder.at(self._home / "made")
        for name in [] if not folder.exists() else set(folder.names()) - named:
            match = _NAME.fullmatch(name)
            if match is None or int(match["since"], 16) / 1e9 > limit:
                continue
            if name.endswith(_TABLE):
                self._remove(name.removesuffix(_TABLE))
            else:
                with writing(str(self._home)):
                    folder.delete([name])
        for index in indexes:
            self.table(index).clean(index.version, age_seconds, unverified=unverified)

    def purge(self, live: LiveEntries, run: RunOptions) -> dict[str, ChunkmillError | None]:
        """Rebuild indexes that have, or had, rows of removed layers, and remove all files that no index needs.

        Return the indexes by name, each with None, or the error for which it was deleted. Raises as :meth:`maintain`.
        """
        if not self._files.all_numbers():
            return {}
        with Lease.take(self._home, "search"):
            anew: dict[str, ChunkmillError | None] = {}
            for index in self.all():
                coverage = self.coverage(index, live)
                is_whole = not coverage.dead and len(coverage.kept) == index.next_number
                if not is_whole or self.table(index).newest_version() != index.version:
                    anew[index.name] = None
                    try:
                        self.create(index, live, run)
                    except (ReadError, WriteError) as error:
                        if error.transient:
                            raise
                        self.delete(*_key(index))
                        anew[index.name] = error
            reach("forget.search")
            self.clean(0.0, unverified=True)
            self._files.delete(self._files.all_numbers()[:-1])
        return anew

    # --- inside

    def _made(self, index: StoredIndex, live: LiveEntries, run: RunOptions) -> StoredIndex:
        layers = tuple(enumerate(entry for entry in live if entry.kind != "blueprint"))
        new = replace(index, table=_fresh(), next_number=len(layers))
        self._keep(f"{new.table}{_TABLE}", b"")
        table = self.table(new)
        try:
            version = table.create(new.elements.schema)
            files = self._written(new, layers, run)
            reach("search.rows")
            version = table.upkeep(version, (), files, new.index, retrain=True)
            reach("search.index")
        except Exception:
            with contextlib.suppress(OSError, ReadError, WriteError):  # else maintenance removes it
                self._remove(new.table)
            raise
        return self._covering(replace(new, version=version), [(number, _mark_of(entry)) for number, entry in layers])

    def _remove(self, table: str) -> None:
        """Remove a table without an index, and then its empty file."""
        Folder.at(self._home / "tables").sub(table).remove()
        with writing(str(self._home)):
            Folder.at(self._home / "made").delete([f"{table}{_TABLE}"])

    def _bring_up_to_date(self, index: StoredIndex, live: LiveEntries, run: RunOptions, *, retrain: bool) -> None:
        coverage = self.coverage(index, live)
        if not (coverage.dead or coverage.missing or retrain):
            return
        layers = tuple(enumerate(coverage.missing, index.next_number))
        files = self._written(index, layers, run)
        reach("search.rows")
        version = self.table(index).upkeep(index.version, coverage.dead, files, index.index, retrain=retrain)
        reach("search.index")
        marks = [*coverage.kept, *((number, _mark_of(entry)) for number, entry in layers)]
        next_number = index.next_number + len(layers)
        made = self._covering(replace(index, version=version, next_number=next_number), marks)

        def in_its_place(all_: list[StoredIndex]) -> list[StoredIndex] | None:
            return [made if stored == index else stored for stored in all_] if index in all_ else None

        self._change(in_its_place)

    def _written(self, index: StoredIndex, layers: Sequence[Numbered], run: RunOptions) -> list[str]:
        """Write the rows of layers in tasks, and return Lance's descriptions of their files."""
        most = max(_TASK_BYTES, sum(entry.bytes for _, entry in layers) // _MOST_TASKS)
        groups = tuple(dealt(layers, lambda layer: layer[1].bytes, most))
        place = str(self._home / "tables" / index.table)
        body = ElementsBody(index.elements, str(self._store.path), place, index.name, groups)
        sizes = [sum(entry.bytes for _, entry in group) for group in groups]
        tasks = [Task(i, body.label(i), size) for i, size in enumerate(sizes)]
        executor = query_executor(run.executor, lambda: None if is_url(str(self._store.path)) else sum(sizes))
        ran = Stage(body, tasks).run(replace(run, executor=executor))
        raise_failure(ran.notes)
        warn_of(ran.notes, set())
        return [note.data["fragment"] for note in ran.notes if note.kind == "fragment"]

    def _covering(self, index: StoredIndex, marks: Sequence[tuple[int, Mark]]) -> StoredIndex:
        """Write the list of an index's layers, and return the index with this list."""
        columns = [[number for number, _ in marks], *([mark[i] for _, mark in marks] for i in range(len(_MARKS)))]
        table = pa.table(dict(zip(_COVERED.names, columns, strict=True)), _COVERED)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, _COVERED) as writer:
            writer.write_table(table)
        data = sink.getvalue().to_pybytes()
        name = _fresh()
        self._keep(f"{name}{_LIST}", data)
        return replace(index, covers=name, digest=digest_of(data).hex())

    def _keep(self, name: str, data: bytes) -> None:
        """Write a file in the folder ``made``."""
        folder = Folder.at(self._home / "made")
        with writing(str(self._home)):
            folder.make()
            folder.put(name, data)

    def _covered(self, index: StoredIndex) -> list[tuple[int, Mark]]:
        folder, name = Folder.at(self._home / "made"), f"{index.covers}{_LIST}"
        try:
            data = folder.get(name)
            if digest_of(data).hex() != index.digest:
                raise ValueError("its digest differs")
            columns = [column.to_pylist() for column in pa.ipc.open_file(data).read_all().columns]
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ReadError(
                f"the layers of the search index of {index.name} cannot be read: {error}",
                path=folder.place(name),
                hint="Create the index again; no data is lost.",
            ) from error
        return [(number, mark) for number, *mark_ in zip(*columns, strict=True) for mark in [tuple(mark_)]]

    def _read(self) -> tuple[int, list[StoredIndex]]:
        latest = self._files.latest()
        if latest is None:
            return 0, []
        try:
            return latest[0], [StoredIndex.of(data) for data in latest[1]["indexes"]]
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise ReadError(
                f"this list of search indexes cannot be read: {error!r}",
                path=str(self._home),
                hint="Remove the folder, and create the indexes again; no data is lost.",
            ) from error

    def _change(self, change: Callable[[list[StoredIndex]], list[StoredIndex] | None]) -> None:
        """Publish the indexes that ``change`` returns for the current ones, unless it returns None."""
        with writing(str(self._home)):
            self._files.folder.make()

        def attempt() -> bool | None:
            number, indexes = self._read()
            changed = change(indexes)
            if changed is None:
                return False
            if not self._files.commit(number + 1, {"indexes": [index.to_dict() for index in changed]}):
                return None
            self._files.delete(old for old in self._files.all_numbers() if old < number - 8)
            return True

        publish(attempt, "the search indexes", path=str(self._home))


def _key(index: StoredIndex) -> tuple[str, str]:
    return index.elements.entity, index.elements.component


def _fresh() -> str:
    """A new unique name with the current time."""
    return f"{time.time_ns():016x}-{secrets.token_hex(6)}"


def _marks(entries: pa.Table) -> list[Mark]:
    return list(zip(*(entries[name].to_pylist() for name in _MARKS), strict=True))


def _mark_of(entry: RecordingEntry) -> Mark:
    return tuple(getattr(entry, name) for name in _MARKS)
