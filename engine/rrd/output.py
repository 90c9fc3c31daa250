"""Outputs for messages: an append-only file with counted offsets."""

from __future__ import annotations

import io
import os
from typing import BinaryIO, Final

import pyarrow as pa

from ..errors import writing
from ..objects import LARGEST_WINDOW, SMALLEST_PART, ObjectUrl, Upload
from .copying import copy_range, start_writing_back
from .positional import PositionalFile

_MOST_HELD: Final = 1 << 20
_MOST_PIECES: Final = 512
_KERNEL_COPY_SIZE: Final = 1 << 18


class Output:
    """Appends to ``file`` (or an upload) from where it stands, many pieces at a time.

    ``position`` counts the bytes since then. Pieces are held until then, not copied: they must not be changed.

    Failures are raised as ``NoSpaceError`` or ``WriteError`` that name ``path``.
    """

    __slots__ = ("_fd", "_file", "_held", "_pieces", "_sent", "path", "position")

    def __init__(self, file: BinaryIO, path: str) -> None:
        self.path = path
        self.position = 0
        self._file = file
        self._pieces: list[memoryview] = []
        self._held = self._sent = 0
        self._fd: int | None
        try:
            file.flush()
            self._fd = file.fileno()
        except (io.UnsupportedOperation, AttributeError):
            self._fd = None

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        """Append ``data``."""
        piece = memoryview(data)
        self.position += len(piece)
        self._held += len(piece)
        self._pieces.append(piece)
        if self._held >= _MOST_HELD or len(self._pieces) >= _MOST_PIECES:
            self.flush()

    def copy(self, source: PositionalFile, offset: int, size: int, *, what: str, many: int | None = None) -> None:
        """Append ``size`` bytes of ``source``; when they are many, the kernel (or a store: ``many``) copies them."""
        if isinstance(self._file, Upload) and size >= (many or SMALLEST_PART) and not source.is_local:
            self.flush()
            if self._file.copy(ObjectUrl.of(source.path), source.version, offset, size):
                self.position += size
                return
        if self._fd is None or size < _KERNEL_COPY_SIZE or not source.is_local:
            most = _MOST_HELD if source.is_local else LARGEST_WINDOW
            while size > 0:
                piece = min(size, most)
                self.write(source.read(offset, piece, what=what))
                offset, size = offset + piece, size - piece
            return
        self.flush()
        with writing(self.path):
            copy_range(source, offset, size, self._fd)
        self.position += size

    def skip(self, size: int) -> None:
        """Pass over bytes that another wrote into the file."""
        self.flush()
        assert self._fd is not None
        os.lseek(self._fd, size, os.SEEK_CUR)
        self.position += size
        self._sent += size  # whoever wrote them does that for them

    @property
    def handle(self) -> int | None:
        """The descriptor that is written to, where there is one."""
        return self._fd

    def wrote(self, size: int) -> None:
        """Count bytes that another wrote to where the descriptor stood, after a :meth:`flush`."""
        self.position += size

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        if not self._pieces:
            return
        pieces, self._pieces, size, self._held = self._pieces, [], self._held, 0
        with writing(self.path):
            if self._fd is None:
                self._file.write(b"".join(pieces) if len(pieces) > 1 else pieces[0])
                return
            done = os.writev(self._fd, pieces)
            if done < size:
                rest = memoryview(b"".join(pieces))[done:]
                while rest:
                    rest = rest[os.write(self._fd, rest) :]

    def write_back(self) -> None:
        """Let the operating system begin to bring to the disk what was written, so that :meth:`sync` takes less."""
        if self._fd is not None:
            self.flush()
            size, self._sent = self.position - self._sent, self.position
            start_writing_back(self._fd, os.lseek(self._fd, 0, os.SEEK_CUR) - size, size)

    def sync(self) -> None:
        """Flush, and wait until the bytes are on the disk."""
        self.flush()
        if self._fd is not None:
            with writing(self.path):
                os.fsync(self._fd)
