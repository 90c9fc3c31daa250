"""The bucket of a URL, opened once in a process, and the objects below a prefix or matching a pattern."""

from __future__ import annotations

import os
import warnings
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ..errors import ReadWarning, SourceMissingError
from .bucket import Bucket, settings
from .http import HttpBucket
from .url import HTTP, ObjectUrl

_open: dict[tuple[str, tuple[tuple[str, str], ...]], Bucket] = {}


def _forget_http() -> None:
    """Open new HTTP connections in a forked process; those of other libraries cannot be used there."""
    for key in [key for key, bucket in _open.items() if isinstance(bucket, HttpBucket)]:
        del _open[key]


os.register_at_fork(after_in_child=_forget_http)


def bucket_of(url: ObjectUrl) -> Bucket:
    """The bucket of ``url``; opened once in this process for each state of the environment."""
    key = (url.root, settings())
    if key not in _open:
        _open[key] = _new_bucket(ObjectUrl(url.scheme, url.bucket, ""))
    return _open[key]


def _new_bucket(root: ObjectUrl) -> Bucket:
    if root.scheme not in HTTP:
        return Bucket(root)
    return HttpBucket(root)


class FoundObject(NamedTuple):
    """An object, and its key relative to the prefix, or for a pattern to the part without wildcards."""

    url: ObjectUrl
    below: PurePosixPath


def is_one_object(url: ObjectUrl) -> bool:
    """Return True if ``url`` names an object, rather than a prefix or a pattern."""
    return bool(url.key) and bucket_of(url).exists(url.key)


def find_objects(url: ObjectUrl, suffixes: tuple[str, ...], hidden: tuple[str, ...] = (".",)) -> list[FoundObject]:
    """All objects below a prefix with one of ``suffixes``, or matching a pattern, in key order.

    A pattern may hold ``*``, ``?``, ``[]`` and ``**``. Names that begin with one of ``hidden``, and objects below them,
    are omitted. Raises ``SourceMissingError`` if nothing is left. An object whose key no request can name gives a
    :class:`ReadWarning`.
    """
    import glob

    is_pattern = url.is_pattern
    parts = url.key.split("/") if url.key else []
    fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    root = ObjectUrl(url.scheme, url.bucket, "/".join(parts[:fixed]))
    pattern = _compiled("/".join(parts[fixed:])) if is_pattern else None

    def is_meant(candidate: FoundObject) -> bool:
        return _is_wanted(candidate, suffixes, hidden) and (pattern is None or pattern.match(str(candidate.below)))

    def tell(odd: ObjectUrl, message: str) -> None:
        if is_meant(_located(odd, root)):
            warnings.warn(message, ReadWarning, stacklevel=5)

    below = bucket_of(root).list(root.key, odd=tell)
    objects = list(filter(is_meant, (_located(candidate.url, root) for candidate in below)))
    if not objects:
        raise SourceMissingError(
            "there is no such object, or no recording below this prefix or for this pattern",
            path=str(url),
            hint=f"Prefixes and patterns are searched for {', '.join(suffixes)} files.",
        )
    return objects


def _located(url: ObjectUrl, root: ObjectUrl) -> FoundObject:
    start = len(root.key) + 1 if root.key else 0
    return FoundObject(url, PurePosixPath(url.key[start:]))


def _is_wanted(candidate: FoundObject, suffixes: tuple[str, ...], hidden: tuple[str, ...]) -> bool:
    folders = (part for part in candidate.below.parts if part not in (".", ".."))
    return candidate.url.name.lower().endswith(suffixes) and not any(p.startswith(hidden) for p in folders)


def _compiled(pattern: str) -> Any:
    """A pattern for keys, with the syntax of Python's ``glob`` for files.

    >>> [_compiled(p).match("x/b1.mcap") for p in ("**/*.mcap", "*/[a-c]?.mcap", "*.mcap")]
    [True, True, False]
    """
    from wcmatch import glob as wcmatch

    flags = wcmatch.GLOBSTAR | wcmatch.DOTGLOB | wcmatch.FORCEUNIX
    return wcmatch.compile(pattern.replace("\\", r"\\").replace("[^", r"[\^"), flags=flags)
