"""A process that runs a library on anybody's bytes (PyAV, h5py), and what is sent to it and back."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib.util
import json
import os
import selectors
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from ..errors import MissingExtraError, ReadError, UnsupportedError, UsageError, extra_command
from ..limits import MAX_CHUNK_UNCOMPRESSED, MAX_VIDEO_MEMORY
from ..storage.positional import PositionalFile

_HEAD: Final = struct.Struct(">II")
_WORKER: Final = Path(__file__).with_name("worker.py")
_START_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 60.0
"""How long the process may work on one batch; the encoder of a large frame is the slowest."""
_PIECE: Final = 1 << 20
_MOST_TEXT: Final = 64 << 20
_IDLE: Final = 4
_FOR_PYTHON: Final = ("PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_HINT: Final = "The file is damaged or malicious; copy it again."

Item = tuple[Sequence[Any], bytes]
"""The facts of a sample or a frame, and its bytes."""


def has_video_extra() -> bool:
    """Return whether PyAV is installed, which the extra ``video`` brings."""
    return importlib.util.find_spec("av") is not None


def require_video_extra(what: str = "video is read by PyAV, which is") -> None:
    """Raise ``MissingExtraError`` where PyAV is not installed. ``what`` begins its message."""
    if not has_video_extra():
        raise MissingExtraError(f"{what} not installed", hint=extra_command("video"))


class VideoProcess:
    """One process. It works on one request at a time."""

    def __init__(self, program: Path = _WORKER, memory: int = MAX_VIDEO_MEMORY) -> None:
        if program == _WORKER:
            require_video_extra()
        self.program = program
        self._owner = os.getpid()
        paths = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, on a file of this package
            [sys.executable, "-P", str(program), str(memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **{name: os.environ[name] for name in _FOR_PYTHON if name in os.environ},
                "PYTHONPATH": paths,
                "OPENBLAS_NUM_THREADS": "1",
            },
        )
        self._seconds = _START_SECONDS
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._answers = self._process.stdout.fileno()
        self._requests = self._process.stdin
        for pipe in (self._answers, self._requests.fileno()):
            with contextlib.suppress(OSError):  # more than this user may have
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIECE)

    @property
    def is_usable(self) -> bool:
        """Whether this process started it, and it still runs."""
        return self._owner == os.getpid() and self._process.poll() is None

    def stop(self) -> None:
        """Kill it."""
        if self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()

    def send(self, value: Any, data: bytes = b"") -> None:
        """Send a message. Raises ``BrokenPipeError`` where the process has ended."""
        text = json.dumps(value).encode()
        self._requests.write(_HEAD.pack(len(text), len(data)) + text)
        self._requests.write(data)
        self._requests.flush()

    def receive(self) -> tuple[str, Any, bytes]:
        """Return the next message: its kind, its value and its bytes. Raises ``TimeoutError`` and ``EOFError``."""
        deadline = time.monotonic() + self._seconds
        length, size = _HEAD.unpack(self._read(_HEAD.size, deadline))
        if length > _MOST_TEXT or size > MAX_CHUNK_UNCOMPRESSED:
            raise EOFError
        ((kind, value),) = json.loads(self._read(length, deadline)).items()
        self._seconds = _SILENT_SECONDS
        return kind, value, self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        out = bytearray()
        with selectors.DefaultSelector() as ready:
            ready.register(self._answers, selectors.EVENT_READ)
            while len(out) < size:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                piece = os.read(self._answers, min(_PIECE, size - len(out)))
                if not piece:
                    raise EOFError
                out += piece
        return bytes(out)


_lock = threading.Lock()
_idle: list[VideoProcess] = []


def _taken(program: Path, memory: int) -> VideoProcess:
    """Return a process of a program that waits for work, or a new one."""
    with _lock:
        for process in [process for process in reversed(_idle) if process.program == program]:
            _idle.remove(process)
            if process.is_usable:
                return process
    return VideoProcess(program, memory)


def _given_back(process: VideoProcess) -> None:
    with _lock:
        if len(_idle) < _IDLE and process.is_usable:
            _idle.append(process)
            return
    process.stop()


@atexit.register
def _stop() -> None:
    for process in _idle:
        process.stop()
    _idle.clear()


class VideoWork:
    """One request to a process: ``answer`` is what it says first, :meth:`items` what it makes.

    ``file`` is what it may read, ``given`` what it takes in, ``target`` what it may write. ``path`` names the input in
    errors. A process that is not done when this is closed is killed. ``program`` is the file that it runs, by default
    that of video, in ``memory`` bytes of address space.
    """

    def __init__(
        self,
        request: dict[str, Any],
        *,
        path: str | None = None,
        file: PositionalFile | None = None,
        given: Iterator[list[Item]] | None = None,
        target: BinaryIO | None = None,
        program: Path = _WORKER,
        memory: int = MAX_VIDEO_MEMORY,
    ) -> None:
        self._path = path
        self._file = file
        self._given = given
        self._target = target
        self._process = _taken(program, memory)
        self._is_done = self._is_closed = False
        try:
            self._send(request)
            self.answer = self._next("track")[1]
        except BaseException:
            self.close()
            raise

    def items(self) -> Iterator[Item]:
        """Yield what the process makes, once. Raises ``ReadError``, ``UnsupportedError`` and ``UsageError``."""
        try:
            while not self._is_done:
                kind, items, data = self._next("out")
                if kind == "out":
                    at = 0
                    for *facts, size in items:
                        yield facts, data[at : at + size]
                        at += size
        finally:
            self.close()

    def close(self) -> None:
        """Give the process back, or kill it where it is not done."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_done:
            _given_back(self._process)
        else:
            self._process.stop()

    def _next(self, wanted: str) -> tuple[str, Any, bytes]:
        """Serve the process until it says what is wanted, or ends."""
        while True:
            kind, value, data = self._receive()
            if kind == "read" and self._file is not None:
                offset, size = value
                self._send(None, self._file.read(offset, size, what="a part of it"))
            elif kind == "next" and self._given is not None:
                items = next(self._given, [])
                self._send([[*facts, len(blob)] for facts, blob in items], b"".join(blob for _, blob in items))
            elif kind == "write" and self._target is not None:
                self._target.seek(value)
                self._target.write(data)
            elif kind == "error":
                self._is_done = self._given is None  # a decoder may hang when it ends after damaged samples
                self._fail(*value)
            elif kind == "end":
                self._is_done = True
                return kind, None, b""
            elif kind == wanted:
                return kind, value, data
            else:
                raise self._lost("the process that read it answered out of turn")

    def _send(self, value: Any, data: bytes = b"") -> None:
        try:
            self._process.send(value, data)
        except BrokenPipeError:
            raise self._lost("the process that read it crashed, or took too much memory") from None

    def _receive(self) -> tuple[str, Any, bytes]:
        try:
            return self._process.receive()
        except TimeoutError:
            raise self._lost(f"nothing came of it within {_SILENT_SECONDS:g} s, and it was stopped") from None
        except (EOFError, ValueError):
            raise self._lost("the process that read it crashed, or took too much memory") from None

    def _lost(self, message: str) -> ReadError:
        return ReadError(message, path=self._path, offset=None if self._file is None else 0, hint=_HINT)

    def _fail(self, kind: str, message: str, offset: int | None) -> NoReturn:
        if kind == "unsupported":
            hint = "Encode it anew with FFmpeg, as H.264, H.265, AV1, VP8 or VP9, which are read."
            raise UnsupportedError(message, path=self._path, hint=hint)
        if kind == "usage":
            raise UsageError(message, path=self._path)
        raise ReadError(message, path=self._path, offset=offset, hint=_HINT)
