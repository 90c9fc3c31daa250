"""The helper process that runs jq programs, and may be killed at any time.

jq runs in the interpreter's own process otherwise, and a program that loops could not be stopped there. The helper is
started when it is first needed, is used again, and is replaced after it had to be killed. A forked process starts one
of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from ...engine.errors import SelectorError
from ...engine.limits import MAX_JQ_ANSWER, MAX_JQ_MEMORY

_LENGTH = struct.Struct(">Q")
_WORKER = Path(__file__).with_name("jq_worker.py")
_START_SECONDS = 30.0
_READ_BYTES = 1 << 20


class JqProcess:
    """One helper. Not for two threads at once."""

    def __init__(self) -> None:
        paths = os.pathsep.join(p for p in sys.path if p)
        self.owner = os.getpid()
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, on a file of this package
            [sys.executable, str(_WORKER), str(MAX_JQ_MEMORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )
        try:
            self.ask(".", "[]", _START_SECONDS)
        except SelectorError:
            self.stop()
            raise

    def ask(self, program: str, text: str, seconds: float) -> str:
        """The outputs of ``program`` on the elements in ``text``, as JSON: an array of arrays.

        Raises :class:`SelectorError` with jq's message, or where no answer came in time; the helper is gone then.
        """
        body = json.dumps([program, text]).encode()
        deadline = time.monotonic() + seconds
        try:
            stdin = self._process.stdin
            assert stdin is not None
            stdin.write(_LENGTH.pack(len(body)) + body)
            stdin.flush()
            size = _LENGTH.unpack(self._read(_LENGTH.size, deadline))[0]
            if size > MAX_JQ_ANSWER:
                self.stop()
                raise SelectorError(f"jq program gave {size:,} bytes, more than the {MAX_JQ_ANSWER:,} allowed")
            answer = json.loads(self._read(size, deadline))
        except (TimeoutError, BrokenPipeError, EOFError) as error:
            self.stop()
            if isinstance(error, TimeoutError):
                raise SelectorError(f"jq program did not finish within {seconds:g} s and was stopped") from None
            raise SelectorError("jq program ended its process: it took too much memory, or crashed") from None
        if "error" in answer:
            raise SelectorError(f"jq program failed: {answer['error'].strip()}")
        outputs: str = answer["outputs"]
        return outputs

    @property
    def alive(self) -> bool:
        """Whether this process started the helper, and it still runs."""
        return self.owner == os.getpid() and self._process.poll() is None

    def stop(self) -> None:
        """Kill the helper."""
        if self.owner == os.getpid():
            self._process.kill()
            self._process.communicate()

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        out = bytearray()
        with selectors.DefaultSelector() as ready:
            ready.register(handle, selectors.EVENT_READ)
            while len(out) < size:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                piece = os.read(handle, min(_READ_BYTES, size - len(out)))
                if not piece:
                    raise EOFError
                out += piece
        return bytes(out)


_lock = threading.Lock()
_running: list[JqProcess] = []


def ask(program: str, text: str, seconds: float) -> str:
    """:meth:`JqProcess.ask` of this process's helper, started where there is none."""
    with _lock:
        if not (_running and _running[0].alive):
            _running[:] = [JqProcess()]
        return _running[0].ask(program, text, seconds)


@atexit.register
def _stop() -> None:
    for process in _running:
        process.stop()
    _running.clear()
