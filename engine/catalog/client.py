"""``CatalogClient``: the entries of a catalog in a folder, and queries of them."""

from __future__ import annotations

import copy
import importlib.metadata
import importlib.util
import io
import os
import shlex
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from ..errors import (
    AlreadyExistsError,
    MissingExtraError,
    NotFoundError,
    UnsupportedError,
    UsageError,
    check_argument,
)
from ..limits import MIB
from ..locations import Location, located
from ..query import AnswerColumns, QueriedSegment, Query, QuerySemantics
from ..recordings import RecordingsFolder, is_catalog
from ..storage import ObjectUrl, VersionPoint
from ..store import RecordingStore
from ..units import counted
from .copying import CopyReport, copy_catalog
from .dataset import DatasetEntry
from .deprecated import TableInsertMode, replaced_by, warn_renamed, warned
from .entries import (
    DATASET_KINDS,
    SYSTEM_PREFIX,
    EntryId,
    EntryKind,
    EntryRow,
    changes_table,
    check_entry_name,
    check_table_name,
    dataset_rows,
)
from .entry_log import SYSTEM_TABLE, CatalogVersion, EntryLog
from .maintenance import (
    CatalogFault,
    a_week_ago,
    created_table,
    created_table_at,
    faults_of,
    maintain_tables,
    registered_table,
    remove_abandoned,
    remove_deleted,
    remove_drafts,
)
from .segments import chosen_segments
from .table import EntriesTable, TableEntry, TableTasks, entries_table
from .uploads import Uploads

if TYPE_CHECKING:
    from ..lance import Batches
    from .sql import CatalogContext

_SERVERS: Final = ("rerun://", "rerun+http://", "rerun+https://")
_EMBEDDED: Final = "rerun+"


@dataclass(frozen=True)
class VersionInfo:
    """The version of a catalog's server, and its place if known."""

    version: str
    cloud_provider: str | None = None
    cloud_region: str | None = None


@dataclass(frozen=True)
class BearerTokenObjectStoreAuth:
    """A function that returns the token that a client of Rerun's server needs to read an object store.

    chunkmill uses the credentials of the environment, and no tokens; see the page on object stores.
    """

    get_token: Callable[[], str]


ObjectStoreAuth: TypeAlias = BearerTokenObjectStoreAuth
"""Every way to authenticate."""


