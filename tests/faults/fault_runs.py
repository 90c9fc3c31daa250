"""Running drivers, readers and checks, each in a process of its own: forked from here, or started where Spark is.

Whoever imports this must not have used Arrow or Lance before it forks: their threads do not come along.
"""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import chunkmill.lenses
import chunkmill.readers
from chunkmill.engine import faults
from fault_driver import Drive, command, drive_on
from fault_ledger import account, left_over
from fault_reader import Watcher
from fault_world import Template

PATIENCE: Final = 60.0
"""Seconds that a driver gets."""


def warm_up() -> None:
    """Import what drivers are going to import, so that each fork need not."""
    for package in (chunkmill.readers, chunkmill.lenses):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not survive a fork: it is imported, and used by none of us here
        import_module("lance")


def forked(work: Callable[[], int], log: Path | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run ``work`` in a fork, a process group of its own; gives its number."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        os.environ.update(environment or {})
        if log is not None:
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 (nothing may get back into the copy of the parent)
        traceback.print_exc()
    finally:
        os._exit(code)


def waited(pid: int, patience: float = PATIENCE) -> int:
    """The exit code of a fork, as of ``subprocess``; one that takes too long is killed, which counts as 71."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 71


@contextmanager
def s3_bucket(root: Path) -> Iterator[str]:
    """A bucket of a server of S3's protocol in a fork, as an URL; the environment names the server meanwhile."""
    told, stop = root / "s3.json", root / "s3.stop"

    def serve() -> int:
        from held_requests import Server

        server = Server()
        server.client.create_bucket(Bucket="robots")
        (root / "s3.draft").write_text(json.dumps(server.environment))
        (root / "s3.draft").rename(told)
        while not stop.exists():
            time.sleep(0.1)
        server.stop()
        return 0

    pid = forked(serve, root / "s3.log")
    until = time.monotonic() + PATIENCE
    while not told.exists() and time.monotonic() < until:
        time.sleep(0.05)
    environment: dict[str, str] = json.loads(told.read_text())
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield "s3://robots"
    finally:
        stop.touch()
        waited(pid)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def driven(drive: Drive, environment: Mapping[str, str]) -> int:
    """Run a driver to its end; gives its exit code, which is negative for a signal."""
    log = drive.root / "driver.log"
    if drive.executor == "inline":
        return waited(forked(lambda: drive_on(drive), log, environment))
    with log.open("ab") as out:
        process = subprocess.Popen(
            command(drive), stdout=out, stderr=out, env={**os.environ, **environment}, start_new_session=True
        )
        try:
            return process.wait(2 * PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return 71


class Watching:
    """A reader in a fork, from here to :meth:`end`."""

    def __init__(self, drive: Drive, template: Template) -> None:
        self._stop = drive.root / "stop"
        self._said = drive.root / "seen.json"
        self._pid = forked(lambda: self._watch(drive, template), drive.root / "reader.log")

    def _watch(self, drive: Drive, template: Template) -> int:
        rrds = drive.root / "rrds" if drive.rrds else None
        watcher = Watcher(drive.home, rrds, template.known, keeps_chunks=drive.into)
        watcher.run(self._stop)
        self._said.write_text(json.dumps([watcher.looks, watcher.wrong]))
        return 0

    def end(self) -> tuple[int, list[str]]:
        """How often it looked, and what should not have been seen."""
        self._stop.touch()
        code = waited(self._pid)
        if code or not self._said.exists():
            return 0, [f"the reader failed with {code}; see reader.log"]
        looks, wrong = json.loads(self._said.read_text())
        return looks, wrong


def checked(drive: Drive, template: Template, *, spoilt: bool) -> list[str]:
    """The account of a case, made in a fork."""
    said = drive.root / "account.json"

    def check() -> int:
        said.write_text(json.dumps([*account(drive, template, spoilt=spoilt), *left_over(drive)]))
        return 0

    code = waited(forked(check, drive.root / "account.log"))
    if code:
        return [f"no account could be made: {(drive.root / 'account.log').read_text()[-2000:]}"]
    found: list[str] = json.loads(said.read_text())
    return found


def reached(log: Path) -> dict[str, int]:
    """How often each point was reached."""
    return {path.name: path.stat().st_size for path in log.iterdir() if path.name in faults.POINTS}


def last_error(drive: Drive) -> dict[str, Any]:
    """What the last driver that failed raised."""
    found: dict[str, Any] = json.loads((drive.root / "error.json").read_text())
    return found
