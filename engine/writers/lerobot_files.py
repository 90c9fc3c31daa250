"""The files of a LeRobot dataset of version 3.0: parts that tasks write, and the dataset made from them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..faults import reach
from ..statistics import Statistics
from .lerobot_episodes import AlignedEpisode, EpisodeAccount, FeatureAccount
from .lerobot_spec import IMAGE, OWN_COLUMNS, VIDEO, ExportSpec, FeatureSpec

VERSION: Final = "v3.0"
DATA_PATH: Final = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH: Final = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_PATH: Final = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
STATISTICS: Final = "meta/chunkmill-statistics-{number:03d}.npz"
ACCOUNT: Final = "meta/chunkmill.json"
ACCOUNT_VERSION: Final = 1

FILES_A_CHUNK: Final = 1000
DATA_BYTES: Final = 100_000_000
VIDEO_BYTES: Final = 200_000_000
_GROUP_BYTES: Final = 16_000_000
_JOINED_AT_ONCE: Final = 64

_OWN: Final = {"timestamp": pa.float32(), **dict.fromkeys(OWN_COLUMNS[1:], pa.int64())}
_IMAGE_TYPE: Final = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@dataclass(frozen=True, slots=True)
class WrittenVideo:
    """The video of one episode and feature: its file, and the episode's seconds in the file."""

    file: Path
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class WrittenEpisode:
    """An episode as a task wrote it, or as it is in a dataset.

    ``data`` is a Parquet file, ``rows`` its rows in that file, and ``statistics`` those of its features.
    """

    account: EpisodeAccount
    task: str
    length: int
    data: Path
    rows: tuple[int, int]
    statistics: Mapping[str, Statistics]
    digest: str | None = None
    videos: Mapping[str, WrittenVideo] = field(default_factory=dict)


# ---------------------------------------------------------------------------------------------------------- parts


def columns_of(spec: ExportSpec) -> list[FeatureSpec]:
    """Return the features that are columns of the data."""
    return [feature for feature in spec.features if feature.dtype != VIDEO]


def feature_type(feature: FeatureSpec) -> pa.DataType:
    """Return the type of a feature's column."""
    if feature.dtype == IMAGE:
        return _IMAGE_TYPE
    assert feature.shape is not None
    kind = pa.bool_() if feature.dtype == "bool" else pa.type_for_alias(feature.dtype)
    if feature.shape == (1,):
        return kind
    if len(feature.shape) == 1:
        return pa.list_(kind, feature.shape[0])
    for _ in feature.shape:
        kind = pa.list_(kind)
    return kind


def _array(rows: npt.NDArray[Any], feature: FeatureSpec) -> pa.Array:
    kind = feature_type(feature)
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    assert feature.shape is not None
    if feature.shape == (1,):
        return flat.cast(kind)
    if len(feature.shape) == 1:
        return pa.FixedSizeListArray.from_arrays(flat, feature.shape[0]).cast(kind)
    for size in reversed(feature.shape):
        flat = pa.ListArray.from_arrays(pa.array(np.arange(0, len(flat) + 1, size, dtype=np.int32)), flat)
    return flat.cast(kind)


def write_part(path: Path, spec: ExportSpec, episode: AlignedEpisode, images: Mapping[str, Iterator[bytes]]) -> None:
    """Write the columns of one episode; images are taken one by one."""
    features = columns_of(spec)
    schema = pa.schema([(feature.name, feature_type(feature)) for feature in features])
    pictures = [feature.name for feature in features if feature.dtype == IMAGE]
    with pq.ParquetWriter(path, schema, compression="snappy") as writer:
        begin = 0
        while begin < episode.length:
            held: dict[str, list[bytes]] = {name: [] for name in pictures}
            end = size = 0
            end = begin
            while end < episode.length and (size < _GROUP_BYTES or not pictures):
                for name in pictures:
                    held[name].append(next(images[name]))
                    size += len(held[name][-1])
                end = end + 1 if pictures else episode.length
            arrays = []
            for feature in features:
                if feature.dtype == IMAGE:
                    blobs = pa.array(held[feature.name], pa.binary())
                    arrays.append(
                        pa.StructArray.from_arrays([blobs, pa.nulls(len(blobs), pa.string())], ["bytes", "path"])
                    )
                else:
                    arrays.append(_array(episode.numbers[feature.name][begin:end], feature))
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            begin = end


