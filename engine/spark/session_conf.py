"""Spark's settings for chunkmill's sessions: lean defaults, which the user's settings override.

Payloads stay in the Python tasks, so the JVM only plans small stages and carries headers. The defaults below disable
features that take start-up time and are not needed here: the web UI, code generation (which loads Janino), adaptive
re-planning, the C2 compiler, a parallel garbage collector. A full garbage collection runs every five minutes instead of
thirty: it takes a fifth of a second, and keeps the memory of a JVM that runs for weeks close to its use. Arrow batches
have 8 MiB instead of 64: rows of 64 kB reach the tasks in half the time (benchmarks/table_writes.py).
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from ..errors import SessionStartError

DEFAULT_MASTER = "local[*]"
DAEMON_MODULE = "chunkmill.engine.spark.worker_daemon"

_LEAN: dict[str, str] = {
    "spark.app.name": "chunkmill",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.driver.memory": "1g",
    "spark.eventLog.enabled": "false",
    "spark.python.daemon.module": DAEMON_MODULE,
    "spark.python.worker.reuse": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.shuffle.partitions": "8",
    "spark.starvation.timeout": "8s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL: dict[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.heartbeatInterval": "10s",
}
_CONF_FILE_LIMIT = 1 << 20
LONGEST_SOCKET = 103
"""The longest path of a socket, in bytes."""

_LONGEST_SOCKET_FOLDER = LONGEST_SOCKET - 47
"""Spark's names of sockets have 42 bytes."""


def wanted_master(master: str | None, conf: Mapping[str, str] | None) -> str:
    """The master to use: the argument, ``spark.master`` of the conf, ``CHUNKMILL_MASTER``, ``local[*]``."""
    in_conf = (conf or {}).get("spark.master")
    return master or in_conf or os.environ.get("CHUNKMILL_MASTER") or DEFAULT_MASTER


def is_local(master: str) -> bool:
    """Return True if driver and workers share one JVM on this machine."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def runs_here(master: str) -> bool:
    """Return whether the workers are on this machine, in one JVM or several (``local-cluster[…]``)."""
    return is_local(master) or re.fullmatch(r"local-cluster\[.*\]", master) is not None


def starts_directly(master: str) -> bool:
    """Return whether the JVM can be started here without Spark's launcher scripts.

    This is so for local and standalone masters, unless there are settings for these scripts (``PYSPARK_SUBMIT_ARGS``,
    another ``SPARK_HOME``, a ``spark-env.sh``).
    """
    home = os.environ.get("SPARK_HOME")
    return (
        os.name == "posix"
        and (is_local(master) or master.startswith("spark://"))
        and not os.environ.get("PYSPARK_SUBMIT_ARGS")
        and (home is None or Path(home).resolve() == spark_home().resolve())
        and not any((folder / "spark-env.sh").exists() for folder in _conf_folders())
    )


def session_conf(master: str, conf: Mapping[str, str] | None, folder: Path) -> dict[str, str]:
    """All settings of a session of chunkmill; the user's override ``spark-defaults.conf``, which overrides ours.

    Parameters
    ----------
    master
        The master URL.
    conf
        The user's settings.
    folder
        The session's own folder, for Spark's local files and its warehouse.
    """
    ours = dict(_LEAN)
    if is_local(master):
        ours.update(_LOCAL)
        ours["spark.local.dir"] = str(folder / "local")
        ours["spark.sql.warehouse.dir"] = (folder / "warehouse").as_uri()
    if runs_here(master):
        ours.update(_sockets(folder))
    in_files = _conf_files()
    return {**ours, **in_files, **(conf or {}), "spark.master": master}


def _sockets(folder: Path) -> dict[str, str]:
    """Connect the JVM and its Python workers by sockets in the session's folder, which only we can access.

    Through TCP, Spark's default, an empty task takes 50 ms, 40 ms of which both sides wait for each other.
    """
    if os.name != "posix" or len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(folder)}


def jvm_options(conf: Mapping[str, str]) -> list[str]:
    """The JVM flags that Spark's launcher would read from these settings."""
    wanted = shlex.split(conf.get("spark.driver.defaultJavaOptions", ""))
    wanted += shlex.split(conf.get("spark.driver.extraJavaOptions", ""))
    native = conf.get("spark.driver.extraLibraryPath")
    if native:
        wanted.append(f"-Djava.library.path={native}")
    return [f"-Xmx{_jvm_size('spark.driver.memory', conf)}", *wanted]


def spark_home() -> Path:
    """The folder of the installed pyspark, which is a whole Spark."""
    import pyspark

    return Path(pyspark.__file__).parent


def worker_path() -> str:
    """``PYTHONPATH`` for the workers: the entries of ``sys.path`` that a fresh interpreter lacks."""
    installed = [Path(prefix) / "lib" for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix}]
    paths = (Path(entry).absolute() for entry in sys.path)
    wanted = (path for path in paths if path.exists() and not any(path.is_relative_to(lib) for lib in installed))
    return os.pathsep.join(dict.fromkeys(map(str, wanted)))


def is_nameless() -> bool:
    """Return whether the user is only a number, as in a container: without a name or a home known to Java."""
    if os.name != "posix":
        return False
    import pwd

    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return True
    return False


def user_environment() -> dict[str, str]:
    """Return the environment variables that Spark needs to start for a user without a name."""
    names = ("SPARK_USER", "HADOOP_USER_NAME") if is_nameless() else ()
    return {name: str(os.getuid()) for name in names if not os.environ.get(name)}


def user_options(folder: Path) -> list[str]:
    """The JVM flag that makes the session's folder such a user's home, for Spark's fetching of packages."""
    return [f"-Duser.home={folder}"] if is_nameless() else []


def _jvm_size(key: str, conf: Mapping[str, str]) -> str:
    """Convert Spark's size notation (``512m``, ``2g``, ``2gb``; a bare number is MiB) to the JVM's."""
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", conf[key].lower())
    if match is None:
        raise SessionStartError(f"{key}={conf[key]} is not a size", hint="Write a size such as 512m or 2g.")
    return f"{match.group(1)}{match.group(2) or 'm'}"


def _conf_folders() -> list[Path]:
    chosen = os.environ.get("SPARK_CONF_DIR")
    return [Path(chosen)] if chosen else [spark_home() / "conf"]


def _conf_files() -> dict[str, str]:
    """The settings in the user's ``spark-defaults.conf``, if any."""
    settings: dict[str, str] = {}
    for folder in _conf_folders():
        try:
            with (folder / "spark-defaults.conf").open(encoding="utf-8") as lines:
                text = lines.read(_CONF_FILE_LIMIT)
        except (OSError, UnicodeDecodeError):
            continue
        for line in text.splitlines():
            match = re.match(r"\s*(spark\.[^\s=:]+)\s*[=:\s]\s*(.*?)\s*$", line)
            if match:
                settings[match.group(1)] = match.group(2)
    return settings
