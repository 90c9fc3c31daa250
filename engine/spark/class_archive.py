"""The class-data archive: Spark's classes, parsed and verified once, mapped into memory by every later JVM.

Most of a cold start is class loading. The JVM can map an archive of classes instead (AppCDS); it fits one runtime and
one class path, so its name holds a digest of both, and a JVM silently ignores an unfit one (``-Xshare:auto``). The
archive is made in the background, at idle priority, after the first session without it has ended. A training session
records the names of the classes that a small job needs. Then a second JVM writes them to a temporary file, and a rename
publishes the whole file.

The folder is ``CHUNKMILL_CACHE``, else ``$XDG_CACHE_HOME/chunkmill``, else ``~/.cache/chunkmill``. An archive takes
about 170 MB. Making one removes all archives that are unused for a month, and all but the six used last: each virtual
environment has its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ChunkmillError
from .jvm import Java, java_flags
from .session_conf import worker_path

_DUMP_SECONDS = 600.0
_UNUSED_SECONDS = 30 * 24 * 3600.0
_KEPT = 6
_RETRY_SECONDS = 24 * 3600.0
_DUMP_HEAP = "-Xmx256m"
_TRAINING = "chunkmill.engine.spark.session"


def cache_folder() -> Path:
    """The folder for files that can be made again; it may not exist yet."""
    chosen = os.environ.get("CHUNKMILL_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "chunkmill"
    except RuntimeError:  # a user without a home, as in a container
        return _own_folder() / "cache"


def _own_folder() -> Path:
    """This user's folder in the temporary folder. It holds code, so nobody else may own it."""
    folder = Path(tempfile.gettempdir()) / f"chunkmill-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(0o700)
    status = folder.lstat()
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if is_own else Path(tempfile.mkdtemp(prefix="chunkmill-"))


@dataclass(frozen=True)
class ClassArchive:
    """The archive for one Java runtime and one class path; it may not exist."""

    java: Java
    jars: tuple[str, ...]
    path: Path

    @classmethod
    def of(cls, java: Java, jars: Sequence[str]) -> ClassArchive:
        """The archive that fits this runtime and these jars."""
        digest = hashlib.sha256()
        for part in (java.version, str(java.home.resolve()), *java_flags(java), *map(_identity, jars)):
            digest.update(part.encode(errors="surrogateescape") + b"\0")
        return cls(java, tuple(jars), cache_folder() / f"spark-java{java.feature}-{digest.hexdigest()[:20]}.jsa")

    @property
    def exists(self) -> bool:
        """Whether the archive has been made."""
        return self.path.is_file()

    def options(self) -> list[str]:
        """The JVM flags that use the archive; empty without one."""
        if not self.exists:
            return []
        with contextlib.suppress(OSError):
            os.utime(self.path)
        return ["-Xshare:auto", f"-XX:SharedArchiveFile={self.path}", "-Xlog:disable"]

    def discard(self) -> None:
        """Remove an unusable archive."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    def build(self, train: Callable[[Path], None]) -> bool:
        """Make the archive now; this takes one core half a minute.

        Parameters
        ----------
        train
            Runs a typical job in a JVM that writes the names of its loaded classes to the given file.

        Returns
        -------
        bool
            Whether the archive exists now. It does not if another process makes it, if the folder cannot be written,
            or for a day after a failed attempt.
        """
        if not self._writable():
            return False
        with _alone(self.path.with_suffix(".lock")) as alone:
            if not alone or self._failed_lately():
                return False
            if not self.exists and not self._train_and_dump(train):
                with contextlib.suppress(OSError):
                    self._failure.touch()
                return False
            _remove_unused(self.path.parent)
            return True

    def build_in_background(self) -> None:
        """Start a process that makes the archive while this one continues or ends. Raises no error."""
        if self.exists or os.name != "posix" or self._failed_lately() or not self._writable():
            return
        inherited = {key: value for key, value in os.environ.items() if key != "CHUNKMILL_SCRATCH"}
        with contextlib.suppress(OSError):
            # The shell leaves the process to init, so that this process need not wait for it.
            subprocess.run(  # noqa: S603 - our interpreter, our module
                ["/bin/sh", "-c", '"$0" "$@" &', sys.executable, "-m", _TRAINING, str(self.java.home)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**inherited, "PYTHONPATH": worker_path()},
                start_new_session=True,
                check=False,
            )

    @property
    def _failure(self) -> Path:
        return self.path.with_suffix(".failed")

    def _writable(self) -> bool:
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        return os.access(self.path.parent, os.W_OK)

    def _failed_lately(self) -> bool:
        try:
            return time.time() - self._failure.stat().st_mtime < _RETRY_SECONDS
        except OSError:
            return False

    def _train_and_dump(self, train: Callable[[Path], None]) -> bool:
        try:
            with tempfile.TemporaryDirectory(prefix="training-", dir=self.path.parent) as folder:
                names = Path(folder) / "classes.txt"
                written = Path(folder) / "archive.jsa"
                train(names)
                _dump(self, names, written)
                written.chmod(0o600)
                _flush(written)
                written.replace(self.path)
        except (OSError, subprocess.SubprocessError, ChunkmillError):
            return False
        return True


def _identity(jar: str) -> str:
    stat = Path(jar).stat()
    return f"{jar} {stat.st_size} {stat.st_mtime_ns}"


def _dump(archive: ClassArchive, names: Path, written: Path) -> None:
    command = [
        str(archive.java.executable),
        "-Xshare:dump",
        _DUMP_HEAP,
        *java_flags(archive.java),
        "-Xlog:disable",
        f"-XX:SharedClassListFile={names}",
        f"-XX:SharedArchiveFile={written}",
        "-cp",
        os.pathsep.join(archive.jars),
    ]
    quiet = subprocess.DEVNULL
    subprocess.run(  # noqa: S603 - the java that runs Spark
        command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_DUMP_SECONDS, check=True
    )


def _flush(file: Path) -> None:
    """Sync the bytes to disk before the rename: a JVM trusts the file that it maps."""
    with file.open("rb") as written:
        os.fsync(written.fileno())


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """Yield whether only this process holds the lock file; False if the folder cannot be written."""
    import fcntl

    try:
        held = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(held)


def _remove_unused(folder: Path) -> None:
    used: list[tuple[float, Path]] = []
    for archive in folder.glob("spark-java*.jsa"):
        with contextlib.suppress(OSError):
            used.append((archive.stat().st_mtime, archive))
    used.sort(reverse=True)
    for place, (seconds, archive) in enumerate(used):
        if place >= _KEPT or time.time() - seconds > _UNUSED_SECONDS:
            with contextlib.suppress(OSError):
                archive.unlink()
