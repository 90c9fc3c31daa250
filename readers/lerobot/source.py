"""One episode of a LeRobot dataset as a source of chunks, and the dataset's metadata."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...engine.chunk import Chunk, ComponentDescriptor, parse_entity_path
from ...engine.errors import MissingExtraError, ReadError, ReadWarning, UnsupportedError
from ...engine.limits import (
    MAX_CHUNK_UNCOMPRESSED,
    MAX_ELEMENTS,
    MAX_EPISODES,
    MAX_NESTING,
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_FIELDS,
    check_limit,
)
from ...engine.stream import Source, Split
from ...engine.units import counted
from ...engine.video import BFrames
from ..parquet import CHUNK_BYTES, ParquetFile, one_each, open_file, read_columns, series_chunk
from .files import HINT, MOST_SECONDS, file_in, inside, number_in, read_json, read_json_lines, seconds_in, texts_in
from .videos import EpisodeFrames, Video

INFO: Final = "meta/info.json"
"""The file that describes a dataset."""


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Return True if a folder is a LeRobot dataset, by its ``meta/info.json``."""
    return (Path(path) / INFO).is_file()


_PLACEHOLDER: Final = re.compile(r"\{(\w+)(?::0?(\d{1,2})d)?\}")
_MOST_CHUNKS: Final = 1_000_000
_LONGEST_NAME: Final = 255
_LEAST_FPS: Final = 1e-5
"""About one frame a day; a rate is a fraction of integers up to a million."""
_OF_EPISODES: Final = ("episode_index", "length", "tasks")


class Feature(NamedTuple):
    """One feature of the frames: its name, the kind and shape of its values, and the names of its numbers."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EpisodeInfo:
    """One episode: its number, frames and tasks, and the paths of its files in the dataset."""

    index: int
    length: int
    tasks: tuple[str, ...]
    data: str
    videos: tuple[Video, ...]


class LeRobotInfo(NamedTuple):
    """The whole of ``meta``. ``tasks`` maps numbers to texts; ``fps`` is in frames per second."""

    version: str
    robot_type: str | None
    fps: float
    features: tuple[Feature, ...]
    tasks: Mapping[int, str]
    episodes: tuple[EpisodeInfo, ...]


def read_metadata(root: Path) -> LeRobotInfo:
    """Read ``meta``. Raises ``ReadError``, and ``UnsupportedError`` for an unknown version."""
    path = root / INFO
    info = read_json(root, path)
    version = info.get("codebase_version", "")
    fps = info.get("fps")
    if not isinstance(fps, int | float) or isinstance(fps, bool) or not _LEAST_FPS <= fps < 1e9:
        message = f"'fps' is {shortened(fps)}, which is not a number of frames per second"
        raise ReadError(message, path=str(path), hint=HINT)
    given = _mapping(info, "features", path)
    check_limit(len(given), MAX_SCHEMA_FIELDS, path=str(path), offset=None, what="the number of features")
    features = tuple(_feature(name, facts, path) for name, facts in given.items())
    if isinstance(version, str) and version.startswith("v2."):
        tasks, episodes = _v2_tasks(root), _v2_episodes(root, info, features)
    elif isinstance(version, str) and version.startswith("v3."):
        tasks, episodes = _v3_tasks(root), _v3_episodes(root, info, features)
    else:
        raise UnsupportedError(
            f"LeRobot datasets of version {shortened(version)} are not supported",
            path=str(path),
            hint="Versions 2 and 3 are supported; lerobot converts older ones.",
        )
    (robot, *_) = texts_in(info, "robot_type", path) or (None,)
    return LeRobotInfo(
        version, robot or None, float(fps), features, tasks, _checked(episodes, features, float(fps), path)
    )


def _v2_episodes(root: Path, info: Mapping[str, Any], features: tuple[Feature, ...]) -> Iterator[EpisodeInfo]:
    path, listed = root / INFO, root / "meta/episodes.jsonl"
    size = number_in(info, "chunks_size", path) if "chunks_size" in info else 1000
    check_limit(size - 1, _MOST_CHUNKS, path=str(path), offset=None, what="'chunks_size'")
    data, video = str(info.get("data_path", "")), str(info.get("video_path") or "")
    for line in read_json_lines(root, listed):
        index = number_in(line, "episode_index", listed)
        place = {"episode_index": index, "episode_chunk": index // size}
        videos = tuple(
            Video(f.name, _filled(video.replace("{video_key}", f.name), place, path), 0.0, None)
            for f in features
            if f.dtype == "video" and video
        )
        length = number_in(line, "length", listed)
        yield EpisodeInfo(index, length, texts_in(line, "tasks", listed), _filled(data, place, path), videos)


def _v3_episodes(root: Path, info: Mapping[str, Any], features: tuple[Feature, ...]) -> Iterator[EpisodeInfo]:
    path = root / INFO
    data, video = str(info.get("data_path", "")), str(info.get("video_path") or "")
    for file in sorted(inside(root, root / "meta/episodes").glob("**/*.parquet")):
        for row in _rows(root, file, lambda name: name in _OF_EPISODES or name.startswith(("data/", "videos/"))):
            place = {k: number_in(row, f"data/{k}", file) for k in ("chunk_index", "file_index")}
            videos = tuple(_v3_video(f.name, video, row, file) for f in features if f.dtype == "video" and video)
            yield EpisodeInfo(
                number_in(row, "episode_index", file),
                number_in(row, "length", file),
                texts_in(row, "tasks", file),
                _filled(data, place, path),
                tuple(v for v in videos if v is not None),
            )


def _checked(
    episodes: Iterator[EpisodeInfo], features: tuple[Feature, ...], fps: float, path: Path
) -> tuple[EpisodeInfo, ...]:
    """Return the episodes by number. Raises ``ReadError`` if one occurs twice or is too long, or there are too many."""
    most = min(MAX_EPISODES, MAX_ELEMENTS // (1 + sum(f.dtype == "video" for f in features)))
    by_number: dict[int, EpisodeInfo] = {}
    for episode in episodes:
        if episode.index in by_number:
            raise ReadError(f"'meta' has episode {episode.index} twice", path=str(path), hint=HINT)
        if episode.length / fps >= MOST_SECONDS:
            raise ReadError(
                f"the length of episode {episode.index} is {episode.length:,} frames, at {fps:g} frames per second",
                path=str(path),
                hint=HINT,
            )
        by_number[episode.index] = episode
        check_limit(len(by_number), most, path=str(path), offset=None, what="the number of episodes")
    return tuple(episode for _, episode in sorted(by_number.items()))


def _v3_video(feature: str, template: str, row: Mapping[str, Any], file: Path) -> Video | None:
    key = f"videos/{feature}/"
    if row.get(f"{key}file_index") is None:
        return None
    place = {k: number_in(row, key + k, file) for k in ("chunk_index", "file_index")}
    start = seconds_in(row, f"{key}from_timestamp", file) or 0.0
    end = seconds_in(row, f"{key}to_timestamp", file)
    if end is not None and end < start:
        raise ReadError(
            f"the video of {shortened(feature)} ends at {end:g} s, before it begins at {start:g} s",
            path=str(file),
            hint=HINT,
        )
    return Video(feature, _filled(template.replace("{video_key}", feature), place, file), start, end)


def _v3_tasks(root: Path) -> dict[int, str]:
    path = root / "meta/tasks.parquet"
    if not path.exists():
        return {}
    tasks = {}
    for row in _rows(root, path, lambda name: name in ("task", "task_index", "__index_level_0__")):
        name = "task" if "task" in row else "__index_level_0__"
        tasks[number_in(row, "task_index", path)] = "; ".join(texts_in(row, name, path))
    return tasks


def _v2_tasks(root: Path) -> dict[int, str]:
    path = root / "meta/tasks.jsonl"
    tasks = {}
    for line in read_json_lines(root, path):
        tasks[number_in(line, "task_index", path)] = "; ".join(texts_in(line, "task", path))
    return tasks


def _rows(root: Path, path: Path, wanted: Callable[[str], bool]) -> Iterator[dict[str, Any]]:
    """The rows of a small Parquet file as dictionaries."""
    with ParquetFile(str(file_in(root, path))) as file:
        check_limit(file.footer.rows, MAX_EPISODES, path=str(path), offset=file.footer_at, what="the number of rows")
        columns = [i for i, name in enumerate(file.schema.names) if wanted(name)]
        for _, batch in read_columns(file, range(len(file.footer.row_groups)), columns, rows=1024):
            size = sum(array.nbytes for array in batch.values())
            check_limit(size, MAX_SCHEMA_BYTES, path=str(path), offset=None, what="the size of 1,024 rows")
            values = {file.schema.names[i]: array.to_pylist() for i, array in batch.items()}
            for row in zip(*values.values(), strict=True):
                yield dict(zip(values, row, strict=True))


def _filled(template: str, place: Mapping[str, int], path: Path) -> str:
    """Return a path in the dataset from its template, such as ``data/chunk-{episode_chunk:03d}/…``."""

    def number(match: re.Match[str]) -> str:
        name, width = match.groups()
        if name not in place:
            raise ReadError(
                f"the path {shortened(template)} has the unknown field {shortened(name)}", path=str(path), hint=HINT
            )
        return str(place[name]).zfill(int(width or 0))

    filled = _PLACEHOLDER.sub(number, template)
    parts = filled.split("/")
    if not parts[0] or ".." in parts or "{" in filled or "\0" in filled or len(max(parts, key=len)) > _LONGEST_NAME:
        raise ReadError(f"the path {shortened(template)} is outside the dataset", path=str(path), hint=HINT)
    return filled


def _feature(name: str, facts: Any, path: Path) -> Feature:
    if not isinstance(facts, dict):
        raise ReadError(f"feature {shortened(name)} is not a mapping", path=str(path), hint=HINT)
    shape = facts.get("shape") or [1]
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ReadError(
            f"the shape of feature {shortened(name)} is {shortened(shape)}, not a list of numbers",
            path=str(path),
            hint=HINT,
        )
    what = f"the {{}} of the shape of feature {shortened(name)}"
    check_limit(len(shape), MAX_NESTING, path=str(path), offset=None, what=what.format("number of dimensions"))
    check_limit(prod(shape), MAX_CHUNK_UNCOMPRESSED, path=str(path), offset=None, what=what.format("product"))
    (dtype, *_) = texts_in(facts, "dtype", path) or ("",)
    return Feature(name, dtype, tuple(shape), tuple(_flat_names(facts.get("names"))))


def _flat_names(names: Any, depth: int = 0) -> Iterator[str]:
    """The names in a list, in a list of lists, or in a mapping to lists; datasets have all three."""
    if isinstance(names, str):
        yield names
    elif isinstance(names, dict) and depth < 4:
        for name, value in names.items():
            yield from [name] if isinstance(value, int) else _flat_names(value, depth + 1)
    elif isinstance(names, list) and depth < 4:
        for value in names:
            yield from _flat_names(value, depth + 1)


def _mapping(info: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    entry = info.get(key)
    if not isinstance(entry, dict):
        raise ReadError(f"{key!r} is missing", path=str(path), hint=HINT)
    return entry


_SCALARS: Final = ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars", "rerun.components.Scalar")
TEXT: Final = ComponentDescriptor("TextDocument:text", "rerun.archetypes.TextDocument", "rerun.components.Text")
_IMAGE: Final = ComponentDescriptor("EncodedImage:blob", "rerun.archetypes.EncodedImage", "rerun.components.Blob")


class _FeatureColumn(NamedTuple):
    """A feature as a component column with one list per row, and the names of its numbers, if any."""

    descriptor: ComponentDescriptor
    values: pa.ListArray
    names: tuple[str, ...] = ()


def _entity_of(feature: str) -> str:
    """The entity of a feature; dots separate the parts of its path.

    >>> _entity_of("observation.images.top")
    'observation/images/top'
    """
    return feature.replace(".", "/")


def _feature_column(feature: Feature | None, name: str, values: pa.Array) -> _FeatureColumn:
    """The component of a feature that is not an image: numbers become ``Scalars``, texts ``TextDocument``.

    Other values stay as they are, in a component with the last part of the feature's name.
    """
    datatype = values.type
    if pa.types.is_string(datatype) or pa.types.is_large_string(datatype):
        return _FeatureColumn(TEXT, one_each(values.cast(pa.string()), nullable=True))
    if _is_number(datatype):
        return _FeatureColumn(_SCALARS, one_each(values.cast(pa.float64()), nullable=True), _names(feature, 1))
    if _is_vector(datatype):
        lists = values.cast(pa.list_(pa.float64()))
        return _FeatureColumn(_SCALARS, lists, _names(feature, _shared_length(lists)))
    return _FeatureColumn(ComponentDescriptor(name.rpartition(".")[2] or name), one_each(values, nullable=True))


def _is_image(feature: Feature | None, datatype: pa.DataType) -> bool:
    """Return whether a column has images: structs with the bytes or path of each, or only paths."""
    if pa.types.is_struct(datatype):
        return {"bytes", "path"} <= {field.name for field in datatype}
    is_text = pa.types.is_string(datatype) or pa.types.is_large_string(datatype)
    return bool(is_text) and feature is not None and feature.dtype == "image"


def _is_number(datatype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(datatype) or pa.types.is_floating(datatype) or pa.types.is_boolean(datatype))


def _is_vector(datatype: pa.DataType) -> bool:
    lists = pa.types.is_list(datatype) or pa.types.is_fixed_size_list(datatype) or pa.types.is_large_list(datatype)
    return bool(lists) and _is_number(datatype.value_type)


def _shared_length(lists: pa.ListArray) -> int:
    lengths = pc.unique(pc.drop_null(pc.list_value_length(lists))).to_pylist()
    return lengths[0] if len(lengths) == 1 else -1


def _names(feature: Feature | None, length: int) -> tuple[str, ...]:
    names: Sequence[str] = feature.names if feature is not None else ()
    return tuple(names) if len(names) == length else ()


def _blobs(values: pa.Array) -> pa.ListArray:
    """Return each value as one instance of bytes, or null."""
    valid = values.cast(pa.large_binary())
    offsets, data = valid.buffers()[1:]
    ends = np.frombuffer(offsets, np.int64)[valid.offset : valid.offset + len(valid) + 1]
    first = int(ends[0]) if len(valid) else 0
    last = int(ends[-1]) if len(valid) else 0
    size = last - first
    numbers = np.frombuffer(data, np.uint8, size, first) if data is not None and size else np.empty(0, np.uint8)
    blob = pa.list_(pa.field("item", pa.uint8(), nullable=False))
    inner_offsets = pa.py_buffer((ends - first).astype(np.int32) if len(valid) else np.zeros(1, np.int32))
    inner = pa.Array.from_buffers(blob, len(valid), [None, inner_offsets], children=[pa.array(numbers)])
    has = np.asarray(valid.is_valid().to_numpy(zero_copy_only=False))
    outer = np.concatenate([np.zeros(1, np.int64), np.cumsum(has)]).astype(np.int32)
    lists = inner.filter(pa.array(has)) if not has.all() else inner
    return pa.ListArray.from_arrays(pa.array(outer), lists, mask=pa.array(~has) if not has.all() else None)


class _Images:
    """Reads images of a dataset that are separate files, and counts missing ones.

    Paths are relative to the dataset's folder or to the data's folder. Files elsewhere on the machine are not read, as
    a dataset may be hostile.
    """

    def __init__(self, root: str, data: str) -> None:
        self._root = root
        self._folders = (Path(root), Path(data).parent)
        self._missing: dict[str, tuple[int, str]] = {}

    def pieces(self, feature: str, values: pa.Array) -> Iterator[tuple[slice, pa.ListArray]]:
        """Yield the blobs of consecutive rows, about ``CHUNK_BYTES`` if some are from files; null for no image."""
        is_struct = pa.types.is_struct(values.type)
        blobs = pc.struct_field(values, "bytes") if is_struct else pa.nulls(len(values), pa.binary())
        paths = pc.struct_field(values, "path") if is_struct else values
        if not pc.any(pc.and_(blobs.is_null(), paths.is_valid())).as_py():
            yield slice(0, len(values)), _blobs(blobs)
            return
        start = size = 0
        images: list[bytes | None] = []
        for row, (blob, path) in enumerate(zip(blobs, paths, strict=True)):
            image = self._read(feature, path.as_py()) if not blob.is_valid and path.is_valid else blob.as_py()
            images.append(image)
            size += len(image or b"")
            if size >= CHUNK_BYTES or row + 1 == len(values):
                yield slice(start, row + 1), _blobs(pa.array(images, pa.large_binary()))
                start, size, images = row + 1, 0, []

    def warn(self) -> None:
        """Warn, once for each feature, how many images are missing."""
        for feature, (count, first) in self._missing.items():
            warnings.warn(
                f"{self._root}: feature {feature!r}: the files of {counted(count, 'image')} are missing, so the "
                f"images become null; the first: {first}",
                ReadWarning,
                stacklevel=2,
            )

    def _read(self, feature: str, path: str) -> bytes | None:
        places = [place for folder in self._folders if (place := _below(folder, self._folders[0], path))]
        for place in places:
            try:
                size = file_in(Path(self._root), place).stat().st_size
                check_limit(size, MAX_CHUNK_UNCOMPRESSED, path=str(place), offset=None, what="the size of an image")
                return place.read_bytes()
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                raise ReadError(f"an image cannot be read: {error}", path=str(place), hint=_IMAGE_HINT) from error
        count, first = self._missing.get(feature, (0, ""))
        self._missing[feature] = (count + 1, first or repr(path))
        return None


_IMAGE_HINT: Final = "Make the file readable, or copy the dataset again."


def _below(folder: Path, root: Path, path: str) -> Path | None:
    """Return the place of ``path`` in a folder, or None if it is not below the dataset's root."""
    place = Path(os.path.normpath(folder / path))
    return place if "\0" not in path and place.is_relative_to(os.path.normpath(root)) else None


