"""Processes that run a C library (PyAV, h5py) on untrusted bytes and can open no file: both ends of their pipes.

A message is three lengths (4 bytes each, big-endian), a JSON object and bytes. The third length is that of bytes in
shared memory instead of the pipe; each direction has one half of this memory. The process drives: after a request, it
requests bytes of a file (``read``), another file (``open``), or more input (``next``), has bytes written (``write``),
and sends results (``track``, then ``out``), until it sends ``end`` or ``error``. Its memory is bounded, and it may die.
Its program is a module that calls :func:`serve` when it has imported everything it needs.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import mmap
import os
import resource
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn

from .errors import ReadError, UnsupportedError, UsageError
from .limits import MAX_CHUNK_UNCOMPRESSED, keep_freed_memory

if TYPE_CHECKING:
    from .storage.positional import PositionalFile

_HEAD: Final = struct.Struct(">III")
_SHARED: Final = 64 << 20
"""Bytes of the shared memory. Pages that no message needs are never allocated."""
_START_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 60.0
"""How long a process may work on one batch; the encoder of a large frame is the slowest."""
_CAN_SHARE: Final = hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")
_PIECE: Final = 1 << 20
_MOST_TEXT: Final = 64 << 20
_IDLE: Final = 4
_FOR_PYTHON: Final = ("PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_HINT: Final = "The file is damaged or malicious; copy it again."

Item = tuple[Sequence[Any], bytes]
"""The facts of a sample, a frame or rows, and their bytes."""


_NOTHING: Final = b"null"


def _halves(shared: int) -> tuple[memoryview, memoryview]:
    """Return the shared memory of a descriptor: one half for input, one for output. Empty for -1."""
    if shared < 0:
        return memoryview(b""), memoryview(b"")
    if os.fstat(shared).st_size != _SHARED:
        os.ftruncate(shared, _SHARED)
        # If the process truncated the memory, this one would die at its next access.
        fcntl.fcntl(shared, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    whole = memoryview(mmap.mmap(shared, _SHARED))
    return whole[: _SHARED // 2], whole[_SHARED // 2 :]


class Sandbox:
    """One process. It works on one request at a time.

    ``program`` is the name of its module, which calls :func:`serve`; ``memory`` is its address space, in bytes.
    """

    def __init__(self, program: str, memory: int) -> None:
        self.program = program
        self._owner = os.getpid()
        paths = os.pathsep.join(p for p in sys.path if p)
        shared = os.memfd_create("sandbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING) if _CAN_SHARE else -1
        self._given, self._made = _halves(shared)
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, on a module of this package
            [sys.executable, "-P", "-m", program, str(memory), str(shared)],
            pass_fds=[shared] if shared >= 0 else (),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **{name: os.environ[name] for name in _FOR_PYTHON if name in os.environ},
                "PYTHONPATH": paths,
                "OPENBLAS_NUM_THREADS": "1",
            },
        )
        if shared >= 0:
            os.close(shared)
        self._seconds = _START_SECONDS
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._answers = self._process.stdout.fileno()
        self._requests = self._process.stdin
        for pipe in (self._answers, self._requests.fileno()):
            with contextlib.suppress(OSError):  # beyond the user's limit
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIECE)

    @property
    def is_usable(self) -> bool:
        """Whether this process started the sandbox, and it still runs."""
        return self._owner == os.getpid() and self._process.poll() is None

    def stop(self) -> None:
        """Kill it."""
        if self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()

    def send(self, value: Any, data: bytes = b"") -> None:
        """Send a message. Raises ``BrokenPipeError`` if the process has ended."""
        text = json.dumps(value).encode()
        self._requests.write(_HEAD.pack(len(text), len(data), 0) + text)
        self._requests.write(data)
        self._requests.flush()

    def send_from(self, file: PositionalFile, offset: int, size: int) -> None:
        """Send bytes of a file. Raises ``BrokenPipeError``, and ``ReadError`` if the file lacks them."""
        if size > len(self._given):
            self.send(None, file.read(offset, size, what="a part of it"))
            return
        file.read_into(offset, self._given[:size], what="a part of it")
        self._requests.write(_HEAD.pack(len(_NOTHING), 0, size) + _NOTHING)
        self._requests.flush()

    def receive(self) -> tuple[str, Any, bytes | memoryview]:
        """Return the next message: its kind, value and bytes, which may be valid only until the next request.

        Raises ``TimeoutError`` and ``EOFError``.
        """
        deadline = time.monotonic() + self._seconds
        length, size, shared = _HEAD.unpack(self._read(_HEAD.size, deadline))
        if length > _MOST_TEXT or size > MAX_CHUNK_UNCOMPRESSED or shared > len(self._made):
            raise EOFError
        ((kind, value),) = json.loads(self._read(length, deadline)).items()
        self._seconds = _SILENT_SECONDS
        return kind, value, self._made[:shared] if shared else self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        pieces: list[bytes] = []
        with selectors.DefaultSelector() as ready:
            ready.register(self._answers, selectors.EVENT_READ)
            while size:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                piece = os.read(self._answers, min(_PIECE, size))
                if not piece:
                    raise EOFError
                pieces.append(piece)
                size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_lock = threading.Lock()
_idle: list[Sandbox] = []


def _taken(program: str, memory: int) -> Sandbox:
    """Return a process of a program that waits for work, or a new one."""
    with _lock:
        for process in [process for process in reversed(_idle) if process.program == program]:
            _idle.remove(process)
            if process.is_usable:
                return process
    return Sandbox(program, memory)


def _given_back(process: Sandbox) -> None:
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


class SandboxRequest:
    """One request to a process: ``answer`` is its first message, :meth:`items` are its results.

    ``program`` and ``memory`` are those of :class:`Sandbox`. ``file`` is the file that the process may read, ``given``
    its input, ``target`` the file that it may write. ``open_file`` opens another file, by its name and the path of the
    file that refers to it; the message of its ``ReadError`` goes to the process. ``files`` are all opened files,
    ``file`` first. ``path`` names the input in errors. Closing the request kills a process that is not done.
    """

    def __init__(
        self,
        program: str,
        request: dict[str, Any],
        *,
        memory: int,
        path: str | None = None,
        file: PositionalFile | None = None,
        open_file: Callable[[str, str], PositionalFile] | None = None,
        given: Iterator[list[Item]] | None = None,
        target: BinaryIO | None = None,
    ) -> None:
        self._path = path
        self.files = [] if file is None else [file]
        self._open_file = open_file
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
        """Yield the results of the process, once. Raises ``ReadError``, ``UnsupportedError`` and ``UsageError``.

        Bytes that a program sends in shared memory are valid until the next item.
        """
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
        """Give the process back, or kill it if it is not done."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_done:
            _given_back(self._process)
        else:
            self._process.stop()

    def _next(self, wanted: str) -> tuple[str, Any, Any]:
        """Serve the process until it sends the wanted kind of message, or ends."""
        while True:
            kind, value, data = self._receive()
            if kind == "read" and self.files:
                number, offset, size = value
                self._send_from(self.files[number], offset, size)
            elif kind == "open" and self._open_file is not None:
                self._send(self._opened(*value))
            elif kind == "next" and self._given is not None:
                items = next(self._given, [])
                self._send([[*facts, len(blob)] for facts, blob in items], b"".join(blob for _, blob in items))
            elif kind == "write" and self._target is not None:
                self._target.seek(value)
                self._target.write(data)
            elif kind == "error":
                self._is_done = self._given is None  # a decoder that had damaged samples may hang at its end
                self._fail(*value)
            elif kind == "end":
                self._is_done = True
                return kind, None, b""
            elif kind == wanted:
                return kind, value, data
            else:
                raise self._lost("the process that read the file violated its protocol")

    def _opened(self, name: str, number: int) -> tuple[int, int] | str:
        """Return the number and the size of another file, or the reason why it is not opened."""
        assert self._open_file is not None
        try:
            file = self._open_file(name, self.files[number].path)
        except ReadError as error:
            return error.message
        if file not in self.files:
            self.files.append(file)
        return self.files.index(file), file.size

    def _send(self, value: Any, data: bytes = b"") -> None:
        try:
            self._process.send(value, data)
        except BrokenPipeError:
            raise self._lost("the process that read the file crashed, or used too much memory") from None

    def _send_from(self, file: PositionalFile, offset: int, size: int) -> None:
        try:
            self._process.send_from(file, offset, size)
        except BrokenPipeError:
            raise self._lost("the process that read the file crashed, or used too much memory") from None

    def _receive(self) -> tuple[str, Any, Any]:
        try:
            return self._process.receive()
        except TimeoutError:
            raise self._lost(
                f"the process that read the file gave no answer within {_SILENT_SECONDS:g} s, and was stopped"
            ) from None
        except (EOFError, ValueError):
            raise self._lost("the process that read the file crashed, or used too much memory") from None

    def _lost(self, message: str) -> ReadError:
        return ReadError(message, path=self._path, offset=0 if self.files else None, hint=_HINT)

    def _fail(self, kind: str, message: str, offset: int | None, hint: str | None) -> NoReturn:
        if kind == "usage":
            raise UsageError(message, path=self._path, hint=hint)
        if kind == "unsupported":
            raise UnsupportedError(message, path=self._path, hint=hint)
        raise ReadError(message, path=self._path, offset=offset, hint=hint or _HINT)


