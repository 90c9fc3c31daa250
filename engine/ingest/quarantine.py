"""The quarantine: failed files as rows of a Lance table; they stop nothing and are not forgotten.

Requests to retry files are stored next to it; the ingestion reads them.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ChunkmillError, ReadWarning, UsageError, WriteError, writing
from ..execution import Folder
from ..lance import FixedTable
from ..limits import as_text
from ..locations import Location
from ..storage import publish
from .files import FileResult

_KEY: Final = "path"

_PRIMARY_KEY: Final = {"lance-schema:unenforced-primary-key": "true"}
"""With it, if two merges insert the same key at once, one fails, and the key has only one row."""

_SCHEMA: Final = pa.schema(
    [
        pa.field(_KEY, pa.string(), nullable=False, metadata=_PRIMARY_KEY),
        ("size", pa.int64()),
        ("modified", pa.timestamp("ns", tz="UTC")),
        ("digest", pa.string()),
        ("code", pa.string()),
        ("message", pa.string()),
        ("hint", pa.string()),
        ("offset", pa.int64()),
        ("batch", pa.int64()),
        ("query_id", pa.string()),
        ("first_seen", pa.timestamp("us", tz="UTC")),
        ("last_seen", pa.timestamp("us", tz="UTC")),
        ("tries", pa.int64()),
    ]
)
"""One row for each file."""

# Python has no nanoseconds, and pyarrow's conversion to time zones needs files that some systems lack.
_AS_NUMBERS: Final = pa.schema([f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in _SCHEMA])

_UPKEEP_EVERY: Final = 64
_KEEP: Final = timedelta(minutes=5)
_UNREADABLE: Final = (
    "The recordings do not depend on it. If it is damaged, move that folder away: the next failure creates a new "
    "table. Files of the old table are retried when their content changes."
)
_UNWRITTEN: Final = "The batch was not committed; the next start retries it."

_log = logging.getLogger(__name__)

Versions = frozenset[str]

_UNREAD: Final[Versions] = frozenset({""})

_LARGEST: Final = 64 << 20
_SUFFIX: Final = ".json"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INT64: Final = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class QuarantinedFile:
    """A failed file and its error.

    ``size`` (bytes) and ``modified_ns`` (Unix time) describe the file at its last failure. ``digest`` is the digest of
    its content, if it could be read completely. ``code``, ``message``, ``hint`` and ``offset`` (bytes) describe the
    error. ``batch`` of ``query_id`` tried it last; ``tries`` counts all tries.
    """

    path: str
    size: int
    modified_ns: int
    digest: str | None
    code: str
    message: str
    hint: str | None
    offset: int | None
    batch: int
    query_id: str
    first_seen: datetime
    last_seen: datetime
    tries: int


class FileQuarantine:
    """The quarantine of one ingestion: a Lance table in its folder, and requests to retry files.

    Every change is one commit, and safe with concurrent processes: no row is lost or duplicated. The table is created,
    and Lance imported, only when the first file fails. Thread-safe.

    Raises ``WriteError`` if the table cannot be written, ``ReadError`` if it is damaged.
    """

    def __init__(self, home: Location) -> None:
        self._table = FileQuarantineTable(home / "quarantine" / "table.lance")
        self._requests = RetryRequests(home / "quarantine" / "retries")
        self._lock = threading.Lock()
        self.place = self._table.place
        """The path or URL of the table."""

    def note(self, query_id: str, batch: int, failures: Sequence[FileResult]) -> None:
        """Add the failed files of a batch. Adding them again, for a replayed batch, changes nothing."""
        results = {as_text(result.file.path): result for result in failures}
        now = time.time_ns() // 1000

        def change(present: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
            return [
                _row(path, result, query_id, batch, now, row)
                for path, result in results.items()
                if (row := present.get(path)) is None or row["query_id"] != query_id or row["batch"] < batch
            ]

        if results:
            with self._lock:
                self._table.put(results.keys(), change)

    def resolve(self, paths: Iterable[str]) -> list[str]:
        """Remove the rows of files that succeeded, and return the files that had a row; without any, write nothing."""
        with self._lock:
            return self._table.remove({as_text(path) for path in paths})

    def held(self, paths: Iterable[str]) -> set[str]:
        """Return those of ``paths`` that are in quarantine; cheap."""
        with self._lock:
            keys = self._table.keys()
        return {path for path in paths if as_text(path) in keys}

    def rows(self) -> list[QuarantinedFile]:
        """Return all files in quarantine, earliest failure first."""
        with self._lock:
            rows = self._table.rows()
        files = [_file(row) for row in rows]
        return sorted(files, key=lambda file: (file.first_seen, file.path))

    def count(self) -> int:
        """Return the number of files in quarantine; cheap."""
        with self._lock:
            return len(self._table.keys())

    def request_retry(self, paths: Iterable[str] | None = None) -> list[str]:
        """Request that the ingestion retry these files, or all (None), and return their paths.

        They stay in quarantine until they succeed. Raises ``UsageError`` for a file that is not in quarantine.
        """
        with self._lock:
            chosen = self._chosen(paths)
            self._requests.add(chosen)
            return chosen

    def drop(self, paths: Iterable[str] | None = None) -> list[str]:
        """Remove these files, or all (None), and their retry requests from quarantine, and return their paths.

        The files themselves are not deleted, and not retried until their content changes. Raises ``UsageError`` for a
        file that is not in quarantine.
        """
        with self._lock:
            chosen = self._chosen(paths)
            self._requests.withdraw(set(chosen))
            return self._table.remove(chosen)

    def pending_retries(self) -> dict[str, list[str]]:
        """Return the paths of each open retry request, by the name of the request."""
        return self._requests.pending()

    def offered_again(self, paths: Iterable[str]) -> None:
        """Remove the files of a batch from every retry request; files that are not in the batch stay requested."""
        self._requests.withdraw(set(paths))

    def _chosen(self, paths: Iterable[str] | None) -> list[str]:
        keys = self._table.keys()
        if paths is None:
            return sorted(keys)
        chosen = sorted({as_text(path) for path in paths})
        missing = [path for path in chosen if path not in keys]
        if missing:
            more = f" (nor {len(missing) - 1:,} more)" if len(missing) > 1 else ""
            raise UsageError(
                f"{missing[0]} is not in quarantine{more}",
                hint="`chunkmill quarantine list` lists the files.",
            )
        return chosen


def _file(row: dict[str, Any]) -> QuarantinedFile:
    first, last = (_EPOCH + timedelta(microseconds=row.pop(name)) for name in ("first_seen", "last_seen"))
    return QuarantinedFile(modified_ns=row.pop("modified"), first_seen=first, last_seen=last, **row)


def _row(
    path: str, result: FileResult, query_id: str, batch: int, now: int, before: dict[str, Any] | None
) -> dict[str, Any]:
    error = result.error or ChunkmillError("the file failed for an unknown reason", path=path).to_dict()
    return {
        "path": path,
        "size": result.file.size,
        "modified": max(_INT64[0], min(result.file.modified_ns, _INT64[1])),
        "digest": result.digest,
        "code": error["code"],
        "message": as_text(error["message"]),
        "hint": None if error.get("hint") is None else as_text(error["hint"]),
        "offset": error.get("offset"),
        "batch": batch,
        "query_id": query_id,
        "first_seen": now if before is None else before["first_seen"],
        "last_seen": now,
        "tries": 1 if before is None else before["tries"] + 1,
    }


class RetryRequests:
    """The requests in one folder, each an immutable JSON file with the paths to try again."""

    def __init__(self, folder: Location) -> None:
        self._folder = Folder.at(folder)

    def add(self, paths: Collection[str]) -> None:
        """Request a retry of ``paths``; the request appears in one step. Raises ``WriteError``."""
        if not paths:
            return
        name = f"{uuid.uuid4().hex}{_SUFFIX}"
        with writing(self._folder.place(name)):
            self._folder.make()
            self._folder.create(name, json.dumps({"paths": sorted(paths)}).encode())

    def pending(self) -> dict[str, list[str]]:
        """The paths of each request, by its name. Warns of files that are no requests, and ignores them."""
        paths_of: dict[str, list[str]] = {}
        try:
            requests = [entry for entry in self._folder.entries() if entry.name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return paths_of
        for name, size in requests:
            try:
                if size > _LARGEST:
                    raise ValueError(f"it has {size:,} bytes")
                paths_of[name] = _paths(self._folder.get(name))
            except FileNotFoundError:
                continue  # done, or withdrawn, just now
            except (ValueError, RecursionError) as error:
                place = self._folder.place(name)
                warnings.warn(f"{place} is not a retry request ({error}); remove it", ReadWarning, stacklevel=2)
        return paths_of

    def withdraw(self, paths: Collection[str]) -> None:
        """Leave ``paths`` out of every request."""
        for name, asked in self.pending().items():
            kept = [path for path in asked if path not in paths]
            if len(kept) < len(asked):
                self.add(kept)
                with writing(self._folder.place(name)):
                    self._folder.delete([name])


def _paths(data: bytes) -> list[str]:
    request = json.loads(data)
    paths = request.get("paths") if isinstance(request, dict) else None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError("it names no paths")
    return paths


class FileQuarantineTable:
    """The table at a place. Lance is imported once the table exists; a query of its keys costs one listing of versions.

    Every change is one commit: if another process commits first, its changes are read, and the change is retried.
    Every 64 commits, small fragments are joined, and versions older than five minutes are removed.
    """

    def __init__(self, place: Location) -> None:
        self._table = FixedTable(place, _SCHEMA, name="the quarantine table", unread=_UNREADABLE, unwritten=_UNWRITTEN)
        self.place = self._table.place
        self._keys: set[str] = set()
        self._keys_of = _UNREAD
        self._swept = 0

    def keys(self) -> AbstractSet[str]:
        """The keys of all rows, as a set that callers must not change."""
        now = self._now()
        if now != self._keys_of:
            self._keys, self._keys_of = self._read_keys() if now else set(), now
        return self._keys

    def rows(self) -> list[dict[str, Any]]:
        """The rows; times as whole numbers, in the unit of their column since 1970."""
        return self._rows(self._table.open()) if self._now() else []

    def _rows(self, dataset: Any, keys: Collection[str] | None = None) -> list[dict[str, Any]]:
        table = self._table.rows(dataset)
        if keys is not None:
            table = table.filter(pc.is_in(table.column(_KEY), pa.array(list(keys), pa.string())))
        rows: list[dict[str, Any]] = table.cast(_AS_NUMBERS).to_pylist()
        return rows

    def put(self, keys: Collection[str], change: Callable[[dict[str, dict[str, Any]]], list[dict[str, Any]]]) -> bool:
        """Write the rows that ``change`` makes of the present rows of ``keys``; return False if it makes none.

        ``change`` is called again if another process was faster. Raises ``WriteError``, ``ReadError``.
        """
        if not self._now():
            if not change({}):
                return False
            self._table.make(_SCHEMA)

        def attempt(dataset: Any, existing: set[str]) -> bool:
            rows = change({row[_KEY]: row for row in self._rows(dataset, existing)} if existing else {})
            if rows:
                self._merge(dataset, pa.Table.from_pylist(rows, schema=_SCHEMA))
                self._keys.update(row[_KEY] for row in rows)
            return bool(rows)

        return self._changed(keys, attempt)

    def remove(self, keys: Collection[str]) -> list[str]:
        """Remove the rows of ``keys``; return the keys that had one. Raises ``WriteError``, ``ReadError``."""
        removed: list[str] = []

        def attempt(dataset: Any, existing: set[str]) -> bool:
            removed[:] = sorted(existing)
            if existing:
                self._table.delete(dataset, _KEY, existing)
                self._keys -= existing
            return bool(existing)

        if not self.keys().isdisjoint(keys):
            self._changed(keys, attempt)
        return removed

    def _changed(self, keys: Collection[str], attempt: Callable[[Any, set[str]], bool]) -> bool:
        """Run ``attempt`` on the table and those of ``keys`` that it has; repeat it if others commit in between."""

        def once() -> bool | None:
            existing = self._keys.intersection(keys) if self.keys() else set()
            before = self._keys_of
            try:
                changed = attempt(self._opened_at(before), existing)
            except WriteError:
                self._keys_of = _UNREAD
                if not self._now() - before:
                    raise
                return None
            if changed:
                after = self._now()
                # With more than one new version, another process has changed rows, too; they must be read again.
                self._keys_of = after if len(after - before) == 1 else _UNREAD
                self._sweep(len(after))
            return changed

        return publish(once, "the quarantine table", path=self.place)

    def _opened_at(self, versions: Versions) -> Any:
        """The table with exactly these versions; None without any. Raises ``WriteError`` if it has others by now."""
        dataset = self._table.open() if versions else None
        if versions != self._now():
            raise WriteError("other processes keep changing the quarantine table", path=self.place, transient=True)
        return dataset

    def _merge(self, dataset: Any, rows: pa.Table) -> None:
        self._table.merge(dataset, _KEY, rows)

    def _read_keys(self) -> set[str]:
        return set(self._table.rows(self._table.open(), [_KEY]).column(_KEY).to_pylist())

    def _now(self) -> Versions:
        """The names of the table's versions."""
        return self._table.versions()

    def _sweep(self, versions: int) -> None:
        """Now and then, join small fragments and remove old versions. Failures are retried later."""
        if versions - self._swept < _UPKEEP_EVERY:
            return
        try:
            self._table.tidy(_KEEP)
            versions = len(self._now())
        except (OSError, RuntimeError, ValueError) as error:
            _log.warning("%s: old versions of the quarantine could not be removed: %s", self.place, error)
        self._swept = versions
        self._keys_of = _UNREAD
