"""The task that Spark runs in this process; pyspark is not imported to find out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from pyspark import TaskContext


def in_task() -> bool:
    """Whether this is a worker of Spark's that runs a task."""
    return _task_context() is not None


def tries_before() -> int:
    """The number of earlier tries at the Spark task that this worker runs."""
    context = _task_context()
    return 0 if context is None else int(context.attemptNumber())


def _task_context() -> TaskContext | None:
    """Spark's context of the task that runs here, if one does; pyspark is not imported to find out."""
    module = sys.modules.get("pyspark.taskcontext")
    return None if module is None else module.TaskContext.get()


def check_not_in_task() -> None:
    """Raise ``UsageError`` where there can be no Spark session: within a task."""
    if in_task():
        raise UsageError(
            "a function that runs in a Spark task cannot run on Spark itself",
            hint="Leave out `executor`: within a task a pipeline runs inline.",
        )
