"""A Lance table of whatever columns its maker wanted: made on the condition that there is none, read, written."""

from __future__ import annotations

import json
import warnings
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import NotFoundError, ReadError, SourceMissingError, UsageError, WriteError
from ..faults import reach
from ..folders import Folder
from ..locations import Location
from ..rrd import Findings, check_file
from ..storage import publish
from .blob_columns import blobs_as_bytes
from .file_digests import (
    OF_A_VERSION,
    FileDigest,
    FileDigests,
    TableVerification,
    files_of_versions,
    known_digests,
)
from .fragments import fragments_of
from .gate import Gate, outer_columns
from .new_columns import INDEX, columns_to_write, keys_of, refused_columns
from .place import RESTORE, LancePlace, shortened
from .snapshot import PRIMARY_KEY, TableSnapshot

_MOST_OF_ONE_VERSION: Final = 3
"""Times that others are said to have come first, and did not: the file of a version says that it is another."""
_MOST_REBASES: Final = 20
_MOST_MERGES: Final = 10
_ROWS_OF_A_BATCH: Final = 16_384
_ROWS_OF_A_FILE: Final = 1 << 20
DELETIONS: Final = "_deletions"
_A_SECOND: Final = timedelta(seconds=1)


class RowSource(Protocol):
    """Rows that are to be written."""

    failure: Exception | None
    """What reading them failed with, which Lance tells as text alone."""

    def under(self, schema: pa.Schema) -> pa.RecordBatchReader | pa.Table:
        """The rows as a table of this schema has them.

        Raises ``WriteError`` where they have other columns, or were read before and can be read only once.
        """
        ...

    def among(self, schema: pa.Schema) -> pa.RecordBatchReader | pa.Table:
        """The rows with those columns of a table of this schema that they have; raises the same."""
        ...

    def replacing(self, schema: pa.Schema) -> pa.RecordBatchReader:
        """The rows by their own columns, which replace those of a table of this schema; raises the same."""
        ...


class JoinedFragments(NamedTuple):
    """Fragments that a compaction makes one or more of, and the files of these."""

    before: frozenset[int]
    files: tuple[str, ...]

    @classmethod
    def of(cls, result: Any) -> JoinedFragments:
        """Those of a task of Lance's."""
        before = frozenset(one.id for one in result.original_fragments)
        return cls(before, tuple(file.path for one in result.new_fragments for file in one.files))


