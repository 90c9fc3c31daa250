"""Faults of LeRobot datasets: frames, times and lengths that disagree with the metadata, files that are missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...readers import LeRobotDataset
from ...readers.parquet import ParquetFile, read_columns
from ..chunk import TimelineKind
from ..errors import ReadError, SourceMissingError
from ..rrd import open_positional
from ..video import NotPlainError, read_boxes, shown_frames
from .findings import Finding

SECOND: Final = 1_000_000_000
TOLERANCE: Final = 1e-4
"""The tolerance of timestamps in seconds, as in LeRobot's loader."""
ROUNDING: Final = 2e-7
"""The relative rounding error of a 32-bit timestamp."""
_COLUMNS: Final = ("episode_index", "frame_index", "timestamp", "index")

Columns = Mapping[str, npt.NDArray[Any]]


def dataset_findings(root: Path) -> Iterator[Finding]:
    """The faults of a dataset, each with its episode as the segment. Raises ``ReadError`` if ``meta`` is damaged."""
    info = LeRobotDataset(root).info
    by_file: defaultdict[str, list[int]] = defaultdict(list)
    for place, episode in enumerate(info.episodes):
        by_file[episode.data].append(place)
    expected: int | None = 0
    for data, places in by_file.items():
        numbers = [info.episodes[place].index for place in places]
        try:
            episodes = _by_episode(root / data)
        except SourceMissingError:
            yield from (_finding("lerobot-missing", number, data, value="the file is missing") for number in numbers)
            expected = None
            continue
        except ReadError as error:
            yield from (_finding("unreadable", number, data, value=str(error)) for number in numbers)
            expected = None
            continue
        for place, number in zip(places, numbers, strict=True):
            columns = episodes.get(number, {})
            yield from _of_frames(number, data, columns, info.fps, info.episodes[place].length, expected)
            index = columns.get("index")
            expected = expected if index is None or not len(index) else int(index[-1]) + 1
    for episode in info.episodes:
        for video in episode.videos:
            value = _missing_video(root / video.path, video.start, video.end, episode.length, info.fps)
            if value:
                said = f"{value} from {video.start:g} s on, for {episode.length:,} frames of the episode"
                yield _finding("lerobot-missing", episode.index, video.path, value=said)


def _finding(kind: str, episode: int, subject: str, **fields: Any) -> Finding:
    return Finding(kind, None, subject, segment=f"episode_{episode:06d}", **fields)


def _by_episode(path: Path) -> dict[int, Columns]:
    """The numbers of frames in a file of data, by episode."""
    parts: defaultdict[str, list[npt.NDArray[Any]]] = defaultdict(list)
    if not path.is_file():
        raise SourceMissingError("there is no such file in the dataset", path=str(path))
    with ParquetFile(str(path)) as file:
        names = file.schema.names
        columns = [names.index(name) for name in _COLUMNS if name in names]
        for _, batch in read_columns(file, range(len(file.footer.row_groups)), columns):
            for at, values in batch.items():
                parts[names[at]].append(_numbers(values))
    whole = {name: np.concatenate(some) for name, some in parts.items()}
    numbers = whole.pop("episode_index", None)
    if numbers is None or not whole:
        raise ReadError("has no columns 'episode_index' and 'frame_index'", path=str(path))
    return {int(n): {name: v[numbers == n] for name, v in whole.items()} for n in np.unique(numbers)}


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    """Numbers, also if each is in a list of one element."""
    flat = values.flatten() if pa.types.is_nested(values.type) else values
    numbers: npt.NDArray[Any] = flat.to_numpy(zero_copy_only=False)
    return numbers


def _of_frames(
    episode: int, data: str, columns: Columns, fps: float, length: int, expected: int | None
) -> Iterator[Finding]:
    """The faults of an episode's frames; ``expected`` is the number of the first frame in the dataset."""
    count = len(next(iter(columns.values()), ()))
    if count != length:
        said = {"value": f"{count:,} frames", "expected": f"{length:,} in the metadata"}
        yield _finding("lerobot-length", episode, data, **said)
    frames, times, index = (columns.get(name) for name in ("frame_index", "timestamp", "index"))
    for name, numbers, first in (("frame_index", frames, 0), ("index", index, expected)):
        if numbers is None or not len(numbers):
            continue
        steps = np.diff(numbers, prepend=numbers[0] - 1 if first is None else first - 1)
        wrong = np.flatnonzero(steps != 1)
        if len(wrong):
            at = int(wrong[0])
            place = {"timeline": name, "timeline_type": TimelineKind.SEQUENCE.value}
            said = {"value": f"{int(numbers[at])}", "expected": f"{int(numbers[at] - steps[at] + 1)}"}
            start = int(numbers[at])
            yield _finding("lerobot-index", episode, data, **place, start=start, end=start, **said, count=len(wrong))
    if times is None or not len(times):
        return
    seconds, rows = times.astype(np.float64), np.arange(len(times))
    wrong, numbers = min(
        ((_off(seconds, some, fps), some) for some in (rows, rows if frames is None else frames - frames[0])),
        key=lambda pair: len(pair[0]),
    )  # if frame numbers are wrong, times may still be right
    if len(wrong):
        at = int(wrong[0])
        place = {"timeline": "timestamp", "timeline_type": TimelineKind.DURATION.value}
        start, end = (int(seconds[row] * SECOND) for row in (at, wrong[-1]))
        said = {"value": f"{seconds[at]:.6g} s", "expected": f"{seconds[0] + numbers[at] / fps:.6g} s at {fps:g} Hz"}
        yield _finding("lerobot-timestamps", episode, data, **place, start=start, end=end, **said, count=len(wrong))


def _off(seconds: npt.NDArray[np.float64], numbers: npt.NDArray[Any], fps: float) -> npt.NDArray[np.int64]:
    """The rows whose times do not match their frame numbers."""
    off = np.abs(seconds - seconds[0] - numbers / fps)
    return np.flatnonzero(~(off <= TOLERANCE + ROUNDING * np.abs(seconds)))


def _missing_video(path: Path, start: float, end: float | None, length: int, fps: float) -> str:
    """Return what a video lacks of an episode's frames, or ""."""
    if not path.is_file():
        return "the file is missing"
    try:
        with open_positional(str(path)) as file:
            movie = read_boxes(file).movie
        if movie is None:
            return ""
        shown = shown_frames(movie, 0).nanoseconds()[0] / SECOND
    except (NotPlainError, ReadError):
        return ""  # `verify` finds what cannot be read
    half = 0.5 / fps
    last = np.inf if end is None else end - half
    count = int(((shown >= start - half) & (shown < last)).sum())
    return f"it has {count:,} frames" if count < length else ""
