"""The staging folder of a run, and its commit: parts are joined into one RRD at the destination.

An extent is the place of a task's messages. A commit takes extents in the order of the tasks. Extents already at their
place in the file are adopted; the kernel or the store copies others there. Two methods avoid copying bytes twice
(figures: 200 MB, 2 cores; ``benchmarks/bench_rrd.py`` guards them). If all tasks only output unread messages, they
write these into regions of the file, with sizes known beforehand: 0.14 s instead of 0.34. Otherwise such tasks leave
the messages at their source, and the commit copies them from there: 0.25 s instead of 0.4. Copies are made while other
tasks run: for 4 GB in 73 tasks, copying after the last task took 19 s of 44, and takes 0.3 s of 21
(``benchmarks/scale.py`` guards it).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple

from ..errors import ReadError, SourceMissingError, WriteError, writing
from ..faults import reach
from ..locations import Location, local_path
from ..rrd import (
    ChunkEntry,
    FileRun,
    Listed,
    PositionalFile,
    RrdWriter,
    Run,
    StoreEntry,
    copy_range,
    start_writing_back,
)
from ..spark import interruptible
from ..storage import ObjectUrl, bucket_of
from ..storage.folder import OPEN_SUFFIX, Folder, LocalFolder, NewFile, ObjectFolder, replace_file
from ..task_context import passed_through
from .work import Note, PartChunk, Work

PART_SUFFIX = ".part"
DONE_SUFFIX = ".done"
AMOUNT_SUFFIX = ".amount"
"""The suffix of a file in which a task reports how much of its size is done."""
"""What names end with in a staging folder: what a task wrote, and that it is done."""

_MARK = ".chunkmill-"
_OWNER = "owner.json"
_FAILED = "failed"
_REMOTE = ".chunkmill-staging"
_GONE = "-gone"
_LONGEST_NAME = 200
"""Destination names of up to this many bytes are unchanged in the staging folder's name; file systems allow 255."""
_GRACE_SECONDS = 60.0
_OLD_SECONDS = 24 * 3600.0
_ATTEMPTS = 10


def scratch_folder() -> Path:
    """The folder for intermediate results: ``CHUNKMILL_SCRATCH``, or the user's folder in the temporary folder."""
    given = os.environ.get("CHUNKMILL_SCRATCH")
    return local_path(given) if given else Path(tempfile.gettempdir()) / f"chunkmill-{os.getuid()}"


