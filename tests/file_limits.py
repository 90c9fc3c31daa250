"""Too little space: a limit on the size of files, and a small disk of its own, which needs the right to mount one."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file that this process writes may become larger than ``size`` bytes.

    Files that pytest writes are among them, so not for a fixture.
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)


@dataclass(frozen=True)
class SmallDisk:
    """A folder with a file system of its own."""

    folder: Path

    def fill(self, left: int = 0) -> None:
        """Leave ``left`` bytes free."""
        stat = os.statvfs(self.folder)
        size = stat.f_bavail * stat.f_frsize - left
        if size > 0:
            with (self.folder / "ballast").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)

    def make_read_only(self) -> None:
        """Let nothing be written."""
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)

    def make_space(self) -> None:
        """Let everything be written again."""
        subprocess.run(["mount", "-o", "remount,rw", str(self.folder)], check=True)
        (self.folder / "ballast").unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """A disk of ``size`` bytes in a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def can_mount() -> bool:
    """Whether a file system can be mounted here."""
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False).returncode:
            return False
        subprocess.run(["umount", "-l", folder], check=True)
    return True
