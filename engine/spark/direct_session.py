"""A session in a JVM of our own: local and standalone masters."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ..errors import ChunkmillError, SessionStartError
from .class_archive import ClassArchive
from .gateway import attach, delete_at_exit, detach, hush, is_stopped
from .interrupts import give_back, keeping_interrupt, signal_since, take_signals
from .java import Java, find_java
from .jvm import Connection, Jvm, class_path, start_jvm
from .session_conf import DAEMON_MODULE, LONGEST_SOCKET, is_local, jvm_options, session_conf, spark_home, worker_path
from .standby import STANDBY_SOCKET, end_standby, start_standby
from .starting import await_master, check_environment, start_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GRACE_SECONDS = 15.0
_WANTED_SOON = (
    "pyspark.sql",
    "pyarrow",
    "pandas",
    "pyspark.sql.classic.dataframe",
    "pyspark.sql.pandas.functions",
    "pyspark.sql.pandas.map_ops",
    "pyspark.testing.utils",  # py4j's converters look into it with the first call
)


class DirectSession:
    """A session, its JVM, and the folder with everything that they write.

    The JVM is started at once, and boots while the caller goes on; :attr:`session` waits for it.

    Parameters
    ----------
    master
        A local or standalone master.
    asked
        The user's settings.

    Raises
    ------
    SessionStartError
        No usable Java, or the JVM or Spark did not start; nothing is left behind.
    """

    settings: dict[str, str]

    def __init__(self, master: str, asked: Mapping[str, str]) -> None:
        self._signals: dict[int, Any] = {}
        self._folder = session_folder()
        self._archive: ClassArchive | None = None
        self._jvm: Jvm | None = None
        self._standby: subprocess.Popen[bytes] | None = None
        self._session: SparkSession | None = None
        self._start_again: Callable[[], Jvm] | None = None
        self._master = master
        self._asked = asked
        self._is_given_up = False
        self.settings = session_conf(master, asked, self._folder)
        with self._cleared_on_failure():
            check_environment()
            self._launch(find_java())

    @property
    def session(self) -> SparkSession:
        """The session; the first look at it waits until the JVM is up."""
        if self._session is None:
            with self._cleared_on_failure():
                connection = self._connection()
                await_master(self._master)
                # Not earlier: until now the JVM and our own imports have kept two cores busy.
                self._standby = self._start_standby()
                with keeping_interrupt():
                    self._session = attach(connection, sys.executable if is_local(self._master) else None)
                self._signals = take_signals()
                delete_at_exit(self._session, self._folder)
        return self._session

    @contextlib.contextmanager
    def _cleared_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            failure = None
            if isinstance(error, Exception) and not isinstance(error, ChunkmillError):
                failure = start_error(self._master, self._asked, error)  # while Java can be asked
            self._clear(None)
            if failure is None:
                raise
            raise failure from error

    @property
    def alive(self) -> bool:
        """Whether the JVM runs and nobody has stopped the session."""
        if self._jvm is None or not self._jvm.alive:
            return False
        return self._session is None or not is_stopped(self._session)

    def give_up(self) -> None:
        """Have the thread that waits for the session to start fail at once; one that has started stays."""
        self._is_given_up = True
        if self._session is None and self._jvm is not None:
            self._jvm.process.kill()

    def stop(self) -> None:
        """End it all; afterwards no process and no file of it is left."""
        if self._session is not None:
            hush(self._session)
        self._clear(self._session)
        if self._archive is not None and signal_since(0.0) is None:
            self._archive.build_in_background()

    def _clear(self, session: SparkSession | None) -> None:
        if self._jvm is not None:
            self._jvm.stop(self._patience())
        if self._standby is not None:
            end_standby(self._standby)
        detach(session)
        give_back(self._signals)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _launch(self, java: Java) -> None:
        """Start the JVM, with an archive of its classes where there is one."""
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
        """The connection to the JVM; one that cannot start with its archive is started again without it."""
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
        """Seconds to give the JVM: none where all that it would tidy up is in our folder, which goes anyway."""
        conf = self.settings
        ours = (
            is_local(conf["spark.master"])
            and Path(conf["spark.local.dir"]).is_relative_to(self._folder)
            and conf["spark.eventLog.enabled"].lower() != "true"
            and not os.environ.get("SPARK_LOCAL_DIRS")
        )
        return 0.0 if ours else _GRACE_SECONDS


def session_folder() -> Path:
    """A fresh folder, for this user only, under ``CHUNKMILL_SCRATCH`` where that is a local path."""
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
            hint="Set CHUNKMILL_SCRATCH to a folder that can be written.",
        ) from error


def _import_in_the_meantime() -> None:
    """Import, while the JVM starts on another core, what pyspark would import later, when everybody waits for it."""
    for name in _WANTED_SOON:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
