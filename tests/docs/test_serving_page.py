"""The page about serving, as a user would go through it: each command copied, in its order, on a port that is free.

Its ``sh`` blocks run in one folder, with what they export kept for those after them; a server goes on until the next
one, and the ``py`` blocks are asked of it by Rerun's SDK. What needs another program than ours is left out.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_shell import PageShell
from places import DATA, REPOSITORY

PAGE = REPOSITORY / "docs" / "serving.md"
LEFT_OUT = ("pip ", "rerun ")
"""Commands that install, or open a window."""
BLOCK = re.compile(r"^```(sh|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVER = re.compile(r"chunkmill serve (?!token)[^\n]+")
SECONDS = 60.0


class Reader(PageShell):
    """A user in a folder, with a server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ("REDAP_TOKEN", "SSL_CERT_FILE"))
        self.server: subprocess.Popen[str] | None = None
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = str(listener.getsockname()[1])

    def ask(self, text: str) -> str:
        """Run a script on the server's port."""
        return super().ask(text.replace("51234", self.port))

    def serve(self, command: str) -> str:
        """Start a server in place of the one that runs, and give its log."""
        self.stop()
        log = self.folder / "log"
        with log.open("w") as sink:
            words = ["bash", "-c", f"exec {command} --port {self.port}"]
            self.server = subprocess.Popen(words, cwd=self.folder, env=self.environment, stderr=sink, text=True)
        ends = time.monotonic() + SECONDS
        while "changes are logged in" not in log.read_text():
            assert self.server.poll() is None, log.read_text()
            assert time.monotonic() < ends, log.read_text()
            time.sleep(0.1)
        return log.read_text()

    def stop(self) -> None:
        """End the server, as Ctrl-C does."""
        if self.server is not None:
            self.server.terminate()
            assert self.server.wait(SECONDS) == 0
            self.server = None


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "data").symlink_to(DATA)
    found = Reader(tmp_path)
    yield found
    if found.server is not None:
        found.server.kill()
        found.server.wait()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_the_page_does_what_it_shows(reader: Reader) -> None:
    for package in ("rerun", "datafusion", "grpc", "uvicorn"):
        pytest.importorskip(package)
    printed, logs = [], []
    for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "py":
            printed.append(reader.ask(text))
            continue
        if text.startswith(LEFT_OUT):
            continue
        served = SERVER.search(text)
        reader.run(SERVER.sub("", text))
        if served:
            logs.append(reader.serve(served[0]))
    assert [log.count("warning") for log in logs] == [0, 0]
    shown = re.findall(r"^\d{4}-\S+Z (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    started = logs[0].replace(reader.port, "51234").replace(str(reader.folder), "/data").splitlines()
    assert [line.partition(" ")[2] for line in started] == shown
    assert re.fullmatch(r"\['drives'\] \['[0-9a-f-]{36}'\]\n\d+ rows\n", printed[0])
    assert printed[1:] == ["['drives']\n", "['demo']\n"]
    reader.stop()
    assert "stopping" in (reader.folder / "log").read_text()
