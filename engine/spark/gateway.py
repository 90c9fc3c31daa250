"""pyspark's state in this process: the gateway to the JVM, the session, the task, and interrupts.

Only this module uses pyspark's private state. It does not import pyspark just to find it unused.
"""

# ruff: noqa: SLF001 - pyspark offers no public way to any of this

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import UsageError
from .session_conf import is_nameless

if TYPE_CHECKING:
    import subprocess

    from pyspark import TaskContext
    from pyspark.sql import SparkSession


class Connection(NamedTuple):
    """The TCP port (of the loopback address) of the JVM's gateway, and its secret."""

    port: int
    secret: str


def active_session() -> SparkSession | None:
    """The active session in this process, classic or Spark Connect, whoever made it, or None."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if session is not None and session._sc._jsc is not None:
        return SparkSession.getActiveSession() or session
    remote: SparkSession | None = _remote_session()
    if remote is not None:
        return remote
    if SparkContext._active_spark_context is not None and SparkContext._active_spark_context._jsc is not None:
        shared: SparkSession = SparkSession.builder.getOrCreate()
        return shared
    return None


def make_active(session: SparkSession) -> None:
    """Make a session that is not of Spark Connect the active one of this thread.

    Each Python thread has a JVM thread of its own. A streaming write finds Python data sources by its active session.
    """
    from pyspark.sql import SparkSession

    if isinstance(session, SparkSession):
        SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)


def _remote_session() -> Any:
    module = sys.modules.get("pyspark.sql.connect.session")
    return module.SparkSession.getActiveSession() if module is not None else None


def attach(connection: Connection, python: str | None) -> SparkSession:
    """Return a session in a JVM that was started with all settings.

    Parameters
    ----------
    connection
        The JVM's gateway.
    python
        The workers' interpreter; None keeps the user's ``PYSPARK_PYTHON``.
    """
    from pyspark.sql import SparkSession

    quiet_py4j()
    settings = {"PYSPARK_GATEWAY_PORT": str(connection.port), "PYSPARK_GATEWAY_SECRET": connection.secret}
    if python is not None:
        settings["PYSPARK_PYTHON"] = python
    with environment(settings):
        if is_nameless():
            _log_in(str(os.getuid()))
        return SparkSession.builder.getOrCreate()


def _log_in(user: str) -> None:
    """Pass the user's name to Hadoop in the JVM, which otherwise fails if the system has none."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(user))


class WorkerRoom(NamedTuple):
    """The free cores of a standalone master's worker, and its free memory in MiB."""

    host: str
    cores: int
    memory: int


def rooms_of(session: SparkSession, master: str) -> list[WorkerRoom]:
    """Query the workers' free resources from a ``spark://`` master. Raises the errors of Py4J."""
    jvm: Any = session._jvm
    host, _, port = master.removeprefix("spark://").split(",")[0].rpartition(":")
    address = jvm.org.apache.spark.rpc.RpcAddress(host, int(port))
    # SparkEnv cannot be used: Py4J fails on that class, as one of its methods needs a missing library.
    endpoint = session._sc._jsc.sc().schedulerBackend().rpcEnv().setupEndpointRef(address, "Master")
    question = _scala_object(jvm, "org.apache.spark.deploy.DeployMessages$RequestMasterState$")
    state = endpoint.askSync(question, _scala_object(jvm, "scala.reflect.ClassTag$").Any())
    return [WorkerRoom(worker.host(), worker.coresFree(), worker.memoryFree()) for worker in state.workers()]


def use_python(session: SparkSession, python: str, seconds: float) -> bool:
    """Make workers run this interpreter, unless one reports within ``seconds`` that it lacks the file."""
    context = session._sc
    jvm: Any = session._jvm
    count = max(2, context.defaultParallelism)
    numbers, command = jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
    for number in range(count):
        numbers.add(number)
    for word in ("sh", "-c", 'test -x "$1" || echo missing', "sh", python):
        command.add(word)
    answers = context._jsc.parallelize(numbers, count).pipe(command).collectAsync()
    deadline = time.monotonic() + seconds
    while not answers.isDone() and time.monotonic() < deadline:
        time.sleep(0.02)
    if answers.isDone():
        if len(answers.get()):
            return False
    else:
        answers.cancel(True)
    context.pythonExec = python
    return True


def _scala_object(jvm: Any, name: str) -> Any:
    return getattr(getattr(jvm, name), "MODULE$")


