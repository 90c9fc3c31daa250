"""The log of a catalog's entries, and the handle of an entry. Each version is an immutable file with all entries.

::

    lake/
      catalog/versions/00000001.json     the entries: id, name, kind, place, times, blueprints
      datasets/<ID>/                     a store of recordings, created with its first content

Versions follow the protocol of store versions (``engine/recordings/versions.py``): a writer reads the newest version
and publishes the next one, on the condition that it does not exist yet. If another writer was first, it reads that
version, and checks again. Each change is checked against the version before it, so if two writers take the same name,
exactly one gets it. A version holds all entries, so new versions replace old ones. Each version also lists the last
hundreds of changes.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar, cast

from ..errors import (
    AlreadyExistsError,
    ChunkmillError,
    CommitUnknownError,
    NotFoundError,
    ReadError,
    SourceMissingError,
    UnreachableError,
    UsageError,
    WriteError,
    writing,
)
from ..execution import Folder, LocalFolder, sync_folder
from ..faults import reach
from ..lance import Gate
from ..locations import Location, located
from ..recordings import (
    RecordingsFolder,
    StoreReader,
    versions_of_catalog,
)
from ..storage import VersionFiles, VersionPoint, has_files, name_of, number_at, publish, unreadable
from .entries import (
    DATASET_KINDS,
    HIDDEN_KINDS,
    MOST_CHANGES,
    EntryChange,
    EntryId,
    EntryKind,
    EntryRow,
    changes_between,
    check_entry_name,
    is_owned_by,
    parsed_changes,
    place_of_dataset,
    time_of,
)

if TYPE_CHECKING:
    from ..query import QuerySemantics

KEPT_VERSIONS: Final = 16
"""At least this many of the newest versions are kept, for readers that have just listed the versions."""
_MOST_READERS: Final = 64
"""The number of stores whose content a client caches: 1.3 kB for each recording."""
_POINTS: Final = ("entry.draft", "entry.publish")
_HOW: Final = "client.create_dataset(…) creates the first entry."

SECRETS: Final = ".serve"
"""The folder with the secret that signs the tokens of a server."""
OWN_FOLDERS: Final = ("catalog", "datasets", SECRETS, ".serve-secret")
"""The folders of the catalog itself, in which no table can be created or registered. The last one is a file: the former
place of a server's secret."""
GOING: Final = 0
"""The time of deletion of data that is being removed."""

SYSTEM_TABLE: Final = "__entries"
_SYSTEM_ID: Final = EntryId("0" * 32)

Change = Callable[[Mapping[EntryId, EntryRow]], Mapping[EntryId, EntryRow]]
"""A function from the present entries to the next ones. It raises if the change is not allowed, and runs again if
another process changed the entries first."""


@dataclass(frozen=True, slots=True)
class RemovedEntry:
    """A deleted dataset whose data still exists: its id, and the time of deletion in nanoseconds since the epoch."""

    id: EntryId
    removed_ns: int

    @property
    def is_going(self) -> bool:
        """Whether the removal of its data has begun."""
        return self.removed_ns == GOING

    @property
    def place(self) -> str:
        """The path of its data in the catalog."""
        return place_of_dataset(self.id)


