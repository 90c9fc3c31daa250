"""The choice of the executor that runs a pipeline."""

from __future__ import annotations

import os

from ..errors import UsageError
from ..spark import check_not_in_task, in_task

EXECUTORS = ("inline", "spark")


def executor_name(given: str | None) -> str:
    """The executor to use: the argument, else ``CHUNKMILL_EXECUTOR``, else ``spark``; within a task, ``inline``.

    Raises ``UsageError`` for a name that is none, and within a task for ``spark``.
    """
    if given == "spark":
        check_not_in_task()
    name = given or ("inline" if in_task() else os.environ.get("CHUNKMILL_EXECUTOR")) or "spark"
    if name not in EXECUTORS:
        raise UsageError(f"unknown executor {name!r}", hint=f"Use one of: {', '.join(EXECUTORS)}.")
    return name
