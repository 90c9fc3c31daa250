"""The methods of a dataset for its versions and tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from ..recordings import History, RecordingsFolder
from ..storage import VersionPoint
from .entry_log import Entry, changing

if TYPE_CHECKING:
    import pyarrow as pa


class DatasetVersions(Entry):
    """The versions of a dataset.

    Each change, such as a registration, a removal or a compaction, makes a version, which is immutable.

    Maintenance removes old versions (:meth:`DatasetEntry.do_maintenance`), except those with a tag.
    """

    _kind: Callable[[], str]

    @property
    def version(self) -> int | None:
        """The number of the version that :meth:`at` opened. If None, each call reads the newest version."""
        return self._version

    def at(self, version: VersionPoint | None = None) -> Self:
        """The dataset as of a version, read-only.

        Segments, layers, schemas, properties in recordings, index ranges, rows, files and results of searches are as of
        the version. Blueprints, assets, properties that were set later, and the list of search indexes are the current
        ones. :meth:`segment_url` raises, because a URL cannot name a version. Once the version is removed, reading
        raises ``SourceMissingError``; a tag prevents the removal.

        Parameters
        ----------
        version
            A version number; a tag; or a time, for the version that was newest then: a datetime (by default in UTC), a
            ``numpy.datetime64``, or RFC 3339 text. By default the newest version.

        Raises
        ------
        NotFoundError
            The version or tag does not exist or was removed, or the dataset is empty.
        ValueError
            ``version`` has another type, or is a time in the future.
        """
        return self._pinned(self._history().number(version))

    def list_versions(self) -> pa.Table:
        """One row for each existing version, oldest first; no rows before the first registration.

        The columns are ``version``, ``made_at``, ``author`` (the user name on the machine that made it), ``operation``
        (``register``, ``unregister``, ``ingest``, ``compact``, ``restore``, ``tag`` …), ``restored`` (the version that
        ``restore`` restored), ``tags``, and the numbers of ``segments``, ``layers``, ``chunks``, ``rows`` and ``bytes``
        (of stored chunks). Values that earlier releases did not record are null.
        """
        return self._history().table()

    def tags(self) -> dict[str, int]:
        """The tags of the dataset, by name, each with the number of its version."""
        return self._history().tags()

    @changing
    def tag(self, name: str, version: VersionPoint | None = None, *, move: bool = False) -> int:
        """Name a version, and return its number. Maintenance keeps the version until :meth:`untag`.

        Parameters
        ----------
        name
            Letters, digits, ``.``, ``-`` and ``_``; not a number.
        version
            As for :meth:`at`; by default the newest.
        move
            Move the tag, if it names another version.

        Raises
        ------
        AlreadyExistsError
            The tag names another version, and ``move`` is false.
        NotFoundError
            The version does not exist.
        ValueError
            The name is invalid.
        WriteError
            The dataset cannot be written.
        """
        return self._history().tag(name, version, move=move)

    @changing
    def untag(self, name: str) -> None:
        """Remove a tag. Later maintenance may then remove its version.

        Raises
        ------
        NotFoundError
            There is no such tag.
        WriteError
            The dataset cannot be written.
        """
        self._history().untag(name)

    @changing
    def restore(self, version: VersionPoint) -> int:
        """Restore the segments and layers of a version, and return the number of the newest version.

        This adds a version; the history stays. If nothing differs, no version is added. Files that were registered in
        place must still exist. Search indexes stay valid.

        Parameters
        ----------
        version
            As for :meth:`at`.

        Raises
        ------
        NotFoundError
            The version or tag does not exist, or was removed.
        WriteError
            The dataset cannot be written.
        """
        return self._history().restore(version)

    def diff(self, before: VersionPoint, after: VersionPoint | None = None) -> pa.Table:
        """The layers that differ between two versions, given as for :meth:`at`; None is the newest version.

        The columns are ``change`` (``added``, ``changed`` or ``removed``), ``rerun_segment_id``, ``rerun_layer_name``,
        and ``rows`` and ``bytes`` of both sides, null where the layer is missing. A layer has changed if it was
        registered again; a compaction changes no layers.

        Raises ``NotFoundError`` if a version does not exist.
        """
        return self._history().difference(before, self._version if after is None else after, self._kind())

    def _history(self) -> History:
        row = self._row()
        return History(RecordingsFolder(self._log.place(row)), f"dataset {row.name!r}")
