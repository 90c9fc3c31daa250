"""Source files of an object store that are done with."""

from __future__ import annotations

from ..errors import ReadError, WriteError
from ..faults import reach
from ..objects import (
    ObjectInfo,
    ObjectUrl,
    await_copy,
    bucket_of,
    copy_object,
    have_same_content,
    remove_object,
)
from .archive_names import Place, find_place
from .files import LandedFile


class ObjectSources:
    """The objects below a prefix, to be removed or moved below the prefix ``archive`` of the same bucket.

    What has changed since it was read is left alone, and what is gone already is fine. A move is a copy inside the
    store, and then a removal, on the condition that the source still is what was copied; stores other than S3, and
    some servers of its protocol, know no such condition, and are asked right before.
    """

    def __init__(self, landing: ObjectUrl, archive: ObjectUrl | None) -> None:
        self._landing = landing
        self._archive = archive

    def delete(self, file: LandedFile) -> bool:
        """Remove an object; whether that was done. Raises ``WriteError``, and ``ReadError`` where nothing is told."""
        source = _as_read(file)
        if source is None:
            return False
        remove_object(source)
        return True

    def archive(self, file: LandedFile) -> bool:
        """Move an object to its place in the archive, over nothing; whether that was done. Raises as ``delete``."""
        source = _as_read(file)
        if source is None or not self._copy(file, source):
            return False
        reach("source.archive")
        if _as_read(file) != source:
            return False
        remove_object(source)
        return True

    def _copy(self, file: LandedFile, source: ObjectInfo) -> bool:
        """See to it that a copy is in the archive; whether the source was what it is meanwhile."""
        assert self._archive is not None
        below = source.url.key[len(self._landing.key) + 1 :] if self._landing.key else source.url.key
        folder = f"{self._archive.key}/{below}".lstrip("/").rpartition("/")[0]

        def at(name: str) -> ObjectUrl:
            return ObjectUrl(source.url.scheme, source.url.bucket, f"{folder}/{name}".lstrip("/"))

        while True:
            target = None
            try:
                name, place = find_place(source.url.name, lambda name: _look(source, at(name)))
                if place is Place.OURS:
                    return True
                target = at(name)
                copy_object(source, target)
            except (ReadError, WriteError):
                if _as_read(file) != source:
                    return False
                if target is None or not bucket_of(target).exists(target.key):
                    raise
                continue  # somebody took the name in this moment, or the copy is there and its answer was lost
            await_copy(source, target)
            return True


def _as_read(file: LandedFile) -> ObjectInfo | None:
    """The object that was read, if it is still there and as it was."""
    url = ObjectUrl.of(file.path)
    found = bucket_of(url).find(url.key)
    return found if found and (found.size, found.modified_ns) == (file.size, file.modified_ns) else None


def _look(source: ObjectInfo, target: ObjectUrl) -> Place:
    found = bucket_of(target).find(target.key)
    if found is None:
        return Place.FREE
    return Place.OURS if have_same_content(source, found) else Place.TAKEN
