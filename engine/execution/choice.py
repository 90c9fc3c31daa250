"""Which executor runs a pipeline."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from pyspark import TaskContext

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


def in_task() -> bool:
    """Whether this is a worker of Spark's that runs a task."""
    return _task_context() is not None


def tries_before() -> int:
    """How often the Spark task that this worker runs was tried before."""
    context = _task_context()
    return 0 if context is None else int(context.attemptNumber())


def _task_context() -> TaskContext | None:
    """What Spark says of the task that runs here, if one does; pyspark is not imported to find out."""
    module = sys.modules.get("pyspark.taskcontext")
    return None if module is None else module.TaskContext.get()


def check_not_in_task() -> None:
    """Raise ``UsageError`` where there can be no Spark session: within a task."""
    if in_task():
        raise UsageError(
            "a function that runs in a Spark task cannot run on Spark itself",
            hint="Leave out `executor`: within a task a pipeline runs inline.",
        )
