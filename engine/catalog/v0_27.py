"""The catalog API of Rerun 0.27, with its names, parameters and return types, on top of the current API.

Each object calls a current object. Methods that ``today`` makes differ from current methods only in names of methods
and parameters; the other methods also return something else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import datafusion
import pyarrow as pa

from ..errors import AlreadyExistsError, NotFoundError, RegistrationError, UsageError, check_argument
from ..query import SEGMENT_ID, AnswerColumns, QueriedSegment, Query, QuerySemantics
from ..recordings import BASE_LAYER
from . import client
from .dataset import DatasetEntry as NewDataset
from .dataset import DatasetView
from .deprecated import TableInsertMode, older
from .entries import EntryId, EntryKind
from .entry_log import Entry as NewEntry
from .layers import OnDuplicateSegmentLayer
from .registration import RegistrationHandle
from .row_view import IndexValuesLike, RowView, ViewContentsLike, reader_of, view_query
from .search import AnyComponentColumn, IndexingResult, VectorDistanceMetric, VectorDistanceMetricLike
from .segments import frame_of, partition_url
from .table import TableEntry as NewTable

if TYPE_CHECKING:
    from ..chunk import IndexColumnSelector
    from ..lance import Batches

__all__ = [
    "AlreadyExistsError",
    "CatalogClient",
    "DataFusionTable",
    "DataframeQueryView",
    "DatasetEntry",
    "Entry",
    "EntryId",
    "EntryKind",
    "IndexValuesLike",
    "NotFoundError",
    "TableEntry",
    "TableInsertMode",
    "Task",
    "Tasks",
    "VectorDistanceMetric",
    "VectorDistanceMetricLike",
    "ViewContentsLike",
]

P = ParamSpec("P")
R = TypeVar("R")
PARTITION_ID: Final = "rerun_partition_id"
"""The name of the column of segment ids in 0.27."""
_TIME: Final = pa.timestamp("ns")
_STATUS: Final = pa.schema(
    [
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("data", pa.string()),
        pa.field("exec_status", pa.string(), nullable=False),
        pa.field("msgs", pa.string()),
        pa.field("blob_len", pa.uint64()),
        pa.field("lease_owner", pa.string()),
        pa.field("lease_expiration", _TIME),
        pa.field("attempts", pa.uint8(), nullable=False),
        pa.field("creation_time", _TIME),
        pa.field("last_update_time", _TIME),
    ]
)


def today(new: Callable[Concatenate[Any, P], R], doc: str, **parameters: str) -> Callable[Concatenate[Any, P], R]:
    """Return a method of an entry that calls ``new`` of the current entry in it; see :func:`older`."""
    return older(new, doc=doc, within="_entry", **parameters)


class Entry:
    """An entry of a catalog. An entry equals another handle of the same entry, its name, and its id."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, catalog: CatalogClient, entry: NewEntry) -> None:
        self._catalog = catalog
        self._entry = entry

    @property
    def id(self) -> EntryId:
        """The entry's id, which never changes."""
        return self._entry.id

    @property
    def name(self) -> str:
        """The entry's name."""
        return self._entry.name

    @property
    def kind(self) -> EntryKind:
        """The entry's kind."""
        return self._entry.kind

    @property
    def catalog(self) -> CatalogClient:
        """The client that returned this entry."""
        return self._catalog

    @property
    def created_at(self) -> datetime:
        """The time when the entry was created, in UTC."""
        return self._entry.created_at

    @property
    def updated_at(self) -> datetime:
        """The time of the last change of the entry, in UTC."""
        return self._entry.updated_at

    update = today(NewEntry.update, "Give the entry another name; see :meth:`chunkmill.engine.catalog.Entry.update`.")
    delete = today(
        NewEntry.delete, "Delete the entry from the catalog; see :meth:`chunkmill.engine.catalog.Entry.delete`."
    )

    def __eq__(self, other: object) -> bool:
        return self._entry == (other._entry if isinstance(other, Entry) else other)

    def __repr__(self) -> str:
        kind = self.kind.name.title().replace("_", "")
        return f"Entry({kind}, {self.name!r})"


class TableEntry(Entry):
    """A table of a catalog."""

    _entry: NewTable

    @property
    def storage_url(self) -> str:
        """The URL of the table; empty for a table that the catalog generates."""
        return self._entry.storage_url

    df = today(NewTable.reader, "The present rows of the table, as a DataFusion DataFrame.")
    to_arrow_reader = today(NewTable.to_arrow_reader, "The present rows of the table, as a stream of batches.")

    __datafusion_table_provider__ = today(
        NewTable.__datafusion_table_provider__,
        """The table for DataFusion, as its table provider.

        Raises ``UnsupportedError`` if Lance was built for another DataFusion.
        """,
    )


