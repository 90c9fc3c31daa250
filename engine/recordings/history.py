"""The history of a store of recordings: its versions and tags, the restoration of a version, and differences."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import NotFoundError, SourceMissingError, writing
from ..faults import reach
from ..storage import VERSION_FIELDS, VersionPoint, check_tag, moved_tag, number_at, publish, without_tag
from .entries import LiveEntries
from .folder import RecordingsFolder
from .vacuum import following_version
from .versions import RecordingsVersion

VERSIONS: Final = pa.schema(
    [
        *VERSION_FIELDS,
        pa.field("segments", pa.int64(), nullable=False),
        pa.field("layers", pa.int64()),
        pa.field("chunks", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
"""The columns of a dataset's list of versions."""
CHANGES: Final = pa.schema(
    [
        pa.field("change", pa.string(), nullable=False),
        pa.field("rerun_segment_id", pa.string(), nullable=False),
        pa.field("rerun_layer_name", pa.string(), nullable=False),
        pa.field("rows_before", pa.int64()),
        pa.field("rows_after", pa.int64()),
        pa.field("bytes_before", pa.int64()),
        pa.field("bytes_after", pa.int64()),
    ]
)
"""The columns of a difference between two versions of a dataset."""
_OF_RECORDINGS: Final = ("tables", "recordings", "layers", "chunks", "rows", "bytes")
_MARKS: Final = ("added", "segment_version", "source_digest")


Fields = Mapping[str, Any]
"""The fields of a version that an operation changes; none if it changes nothing."""


def restoration_of(old: RecordingsVersion) -> Fields:
    """Return the fields with which a version has the recordings of an earlier one."""
    return {"restored": old.number, **{name: getattr(old, name) for name in _OF_RECORDINGS}}


