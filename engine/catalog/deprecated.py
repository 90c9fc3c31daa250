"""Names of Rerun's catalog that have newer ones: each warns with ``DeprecationWarning``, and does what that one does.

Parameters have the names that they had.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from ..errors import NotFoundError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from ..chunk import IndexColumnSelector
    from ..lance import Batches
    from .client import CatalogClient
    from .dataset import DatasetEntry
    from .entries import EntryId
    from .recording import Recording
    from .registration_handle import RegistrationHandle
    from .search import AnyComponentColumn, IndexConfig, IndexingResult, VectorDistanceMetricLike
    from .table_entry import TableEntry

P = ParamSpec("P")
R = TypeVar("R")


class TableInsertMode(Enum):
    """Modes of the deprecated ``write_table``."""

    APPEND = 1
    OVERWRITE = 2
    REPLACE = 3


def replaced_by(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function warn that ``name`` is to be used instead."""
    return warned(f"Use {name}() instead")


def warned(message: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function warn with a text that it is deprecated."""

    def deprecated(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def warning(*args: P.args, **kwargs: P.kwargs) -> R:
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        vars(warning)["__deprecated__"] = message  # as warnings.deprecated of Python 3.13 says it
        return warning

    return deprecated


class DeprecatedClientNames:
    """The earlier names of a client's methods."""

    @replaced_by("entries")
    def all_entries(self: CatalogClient) -> list[DatasetEntry | TableEntry]:  # type: ignore[misc]
        """All entries; see :meth:`CatalogClient.entries`."""
        return self.entries()

    @replaced_by("datasets")
    def dataset_entries(self: CatalogClient) -> list[DatasetEntry]:  # type: ignore[misc]
        """All datasets; see :meth:`CatalogClient.datasets`."""
        return self.datasets()

    @replaced_by("tables")
    def table_entries(self: CatalogClient) -> list[TableEntry]:  # type: ignore[misc]
        """All tables; see :meth:`CatalogClient.tables`."""
        return self.tables()

    @replaced_by("get_dataset")
    def get_dataset_entry(  # type: ignore[misc]
        self: CatalogClient,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
        name: str | None = None,
    ) -> DatasetEntry:
        """A dataset by its id or name; see :meth:`CatalogClient.get_dataset`."""
        return self.get_dataset(name, id=id)

    @replaced_by("get_table")
    def get_table_entry(  # type: ignore[misc]
        self: CatalogClient,
        *,
        id: EntryId | str | None = None,  # noqa: A002 (the name it has with Rerun)
        name: str | None = None,
    ) -> TableEntry:
        """A table by its id or name; see :meth:`CatalogClient.get_table`."""
        return self.get_table(name, id=id)

    @replaced_by("create_table")
    def create_table_entry(self: CatalogClient, name: str, schema: pa.Schema, url: str) -> TableEntry:  # type: ignore[misc]
        """Make a table; see :meth:`CatalogClient.create_table`."""
        return self.create_table(name, schema, url)

    @warned("Use TableEntry.append(), overwrite(), or upsert() instead")
    def write_table(self: CatalogClient, name: str, batches: Batches, insert_mode: TableInsertMode) -> None:  # type: ignore[misc]
        """Write to a table as ``insert_mode`` says; see :meth:`TableEntry.append`."""
        write_to(table_of(self, name), batches, insert_mode)

    @replaced_by("TableEntry.append")
    def append_to_table(  # type: ignore[misc]
        self: CatalogClient, table_name: str, batches: Batches | None = None, **named_params: Any
    ) -> None:
        """Append to a table; see :meth:`TableEntry.append`."""
        table_of(self, table_name).append(batches, **named_params)

    @replaced_by("TableEntry.upsert")
    def update_table(  # type: ignore[misc]
        self: CatalogClient, table_name: str, batches: Batches | None = None, **named_params: Any
    ) -> None:
        """Upsert into a table; see :meth:`TableEntry.upsert`."""
        table_of(self, table_name).upsert(batches, **named_params)


def table_of(client: CatalogClient, name: str) -> TableEntry:
    """The table of a name; raises ``NotFoundError`` with the words that these calls have."""
    try:
        return client.get_table(name)
    except NotFoundError:
        raise NotFoundError(f"Table with name {name} not found") from None


def write_to(entry: TableEntry, batches: Batches, insert_mode: TableInsertMode) -> None:
    """Write to a table as a mode says."""
    mode = TableInsertMode(insert_mode)
    write = {"APPEND": entry.append, "OVERWRITE": entry.overwrite, "REPLACE": entry.upsert}[mode.name]
    write(batches)


class DeprecatedDatasetNames:
    """The earlier names of a dataset's methods."""

    @replaced_by("segment_ids")
    def partition_ids(self: DatasetEntry) -> list[str]:  # type: ignore[misc]
        """The ids of all segments; see :meth:`DatasetEntry.segment_ids`."""
        return self.segment_ids()

    @replaced_by("segment_url")
    def partition_url(  # type: ignore[misc]
        self: DatasetEntry,
        partition_id: str,
        timeline: str | None = None,
        start: datetime | timedelta | int | None = None,
        end: datetime | timedelta | int | None = None,
    ) -> str:
        """The URL of a segment; see :meth:`DatasetEntry.segment_url`."""
        return self.segment_url(partition_id, timeline, start, end)

    @replaced_by("download_segment")
    def download_partition(self: DatasetEntry, partition_id: str) -> Recording:  # type: ignore[misc]
        """A segment; see :meth:`DatasetEntry.download_segment`."""
        return self.download_segment(partition_id)

    @replaced_by("default_blueprint_segment_id")
    def default_blueprint_partition_id(self: DatasetEntry) -> str | None:  # type: ignore[misc]
        """The default blueprint; see :meth:`DatasetEntry.default_blueprint`."""
        return self.default_blueprint()

    @replaced_by("default_blueprint")
    def default_blueprint_segment_id(self: DatasetEntry) -> str | None:  # type: ignore[misc]
        """The default blueprint; see :meth:`DatasetEntry.default_blueprint`."""
        return self.default_blueprint()

    @replaced_by("set_default_blueprint_segment_id")
    def set_default_blueprint_partition_id(self: DatasetEntry, partition_id: str | None) -> None:  # type: ignore[misc]
        """Set the default blueprint; see :meth:`DatasetEntry.set_default_blueprint`."""
        self.set_default_blueprint(partition_id)

    @replaced_by("set_default_blueprint")
    def set_default_blueprint_segment_id(self: DatasetEntry, segment_id: str | None) -> None:  # type: ignore[misc]
        """Set the default blueprint; see :meth:`DatasetEntry.set_default_blueprint`."""
        self.set_default_blueprint(segment_id)

    @warned("use create_fts_search_index")
    def create_fts_index(  # type: ignore[misc]
        self: DatasetEntry,
        *,
        column: AnyComponentColumn,
        time_index: str | IndexColumnSelector,
        store_position: bool = False,
        base_tokenizer: str = "simple",
    ) -> None:
        """Index the words of a component; see :meth:`DatasetEntry.create_fts_search_index`."""
        self.create_fts_search_index(
            column=column, time_index=time_index, store_position=store_position, base_tokenizer=base_tokenizer
        )

    @warned("use create_vector_search_index instead")
    def create_vector_index(  # type: ignore[misc]
        self: DatasetEntry,
        *,
        column: AnyComponentColumn,
        time_index: str | IndexColumnSelector,
        target_partition_num_rows: int | None = None,
        num_sub_vectors: int = 16,
        distance_metric: VectorDistanceMetricLike = "Cosine",
    ) -> IndexingResult:
        """Index the vectors of a component; see :meth:`DatasetEntry.create_vector_search_index`."""
        return self.create_vector_search_index(
            column=column,
            time_index=time_index,
            target_partition_num_rows=target_partition_num_rows,
            num_sub_vectors=num_sub_vectors,
            distance_metric=distance_metric,
        )

    @warned("use list_search_indexes instead")
    def list_indexes(self: DatasetEntry) -> list[IndexingResult]:  # type: ignore[misc]
        """The search indexes; see :meth:`DatasetEntry.list_search_indexes`."""
        return self.list_search_indexes()

    @warned("use delete_search_indexes instead")
    def delete_indexes(self: DatasetEntry, column: AnyComponentColumn) -> list[IndexConfig]:  # type: ignore[misc]
        """Delete the search indexes of a component; see :meth:`DatasetEntry.delete_search_indexes`."""
        return self.delete_search_indexes(column)


def with_older_keywords(register: Callable[P, RegistrationHandle]) -> Callable[P, RegistrationHandle]:
    """Let ``register`` take ``recording_layer`` and ``timeout_secs``, too, as 0.27 has them.

    With one of them it waits, and gives the id of the segment in place of a handle.
    """

    @wraps(register)
    def registering(*args: Any, recording_layer: Any = None, timeout_secs: float | None = None, **kwargs: Any) -> Any:
        if recording_layer is None and timeout_secs is None:
            return register(*args, **kwargs)
        if recording_layer is not None:
            warn_renamed("recording_layer", "layer_name")
            if "layer_name" in kwargs:
                raise UsageError("only one of layer_name and recording_layer can be given")
            kwargs["layer_name"] = recording_layer
        if timeout_secs is not None:
            warn_renamed("timeout_secs", "register(...).wait(timeout_secs)")
        return register(*args, **kwargs).wait(60 if timeout_secs is None else timeout_secs).segment_ids[0]

    taken = inspect.signature(register)
    older = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=f"{type_} | None")
        for name, type_ in (("recording_layer", "str"), ("timeout_secs", "float"))
    ]
    vars(registering)["__signature__"] = taken.replace(parameters=[*taken.parameters.values(), *older])
    return cast("Callable[P, RegistrationHandle]", registering)


def warn_renamed(old: str, new: str) -> None:
    """Warn a caller's caller that the parameter ``old`` is called ``new``."""
    warnings.warn(f"'{old}' is deprecated, use '{new}'", DeprecationWarning, stacklevel=3)
