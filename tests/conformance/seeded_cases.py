"""The command line of scripts that compare generated cases, one for each seed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def compare_seeds(
    about: str | None, arguments: Sequence[str] | None, compared: Callable[[int, str], list[str]], well: str
) -> int:
    """Compare cases, and print what is wrong with each, and how many are ``well``; gives the exit code."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--executor", default="inline")
    options = parser.parse_args(arguments)
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            wrong = compared(seed, options.executor)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        failed += bool(wrong)
        for text in wrong:
            print(text, flush=True)
    print(f"{options.count - failed} {well}, {failed} not")
    return int(failed > 0)