def detach(session: SparkSession | None) -> None:
    """Detach from the JVM, which may have ended already. The next session starts another.

    pyspark's own ``stop`` asks the JVM in several calls and then waits half a second for its accumulator server.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    context = session._sc if session is not None else SparkContext._active_spark_context
    if context is not None:
        context._jsc = None
        _end_accumulators(context)
        _forget_files(context)
    gateway = SparkContext._gateway
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.close()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    SQLContext._instantiatedContext = None


def is_stopped(session: SparkSession) -> bool:
    """Return whether somebody has stopped the session."""
    context = getattr(session, "_sc", None)
    return context._jsc is None if context is not None else bool(getattr(session, "is_stopped", False))


def share_a_context(session: SparkSession, other: SparkSession) -> bool:
    """Return whether two sessions are one, or run in one Spark application."""
    context = getattr(session, "_sc", None)
    return session is other or (context is not None and context is getattr(other, "_sc", None))


def launched_process() -> subprocess.Popen[bytes] | None:
    """Return the process that pyspark's own launcher has started, or None."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process


def delete_at_exit(session: SparkSession, folder: Path) -> None:
    """Make the JVM remove a folder if it outlives a killed driver."""
    jvm = session._jvm
    file = getattr(jvm, "java.io.File")(str(folder))
    _scala_object(jvm, "org.apache.spark.util.ShutdownHookManager$").registerShutdownDeleteDir(file)


def cancel_jobs() -> None:
    """Cancel the jobs in this process's classic session, if any."""
    module = sys.modules.get("pyspark.core.context")
    context = None if module is None else module.SparkContext._active_spark_context
    if context is not None and context._jsc is not None:
        context.cancelAllJobs()


def leave_connection() -> None:
    """Make this thread use a new connection to the JVM.

    If an exception interrupts a call, its answer stays in the connection, and the next call would read it.
    """
    module = sys.modules.get("pyspark.core.context")
    gateway = None if module is None else module.SparkContext._gateway
    connections = getattr(getattr(gateway, "_gateway_client", None), "thread_connection", None)
    if connections is not None:
        connections.connection = None


def hush(session: SparkSession) -> None:
    """Notify pyspark that its JVM is about to end: otherwise its threads print a traceback."""
    from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER

    gateway = getattr(getattr(session, "_sc", None), "_gateway", None)
    client = getattr(gateway, "_gateway_client", None)
    if client is not None:
        client.is_connected = False
        client.finalizer_deque.clear()
        client.finalizer_deque.append(SHUTDOWN_FINALIZER_WORKER)
    server = getattr(getattr(session, "_sc", None), "_accumulatorServer", None)
    if server is not None:
        server.server_shutdown = True
        server.handle_error = lambda *_: None


