"""``Hdf5Reader``, and its source of chunks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ...engine.chunk import (
    Chunk,
    ChunkData,
    Component,
    ComponentDescriptor,
    Timeline,
    encoding_codes,
    image_formats,
    join_parts,
    parse_entity_path,
    split_parts,
    time_order,
)
from ...engine.errors import ReadError, ReadWarning, SourceMissingError, UsageError
from ...engine.limits import SPLIT_BYTES, as_text
from ...engine.locations import Location, exists, located, reading_location
from ...engine.stream import Source, Split
from ..parquet import CHUNK_BYTES, IndexColumn, one_each, row_numbers, timeline
from ..recording_file import FrameReader
from .file import Dataset, Hdf5DatasetInfo, Hdf5File, Tree

if TYPE_CHECKING:
    from ...engine.stream import LazyChunkStream

_CHUNK_ROWS: Final = 65_536
_PROPERTIES: Final = "__hdf5_properties"
_COLOURS: Final = {1: "mono", 3: "rgb", 4: "rgba"}
_DEPTHS: Final = {"uint16": "16UC1", "float32": "32FC1", "float64": "64FC1"}
_TYPES: Final = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png", b"RIFF": "image/webp"}
"""Media types by the first bytes of a file."""
_UNFIT: Final = (
    "Images are datasets of shape (rows, height, width), with uint8, uint16 or floats; of shape (rows, height, width, "
    "1, 3 or 4), with uint8 or uint16; or of shape (rows, bytes), with a JPEG, PNG or WebP per row."
)

_FILE: Final = (("blob", "Blob"), ("media_type", "MediaType"))

Columns = list[tuple[ComponentDescriptor, pa.Array]]
_NOT_NUMBERS: Final = frozenset({"skip", "text", "fixed", "vlen", "struct", "bytes", "array", "bool"})


@dataclass(frozen=True)
class Hdf5Options:
    """The options of :meth:`Hdf5Reader.stream`."""

    root_group: str | None = None
    entity_path_prefix: str | None = None
    index_column: IndexColumn | None = None
    ignore_datasets: tuple[str, ...] = ()
    use_structs: bool = True
    images: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preset:
    """The options for a data set's files: the groups that are recordings, and the options of a stream."""

    recordings: str | None = None
    images: tuple[str, ...] = ()
    ignore_datasets: tuple[str, ...] = ()
    index_column: IndexColumn | None = None


PRESETS: Final[dict[str, Preset]] = {
    "aloha": Preset(images=("observations/images/*",), ignore_datasets=("compress_len",)),
    "robomimic": Preset("/data/demo_*", images=("obs/*_image", "obs/*_rgb", "next_obs/*_image", "next_obs/*_rgb")),
    "droid": Preset(index_column=IndexColumn.timestamp("observation/timestamp/control/step_start", input_unit="ms")),
}
"""ALOHA and ACT (``episode_0.hdf5``), robomimic and LIBERO (``demo.hdf5``), DROID (``trajectory.h5``)."""


class ImageLayout(NamedTuple):
    """The layout of a dataset of pictures: the pixels' encoding, or "" for files, and the width and height."""

    encoding: str = ""
    width: int = 0
    height: int = 0
    is_depth: bool = False

    @classmethod
    def of(cls, dataset: Dataset, path: str) -> ImageLayout:
        """Return the layout of a dataset of pictures. Raises ``UsageError`` if it does not hold pictures."""
        dtype, shape = dataset.dtype, dataset.shape
        if dtype == "uint8" and len(shape) == 2:
            return cls()
        if dtype in ("uint8", "uint16") and (len(shape) == 3 or (len(shape) == 4 and shape[3] in _COLOURS)):
            colours = _COLOURS[shape[3] if len(shape) == 4 else 1]
            if colours == "mono" and dtype == "uint16":
                return cls(_DEPTHS[dtype], shape[2], shape[1], is_depth=True)
            return cls(f"{colours}{8 * np.dtype(dtype).itemsize}", shape[2], shape[1])
        if dtype in _DEPTHS and (len(shape) == 3 or shape[3:] == (1,)):
            return cls(_DEPTHS[dtype], shape[2], shape[1], is_depth=True)
        raise UsageError(
            f"{dataset.path}: datasets of {dtype} with shape {list(shape)} are not images", path=path, hint=_UNFIT
        )

    def columns(self, values: pa.Array, dataset: Dataset, path: str, first_row: int) -> Columns:
        """Return the components of rows that start at ``first_row``. Raises ``ReadError``."""
        rows = len(values)
        if not self.encoding:
            blobs, types = _files(values, dataset, path, first_row)
            blob, media_type = (_descriptor("EncodedImage", *names) for names in _FILE)
            return [(blob, one_each(blobs, nullable=True)), (media_type, types)]
        flat = values.flatten()
        size = dataset.row_bytes
        pixels = pa.Array.from_buffers(
            pa.uint8(), rows * size, [None, flat.buffers()[1]], offset=flat.offset * dataset.item
        )
        ends = pa.array(np.arange(rows + 1, dtype=np.int64) * size, pa.int32())
        buffers = pa.ListArray.from_arrays(ends, pixels)
        widths, heights = (pa.repeat(pa.scalar(number, pa.uint32()), rows) for number in (self.width, self.height))
        formats = image_formats(widths, heights, encoding_codes(pa.repeat(self.encoding, rows)))
        archetype = "DepthImage" if self.is_depth else "Image"
        return [
            (_descriptor(archetype, "buffer", "ImageBuffer"), one_each(buffers, nullable=True)),
            (_descriptor(archetype, "format", "ImageFormat"), one_each(formats, nullable=True)),
        ]


