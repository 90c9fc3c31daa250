"""``RrdReader``, and its sources of chunks."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ..engine.chunk import Chunk, Schema, columns_of_headers
from ..engine.errors import ReadError, ReadWarning, SourceMissingError, UsageError, check_argument
from ..engine.limits import MIB, SPLIT_BYTES
from ..engine.locations import Location, exists, located, reading_location
from ..engine.markup import panel, panel_or_error, table
from ..engine.rrd import ChunkTable, FileRun, HeldFile, RecoveringFile, RecoveryReport, RrdFile, RunRows, StoreEntry
from ..engine.storage import is_url
from ..engine.stream import ChunkKind, Fate, LazyChunkStream, LazyStore, Source, Split
from ..engine.units import counted
from .recording_file import FrameReader


class RrdReader(FrameReader):
    """Read the stores and chunks of an RRD file, local or in an object store.

    The file is opened on first use. Chunk headers come from the footer, and payloads are read on use. A file without a
    footer is scanned from its start.

    Guarantee: you get all chunks in the order of the file, or a ``ReadError`` that names the byte at which the file is
    damaged.

    With ``recover``, you get the intact chunks of a truncated or damaged file instead. When the stream ends, a
    ``ReadWarning`` reports the loss: the recovered chunks, bytes and last times, and the reason why reading ended.

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
        """The chunks of one store: by default the first recording, with a warning if there are more."""
        if self._recover:
            return LazyChunkStream.from_source(RecoveringSource(str(located(self.path)), self._chosen(store)))
        file = RrdFile(self.path)
        chosen = self._chosen(store, file.stores())
        file.close()
        file.path = str(located(self.path))  # tasks run in other folders
        return LazyChunkStream.from_source(RrdSource(file.path, chosen, opened=file))

    def recovery_report(self, *, store: StoreEntry | None = None) -> RecoveryReport:
        """Report the recoverable and the lost parts of a store in a truncated or damaged file.

        Reads the whole file.
        """
        file = RecoveringFile(self.path)
        report = file.report()
        for _ in file.chunks(self._chosen(store, file.stores()), report):
            pass
        return report

    def store(self, *, store: StoreEntry | None = None) -> LazyStore:
        """Open one store by its manifest. Length, schema and summary are available without reading chunks.

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
        table = file.listing(chosen)
        assert table is not None
        chunks = file.chunks(chosen, table.entries())
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
                hint="The file has no chunks, or only blueprints; see blueprints().",
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

    def _repr_html_(self) -> str:
        return panel_or_error(repr(self), self._panel)

    def _panel(self) -> str:
        stores = self._stores()
        recordings = [store for store in stores if store.kind == "recording"]
        if recordings and not self._recover and RrdFile(self.path).has_footer:
            from ..engine.store import chunks_panel

            panels = [chunks_panel(f"{self!r} {s.text}", self.store(store=s)) for s in recordings[:_MOST_SHOWN]]
            left = len(recordings) - len(panels)
            return "".join([*panels, panel(f"… and {counted(left, 'more recording')}") if left else ""])
        rows = ((store.kind, store.application_id, store.recording_id) for store in stores)
        return panel(repr(self), [], table(["kind", "application", "recording"], rows, len(stores)))


def streams_of(path: Location) -> list[tuple[StoreEntry, LazyChunkStream]]:
    """Return a file's recordings, then its blueprints, each with its stream. All share a footer that is parsed once."""
    file = RrdFile(path)
    stores = file.stores()
    file.close()
    file.path = str(located(path))  # tasks run in other folders
    return [(s, LazyChunkStream.from_source(RrdSource(file.path, s, opened=file))) for s in stores]


_MOST_SHOWN: Final = 3
"""The maximum number of recordings that a notebook shows individually."""

_PASSED_BYTES: Final = 256 * MIB
"""The bytes that one task passes on in a tenth of a second; starting a task takes some hundredths."""


@dataclass(frozen=True, slots=True)
class RrdSplit(Split):
    """Chunks of a store: some rows of its chunk table, or all chunks by a scan.

    ``version`` is the file's version when it was divided, which it must still have when it is read. ``held`` keeps the
    file open in the process that divided it. Chunks of a split with ``is_run`` are not decoded.
    """

    listed: ChunkTable | None
    version: str | None = None
    held: HeldFile | None = field(default=None, compare=False, repr=False)
    is_run: bool = False


