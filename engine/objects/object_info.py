"""What a store says of an object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from .url import ObjectUrl

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store says of an object: its URL, its size in bytes, and a version that changes with its content.

    ``modified_ns``: when it was last written, in ns since 1970; most stores tell whole seconds.
    """

    url: ObjectUrl
    size: int
    version: str | None
    modified_ns: int

    @classmethod
    def of(cls, url: ObjectUrl, meta: Mapping[str, Any]) -> ObjectInfo:
        """What the store's library says of the object ``url``."""
        return cls(url, meta["size"], meta["e_tag"], since_epoch(meta["last_modified"]))


def since_epoch(time: datetime) -> int:
    """A time in ns since 1970."""
    return (time - _EPOCH) // _MICROSECOND * 1000