class Staging:
    """A folder for the parts of one run, removed at the end of the ``with`` block."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._signals = interruptible()

    @property
    def local(self) -> Path:
        """The path of the folder, on a file system."""
        assert isinstance(self.folder, LocalFolder)
        return self.folder.location

    @property
    def location(self) -> str:
        """The path or URL of the folder, for tasks."""
        return str(self.folder.location)

    @classmethod
    def beside(cls, destination: Location) -> Staging:
        """Make a staging folder next to ``destination``, after removing the folders of dead runs."""
        cls.sweep(destination)
        return cls._make(cls._folder(destination, secrets.token_hex(6)), destination)

    @classmethod
    def shared(cls, destination: Location, token: str) -> Staging:
        """Return the staging folder next to ``destination`` that processes with the same ``token`` share.

        The first process makes it. The folder counts as abandoned when the parent of that process has ended.
        """
        folder = cls._folder(destination, token)
        with writing(str(destination)):
            if not folder.exists(_OWNER):
                _make(folder, _process(os.getppid()), exist_ok=True)
        return cls(folder)

    @classmethod
    def sweep(cls, destination: Location) -> None:
        """Remove the staging folders of dead runs that wrote to ``destination``."""
        runs: Iterable[Folder]
        if isinstance(destination, ObjectUrl):
            runs = _runs_below(destination.parent / _REMOTE / destination.name)
        else:
            runs = map(LocalFolder, destination.parent.glob(f"{_escaped(f'.{_short(destination.name)}{_MARK}')}*"))
        for run in runs:
            if _is_abandoned(run):
                run.remove()

    @staticmethod
    def _folder(destination: Location, token: str) -> Folder:
        if isinstance(destination, ObjectUrl):
            return ObjectFolder(destination.parent / _REMOTE / destination.name / token)
        return LocalFolder(destination.parent / f".{_short(destination.name)}{_MARK}{token}")

    @classmethod
    def in_scratch(cls) -> Staging:
        """Make a staging folder in the scratch folder, for results that stay there."""
        scratch = scratch_folder()
        with writing(str(scratch)):
            scratch.mkdir(parents=True, exist_ok=True)
        return cls._make(LocalFolder(scratch / f"run{_MARK}{secrets.token_hex(6)}"), scratch)

    @classmethod
    def sweep_scratch(cls) -> None:
        """Remove the folders of dead runs in the scratch folder."""
        for path in scratch_folder().glob(f"run{_MARK}*"):
            if _is_abandoned(LocalFolder(path)):
                LocalFolder(path).remove()

    def inner(self) -> Staging:
        """Make a staging folder within this one."""
        return self._make(self.folder.sub(f"run{_MARK}{secrets.token_hex(6)}"), self.folder.location)

    @classmethod
    def _make(cls, folder: Folder, destination: Location) -> Staging:
        with writing(str(destination)):
            _make(folder, this_process())
        return cls(folder)

    def mark_failed(self, group: int = 0) -> None:
        """Mark a group as failed: tasks that have not started will skip their work."""
        try:
            self.folder.put(f"{_FAILED}-{group}", b"", durable=False)
        except (OSError, WriteError):
            return  # a full disk: the other tasks notice by themselves

    def has_failed(self, group: int = 0) -> bool:
        """Return whether a task of this group failed."""
        return self.folder.exists(f"{_FAILED}-{group}")

    def check(self) -> None:
        """Raise a transient ``WriteError`` if the folder is gone: another process took this run for dead."""
        if not self.folder.exists(_OWNER):
            raise WriteError(
                "the staging folder was removed while it was in use",
                path=self.location,
                hint="Nothing of this run is visible; run it again.",
                transient=True,
            )

    def remove(self) -> None:
        """Remove the folder with its content, after renaming it, so that cancelled tasks cannot add files."""
        folder = self.folder
        if isinstance(folder, LocalFolder):
            gone = folder.location.with_name(f"{folder.location.name}{_GONE}")
            with contextlib.suppress(OSError):  # it already has that name after an earlier interruption
                folder.location.rename(gone)
            LocalFolder(gone).remove()
            if not folder.location.exists():
                return
        folder.remove()

    def __enter__(self) -> Staging:
        self._signals.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.remove()
        except BaseException:  # interrupted during the removal
            self.remove()
            raise
        finally:
            self._signals.__exit__(kind, error, trace)


def _make(folder: Folder, owner: Mapping[str, Any], *, exist_ok: bool = False) -> None:
    """Make a staging folder that has its owner from the beginning: without one, it would count as abandoned."""
    data = json.dumps(owner).encode()
    if not isinstance(folder, LocalFolder):
        folder.put(_OWNER, data)
        return
    target = folder.location
    for attempt in range(_ATTEMPTS):
        new = target.with_name(f"{target.name}-{secrets.token_hex(3)}")
        new.mkdir()
        try:
            LocalFolder(new).put(_OWNER, data, durable=False)
            new.rename(target)
        except BaseException as error:
            LocalFolder(new).remove()
            if isinstance(error, FileNotFoundError) and attempt + 1 < _ATTEMPTS:
                continue  # others have removed it
            # a full disk may have room for a folder, but none for its content
            if isinstance(error, OSError) and exist_ok and folder.exists(_OWNER):
                return
            raise
        else:
            return


def abandoned_runs(location: Location) -> list[Folder]:
    """The staging folders of dead runs whose destinations are directly in ``location``.

    A run on another host counts as dead a day after its start.
    """
    runs: list[Folder]
    if isinstance(location, ObjectUrl):
        places = _names_below(location / _REMOTE)
        runs = [run for place in places for run in _runs_below(location / _REMOTE / place)]
    else:
        paths = (path for path in location.iterdir() if path.name.startswith(".") and _MARK in path.name)
        runs = [LocalFolder(path) for path in sorted(paths) if path.is_dir()]
    return [run for run in runs if _is_abandoned(run) or _is_old(run)]


def _short(name: str) -> str:
    """Return ``name``, or a substitute if a folder's name with it would become too long."""
    whole = os.fsencode(name)
    if len(whole) <= _LONGEST_NAME:
        return name
    return f"{whole[:64].decode(errors='ignore')}-{hashlib.sha256(whole).hexdigest()[:16]}"


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _runs_below(url: ObjectUrl) -> list[Folder]:
    """The staging folders of a destination in a store: one level below ``url``."""
    return [ObjectFolder(url / name) for name in _names_below(url)]


