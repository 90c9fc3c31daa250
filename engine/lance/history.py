"""The history of a Lance table: its versions and tags, restoring a version, and differences between versions.

Versions and tags are Lance's own, so other programs see the same. The author of a version is in its digest file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import AlreadyExistsError, NotFoundError, UnsupportedCallError, UsageError
from ..storage import VERSION_FIELDS, VersionPoint, check_tag, moved_tag, number_at, without_tag
from .changes import RowIds, row_changes
from .fragments import FragmentReader
from .table import LanceTable

CHANGE: Final = "_change"
ROW_ID: Final = "_rowid"
VERSIONS: Final = pa.schema(
    [
        *VERSION_FIELDS,
        pa.field("rows", pa.int64()),
        pa.field("fragments", pa.int64()),
        pa.field("bytes", pa.int64()),
    ]
)
"""The columns of the list of a table's versions."""
_OPERATIONS: Final = {
    "CreateIndex": "index",
    "DataReplacement": "fill_columns",
    "Merge": "add_columns",
    "Project": "alter_columns",
    "ReserveFragments": "reserve",
    "Rewrite": "compact",
    "UpdateConfig": "describe",
}
"""Plainer names for some of Lance's operations, for :meth:`TableHistory.table`."""
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


class TableHistory:
    """All versions of a table, even if ``table`` reads a single one.

    Raises the errors of :class:`LanceTable`. Changes raise ``UsageError`` if ``table`` reads a single version.
    """

    def __init__(self, table: LanceTable) -> None:
        self._given = table
        self._table = LanceTable(table.location, table.label, table.gate)

    def _check_changeable(self) -> None:
        with self._given.writing():
            pass

    def table(self) -> pa.Table:
        """Return one row for each existing version, oldest first, with the columns :data:`VERSIONS`."""
        with self._table.reading():
            dataset = self._table.open()
            tags = self._tags_of(dataset)
            authors = self._table.authors()
            rows = []
            for entry in dataset.versions():
                number, figures = int(entry["version"]), entry["metadata"]
                operation, restored = _operation_of(dataset, number)
                rows.append(
                    {
                        "version": number,
                        "made_at": entry["timestamp"].astimezone(UTC),
                        "author": authors.get(number),
                        "operation": operation,
                        "restored": restored,
                        "tags": sorted(tag for tag, tagged in tags.items() if tagged == number),
                        **{
                            name: int(figures[f"total_{key}"]) if f"total_{key}" in figures else None
                            for name, key in (("rows", "rows"), ("fragments", "fragments"), ("bytes", "files_size"))
                        },
                    }
                )
        return pa.Table.from_pylist(rows, VERSIONS)

    def tags(self) -> dict[str, int]:
        """The tags, by name, each with the number of its version."""
        with self._table.reading():
            return self._tags_of(self._table.open())

    def number(self, point: VersionPoint | None) -> int:
        """Return the number of the version at a point (None: the newest). See :func:`number_at`."""
        with self._table.reading():
            dataset = self._table.open()
            if point is None:
                return int(dataset.version)
            made = {int(entry["version"]): entry["timestamp"].astimezone(UTC) for entry in dataset.versions()}
            tags = self._tags_of(dataset)
        times = {number: int(at.timestamp()) * 10**9 + at.microsecond * 1000 for number, at in made.items()}
        numbers = sorted(times)
        return number_at(point, numbers, tags, times.__getitem__, what=self._table.title, path=self._table.place)

    def tag(self, name: str, point: VersionPoint | None, *, move: bool) -> int:
        """Set a tag on a version, by default the newest, and return the version's number.

        Raises ``AlreadyExistsError`` if the tag names another version and ``move`` is false, ``NotFoundError`` if there
        is no such version, and ``UsageError`` for an invalid name.
        """
        self._check_changeable()
        check_tag(name)
        number = None if point is None else self.number(point)
        with self._table.writing():
            dataset = self._table.open()
            number = int(dataset.version) if number is None else number
            tags = self._tags_of(dataset)
            if moved_tag(tags, name, number, move=move, path=self._table.place) == tags:
                return number
            try:
                (dataset.tags.update if name in tags else dataset.tags.create)(name, number)
            except ValueError as error:
                if "already exists" not in str(error):
                    raise
                text = f"tag {name!r} was just made by another process"
                raise AlreadyExistsError(text, path=self._table.place, hint="Choose another name.") from None
        try:
            self._table.at(number)
        except NotFoundError:  # a cleanup removed it meanwhile
            self.untag(name)
            raise
        return number

    def untag(self, name: str) -> None:
        """Remove a tag. Raises ``NotFoundError`` if it does not exist."""
        self._check_changeable()
        with self._table.writing():
            dataset = self._table.open()
            without_tag(self._tags_of(dataset), name, path=self._table.place)
            dataset.tags.delete(name)

    def restore(self, point: VersionPoint) -> int:
        """Restore the rows and columns of a version in one commit, and return the newest version's number.

        Nothing is committed if it is already the newest version. Raises ``NotFoundError`` if there is no such version.
        """
        import lance

        self._check_changeable()
        number = self.number(point)
        table = self._table
        newest = 0

        def restored(dataset: Any) -> Any:
            nonlocal newest
            newest = int(dataset.version)
            if newest == number:
                return None
            table.check_files(table.open(number))
            made = lance.LanceDataset.commit(
                table.address,
                lance.LanceOperation.Restore(number),
                read_version=dataset.version,
                storage_options=table.storage_options,
            )
            newest = int(made.version)
            return made

        table.commit(restored, reads=False)
        return newest

    def difference(
        self, before: VersionPoint, after: VersionPoint | None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the rows that differ between two versions: the kind of change, the row id, and columns.

        Added and changed rows have the values of ``after``, by default the newest version; removed rows have the values
        of ``before``. A column that a version lacks is null. Raises ``UnsupportedCallError`` if the table has no stable
        row ids, and ``UsageError`` for a column that neither version has.
        """
        old = self._table.at(self.number(before))
        new = self._given.at() if after is None else self._table.at(self.number(after))
        if not (old.has_stable_ids and new.has_stable_ids):
            raise UnsupportedCallError(
                f"{self._table.title} has no stable row ids, so changed rows cannot be determined",
                path=self._table.place,
                hint="Only tables with stable row ids, such as those that chunkmill creates, can be compared.",
            )
        known = list(dict.fromkeys([*new.schema.names, *old.schema.names]))
        names = known if columns is None else list(columns)
        if unknown := [name for name in names if name not in known]:
            raise UsageError(f"there is no column {unknown[0]!r}", hint=f"There are: {', '.join(known)}.")
        changes = row_changes(old, new, [name for name in names if name in new.schema.names])
        parts = (
            _rows(side, ids, names, change)
            for side, ids, change in (
                (new, changes.new, "added"),
                (new, changes.changed, "changed"),
                (old, changes.gone, "removed"),
            )
        )
        return _joined(list(parts), self._table)

    def _tags_of(self, dataset: Any) -> dict[str, int]:
        entries = dataset.tags.list().items()
        return {name: int(tag["version"]) for name, tag in sorted(entries) if tag.get("branch") is None}


class TableVersions:
    """The methods of a table for its versions and tags, which are Lance's own."""

    _history: Callable[[], TableHistory]

    def list_versions(self) -> pa.Table:
        """One row for each existing version, oldest first.

        The columns are ``version``, ``made_at``, ``author`` (the user name on the machine that made it), ``operation``
        (``append``, ``update``, ``delete``, ``fill_columns``, ``compact``, ``restore`` …), ``restored`` (the version
        that ``restore`` restored), ``tags``, and the numbers of ``rows``, ``fragments`` and ``bytes``. The author is
        null for versions by other programs or earlier releases.
        """
        return self._history().table()

    def tags(self) -> dict[str, int]:
        """The tags of the table, by name, each with the number of its version."""
        return self._history().tags()

    def tag(self, name: str, version: VersionPoint | None = None, *, move: bool = False) -> int:
        """Name a version, and return its number. Cleanups keep the version until :meth:`untag`.

        Parameters
        ----------
        name
            Letters, digits, ``.``, ``-`` and ``_``; not a number.
        version
            A number, another tag, or a time, as for :meth:`at`; by default the newest.
        move
            Whether to move the tag if it names another version.

        Raises
        ------
        AlreadyExistsError
            The tag names another version, and ``move`` is false.
        NotFoundError
            There is no such version.
        ValueError
            The name is invalid.
        WriteError
            The table cannot be written.
        """
        return self._history().tag(name, version, move=move)

    def untag(self, name: str) -> None:
        """Remove a tag. Later cleanups may then remove its version.

        Raises
        ------
        NotFoundError
            There is no such tag.
        WriteError
            The table cannot be written.
        """
        self._history().untag(name)

    def restore(self, version: VersionPoint) -> int:
        """Restore the rows and columns of a version, and return the number of the newest version.

        It adds a version, so the history stays. Indexes and computed columns are restored, too; ``plan_backfill`` shows
        outdated values. A view of the table keeps its rows until you refresh it.

        Raises
        ------
        NotFoundError
            The version or tag does not exist, or was removed.
        ReadError
            Files of the version are missing or damaged.
        WriteError
            The table cannot be written.
        """
        return self._history().restore(version)

    def diff(
        self, before: VersionPoint, after: VersionPoint | None = None, *, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows that differ between two versions, given as for :meth:`at`; None is the newest version.

        The columns are ``_change`` (``added``, ``changed`` or ``removed``), ``_rowid``, and the table's columns, or
        only ``columns``. Added and changed rows have the values of ``after``, removed rows those of ``before``. With
        ``columns``, a row counts as changed if one of these columns was written, even with the same value. A compaction
        changes no rows.

        Raises
        ------
        NotFoundError
            There is no such version.
        NotImplementedError
            The table has no stable row ids; another program created it.
        """
        return self._history().difference(before, after, columns)


def _operation_of(dataset: Any, number: int) -> tuple[str | None, int | None]:
    """Return the operation that made a version, and the number of the version that it restored; None if unknown."""
    try:
        transaction = dataset.read_transaction(number)
    except (TypeError, OSError, ValueError):  # pylance cannot read that of a compaction with indexes
        return None, None
    if transaction is None:
        return None, None
    name = type(transaction.operation).__name__
    if name == "Overwrite" and number == 1:
        return "create", None
    word = _OPERATIONS.get(name, _WORD.sub("_", name).lower())
    return word, int(transaction.operation.version) if name == "Restore" else None


def _rows(reader: FragmentReader, ids: RowIds, names: Sequence[str], change: str) -> pa.Table:
    """Return the rows with some ids, in order: ``change``, the id, and columns."""
    own = [name for name in names if name in reader.schema.names]
    schema = pa.schema([reader.schema.field(name).with_metadata(None).with_nullable(True) for name in own])
    schema = pa.schema([pa.field(CHANGE, pa.string()), pa.field(ROW_ID, pa.uint64()), *schema])
    parts = []
    wanted = pa.array(ids, pa.uint64())
    batches = reader.expressed({ROW_ID: ROW_ID, **{name: f"`{name}`" for name in own}}) if len(ids) else ()
    for batch in batches:
        chosen = batch.filter(pc.is_in(batch.column(ROW_ID), wanted))
        if chosen.num_rows:
            columns = [pa.repeat(change, chosen.num_rows), *chosen.columns]
            parts.append(pa.table(columns, names=schema.names).cast(schema))
    return pa.concat_tables([schema.empty_table(), *parts])


def _joined(parts: Sequence[pa.Table], table: LanceTable) -> pa.Table:
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise UsageError(
            f"the columns of the two versions have incompatible types: {error}",
            path=table.place,
            hint="Choose other columns by columns=.",
        ) from None
