"""Tables, properties and URLs of the segments of a dataset."""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import operator
import os
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import quote, quote_from_bytes

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import SORBET_VERSION, Schema, TimelineKind, is_property, numpy_ticks
from ..errors import (
    NotFoundError,
    ReadError,
    SourceMissingError,
    UsageError,
    WriteError,
    check_argument,
    writing,
)
from ..limits import MIB
from ..query import SegmentLayers
from ..recordings import RecordingsFolder, join_schemas
from ..rrd import END_OF_STREAM, MESSAGE_HEADER_SIZE, Compression, decode_batch, encode_batch
from ..storage import VersionFiles, is_url, name_of
from ..storage.folder import Folder, LocalFolder, sync_folder
from ..units import counted
from ..units import size as byte_size

if TYPE_CHECKING:
    import datafusion

    from ..store import LazyStore
    from .registration import UnregistrationHandle

Integers = npt.NDArray[np.int64]

_METADATA: Final = {"sorbet:version": SORBET_VERSION}
_TIME: Final = pa.timestamp("ns")


class SegmentTables(SegmentLayers):
    """The layers of a dataset as the tables of a catalog."""

    # --- tables

    def segment_table(self, url_of: Callable[[dict[str, Any]], str]) -> pa.Table:
        """One row for each segment. ``url_of`` gives the URL of a layer."""
        columns = [
            ("rerun_segment_id", self.segments),
            ("rerun_layer_names", self._listed("rerun_layer_names", self.rows["layer"])),
            ("rerun_storage_urls", self._listed("rerun_storage_urls", self._urls(url_of))),
            ("rerun_last_updated_at", self._by_segment(np.maximum, self._times()).view(_TIME)),
            ("rerun_num_chunks", self._by_segment(np.add, self._integers("chunks")).cast(pa.uint64())),
            ("rerun_size_bytes", self._by_segment(np.add, self._sizes()).cast(pa.uint64())),
        ]
        fixed_columns = [(pa.field(name, column.type, False), column) for name, column in columns]
        return _table([*fixed_columns, *self._properties(by_segment=True), *self.ranges()])

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
        fixed_columns = [(pa.field(name, column.type, False), column) for name, column in columns]
        return _table([*fixed_columns, *self._properties(by_segment=False)])

    def index_ranges(self) -> pa.Table:
        """One row for each segment: the first and last value of each index."""
        return _table([(pa.field("rerun_segment_id", pa.string(), False), self.segments), *self.ranges()])

    # --- columns

    def _integers(self, name: str) -> Integers:
        return np.asarray(self.rows[name], dtype=np.int64)

    def _sizes(self) -> Integers:
        """The bytes of all chunk messages with their headers, as Rerun counts them."""
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
        """The properties of each row; with ``by_segment``, the last registered properties of each segment."""
        values, rows = properties_of(self.rows["properties"].to_pylist())
        properties = []
        size = len(self.starts) if by_segment else len(self.rows)
        for field in values.schema:
            column = values[field.name].combine_chunks()
            valid_rows = np.flatnonzero(np.asarray(column.is_valid()))
            place = np.full(size, -1, dtype=np.int64)
            of = self.owner[rows[valid_rows]] if by_segment else rows[valid_rows]
            order = np.argsort(rows[valid_rows], kind="stable")  # the last value stays
            place[of[order]] = valid_rows[order]
            properties.append((field, column.take(pa.array(place, mask=place < 0))))
        return properties


