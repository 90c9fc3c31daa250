"""Run Rerun's own end-to-end tests of catalogs, unchanged and with the real rerun-sdk, against a server.

    python served_tests.py CHECKOUT --server "chunkmill serve LAKE --create --port {port} --allow {folder}"
    python tests/conformance/served_tests.py CHECKOUT --ref 0.33.1 --server "rerun server --port {port}" -k table

CHECKOUT is a clone of Rerun's repository; see ``peer_tests.py``, which says what else is needed. This script does not
import chunkmill: run it by the interpreter of an environment that has the rerun-sdk that is to be the client, and
``pylance``. ``--server`` is the command of a server, ``{port}`` in it a free port, ``{folder}`` the folder that the
tests write to; LAKE is a new folder. The server is started once; with ``--kill`` it is killed and started again between
every two files of tests (``--kill tests``: every two tests), on the same port, under the eyes of the clients and the
datasets that the session shares. What follows the options goes to pytest.

Says at the end how many tests passed, and which were left out, for what reason. Ends with 1 where one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import peer_tests
import pytest

NOT_PORTABLE = {
    "test_datafusion_error_surfaces_to_python_with_trace_id": "lets a server of its own fail by a private method",
    "test_limit_does_not_propagate_into_server_request": "counts what a query with a limit races to fetch",
    "test_cancellation_mid_stream_still_produces_snapshot": "counts what a query with a limit races to fetch",
}
"""Tests, by their name, that say nothing about a server that is given, and why."""

BEFORE_041 = {
    "test_register_duplicate_error_behavior": "wants a request refused of which servers of 0.41 fail the file, "
    "and their client has another error for that",
}
"""Such of versions before 0.41, where the client is of 0.41: the newest tests that there are are of 0.37."""

WAIT = 60
"""The seconds that a server has to open its port."""


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--ref", default=version("rerun-sdk"))
    parser.add_argument("--server", required=True)
    parser.add_argument("--kill", nargs="?", choices=("files", "tests"), const="files")
    parser.add_argument("--assets", type=Path)
    options, rest = parser.parse_known_args()
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TMPDIR"] = tempfile.tempdir = scratch  # what tests write lies in the one folder that is allowed
        tests = peer_tests.extracted(options.checkout, options.ref, Path(scratch), options.assets, mapped=False)
        server = Served(options.server, Path(scratch))
        peer_tests.NOT_PORTABLE.clear()
        peer_tests.NOT_PORTABLE.update(NOT_PORTABLE)
        if tuple(map(int, version("rerun-sdk").split(".")[:2])) >= (0, 41):
            peer_tests.NOT_PORTABLE.update(BEFORE_041)
        settings = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tests), "-c", os.devnull]
        settings += ["--redap-url", f"rerun+http://127.0.0.1:{server.port}", "--basetemp", str(Path(scratch) / "own")]
        plugins = [Unchanged(), *([Kills(server, between=options.kill)] if options.kill else [])]
        try:
            return int(pytest.main([*settings, str(tests / "e2e_redap_tests"), *rest], plugins=plugins))
        finally:
            server.kill()


class Served:
    """A server of its own process, on a port that stays the same over restarts."""

    def __init__(self, command: str, folder: Path, log: str = "served_tests.log") -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._command = [part.format(port=self.port, folder=folder) for part in shlex.split(command)]
        self._log = Path(log).absolute()
        self._log.unlink(missing_ok=True)
        self.start()

    def start(self) -> None:
        """Start it, and wait until its port is open."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, process_group=0)
        end = time.monotonic() + WAIT
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"the server does not open its port: see {self._log}")
                time.sleep(0.05)

    def kill(self) -> None:
        """End it without a word, and what it has started: Rerun's command is a script around the server."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Unchanged(peer_tests.Portable):
    """What ``Portable`` does, without any name of chunkmill's."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """Leave the SDK as it is."""


class Kills:
    """A plugin of pytest: kills the server between every two files, or tests, and starts it again."""

    def __init__(self, server: Served, *, between: str) -> None:
        self._server = server
        self._between = between
        self._kills = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        """Kill it after the last test of a file, or after each."""
        done = yield
        if nextitem is not None and (self._between == "tests" or nextitem.path != item.path):
            self._server.kill()
            self._server.start()
            self._kills += 1
        return done

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how often it was killed."""
        terminalreporter.write_line(f"the server was killed and started again {self._kills} times")


if __name__ == "__main__":
    sys.exit(main())
