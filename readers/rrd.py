"""``RrdReader``: the recordings and blueprints of an RRD file as streams of chunks."""

from __future__ import annotations

import os
import warnings

from ..engine.errors import ReadError, ReadWarning, SourceMissingError, UsageError, check_argument
from ..engine.locations import Location, exists, located, reading_location
from ..engine.rrd import RecoveringFile, RecoveryReport, RrdFile, StoreEntry
from ..engine.store import LazyStore
from ..engine.stream import LazyChunkStream
from .rrd_source import RecoveringSource, RrdSource


class RrdReader:
    """Reads an RRD file, local or an object in a store: what it holds, and the chunks of each of its stores.

    Nothing is read until it is asked for. With a footer, chunks come with their headers and without their payloads,
    which are read when they are touched; a file without one is scanned from its start.

    Guarantee: chunks come in the order they lie in the file, all of them or a ``ReadError`` that names the byte where
    the file is damaged.

    With ``recover`` a cut or damaged file gives its whole chunks instead; what was lost is reported in a
    ``ReadWarning`` when the stream ends (chunks, bytes and last times recovered, and why it stops there).

    Raises
    ------
    ValueError
        The file does not exist.
    """

    def __init__(self, path: str | os.PathLike[str], *, recover: bool = False) -> None:
        self._path = reading_location(str(path))
        self._recover = recover
        if not exists(self._path):
            raise SourceMissingError(f"RRD file not found: {self._path}")

    @property
    def path(self) -> Location:
        """The path of the file, or the URL of the object."""
        return self._path

    def recordings(self) -> list[StoreEntry]:
        """The recordings, sorted by application id and recording id."""
        return [s for s in self._stores() if s.kind == "recording"]

    def blueprints(self) -> list[StoreEntry]:
        """The blueprints, sorted by application id and id."""
        return [s for s in self._stores() if s.kind == "blueprint"]

    def stream(self, *, store: StoreEntry | None = None) -> LazyChunkStream:
        """The chunks of one store: by default the first recording, with a warning when there are more."""
        if self._recover:
            return LazyChunkStream.from_source(RecoveringSource(str(located(self.path)), self._chosen(store)))
        return LazyChunkStream.from_source(RrdSource(str(located(self.path)), self._chosen(store)))

    def recovery_report(self, *, store: StoreEntry | None = None) -> RecoveryReport:
        """The report on a store of a cut or damaged file: what is recovered, what is lost. Reads the whole file."""
        file = RecoveringFile(self.path)
        report = file.report()
        for _ in file.chunks(self._chosen(store, file.stores()), report):
            pass
        return report

    def store(self, *, store: StoreEntry | None = None) -> LazyStore:
        """One store by its manifest: length, schema and summary read no chunk; chunks are read when touched.

        Raises ``RuntimeError`` for a file without a footer.
        """
        chosen = self._chosen(store)
        file = RrdFile(str(located(self.path)))
        if not file.has_footer:
            raise ReadError(
                f"Legacy RRD without footer: {self.path}. "
                "Use RrdReader.stream().collect() to read it eagerly into a ChunkStore.",
                path=str(self.path),
            )
        runs = file.split_entries(chosen) or []
        chunks = (chunk for run in runs for chunk in file.chunks(chosen, run))
        return LazyStore(
            chunks, name=f"RrdReader({self.path.name}).store()", silent_columns=file.silent_columns(chosen)
        )

    def _stores(self) -> list[StoreEntry]:
        return RecoveringFile(self.path).stores() if self._recover else RrdFile(self.path).stores()

    def _chosen(self, store: StoreEntry | None, stores: list[StoreEntry] | None = None) -> StoreEntry:
        check_argument("store", store, StoreEntry, type(None))
        stores = self._stores() if stores is None else stores
        if store is not None:
            if store not in stores:
                raise UsageError(f"Store {store.text} not found in RRD file", path=str(self.path))
            return store
        recordings = [s for s in stores if s.kind == "recording"]
        if not recordings:
            raise UsageError(
                "No recording store found in RRD file",
                path=str(self.path),
                hint="It holds no chunk, or only blueprints; see blueprints().",
            )
        if len(recordings) > 1:
            warnings.warn(
                f"RRD contains {len(recordings)} recording stores; implicitly using {recordings[0].text}. "
                "Pass `store=…` to select explicitly (see `recordings()`).",
                ReadWarning,
                stacklevel=3,
            )
        return recordings[0]

    def __repr__(self) -> str:
        return f"RrdReader({self.path})"
