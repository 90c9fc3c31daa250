"""What pyspark remembers of a JVM, process-wide: found, attached, and forgotten again."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .jvm import Connection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def active_session() -> SparkSession | None:
    """The session that is active in this process, classic or Spark Connect, whoever made it; None without one.

    pyspark is not imported only to find that nobody uses it.
    """
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if session is not None and session._sc._jsc is not None:
        return SparkSession.getActiveSession() or session
    remote = _remote_session()
    if remote is not None:
        return remote
    if SparkContext._active_spark_context is not None and SparkContext._active_spark_context._jsc is not None:
        return SparkSession.builder.getOrCreate()
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
        return SparkSession.builder.getOrCreate()


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


def hush(session: SparkSession) -> None:
    """Tell pyspark's accumulator server that its JVM is about to go, or it prints a traceback."""
    server = getattr(session._sc, "_accumulatorServer", None)
    if server is not None:
        server.server_shutdown = True
        server.handle_error = lambda *_: None


def _end_accumulators(context: Any) -> None:
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        context._accumulatorServer = None
        threading.Thread(target=server.shutdown, daemon=True).start()


def _forget_files(context: Any) -> None:
    from pyspark import SparkFiles

    root = SparkFiles._root_directory
    if root in sys.path:
        sys.path.remove(root)
    SparkFiles._root_directory = None
    if SparkFiles._sc is context:
        SparkFiles._sc = None


def quiet_py4j() -> None:
    """Without a logging set-up of the user's own, Python prints py4j's records of every broken call."""
    logger = logging.getLogger("py4j")
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


def current_interrupt() -> Any:
    """The handler of Ctrl-C, which pyspark replaces in the main thread."""
    return signal.getsignal(signal.SIGINT)


def restore_interrupt(handler: Any) -> None:
    """Put the handler of Ctrl-C back, where that is possible (the main thread)."""
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
