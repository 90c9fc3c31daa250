"""LeRobotDataset: the public face of this package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...engine.errors import SourceMissingError, UsageError
from .detection import INFO, is_dataset
from .metadata import DatasetInfo, EpisodeInfo, read_metadata
from .source import EpisodeSource

if TYPE_CHECKING:
    from ...engine.stream import LazyChunkStream


class LeRobotDataset:
    """A folder in the format of LeRobot (version 2 or 3), each episode of it a recording.

    Features become entities, their dots part the path: ``observation.state`` is ``/observation/state``. Vectors and
    numbers are ``Scalars`` with the feature's names, images ``EncodedImage``, texts ``TextDocument``; the task is text
    at ``/task``. Timelines are ``frame_index`` and ``index`` (sequences) and ``timestamp`` (duration since the start
    of the episode). Videos are not read: where they lie is static data at the entity of each, and a ``ReadWarning``
    says so.

    Raises
    ------
    FileNotFoundError
        The folder has no ``meta/info.json`` (``SourceMissingError``).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not is_dataset(self.path):
            raise SourceMissingError(f"LeRobot dataset not found: {self.path} holds no {INFO}")
        self._info: DatasetInfo | None = None

    def __repr__(self) -> str:
        return f"LeRobotDataset({self.path})"

    @property
    def info(self) -> DatasetInfo:
        """What ``meta`` says, read once. Raises ``ReadError``."""
        if self._info is None:
            self._info = read_metadata(self.path)
        return self._info

    def episodes(self) -> list[LeRobotEpisode]:
        """All episodes, by number."""
        return [LeRobotEpisode(self, episode) for episode in self.info.episodes]

    def episode(self, index: int) -> LeRobotEpisode:
        """One episode by its number. Raises ``UsageError`` where there is none of it."""
        for episode in self.info.episodes:
            if episode.index == index:
                return LeRobotEpisode(self, episode)
        raise UsageError(f"there is no episode {index}", path=str(self.path), hint="See episodes().")


class LeRobotEpisode:
    """One episode of a :class:`LeRobotDataset`."""

    def __init__(self, dataset: LeRobotDataset, episode: EpisodeInfo) -> None:
        self._dataset = dataset
        self._episode = episode

    def __repr__(self) -> str:
        return f"LeRobotEpisode({self._dataset.path}, {self.index})"

    @property
    def index(self) -> int:
        """Its number."""
        return self._episode.index

    @property
    def length(self) -> int:
        """Its number of frames."""
        return self._episode.length

    @property
    def tasks(self) -> tuple[str, ...]:
        """What was to be done in it."""
        return self._episode.tasks

    @property
    def recording_id(self) -> str:
        """The id of its recording, such as ``episode_000003``."""
        return f"episode_{self.index:06d}"

    def source(self) -> EpisodeSource:
        """The episode as a source for a pipeline."""
        info = self._dataset.info._replace(episodes=())  # sources travel
        return EpisodeSource(str(self._dataset.path.absolute()), info, self._episode)

    def stream(self) -> LazyChunkStream:
        """A lazy stream of the episode's chunks; each call reads it anew."""
        from ...engine.stream import LazyChunkStream

        return LazyChunkStream.from_source(self.source())
