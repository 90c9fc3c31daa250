"""Memory and processor time of a program with all its processes, seen from outside."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_PERIOD = 0.2


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
        for process, kind in processes_below(self._roots):
            try:
                memory = _numbers(Path(f"/proc/{process.pid}/smaps_rollup"), ("Pss:", "Pss_Anon:"))
                peak = _numbers(Path(f"/proc/{process.pid}/status"), ("VmHWM:",))["VmHWM:"]
                cpu = _cpu_seconds(process)
            except (OSError, KeyError, psutil.Error):
                continue
            shares["all"] += memory["Pss:"]
            shares["anonymous"] += memory["Pss_Anon:"]
            shares["jvm"] += memory["Pss:"] if kind == "jvm" else 0.0
            self.usage.peak[kind] = max(self.usage.peak.get(kind, 0.0), peak)
            self._cpu[process.pid] = kind, cpu
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
    return sum(_cpu_seconds(process) for process, of in processes_below([root]) if of == kind)


def processes_below(roots: list[int]) -> list[tuple[psutil.Process, str]]:
    """The processes that ``roots`` have started, and they themselves, each with its kind.

    ``driver`` (a root), ``jvm``, ``worker`` (Python below a root) or ``other``.
    """
    found: dict[int, psutil.Process] = {}
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            top = psutil.Process(root)
            found |= {process.pid: process for process in [top, *top.children(recursive=True)]}
    kinds = []
    for process in found.values():
        with suppress(psutil.NoSuchProcess):
            kinds.append((process, _kind(process, roots)))
    return kinds


def _kind(process: psutil.Process, roots: list[int]) -> str:
    name = process.name()
    if name.startswith("java"):
        return "jvm"
    if process.pid in roots:
        return "driver"
    return "worker" if name.startswith("python") else "other"


def _numbers(path: Path, names: tuple[str, ...]) -> dict[str, float]:
    """Lines of ``name kilobytes``, in MB: ``psutil`` knows neither the share without mapped files nor the peak."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) * 1024 / 1e6 for words in lines if words[0] in names}


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
