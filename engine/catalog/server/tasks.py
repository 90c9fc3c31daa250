"""Tasks: what became of a file that was to be registered, told by the id that its client has.

A call answers when all is done, so nothing is left of a task but its outcome, and its id holds that: any server of the
lake tells it, however the one that gave it ended, and nothing is to be kept or cleaned up.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

DONE: Final = "task_0000000000000000"
"""The task of all that succeeded."""

_FAILED: Final = "task_failed_"
_LONGEST_TEXT: Final = 8192

_TASKS: Final = pa.schema(
    [
        pa.field("task_id", pa.string(), False),
        pa.field("kind", pa.string()),
        pa.field("data", pa.string()),
        pa.field("exec_status", pa.string(), False),
        pa.field("msgs", pa.string()),
        pa.field("blob", pa.binary()),
        pa.field("lease_owner", pa.string()),
        pa.field("lease_expiration", pa.timestamp("ns")),
        pa.field("attempts", pa.uint8(), False),
        pa.field("creation_time", pa.timestamp("ns")),
        pa.field("last_update_time", pa.timestamp("ns")),
    ]
)


def failed_task(text: str) -> str:
    """The id of a task that failed for the reason in ``text``, of which 8,192 characters are kept.

    >>> error_of(failed_task("the file holds no recording"))
    'the file holds no recording'
    """
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}…"
    return _FAILED + base64.urlsafe_b64encode(text.encode("utf-8", "backslashreplace")).decode()


def error_of(task: str) -> str | None:
    """The reason for which a task failed; None if it did not. Of an id that no server gave, that nobody knows.

    >>> error_of(DONE)
    >>> error_of("task_1")
    "no server of chunkmill gave the task 'task_1': what became of it is not known"
    """
    if task == DONE:
        return None
    try:
        if task.startswith(_FAILED):
            return base64.b64decode(task.removeprefix(_FAILED), b"-_", validate=True).decode()
    except ValueError:  # it was cut, or changed
        pass
    return f"no server of chunkmill gave the task {task[:100]!r}: what became of it is not known"


def tasks_table(ids: Iterable[str]) -> pa.Table:
    """The table that answers who asks for tasks: one row for each id."""
    rows = []
    for task in dict.fromkeys(ids):
        error = error_of(task)
        status = "success" if error is None else "failed"
        rows.append({"task_id": task, "kind": "register", "exec_status": status, "msgs": error, "attempts": 1})
    return pa.Table.from_pylist(rows, _TASKS)
