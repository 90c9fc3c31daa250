"""Executors: who runs a stage, by argument or environment, and how ``auto`` chooses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

from ..errors import UsageError
from ..spark import check_not_in_task, in_task

EXECUTORS: Final = ("auto", "inline", "spark")

_START_SECONDS: Final = 2.5
_RUNNING_SECONDS: Final = 0.2
"""Seconds until the first task begins where Spark has to be started, and where it runs already (2 cores)."""

_BYTES_A_SECOND: Final = 25_000_000
_OWN_BYTES_A_SECOND: Final = 5_000_000
"""Bytes of input that this process reads and writes in a second, at least, and with functions of the user's own.

A mixture of ROS messages takes 60 MB/s of a core; less is reckoned with, as Spark has several of them.
"""

_QUERIED_BYTES_A_SECOND: Final = 300_000_000
"""Bytes of chunks that this process makes rows of in a second.

Numbers of one long segment: 180 MB/s, of several 320 MB/s, and by Spark 320 MB/s, which takes them longer to begin (2
cores).
"""


def executor_name(given: str | None) -> str:
    """The executor to use: the argument, else ``CHUNKMILL_EXECUTOR``, else ``spark``; within a task, ``inline``.

    ``auto`` is ``spark`` where it is not known how much there is to do; see :func:`executor_for`. Raises
    ``UsageError`` for a name that is none, and within a task for ``spark``.
    """
    return executor_for(given, lambda: None)


def is_auto(given: str | None) -> bool:
    """Whether the executor that is asked for, by argument or environment, is chosen by what there is to do."""
    return _asked_for(given) == "auto"


def executor_for(given: str | None, num_bytes: Callable[[], int | None], *, own_functions: bool = False) -> str:
    """The executor to use, as by :func:`executor_name`; ``auto`` is chosen by the bytes of input.

    That is ``inline`` where they are local, and take this process less time than it takes Spark to begin: 60 MB where
    it is not started yet, 5 MB where it is; a fifth of that with functions of the user's own, of which nothing is
    known.
    ``num_bytes`` is asked only for ``auto``; None: not known, or not local.
    """
    name = _asked_for(given)
    if name != "auto":
        return name
    return _quicker(num_bytes, _OWN_BYTES_A_SECOND if own_functions else _BYTES_A_SECOND)


def query_executor(given: str | None, num_bytes: Callable[[], int | None]) -> str:
    """The executor of a query: by argument or environment; where neither says one, as for ``auto``.

    That is ``inline`` where this process reads ``num_bytes``, those of the chunks that are needed, before Spark begins:
    750 MB where it is not started yet, 60 MB where it is.
    """
    name = _asked_for(given) if given or in_task() or os.environ.get("CHUNKMILL_EXECUTOR") else "auto"
    return _quicker(num_bytes, _QUERIED_BYTES_A_SECOND) if name == "auto" else name


def _quicker(num_bytes: Callable[[], int | None], bytes_a_second: int) -> str:
    if in_task():
        return "inline"
    found = num_bytes()
    seconds = None if found is None else found / bytes_a_second
    limit = _RUNNING_SECONDS if "pyspark" in sys.modules and _has_session() else _START_SECONDS
    return "spark" if seconds is None or seconds > limit else "inline"


def _asked_for(given: str | None) -> str:
    if given == "spark":
        check_not_in_task()
    name = given or ("inline" if in_task() else os.environ.get("CHUNKMILL_EXECUTOR")) or "spark"
    if name not in EXECUTORS:
        raise UsageError(f"unknown executor {name!r}", hint=f"Use one of: {', '.join(EXECUTORS)}.")
    return name


def _has_session() -> bool:
    from ..spark import session_is_there

    return session_is_there()
