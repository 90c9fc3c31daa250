"""A shell in which the commands of a page run one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


class PageShell:
    """A folder and an environment. What a block exports is set for the blocks after it."""

    def __init__(self, folder: Path, unset: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(unset)},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def run(self, text: str) -> str:
        """Run commands, and return what they print."""
        kept = self.folder / "environment"
        printed = self.process(["bash", "-ec", f"{text}\nenv -0 > {kept}"])
        self.environment = dict(pair.split("=", 1) for pair in kept.read_text().split("\0") if pair)
        return printed

    def ask(self, text: str) -> str:
        """Run a script of Python, and return what it prints."""
        return self.process([sys.executable, "-W", "ignore", "-c", text])

    def process(self, words: list[str]) -> str:
        """Run a program, which has to end with 0, and return what it prints."""
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{words[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout
