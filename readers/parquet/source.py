"""Parquet files as a source of chunks: splits of row groups, and chunks from batches of rows."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path, PurePath
from typing import Final, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import (
    Chunk,
    ChunkData,
    Component,
    ComponentDescriptor,
    Origin,
    Schema,
    Timeline,
    columns_of_headers,
    time_order,
)
from ...engine.errors import ReadError, ReadWarning, SourceMissingError
from ...engine.limits import MIB, SPLIT_BYTES
from ...engine.locations import files_below, fixed_part
from ...engine.storage import ObjectUrl, bucket_of, find_objects, is_one_object, is_url
from ...engine.stream import Source, Split
from .file import ParquetFile, beyond_nanoseconds, check_cells, is_int96, read_columns
from .layout import ChunkOutput, ColumnLayout, compile_layout, one_each, row_numbers, timeline
from .options import ParquetOptions

_BATCH_ROWS = 1024
"""A change at a multiple of this number of rows is reported as one between batches, which have this size in Rerun."""


def _is_comparable(datatype: pa.DataType) -> bool:
    """Return whether values of this type can be compared."""
    if pa.types.is_dictionary(datatype):
        return _is_comparable(datatype.value_type)
    return bool(datatype.num_fields == 0)


def check_static(name: str, values: pa.Array, first: pa.Array, *, first_row: int, path: str) -> None:
    """Compare rows of a static column with ``first``, the value of the very first row.

    Raises ``ReadError`` if a value differs; a null differs even from a null. ``first_row`` is the row number of the
    first value.
    """
    same: npt.NDArray[np.bool_]
    if pa.types.is_null(values.type):
        same = np.zeros(len(values), bool)
    elif _is_comparable(values.type):
        same = _same(_plain(values), _plain(first)[0])
    else:
        return
    if first_row == 0 and len(same):
        same[0] = True
    different = np.flatnonzero(~same)
    if not len(different):
        return
    row = first_row + int(different[0])
    hint = f"Leave {name!r} out of static_columns: row {row:,} differs from the first."
    if row % _BATCH_ROWS or values[int(different[0])].as_py() is None:
        raise ReadError(f"Parquet error: Static column '{name}' contains non-uniform values", path=path, hint=hint)
    old, new = _text(first[0]), _text(values[int(different[0])])
    raise ReadError(
        f"Parquet error: Static column '{name}' changed between batches: '{old}' → '{new}'",
        path=path,
        hint=hint,
    )


def warn_of_incomparable(name: str, datatype: pa.DataType) -> None:
    """Warn that only the first row of this column is read."""
    if not _is_comparable(datatype):
        warnings.warn(
            f"Cannot verify uniformity for column type {datatype}, assuming uniform (column {name!r})",
            ReadWarning,
            stacklevel=2,
        )


def _same(values: pa.Array, first: pa.Scalar) -> npt.NDArray[np.bool_]:
    if not first.is_valid:
        return np.zeros(len(values), bool)
    same = pc.fill_null(pc.equal(values, first), False)
    if pa.types.is_floating(values.type) and first.as_py() != first.as_py():
        same = pc.fill_null(pc.is_nan(values), False)
    return np.array(same.to_numpy(zero_copy_only=False))


def _plain(values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


def _text(value: pa.Scalar) -> str:
    if pa.types.is_boolean(value.type):
        return str(value.as_py()).lower()
    try:
        return str(value.as_py())
    except (ValueError, OverflowError):
        return str(value)


CHUNK_BYTES: Final = 2 * MIB
"""The target size of a chunk's values; a single larger row makes a larger chunk."""

_PAIR: Final = pa.struct([pa.field("first", pa.string(), False), pa.field("second", pa.string(), False)])
_METADATA: Final = ComponentDescriptor("file_metadata", "ParquetMetadata", "rerun.components.KeyValuePairs")
_NAMES: Final = ComponentDescriptor("SeriesLines:names", "rerun.archetypes.SeriesLines", "rerun.components.Name")


def batch_chunks(
    layout: ColumnLayout,
    outputs: Sequence[ChunkOutput],
    arrays: Mapping[int, pa.Array],
    first_row: int,
    length: int,
    *,
    path: str,
) -> Iterator[Chunk]:
    """Yield the chunks of a batch; its columns are addressed by their positions in the schema.

    One chunk for each output, or several if one would be too large. Rows are sorted stably by all timelines, taken in
    the order of their names.
    """
    if not outputs:
        return
    timelines = _timelines(layout, arrays, first_row, length, path)
    order = time_order(timelines)
    if order is not None:
        rows = pa.array(order)
        arrays = {position: values.take(rows) for position, values in arrays.items()}
        timelines = tuple(Timeline(t.name, t.kind, t.times.take(rows)) for t in timelines)
    for output in outputs:
        yield from _pieces(_whole(output, timelines, arrays, length))


