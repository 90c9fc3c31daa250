"""Layers to register: requests, and the recordings found at their places."""

from __future__ import annotations

import base64
import contextlib
import os
import stat
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from ...readers import FORMATS, STORE, all_suffixes, dataset_format, detect_format, format_of_name, is_rrd, stem_of
from ..chunk import ChunkHeader, Schema
from ..errors import (
    AlreadyExistsError,
    ChunkmillError,
    NotFoundError,
    ReadError,
    ReadWarning,
    SourceMissingError,
    UnsupportedError,
    UsageError,
    WriteError,
)
from ..execution import Body, Group, Note, Outputs, RunOptions, Staging, TaskRun, is_of_all
from ..inputs import SourceOptions, Stores, stores_of
from ..locations import Location, exists, files_below, located
from ..optimisation import ChunkReferences, run_laid_out
from ..recordings import (
    BASE_LAYER,
    Arrived,
    IndexRange,
    InPlace,
    LayerSummary,
    LiveEntries,
    Origin,
    summaries_of,
    summary_of,
)
from ..rrd import (
    ChunkTable,
    Each,
    PositionalFile,
    RrdFile,
    StoreEntry,
    VerifiedPayload,
    announced_first,
    open_positional,
    read_footers,
)
from ..storage import ObjectUrl, bucket_of, find_objects, is_url
from ..stream import plan_outputs

R = TypeVar("R")

_AT_ONCE: Final = 16
_RRD: Final = ".rrd"