def statistics_bytes(episodes: Sequence[Mapping[str, Statistics]], *, compressed: bool = False) -> bytes:
    """Return statistics of episodes as a file."""
    arrays = {
        f"{number}/{name}/{key}": np.asarray(value)
        for number, features in enumerate(episodes)
        for name, statistics in features.items()
        for key, value in _fields(statistics).items()
    }
    out = io.BytesIO()
    write: Callable[..., None] = np.savez_compressed if compressed else np.savez
    write(out, **arrays)
    return out.getvalue()


def read_statistics(data: bytes, count: int, names: Sequence[str]) -> list[dict[str, Statistics]]:
    """Return the statistics of ``count`` episodes."""
    episodes = []
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        for number in range(count):
            features = {}
            for name in names:
                values = {key: arrays[f"{number}/{name}/{key}"] for key in Statistics.__dataclass_fields__}
                for key in ("samples", "values"):
                    values[key] = int(values[key])
                features[name] = Statistics(**values)
            episodes.append(features)
    return episodes


def _fields(statistics: Statistics) -> dict[str, Any]:
    return {key: getattr(statistics, key) for key in Statistics.__dataclass_fields__}


def joined(parts: Sequence[Statistics]) -> Statistics:
    """Return the statistics of many episodes, in groups, which bounds memory; each level adds to a quantile's error."""
    while len(parts) > 1:
        groups = (parts[first : first + _JOINED_AT_ONCE] for first in range(0, len(parts), _JOINED_AT_ONCE))
        parts = [Statistics.joined(group) for group in groups]
    return parts[0]


# ---------------------------------------------------------------------------------------------------------- whole


class _DataFiles:
    """The data files of a dataset, to which episodes are added in order."""

    def __init__(self, root: Path, spec: ExportSpec, first: int) -> None:
        self._root = root
        self._schema = pa.schema(
            [(feature.name, feature_type(feature)) for feature in columns_of(spec)] + list(_OWN.items()),
            {"huggingface": json.dumps({"info": {"features": _hub_features(spec)}})},
        )
        self._number = first - 1
        self._writer: pq.ParquetWriter | None = None
        self._bytes = 0

    def add(self, episode: WrittenEpisode, size: int, own: Mapping[str, npt.NDArray[Any]]) -> int:
        """Add an episode of about ``size`` bytes; return the number of its file."""
        if self._writer is None or (self._bytes and self._bytes + size > DATA_BYTES):
            self.close()
            self._number += 1
            path = self._root / placed(DATA_PATH, self._number)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer, self._bytes = pq.ParquetWriter(path, self._schema, compression="snappy"), 0
        begin = 0
        for batch in _rows(episode):
            names = [name for name in self._schema.names if name not in _OWN]
            arrays = [batch.column(name) for name in names]
            arrays += [pa.array(own[name][begin : begin + len(batch)], kind) for name, kind in _OWN.items()]
            self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            begin += len(batch)
        self._bytes += size
        return self._number

    def close(self) -> None:
        """End the file that is written."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def placed(template: str, number: int, **names: str) -> str:
    """Return the path of file ``number``."""
    chunk, file = divmod(number, FILES_A_CHUNK)
    return template.format(chunk_index=chunk, file_index=file, **names)


def _rows(episode: WrittenEpisode) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an episode, row group by row group."""
    first, last = episode.rows
    with pq.ParquetFile(episode.data) as file:
        begin = 0
        for number in range(file.num_row_groups):
            count = file.metadata.row_group(number).num_rows
            if begin < last and begin + count > first:
                for batch in file.read_row_group(number).to_batches():
                    low, high = max(first - begin, 0), min(last - begin, len(batch))
                    if low < high:
                        yield batch.slice(low, high - low)
                    begin += len(batch)
            else:
                begin += count


