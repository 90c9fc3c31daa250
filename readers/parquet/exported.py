"""Folders that ``write_parquet`` has written: their manifest gives the original chunks with their ids.

The layout, the manifest and the metadata of files are described in ``engine/writers/parquet.py``.
"""

from __future__ import annotations

import base64
import glob
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...engine.chunk import (
    Chunk,
    ChunkData,
    Component,
    ComponentDescriptor,
    Timeline,
    TimelineKind,
    from_portable,
    parse_entity_path,
    portable_type,
)
from ...engine.errors import ReadError, UnsupportedError, UsageError
from ...engine.execution import Folder
from ...engine.limits import MAX_PARQUET_FOOTER, SPLIT_BYTES, check_limit
from ...engine.locations import Location, is_below, located, true_place
from ...engine.rrd import ARROW_ERRORS, StoreEntry, decode_batch, types_from_bytes
from ...engine.storage import ObjectUrl
from ...engine.stream import Source, Split
from .file import ParquetFile, read_columns
from .source import SUFFIXES

MANIFEST: Final = "_chunkmill.json"
_FORMAT: Final = "chunkmill parquet"
_VERSION: Final = 1
_HINT: Final = "The folder is damaged or was changed. Copy or write it again, or read the folder of one entity."
_ERRORS: Final = (*ARROW_ERRORS, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)


