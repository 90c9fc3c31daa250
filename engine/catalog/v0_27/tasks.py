"""``Tasks``: the handle that 0.27 gives on a registration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from ...errors import RegistrationError
from ..entries import EntryId
from ..registration_handle import RegistrationHandle
from ..segment_table import frame_of
from .providers import DataFusionTable

_TIME: Final = pa.timestamp("ns")
_STATUS: Final = pa.schema(
    [
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("data", pa.string()),
        pa.field("exec_status", pa.string(), nullable=False),
        pa.field("msgs", pa.string()),
        pa.field("blob_len", pa.uint64()),
        pa.field("lease_owner", pa.string()),
        pa.field("lease_expiration", _TIME),
        pa.field("attempts", pa.uint8(), nullable=False),
        pa.field("creation_time", _TIME),
        pa.field("last_update_time", _TIME),
    ]
)


class Task:
    """A registration that runs: of all files of a request, each of which succeeds or fails by itself."""

    def __init__(self, handle: RegistrationHandle) -> None:
        self._handle = handle
        self._id = f"task_{EntryId.new()}"
        self._began_ns = time.time_ns()

    @property
    def id(self) -> str:
        """The id of the task."""
        return self._id

    def wait(self, timeout_secs: float | None) -> None:
        """Wait until the task is done, with None as long as it takes; see :meth:`RegistrationHandle.wait`.

        Raises
        ------
        TimeoutError
            It is not within ``timeout_secs`` seconds. It goes on.
        ValueError
            Some files were not registered; the message names each.
        """
        self._handle.wait(timeout_secs)

    def status(self) -> dict[str, object]:
        """The row of the task in :meth:`Tasks.status_table`."""
        status, text = "success", None
        try:
            self._handle.wait(0)
        except TimeoutError:
            status = "pending"
        except RegistrationError as error:
            status, text = "failed", error.message
        return {
            "task_id": self._id,
            "exec_status": status,
            "msgs": text,
            "attempts": 1,
            "creation_time": self._began_ns,
        }

    def __repr__(self) -> str:
        return f"Task({self._id})"


class Tasks:
    """The tasks of a call of ``register_batch`` or ``register_prefix``: one, whatever the number of files."""

    def __init__(self, handle: RegistrationHandle) -> None:
        self._tasks = (Task(handle),)

    def wait(self, timeout_secs: float | None = None) -> None:
        """Wait until all tasks are done; raises as :meth:`Task.wait` does."""
        for task in self._tasks:
            task.wait(timeout_secs)

    def status_table(self) -> DataFusionTable:
        """One row for each task, of as things are: ``exec_status`` is ``pending``, ``success`` or ``failed``."""
        rows = [task.status() for task in self._tasks]
        return DataFusionTable("tasks", frame_of(pa.Table.from_pylist(rows, _STATUS)))

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        if index >= len(self._tasks):
            raise IndexError("Index out of range")
        return self._tasks[index]

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def __repr__(self) -> str:
        return f"Tasks({', '.join(task.id for task in self._tasks)})"
