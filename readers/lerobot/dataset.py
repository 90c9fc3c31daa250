"""``LeRobotDataset``, its episodes, and a reader of one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from ...engine.chunk import Chunk, ComponentColumn, is_property, parse_entity_path
from ...engine.errors import SourceMissingError, UsageError
from ...engine.markup import bar, panel, panel_or_error, table
from ...engine.stream import LazyChunkStream
from ...engine.units import counted, duration
from ...engine.video import BFrames
from ..recording_file import FrameReader
from .files import read_text
from .source import FRAME_INDEX, INFO, EpisodeInfo, EpisodeSource, Feature, LeRobotInfo, is_dataset, read_metadata

VideoMode = Literal["native", "skip"]
VIDEO_MODES: Final = ("native", "skip")
B_FRAMES: Final = ("reencode", "error")


class LeRobotDataset:
    """A folder in LeRobot's format (version 2 or 3). Each episode is a recording.

    Features become entities, and dots become slashes: ``observation.state`` is ``/observation/state``. Vectors and
    numbers become ``Scalars`` with the feature's names, images ``EncodedImage``, and texts ``TextDocument``. The task
    is text at ``/task``. Timelines are ``frame_index`` and ``index`` (sequences) and ``timestamp`` (duration since the
    start of the episode). Videos become ``VideoStream`` with the samples of the file, on the same timelines. The path
    of the file is static data of the entity. Videos need the extra ``video``. Without it, or if a file is missing,
    there is a ``ReadWarning``.

    Raises
    ------
    FileNotFoundError
        The folder has no ``meta/info.json`` (``SourceMissingError``).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not is_dataset(self.path):
            raise SourceMissingError(f"LeRobot dataset not found: {self.path} holds no {INFO}")
        self._info: LeRobotInfo | None = None

    def __repr__(self) -> str:
        return f"LeRobotDataset({self.path})"

    def _repr_html_(self) -> str:
        return panel_or_error(repr(self), self._panel)

    def _panel(self) -> str:
        info = self.info
        facts = [
            counted(len(info.episodes), "episode"),
            counted(sum(episode.length for episode in info.episodes), "frame"),
            f"{info.fps:g} frames a second",
            f"robot {info.robot_type}" if info.robot_type else "",
            f"version {info.version}",
        ]
        longest = max((episode.length for episode in info.episodes), default=0) or 1
        rows = ((e.index, e.length, "; ".join(e.tasks), bar(e.length / longest)) for e in info.episodes)
        return panel(
            repr(self),
            facts,
            _features_table(info.features),
            table(["episode", "frames", "task", ""], rows, len(info.episodes), kind="wide"),
        )

    @property
    def info(self) -> LeRobotInfo:
        """The content of ``meta``, read once. Raises ``ReadError``."""
        if self._info is None:
            self._info = read_metadata(self.path)
        return self._info

    def episodes(self) -> list[LeRobotEpisode]:
        """All episodes, by number."""
        return [LeRobotEpisode(self, episode) for episode in self.info.episodes]

    def episode(self, index: int) -> LeRobotEpisode:
        """Return the episode with number ``index``. Raises ``UsageError`` if it does not exist."""
        for episode in self.info.episodes:
            if episode.index == index:
                return LeRobotEpisode(self, episode)
        raise UsageError(f"there is no episode {index}", path=str(self.path), hint="See episodes().")


def _features_table(features: Sequence[Feature]) -> str:
    rows = ((f.name, f.dtype, " x ".join(map(str, f.shape))) for f in features)
    return table(["feature", "type", "shape"], rows, len(features), kind="grid")