class OnDuplicateSegmentLayer(StrEnum):
    """The choices for a new layer if its segment already has a layer of this name."""

    ERROR = "error"
    """Keep the existing layer; the new layer fails."""

    SKIP = "skip"
    """Keep the existing layer; the new layer counts as registered."""

    REPLACE = "replace"
    """Replace the existing layer."""

    @classmethod
    def of(cls, value: OnDuplicateSegmentLayer | str) -> OnDuplicateSegmentLayer:
        """The member with this value. Raises ``UsageError`` if there is none."""
        try:
            return cls(value)
        except ValueError:
            raise UsageError(f"invalid on_duplicate value: {value!r}. Expected 'error', 'skip', or 'replace'") from None


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A file, or a folder that is one input, to register: its given URI, its place, and the layer.

    ``name`` is the id for a recording without one; ``announced`` is the result of :func:`_announced`, if it ran.
    """

    uri: str
    place: str
    layer: str
    name: str
    announced: tuple[StoreEntry, ...] | None = None

    @property
    def location(self) -> Location:
        """The place as a location."""
        return located(self.place)

    @property
    def is_rrd(self) -> bool:
        """Whether the file is an RRD, by its name, or by its first bytes if the name has no known extension."""
        if format_of_name(self.place) is not None:
            return is_rrd(self.place)
        try:
            return detect_format(self.location) is FORMATS["rrd"]
        except ChunkmillError:
            return True  # reported later as not being an RRD


def requests_of(
    uris: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], layers: str | Sequence[str]
) -> list[FileRequest]:
    """The requests for existing files by their URIs.

    Raises ``UsageError`` for a relative path, an unsupported URL, no URIs, or a wrong number of layers;
    ``NotFoundError`` if a file does not exist.
    """
    texts = [os.fspath(uri) for uri in ([uris] if isinstance(uris, str | os.PathLike) else uris)]
    if not texts:
        raise UsageError("no data sources to register")
    names = [layers] * len(texts) if isinstance(layers, str) else list(layers)
    if len(names) != len(texts):
        raise UsageError("`layer_name` must be the same length as `recording_uri`")
    places = [_place(text) for text in texts]
    requests = [
        FileRequest(text, place, name or BASE_LAYER, stem_of(PurePosixPath(place).name))
        for text, place, name in zip(texts, places, names, strict=True)
    ]
    _each(_check_there, requests)
    return _each_once(requests)


def places_opened(uri: str) -> Iterator[Location]:
    """Yield all places that a registration of ``uri`` may open, before links are followed.

    Raises ``ReadError`` if an input that lists its files cannot be read.
    """
    place = located(_place(uri))
    yield place
    if is_rrd(place.name) and not (isinstance(place, Path) and place.is_dir()):
        return
    with contextlib.suppress(SourceMissingError, UnsupportedError, OSError):  # reported as the outcome of the file
        yield from detect_format(place).open(place).places()


def requests_below(prefix: str | os.PathLike[str], layer: str | None) -> list[FileRequest]:
    """The requests for all recordings below a folder or prefix, in the order of their paths.

    Files of formats other than RRD are left out if they are hidden, or in a folder that is one input.

    Raises ``UsageError`` if the folder does not exist, is a file, or has no recordings.
    """
    text = os.fspath(prefix)
    location = located(_place(text))
    places = _objects_below(location) if isinstance(location, ObjectUrl) else _files_below(location)
    if not places:
        raise UsageError(f"no rrd files found in {text}")
    requests = [
        FileRequest(uri, place, layer or BASE_LAYER, "-".join(below.with_name(stem_of(below.name)).parts))
        for uri, place, below in places
    ]
    return _each_once(requests)


def _place(uri: str) -> str:
    """The place of a URI, as in chunk tables."""
    if not is_url(uri):
        if not Path(uri).is_absolute():
            raise UsageError(
                "Could not parse URL: relative URL without a base", path=uri, hint="Give an absolute path, or a URL."
            )
        return os.path.normpath(uri)
    url = urlsplit(uri)
    if url.scheme == "file" and url.netloc not in ("", "localhost"):
        raise NotFoundError(
            f"RRD file not found, file URI should not have a host: {uri} "
            "(this may be caused by invalid relative-path URI)"
        )
    return str(located(uri))


def _check_there(request: FileRequest) -> None:
    if not is_url(request.place) and os.path.isfile(request.place):  # noqa: PTH113 (a path for each takes 30 us)
        return
    location = request.location
    if isinstance(location, ObjectUrl):
        if not exists(location) and dataset_format(location) is None:
            raise NotFoundError(f"RRD file not found, could not load URI: {request.uri}")
    elif not location.exists():
        raise NotFoundError(f'RRD file not found, file does not exists: "{location}"')
    elif not location.is_file() and dataset_format(location) is None:
        raise NotFoundError(f'RRD file not found, path is not a file: "{location}"')


def check_new(requests: Sequence[FileRequest], live: LiveEntries, kind: str) -> None:
    """Raise ``AlreadyExistsError`` if a layer already exists, judged by the beginnings of the files."""
    for (segment, layer), uris in _announced_layers(requests, kind).items():
        if any(entry.layer == layer for entry in live.of_recording(segment, kind)):
            raise layer_exists(segment, layer, uris[0])


def layer_exists(segment: str, layer: str, path: str) -> AlreadyExistsError:
    """Return the error for a file with an existing layer of a segment."""
    hint = f"Segment '{segment}' has it. Use another layer name, or on_duplicate='replace' or 'skip'."
    return AlreadyExistsError(f"Layer '{layer}' already exists", path=path, hint=hint)


def _announced_layers(requests: Sequence[FileRequest], kind: str) -> dict[tuple[str, str], list[str]]:
    """The URIs of each layer of each segment."""
    layer_uris: dict[tuple[str, str], list[str]] = {}
    for request, stores in zip(requests, _each(_announced, requests), strict=True):
        for segment in dict.fromkeys(
            s.recording_id for s in stores if (s.kind == "blueprint") == (kind == "blueprint")
        ):
            layer_uris.setdefault((segment, request.layer), []).append(request.uri)
    return layer_uris


def _each_once(requests: list[FileRequest]) -> list[FileRequest]:
    """Return the requests. If there are several, each gets the stores that its file announces.

    Raises ``UsageError`` if two files have the same layer of the same segment, judged by their beginnings.
    """
    if len(requests) < 2:
        return requests
    requests = [
        replace(request, announced=stores)
        for request, stores in zip(requests, _each(_announced, requests), strict=True)
    ]
    layer_uris = _announced_layers(requests, "recording")
    twice = {key: uris for key, uris in layer_uris.items() if len(uris) > 1}
    if twice:
        lines = [
            line
            for (segment, layer), uris in twice.items()
            for line in (f"  segment id: {segment}, layer name: {layer}", *(f"    {uri}" for uri in uris))
        ]
        hint = "Files with the same recording id are one segment: convert each with its own id, or give each its layer."
        raise UsageError("\n".join(("duplicate segment layers in request:", *lines)), hint=hint)
    return requests


def _announced(request: FileRequest) -> tuple[StoreEntry, ...]:
    """The stores that an RRD announces before its first chunk, read once; empty if it cannot be read."""
    if request.announced is not None:
        return request.announced
    if not is_rrd(request.place):
        return ()
    try:
        return tuple(announced_first(request.place))
    except (ChunkmillError, OSError):
        return ()  # reported as the outcome of this file


def _each(function: Callable[[FileRequest], R], requests: Sequence[FileRequest]) -> list[R]:
    """The results of ``function`` for each request, several at once for requests in object stores."""
    if not any(is_url(request.place) for request in requests):
        return [function(request) for request in requests]
    with ThreadPoolExecutor(_AT_ONCE, "chunkmill-register") as pool:
        return list(pool.map(function, requests))


def _files_below(folder: Path) -> list[tuple[str, str, PurePath]]:
    if folder.is_file():
        raise UsageError(f'expected prefix / directory but got an object ("{folder}")')
    if not folder.is_dir():
        raise UsageError(f'Directory not found: "{folder}"')

    def is_input(path: Path) -> bool:
        return dataset_format(path) is not None

    paths = sorted(files_below(folder, all_suffixes(), hidden=(), is_input=is_input))
    files = [
        (path.as_uri(), str(path), PurePath(folder.name) if path == folder else path.relative_to(folder))
        for path in paths
    ]
    return [file for file in files if _is_meant(file[2])]


def _objects_below(prefix: ObjectUrl) -> list[tuple[str, str, PurePath]]:
    rows = [row for row in FORMATS.values() if row.marker is not None]
    markers = [row.marker for row in rows if row.marker is not None]
    suffixes = sorted({*all_suffixes(), *(PurePosixPath(marker).suffix for marker in markers)})
    objects = find_objects(prefix, tuple(suffixes), hidden=())
    if [str(match.url) for match in objects] == [str(prefix)]:
        raise UsageError(f'expected prefix / directory but got an object ("{prefix}")')
    datasets = {
        folder
        for match in objects
        for row, marker in zip(rows, markers, strict=True)
        if match.below.match(marker)
        and ((folder := match.below.parents[len(PurePosixPath(marker).parts) - 1]) is not None)
        and (row.file.marker_suffices or row.is_dataset(prefix / str(folder) if folder.parts else prefix))
    }
    inputs: dict[PurePosixPath, ObjectUrl] = {}
    for match in objects:
        dataset = next((folder for folder in reversed(match.below.parents) if folder in datasets), None)
        if dataset is not None:
            inputs[dataset] = prefix / str(dataset) if dataset.parts else prefix
        elif format_of_name(match.url.name) is not None:
            inputs[match.below] = match.url
    named = [(str(url), below if below.parts else PurePosixPath(prefix.name)) for below, url in inputs.items()]
    return sorted((url, url, below) for url, below in named if _is_meant(below))


def _is_meant(below: PurePath) -> bool:
    """Return whether to register a file: every RRD, and files of other formats unless they are hidden."""
    if is_rrd(below.name):
        return below.name.endswith(_RRD)
    return not any(part.startswith(".") for part in below.parts)


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The facts that change if a file is replaced: size, modification time, and an object's ETag."""

    size: int
    modified_ns: int
    etag: str | None = None

    @classmethod
    def at(cls, request: FileRequest) -> FileIdentity:
        """The identity of the current file; a folder's comes from its format. Raises ``SourceMissingError``."""
        if is_url(request.place):
            location = request.location
            if isinstance(location, ObjectUrl):
                info = bucket_of(location).find(location.key)
                if info is None:  # a folder, or missing
                    return cls(*detect_format(location).open(location).stamp())
                return cls(info.size, info.modified_ns, info.version)
        status = os.stat(request.place)  # noqa: PTH116 (a path for each takes 30 us)
        if stat.S_ISDIR(status.st_mode):
            location = request.location
            return cls(*detect_format(location).open(location).stamp())
        return cls(status.st_size, status.st_mtime_ns)

    def check(self, request: FileRequest) -> None:
        """Raise a transient ``ReadError`` if the file has another identity now."""
        if FileIdentity.at(request) != self:
            raise ReadError(
                "was changed during its registration",
                path=request.place,
                hint="Register it again when it is completely written.",
                transient=True,
            )

    def origin(self, request: FileRequest) -> Origin:
        """The file as the source of recordings."""
        return Origin(request.place, self.size, self.modified_ns, "", kept=False, etag=self.etag)