class UserTable(LancePlace):
    """The Lance table at a place: each write is one commit, on top of whatever others wrote meanwhile.

    Fields with the metadata ``rerun:is_table_index`` are the key of :meth:`upsert`. Where none of them may be null,
    they are Lance's unenforced primary key, by which Lance itself finds that others insert the same key at once.

    With a ``version``, that one is read in the place of the newest, and writing is a ``UsageError``.

    Raises ``NotFoundError`` where there is no table, ``ReadError`` where it is damaged, ``WriteError`` where it cannot
    be written.
    """

    def __init__(self, place: Location, name: str, gate: Gate | None = None, version: int | None = None) -> None:
        super().__init__(
            place,
            name=f"table {name!r}",
            unread="Restore its files, or register a copy of it.",
            unwritten="Nothing was written.",
            gate=gate,
        )
        self.label = name
        self.version = version
        self._digests = FileDigests(place, self._name)

    def create(self, schema: pa.Schema, rows: pa.Table | pa.RecordBatchReader | None = None) -> bool:
        """Make the table with its rows, by default none, unless there is one; give whether there was none.

        It is there with all of them or not at all. Raises ``UsageError`` where Lance has no such columns, or Arrow
        could not read them back.
        """
        columns = self.to_write(schema)
        try:
            with refused_columns(self._name):
                written = [] if rows is None else fragments_of(self.written(rows, "create"))
                made = self._made(columns, written, enable_stable_row_ids=True)
        except WriteError as error:
            if error.__cause__ is not None and "Dataset already exists" in shortened(error.__cause__):
                return False
            raise
        if made:
            with self.writing():
                self._keep_digests(self._opened(1))
        return made

    def to_write(self, schema: pa.Schema) -> pa.Schema:
        """The columns of a schema as they are written. Raises ``UsageError`` where the table cannot have them."""
        return columns_to_write(schema, self._name)

    def snapshot(self, version: int | None = None) -> TableSnapshot:
        """A version, by default the newest."""
        with self.reading():
            dataset = self._opened(version)
            self._check_deletions(dataset)
            return TableSnapshot(self, dataset)

    def append(self, rows: RowSource) -> None:
        """Add rows; columns that they lack are null."""
        import lance

        def appended(dataset: Any) -> Any:
            reader = rows.under(blobs_as_bytes(dataset.schema))
            return lance.write_dataset(reader, dataset, mode="append", storage_options=self.storage_options)

        self._commit(appended, rows, reads=False)

    def overwrite(self, rows: RowSource) -> None:
        """Put rows in the place of all there are. They bring their columns along."""
        import lance

        def overwritten(dataset: Any) -> Any:
            reader = rows.replacing(blobs_as_bytes(dataset.schema))
            reader = pa.RecordBatchReader.from_batches(self.to_write(reader.schema), reader)
            return lance.write_dataset(
                reader, dataset, mode="overwrite", storage_options=self.storage_options, enable_stable_row_ids=True
            )

        with refused_columns(self._name):
            self._commit(overwritten, rows, reads=False)

    def upsert(self, rows: RowSource, alone: Callable[[], AbstractContextManager[object]]) -> None:
        """Put rows in the place of those with the same key, and add the others; columns that they lack are null.

        Lance notices that two insert the same key at once where keys cannot be null. Otherwise it is done in
        ``alone``, in which no other upsert of this table is, as a rule: one that slept in there for too long is refused
        by its commit, and merges again.

        Raises ``UsageError`` where the table has no key, or several rows have the same.
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
            schema = self._opened().schema
        if all(PRIMARY_KEY in (schema.field(key).metadata or {}) for key in keys_of(schema)):
            self._commit(merged, rows)
        else:
            with alone():
                self._commit(partial(merged, is_primary=False), rows)

    def update(self, rows: RowSource) -> None:
        """Put the values of rows into the rows with the same key, which keep those of other columns.

        A row whose key is not there is left out. Raises ``UsageError`` as :meth:`upsert` does, and where the rows lack
        a field of the key.
        """

        def merged(dataset: Any) -> None:
            merge, changes = self._merge(dataset), rows.among(blobs_as_bytes(dataset.schema))
            missing = [key for key in keys_of(dataset.schema) if key not in changes.schema.names]
            if missing:
                raise UsageError(f"the rows lack {', '.join(missing)} of the key of {self._name}")
            with _each_key_once():
                merge.conflict_retries(_MOST_MERGES).execute(changes)

        self._commit(merged, rows)

    def _merge(self, dataset: Any) -> Any:
        """A merge that changes rows with the same key. Raises ``UsageError`` where the table has none."""
        keys = keys_of(dataset.schema)
        if not keys:
            raise UsageError(
                f"{self._name} has no key: a merge insert operation requires join keys",
                hint=f"Give the fields of its key the metadata {{{INDEX.decode()!r}: 'true'}} when it is made.",
            )
        self._check_deletions(dataset)
        return dataset.merge_insert(keys).when_matched_update_all()

    def compact(
        self, only: Collection[int] | None = None, told: Callable[[Sequence[JoinedFragments]], None] = lambda _: None
    ) -> None:
        """Join small fragments, by default all, in one commit; none where there is nothing to join.

        ``told`` is called before the commit. Raises ``ReadError`` where files of these fragments are not what was
        written: their rows would get digests that are right.
        """
        from lance.optimize import Compaction

        def compacted(dataset: Any) -> None:
            self._check_deletions(dataset)
            there = () if only is None else (one.fragment_id for one in dataset.get_fragments())
            others = [id_ for id_ in there if only is not None and id_ not in only]
            plan = Compaction.plan(dataset, {"num_threads": 1, "excluded_fragment_ids": others})
            self._check_digests({path for task in plan.tasks for one in task.fragments for path in _files_of(one)})
            joined = [task.execute(dataset) for task in plan.tasks]
            if joined:
                reach("lance.compact")
                told([JoinedFragments.of(one) for one in joined])
                Compaction.commit(dataset, joined)

        self._commit(compacted)

    def cleanup(
        self, older_than: timedelta, kept_from: int | None = None, *, delete_unverified: bool = False
    ) -> tuple[int, int]:
        """Remove versions of that age, but those with a tag, and the files that only they need.

        Versions from ``kept_from`` on stay in every case. Files that no version names are another's who may be about to
        name them: those stay for a week, unless ``delete_unverified``. Gives how many bytes and versions went.
        Raises ``ReadError`` where the file of a version is not what was written.
        """
        self._check_digests(None)
        with self.writing():
            dataset = self._opened()
            if kept_from is not None:
                made = [one["timestamp"] for one in dataset.versions() if one["version"] >= kept_from]
                first = min(made).astimezone()  # Lance tells the local time
                older_than = max(older_than, datetime.now(UTC) - first + _A_SECOND)
            told = dataset.cleanup_old_versions(
                older_than=older_than, delete_unverified=delete_unverified, error_if_tagged_old_versions=False
            )
            self._digests.join()
        reach("lance.cleanup")
        return int(told.bytes_removed), int(told.old_versions)

    def faults(self) -> list[ReadError]:
        """The faults of the files of the table: see :meth:`verify`."""
        return list(self.verify().faults)

    def verify(self) -> TableVerification:
        """Read all files of the table, and compare them with the digests that commits have written.

        Those of the newest version have to be there, and those of earlier ones to be what was written. Rows of the
        newest version in files without a digest, as other programs write them, are read.
        """
        found = Findings()
        try:
            with self.reading():
                manifests = self._digests.manifests()
                digests = self._digests.all(found)
                found.count(chunks=(same := self._digests.compare(digests, found)), rows=0, digests=same)
        except FileNotFoundError:
            manifests = {}
        if not manifests:
            hint = "Restore its files, or delete the entry."
            found.fault(SourceMissingError("there is no Lance table here", path=self.place, hint=hint))
            return TableVerification.of(found)
        newest = max(manifests, key=manifests.__getitem__)
        undigested = {path for path in manifests if path not in digests}
        wrong = {error.path for error in found.verification().faults}
        if str(self._location / newest) not in wrong:  # what Lance makes of a damaged one is anybody's guess
            try:
                with self.reading():
                    dataset = self._opened(manifests[newest])
            except ReadError as error:  # which says more than what is wrong with each of its files
                if error.transient:
                    raise
                return TableVerification(faults=(error,), version=manifests[newest])
            with found.noting():
                undigested |= self._verify_newest(dataset, digests, wrong, found)
        return TableVerification.of(found, manifests[newest], undigested)

    def _verify_newest(
        self, dataset: Any, digests: Mapping[str, FileDigest], wrong: Collection[str | None], found: Findings
    ) -> set[str]:
        """Verify that all files of the newest version are there, and read rows without digests; gives their files."""
        with self.reading():
            version = int(dataset.version)
            named = files_of_versions(dataset, version)[version]
            folders = {f"_indices/{part.uuid}" for one in dataset.describe_indices() for part in one.segments}
            folders |= {path.removesuffix(".lance") for path in named}  # of large blobs
        faults = self._faults_of(dataset, [path for path in digests if path.rpartition("/")[0] in folders])
        for error in faults:
            if error.path not in wrong:
                found.fault(error)
        undigested = {path for path in named if path not in digests and not path.startswith("_transactions/")}
        if not faults and not wrong:
            with self.reading():
                self._check_deletions(dataset)
                found.count(chunks=len(undigested), rows=int(dataset.count_rows()))
                _read_rows(dataset, undigested)
        return undigested

    def check_files(self, dataset: Any) -> None:
        """Raise ``ReadError`` where a file that a version needs is gone or has another size, or where the file of the
        version is not what was written.
        """
        found, path = Findings(), self._digests.manifest_of(int(dataset.version))
        with self.reading():
            written = self._digests.of_version(int(dataset.version), path)
            if written is not None:
                self._digests.compare({path: written}, found)
        found.verification().checked()
        for error in self._faults_of(dataset):
            raise error

    def _check_digests(self, paths: Collection[str] | None) -> None:
        """Raise ``ReadError`` where files are not what was written; None: those that each version has of its own."""
        found = Findings()
        with self.reading():
            digests = self._digests.all(found)
            chosen = (path for path in digests if (path.startswith(OF_A_VERSION) if paths is None else path in paths))
            self._digests.compare({path: digests[path] for path in chosen}, found)
        found.verification().checked()

    def _faults_of(self, dataset: Any, beside: Collection[str] = ()) -> list[ReadError]:
        """The faults of the files that a version needs, which are looked at, and not read.

        ``beside`` are files of its indexes and large blobs, which have to be there, too.
        """
        with self.reading():
            fragments = [fragment.metadata for fragment in dataset.get_fragments()]
            sizes = self._sizes_of("data")
            deletions = self._sizes_of(DELETIONS) if any(one.deletion_file for one in fragments) else {}
        wanted: dict[str, int | None] = {
            f"data/{file.path}": file.file_size_bytes for one in fragments for file in one.files if file.base_id is None
        }
        there = {f"data/{name}": size for name, size in sizes.items()}
        for one in fragments:
            if one.deletion_file is not None and one.deletion_file.base_id is None:
                wanted[one.deletion_file.path(one.id)] = None
        there |= {f"{DELETIONS}/{name}": size for name, size in deletions.items()}
        wanted |= dict.fromkeys(beside)
        for folder in {path.rpartition("/")[0] for path in beside}:
            there |= {f"{folder}/{name}": size for name, size in self._sizes_of(folder).items()}
        found: list[ReadError] = []
        for name, size in wanted.items():
            place = str(self._location / name)
            if name not in there:
                found.append(
                    SourceMissingError(f"{self._name} needs this file, which is gone", path=place, hint=RESTORE)
                )
            elif size and size != there[name]:
                told = f"a file of {self._name} has {there[name]:,} bytes, not {size:,}"
                found.append(ReadError(told, path=place, hint=RESTORE))
        return found

    def _sizes_of(self, folder: str) -> dict[str, int]:
        try:
            return {file.name: file.size for file in Folder.at(self._location / folder).entries()}
        except FileNotFoundError:
            return {}

    def version_and_schema(self) -> tuple[int, pa.Schema]:
        """The number of the newest version, and its columns as Lance has them."""
        with self.reading():
            dataset = self._opened()
            return int(dataset.version), dataset.schema

    def written(self, rows: pa.RecordBatchReader | pa.Table, mode: str, most: int | None = None) -> list[str]:
        """Write rows into files of ``most`` rows that no version names; gives what the commit is to be told of each.

        ``mode`` is ``append``, ``overwrite``, or ``create`` for a table that is not there yet.
        Files that no commit is told of go with a cleanup of the table.
        """
        from lance.fragment import write_fragments

        with refused_columns(self._name), self.writing():
            made = write_fragments(
                rows,
                self._address,
                schema=None if mode == "append" else self.to_write(rows.schema),
                mode=mode,
                storage_options=self.storage_options,
                enable_stable_row_ids=True,
                max_rows_per_file=most or _ROWS_OF_A_FILE,
            )
            return [json.dumps({**one.to_json(), "digests": self._digests.of_fragment(one)}) for one in made]

    def append_written(self, written: Sequence[str], version: int) -> None:
        """Add the rows that were written by the columns of a version."""
        import lance

        reach("lance.fragments")
        operation = lance.LanceOperation.Append(fragments_of(written))
        try:
            with self.writing():
                options = self.storage_options
                made = lance.LanceDataset.commit(
                    self._address, operation, read_version=version, storage_options=options
                )
            self._keep_digests(made, written)
            reach("lance.commit")
        except WriteError as error:
            if not is_conflict(error.__cause__):
                raise
            raise WriteError(
                f"others replaced {self._name} while rows were written, and none were",
                path=self.place,
                hint="Write them again.",
                transient=True,
            ) from None

    def overwrite_written(self, written: Sequence[str], schema: pa.Schema) -> None:
        """Put rows that were written with these columns in the place of all there are."""
        import lance

        reach("lance.fragments")
        operation = lance.LanceOperation.Overwrite(self.to_write(schema), fragments_of(written))

        def overwritten(dataset: Any) -> Any:
            return lance.LanceDataset.commit(
                self._address,
                operation,
                read_version=dataset.version,
                storage_options=self.storage_options,
                enable_stable_row_ids=True,
            )

        self._commit(overwritten, written=written, reads=False)

    def writing(self) -> AbstractContextManager[None]:
        """In the block, Lance's errors are ``WriteError``. Raises ``UsageError`` where one version is read."""
        if self.version is not None:
            raise UsageError(
                f"this is version {self.version} of {self._name}, which stays as it is",
                path=self.place,
                hint="Open the table without a version to change it.",
            )
        return super().writing()

    def _opened(self, version: int | None = None) -> Any:
        """A version as Lance gives it, which the gate let pass; by default the one that is read."""
        import lance

        version = self.version if version is None else version
        if isinstance(self._location, Path) and self._location.is_file():  # Lance takes seconds to say that
            raise NotFoundError("this is a file, and no Lance table", path=self.place)
        try:
            found = lance.dataset(self._address, version=version, storage_options=self.storage_options)
        except ValueError as error:
            if "was not found" not in str(error):
                raise
            if version is not None and self._listed():
                hint = "A cleanup has removed it, or it was never written."
                raise NotFoundError(f"the table has no version {version}", path=self.place, hint=hint) from None
            raise NotFoundError("there is no Lance table here", path=self.place) from None
        return self._admitted(found)

    def _check_deletions(self, dataset: Any) -> None:
        """Raise ``ReadError`` for a list of deleted rows that is damaged: one flipped bit of it lets Lance abort.

        The names of the files pass the gate, too.
        """
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
        self.gate.check_names(self._location, self._name, fragments)
        for fragment in fragments:
            one = fragment.deletion_file
            if one is not None and one.file_type == "array" and one.base_id is None:
                place = self._location / one.path(fragment.id)
                _check_deletion_file(place, one.num_deleted_rows, _state_of(place))

    def _commit(
        self,
        attempt: Callable[[Any], Any],
        rows: RowSource | None = None,
        *,
        written: Sequence[str] = (),
        reads: bool = True,
    ) -> None:
        """Write on top of the newest version, and again where others replaced the table meanwhile.

        ``attempt`` gives the dataset of the version that it has made; None where that is the one it was given.
        ``written`` are fragments that were written before. ``reads``: whether rows are read for it, whose blobs have to
        pass the gate then.
        """
        before, stood = -1, 0

        def once() -> bool | None:
            nonlocal before, stood
            try:
                with self.writing():
                    dataset = self._opened()
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
                        f"{self._name} cannot be written: others are in the way, and version {before} stays the newest"
                    )
                    raise WriteError(reason, path=self.place, hint=RESTORE) from error
                return None
            return True

        publish(once, self._name, path=self.place)

    def _keep_digests(self, made: Any, written: Sequence[str] = (), base: int | None = None) -> None:
        """Write the digests of the files that a version has added, or warn that it has none."""
        try:
            with self.reading():
                self._digests.keep(made, known_digests(written), base)
        except Exception as error:  # noqa: BLE001 (the version is there: to say that nothing was written would be wrong)
            warnings.warn(
                f"version {made.version} of {self._name} is written, and has no digests of its files: {error}",
                UserWarning,
                stacklevel=2,
            )


