"""Memory and processor time of a program with all its processes, seen from outside: Linux's ``/proc``."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PERIOD = 0.2


class Process(NamedTuple):
    """``kind`` is ``driver`` (a root), ``jvm``, ``worker`` (Python below a root) or ``other``."""

    kind: str
    name: str
    parent: int


@dataclass
class Usage:
    """What a tree of processes took, in MB and seconds.

    ``total`` is the largest sum, at one moment, of what each process has to itself and its share of what several have
    (PSS); ``without_jvm`` the same without Java; ``anonymous`` without the pages of files that are mapped. By kind of
    process: ``peak``, the largest resident size that one of them ever had, and ``cpu``, the seconds of all of them.
    """

    total: float = 0.0
    without_jvm: float = 0.0
    anonymous: float = 0.0
    peak: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)


class Watch:
    """Looks at the processes below ``roots`` five times a second."""

    def __init__(self, roots: list[int]) -> None:
        self.usage = Usage()
        self._roots = roots
        self._cpu: dict[int, tuple[str, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> Usage:
        """What was seen."""
        self._ended.set()
        self._thread.join()
        return self.usage

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD):
            self._look()

    def _look(self) -> None:
        shares = {"all": 0.0, "jvm": 0.0, "anonymous": 0.0}
        for pid, process in processes_below(self._roots).items():
            try:
                memory = _numbers(Path(f"/proc/{pid}/smaps_rollup"), ("Pss:", "Pss_Anon:"))
                peak = _numbers(Path(f"/proc/{pid}/status"), ("VmHWM:",))["VmHWM:"]
                cpu = _cpu_seconds(pid)
            except (OSError, KeyError):
                continue
            shares["all"] += memory["Pss:"]
            shares["anonymous"] += memory["Pss_Anon:"]
            shares["jvm"] += memory["Pss:"] if process.kind == "jvm" else 0.0
            self.usage.peak[process.kind] = max(self.usage.peak.get(process.kind, 0.0), peak)
            self._cpu[pid] = process.kind, cpu
        self.usage.total = max(self.usage.total, shares["all"])
        self.usage.anonymous = max(self.usage.anonymous, shares["anonymous"])
        self.usage.without_jvm = max(self.usage.without_jvm, shares["all"] - shares["jvm"])
        for kind in {kind for kind, _ in self._cpu.values()}:
            self.usage.cpu[kind] = sum(seconds for of, seconds in self._cpu.values() if of == kind)


@contextmanager
def watching(*roots: int) -> Iterator[Watch]:
    """Watch the processes below ``roots`` while the block runs."""
    watch = Watch(list(roots))
    try:
        yield watch
    finally:
        watch.end()


def cpu_seconds(root: int, kind: str) -> float:
    """Processor time that the processes of a kind below ``root`` have taken until now."""
    return sum(_cpu_seconds(pid) for pid, process in processes_below([root]).items() if process.kind == kind)


def processes_below(roots: list[int]) -> dict[int, Process]:
    """The processes that ``roots`` have started, and they themselves."""
    found: dict[int, Process] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                name, _, rest = (entry / "stat").read_text().partition(" (")[2].rpartition(")")
            except OSError:
                continue
            found[int(entry.name)] = Process("other", name, int(rest.split()[1]))
    below = set(roots)
    while grown := {pid for pid, process in found.items() if process.parent in below} - below:
        below |= grown
    return {pid: found[pid]._replace(kind=_kind(pid, found[pid], roots)) for pid in below if pid in found}


def _kind(pid: int, process: Process, roots: list[int]) -> str:
    if process.name.startswith("java"):
        return "jvm"
    if pid in roots:
        return "driver"
    return "worker" if process.name.startswith("python") else "other"


def _numbers(path: Path, names: tuple[str, ...]) -> dict[str, float]:
    """Lines of ``name kilobytes``, in MB."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) * 1024 / 1e6 for words in lines if words[0] in names}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
