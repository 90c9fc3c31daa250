"""Versions of a store, and their files: numbered JSON files that each appear whole, in one step, and never change.

Any number of runs may write a store at once. Each may stop anywhere and continue much later, and its requests may
arrive much later. Only the order in which versions appear protects the store, neither a lock nor a clock:

1. A run notes the number ``began`` of the newest version, announces itself, and then writes its files. Their names
   begin with the run's name and are never reused. The run publishes them as the version after the newest one, its
   base, on the condition that this number is free. If it is taken, the run reads the versions in between, decides anew
   what to publish (each base needs its own table), and tries the next number. Each file that a version names is named
   by the version before or by one that counts (5), or was written by the version's own run.
2. Files are removed only after a version announces it. A vacuum lists the files, reads the newest version, lists the
   announcements, and publishes its version. This records the number with which the store begins (``first``), its own
   number (``vacuumed``), and the runs whose files it spares (``spared``, each with the number after which every vacuum
   has spared it); all later versions carry these over. Then the vacuum removes earlier versions, and those listed files
   that no version from ``first`` on names and no spared run has written. If its number is taken, it reads the state
   again, but keeps its list of files.
3. So a run may publish on a base only if no vacuum up to the base came after ``began``, or each of them spared the run
   (:meth:`RecordingsVersion.spares`). A vacuum before ``began`` listed the files before the run had any. A vacuum after
   the run's version finds its files named. If a vacuum took the number that the run wanted, the run finds it in its new
   base, as does a run whose request is late. It does not matter whether a writer that was not spared was dead: if it
   only slept, it cannot publish any more, and begins again.
4. The number of a removed version is free, and a late request may take it. So only numbers from the newest version's
   ``first`` on count, and a run has published only once it has seen that its version counts. If it does not know, it
   removes nothing and tries no other number: a late request would otherwise publish the run twice.
5. A tagged version counts, too: a vacuum spares it, and all that it names. A tag, and the restoration of an earlier
   version, are published on the condition that the version counts for the base. So no vacuum up to the base has removed
   its files, and a later one finds them named.

Files that are named by their content (:mod:`.schemas`) may be written by several runs, so a vacuum never removes them:
a late removal would hit a file that another run relies on.
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
    format 3). ``author`` is the user who made it, or None before format 5. All versions from ``first`` on exist, and
    earlier ones only if they have a tag. ``tables`` are the tables with its entries, oldest first. ``batches`` has the
    last batch of each query. ``recordings``, ``chunks``, ``rows`` and ``bytes`` (stored size of chunks) are totals.
    ``files`` counts the files of the version's batch by outcome, ``bytes_in`` is their size, and ``seconds`` the
    duration of the batch. ``totals`` counts the files of all batches so far by outcome. ``vacuumed`` is the version of
    the last vacuum, or 0. ``spared`` maps runs to versions: all vacuums after that version have kept the files of the
    run. ``layers`` counts the layers of recordings, without blueprints, or is None before format 5. ``tags`` maps all
    tags of the store to version numbers. ``restored`` is the version whose recordings were restored.
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
        """Return True if the version ``number`` is not newer than this one, and was not removed."""
        return self.first <= number <= self.number or number in self.tags.values()

    def spares(self, run: str, began: int) -> bool:
        """Return True if no vacuum up to this version removed files of ``run``, which began at version ``began``."""
        return self.vacuumed <= began or self.spared.get(run, self.vacuumed) <= began

    def to_dict(self) -> dict[str, Any]:
        """Return the version as JSON data."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> RecordingsVersion:
        """The inverse of :meth:`to_dict`. Raises ``TypeError`` or ``ValueError`` for invalid data."""
        tables = tuple(TableRef(*table) for table in data["tables"])
        vacuumed = data.get("vacuumed", data.get("number", 0))  # an earlier release does not record it
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