def _files_of(fragment: Any) -> list[str]:
    """The files of a fragment, by their paths, but for those outside of the table's folder."""
    files = [f"data/{file.path}" for file in fragment.files if not file.base_id]
    deletions = fragment.deletion_file
    return files if deletions is None or deletions.base_id else [*files, deletions.path(fragment.id)]


def _read_rows(dataset: Any, files: Set[str]) -> None:
    """Read all rows of fragments that have some of these files."""
    fragments = [one for one in dataset.get_fragments() if not files.isdisjoint(_files_of(one.metadata))]
    if fragments:
        deque(dataset.scanner(fragments=fragments, blob_handling="all_binary").to_batches(), 0)


def _state_of(place: Location) -> tuple[int, int] | None:
    """The size and the time of a local file; None for an object, or a file that is gone."""
    try:
        status = place.stat() if isinstance(place, Path) else None
    except OSError:
        return None
    return None if status is None else (status.st_size, status.st_mtime_ns)


@lru_cache(4096)
def _check_deletion_file(place: Location, rows: int, _state: tuple[int, int] | None) -> None:
    """Raise ``ReadError`` unless a file has this number of rows; a good one is read once."""
    try:
        data = Folder.at(place.parent).get(place.name)
        check_file(data)
        with pa.ipc.open_file(data) as reader:
            table = reader.read_all()
        table.validate(full=True)
        if table.schema.types != [pa.uint32()] or table.num_rows != rows:
            raise ValueError(f"it has {table.num_rows:,} rows of {table.schema.types}, not {rows:,} of uint32")
    except FileNotFoundError:
        return  # Lance says so
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = f"a list of deleted rows is damaged: {error}"
        raise ReadError(reason, path=str(place), hint=RESTORE) from error