_EPISODE: Final = "episode_index"
_TASK: Final = "task_index"
FRAME_INDEX: Final = "frame_index"
_SEQUENCES: Final = (FRAME_INDEX, "index")
_PLACES: Final = (_EPISODE, _TASK, "timestamp", *_SEQUENCES)
_INT64: Final = 2
_ARCHETYPE: Final = "LeRobotEpisode"


@dataclass(frozen=True, slots=True)
class EpisodeSource(Source[Split]):
    """The frames of one episode.

    Guarantee: every frame of the episode is one row of the entity of each feature. Order: properties, then batches of
    frames, by feature within each batch, then static data, then the videos by feature, with whole groups of pictures
    packed to about 2 MiB. It is the same for every run over the same bytes.
    """

    root: str
    info: LeRobotInfo
    episode: EpisodeInfo
    wanted: Callable[[str], bool] | None = None
    b_frames: BFrames = "reencode"

    def describe(self) -> str:
        """One line for the plan."""
        return f"LeRobotDataset({Path(self.root).name}, episode {self.episode.index})"

    def paths(self) -> Sequence[str]:
        """Return the file of frames, then those of videos."""
        return [str(Path(self.root) / place) for place in (self.episode.data, *(v.path for v in self.episode.videos))]

    def _data(self) -> str:
        return str(file_in(Path(self.root), Path(self.paths()[0])))

    def narrowed(self, wanted: Callable[[str], bool]) -> EpisodeSource:
        """Return the source without unused entities, whose features are not read."""
        return replace(self, wanted=wanted)

    def entities(self) -> set[str]:
        """Return the entities of the features, by the columns of the file."""
        with ParquetFile(self._data()) as file:
            names = {*file.schema.names, *(video.feature for video in self.episode.videos)}
        return {"/__properties", "/task", *(parse_entity_path(_entity_of(n)) for n in names if n not in _PLACES)}

    def splits(self) -> Sequence[Split]:
        """Return the episode as one split. Warns (``ReadWarning``) about missing files of videos."""
        self._warn_of_videos([v.feature for v in self._videos_wanted() if not self._has(v)], "their files are missing")
        with ParquetFile(self._data()) as file:
            share = self.episode.length / max(file.footer.rows, 1)
            return [Split(f"episode {self.episode.index}", round(file.size * min(share, 1)))]

    def _videos_wanted(self) -> list[Video]:
        return [v for v in self.episode.videos if self._wants(parse_entity_path(_entity_of(v.feature)))]

    def _warn_of_videos(self, lost: Sequence[str], why: str) -> None:
        if lost:
            warnings.warn(
                f"{self.root}: the videos of {', '.join(lost)} are not read, because {why}; the path of each is "
                "stored at its entity",
                ReadWarning,
                stacklevel=3,
            )

    def _has(self, video: Video) -> bool:
        try:
            return (Path(self.root) / video.path).exists()
        except OSError as error:
            raise ReadError(
                f"the path of a video is invalid: {error.strerror}",
                path=f"{self.root}/{INFO}",
                hint="The dataset is damaged or malicious; copy it again.",
            ) from error

    def _videos(self, frames: EpisodeFrames) -> Iterator[Chunk]:
        """Yield the samples of the selected videos. Warns of videos that need PyAV if it is not installed."""
        lost: dict[str, list[str]] = {}
        for video in self._videos_wanted():
            entity = parse_entity_path(_entity_of(video.feature))
            try:
                if self._has(video):
                    yield from frames.video_chunks(self.root, entity, video, self.episode.index, self.b_frames)
            except MissingExtraError as error:
                lost.setdefault(f"{error.message}: {error.hint}", []).append(video.feature)
        for why, features in lost.items():
            self._warn_of_videos(features, why)

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (there is only one)
        """Yield the chunks of the episode. Raises ``ReadError``."""
        yield from self._properties()
        names: dict[str, tuple[str, ...]] = {}
        task: int | None = None
        images = _Images(self.root, self.paths()[0])
        lost: set[int] = set()
        frames = 0
        times = EpisodeFrames(self.info.fps)
        with open_file(self._data()) as file:
            for columns in self._frames(file):
                length = len(next(iter(columns.values())))
                frames += length
                timelines = self._timelines(columns, file.path)
                times.add(timelines)
                yield from self._features(columns, timelines, names, images)
                if _TASK in columns:
                    lost |= self._tasks_without_text(columns[_TASK])
                    chunk, task = self._tasks(columns[_TASK], timelines, task)
                    if chunk is not None:
                        yield chunk
        if frames != self.episode.length:
            raise ReadError(
                f"episode {self.episode.index} has {frames:,} frames, but {self.episode.length:,} in meta",
                path=self.paths()[0],
                hint="The dataset is damaged or incomplete; copy it again.",
            )
        for entity, series_names in names.items():
            yield series_chunk(entity, series_names)
        if frames:
            yield from self._videos(times)
        images.warn()
        if lost:
            warnings.warn(
                f"{self.root}: episode {self.episode.index}: task_index {', '.join(map(str, sorted(lost)[:10]))} is "
                "not in meta, so its text is null",
                ReadWarning,
                stacklevel=2,
            )

    def _properties(self) -> Iterator[Chunk]:
        """Yield the facts on the episode in ``meta``, and the paths of its videos."""
        facts: dict[str, Any] = {
            "codebase_version": self.info.version,
            "episode_index": self.episode.index,
            "fps": self.info.fps,
            "robot_type": self.info.robot_type,
            "tasks": list(self.episode.tasks),
        }
        if self._wants("/__properties"):
            yield _static("/__properties", _ARCHETYPE, facts)
        for video in self.episode.videos:
            entity = parse_entity_path(_entity_of(video.feature))
            if self._wants(entity):
                place = {"path": video.path, "from_timestamp": video.start, "to_timestamp": video.end}
                yield _static(entity, "LeRobotVideo", place)

    def _frames(self, file: ParquetFile) -> Iterator[dict[str, pa.Array]]:
        """Yield the selected columns of this episode's frames, in batches."""
        columns = {
            i: name
            for i, name in enumerate(file.schema.names)
            if name in _PLACES or self._wants(parse_entity_path(_entity_of(name)))
        }
        groups = [g for g in range(len(file.footer.row_groups)) if _may_hold(file, g, self.episode.index)]
        if not groups:
            return
        if len(set(columns.values())) < len(columns):
            raise ReadError("two columns have the same name", path=file.path, offset=file.footer_at, hint=HINT)
        for _, batch in read_columns(file, groups, columns):
            arrays = {columns[i]: _in_place(columns[i], array, file.path) for i, array in batch.items()}
            if _EPISODE in arrays:
                mine = pc.fill_null(pc.equal(arrays[_EPISODE], self.episode.index), False)
                if not pc.all(mine).as_py():
                    arrays = {name: array.filter(mine) for name, array in arrays.items()}
            if len(next(iter(arrays.values()))):
                yield arrays

    def _timelines(self, columns: Mapping[str, pa.Array], path: str) -> dict[str, pa.Array]:
        lines: dict[str, pa.Array] = {}
        for name in (*_SEQUENCES, "timestamp"):
            if name not in columns:
                continue
            values = columns[name]
            if values.null_count:
                raise ReadError(f"{name!r} is null in a frame", path=path, hint="Every frame needs a time.")
            if name == "timestamp":
                seconds = np.asarray(values.to_numpy(zero_copy_only=False))
                if not (np.abs(seconds) < MOST_SECONDS).all():
                    raise ReadError("a timestamp is not a number of seconds", path=path, hint="The file is damaged.")
                ticks = np.rint(seconds * 1e9).astype(np.int64)
                lines[name] = pa.array(ticks).view(pa.duration("ns"))
            else:
                lines[name] = values
        if not lines:
            raise ReadError(
                "the file has neither 'frame_index' nor 'timestamp'",
                path=path,
                hint="It is not a file of a LeRobot dataset.",
            )
        return lines

    def _features(
        self,
        columns: Mapping[str, pa.Array],
        timelines: Mapping[str, pa.Array],
        names: dict[str, tuple[str, ...]],
        images: _Images,
    ) -> Iterator[Chunk]:
        features = {feature.name: feature for feature in self.info.features}
        for name, values in columns.items():
            if name in _PLACES:
                continue
            entity = parse_entity_path(_entity_of(name))
            if _is_image(features.get(name), values.type):
                for rows, blobs in images.pieces(name, values):
                    times = {line: ticks[rows] for line, ticks in timelines.items()}
                    yield Chunk.build(entity, times, [(_IMAGE, blobs)])
                continue
            column = _feature_column(features.get(name), name, values)
            if column.names:
                names.setdefault(entity, column.names)
            yield Chunk.build(entity, timelines, [(column.descriptor, column.values)])

    def _tasks(
        self, tasks: pa.Array, timelines: Mapping[str, pa.Array], last: int | None
    ) -> tuple[Chunk | None, int | None]:
        """The task's text, in the frames where it changes."""
        numbers = tasks.to_pylist()
        rows = [i for i, n in enumerate(numbers) if n != (numbers[i - 1] if i else last)]
        if not rows or not self._wants("/task"):
            return None, numbers[-1]
        texts = [self.info.tasks.get(numbers[i]) for i in rows]
        times = {name: values.take(pa.array(rows)) for name, values in timelines.items()}
        chunk = Chunk.build("/task", times, [(TEXT, one_each(pa.array(texts, pa.string()), nullable=True))])
        return chunk, numbers[-1]

    def _tasks_without_text(self, tasks: pa.Array) -> set[int]:
        if not self._wants("/task"):
            return set()
        return {n for n in pc.unique(tasks).to_pylist() if n is not None and n not in self.info.tasks}

    def _wants(self, entity_path: str) -> bool:
        return self.wanted is None or self.wanted(entity_path)