def _descriptor(archetype: str, field: str, kind: str) -> ComponentDescriptor:
    return ComponentDescriptor(f"{archetype}:{field}", f"rerun.archetypes.{archetype}", f"rerun.components.{kind}")


def _files(values: pa.Array, dataset: Dataset, path: str, first_row: int) -> tuple[pa.Array, pa.Array]:
    """The files in rows as lists of bytes, without trailing zeros, and their media types."""
    rows = np.frombuffer(values.flatten().buffers()[1], np.uint8)[values.offset * dataset.row_bytes :]
    rows = rows[: len(values) * dataset.row_bytes].reshape(len(values), -1)
    sizes = dataset.shape[1] - np.argmax(rows[:, ::-1] != 0, axis=1)
    types: list[str] = []
    for number, row in enumerate(rows):
        head = row[:4].tobytes()
        kind = next((name for begin, name in _TYPES.items() if head.startswith(begin)), None)
        if kind is None:
            raise ReadError(
                f"{dataset.path}: row {first_row + number:,} is not JPEG, PNG or WebP: it begins with {head.hex(' ')}",
                path=path,
                hint="Leave the dataset out of `images`, to read its rows as numbers.",
            )
        types.append(kind)
    kept = np.arange(rows.shape[1]) < sizes[:, None]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(rows[kept])), one_each(pa.array(types), nullable=True)


