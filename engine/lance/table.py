"""Lance tables: opening, creating, writing by commits, and changing columns.

A commit is based on the newest version, and is retried if others were faster. A column may get a separate file with the
rows of one fragment in order, including deleted rows. Lance's data replacement adds such files to a version: the other
columns' files, the row ids and the row addresses stay as they are.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import (
    ChunkmillError,
    NotFoundError,
    ReadError,
    UnsupportedCallError,
    UsageError,
    WriteError,
    check_argument,
)
from ..faults import reach
from ..locations import Location
from ..storage import publish
from .expressions import TableSnapshot, translate_sql_errors
from .faults import RESTORE, is_conflict, missing_files, shortened
from .file_digests import NUMBERS, FileDigests, TableVerification, files_of, known_digests, verified
from .fragments import Fragment, FragmentReader, fragments_of
from .gate import Gate, outer_columns
from .place import LancePlace
from .rows import INDEX, PRIMARY_KEY, blobs_as_bytes, columns_to_write, keys_of, refused_columns

_MOST_OF_ONE_VERSION: Final = 3
"""How many times in a row a commit may conflict while the newest version stays the same: its file is damaged then."""
_MOST_REBASES: Final = 20
_MOST_MERGES: Final = 10
_ROWS_OF_A_BATCH: Final = 16_384
_ROWS_OF_A_FILE: Final = 1 << 20
_A_SECOND: Final = timedelta(seconds=1)
_SETTLED_NS: Final = 1_000_000_000
"""Folder times are coarse: after this time, a later change is certain to change the folder's time."""
FileState = tuple[int, int]
"""The inode and the time of a file or folder."""


class RowSource(Protocol):
    """Rows to be written."""

    failure: Exception | None
    """The error while reading the rows, which Lance reports only as text."""

    def under(self, schema: pa.Schema) -> pa.RecordBatchReader | pa.Table:
        """Return the rows for a table of this schema.

        Raises ``WriteError`` if they have other columns, or can be read only once and were read before.
        """
        ...

    def among(self, schema: pa.Schema) -> pa.RecordBatchReader | pa.Table:
        """Return the rows with the columns of this schema that they have. Raises the errors of :meth:`under`."""
        ...

    def replacing(self, schema: pa.Schema) -> pa.RecordBatchReader:
        """Return the rows with their own columns, to replace a table of this schema.

        Raises the errors of :meth:`under`.
        """
        ...


class JoinedFragments(NamedTuple):
    """The fragments that a compaction joins, and the files of the new fragments."""

    before: frozenset[int]
    files: tuple[str, ...]

    @classmethod
    def of(cls, result: Any) -> JoinedFragments:
        """Return the fragments of Lance's result of a compaction task."""
        before = frozenset(fragment.id for fragment in result.original_fragments)
        return cls(before, tuple(file.path for fragment in result.new_fragments for file in fragment.files))


class _Newest(NamedTuple):
    """A version that was the newest, and the state of its file. It stays the newest while the folder is unchanged."""

    reader: FragmentReader
    dataset: Any
    file: FileState
    folder: FileState | None