def _names_below(url: ObjectUrl) -> list[str]:
    depth = len(url.key) + 1
    return sorted({entry.url.key[depth:].partition("/")[0] for entry in bucket_of(url).list(url.key)})


def _is_old(folder: Folder) -> bool:
    """Return whether a run on another host began so long ago that its folder can be deleted, or has no known owner."""
    try:
        owner = folder.get(_OWNER)
        if isinstance(folder, LocalFolder):
            began = (folder.location / _OWNER).stat().st_mtime
        else:
            place = folder.location / _OWNER
            assert isinstance(place, ObjectUrl)
            began = bucket_of(place).head(place.key).modified_ns / 1e9
        return json.loads(owner)["host"] != socket.gethostname() and time.time() - began > _OLD_SECONDS
    except (FileNotFoundError, SourceMissingError, ValueError, KeyError, TypeError):
        return True
    except (OSError, ReadError):
        return False


def _is_abandoned(folder: Folder) -> bool:
    """Return whether the run that made ``folder`` is known to be dead; a run on another host is left alone."""
    try:
        text = folder.get(_OWNER) if not isinstance(folder, LocalFolder) or folder.exists(_OWNER) else b""
        if isinstance(folder, LocalFolder) and not text:
            return time.time() - folder.location.stat().st_mtime > _GRACE_SECONDS
        return is_gone(json.loads(text))
    except (OSError, ValueError, KeyError, TypeError, ReadError):
        return False


_DEAD_STATES = ("Z", "X")


def this_process() -> dict[str, Any]:
    """The host, number and start time of this process, as JSON data."""
    return _process(os.getpid())


def _process(pid: int) -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": pid, "started": start_time(pid)}


def is_gone(process: Mapping[str, Any]) -> bool:
    """Return True if a process, as described by :func:`this_process`, is known to be dead.

    Processes on other hosts or in other process namespaces are never known to be dead; hosts need different names.
    Raises ``ValueError`` or ``KeyError`` if ``process`` is not such a description.
    """
    pid = int(process["pid"])
    if not 0 < pid < 1 << 31:
        raise ValueError(f"{pid} is not a process number")
    if process["host"] != socket.gethostname() or process.get("namespace", pid_namespace()) != pid_namespace():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # the process exists, but belongs to another user
    state, started = _state_and_start(pid)
    then = process.get("started")
    return state in _DEAD_STATES or (started is not None and then is not None and started != then)


def start_time(pid: int) -> str | None:
    """Return the start time of a process, which distinguishes it from a later one with its number, or None."""
    return _state_and_start(pid)[1]


