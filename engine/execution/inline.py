"""The inline executor: every task in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from ..chunk import Chunk
from ..chunk.tuid import minting
from .part import PartJob
from .quarantine import Row, append_rows, quarantining
from .work import Task, Work


def inline_chunks(work: Work) -> Iterator[Chunk]:
    """The chunks of all tasks, as they come, without parts; what is quarantined goes to its table at the end."""
    quarantined: list[Row] = []
    tasks = (minting(work.minter(task.index), work.run(task.index)) for task in work.tasks)
    yield from quarantining(chain.from_iterable(tasks), quarantined)
    append_rows(quarantined)


def run_inline(job: PartJob, tasks: Sequence[Task]) -> Iterator[pa.RecordBatch]:
    """The chunk rows of all tasks."""
    for task in tasks:
        yield from job.run(task.index)
