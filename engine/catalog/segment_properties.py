"""Properties of segments that are kept beside their recordings: set by clients, one row of lists for each segment.

::

    properties/<digest of the segment's id>/00000003.json     the third row that the segment has had
    properties/deleted/00000001.json                          versions of several segments that went in one step

Each segment has versions of its own, of which the newest counts, so that setting one is a single file and nothing of
the others is read. They don't hang on a recording: they are there before it is registered, and stay when it is gone.
Where several are deleted at once, a file names the versions that are no longer there, of all of them or none; then each
gets a version that says so, by the same call, or the next such one where that was cut.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from ..errors import ReadError, UsageError, writing
from ..folders import Folder, LocalFolder, sync_folder
from ..limits import MIB
from ..rrd import Compression, decode_batch, encode_batch
from ..storage import VersionFiles

_DELETED: Final = "deleted"
_HOW: Final = "Properties are made by setting some."
_KEPT_VERSIONS: Final = 16
_MOST_BYTES: Final = 16 * MIB


class StoredProperties(NamedTuple):
    """The properties of a segment, one row, or None where it has none, and the number of the version that says so."""

    version: int
    row: pa.RecordBatch | None

    @property
    def revision(self) -> int:
        """A number that no other properties of the segment have had; 0 where it has none."""
        return 0 if self.row is None else self.version


class SegmentProperties:
    """The properties of the segments of the dataset at ``place``."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._folder = Folder.at(place).sub("properties")

    def of(self, segment_id: str) -> StoredProperties:
        """The newest properties of a segment. Raises ``ReadError`` where they are damaged."""
        files = self._files(segment_id)
        latest = files.latest()
        if latest is None:
            return StoredProperties(0, None)
        number, data = latest
        place = files.folder.place(f"{number:08d}.json")
        try:
            if data["segment"] != segment_id:
                raise ValueError(f"they are those of segment {data['segment']!r}")
            stream = None if data["row"] is None else b64decode(data["row"], validate=True)
        except (KeyError, ValueError, TypeError) as error:
            raise ReadError(f"the properties of segment '{segment_id}' cannot be read: {error}", path=place) from error
        if stream is not None and self._deleted()[1].get(segment_id) == number:
            stream = None
        row = None if stream is None else decode_batch(stream, path=place, offset=None, what="the row")
        return StoredProperties(number, row)

    def replace(self, segment_id: str, known: StoredProperties, row: pa.RecordBatch | None) -> StoredProperties | None:
        """Give a segment other properties in place of those ``known``, durably; None takes them away.

        Gives None, and changes nothing, where others came first. Raises ``UsageError`` unless there is one row of
        16 MiB at most; ``WriteError`` where it cannot be written, ``CommitUnknownError`` where nobody knows.
        """
        stream = None if row is None else _stream_of(row)
        files, number = self._files(segment_id), known.version + 1
        if not known.version:
            self._make(files.folder)
        text = None if stream is None else b64encode(stream).decode()
        first = max(0, number - _KEPT_VERSIONS)
        if not files.commit(number, {"segment": segment_id, "row": text, "first": first}):
            return None
        files.delete(old for old in files.all_numbers() if old < first)
        return StoredProperties(number, row)

    def delete_all(self, known: Mapping[str, StoredProperties]) -> bool:
        """Take the properties of segments away in one step, durably: those ``known``, of all segments or of none.

        Gives False where others came first. Properties that were set meanwhile stay. Raises as :meth:`replace` does.
        """
        versions = {id_: one.version for id_, one in known.items() if one.row is not None}
        if len(versions) == 1:
            ((id_, one),) = ((id_, known[id_]) for id_ in versions)
            return self.replace(id_, one, None) is not None
        if not versions:
            return True
        number, earlier = self._deleted()
        self._note(earlier)
        files = self._files_of(_DELETED)
        if not number:
            self._make(files.folder)
        if not files.commit(number + 1, {"versions": versions, "first": number + 1}):
            return False
        files.delete(old for old in files.all_numbers() if old <= number)
        self._note(versions)
        return True

    def _note(self, versions: Mapping[str, int]) -> None:
        """Give each segment whose properties went a version that says so."""
        for id_, version in versions.items():
            known = self.of(id_)
            if known.version == version:
                self.replace(id_, known, None)

    def _deleted(self) -> tuple[int, Mapping[str, int]]:
        """The versions that went in one step last, by their segments. Raises ``ReadError`` where that is damaged."""
        files = self._files_of(_DELETED)
        number, data = files.latest() or (0, {"versions": {}})
        versions = data.get("versions")
        if not isinstance(versions, dict):
            place = files.folder.place(f"{number:08d}.json")
            raise ReadError("what properties were deleted cannot be read: it names no versions", path=place)
        return number, versions

    def _files(self, segment_id: str) -> VersionFiles:
        return self._files_of(hashlib.sha256(segment_id.encode("utf-8", "surrogatepass")).hexdigest()[:40])

    def _files_of(self, name: str) -> VersionFiles:
        return VersionFiles(self._folder.sub(name), str(self._folder.location), _HOW)

    def _make(self, folder: Folder) -> None:
        with writing(str(folder.location)):
            folder.make()
            if isinstance(folder, LocalFolder):
                for parent in folder.location.parents[:4]:  # up to where datasets lie, which may be new as well
                    sync_folder(parent)


def _stream_of(row: pa.RecordBatch) -> bytes:
    if len(row) != 1 or not row.num_columns:
        raise UsageError(f"segment properties must be a single row, got {len(row) if row.num_columns else 0} rows")
    if row.nbytes > _MOST_BYTES:
        raise UsageError(f"segment properties have {row.nbytes} bytes, more than the {_MOST_BYTES} that they may have")
    data, _ = encode_batch(row, Compression.NONE)
    return data if isinstance(data, bytes) else data.to_pybytes()