@dataclass(frozen=True)
class CatalogVersion:
    """All entries of a catalog at one time. Number 0 is an empty catalog without a history.

    ``made_ns`` is the time of the catalog's first version, ``changed_ns`` the time of this version, 0 if an earlier
    release made it. ``changes`` are the last changes, including those of this version.
    """

    number: int
    entries: Mapping[EntryId, EntryRow]
    made_ns: int = 0
    first: int = 0
    removed: tuple[RemovedEntry, ...] = ()
    changed_ns: int = 0
    changes: tuple[EntryChange, ...] = ()

    def row(self, id: EntryId) -> EntryRow:  # noqa: A002 (it is one)
        """The entry of an id. Raises ``NotFoundError``."""
        row = self.entries.get(id) or (self.system_row if id == _SYSTEM_ID else None)
        if row is None:
            raise NotFoundError(f"Entry id '{id}' not found")
        return row

    def dataset(self, id: EntryId) -> EntryRow:  # noqa: A002 (it is one)
        """The dataset of an id. Raises ``NotFoundError``, also for an entry of another kind."""
        row = self.row(id)
        if row.kind not in DATASET_KINDS:
            raise NotFoundError(f"Entry id '{row.id}' not found", hint=f"'{row.name}' is not a dataset.")
        return row

    def named(self, name: str) -> EntryRow | None:
        """The entry of a name."""
        return next((row for row in self.all_rows() if row.name == name), None)

    def all_rows(self) -> Iterator[EntryRow]:
        """Every entry, including the system table."""
        yield self.system_row
        yield from self.entries.values()

    @property
    def system_row(self) -> EntryRow:
        """The table of all entries. Every version has it, but no version stores it."""
        return EntryRow(_SYSTEM_ID, SYSTEM_TABLE, EntryKind.TABLE, "", self.made_ns, self.made_ns)

    def like(self, name: str, kinds: tuple[EntryKind, ...]) -> str | None:
        """A hint with names that resemble ``name``."""
        names = [row.name for row in self.entries.values() if row.kind in kinds]
        close = get_close_matches(name, names, 3)
        if close:
            return f"Did you mean {' or '.join(map(repr, close))}?"
        if not self.number:
            return "The catalog is empty, or does not exist; check its path."
        return "The catalog has none yet." if not names else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, without its number."""
        return {
            "made_ns": self.made_ns,
            "first": self.first,
            "entries": [row.to_dict() for row in self.entries.values()],
            "removed": [[str(gone.id), gone.removed_ns] for gone in self.removed],
            "changed_ns": self.changed_ns,
            "changes": self.changes,
        }

    @classmethod
    def of(cls, number: int, data: Mapping[str, Any]) -> CatalogVersion:
        """The inverse of :meth:`to_dict`. Raises ``TypeError``, ``ValueError`` or ``KeyError`` for something else."""
        rows = [EntryRow.of(row) for row in data["entries"]]
        if len({row.name for row in rows}) < len(rows) or len({row.id for row in rows}) < len(rows):
            raise ValueError("two of its entries have the same name or id")
        removed = tuple(RemovedEntry(EntryId(id_), int(since)) for id_, since in data["removed"])
        made_ns, first, changed_ns = (int(data.get(key, 0)) for key in ("made_ns", "first", "changed_ns"))
        changes = parsed_changes(data.get("changes", ()))  # missing in versions of earlier releases
        return cls(number, {row.id: row for row in rows}, made_ns, first, removed, changed_ns, changes)


class EntryLog:
    """The log of the entries of the catalog at ``root``. Any number of threads may use it."""

    def __init__(self, root: Location, allow: Collection[str] = ()) -> None:
        self.root = root
        self.gate = self.gate_of(allow, allow)
        """The gate that checks the places of table files."""
        self.folder = Folder.at(root)
        self._versions = versions_of_catalog(self.folder)
        self._files = VersionFiles(self._versions, str(root), _HOW, _POINTS)
        self._last: tuple[Mapping[str, Any] | None, CatalogVersion] = (None, CatalogVersion(0, {}))
        self._readers: dict[str, StoreReader] = {}

    def gate_of(self, folders: Collection[str] | None, blobs: Collection[str]) -> Gate:
        """A gate for tables in the catalog's folder and in ``folders`` (None: anywhere), and for files of blobs."""
        allowed = None if folders is None else (str(self.root), *(str(located(folder)) for folder in folders))
        return Gate(
            allowed,
            tuple(str(self.root / name) for name in OWN_FOLDERS),
            tuple(str(located(folder)) for folder in blobs),
            has_views_of_others=False,
        )

    def check_reachable(self) -> None:
        """Raise ``UnreachableError`` if the place cannot be listed, or is no catalog."""
        try:
            if has_files(self._versions):
                return
            is_store = has_files(self.folder.sub("versions"))
        except (OSError, ReadError) as error:
            raise self._unreachable(error) from error
        if is_store:
            raise UnreachableError(
                "this is a store of recordings, not a catalog",
                path=str(self.root),
                hint=f"Add it to a catalog in another folder: create_dataset(NAME, url={str(self.root)!r}).",
            )

    def read(self) -> CatalogVersion:
        """The newest version. Raises ``ReadError`` if it is damaged or the place cannot be read."""
        try:
            latest = self._files.latest()
        except OSError as error:
            if isinstance(error, ReadError):
                raise
            raise self._unreachable(error) from error
        if latest is None:
            return CatalogVersion(0, {})
        data, version = self._last
        if latest[1] is not data:
            version = self._parsed(*latest)
            self._last = latest[1], version
        return version

    def version_data(self, number: int) -> Mapping[str, Any]:
        """The content of the file of a version. Raises ``ReadError``."""
        return self._files.read(number)

    def read_at(self, point: VersionPoint) -> CatalogVersion:
        """The version at a point; see :func:`number_at`. A catalog has no tags."""
        versions: dict[int, CatalogVersion] = {}

        def changed_ns(number: int) -> int:
            versions[number] = self._parsed(number, self._files.read(number))
            made_ns = versions[number].changed_ns // 1000 * 1000
            if not made_ns:
                hint = "An earlier release made this version without its time; give the number of a version."
                raise NotFoundError(
                    f"version {number} does not record when it was made", path=str(self.root), hint=hint
                )
            return made_ns

        try:
            numbers = self._files.numbers()
        except SourceMissingError:
            numbers = []
        number = number_at(point, numbers, {}, changed_ns, what="the catalog", path=str(self.root))
        return versions.get(number) or self._parsed(number, self._files.read(number))

    def store(self, row: EntryRow) -> StoreReader:
        """A dataset's store. Callers share its reader; the number of cached readers is limited."""
        place = self.place(row)
        reader = self._readers.get(place)
        if reader is None:
            if len(self._readers) >= _MOST_READERS:
                self._readers.clear()
            reader = self._readers[place] = StoreReader(RecordingsFolder(place))
        return reader

    def _parsed(self, number: int, data: Mapping[str, Any]) -> CatalogVersion:
        try:
            return CatalogVersion.of(number, data)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise unreadable(error, self._versions.place(name_of(number))) from error

    def faults(self) -> list[ReadError]:
        """The faults in the files of all current versions."""
        faults = []
        for number in self._files.numbers():
            try:
                self._parsed(number, self._files.read(number))
            except SourceMissingError:
                continue  # removed meanwhile
            except ReadError as error:
                faults.append(error)
        return faults

    def transact(
        self, change: Change, clear: frozenset[EntryId] = frozenset(), going: frozenset[EntryId] = frozenset()
    ) -> CatalogVersion:
        """Publish a change of the newest version, and return the new version.

        ``going`` are deleted datasets whose data is about to be removed, so that they cannot be adopted any more;
        ``clear`` are those whose data is gone. Adopted datasets are ignored in both.

        Raises the errors of ``change``; ``WriteError`` if nothing could be written, transient if other writers were
        always first; ``CommitUnknownError`` if the outcome is unknown.
        """

        def attempt() -> CatalogVersion | None:
            base = self.read()
            entries = change(base.entries)
            removed = self._left_of(base.removed, entries, clear, going)
            if entries == base.entries and removed == base.removed:
                return base
            following = _after(base, entries, removed)
            if not self._publish(following):
                return None
            self._prune(following)
            return following

        return publish(attempt, "the catalog", path=str(self.root))

    def _left_of(
        self,
        removed: tuple[RemovedEntry, ...],
        entries: Mapping[EntryId, EntryRow],
        clear: frozenset[EntryId],
        going: frozenset[EntryId],
    ) -> tuple[RemovedEntry, ...]:
        """Return the datasets still to be removed. Raises ``SourceMissingError`` if one was adopted too late."""
        used = {row.place for row in entries.values()}
        late = next((gone for gone in removed if gone.is_going and gone.place in used), None)
        if late is not None:
            raise SourceMissingError(
                "the dataset was deleted, and its data is being removed",
                path=self.folder.place(late.place),
                hint="A dataset can be added again within a week of its deletion.",
            )
        left = [gone for gone in removed if gone.id not in clear and gone.place not in used]
        return tuple([replace(gone, removed_ns=GOING) if gone.id in going else gone for gone in left])

    def add(self, *rows: EntryRow) -> CatalogVersion:
        """Add entries in one step.

        Raises ``AlreadyExistsError`` if a name, an id or the place of a dataset is taken.
        """

        def added(entries: Mapping[EntryId, EntryRow]) -> Mapping[EntryId, EntryRow]:
            removed = {gone.id for gone in self.read().removed}
            for row in rows:
                if row.id in entries or row.id in removed or row.id == _SYSTEM_ID:
                    raise AlreadyExistsError(
                        f"Entry id '{row.id}' already exists",
                        hint="The entry was deleted, but its data still exists." if row.id in removed else None,
                    )
                _check_free(entries, row)
            return {**entries, **{row.id: row for row in rows}}

        return self.transact(added)

    def change(
        self,
        id: EntryId,  # noqa: A002 (it is one)
        changed: Callable[[EntryRow], EntryRow],
        before: Change = dict,
    ) -> EntryRow:
        """Change an entry, in one step with the change ``before``, and return its row.

        Raises ``NotFoundError`` or ``AlreadyExistsError``, and what ``before`` raises.
        """

        def following(entries: Mapping[EntryId, EntryRow]) -> Mapping[EntryId, EntryRow]:
            entries = before(entries)
            row = _changeable(entries, id)
            new = changed(row)
            if new == row:
                return entries
            if new.name != row.name:
                _check_own(row)
                _check_free({key: other for key, other in entries.items() if key != id}, new)
            return {**entries, id: replace(new, updated_ns=max(time.time_ns(), row.updated_ns))}

        return self.transact(following).row(id)

    def remove(self, id: EntryId) -> None:  # noqa: A002 (it is one)
        """Remove an entry and its hidden datasets; unlink it from others.

        Raises ``NotFoundError``.
        """

        def following(entries: Mapping[EntryId, EntryRow]) -> Mapping[EntryId, EntryRow]:
            row = _changeable(entries, id)
            gone = {id, *(key for key, other in entries.items() if is_owned_by(other, row.id))}
            return {key: _without(other, gone) for key, other in entries.items() if key not in gone}

        self.transact(following)

    def place(self, row: EntryRow) -> str:
        """The path or URL of an entry's data."""
        return self.folder.place(row.place)

    def place_in(self, location: Location) -> str:
        """The inverse of :meth:`place`: the place for a row, relative in the catalog's folder, which can then move."""
        if isinstance(location, Path):
            real, root = os.path.realpath(location), os.path.realpath(self.root)
            return real.removeprefix(f"{root}/") if real.startswith(f"{root}/") else os.path.normpath(location)
        within = str(location).removeprefix(f"{str(self.root).rstrip('/')}/")
        return str(location) if ".." in within.split("/") else within

    def _unreachable(self, error: OSError | ReadError) -> UnreachableError:
        return UnreachableError(
            f"the catalog cannot be reached: {error.message if isinstance(error, ReadError) else error.strerror}",
            path=str(self.root),
            hint="Name a folder, or a prefix of an object store, that you can read.",
        )

    def _publish(self, following: CatalogVersion) -> bool:
        """Return True if this version got its number, False if another version has it."""
        # The unique id distinguishes this version from another process's version with the same change.
        data = {**following.to_dict(), "commit": uuid.uuid4().hex}
        if following.number == 1:
            self._make()
        try:
            return self._files.commit(following.number, data)
        except CommitUnknownError:
            if self._is_there(following.number, data["commit"]):
                return True
            raise

    def _is_there(self, number: int, commit: str) -> bool:
        """Return whether a commit without an answer certainly succeeded."""
        if isinstance(self._versions, LocalFolder):
            return False  # it may not be on the disk
        try:
            return self._files.read(number).get("commit") == commit and self.read().first <= number
        except ChunkmillError:
            return False

    def _make(self) -> None:
        with writing(str(self.root)):
            self._versions.make()
            if isinstance(self._versions, LocalFolder):
                for folder in self._versions.location.parents[:3]:
                    sync_folder(folder)

    def _prune(self, newest: CatalogVersion) -> None:
        """Remove old versions. If one stays because of an error, the next pruning removes it."""
        if newest.number % KEPT_VERSIONS:
            return
        try:
            reach("entry.prune")
            self._files.delete([number for number in self._files.all_numbers() if number < newest.first])
        except (OSError, ReadError, WriteError):
            return


