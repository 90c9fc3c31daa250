"""Reading a file by position, with every length checked against the file before memory is taken."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import TracebackType

from ..bounded import check_limit
from ..errors import ReadError, SourceMissingError

GROWING = "+"
"""What ends a version of which more may follow: rows that a recorder appends change nothing that was there."""

_LARGEST_READ = 1 << 30
_PASSING = frozenset({errno.EIO, errno.EAGAIN, errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM})


class PositionalFile:
    """A file opened for reading; no position is kept, so that several readers may share it.

    Use it as a context manager. Opening raises :class:`SourceMissingError`, reading :class:`ReadError`.
    """

    __slots__ = ("_fd", "_status", "_version", "path", "size")

    def __init__(self, path: str, descriptor: int | None = None) -> None:
        self.path = path
        self._fd = -1
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            self._fd = os.open(path, flags) if descriptor is None else os.dup(descriptor)
        except OSError as error:
            raise SourceMissingError(
                f"cannot be opened: {error.strerror}", path=path, hint="Check the path and its permissions."
            ) from error
        status = self._status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise ReadError("not a file", path=path, hint="Give the path of a file; a folder or pipe can't be read.")
        self.size = status.st_size
        self._version = _version_of(status)

    @property
    def version(self) -> str | None:
        """The mark that tells this content from another under the same path: size, modification time and inode."""
        return self._version

    def check(self, version: str | None) -> None:
        """Raise :class:`ReadError` where the file is not of ``version`` any more; None and an empty one: it always is.

        After a version that ends with :data:`GROWING` the file may be longer.
        """
        if not version:
            return
        status = os.fstat(self._fd)
        known = self._status
        if version.removesuffix(GROWING) == self._version and (status.st_mtime_ns, status.st_size) == (
            known.st_mtime_ns,
            known.st_size,
        ):
            return
        if version.removesuffix(GROWING) == _version_of(status):
            return
        size, time, inode = (int(n) for n in version.removesuffix(GROWING).split("-"))
        is_same_file = inode == status.st_ino or not _inodes_last(status.st_dev)
        if is_same_file and (size, time) == (status.st_size, status.st_mtime_ns):
            return
        if is_same_file and version.endswith(GROWING) and status.st_size > size:
            return
        raise ReadError(
            "was replaced since it was opened",
            path=self.path,
            hint="Its size, modification time or inode is another; open it anew, and leave files as they are while "
            "their chunks are in use.",
        )

    @property
    def is_local(self) -> bool:
        """Whether there is a descriptor."""
        return self._fd >= 0

    def expect(self, start: int, stop: int) -> None:
        """Say that these bytes will be read front to end; an operating system finds out by itself."""

    def fileno(self) -> int:
        """The descriptor, for copies by the kernel."""
        return self._fd

    def read(self, offset: int, size: int, *, what: str) -> bytes:
        """Exactly ``size`` bytes from ``offset``; ``what`` names them in errors."""
        check_limit(offset, self.size, path=self.path, offset=offset, what=f"the offset of {what}")
        check_limit(size, self.size - offset, path=self.path, offset=offset, what=f"the length of {what}")
        try:
            data = os.pread(self._fd, min(size, _LARGEST_READ), offset)
            if len(data) == size:
                return data
            return self._read_rest(data, offset, size, what)
        except OSError as error:
            raise ReadError(
                f"reading failed: {error.strerror}", path=self.path, offset=offset, transient=error.errno in _PASSING
            ) from error

    def _read_rest(self, data: bytes, offset: int, size: int, what: str) -> bytes:
        parts = [data]
        done = len(data)
        while done < size:
            part = os.pread(self._fd, min(size - done, _LARGEST_READ), offset + done)
            if not part:
                raise ReadError(
                    f"the file shrank while {what} was read",
                    path=self.path,
                    offset=offset + done,
                    hint="Another program writes to it; read it when that is done.",
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


def _version_of(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"


def _inodes_last(device: int) -> bool:
    """Whether a file keeps its inode's number there: not in FUSE, where it may get another each time it is opened."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    return not any(line.split()[2] == number and " - fuse" in line for line in mounts)
