"""Ctrl-C and SIGTERM: jobs are cancelled, what was begun is cleared away, and the process ends with 130 or 143.

Both become an exception that passes every ``except Exception``. pyspark's own handler of Ctrl-C cancels the jobs that
run, once, over the connection that may be in use; a job that is submitted a moment later then runs to its end, and the
caller waits for it. Here they are cancelled until nobody waits for one any more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from .gateway import cancel_jobs, leave_connection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERRUPTED: Final = 130
TERMINATED: Final = 143
"""The exit codes of processes that Ctrl-C and SIGTERM have ended, as a shell gives them."""

_CANCEL_PERIOD: Final = 0.05
_IMPORT_SECONDS: Final = 1.0
"""How long a signal waits for the end of an import: broken in it, pyarrow goes on with half of pandas, say."""

_BOUNCE_SECONDS: Final = 0.5
"""A signal to a process and one to its group come as two (``timeout`` sends both): what comes so soon is the same."""


class Terminated(BaseException):
    """SIGTERM arrived; like ``KeyboardInterrupt``, it passes every ``except Exception``."""


class _State:
    process = 0
    blocks = 0
    received_at: float | None = None
    waits_since: float | None = None
    raised: BaseException | None = None
    is_in_import = False
    """Whether it was raised in an import, which may have swallowed it."""
    sending = threading.Lock()
    waits: frozenset[object] = frozenset()
    """The blocks of the main thread that wait for jobs of Spark."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM cancel the jobs this block waits for, and raise ``KeyboardInterrupt`` or `Terminated`.

    For the main thread of a program that has not chosen its own answer to a signal; nothing changes elsewhere. At the
    end of the outermost block ``Terminated`` becomes ``SystemExit(143)``, so that a script ends as it should.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = take_signals()
    _State.blocks += 1
    try:
        yield
    except Terminated:
        if _State.blocks > 1:
            raise
        raise SystemExit(TERMINATED) from None
    finally:
        with _State.sending:
            _State.blocks -= 1
            _State.is_in_import &= _State.blocks > 0
        give_back(before)


def take_signals() -> dict[int, Any]:
    """Answer signals from now on, where the program does not; gives what :func:`give_back` needs."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before: dict[int, Any] = {kind: usual[kind] for kind in usual if signal.getsignal(kind) is usual[kind]}
    _State.process = os.getpid()
    for kind in before:
        signal.signal(kind, _end)
    return before


def give_back(before: dict[int, Any]) -> None:
    """Leave signals to whom :func:`take_signals` has taken them from."""
    if threading.current_thread() is threading.main_thread():
        for kind, handler in before.items():
            if signal.getsignal(kind) is _end:
                signal.signal(kind, handler)


@contextlib.contextmanager
def keeping_interrupt() -> Iterator[None]:
    """Leave the handler of Ctrl-C as it is, which pyspark replaces when it makes a session in the main thread."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def note_signal() -> None:
    """Say that a signal was answered elsewhere, so that its echo is not taken for another."""
    _State.received_at, _State.raised = time.monotonic(), None


def signal_since(moment: float) -> BaseException | None:
    """The exception that the last signal raised, if it came after a moment of ``time.monotonic()``.

    That may have been lost: an import that is broken by it raises ``ImportError``.
    """
    came = _State.received_at is not None and _State.received_at >= moment
    return _State.raised if came else None


@contextlib.contextmanager
def waiting_for_jobs() -> Iterator[None]:
    """Have the jobs of Spark cancelled, after a signal, for as long as this block takes."""
    wait = object() if threading.current_thread() is threading.main_thread() else None
    _State.waits |= {wait} - {None}
    try:
        yield
    finally:
        _State.waits -= {wait}


def interrupt_behind(error: BaseException | None) -> BaseException | None:
    """The ``KeyboardInterrupt`` or :class:`Terminated` that is behind an error, if one is.

    ``toArrow``, on its way out, asks Java for the result, and replaces either by the error of the cancelled job.
    """
    while error is not None and not isinstance(error, (KeyboardInterrupt, Terminated)):
        error = error.__cause__ or error.__context__
    return error


def raise_in_thread(thread: int) -> None:
    """Raise ``KeyboardInterrupt`` in the thread with that ``get_ident()``, as a signal does in the main one.

    The end of an import is waited for, as there: one that is broken may swallow it.
    """
    import ctypes

    until = time.monotonic() + _IMPORT_SECONDS
    while _is_importing(sys._current_frames().get(thread)) and time.monotonic() < until:  # noqa: SLF001
        time.sleep(0.005)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))


def cancel_jobs_while(is_running: Callable[[], bool], seconds: float) -> None:
    """Cancel the jobs of Spark again and again while something runs that waits for them; for some seconds at most."""
    until = time.monotonic() + seconds
    _cancel_while(lambda: is_running() and time.monotonic() < until)
    while is_running() and time.monotonic() < until:
        time.sleep(0.01)


def tag_jobs(spark: SparkSession, tag: str) -> None:
    """Let :func:`cancel_tagged` find the jobs that this thread begins from now on, from any thread.

    A session's own tags are those of one thread each, but in Spark Connect.
    """
    from pyspark.errors import PySparkException

    try:
        spark.sparkContext.addJobTag(tag)
    except PySparkException:
        spark.addTag(tag)


def cancel_tagged(spark: SparkSession, tag: str) -> None:
    """Cancel the jobs with a tag that run."""
    from pyspark.errors import PySparkException

    try:
        spark.sparkContext.cancelJobsWithTag(tag)
    except PySparkException:
        spark.interruptTag(tag)


def _end(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _State.process:  # of a fork, which has nothing to clear away
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    now = time.monotonic()
    if _State.is_in_import:
        _send_again(number, unless_over=True)
        if interrupt_behind(sys.exception()) is not None:  # on its way, and what was begun is being cleared away
            return
    elif _State.received_at is not None and now - _State.received_at < _BOUNCE_SECONDS:
        return
    _State.waits_since = _State.waits_since or now
    if _is_importing(frame) and not _State.is_in_import:
        if now - _State.waits_since < _IMPORT_SECONDS:
            _send_again(number)
            return
        if _State.blocks:
            _State.is_in_import = True
            _send_again(number, unless_over=True)
    _State.received_at, _State.waits_since = now, None
    waits = _State.waits
    leave_connection()
    if waits or not _State.blocks:  # without a block it is a call of the user's own that may wait for a job
        _cancel_while(lambda: not waits.isdisjoint(_State.waits))
    if number == signal.SIGINT:
        _State.raised = KeyboardInterrupt()
    else:
        _State.raised = Terminated() if _State.blocks else SystemExit(TERMINATED)
    raise _State.raised


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def _send_again(number: int, *, unless_over: bool = False) -> None:
    """Let the signal come once more, in a moment; ``unless_over``: not if the outermost block has ended by then."""

    def send() -> None:
        main = threading.main_thread().ident
        assert main is not None
        with _State.sending:
            if _State.is_in_import or not unless_over:
                signal.pthread_kill(main, number)

    again = threading.Timer(_CANCEL_PERIOD, send)
    again.daemon = True
    again.start()


def _cancel_while(is_wanted: Callable[[], bool]) -> None:
    """Cancel jobs again and again, in a thread of its own: one that is being planned is not one yet."""

    def run() -> None:
        while True:
            with contextlib.suppress(Exception):
                cancel_jobs()
            time.sleep(_CANCEL_PERIOD)
            if not is_wanted():
                return

    threading.Thread(target=run, name="chunkmill-cancelling", daemon=True).start()
