"""Requests for registration: places of files, each with the layer that its recordings become."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePath, PurePosixPath
from typing import Final, TypeVar
from urllib.parse import urlsplit

from ...readers import FORMATS, all_suffixes, dataset_format, detect_format, format_of_name, is_rrd, stem_of
from ..errors import AlreadyExistsError, ChunkmillError, NotFoundError, UsageError
from ..locations import Location, exists, files_below, located
from ..objects import ObjectUrl, find_objects, is_url
from ..recordings import BASE_LAYER, LiveEntries
from ..rrd import StoreEntry, announced_first

R = TypeVar("R")

_AT_ONCE: Final = 16
_RRD: Final = ".rrd"


class OnDuplicateSegmentLayer(StrEnum):
    """The fate of a layer of a segment that the dataset has already."""

    ERROR = "error"
    """It is left as it is, and the new one fails."""

    SKIP = "skip"
    """It is left as it is, and the new one counts as registered."""

    REPLACE = "replace"
    """The new one takes its place."""

    @classmethod
    def of(cls, value: OnDuplicateSegmentLayer | str) -> OnDuplicateSegmentLayer:
        """The member that is meant. Raises ``UsageError`` where none is."""
        try:
            return cls(value)
        except ValueError:
            raise UsageError(f"invalid on_duplicate value: {value!r}. Expected 'error', 'skip', or 'replace'") from None


@dataclass(frozen=True, slots=True)
class FileRequest:
    """One file, or one folder that is an input, to be registered: its URI as given, its place, and the layer.

    ``name`` is the id of a recording whose file has none, ``announced`` what :func:`_announced` told, if it was asked.
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
        """Whether it is an RRD, by its name, or where that promises no format by its first bytes."""
        if format_of_name(self.place) is not None:
            return is_rrd(self.place)
        try:
            return detect_format(self.location) is FORMATS["rrd"]
        except ChunkmillError:
            return True  # an RRD is what a file is said not to be


def requests_of(
    uris: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], layers: str | Sequence[str]
) -> list[FileRequest]:
    """The requests for files by their URIs, all of which are there.

    Raises ``UsageError`` for a relative path, a URL of another kind, no URI at all, or another number of layers;
    ``NotFoundError`` where there is no such file.
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


def requests_below(prefix: str | os.PathLike[str], layer: str | None) -> list[FileRequest]:
    """The requests for all recordings below a folder or prefix, by their paths: ``*.rrd``, and those of other formats.

    Hidden ones of other formats are left out, and of a folder that is one input what is in it.

    Raises ``UsageError`` where there is no such folder, it is a file, or there is none in it.
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
    """The place that a URI names, as chunk tables name it."""
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
    """Raise ``AlreadyExistsError`` where a layer is there already, as far as the files' beginnings tell."""
    for (segment, layer), uris in _announced_layers(requests, kind).items():
        if any(entry.layer == layer for entry in live.of_recording(segment, kind)):
            raise AlreadyExistsError(f"Layer '{layer}' already exists", path=uris[0])


def _announced_layers(requests: Sequence[FileRequest], kind: str) -> dict[tuple[str, str], list[str]]:
    """The URIs for each layer of each segment."""
    found: dict[tuple[str, str], list[str]] = {}
    for request, stores in zip(requests, _each(_announced, requests), strict=True):
        for segment in dict.fromkeys(
            s.recording_id for s in stores if (s.kind == "blueprint") == (kind == "blueprint")
        ):
            found.setdefault((segment, request.layer), []).append(request.uri)
    return found


def _each_once(requests: list[FileRequest]) -> list[FileRequest]:
    """The requests, and with several what each file announces.

    Raises ``UsageError`` where two files have one layer of one segment, as far as their beginnings tell.
    """
    if len(requests) < 2:
        return requests
    requests = [
        replace(request, announced=stores)
        for request, stores in zip(requests, _each(_announced, requests), strict=True)
    ]
    found = _announced_layers(requests, "recording")
    twice = {key: uris for key, uris in found.items() if len(uris) > 1}
    if twice:
        lines = [
            line
            for (segment, layer), uris in twice.items()
            for line in (f"  segment id: {segment}, layer name: {layer}", *(f"    {uri}" for uri in uris))
        ]
        raise UsageError("\n".join(("duplicate segment layers in request:", *lines)))
    return requests


def _announced(request: FileRequest) -> tuple[StoreEntry, ...]:
    """The stores that an RRD announces before its first chunk, read once; of what can't be read none."""
    if request.announced is not None:
        return request.announced
    if not is_rrd(request.place):
        return ()
    try:
        return tuple(announced_first(request.place))
    except (ChunkmillError, OSError):
        return ()  # told as the outcome of this file


def _each(function: Callable[[FileRequest], R], requests: Sequence[FileRequest]) -> list[R]:
    """The results of ``function`` for each request; several at once where they lie in object stores."""
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
    found = [
        (path.as_uri(), str(path), PurePath(folder.name) if path == folder else path.relative_to(folder))
        for path in paths
    ]
    return [one for one in found if _is_meant(one[2])]


def _objects_below(prefix: ObjectUrl) -> list[tuple[str, str, PurePath]]:
    markers = [row.marker for row in FORMATS.values() if row.marker is not None]
    suffixes = sorted({*all_suffixes(), *(PurePosixPath(marker).suffix for marker in markers)})
    found = find_objects(prefix, tuple(suffixes), hidden=())
    if [str(one.url) for one in found] == [str(prefix)]:
        raise UsageError(f'expected prefix / directory but got an object ("{prefix}")')
    datasets = {
        one.below.parents[len(PurePosixPath(marker).parts) - 1]
        for one in found
        for marker in markers
        if one.below.match(marker)
    }
    inputs: dict[PurePosixPath, ObjectUrl] = {}
    for one in found:
        dataset = next((folder for folder in reversed(one.below.parents) if folder in datasets), None)
        if dataset is not None:
            inputs[dataset] = prefix / str(dataset) if dataset.parts else prefix
        elif format_of_name(one.url.name) is not None:
            inputs[one.below] = one.url
    named = [(str(url), below if below.parts else PurePosixPath(prefix.name)) for below, url in inputs.items()]
    return sorted((url, url, below) for url, below in named if _is_meant(below))


def _is_meant(below: PurePath) -> bool:
    """Whether this is to be registered: any RRD, and of other formats what is not hidden."""
    if is_rrd(below.name):
        return below.name.endswith(_RRD)
    return not any(part.startswith(".") for part in below.parts)