def properties_of(streams: Sequence[bytes | None]) -> tuple[pa.Table, Integers]:
    """One table with the rows of all IPC streams, which have one row each, and the stream number of each row.

    Streams with the same schema are joined and read together, with one schema message. Columns are sorted by name. The
    type of a column fits its values in all streams.
    """
    by_schema: defaultdict[bytes, list[int]] = defaultdict(list)
    for number, stream in enumerate(streams):
        if stream:
            by_schema[stream[: 8 + int.from_bytes(stream[4:8], "little")]].append(number)
    tables, rows = [], []
    for head, numbers in by_schema.items():
        bodies = (streams[number] or b"" for number in numbers)
        joined = b"".join((head, *(body[len(head) :].removesuffix(END_OF_STREAM) for body in bodies), END_OF_STREAM))
        tables.append(pa.ipc.open_stream(pa.py_buffer(joined)).read_all().combine_chunks())  # one cast is faster
        rows += numbers
    if not tables:
        return pa.table({}), np.empty(0, np.int64)
    union = join_schemas(table.schema for table in tables)
    names = sorted({name for table in tables for name in table.column_names})
    schema = pa.schema([_as_property(union.field(name)) for name in names])
    return pa.concat_tables(_under(table, schema) for table in tables), np.array(rows, dtype=np.int64)


def url_of(folder: RecordingsFolder, layer: dict[str, Any]) -> str:
    """The URL of a layer: the registered file, or the first shard with its chunks."""
    shards = layer["shards"]
    place = layer["source"] if layer["in_place"] or not shards else folder.shards.place(shards[0])
    if is_url(place):
        return place
    if _is_plain(place):  # path objects of 10,000 layers take 0.5 s
        return f"file://{quote_from_bytes(os.fsencode(place))}"
    return Path(place).absolute().as_uri()


def _is_plain(place: str) -> bool:
    """Return whether a path is absolute, and ``Path`` would not change it."""
    return place.startswith("/") and not place.endswith(("/", "/.")) and "//" not in place and "/./" not in place


def _as_property(field: pa.Field) -> pa.Field:
    """A property column without the metadata that marks static columns, as all properties are static."""
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


def chosen_segments(words: Sequence[str], segment_ids: Sequence[str]) -> list[str]:
    """Return the segment ids that match words, which are ids or patterns.

    Raises ``NotFoundError`` for a word without a match.
    """
    existing, chosen = set(segment_ids), dict[str, None]()
    for word in words:
        matching = [word] if word in existing else fnmatch.filter(segment_ids, word)
        if not matching:
            close = difflib.get_close_matches(word, segment_ids, 1)
            raise NotFoundError(
                f"there is no segment {word!r}",
                hint=f"Did you mean {close[0]!r}?" if close else f"There are {counted(len(existing), 'segment')}.",
            )
        chosen.update(dict.fromkeys(matching))
    return list(chosen)


_DELETED: Final = "deleted"
_HOW: Final = "Set properties first."
_KEPT_VERSIONS: Final = 16
_MOST_BYTES: Final = 16 * MIB


class SegmentOwner(Protocol):
    """The methods of a :class:`DatasetEntry` that its segments and layers use."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    def segment_url(self, segment_id: str) -> str:
        """The URL of a segment."""
        ...

    def segment_store(self, segment_id: str, *, include_assets: bool = True) -> LazyStore:
        """The chunks of a segment."""
        ...

    def layer_names(self, segment_id: str) -> set[str]:
        """The layers of a segment."""
        ...

    def segments_with(self, layer: str) -> list[str]:
        """The segments with a layer."""
        ...

    def unregister(
        self, *, segments_to_drop: str | Sequence[str] = (), layers_to_drop: str | Sequence[str] = ()
    ) -> UnregistrationHandle:
        """Remove layers."""
        ...


class Segment:
    """One segment of a dataset. Each call reads the newest version. See :meth:`DatasetEntry.segment`."""

    __slots__ = ("_dataset", "_id")

    def __init__(self, dataset: SegmentOwner, segment_id: str) -> None:
        self._dataset = dataset
        self._id = segment_id

    @property
    def id(self) -> str:
        """The id of the segment."""
        return self._id

    @property
    def dataset(self) -> Any:
        """Its dataset."""
        return self._dataset

    @property
    def url(self) -> str:
        """The URL of the segment; see :meth:`DatasetEntry.segment_url`."""
        return self._dataset.segment_url(self._id)

    def schema(self, *, include_assets: bool = False) -> Schema:
        """The columns of the segment's layers; ``include_assets`` adds those of its assets, except their properties.

        Raises ``NotFoundError`` (a ``LookupError``) if the segment was removed.
        """
        return self._dataset.segment_store(self._id, include_assets=include_assets).schema()

    def layers(self) -> set[str]:
        """The names of the segment's layers. Raises ``NotFoundError`` if the segment was removed."""
        return self._dataset.layer_names(self._id)

    def delete_layer(self, name: str) -> UnregistrationHandle:
        """Remove a layer of the segment. A missing layer is ignored."""
        check_argument("name", name, str)
        return self._dataset.unregister(segments_to_drop=[self._id], layers_to_drop=[name])

    def __repr__(self) -> str:
        return f"Segment({self._id!r} of {self._dataset.name!r})"


class Layer:
    """A layer name, and all segments that have it. See :meth:`DatasetEntry.layer`."""

    __slots__ = ("_dataset", "_name")

    def __init__(self, dataset: SegmentOwner, name: str) -> None:
        self._dataset = dataset
        self._name = name

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def dataset(self) -> Any:
        """Its dataset."""
        return self._dataset

    def segment_ids(self) -> list[str]:
        """The ids of the segments that have the layer now, in the order of their registration."""
        return self._dataset.segments_with(self._name)

    def __repr__(self) -> str:
        return f"Layer({self._name!r} of {self._dataset.name!r})"


@dataclass(frozen=True)
class LayerInfo:
    """A layer of a dataset, and the number of segments that have it."""

    name: str
    num_segments: int


@dataclass(frozen=True)
class TimelineInfo:
    """A timeline of a dataset.

    ``num_segments`` segments have times on it. ``min`` and ``max`` are the first and last of these times, as
    ``numpy.int64``, ``datetime64[ns]`` or ``timedelta64[ns]``, or None if no segment has times on it. ``kind`` is
    ``sequence``, ``timestamp`` or ``duration``.
    """

    name: str
    kind: str
    num_segments: int
    min: np.int64 | np.datetime64 | np.timedelta64 | None
    max: np.int64 | np.datetime64 | np.timedelta64 | None


@dataclass(frozen=True)
class DatasetInfo:
    """A summary of a dataset, from its schemas and manifests; see :meth:`DatasetEntry.info`.

    ``size_bytes`` is the size of the stored chunks of all layers. ``num_entities`` and ``num_component_columns`` count
    entities and component columns, both without properties; ``property_columns`` are the columns of properties in the
    segment table.
    """

    dataset_name: str
    num_segments: int
    size_bytes: int
    layers: frozenset[LayerInfo]
    timelines: frozenset[TimelineInfo]
    num_entities: int
    num_component_columns: int
    property_columns: frozenset[str]

    @classmethod
    def of(cls, name: str, table: pa.Table, schema: Schema) -> DatasetInfo:
        """Return the summary of a segment table and a schema."""
        names = Counter(layer for layers in table["rerun_layer_names"].to_pylist() for layer in set(layers))
        columns = [c for c in schema.component_columns() if not is_property(c.entity_path)]
        return cls(
            name,
            len(table),
            sum(table["rerun_size_bytes"].to_pylist()),
            frozenset(LayerInfo(layer, count) for layer, count in names.items()),
            frozenset(_timeline_info(table, line.name, line.kind) for line in schema.index_columns()),
            len({c.entity_path for c in columns}),
            len(columns),
            frozenset(column for column in table.column_names if column.startswith("property:")),
        )

    def __repr__(self) -> str:
        content = f"{counted(self.num_component_columns, 'column')} of {self.num_entities:,} entities"
        amount = f"{counted(self.num_segments, 'segment')}, {byte_size(self.size_bytes)}"
        lines = [f"DatasetInfo({self.dataset_name}: {amount}, {content})"]
        lines += [f"  property {name}" for name in sorted(self.property_columns)]
        lines += [
            f"  layer {layer.name}: {counted(layer.num_segments, 'segment')}"
            for layer in sorted(self.layers, key=lambda layer: layer.name)
        ]
        lines += [
            f"  timeline {line.name}: {line.kind} of {counted(line.num_segments, 'segment')}"
            + ("" if line.min is None else f", {line.min} to {line.max}")
            for line in sorted(self.timelines, key=lambda line: line.name)
        ]
        return "\n".join(lines)


def _timeline_info(table: pa.Table, name: str, kind: TimelineKind) -> TimelineInfo:
    columns = (f"{name}:start", f"{name}:end")
    if not set(columns) <= set(table.column_names):
        return TimelineInfo(name, str(kind), 0, None, None)
    first, last = (table[column].combine_chunks().drop_null().cast(kind.arrow_type) for column in columns)
    if not len(first):
        return TimelineInfo(name, str(kind), 0, None, None)
    ends = first.cast(pa.int64()).to_numpy().min(), last.cast(pa.int64()).to_numpy().max()
    values = [np.int64(tick).astype(_NUMPY[kind]) for tick in ends]
    return TimelineInfo(name, str(kind), len(first), *values)


_NUMPY: Final = {
    TimelineKind.SEQUENCE: "int64",
    TimelineKind.TIMESTAMP: "datetime64[ns]",
    TimelineKind.DURATION: "timedelta64[ns]",
}


class StoredProperties(NamedTuple):
    """The properties of a segment, one row or None, and the number of their version."""

    version: int
    row: pa.RecordBatch | None

    @property
    def revision(self) -> int:
        """A number that no other properties of the segment have had; 0 for a segment without properties."""
        return 0 if self.row is None else self.version


class SegmentProperties:
    """The properties of the segments of the dataset at ``place``."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._folder = Folder.at(place).sub("properties")

    def of(self, segment_id: str) -> StoredProperties:
        """The newest properties of a segment. Raises ``ReadError`` if they are damaged."""
        files = self._files(segment_id)
        latest = files.latest()
        if latest is None:
            return StoredProperties(0, None)
        number, data = latest
        place = files.folder.place(f"{number:08d}.json")
        try:
            if data["segment"] != segment_id:
                raise ValueError(f"they belong to segment {data['segment']!r}")
            stream = None if data["row"] is None else b64decode(data["row"], validate=True)
        except (KeyError, ValueError, TypeError) as error:
            raise ReadError(f"the properties of segment '{segment_id}' cannot be read: {error}", path=place) from error
        if stream is not None and self._deleted()[1].get(segment_id) == number:
            stream = None
        row = None if stream is None else decode_batch(stream, path=place, offset=None, what="the row")
        return StoredProperties(number, row)

    def replace(
        self, segment_id: str, expected: StoredProperties, row: pa.RecordBatch | None
    ) -> StoredProperties | None:
        """Replace the properties of a segment if they are ``expected``, durably; None deletes them.

        Returns None, and changes nothing, if another writer was first. Raises ``UsageError`` unless there is one row of
        at most 16 MiB; ``WriteError`` if it cannot be written, ``CommitUnknownError`` if the outcome is unknown.
        """
        stream = None if row is None else _stream_of(row)
        files, number = self._files(segment_id), expected.version + 1
        if not expected.version:
            self._make(files.folder)
        text = None if stream is None else b64encode(stream).decode()
        first = max(0, number - _KEPT_VERSIONS)
        if not files.commit(number, {"segment": segment_id, "row": text, "first": first}):
            return None
        files.delete(old for old in files.all_numbers() if old < first)
        return StoredProperties(number, row)

    def delete_all(self, expected: Mapping[str, StoredProperties]) -> bool:
        """Delete the ``expected`` properties of segments in one step, durably: all of them or none.

        Returns False if another writer was first. Properties set meanwhile stay. Raises the errors of :meth:`replace`.
        """
        versions = {id_: stored.version for id_, stored in expected.items() if stored.row is not None}
        if len(versions) == 1:
            ((id_, stored),) = ((id_, expected[id_]) for id_ in versions)
            return self.replace(id_, stored, None) is not None
        if not versions:
            return True
        number, earlier = self._deleted()
        self._note(earlier)
        files = self._files_of(_DELETED)
        if not number:
            self._make(files.folder)
        if not files.commit(number + 1, {"versions": versions, "first": number + 1}):
            return False
        files.delete(old for old in files.all_numbers() if old <= number)
        self._note(versions)
        return True

    def forget(self, segment_id: str) -> list[tuple[str, int]]:
        """Remove all files with properties of a segment, and return their places and sizes.

        The versions of its next properties start again at 1. Raises the errors of :meth:`replace`.
        """
        files = self._files(segment_id)
        gone = self.squash(None) if segment_id in self._deleted()[1] else []
        try:
            entries = files.folder.entries()
        except (FileNotFoundError, SourceMissingError):
            return gone
        with writing(str(self._folder.location)):
            files.folder.delete([entry.name for entry in entries])
            files.folder.remove()
        return gone + [(files.folder.place(entry.name), entry.size) for entry in entries]

    def squash(self, segment_id: str | None) -> list[tuple[str, int]]:
        """Remove the files with earlier properties of a segment, and return their places and sizes.

        With None, remove instead the record of the properties that the last :meth:`delete_all` deleted.
        """
        files = self._files_of(_DELETED) if segment_id is None else self._files(segment_id)
        if segment_id is None:
            number, versions = self._deleted()
            self._note(versions)
            if not files.commit(number + 1, {"versions": {}, "first": number + 1}):
                raise WriteError(
                    "other processes keep deleting properties", path=str(self._folder.location), transient=True
                )
        newest = files.newest()
        old = [entry for entry in files.folder.entries() if entry.name != name_of(newest)]
        with writing(str(self._folder.location)):
            files.folder.delete([entry.name for entry in old])
        return [(files.folder.place(entry.name), entry.size) for entry in old]

    def _note(self, versions: Mapping[str, int]) -> None:
        """Write a version without properties for each segment whose properties were deleted."""
        for id_, version in versions.items():
            stored = self.of(id_)
            if stored.version == version:
                self.replace(id_, stored, None)

    def _deleted(self) -> tuple[int, Mapping[str, int]]:
        """The number of the last deletion, and the version it deleted of each segment. Raises ``ReadError``."""
        files = self._files_of(_DELETED)
        number, data = files.latest() or (0, {"versions": {}})
        versions = data.get("versions")
        if not isinstance(versions, dict):
            place = files.folder.place(f"{number:08d}.json")
            raise ReadError("the record of deleted properties cannot be read: it names no versions", path=place)
        return number, versions

    def _files(self, segment_id: str) -> VersionFiles:
        return self._files_of(hashlib.sha256(segment_id.encode("utf-8", "surrogatepass")).hexdigest()[:40])

    def _files_of(self, name: str) -> VersionFiles:
        return VersionFiles(self._folder.sub(name), str(self._folder.location), _HOW)

    def _make(self, folder: Folder) -> None:
        with writing(str(folder.location)):
            folder.make()
            if isinstance(folder, LocalFolder):
                for parent in folder.location.parents[:4]:  # up to the folder of datasets, which may be new, too
                    sync_folder(parent)


def _stream_of(row: pa.RecordBatch) -> bytes:
    if len(row) != 1 or not row.num_columns:
        raise UsageError(f"segment properties must be a single row, got {len(row) if row.num_columns else 0} rows")
    if row.nbytes > _MOST_BYTES:
        raise UsageError(f"segment properties have {row.nbytes} bytes, more than the limit of {_MOST_BYTES}")
    data, _ = encode_batch(row, Compression.NONE)
    return data if isinstance(data, bytes) else data.to_pybytes()


IndexValue = datetime | timedelta | int | np.datetime64 | np.timedelta64
"""A tick or nanoseconds, a time (in UTC if it has no zone), or a duration."""

_EARLIEST: Final = "1677-09-21T00:12:43.145224193Z"
"""Rerun's text for an unknown time: the earliest time in 64 bits of nanoseconds."""
_FIRST: Final = -(1 << 63) + 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


