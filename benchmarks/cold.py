"""Say where the time of a short command goes before its work begins, by the imports that it needs.

    python -m tests.run benchmarks cold [ARGUMENT…]

By default an RRD of 38 kB is converted by the inline executor. Each line is a library, or a room of ours: milliseconds
of its own modules under ``-X importtime``, which slows them by about a quarter, and their number. The last lines are
the whole command, started ten times: the least wall and processor time, beside those of ``python -c pass`` and of
``import pyarrow``.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from made_recordings import write_drive

COMMAND = "import sys; from chunkmill.engine.cli import main; sys.exit(main())"
SHOWN = 1.0
"""Milliseconds: what takes less is summed up."""


def imports_of(command: Sequence[str]) -> list[tuple[str, float]]:
    """The modules that a command imports, each with its own milliseconds."""
    lines = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True)
    modules = []
    for line in lines.stderr.splitlines():
        head, _, rest = line.partition("import time:")
        taken, _, more = rest.partition("|")
        if not head and taken.strip().isdigit():
            modules.append((more.rpartition("|")[2].strip(), int(taken) / 1000))
    return modules


def room_of(module: str) -> str:
    """What a line of the table is about.

    >>> room_of("chunkmill.engine.rrd.file"), room_of("numpy.linalg"), room_of("json.decoder")
    ('chunkmill.engine.rrd', 'numpy', 'standard library')
    """
    parts = module.split(".")
    if parts[0] in sys.stdlib_module_names:
        return "standard library"
    return ".".join(parts[: 3 if parts[0] == "chunkmill" else 1])


def least(command: Sequence[str]) -> str:
    """The least wall and processor time of ten runs."""
    walls, processor = [], []
    for _ in range(10):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
        walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return f"{1000 * min(walls):6.0f} ms, {1000 * min(processor):6.0f} ms of processor"


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        source = write_drive(Path(folder) / "drive.rrd", 0)
        arguments = sys.argv[1:] or ["convert", str(source), "-o", f"{folder}/out.rrd", "--executor", "inline", "-q"]
        command = ["-c", COMMAND, *arguments]
        taken, counts = Counter[str](), Counter[str]()
        for module, own in imports_of(command):
            taken[room_of(module)] += own
            counts[room_of(module)] += 1
        small = [room for room in taken if taken[room] < SHOWN]
        for room, own in taken.most_common():
            if own >= SHOWN:
                print(f"{room:32} {own:6.1f} ms {counts[room]:4} modules")
        rest = (sum(taken[room] for room in small), sum(counts[room] for room in small))
        print(f"{'others':32} {rest[0]:6.1f} ms {rest[1]:4} modules")
        print(f"{'python -c pass':32} {least(['-c', 'pass'])}")
        print(f"{'import pyarrow.compute':32} {least(['-c', 'import pyarrow.compute'])}")
        print(f"{'the command':32} {least(command)}")


if __name__ == "__main__":
    main()
