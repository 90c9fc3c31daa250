"""Start and end of chunkmill's sessions, and the reasons why Spark does not start, in Spark's words.

For a local or standalone master, the JVM is started here (:class:`DirectSession`). pyspark's own launcher handles YARN,
Kubernetes and options that only ``spark-submit`` supports, and Spark's client handles Spark Connect
(:class:`ScriptedSession`).
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from ..errors import ChunkmillError, SessionStartError
from ..units import counted
from .class_archive import ClassArchive
from .gateway import (
    Connection,
    attach,
    delete_at_exit,
    detach,
    environment,
    give_back,
    hush,
    is_stopped,
    keeping_interrupt,
    launched_process,
    quiet_py4j,
    rooms_of,
    signal_since,
    take_signals,
    use_python,
)
from .jvm import Java, Jvm, class_path, find_java, start_jvm, write_logging
from .session_conf import (
    DAEMON_MODULE,
    LONGEST_SOCKET,
    is_local,
    jvm_options,
    runs_here,
    session_conf,
    spark_home,
    user_environment,
    user_options,
    worker_path,
)
from .worker_daemon import STANDBY_SOCKET, end_standby, start_standby

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_SECONDS: Final = 20.0
"""The time within which a master or a Spark Connect server must answer."""

_MOST_ROOMS: Final = 4
_WORD_SECONDS: Final = 4.0
"""After this time, a log message names the awaited server."""

_ATTEMPT_SECONDS: Final = 2.0
_JAVA_NAME: Final = re.compile(r"^:?\s*(?:Caused by: )?(?:[a-z_]\w*\.)+(?:\w+(?:\$\w+)*):\s*")
_LONGEST: Final = 400

_GRACE_SECONDS: Final = 15.0
_WANTED_SOON: Final = (
    "pyspark.sql",
    "pyarrow",
    "pandas",
    "pyspark.sql.classic.dataframe",
    "pyspark.sql.pandas.functions",
    "pyspark.sql.pandas.map_ops",
    "pyspark.testing.utils",  # py4j's converters use it in the first call
)
_SCRIPTED_GRACE_SECONDS: Final = 30.0
_SHIM: Final = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""
"""Spark's launcher requests a module that small runtimes lack and Spark does not need."""

logger = logging.getLogger("chunkmill.session")


def check_environment() -> None:
    """Raise ``SessionStartError`` if ``SPARK_HOME`` names a folder without Spark."""
    home = os.environ.get("SPARK_HOME")
    if home and not (Path(home) / "bin" / "spark-submit").exists():
        raise SessionStartError(
            "SPARK_HOME names this folder, which does not contain Spark",
            path=home,
            hint="Unset it to use the Spark of the installed pyspark, or set it to a folder with bin/spark-submit.",
        )


def start_error(master: str, asked: Mapping[str, str], error: Exception, cluster: str = "") -> SessionStartError:
    """The error for a failed start: Spark's words, and the settings that they mention.

    ``cluster``: the messages of the master and of ended executors.
    """
    said = "; ".join(filter(None, (reason_of(error), cluster)))
    settings = {**asked, "spark.master": master}
    named = [f"{key}={value}" for key, value in settings.items() if key in said or (value and value in said)]
    if not named:
        named = [f"{key}={value}" for key, value in asked.items()]
    hint = f"Check {', '.join(named)}." if named else None
    return SessionStartError(f"Spark did not start on {master}: {said}", hint=hint)


def reason_of(error: Exception) -> str:
    """Java's message and its innermost cause from a long Py4J error, in one line.

    This queries the JVM, which must be alive.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    java_lines = [_JAVA_NAME.sub("", line) or line for line in lines if _JAVA_NAME.match(line)]
    said = (java_lines or lines or [repr(error)])[0][:_LONGEST]
    cause = java_lines[-1][:_LONGEST] if java_lines else said
    return said if cause in said else f"{said} ({cause})"


def await_master(master: str) -> None:
    """Wait until one of the masters of a ``spark://`` URL can be reached. Raises ``SessionStartError``."""
    if not master.startswith("spark://"):
        return
    places = [place.rpartition(":") for place in master.removeprefix("spark://").split(",")]

    def can_be_reached(seconds: float) -> bool:
        for host, _, port in places:
            try:
                socket.create_connection((host.strip("[]"), int(port)), min(seconds, _ATTEMPT_SECONDS)).close()
            except ValueError:
                return True  # not a number: Spark reports that itself
            except OSError:
                continue
            return True
        time.sleep(min(seconds, 0.25))
        return False

    await_answer(master, can_be_reached)


