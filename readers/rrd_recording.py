"""RRD in the registry of formats: recordings and blueprints, and what ``inspect`` shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .recording_file import RecordingFile, recover_option

if TYPE_CHECKING:
    from ..engine.chunk import ChunkHeader
    from ..engine.rrd import RrdFile, StoreEntry, Verification
    from ..engine.stream import LazyChunkStream
    from .inspection import FileReport
    from .rrd import RrdReader


@dataclass(frozen=True)
class RrdRecording(RecordingFile):
    """An RRD; each of its recordings and blueprints keeps its id."""

    recover: bool = recover_option()

    def stream(self) -> LazyChunkStream:
        """The chunks of the first recording, with a warning if there are more recordings."""
        return self._reader().stream()

    def stores(self) -> list[tuple[StoreEntry | None, LazyChunkStream]]:
        """The recordings, then the blueprints."""
        reader = self._reader()
        if not self.recover:
            from .rrd import streams_of

            return [*streams_of(reader.path)]
        return [(store, reader.stream(store=store)) for store in (*reader.recordings(), *reader.blueprints())]

    def report(self) -> FileReport:
        """Report the stores by the footer; without a footer, payloads are read."""
        from ..engine.rrd import RrdFile
        from .inspection import FileReport, summarise_store

        file = RrdFile(self.path)
        stores = tuple(
            summarise_store(s.kind, s.application_id, s.recording_id, _headers(file, s)) for s in file.stores()
        )
        return FileReport(str(self.path), file.size, stores, {"footer": file.has_footer})

    def verify(self) -> Verification:
        """Verify every chunk, its digest if it has one, and the whole footer; see :func:`verify_file`."""
        from ..engine.rrd import verify_file

        return verify_file(str(self.path))

    def _reader(self) -> RrdReader:
        from .rrd import RrdReader

        return RrdReader(self.path, recover=self.recover)


def _headers(file: RrdFile, store: StoreEntry) -> Iterator[tuple[ChunkHeader, int | None]]:
    """Yield the header of each chunk of a store, and the chunk's bytes in the file (None if it was migrated)."""
    from ..engine.rrd import EncodedPayload, FramedPayload

    table = file.listing(store)
    if table is not None:
        yield from ((entry.header, entry.size) for entry in table.entries())
        return
    for chunk in file.chunks(store):
        stored = chunk.payload
        yield chunk.header, stored.size if isinstance(stored, EncodedPayload | FramedPayload) else None
