"""Patterns: the objects that a URL means: one object, all below a prefix, or those that match a pattern."""

from __future__ import annotations

import glob
import warnings
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from wcmatch import glob as wcmatch

from ..errors import ReadWarning, SourceMissingError
from .bucket import bucket_of
from .url import ObjectUrl

_FLAGS: Final = wcmatch.GLOBSTAR | wcmatch.DOTGLOB | wcmatch.FORCEUNIX


class FoundObject(NamedTuple):
    """An object, and its key below the prefix (of a pattern: below the part without magic) it was found in."""

    url: ObjectUrl
    below: PurePosixPath


def is_one_object(url: ObjectUrl) -> bool:
    """Whether ``url`` names an object, rather than a prefix or a pattern."""
    return bool(url.key) and bucket_of(url).exists(url.key)


def find_objects(url: ObjectUrl, suffixes: tuple[str, ...], hidden: tuple[str, ...] = (".",)) -> list[FoundObject]:
    """All objects with one of ``suffixes`` below a prefix, or that match a pattern, in the order of their keys.

    A pattern may hold ``*``, ``?``, ``[]`` and ``**``. Names that begin with one of ``hidden``, and what lies below
    them, are left out. Raises ``SourceMissingError`` where there is none; what has a key that no request can name gives
    a :class:`ReadWarning`.
    """
    is_pattern = glob.has_magic(url.key)
    parts = url.key.split("/") if url.key else []
    fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    root = ObjectUrl(url.scheme, url.bucket, "/".join(parts[:fixed]))
    pattern = _compiled("/".join(parts[fixed:])) if is_pattern else None

    def is_meant(one: FoundObject) -> bool:
        return _is_wanted(one, suffixes, hidden) and (pattern is None or pattern.match(str(one.below)))

    def tell(odd: ObjectUrl, message: str) -> None:
        if is_meant(_found(odd, root)):
            warnings.warn(message, ReadWarning, stacklevel=5)

    below = bucket_of(root).list(root.key, odd=tell)
    found = list(filter(is_meant, (_found(one.url, root) for one in below)))
    if not found:
        raise SourceMissingError(
            "there is no such object, or no recording below this prefix or of this pattern",
            path=str(url),
            hint=f"Prefixes and patterns are searched for {', '.join(suffixes)} files.",
        )
    return found


def _found(url: ObjectUrl, root: ObjectUrl) -> FoundObject:
    start = len(root.key) + 1 if root.key else 0
    return FoundObject(url, PurePosixPath(url.key[start:]))


def _is_wanted(found: FoundObject, suffixes: tuple[str, ...], hidden: tuple[str, ...]) -> bool:
    folders = (part for part in found.below.parts if part not in (".", ".."))
    return found.url.name.lower().endswith(suffixes) and not any(p.startswith(hidden) for p in folders)


def _compiled(pattern: str) -> Any:
    """A pattern, as Python's own ``glob`` understands it of files, for keys.

    >>> [_compiled(p).match("x/b1.mcap") for p in ("**/*.mcap", "*/[a-c]?.mcap", "*.mcap")]
    [True, True, False]
    """
    return wcmatch.compile(pattern.replace("\\", r"\\").replace("[^", r"[\^"), flags=_FLAGS)