class FailureError(Exception):
    """The input is wrong; ``kind`` (read, unsupported or usage) is the kind of error to raise."""

    def __init__(self, message: str, kind: str = "read", offset: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.offset = offset
        self.hint = hint


class Pipes:
    """The two pipes to the requesting process.

    With ``seconds``, this process ends after computing for that long without a message.
    """

    def __init__(self, source: BinaryIO, target: BinaryIO, shared: int = -1, seconds: float = 0.0) -> None:
        self._source = source
        self._target = target
        self._given, self._made = _halves(shared)
        self._seconds = seconds

    def receive(self) -> tuple[Any, bytes | memoryview]:
        """Return the next message; its bytes may be valid only until the next one. Ends the process after the last."""
        head = self._source.read(_HEAD.size)
        if len(head) < _HEAD.size:
            sys.exit()
        length, size, shared = _HEAD.unpack(head)
        value = json.loads(self._source.read(length))
        return value, self._given[:shared] if shared else self._source.read(size)

    def send(self, kind: str, value: Any = None, data: bytes | memoryview = b"") -> None:
        """Send a message of one kind."""
        self.go_on()
        text = json.dumps({kind: value}).encode()
        self._target.write(_HEAD.pack(len(text), len(data), 0) + text)
        self._target.write(data)
        self._target.flush()

    def shared(self, size: int) -> memoryview:
        """Return memory for bytes that :meth:`send_shared` sends, or less than ``size`` if there is not enough."""
        return self._made[:size]

    def send_shared(self, kind: str, value: Any, size: int) -> None:
        """Send a message whose bytes are in the shared memory; they stay there until the next request."""
        self.go_on()
        text = json.dumps({kind: value}).encode()
        self._target.write(_HEAD.pack(len(text), 0, size) + text)
        self._target.flush()

    def ask(self, kind: str, value: Any = None) -> tuple[Any, bytes | memoryview]:
        """Send a message and return the answer."""
        self.send(kind, value)
        return self.receive()

    def go_on(self) -> None:
        """Restart the time limit for the next step."""
        if self._seconds:
            signal.setitimer(signal.ITIMER_PROF, self._seconds)


class AskedFile:
    """A file of a request, by its number, read through the pipes. All reads together are bounded."""

    def __init__(self, wire: Pipes, size: int, most: int, number: int = 0) -> None:
        self._wire = wire
        self._size = size
        self._left = most
        self._number = number
        self.position = 0

    def read(self, size: int = -1) -> bytes:
        """Return at most ``size`` bytes from the current position."""
        size = self._size - self.position if size < 0 else min(size, self._size - self.position)
        data = bytes(self._asked(self.position, size)) if size > 0 else b""
        self.position += len(data)
        return data

    def _asked(self, offset: int, size: int) -> bytes | memoryview:
        self._left -= size
        if self._left < 0:
            raise FailureError("the file refers to the same bytes repeatedly", offset=offset)
        return self._wire.ask("read", [self._number, offset, size])[1]

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset and return it."""
        self.position = max((0, self.position, self._size)[whence] + offset, 0)
        return self.position

    def tell(self) -> int:
        """Return the current position."""
        return self.position


Operation = Callable[[Pipes, dict[str, Any]], None]
"""The work on one request. It sends ``track``, and then its results as ``out``."""


def serve(operations: Mapping[str, Operation], seconds: float = 0.0) -> None:
    """Answer requests until the input ends, by the operations that they name.

    With ``seconds``, the process ends after computing for that long without a message.
    """
    os.environ.clear()
    keep_freed_memory()
    shared = int(sys.argv[2])
    wire = Pipes(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"), shared, seconds)
    if shared >= 0:
        os.close(shared)
    os.dup2(2, 1)  # libraries print
    _confine(int(sys.argv[1]))
    with contextlib.suppress(BrokenPipeError):
        while True:
            signal.setitimer(signal.ITIMER_PROF, 0)
            request, _ = wire.receive()
            wire.go_on()
            try:
                operations[request["operation"]](wire, request)
            except MemoryError:
                wire.send("error", ["read", "it needs more memory than allowed", None, None])
            except Exception as error:  # noqa: BLE001 (whatever a library says of damaged bytes)
                failure = failure_of(error)
                wire.send("error", [failure.kind, str(failure), failure.offset, failure.hint])
            else:
                wire.send("end")


def failure_of(error: Exception) -> FailureError:
    """Return an error as a failure, or the failure that a library has wrapped in it."""
    for reason in (error, error.__cause__, error.__context__):
        if isinstance(reason, FailureError):
            return reason
    return FailureError(str(error) or type(error).__name__)


def _confine(most_memory: int) -> None:
    """Bound the memory of this process, and let it open no more files."""
    resource.setrlimit(resource.RLIMIT_AS, (most_memory, most_memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files = max(int(name) for name in os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 8  # noqa: PTH112, PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
