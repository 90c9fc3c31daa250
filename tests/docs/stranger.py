"""What a new user sees: every block of README and of the Start pages runs as written, in a fresh clone.

``python -m tests.run docs stranger`` runs the first command of README.md in a copy of what git tracks, and then the
blocks of each page in an empty folder that holds ``demo.mcap``, on Spark as they are, and compares the outputs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PAGES = ("README.md", "docs/index.md", "docs/tutorial.md", "docs/notebooks.md")


def cloned(folder: Path) -> Path:
    """A copy of what git tracks; of all but environments where there is no git."""
    if not (REPOSITORY / ".git").exists():
        return Path(shutil.copytree(REPOSITORY, folder, ignore=shutil.ignore_patterns(".venv*", "__pycache__", "site")))
    names = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, target)
    return folder


def main() -> int:
    """Run them all; return 1 if a page does not do what it shows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", type=Path, help="a Python in which README's first command has installed chunkmill")
    parser.add_argument("--pages", nargs="+", default=PAGES, metavar="PAGE", help="default: all")
    options = parser.parse_args()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CHUNKMILL", "PYTHON", "SPARK"))}
    failed = 0
    with tempfile.TemporaryDirectory(prefix="chunkmill-stranger-") as scratch:
        clone = cloned(Path(scratch) / "clone")
        python = options.python and options.python.absolute()
        if python is None:
            (command, *_) = re.findall(
                r"^```sh\n(.*?)^```$", (clone / "README.md").read_text(), re.MULTILINE | re.DOTALL
            )
            subprocess.run(["bash", "-ec", command], cwd=clone, env=kept, check=True, stdout=subprocess.DEVNULL)
            python = clone / ".venv" / "bin" / "python"
        for page in options.pages:
            folder = clone
            if page != "README.md":
                folder = Path(scratch) / Path(page).stem
                folder.mkdir()
                shutil.copy(clone / "tests" / "data" / "demo.mcap", folder)
            began = time.monotonic()
            command = [str(python), str(clone / "tests" / "docs" / "page_blocks.py"), str(clone / page)]
            done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False)
            print(
                f"{page}: {'failed' if done.returncode else 'as written'}, {time.monotonic() - began:.0f} s", flush=True
            )
            if done.returncode:
                failed = 1
                print(done.stdout[-2000:], done.stderr[-6000:], sep="\n", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
