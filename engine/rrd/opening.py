"""Opening a file for reading by position, wherever it is."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Final

from ..bounded import check_limit
from ..errors import ReadError
from ..objects import RemoteFile, is_url
from .kept_open import HeldFile, kept_or_opened
from .positional import PositionalFile

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