def segment_url(
    dataset: str, segment_id: str, timeline: str | None, start: IndexValue | None, end: IndexValue | None
) -> str:
    """The URL of a segment of the dataset at the URL ``dataset``.

    >>> segment_url("lake/dataset/1", "a b", "frame", 1, 10)
    'lake/dataset/1?segment_id=a%20b#when=frame@1&time_selection=frame@1..10'
    """
    url = f"{dataset}?segment_id={quote(segment_id, safe='')}"
    _check_timeline(timeline, start, end)
    if timeline is None:
        return url
    name = quote(timeline, safe="")
    kind = _kind(start if start is not None else end)
    when = _EARLIEST if start is None else _text(start, kind)
    if end is None:
        return f"{url}#when={name}@{when}"
    last = _text(end, kind)
    first = last if start is None else when
    return f"{url}#when={name}@{when}&time_selection={name}@{first}..{last}"


def partition_url(
    dataset: str, partition_id: str, timeline: str | None, start: IndexValue | None, end: IndexValue | None
) -> str:
    """The URL of Rerun 0.27 for a segment of the dataset at the URL ``dataset``.

    >>> partition_url("lake/dataset/1", "a b", "frame", 1, 10)
    'lake/dataset/1?partition_id=a%20b&time_range=frame@1..10'
    """
    url = f"{dataset}?partition_id={quote(partition_id, safe='')}"
    _check_timeline(timeline, start, end)
    if timeline is None:
        return url
    given = start if start is not None else end
    kind = "M" if given is None else _kind(given)
    first, last = (_limit(kind, _FIRST) if start is None else start), (_limit(kind, -_FIRST) if end is None else end)
    return f"{url}&time_range={quote(timeline, safe='')}@{_text(first, kind)}..{_text(last, kind)}"


