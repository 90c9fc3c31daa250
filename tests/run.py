"""Run one of the project's long checks, or list them: ``python -m tests.run [KIND [NAME [OPTION …]]]``.

KIND is ``faults``, ``fuzz``, ``conformance``, ``docs``, ``benchmarks`` or ``house``; ``--help`` behind a NAME shows its
options.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
KINDS = {
    "faults": REPOSITORY / "tests" / "faults",
    "fuzz": REPOSITORY / "tests" / "fuzz",
    "conformance": REPOSITORY / "tests" / "conformance",
    "docs": REPOSITORY / "tests" / "docs",
    "benchmarks": REPOSITORY / "benchmarks",
    "house": REPOSITORY / "tests" / "house_rules",
}
STARTED_BY_OTHERS = {
    "fault_driver",
    "fuzz_worker",
    "lake_roles",
    "lerobot_loader",
    "page_blocks",
    "s3_on_disk",
    "scale_work",
    "table_worker",
}
"""Programs that the scripts start."""


def scripts(kind: str) -> dict[str, Path]:
    """Return the scripts of a kind, by their names."""
    return {
        path.stem: path
        for path in sorted(KINDS[kind].glob("*.py"))
        if path.stem not in STARTED_BY_OTHERS and '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    }


def listing(*kinds: str) -> str:
    """Return a line for each script: its name, and the first line of its docstring."""
    lines = []
    for kind in kinds:
        found = scripts(kind)
        width = max(map(len, found))
        lines.append(f"{kind}:")
        for name, path in found.items():
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            lines.append(f"  {name:{width}}  {docstring.partition(chr(10))[0]}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run a script, and return its exit code; 2 for one that does not exist."""
    kind, name, *options = [*arguments, "", ""][: max(len(arguments), 2)]
    if kind in ("", "-h", "--help"):
        print(f"{__doc__}\n{listing(*KINDS)}")
        return 0
    if kind not in KINDS:
        print(f"There is no kind {kind!r}; there are: {', '.join(KINDS)}.", file=sys.stderr)
        return 2
    if not name:
        print(listing(kind))
        return 0
    path = scripts(kind).get(name.removesuffix(".py"))
    if path is None:
        print(f"There is no script {name!r} of {kind}.\n{listing(kind)}", file=sys.stderr)
        return 2
    return subprocess.call([sys.executable, str(path), *options])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
