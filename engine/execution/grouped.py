"""Works of several recordings in one stage: what came of each is told apart, and one that fails leaves the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..errors import PipelineError, SessionError, SessionStartError
from ..locations import Location
from ..rrd import StoreEntry
from .chunk_rows import PartChunk
from .extents import RunPlaces
from .joined import JoinedWork
from .part import RrdParts
from .quarantine import settle
from .reporting import Ran
from .rrd_sink import whole_name
from .sink import run_tasks
from .stage import RunOptions, check_closed, raise_failure
from .staging import Staging
from .work import Work

STAGE_TASKS: Final = 256
"""Tasks of one stage: what is committed together when a run is cut is lost together too."""

STAGE_BYTES: Final = 4 << 30
"""Source bytes of one stage."""

Outputs = Sequence[tuple[StoreEntry, Work]]
"""What one recording becomes: its stores, with the work that gives each its chunks."""


class GroupedStage:
    """The outputs of several recordings as one stage, into parts in ``staging``.

    Where ``destinations`` says where each recording goes, local files of a single task come out as whole RRDs: the
    workers make their footers then, not the driver.
    """

    def __init__(
        self,
        groups: Sequence[Outputs],
        staging: Staging,
        destination: str,
        *,
        digests: bool = False,
        runs: RunPlaces | None = None,
        destinations: Sequence[Location] = (),
    ) -> None:
        self._groups = len(groups)
        self._staging = staging
        self._work = JoinedWork([work for outputs in groups for _, work in outputs])
        counts = [sum(len(work.tasks) for _, work in outputs) for outputs in groups]
        self._owners = tuple(at for at, count in enumerate(counts) for _ in range(count))
        self.stores = tuple(store for outputs in groups for store, work in outputs for _ in work.tasks)
        """The store of each task."""
        names = list(map(whole_name, destinations, groups))
        self._destination = destination
        self._parts = RrdParts(
            self.stores,
            destination,
            digests,
            runs=runs,
            whole=tuple(names[owner] for owner in self._owners) if names else (),
        )

    def run(self, options: RunOptions) -> list[Ran]:
        """The results of each recording's tasks, failures among it; see :func:`check`."""
        return self._by_group(
            run_tasks(self._work, self._parts, self._staging, options, self._destination, self._owners)
        )

    def check(self, ran: Ran) -> None:
        """Raise what one of these tasks raised; keep what their lenses quarantined."""
        try:
            raise_failure(ran.notes)
        except SystemExit as error:
            raise PipelineError(f"a function of the pipeline ended it with sys.exit: {error}") from error
        check_closed(ran)
        settle(self._staging, ran.notes)

    def _by_group(self, ran: Ran) -> list[Ran]:
        groups = [Ran([], [], [], []) for _ in range(self._groups)]
        for task in ran.tasks:
            groups[self._owners[task.index]].tasks.append(task)
        for name in ("chunks", "notes", "listed"):
            for item in getattr(ran, name):
                getattr(groups[self._owners[item.task]], name).append(item)
        return groups


@dataclass(frozen=True, slots=True)
class Group:
    """The outputs of one recording that ran: the chunks of each of its stores, in their order, and warnings."""

    chunks: tuple[tuple[StoreEntry, list[PartChunk]], ...]
    warnings: tuple[str, ...] = ()


def run_groups(
    groups: Sequence[Outputs], staging: Staging, destination: str, options: RunOptions, *, digests: bool
) -> list[Group | Exception]:
    """Run the outputs of several recordings into parts below ``staging``; gives what each became, or its error.

    A failure of Spark itself (a worker that was killed too often) is tried again with each recording alone.
    """
    if not groups:
        return []
    inner = staging.inner()
    try:
        stage = GroupedStage(groups, inner, destination, digests=digests)
        ran = stage.run(options)
    except SessionStartError:
        raise
    except SessionError as error:
        if len(groups) == 1:
            return [error]
        return [run_groups([one], staging, destination, options, digests=digests)[0] for one in groups]
    return [_group(outputs, stage, one, inner) for outputs, one in zip(groups, ran, strict=True)]


def _group(outputs: Outputs, stage: GroupedStage, ran: Ran, inner: Staging) -> Group | Exception:
    try:
        stage.check(ran)
    except Exception as error:  # noqa: BLE001 (an outcome of its own)
        return error
    below = inner.location.rpartition("/")[2]
    at = 0
    found: list[tuple[StoreEntry, list[PartChunk]]] = []
    numbers = [task.index for task in ran.tasks]
    for store, work in outputs:
        mine = set(numbers[at : at + len(work.tasks)])
        at += len(work.tasks)
        found.append((store, [replace(c, part=f"{below}/{c.part}") for c in ran.chunks if c.task in mine]))
    warnings = dict.fromkeys(n.data["text"] for n in ran.notes if n.kind == "warning")
    return Group(tuple(found), tuple(warnings))
