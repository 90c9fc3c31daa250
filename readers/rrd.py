"""``RrdReader``: the recordings and blueprints of an RRD file as streams of chunks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..engine.chunk import Chunk
from ..engine.errors import ReadError, ReadWarning, SourceMissingError, UsageError
from ..engine.locations import Location, exists, located, reading_location
from ..engine.rrd import ChunkEntry, RecoveringFile, RecoveryReport, RrdFile, StoreEntry
from ..engine.store import LazyStore
from ..engine.stream import LazyChunkStream, Split


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
        self.path: Location = reading_location(str(path))
        self._recover = recover
        if not exists(self.path):
            raise SourceMissingError(f"RRD file not found: {self.path}")

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
        """What can be recovered of a store of a cut or damaged file, and what is lost. Reads the whole file."""
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
        if store is not None and not isinstance(store, StoreEntry):
            raise TypeError(f"argument 'store': '{type(store).__name__}' object is not an instance of 'StoreEntry'")
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


@dataclass(frozen=True, slots=True)
class RrdSplit(Split):
    """Chunks of a store: some entries of its manifest, or all by scanning.

    ``version`` is that of an object in a store: what is read must still be it.
    """

    entries: tuple[ChunkEntry, ...] | None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class RrdSource:
    """The chunks of one store of an RRD file.

    Order: that of the file. Restart: each split can be read again by itself. With a footer a split is a run of
    manifest entries, without one the whole file.
    """

    path: str
    store: StoreEntry
    wanted: Callable[[str], bool] | None = None

    def describe(self) -> str:
        """One line for the plan."""
        return f"RrdReader({Path(self.path).name}, {self.store.text})"

    def paths(self) -> Sequence[str]:
        """The file that is read."""
        return [self.path]

    def narrowed(self, wanted: Callable[[str], bool]) -> RrdSource:
        """The same store without the entities for which ``wanted`` is false: with a footer they are never read."""
        return replace(self, wanted=wanted)

    def splits(self) -> Sequence[RrdSplit]:
        """Runs of manifest entries of about 64 MiB uncompressed, or one split for a file without a footer."""
        name = Path(self.path).name
        file = RrdFile(self.path)
        runs = file.split_entries(self.store)
        if runs is None:
            return [RrdSplit(name, file.size, None, file.object_version)]
        if self.wanted is not None:
            kept = ([e for e in run if self.wanted(e.header.entity_path)] for run in runs)
            runs = [run for run in kept if run]
        total = len(runs)
        return [
            RrdSplit(f"{name} [{i + 1}/{total}]", sum(e.size for e in run), tuple(run), file.object_version)
            for i, run in enumerate(runs)
        ]

    def read(self, split: RrdSplit) -> Iterator[Chunk]:
        """The chunks of a split, undecoded where the footer tells their headers."""
        for chunk in RrdFile(self.path, split.version).chunks(self.store, split.entries):
            if self.wanted is None or self.wanted(chunk.entity_path):
                yield chunk


@dataclass(frozen=True, slots=True)
class RecoveringSource:
    """The whole chunks of one store of a cut or damaged file, in one split; warns of what was lost at its end."""

    path: str
    store: StoreEntry

    def describe(self) -> str:
        """One line for the plan."""
        return f"RrdReader({Path(self.path).name}, {self.store.text}, recover=True)"

    def paths(self) -> Sequence[str]:
        """The file that is read."""
        return [self.path]

    def splits(self) -> Sequence[Split]:
        """The whole file."""
        return [Split(Path(self.path).name, RecoveringFile(self.path).report().size)]

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (there is only one)
        """Every chunk that is whole."""
        file = RecoveringFile(self.path)
        report = file.report()
        yield from file.chunks(self.store, report)
        if not report.is_whole:
            warnings.warn(str(report), ReadWarning, stacklevel=2)
