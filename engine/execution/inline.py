"""The inline executor: every task in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from .part import PartJob
from .work import Task


def run_inline(job: PartJob, tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
    """The chunk rows of all tasks."""
    for task in tasks:
        yield from job.run(task.index)