class History:
    """The versions of a store. ``what`` is its name in errors, such as ``dataset 'drives'``.

    Each change is one commit, on top of concurrent commits. Raises ``WriteError`` if it cannot be written,
    ``CommitUnknownError`` if it is unknown whether it was, ``ReadError`` for damaged files.
    """

    def __init__(self, folder: RecordingsFolder, what: str) -> None:
        self._folder = folder
        self._what = what
        self._path = str(folder.path)

    def versions(self) -> list[RecordingsVersion]:
        """Return all existing versions, oldest first; none without a store."""
        versions = []
        for number in self._numbers():
            try:
                versions.append(self._folder.read_version(number))
            except SourceMissingError:
                continue  # a vacuum has removed it meanwhile
        return versions

    def table(self) -> pa.Table:
        """Return one row per existing version, oldest first, with the columns :data:`VERSIONS`."""
        versions = self.versions()
        names: dict[int, list[str]] = {}
        for tag, number in sorted(self.tags().items()):
            names.setdefault(number, []).append(tag)
        rows = [
            {
                "version": version.number,
                "made_at": version.made_ns // 1000,
                "author": version.author,
                "operation": version.operation,
                "restored": version.restored,
                "tags": names.get(version.number, []),
                "segments": version.recordings,
                "layers": version.layers,
                "chunks": version.chunks,
                "rows": version.rows,
                "bytes": version.bytes,
            }
            for version in versions
        ]
        return pa.Table.from_pylist(rows, VERSIONS)

    def tags(self) -> dict[str, int]:
        """Return the version number of each tag."""
        newest = self._folder.newest()
        return {} if newest is None else dict(sorted(newest.tags.items()))

    def number(self, point: VersionPoint | None) -> int:
        """Return the number of the version at a point, None for the newest; see :func:`number_at`."""
        newest = self._folder.newest()
        if newest is None:
            raise self._empty()
        if point is None:
            return newest.number
        return number_at(
            point,
            self._numbers(),
            newest.tags,
            lambda number: self._folder.read_version(number).made_ns,
            what=self._what,
            path=self._path,
        )

    def tag(self, name: str, point: VersionPoint | None, *, move: bool) -> int:
        """Tag a version, by default the newest, and return its number.

        Raises ``AlreadyExistsError`` if the tag names another version, unless ``move``; ``NotFoundError`` if there is
        no such version; ``UsageError`` for an invalid name.
        """
        check_tag(name)
        wanted = None if point is None else self.number(point)

        def tagged(newest: RecordingsVersion) -> Fields:
            number = newest.number if wanted is None else self._kept(newest, wanted)
            tags = moved_tag(newest.tags, name, number, move=move, path=self._path)
            return {} if tags == newest.tags else {"tags": tags}

        return self._publish("tag", tagged).tags[name]

    def untag(self, name: str) -> None:
        """Remove a tag. Raises ``NotFoundError`` for an unknown name."""
        self._publish("untag", lambda newest: {"tags": without_tag(newest.tags, name, path=self._path)})

    def restore(self, point: VersionPoint) -> int:
        """Restore the recordings of a version as a new version, in one commit, and return the newest number.

        Later recordings leave the dataset, and stay in the history. Nothing is committed if the newest version has the
        same recordings. Raises ``NotFoundError`` if there is no such version.
        """
        wanted = self.number(point)

        def restored(newest: RecordingsVersion) -> Fields:
            old = self._folder.read_version(self._kept(newest, wanted))
            return {} if old.tables == newest.tables else restoration_of(old)

        return self._publish("restore", restored).number

    def difference(self, before: VersionPoint | None, after: VersionPoint | None, kind: str) -> pa.Table:
        """Return the layers that differ between two versions, with the columns :data:`CHANGES`; None is the newest."""
        sides = [self._marks(point, kind) for point in (before, after)]
        joined = sides[0].join(
            sides[1], ["recording_id", "layer"], join_type="full outer", left_suffix="_before", right_suffix="_after"
        )
        is_new, is_gone = (pc.is_null(joined[f"added_{side}"]) for side in ("before", "after"))
        pairs = [(joined[f"{mark}_before"], joined[f"{mark}_after"]) for mark in _MARKS]
        is_same = pc.and_(pc.and_(pc.equal(*pairs[0]), pc.equal(*pairs[1])), pc.equal(*pairs[2]))
        change = pc.if_else(is_new, "added", pc.if_else(is_gone, "removed", "changed"))
        figures = [joined[f"{name}_{side}"] for name in ("rows", "bytes") for side in ("before", "after")]
        columns = [change, joined["recording_id"], joined["layer"], *figures]
        changes = pa.Table.from_arrays(columns, names=CHANGES.names).filter(pc.invert(pc.fill_null(is_same, False)))
        keys = [(name, "ascending") for name in ("rerun_segment_id", "rerun_layer_name")]
        return changes.sort_by(keys).cast(CHANGES)

    def _marks(self, point: VersionPoint | None, kind: str) -> pa.Table:
        pinned = None if point is None else RecordingsFolder(self._folder.path, self.number(point))
        live: LiveEntries = (pinned or self._folder).newest_live()[1]
        table = live.columns("kind", "recording_id", "layer", *_MARKS, "rows", "bytes")
        is_meant = pc.equal(pc.equal(table["kind"], "blueprint"), kind == "blueprint")
        return table.filter(is_meant).drop_columns(["kind"])

    def _numbers(self) -> list[int]:
        try:
            return self._folder.files.numbers()
        except SourceMissingError:
            return []

    def _empty(self) -> NotFoundError:
        return NotFoundError(f"{self._what} has no versions", path=self._path, hint="Nothing was added to it yet.")

    def _kept(self, newest: RecordingsVersion, number: int) -> int:
        if newest.counts(number):
            return number
        raise NotFoundError(
            f"a vacuum has removed version {number} of {self._what}",
            path=self._path,
            hint="list_versions() lists the versions.",
        )

    def _publish(self, operation: str, change: Callable[[RecordingsVersion], Fields]) -> RecordingsVersion:
        """Publish a version with the fields that ``change`` returns, if any; return the newest version."""
        self._folder.check_unpinned()
        began = time.perf_counter()

        def attempt() -> RecordingsVersion | None:
            newest = self._folder.newest()
            if newest is None:
                raise self._empty()
            fields = change(newest)
            if not fields:
                return newest
            version = replace(following_version(newest, operation, time.perf_counter() - began), **fields)
            if not self._folder.publish(version):
                reach("version.rebase")
                return None
            reach("version.done")
            return version

        with writing(self._path):
            return publish(attempt, self._what, path=self._path)
