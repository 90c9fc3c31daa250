"""Versions of a store, and their files: numbered JSON files that each appear whole, in one step, and never change.

A store is written by runs, any number of them at once, any of which may stop anywhere and go on much later, and whose
requests may arrive much later. Nothing but the order in which versions appear protects it, neither a lock nor a clock:

1. A run notes the number ``began`` of the newest version, announces itself, and then writes its files, whose names
   begin with its own and are used by nobody again. It publishes them as the version after the newest one, its base, on
   the condition that there is none of that number. When there is, it looks at what came in between, decides anew what
   it is to publish (a table is written for each base), and tries the next number. What a version names is named by the
   version before it or by one that counts by that (5), or was written by its own run.
2. Nothing is removed before a version says so. A vacuum lists the files, reads the newest version, lists the
   announcements, and publishes its version. That says with which number the store begins (``first``), that it is one of
   a vacuum (``vacuumed``), and of which runs it spares the files (``spared``, each with the number after which every
   vacuum has spared it); these are carried along by all versions after it. Then it removes earlier versions, and those
   of the listed files that no version from ``first`` on names and no run has written that it spares. When its number is
   taken it reads again what there is, and keeps its list of files.
3. So a run may publish on a base only if no vacuum up to that one came after ``began``, or each of them spared it
   (:meth:`RecordingsVersion.spares`). Of a vacuum that came before ``began`` the list of files was made before the run
   had any. One that comes after the run's version finds its files named. One of the number that the run wanted itself
   was faster, and the run finds it in its new base; and so it does whose request is late.
   It does not matter whether whoever was not spared was dead: who only slept cannot publish any more, and begins anew.
4. The number of a version that was removed is free, and what arrives late may take it. So only numbers from the
   newest version's ``first`` on count, and a run believes to have published when it has seen that its own does. Where
   it does not know, it removes nothing and tries no other number: a late request would make two versions of one run.
5. A version that a tag names counts, too: a vacuum spares it, and all that it names. A tag, and the restoration of an
   earlier version, are published on the condition that the version counts by the base. So no vacuum up to the base has
   taken what it names, and one that comes later finds it named.

Files that are named by their content (:mod:`.schemas`) may be written by several runs, so they are never removed: a
removal that is late would hit what another run has come to rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from ..errors import ReadError, UsageError
from ..locations import Location
from ..storage import has_files
from ..storage.folder import Folder


class TableRef(NamedTuple):
    """A table of entries: its file, its digest, and how many entries it has."""

    name: str
    digest: str
    entries: int


@dataclass(frozen=True, slots=True)
class RecordingsVersion:
    """One version of a store of recordings.

    ``created`` is in seconds since the epoch. ``operation`` is the operation that made it (``ingest``, ``register``,
    ``unregister``, ``compact``, ``times``, ``vacuum``, ``tag``, ``untag``, ``restore``, or ``upgrade`` for entries of
    format 3). ``author`` is its user, or None before format 5. ``first`` is the first existing version, as earlier ones
    are removed. ``tables`` are the tables with its entries, oldest first. ``batches`` has the last batch of each query.
    ``recordings``, ``chunks``, ``rows`` and ``bytes`` (stored size of chunks) are totals. ``files`` counts the files of
    the version's batch by outcome, ``bytes_in`` is their size, and ``seconds`` the duration of the batch. ``totals``
    counts the files of all batches so far by outcome. ``vacuumed`` is the version of the last vacuum, or 0. ``spared``
    maps runs to versions: no vacuum after that version has removed their files. ``layers`` counts the layers of
    recordings, without blueprints, or is None before format 5. ``tags`` maps all tags of the store to version numbers.
    ``restored`` is the version whose recordings were restored.
    """

    number: int
    created: float
    operation: str
    tables: tuple[TableRef, ...]
    batches: Mapping[str, int]
    recordings: int
    chunks: int
    rows: int
    bytes: int
    files: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    seconds: float = 0.0
    totals: Mapping[str, int] = field(default_factory=dict)
    first: int = 0
    vacuumed: int = 0
    spared: Mapping[str, int] = field(default_factory=dict)
    author: str | None = None
    layers: int | None = None
    tags: Mapping[str, int] = field(default_factory=dict)
    restored: int | None = None

    @property
    def made_ns(self) -> int:
        """The time of creation, in nanoseconds since 1970, rounded down to microseconds."""
        return int(self.created * 1e6) * 1000

    def counts(self, number: int) -> bool:
        """Return True if the version ``number``, up to this one, was not removed."""
        return self.first <= number <= self.number or number in self.tags.values()

    def spares(self, run: str, began: int) -> bool:
        """Return True if no vacuum up to this version has removed files of ``run``, begun at version ``began``."""
        return self.vacuumed <= began or self.spared.get(run, self.vacuumed) <= began

    def to_dict(self) -> dict[str, Any]:
        """Return the version as JSON data."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> RecordingsVersion:
        """The inverse of :meth:`to_dict`. Raises ``TypeError`` or ``ValueError`` for invalid data."""
        tables = tuple(TableRef(*table) for table in data["tables"])
        vacuumed = data.get("vacuumed", data.get("number", 0))  # of a release that said nothing of it
        return cls(**{**data, "tables": tables, "vacuumed": vacuumed})


def versions_of_catalog(folder: Folder) -> Folder:
    """Return the folder for a catalog's versions in ``folder``."""
    return folder.sub("catalog").sub("versions")


def is_catalog(location: Location) -> bool:
    """Return True for the folder of a catalog; False if it cannot be read."""
    try:
        return has_files(versions_of_catalog(Folder.at(location)))
    except (OSError, ReadError):
        return False


def check_no_catalog(location: Location) -> None:
    """Raise ``UsageError`` for the folder of a catalog, which cannot be a store."""
    if is_catalog(location):
        raise UsageError(
            f"{location} is a catalog",
            hint="Give one of its datasets: --dataset, or into=CatalogClient(…).create_dataset(…, exist_ok=True).",
        )
