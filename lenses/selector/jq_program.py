"""jq programs on Arrow arrays: arrays are converted to JSON, and jq's outputs to typed arrays.

The JSON form: structs are objects, lists are arrays; times, durations and dates are integers; maps are arrays of
``[key, value]``; dictionary arrays are plain values; binary is base64 text, decimals are text. NaN is null, and
infinity is the largest double, as in jq itself.
"""

from __future__ import annotations

import atexit
import base64
import json
import math
import os
import selectors
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.errors import SelectorError, UsageError
from ...engine.limits import MAX_JQ_ANSWER, MAX_JQ_MEMORY
from ..arrays import Offsets, type_name
from .syntax import Jq

_LENGTH = struct.Struct(">Q")
_WORKER = Path(__file__).with_name("jq_worker.py")
_START_SECONDS = 30.0
_COMPILE_SECONDS = 10.0
_READ_BYTES = 1 << 20
_FOR_PYTHON = ("PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Variables that an interpreter may need to start; the helper drops them before it takes a request."""


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
            env={**{name: os.environ[name] for name in _FOR_PYTHON if name in os.environ}, "PYTHONPATH": paths},
        )
        try:
            self.ask(".", "[]", _START_SECONDS)
        except SelectorError:
            self.stop()
            raise

    def compile_error(self, program: str, seconds: float) -> str:
        """Return jq's reason why ``program`` does not compile; empty if it does. Runs nothing.

        Raises :class:`SelectorError` if compiling takes too long or too much memory; then the helper has ended.
        """
        return self._answer(program, None, seconds).get("error", "")

    def ask(self, program: str, text: str, seconds: float) -> str:
        """The outputs of ``program`` on the elements in ``text``, as JSON: an array of arrays.

        Raises :class:`SelectorError` with jq's message, or if no answer came in time; then the helper has ended.
        """
        answer = self._answer(program, text, seconds)
        if "error" in answer:
            raise SelectorError(f"jq program failed: {answer['error'].strip()}")
        return answer["outputs"]

    def _answer(self, program: str, text: str | None, seconds: float) -> dict[str, str]:
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
            answer: dict[str, str] = json.loads(self._read(size, deadline))
        except (TimeoutError, BrokenPipeError, EOFError) as error:
            self.stop()
            if isinstance(error, TimeoutError):
                raise SelectorError(f"jq program did not finish within {seconds:g} s and was stopped") from None
            raise SelectorError("jq program used too much memory, or crashed") from None
        except BaseException:  # after an interrupt, the next request would get this one's answer
            self.stop()
            raise
        return answer

    @property
    def alive(self) -> bool:
        """Return whether this process started the helper, and it still runs."""
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


@contextmanager
def _helper() -> Iterator[JqProcess]:
    """Yield this process's helper, started if necessary, for one thread at a time."""
    with _lock:
        if not (_running and _running[0].alive):
            _running[:] = [JqProcess()]
        yield _running[0]


@atexit.register
def _stop() -> None:
    for process in _running:
        process.stop()
    _running.clear()


_PIECE = 1024
"""The elements in one request. The time limit is for this number."""

_LARGEST = 1.7976931348623157e308


def check_program(program: str) -> None:
    """Raise :class:`UsageError` with jq's own message if ``program`` cannot be compiled. Runs nothing.

    jq folds constants while it compiles, which can take any time and memory, so the helper also compiles.
    """
    with _helper() as helper:
        reason = helper.compile_error(program, _COMPILE_SECONDS)
    if reason:
        raise UsageError(f"not a jq program: {reason}")


def run_jq(node: Jq, values: pa.Array) -> tuple[pa.Array, Offsets]:
    """Return the outputs of the program, typed, and the offsets of each element's outputs."""
    plain = _plain(values)
    outputs: list[Any] = []
    counts = np.zeros(len(values) + 1, dtype=np.int64)
    for start in range(0, len(values), _PIECE):
        piece = plain.slice(start, _PIECE)
        with _helper() as helper:
            answer = _parsed(helper.ask(node.program, to_json(piece), node.seconds))
        counts[start + 1 : start + 1 + len(piece)] = [len(each) for each in answer]
        for each in answer:
            outputs.extend(each)
    return _typed(outputs, node.datatype), np.cumsum(counts)


def _parsed(outputs: str) -> list[list[Any]]:
    try:
        values: list[list[Any]] = json.loads(outputs)
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, deeply nested lists
        raise SelectorError(f"the outputs of the jq program cannot be read: {error}") from None
    return values


def to_json(plain: pa.Array) -> str:
    """Return the elements of an array of plain types as a JSON array."""
    rows = plain.to_pylist()
    try:
        return json.dumps(rows, allow_nan=False, default=_text)
    except ValueError:
        return json.dumps(_finite(rows), default=_text)


def _typed(outputs: list[Any], datatype: pa.DataType | None) -> pa.Array:
    try:
        return pa.array(outputs, type=datatype, from_pandas=False)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        wanted = "one type; give `type=`" if datatype is None else type_name(datatype)
        raise SelectorError(f"the outputs of the jq program do not fit {wanted}: {error}") from error


def _plain(values: pa.Array) -> pa.Array:
    """``values`` with times as integers and dictionaries unpacked, at every depth."""
    wanted = _plain_type(values.type)
    if wanted == values.type:
        return values
    try:
        return pc.cast(values, wanted)
    except pa.ArrowException as error:
        raise SelectorError(f"{type_name(values.type)} cannot be converted to JSON: {error}") from error


def _plain_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([f.with_type(_plain_type(f.type)) for f in kind])
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)), kind.list_size)
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type)))
    if types.is_date32(kind) or types.is_time32(kind):
        return pa.int32()
    return pa.int64() if types.is_temporal(kind) else kind


def _text(value: object) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return str(value)
    raise SelectorError(f"a {type(value).__name__} cannot be converted to JSON")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else math.copysign(_LARGEST, value)
    if isinstance(value, list):
        return [_finite(v) for v in value]
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return value
