"""Run benchmarks with two builds of chunkmill in turn, and compare the medians of each benchmark.

    python -m tests.run benchmarks paired --before PYTHON --after PYTHON bench_convert.py bench_rrd.py -- -k optimized

Each PYTHON is an environment with the tests' requirements and an installed wheel. What follows ``--`` goes to pytest.
A row has our median seconds of both builds, their ratio, and ``slower`` where it is over the limit: 1.1, or 1.25 where
the earlier build took less than 0.2 s. Ends with 1 where a row is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SHORT_SECONDS = 0.2
LIMIT, SHORT_LIMIT = 1.1, 1.25


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, metavar="PYTHON")
    parser.add_argument("--after", required=True, metavar="PYTHON")
    parser.add_argument("--turns", type=int, default=3, help="how often each build runs")
    parser.add_argument("files", nargs="+")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    options, rest = parser.parse_args(words[:at]), words[at + 1 :]
    files = [str(FOLDER / name) for name in options.files]
    seconds: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for turn in range(options.turns):
        builds = [(0, options.before), (1, options.after)]
        for which, python in builds if turn % 2 == 0 else reversed(builds):
            for name, taken in timed(python, files, rest).items():
                seconds[name][which].append(taken)
    slower = 0
    for name, (before, after) in sorted(seconds.items()):
        if before and after:
            first, second = statistics.median(before), statistics.median(after)
            is_slower = second / first > (SHORT_LIMIT if first < SHORT_SECONDS else LIMIT)
            slower += is_slower
            print(f"{name:80} {first:8.3f} {second:8.3f} {second / first:6.2f} {'slower' if is_slower else ''}")
    return 1 if slower else 0


def timed(python: str, files: list[str], rest: list[str]) -> dict[str, float]:
    """Run the benchmarks once with a build, and return our median seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [python, "-m", "pytest", "-q", "--benchmark-enable", f"--benchmark-json={report}", *files, *rest]
        done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
        if not report.exists() or not report.stat().st_size:
            sys.exit(f"{python} ran no benchmark:\n{done.stdout}\n{done.stderr}")
        rows = json.loads(report.read_text())["benchmarks"]
    return {row["fullname"]: row["extra_info"].get("seconds", row["stats"]["median"]) for row in rows}


if __name__ == "__main__":
    sys.exit(main())
