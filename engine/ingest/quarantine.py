"""The quarantine: files that failed, kept as rows of a Lance table, so that they stop nothing and nobody forgets them.

Requests to try files again are left beside it for the ingestion, by whoever asks for that.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..errors import ChunkmillError, ReadWarning, UsageError, writing
from ..execution import Folder
from ..locations import Location
from .files import FileResult
from .quarantine_table import FileQuarantineTable

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INT64: Final = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class QuarantinedFile:
    """A file that failed, and why.

    ``size`` in bytes and ``modified_ns`` (Unix) are those of the file when it last failed; ``digest`` is that of its
    content, if it could be read to its end; ``code``, ``message``, ``hint`` and ``offset`` (in bytes) are those of the
    error; ``batch`` of ``query_id`` was the last to try it, after ``tries`` in all.
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
    """The quarantine of one ingestion: a Lance table below its home, and requests to try files again.

    Every change is one commit, and safe beside other processes: no row is lost, none is there twice. Neither the
    table nor Lance is touched before the first file fails. May be shared by threads.

    Raises ``WriteError`` where the table cannot be written, ``ReadError`` where it is damaged.
    """

    def __init__(self, home: Location) -> None:
        self._table = FileQuarantineTable(home / "quarantine" / "table.lance")
        self._requests = RetryRequests(home / "quarantine" / "retries")
        self._lock = threading.Lock()
        self.place = self._table.place
        """The path or URL of the table."""

    def note(self, query_id: str, batch: int, failures: Sequence[FileResult]) -> None:
        """Keep what failed in a batch. Noted again, as when the batch is replayed, it changes nothing."""
        results = {_text(result.file.path): result for result in failures}
        now = time.time_ns() // 1000

        def change(present: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
            return [
                _row(path, result, query_id, batch, now, present.get(path))
                for path, result in results.items()
                if not _is_noted(present.get(path), query_id, batch)
            ]

        if results:
            with self._lock:
                self._table.put(results.keys(), change)

    def resolve(self, paths: Iterable[str]) -> list[str]:
        """Remove the rows of files that came through; gives those that had one. Without any, nothing is written."""
        with self._lock:
            return self._table.remove({_text(path) for path in paths})

    def held(self, paths: Iterable[str]) -> set[str]:
        """Those of ``paths`` that are in quarantine; cheap."""
        with self._lock:
            there = self._table.keys()
        return {path for path in paths if _text(path) in there}

    def rows(self) -> list[QuarantinedFile]:
        """All files in quarantine, those that failed first in front."""
        with self._lock:
            found = self._table.rows()
        files = [_file(row) for row in found]
        return sorted(files, key=lambda file: (file.first_seen, file.path))

    def count(self) -> int:
        """The number of files in quarantine; cheap."""
        with self._lock:
            return len(self._table.keys())

    def request_retry(self, paths: Iterable[str] | None = None) -> list[str]:
        """Ask the ingestion to try these files again, or all (None); gives their paths.

        They stay in quarantine until they have come through. Raises ``UsageError`` for one that is not there.
        """
        with self._lock:
            chosen = self._chosen(paths)
            self._requests.add(chosen)
            return chosen

    def drop(self, paths: Iterable[str] | None = None) -> list[str]:
        """Forget these files, or all (None), and requests to try them again; gives their paths.

        The files stay where they are, and are not tried again until their content changes. Raises ``UsageError`` for
        one that is not there.
        """
        with self._lock:
            chosen = self._chosen(paths)
            self._requests.withdraw(set(chosen))
            return self._table.remove(chosen)

    def pending_retries(self) -> dict[str, list[str]]:
        """The paths that each open request asks for, by the request's name."""
        return self._requests.pending()

    def offered_again(self, paths: Iterable[str]) -> None:
        """Leave files that a batch was given out of every request; what found no room in it stays asked for."""
        self._requests.withdraw(set(paths))

    def _chosen(self, paths: Iterable[str] | None) -> list[str]:
        there = self._table.keys()
        if paths is None:
            return sorted(there)
        chosen = sorted({_text(path) for path in paths})
        missing = [path for path in chosen if path not in there]
        if missing:
            more = f" (nor {len(missing) - 1:,} more)" if len(missing) > 1 else ""
            raise UsageError(
                f"{missing[0]} is not in quarantine{more}",
                hint="`chunkmill quarantine list` shows what is.",
            )
        return chosen


def _file(row: dict[str, Any]) -> QuarantinedFile:
    first, last = (_EPOCH + timedelta(microseconds=row.pop(name)) for name in ("first_seen", "last_seen"))
    return QuarantinedFile(modified_ns=row.pop("modified"), first_seen=first, last_seen=last, **row)


def _is_noted(row: dict[str, Any] | None, query_id: str, batch: int) -> bool:
    """Whether a row knows of that batch, or of a later one of the same query."""
    return row is not None and row["query_id"] == query_id and row["batch"] >= batch


def _row(
    path: str, result: FileResult, query_id: str, batch: int, now: int, before: dict[str, Any] | None
) -> dict[str, Any]:
    error = result.error or ChunkmillError("the file failed, and nothing says why", path=path).to_dict()
    return {
        "path": path,
        "size": result.file.size,
        "modified": max(_INT64[0], min(result.file.modified_ns, _INT64[1])),
        "digest": result.digest,
        "code": error["code"],
        "message": _text(error["message"]),
        "hint": None if error.get("hint") is None else _text(error["hint"]),
        "offset": error.get("offset"),
        "batch": batch,
        "query_id": query_id,
        "first_seen": now if before is None else before["first_seen"],
        "last_seen": now,
        "tries": 1 if before is None else before["tries"] + 1,
    }


def _text(text: str) -> str:
    """``text`` as UTF-8 can hold it: names of files need not be text."""
    return text.encode("utf-8", "backslashreplace").decode()


_LARGEST: Final = 64 << 20
_SUFFIX: Final = ".json"


class RetryRequests:
    """The requests in one folder, each an immutable JSON file with the paths to try again."""

    def __init__(self, folder: Location) -> None:
        self._folder = Folder.at(folder)

    def add(self, paths: Collection[str]) -> None:
        """Ask for ``paths``; the request appears in one step. Raises ``WriteError``."""
        if not paths:
            return
        name = f"{uuid.uuid4().hex}{_SUFFIX}"
        with writing(self._folder.place(name)):
            self._folder.make()
            self._folder.create(name, json.dumps({"paths": sorted(paths)}).encode())

    def pending(self) -> dict[str, list[str]]:
        """The paths of each request, by its name. What is no request is warned of, and passed over."""
        found = {}
        for name, size in self._entries():
            try:
                if size > _LARGEST:
                    raise ValueError(f"it has {size:,} bytes")
                found[name] = _paths(self._folder.get(name))
            except FileNotFoundError:
                continue  # done, or withdrawn, in this moment
            except (ValueError, RecursionError) as error:
                place = self._folder.place(name)
                warnings.warn(
                    f"{place} is no request to try files again ({error}); remove it", ReadWarning, stacklevel=2
                )
        return found

    def withdraw(self, paths: Collection[str]) -> None:
        """Leave ``paths`` out of every request."""
        for name, asked in self.pending().items():
            kept = [path for path in asked if path not in paths]
            if len(kept) < len(asked):
                self.add(kept)
                with writing(self._folder.place(name)):
                    self._folder.delete([name])

    def _entries(self) -> list[tuple[str, int]]:
        try:
            return [entry for entry in self._folder.entries() if entry.name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return []


def _paths(data: bytes) -> list[str]:
    request = json.loads(data)
    paths = request.get("paths") if isinstance(request, dict) else None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError("it names no paths")
    return paths