class Catalog(Protocol):
    """The members of the client that entries need. The client is in a layer above them."""

    @property
    def url(self) -> str:
        """The address of the catalog."""
        ...

    @property
    def semantics(self) -> QuerySemantics:
        """The rules of queries."""
        ...

    @property
    def ctx(self) -> Any:
        """The session of DataFusion with the tables of the catalog."""
        ...


Method = TypeVar("Method", bound=Callable[..., Any])


def changing(method: Method) -> Method:
    """Wrap a method that changes an entry, so that it raises ``UsageError`` for an entry at a version."""

    @wraps(method)
    def wrapper(self: Entry, *args: Any, **kwargs: Any) -> Any:
        self.check_changeable()
        return method(self, *args, **kwargs)

    return cast("Method", wrapper)


class Entry:
    """An entry of a catalog, found by name or id.

    An entry equals its name, its id, and any other handle of the same entry, so that ``"drives" in client.entries()``
    works. The name is the one at the time of the look-up. Everything else is read from the current catalog, and raises
    ``NotFoundError`` once the entry is deleted.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, catalog: Catalog, log: EntryLog, row: EntryRow) -> None:
        self._catalog = catalog
        self._log = log
        self._last_row = row
        self._version: int | None = None

    def _pinned(self, version: int) -> Self:
        """The same entry as of a version."""
        pinned = type(self)(self._catalog, self._log, self._row())
        pinned._version = version  # noqa: SLF001 (it is one of these)
        return pinned

    def check_changeable(self) -> None:
        """Raise ``UsageError`` if this is a version of the entry, which is read-only."""
        if self._version is not None:
            raise UsageError(
                f"this is version {self._version} of '{self.name}', which is read-only",
                hint="Change the entry without at(), or restore() the version.",
            )

    @property
    def id(self) -> EntryId:
        """The entry's id, which never changes."""
        return self._last_row.id

    @property
    def name(self) -> str:
        """The entry's name."""
        return self._last_row.name

    @property
    def kind(self) -> EntryKind:
        """The entry's kind."""
        return self._last_row.kind

    @property
    def catalog(self) -> Any:
        """The ``CatalogClient`` of this entry."""
        return self._catalog

    @property
    def created_at(self) -> datetime:
        """The time when the entry was created, in UTC."""
        return time_of(self._last_row.created_ns)

    @property
    def updated_at(self) -> datetime:
        """The time of the last change of the entry, in UTC."""
        return time_of(self._row().updated_ns)

    @changing
    def set_name(self, name: str) -> None:
        """Rename the entry. The old name is then free.

        Raises
        ------
        AlreadyExistsError
            Another entry, of any kind, has this name.
        NotFoundError
            The entry was deleted.
        ValueError
            The name is not valid for an entry.
        """
        check_entry_name(name)
        self._last_row = self._log.change(self.id, lambda row: replace(row, name=name))

    def update(self, *, name: str | None = None) -> None:
        """Change the given properties: ``name`` as :meth:`set_name` does. Without arguments, do nothing."""
        if name is not None:
            self.set_name(name)

    @changing
    def delete(self) -> None:
        """Delete the entry from the catalog; for a dataset, also its blueprints.

        The data stays. After a week, the global maintenance removes the entry's data from the catalog's own folder.

        Raises
        ------
        NotFoundError
            The entry was already deleted.
        ValueError
            The entry is one of the catalog's own.
        """
        self._log.remove(self.id)

    def _row(self) -> EntryRow:
        """The entry in the newest version. Raises ``NotFoundError``."""
        return self._log.read().row(self.id)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Entry):
            return self.id == other.id
        if isinstance(other, EntryId):
            return self.id == other
        return isinstance(other, str) and self.name == other

    def __repr__(self) -> str:
        version = "" if self._version is None else f", version={self._version}"
        return f"Entry({self.kind}, {self.name!r}{version})"