def _commit_after_all(dataset: Any, transaction: Any) -> Any:
    """Commit an upsert, or fail with a conflict where another upsert was committed since ``dataset`` was the newest.

    Lance lets two upserts follow each other where they change no fragment in common, as if they were appends: a key
    that both add would be there twice. So each says that it changes the first fragment, too. Where there is none yet,
    the rows become all that there is, as the very next version or not at all.
    """
    from lance import LanceDataset, LanceOperation

    first = next(iter(dataset.get_fragments()), None)
    change = transaction.operation
    if first is None:
        change = LanceOperation.Overwrite(dataset.lance_schema, change.new_fragments)
    elif first.fragment_id not in {*change.removed_fragment_ids, *(one.id for one in change.updated_fragments)}:
        change = replace(change, updated_fragments=[*change.updated_fragments, first.metadata])
    retries = 0 if first is None else _MOST_REBASES
    return LanceDataset.commit(dataset, replace(transaction, operation=change), max_retries=retries)


def _with_each_key_once(rows: RowSource, schema: pa.Schema, keys: list[str]) -> pa.RecordBatchReader | pa.Table:
    """The rows as a table of this schema has them. Raises ``UsageError`` where several have the same key.

    Lance would add all of them, where the table has no such key yet. Keys of a reader are held while it is read.
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
    """Raise ``UsageError`` where several rows are the same, and have no null."""
    whole = keys.drop_null() if any(column.null_count for column in keys.columns) else keys
    try:
        if whole.num_columns == 1 and _is_rising(whole.column(0)):
            return
        counts = whole.group_by(keys.schema.names).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts["count_all"], 1)).slice(0, 1).select(keys.schema.names).to_pylist()
    except pa.ArrowNotImplementedError:  # of keys that are lists or structs
        seen = Counter(map(repr, whole.to_pylist()))
        twice = [row for row in whole.to_pylist() if seen[repr(row)] > 1]
    if twice:
        told = ", ".join(f"{name} = {value!r}" for name, value in twice[0].items())
        raise UsageError(
            f"Ambiguous merge inserts are prohibited: several rows have the key ({told})",
            hint="Nothing was written. Give each key once.",
        )


def _is_rising(values: pa.ChunkedArray) -> bool:
    """Whether each value is greater than the one before, as keys often are: grouping them takes fifty times as long."""
    return bool(pc.all(pc.greater(values.slice(1), values.slice(0, max(len(values) - 1, 0)))).as_py())


@contextmanager
def _each_key_once() -> Iterator[None]:
    """A block in which Lance may find that several rows replace one, which raises ``UsageError``."""
    try:
        yield
    except OSError as error:
        if "Ambiguous merge insert" in str(error):
            raise UsageError(shortened(error), hint="Nothing was written. Give each key once.") from None
        raise


def is_conflict(error: BaseException | None) -> bool:
    """Whether Lance says that what others committed meanwhile does not go with this."""
    return isinstance(error, OSError) and any(
        word in str(error).lower() for word in ("conflict", "preempted", "concurrent transaction", "concurrent writers")
    )
