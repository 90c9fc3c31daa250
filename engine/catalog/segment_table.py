"""Segments and their layers as tables, made of columns, and of no chunk."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_from_bytes

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import SORBET_VERSION
from ..objects import is_url
from ..query import SegmentLayers
from ..recordings import RecordingsFolder, join_schemas
from ..rrd import END_OF_STREAM, MESSAGE_HEADER_SIZE

if TYPE_CHECKING:
    import datafusion

Integers = npt.NDArray[np.int64]

_METADATA: Final = {"sorbet:version": SORBET_VERSION}
_TIME: Final = pa.timestamp("ns")


class SegmentTables(SegmentLayers):
    """The layers of a dataset, as the tables that a catalog tells of it."""

    # --- tables

    def segment_table(self, url_of: Callable[[dict[str, Any]], str]) -> pa.Table:
        """One row for each segment. ``url_of`` gives where a layer lies."""
        columns = [
            ("rerun_segment_id", self.segments),
            ("rerun_layer_names", self._listed("rerun_layer_names", self.rows["layer"])),
            ("rerun_storage_urls", self._listed("rerun_storage_urls", self._urls(url_of))),
            ("rerun_last_updated_at", self._by_segment(np.maximum, self._times()).view(_TIME)),
            ("rerun_num_chunks", self._by_segment(np.add, self._integers("chunks")).cast(pa.uint64())),
            ("rerun_size_bytes", self._by_segment(np.add, self._sizes()).cast(pa.uint64())),
        ]
        known = [(pa.field(name, column.type, False), column) for name, column in columns]
        return _table([*known, *self._properties(by_segment=True), *self.ranges()])

    def manifest(self, url_of: Callable[[dict[str, Any]], str], *, diagnostic: bool = False) -> pa.Table:
        """One row for each layer of each segment."""
        count = len(self.rows)
        times = pa.array(self._times()).view(_TIME)
        digests = [bytes.fromhex(digest or "") or bytes(32) for digest in self.rows["schema"].to_pylist()]
        columns = [
            ("rerun_layer_name", self.rows["layer"]),
            ("rerun_segment_id", self.rows["recording_id"]),
            ("rerun_storage_url", self._urls(url_of)),
            ("rerun_layer_type", pa.array(["rrd"] * count, pa.string())),
            ("rerun_registration_time", times),
            ("rerun_last_updated_at", times),
            ("rerun_num_chunks", self.rows["chunks"].cast(pa.uint64())),
            ("rerun_size_bytes", pa.array(self._sizes(), pa.uint64())),
            ("rerun_schema_sha256", pa.array(digests, pa.binary(32))),
        ]
        if diagnostic:
            columns.append(("rerun_registration_status", pa.array(["done"] * count, pa.string())))
        known = [(pa.field(name, column.type, False), column) for name, column in columns]
        return _table([*known, *self._properties(by_segment=False)])

    def index_ranges(self) -> pa.Table:
        """One row for each segment: the first and last value of each index."""
        return _table([(pa.field("rerun_segment_id", pa.string(), False), self.segments), *self.ranges()])

    # --- columns

    def _integers(self, name: str) -> Integers:
        return np.asarray(self.rows[name], dtype=np.int64)

    def _sizes(self) -> Integers:
        """Bytes of the messages of chunks, with the header that frames each, as Rerun counts them."""
        return self._integers("bytes") + MESSAGE_HEADER_SIZE * self._integers("chunks")

    def _times(self) -> Integers:
        return (np.asarray(self.rows["added"]) * 1e6).astype(np.int64) * 1000

    def _by_segment(self, reduce: np.ufunc, values: Integers) -> pa.Array:
        return pa.array(reduce.reduceat(values, self.starts) if len(values) else values, pa.int64())

    def _listed(self, name: str, values: pa.ChunkedArray | pa.Array) -> pa.ListArray:
        ends = pa.array(np.append(self.starts, len(self.rows)).astype(np.int32))
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        return pa.ListArray.from_arrays(ends, values, type=pa.list_(pa.field(name, pa.string(), False)))

    def _urls(self, url_of: Callable[[dict[str, Any]], str]) -> pa.Array:
        rows = self.rows.select(["in_place", "source", "shards", "rrd"]).to_pylist()
        return pa.array(list(map(url_of, rows)), pa.string())

    def _properties(self, *, by_segment: bool) -> list[tuple[pa.Field, pa.Array]]:
        """The properties of each row, or of each segment those that were registered last."""
        values, rows = properties_of(self.rows["properties"].to_pylist())
        found = []
        size = len(self.starts) if by_segment else len(self.rows)
        for field in values.schema:
            column = values[field.name].combine_chunks()
            there = np.flatnonzero(np.asarray(column.is_valid()))
            place = np.full(size, -1, dtype=np.int64)
            of = self.owner[rows[there]] if by_segment else rows[there]
            order = np.argsort(rows[there], kind="stable")  # what comes last stays
            place[of[order]] = there[order]
            found.append((field, column.take(pa.array(place, mask=place < 0))))
        return found


def properties_of(streams: Sequence[bytes | None]) -> tuple[pa.Table, Integers]:
    """The values in IPC streams of one row each, under each other, and which stream each row comes from.

    Streams of one schema are read as one: its message begins each of them, and one is enough. Columns are sorted by
    name, and have a type that goes with all.
    """
    by_schema: defaultdict[bytes, list[int]] = defaultdict(list)
    for number, stream in enumerate(streams):
        if stream:
            by_schema[stream[: 8 + int.from_bytes(stream[4:8], "little")]].append(number)
    tables, rows = [], []
    for head, numbers in by_schema.items():
        bodies = (streams[number] or b"" for number in numbers)
        joined = b"".join((head, *(body[len(head) :].removesuffix(END_OF_STREAM) for body in bodies), END_OF_STREAM))
        tables.append(pa.ipc.open_stream(pa.py_buffer(joined)).read_all().combine_chunks())  # a cast of each takes time
        rows += numbers
    if not tables:
        return pa.table({}), np.empty(0, np.int64)
    union = join_schemas(table.schema for table in tables)
    names = sorted({name for table in tables for name in table.column_names})
    schema = pa.schema([_as_property(union.field(name)) for name in names])
    return pa.concat_tables(_under(table, schema) for table in tables), np.array(rows, dtype=np.int64)


def url_of(folder: RecordingsFolder, layer: dict[str, Any]) -> str:
    """The URL of a layer: the file that was registered, or the first shard that has its chunks."""
    shards = layer["shards"]
    place = layer["source"] if layer["in_place"] or not shards else folder.shards.place(shards[0])
    if is_url(place):
        return place
    if _is_plain(place):  # a path object for each of 10,000 layers takes 0.5 s
        return f"file://{quote_from_bytes(os.fsencode(place))}"
    return Path(place).absolute().as_uri()


def _is_plain(place: str) -> bool:
    """Whether a path is absolute, and a path object would leave it as it is."""
    return place.startswith("/") and not place.endswith(("/", "/.")) and "//" not in place and "/./" not in place


def _as_property(field: pa.Field) -> pa.Field:
    """A column of properties, all of which are static: that is not said of each."""
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != b"rerun:is_static"}
    return field.with_metadata(metadata)


def _under(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _table(columns: Iterable[tuple[pa.Field, pa.Array | pa.ChunkedArray]]) -> pa.Table:
    fields, arrays = zip(*columns, strict=True)
    return pa.Table.from_arrays(list(arrays), schema=pa.schema(fields, metadata=_METADATA))


def frame_of(table: pa.Table) -> datafusion.DataFrame:
    """Return a table as a DataFrame of DataFusion, with its schema's metadata."""
    from datafusion import SessionContext

    from ..frames import QueryFrame

    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return QueryFrame(SessionContext().create_dataframe([batches]))