def _limit(kind: str, value: int) -> IndexValue:
    """An index value of a kind, from nanoseconds or ticks."""
    if kind == "M":
        return np.datetime64(value, "ns")
    return np.timedelta64(value, "ns") if kind == "m" else value


def _check_timeline(timeline: str | None, start: IndexValue | None, end: IndexValue | None) -> None:
    if timeline is None and not (start is None and end is None):
        raise UsageError("If `start` or `end` is specified, `timeline` must also be specified.")


def _kind(value: IndexValue | None) -> str:
    """The kind of a value, as a letter of numpy: ``M``, ``m`` or ``i``."""
    if isinstance(value, datetime | np.datetime64):
        return "M"
    return "m" if isinstance(value, timedelta | np.timedelta64) else "i"


def _text(value: IndexValue, kind: str) -> str:
    """The text of a value in a URL; a value of another kind than ``kind`` is a number."""
    number = _nanoseconds(value)
    if kind != _kind(value) or kind == "i":
        return str(number)
    return _time_text(number) if kind == "M" else _duration_text(number)


def _nanoseconds(value: IndexValue | str) -> int:
    """The nanoseconds of a value (for times, since the epoch); a number stays as it is."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return int(numpy_ticks(value))
    if isinstance(value, datetime):
        value = (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)) - _EPOCH
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1) * 1000
    return int(value) if isinstance(value, str) else operator.index(value)


def _time_text(number: int) -> str:
    """The text of a time, with up to nine decimals.

    >>> _time_text(1_500_000_000)
    '1970-01-01T00:00:01.5Z'
    """
    seconds, rest = divmod(number, 10**9)
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S") + _fraction(rest) + "Z"


def _duration_text(number: int) -> str:
    """The text of a duration in Rerun's format, but without spaces.

    >>> _duration_text(86_401_500_000_000), _duration_text(0)
    ('+1d1.5s', '+0s')
    """
    sign, (left, rest) = ("-" if number < 0 else "+"), divmod(abs(number), 10**9)
    text = ""
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return sign + text + (f"{left}{_fraction(rest)}s" if left or rest or not text else "")


def _fraction(nanoseconds: int) -> str:
    return f".{nanoseconds:09}".rstrip("0").rstrip(".")
