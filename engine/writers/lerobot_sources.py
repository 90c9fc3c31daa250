"""Recordings to export: streams by name, and recordings of stores and datasets, which are opened in their tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ..errors import UsageError
from ..recordings import RecordingEntry, RecordingsFolder, layers_digest
from ..rrd import digest_of
from ..store import LazyStore, RecordingStore
from ..stream import ContentFilter, LazyChunkStream


@dataclass(frozen=True, slots=True)
class ExportedRecording:
    """A recording to export: its name, its chunks, and a digest of its source. A later run recognizes it by the digest.

    ``stream`` may be a function that a task calls. ``origin`` is a digest of the recording's file or store.
    """

    name: str
    stream: LazyChunkStream | Callable[[], LazyChunkStream]
    digest: str | None = None
    origin: str | None = None
    labels: tuple[Mapping[str, Any], ...] = ()
    """The recording's rows of the label table."""

    def opened(self) -> LazyChunkStream:
        """Return the stream."""
        return self.stream if isinstance(self.stream, LazyChunkStream) else self.stream()


@dataclass(frozen=True, slots=True)
class ExportedStore:
    """Recordings of a store.

    ``present`` are the ids of all its recordings. ``origin`` is a digest of its place, because a published dataset must
    not contain paths.
    """

    origin: str
    recordings: tuple[ExportedRecording, ...]
    present: frozenset[str]

    def exported(self) -> ExportedStore:
        """Return this object."""
        return self


@runtime_checkable
class Exportable(Protocol):
    """An object with recordings to export, such as a view of a dataset."""

    def exported(self) -> ExportedStore:
        """Return the recordings of the object."""
        ...


Recordings: TypeAlias = (
    "Mapping[str, LazyChunkStream] | RecordingStore | Exportable | "
    "Sequence[ExportedRecording | RecordingStore | Exportable]"
)


def exported_entries(
    folder: RecordingsFolder,
    entries: Iterable[RecordingEntry],
    names: Iterable[str] | None = None,
    contents: Sequence[str] | None = None,
) -> ExportedStore:
    """Return recordings of a store, by default all; ``contents`` are expressions that select entities."""
    layers: dict[str, list[RecordingEntry]] = {}
    for entry in entries:
        if entry.kind != "blueprint":
            layers.setdefault(entry.recording_id, []).append(entry)
    place = folder.path
    origin = digest_of(str(place.resolve() if isinstance(place, Path) else place).encode()).hex()
    expressions = None if contents is None else tuple(contents)
    recordings = []
    for name in layers if names is None else names:
        if name in layers:
            digest = layers_digest(layers[name])
            if expressions is not None:
                digest = digest_of("\n".join([digest, *expressions]).encode()).hex()
            stream = partial(_stream, folder, tuple(layers[name]), expressions)
            recordings.append(ExportedRecording(name, stream, digest, origin))
    return ExportedStore(origin, tuple(recordings), frozenset(layers))


def _stream(
    folder: RecordingsFolder, layers: Sequence[RecordingEntry], contents: Sequence[str] | None
) -> LazyChunkStream:
    chunks = [chunk for layer in layers for chunk in folder.chunks(layer)]
    stream = LazyStore(chunks, name=f"{folder.path}#{layers[0].recording_id}").stream()
    return stream if contents is None else stream.filter(content=ContentFilter(contents))


def exported_store(store: RecordingStore, contents: Sequence[str] | None = None) -> ExportedStore:
    """Return the recordings of a store, as of its opened version."""
    return exported_entries(RecordingsFolder(store.path), store.recordings(), contents=contents)


def recordings_of(given: Any) -> tuple[list[ExportedRecording], list[ExportedStore]]:
    """Return all given recordings and stores to export.

    Raises ``UsageError`` if two recordings have the same name, or for other types.
    """
    recordings: list[ExportedRecording] = []
    stores: list[ExportedStore] = []
    if isinstance(given, Mapping):
        given = [ExportedRecording(name, stream) for name, stream in given.items()]
    for each in given if isinstance(given, list | tuple) else [given]:
        if isinstance(each, ExportedRecording):
            recordings.append(each)
        elif isinstance(each, RecordingStore | Exportable):
            stores.append(exported_store(each) if isinstance(each, RecordingStore) else each.exported())
            recordings += stores[-1].recordings
        else:
            raise UsageError(
                f"a {type(each).__name__} does not name its recordings",
                hint="Give streams by name, a store of recordings, a dataset, or a view of one.",
            )
    names = [each.name for each in recordings]
    again = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if again:
        raise UsageError(
            f"recordings have the same name: {', '.join(again[:5])}", hint="Give each recording its own name."
        )
    return recordings, stores
