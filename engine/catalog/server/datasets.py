"""Calls that change what a dataset holds: registration, what became of it, and the removal of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ...chunk import Chunk
from ...errors import AlreadyExistsError, UsageError
from ...execution import Staging
from ...locations import located
from ...recordings import BASE_LAYER
from ...rrd import RrdWriter, StoreEntry
from ..client import CatalogClient
from ..dataset import DatasetEntry
from ..entries import EntryKind
from ..requests import OnDuplicateSegmentLayer, requests_below
from .entry_methods import dataset_of
from .envelopes import part_of, rows_in
from .messages import cloud, shared
from .methods import Call, Kind, Method, ProtocolError, Status
from .places import AllowedPlaces, naming_places
from .tasks import DONE, failed_task, tasks_table

_ON_DUPLICATE: Final = {
    0: OnDuplicateSegmentLayer.REPLACE,
    1: OnDuplicateSegmentLayer.REPLACE,
    2: OnDuplicateSegmentLayer.SKIP,
    3: OnDuplicateSegmentLayer.ERROR,
}
_RRD: Final = 1
_WITH_WHOLE_REQUESTS: Final = tuple(f"rerun-py/0.{minor}." for minor in range(33, 37))
"""Clients whose servers refuse a request with a layer that is there already; those of newer ones fail that file."""

_TOLD: Final = pa.schema(
    [
        pa.field(name, pa.string(), False)
        for name in (
            "rerun_segment_id",
            "rerun_segment_layer",
            "rerun_segment_type",
            "rerun_storage_url",
            "rerun_task_id",
        )
    ]
)


class _Source(NamedTuple):
    """A file that is to become a layer."""

    uri: str
    layer: str


class RegistrationCalls:
    """The handlers, over one catalog.

    Files in ``places`` may be registered. A client may write chunks of ``most_bytes`` at once. ``shown`` makes of a
    text about an error the one that a client gets.
    """

    def __init__(
        self, catalog: CatalogClient, places: AllowedPlaces, most_bytes: int, shown: Callable[[str], str]
    ) -> None:
        self._catalog = catalog
        self._places = places
        self._most_bytes = most_bytes
        self._shown = shown

    def methods(self) -> tuple[Method, ...]:
        """The methods of this group."""
        return (
            Method.named("RegisterWithDataset", Kind.UNARY, naming_places(self._register), writes=True),
            Method.named("UnregisterFromDataset", Kind.STREAM, self._unregister, writes=True),
            Method.named("WriteChunks", Kind.UPLOAD, self._write, writes=True),
            Method.named("CancelTasks", Kind.UNARY, self._cancel, writes=True),
            Method.named("QueryTasks", Kind.UNARY, self._tasks),
            Method.named("QueryTasksOnCompletion", Kind.STREAM, self._completed),
        )

    def _register(self, request: Any, call: Call) -> Any:
        dataset = dataset_of(self._catalog, call)
        if not request.data_sources:
            raise UsageError("no data sources to register")
        choice = _ON_DUPLICATE.get(request.on_duplicate)
        if choice is None:
            raise _bad(f"on_duplicate is {request.on_duplicate}, which is none of its values")
        for given in request.data_sources:
            _check_source(given)
        self._places.check_files([given.storage_url for given in request.data_sources])
        sources = [source for given in request.data_sources for source in self._sources(given)]
        rows = _registered(dataset, sources, choice, whole=call.client_version.startswith(_WITH_WHOLE_REQUESTS))
        rows = [(*row, DONE if error is None else failed_task(self._shown(error))) for *row, error in rows]
        table = pa.table([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], _TOLD)
        return cloud("RegisterWithDatasetResponse")(data=part_of(table))

    def _sources(self, given: Any) -> list[_Source]:
        """The files that a data source of a request means."""
        if given.object_store_config and not isinstance(located(given.storage_url), Path):
            text = "object stores are opened as this server was told to; leave out `object_store_config`"
            raise ProtocolError(Status.UNIMPLEMENTED, text)
        layer = given.layer or BASE_LAYER
        if not given.prefix:
            return [_Source(given.storage_url, layer)]
        found = [one for one in requests_below(given.storage_url, layer) if one.place.endswith(".rrd")]
        if not found:
            raise UsageError(f"no rrd files found in {given.storage_url}")
        self._places.check_files([one.place for one in found])  # a link may lead out of what is allowed
        return [_Source(one.uri, layer) for one in found]

    def _unregister(self, request: Any, call: Call) -> Iterator[Any]:
        dataset = dataset_of(self._catalog, call)
        segments = [segment.id for segment in request.segments_to_drop]
        layers = list(request.layers_to_drop)
        dataset.unregister(segments_to_drop=segments, layers_to_drop=layers, force=request.force)
        told = cloud("UnregisterFromDatasetResponse")(data=part_of(_TOLD.empty_table()))
        told.task_id.id = DONE
        yield told

    def _write(self, requests: Iterator[Any], call: Call) -> Any:
        """Let the chunks that a client sends be the base layers of new segments, all of them or none."""
        dataset = dataset_of(self._catalog, call)
        kind = "blueprint" if dataset.kind is EntryKind.BLUEPRINT_DATASET else "recording"
        Staging.sweep_scratch()  # of servers that were killed
        with Staging.in_scratch() as staging:
            place = staging.local / "chunks.rrd"
            segments = set()
            with RrdWriter(place) as writer:
                for request in requests:
                    call.check()
                    segment, chunks = _chunks_in(request.chunk, call)
                    store = StoreEntry(kind, str(dataset.id), segment)
                    writer.begin_store(store)
                    for chunk in chunks:
                        writer.append(store, chunk)
                        segments.add(segment)
                    if writer.position > self._most_bytes:
                        text = f"chunks of more than {self._most_bytes} bytes are not written by one call"
                        raise ProtocolError(Status.OUT_OF_RANGE, text)
                writer.finish()
            live = dataset.store_reader().live()
            for segment in segments:
                if any(layer.layer == BASE_LAYER for layer in live.of_recording(segment, kind)):
                    raise AlreadyExistsError(f"Segment '{segment}', layer '{BASE_LAYER}' already exists")
            if segments:
                dataset.register(place, on_duplicate="error", copy=True, executor="inline").wait()
        return cloud("WriteChunksResponse")()

    def _cancel(self, request: Any, call: Call) -> Any:
        """Do nothing: whoever knows the id of a task was told that it has ended."""
        del request, call
        return cloud("CancelTasksResponse")()

    def _tasks(self, request: Any, call: Call) -> Any:
        del call
        return cloud("QueryTasksResponse")(data=part_of(tasks_table(task.id for task in request.ids)))

    def _completed(self, request: Any, call: Call) -> Iterator[Any]:
        del call
        yield cloud("QueryTasksOnCompletionResponse")(data=part_of(tasks_table(task.id for task in request.ids)))


def _chunks_in(message: Any, call: Call) -> tuple[str, list[Chunk]]:
    """The segment and the chunks in a message. Raises :class:`ProtocolError`."""
    if not message.HasField("payload"):
        raise _bad("no chunk in WriteChunksRequest")
    part = shared("DataframePart")(encoder_version=message.encoder_version, payload=message.payload)
    table = rows_in(part, call)
    metadata = table.schema.metadata or {}
    segment = metadata.get(b"rerun:segment_id") or metadata.get(b"rerun:partition_id")
    if not segment:
        raise _bad("Received chunk without 'rerun:segment_id' metadata")
    try:
        return segment.decode(), [chunk for batch in table.to_batches() for chunk in Chunk.from_record_batch(batch)]
    except ValueError as error:
        raise _bad(f"error decoding chunk from record batch: {error}") from error


def _registered(
    dataset: DatasetEntry, sources: Sequence[_Source], choice: OnDuplicateSegmentLayer, *, whole: bool
) -> list[tuple[str | None, ...]]:
    """Register files, and give a row for each layer, or each file that failed, which ends with the reason or None.

    ``whole``: where a layer is there that may not be, nothing is registered. Else that file alone fails: it is found by
    halves, as a request may have many files, and the others go together.
    """
    uris, layers = [source.uri for source in sources], [source.layer for source in sources]
    try:
        handle = dataset.register(uris, layer_name=layers, on_duplicate=choice, executor="inline")
    except AlreadyExistsError as error:
        if whole:
            raise
        if len(sources) == 1:
            return [("", layers[0], "rrd", uris[0], str(error))]
        half = len(sources) // 2
        parts = (sources[:half], sources[half:])
        return [row for part in parts for row in _registered(dataset, part, choice, whole=whole)]
    return [
        (result.segment_id or "", source.layer, "rrd", source.uri, result.error)
        for source, results in zip(sources, handle.results(), strict=True)
        for result in results
    ]


def _check_source(given: Any) -> None:
    """Raise :class:`ProtocolError` for a data source that is none."""
    if given.typ != _RRD:
        raise _bad("invalid value for field 'rerun.cloud.v1alpha1.DataSourceKind.: enum value unspecified'")
    if not given.storage_url:
        raise _bad("missing required field: 'rerun.cloud.v1alpha1.DataSource.storage_url'")


def _bad(text: str) -> ProtocolError:
    return ProtocolError(Status.INVALID_ARGUMENT, text)
