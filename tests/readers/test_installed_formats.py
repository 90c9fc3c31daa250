"""Formats that an installed package adds by the entry point ``chunkmill.readers``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MODULE = '''
from dataclasses import dataclass
from chunkmill.engine import Chunk, ComponentColumn, TimeColumn
from chunkmill.readers import FileSource, Format, option

@dataclass(frozen=True)
class Lines(FileSource):
    """A number a line."""

    factor: int = option(1, "Factor of numbers.", flag="--factor", metavar="N", parse=int)

    def read(self, split):
        with self.open() as file:
            values = [int(line) * self.factor for line in file]
        yield Chunk.from_columns("/n", [TimeColumn("row", sequence=range(len(values)))], [ComponentColumn("n", values)])

FORMAT = Format("lines", "a file of lines", Lines, suffixes=(".lines",))
'''


def installed(folder: Path, points: str, module: str = MODULE) -> Path:
    """A folder as pip leaves it: a module, and what its package says of itself."""
    (folder / "linereader.py").write_text(module)
    info = folder / "linereader-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: linereader\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[chunkmill.readers]\n{points}\n")
    return folder


def python(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )


def test_its_files_are_read_and_its_options_are_flags(tmp_path: Path) -> None:
    folder = installed(tmp_path, "lines = linereader:FORMAT")
    (tmp_path / "x.lines").write_text("1\n2\n")
    source, out = str(tmp_path / "x.lines"), str(tmp_path / "x.rrd")
    code = f"""
from chunkmill.engine.cli import main
import sys
sys.argv = ["chunkmill", "convert", {source!r}, "-o", {out!r}, "--factor=3", "--executor=inline"]
main()
"""
    done = python(folder, code)
    assert done.returncode == 0, done.stderr
    assert "2 rows in 1 chunk" in done.stderr


def test_its_module_may_come_first(tmp_path: Path) -> None:
    folder = installed(tmp_path, "lines = linereader:FORMAT")
    code = "import linereader; from chunkmill.readers import FORMATS; print(FORMATS['lines'] is linereader.FORMAT)"
    done = python(folder, code)
    assert (done.stdout, done.stderr) == ("True\n", "")
    both = installed_again(tmp_path, MODULE + "\nfrom chunkmill.readers import register\nregister(FORMAT)\n")
    done = python(both, code)
    assert (done.stdout, done.stderr) == ("True\n", "")


def installed_again(folder: Path, module: str) -> Path:
    (folder / "linereader.py").write_text(module)
    return folder


def test_one_that_cannot_be_loaded_is_left_out_and_said(tmp_path: Path) -> None:
    bad = ("a = linereader:nothing", "b = missing_module:X", "c = linereader:Lines", "d = linereader:TAKEN")
    points = "\n".join((*bad, "lines = linereader:FORMAT"))
    taken = MODULE + '\nTAKEN = Format("taken", "a taken one", Lines, suffixes=(".mcap",))\n'
    done = python(installed(tmp_path, points, taken), "from chunkmill.readers import FORMATS; print(*FORMATS)")
    assert done.returncode == 0 and "lines" in done.stdout and "taken" not in done.stdout
    reasons = {"a": "AttributeError", "b": "missing_module", "c": "not a chunkmill.readers.Format", "d": "'.mcap'"}
    for name, why in reasons.items():
        assert f"the format {name!r} of the package linereader is ignored" in done.stderr and why in done.stderr