def pid_namespace() -> str | None:
    """The process namespace of this process; each container has its own."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _state_and_start(pid: int) -> tuple[str | None, str | None]:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return words[0], words[19]
    except (OSError, IndexError):
        return None, None


@dataclass(frozen=True, slots=True)
class Extent:
    """The messages of one task: ``size`` bytes (None: all) of a file of the staging folder, from ``start``.

    ``chunks`` are listed, or entries with their offsets in that file. With ``at_source`` there is no such file: they
    are a run whose messages are still at their source.
    """

    task: int
    file: str
    start: int
    size: int | None
    chunks: Listed | Sequence[ChunkEntry]
    at_source: bool = False

    @property
    def listed(self) -> Listed:
        """The chunks of an extent that one row describes."""
        assert isinstance(self.chunks, Listed)
        return self.chunks

    def adopt(self, writer: RrdWriter, store: StoreEntry) -> None:
        """Add the messages to the file without a copy: they are already at its current end."""
        assert self.size is not None
        chunks = self.chunks.placed(store, writer.position) if isinstance(self.chunks, Listed) else self.chunks
        writer.adopt(store, chunks, self.size)

    def append(self, writer: RrdWriter, store: StoreEntry, folder: Folder, destination: str) -> None:
        """Copy the messages to the end of another file.

        Raises :class:`ReadError` for messages at their source that are no longer there.
        """
        if not isinstance(self.chunks, Listed):
            writer.append_part(store, folder.place(self.file), self.chunks, self.start, self.size)
            return
        assert self.size is not None
        chunks = self.chunks.placed(store, writer.position)
        if not self.at_source:
            writer.append_passed(store, folder.place(self.file), chunks, self.start, self.size)
            return
        assert isinstance(self.chunks, FileRun)
        out = writer.messages(store).out
        out.flush()
        assert out.handle is not None
        if not self.chunks.copy(out.handle, out.position, store, destination=destination):
            raise ReadError(
                "messages of this file moved while it was read",
                path=self.chunks.path,
                hint="Another program is writing to the file; run again when it has finished.",
            )
        out.wrote(self.size)
        writer.adopt(store, chunks, 0)

    def moved(self, file: str, start: int, size: int) -> Extent:
        """The same messages, copied to another place."""
        chunks, by = self.chunks, start - self.start
        if not isinstance(chunks, Listed):
            chunks = [replace(entry, offset=entry.offset + by) for entry in chunks]
        return Extent(self.task, file, start, size, chunks)


@dataclass(frozen=True, slots=True)
class Regions:
    """A file in the staging folder on ``host``, and the place where each task begins to write.

    Only tasks on that host use it: if two machines write a file, the result depends on the file system.
    """

    file: str
    starts: tuple[int, ...]
    host: str

    @classmethod
    def of(cls, file: str, start: int, sizes: Sequence[int]) -> Regions:
        """Return consecutive regions of these sizes, from ``start`` on."""
        return cls(file, tuple(accumulate(sizes, initial=start))[:-1], socket.gethostname())


@dataclass(frozen=True, slots=True)
class RunPlaces:
    """The places of copied messages: in ``regions`` if all tasks only copy, else in parts.

    With ``at_source``, tasks copy nothing, and the commit copies from the sources: once instead of twice.
    """

    regions: Regions | None = None
    at_source: bool = False

    @property
    def is_quick(self) -> bool:
        """Return True if the driver can run such tasks as fast as a worker, because they write no part."""
        return self.at_source or self.regions is not None

    def bring(
        self, index: int, run: Run, store: StoreEntry, folder: Folder, part: str, destination: str
    ) -> dict[str, Any] | None:
        """Copy the output of task ``index`` and return its new location, or None if it must be rewritten.

        Each try of a task writes the same bytes to its region.
        """
        size = run.size_in(store)
        if self.regions is not None and self.regions.host == socket.gethostname():
            start = self.regions.starts[index]
            with writing(destination):
                file = Path(folder.place(self.regions.file)).open("r+b", buffering=0)  # noqa: SIM115 - closed below
            with file:
                file.seek(start)
                if not run.copy(file.fileno(), start, store, destination=destination):
                    return None
            return {"file": self.regions.file, "start": start, "size": size}
        if self.at_source and isinstance(run, FileRun):
            if not run.lies_as_listed():
                return None
            passed_through(run.table.message_bytes)
            return {"file": part, "start": 0, "size": size, "at_source": True}
        if not isinstance(folder, LocalFolder):
            return None
        with writing(destination):
            new = folder.new(part)
        try:
            if not run.copy(new.file.fileno(), 0, store, destination=destination):
                return None
            with writing(destination):
                new.finish()
        finally:
            new.discard()
        return {"file": part, "start": 0, "size": size}


def listed_extents(work: Work, notes: Sequence[Note]) -> list[Extent]:
    """The extents without a row for each chunk, from the tasks' notes."""
    return list(_listed_extents(work, notes))