def await_server(url: str) -> None:
    """Wait until a Spark Connect server answers. Raises ``SessionStartError``."""
    try:
        import grpc
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except ImportError:
        return  # pyspark itself reports missing packages
    channel = DefaultChannelBuilder(url).toChannel()
    try:
        ready = grpc.channel_ready_future(channel)

        def answers(seconds: float) -> bool:
            try:
                ready.result(timeout=min(seconds, 0.25))
            except grpc.FutureTimeoutError:
                return False
            return True

        await_answer(url, answers)
    finally:
        channel.close()


def await_answer(place: str, answers: Callable[[float], bool]) -> None:
    """Call ``answers`` with the remaining seconds until it returns True; log a message after some seconds.

    Raises ``SessionStartError`` after :data:`ANSWER_SECONDS`.
    """
    began = time.monotonic()
    has_warned = False
    while not answers(max(0.01, began + ANSWER_SECONDS - time.monotonic())):
        waited = time.monotonic() - began
        if waited >= ANSWER_SECONDS:
            raise SessionStartError(
                f"{place} did not answer within {ANSWER_SECONDS:.0f} s",
                hint="Check the address, and whether Spark runs there.",
            )
        if waited >= _WORD_SECONDS and not has_warned:
            logger.warning("no answer from %s yet; waiting up to %.0f s", place, ANSWER_SECONDS)
            has_warned = True


class OwnSession(ABC):
    """A session of chunkmill, and the folder for all its files.

    Parameters
    ----------
    master
        The master.
    asked
        The user's settings.

    Raises
    ------
    SessionStartError
        There is no usable Java, or the JVM or Spark did not start; no files are left.
    """

    def __init__(self, master: str, asked: Mapping[str, str]) -> None:
        self.settings = dict(asked)
        self._signals: dict[int, Any] = {}
        self._folder = session_folder()
        self._master = master
        self._asked = asked

    @property
    @abstractmethod
    def session(self) -> SparkSession:
        """The session; the first access may wait until it has started."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the session runs and was not stopped."""

    def said(self) -> str:
        """The last messages of the master and of ended executors; empty if unknown."""
        return ""

    @abstractmethod
    def stop(self) -> None:
        """End it all; afterwards no process and no file of it is left."""

    @abstractmethod
    def _end_processes(self) -> None:
        """End the started processes, wait for them, and detach pyspark."""

    def _clear(self) -> None:
        self._end_processes()
        give_back(self._signals)
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def _cleared_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            failure = None
            if isinstance(error, Exception) and not isinstance(error, ChunkmillError):
                failure = start_error(self._master, self._asked, error, self.said())  # while Java still answers
            self._clear()
            if failure is None:
                raise
            raise failure from error


