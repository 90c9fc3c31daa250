"""A store of recordings in the registry of formats: a folder of recordings, each a separate input.

A store is recognised by its versions. Only live recordings are read from its shards.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple
from urllib.parse import quote

from ..engine.errors import ReadError, ReadWarning
from .recording_file import Episode, RecordingFile, option

if TYPE_CHECKING:
    from ..engine.locations import Location
    from ..engine.recordings import RecordingEntry
    from ..engine.rrd import StoreEntry, Verification
    from ..engine.store import RecordingStore
    from ..engine.stream import LazyChunkStream
    from .inspection import FileReport, StoreReport

_LONGEST_NAME: Final = 180
_PACKED: Final = (".zst", ".zstd", ".lz4")


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a version number") from None


@dataclass(frozen=True)
class StoreRecording(RecordingFile):
    """A recording of a store, or all, made by ``chunkmill ingest --into`` or ``collect(into=…)``.

    Only live recordings of the chosen version are included. If a recording is replaced meanwhile, the new one is read.
    """

    recording: str | None = option(None, "Store: id of the recording to read. Default: the first.")
    version: int | None = option(None, "Store: version to read. Default: the newest.", parse=_number)

    episode_option: ClassVar[str] = "recording"

    def stream(self) -> LazyChunkStream:
        """Return the chunks of the recording. Warns if none was chosen and there are several."""
        live = self._live()
        if not live.recordings:
            raise ReadError("the store has no recordings", path=str(self.path))
        if self.recording is None and len(live.recordings) > 1:
            warnings.warn(
                f"{self.path} has {len(live.recordings)} recordings; {live.recordings[0].recording_id!r} is read. "
                "Choose one with the option 'recording'.",
                ReadWarning,
                stacklevel=2,
            )
        return live.store.recording(self._chosen(live)[0].recording_id).stream()

    def stores(self) -> list[tuple[StoreEntry | None, LazyChunkStream]]:
        """The recording, or all recordings, and the blueprints from their files."""
        live = self._live()
        chosen = self._chosen(live)
        layers = [layer for entry in chosen for layer in live.store.layers(entry.recording_id)]
        sources = {(entry.source, entry.source_digest) for entry in layers}
        with_them = [b for b in live.blueprints if (b.source, b.source_digest) in sources]
        recordings = [(entry.store, live.store.recording(entry.recording_id).stream()) for entry in chosen]
        return [*recordings, *((entry.store, live.store.recording(entry).stream()) for entry in with_them)]

    def verify(self) -> Verification:
        """Verify all files named by the versions of the store; see :func:`verify_store`."""
        from ..engine.recordings import RecordingsFolder, verify_store

        return verify_store(RecordingsFolder(self.path))

    def episodes(self) -> Sequence[Episode]:
        """All recordings, in the order of their arrival. Raises ``ReadError``.

        Each has the name of its source file, or its id if several would have that name or there was no file.
        """
        entries = self._live().recordings
        names = [file_name(_stem(entry)) for entry in entries]
        shared = {name for name, count in Counter(map(str.lower, names)).items() if count > 1}
        return [
            Episode(entry.recording_id, name if name.lower() not in shared else file_name(entry.recording_id))
            for name, entry in zip(names, entries, strict=True)
        ]

    def stamp(self) -> tuple[int, int]:
        """The bytes of the recording's layers, and the time when the last layer was added."""
        live = self._live()
        layers = live.store.layers(self._chosen(live)[0].recording_id)
        return sum(e.bytes for e in layers), int(max(e.added for e in layers) * 1e9)

    def places(self) -> Iterator[Location]:
        """Yield the folder with its content, and the files that manifests name, which may be another store's.

        Raises ``ReadError``.
        """
        from ..engine.locations import located
        from ..engine.recordings import RecordingsFolder

        yield from super().places()
        live = self._live()
        folder = RecordingsFolder(self.path)
        for entry in (
            *(layer for e in live.recordings for layer in live.store.layers(e.recording_id)),
            *live.blueprints,
        ):
            if entry.manifest:
                yield from map(located, folder.references(entry).table.part_codes[1])

    def report(self) -> FileReport:
        """Report recordings and blueprints by their manifests, and when and by what the version was made."""
        from ..engine.units import utc_time
        from .inspection import FileReport

        live = self._live()
        version = live.store.version
        chosen = self._chosen(live)
        entries = [live.store.layers(entry.recording_id) for entry in chosen]
        entries += [[entry] for entry in (live.blueprints if self.recording is None else ())]
        facts: dict[str, str | float | bool] = {
            "version": version.number,
            "written": utc_time(version.created, "seconds"),
            "by": version.operation,
        }
        return FileReport(
            str(self.path),
            sum(e.bytes for layers in entries for e in layers),
            tuple(_report(self.path, layers) for layers in entries),
            facts,
        )

    def _live(self) -> _Live:
        from ..engine.store import RecordingStore

        store = RecordingStore.open(str(self.path), version=self.version)
        return _live_store(str(self.path), store.version.number, store.version.created)

    def _chosen(self, live: _Live) -> list[RecordingEntry]:
        return live.recordings if self.recording is None else [live.store.entry(self.recording)]


class _Live(NamedTuple):
    """An open version of a store, with its live content: one layer of each recording, and blueprints."""

    store: RecordingStore
    recordings: list[RecordingEntry]
    blueprints: list[RecordingEntry]


@lru_cache(maxsize=4)
def _live_store(path: str, number: int, _created: float) -> _Live:
    """Return a version of a store; it is cached, so that converting its recordings one by one lists them once."""
    from ..engine.store import RecordingStore

    store = RecordingStore.open(path, version=number)
    first: dict[str, RecordingEntry] = {}
    for entry in store:
        first.setdefault(entry.recording_id, entry)
    return _Live(store, list(first.values()), store.blueprints())


def _report(path: Location, layers: Sequence[RecordingEntry]) -> StoreReport:
    """The report on a recording, by its manifests."""
    from ..engine.recordings import RecordingsFolder
    from .inspection import summarise_store

    folder, entry = RecordingsFolder(str(path)), layers[0]
    tables = [folder.references(layer).table for layer in layers]
    chunks = ((chunk.header, chunk.size) for table in tables for chunk in table.entries())
    return summarise_store(entry.kind, entry.application_id, entry.recording_id, chunks)


def _stem(entry: RecordingEntry) -> str:
    """Return the name of a recording's source file without its suffix, or the recording's id if it had no file."""
    name = PurePosixPath(entry.source.rpartition("/")[2])
    return PurePosixPath(name.stem).stem if name.suffix.lower() in _PACKED else name.stem or entry.recording_id


def file_name(recording_id: str) -> str:
    """Return the file name of a recording: its id, with characters that are invalid in file names escaped as in a URL.

    Two ids never give the same name.

    >>> file_name("drive 1"), file_name("../a/b"), file_name("100 %")
    ('drive 1', '%2E.%2Fa%2Fb', '100 %25')
    """
    name = "".join(c if c.isprintable() and c not in '/\\%:*?"<>|' else quote(c, safe="") for c in recording_id)
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    if len(name.encode()) > _LONGEST_NAME:
        digest = hashlib.sha256(recording_id.encode()).hexdigest()[:16]
        name = f"{name.encode()[:_LONGEST_NAME].decode(errors='ignore')}%{digest}"
    return name