class DataFusionTable:
    """Rows with a name."""

    def __init__(self, name: str, frame: datafusion.DataFrame) -> None:
        self._name = name
        self._frame = frame

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._name

    def df(self) -> datafusion.DataFrame:
        """The rows as a DataFrame of DataFusion."""
        return self._frame

    def to_arrow_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of batches."""
        return reader_of(self._frame)


def with_partition_ids(frame: datafusion.DataFrame) -> datafusion.DataFrame:
    """Return a frame whose segment ids have their name of 0.27."""
    return frame.with_column_renamed(SEGMENT_ID, PARTITION_ID)


class Task:
    """A running registration of all files of a request. Each file succeeds or fails by itself."""

    def __init__(self, handle: RegistrationHandle) -> None:
        self._handle = handle
        self._id = f"task_{EntryId.new()}"
        self._began_ns = time.time_ns()

    @property
    def id(self) -> str:
        """The id of the task."""
        return self._id

    def wait(self, timeout_secs: float | None) -> None:
        """Wait until the task is done. None: without a limit. See :meth:`RegistrationHandle.wait`.

        Raises
        ------
        TimeoutError
            The task is not done after ``timeout_secs`` seconds. It continues.
        ValueError
            Some files were not registered; the message names each.
        """
        self._handle.wait(timeout_secs)

    def status(self) -> dict[str, object]:
        """The row of the task in :meth:`Tasks.status_table`."""
        status, text = "success", None
        try:
            self._handle.wait(0)
        except TimeoutError:
            status = "pending"
        except RegistrationError as error:
            status, text = "failed", error.message
        return {
            "task_id": self._id,
            "exec_status": status,
            "msgs": text,
            "attempts": 1,
            "creation_time": self._began_ns,
        }

    def __repr__(self) -> str:
        return f"Task({self._id})"


class Tasks:
    """The tasks of a ``register_batch`` or ``register_prefix`` call: one task for all files."""

    def __init__(self, handle: RegistrationHandle) -> None:
        self._tasks = (Task(handle),)

    def wait(self, timeout_secs: float | None = None) -> None:
        """Wait until all tasks are done. Raises the errors of :meth:`Task.wait`."""
        for task in self._tasks:
            task.wait(timeout_secs)

    def status_table(self) -> DataFusionTable:
        """One row for each task, with its current state: ``exec_status`` is ``pending``, ``success`` or ``failed``."""
        rows = [task.status() for task in self._tasks]
        return DataFusionTable("tasks", frame_of(pa.Table.from_pylist(rows, _STATUS)))

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        if index >= len(self._tasks):
            raise IndexError("Index out of range")
        return self._tasks[index]

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def __repr__(self) -> str:
        return f"Tasks({', '.join(task.id for task in self._tasks)})"


class DataframeQueryView(RowView):
    """Rows of a dataset by an index. It is immutable: each method returns a new view.

    Filters select rows of logged values. :meth:`fill_latest_at` fills the selected rows, also with values from other
    rows. A later filter replaces an earlier one of the same kind; the three range filters are one kind.
    :meth:`using_index_values` overrides all other filters of rows.
    """

    def __init__(self, dataset: NewDataset, query: Query) -> None:
        super().__init__(query)
        self._dataset = dataset
        self._partitions: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        dataset: NewDataset,
        index: str | None,
        contents: ViewContentsLike,
        *,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
    ) -> DataframeQueryView:
        """The view for arguments of ``dataframe_query_view``. Raises ``TypeError`` for other arguments."""
        query = view_query(
            index,
            contents,
            dataset.catalog.semantics,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
        )
        return cls(dataset, query)

    def filter_partition_id(self, partition_id: str, *args: str) -> DataframeQueryView:
        """Only the rows of these partitions. A missing partition raises when the rows are read."""
        for id_ in (partition_id, *args):
            check_argument("partition_id", id_, str)
        return self._changed(_partitions=(partition_id, *args))

    def df(self) -> datafusion.DataFrame:
        """The rows as a DataFrame of DataFusion, read on use; see :meth:`DatasetEntry.reader`.

        An index that no partition has gives no rows.

        Raises
        ------
        NotFoundError
            A partition does not exist.
        """
        return with_partition_ids(super().df())

    def _asked(self, query: Query) -> tuple[AnswerColumns, list[QueriedSegment]]:
        if self._partitions:
            missing = set(self._partitions) - set(self._dataset.segment_ids())
            if missing:
                raise NotFoundError(f"Partition '{min(missing)}' not found in dataset '{self._dataset.id}'")
        return DatasetView(self._dataset, frozenset(self._partitions) or None).queried(query)

    def __repr__(self) -> str:
        return f"DataframeQueryView({self._dataset!r}, index={self._query.index!r})"


class DatasetEntry(Entry):
    """A dataset of a catalog: partitions, each a recording of one or more layers."""

    _entry: NewDataset

    @property
    def manifest_url(self) -> str:
        """The URL of the dataset's store."""
        return self._entry.manifest_url

    def __fspath__(self) -> str:
        return os.fspath(self._entry)

    schema = today(NewDataset.schema, "The columns of all partitions.")
    arrow_schema = today(
        NewDataset.arrow_schema, "The columns of all partitions as Arrow fields with Rerun's metadata."
    )

    # --- partitions

    partition_ids = today(NewDataset.segment_ids, "The ids of all partitions, in the order of their registration.")

    def partition_table(self) -> DataFusionTable:
        """One row for each partition, with the columns of ``segment_table``."""
        return DataFusionTable("partition_table", with_partition_ids(self._entry.segment_table()))

    def manifest(self) -> DataFusionTable:
        """One row for each layer of each partition."""
        return DataFusionTable("manifest", with_partition_ids(self._entry.manifest()))

    def partition_url(
        self,
        partition_id: str,
        timeline: str | None = None,
        start: datetime | timedelta | int | None = None,
        end: datetime | timedelta | int | None = None,
    ) -> str:
        """The URL of a partition, or, with ``timeline``, of a range in it, in ticks, nanoseconds, times or durations.

        Raises
        ------
        ValueError
            ``start`` or ``end`` is given without ``timeline``.
        """
        place = f"{self._catalog.url.rstrip('/')}/dataset/{self.id}"
        return partition_url(place, partition_id, timeline, start, end)

    download_partition = today(
        NewDataset.download_segment,
        """The chunks of all layers of a partition, each read on first use.

        Raises
        ------
        NotFoundError
            There is no such partition.
        """,
        partition_id="segment_id",
    )

    # --- rows

    def dataframe_query_view(
        self,
        *,
        index: str | None,
        contents: ViewContentsLike,
        include_semantically_empty_columns: bool = False,
        include_tombstone_columns: bool = False,
    ) -> DataframeQueryView:
        """The rows of all partitions by an index; :meth:`chunkmill.engine.catalog.DatasetEntry.reader` has the rules.

        Parameters
        ----------
        index
            The index (timeline) whose values make rows. None: one row of static values for each partition.
        contents
            The entities: an expression such as ``/world/** -/world/debug/**``; or a mapping from expressions to
            components. If several expressions match an entity, the last one counts.
        include_semantically_empty_columns
            Show also components that are null or ``[]`` in every row of the dataset.
        include_tombstone_columns
            Show also ``Clear:is_recursive``, which clears components.
        """
        return DataframeQueryView.of(
            self._entry,
            index,
            contents,
            include_semantically_empty_columns=include_semantically_empty_columns,
            include_tombstone_columns=include_tombstone_columns,
        )

    # --- registration

    def register(self, recording_uri: str, *, recording_layer: str = BASE_LAYER, timeout_secs: float = 60) -> str:
        """Register a recording, wait until it is registered, and return the id of its partition.

        Raises
        ------
        AlreadyExistsError
            The partition has a layer of this name.
        TimeoutError
            The registration takes longer. It continues.
        ValueError
            The recording cannot be registered; the message has the reason.
        """
        return self._registered([recording_uri], [recording_layer]).wait(timeout_secs).segment_ids[0]

    def register_batch(
        self,
        recording_uris: Sequence[str],
        *,
        recording_layers: Sequence[str] = [],
    ) -> Tasks:
        """Register recordings, each with its layer. Missing layer names are the last name, or ``base``.

        Raises
        ------
        AlreadyExistsError
            A partition has a layer of this name.
        NotFoundError
            There is no such file.
        """
        for name, value in (("recording_uris", recording_uris), ("recording_layers", recording_layers)):
            check_argument(name, value, list, tuple)
        count = len(recording_uris)
        layers = [*recording_layers] or [BASE_LAYER]
        return Tasks(self._registered(recording_uris, [*layers, *[layers[-1]] * count][:count]))

    def register_prefix(self, recordings_prefix: str, layer_name: str | None = None) -> Tasks:
        """Register all recordings below a folder or prefix; see :meth:`register_batch`."""
        error = OnDuplicateSegmentLayer.ERROR
        return Tasks(self._entry.register_prefix(recordings_prefix, layer_name, on_duplicate=error))

    def _registered(self, uris: Sequence[str], layers: Sequence[str]) -> RegistrationHandle:
        return self._entry.register(uris, layer_name=layers, on_duplicate=OnDuplicateSegmentLayer.ERROR)

    # --- blueprints

    def blueprint_dataset(self) -> DatasetEntry | None:
        """The hidden dataset whose partitions are this dataset's blueprints; None for a dataset of blueprints."""
        hidden = self._entry.blueprint_dataset()
        return None if hidden is None else DatasetEntry(self._catalog, hidden)

    def blueprint_dataset_id(self) -> EntryId | None:
        """The id of :meth:`blueprint_dataset`."""
        hidden = self._entry.blueprint_dataset()
        return None if hidden is None else hidden.id

    default_blueprint_partition_id = today(
        NewDataset.default_blueprint, "The default blueprint of partitions, or None."
    )
    set_default_blueprint_partition_id = today(
        NewDataset.set_default_blueprint,
        """Set the default blueprint of partitions by its id; None clears it.

        Raises
        ------
        NotFoundError
            There is no such blueprint.
        """,
        partition_id="blueprint_name",
    )

    # --- search

    create_fts_index = today(
        NewDataset.create_fts_search_index,
        "Index the words of a component; see :meth:`chunkmill.engine.catalog.DatasetEntry.create_fts_search_index`.",
    )

    def create_vector_index(
        self,
        *,
        column: AnyComponentColumn,
        time_index: str | IndexColumnSelector,
        num_partitions: int | None = None,
        target_partition_num_rows: int | None = None,
        num_sub_vectors: int = 16,
        distance_metric: VectorDistanceMetricLike = "Cosine",
    ) -> IndexingResult:
        """Index the vectors of a component, as
        :meth:`chunkmill.engine.catalog.DatasetEntry.create_vector_search_index` does.

        ``num_partitions`` has no effect: ``target_partition_num_rows`` is the size of partitions.

        Raises
        ------
        ValueError
            Both arguments are given.
        """
        if num_partitions is not None and target_partition_num_rows is not None:
            raise UsageError("only one of num_partitions and target_partition_num_rows can be given")
        return self._entry.create_vector_search_index(
            column=column,
            time_index=time_index,
            target_partition_num_rows=target_partition_num_rows,
            num_sub_vectors=num_sub_vectors,
            distance_metric=distance_metric,
        )

    list_indexes = today(NewDataset.list_search_indexes, "The search indexes of the dataset.")
    delete_indexes = today(NewDataset.delete_search_indexes, "Delete the search indexes of a component.")

    def search_fts(self, query: str, column: AnyComponentColumn) -> DataFusionTable:
        """Search an indexed component for words."""
        return DataFusionTable("search_fts", self._entry.search_fts(query, column))

    def search_vector(self, query: Any, column: AnyComponentColumn, top_k: int) -> DataFusionTable:
        """Search an indexed component for the vectors nearest to a vector."""
        return DataFusionTable("search_vector", self._entry.search_vector(query, column, top_k))

    # --- upkeep

    do_maintenance = today(
        NewDataset.do_maintenance,
        """Compact the dataset, and remove data that only old versions need; see
        :meth:`chunkmill.engine.catalog.DatasetEntry.do_maintenance`.
        """,
    )


