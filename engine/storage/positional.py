"""Files and objects read by position, with lengths checked before memory is taken, and a cache of decoded chunks.

A local file stays open while successive chunks are read from it, or while chunk objects refer to it.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from ..errors import ReadError, SourceMissingError
from ..limits import MIB, check_limit
from ..locations import is_below, true_place
from ..task_context import TaskContext, asked_for, current, fetched, find
from . import RemoteFile, is_url

GROWING = "+"
"""The suffix of a growing file's version: rows that a recorder appends do not change earlier bytes."""

_LARGEST_READ = 1 << 30
_PASSING = frozenset({errno.EIO, errno.EAGAIN, errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM})


class PositionalFile:
    """A file opened for reading, without a position, so that several readers can share it.

    Use it as a context manager. Opening raises :class:`SourceMissingError`, reading :class:`ReadError`.
    """

    __slots__ = ("_fd", "_status", "_version", "path", "size")

    def __init__(self, path: str, descriptor: int | None = None, version: str | None = None) -> None:
        self.path = path
        self._fd = -1
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            self._fd = os.open(path, flags) if descriptor is None else os.dup(descriptor)
        except OSError as error:
            raise SourceMissingError(
                f"cannot be opened: {error.strerror}{_registered_as(version)}",
                path=path,
                hint="Check the path and its permissions.",
            ) from error
        status = self._status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise ReadError("not a file", path=path, hint="Give the path of a file; folders and pipes cannot be read.")
        self.size = status.st_size
        self._version = _version_of(status)

    @property
    def version(self) -> str | None:
        """The version of the file: size, modification time and inode."""
        return self._version

    def check(self, version: str | None) -> None:
        """Raise :class:`ReadError` if the file no longer has ``version``. None and an empty version fit any file.

        With a version that ends with :data:`GROWING`, the file may be longer.
        """
        if not version:
            return
        status = os.fstat(self._fd)
        old_status = self._status
        if _is_of(version, self._version) and (status.st_mtime_ns, status.st_size) == (
            old_status.st_mtime_ns,
            old_status.st_size,
        ):
            return
        if _is_of(version, _version_of(status)):
            return
        if version.endswith(_ANY_INODE):
            raise self._changed(version, status)
        size, time, inode = (int(n) for n in version.removesuffix(GROWING).split("-"))
        is_same_file = inode == status.st_ino or not _inodes_last(status.st_dev)
        if is_same_file and (size, time) == (status.st_size, status.st_mtime_ns):
            return
        if is_same_file and version.endswith(GROWING) and status.st_size > size:
            return
        raise ReadError(
            "was replaced since it was opened",
            path=self.path,
            hint="Its size, modification time or inode changed. Open it again, and do not change files while their "
            "chunks are in use.",
        )

    def _changed(self, identity: str, status: os.stat_result) -> ReadError:
        return ReadError(
            f"was replaced since it was registered: it has {status.st_size:,} bytes, modified at "
            f"{_date(status.st_mtime_ns)}, not {_described(identity)}",
            path=self.path,
            hint="Register it again, or restore the previous file.",
        )

    @property
    def is_local(self) -> bool:
        """Return True if the file has a descriptor."""
        return self._fd >= 0

    def expect(self, *ranges: tuple[int, int]) -> None:
        """Announce that these bytes will be read in order. By default, this does nothing."""

    def fileno(self) -> int:
        """Return the descriptor, for copies by the kernel."""
        return self._fd

    def read(self, offset: int, size: int, *, what: str) -> bytes:
        """Read exactly ``size`` bytes at ``offset``; ``what`` names them in errors."""
        check_limit(offset, self.size, path=self.path, offset=offset, what=f"the offset of {what}")
        check_limit(size, self.size - offset, path=self.path, offset=offset, what=f"the length of {what}")
        asked_for()
        try:
            data = os.pread(self._fd, min(size, _LARGEST_READ), offset)
            fetched(len(data))
            if len(data) == size:
                return data
            return self._read_rest(data, offset, size, what)
        except OSError as error:
            raise self._failed(error, offset) from error

    def read_into(self, offset: int, target: memoryview, *, what: str) -> None:
        """Fill ``target`` with the bytes from ``offset``; ``what`` names them in errors."""
        check_limit(offset, self.size, path=self.path, offset=offset, what=f"the offset of {what}")
        check_limit(len(target), self.size - offset, path=self.path, offset=offset, what=f"the length of {what}")
        asked_for()
        try:
            done = os.preadv(self._fd, [target[:_LARGEST_READ]], offset)
        except OSError as error:
            raise self._failed(error, offset) from error
        fetched(done)
        if done < len(target):
            target[done:] = self.read(offset + done, len(target) - done, what=what)

    def _failed(self, error: OSError, offset: int) -> ReadError:
        transient = error.errno in _PASSING
        return ReadError(f"reading failed: {error.strerror}", path=self.path, offset=offset, transient=transient)

    def _read_rest(self, data: bytes, offset: int, size: int, what: str) -> bytes:
        parts = [data]
        done = len(data)
        while done < size:
            part = os.pread(self._fd, min(size - done, _LARGEST_READ), offset + done)
            fetched(len(part))
            if not part:
                raise ReadError(
                    f"the file shrank while {what} was read",
                    path=self.path,
                    offset=offset + done,
                    hint="Another program is writing to it; read it later.",
                )
            parts.append(part)
            done += len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> PositionalFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


