"""Whole objects, copied inside their bucket and removed, on the condition that they are still what they were."""

from __future__ import annotations

import time
from typing import Final

from ..errors import WriteError
from ..limits import MIB
from .bucket import bucket_of
from .object_info import ObjectInfo
from .s3_copying import copy_in_s3, remove_from_s3
from .url import EXTRAS, ObjectUrl

_WINDOW: Final = 8 * MIB
_PATIENCE: Final = 600
"""Seconds within which a copy that the store has taken on has to come to its end."""


def copy_object(source: ObjectInfo, target: ObjectUrl) -> None:
    """Copy an object to a name of the same bucket that nobody has, with its metadata; no bytes of it pass through here.

    Raises ``WriteError``, also where there is an object of that name, and on S3 where the source is no more what it
    was; to tell what it is, look again. A server of S3's protocol may ignore these conditions: look before, too. An
    object of Google's or Azure's is copied as it is at that moment. See :func:`await_copy`.
    """
    if EXTRAS[target.scheme] == "s3":
        copy_in_s3(source, target)
    else:
        bucket_of(target).copy(source.url.key, target.key)


def await_copy(source: ObjectInfo, target: ObjectUrl) -> None:
    """Wait until a copy is whole: Azure may answer before, and has an empty object there until then.

    What comes of a source that is no more what it was is not waited for. Raises ``WriteError`` where a copy takes too
    long, or is gone, and ``ReadError`` where the store tells nothing.
    """
    deadline, pause = time.monotonic() + _PATIENCE, 0.05
    while (copy := bucket_of(target).find(target.key)) is None or copy.size != source.size:
        if bucket_of(source.url).find(source.url.key) != source:
            return
        if copy is None or time.monotonic() > deadline:
            what = "is gone" if copy is None else f"has {copy.size:,} bytes of {source.size:,} after {_PATIENCE} s"
            raise WriteError(
                f"the copy of {source.url} {what}",
                path=str(target),
                hint="The source was not removed. Look at the store, and start again.",
                transient=True,
            )
        time.sleep(pause)
        pause = min(2 * pause, 5)


def remove_object(found: ObjectInfo) -> None:
    """Remove an object if it is what was found; on other stores than S3 whatever it is. Raises ``WriteError``."""
    if EXTRAS[found.url.scheme] == "s3":
        remove_from_s3(found)
    else:
        bucket_of(found.url).delete([found.url.key])


def have_same_content(one: ObjectInfo, other: ObjectInfo) -> bool:
    """Whether two objects hold the same bytes. They are read up to the first window in which they differ.

    No version or checksum of a store tells: those that a copy keeps on one store it loses on another, and on S3 with
    the encryption, or when it was made in parts. Raises ``ReadError``, also where one of them changes meanwhile.
    """
    if one.size != other.size:
        return False
    for start in range(0, one.size, _WINDOW):
        stop = min(start + _WINDOW, one.size)
        first, second = (bucket_of(o.url).read(o.url.key, start, stop, o.version) for o in (one, other))
        if first != second:
            return False
    return True
