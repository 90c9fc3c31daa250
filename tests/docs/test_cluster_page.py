"""The recipe of the page about clusters, copied command by command, on a master and a worker of this machine."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chunkmill.engine import RecordingStore
from chunkmill.engine.spark.jvm import find_java
from chunkmill.engine.spark.launch import launchable
from page_shell import PageShell
from places import DATA, REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

from deployments import free_port

PAGE = REPOSITORY / "docs" / "cluster.md"
BLOCK = re.compile(r"^```(sh|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALLS = "pip install"
STARTED = re.compile("Successfully registered with master|New state: ALIVE")
SECONDS = 120.0


class Operator(PageShell):
    """A user who starts programs in the background. Places of this machine replace those of the page."""

    def __init__(self, folder: Path, places: dict[str, str]) -> None:
        super().__init__(folder, ("CHUNKMILL_", "PYSPARK_", "SPARK_"))
        self.environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        self.places = places
        self.background: list[subprocess.Popen[bytes]] = []

    def placed(self, text: str) -> str:
        """The text with the places of this machine."""
        for name, place in self.places.items():
            text = text.replace(name, place)
        return text

    def run(self, text: str) -> str:
        """Run a block; one that ends with ``&`` goes on, and has started when this returns."""
        text = self.placed(text)
        if not text.rstrip().endswith("&"):
            return super().run(text)
        log = self.folder / f"log-{len(self.background)}"
        words = ["bash", "-ec", f"exec {text.rstrip()[:-1]}"]
        with log.open("wb") as out:
            program = subprocess.Popen(words, env=self.environment, cwd=self.folder, stdout=out, stderr=out)
        self.background.append(program)
        ends = time.monotonic() + SECONDS
        while not STARTED.search(log.read_text(errors="replace")):
            assert program.poll() is None, log.read_text()
            assert time.monotonic() < ends, log.read_text()
            time.sleep(0.2)
        return ""

    def ask(self, text: str) -> str:
        """Run a script of Python."""
        return super().ask(self.placed(text))

    def end(self) -> None:
        """End what runs in the background, the newest first."""
        for process in reversed(self.background):
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS)


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    robots = tmp_path / "robots"
    (robots / "logs").mkdir(parents=True)
    shutil.copy(DATA / "demo.mcap", robots / "logs")
    shutil.copy(DATA / "mcap" / "rosbag2__cdr_test_0.mcap", robots / "logs")
    java = launchable(find_java(), tmp_path / "java")
    places = {
        "/opt/chunkmill/bin/python": sys.executable,
        "/opt/chunkmill/bin": str(Path(sys.executable).parent),
        "/usr/lib/jvm/java-17-openjdk-amd64": str(java),
        "/mnt/robots": str(robots),
        "head:7077": f"127.0.0.1:{(port := free_port())}",
        "--host head --port 7077": f"--host 127.0.0.1 --port {port} --webui-port 0",
        "--cores 2": "--webui-port 0 --cores 2",
    }
    found = Operator(tmp_path, places)
    yield found
    found.end()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_recipe_does_what_it_shows(operator: Operator) -> None:
    recipe = PAGE.read_text(encoding="utf-8").partition("## A cluster from nothing")[2].partition("\n## ")[0]
    for language, text in BLOCK.findall(recipe):
        if INSTALLS not in text:
            operator.ask(text) if language == "py" else operator.run(text)
    robots = operator.folder / "robots"
    converted = sorted(path.name for path in (robots / "converted").iterdir())
    assert converted == ["demo.rrd", "rosbag2__cdr_test_0.rrd"]
    for name in ("store", "streamed"):
        assert len(list(RecordingStore.open(robots / name))) == 2
    assert (operator.folder / "log-0").read_text(errors="replace").count("Registered app") == 3