_ANY_INODE: Final = "-"
"""The suffix of a version that has only a file's size and modification time."""


def file_identity(size: int, modified_ns: int) -> str:
    """The version of a file by size and modification time only, which is the same on other mounts."""
    return f"{size}-{modified_ns}{_ANY_INODE}"


def _is_of(version: str, actual: str) -> bool:
    version = version.removesuffix(GROWING)
    return actual.startswith(version) if version.endswith(_ANY_INODE) else actual == version


def _described(identity: str) -> str:
    size, time = (int(n) for n in identity.removesuffix(_ANY_INODE).split("-"))
    return f"{size:,} bytes, modified at {_date(time)}"


def _registered_as(version: str | None) -> str:
    """Return the end of a sentence on a missing file that was registered by its identity."""
    return f"; it was registered with {_described(version)}" if version and version.endswith(_ANY_INODE) else ""


def _date(time_ns: int) -> str:
    return str(np.datetime64(time_ns, "ns"))


def _version_of(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"


def _inodes_last(device: int) -> bool:
    """Return True if files of a device keep their inode numbers. In FUSE, these may change on each opening."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    return not any(line.split()[2] == number and " - fuse" in line for line in mounts)


_WINDOW: Final = 1 << 18
_SMALL: Final = 1 << 16
ANYWHERE: Final = 1 << 62
"""The end of a run whose end is unknown."""

_MOST_HELD: Final = min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
"""The most files that stay open for their chunks. Others are opened by name, and their versions checked."""


class HeldFile(PositionalFile):
    """A local file that stays open while this object exists, even if its name is removed or replaced.

    Pickles as None: other processes open the file by name.
    """

    __slots__ = ("__weakref__",)

    def close(self) -> None:
        """Do nothing: the file is closed with the object."""

    def __del__(self) -> None:
        super().close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _not_here, ()


def _not_here() -> None:
    """Return None, a held file's value in another process."""


_held: WeakValueDictionary[tuple[str, str], HeldFile] = WeakValueDictionary()


def held_file(path: str, version: str | None) -> HeldFile | None:
    """Return the file under ``path``, held open, or None if too many are. ``version``, if given, must match.

    Raises the errors of :class:`PositionalFile`, and :class:`ReadError` for another version.
    """
    existing = _held.get((path, version.removesuffix(GROWING))) if version else None
    if existing is not None:
        return existing
    file = HeldFile(path, version=version)
    file.check(version)
    if len(_held) >= _MOST_HELD:
        return None
    return _held.setdefault((path, str(file.version)), file)


class KeptFile(PositionalFile):
    """A local file that stays open after its use. Small pieces close to each other are read at once."""

    __slots__ = ("_filled", "_next", "_start", "_window", "run_end")

    def __init__(self, path: str, descriptor: int | None = None, version: str | None = None) -> None:
        super().__init__(path, descriptor, version)
        self.run_end = ANYWHERE
        self._window = bytearray()
        self._start = self._next = self._filled = 0

    def read(self, offset: int, size: int, *, what: str) -> bytes:
        """Read exactly ``size`` bytes at ``offset``; ``what`` names them in errors."""
        at = offset - self._start
        if not 0 <= at <= self._filled - size:
            follows = 0 <= offset - self._next < _SMALL
            if not follows or size > _SMALL or not self._fill(offset) >= size:
                self._next = offset + size
                return super().read(offset, size, what=what)
            at = 0
        asked_for()
        self._next = offset + size
        return bytes(memoryview(self._window)[at : at + size])

    def _fill(self, offset: int) -> int:
        """Fill the window, in the same memory, from ``offset`` on; return the number of its bytes."""
        self._window = self._window or bytearray(_WINDOW)
        self._start = offset
        size = min(max(self.run_end - offset, 0), _WINDOW)
        try:
            self._filled = os.preadv(self.fileno(), [memoryview(self._window)[:size]], offset)
            fetched(self._filled)
        except OSError:
            self._filled = 0
        return self._filled

    def is_still(self, path: str, version: str | None) -> bool:
        """Return True if this is ``path`` at ``version``; without a version, if it is still there and unchanged."""
        if path != self.path:
            return False
        if version:
            return _is_of(version, self._version)
        try:
            now = os.stat(path)  # noqa: PTH116 (called for every chunk)
        except OSError:
            return False
        return os.path.samestat(now, self._status) and (now.st_size, now.st_mtime_ns) == (
            self._status.st_size,
            self._status.st_mtime_ns,
        )

    def close(self) -> None:
        """Do nothing: :func:`keeping_open` closes the file."""

    def close_indeed(self) -> None:
        """Close the file."""
        super().close()


class OpenFiles:
    """Keeps the last local file of a task open, for its next use.

    ``run_end`` is the end of the needed bytes, if known: read-ahead stops there.
    """

    def __init__(self) -> None:
        self.run_end = ANYWHERE
        self._file: KeptFile | None = None

    def get(self, path: str, version: str | None, held: HeldFile | None) -> KeptFile:
        """Return a file of ``version``, opened or still open."""
        if self._file is None or not self._file.is_still(path, version):
            self.close()
            self._file = KeptFile(path, None if held is None else held.fileno(), version)
        self._file.check(version)
        self._file.run_end = self.run_end
        return self._file

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close_indeed()


@contextmanager
def keeping_open() -> Iterator[None]:
    """Within the block, keep this thread's last local file open for its next use."""
    context = current()
    if context.find(OpenFiles) is not None:
        yield
        return
    files = OpenFiles()
    try:
        with TaskContext(files).entered():
            yield
    finally:
        files.close()


def kept_or_opened(path: str, version: str | None, held: HeldFile | None) -> PositionalFile:
    """A local file of ``version``, opened or still open, to use until the next call.

    Raises the errors of :class:`PositionalFile`, and :class:`ReadError` if the file has another version.
    """
    files = find(OpenFiles)
    if files is not None:
        return files.get(path, version, held)
    file = PositionalFile(path, version=version) if held is None else held
    file.check(version)
    return file


NEVER_CHANGES: Final = ""
"""The version of an object that is written once, under a unique name."""

_KEPT_OPEN: Final = 3


class RemotePositional(PositionalFile):
    """An object in a store, read by position through windows of some megabytes."""

    __slots__ = ("_remote",)

    def __init__(self, remote: RemoteFile) -> None:
        self._remote = remote
        self._fd = -1
        self.path = remote.name
        self.size = remote.size

    @property
    def version(self) -> str | None:
        """The version of the object."""
        return self._remote.version

    def check(self, version: str | None) -> None:
        """Do nothing: each request names the version."""

    def expect(self, *ranges: tuple[int, int]) -> None:
        """Announce that these bytes will be read from start to end."""
        self._remote.expect(*ranges)

    def read(self, offset: int, size: int, *, what: str) -> bytes:
        """Read exactly ``size`` bytes at ``offset``; ``what`` names them in errors."""
        check_limit(offset, self.size, path=self.path, offset=offset, what=f"the offset of {what}")
        check_limit(size, self.size - offset, path=self.path, offset=offset, what=f"the length of {what}")
        return self._remote.pread(offset, size)

    def read_into(self, offset: int, target: memoryview, *, what: str) -> None:
        """Fill ``target`` with the bytes from ``offset``; ``what`` names them in errors."""
        target[:] = self.read(offset, len(target), what=what)

    def close(self) -> None:
        """Do nothing: other users share the object; it is released when newer ones are open."""


def open_positional(
    path: str | os.PathLike[str], version: str | None = None, held: HeldFile | None = None
) -> PositionalFile:
    """Open a file, or an object, of a known ``version``; None takes the current one.

    ``held`` is the file if it is already open. An object of a known version stays open for the next caller, so that
    adjacent chunks are fetched together. Raises :class:`ReadError` for another version.
    """
    text = os.fspath(path)
    if is_url(text):
        return RemotePositional(_shared(text, version))
    file = PositionalFile(text, version=version) if held is None else held
    try:
        file.check(version)
    except ReadError:
        file.close()
        raise
    return file


def open_inside(folder: str, path: str, version: str | None = None) -> PositionalFile:
    """Open a local file in a folder by an untrusted path; ``version``, if given, must match.

    Links are resolved first. The result is then opened folder by folder without following links, so that no outside
    file can replace it in between. Raises :class:`ReadError` for a place outside, and :class:`SourceMissingError`.
    """
    home, place = true_place(folder), os.path.realpath(path)
    if not is_below(place, home):
        raise ReadError("outside the folder of the input", path=path)
    at = -1
    try:
        at = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in os.path.relpath(place, home).split("/"):
            above = at
            at = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=above)
            os.close(above)
        file = PositionalFile(place, at, version)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceMissingError("missing", path=path) from error
    except OSError as error:
        raise SourceMissingError(f"cannot be opened: {error.strerror}", path=path) from error
    finally:
        if at >= 0:
            os.close(at)
    try:
        file.check(version)
    except ReadError:
        file.close()
        raise
    return file