@dataclass(frozen=True, slots=True)
class FoundLayer:
    """One recording of a file: its store, the places of its chunks in the file, and a summary of the chunks."""

    store: StoreEntry
    table: ChunkTable
    identity: FileIdentity
    summary: LayerSummary

    def arrived(self, request: FileRequest) -> Arrived:
        """The layer, ready to be committed."""
        source, in_place = self.identity.origin(request), InPlace(self.table, self.summary)
        return Arrived(self.store, source, layer=request.layer, in_place=in_place)

    def note(self) -> dict[str, Any]:
        """The facts for a task's note, except the table, as JSON data."""
        return {
            "store": [self.store.kind, self.store.application_id, self.store.recording_id],
            "identity": [self.identity.size, self.identity.modified_ns, self.identity.etag],
            "schema": base64.b64encode(self.summary.schema.serialize()).decode(),
            "ranges": [list(index_range) for index_range in self.summary.ranges],
            "properties": base64.b64encode(self.summary.properties).decode(),
        }

    @classmethod
    def of(cls, note: Note) -> FoundLayer:
        """The inverse of :meth:`note`."""
        data = note.data
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data["schema"])))
        ranges = tuple(IndexRange(*bounds) for bounds in data["ranges"])
        summary = LayerSummary(schema, ranges, base64.b64decode(data["properties"]))
        return cls(StoreEntry(*data["store"]), data["table"], FileIdentity(*data["identity"]), summary)


