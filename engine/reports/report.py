"""The report of a run, in figures."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import Any, Final

from ..task_context import PHASES
from ..units import counted, duration, size


@dataclass(frozen=True, slots=True)
class SizeHistogram:
    """Numbers of chunks by their bytes: ``counts[n]`` is the number of sizes from 2^(n-1) to 2^n - 1, 0 that of 0.

    >>> SizeHistogram.of([0, 1, 1000, 1023, 1024]).counts
    {0: 1, 1: 1, 10: 2, 11: 1}
    """

    counts: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, sizes: Iterable[int]) -> SizeHistogram:
        """Count sizes in bytes."""
        return cls(dict(sorted(Counter(size.bit_length() for size in sizes).items())))

    @classmethod
    def sum(cls, histograms: Iterable[SizeHistogram]) -> SizeHistogram:
        """All of them together."""
        total: Counter[int] = Counter()
        for histogram in histograms:
            total.update(histogram.counts)
        return cls(dict(sorted(total.items())))

    @property
    def chunks(self) -> int:
        """Number of sizes counted."""
        return sum(self.counts.values())


REPORT_VERSION: Final = 1
"""Version of the JSON form; a field may be added without another one."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """One task. ``start`` and ``seconds`` are wall time, counted from the start of the run.

    ``phases`` are seconds by phase (:data:`~chunkmill.engine.task_context.PHASES`); what is left of ``seconds`` is none
    of them. ``bytes_in`` is the size of the split in its source, ``bytes_out`` that of the part, ``bytes_passed`` as
    much of it as was copied without being decoded. ``worker`` is the process that ran it, ``host:pid``.
    """

    index: int
    label: str
    start: float
    seconds: float
    phases: Mapping[str, float]
    chunks: int
    rows: int
    bytes_in: int
    bytes_out: int
    bytes_passed: int
    worker: str


@dataclass(frozen=True, slots=True)
class EntityReport:
    """Totals of one entity. ``bytes`` are those of its messages, compressed."""

    entity_path: str
    chunks: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class RunReport:
    """The figures of a finished run; a notebook shows them as the page of :func:`save_report` does.

    ``bytes_in`` are source bytes, ``bytes_out`` those of the destination.

    ``started`` is the Unix time at which the run began, ``seconds`` its length. ``phases`` has the seconds of ``plan``
    (sources opened and divided) and ``commit`` on the driver, and those of the tasks' phases, added up over tasks that
    ran side by side; ``start`` is the time from the plan to the first task: with a cold Spark, the start of its
    session. ``sizes_in`` are the sizes of the chunks from the sources: bytes in memory or, if they were not
    decoded, as stored; ``sizes_out`` are those of the chunks that were written, before compression. ``query`` has the
    metrics of a query by their names, where the run was one; durations are seconds.
    """

    splits: int
    chunks: int
    rows: int
    bytes_in: int
    bytes_out: int
    seconds: float
    warnings: tuple[str, ...] = field(default=())
    bytes_passed: int = 0
    started: float = 0.0
    executor: str = ""
    destination: str = ""
    plan: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)
    tasks: Sequence[TaskReport] = field(default=(), repr=False)
    entities: Sequence[EntityReport] = field(default=(), repr=False)
    sizes_in: SizeHistogram = field(default_factory=SizeHistogram, repr=False)
    sizes_out: SizeHistogram = field(default_factory=SizeHistogram, repr=False)
    query: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def skew(self) -> float:
        """The time of the longest task divided by that of the median task: 1 if all are equal, 0 without tasks."""
        seconds = [task.seconds for task in self.tasks]
        middle = statistics.median(seconds) if seconds else 0.0
        return max(seconds) / middle if middle > 0 else 0.0

    @classmethod
    def joined(cls, reports: Sequence[RunReport], destination: str, began: float, seconds: float) -> RunReport:
        """Several runs as one report: figures added up, tasks on one axis of time.

        They ``began`` together at that Unix time and took ``seconds``; ``start`` is what came before the first task,
        but for planning.
        """
        first = reports[0]
        entities: dict[str, list[int]] = {}
        for entity in (e for report in reports for e in report.entities):
            counts = entities.setdefault(entity.entity_path, [0, 0, 0])
            for i, n in enumerate((entity.chunks, entity.rows, entity.bytes)):
                counts[i] += n
        moved = [(task, r.started - began) for r in reports for task in r.tasks]
        names = dict.fromkeys(name for report in reports for name in report.phases)
        phases = {name: sum(r.phases.get(name, 0.0) for r in reports) for name in names}
        first_task = min((task.start + shift for task, shift in moved), default=0.0)
        planned = sum(r.phases.get("plan", 0.0) for r in reports if r.started - began < first_task)
        phases["start"] = max(0.0, first_task - planned)
        return cls(
            splits=sum(r.splits for r in reports),
            chunks=sum(r.chunks for r in reports),
            rows=sum(r.rows for r in reports),
            bytes_in=sum(r.bytes_in for r in reports),
            bytes_out=sum(r.bytes_out for r in reports),
            seconds=seconds,
            warnings=tuple(dict.fromkeys(text for r in reports for text in r.warnings)),
            bytes_passed=sum(r.bytes_passed for r in reports),
            started=began,
            executor=first.executor,
            destination=destination,
            plan="\n".join(r.plan for r in reports),
            phases=phases,
            tasks=[replace(t, index=i, start=t.start + shift) for i, (t, shift) in enumerate(moved)],
            entities=sorted(
                (EntityReport(path, *counts) for path, counts in entities.items()),
                key=lambda e: (-e.bytes, e.entity_path),
            ),
            sizes_in=SizeHistogram.sum(r.sizes_in for r in reports),
            sizes_out=SizeHistogram.sum(r.sizes_out for r in reports),
        )

    def __repr__(self) -> str:
        """The figures that matter first, in a line.

        >>> RunReport(2, 18, 3513, 782_496, 1_204_000, 1.25, destination="drive.rrd")
        RunReport(drive.rrd: 3,513 rows in 18 chunks, 782.5 kB -> 1.2 MB, 1.2 s)
        """
        into = f"{self.destination}: " if self.destination else ""
        warned = f", {counted(len(self.warnings), 'warning')}" if self.warnings else ""
        return (
            f"RunReport({into}{counted(self.rows, 'row')} in {counted(self.chunks, 'chunk')}, "
            f"{size(self.bytes_in)} -> {size(self.bytes_out)}, {duration(self.seconds)}{warned})"
        )

    def _repr_html_(self) -> str:
        shown: str = import_module(".page", __package__).report_panel(self)  # the page is made of reports
        return shown

    def to_dict(self) -> dict[str, Any]:
        """All figures, as JSON has them."""
        found = asdict(self)
        for name in ("sizes_in", "sizes_out"):
            found[name] = {str(bits): count for bits, count in found[name]["counts"].items()}
        return {"version": REPORT_VERSION, **found, "skew": self.skew}

    def to_json(self) -> str:
        """The report as JSON, with ``version`` 1."""
        return json.dumps(self.to_dict(), indent=1)

    @property
    def task_seconds(self) -> float:
        """Seconds of all tasks."""
        return sum(task.seconds for task in self.tasks)

    def shares(self) -> list[tuple[str, float]]:
        """The phases with their seconds, in the order of a run; ``other`` is the rest of the tasks' time."""
        order = ("plan", "start", *PHASES, "other", "commit")
        return [(name, self.phases[name]) for name in order if name in self.phases]
