"""``DatasetEntry``: a dataset of a catalog, whose segments lie in a store of recordings."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc

from ..errors import NotFoundError
from ..recordings import LiveEntries, RecordingsFolder
from .deprecated import DeprecatedDatasetNames
from .entries import Entry, EntryKind, time_of
from .maintenance import maintain
from .segment_url import segment_url


class DatasetEntry(DeprecatedDatasetNames, Entry):
    """A dataset: segments, each a recording of one or more layers, in a store of recordings.

    It stands for the place of its store, so ``Ingest("landing/", into=dataset)`` and ``RecordingStore.open(dataset)``
    work. A dataset into which nothing has come yet has no store, and is empty.
    """

    @property
    def manifest_url(self) -> str:
        """The URL of the dataset's store."""
        path = self._folder().path
        return path.as_uri() if isinstance(path, Path) else str(path)

    @property
    def updated_at(self) -> datetime:
        """When the dataset changed last, in UTC: its name or default blueprint, or what is in it."""
        newest = self._folder().newest()
        stored = 0 if newest is None else int(newest.created * 1e9)
        return time_of(max(self._row().updated_ns, stored))

    def __fspath__(self) -> str:
        return self._log.place(self._row())

    # --- segments

    def segment_ids(self) -> list[str]:
        """The ids of all segments, in the order of their registration."""
        row = self._row()
        if row.kind is EntryKind.DATASET:
            return _ids(_live(self._folder()), "recording")
        owners = (other for other in self._log.read().all_rows() if other.blueprints == row.id)
        stores = [*(RecordingsFolder(self._log.place(owner)) for owner in owners), self._folder()]
        return list(dict.fromkeys(id_ for store in stores for id_ in _ids(_live(store), "blueprint")))

    def segment_url(
        self,
        segment_id: str,
        timeline: str | None = None,
        start: datetime | timedelta | int | None = None,
        end: datetime | timedelta | int | None = None,
    ) -> str:
        """The URL of a segment, and with a ``timeline`` of a time or a span in it.

        ``start`` and ``end`` are ticks, nanoseconds, times or durations, as the timeline has them; a time without a
        zone is one in UTC. Ids are percent-encoded.

        Raises
        ------
        ValueError
            ``start`` or ``end`` is given without ``timeline``.
        """
        dataset = f"{self._catalog.url.rstrip('/')}/dataset/{self.id}"
        return segment_url(dataset, segment_id, timeline, start, end)

    # --- blueprints

    def blueprint_dataset(self) -> DatasetEntry | None:
        """The hidden dataset whose segments are this one's blueprints; None for such a one itself."""
        version = self._log.read()
        hidden = version.row(self.id).blueprints
        return None if hidden is None else DatasetEntry(self._catalog, self._log, version.row(hidden))

    def blueprints(self) -> list[str]:
        """The ids of all blueprints: of those that were ingested with recordings, and then of those registered."""
        hidden = self.blueprint_dataset()
        return [] if hidden is None else hidden.segment_ids()

    def default_blueprint(self) -> str | None:
        """The blueprint that segments are shown with, if one is set."""
        return self._row().default_blueprint

    def set_default_blueprint(self, blueprint_name: str | None) -> None:
        """Let segments be shown with the blueprint of this id; None sets none.

        Raises
        ------
        NotFoundError
            There is no such blueprint. It is a ``LookupError``.
        """
        if blueprint_name is not None and blueprint_name not in self.blueprints():
            raise NotFoundError(
                f"there is no blueprint {blueprint_name!r} in dataset '{self.name}'",
                hint="blueprints() lists them.",
            )
        self._log.change(self.id, lambda row: replace(row, default_blueprint=blueprint_name))

    # --- upkeep

    def do_maintenance(
        self,
        optimize_indexes: bool = False,  # noqa: ARG002 (there are no indexes to search by)
        retrain_indexes: bool = False,  # noqa: ARG002
        compact_fragments: bool = False,
        cleanup_before: datetime | None = None,
        unsafe_allow_recent_cleanup: bool = False,
    ) -> None:
        """Compact the dataset, and remove what only old versions of it need.

        Parameters
        ----------
        optimize_indexes, retrain_indexes
            Bring search indexes up to date, or make them anew, where the dataset has some.
        compact_fragments
            Join small files, and leave behind what is dead; see :meth:`RecordingStore.compact`.
        cleanup_before
            Remove versions from before this time, and what only they need; see :meth:`RecordingStore.vacuum`. A time
            without a zone is one in UTC.
        unsafe_allow_recent_cleanup
            Allow a time that is less than a week ago. Queries that began before it may fail then.

        Raises
        ------
        ValueError
            ``cleanup_before`` is less than a week ago, and that is not allowed.
        WriteError
            Another process compacts or vacuums the dataset, or it cannot be written.
        """
        maintain(
            self._folder(),
            compact=compact_fragments,
            cleanup_before=cleanup_before,
            allow_recent=unsafe_allow_recent_cleanup,
        )

    # --- the store

    def _folder(self) -> RecordingsFolder:
        """The files of the dataset's store. Raises ``NotFoundError`` once it was deleted."""
        return RecordingsFolder(self._log.place(self._row()))


def _live(folder: RecordingsFolder) -> LiveEntries:
    """The entries of the newest version of a store; none where there is no store."""
    newest = folder.newest()
    return LiveEntries() if newest is None else folder.live(newest)


def _ids(live: LiveEntries, kind: str) -> list[str]:
    found = live.columns("kind", "recording_id")
    ids: list[str] = found["recording_id"].filter(pc.equal(found["kind"], kind)).unique().to_pylist()
    return ids