@dataclass(frozen=True, slots=True)
class LookBody(Body):
    """The stage that reads the footers of files; it skips stores that are not of ``kind``."""

    requests: tuple[FileRequest, ...]
    kind: str
    verify: bool

    def label(self, index: int) -> str:
        """The place of a file."""
        return self.requests[index].place

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Note each layer in a file, in the order of its stores."""
        for layer in look_at(self.requests[task.index], self.kind, verify=self.verify):
            task.rows.note("layer", layer.note(), layer.table)
        yield from ()
        return {}


def look_at(request: FileRequest, kind: str, *, verify: bool = False) -> Iterator[FoundLayer]:
    """The layers in an RRD, from its footer, or from all its chunks if it has no footer.

    With ``verify``, all chunks are read, and the layers get their digests. Raises ``ReadError``.
    """
    identity = FileIdentity.at(request)
    file = RrdFile(request.place)
    for store in _of_kind(file.stores(), kind, request):
        table = file.listing(store)
        if table is None:
            table = _scanned(file, store)
        if verify:
            table = _verified(file, table)
        columns = Schema.from_headers(chain(table.headers(), file.silent_columns(store)))
        yield FoundLayer(store, table, identity, summary_of(ChunkReferences(table), columns))
    identity.check(request)


def _of_kind(stores: Sequence[StoreEntry], kind: str, request: FileRequest) -> list[StoreEntry]:
    """The stores of the kind. Raises ``ReadError`` if there are none."""
    of_kind = [store for store in stores if (store.kind == "blueprint") == (kind == "blueprint")]
    if not of_kind:
        raise ReadError(f"the file holds no {kind}", path=request.place)
    return of_kind


def look_together(requests: Sequence[FileRequest], kind: str, each: Each = map) -> dict[int, list[FoundLayer]]:
    """The layers in RRDs with complete footers, by the numbers of their requests; see :func:`look_at`.

    Read other files with :func:`look_at`; they may be damaged or missing.
    """
    opened = [entry for entry in each(_opened, enumerate(requests)) if entry is not None]
    layers_by_number: dict[int, list[FoundLayer]] = {}
    left_out = set[int]()
    try:
        for group in read_footers([file for _, _, file in opened], each):
            group = group.of_stores(lambda store: (store.kind == "blueprint") == (kind == "blueprint"))
            for listed, summary in zip(group.stores, summaries_of(group, each), strict=True):
                number, identity, _ = opened[listed.file]
                if summary is None:
                    left_out.add(number)
                    continue
                layer = FoundLayer(listed.store, group.table.slice(listed.start, listed.stop), identity, summary)
                layers_by_number.setdefault(number, []).append(layer)
    finally:
        for _, _, file in opened:
            file.close()
    unchanged = each(lambda item: _identity_or_none(requests[item[0]]) == item[1][0].identity, layers_by_number.items())
    left_out.update(number for number, same in zip(layers_by_number, unchanged, strict=True) if not same)
    return {
        number: sorted(layers, key=lambda layer: layer.store.sort_key)
        for number, layers in layers_by_number.items()
        if number not in left_out
    }


def _opened(numbered: tuple[int, FileRequest]) -> tuple[int, FileIdentity, PositionalFile] | None:
    number, request = numbered
    identity = _identity_or_none(request)
    try:
        return None if identity is None else (number, identity, open_positional(request.place))
    except ReadError:
        return None


def _identity_or_none(request: FileRequest) -> FileIdentity | None:
    try:
        return FileIdentity.at(request)
    except (ReadError, OSError):
        return None


def _scanned(file: RrdFile, store: StoreEntry) -> ChunkTable:
    """The chunks of a file without a footer."""
    began = time.perf_counter()
    table = file.scanned(store)
    warnings.warn(
        f"{file.path}: has no footer, so all of its {file.size:,} bytes were read to register it "
        f"({time.perf_counter() - began:.1f} s). `chunkmill convert` writes it with a footer.",
        ReadWarning,
        stacklevel=2,
    )
    return table


def _verified(file: RrdFile, table: ChunkTable) -> ChunkTable:
    """The same chunks with their digests; each chunk is read, decoded and compared with the footer.

    Raises ``ReadError``.
    """
    file_fields: dict[str, Any] = {"version": file.content_version, "held": file.held}
    with open_positional(file.path, file.content_version, file.held) as opened:
        digests = [VerifiedPayload.of(file.path, entry, **file_fields).digest_in(opened) for entry in table.entries()]
        for _ in ChunkReferences.of(file.path, file.content_version, table).read(np.arange(len(table))):
            pass
    column = pa.array(digests, pa.binary(16))
    return ChunkTable(table.batch.set_column(table.batch.schema.get_field_index("digest"), "digest", column))


# --- copies


class _Planned(NamedTuple):
    request: FileRequest
    identity: FileIdentity
    outputs: Outputs


def copy_in(
    requests: Sequence[FileRequest], kind: str, staging: Staging, destination: str, run: RunOptions
) -> list[list[Arrived] | Exception]:
    """The recordings of files of any format, read through their readers into parts of the staging folder.

    Each file gets its recordings, or the error that prevented them. Chunks stay as the reader gives them. Raises an
    error that stops all files, such as a full disk.
    """
    planned = [_planned(request, kind, run) for request in requests]
    fine = [plan.outputs for plan in planned if isinstance(plan, _Planned)]
    groups = iter(run_laid_out(fine, None, staging, destination, run))
    outcomes = [_copied(plan, next(groups)) if isinstance(plan, _Planned) else plan for plan in planned]
    if any(isinstance(outcome, Exception) for outcome in outcomes):
        staging.check()
    return outcomes


def _planned(request: FileRequest, kind: str, run: RunOptions) -> _Planned | Exception:
    """Open a file, and plan the outputs of its recordings."""
    try:
        identity = FileIdentity.at(request)
        stores = _streams(request, SourceOptions(executor=run.executor))
        wanted = set(_of_kind([store for store, _ in stores], kind, request))
        return _Planned(
            request,
            identity,
            plan_outputs([recording for recording in stores if recording[0] in wanted], executor=run.executor),
        )
    except WriteError:
        raise
    except Exception as error:  # noqa: BLE001 (the file's own)
        return error


def _streams(request: FileRequest, options: SourceOptions) -> Stores:
    """The recordings of a file. Each episode of a folder is a recording, whose id joins both names."""
    location = request.location
    row = detect_format(location)
    episodes = () if row is STORE else row.open(location).episodes()
    if not episodes:
        return stores_of(location, request.name, options)
    return [
        recording
        for episode in episodes
        for recording in stores_of(location, f"{request.name}-{episode.name}", options, episode.number)
    ]


def _copied(planned: _Planned, group: Group | Exception) -> list[Arrived] | Exception:
    if isinstance(group, Exception):
        if is_of_all(group):
            raise group
        return group
    request, identity, _ = planned
    try:
        identity.check(request)
    except (SourceMissingError, ReadError, OSError) as error:
        return error
    for text in group.warnings:
        warnings.warn(text, ReadWarning, stacklevel=2)
    source = identity.origin(request)
    try:
        file = RrdFile(request.place) if request.is_rrd else None
        return [
            Arrived(store, source, chunks, layer=request.layer, silent_columns=_silent_columns(file, store))
            for store, chunks in group.chunks
        ]
    except (ReadError, OSError) as error:
        return error


def _silent_columns(file: RrdFile | None, store: StoreEntry) -> Sequence[ChunkHeader]:
    return () if file is None or not file.has(store) else file.silent_columns(store)