def _listed_extents(work: Work, notes: Sequence[Note]) -> Iterator[Extent]:
    for note in notes:
        if note.kind == "listing":
            listed = Listed(note.data["table"])
            yield Extent(note.task, note.data["part"], 0, listed.table.framed_bytes, listed)
        place = note.data.get("extent") if note.kind == "task" else None
        if place is not None:
            run = work.whole_run(note.task)
            assert run is not None
            yield Extent(note.task, place["file"], place["start"], place["size"], run, place.get("at_source", False))


def all_extents(chunks: Sequence[PartChunk], listed: Sequence[Extent]) -> list[Extent]:
    """Return the listed extents and the extents of chunks with rows, in the order of the tasks."""
    parts = groupby(chunks, key=lambda c: (c.task, c.part))
    extents = [*listed, *(Extent(task, part, 0, None, [c.entry for c in some]) for (task, part), some in parts)]
    return sorted(extents, key=lambda extent: extent.task)


_PERIOD: Final = 0.01
_PATIENCE: Final = 20
"""The wait before the next listing of the folder, as a multiple of the last listing's time."""


class Follower:
    """Copies the output of finished tasks to the end of a file, in the order of the tasks, in a separate thread.

    Guarantee: :meth:`stop` returns the first tasks, whose messages were copied completely; other tasks' parts are
    untouched. The follower does not decide which part of a task counts: two tries may leave two parts.

    Parameters
    ----------
    folder
        The folder of parts; a file next to each part shows that its task is done.
    file
        The file; its bytes before ``start`` are kept.
    tasks
        For each task, its whole output if that stays at its source, and the store of its chunks.
    """

    def __init__(
        self, folder: Path, file: Path, start: int, tasks: Sequence[tuple[FileRun | None, StoreEntry]]
    ) -> None:
        self._folder = folder
        self._file = file
        self._end = start
        self._tasks = tasks
        self._copied: list[tuple[str, int, int]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chunkmill-commit", daemon=True)
        self._thread.start()

    def stop(self) -> list[tuple[str, int, int]]:
        """Finish the current copy, and take no other part.

        Return the name of each copied part, one per task, with its new start and its size.
        """
        self._stopped.set()
        self._thread.join()
        return self._copied

    def _run(self) -> None:
        wait = _PERIOD
        # The commit repeats a failed step, and then reports the error.
        with contextlib.suppress(OSError, ReadError, WriteError), self._file.open("r+b", buffering=0) as file:
            file.seek(self._end)
            while len(self._copied) < len(self._tasks) and not self._stopped.wait(wait):
                began = time.perf_counter()
                done = self._done()
                wait = max(_PERIOD, _PATIENCE * (time.perf_counter() - began))
                while not self._stopped.is_set() and (name := done.get(len(self._copied))) is not None:
                    size = self._copy(name + PART_SUFFIX, file)
                    if size is None:
                        return
                    self._copied.append((name + PART_SUFFIX, self._end, size))
                    self._end += size

    def _done(self) -> dict[int, str]:
        """Return the base name of each finished task's files, by the task's number."""
        names = (path.name.removesuffix(DONE_SUFFIX) for path in self._folder.glob(f"*{DONE_SUFFIX}"))
        return {int(name.partition("-")[0]): name for name in names}

    def _copy(self, name: str, file: BinaryIO) -> int | None:
        """Copy the next part and return its size, or None if it is gone."""
        run, store = self._tasks[len(self._copied)]
        path = self._folder / name
        if run is not None and not path.exists():
            is_there = run.copy(file.fileno(), self._end, store, destination=str(self._file))
            return run.size_in(store) if is_there else None
        with PositionalFile(str(path)) as part:
            copy_range(part, 0, part.size, file.fileno())
            start_writing_back(file.fileno(), self._end, part.size)
            size = part.size
        path.unlink()
        return size


_COMMIT_NAME: Final = "commit.rrd"
_BEGUN_NAME: Final = "begun.rrd"
_BEGUN_FILE: Final = _BEGUN_NAME + OPEN_SUFFIX


class RrdCommit:
    """The commit of a run into one RRD at ``destination``.

    Guarantee: until the last step (a rename, or in an object store the end of the upload), the destination is
    unchanged. After it, the file is complete and synced.
    """

    def __init__(self, staging: Staging, destination: Location, stores: Sequence[StoreEntry]) -> None:
        self._staging = staging
        self._destination = destination
        self._stores = stores
        self._begun: _Target | None = None
        self._follower: Follower | None = None

    def reserve(self, sizes: Sequence[int]) -> Regions:
        """Begin a local file, with a region of the given size for each task."""
        return Regions.of(_BEGUN_FILE, self._begin_now(), sizes)

    def follow(self, runs: Sequence[tuple[FileRun | None, StoreEntry]]) -> None:
        """Begin a local file, and copy the output of finished tasks into it while others run.

        ``runs`` has, for each task, its whole output if that stays at its source, and the store of its chunks.
        """
        folder = self._staging.local
        self._follower = Follower(folder, folder / _BEGUN_FILE, self._begin_now(), runs)

    def finish(self, stores: Sequence[StoreEntry], extents: Sequence[Extent]) -> int:
        """Join extents in their order, publish the file, and return its size in bytes.

        ``stores`` are the tasks' stores. Extents copied while tasks ran stay in the file; the kernel or the object
        store appends the others. If a copied extent is not valid (because a later try of its task counts), all are
        copied into another file. The footer is made from the chunk tables of the extents.
        """
        if self._follower is not None:
            copied = {part: (start, size) for part, start, size in self._follower.stop()}
            extents = [e.moved(_BEGUN_FILE, *copied[e.file]) if e.file in copied else e for e in extents]
        with writing(str(self._destination)):
            begun, adopted = self._begun, 0
            if begun is not None and (prefix := _lie_first(extents, _BEGUN_FILE, begun.writer.position)) is not None:
                adopted, end = prefix
                os.truncate(begun.file.file.fileno(), end)
            else:
                begun = None
            target = begun or self._begin(_COMMIT_NAME)
            writer, folder = target.writer, self._staging.folder
            try:
                for extent in extents[:adopted]:
                    extent.adopt(writer, stores[extent.task])
                for extent in extents[adopted:]:
                    extent.append(writer, stores[extent.task], folder, str(self._destination))
                writer.finish()
                reach("rrd.write", getattr(target.file.file, "name", None))
                target.file.finish()
            except BaseException:
                target.file.discard()
                raise
            finally:
                self.close()
            if not isinstance(self._destination, ObjectUrl):
                replace_file(self._staging.local / target.name, self._destination)
            reach("rrd.rename")
        return writer.position

    def take(self, part: str) -> None:
        """Publish a part of a local staging folder that is a complete, synced RRD."""
        with writing(str(self._destination)):
            assert not isinstance(self._destination, ObjectUrl)
            replace_file(self._staging.local / part, self._destination)
            reach("rrd.rename")

    def close(self) -> None:
        """Discard an unfinished file."""
        if self._follower is not None:
            self._follower.stop()
        if self._begun is not None:
            self._begun.file.discard()

    def _begin_now(self) -> int:
        """Begin a local file before the tasks begin; return its current end."""
        with writing(str(self._destination)):
            self._begun = self._begin(_BEGUN_NAME)
        self._begun.writer.flush()
        return self._begun.writer.position

    def _begin(self, name: str) -> _Target:
        if isinstance(self._destination, ObjectUrl):
            file = Folder.at(self._destination.parent).new(self._destination.name)
        else:
            file = self._staging.folder.new(name)
        writer = RrdWriter(file.file, path=str(self._destination))
        for store in self._stores:
            writer.begin_store(store)
        return _Target(name, file, writer)


class _Target(NamedTuple):
    """The file being written, and its name in the staging folder."""

    name: str
    file: NewFile
    writer: RrdWriter


def _lie_first(extents: Sequence[Extent], file: str, end: int) -> tuple[int, int] | None:
    """Count the first extents that are consecutive in ``file`` from ``end`` on; also return the end of the last.

    Return None if later extents are in that file, too.
    """
    count = 0
    while count < len(extents) and (extents[count].file, extents[count].start) == (file, end):
        end += extents[count].size or 0
        count += 1
    return None if any(extent.file == file for extent in extents[count:]) else (count, end)
