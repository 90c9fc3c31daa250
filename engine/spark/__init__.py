"""Spark's session: a JVM that starts quickly, warm workers, jobs that a signal cancels; nothing about chunks.

No other package uses private state of pyspark. The names below are loaded on first use.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".gateway": (
        "INTERRUPTED TERMINATED Terminated cancel_jobs_while cancel_tagged check_not_in_task in_task "
        "interrupt_behind interruptible make_active note_signal raise_in_thread signal_since tag_jobs tries_before "
        "waiting_for_jobs"
    ),
    ".session": (
        "Resources give_up_start resources_of running_session said_by_cluster session_for_user session_is_ours "
        "session_is_there start_ahead stop_session"
    ),
    ".session_conf": "is_local",
    ".value_types": "arrow_of spark_array spark_form spark_schema",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