def _hub_features(spec: ExportSpec) -> dict[str, Any]:
    """Return the features in the form of the library ``datasets``, for the schema's metadata."""
    types: dict[str, Any] = {}
    for feature in columns_of(spec):
        assert feature.shape is not None
        value = {"dtype": feature.dtype, "_type": "Value"}
        if feature.dtype == IMAGE:
            types[feature.name] = {"_type": "Image"}
        elif feature.shape == (1,):
            types[feature.name] = value
        elif len(feature.shape) == 1:
            types[feature.name] = {"feature": value, "length": feature.shape[0], "_type": "Sequence"}
        else:
            array = {"shape": list(feature.shape), "dtype": feature.dtype, "_type": f"Array{len(feature.shape)}D"}
            types[feature.name] = array
    own = {name: "float32" if kind == pa.float32() else "int64" for name, kind in _OWN.items()}
    return types | {name: {"dtype": kind, "_type": "Value"} for name, kind in own.items()}


def info_features(spec: ExportSpec, codecs: Mapping[str, str]) -> dict[str, Any]:
    """Return the features in the form of ``meta/info.json``."""
    features: dict[str, Any] = {}
    for feature in spec.features:
        assert feature.shape is not None
        names: Any = ["height", "width", "channels"] if feature.is_picture else list(feature.names) or None
        features[feature.name] = {"dtype": feature.dtype, "shape": list(feature.shape), "names": names}
        if feature.dtype == VIDEO:
            height, width, channels = feature.shape
            facts = {
                "video.height": height,
                "video.width": width,
                "video.codec": codecs[feature.name],
                "video.pix_fmt": "yuv420p",
                "video.is_depth_map": False,
                "video.fps": spec.fps,
                "video.channels": channels,
                "has_audio": False,
            }
            features[feature.name]["info"] = facts
    for name, kind in _OWN.items():
        features[name] = {"dtype": "float32" if kind == pa.float32() else "int64", "shape": [1], "names": None}
    return features


def write_dataset(
    root: Path,
    spec: ExportSpec,
    episodes: Sequence[WrittenEpisode],
    accounts: Sequence[Any],
    codecs: Mapping[str, str],
    origins: Mapping[str, tuple[str | None, str | None]],
) -> None:
    """Write a dataset of episodes into a new folder, and flush it to disk.

    ``accounts`` are those of all episodes, written or not; ``codecs`` are those of videos; ``origins`` are the digest
    and the store of each recording. Each video is a file of its own, which is linked, not copied.
    """
    files = _DataFiles(root, spec, 0)
    tasks = list(dict.fromkeys(episode.task for episode in episodes))
    rows, figures, index = [], [], 0
    try:
        for number, episode in enumerate(episodes):
            task = tasks.index(episode.task)
            own = _own_columns(spec.fps, number, index, episode.length, task)
            file = files.add(episode, _size(episode), own)
            statistics = {**episode.statistics, **{name: Statistics.of(values) for name, values in own.items()}}
            figures.append(statistics)
            chunk, place = divmod(file, FILES_A_CHUNK)
            rows.append(
                {
                    "episode_index": number,
                    "tasks": [episode.task],
                    "length": episode.length,
                    "data/chunk_index": chunk,
                    "data/file_index": place,
                    "dataset_from_index": index,
                    "dataset_to_index": index + episode.length,
                    **_videos(root, spec, number, episode),
                }
            )
            index += episode.length
    finally:
        files.close()
    (root / "meta").mkdir(exist_ok=True)
    _write_tasks(root / "meta/tasks.parquet", tasks)
    _write_episodes(root / placed(EPISODES_PATH, 0), spec, rows, figures)
    names = list(figures[0]) if figures else []
    overall = {name: _shown(name, joined([f[name] for f in figures]), spec) for name in names}
    _write_json(root / "meta/stats.json", overall)
    info = {
        "codebase_version": VERSION,
        "robot_type": spec.robot_type,
        "total_episodes": len(episodes),
        "total_frames": index,
        "total_tasks": len(tasks),
        "chunks_size": FILES_A_CHUNK,
        "data_files_size_in_mb": DATA_BYTES // 1_000_000,
        "video_files_size_in_mb": VIDEO_BYTES // 1_000_000,
        "fps": spec.fps,
        "splits": {"train": f"0:{len(episodes)}"},
        "data_path": DATA_PATH,
        "video_path": VIDEO_PATH if any(feature.dtype == VIDEO for feature in spec.features) else None,
        "features": info_features(spec, codecs),
    }
    _write_json(root / "meta/info.json", info)
    ours = [{name: each[name] for name in each if name not in _OWN} for each in figures]
    (root / STATISTICS.format(number=0)).write_bytes(statistics_bytes(ours, compressed=True))
    recordings = [{"name": name, "digest": digest, "origin": origin} for name, (digest, origin) in origins.items()]
    facts = {"version": ACCOUNT_VERSION, "spec": spec.digest, "recordings": recordings, "episodes": list(accounts)}
    _write_json(root / ACCOUNT, facts)
    reach("export.write", root / ACCOUNT)
    _flush(root)