def is_exported(place: Location) -> bool:
    """Return whether there is a folder with a manifest."""
    if isinstance(place, ObjectUrl):
        is_file = place.name.lower().endswith(SUFFIXES) or glob.has_magic(place.key)
        return not is_file and Folder.at(place).exists(MANIFEST)
    return (place / MANIFEST).is_file()


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file that the manifest names."""

    path: str
    entity_path: str
    recording_id: str
    rows: int
    chunks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ExportManifest:
    """The recordings of a folder, and its files, in order."""

    recordings: tuple[StoreEntry, ...]
    files: tuple[ExportedFile, ...]

    @classmethod
    def read(cls, folder: str) -> ExportManifest:
        """Return the manifest of a folder. Raises ``ReadError``, and ``UnsupportedError`` for a later version."""
        place = Folder.at(folder)
        path = place.place(MANIFEST)
        try:
            size = place.size(MANIFEST)
            check_limit(size, MAX_PARQUET_FOOTER, path=path, offset=0, what="the size of the manifest")
            facts = json.loads(place.get(MANIFEST))
            if facts["format"] != _FORMAT:
                raise _damaged("the manifest has another format", path)
            if facts["version"] != _VERSION:
                raise UnsupportedError(
                    f"the manifest has version {facts['version']}", path=path, hint="Use a newer release of chunkmill."
                )
            given = [(str(r["application_id"]), str(r["recording_id"])) for r in facts["recordings"]]
            files = [
                ExportedFile(
                    _within(folder, file["path"], path),
                    parse_entity_path(table["entity_path"]),
                    given[_count(file["recording"])][1],
                    _count(file["rows"]),
                    _count(file["chunks"]),
                    _count(file["bytes"]),
                )
                for table in facts["tables"]
                for file in table["files"]
            ]
        except ReadError:
            raise
        except OSError as error:
            raise ReadError(f"the manifest cannot be read: {error.strerror or error}", path=path) from error
        except _ERRORS as error:
            raise _damaged(f"the manifest cannot be read: {type(error).__name__}: {error}", path) from error
        return cls(tuple(StoreEntry("recording", *ids) for ids in given), tuple(files))

    def chosen(self, recording_id: str | None, path: str) -> StoreEntry:
        """Return a recording, by default the first. Raises ``UsageError`` if no recording has this id."""
        for store in self.recordings:
            if recording_id in (None, store.recording_id):
                return store
        if recording_id is None:
            raise _damaged("the manifest has no recording", path)
        ids = ", ".join(store.recording_id for store in self.recordings[:5])
        raise UsageError(f"there is no recording {recording_id!r}", path=path, hint=f"There are: {ids}.")


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{value!r} is not a count")
    return value


def _within(folder: str, below: Any, path: str) -> str:
    """Return the place of a file, which must be in the folder. Raises ``ReadError``."""
    parts = PurePosixPath(str(below))
    place = Folder.at(folder).place(str(parts))
    is_outside = parts.is_absolute() or ".." in parts.parts
    if is_outside or (
        not isinstance(located(folder), ObjectUrl) and not is_below(true_place(place), true_place(folder))
    ):
        raise _damaged(f"the manifest names {str(below)!r}, which is outside the folder", path)
    return place


def _damaged(what: str, path: str, offset: int | None = None) -> ReadError:
    return ReadError(f"Parquet error: {what}", path=path, offset=offset, hint=_HINT)


# ------------------------------------------------------------------------------------------------- chunks of a file


@dataclass(frozen=True)
class _Kind:
    """The timelines and components of chunks, with the names of their columns in the file."""

    timelines: tuple[tuple[str, TimelineKind, str], ...]
    components: tuple[tuple[ComponentDescriptor, pa.DataType, str | None], ...]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> _Kind:
        types = types_from_bytes(base64.b64decode(facts["types"], validate=True))
        timelines = [(str(name), TimelineKind(kind), str(column)) for name, kind, column in facts["timelines"]]
        components = [
            (ComponentDescriptor(name, archetype, component_type), kind, column)
            for (name, archetype, component_type, column), kind in zip(facts["components"], types, strict=True)
        ]
        if any(not pa.types.is_list(kind) for kind in types):
            raise ValueError("a component is not a list")
        names = {name for name, _, _ in timelines}, {descriptor.component for descriptor, _, _ in components}
        if len(names[0]) < len(timelines) or len(names[1]) < len(components):
            raise ValueError("a name occurs twice")
        return cls(
            tuple(sorted(timelines, key=lambda line: line[0].encode())),
            tuple(sorted(components, key=lambda component: component[0].sort_key)),
        )

    @property
    def columns(self) -> set[str]:
        """The names of the columns."""
        return {column for _, _, column in self.timelines} | {c for _, _, c in self.components if c is not None}


class _Listing:
    """The chunks of a file, by its metadata. Raises ``ReadError``."""

    def __init__(self, file: ParquetFile, exported: ExportedFile) -> None:
        metadata = dict(file.footer.key_values)
        path, at = file.path, file.footer_at
        if file.size != exported.bytes or file.footer.rows != exported.rows:
            raise _damaged("the file differs from its description in the manifest", path, at)
        try:
            self.kinds = [_Kind.of(facts) for facts in json.loads(metadata["chunkmill:kinds"])]
            stream = base64.b64decode(metadata["chunkmill:chunks"], validate=True)
            batch = decode_batch(stream, path=path, offset=at, what="the list of chunks")
            self.kind_of = batch.column("kind").to_numpy(zero_copy_only=False).astype(np.int64)
            self.ids: list[bytes] = batch.column("chunk_id").to_pylist()
            rows = batch.column("rows").to_numpy(zero_copy_only=False).astype(np.int64)
        except ReadError:
            raise
        except _ERRORS as error:
            raise _damaged(
                f"the list of its chunks cannot be read: {type(error).__name__}: {error}", path, at
            ) from error
        fits = len(rows) == exported.chunks and (rows >= 0).all() and (rows <= exported.rows).all()
        is_known = len(rows) == 0 or (self.kind_of.min() >= 0 and self.kind_of.max() < len(self.kinds))
        if not fits or not is_known or any(id_ is None or len(id_) != 16 for id_ in self.ids):
            raise _damaged("the list of its chunks is damaged", path, at)
        self.ends = np.cumsum(rows)
        if (int(self.ends[-1]) if len(rows) else 0) != exported.rows:
            raise _damaged("its chunks and the file have different numbers of rows", path, at)
        self.rows: list[int] = rows.tolist()


@dataclass(frozen=True, slots=True)
class ExportedSplit(Split):
    """Row groups ``start`` to ``stop`` of a file, and the chunks in them."""

    file: ExportedFile
    start: int
    stop: int
    first_chunk: int
    last_chunk: int


class ExportedSource(Source[ExportedSplit]):
    """The chunks of a recording in a folder that ``write_parquet`` has written.

    Guarantee: each chunk comes once, with its own id and its rows' ids. Order: by entity, and for each entity in the
    order of the recording. It is the same for every run over the same bytes.
    """

    def __init__(
        self, folder: str, recording_id: str | None = None, wanted: Callable[[str], bool] | None = None
    ) -> None:
        self.folder = folder
        self.recording_id = recording_id
        self._wanted = wanted

    def __repr__(self) -> str:
        return f"ExportedSource({self.folder!r})"

    def describe(self) -> str:
        """``ParquetReader(drives)``."""
        return f"ParquetReader({self.folder})"

    def paths(self) -> Sequence[str]:
        """The files that are read."""
        return [file.path for file in self._files]

    def narrowed(self, wanted: Callable[[str], bool]) -> ExportedSource:
        """Return the source without unused entities, whose files are not opened."""
        return ExportedSource(self.folder, self.recording_id, wanted)

    def entities(self) -> set[str]:
        """The entities of the recording, by the manifest."""
        return {file.entity_path for file in self._files}

    def splits(self) -> Sequence[ExportedSplit]:
        """Return runs of row groups of about 64 MiB that end with a chunk. Reads the footers of all files."""
        splits: list[ExportedSplit] = []
        for exported in self._files:
            if self._wanted is None or self._wanted(exported.entity_path):
                with ParquetFile(exported.path) as file:
                    splits += _divided(file, exported, _Listing(file, exported))
        return splits

    def read(self, split: ExportedSplit) -> Iterator[Chunk]:
        """The chunks of one split, in order."""
        with ParquetFile(split.file.path) as file:
            listing = _Listing(file, split.file)
            chosen = range(split.first_chunk, split.last_chunk)
            kinds = {int(listing.kind_of[i]) for i in chosen}
            names = {"row_id"}.union(*(listing.kinds[kind].columns for kind in kinds))
            positions = {name: file.schema.get_field_index(name) for name in names}
            if missing := sorted(name for name, position in positions.items() if position < 0):
                raise _damaged(f"it has no column {missing[0]!r}", file.path, file.footer_at)
            rows = _Rows(read_columns(file, range(split.start, split.stop), positions.values()), file.schema)
            for i in chosen:
                kind = listing.kinds[int(listing.kind_of[i])]
                try:
                    arrays = rows.take(listing.rows[i], [positions[name] for name in ("row_id", *kind.columns)])
                    yield Chunk.from_data(_chunk(listing.ids[i], split.file.entity_path, kind, positions, arrays))
                except ReadError:
                    raise
                except _ERRORS as error:
                    raise _damaged(f"chunk {i} cannot be read: {error}", file.path) from error

    @cached_property
    def _files(self) -> list[ExportedFile]:
        manifest = ExportManifest.read(self.folder)
        store = manifest.chosen(self.recording_id, self.folder)
        return [file for file in manifest.files if file.recording_id == store.recording_id]

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "recording_id": self.recording_id, "_wanted": self._wanted}


def _divided(file: ParquetFile, exported: ExportedFile, listing: _Listing) -> list[ExportedSplit]:
    """The splits of a file."""
    groups = file.footer.row_groups
    sizes = [sum(column.uncompressed for column in group.columns) for group in groups]
    ends = np.cumsum([group.rows for group in groups], dtype=np.int64)
    whole = np.isin(ends, listing.ends)
    splits: list[ExportedSplit] = []
    start = first_chunk = 0
    size = 0
    label = f"{exported.entity_path} of {exported.recording_id}"
    for i, end in enumerate(ends.tolist()):
        size += sizes[i]
        is_last = i + 1 == len(groups)
        if is_last or (whole[i] and size + sizes[i + 1] > SPLIT_BYTES):
            last_chunk = len(listing.rows) if is_last else int(np.searchsorted(listing.ends, end, side="right"))
            splits.append(ExportedSplit(label, size, exported, start, i + 1, first_chunk, last_chunk))
            start, first_chunk, size = i + 1, last_chunk, 0
    if not groups and listing.rows:
        splits.append(ExportedSplit(label, 0, exported, 0, 0, 0, len(listing.rows)))
    if len(splits) > 1:
        splits = [replace(split, label=f"{label} [{i + 1}/{len(splits)}]") for i, split in enumerate(splits)]
    return splits


class _Rows:
    """Rows that are read in batches, and taken chunk by chunk."""

    def __init__(self, batches: Iterator[tuple[int, dict[int, pa.Array]]], schema: pa.Schema) -> None:
        self._batches, self._schema = batches, schema
        self._ahead: deque[tuple[int, dict[int, pa.Array]]] = deque()

    def take(self, rows: int, columns: Sequence[int]) -> dict[int, pa.Array]:
        """Return the next rows of some columns. Raises ``ValueError`` if there are fewer."""
        pieces: list[dict[int, pa.Array]] = []
        while rows:
            if not self._ahead:
                self._ahead.append(next(self._batches, (0, {})))
            length, arrays = self._ahead.popleft()
            if not length:
                raise ValueError("the file has fewer rows than its chunks")
            some = min(rows, length)
            pieces.append({column: arrays[column][:some] for column in columns})
            if some < length:
                self._ahead.appendleft((length - some, {column: a[some:] for column, a in arrays.items()}))
            rows -= some
        if not pieces:
            return {column: pa.array([], self._schema.field(column).type) for column in columns}
        if len(pieces) == 1:
            return pieces[0]
        return {column: pa.concat_arrays([piece[column] for piece in pieces]) for column in columns}


def _chunk(
    chunk_id: bytes,
    entity_path: str,
    kind: _Kind,
    positions: Mapping[str, int],
    arrays: Mapping[int, pa.Array],
) -> ChunkData:
    """Return the chunk of some rows. Raises ``ValueError`` and Arrow's errors for wrong column types and for nulls."""
    ids = arrays[positions["row_id"]]
    if ids.type != pa.binary(16) or ids.null_count:
        raise ValueError("column 'row_id' has no ids")
    timelines = []
    for name, line, stored in kind.timelines:
        times = arrays[positions[stored]]
        if times.null_count or times.type not in (pa.int64(), line.arrow_type):
            raise ValueError(f"column {stored!r} has no times")
        timelines.append(Timeline(name, line, times.view(line.arrow_type)))
    components = []
    for descriptor, datatype, column in kind.components:
        if column is None:
            values = pa.nulls(len(ids), datatype)
        else:
            values = arrays[positions[column]]
            if not _is_alike(values.type, portable_type(datatype)):
                raise ValueError(f"column {column!r} has type {values.type}, but the component has another type")
            values = from_portable(values, datatype)
            values.validate()
        components.append(Component(descriptor, values))
    return ChunkData(chunk_id, entity_path, ids, tuple(timelines), tuple(components))


def _is_alike(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether types have the same layout, whatever list items are called and whether values may be null."""
    if given.num_fields != wanted.num_fields or given.id != wanted.id:
        return False
    if not given.num_fields:
        return bool(given == wanted)
    if pa.types.is_fixed_size_list(given) and given.list_size != wanted.list_size:
        return False
    if pa.types.is_struct(given) and [f.name for f in given] != [f.name for f in wanted]:
        return False
    return all(_is_alike(given.field(i).type, wanted.field(i).type) for i in range(given.num_fields))