class CatalogClient:
    """The catalog in a folder, or below a prefix of an object store: named datasets of recordings, and named tables.

    ::

        client = CatalogClient("lake/")
        drives = client.create_dataset("drives")
        Ingest("landing/", into=drives).start(once=True).await_termination()
        client.get_dataset("drives").segment_ids()

    A missing folder is an empty catalog; the first entry creates it. Any number of processes may use a catalog at once;
    each call sees the changes of others.

    Parameters
    ----------
    url
        A path, a ``file://`` URL, or the URL of a prefix, such as ``s3://fleet/lake``.
    token
        Ignored: a folder needs no token.
    addr
        The deprecated name of ``url``.
    semantics
        The rules of queries: ``contract``, or ``rerun-0.33`` to compare with that release of Rerun row by row. By
        default ``CHUNKMILL_CATALOG_SEMANTICS``, or ``contract``.
    allow
        Folders outside the catalog in which registered tables and their blobs may have files. Other files raise a
        ``ForeignFileError``.
    object_store_auth
        Not supported: raises an ``UnsupportedError``.

    Raises
    ------
    ConnectionError
        The place cannot be read.
    ImportError
        The package ``datafusion`` is not installed.
    ValueError
        The URL names a server, or anything else but a folder or a prefix of an object store.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        token: str | None = None,
        addr: str | None = None,
        semantics: str | QuerySemantics | None = None,
        allow: Collection[str] = (),
        object_store_auth: ObjectStoreAuth | None = None,
    ) -> None:
        if object_store_auth is not None:
            raise UnsupportedError(
                "object stores are read with the credentials of the environment, not with tokens",
                path=str(url),
                hint="Set the credentials of the store, such as AWS_ACCESS_KEY_ID, and omit object_store_auth.",
            )
        if addr is not None:
            warn_renamed("addr", "url")
        place = url if url is not None else addr
        check_argument("url", place, str, os.PathLike)
        _check_datafusion()
        self._url = os.fspath(place or "")
        _check_address(self._url, token)
        self._semantics = QuerySemantics.of(semantics)
        self._log = EntryLog(located(self._url.removeprefix(_EMBEDDED)), allow)
        self._context: CatalogContext | None = None
        self._log.check_reachable()
        self._log.read()

    def for_clients(self, readable: Collection[str] | None) -> CatalogClient:
        """Return a catalog client that a server uses to answer its own clients.

        Files of tables must be in the catalog or in ``readable``; None allows all. Blobs in other files are not read.
        """
        made = copy.copy(self)
        log = made._log = copy.copy(self._log)  # noqa: SLF001 (the parts of its own kind)
        log.gate = self._log.gate_of(readable, ())
        made._context = None  # noqa: SLF001 (as above)
        return made

    def stage(self, source: str | os.PathLike[str] | bytes, *, key: str) -> str:
        """Store a file in the catalog's folder, durably, and return its URL, for :meth:`DatasetEntry.register`.

        Parameters
        ----------
        source
            The path of a local file, or its bytes: an RRD, or a file of a Lance table.
        key
            A relative path that is not in use, such as ``project/drive.rrd``. A stored file is never replaced, and
            stays until you delete it.

        Raises
        ------
        ValueError
            The key is invalid, or the file is of another kind.
        AlreadyExistsError
            There is a file with this key.
        OSError
            The source cannot be read, or the file cannot be written (``WriteError``).
        UnsupportedError
            The catalog is in an object store: upload it there.
        """
        root = self._log.root
        if isinstance(root, ObjectUrl):
            raise UnsupportedError(
                "only a catalog in a local folder stages files", path=str(root), hint="Upload the file to the store."
            )
        data = io.BytesIO(source) if isinstance(source, bytes) else Path(source).open("rb")  # noqa: SIM115 (below)
        with data:
            upload = Uploads(root.absolute()).begin(key, data.seek(0, os.SEEK_END))
            try:
                data.seek(0)
                while piece := data.read(MIB):
                    upload.write(piece)
                upload.publish()
            except BaseException:
                upload.discard()
                raise
        return Uploads(root.absolute()).place(key).as_uri()

    @property
    def url(self) -> str:
        """The address, as it was given."""
        return self._url

    @property
    def ctx(self) -> CatalogContext:
        """A DataFusion session with every table and dataset by its name, including those created later.

        Dots divide a name into SQL's catalog, schema and table. See :meth:`CatalogContext.sql`.
        """
        if self._context is None:
            from .sql import CatalogContext

            self._context = CatalogContext(partial(self.entries, include_hidden=True))
        return self._context

    @property
    def semantics(self) -> QuerySemantics:
        """The rules of queries."""
        return self._semantics

    def version_info(self) -> VersionInfo:
        """The version of chunkmill, which serves this catalog in this process."""
        return VersionInfo(f"chunkmill {importlib.metadata.version('chunkmill')}")

    # --- lists

    def entries(self, *, include_hidden: bool = False) -> list[DatasetEntry | TableEntry]:
        """All datasets, sorted by name, and then all tables.

        ``include_hidden`` adds the datasets of blueprints, and tables whose names begin with ``__``, such as
        ``__entries``.
        """
        version = self._log.read()
        return [*self._datasets(version, include_hidden), *self._tables(version, include_hidden)]

    def datasets(self, *, include_hidden: bool = False) -> list[DatasetEntry]:
        """All datasets, sorted by name; with ``include_hidden`` also those of blueprints."""
        return self._datasets(self._log.read(), include_hidden)

    def tables(self, *, include_hidden: bool = False) -> list[TableEntry]:
        """All tables, sorted by name; with ``include_hidden`` also ``__entries`` and other hidden ones."""
        return self._tables(self._log.read(), include_hidden)

    def entry_names(self, *, include_hidden: bool = False) -> list[str]:
        """The names of all entries, sorted; see :meth:`entries`."""
        return sorted(entry.name for entry in self.entries(include_hidden=include_hidden))

    def dataset_names(self, *, include_hidden: bool = False) -> list[str]:
        """The names of all datasets, sorted; see :meth:`datasets`."""
        return [entry.name for entry in self.datasets(include_hidden=include_hidden)]

    def table_names(self, *, include_hidden: bool = False) -> list[str]:
        """The names of all tables, sorted; see :meth:`tables`."""
        return [entry.name for entry in self.tables(include_hidden=include_hidden)]

    def list_versions(self) -> pa.Table:
        """One row for each of the last 500 changes of the catalog's entries, oldest first.

        The columns are ``version`` (of the catalog), ``made_at``, ``author``, ``operation`` (``create``, ``rename``,
        ``change`` or ``remove``), ``kind`` (``dataset`` or ``table``), ``name``, ``id``, and ``earlier_name`` (of
        renamed entries). Changes made by releases that did not yet record changes are missing. For versions of a
        dataset or table, call its ``list_versions``.
        """
        return changes_table(self._log.read().changes)

    def entries_at(self, version: VersionPoint) -> pa.Table:
        """The entries as of a version of the catalog, in the columns of the table ``__entries``.

        Parameters
        ----------
        version
            The number of a version, or a time, as for :meth:`DatasetEntry.at`. At least the last 16 versions are kept.

        Raises
        ------
        NotFoundError
            The version does not exist, or was removed.
        """
        return entries_table(self._log.read_at(version))

    def _datasets(self, version: CatalogVersion, include_hidden: bool) -> list[DatasetEntry]:
        kinds = DATASET_KINDS if include_hidden else (EntryKind.DATASET,)
        rows = sorted((row for row in version.all_rows() if row.kind in kinds), key=lambda row: row.name)
        return [DatasetEntry(self, self._log, row) for row in rows]

    def _tables(self, version: CatalogVersion, include_hidden: bool) -> list[TableEntry]:
        rows = [
            row
            for row in version.all_rows()
            if row.kind is EntryKind.TABLE and (include_hidden or not row.name.startswith(SYSTEM_PREFIX))
        ]
        return [self._table_of(row) for row in sorted(rows, key=lambda row: row.name)]

    def _table_of(self, row: EntryRow) -> TableEntry:
        kind = EntriesTable if row.name == SYSTEM_TABLE else TableEntry
        return kind(self, self._log, row)

    # --- one entry

    def get_dataset(
        self,
        name: str | None = None,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
    ) -> DatasetEntry:
        """The dataset of this name, or of this id.

        Raises
        ------
        LookupError
            There is no dataset of this name (a ``NotFoundError``).
        NotFoundError
            There is no dataset of this id.
        ValueError
            Neither ``name`` nor ``id`` is given, or both are.
        """
        version, row = self._named(name, id, "dataset", DATASET_KINDS)
        return DatasetEntry(self, self._log, version.dataset(row.id))

    def get_table(
        self,
        name: str | None = None,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
    ) -> TableEntry:
        """The table of this name, or of this id. Raises the errors of :meth:`get_dataset`."""
        _, row = self._named(name, id, "table", (EntryKind.TABLE,))
        if row.kind is not EntryKind.TABLE:
            raise NotFoundError(f"table with entry ID '{row.id}' not found", hint=f"'{row.name}' is not a table.")
        return self._table_of(row)

    def _named(
        self,
        name: str | None,
        id: EntryId | str | None,  # noqa: A002 (the name it has with Rerun)
        what: str,
        kinds: tuple[EntryKind, ...],
    ) -> tuple[CatalogVersion, EntryRow]:
        if (name is None) == (id is None):
            both = name is not None
            raise UsageError(
                "Only one of 'id' or 'name' must be provided." if both else "Either 'id' or 'name' must be provided."
            )
        version = self._log.read()
        if id is not None:
            return version, version.row(id if isinstance(id, EntryId) else EntryId(id))
        check_argument("name", name, str)
        row = version.named(name or "")
        if row is None:
            hint = version.like(name or "", kinds)
            raise NotFoundError(f"No {what} found with name '{name}'", hint=hint)
        return version, row

    def spark_rows(self, name: str) -> TableTasks:
        """The rows of a table, or of the segment table of a dataset, for a Spark data source.

        Raises ``NotFoundError`` if there is no such entry.
        """
        version = self._log.read()
        row = version.named(name)
        if row is None:
            kinds = (EntryKind.TABLE, *DATASET_KINDS)
            raise NotFoundError(f"there is no table or dataset {name!r}", hint=version.like(name, kinds))
        if row.kind is EntryKind.TABLE:
            return self._table_of(row).spark_rows()
        return TableTasks.of_rows(DatasetEntry(self, self._log, row).segment_rows())

    # --- making and upkeep

    def create_dataset(
        self,
        name: str,
        *,
        exist_ok: bool = False,
        url: str | os.PathLike[str] | None = None,
        id: EntryId | None = None,  # noqa: A002 (the name it has with Rerun)
        with_assets: bool = False,
    ) -> DatasetEntry:
        """Create a dataset: empty, or with the recordings of the store at ``url``, which stays in its place.

        Names are unique across datasets and tables. ``exist_ok`` returns an existing dataset of this name; a ``url`` or
        ``id`` that you pass must match it. ``id`` is an unused id, by default a new one. ``with_assets`` also creates
        the hidden dataset of assets, which otherwise is created with the first asset.

        Raises
        ------
        AlreadyExistsError
            An entry has this name or id, or another dataset has the store at ``url``.
        SourceMissingError
            There is no store at ``url``.
        ValueError
            The name is invalid.
        """
        check_entry_name(name)
        place = None if url is None else self._adopted(url)
        rows = dataset_rows(name, time.time_ns(), place, id, with_assets=with_assets)
        try:
            self._log.add(*rows)
        except AlreadyExistsError:
            existing = self._log.read().named(name)
            if exist_ok and existing is None and place is None:  # it was renamed or deleted meanwhile
                return self.create_dataset(name, exist_ok=True, url=url, id=id, with_assets=with_assets)
            if not exist_ok or existing is None or existing.kind is not EntryKind.DATASET:
                raise
            if (place is not None and existing.place != place) or (id is not None and existing.id != id):
                raise
            return DatasetEntry(self, self._log, existing)
        return DatasetEntry(self, self._log, rows[0])

    def _adopted(self, url: str | os.PathLike[str]) -> str:
        folder = RecordingsFolder(url)
        folder.version()
        return self._log.place_in(folder.path)

    def create_table(self, name: str, schema: pa.Schema, url: str | os.PathLike[str] | None = None) -> TableEntry:
        """Create an empty table with these columns.

        It gets a new folder below ``url`` (an absolute path or URL), by default in the catalog's folder. Fields with
        the metadata ``{"rerun:is_table_index": "true"}`` are the key of its ``upsert``.

        Raises
        ------
        AlreadyExistsError
            An entry has this name.
        ValueError
            The name needs quotes in SQL, the URL is relative or in the catalog's own folders, or Lance does not support
            a column's type or name.
        WriteError
            The table cannot be written there.
        """
        check_table_name(name)
        check_argument("schema", schema, pa.Schema)
        return self._table_of(created_table(self._log, name, schema, url))

    def create_table_at(self, name: str, schema: pa.Schema, url: str | os.PathLike[str]) -> TableEntry:
        """Create a table exactly at ``url``, as the call in Rerun's protocol does; see :meth:`create_table`.

        Also raises ``AlreadyExistsError`` if ``url`` has a table.
        """
        check_table_name(name)
        check_argument("schema", schema, pa.Schema)
        return self._table_of(created_table_at(self._log, name, schema, url))

    def register_table(self, name: str, url: str | os.PathLike[str]) -> TableEntry:
        """Register an existing Lance table under a name. The table stays in its place.

        Raises
        ------
        AlreadyExistsError
            An entry has this name.
        NotFoundError
            There is no Lance table at ``url``.
        ForeignFileError
            The table has files outside its own folder and the allowed folders.
        ReadError
            It cannot be read.
        ValueError
            The name needs quotes in SQL, the URL is relative, or the place is in the catalog's own folders.
        """
        check_table_name(name)
        return self._table_of(registered_table(self._log, name, url))

    def do_global_maintenance(self) -> None:
        """Compact datasets and tables, and remove data that nothing has needed for a week, such as deleted datasets.

        Create the times and value statistics that recordings lack, on Spark if there are many bytes. See
        :meth:`DatasetEntry.do_maintenance` and :meth:`TableEntry.do_maintenance`. Registered tables and the data of
        deleted tables stay unchanged. Files left by a killed process are removed after a week. If an entry fails, the
        others are still maintained; then the first error is raised.
        """
        failed: list[Exception] = []
        for dataset in self.datasets(include_hidden=True):
            try:
                dataset.do_maintenance(optimize_indexes=True, compact_fragments=True, cleanup_before=a_week_ago())
            except NotFoundError:
                continue  # it was deleted meanwhile
            except Exception as error:  # noqa: BLE001 (it is raised below)
                failed.append(error)
        failed += maintain_tables(self._log)
        remove_deleted(self._log)
        remove_drafts(self._log)
        remove_abandoned(self._log)
        if failed:
            raise failed[0]

    def copy_to(self, destination: str | os.PathLike[str]) -> CopyReport:
        """Copy the catalog to another folder or prefix of an object store, or update such a copy.

        The copy has the newest version of each dataset and table, with tags, properties and search indexes. Each copied
        file is verified by its digest. Only new files are copied. Files that only an earlier copy needed are removed.
        Data outside the catalog's folder, such as recordings registered in place, is not copied: the copy refers to it,
        with a :class:`ReadWarning`.

        Guarantee: a new copy appears as a whole; in an existing copy, each dataset and table changes in one step. After
        an interruption, the same call completes the copy.

        Raises
        ------
        AlreadyExistsError
            The destination has other files, a copy of another catalog, or a copy that was changed.
        ReadError
            A file cannot be read; the error is transient if the file was removed meanwhile.
        WriteError
            The destination cannot be written, or another process copies there.
        ValueError
            One place is inside the other.
        """
        return copy_catalog(self._log, located(destination))

    def check(self, datasets: Sequence[str] | None = None) -> list[CatalogFault]:
        """List damaged, missing and replaced files of the catalog and its entries, or of some entries.

        The list contains registered files that were replaced or removed, damaged or missing files of the catalog, its
        stores and its tables, and interrupted creations of tables. Files of tables are compared with their digests.
        Chunks are not read; use ``verify`` for them.

        Parameters
        ----------
        datasets
            Names of datasets or tables, by default all.

        Raises
        ------
        NotFoundError
            An entry does not exist.
        """
        return faults_of(self._log, datasets)

    # --- earlier names

    @replaced_by("entries")
    def all_entries(self) -> list[DatasetEntry | TableEntry]:
        """All entries; see :meth:`entries`."""
        return self.entries()

    @replaced_by("datasets")
    def dataset_entries(self) -> list[DatasetEntry]:
        """All datasets; see :meth:`datasets`."""
        return self.datasets()

    @replaced_by("tables")
    def table_entries(self) -> list[TableEntry]:
        """All tables; see :meth:`tables`."""
        return self.tables()

    @replaced_by("get_dataset")
    def get_dataset_entry(
        self,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
        name: str | None = None,
    ) -> DatasetEntry:
        """A dataset by its id or name; see :meth:`get_dataset`."""
        return self.get_dataset(name, id=id)

    @replaced_by("get_table")
    def get_table_entry(
        self,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
        name: str | None = None,
    ) -> TableEntry:
        """A table by its id or name; see :meth:`get_table`."""
        return self.get_table(name, id=id)

    @replaced_by("create_table")
    def create_table_entry(self, name: str, schema: pa.Schema, url: str) -> TableEntry:
        """Create a table; see :meth:`create_table`."""
        return self.create_table(name, schema, url)

    @warned("Use TableEntry.append(), overwrite(), or upsert() instead")
    def write_table(self, name: str, batches: Batches, insert_mode: TableInsertMode) -> None:
        """Write to a table in an ``insert_mode``; see :meth:`TableEntry.append`."""
        write_to(table_of(self, name), batches, insert_mode)

    @replaced_by("TableEntry.append")
    def append_to_table(self, table_name: str, batches: Batches | None = None, **named_params: Any) -> None:
        """Append to a table; see :meth:`TableEntry.append`."""
        table_of(self, table_name).append(batches, **named_params)

    @replaced_by("TableEntry.upsert")
    def update_table(self, table_name: str, batches: Batches | None = None, **named_params: Any) -> None:
        """Upsert into a table; see :meth:`TableEntry.upsert`."""
        table_of(self, table_name).upsert(batches, **named_params)

    def __repr__(self) -> str:
        return f"CatalogClient({self._url})"


def table_of(client: CatalogClient, name: str) -> TableEntry:
    """Return the table of a name. Raises ``NotFoundError`` with the message of earlier calls."""
    try:
        return client.get_table(name)
    except NotFoundError:
        raise NotFoundError(f"Table with name {name} not found") from None


def write_to(entry: TableEntry, batches: Batches, insert_mode: TableInsertMode) -> None:
    """Write to a table in an insert mode."""
    mode = TableInsertMode(insert_mode)
    write = {"APPEND": entry.append, "OVERWRITE": entry.overwrite, "REPLACE": entry.upsert}[mode.name]
    write(batches)


def _check_datafusion() -> None:
    try:
        spec = importlib.util.find_spec("datafusion")
    except ValueError:  # sys.modules has a module without a spec
        spec = None
    if spec is None:
        raise MissingExtraError(
            "catalogs need the package datafusion, which is not installed", hint="pip install 'datafusion>=52'"
        )


def _check_address(url: str, token: str | None) -> None:
    if url.startswith(_SERVERS):
        raise UsageError(
            f"{url} is the address of a server; chunkmill opens catalogs in folders and object stores",
            hint="Use rerun.catalog.CatalogClient for servers: pip install 'rerun-sdk[catalog]'.",
        )
    if url.startswith(("http://", "https://", "hf://")):
        raise UsageError(
            f"{url} is read-only, and a catalog must be writable",
            hint="Name a folder or a place in an object store; a served catalog has an address like rerun+http://host:port.",
        )
    if token is not None:
        raise UsageError("only servers take a token; a catalog in a folder or an object store needs none")


Queried = tuple[AnswerColumns, list[QueriedSegment]]
"""The columns of a query result, and the segments that it reads."""


def queried_at(place: Location, dataset: str | None, query: Query, segments: Sequence[str] = ()) -> Queried:
    """The columns and segments that a query reads from the newest version of a dataset or a store.

    ``dataset`` names a dataset of a catalog; it is optional if the catalog has only one. ``segments`` are ids, or
    patterns such as ``drive-*``; by default all. Raises ``UsageError`` if ``dataset`` is missing, or is given for a
    store; ``NotFoundError`` if the dataset or a segment does not exist; and the errors of :meth:`DatasetView.reader`.
    """
    if is_catalog(place):
        entry = one_dataset(CatalogClient(str(place)), dataset)
        view = entry.filter_contents(query.contents)
        if segments:
            view = view.filter_segments(chosen_segments(segments, entry.segment_ids()))
        return view.queried(query)
    if dataset is not None:
        raise UsageError(
            f"dataset {dataset!r} was given, but this is not a catalog", path=str(place), hint="Leave it out."
        )
    store = RecordingStore.open(place)
    ids = list(dict.fromkeys(entry.recording_id for entry in store)) if segments else None
    return store.queried(query, None if ids is None else chosen_segments(segments, ids))


def one_dataset(client: CatalogClient, name: str | None) -> DatasetEntry:
    """Return the dataset of a name, or the only dataset.

    Raises ``UsageError`` if there are several and no name is given.
    """
    if name is not None:
        return client.get_dataset(name)
    datasets = client.datasets()
    if len(datasets) != 1:
        raise UsageError(
            f"the catalog holds {counted(len(datasets), 'dataset')}, and no name was given",
            path=client.url,
            hint=f"Give one: `chunkmill catalog ls {shlex.quote(client.url)}` lists them.",
        )
    return datasets[0]
