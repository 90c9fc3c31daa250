"""Rows for which a function ends the process of its worker, found by running the batches again that workers had then.

Nothing can be caught in such a process. So a run that has lost a worker goes on with care: a task announces each batch
in the staging folder before the function has it. What was announced and not done is run again alone, and halved, until
it passes or is a single row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from ..errors import PipelineError
from ..execution import Staging
from .backfill_task import ANNOUNCED
from .planning import Piece

MOST_KILLERS: Final = 100
"""Rows of a run that may end a worker each: every one of them costs some seconds."""
_NAME: Final = re.compile(rf"{ANNOUNCED}(\d+)-(\d+)-(\d+)")
_SHOWN: Final = 10


class CalledRows(NamedTuple):
    """The rows that a function had: their fragment, the first and the last offset."""

    fragment: int
    first: int
    last: int


def batches_at_hand(staging: Staging) -> list[CalledRows]:
    """The batches that functions had when the tasks of a stage ended."""
    found = filter(None, map(_NAME.fullmatch, staging.folder.names()))
    return sorted(CalledRows(*map(int, name.groups())) for name in found)


def rows_that_kill(run: Callable[[Piece], list[CalledRows] | None], piece: Piece, batch: CalledRows) -> list[int]:
    """The offsets of the rows of a batch, of those of a piece, that end their worker.

    ``run`` computes a piece, and gives None, or what the function had when its worker died.
    """
    found: list[int] = []
    todo = [(batch.first, batch.last + 1)]
    while todo:
        at_hand = run(replace(piece, span=todo.pop(), is_whole=False))
        for _, first, last in at_hand or ():
            if first == last:
                found.append(first)
            else:
                middle = (first + last + 1) // 2
                todo += [(middle, last + 1), (first, middle)]
    return sorted(found)


def killed_by(name: str, rows: list[tuple[int, int]]) -> PipelineError:
    """The error for rows, by fragment and offset, for which the function of a column ended its worker."""
    shown = ", ".join(f"row {offset} of fragment {fragment}" for fragment, offset in rows[:_SHOWN])
    more = f", and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return PipelineError(
        f"the function of {name!r} ends the process of its worker: for {shown}{more}",
        hint="Mend the function, or let Skip(SessionError) leave such rows null.",
    )