class DirectSession(OwnSession):
    """A session of a local or standalone master; its JVM starts at once, while the caller continues."""

    def __init__(self, master: str, asked: Mapping[str, str]) -> None:
        super().__init__(master, asked)
        self._archive: ClassArchive | None = None
        self._jvm: Jvm | None = None
        self._standby: subprocess.Popen[bytes] | None = None
        self._session: SparkSession | None = None
        self._start_again: Callable[[], Jvm] | None = None
        self._is_given_up = False
        self.settings = session_conf(master, asked, self._folder)
        with self._cleared_on_failure():
            check_environment()
            self._launch(find_java())

    @property
    def session(self) -> SparkSession:
        """The session; the first access waits until the JVM has started."""
        if self._session is None:
            with self._cleared_on_failure():
                connection = self._connection()
                await_master(self._master)
                # Not earlier: until now, the JVM and our imports kept two cores busy.
                self._standby = self._start_standby()
                with keeping_interrupt():
                    self._session = attach(connection, sys.executable if is_local(self._master) else None)
                self._signals = take_signals()
                delete_at_exit(self._session, self._folder)
                if not is_local(self._master):
                    self._jvm_of_cluster()
        return self._session

    def _jvm_of_cluster(self) -> None:
        """Make a cluster's workers run the driver's interpreter, and report free resources while executors wait."""
        assert self._jvm is not None
        assert self._session is not None
        logged: set[str] = set()
        session, jvm = self._session, self._jvm

        def tell() -> None:
            text = room_text(session, self._master, self.settings)
            if jvm.said():
                text = f"{text}. Executors end right after their start: {jvm.said()}"
            without_numbers = re.sub(r"\d+", "", text)
            if without_numbers not in logged:
                logged.add(without_numbers)
                logger.warning("%s", text)

        jvm.tell_of_room = lambda: threading.Thread(target=tell, name="chunkmill-room", daemon=True).start()
        prefer_driver_python(session, self.settings)

    def said(self) -> str:
        """The last messages of the master and of ended executors."""
        return self._jvm.said() if self._jvm is not None else ""

    @property
    def alive(self) -> bool:
        """Whether the JVM runs and the session was not stopped."""
        if self._jvm is None or not self._jvm.alive:
            return False
        return self._session is None or not is_stopped(self._session)

    def give_up(self) -> None:
        """Make the thread that waits for the session's start fail at once; a started session stays."""
        self._is_given_up = True
        if self._session is None and self._jvm is not None:
            self._jvm.process.kill()

    def stop(self) -> None:
        """End it all; afterwards no process and no file of it is left."""
        if self._session is not None:
            hush(self._session)
        self._clear()
        if self._archive is not None and signal_since(0.0) is None:
            self._archive.build_in_background()

    def _end_processes(self) -> None:
        if self._jvm is not None:
            self._jvm.stop(self._patience())
        if self._standby is not None:
            end_standby(self._standby)
        detach(self._session)

    def _launch(self, java: Java) -> None:
        """Start the JVM, with an archive of its classes if there is one."""
        jars = class_path(spark_home())
        options = jvm_options(self.settings)
        extra = self.settings.get("spark.driver.extraClassPath")
        if extra:
            jars = [*extra.split(os.pathsep), *jars]
        elif not any(option.startswith(("-Xshare", "-XX:SharedArchive")) for option in options):
            self._archive = ClassArchive.of(java, jars)
        mapped = self._archive.options() if self._archive is not None else []
        self._start_again = (
            (lambda: start_jvm(java, options, jars, self.settings, self._folder, worker_path())) if mapped else None
        )
        self._jvm = start_jvm(java, [*mapped, *options], jars, self.settings, self._folder, worker_path())

    def _connection(self) -> Connection:
        """The connection to the JVM. If the JVM cannot start with its archive, it is started again without."""
        assert self._jvm is not None
        _import_in_the_meantime()
        try:
            return self._jvm.connection()
        except SessionStartError:
            if self._archive is None or self._start_again is None or self._is_given_up:
                raise
            self._archive.discard()
        self._jvm = self._start_again()
        return self._jvm.connection()

    def _start_standby(self) -> subprocess.Popen[bytes] | None:
        conf = self.settings
        socket = self._folder / STANDBY_SOCKET
        usual = is_local(conf["spark.master"]) and conf["spark.python.daemon.module"] == DAEMON_MODULE
        changed = any(key.startswith("spark.executorEnv.") for key in conf)
        fits = len(os.fsencode(socket)) <= LONGEST_SOCKET
        return start_standby(DAEMON_MODULE, worker_path(), socket) if usual and fits and not changed else None

    def _patience(self) -> float:
        """Seconds for the JVM to end by itself: 0 if it would only clean up our folder, which is removed anyway."""
        conf = self.settings
        ours = (
            is_local(conf["spark.master"])
            and Path(conf["spark.local.dir"]).is_relative_to(self._folder)
            and conf["spark.eventLog.enabled"].lower() != "true"
            and not os.environ.get("SPARK_LOCAL_DIRS")
        )
        return 0.0 if ours else _GRACE_SECONDS


