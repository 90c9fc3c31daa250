"""Points in the history of a dataset or table (a version's number, a time, a tag), and the author of a version."""

from __future__ import annotations

import getpass
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..errors import AlreadyExistsError, NotFoundError, UsageError
from ..units import utc_time

VersionPoint = int | str | datetime | np.datetime64
"""A version: its number, a time when it was the newest, or a tag. Text with a colon is a time, other text a tag."""

VERSION_FIELDS: Final = (
    pa.field("version", pa.int64(), nullable=False),
    pa.field("made_at", pa.timestamp("us", "UTC"), nullable=False),
    pa.field("author", pa.string()),
    pa.field("operation", pa.string()),
    pa.field("restored", pa.int64()),
    pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
)
"""The first columns of a list of versions; its counts follow."""
_TAG: Final = re.compile(r"[0-9A-Za-z_-]([0-9A-Za-z._-]*[0-9A-Za-z_-])?")
_LONGEST_TAG: Final = 180
_POINTS: Final = (
    "Give a version number, a tag, or a time: a datetime, a numpy.datetime64, or RFC 3339 text such as "
    "2026-11-29T12:00:00Z."
)


def check_tag(name: str) -> None:
    """Raise ``UsageError`` if ``name`` is not a valid tag.

    A tag has ASCII letters and digits, ``.``, ``-`` and ``_``, as in Lance. It is not a number, which would mean a
    version.

    >>> check_tag("v1/2")
    Traceback (most recent call last):
    chunkmill.engine.errors.UsageError: CM501: 'v1/2' is not a valid tag name. Use up to 180 letters, digits, . - \
and _, without a dot at either end or two dots in a row. A number alone is a version, not a tag.
    """
    is_tag = isinstance(name, str) and len(name) <= _LONGEST_TAG and _TAG.fullmatch(name) is not None
    if not is_tag or name.isdigit() or ".." in name or name.endswith(".lock"):
        raise UsageError(
            f"{name!r} is not a valid tag name",
            hint=f"Use up to {_LONGEST_TAG} letters, digits, . - and _, without a dot at either end or two dots in a "
            "row. A number alone is a version, not a tag.",
        )


def moved_tag(tags: Mapping[str, int], name: str, number: int, *, move: bool, path: str) -> dict[str, int]:
    """Return tags with ``name`` at version ``number``, added or moved.

    Raises ``AlreadyExistsError`` if the tag is at another version, unless ``move``.
    """
    if tags.get(name, number) != number and not move:
        raise AlreadyExistsError(
            f"tag {name!r} already names version {tags[name]}",
            path=path,
            hint="Choose another name, or move the tag: move=True, or --move.",
        )
    return {**tags, name: number}


def without_tag(tags: Mapping[str, int], name: str, *, path: str) -> dict[str, int]:
    """Return tags without ``name``. Raises ``NotFoundError`` for an unknown tag."""
    if name not in tags:
        raise NotFoundError(f"there is no tag {name!r}", path=path, hint=_tags_hint(tags))
    return {other: number for other, number in tags.items() if other != name}


def number_at(
    point: VersionPoint,
    numbers: Iterable[int],
    tags: Mapping[str, int],
    made_ns: Callable[[int], int],
    *,
    what: str,
    path: str,
) -> int:
    """Return the version number for a point.

    A time means the newest version at that time. ``numbers`` are the existing versions, ascending, and ``made_ns``
    returns the time of a version. ``what`` names their owner in errors.

    Raises ``NotFoundError`` if there is no such version or tag, or if the version of a time was removed; ``UsageError``
    for an invalid point or a future time.
    """
    if isinstance(point, (int, np.integer)) and not isinstance(point, bool):
        return _existing(int(point), list(numbers), what, path)
    if isinstance(point, str) and ":" not in point:
        check_tag(point)
        if point not in tags:
            hint = _tags_hint(tags)
            if point[:4].isdigit():
                hint += " A time needs hours and minutes: 2026-11-29T00:00:00Z."
            raise NotFoundError(f"{what} has no tag {point!r}", path=path, hint=hint)
        return tags[point]
    wanted = nanoseconds_at(point)
    if wanted > time.time_ns():
        raise UsageError(f"{_shown(wanted)} is in the future", path=path, hint="A time without a zone is in UTC.")
    following = made = 0
    for number in reversed(list(numbers)):
        made = made_ns(number)
        if made <= wanted:
            if made == wanted or following in (0, number + 1):
                return number
            break
        following = number
    if not following:
        raise NotFoundError(f"{what} has no versions", path=path)
    if following == 1:
        raise NotFoundError(
            f"{what} was empty at {_shown(wanted)}", path=path, hint=f"Its first version is from {_shown(made)}."
        )
    raise NotFoundError(
        f"the version of {what} at {_shown(wanted)} was removed",
        path=path,
        hint="list_versions() lists the existing versions; a tag keeps a version.",
    )


def nanoseconds_at(point: Any) -> int:
    """Return a time in nanoseconds since 1970; without a zone it is in UTC. Raises ``UsageError`` if it is invalid.

    >>> nanoseconds_at("1970-01-01T00:00:01Z")
    1000000000
    """
    if isinstance(point, np.datetime64) and not np.isnat(point):
        return int(point.astype("datetime64[ns]").astype(np.int64))
    if isinstance(point, str):
        with suppress(ValueError):
            point = datetime.fromisoformat(point)
    if not isinstance(point, datetime) or point != point:  # pandas' NaT, for example
        raise UsageError(f"{point!r} is not a version", hint=_POINTS)
    since = (point if point.tzinfo is not None else point.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def _existing(number: int, numbers: list[int], what: str, path: str) -> int:
    if number < 1:
        raise UsageError(f"versions are numbered from 1, got {number}")
    if number in numbers:
        return number
    if not numbers:
        raise NotFoundError(f"{what} has no versions", path=path)
    kept = f"{numbers[0]} to {numbers[-1]}" if numbers[-1] - numbers[0] + 1 == len(numbers) else _some(numbers)
    is_removed = number < numbers[-1]
    reason = "it was removed" if is_removed else "it does not exist yet"
    hint = f"There are: {kept}." + " A tag keeps a version." * is_removed
    raise NotFoundError(f"{what} has no version {number}: {reason}", path=path, hint=hint)


def _some(numbers: list[int]) -> str:
    shown = list(map(str, numbers)) if len(numbers) <= 12 else [*map(str, numbers[:6]), "…", *map(str, numbers[-5:])]
    return ", ".join(shown)


def _tags_hint(tags: Mapping[str, int]) -> str:
    return f"There are: {', '.join(sorted(tags)[:12]) or 'none'}."


def _shown(nanoseconds: int) -> str:
    return utc_time(nanoseconds / 1e9)


def author() -> str | None:
    """Return this process's user name, the author of its versions, or None if the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None