@dataclass(frozen=True, slots=True)
class RrdSource(Source[RrdSplit]):
    """The chunks of one store of an RRD file.

    Order: that of the file. Restart: each split can be read again by itself. With a footer, a split is a run of
    manifest entries; without a footer, it is the whole file.
    """

    path: str
    store: StoreEntry
    wanted: Callable[[str], bool] | None = None
    opened: RrdFile | None = field(default=None, compare=False, repr=False)
    """The file from listing the stores, so that its footer is not read again; saves a fifth of a small frame's time."""

    has_runs = True

    def describe(self) -> str:
        """One line for the plan."""
        return f"RrdReader({Path(self.path).name}, {self.store.text})"

    def paths(self) -> Sequence[str]:
        """The file that is read."""
        return [self.path]

    def narrowed(self, wanted: Callable[[str], bool]) -> RrdSource:
        """Return the source without entities for which ``wanted`` is false. With a footer, they are never read."""
        return replace(self, wanted=wanted)

    def splits(self) -> Sequence[RrdSplit]:
        """Return runs of manifest entries of about 64 MiB uncompressed, or one split for a file without a footer."""
        file = self._file()
        table = file.listing(self.store)
        if table is None:
            return [RrdSplit(Path(self.path).name, file.size, None, file.content_version, file.held)]
        if self.wanted is not None:
            codes, paths = table.entity_codes
            table = table.take(np.flatnonzero(np.array([self.wanted(p) for p in paths], dtype=bool)[codes]))
        return self._of_tables(table.runs(SPLIT_BYTES), file)

    def entities(self) -> list[str] | None:
        """The entities of the store, by the footer; None without a footer."""
        table = self._file().listing(self.store)
        return None if table is None else list(table.entity_codes[1])

    def columns(self) -> tuple[Schema, None] | None:
        """Return the columns of chunks with times, by the footer, which does not show whether rows have several values.

        Return None without a footer, or if it does not show for each column which chunks have it.
        """
        file = self._file()
        table = file.listing(self.store)
        if table is None or file.silent_columns(self.store):
            return None
        headers = (entry.header for entry in table.entries())
        return columns_of_headers(h for h in headers if self.wanted is None or self.wanted(h.entity_path)), None

    def run_splits(self, fate: Callable[[ChunkKind], Fate]) -> Sequence[RrdSplit] | None:
        """Return splits of the chunks to pass on, undecoded.

        Return None if a chunk must be decoded, if no footer lists all chunks, and for an object in a store.
        """
        if is_url(self.path):
            return None
        file = self._file()
        table = file.listing(self.store)
        if table is None:
            return None
        fates = _fates(table, fate)
        if bool(np.any(fates == Fate.LOOKED_INTO.value)):
            return None
        table = table.take(np.flatnonzero(fates == Fate.PASSED_ON.value))
        return self._of_tables(table.divided(_PASSED_BYTES), file, is_run=True) if table.says_all else None

    def whole_run(self, split: RrdSplit, fate: Callable[[ChunkKind], Fate]) -> FileRun | None:
        """Return the messages of any split to pass on, or None if some chunk must be decoded."""
        table = split.listed
        if table is None or is_url(self.path):
            return None
        if split.is_run:
            return FileRun(table, self.store, self.path, split.version)
        fates = _fates(table, fate)
        if bool(np.any(fates == Fate.LOOKED_INTO.value)):
            return None
        table = table.take(np.flatnonzero(fates == Fate.PASSED_ON.value))
        return FileRun(table, self.store, self.path, split.version) if len(table) and table.says_all else None

    def pieces(self, split: RrdSplit, fate: Callable[[ChunkKind], Fate]) -> Iterator[RunRows | Iterator[Chunk]]:
        """Yield a split in runs: messages to pass on unchanged, and chunks to decode."""
        table = split.listed
        if table is None or is_url(self.path):
            yield self.read(split)
            return
        fates = _fates(table, fate)
        rows = np.flatnonzero(fates != Fate.LEFT_OUT.value)
        is_passed = fates[rows] == Fate.PASSED_ON.value
        run = FileRun(table.take(rows[is_passed]), self.store, self.path, split.version)
        if not (len(run.table) and run.table.says_all and run.lies_as_listed()):
            yield self.read(split)
            return
        entries = table.take(rows[~is_passed]).entries()
        file = RrdFile(self.path, split.version)
        bounds = [0, *(np.flatnonzero(is_passed[1:] != is_passed[:-1]) + 1).tolist(), len(rows)]
        before = np.concatenate([[0], np.cumsum(is_passed)]).tolist()
        for start, stop in itertools.pairwise(bounds):
            if is_passed[start]:
                yield RunRows(run, before[start], before[stop])
            else:
                yield file.chunks(self.store, entries[start - before[start] : stop - before[stop]])

    def read(self, split: RrdSplit) -> Iterator[Chunk]:
        """Yield the chunks of a split, undecoded if the footer has their headers."""
        entries = None if split.listed is None else split.listed.entries()
        for chunk in RrdFile(self.path, split.version).chunks(self.store, entries):
            if self.wanted is None or self.wanted(chunk.entity_path):
                yield chunk

    def _file(self) -> RrdFile:
        """The current version of the file."""
        return RrdFile(self.path) if self.opened is None else self.opened.again()

    def _of_tables(self, tables: Sequence[ChunkTable], file: RrdFile, *, is_run: bool = False) -> list[RrdSplit]:
        name, count = Path(self.path).name, len(tables)
        return [
            RrdSplit(f"{name} [{i + 1}/{count}]", t.message_bytes, t, file.content_version, file.held, is_run)
            for i, t in enumerate(tables)
        ]


def _fates(table: ChunkTable, fate: Callable[[ChunkKind], Fate]) -> npt.NDArray[np.int64]:
    """The value of each row's fate; ``fate`` is called once for each kind of chunk."""
    which, kinds = table.kinds
    return np.array([fate(kind).value for kind in kinds], dtype=np.int64)[which]


@dataclass(frozen=True, slots=True)
class RecoveringSource(Source[Split]):
    """The intact chunks of one store in a cut or damaged file, in one split; at its end, it warns of losses."""

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
        """Yield every intact chunk."""
        file = RecoveringFile(self.path)
        report = file.report()
        yield from file.chunks(self.store, report)
        if not report.is_whole:
            warnings.warn(str(report), ReadWarning, stacklevel=2)