def prefer_driver_python(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Make workers run this interpreter if they have it, unless the user has set another."""
    if os.environ.get("PYSPARK_PYTHON") or settings.get("spark.pyspark.python"):
        return
    if not use_python(session, sys.executable, ANSWER_SECONDS):
        logger.warning(
            "workers have no %s, and run python3; set PYSPARK_PYTHON to an interpreter with chunkmill",
            sys.executable,
        )


def room_text(session: SparkSession, master: str, settings: Mapping[str, str]) -> str:
    """Return a text with the resources that executors request and the workers' free ones."""
    memory = settings.get("spark.executor.memory", "1g")
    cores = settings.get("spark.executor.cores")
    wanted = f"{memory} of memory and {counted(int(cores), 'core') if cores else 'all free cores of a worker'}"
    try:
        rooms = rooms_of(session, master)
    except Exception as error:  # noqa: BLE001 (the wait goes ahead after any error)
        return (
            f"waiting for executors, each with {wanted}; the free resources of {master} are unknown "
            f"({reason_of(error)})"
        )
    free = ", ".join(
        f"{counted(room.cores, 'core')} and {room.memory:,} MiB on {room.host}" for room in rooms[:_MOST_ROOMS]
    )
    more = f", and {len(rooms) - _MOST_ROOMS:,} more workers" if len(rooms) > _MOST_ROOMS else ""
    return (
        f"waiting for executors, each with {wanted}; free on {master}: {free}{more}; request less with --conf "
        "spark.executor.memory and spark.executor.cores"
        if rooms
        else f"waiting for executors: {master} has no workers"
    )


def session_folder() -> Path:
    """Make a fresh folder for this user only, under ``CHUNKMILL_SCRATCH`` if that is a local path."""
    scratch = os.environ.get("CHUNKMILL_SCRATCH", "")
    url = urlsplit(scratch)
    local = unquote(url.path) if url.scheme == "file" else "" if url.scheme and "://" in scratch else scratch
    try:
        if local:
            Path(local).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="chunkmill-spark-", dir=local or None)).resolve()
    except OSError as error:
        raise SessionStartError(
            f"no folder for Spark's temporary files: {error.strerror or error}",
            path=local or tempfile.gettempdir(),
            hint="Set CHUNKMILL_SCRATCH to a writable folder.",
        ) from error


def _import_in_the_meantime() -> None:
    """Import modules while the JVM starts on another core; pyspark would import them later, and delay the start."""
    for name in _WANTED_SOON:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class ScriptedSession(OwnSession):
    """A session from pyspark's own launcher, or a Spark Connect client; pyspark stops it."""

    def __init__(self, master: str, asked: Mapping[str, str]) -> None:
        super().__init__(master, asked)
        quiet_py4j()
        with self._cleared_on_failure():
            with keeping_interrupt():
                self._session = _remote(master, asked) if master.startswith("sc://") else self._launch()
            self._signals = take_signals()

    @property
    def session(self) -> SparkSession:
        """The session."""
        return self._session

    @property
    def alive(self) -> bool:
        """Whether the session was not stopped."""
        return not is_stopped(self._session)

    def stop(self) -> None:
        """Stop the session, and the JVM if pyspark has started one."""
        hush(self._session)
        if self._master.startswith("sc://") and not threading.main_thread().is_alive():
            with contextlib.suppress(Exception):  # the server may be gone; pyspark's own stop() does not fail either
                self._session.client.release_session()  # closing the channel takes threads, which cannot start any more
        else:
            self._session.stop()
        self._clear()

    def _launch(self) -> SparkSession:
        from pyspark.sql import SparkSession

        check_environment()
        self.settings = session_conf(self._master, self._asked, self._folder)
        conf: dict[str, bool | float | int | str | None] = dict(self.settings)
        quiet = f"-Dlog4j2.configurationFile={write_logging(self._folder).as_uri()}"
        options = self.settings.get("spark.driver.extraJavaOptions", "")
        conf["spark.driver.extraJavaOptions"] = " ".join([quiet, *user_options(self._folder), options]).strip()
        settings = {**user_environment(), "PYTHONPATH": worker_path()}
        if runs_here(self._master):
            settings["PYSPARK_PYTHON"] = sys.executable
        if os.name == "posix":
            settings["JAVA_HOME"] = str(launchable(find_java(), self._folder))
        with environment(settings):
            return SparkSession.builder.config(map=conf).getOrCreate()

    def _end_processes(self) -> None:
        process = launched_process()
        if process is not None:
            detach(None)
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(_SCRIPTED_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def launchable(java: Java, folder: Path) -> Path:
    """Return a ``JAVA_HOME`` for Spark's launcher: the runtime's own, or a stand-in if it lacks the module."""
    try:
        modules = (java.home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return java.home
    if "MODULES=" not in modules or "jdk.incubator.vector" in modules:
        return java.home
    command = folder / "java" / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(_SHIM.format(java=java.executable), encoding="utf-8")
    command.chmod(0o700)
    return command.parent.parent


def _remote(url: str, asked: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    await_server(url)
    return SparkSession.builder.config(map=dict(asked)).remote(url).getOrCreate()