def _videos(root: Path, spec: ExportSpec, number: int, episode: WrittenEpisode) -> dict[str, Any]:
    """Link the videos of an episode into the dataset; return the episode's columns about videos."""
    columns: dict[str, Any] = {}
    chunk, place = divmod(number, FILES_A_CHUNK)
    for feature in spec.features:
        if feature.dtype == VIDEO:
            video = episode.videos[feature.name]
            target = root / placed(VIDEO_PATH, number, video_key=feature.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.hardlink_to(video.file)
            values = (chunk, place, video.start, video.end)
            keys = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
            columns |= {f"videos/{feature.name}/{key}": value for key, value in zip(keys, values, strict=True)}
    return columns


def _own_columns(fps: int, number: int, index: int, length: int, task: int) -> dict[str, npt.NDArray[Any]]:
    frames = np.arange(length, dtype=np.int64)
    return {
        "timestamp": (frames / fps).astype(np.float32),
        "frame_index": frames,
        "episode_index": np.full(length, number, np.int64),
        "index": index + frames,
        "task_index": np.full(length, task, np.int64),
    }


def _size(episode: WrittenEpisode) -> int:
    """Return about how many bytes an episode takes."""
    total = pq.read_metadata(episode.data)
    size: int = sum(total.row_group(i).total_byte_size for i in range(total.num_row_groups))
    part: int = size * (episode.rows[1] - episode.rows[0]) // max(total.num_rows, 1)
    return part


def shown_shape(name: str, spec: ExportSpec) -> tuple[int, ...]:
    """Return the shape of a feature's statistics."""
    feature = next((feature for feature in spec.features if feature.name == name), None)
    if feature is None:
        return (1,)
    assert feature.shape is not None
    return (3, 1, 1) if feature.is_picture else feature.shape


def _shown(name: str, statistics: Statistics, spec: ExportSpec) -> dict[str, Any]:
    is_picture = any(feature.name == name and feature.is_picture for feature in spec.features)
    return statistics.to_json(shown_shape(name, spec), 255.0 if is_picture else 1.0)


def _write_tasks(path: Path, tasks: Sequence[str]) -> None:
    """Write the tasks as pandas writes a frame with the tasks as its index."""
    index = "__index_level_0__"
    text: dict[str, str | None] = {"name": None, "pandas_type": "unicode", "numpy_type": "object"}
    number: dict[str, str | None] = {
        "name": "task_index",
        "field_name": "task_index",
        "pandas_type": "int64",
        "numpy_type": "int64",
    }
    number |= {"metadata": None}
    described = {
        "index_columns": [index],
        "column_indexes": [{**text, "field_name": None, "metadata": {"encoding": "UTF-8"}}],
        "columns": [number, {**text, "field_name": index, "metadata": None}],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.2.0",
    }
    schema = pa.schema([("task_index", pa.int64()), (index, pa.string())], {"pandas": json.dumps(described)})
    table = pa.table([pa.array(range(len(tasks)), pa.int64()), pa.array(tasks, pa.string())], schema=schema)
    pq.write_table(table, path)


def _write_episodes(
    path: Path, spec: ExportSpec, rows: Sequence[Mapping[str, Any]], figures: Sequence[Mapping[str, Statistics]]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = {key: _kind(key) for key in (rows[0] if rows else {})}
    columns = {key: pa.array([row[key] for row in rows], kind) for key, kind in kinds.items()}
    for name in figures[0] if figures else ():
        kind = pa.float64()
        for _ in shown_shape(name, spec):
            kind = pa.list_(kind)
        shown = [_shown(name, each[name], spec) for each in figures]
        for key in shown[0]:
            values = [statistics[key] for statistics in shown]
            columns[f"stats/{name}/{key}"] = pa.array(values, pa.list_(pa.int64()) if key == "count" else kind)
    zeros = pa.array([0] * len(rows), pa.int64())
    columns |= {"meta/episodes/chunk_index": zeros, "meta/episodes/file_index": zeros}
    pq.write_table(pa.table(columns), path)


def _kind(key: str) -> pa.DataType:
    if key == "tasks":
        return pa.list_(pa.string())
    return pa.float64() if key.endswith("_timestamp") else pa.int64()


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")


def _flush(root: Path) -> None:
    """Flush all files and folders below to the disk."""
    for path in [*root.rglob("*"), root]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ------------------------------------------------------------------------------------------------------- accounts


def account_to_json(account: EpisodeAccount, digest: str | None) -> dict[str, Any]:
    """Return an account in the form of ``meta/chunkmill.json``."""
    return {**asdict(account), "digest": digest}


def account_from_json(given: Mapping[str, Any]) -> EpisodeAccount:
    """Return an account from its JSON form."""
    fields = {key: value for key, value in given.items() if key in EpisodeAccount.__dataclass_fields__}
    features = {name: FeatureAccount(**value) for name, value in given["features"].items()}
    return EpisodeAccount(**{**fields, "features": features})


def read_written(root: Path, spec: ExportSpec) -> tuple[list[WrittenEpisode], list[dict[str, Any]]]:
    """Return the episodes of a dataset that was written here, and all accounts."""
    accounts = json.loads((root / ACCOUNT).read_text(encoding="utf-8"))["episodes"]
    written = [account for account in accounts if account["reason"] is None]
    figures = read_statistics((root / STATISTICS.format(number=0)).read_bytes(), len(written), spec.measured)
    keys = ["tasks", "length", "data/chunk_index", "data/file_index", "dataset_from_index"]
    videos = [feature.name for feature in spec.features if feature.dtype == VIDEO]
    ends = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
    keys += [f"videos/{name}/{key}" for name in videos for key in ends]
    rows = pq.read_table(root / placed(EPISODES_PATH, 0), columns=keys).to_pylist()
    starts: dict[int, int] = {}
    episodes = []
    for row, account, statistics in zip(rows, written, figures, strict=True):
        file = row["data/chunk_index"] * FILES_A_CHUNK + row["data/file_index"]
        first = row["dataset_from_index"] - starts.setdefault(file, row["dataset_from_index"])
        place = root / placed(DATA_PATH, file)
        of_video = {name: _read_video(root, name, row) for name in videos}
        episodes.append(
            WrittenEpisode(
                account_from_json(account),
                row["tasks"][0],
                row["length"],
                place,
                (first, first + row["length"]),
                statistics,
                account["digest"],
                of_video,
            )
        )
    return episodes, accounts


def _read_video(root: Path, name: str, row: Mapping[str, Any]) -> WrittenVideo:
    keys = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
    chunk, place, start, end = (row[f"videos/{name}/{key}"] for key in keys)
    return WrittenVideo(root / placed(VIDEO_PATH, chunk * FILES_A_CHUNK + place, video_key=name), start, end)