class _Group(NamedTuple):
    """One entity: its datasets with rows, which become columns, and its datasets with a single value."""

    entity_path: str
    columns: tuple[Dataset, ...]
    static: tuple[Dataset, ...]
    picture: ImageLayout | None = None

    @property
    def chunk_rows(self) -> int:
        """The rows of a chunk, as in Rerun 0.41: as many as fit into 2 MiB of the widest column."""
        widest = max(max(d.row_bytes for d in self.columns), 1)
        return max(1, min(CHUNK_BYTES // widest, _CHUNK_ROWS))


class _Plan(NamedTuple):
    """The layout of the chunks of a file: attributes by entity, groups, and the number of their rows."""

    attributes: tuple[tuple[str, tuple[tuple[str, pa.Array], ...]], ...]
    groups: tuple[_Group, ...]
    times: Dataset | None
    rows: int
    versions: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Hdf5Split(Split):
    """Rows of a group in the plan or, if ``ends``, the group's values without rows. Without ``group``: attributes."""

    group: int | None
    start: int = 0
    stop: int = 0
    ends: bool = False


class Hdf5Source(Source[Hdf5Split]):
    """The chunks of one HDF5 file, or of a group of it.

    Guarantee: every row of every dataset comes once. Order: attributes; then the groups by path, each with its rows in
    chunks of about 2 MiB and then its values without rows. It is the same for every run over the same bytes.
    """

    def __init__(self, path: str, options: Hdf5Options | None = None) -> None:
        self.path = path
        self.options = options or Hdf5Options()
        self._plan: _Plan | None = None
        self._wanted: Callable[[str], bool] | None = None

    def __repr__(self) -> str:
        return f"Hdf5Source({self.path!r})"

    def describe(self) -> str:
        """``Hdf5Reader(episode.hdf5)``."""
        return f"Hdf5Reader({self.path})"

    def paths(self) -> Sequence[str]:
        """The file."""
        return [self.path]

    def narrowed(self, wanted: Callable[[str], bool]) -> Hdf5Source:
        """Return the source without unused entities, whose datasets are not read."""
        narrowed = Hdf5Source(self.path, self.options)
        narrowed._plan, narrowed._wanted = self._plan, wanted
        return narrowed

    @property
    def plan(self) -> _Plan:
        """The layout of the chunks. Raises ``ReadError``, and ``UsageError`` for options that do not fit the file."""
        if self._plan is None:
            with Hdf5File(self.path) as file:
                tree = file.tree()
                self._plan = _planned(tree, self.options, self.path)
                plan = self._plan
                used = [d for g in plan.groups for d in (*g.columns, *g.static)]
                file.check([*used, *([plan.times] if plan.times is not None else [])])
        return self._plan

    def entities(self) -> set[str]:
        """The entities of all groups and attributes."""
        return {entity for entity, _ in self.plan.attributes} | {group.entity_path for group in self.plan.groups}

    def splits(self) -> Sequence[Hdf5Split]:
        """Return splits for the attributes and for about 64 MiB of rows of each group. Raises ``ReadError``."""
        plan = self.plan
        name = os.path.basename(self.path)  # noqa: PTH119 (a URL too)
        splits = [Hdf5Split(name, 0, None)]
        for number, group in enumerate(plan.groups):
            if self._wanted is not None and not self._wanted(group.entity_path):
                continue
            size = sum(d.row_bytes for d in group.columns)
            step = group.chunk_rows if group.columns else 1
            step *= max(1, SPLIT_BYTES // max(step * size, 1))
            rows = plan.rows if group.columns else 0
            for start in range(0, rows, step):
                stop = min(start + step, rows)
                label = f"{name}, {group.entity_path} [{start:,}-{stop:,}]"
                splits.append(Hdf5Split(label, (stop - start) * size, number, start, stop))
            if group.static:
                splits.append(Hdf5Split(f"{name}, {group.entity_path}", 0, number, ends=True))
        return splits

    def read(self, split: Hdf5Split) -> Iterator[Chunk]:
        """The chunks of one split, in order. Raises ``ReadError``."""
        plan = self.plan
        if split.group is None:
            for entity, attributes in plan.attributes:
                if self._wanted is None or self._wanted(entity):
                    yield _static(entity, attributes)
            return
        group = plan.groups[split.group]
        with Hdf5File(self.path, plan.versions, split.stop) as file:
            for start in range(split.start, split.stop, group.chunk_rows if group.columns else 1):
                yield self._chunk(file, group, start, min(start + group.chunk_rows, split.stop))
            if split.ends:
                yield _static(group.entity_path, [(_leaf(d), file.array(d, 0, 1)) for d in group.static])

    def _chunk(self, file: Hdf5File, group: _Group, start: int, stop: int) -> Chunk:
        line, order = self._times(file, start, stop)
        if group.picture is not None:
            (dataset,) = group.columns
            columns = group.picture.columns(file.array(dataset, start, stop), dataset, self.path, start)
            if order is not None:
                columns = [(descriptor, values.take(pa.array(order))) for descriptor, values in columns]
            pictures = tuple(Component(descriptor, values) for descriptor, values in columns)
            return Chunk.from_data(ChunkData.fresh(group.entity_path, stop - start, (line,), pictures))
        arrays = [(_leaf(d), file.array(d, start, stop)) for d in group.columns]
        if order is not None:
            rows = pa.array(order)
            arrays = [(name, values.take(rows)) for name, values in arrays]
        if self.options.use_structs and len(arrays) > 1:
            arrays = [("data", pa.StructArray.from_arrays([a for _, a in arrays], [name for name, _ in arrays]))]
        components = tuple(Component(ComponentDescriptor(name), one_each(a, nullable=True)) for name, a in arrays)
        return Chunk.from_data(ChunkData.fresh(group.entity_path, stop - start, (line,), components))

    def _times(self, file: Hdf5File, start: int, stop: int) -> tuple[Timeline, Any]:
        index, column = self.plan.times, self.options.index_column
        if index is None or column is None:
            return row_numbers(start, stop - start), None
        named = replace(column, path=_leaf(index))
        values = file.array(index, start, stop)
        if values.type in (pa.int8(), pa.uint8(), pa.uint16()):
            values = values.cast(pa.int64())
        elif pa.types.is_float16(values.type):
            values = values.cast(pa.float32())
        line = timeline(values, named, path=self.path, first_row=start)
        order = time_order((line,))
        return (line if order is None else Timeline(line.name, line.kind, line.times.take(pa.array(order)))), order


def _static(entity: str, values: Iterable[tuple[str, pa.Array]]) -> Chunk:
    return Chunk.build(entity, {}, [(ComponentDescriptor(as_text(n)), one_each(v, nullable=True)) for n, v in values])


def _leaf(dataset: Dataset) -> str:
    return as_text(dataset.path.rpartition("/")[2])


def _path(text: str) -> str:
    return "/" + "/".join(part for part in text.split("/") if part)


def _is_below(path: str, group: str) -> bool:
    return group == "/" or path == group or path.startswith(group + "/")


def _planned(tree: Tree, options: Hdf5Options, path: str) -> _Plan:
    root = _root(tree, options, path)
    ignored = [_path(root + "/" + _path(name)) for name in options.ignore_datasets]
    _warn_of_unmatched(tree, options, ignored, path)

    def is_in(name: str) -> bool:
        return _is_below(name, root) and not any(_is_below(name, group) for group in ignored)

    for name, why in tree.foreign.items():
        if is_in(name):
            hint = (
                "Only other files in the folder of the input are read. Copy it there, or give "
                f"ignore_datasets=[{name!r}]."
            )
            raise UsageError(f"{name}: {why}", path=path, hint=hint)
    datasets = [d for d in tree.datasets if is_in(d.path) and not d.is_empty]
    _warn_of_rest(tree, [d for d in tree.datasets if is_in(d.path)], is_in, path)
    datasets = [d for d in datasets if d.type["kind"] != "skip"]
    index = _index(datasets, options, root, path)
    datasets = [d for d in datasets if d is not index and 0 not in d.shape[:2]]
    rows = _rows(datasets, index, path)
    prefix = split_parts(parse_entity_path(options.entity_path_prefix or "/"))
    below = len(root) if root != "/" else 0

    def entity(name: str, *extra: str) -> str:
        parts = [as_text(part) for part in name[below:].split("/") if part]
        return join_parts([*prefix, *extra, *parts])

    attributes = tuple(
        (entity(name, _PROPERTIES), values) for name, values in tree.attributes.items() if is_in(name) or name == root
    )
    groups = [_Group(entity(d.path), (d,), (), ImageLayout.of(d, path)) for d in _images(datasets, options, root, path)]
    shown = {group.columns[0].path for group in groups}
    datasets = [d for d in datasets if d.path not in shown]
    for group in dict.fromkeys(d.path.rpartition("/")[0] or "/" for d in datasets):
        own = [d for d in datasets if (d.path.rpartition("/")[0] or "/") == group]
        columns = tuple(d for d in own if d.shape)
        groups.append(_Group(entity(group), columns, tuple(d for d in own if not d.shape)))
    groups.sort(key=lambda g: split_parts(g.entity_path))
    return _Plan(tuple(sorted(attributes, key=lambda a: split_parts(a[0]))), tuple(groups), index, rows, tree.versions)


def _images(datasets: Sequence[Dataset], options: Hdf5Options, root: str, path: str) -> list[Dataset]:
    """The datasets with rows that the option names. A pattern that fits none gives a warning."""
    images: dict[str, Dataset] = {}
    for given in options.images:
        pattern = _path(root + "/" + _path(given))
        fits = {d.path: d for d in datasets if d.shape and d.path.count("/") == pattern.count("/")}
        fits = {name: d for name, d in fits.items() if fnmatchcase(name, pattern)}
        if not fits:
            _warn(path, f"images: {given!r} matches no dataset of the file")
        images |= fits
    return list(images.values())


def _root(tree: Tree, options: Hdf5Options, path: str) -> str:
    if options.root_group is None:
        return "/"
    root = _path(options.root_group)
    if root in tree.groups:
        return root
    if any(d.path == root for d in tree.datasets):
        raise UsageError(f'Root group "{options.root_group}" is a dataset, not a group', path=path)
    hint = f"Its groups: {', '.join(tree.groups[1:21])}." if len(tree.groups) > 1 else None
    raise UsageError(f'Root group "{options.root_group}" not found in the file', path=path, hint=hint)


def _index(datasets: Sequence[Dataset], options: Hdf5Options, root: str, path: str) -> Dataset | None:
    column = options.index_column
    if column is None:
        return None
    wanted = _path(root + "/" + _path(column.path))
    index = next((d for d in datasets if d.path == wanted), None)
    if index is None:
        raise UsageError(f'Index dataset "{column.path}" not found in the file', path=path)
    if len(index.shape) != 1:
        shape = list(index.shape)
        raise UsageError(f'Index dataset "{column.path}" must be 1-dimensional, but has shape {shape}', path=path)
    if index.type["kind"] in _NOT_NUMBERS:
        what = f"has non-numeric type {index.dtype}; a timeline requires a numeric dataset"
        raise UsageError(f'Index dataset "{column.path}" {what}', path=path)
    return index


def _rows(datasets: Sequence[Dataset], index: Dataset | None, path: str) -> int:
    """The number of rows, which all datasets share. Raises ``UsageError`` if they differ."""
    columns = [d for d in datasets if d.shape]
    lengths = [d.shape[0] for d in columns]
    rows = index.shape[0] if index is not None else (max(lengths, key=lengths.count) if lengths else 0)
    if index is None and lengths:
        rows = lengths[0]
    wrong = [f"{d.path} (shape {list(d.shape)})" for d in columns if d.shape[0] != rows]
    if wrong:
        line = "index column" if index is not None else "row_index timeline"
        raise UsageError(
            f"Datasets are not row-aligned to the {line} of length {rows}: {', '.join(wrong[:20])} (add them to "
            "`ignore_datasets` or pick a compatible `index_column`)",
            path=path,
            hint="If the file has several recordings, select one with root_group; recordings() returns all.",
        )
    return rows


def _warn(path: str, text: str) -> None:
    warnings.warn(f"{path}: {text}", ReadWarning, stacklevel=2)


def _warn_of_unmatched(tree: Tree, options: Hdf5Options, ignored: Sequence[str], path: str) -> None:
    names = {*tree.groups, *(d.path for d in tree.datasets), *tree.links, *tree.foreign}
    for given, name in zip(options.ignore_datasets, ignored, strict=True):
        if name not in names:
            _warn(path, f"ignore_datasets: {given!r} is not in the file")


def _warn_of_rest(tree: Tree, datasets: Sequence[Dataset], is_in: Callable[[str], bool], path: str) -> None:
    """Warn of what is left out or read differently."""
    for dataset in datasets:
        if dataset.is_empty or 0 in dataset.shape[:2]:
            _warn(path, f"the dataset {dataset.path} is empty, and is left out")
        elif dataset.type["kind"] == "skip":
            _warn(path, f"the dataset {dataset.path} has {dataset.type['why']}, and is left out")
        elif dataset.type.get("names"):
            members = ", ".join(f"{name}={number}" for name, number in list(dataset.type["names"].items())[:20])
            _warn(path, f"the dataset {dataset.path} is an enum; its numbers are read: {members}")
    for name, why in tree.links.items():
        if is_in(name):
            _warn(path, f"{name} is {why}, and is left out")
    for name, attributes in tree.skipped.items():
        if is_in(name):
            _warn(path, f"attributes of {name} are left out: {', '.join(attributes[:20])}")


@dataclass(frozen=True)
class Hdf5Demo:
    """One of several recordings of a file, in the group ``root_group``."""

    reader: Hdf5Reader
    root_group: str

    @property
    def recording_id(self) -> str:
        """The group's name."""
        return as_text(self.root_group.rpartition("/")[2])

    def stream(self, **options: Any) -> LazyChunkStream:
        """Return a lazy stream of the chunks; ``options`` are those of :meth:`Hdf5Reader.stream`."""
        return self.reader.stream(root_group=self.root_group, **options)


class Hdf5Reader(FrameReader):
    """Read chunks from an HDF5 file, with the extra ``hdf5``.

    A group is an entity, and its datasets are columns, with one row per index of their first dimension. Attributes are
    static data at ``/__hdf5_properties``. Links are followed. Referenced files are read only if they are in the folder
    of the input.

    Parameters
    ----------
    path
        The file, or the URL of one in an object store.

    Raises
    ------
    FileNotFoundError
        There is no such file (``SourceMissingError``).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = reading_location(path)
        if not exists(self._path):
            raise SourceMissingError(f"HDF5 file not found: {self._path}")

    @property
    def path(self) -> Location:
        """The path of the file, or the URL of the object."""
        return self._path

    def __repr__(self) -> str:
        return f"Hdf5Reader({self._path})"

    def _tree(self) -> Tree:
        with Hdf5File(str(located(self._path))) as file:
            return file.tree()

    def groups(self, path: str = "/") -> list[str]:
        """Return the groups below ``path``, without ``path`` itself. Raises ``KeyError`` if there is no such group."""
        tree = self._tree()
        group = self._checked(tree, path)
        return [name for name in tree.groups if name != group and _is_below(name, group)]

    def datasets(self, path: str = "/") -> list[Hdf5DatasetInfo]:
        """Return the datasets below ``path`` with their shapes and types. Raises ``KeyError``."""
        tree = self._tree()
        group = self._checked(tree, path)
        return [d.info for d in tree.datasets if _is_below(d.path, group)]

    def attributes(self, path: str = "/") -> dict[str, Any]:
        """Return the attributes of a group or a dataset.

        An attribute with several values is a list. Raises ``KeyError``.
        """
        tree = self._tree()
        values = tree.attributes.get(self._checked(tree, path), ())
        return {name: array[0].as_py() for name, array in values}

    def _checked(self, tree: Tree, path: str) -> str:
        name = _path(path)
        if name not in tree.groups and all(d.path != name for d in tree.datasets):
            raise KeyError(f'Object "{path}" not found in the file')
        return name

    def recordings(self, pattern: str = "/data/demo_*") -> list[Hdf5Demo]:
        """Return one recording per group whose path matches a pattern, such as the demos of robomimic and LIBERO.

        They are ordered by the numbers in their names.
        """
        wanted = _path(pattern)
        groups = [g for g in self._tree().groups if g.count("/") == wanted.count("/") and fnmatchcase(g, wanted)]
        return [Hdf5Demo(self, group) for group in sorted(groups, key=_numbered)]

    def source(self, options: Hdf5Options | None = None) -> Hdf5Source:
        """Return the file as a source for a pipeline."""
        return Hdf5Source(str(located(self._path)), options)

    def stream(
        self,
        *,
        root_group: str | None = None,
        entity_path_prefix: str | None = None,
        index_column: IndexColumn | Sequence[str] | None = None,
        ignore_datasets: Iterable[str] | None = None,
        use_structs: bool = True,
        images: Iterable[str] | None = None,
        preset: str | None = None,
    ) -> LazyChunkStream:
        """Return a lazy stream of the chunks. The layout of the file is checked immediately.

        Parameters
        ----------
        root_group
            The group to read; other paths are relative to it.
        entity_path_prefix
            Prefix of every entity path.
        index_column
            The :class:`IndexColumn` of a one-dimensional dataset, which becomes the timeline. Without it, the timeline
            ``row_index`` counts rows from 0.
        ignore_datasets
            Datasets and groups to leave out. A missing name gives a ``ReadWarning``.
        use_structs
            Whether several datasets of a group become one component ``data``, a struct. Otherwise each becomes a
            component.
        images
            Datasets of images, or patterns (``observations/images/*``). Each becomes a separate entity: ``Image`` or
            ``DepthImage`` with the shape of its rows, or ``EncodedImage`` for rows of padded JPEGs.
        preset
            The options for a known data set: ``aloha``, ``robomimic`` or ``droid``. Explicit options override them.

        Raises
        ------
        ValueError
            Datasets have different numbers of rows, or an option does not fit the file (``UsageError``).
        RuntimeError
            The file is damaged, or refers to files outside its folder (``ReadError``).
        """
        from ...engine.stream import LazyChunkStream

        named = preset_of(preset)
        options = Hdf5Options(
            root_group,
            entity_path_prefix,
            named.index_column if index_column is None else IndexColumn.of(index_column),
            named.ignore_datasets if ignore_datasets is None else tuple(ignore_datasets),
            use_structs,
            named.images if images is None else tuple(images),
        )
        source = self.source(options)
        _ = source.plan
        return LazyChunkStream.from_source(source)


def preset_of(name: str | None) -> Preset:
    """Return the options of a named data set, or else the defaults. Raises ``UsageError`` for an unknown name."""
    if name is None:
        return Preset()
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}", hint=f"There are: {', '.join(PRESETS)}.")
    return PRESETS[name]


def _numbered(path: str) -> tuple[str, int, str]:
    head = path.rstrip("0123456789")
    digits = path[len(head) :]
    return head, int(digits[:18] or 0), path
