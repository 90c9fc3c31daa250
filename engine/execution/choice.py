"""Which executor runs a pipeline."""

from __future__ import annotations

import os

from ..errors import UsageError

EXECUTORS = ("inline", "spark")


def executor_name(given: str | None) -> str:
    """The executor to use: the argument, else ``CHUNKMILL_EXECUTOR``, else ``spark``.

    Raises ``UsageError`` for a name that is none.
    """
    name = given or os.environ.get("CHUNKMILL_EXECUTOR") or "spark"
    if name not in EXECUTORS:
        raise UsageError(f"unknown executor {name!r}", hint=f"Use one of: {', '.join(EXECUTORS)}.")
    return name
