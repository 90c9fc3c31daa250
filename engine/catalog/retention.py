"""The age from which what nothing needs may be removed from a catalog."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from ..errors import UsageError
from ..units import Moment, age_of_moment

WEEK: Final = timedelta(days=7)
"""What is younger may still be in use: by a long query, or a writer that sleeps."""


def a_week_ago() -> datetime:
    """The time before which things are old."""
    return datetime.now(UTC) - WEEK


def age_of(cleanup_before: Moment, *, allow_recent: bool) -> timedelta:
    """The age of what is from a time.

    Raises ``UsageError`` for what is no time, and for less than a week, unless that is allowed.
    """
    age = age_of_moment("cleanup_before", cleanup_before)
    if age < WEEK - timedelta(minutes=1) and not allow_recent:
        raise UsageError(
            f"versions that are younger than {WEEK.days} days may still be in use, and are not removed",
            hint="Name an earlier cleanup_before, or say unsafe_allow_recent_cleanup=True.",
        )
    return max(age, timedelta())
