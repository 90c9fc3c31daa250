"""The staging folder of a run: parts lie there until the one commit, and nothing is left when the run ends.

It is beside the destination, so that the commit's rename stays within one file system (in an object store: under
``.chunkmill-staging`` beside it). It carries the name of its owner, so that the next run onto the same destination
clears away the remains of a killed one: a process that is known by more than its number.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import ReadError, SourceMissingError, WriteError, writing
from ..locations import Location, local_path
from ..spark import interruptible
from ..storage import ObjectUrl, bucket_of
from ..storage.folder import Folder, LocalFolder, ObjectFolder

PART_SUFFIX = ".part"
DONE_SUFFIX = ".done"
AMOUNT_SUFFIX = ".amount"
"""The end of the name of a file in which a task says how much of its size is done."""
"""What names end with in a staging folder: what a task wrote, and that it is done."""

_MARK = ".chunkmill-"
_OWNER = "owner.json"
_FAILED = "failed"
_REMOTE = ".chunkmill-staging"
_GONE = "-gone"
_LONGEST_NAME = 200
"""Bytes of a destination's name that its staging folder carries whole; file systems take 255."""
_GRACE_SECONDS = 60.0
_OLD_SECONDS = 24 * 3600.0
_ATTEMPTS = 10


def scratch_folder() -> Path:
    """The folder for results that stay: ``CHUNKMILL_SCRATCH``, else a folder of this user's in the temporary one."""
    given = os.environ.get("CHUNKMILL_SCRATCH")
    return local_path(given) if given else Path(tempfile.gettempdir()) / f"chunkmill-{os.getuid()}"


class Staging:
    """A folder for the parts of one run; removed when the ``with`` block ends, however it ends."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._signals = interruptible()

    @property
    def local(self) -> Path:
        """The folder's path, where it is on a file system."""
        assert isinstance(self.folder, LocalFolder)
        return self.folder.location

    @property
    def location(self) -> str:
        """The folder's path or URL; tasks find it by that."""
        return str(self.folder.location)

    @classmethod
    def beside(cls, destination: Location) -> Staging:
        """A new staging folder beside ``destination``; folders of dead runs onto it are removed first."""
        cls.sweep(destination)
        return cls._make(cls._folder(destination, secrets.token_hex(6)), destination)

    @classmethod
    def shared(cls, destination: Location, token: str) -> Staging:
        """The staging folder beside ``destination`` that several processes know by a ``token``; made by the first.

        It counts as abandoned when the process has ended that started the one that made it.
        """
        folder = cls._folder(destination, token)
        with writing(str(destination)):
            if not folder.exists(_OWNER):
                _make(folder, _process(os.getppid()), exist_ok=True)
        return cls(folder)

    @classmethod
    def sweep(cls, destination: Location) -> None:
        """Remove the folders of dead runs onto ``destination``."""
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
        """A new staging folder in the scratch folder, for results that stay there."""
        scratch = scratch_folder()
        with writing(str(scratch)):
            scratch.mkdir(parents=True, exist_ok=True)
        return cls._make(LocalFolder(scratch / f"run{_MARK}{secrets.token_hex(6)}"), scratch)

    @classmethod
    def sweep_scratch(cls) -> None:
        """Remove what dead runs left in the scratch folder."""
        for path in scratch_folder().glob(f"run{_MARK}*"):
            if _is_abandoned(LocalFolder(path)):
                LocalFolder(path).remove()

    def inner(self) -> Staging:
        """A new staging folder within this one."""
        return self._make(self.folder.sub(f"run{_MARK}{secrets.token_hex(6)}"), self.folder.location)

    @classmethod
    def _make(cls, folder: Folder, destination: Location) -> Staging:
        with writing(str(destination)):
            _make(folder, this_process())
        return cls(folder)

    def mark_failed(self, group: int = 0) -> None:
        """Tell the tasks of a group that have not begun to skip their work."""
        try:
            self.folder.put(f"{_FAILED}-{group}", b"", durable=False)
        except (OSError, WriteError):
            return  # a full disk: the other tasks find out by themselves

    def has_failed(self, group: int = 0) -> bool:
        """Return whether a task of this group failed."""
        return self.folder.exists(f"{_FAILED}-{group}")

    def check(self) -> None:
        """Raise a transient ``WriteError`` where the folder is gone: others have taken its run for dead."""
        if not self.folder.exists(_OWNER):
            raise WriteError(
                "the staging folder was removed while it was in use",
                path=self.location,
                hint="Nothing of this run is visible; run it again.",
                transient=True,
            )

    def remove(self) -> None:
        """Remove the folder with its content. It is renamed first, so that a cancelled task adds nothing."""
        folder = self.folder
        if isinstance(folder, LocalFolder):
            gone = folder.location.with_name(f"{folder.location.name}{_GONE}")
            with contextlib.suppress(OSError):  # it has that name already where this was interrupted before
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
        except BaseException:  # interrupted in that
            self.remove()
            raise
        finally:
            self._signals.__exit__(kind, error, trace)


def _make(folder: Folder, owner: Mapping[str, Any], *, exist_ok: bool = False) -> None:
    """Let a staging folder be there, with its owner from the first moment on: without, it is taken for abandoned."""
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
                continue  # others have cleared it away
            # a full disk may have room for a folder, but none for its content
            if isinstance(error, OSError) and exist_ok and folder.exists(_OWNER):
                return
            raise
        else:
            return


def abandoned_runs(location: Location) -> list[Folder]:
    """The staging folders of runs onto something right in ``location`` that are known to be dead, or taken for it.

    Nothing is known of one on another host, which counts as dead a day after it began.
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
    """Host, number and time of start of this process, as JSON data."""
    return _process(os.getpid())


def _process(pid: int) -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": pid, "started": start_time(pid)}


def is_gone(process: Mapping[str, Any]) -> bool:
    """Return whether the process described by :func:`this_process` elsewhere is known to be dead.

    Of one on another host, or in another process namespace where ``process`` has one, nothing is known. Hosts need
    names of their own for that. Raises ``ValueError`` or ``KeyError`` if ``process`` is no such description.
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
        pass  # there is such a process, and it is not ours to signal
    state, started = _state_and_start(pid)
    then = process.get("started")
    return state in _DEAD_STATES or (started is not None and then is not None and started != then)


def start_time(pid: int) -> str | None:
    """Return when a process started, to distinguish it from a later one with the same number; None if unknown."""
    return _state_and_start(pid)[1]


def pid_namespace() -> str | None:
    """The namespace in which this process's number means something: containers have their own."""
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