def _end_accumulators(context: Any) -> None:
    """Make the server end itself at its next poll, within half a second; its own ``shutdown`` waits that long.

    A thread cannot wait instead: from Python 3.12 on, no thread can be started during shutdown.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    context._accumulatorServer = None

    def end() -> None:
        server.server_close()
        server._BaseServer__shutdown_request = True  # ``shutdown`` sets this before it waits

    server.server_shutdown = True
    server.service_actions = end


def _forget_files(context: Any) -> None:
    from pyspark import SparkFiles

    root = SparkFiles._root_directory
    if root in sys.path:
        sys.path.remove(root)
    SparkFiles._root_directory = None
    if SparkFiles._sc is context:
        SparkFiles._sc = None


def quiet_py4j() -> None:
    """Silence py4j's log records of calls broken by Ctrl-C or the JVM's end, unless the user has set a level.

    Some records go to the root logger, which writes to standard error; they are redirected to py4j's logger.
    """
    import logging

    from py4j import java_gateway

    logger = logging.getLogger("py4j")
    java_gateway.logging = logger
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)


@contextlib.contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the block."""
    before = {key: os.environ.get(key) for key in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def in_task() -> bool:
    """Return True in a Spark worker that runs a task."""
    return _task_context() is not None


def tries_before() -> int:
    """Return the number of earlier tries of this worker's Spark task."""
    context = _task_context()
    return 0 if context is None else int(context.attemptNumber())


def _task_context() -> TaskContext | None:
    """Spark's context of the task that runs here, or None."""
    module = sys.modules.get("pyspark.taskcontext")
    return None if module is None else module.TaskContext.get()


def check_not_in_task() -> None:
    """Raise ``UsageError`` within a task, which cannot have a Spark session."""
    if in_task():
        raise UsageError(
            "a function that runs in a Spark task cannot run on Spark itself",
            hint="Leave out `executor`: within a task a pipeline runs inline.",
        )


INTERRUPTED: Final = 130
TERMINATED: Final = 143
"""The exit codes that a shell reports for processes ended by Ctrl-C and SIGTERM."""

_CANCEL_PERIOD: Final = 0.05
_IMPORT_SECONDS: Final = 1.0
"""How long a signal waits for the end of an import: an interrupted one may leave pandas half loaded, for example."""

_BOUNCE_SECONDS: Final = 0.5
"""A repeated signal within this time is ignored: ``timeout`` signals both a process and its group."""


class Terminated(BaseException):
    """SIGTERM arrived; like ``KeyboardInterrupt``, it passes every ``except Exception``."""


class _State:
    process = 0
    blocks = 0
    received_at: float | None = None
    waits_since: float | None = None
    raised: BaseException | None = None
    is_in_import = False
    """Whether the exception was raised in an import, which may have swallowed it."""
    sending = threading.Lock()
    waits: frozenset[object] = frozenset()
    """The main thread's blocks that wait for Spark jobs."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within the block, Ctrl-C and SIGTERM cancel Spark jobs, and raise ``KeyboardInterrupt`` or `Terminated`.

    This applies in the main thread, unless the program has its own signal handler. At the end of the outermost block,
    ``Terminated`` becomes ``SystemExit(143)``.
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
    """Handle signals that the program does not handle; return the argument for :func:`give_back`."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before: dict[int, Any] = {kind: usual[kind] for kind in usual if signal.getsignal(kind) is usual[kind]}
    _State.process = os.getpid()
    for kind in before:
        signal.signal(kind, _end)
    return before


def give_back(before: dict[int, Any]) -> None:
    """Restore the handlers that :func:`take_signals` replaced."""
    if threading.current_thread() is threading.main_thread():
        for kind, handler in before.items():
            if signal.getsignal(kind) is _end:
                signal.signal(kind, handler)


@contextlib.contextmanager
def keeping_interrupt() -> Iterator[None]:
    """Keep the handler of Ctrl-C, which pyspark replaces when it makes a session in the main thread."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def note_signal() -> None:
    """Record a signal that was handled elsewhere, so that its repetition is ignored."""
    _State.received_at, _State.raised = time.monotonic(), None


def signal_since(moment: float) -> BaseException | None:
    """Return the exception of the last signal, if it arrived after a time of ``time.monotonic()``.

    That exception may be lost: an interrupted import raises ``ImportError``.
    """
    came = _State.received_at is not None and _State.received_at >= moment
    return _State.raised if came else None


@contextlib.contextmanager
def waiting_for_jobs() -> Iterator[None]:
    """Cancel Spark jobs on a signal during this block."""
    wait = object() if threading.current_thread() is threading.main_thread() else None
    _State.waits |= {wait} - {None}
    try:
        yield
    finally:
        _State.waits -= {wait}


def interrupt_behind(error: BaseException | None) -> BaseException | None:
    """Return the ``KeyboardInterrupt`` or :class:`Terminated` that caused an error, or None.

    ``toArrow`` replaces either by the error of the cancelled job.
    """
    while error is not None and not isinstance(error, (KeyboardInterrupt, Terminated)):
        error = error.__cause__ or error.__context__
    return error


def raise_in_thread(thread: int) -> None:
    """Raise ``KeyboardInterrupt`` in the thread with this ``get_ident()``, like a signal in the main thread.

    This waits for the end of a running import, which could swallow the exception.
    """
    import ctypes

    until = time.monotonic() + _IMPORT_SECONDS
    while _is_importing(sys._current_frames().get(thread)) and time.monotonic() < until:
        time.sleep(0.005)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))


def cancel_jobs_while(is_running: Callable[[], bool], seconds: float) -> None:
    """Cancel Spark jobs repeatedly while code that waits for them runs, for some seconds at most."""
    until = time.monotonic() + seconds
    _cancel_while(lambda: is_running() and time.monotonic() < until)
    while is_running() and time.monotonic() < until:
        time.sleep(0.01)


def tag_jobs(spark: SparkSession, tag: str) -> None:
    """Tag the future jobs of this thread, so that :func:`cancel_tagged` finds them from any thread.

    Except in Spark Connect, the tags of a session belong to one thread.
    """
    from pyspark.errors import PySparkException

    try:
        spark.sparkContext.addJobTag(tag)
    except PySparkException:
        spark.addTag(tag)


def cancel_tagged(spark: SparkSession, tag: str) -> None:
    """Cancel running jobs with a tag."""
    from pyspark.errors import PySparkException

    try:
        spark.sparkContext.cancelJobsWithTag(tag)
    except PySparkException:
        spark.interruptTag(tag)


def _end(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _State.process:  # a fork has nothing to clean up
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    now = time.monotonic()
    if _State.is_in_import:
        _send_again(number, unless_over=True)
        if interrupt_behind(sys.exception()) is not None:  # it is already propagating, and cleanup runs
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
    if waits or not _State.blocks:  # without a block, the user's own call may wait for a job
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
    """Send the signal again in a moment; with ``unless_over``, only if the outermost block has not ended by then."""

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
    """Cancel jobs repeatedly, in a separate thread: a job that is still being planned cannot be cancelled yet."""

    def run() -> None:
        while True:
            with contextlib.suppress(Exception):
                cancel_jobs()
            time.sleep(_CANCEL_PERIOD)
            if not is_wanted():
                return

    threading.Thread(target=run, name="chunkmill-cancelling", daemon=True).start()