def _in_place(name: str, values: pa.Array, path: str) -> pa.Array:
    """Return the times and numbers of frames as int64, seconds as float64, and other columns as they are."""
    if name not in _PLACES:
        return values
    wanted = pa.float64() if name == "timestamp" else pa.int64()
    try:
        if _is_number(values.type):
            return values.cast(wanted)
    except pa.ArrowInvalid:
        pass
    raise ReadError(f"{name!r} is a column of {values.type}, with values that are not {wanted}", path=path, hint=HINT)


def _static(entity_path: str, archetype: str, facts: Mapping[str, Any]) -> Chunk:
    columns = []
    for name, value in facts.items():
        if value is not None:
            values = value if isinstance(value, list) else [value]
            kind = pa.string() if isinstance(value, list) else None
            columns.append(
                (
                    ComponentDescriptor(f"{archetype}:{name}", archetype),
                    pa.array([values], pa.list_(kind or pa.array(values).type)),
                )
            )
    return Chunk.build(entity_path, {}, columns)


def _may_hold(file: ParquetFile, row_group: int, episode: int) -> bool:
    """Return whether a row group may have frames of an episode, by its statistics."""
    if _EPISODE not in file.schema.names:
        return True
    (leaf,) = file.leaves([file.schema.names.index(_EPISODE)])
    column = file.footer.row_groups[row_group].columns[leaf]
    if column.physical_type != _INT64 or column.lowest is None or column.highest is None:
        return True
    lowest, highest = (int.from_bytes(b, "little", signed=True) for b in (column.lowest, column.highest))
    return lowest <= episode <= highest