def open_briefly(path: str, version: str | None = None, held: HeldFile | None = None) -> PositionalFile:
    """Like :func:`open_positional`, for use until another file is opened: see :func:`keeping_open`."""
    return open_positional(path, version) if is_url(path) else kept_or_opened(path, version, held)


_open: OrderedDict[tuple[str, str], RemoteFile] = OrderedDict()
_lock = threading.Lock()


def _shared(url: str, version: str | None) -> RemoteFile:
    with _lock:
        if version is not None and (url, version) in _open:
            _open.move_to_end((url, version))
            return _open[url, version]
    file = RemoteFile(url, version)
    with _lock:
        _open[url, NEVER_CHANGES if version == NEVER_CHANGES else file.version or NEVER_CHANGES] = file
        while len(_open) > _KEPT_OPEN:
            _open.popitem(last=False)
    return file


def _forget() -> None:
    """Reset in a forked process, which has neither its parent's threads nor its connections."""
    global _lock
    _lock = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_forget)


T = TypeVar("T")

RECENT_BYTES: Final = 64 * MIB
"""The size limit of the cache of chunks, and of that of manifests."""
_OBJECT: Final = 4096
"""The bytes that a chunk's objects take in addition to its values."""


class Recent(Generic[T]):
    """A cache with a maximum size in bytes, in total and per item. Thread-safe.

    If it is full, a random item is removed: in cyclic access to slightly more items than fit, the oldest item is the
    next one needed.
    """

    def __init__(self, most_bytes: int = RECENT_BYTES, largest: int = RECENT_BYTES // 256) -> None:
        self._most = most_bytes
        self._largest = largest
        self._bytes = 0
        self._entries: dict[Hashable, tuple[T, int]] = {}
        self._keys: list[Hashable] = []
        self._lots = Random(0)  # noqa: S311 (no secret)
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> T | None:
        """Return the item of a key, or None."""
        with self._lock:
            entry = self._entries.get(key)
            return None if entry is None else entry[0]

    def keep(self, key: Hashable, value: T, size: int) -> None:
        """Add an item of ``size`` bytes, unless it is large."""
        size += _OBJECT
        if size > self._largest:
            return
        with self._lock:
            if key in self._entries:
                return
            while self._keys and self._bytes + size > self._most:
                self._drop_one()
            self._entries[key] = value, size
            self._keys.append(key)
            self._bytes += size

    def _drop_one(self) -> None:
        at = self._lots.randrange(len(self._keys))
        self._keys[at], self._keys[-1] = self._keys[-1], self._keys[at]
        self._bytes -= self._entries.pop(self._keys.pop())[1]


def state_of(path: str) -> tuple[str, int, int, int] | None:
    """Return path, size, modification time and inode of a file, or None for an object or a missing file."""
    if is_url(path):
        return None
    try:
        status = os.stat(path)  # noqa: PTH116 (a path object takes as long as the call)
    except OSError:
        return None
    return path, status.st_size, status.st_mtime_ns, status.st_ino
