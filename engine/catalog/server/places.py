"""Places that clients may name: files to register, and folders for tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...locations import located
from .methods import ProtocolError, Status


def check_places(urls: Iterable[str], allowed: Sequence[str] | None) -> None:
    """Raise :class:`ProtocolError` unless each path or URL lies below one of those ``allowed``; None allows all.

    Local paths are compared as they are once their links are followed.
    """
    roots = [_resolved(root) for root in allowed or ()]
    for url in urls:
        if "\0" in url:
            raise ProtocolError(Status.INVALID_ARGUMENT, f"{url[:500]!r} is no path, nor a URL")
        if allowed is None:
            continue
        place = _resolved(url)
        if not any(place == root or place.startswith(f"{root.rstrip('/')}/") for root in roots):
            text = f"this server does not open {url[:500]!r}: it lies in no folder that --allow names"
            raise ProtocolError(Status.PERMISSION_DENIED, text)


def _resolved(url: str) -> str:
    location = located(url)
    return os.path.realpath(location) if isinstance(location, Path) else os.path.normpath(str(location))
