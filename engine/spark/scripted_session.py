"""Sessions that pyspark starts by itself: YARN, Kubernetes, ``spark-submit``, Spark Connect."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ChunkmillError
from .direct_session import session_folder
from .gateway import detach, environment, hush, is_stopped, launched_process, quiet_py4j
from .interrupts import give_back, keeping_interrupt, take_signals
from .java import Java, find_java
from .jvm import write_logging
from .session_conf import runs_here, session_conf, worker_path
from .starting import await_server, check_environment, start_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GRACE_SECONDS = 30.0
_SHIM = """\
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
"""Spark's launcher asks for a module that small runtimes lack and that Spark can do without."""


class ScriptedSession:
    """A session that pyspark's own launcher started, or a Spark Connect client; stopped the way pyspark stops it."""

    session: SparkSession
    settings: dict[str, str]

    def __init__(self, master: str, asked: Mapping[str, str]) -> None:
        self._signals: dict[int, Any] = {}
        self._folder = session_folder()
        self.settings = dict(asked)
        quiet_py4j()
        try:
            with keeping_interrupt():
                self.session = _remote(master, asked) if master.startswith("sc://") else self._launch(master, asked)
            self._signals = take_signals()
        except BaseException as error:
            failure = None
            if isinstance(error, Exception) and not isinstance(error, ChunkmillError):
                failure = start_error(master, asked, error)  # while Java can be asked
            self._clear()
            if failure is None:
                raise
            raise failure from error

    @property
    def alive(self) -> bool:
        """Whether nobody has stopped the session."""
        return not is_stopped(self.session)

    def stop(self) -> None:
        """Stop the session, and the JVM where pyspark has started one."""
        hush(self.session)
        self.session.stop()
        self._clear()

    def _launch(self, master: str, asked: Mapping[str, str]) -> SparkSession:
        from pyspark.sql import SparkSession

        check_environment()
        self.settings = session_conf(master, asked, self._folder)
        conf: dict[str, bool | float | int | str | None] = dict(self.settings)
        logging = f"-Dlog4j2.configurationFile={write_logging(self._folder).as_uri()}"
        options = self.settings.get("spark.driver.extraJavaOptions", "")
        conf["spark.driver.extraJavaOptions"] = f"{logging} {options}".strip()
        settings = {"PYTHONPATH": worker_path()}
        if runs_here(master):
            settings["PYSPARK_PYTHON"] = sys.executable
        if os.name == "posix":
            settings["JAVA_HOME"] = str(launchable(find_java(), self._folder))
        with environment(settings):
            return SparkSession.builder.config(map=conf).getOrCreate()

    def _clear(self) -> None:
        process = launched_process()
        if process is not None:
            detach(None)
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        give_back(self._signals)
        shutil.rmtree(self._folder, ignore_errors=True)


def launchable(java: Java, folder: Path) -> Path:
    """A ``JAVA_HOME`` that Spark's launcher can use: the runtime's own, or a stand-in for one without the module."""
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