class LanceTable(LancePlace):
    """The Lance table at a place. Each write is one commit based on the newest version. The object can be pickled.

    Fields with the metadata ``rerun:is_table_index`` are the key of :meth:`upsert`. If none of them may be null,
    they are Lance's unenforced primary key, by which Lance detects concurrent inserts of the same key.

    With a ``version``, that version is read instead of the newest, and writing raises ``UsageError``.

    Raises ``NotFoundError`` if there is no table, ``ReadError`` if it is damaged, ``WriteError`` if it cannot
    be written.
    """

    def __init__(self, place: Location, name: str, gate: Gate | None = None, version: int | None = None) -> None:
        super().__init__(
            place,
            name=f"table {name!r}",
            unread="Restore the table's files, or register a copy of the table.",
            unwritten="Nothing was written.",
            gate=gate,
        )
        self.label = name
        self.version = version
        self._digests = FileDigests(place, self.title)
        self._cached: _Newest | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cached": None}

    # --- versions

    def open(self, version: int | None = None) -> Any:
        """Return a version, by default :attr:`version` or the newest, as a Lance dataset that passed the gate."""
        version = self.version if version is None else version
        if isinstance(self.location, Path) and self.location.is_file():  # Lance takes seconds to report it
            raise NotFoundError("this is a file, not a Lance table", path=self.place)
        try:
            return self.dataset(version)
        except ValueError as error:
            if "was not found" not in str(error):
                raise
            if version is not None and self._listed():
                hint = "A cleanup removed it, or it was never written."
                raise NotFoundError(f"the table has no version {version}", path=self.place, hint=hint) from None
            hint = "Open a table of a catalog by get_table(name), or on the command line with --catalog."
            raise NotFoundError("there is no Lance table here", path=self.place, hint=hint) from None

    def snapshot(self, version: int | None = None) -> TableSnapshot:
        """Return a version, by default the newest."""
        with self.reading():
            dataset = self.open(version)
            self.check_deletions(dataset)
            return TableSnapshot(self, dataset)

    def version_and_schema(self) -> tuple[int, pa.Schema]:
        """Return the number of the newest version, and its columns in Lance's types."""
        with self.reading():
            dataset = self.open()
            return int(dataset.version), dataset.schema

    def at(self, version: int | None = None) -> FragmentReader:
        """Return a version, by default the newest. Raises ``NotFoundError`` if it does not exist."""
        return self._at(version)

    def checked(self, version: int | None = None) -> FragmentReader:
        """Return a version like :meth:`at`, but check its files first, because other values are computed from it.

        Raises ``ReadError`` if a file is missing or has another size, or if the manifest is damaged; ``UsageError`` if
        the table is read-only.
        """
        with self.writing():
            pass
        return self._at(version, self.check_files)

    def _at(self, version: int | None, check: Callable[[Any], None] = lambda _: None) -> FragmentReader:
        check_argument("version", version, int, type(None))
        if version is not None and version < 1:
            raise UsageError(f"versions of a table are numbered from 1, got {version}")
        with self.reading():
            dataset = self.open(version)
            check(dataset)
            self.check_deletions(dataset)
            return FragmentReader(self, dataset)

    def pinned(self, version: int, fragment: Fragment | None = None) -> FragmentReader:
        """Return a version that the process opens only once.

        Raises ``WriteError`` if the version lacks ``fragment``, because the table was replaced.
        """
        reader = _pinned(self, version)
        if fragment is None or reader.has(fragment):
            return reader
        _pinned.cache_clear()  # an earlier table at this place had a version with the same number
        if not _pinned(self, version).has(fragment):
            raise WriteError(
                "the table was replaced while its columns were computed", path=self.place, hint="Run it again."
            )
        return _pinned(self, version)

    def newest(self) -> FragmentReader:
        """Return the newest version.

        A local table returns the same object, with its indexes, until the version changes or the table is recreated. If
        the folder is unchanged, Lance does not look for a newer version, which saves 50 of a search's 1,300 µs
        (benchmarks/bench_table_search.py).
        """
        cached, folder = self._cached, self._state_of("")
        if cached is not None and folder is not None and folder == cached.folder:
            return cached.reader
        settled = folder if folder is not None and time.time_ns() - folder[1] > _SETTLED_NS else None
        if cached is not None and self.version is not None:
            return cached.reader
        with self.reading():
            if cached is not None and folder is not None:
                version = int(cached.dataset.latest_version)
                if version == cached.reader.version and self._state_of(_file_of(version)) == cached.file:
                    self._cached = cached._replace(folder=settled)
                    return cached.reader
            dataset = self.open()
            self.check_deletions(dataset)
            reader = FragmentReader(self, dataset)
            file = self._state_of(_file_of(reader.version))
            self._cached = None if file is None else _Newest(reader, dataset, file, settled)
            return reader

    def _state_of(self, name: str) -> FileState | None:
        """Return the state of the versions' folder, or of a file in it; None if only Lance can read it."""
        if not isinstance(self.location, Path):
            return None
        try:
            status = os.stat(f"{self.place}/_versions/{name}")  # noqa: PTH116 (saves 10 µs)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    @contextmanager
    def needing(self, version: int) -> Iterator[None]:
        """Run a block that reads a version.

        Raises a transient ``ReadError`` if the version was removed. A cleanup that listed the jobs before this job was
        recorded may remove the version during the block, too.
        """
        self._check_version(version)
        try:
            yield
        except Exception as error:
            if not (isinstance(error, ChunkmillError) and error.transient):
                self._check_version(version)
            raise

    def _check_version(self, version: int) -> None:
        try:
            with self.reading():
                self.open(version)
        except (NotFoundError, ReadError):
            raise ReadError(
                f"version {version} of {self.title} was removed before its use was recorded",
                path=self.place,
                hint="Run it again.",
                transient=True,
            ) from None

    def files_of_versions(self) -> Iterator[set[str]]:
        """Yield the data files of each version, newest first.

        Versions that are removed meanwhile are skipped. Raises ``UnsupportedCallError`` if the table has branches,
        because their versions may name any file.
        """
        with self.reading():
            newest = self.open()
            if newest.branches.list():
                raise UnsupportedCallError(f"{self.title} has branches, which are not supported here", path=self.place)
            numbers = [int(entry["version"]) for entry in newest.versions()]
        for number in reversed(numbers):
            with suppress(NotFoundError), self.reading():
                yield {file.path for fragment in self.open(number).get_fragments() for file in fragment.metadata.files}

    # --- rows

    def create(self, schema: pa.Schema, rows: pa.Table | pa.RecordBatchReader | None = None) -> bool:
        """Create the table with its rows, by default none, unless it exists; return whether it was created.

        The table gets all rows, or is not created. Raises ``UsageError`` if Lance does not support the columns, or
        Arrow could not read them back.
        """
        columns = self.to_write(schema)
        try:
            with refused_columns(self.title):
                written = [] if rows is None else fragments_of(self.written(rows, "create"))
                made = self.make(columns, written, enable_stable_row_ids=True)
        except WriteError as error:
            if error.__cause__ is not None and "Dataset already exists" in shortened(error.__cause__):
                return False
            raise
        if made:
            with self.writing():
                self._keep_digests(self.open(1))
        return made

    def to_write(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema's columns as they are stored. Raises ``UsageError`` if the table cannot have them."""
        return columns_to_write(schema, self.title)

    def append(self, rows: RowSource) -> None:
        """Add rows; missing columns are null."""
        import lance

        def appended(dataset: Any) -> Any:
            reader = rows.under(blobs_as_bytes(dataset.schema))
            return lance.write_dataset(reader, dataset, mode="append", storage_options=self.storage_options)

        self.commit(appended, rows, reads=False)

    def overwrite(self, rows: RowSource) -> None:
        """Replace all rows and columns."""
        import lance

        def overwritten(dataset: Any) -> Any:
            reader = rows.replacing(blobs_as_bytes(dataset.schema))
            reader = pa.RecordBatchReader.from_batches(self.to_write(reader.schema), reader)
            return lance.write_dataset(
                reader, dataset, mode="overwrite", storage_options=self.storage_options, enable_stable_row_ids=True
            )

        with refused_columns(self.title):
            self.commit(overwritten, rows, reads=False)

    def upsert(self, rows: RowSource, alone: Callable[[], AbstractContextManager[object]]) -> None:
        """Replace rows with the same key, and add the others; missing columns are null.

        If keys cannot be null, Lance detects concurrent inserts of the same key. Otherwise the upsert runs in
        ``alone``, normally without another upsert of this table. If it was suspended there for too long, its commit is
        refused, and it merges again. Raises ``UsageError`` if the table has no key, or several rows have the same key.
        """

        def merged(dataset: Any, *, is_primary: bool = True) -> Any:
            merge = self._merge(dataset).when_not_matched_insert_all()
            with _each_key_once():
                given = _with_each_key_once(rows, blobs_as_bytes(dataset.schema), keys_of(dataset.schema))
                if is_primary:
                    merge.conflict_retries(_MOST_MERGES).execute(given)
                    return dataset
                transaction, _ = merge.execute_uncommitted(given)
                reach("lance.merge")
                return _commit_after_all(dataset, transaction)

        with self.reading():
            schema = self.open().schema
        if all(PRIMARY_KEY in (schema.field(key).metadata or {}) for key in keys_of(schema)):
            self.commit(merged, rows)
        else:
            with alone():
                self.commit(partial(merged, is_primary=False), rows)

    def update(self, rows: RowSource) -> None:
        """Set columns in the rows with the same key.

        Other columns keep their values. Rows with unknown keys are ignored. Raises ``UsageError`` like :meth:`upsert`,
        and if the rows lack a field of the key.
        """

        def merged(dataset: Any) -> None:
            merge, changes = self._merge(dataset), rows.among(blobs_as_bytes(dataset.schema))
            missing = [key for key in keys_of(dataset.schema) if key not in changes.schema.names]
            if missing:
                raise UsageError(f"the rows lack fields of the key of {self.title}: {', '.join(missing)}")
            with _each_key_once():
                merge.conflict_retries(_MOST_MERGES).execute(changes)

        self.commit(merged, rows)

    def _merge(self, dataset: Any) -> Any:
        """Return a merge that changes rows with the same key. Raises ``UsageError`` if the table has no key."""
        keys = keys_of(dataset.schema)
        if not keys:
            raise UsageError(
                f"{self.title} has no key: a merge insert operation requires join keys",
                hint=f"Create it with this metadata of its key fields: {{{INDEX.decode()!r}: 'true'}}.",
            )
        self.check_deletions(dataset)
        return dataset.merge_insert(keys).when_matched_update_all()

    def delete(self, where: str) -> None:
        """Remove the rows in which ``where`` is true."""

        def deleted(dataset: Any) -> None:
            with translate_sql_errors(dataset, where=where):
                dataset.delete(where)

        self.commit(deleted)

    def set_values(self, expressions: Mapping[str, str], where: str | None) -> None:
        """Set columns to SQL expressions, in the rows in which ``where`` is true (None: all). Raises ``UsageError``."""

        def updated(dataset: Any) -> None:
            with translate_sql_errors(dataset, *expressions.values(), where=where):
                dataset.update(dict(expressions), where)

        self.commit(updated)

    def written(self, rows: pa.RecordBatchReader | pa.Table, mode: str, most: int | None = None) -> list[str]:
        """Write rows into files of ``most`` rows that no version names yet; return their descriptions for the commit.

        ``mode`` is ``append``, ``overwrite``, or ``create`` for a table that does not exist yet. A cleanup of the table
        removes uncommitted files.
        """
        from lance.fragment import write_fragments

        with refused_columns(self.title), self.writing():
            made = write_fragments(
                rows,
                self.address,
                schema=None if mode == "append" else self.to_write(rows.schema),
                mode=mode,
                storage_options=self.storage_options,
                enable_stable_row_ids=True,
                max_rows_per_file=most or _ROWS_OF_A_FILE,
            )
            return [
                json.dumps({**fragment.to_json(), "digests": self._digests.of_fragment(fragment)}) for fragment in made
            ]

    def append_written(self, written: Sequence[str], version: int) -> None:
        """Add rows that were written before, with the columns of a version."""
        import lance

        reach("lance.fragments")
        operation, options = lance.LanceOperation.Append(fragments_of(written)), self.storage_options

        def appended() -> Any:
            return lance.LanceDataset.commit(self.address, operation, read_version=version, storage_options=options)

        if self.commit_once(appended, written) is None:
            raise WriteError(
                f"{self.title} was replaced while rows were written; nothing was written",
                path=self.place,
                hint="Write them again.",
                transient=True,
            )

    def overwrite_written(self, written: Sequence[str], schema: pa.Schema) -> None:
        """Replace all rows by previously written rows with these columns."""
        import lance

        reach("lance.fragments")
        operation = lance.LanceOperation.Overwrite(self.to_write(schema), fragments_of(written))

        def overwritten(dataset: Any) -> Any:
            return lance.LanceDataset.commit(
                self.address,
                operation,
                read_version=dataset.version,
                storage_options=self.storage_options,
                enable_stable_row_ids=True,
            )

        self.commit(overwritten, written=written, reads=False)

    # --- columns

    def add_null_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add columns that are null in all rows, without writing values."""
        self._changing_columns(lambda dataset: dataset.add_columns(pa.schema(fields)), "Invalid input, ")

    def add_sql_columns(self, expressions: Mapping[str, str]) -> None:
        """Add columns with the values of SQL expressions. Raises ``UsageError`` for an invalid expression."""

        def added(dataset: Any) -> None:
            with translate_sql_errors(dataset, *expressions.values()):
                dataset.add_columns(dict(expressions))

        self._changing_columns(added, "Invalid input, ")

    def alter(self, alterations: Sequence[Mapping[str, Any]]) -> None:
        """Rename columns, or change their types; see Lance's ``alter_columns``."""
        self._changing_columns(lambda dataset: dataset.alter_columns(*alterations))

    def drop(self, columns: Sequence[str]) -> None:
        """Remove columns."""
        self._changing_columns(lambda dataset: dataset.drop_columns(list(columns)))

    def describe(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Change the metadata of fields; None removes a key."""

        def described(dataset: Any) -> None:
            dataset.update_field_metadata({name: dict(entries) for name, entries in changes.items()})

        self.commit(described, reads=False)

    def length_of(self, name: str) -> int:
        """Return the number of rows in a file's footer. Raises ``ReadError`` if the file is damaged or missing."""
        from lance.file import LanceFileReader

        with self.reading():
            return int(
                LanceFileReader(self.file_address(name), storage_options=self.storage_options).metadata().num_rows
            )

    def replace(self, files: Mapping[int, str], version: int, message: str) -> int | None:
        """Replace the files of some columns in fragments of a version, in one commit.

        Return the number of the new version. If a fragment or column was changed meanwhile, return None without a
        commit. ``message`` is stored with the commit. Raises ``WriteError``, also if the table was replaced.
        """
        import lance
        from lance.fragment import DataFile

        def replaced() -> Any:
            dataset, kinds = self.open(version), lance.LanceOperation
            groups = [
                kinds.DataReplacementGroup(fragment, DataFile.create(dataset, name)) for fragment, name in files.items()
            ]
            return lance.LanceDataset.commit(
                self.address,
                kinds.DataReplacement(groups),
                read_version=version,
                storage_options=self.storage_options,
                commit_message=message,
            )

        return self.commit_once(replaced)

    def _changing_columns(self, change: Callable[[Any], None], before: str = "") -> None:
        """Commit a change of columns. Lance's errors about it become ``UsageError`` with the prefix ``before``."""
        try:
            self.commit(change)
        except WriteError as error:
            cause = error.__cause__
            said = "" if cause is None else shortened(cause)
            if is_conflict(cause) or not isinstance(cause, (ValueError, OSError)) or "Invalid user input" not in said:
                raise
            raise UsageError(before + said.removeprefix("Invalid user input: "), path=self.place) from None

    # --- upkeep

    def compact(
        self,
        only: Collection[int] | None = None,
        before_commit: Callable[[Sequence[JoinedFragments]], None] = lambda _: None,
        *,
        deletions: bool = False,
    ) -> None:
        """Join small fragments (of ``only``, by default of all) in one commit. Without any to join, do not commit.

        With ``deletions``, fragments with deleted rows are rewritten without them. ``before_commit`` is called before
        the commit. Raises ``ReadError`` if files of these fragments are damaged, because damaged rows would get valid
        digests.
        """
        from lance.optimize import Compaction

        def compacted(dataset: Any) -> None:
            self.check_deletions(dataset)
            ids = () if only is None else (fragment.fragment_id for fragment in dataset.get_fragments())
            others = [id_ for id_ in ids if only is not None and id_ not in only]
            least = {"materialize_deletions_threshold": 0.0} if deletions else {}
            plan = Compaction.plan(dataset, {"num_threads": 1, "excluded_fragment_ids": others, **least})  # type: ignore[typeddict-item]
            self._digests.check(
                {path for task in plan.tasks for fragment in task.fragments for path in files_of(fragment)}
            )
            joined = [task.execute(dataset) for task in plan.tasks]
            if joined:
                reach("lance.compact")
                before_commit([JoinedFragments.of(result) for result in joined])
                Compaction.commit(dataset, joined)

        self.commit(compacted)

    def cleanup(
        self, older_than: timedelta, kept_from: int | None = None, *, delete_unverified: bool = False
    ) -> tuple[int, int]:
        """Remove untagged versions older than ``older_than``, and the files that only these versions need.

        Versions from ``kept_from`` on always stay. Uncommitted files may belong to a running writer, and stay for a
        week, unless ``delete_unverified``. Return the numbers of removed bytes and versions. Raises ``ReadError`` if
        the manifest of a version is damaged.
        """
        self._digests.check(None)
        with self.writing():
            dataset = self.open()
            if kept_from is not None:
                made = [entry["timestamp"] for entry in dataset.versions() if entry["version"] >= kept_from]
                first = min(made).astimezone()  # Lance reports the local time
                older_than = max(older_than, datetime.now(UTC) - first + _A_SECOND)
            result = dataset.cleanup_old_versions(
                older_than=older_than, delete_unverified=delete_unverified, error_if_tagged_old_versions=False
            )
            self._digests.join()
        reach("lance.cleanup")
        return int(result.bytes_removed), int(result.old_versions)

    def extend_indexes(self, *, retrain: bool = False) -> None:
        """Add uncovered rows to the indexes; with ``retrain``, train the indexes again on all rows."""

        def extended(dataset: Any) -> None:
            dataset.optimize.optimize_indices(retrain=retrain)

        self.commit(extended)

    def authors(self) -> dict[int, str]:
        """Return the recorded authors of versions, by the versions' numbers."""
        return self._digests.authors()

    def verify(self) -> TableVerification:
        """Read all files of the table, and compare them with the digests of the commits."""
        return verified(self, self._digests, self.open)

    def check_files(self, dataset: Any) -> None:
        """Raise ``ReadError`` if a file of a version is missing or has another size, or if the manifest is damaged."""
        with self.reading():
            self._digests.check_version(int(dataset.version))
            faults = missing_files(self.location, self.title, dataset)
        if faults:
            raise faults[0]

    # --- commits

    def writing(self) -> AbstractContextManager[None]:
        """In the block, Lance's errors become ``WriteError``. Raises ``UsageError`` if the table is read-only."""
        if self.version is not None:
            raise UsageError(
                f"this is version {self.version} of {self.title}, which is read-only",
                path=self.place,
                hint="Open the table without a version to change it.",
            )
        return super().writing()

    def commit(
        self,
        attempt: Callable[[Any], Any],
        rows: RowSource | None = None,
        *,
        written: Sequence[str] = (),
        reads: bool = True,
    ) -> None:
        """Commit a change of the newest version, and retry if others committed meanwhile.

        ``attempt`` returns the dataset of its new version, or None if nothing changed. ``written`` are fragments that
        were written before. With ``reads``, ``attempt`` reads rows, and their blobs must pass the gate.
        """
        before, stood = -1, 0

        def once() -> bool | None:
            nonlocal before, stood
            try:
                with self.writing():
                    dataset = self.open()
                    version = int(dataset.version)
                    if reads:
                        self.check_blobs(dataset, outer_columns(dataset.schema))
                    stood, before = stood + 1 if version == before else 0, version
                    made = attempt(dataset)
                    made = dataset if made is None else made
                if int(made.version) != version:
                    self._keep_digests(made, written, version)
                reach("lance.commit")
            except Exception as error:
                if rows is not None and rows.failure is not None:
                    raise rows.failure from None
                if not is_conflict(error.__cause__):
                    raise
                if stood >= _MOST_OF_ONE_VERSION:
                    reason = (
                        f"{self.title} cannot be written: other writers conflict, and version {before} stays the newest"
                    )
                    raise WriteError(reason, path=self.place, hint=RESTORE) from error
                return None
            return True

        publish(once, self.title, path=self.place)

    def commit_once(self, attempt: Callable[[], Any], written: Sequence[str] = ()) -> int | None:
        """Commit a change of the version of ``attempt``, without retries, and return the new version's number.

        If the same data was changed meanwhile, return None without a commit. ``written`` are fragments that were
        written before.
        """
        try:
            with self.writing():
                made = attempt()
            self._keep_digests(made, written)
            reach("lance.commit")
        except WriteError as error:
            if not is_conflict(error.__cause__):
                raise
            return None
        return int(made.version)

    def _keep_digests(self, made: Any, written: Sequence[str] = (), base: int | None = None) -> None:
        """Write the digests of the files that a version added, or warn that it has no digests."""
        try:
            with self.reading():
                self._digests.keep(made, known_digests(written), base)
        except Exception as error:  # noqa: BLE001 (the version exists: no error that nothing was written)
            warnings.warn(
                f"version {made.version} of {self.title} is written, but has no digests of its files: {error}",
                UserWarning,
                stacklevel=2,
            )


@lru_cache(maxsize=4)
def _pinned(table: LanceTable, version: int) -> FragmentReader:
    return table.at(version)


def _file_of(version: int) -> str:
    return f"{NUMBERS - version:020}.manifest"


def _commit_after_all(dataset: Any, transaction: Any) -> Any:
    """Commit an upsert, or fail with a conflict if another upsert was committed after the version of ``dataset``.

    Lance accepts two upserts that change no common fragment, as if they were appends: a key that both add would be in
    the table twice. So each declares a change of the first fragment, too. If there is no fragment yet, the rows
    overwrite the table, without retries.
    """
    from lance import LanceDataset, LanceOperation

    first = next(iter(dataset.get_fragments()), None)
    change = transaction.operation
    if first is None:
        change = LanceOperation.Overwrite(dataset.lance_schema, change.new_fragments)
    elif first.fragment_id not in {
        *change.removed_fragment_ids,
        *(fragment.id for fragment in change.updated_fragments),
    }:
        change = replace(change, updated_fragments=[*change.updated_fragments, first.metadata])
    retries = 0 if first is None else _MOST_REBASES
    return LanceDataset.commit(dataset, replace(transaction, operation=change), max_retries=retries)


def _with_each_key_once(rows: RowSource, schema: pa.Schema, keys: list[str]) -> pa.RecordBatchReader | pa.Table:
    """Return the rows in the schema of the table. Raises ``UsageError`` if several have the same key.

    Lance would add all of them if the table lacks the key. The keys of a reader stay in memory while it is read.
    """
    given = rows.under(schema)
    if isinstance(given, pa.Table):
        _check_keys(given.select(keys))
        return given

    def batches() -> Iterator[pa.RecordBatch]:
        seen = []
        try:
            for batch in given:
                seen.append(batch.select(keys))
                yield batch
            _check_keys(pa.Table.from_batches(seen, pa.schema([schema.field(key) for key in keys])))
        except UsageError as error:
            rows.failure = rows.failure or error
            raise

    return pa.RecordBatchReader.from_batches(given.schema, batches())


def _check_keys(keys: pa.Table) -> None:
    """Raise ``UsageError`` if several rows without nulls are equal."""
    whole = keys.drop_null() if any(column.null_count for column in keys.columns) else keys
    try:
        if whole.num_columns == 1 and _is_rising(whole.column(0)):
            return
        counts = whole.group_by(keys.schema.names).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts["count_all"], 1)).slice(0, 1).select(keys.schema.names).to_pylist()
    except pa.ArrowNotImplementedError:  # for keys that are lists or structs
        seen = Counter(map(repr, whole.to_pylist()))
        twice = [row for row in whole.to_pylist() if seen[repr(row)] > 1]
    if twice:
        key = ", ".join(f"{name} = {value!r}" for name, value in twice[0].items())
        raise UsageError(
            f"Ambiguous merge inserts are prohibited: several rows have the key ({key})",
            hint="Nothing was written. Give each key once.",
        )


def _is_rising(values: pa.ChunkedArray) -> bool:
    """Return whether the values rise strictly, as keys often do: grouping takes fifty times as long as this check."""
    return bool(pc.all(pc.greater(values.slice(1), values.slice(0, max(len(values) - 1, 0)))).as_py())


@contextmanager
def _each_key_once() -> Iterator[None]:
    """In the block, Lance's error for several rows that replace the same row becomes ``UsageError``."""
    try:
        yield
    except OSError as error:
        if "Ambiguous merge insert" in str(error):
            raise UsageError(shortened(error), hint="Nothing was written. Give each key once.") from None
        raise
