"""The options of backfills and loads, as their calls take them: checked, or said to be ignored."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from ..errors import UsageError, check_argument
from ..execution import RunOptions
from .batching import ASKED_READ_BYTES, FLUSH_SECONDS, LOAD_SECONDS, READ_BYTES, SECONDS, Batching
from .functions import UDF
from .planning import Window

IGNORED: Final = {
    "intra_applier_concurrency": "a task of Spark computes in one thread; give the session more cores",
    "task_shuffle_diversity": "Spark deals tasks as workers become free",
}
"""Options that mean nothing on Spark, and why."""

_KNOWN: Final = frozenset(
    {
        "commit_granularity",
        "read_version",
        "task_shuffle_diversity",
        "batch_size",
        "checkpoint_size",
        "task_size",
        "num_frags",
        "skip_frags",
        "executor",
        "progress",
        "recompute_stale",
    }
)


@dataclass(frozen=True)
class BackfillOptions:
    """Choices of a backfill beside its column, function and condition."""

    batching: Batching
    run: RunOptions
    concurrency: int
    task_size: int | None
    granularity: int | None
    window: Window
    recompute_stale: bool = False


def backfill_options(
    udf: UDF,
    *,
    concurrency: int,
    intra_applier_concurrency: int,
    min_checkpoint_size: int | None,
    max_checkpoint_size: int | None,
    flush_seconds: float | None,
    read_bytes: int | None,
    run: RunOptions,
    more: Mapping[str, Any],
) -> BackfillOptions:
    """The options, checked. Raises ``TypeError`` for one that is unknown, ``UsageError`` for one that cannot be."""
    unknown = more.keys() - _KNOWN
    if unknown:
        raise TypeError(f"backfill() got an unexpected keyword argument {min(unknown)!r}")
    checked_count("concurrency", concurrency)
    for name in ("checkpoint_size", "batch_size", "skip_frags", "num_frags", "commit_granularity"):
        check_argument(name, more.get(name), int, type(None))
    for name, value in (("min_checkpoint_size", min_checkpoint_size), ("max_checkpoint_size", max_checkpoint_size)):
        check_argument(name, value, int, type(None))
    check_argument("batch_checkpoint_flush_interval_seconds", flush_seconds, float, int, type(None))
    checked_count("blob_read_buffer_size", read_bytes)
    if intra_applier_concurrency != 1:
        warn_ignored("intra_applier_concurrency")
    if more.get("task_shuffle_diversity") is not None:
        warn_ignored("task_shuffle_diversity")
    first = more.get("checkpoint_size")
    if more.get("batch_size") is not None:
        warnings.warn("batch_size is called checkpoint_size now", DeprecationWarning, stacklevel=4)
        first = first if first is not None else more["batch_size"] or 2**31
    first = first if first is not None else udf.checkpoint_size
    batching = Batching(
        first=first,
        least=min_checkpoint_size or udf.min_checkpoint_size,
        most=max_checkpoint_size or udf.max_checkpoint_size,
        seconds=SECONDS,
        flush_seconds=FLUSH_SECONDS if flush_seconds is None else flush_seconds,
        read_bytes=read_bytes if read_bytes is not None else READ_BYTES if first is None else ASKED_READ_BYTES,
    )
    granularity = more.get("commit_granularity", 0)
    if granularity is not None and ("commit_granularity" in more and granularity < 1):
        raise UsageError(f"commit_granularity must be at least 1, or None, got {granularity}")
    return BackfillOptions(
        batching,
        run,
        concurrency,
        checked_task_size(more.get("task_size")) or udf.task_size,
        granularity,
        window_of(more.get("num_frags"), more.get("skip_frags") or 0),
        bool(more.get("recompute_stale")),
    )


def load_batching(first: int | None, least: int | None, most: int | None, seconds: float | None) -> Batching:
    """Limits of the rows that a load reads at once."""
    if seconds is not None and seconds <= 0:
        raise UsageError(f"checkpoint_interval_seconds must be more than 0, got {seconds}")
    return Batching(first=first, least=least or 1, most=most, seconds=seconds or LOAD_SECONDS)


def checked_task_size(given: int | None) -> int | None:
    """The rows of a task that are asked for. Raises ``UsageError``."""
    return checked_count("task_size", given)


def checked_count(name: str, given: int | None) -> int | None:
    """A number of things that are asked for. Raises ``TypeError``, or ``UsageError`` for less than one."""
    check_argument(name, given, int, type(None))
    if given is not None and given < 1:
        raise UsageError(f"{name} must be at least 1, got {given}")
    return given


def checked_job_id(given: str | None) -> str:
    """The id of a job, by default a new one. Raises ``UsageError`` for one that is no name of a file."""
    check_argument("job_id", given, str, type(None))
    if given and not re.fullmatch(r"\w[\w.-]{0,99}", given, re.ASCII):
        raise UsageError(f"a job_id has letters, digits, '_', '.' and '-', at most 100, and is not {given!r}")
    return given or uuid4().hex


def window_of(num_frags: int | None, skip_frags: int) -> Window:
    """The fragments of a table that are looked at. Raises ``UsageError``.

    >>> window_of(50, 100)
    (100, 150)
    """
    check_argument("num_frags", num_frags, int, type(None))
    check_argument("skip_frags", skip_frags, int)
    if skip_frags < 0 or (num_frags is not None and num_frags < 1):
        raise UsageError(f"num_frags must be at least 1 and skip_frags at least 0, got {num_frags} and {skip_frags}")
    return skip_frags, None if num_frags is None else skip_frags + num_frags


def warn_ignored(name: str) -> None:
    """Warn that an option does nothing here, and say why."""
    warnings.warn(f"{name} is ignored: {IGNORED[name]}", UserWarning, stacklevel=5)
