"""What ``chunkmill compact`` does."""

from __future__ import annotations

import click

from ..errors import UsageError
from ..ingest.home import home_of
from ..locations import located
from ..recordings import CompactionReport
from ..store import RecordingStore
from ..units import size as shown_size
from .ingesting import PROFILES, bytes_of
from .warning_lines import warnings_as_lines


def compact_recordings(
    *, store: str, optimize: str, min_shard: str, executor: str | None, master: str | None, conf: dict[str, str]
) -> None:
    """Compact a store, under its lease, and say what was done."""
    wants_spark = master is not None or bool(conf)
    if executor == "inline" and wants_spark:
        raise UsageError("--master and --conf are for Spark, and --executor inline runs without it")
    home = home_of(located(store))
    with warnings_as_lines(home):
        report = RecordingStore.open(home).compact(
            optimize=PROFILES[optimize],
            min_shard=bytes_of(min_shard),
            executor=executor or ("spark" if wants_spark else None),
            master=master,
            conf=conf or None,
        )
    for line in lines_of(report):
        click.echo(line)


def lines_of(report: CompactionReport) -> list[str]:
    """What a compaction did, as text."""
    if not report.versions:
        return [f"nothing to do: {_count(report.shards_after, 'shard')}, {shown_size(report.bytes_after)}"]
    found = [
        (
            f"{_count(report.shards_before, 'shard')} -> {report.shards_after:,}, "
            f"{_count(report.manifests_before, 'manifest')} -> {report.manifests_after:,}, "
            f"{shown_size(report.bytes_before)} -> {shown_size(report.bytes_after)}"
        ),
        (
            f"{_count(report.moved, 'recording')} rewritten, {report.laid_out:,} laid out anew, "
            f"{shown_size(report.written)} written in {report.seconds:.1f} s; version {report.versions[-1]}"
        ),
    ]
    if report.damaged:
        found.append(f"{_count(len(report.damaged), 'recording')} damaged, left alone: {', '.join(report.damaged)}")
    return found


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
