"""The age from which what nothing needs may be removed from a catalog."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from ..errors import UsageError

WEEK: Final = timedelta(days=7)
"""What is younger may still be in use: by a long query, or a writer that sleeps."""


def a_week_ago() -> datetime:
    """The time before which things are old."""
    return datetime.now(UTC) - WEEK


def age_of(before: datetime, *, allow_recent: bool) -> timedelta:
    """The age of what is from a time, which is in UTC where it has no zone.

    Raises ``UsageError`` for less than a week, unless that is allowed.
    """
    when = before if before.tzinfo is not None else before.replace(tzinfo=UTC)
    age = datetime.now(UTC) - when
    if age < WEEK - timedelta(minutes=1) and not allow_recent:
        raise UsageError(
            f"versions that are younger than {WEEK.days} days may still be in use, and are not removed",
            hint="Name an earlier cleanup_before, or say unsafe_allow_recent_cleanup=True.",
        )
    return max(age, timedelta())
