"""The landing log: the files that were offered to the ingestion, batch by batch, with size and time.

::

    landing/00000012.json      entry 12: the files of batch 12, a line of JSON each
    landing/00000012.gone      paths of entry 12 that were gone before they were read: they count as never offered
    landing/00000011.merged    the paths that the entries up to 11 offered, each with its last offered state

All begin with a line of JSON (:func:`sealed`), which holds a digest of the rest: in an entry, a line
``["/landing/drive.mcap", size in bytes, modified in ns]`` for each file; in a file of gone paths, a line
``"/landing/drive.mcap"`` for each; in a merged file, an Arrow IPC stream.

Guarantees. An entry appears whole or not at all, and never changes: it is written and synced under another name, and
renamed in one step, on the condition that its number is free. After a failure the log is read anew, to find an entry
that may or may not have appeared. Merging writes the merged file first, in the same way, and then removes the old
entries, which are ignored until then. So a process may be killed anywhere, and the next one finds exactly the appended
entries.

An append costs the same however long the log is. Memory and the merged file grow with the number of paths that are
known: one million take 0.4 GB of memory and some 20 MB of disk.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ReadError, SourceMissingError, UnsupportedError, WriteError, writing
from ..execution import Folder, LocalFolder, sync_folder
from ..faults import reach
from ..limits import MAX_LANDING_FILE
from ..locations import Location
from ..rrd import digest_of
from .files import LandedFile

_FORMAT: Final = 1
_POINTS: Final = ("landing.write", "landing.append")
_DRAFT: Final = ".draft"
_ATTEMPTS: Final = 10
_SCHEMA: Final = pa.schema([("path", pa.large_string()), ("size", pa.int64()), ("modified_ns", pa.int64())])
"""The columns of a merged file."""

_NAME: Final = re.compile(r"(\d{8,})\.(json|gone|merged)")
_ENTRY, _GONE, _MERGED = "entry", "gone", "merged"
_SUFFIXES: Final = {_ENTRY: "json", _GONE: "gone", _MERGED: "merged"}
_MOST_HEADER: Final = 4096
_AGAIN: Final = (
    "Files of this log are synced before they are named, so another program or the disk damaged this one. Restore it "
    "from a copy. Without one, remove the whole checkpoint and start again: files whose content is in the store are "
    "not ingested twice."
)
_NEWEST: Final = (
    "Files of this log are synced before they are named, so another program or the disk damaged this one. Restore it "
    "from a copy. If its batch never began, you can remove this newest entry instead: the next start offers its files "
    "again."
)


def name_of(kind: str, number: int) -> str:
    """The file name of an entry, of its gone paths, or of all entries up to a number, merged.

    >>> [name_of(kind, 12) for kind in ("entry", "gone", "merged")]
    ['00000012.json', '00000012.gone', '00000012.merged']
    """
    return f"{number:08d}.{_SUFFIXES[kind]}"


class Numbers(NamedTuple):
    """The numbers of the files of a log, each ascending."""

    entries: list[int]
    gone: list[int]
    merged: list[int]

    @property
    def newest(self) -> int:
        """The number of the newest entry, merged or not; 0 without entries."""
        return max([0, *self.entries[-1:], *self.merged[-1:]])


def numbers_in(names: Iterable[str]) -> Numbers:
    """The numbers of the log's files among ``names``; other names are ignored."""
    log_numbers = Numbers([], [], [])
    lists = {"json": log_numbers.entries, "gone": log_numbers.gone, "merged": log_numbers.merged}
    for match in filter(None, map(_NAME.fullmatch, names)):
        lists[match[2]].append(int(match[1]))
    for numbers in log_numbers:
        numbers.sort()
    return log_numbers


def newest_entry(folder: Folder) -> int:
    """Return the number of the newest entry, or 0. Costs one listing."""
    try:
        return numbers_in(folder.names()).newest
    except (FileNotFoundError, SourceMissingError):
        return 0


def read_entry(folder: Folder, number: int) -> list[LandedFile]:
    """The files of an entry.

    Raises ``SourceMissingError`` if no entry has that number (any more), ``ReadError`` if it is torn.
    """
    rows, place = _lines(folder, _ENTRY, number)
    try:
        return [LandedFile(str(path), int(size), int(modified_ns)) for path, size, modified_ns in rows]
    except (ValueError, TypeError) as error:
        raise _not_ours(place, f"its lines cannot be parsed ({error})", _AGAIN) from error