class CatalogClient:
    """The catalog in a folder, or below a prefix of an object store, with the API of Rerun 0.27.

    It behaves like :class:`chunkmill.engine.catalog.CatalogClient`, which can open the same catalog at the
    same time.

    Parameters
    ----------
    address
        A path, a ``file://`` URL, or the URL of a prefix, such as ``s3://fleet/lake``.
    token
        Ignored: a folder needs no token.
    semantics
        The rules of queries; see the current ``CatalogClient``.
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        token: str | None = None,
        *,
        semantics: str | QuerySemantics | None = None,
    ) -> None:
        self._catalog = client.CatalogClient(address, token=token, semantics=semantics)

    @property
    def url(self) -> str:
        """The address, as it was given."""
        return self._catalog.url

    @property
    def ctx(self) -> datafusion.SessionContext:
        """A DataFusion session with every table by its name."""
        return self._catalog.ctx

    # --- lists

    def entries(self) -> datafusion.DataFrame:
        """One row for each entry, including hidden ones: ``id``, ``name``, ``entry_kind``, and its times of change."""
        return self._catalog.get_table("__entries").reader()

    def datasets(self) -> datafusion.DataFrame:
        """The rows of :meth:`entries` for datasets, without the kind."""
        return self._of_kind(EntryKind.DATASET)

    def tables(self) -> datafusion.DataFrame:
        """The rows of :meth:`entries` for tables, without the kind."""
        return self._of_kind(EntryKind.TABLE)

    def _of_kind(self, kind: EntryKind) -> datafusion.DataFrame:
        return self.entries().filter(datafusion.col("entry_kind") == datafusion.lit(int(kind))).drop("entry_kind")

    def all_entries(self) -> list[DatasetEntry | TableEntry]:
        """All entries, including hidden ones."""
        entries = self._catalog.entries(include_hidden=True)
        return [
            TableEntry(self, entry) if isinstance(entry, NewTable) else DatasetEntry(self, entry) for entry in entries
        ]

    def dataset_entries(self) -> list[DatasetEntry]:
        """All datasets, except those of blueprints."""
        return [DatasetEntry(self, entry) for entry in self._catalog.datasets()]

    def table_entries(self) -> list[TableEntry]:
        """All tables, including hidden ones."""
        return [TableEntry(self, entry) for entry in self._catalog.tables(include_hidden=True)]

    def entry_names(self) -> list[str]:
        """The names of :meth:`all_entries`, sorted."""
        return self._catalog.entry_names(include_hidden=True)

    def dataset_names(self) -> list[str]:
        """The names of :meth:`dataset_entries`, sorted."""
        return self._catalog.dataset_names()

    def table_names(self) -> list[str]:
        """The names of :meth:`table_entries`, sorted."""
        return self._catalog.table_names(include_hidden=True)

    # --- one entry

    def get_dataset(
        self,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
        name: str | None = None,
    ) -> DatasetEntry:
        """The dataset of this id, or of this name.

        Raises
        ------
        LookupError
            There is no such dataset. The error is a ``NotFoundError``.
        ValueError
            Both are given, or neither.
        """
        return DatasetEntry(self, self._catalog.get_dataset(name, id=id))

    get_dataset_entry = older(get_dataset, doc="The same as :meth:`get_dataset`.")

    def get_table(
        self,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
        name: str | None = None,
    ) -> TableEntry:
        """The table of this id, or of this name. Raises the errors of :meth:`get_dataset`."""
        return TableEntry(self, self._catalog.get_table(name, id=id))

    get_table_entry = older(get_table, doc="The same as :meth:`get_table`.")

    # --- making, writing and upkeep

    def create_dataset(self, name: str) -> DatasetEntry:
        """Create an empty dataset.

        Raises
        ------
        AlreadyExistsError
            An entry has this name.
        """
        return DatasetEntry(self, self._catalog.create_dataset(name))

    def create_table_entry(self, name: str, schema: pa.Schema, url: str | os.PathLike[str]) -> TableEntry:
        """Create a table with these columns, in a new folder below ``url``.

        Raises
        ------
        AlreadyExistsError
            An entry has this name.
        """
        return TableEntry(self, self._catalog.create_table(name, schema, url))

    def register_table(self, name: str, url: str | os.PathLike[str]) -> TableEntry:
        """Register a Lance table under a name. The table stays in its place, also when you write to it.

        Raises
        ------
        AlreadyExistsError
            An entry has this name.
        NotFoundError
            There is no Lance table at ``url``.
        """
        return TableEntry(self, self._catalog.register_table(name, url))

    def write_table(self, name: str, batches: Batches, insert_mode: TableInsertMode) -> None:
        """Append batches to a table, or replace its rows, depending on ``insert_mode``.

        Raises
        ------
        NotFoundError
            There is no such table.
        """
        client.write_to(client.table_of(self._catalog, name), batches, insert_mode)

    def append_to_table(self, table_name: str, **named_params: Any) -> None:
        """Append rows to a table: each column name has one value, or a sequence of values.

        Raises
        ------
        KeyError
            The table has no such column.
        NotFoundError
            There is no such table.
        ValueError
            The columns have different lengths.
        """
        if named_params:
            client.table_of(self._catalog, table_name).append(**named_params)

    do_global_maintenance = older(
        client.CatalogClient.do_global_maintenance,
        within="_catalog",
        doc="Maintain every dataset; see :meth:`chunkmill.engine.catalog.CatalogClient.do_global_maintenance`.",
    )

    def __repr__(self) -> str:
        return repr(self._catalog)
