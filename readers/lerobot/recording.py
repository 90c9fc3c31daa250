"""LeRobot in the registry of formats: a folder of episodes, each a recording, and what ``inspect`` shows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...engine.errors import ReadError, ReadWarning, UnsupportedError
from ..recording_file import Episode, RecordingFile, b_frames_option, option

if TYPE_CHECKING:
    from ...engine.stream import LazyChunkStream
    from ...engine.video import BFrames
    from ..inspection import FileReport
    from .dataset import LeRobotDataset, LeRobotEpisode, VideoMode


@dataclass(frozen=True)
class LeRobotRecording(RecordingFile):
    """An episode of a LeRobot dataset, by default the first."""

    episode: int | None = option(None, "Number of the episode of a LeRobot dataset to read.", parse=int)
    video_mode: str = option(
        "native", "LeRobot: whether to read videos.", flag="--video-mode", choices=("native", "skip")
    )
    b_frames: str = b_frames_option()

    def stream(self) -> LazyChunkStream:
        """Return the chunks of the episode. Warns if there are several and none is selected."""
        dataset = _dataset(self._folder, self.stamp())
        if self.episode is not None:
            return self._stream(dataset.episode(self.episode))
        episodes = dataset.episodes()
        if not episodes:
            raise ReadError("the dataset holds no episode", path=str(self.path))
        if len(episodes) > 1:
            warnings.warn(
                f"{self.path} holds {len(episodes)} episodes; {episodes[0].index} is read. "
                "Choose one with the option 'episode'.",
                ReadWarning,
                stacklevel=2,
            )
        return self._stream(episodes[0])

    def _stream(self, episode: LeRobotEpisode) -> LazyChunkStream:
        return episode.stream(video_mode=cast("VideoMode", self.video_mode), b_frames=cast("BFrames", self.b_frames))

    def episodes(self) -> Sequence[Episode]:
        """Return all episodes, by number. Raises ``ReadError``."""
        from .dataset import LeRobotDataset

        return [Episode(e.index, e.recording_id) for e in LeRobotDataset(self._folder).episodes()]

    def stamp(self) -> tuple[int, int]:
        """Return the size of the files in ``meta``, and their latest modification time."""
        files = [f.stat() for f in (self._folder / "meta").rglob("*") if f.is_file()]
        return sum(f.st_size for f in files), max((f.st_mtime_ns for f in files), default=0)

    def report(self) -> FileReport:
        """Return the features, and the facts in ``meta``."""
        from ..inspection import ColumnReport, FileReport
        from .dataset import LeRobotDataset

        dataset = LeRobotDataset(self._folder)
        info = dataset.info
        columns = tuple(ColumnReport(f.name, f"{f.dtype}[{', '.join(map(str, f.shape))}]") for f in info.features)
        facts: dict[str, str | float | bool] = {
            "version": info.version,
            "robot_type": info.robot_type or "",
            "fps": f"{info.fps:g}",
            "episodes": len(info.episodes),
            "frames": sum(e.length for e in info.episodes),
            "tasks": len(info.tasks),
        }
        files = {dataset.path / e.data for e in info.episodes}
        num_bytes = sum(f.stat().st_size for f in files if f.exists())
        return FileReport(str(self.path), num_bytes, (), facts, columns)

    @property
    def _folder(self) -> Path:
        if not isinstance(self.path, Path):
            raise UnsupportedError(
                "LeRobot datasets must be in local folders",
                path=str(self.path),
                hint="Copy it to this machine first.",
            )
        return self.path


@lru_cache(maxsize=1)
def _dataset(path: Path, stamp: tuple[int, int]) -> LeRobotDataset:
    """The dataset of a run's episodes. Its ``meta`` is read once, and again if it changed."""
    del stamp
    from .dataset import LeRobotDataset

    return LeRobotDataset(path)