def empty_chunks(layout: ColumnLayout, outputs: Sequence[ChunkOutput], *, path: str) -> list[Chunk]:
    """Return the chunks of an empty batch, which have the same columns as every batch."""
    positions = {i for i, _ in layout.timelines}.union(*(output.columns for output in outputs))
    arrays = {position: pa.array([], layout.schema.field(position).type) for position in positions}
    timelines = _timelines(layout, arrays, 0, 0, path)
    return [Chunk.from_data(_whole(output, timelines, arrays, 0)) for output in outputs]


def _whole(
    output: ChunkOutput, timelines: tuple[Timeline, ...], arrays: Mapping[int, pa.Array], length: int
) -> ChunkData:
    components = (
        Component(descriptor, one_each(part.evaluate(arrays, length), nullable=part.nullable))
        for descriptor, part in output.components
    )
    ordered = tuple(sorted(components, key=lambda c: c.descriptor.sort_key))
    return ChunkData.fresh(output.entity_path, length, timelines, ordered)


def _timelines(
    layout: ColumnLayout, arrays: Mapping[int, pa.Array], first_row: int, length: int, path: str
) -> tuple[Timeline, ...]:
    timelines = [timeline(arrays[i], column, path=path, first_row=first_row) for i, column in layout.timelines]
    return tuple(sorted(timelines, key=lambda t: t.name.encode())) or (row_numbers(first_row, length),)


def properties_chunk(file: ParquetFile) -> Iterator[Chunk]:
    """The file's key/value pairs as static data, if it has any."""
    pairs = file.footer.key_values
    if pairs:
        values = pa.array([[{"first": first, "second": second} for first, second in pairs]], _list_of(_PAIR))
        yield Chunk.build("/__properties", {}, [(_METADATA, one_each(values, nullable=True))])


def static_chunk(entity_path: str, first: Mapping[str, pa.Array], nullable: Mapping[str, bool]) -> Chunk:
    """A row of the static columns, as components with the columns' names."""
    columns = [(ComponentDescriptor(name), one_each(values, nullable=nullable[name])) for name, values in first.items()]
    return Chunk.build(entity_path, {}, columns)


def series_chunk(entity_path: str, names: Sequence[str]) -> Chunk:
    """Return the names of an entity's series as a static chunk."""
    return Chunk.build(entity_path, {}, [(_NAMES, pa.array([list(names)], _list_of(pa.string())))])


