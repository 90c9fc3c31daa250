"""pyspark's state of this process: the gateway to its JVM, the session, and the task that a worker runs.

All that chunkmill touches of pyspark's private state is here. pyspark is not imported only to find that nobody uses it.
"""

# ruff: noqa: SLF001 - pyspark offers no public way to any of this

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError
from .session_conf import is_nameless

if TYPE_CHECKING:
    import subprocess

    from pyspark import TaskContext
    from pyspark.sql import SparkSession


class Connection(NamedTuple):
    """The TCP port (of the loopback address) at which the JVM's gateway listens, and the secret that it asks for."""

    port: int
    secret: str


def active_session() -> SparkSession | None:
    """The session that is active in this process, classic or Spark Connect, whoever made it; None without one."""
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


def _remote_session() -> Any:
    module = sys.modules.get("pyspark.sql.connect.session")
    return module.SparkSession.getActiveSession() if module is not None else None


def attach(connection: Connection, python: str | None) -> SparkSession:
    """A session in a JVM that was started with all its settings.

    Parameters
    ----------
    connection
        The JVM's gateway.
    python
        The interpreter of the workers; None leaves ``PYSPARK_PYTHON`` as the user set it.
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
    """Tell Hadoop in the JVM who the user is: it asks the system, and fails where that has no name to give."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(user))


class WorkerRoom(NamedTuple):
    """The cores that a worker of a standalone master has free, and its free memory in MiB."""

    host: str
    cores: int
    memory: int


def rooms_of(session: SparkSession, master: str) -> list[WorkerRoom]:
    """Ask a ``spark://`` master what its workers have free. Raises what Py4J raises."""
    jvm: Any = session._jvm
    host, _, port = master.removeprefix("spark://").split(",")[0].rpartition(":")
    address = jvm.org.apache.spark.rpc.RpcAddress(host, int(port))
    # Not by SparkEnv: Py4J fails on that class, of which one method needs a library that is not there.
    endpoint = session._sc._jsc.sc().schedulerBackend().rpcEnv().setupEndpointRef(address, "Master")
    question = _scala_object(jvm, "org.apache.spark.deploy.DeployMessages$RequestMasterState$")
    state = endpoint.askSync(question, _scala_object(jvm, "scala.reflect.ClassTag$").Any())
    return [WorkerRoom(one.host(), one.coresFree(), one.memoryFree()) for one in state.workers()]


def use_python(session: SparkSession, python: str, seconds: float) -> bool:
    """Have workers run this interpreter, unless one of them says within ``seconds`` that it has no such file."""
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
    """Forget the JVM, which may be gone already, so that the next session starts another.

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
    """Whether somebody has stopped the session."""
    context = getattr(session, "_sc", None)
    return context._jsc is None if context is not None else bool(getattr(session, "is_stopped", False))


def share_a_context(one: SparkSession, other: SparkSession) -> bool:
    """Whether two sessions are one, or run in one Spark application."""
    context = getattr(one, "_sc", None)
    return one is other or (context is not None and context is getattr(other, "_sc", None))


def launched_process() -> subprocess.Popen[bytes] | None:
    """The process that pyspark's own launcher has started, if any."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process


def delete_at_exit(session: SparkSession, folder: Path) -> None:
    """Let the JVM remove a folder when it outlives a driver that was killed."""
    jvm = session._jvm
    file = getattr(jvm, "java.io.File")(str(folder))
    _scala_object(jvm, "org.apache.spark.util.ShutdownHookManager$").registerShutdownDeleteDir(file)


def cancel_jobs() -> None:
    """Cancel what runs in the classic session of this process, if there is one."""
    module = sys.modules.get("pyspark.core.context")
    context = None if module is None else module.SparkContext._active_spark_context
    if context is not None and context._jsc is not None:
        context.cancelAllJobs()


def leave_connection() -> None:
    """Have this thread talk to the JVM over a new connection.

    An exception that breaks a call leaves its answer behind, which the next call would take for its own.
    """
    module = sys.modules.get("pyspark.core.context")
    gateway = None if module is None else module.SparkContext._gateway
    connections = getattr(getattr(gateway, "_gateway_client", None), "thread_connection", None)
    if connections is not None:
        connections.connection = None


def hush(session: SparkSession) -> None:
    """Tell pyspark that its JVM is about to go: threads of it that would notice by themselves print a traceback."""
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
    """Have the server end itself when it next looks, within half a second; its own ``shutdown`` waits that long.

    A thread that waits instead cannot be started any more while Python ends, from 3.12 on.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    context._accumulatorServer = None

    def end() -> None:
        server.server_close()
        server._BaseServer__shutdown_request = True  # what ``shutdown`` sets before it waits

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
    """Silence py4j's records of every call that Ctrl-C or the end of the JVM breaks, unless the user has set a level.

    Some of them go to the root logger, which then writes to standard error; they are sent to py4j's own.
    """
    import logging

    from py4j import java_gateway

    logger = logging.getLogger("py4j")
    java_gateway.logging = logger
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)


@contextlib.contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Environment variables that hold inside the block only."""
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
    """Whether this is a worker of Spark's that runs a task."""
    return _task_context() is not None


def tries_before() -> int:
    """The number of earlier tries at the Spark task that this worker runs."""
    context = _task_context()
    return 0 if context is None else int(context.attemptNumber())


def _task_context() -> TaskContext | None:
    """Spark's context of the task that runs here, if one does."""
    module = sys.modules.get("pyspark.taskcontext")
    return None if module is None else module.TaskContext.get()


def check_not_in_task() -> None:
    """Raise ``UsageError`` where there can be no Spark session: within a task."""
    if in_task():
        raise UsageError(
            "a function that runs in a Spark task cannot run on Spark itself",
            hint="Leave out `executor`: within a task a pipeline runs inline.",
        )