def _read_gone(folder: Folder, number: int) -> list[str]:
    """The paths of an entry that were gone. Raises as :func:`read_entry` does."""
    return [str(path) for path in _lines(folder, _GONE, number)[0]]


def _lines(folder: Folder, kind: str, number: int) -> tuple[list[Any], str]:
    """The lines of a file, and its place."""
    body, count, place = _opened(folder, kind, number)
    try:
        lines: list[Any] = json.loads(b"[" + body.replace(b"\n", b",") + b"]")
    except (ValueError, RecursionError) as error:
        raise _not_ours(place, f"its lines cannot be parsed ({error})", _AGAIN) from error
    if len(lines) != count:
        raise _not_ours(place, f"it holds {len(lines):,} files of {count:,}", _AGAIN)
    return lines, place


def _sealed_lines(kind: str, number: int, lines: Collection[str | LandedFile]) -> bytes:
    """The bytes of an entry, or of the file of its gone paths."""
    return sealed(kind, number, len(lines), "\n".join(map(json.dumps, lines)).encode())


def _merged_bytes(number: int, table: pa.Table) -> bytes:
    """The bytes of a merged file; ``table`` has the columns of :data:`_SCHEMA`."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return sealed(_MERGED, number, table.num_rows, sink.getvalue())


def _read_merged(folder: Folder, number: int) -> pa.Table:
    """The paths of a merged file, each with its last offered state. Raises as :func:`read_entry` does."""
    body, count, place = _opened(folder, _MERGED, number)
    try:
        table = pa.ipc.open_stream(pa.BufferReader(body)).read_all()
    except (pa.ArrowException, OSError) as error:
        raise _not_ours(place, f"it cannot be parsed ({error})", _AGAIN) from error
    if table.num_rows != count or table.schema != _SCHEMA:
        raise _not_ours(place, f"it holds {table.num_rows:,} files of {count:,}", _AGAIN)
    return table


def sealed(kind: str, number: int, count: int, body: bytes) -> bytes:
    """Return a file of the log: a header line with a digest of header and body, then the body.

    >>> sealed("entry", 1, 0, b"")
    b'{"landing": "entry", "format": 1, "number": 1, "files": 0, "digest": "4b5a15fb74a50fe5aa9aa06071a5c2a1"}\\n'
    """
    header = {"landing": kind, "format": _FORMAT, "number": number, "files": count}
    return json.dumps({**header, "digest": _digest(header, body)}).encode() + b"\n" + body


def _digest(header: dict[str, Any], body: bytes) -> str:
    return digest_of(json.dumps(header, sort_keys=True).encode() + b"\n" + body).hex()


def _opened(folder: Folder, kind: str, number: int) -> tuple[bytes, int, str]:
    """Check the digest of a log file, and return its body, the number of files in it, and its place."""
    name = name_of(kind, number)
    place = folder.place(name)
    data = _whole(folder, name)
    try:
        end = data.index(b"\n", 0, _MOST_HEADER)
        header = json.loads(data[:end])
        digest, count = header.pop("digest"), int(header["files"])
        version = header["format"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        what = "it is empty" if not data else "its first line is not that of a landing log"
        raise _torn(folder, number, place, what) from error
    if version != _FORMAT:
        raise UnsupportedError(
            f"this file of the landing log has the unknown format {version}",
            path=place,
            hint="A newer release wrote it; use that release.",
        )
    body = data[end + 1 :]
    if _digest(header, body) != digest:
        raise _torn(folder, number, place, "its content changed after it was written: the digest differs")
    if (header["landing"], header["number"]) != (kind, number):
        raise _not_ours(place, f"it is {header['landing']} {header['number']} under another name", _AGAIN)
    return body, count, place


def _whole(folder: Folder, name: str) -> bytes:
    place = folder.place(name)
    try:
        size = folder.size(name)
        if size > MAX_LANDING_FILE:
            raise _not_ours(place, f"it has {size:,} bytes", _AGAIN)
        return folder.get(name)
    except FileNotFoundError as error:
        raise SourceMissingError("this file of the landing log is missing", path=place, hint=_AGAIN) from error
    except OSError as error:
        raise ReadError(
            f"this file of the landing log cannot be read: {error.strerror}",
            path=place,
            hint="Check that the checkpoint is readable, and start again.",
            transient=True,
        ) from error


def _torn(folder: Folder, number: int, place: str, what: str) -> ReadError:
    newest = place.endswith(".json") and newest_entry(folder) == number
    return _not_ours(place, what, _NEWEST if newest else _AGAIN)


def _not_ours(place: str, what: str, hint: str) -> ReadError:
    return ReadError(f"the checkpoint is damaged: {what}", path=place, hint=hint)


@dataclass(slots=True)
class _State:
    """The content of the log: its numbers, and each path with its last offered state, and its entry if not merged.

    ``gone`` are the vanished paths, by entry, of entries that are not merged.
    """

    merged: int = 0
    newest: int = 0
    seen: dict[str, LandedFile] = field(default_factory=dict)
    entry_of: dict[str, int] = field(default_factory=dict)
    gone: dict[int, frozenset[str]] = field(default_factory=dict)

    def add(self, number: int, files: Iterable[LandedFile]) -> None:
        for file in files:
            self.seen[file.path] = file
            self.entry_of[file.path] = number
        self.newest = number

    def forget(self, number: int, paths: Iterable[str]) -> None:
        """Drop ``paths``, except those that an entry after ``number`` offered."""
        for path in paths:
            if self.entry_of.get(path, 0) <= number:
                self.entry_of.pop(path, None)
                self.seen.pop(path, None)


class LandingLog:
    """The landing log in a folder. Only one process may write to it at a time; others may read it."""

    def __init__(self, folder: Location) -> None:
        self._folder = Folder.at(folder)
        self._state: _State | None = None
        self._is_made = False

    # --- reading

    def newest(self) -> int:
        """Return the number of the newest entry in the folder, or 0."""
        return newest_entry(self._folder)

    def files(self, number: int) -> list[LandedFile]:
        """Return the files of an entry, in order.

        Raises ``SourceMissingError`` if there is no such entry, or if it was merged; ``ReadError`` if it is damaged.
        """
        return read_entry(self._folder, number)

    def seen(self, path: str) -> LandedFile | None:
        """Return the last offered state of the file ``path``, or None. Raises ``ReadError`` if the log is damaged."""
        return self._loaded().seen.get(path)

    @property
    def paths(self) -> Collection[str]:
        """Return all offered paths."""
        return self._loaded().seen.keys()

    @property
    def merged(self) -> int:
        """The number of the last merged entry."""
        return self._loaded().merged

    def check(self, done: int) -> None:
        """Raise ``ReadError`` if the log is damaged, or ends before the batch ``done``."""
        newest = self._loaded().newest
        if newest < done:
            raise ReadError(
                f"the checkpoint is damaged: batch {done} is done, and the landing log ends at {newest}",
                path=str(self._folder.location),
                hint="Restore the log from a copy. Without one, remove the whole checkpoint and start again: files "
                "whose content is in the store are not ingested twice.",
            )

    # --- writing

    def append(self, files: Sequence[LandedFile]) -> int:
        """Write the next entry, and return its number. Raises ``WriteError``."""
        state = self._loaded()
        number = state.newest + 1
        self._make()
        self._create(name_of(_ENTRY, number), _sealed_lines(_ENTRY, number, files), _POINTS)
        state.add(number, files)
        return number

    def forget(self, number: int, paths: Collection[str]) -> None:
        """Record the paths of entry ``number`` that a run did not read: they count as never offered.

        Call this once per run of the entry's batch, before the batch is done. After an interrupted run, the ``paths``
        of the last run count: all others were read and count as offered. Raises ``WriteError``, and ``ValueError`` for
        a merged entry.
        """
        state = self._loaded()
        if number <= state.merged:
            raise ValueError(f"entry {number} was merged: its batch is done")
        before, now = state.gone.get(number, frozenset()), frozenset(paths)
        if before == now:
            return
        self._make()
        name = name_of(_GONE, number)
        if before:
            self._state = None  # the files that are taken back are in the entries
            with writing(self._folder.place(name)):
                self._folder.delete([name])
        if now:
            self._create(name, _sealed_lines(_GONE, number, paths))
        if self._state is not None:
            state.gone[number] = now
            state.forget(number, paths)

    def compact(self, before: int, present: Collection[str] | None) -> int:
        """Merge the entries below ``before``, except the newest entry, and return their number.

        Paths of merged entries that are not ``present`` are dropped: if they reappear, they are offered again. None
        drops nothing. The cost grows with the number of known paths. Raises ``WriteError``.
        """
        state = self._loaded()
        last = min(before, state.newest) - 1
        count = last - state.merged
        if count <= 0:
            return 0
        whole = self._merged_up_to(state, last)
        kept = whole if present is None else whole.filter(pc.is_in(whole["path"], _paths(present)))
        self._make()
        self._create(name_of(_MERGED, last), _merged_bytes(last, kept))
        reach("landing.compact")
        state.merged = last
        state.entry_of = {path: number for path, number in state.entry_of.items() if number > last}
        state.gone = {number: paths for number, paths in state.gone.items() if number > last}
        if kept.num_rows < whole.num_rows:
            state.forget(last, whole.filter(pc.invert(pc.is_in(whole["path"], kept["path"])))["path"].to_pylist())
        self._tidy()
        return count

    def _merged_up_to(self, state: _State, last: int) -> pa.Table:
        """The files of the entries up to ``last``, each path once, with its last offered state."""
        added, numbers = _State(), numbers_in(self._folder.names())
        gone: set[str] = set()
        for number in range(state.merged + 1, last + 1):
            added.add(number, read_entry(self._folder, number))
            if number in numbers.gone:
                paths = _read_gone(self._folder, number)
                added.forget(number, paths)
                gone.update(paths)
        table = _table(added.seen.values())
        if not state.merged:
            return table
        before = _read_merged(self._folder, state.merged)
        superseded = pa.concat_arrays([table["path"].combine_chunks(), _paths(gone)])
        return pa.concat_tables([before.filter(pc.invert(pc.is_in(before["path"], superseded))), table])

    def _create(self, name: str, data: bytes, points: tuple[str, str] | None = None) -> None:
        place = self._folder.place(name)
        try:
            with writing(place):
                created = self._folder.create(name, data, points)
        except BaseException:
            self._state = None  # loading shows whether the file exists
            raise
        if not created:
            self._state = None
            raise WriteError(
                "this file of the landing log already exists, with other content",
                path=place,
                hint="Another ingestion writes to this checkpoint; run only one.",
            )

    def _make(self) -> None:
        """The first time, make the folder, or remove what an earlier process left in it."""
        if self._is_made:
            return
        with writing(str(self._folder.location)):
            self._folder.make()
            if isinstance(self._folder, LocalFolder):
                sync_folder(self._folder.location.parent)
            self._folder.delete(name for name in list(self._folder.names()) if name.endswith(_DRAFT))
        self._is_made = True
        self._tidy()

    def _tidy(self) -> None:
        """Remove the files that the newest merged file replaces."""
        with writing(str(self._folder.location)):
            entries, gone, merged = numbers_in(self._folder.names())
            newest = max(merged, default=0)
            self._folder.delete(name_of(_ENTRY, n) for n in entries if n <= newest)
            self._folder.delete(name_of(_GONE, n) for n in gone if n <= newest)
            self._folder.delete(name_of(_MERGED, n) for n in merged if n < newest)

    # --- loading

    def _loaded(self) -> _State:
        """The content of the log; read once, and again after a failure."""
        attempts = _ATTEMPTS
        while self._state is None:
            try:
                self._state = self._load()
            except SourceMissingError:
                attempts -= 1
                if not attempts:
                    raise
                # Otherwise another process has merged it since the folder was listed.
        return self._state

    def _load(self) -> _State:
        try:
            numbers = numbers_in(self._folder.names())
        except (FileNotFoundError, SourceMissingError):
            return _State()
        state = _State(merged=max(numbers.merged, default=0))
        state.newest = state.merged
        if state.merged:
            state.seen = {file.path: file for file in _files(_read_merged(self._folder, state.merged))}
        gone = set(numbers.gone)
        for number in range(state.merged + 1, numbers.newest + 1):
            state.add(number, read_entry(self._folder, number))
            if number in gone:
                paths = _read_gone(self._folder, number)
                state.gone[number] = frozenset(paths)
                state.forget(number, paths)
        return state


def _table(files: Collection[LandedFile]) -> pa.Table:
    columns = ([getattr(file, name) for file in files] for name in _SCHEMA.names)
    return pa.table(list(map(pa.array, columns, _SCHEMA.types)), schema=_SCHEMA)


def _files(table: pa.Table) -> Iterable[LandedFile]:
    return map(LandedFile, *(table[name].to_pylist() for name in _SCHEMA.names))


def _paths(paths: Collection[str]) -> pa.Array:
    return pa.array(list(paths), _SCHEMA.field("path").type)