class LeRobotReader:
    """A reader of LeRobot datasets with the API of Rerun's reader: it reads episodes by number.

    Entities, components and errors are those of :class:`LeRobotDataset`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._dataset = LeRobotDataset(path)

    @property
    def path(self) -> Path:
        """The folder."""
        return self._dataset.path

    @property
    def version(self) -> str:
        """``"v2"`` or ``"v3"``. Raises ``ReadError``."""
        return self._dataset.info.version[:2]

    def __repr__(self) -> str:
        return f"LeRobotReader({self.path})"

    def _repr_html_(self) -> str:
        return self._dataset._repr_html_()

    def episodes(self) -> list[int]:
        """The numbers of all episodes, ascending."""
        return [episode.index for episode in self._dataset.info.episodes]

    def metadata(self, *, entity_path_prefix: str | None = None) -> Chunk:
        """The texts of ``meta/info.json`` and, if it exists, ``meta/stats.json``, in one static chunk.

        Its entity is ``entity_path_prefix``, by default ``/__lerobot``; its components are ``info`` and ``stats``.
        """
        files = {name: self.path / "meta" / f"{name}.json" for name in ("info", "stats")}
        columns = [ComponentColumn(name, [read_text(self.path, file)]) for name, file in files.items() if file.exists()]
        return Chunk.from_columns(entity_path_prefix or "/__lerobot", [], columns)

    def stream(
        self,
        episode: int,
        *,
        entity_path_prefix: str | None = None,
        timeline: str | None = None,
        video_mode: VideoMode = "native",
        b_frames: BFrames = "reencode",
    ) -> LazyChunkStream:
        """A lazy stream of one episode's chunks; each call reads it again.

        ``entity_path_prefix`` is the prefix of every entity path, except ``/__properties``. ``timeline`` replaces the
        name ``frame_index``. ``video_mode`` and ``b_frames`` are those of :meth:`LeRobotEpisode.stream`.

        Raises ``UsageError`` (a ``ValueError``) if the episode or the mode does not exist.
        """
        stream = self._dataset.episode(episode).stream(video_mode=video_mode, b_frames=b_frames)
        if entity_path_prefix is None and timeline is None:
            return stream
        return stream.map(_Renamed(entity_path_prefix or "/", timeline or FRAME_INDEX))


@dataclass(frozen=True, slots=True)
class _Renamed:
    """Adds a prefix to entity paths, and renames the timeline of frames."""

    prefix: str
    timeline: str

    def __call__(self, chunk: Chunk) -> Chunk:
        data = chunk.data
        if is_property(data.entity_path):
            return chunk
        lines = (replace(t, name=self.timeline) if t.name == FRAME_INDEX else t for t in data.timelines)
        ordered = tuple(sorted(lines, key=lambda t: t.name.encode()))
        path = parse_entity_path(self.prefix + "/" + data.entity_path)
        return Chunk.from_data(replace(data, entity_path=path, timelines=ordered))


class LeRobotEpisode(FrameReader):
    """One episode of a :class:`LeRobotDataset`."""

    def __init__(self, dataset: LeRobotDataset, episode: EpisodeInfo) -> None:
        self._dataset = dataset
        self._episode = episode

    def __repr__(self) -> str:
        return f"LeRobotEpisode({self._dataset.path}, {self.index})"

    def _repr_html_(self) -> str:
        return panel_or_error(repr(self), self._panel)

    def _panel(self) -> str:
        info, videos = self._dataset.info, self._episode.videos
        facts = [
            counted(self.length, "frame"),
            duration(self.length / info.fps) if info.fps else "",
            f"recording {self.recording_id}",
            "; ".join(self.tasks),
        ]
        lines = ((v.feature, v.path, f"{v.start:g} s") for v in videos)
        drawn = table(["video", "file", "from"], lines, len(videos), kind="grid") if videos else ""
        return panel(repr(self), facts, _features_table(info.features), drawn)

    @property
    def index(self) -> int:
        """The number of the episode."""
        return self._episode.index

    @property
    def length(self) -> int:
        """The number of frames."""
        return self._episode.length

    @property
    def tasks(self) -> tuple[str, ...]:
        """The texts of the tasks."""
        return self._episode.tasks

    @property
    def recording_id(self) -> str:
        """The id of the recording, such as ``episode_000003``."""
        return f"episode_{self.index:06d}"

    def source(self) -> EpisodeSource:
        """Return the episode as a source for a pipeline."""
        info = self._dataset.info._replace(episodes=())  # sources are sent to other processes
        return EpisodeSource(str(self._dataset.path.absolute()), info, self._episode)

    def stream(self, *, video_mode: VideoMode = "native", b_frames: BFrames = "reencode") -> LazyChunkStream:
        """A lazy stream of the episode's chunks; each call reads it again.

        With ``video_mode="native"``, each video becomes a ``VideoStream`` with the samples of the file; ``"skip"``
        leaves videos out. If an episode begins within a group of pictures, the earlier samples that decoding needs have
        negative times. A ``VideoStream`` cannot hold B-frames: such videos are re-encoded with a ``ReadWarning``, or
        raise ``UnsupportedError`` with ``b_frames="error"``.

        Raises ``UsageError`` (a ``ValueError``) for an unknown mode.
        """
        if video_mode not in VIDEO_MODES:
            raise UsageError(f"Unknown video mode: '{video_mode}'. Expected 'native' or 'skip'.")
        if b_frames not in B_FRAMES:
            raise UsageError(f"Unknown b_frames: '{b_frames}'. Expected 'reencode' or 'error'.")
        source = replace(self.source(), b_frames=b_frames)
        if video_mode == "skip":
            source = replace(source, episode=replace(source.episode, videos=()))
        return LazyChunkStream.from_source(source)
