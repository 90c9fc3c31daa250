"""Locations of files: local paths and objects in a store, as a user writes them, and the files in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from .errors import UsageError
from .storage import ObjectUrl, bucket_of, is_url

_S3A: Final = re.compile(r"^s3[an]://")

Location = Path | ObjectUrl
"""A place that can be read or written. Both have ``name``, ``stem``, ``suffix``, ``parent`` and ``/``."""


def located(location: str | os.PathLike[str]) -> Location:
    """The place that ``location`` names: an absolute local path (of a ``file://`` URL, too), or an object in a store.

    Raises ``UsageError`` for a URL of another kind.

    >>> str(located("file:///data/a%20b.rrd")), str(located("s3://fleet/drive.rrd"))
    ('/data/a b.rrd', 's3://fleet/drive.rrd')
    """
    if isinstance(location, ObjectUrl):
        return location
    text = os.fspath(location)
    if not is_url(text):
        return Path(text).absolute()
    url = urlsplit(text)
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return Path(unquote(url.path))
    return ObjectUrl.of(text)


def true_place(location: str | os.PathLike[str]) -> str:
    """The place that ``location`` names, as text for comparisons: local links are followed, and ``..`` is resolved.

    Raises ``UsageError`` for a URL of another kind.

    >>> true_place("s3a://fleet/lake/"), true_place("s3://fleet/lake")
    ('s3:/fleet/lake', 's3:/fleet/lake')
    """
    place = located(location)
    return os.path.realpath(place) if isinstance(place, Path) else os.path.normpath(_S3A.sub("s3://", str(place)))


def is_below(place: str, folder: str) -> bool:
    """Return whether a place is a folder, or in it; both as :func:`true_place` gives them.

    >>> is_below("/lake/x", "/lake"), is_below("/lakes", "/lake")
    (True, False)
    """
    return place == folder or place.startswith(f"{folder.rstrip('/')}/")


def reading_location(location: str | os.PathLike[str]) -> Location:
    """The place that ``location`` names; a relative local path stays relative."""
    if isinstance(location, ObjectUrl):
        return location
    text = os.fspath(location)
    return located(text) if is_url(text) else Path(text)


def exists(location: Location) -> bool:
    """Return whether there is something at that path, or such an object. Raises ``ReadError`` if a store does not
    answer.
    """
    if isinstance(location, ObjectUrl):
        return location.listed is not None or bucket_of(location).exists(location.key)
    return location.exists()


def writable(location: Location) -> Location:
    """Return a place to write to. Raises ``UsageError`` for one on an HTTP server or the Hub."""
    if isinstance(location, ObjectUrl) and location.is_read_only:
        raise UsageError(
            f"{location.scheme}:// can only be read, not written",
            path=str(location),
            hint="Give a local path, or a URL of an object store.",
        )
    return location


def local_path(location: str | os.PathLike[str]) -> Path:
    """Return the absolute path that ``location`` names, for uses that need a local one.

    Raises ``UsageError`` for the URL of an object store, which would otherwise become a strange local folder.
    """
    place = located(location)
    if isinstance(place, ObjectUrl):
        raise UsageError(
            f"{place} is not a local path, which is required here",
            hint="Give a folder that all workers can access.",
        )
    return place


def files_below(
    folder: Path,
    suffixes: tuple[str, ...],
    *,
    hidden: tuple[str, ...] = (".",),
    is_input: Callable[[Path], bool] = lambda _: False,
    tell: Callable[[str, str], None] = lambda *_: None,
) -> Iterator[Path]:
    """The files with one of ``suffixes`` in a folder, by their names, and then those in the folders below it.

    Names that begin with one of ``hidden`` are left out with everything below, and links to folders are not followed. A
    folder for which ``is_input`` is true is one result. ``tell`` gets the skipped paths, and the reasons.
    """

    def unlisted(error: OSError) -> None:
        tell(str(error.filename), f"cannot be listed, and is skipped: {error.strerror}")

    for here, folders, names in os.walk(folder, onerror=unlisted):
        if is_input(Path(here)):
            yield Path(here)
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith(hidden))
        for link in (path for name in folders if (path := Path(here, name)).is_symlink()):
            tell(str(link), "is a link to a folder, which is not followed")
        for name in sorted(names):
            if not name.startswith(hidden) and name.lower().endswith(suffixes):
                yield Path(here, name)


def fixed_part(pattern: str) -> Path:
    """The folder before the first part of a pattern with wildcards.

    >>> str(fixed_part("/logs/2024/*/*.mcap"))
    '/logs/2024'
    """
    import glob

    parts = Path(pattern).parts
    return Path(*parts[: next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))])


_PATH: Final = re.compile(r"(?<![\w./:])(?:file://)?(/[^\s/'\"`<>|]+(?:/[^\s/'\"`<>|]+)+)")
_DEEP: Final = 3
"""Parts of a path, including the root: entities may have the names of folders directly below the root."""


def without_folders(text: str, *places: str | None) -> str:
    """Return a text that may be published: paths of this machine are reduced to their last name.

    These are the given ``places``, and any other path that exists, or whose folder exists. Other text that begins with
    a slash is the path of an entity, or the name of a topic.
    """
    for place in places:
        if place is not None and not is_url(place) and Path(place).is_absolute():
            text = text.replace(place, Path(place).name)

    def last_name(match: re.Match[str]) -> str:
        path = Path(match[1].rstrip(".,:;)]"))
        is_here = os.path.lexists(path) or (len(path.parts) > _DEEP and path.parent.is_dir())
        return path.name + match[1][len(str(path)) :] if is_here else match[0]

    return _PATH.sub(last_name, text)
