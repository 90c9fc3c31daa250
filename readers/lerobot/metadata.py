"""The ``meta`` folder of a LeRobot dataset: features, episodes, tasks.

Format: https://github.com/huggingface/lerobot, ``codebase_version`` 2.0, 2.1 and 3.0.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from ...engine.errors import ReadError, SourceMissingError, UnsupportedError
from ...engine.limits import MAX_SCHEMA_BYTES, check_limit
from ..parquet import ParquetFile, read_columns

INFO: Final = "meta/info.json"
"""The file that describes a dataset."""


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is a LeRobot dataset, by its ``meta/info.json``."""
    return (Path(path) / INFO).is_file()


_HINT: Final = "The dataset is damaged or incomplete; copy it again."
_PLACEHOLDER: Final = re.compile(r"\{(\w+)(?::0?(\d{1,2})d)?\}")
_MOST_CHUNKS: Final = 1_000_000


class Feature(NamedTuple):
    """One feature of the frames: its name, the kind of its values and their shape, and names of the numbers."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...]


class _Video(NamedTuple):
    """The video of one feature: its path below the dataset, and the seconds of it that belong to the episode."""

    feature: str
    path: str
    start: float
    end: float | None


@dataclass(frozen=True, slots=True)
class EpisodeInfo:
    """One episode: its number, frames and tasks, and the files (below the dataset) it lies in."""

    index: int
    length: int
    tasks: tuple[str, ...]
    data: str
    videos: tuple[_Video, ...]


class DatasetInfo(NamedTuple):
    """The whole of ``meta``. ``tasks`` maps numbers to texts; ``fps`` is in frames a second."""

    version: str
    robot_type: str | None
    fps: float
    features: tuple[Feature, ...]
    tasks: Mapping[int, str]
    episodes: tuple[EpisodeInfo, ...]


def read_metadata(root: Path) -> DatasetInfo:
    """Read ``meta``. Raises ``ReadError``; ``UnsupportedError`` for a version that nobody here knows."""
    path = root / INFO
    info = _json(_text(path), path)
    version = str(info.get("codebase_version", ""))
    features = tuple(_feature(name, given, path) for name, given in _mapping(info, "features", path).items())
    if version.startswith("v2."):
        tasks = {_number(t, "task_index", path): str(t.get("task", "")) for t in _lines(root / "meta/tasks.jsonl")}
        episodes = tuple(_v2_episodes(root, info, features))
    elif version.startswith("v3."):
        tasks = _v3_tasks(root)
        episodes = tuple(_v3_episodes(root, info, features))
    else:
        raise UnsupportedError(
            f"a LeRobot dataset of version {version!r}",
            path=str(path),
            hint="Versions 2 and 3 are read; lerobot converts older ones.",
        )
    robot = info.get("robot_type")
    fps = info.get("fps")
    if not isinstance(fps, int | float) or not 0 < fps < 1e9:
        raise ReadError(f"'fps' is {fps!r}, which is not a number of frames per second", path=str(path), hint=_HINT)
    ordered = tuple(sorted(episodes, key=lambda e: e.index))
    return DatasetInfo(version, str(robot) if robot else None, float(fps), features, tasks, ordered)


def _v2_episodes(root: Path, info: Mapping[str, Any], features: tuple[Feature, ...]) -> Iterator[EpisodeInfo]:
    path = root / INFO
    size = _number(info, "chunks_size", path) if "chunks_size" in info else 1000
    check_limit(size - 1, _MOST_CHUNKS, path=str(path), offset=None, what="'chunks_size'")
    data, video = str(info.get("data_path", "")), str(info.get("video_path") or "")
    for line in _lines(root / "meta/episodes.jsonl"):
        index = _number(line, "episode_index", root / "meta/episodes.jsonl")
        place = {"episode_index": index, "episode_chunk": index // size}
        videos = tuple(
            _Video(f.name, _filled(video.replace("{video_key}", f.name), place, path), 0.0, None)
            for f in features
            if f.dtype == "video" and video
        )
        length = _number(line, "length", root / "meta/episodes.jsonl")
        yield EpisodeInfo(index, length, _texts(line.get("tasks")), _filled(data, place, path), videos)


def _v3_episodes(root: Path, info: Mapping[str, Any], features: tuple[Feature, ...]) -> Iterator[EpisodeInfo]:
    path = root / INFO
    data, video = str(info.get("data_path", "")), str(info.get("video_path") or "")
    for file in sorted((root / "meta/episodes").glob("**/*.parquet")):
        for row in _rows(file, lambda name: not name.startswith("stats/")):
            place = {k: _number(row, f"data/{k}", file) for k in ("chunk_index", "file_index")}
            videos = tuple(_v3_video(f.name, video, row, file) for f in features if f.dtype == "video" and video)
            yield EpisodeInfo(
                _number(row, "episode_index", file),
                _number(row, "length", file),
                _texts(row.get("tasks")),
                _filled(data, place, path),
                tuple(v for v in videos if v is not None),
            )


def _v3_video(feature: str, template: str, row: Mapping[str, Any], file: Path) -> _Video | None:
    if row.get(f"videos/{feature}/file_index") is None:
        return None
    place = {k: _number(row, f"videos/{feature}/{k}", file) for k in ("chunk_index", "file_index")}
    start, end = (row.get(f"videos/{feature}/{k}_timestamp") for k in ("from", "to"))
    return _Video(
        feature,
        _filled(template.replace("{video_key}", feature), place, file),
        float(start or 0.0),
        None if end is None else float(end),
    )


def _v3_tasks(root: Path) -> dict[int, str]:
    path = root / "meta/tasks.parquet"
    if not path.exists():
        return {}
    tasks = {}
    for row in _rows(path, lambda _: True):
        text = row.get("task", row.get("__index_level_0__"))
        tasks[_number(row, "task_index", path)] = "" if text is None else str(text)
    return tasks


def _rows(path: Path, wanted: Any) -> Iterator[dict[str, Any]]:
    """The rows of a small Parquet file as dictionaries."""
    with ParquetFile(str(path)) as file:
        columns = [i for i, name in enumerate(file.schema.names) if wanted(name)]
        for _, batch in read_columns(file, range(len(file.footer.row_groups)), columns, rows=1024):
            values = {file.schema.names[i]: array.to_pylist() for i, array in batch.items()}
            for row in zip(*values.values(), strict=True):
                yield dict(zip(values, row, strict=True))


def _filled(template: str, place: Mapping[str, int], path: Path) -> str:
    """A path below the dataset from its template, ``data/chunk-{episode_chunk:03d}/…``."""

    def number(found: re.Match[str]) -> str:
        name, width = found.groups()
        if name not in place:
            raise ReadError(f"the path {template!r} names {name!r}, which is not known", path=str(path), hint=_HINT)
        return str(place[name]).zfill(int(width or 0))

    filled = _PLACEHOLDER.sub(number, template)
    pure = PurePosixPath(filled)
    if not filled or pure.is_absolute() or ".." in pure.parts or "{" in filled:
        raise ReadError(f"the path {template!r} does not lie in the dataset", path=str(path), hint=_HINT)
    return filled


def _feature(name: str, given: Any, path: Path) -> Feature:
    if not isinstance(given, dict):
        raise ReadError(f"feature {name!r} is not a mapping", path=str(path), hint=_HINT)
    shape = given.get("shape") or [1]
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ReadError(f"the shape of feature {name!r} is {shape!r}", path=str(path), hint=_HINT)
    return Feature(name, str(given.get("dtype", "")), tuple(shape), tuple(_flat_names(given.get("names"))))


def _flat_names(names: Any, depth: int = 0) -> Iterator[str]:
    """Names as datasets spell them: a list, a list in a list, or a mapping to lists."""
    if isinstance(names, str):
        yield names
    elif isinstance(names, dict) and depth < 4:
        for name, value in names.items():
            yield from [name] if isinstance(value, int) else _flat_names(value, depth + 1)
    elif isinstance(names, list) and depth < 4:
        for value in names:
            yield from _flat_names(value, depth + 1)


def _text(path: Path) -> str:
    try:
        size = path.stat().st_size
        check_limit(size, 16 * MAX_SCHEMA_BYTES, path=str(path), offset=None, what="the size of the file")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise SourceMissingError("there is no such file in the dataset", path=str(path), hint=_HINT) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(f"cannot be read: {error}", path=str(path), hint=_HINT) from error


def _json(text: str, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReadError(f"is not JSON: {error}", path=str(path), hint=_HINT) from None
    if not isinstance(found, dict):
        raise ReadError("is not a JSON object", path=str(path), hint=_HINT)
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    yield from (_json(line, path) for line in _text(path).splitlines() if line.strip())


def _mapping(info: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    found = info.get(key)
    if not isinstance(found, dict):
        raise ReadError(f"{key!r} is missing", path=str(path), hint=_HINT)
    return found


def _number(given: Mapping[str, Any], key: str, path: Path) -> int:
    value = given.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ReadError(f"{key!r} is {value!r}, which is not a number", path=str(path), hint=_HINT)
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else () if value is None else (str(value),)