def _after(
    base: CatalogVersion, entries: Mapping[EntryId, EntryRow], removed: tuple[RemovedEntry, ...]
) -> CatalogVersion:
    now = time.time_ns()
    number = base.number + 1
    gone = [
        RemovedEntry(row.id, now)
        for row in base.entries.values()
        if row.id not in entries and row.kind in DATASET_KINDS and row.place == place_of_dataset(row.id)
    ]
    first = base.first if number % KEPT_VERSIONS else max(base.first, number - KEPT_VERSIONS + 1)
    changes = (*base.changes, *changes_between(base.entries, entries, number))[-MOST_CHANGES:]
    return CatalogVersion(number, dict(entries), base.made_ns or now, first, (*removed, *gone), now, changes)


def _without(row: EntryRow, gone: Collection[EntryId]) -> EntryRow:
    """The row of an entry without links to removed entries."""
    if row.blueprints in gone:
        row = replace(row, blueprints=None, default_blueprint=None, table_blueprint=None)
    return replace(row, assets=None) if row.assets in gone else row


def _changeable(entries: Mapping[EntryId, EntryRow], id: EntryId) -> EntryRow:  # noqa: A002 (it is one)
    if id == _SYSTEM_ID:
        raise UsageError(f"'{SYSTEM_TABLE}' is the catalog's own table, which cannot be changed or deleted")
    return CatalogVersion(1, entries).row(id)


def _check_own(row: EntryRow) -> None:
    if row.kind in HIDDEN_KINDS:
        what = "blueprints" if row.kind is EntryKind.BLUEPRINT_DATASET else "assets"
        raise UsageError(
            f"'{row.name}' has the {what} of an entry, and cannot be renamed",
            hint="Its name is the id of the entry.",
        )


def _check_free(entries: Mapping[EntryId, EntryRow], row: EntryRow) -> None:
    if row.name == SYSTEM_TABLE or any(other.name == row.name for other in entries.values()):
        raise AlreadyExistsError(f"Entry name '{row.name}' already exists")
    if row.kind is EntryKind.TABLE:
        return  # several entries may name the same table
    same = next((other for other in entries.values() if other.place == row.place), None)
    if same is not None:
        raise AlreadyExistsError(f"the data at {row.place} already belongs to entry '{same.name}'")
