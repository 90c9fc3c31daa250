"""An episode's videos as chunks: samples as in the file, on the timelines of the frames."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...engine.chunk import Chunk
from ...engine.errors import ReadError, ReadWarning
from ...engine.storage.positional import open_positional
from ...engine.units import counted
from ...engine.video import BFrames, Ticks, VideoTrack, demultiplex, stream_chunks
from .files import file_in

_SECOND = 1_000_000_000


class Video(NamedTuple):
    """The video of one feature: its path in the dataset, and the start and end of the episode in it, in seconds."""

    feature: str
    path: str
    start: float
    end: float | None


class EpisodeFrames:
    """The times of an episode's frames, gathered batch by batch: sequences, and nanoseconds on ``timestamp``."""

    def __init__(self, fps: float) -> None:
        self._fps = Fraction(fps).limit_denominator(1_000_000)
        self._parts: dict[str, list[Ticks]] = {}

    def add(self, timelines: Mapping[str, pa.Array]) -> None:
        """Take the times of a batch of frames."""
        for name, values in timelines.items():
            self._parts.setdefault(name, []).append(values.cast(pa.int64()).to_numpy())

    def video_chunks(
        self, root: str, entity_path: str, video: Video, episode: int, b_frames: BFrames
    ) -> Iterator[Chunk]:
        """Yield the chunks of a video: those of a ``VideoStream``, as in :func:`stream_chunks`.

        Each sample gets the times of the frame at most half a frame away, as in lerobot's loader. Lead-in samples,
        which a decoder needs before the first frame, have the times of frames before it: ``frame_index`` and
        ``timestamp`` are negative. Warns (``ReadWarning``) if frames and samples differ. Raises ``ReadError`` if no
        frame has a sample.
        """
        lines = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        half = 1 / (2 * self._fps)
        start = Fraction(video.start)
        path = file_in(Path(root), Path(root) / video.path)
        with open_positional(str(path)) as file:
            first = start - half if start > 0 else None
            end = None if video.end is None else Fraction(video.end) - half
            with demultiplex(file, start=first, end=end, b_frames=b_frames) as opened:
                pairing = _Pairing(lines, self._fps, opened.track, start)
                yield from stream_chunks(entity_path, opened.track, opened.batches(), pairing.times)
        if pairing.is_apart():
            raise ReadError(
                f"the video has no picture in the time range of episode {episode}, which begins at {float(start):g} s",
                path=str(path),
                hint="The dataset is damaged or incomplete; copy it again, or read it without videos.",
            )
        message = pairing.disagreement()
        if message:
            warnings.warn(f"{path}: episode {episode}, {video.feature}: {message}", ReadWarning, stacklevel=2)


class _Pairing:
    """Finds the frame of each sample, and counts frames and samples without a partner."""

    def __init__(self, lines: Mapping[str, Ticks], fps: Fraction, track: VideoTrack, start: Fraction) -> None:
        self._lines = lines
        self._length = len(next(iter(lines.values()))) if lines else 0
        self._step = _SECOND / fps
        self._track = track
        self._start = start
        self._at = self._frame_times(lines)
        self._has_sample = np.zeros(self._length, np.bool_)
        self._shared = self._beside = 0

    def _frame_times(self, lines: Mapping[str, Ticks]) -> Ticks:
        """Each frame's nanoseconds since the start: ``timestamp`` if its values ascend, else computed from the rate."""
        given = lines.get("timestamp")
        if given is not None and (np.diff(given) > 0).all():
            return given
        return np.array([round(number * self._step) for number in range(self._length)], np.int64)

    def times(self, pts: Ticks) -> dict[str, pa.Array]:
        """Return the times, on each timeline, of samples with these presentation times in ticks."""
        base, start = self._track.time_base, self._start
        scale, shift = base.numerator * start.denominator * _SECOND, start.numerator * base.denominator * _SECOND
        unit = base.denominator * start.denominator
        since = np.array([(2 * (tick * scale - shift) + unit) // (2 * unit) for tick in pts.tolist()], np.int64)
        rows = self._nearest(since)
        is_paired = rows >= 0
        self._count(rows, since)
        edges = self._edges(since)
        out = {}
        for name, ticks in self._lines.items():
            if name == "timestamp":
                values = np.where(is_paired, ticks[rows], since)
                out[name] = pa.array(values).view(pa.duration("ns"))
            else:
                steps = np.rint((since - self._at[edges]) / float(self._step)).astype(np.int64)
                out[name] = pa.array(np.where(is_paired, ticks[rows], ticks[edges] + steps))
        return out

    def _nearest(self, since: Ticks) -> Ticks:
        """The row of the nearest frame, at most half a frame away; -1 if there is none."""
        after = np.searchsorted(self._at, since).clip(1, max(self._length - 1, 1))
        before = after - 1
        after = after.clip(0, self._length - 1)
        is_later = np.abs(self._at[after] - since) < np.abs(self._at[before] - since)
        rows = np.where(is_later, after, before)
        return np.where(np.abs(self._at[rows] - since) * 2 <= float(self._step), rows, -1)

    def _edges(self, since: Ticks) -> Ticks:
        """The row of the last frame at or before each time, or the first."""
        return (np.searchsorted(self._at, since, side="right") - 1).clip(0, self._length - 1)

    def _count(self, rows: Ticks, since: Ticks) -> None:
        paired = rows[rows >= 0]
        taken = np.unique(paired)
        self._shared += len(paired) - len(taken) + int(self._has_sample[taken].sum())
        self._has_sample[taken] = True
        self._beside += int(((rows < 0) & (since >= self._at[0])).sum())

    def is_apart(self) -> bool:
        """Return whether no frame has a sample."""
        return not self._has_sample.any()

    def disagreement(self) -> str | None:
        """Return how samples and frames differ; None if each frame has one sample. Lead-in samples do not count."""
        missing = self._length - int(self._has_sample.sum())
        parts = []
        if missing:
            parts.append(f"{counted(missing, 'frame')} of {self._length:,} without a picture")
        if self._beside:
            parts.append(f"{counted(self._beside, 'picture')} without a frame")
        if self._shared:
            parts.append(f"{counted(self._shared, 'picture')} at a frame that already has one")
        return ", ".join(parts) if parts else None
