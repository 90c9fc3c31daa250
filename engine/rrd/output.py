"""Where messages are written to: an append-only file with counted offsets."""

from __future__ import annotations

import io
import os
from typing import BinaryIO, Final

import pyarrow as pa

from ..failing import writing
from ..objects import ObjectUrl, Upload
from ..objects.remote_file import LARGEST_WINDOW
from ..objects.upload import SMALLEST_PART
from .copying import copy_range
from .positional import PositionalFile

_BUFFER_SIZE: Final = 1 << 20
_KERNEL_COPY_SIZE: Final = 1 << 18


class Output:
    """Appends to ``file`` (or an upload) from where it stands, through a buffer.

    ``position`` counts the bytes since then.

    Failures are raised as ``NoSpaceError`` or ``WriteError`` that name ``path``.
    """

    __slots__ = ("_buffer", "_fd", "_file", "path", "position")

    def __init__(self, file: BinaryIO, path: str) -> None:
        self.path = path
        self.position = 0
        self._file = file
        self._buffer = bytearray()
        self._fd: int | None
        try:
            file.flush()
            self._fd = file.fileno()
        except (io.UnsupportedOperation, AttributeError):
            self._fd = None

    def write(self, data: bytes | bytearray | pa.Buffer) -> None:
        """Append ``data``; what is large goes out without another copy."""
        size = data.size if isinstance(data, pa.Buffer) else len(data)
        self.position += size
        if size + len(self._buffer) <= _BUFFER_SIZE:
            self._buffer += memoryview(data)
            return
        self.flush()
        with writing(self.path):
            self._write_all(memoryview(data))

    def copy(self, source: PositionalFile, offset: int, size: int, *, what: str, many: int | None = None) -> None:
        """Append ``size`` bytes of ``source``; when they are many, the kernel (or a store: ``many``) copies them."""
        if isinstance(self._file, Upload) and size >= (many or SMALLEST_PART) and not source.is_local:
            self.flush()
            if self._file.copy(ObjectUrl.of(source.path), source.version, offset, size):
                self.position += size
                return
        if self._fd is None or size < _KERNEL_COPY_SIZE or not source.is_local:
            most = _BUFFER_SIZE if source.is_local else LARGEST_WINDOW
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

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        if self._buffer:
            with writing(self.path), memoryview(self._buffer) as view:
                self._write_all(view)
            self._buffer.clear()

    def sync(self) -> None:
        """Flush, and wait until the bytes are on the disk."""
        self.flush()
        if self._fd is not None:
            with writing(self.path):
                os.fsync(self._fd)

    def _write_all(self, data: memoryview) -> None:
        if self._fd is None:
            self._file.write(data)
            return
        done = 0
        while done < len(data):
            done += os.write(self._fd, data[done:])