def _pieces(whole: ChunkData) -> Iterator[Chunk]:
    length = whole.num_rows
    size = sum(c.values.nbytes for c in whole.components)
    count = min(length, max(1, round(size / CHUNK_BYTES)))
    if count == 1:
        yield Chunk.from_data(whole)
        return
    for start, stop in pairwise(length * i // count for i in range(count + 1)):
        piece = whole.slice(start, stop - start)
        yield Chunk.from_data(ChunkData.fresh(whole.entity_path, stop - start, piece.timelines, piece.components))


def _list_of(datatype: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", datatype, nullable=False))


SUFFIXES: Final = (".parquet", ".parq", ".pq")
"""The suffixes of files that are read from a folder."""

_HIDDEN: Final = (".", "_")
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


class DataFile(NamedTuple):
    """One file of a dataset, and the values for all its rows from its folders' names (``key=value``).

    ``version`` is the version of an object in a store, once it is known.
    """

    path: str
    partitions: tuple[tuple[str, str | None], ...] = ()
    version: str | None = None

    @property
    def name(self) -> str:
        """Its name, for people."""
        return PurePath(self.path).name


def find_files(path: str) -> list[DataFile]:
    """Return the files of ``path``, sorted by their paths; names that begin with ``.`` or ``_`` are skipped.

    Raises ``SourceMissingError`` if there is no file.
    """
    if is_url(path):
        return _find_objects(ObjectUrl.of(path))
    if os.path.isdir(path):  # noqa: PTH112 (as text, which a pattern is too)
        root = Path(path)
        files = list(_below(root))
    elif not os.path.lexists(path) and glob.has_magic(path):
        root = fixed_part(path)
        matching = sorted(map(Path, glob.glob(path, recursive=True)))  # noqa: PTH207 (takes absolute patterns too)
        files = list(dict.fromkeys(file for p in matching for file in (_below(p) if p.is_dir() else [p] * _is_data(p))))
    else:
        return [DataFile(path)]
    if not files:
        raise SourceMissingError(
            "there is no Parquet file here", path=path, hint=f"Folders are searched for {', '.join(SUFFIXES)} files."
        )
    return [DataFile(str(p), _partitions(p.relative_to(root).parts[:-1])) for p in files]


def exists(path: str) -> bool:
    """Return whether ``path`` is a file, a folder, or a pattern with a match, also in a store."""
    if is_url(path):
        url = ObjectUrl.of(path)
        return is_one_object(url) or url.is_pattern or any(True for _ in bucket_of(url).list(url.key))
    return os.path.exists(path) or (glob.has_magic(path) and bool(glob.glob(path, recursive=True)))  # noqa: PTH110, PTH207


def partition_schema(files: Sequence[DataFile]) -> pa.Schema:
    """The columns that folder names add: ``int64`` if every value is a number, else ``string``."""
    values: dict[str, list[str | None]] = {}
    for file in files:
        for key, value in file.partitions:
            values.setdefault(key, []).append(value)
    return pa.schema([(key, pa.int64() if _are_numbers(texts) else pa.string()) for key, texts in values.items()])


def partition_values(file: DataFile, field: pa.Field, length: int) -> pa.Array:
    """The values of a partition column in ``length`` rows of a file."""
    value = dict(file.partitions).get(field.name)
    if value is None:
        return pa.nulls(length, field.type)
    return pa.repeat(pa.scalar(int(value) if pa.types.is_integer(field.type) else value, field.type), length)


def _are_numbers(values: Sequence[str | None]) -> bool:
    texts = [v for v in values if v is not None]
    return bool(texts) and all(t.isascii() and t.removeprefix("-").isdigit() and len(t) < 19 for t in texts)


def _partitions(folders: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Keys and values of folder names.

    >>> _partitions(["site=north%20gate", "raw", "day=__HIVE_DEFAULT_PARTITION__"])
    (('site', 'north gate'), ('day', None))
    """
    pairs = (folder.partition("=") for folder in folders if "=" in folder)
    return tuple((unquote(key), None if value == _NO_VALUE else unquote(value)) for key, _, value in pairs if key)


def _find_objects(url: ObjectUrl) -> list[DataFile]:
    if is_one_object(url):
        return [DataFile(str(url))]
    objects = find_objects(url, SUFFIXES, hidden=_HIDDEN)
    return [DataFile(str(f.url), _partitions(f.below.parts[:-1])) for f in objects]


def _below(folder: Path) -> Iterator[Path]:
    return filter(Path.is_file, files_below(folder, SUFFIXES, hidden=_HIDDEN))


def _is_data(path: Path) -> bool:
    return not path.name.startswith(_HIDDEN) and path.name.lower().endswith(SUFFIXES) and path.is_file()


@dataclass(frozen=True, slots=True)
class ParquetSplit(Split):
    """Row groups ``start`` to ``stop`` of a file, limited to the ``outputs`` of its layout.

    ``file`` is the number of the file, and ``first_row`` the number of the first row, counted over all files. With
    ``begins``, the split starts with the file's properties; with ``ends``, it ends with all files' static chunks.
    """

    file: int
    start: int
    stop: int
    first_row: int
    outputs: tuple[int, ...]
    begins: bool
    ends: bool = False


def _value_bytes(file: ParquetFile, row_group: int, columns: Iterable[int]) -> int:
    """The approximate bytes in memory of columns in one row group; only stored columns count."""
    stored = file.footer.row_groups[row_group].columns
    return sum(stored[leaf].value_bytes for leaf in file.leaves(c for c in columns if c < len(file.schema)))


def _plan_file(
    file: ParquetFile,
    number: int,
    name: str,
    first_row: int,
    outputs: Sequence[ChunkOutput],
    wanted: Sequence[int],
    always: frozenset[int],
) -> list[ParquetSplit]:
    """Divide a file into runs of row groups of about ``SPLIT_BYTES``; a larger row group is also divided by outputs.

    ``wanted`` are the numbers of the outputs to make, ``always`` the positions of the columns that are read for every
    output. The splits depend only on the file and ``wanted``.
    """
    counts = [group.rows for group in file.footer.row_groups]
    firsts = list(accumulate(counts, initial=first_row))
    columns = frozenset(always).union(*(outputs[i].columns for i in wanted))
    pieces: list[tuple[int, int, tuple[int, ...], int]] = []
    if columns or wanted:
        sizes = [_value_bytes(file, i, columns) for i in range(len(counts))]
        for start, stop in _runs(sizes):
            size = sum(sizes[start:stop])
            is_large = stop - start == 1 and size > SPLIT_BYTES and wanted
            parts = _parts(file, start, outputs, wanted) if is_large else [tuple(wanted)]
            pieces += [(start, stop, part, size // len(parts)) for part in parts]
    if not pieces:
        return [ParquetSplit(name, 0, number, 0, 0, first_row, (), begins=True)]
    many = len(pieces) > 1
    return [
        ParquetSplit(
            f"{name} [{i + 1}/{len(pieces)}]" if many else name, size, number, start, stop, firsts[start], part, i == 0
        )
        for i, (start, stop, part, size) in enumerate(pieces)
    ]


def _runs(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of items with about ``SPLIT_BYTES`` together."""
    runs: list[tuple[int, int]] = []
    start = filled = 0
    for i, size in enumerate(sizes):
        if i > start and filled + size > SPLIT_BYTES:
            runs.append((start, i))
            start, filled = i, 0
        filled += size
    return [*runs, (start, len(sizes))] if len(sizes) > start else runs


def _parts(
    file: ParquetFile, row_group: int, outputs: Sequence[ChunkOutput], wanted: Sequence[int]
) -> list[tuple[int, ...]]:
    """Return the outputs of one row group in runs of about ``SPLIT_BYTES``."""
    sizes = [_value_bytes(file, row_group, outputs[i].columns) for i in wanted]
    return [tuple(wanted[start:stop]) for start, stop in _runs(sizes)]


_PROPERTIES = "/__properties"
"""The entity of a file's key/value pairs."""


class _Shared(NamedTuple):
    """The facts that every split needs: the files, each file's layout, and each static column's first value.

    ``coarse`` names the INT96 columns that are read in microseconds.
    """

    files: tuple[DataFile, ...]
    layouts: tuple[ColumnLayout, ...]
    first: Mapping[str, pa.Array]
    coarse: frozenset[str]


class ParquetSource(Source[ParquetSplit]):
    """The chunks of a Parquet file, or of a folder or pattern of files.

    Guarantee: every row of every selected column is read exactly once. Order: properties; then file by file, in splits
    (runs of row groups of about 64 MiB), batches of rows, and groups of columns; static chunks last. It is the same in
    every run over the same bytes.
    """

    def __init__(self, path: str, options: ParquetOptions | None = None) -> None:
        self.path = path
        self.options = options or ParquetOptions()
        self._shared: _Shared | None = None
        self._wanted: Callable[[str], bool] | None = None

    def __repr__(self) -> str:
        return f"ParquetSource({self.path!r})"

    def describe(self) -> str:
        """One line for the plan, such as ``ParquetReader(drive.parquet)``."""
        return f"ParquetReader({self.path})"

    def paths(self) -> Sequence[str]:
        """The files that are read."""
        return [file.path for file in find_files(self.path)]

    def narrowed(self, wanted: Callable[[str], bool]) -> ParquetSource:
        """Return the source without unused entities, whose columns are not read."""
        narrowed = ParquetSource(self.path, self.options)
        narrowed._wanted = wanted
        return narrowed

    def splits(self) -> Sequence[ParquetSplit]:
        """Divide the files into runs of row groups.

        This reads the footers of all files, the first row of static columns, and INT96 columns, to find a unit for
        their times.
        """
        files = find_files(self.path)
        splits, beyond = self._plan(files, frozenset())
        if beyond:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the first plan gave the same warnings
                splits, _ = self._plan(files, beyond)
        return splits

    def _plan(self, files: list[DataFile], coarse: frozenset[str]) -> tuple[list[ParquetSplit], frozenset[str]]:
        """Return the splits with INT96 columns ``coarse`` in microseconds, and other columns that need microseconds."""
        extra = partition_schema(files)
        layouts_by_schema: dict[pa.Schema, ColumnLayout] = {}
        layouts: list[ColumnLayout] = []
        splits: list[ParquetSplit] = []
        first: dict[str, pa.Array] = {}
        beyond: frozenset[str] = frozenset()
        rows = 0
        for number, data in enumerate(files):
            with ParquetFile(data.path, data.version, coarse) as file:
                files[number] = data._replace(version=file.version)
                schema = _full_schema(file.schema, extra)
                if schema not in layouts_by_schema:
                    beyond |= _check_types(schema, layouts_by_schema, coarse, data.path)
                    layouts_by_schema[schema] = compile_layout(schema, self.options, path=data.path)
                layout = layouts_by_schema[schema]
                layouts.append(layout)
                static = self._static(layout)
                counts = [group.rows for group in file.footer.row_groups]
                check_cells(file, sum(counts), file.leaves(range(len(file.schema))), len(layout.outputs))
                if sum(counts):
                    _read_first(file, data, layout, static, counts, first)
                wanted = [i for i, output in enumerate(layout.outputs) if self._wants(output.entity_path)]
                splits += _plan_file(file, number, data.name, rows, layout.outputs, wanted, frozenset(static))
                rows += sum(counts)
                if file.wide and (names := file.wide & self._columns_of(layout, wanted)):
                    beyond |= beyond_nanoseconds(file, names)
        if len(files) > 1:
            splits = [_named(split, files[split.file], self.path) for split in splits]
        splits[-1] = replace(splits[-1], ends=rows > 0)
        self._shared = _Shared(tuple(files), tuple(layouts), first, coarse)
        return splits, beyond

    def _columns_of(self, layout: ColumnLayout, wanted: Sequence[int]) -> set[str]:
        """The names of the columns to read for some outputs."""
        index = (position for position, _ in layout.timelines if wanted)
        positions = {*index, *self._static(layout)}.union(*(layout.outputs[i].columns for i in wanted))
        return {layout.schema.field(position).name for position in positions}

    def columns(self) -> tuple[Schema, frozenset[Origin]] | None:
        """Return the columns of chunks with times, from the footers; all have one value per row. None without rows."""
        splits = self.splits()
        assert self._shared is not None
        if not splits[-1].ends:
            return None
        headers = []
        for layout in {id(layout): layout for layout in self._shared.layouts}.values():
            outputs = [output for output in layout.outputs if self._wants(output.entity_path)]
            headers += [chunk.header for chunk in empty_chunks(layout, outputs, path=self.path)]
        schema = columns_of_headers(headers)
        return schema, frozenset((c.entity_path, c.component) for c in schema.component_columns())

    def entities(self) -> set[str]:
        """Return the entities of all columns, from the footers."""
        if self._shared is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # planning the splits gives the same warnings
                self.splits()
        assert self._shared is not None
        outputs = {output.entity_path for layout in self._shared.layouts for output in layout.outputs}
        series = {names.entity_path for layout in self._shared.layouts for names in layout.series}
        return outputs | series | {_PROPERTIES} | {layout.root for layout in self._shared.layouts if layout.static}

    def read(self, split: ParquetSplit) -> Iterator[Chunk]:
        """The chunks of one split, in order."""
        if self._shared is None:
            self.splits()
        assert self._shared is not None
        data, layout = self._shared.files[split.file], self._shared.layouts[split.file]
        with ParquetFile(data.path, data.version, self._shared.coarse) as file:
            if _full_schema(file.schema, pa.schema(list(layout.schema)[len(file.schema) :])) != layout.schema:
                raise ReadError(
                    "Parquet error: the file changed while it was read", path=data.path, hint="Read it again."
                )
            if split.begins and self._wants(_PROPERTIES):
                yield from properties_chunk(file)
            yield from self._rows(file, data, layout, split)
        if split.ends:
            yield from self._endings()

    def _rows(self, file: ParquetFile, data: DataFile, layout: ColumnLayout, split: ParquetSplit) -> Iterator[Chunk]:
        assert self._shared is not None
        outputs = [layout.outputs[i] for i in split.outputs]
        leads = not split.outputs or split.outputs[0] == self._first_output(layout)
        static = self._static(layout) if leads else ()
        index = [position for position, _ in layout.timelines] if outputs else []
        columns = frozenset([*index, *static]).union(*(output.columns for output in outputs))
        groups = range(split.start, split.stop)
        if not len(groups) or not (columns or outputs):
            return
        row = split.first_row
        for length, arrays in _batches(file, data, layout.schema, groups, columns):
            for position in static:
                name = layout.schema.field(position).name
                first = self._shared.first[name]
                check_static(name, arrays[position], first, first_row=row, path=data.path)
            yield from batch_chunks(layout, outputs, arrays, row, length, path=data.path)
            row += length
        expected = split.first_row + sum(group.rows for group in file.footer.row_groups[split.start : split.stop])
        if row != expected:
            raise ReadError(
                f"Parquet error: there are {row - split.first_row:,} rows, but the footer counts "
                f"{expected - split.first_row:,}",
                path=data.path,
                offset=file.footer_at,
                hint="The file is damaged; copy it again.",
            )

    def _endings(self) -> Iterator[Chunk]:
        """Yield static columns, then names of series, each once for all files."""
        assert self._shared is not None
        layouts = list({id(layout): layout for layout in self._shared.layouts}.values())
        if self._shared.first and self._wants(layouts[0].root):
            nullable = {
                field.name: field.nullable for layout in layouts for field in map(layout.schema.field, layout.static)
            }
            yield static_chunk(layouts[0].root, self._shared.first, nullable)
        for series in dict.fromkeys(s for layout in layouts for s in layout.series):
            if self._wants(series.entity_path):
                yield series_chunk(*series)

    def _static(self, layout: ColumnLayout) -> tuple[int, ...]:
        return layout.static if self._wants(layout.root) else ()

    def _first_output(self, layout: ColumnLayout) -> int:
        return next((i for i, output in enumerate(layout.outputs) if self._wants(output.entity_path)), -1)

    def _wants(self, entity_path: str) -> bool:
        return self._wanted is None or self._wanted(entity_path)


def _full_schema(schema: pa.Schema, extra: pa.Schema) -> pa.Schema:
    """Return a file's columns, then the folder columns whose names it lacks."""
    return pa.schema([*schema, *(field for field in extra if field.name not in schema.names)])


def _check_types(
    schema: pa.Schema, layouts_by_schema: Mapping[pa.Schema, ColumnLayout], coarse: Collection[str], path: str
) -> set[str]:
    """Refuse a file if a column has another type than the column of the same name in earlier files.

    Return the names of INT96 columns that only differ in the unit; ``coarse`` columns are in microseconds everywhere.
    """
    units: set[str] = set()
    for other, field in ((other, field) for other in layouts_by_schema for field in schema):
        positions = other.get_all_field_indices(field.name)
        if not positions or any(other.field(i).type == field.type for i in positions):
            continue
        if field.name not in coarse and is_int96(field) and is_int96(other.field(positions[0])):
            units.add(field.name)
            continue
        raise ReadError(
            f"Parquet error: column {field.name!r} has type {field.type} in this file, but type "
            f"{other.field(positions[0]).type} in others of the same dataset",
            path=path,
            hint="Write the files with one schema, or read them one by one.",
        )
    for name in sorted(units):
        warnings.warn(
            f"{path}: column {name!r} (INT96) has another unit than in earlier files; it is read in microseconds",
            ReadWarning,
            stacklevel=2,
        )
    return units


def _read_first(
    file: ParquetFile,
    data: DataFile,
    layout: ColumnLayout,
    static: Sequence[int],
    counts: Sequence[int],
    first: dict[str, pa.Array],
) -> None:
    """Store the first value of each static column that has none yet."""
    wanted = [position for position in static if layout.schema.field(position).name not in first]
    for position in wanted:
        warn_of_incomparable(layout.schema.field(position).name, layout.schema.field(position).type)
    group = next(i for i, count in enumerate(counts) if count)
    if wanted:
        _, arrays = next(_batches(file, data, layout.schema, range(group, group + 1), wanted, rows=1))
        for position in wanted:
            first[layout.schema.field(position).name] = pa.concat_arrays([arrays[position][:1]])


def _batches(
    file: ParquetFile,
    data: DataFile,
    schema: pa.Schema,
    groups: Sequence[int],
    columns: Sequence[int] | frozenset[int],
    *,
    rows: int | None = None,
) -> Iterator[tuple[int, dict[int, pa.Array]]]:
    """Yield the length and the columns of each batch of rows, including the columns from folder names."""
    stored = [c for c in columns if c < len(file.schema)]
    added = [c for c in columns if c >= len(file.schema)]
    for length, arrays in read_columns(file, groups, stored, rows=rows):
        for position in added:
            arrays[position] = partition_values(data, schema.field(position), length)
        yield length, arrays


def _named(split: ParquetSplit, data: DataFile, root: str) -> ParquetSplit:
    """Return the split with its file's path in the dataset's folder as label."""
    below = data.path.removeprefix(root.rstrip("/") + "/")
    return replace(split, label=below + split.label.removeprefix(data.name))
