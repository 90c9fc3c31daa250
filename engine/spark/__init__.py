"""Spark's session: a JVM that starts quickly, workers that are ready, jobs that a signal cancels; nothing of chunks.

The one place that knows private state of pyspark. The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .gateway import (
        INTERRUPTED,
        TERMINATED,
        Terminated,
        cancel_jobs_while,
        cancel_tagged,
        check_not_in_task,
        in_task,
        interrupt_behind,
        interruptible,
        note_signal,
        raise_in_thread,
        signal_since,
        tag_jobs,
        tries_before,
        waiting_for_jobs,
    )
    from .session import (
        Resources,
        give_up_start,
        resources_of,
        running_session,
        said_by_cluster,
        session_for_user,
        session_is_ours,
        session_is_there,
        start_ahead,
        stop_session,
    )
    from .session_conf import is_local
    from .value_types import arrow_of, spark_array, spark_form, spark_schema

_HOMES = {
    ".gateway": (
        "INTERRUPTED TERMINATED Terminated cancel_jobs_while cancel_tagged check_not_in_task in_task "
        "interrupt_behind interruptible note_signal raise_in_thread signal_since tag_jobs tries_before "
        "waiting_for_jobs"
    ),
    ".session": (
        "Resources give_up_start resources_of running_session said_by_cluster session_for_user session_is_ours "
        "session_is_there start_ahead stop_session"
    ),
    ".session_conf": "is_local",
    ".value_types": "arrow_of spark_array spark_form spark_schema",
}

__all__ = [
    "INTERRUPTED",
    "Resources",
    "TERMINATED",
    "Terminated",
    "arrow_of",
    "cancel_jobs_while",
    "cancel_tagged",
    "check_not_in_task",
    "give_up_start",
    "in_task",
    "interrupt_behind",
    "interruptible",
    "is_local",
    "note_signal",
    "raise_in_thread",
    "resources_of",
    "running_session",
    "said_by_cluster",
    "session_for_user",
    "session_is_ours",
    "session_is_there",
    "signal_since",
    "spark_array",
    "spark_form",
    "spark_schema",
    "start_ahead",
    "stop_session",
    "tag_jobs",
    "tries_before",
    "waiting_for_jobs",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
