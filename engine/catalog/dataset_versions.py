"""The calls of a dataset for its versions and tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from ..recordings import History, RecordingsFolder
from ..storage import VersionPoint
from .entry_log import Entry, changing

if TYPE_CHECKING:
    import pyarrow as pa


class DatasetVersions(Entry):
    """The versions of a dataset: each registration, removal, compaction and more makes one, which never changes.

    They are there until maintenance removes them; see :meth:`DatasetEntry.do_maintenance`. A tag keeps one.
    """

    _kind: Callable[[], str]

    @property
    def version(self) -> int | None:
        """The number of the version that is read, of what :meth:`at` gave; None: the newest, at each call."""
        return self._version

    def at(self, version: VersionPoint | None = None) -> Self:
        """The dataset as of a version, for reading: what it gives does not change when others change the dataset.

        Segments, layers, schemas, properties in recordings, index ranges, rows, files and results of searches are those
        of the version. Blueprints, assets and properties that were set later have versions of their own, and are those
        of now; so is the list of search indexes. Writing, and URLs of segments, which cannot name a version, are
        refused. Once the version was removed, reading raises ``SourceMissingError``; a tag keeps it.

        Parameters
        ----------
        version
            The number of a version; a tag; or a time, whose newest version is meant: a datetime (in UTC where it has no
            zone), a ``numpy.datetime64``, or RFC 3339 text. By default the newest one.

        Raises
        ------
        NotFoundError
            There is no such version or tag, the version of a time was removed, or the dataset is empty.
        ValueError
            It is none of these, or a time to come.
        """
        return self._pinned(self._history().number(version))

    def list_versions(self) -> pa.Table:
        """A row for each version that exists, oldest first; none before the first registration.

        The columns are ``version``, ``made_at``, ``author`` (a user of the machine that made it), ``operation``
        (``register``, ``unregister``, ``ingest``, ``compact``, ``restore``, ``tag`` …), ``restored`` (the version that
        a ``restore`` has brought back), ``tags``, and how many ``segments``, ``layers``, ``chunks``, ``rows`` and
        ``bytes`` (of chunks, as stored) it has. What earlier releases did not write down is null.
        """
        return self._history().table()

    def tags(self) -> dict[str, int]:
        """The tags of the dataset, by name, each with the number of its version."""
        return self._history().tags()

    @changing
    def tag(self, name: str, version: VersionPoint | None = None, *, move: bool = False) -> int:
        """Give a version a name, and return its number. Until :meth:`untag` no maintenance removes the version.

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
            The tag names another version, and is not to move.
        NotFoundError
            There is no such version.
        ValueError
            It is not a name that a tag can have.
        WriteError
            The dataset cannot be written.
        """
        return self._history().tag(name, version, move=move)

    @changing
    def untag(self, name: str) -> None:
        """Remove a tag. Its version goes with the next maintenance that removes versions of its age.

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
        """Make the segments and layers of a version those of the dataset again, and return the newest version's number.

        It is a commit on top, so the history stays, and so does what others commit at the same time: it comes before or
        after. Without a difference there is no commit. Files that were registered in place must still be there. Search
        indexes need nothing: what they cover is compared with the layers of the version that is searched.

        Parameters
        ----------
        version
            As for :meth:`at`.

        Raises
        ------
        NotFoundError
            There is no such version or tag, or the version of a time was removed.
        WriteError
            The dataset cannot be written.
        """
        return self._history().restore(version)

    def diff(self, before: VersionPoint, after: VersionPoint | None = None) -> pa.Table:
        """The layers that are not the same in two versions; each is given as for :meth:`at`, None is the newest.

        The columns are ``change`` (``added``, ``changed`` or ``removed``), ``rerun_segment_id``, ``rerun_layer_name``,
        and ``rows`` and ``bytes`` of both sides, null where the layer is not there. A layer has changed if it was
        registered anew; a compaction changes none.

        Raises ``NotFoundError`` if there is no such version.
        """
        return self._history().difference(before, self._version if after is None else after, self._kind())

    def _history(self) -> History:
        row = self._row()
        return History(RecordingsFolder(self._log.place(row)), f"dataset {row.name!r}")
