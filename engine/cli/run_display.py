"""The display of a run: the line on each input that was converted, and what ``--stats`` prints."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ..reports import RunReport
from ..units import duration, size

_MEANINGS = {
    "plan": "sources opened and divided",
    "start": "until the first task began",
    "read": "from the source, decompressed and checked",
    "decode": "made into columns",
    "operate": "filters, lenses, functions",
    "encode": "made into compressed messages",
    "write": "to parts, made durable",
    "other": "the rest of the tasks",
    "commit": "parts joined and committed",
}


def print_stats(report: RunReport, chosen: str = "") -> None:
    """Print the report on stderr; ``chosen``: why it ran where it did, if that was left open."""
    console = Console(stderr=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("", justify="right")
    table.add_column("")
    total = sum(seconds for _, seconds in report.shares()) or 1.0
    for name, seconds in report.shares():
        table.add_row(name, f"{seconds:.3f}", f"{100 * seconds / total:.0f} %", _MEANINGS[name])
    console.print(table)
    for line in [*_lines(report), *([f"executor {report.executor}; {chosen}"] if chosen else [])]:
        console.print(line, highlight=False, soft_wrap=True)


def _lines(report: RunReport) -> list[str]:
    """Figures below the table.

    >>> for line in _lines(RunReport(2, 18, 3513, 782_496, 1_204_000, 1.25, bytes_passed=700_000)):
    ...     print(line)
    2 tasks in 1.2 s, together 0.00 s; the longest took 0.0 times the median
    782.5 kB -> 1.2 MB, of them 700.0 kB passed through undecoded; 3,513 rows in 18 chunks
    """
    tasks = (
        f"{report.splits:,} tasks in {duration(report.seconds)}, together {duration(report.task_seconds)}; "
        f"the longest took {report.skew:.1f} times the median"
    )
    data = (
        f"{size(report.bytes_in)} -> {size(report.bytes_out)}, of them {size(report.bytes_passed)} passed through "
        f"undecoded; {report.rows:,} rows in {report.chunks:,} chunks"
    )
    return [tasks, data]
