"""Files opened for reading by position, wherever they are, and local ones that stay open.

A file stays open while one chunk after the other is read from it, or as long as chunks lie in it.
"""

from __future__ import annotations

import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakValueDictionary

from ..bounded import check_limit
from ..errors import ReadError
from ..objects import RemoteFile, is_url
from ..task_context import TaskContext, current, find
from .positional import GROWING, PositionalFile

_WINDOW: Final = 1 << 18
_SMALL: Final = 1 << 16

_MOST_HELD: Final = min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
"""Files that stay open because chunks lie in them; those beyond are opened by name, and their versions checked."""


class HeldFile(PositionalFile):
    """A local file that is open as long as somebody has this object, whatever becomes of its name.

    Pickles as None: elsewhere there is only the name.
    """

    __slots__ = ("__weakref__",)

    def close(self) -> None:
        """Nothing; the file is closed when the object goes."""

    def __del__(self) -> None:
        super().close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _not_here, ()


def _not_here() -> None:
    """A held file as another process gets it."""


_held: WeakValueDictionary[tuple[str, str], HeldFile] = WeakValueDictionary()


def held_file(path: str, version: str | None) -> HeldFile | None:
    """The file under ``path``, of ``version`` if given, to be held on to; None where as many as may be are held.

    Raises as :class:`PositionalFile`, and :class:`ReadError` where the file that is there is of another version.
    """
    known = _held.get((path, version.removesuffix(GROWING))) if version else None
    if known is not None:
        return known
    file = HeldFile(path)
    file.check(version)
    if len(_held) >= _MOST_HELD:
        return None
    return _held.setdefault((path, str(file.version)), file)


class KeptFile(PositionalFile):
    """A local file that stays open when who uses it is done; small pieces that lie close together are read at once."""

    __slots__ = ("_filled", "_next", "_start", "_window")

    def __init__(self, path: str, descriptor: int | None = None) -> None:
        super().__init__(path, descriptor)
        self._window = bytearray()
        self._start = self._next = self._filled = 0

    def read(self, offset: int, size: int, *, what: str) -> bytes:
        """Exactly ``size`` bytes from ``offset``; ``what`` names them in errors."""
        at = offset - self._start
        if not 0 <= at <= self._filled - size:
            follows = 0 <= offset - self._next < _SMALL
            if not follows or size > _SMALL or not self._fill(offset) >= size:
                self._next = offset + size
                return super().read(offset, size, what=what)
            at = 0
        self._next = offset + size
        return bytes(memoryview(self._window)[at : at + size])

    def _fill(self, offset: int) -> int:
        """Read what lies from ``offset`` on into the window, whose memory is used again; gives how much it holds."""
        self._window = self._window or bytearray(_WINDOW)
        self._start = offset
        try:
            self._filled = os.preadv(self.fileno(), [self._window], offset)
        except OSError:
            self._filled = 0
        return self._filled

    def is_still(self, path: str, version: str | None) -> bool:
        """Whether this is what ``path`` named at ``version``; without one: what it names now, unchanged."""
        if path != self.path:
            return False
        if version:
            return version.removesuffix(GROWING) == self.version
        try:
            now = os.stat(path)  # noqa: PTH116 (for every chunk)
        except OSError:
            return False
        return os.path.samestat(now, self._status) and (now.st_size, now.st_mtime_ns) == (
            self._status.st_size,
            self._status.st_mtime_ns,
        )

    def close(self) -> None:
        """Nothing; :func:`keeping_open` closes it."""

    def close_indeed(self) -> None:
        """Close the file."""
        super().close()


class OpenFiles:
    """The local file that a task opened last: it stays open for the next to ask for it."""

    def __init__(self) -> None:
        self._file: KeptFile | None = None

    def get(self, path: str, version: str | None, held: HeldFile | None) -> KeptFile:
        """A file of ``version``, opened or still open."""
        if self._file is None or not self._file.is_still(path, version):
            self.close()
            self._file = KeptFile(path, None if held is None else held.fileno())
        self._file.check(version)
        return self._file

    def close(self) -> None:
        """Close it."""
        file, self._file = self._file, None
        if file is not None:
            file.close_indeed()


@contextmanager
def keeping_open() -> Iterator[None]:
    """In the block, the local file that this thread opened last stays open for the next to ask for it."""
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
    """A local file of ``version``, opened or still open, to be used until the next is asked for.

    Raises as :class:`PositionalFile`, and :class:`ReadError` where it is not of that version any more.
    """
    files = find(OpenFiles)
    if files is not None:
        return files.get(path, version, held)
    file = PositionalFile(path) if held is None else held
    file.check(version)
    return file


NEVER_CHANGES: Final = ""
"""The version of an object that is written once, under a name of its own."""

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
        """The version that is read."""
        return self._remote.version

    def check(self, version: str | None) -> None:
        """Nothing: each request asks for the version."""

    def expect(self, start: int, stop: int) -> None:
        """Say that these bytes will be read front to end."""
        self._remote.expect(start, stop)

    def read(self, offset: int, size: int, *, what: str) -> bytes:
        """Exactly ``size`` bytes from ``offset``; ``what`` names them in errors."""
        check_limit(offset, self.size, path=self.path, offset=offset, what=f"the offset of {what}")
        check_limit(size, self.size - offset, path=self.path, offset=offset, what=f"the length of {what}")
        return self._remote.pread(offset, size)

    def close(self) -> None:
        """Nothing: who opened it once more shares it; it goes when it was not used for a while."""


def open_positional(
    path: str | os.PathLike[str], version: str | None = None, held: HeldFile | None = None
) -> PositionalFile:
    """Open a file, or an object, of a known ``version``; None takes the one that is there now.

    ``held`` is the file where it is open already. An object of a known version stays open for the next to ask for it,
    so that chunks that lie beside each other are fetched together. Raises :class:`ReadError` for another version.
    """
    text = os.fspath(path)
    if is_url(text):
        return RemotePositional(_shared(text, version))
    file = PositionalFile(text) if held is None else held
    try:
        file.check(version)
    except ReadError:
        file.close()
        raise
    return file


def open_briefly(path: str, version: str | None = None, held: HeldFile | None = None) -> PositionalFile:
    """Like :func:`open_positional`, for who is done with it before another file is opened: see :func:`keeping_open`."""
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
    """In a forked process, which has neither its parent's threads nor its connections."""
    global _lock
    _lock = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_forget)
