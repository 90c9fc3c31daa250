"""MP4, QuickTime, Matroska and WebM files: each video track as an entity of samples, or the whole file as one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from ..engine.errors import ReadError, ReadWarning, SourceMissingError, UnsupportedError, UsageError
from ..engine.locations import Location, exists, located
from .recording_file import FileSource, FrameReader, b_frames_option, option

if TYPE_CHECKING:
    import pyarrow as pa

    from ..engine.chunk import Chunk
    from ..engine.storage.positional import PositionalFile
    from ..engine.stream import LazyChunkStream, Split
    from ..engine.video import BFrames, Demultiplexed, Ticks, VideoTrack

_MODES: Final = ("stream", "asset")
_TIMELINE_TYPES: Final = ("duration_ns", "timestamp_ns")
_ALIASES: Final = {"duration": "duration_ns", "timestamp": "timestamp_ns"}
_CODECS: Final = {"h264": 0x61766331, "h265": 0x68657631, "av1": 0x61763031, "vp8": 0x76703038, "vp9": 0x76703039}
_ENCODED: Final = ("h264", "h265", "av1", "vp9")
_MOST_TRACKS: Final = 64
_HINT: Final = "The file is damaged; copy it again."


def _frames(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 1 << 31:
        raise ValueError(f"{text!r} is not a number of frames from 1 to 2,147,483,647")
    return int(text)


def _check_exists(place: Location) -> None:
    if not exists(place):
        raise SourceMissingError(f"MP4 file not found: {place}", path=str(place), hint="Check the spelling.")


@dataclass(frozen=True)
class Mp4Recording(FileSource):
    """A video file; its options are those of :class:`Mp4Reader`.

    Guarantee: tracks in file order, each with its chunks in time order; the same in every run, except for re-encoded
    samples, whose bytes depend on the installed encoder.
    """

    mp4_mode: str = option(
        "stream",
        "MP4: store the video as samples, or as the whole file with the times of frames.",
        flag="--mp4-mode",
        choices=_MODES,
    )
    chunk_by_gop: bool = option(
        True, "MP4: make one chunk per sample, not per group of pictures.", flag="--chunk-by-sample", switch=False
    )
    timeline_name: str = option("video", "MP4: name of the timeline.", flag="--timeline-name", metavar="NAME")
    mp4_timeline_type: str = option(
        "duration_ns",
        "MP4: type of the timeline; times count from the start of the video.",
        flag="--mp4-timeline-type",
        choices=_TIMELINE_TYPES,
    )
    entity_path: str | None = option(
        None,
        "MP4: entity of the video; by default the absolute path of the file.",
        flag="--entity-path",
        metavar="PATH",
    )
    output_codec: str | None = option(
        None, "MP4: re-encode the video with this codec.", flag="--output-codec", choices=_ENCODED
    )
    gop_size: int | None = option(
        None,
        "MP4: re-encode the video with this number of frames per group of pictures.",
        flag="--gop-size",
        metavar="FRAMES",
        parse=_frames,
    )
    b_frames: str = b_frames_option()

    def __post_init__(self) -> None:
        """Raise ``UsageError`` for options that cannot be combined."""
        if self.mp4_mode == "asset" and not self.chunk_by_gop:
            raise UsageError('`chunk_by_gop=False` is only valid with `mode="stream"`')
        if self.mp4_mode == "asset" and (self.output_codec is not None or self.gop_size is not None):
            raise UsageError('`transcode` is only valid with `mode="stream"`')

    @property
    def entity(self) -> str:
        """The entity of the first video track."""
        from ..engine.chunk import join_parts, parse_entity_path

        if self.entity_path is not None:
            return parse_entity_path(self.entity_path)
        place = located(self.path)
        parts = place.parts[1:] if isinstance(place, Path) else (place.bucket, *place.parent.key.split("/"), place.name)
        return join_parts([part for part in parts if part])

    def stream(self) -> LazyChunkStream:
        """The chunks of all tracks. Raises ``SourceMissingError``."""
        _check_exists(self.path)
        return super().stream()

    def read(self, split: Split) -> Iterator[Chunk]:  # noqa: ARG002 (a file is one split)
        """Yield the chunks of each track.

        Raises ``ReadError`` with the offset, ``UnsupportedError`` if no track can be read, and ``MissingExtraError``
        for a file that needs the extra ``video``.
        """
        from ..engine.storage.positional import open_positional

        with open_positional(str(self.path)) as file:
            yield from self._asset(file) if self.mp4_mode == "asset" else self._streams(file)

    def _streams(self, file: PositionalFile) -> Iterator[Chunk]:
        from ..engine.limits import check_limit
        from ..engine.video import stream_chunks

        track, tracks = 0, _MOST_TRACKS
        refused: list[tuple[int, UnsupportedError]] = []
        while track < tracks:
            try:
                opened = self._opened(file, track)
            except UnsupportedError as error:
                if error.offset is not None or self.b_frames == "error":
                    raise
                refused.append((track, error))
            except UsageError:
                if not refused:
                    raise
                tracks = track  # the last track was refused, and its error has no number of tracks
            else:
                with opened:
                    tracks = opened.video_tracks
                    what = "the number of video tracks"
                    check_limit(tracks, _MOST_TRACKS, path=file.path, offset=0, what=what)
                    entity = self.entity if not track else f"{self.entity}/track_{track}"
                    times = partial(self._times, opened.track, file.path)
                    chunks = stream_chunks(
                        entity, opened.track, opened.batches(), times, 0 if self.chunk_by_gop else None
                    )
                    count = 0
                    for chunk in chunks:
                        count += 1
                        yield chunk
                    if count == 1:
                        warnings.warn(f"{file.path}: video track {track} has no samples", ReadWarning, stacklevel=2)
            track += 1
        if len(refused) == tracks:
            raise refused[0][1]
        for number, reason in refused:
            warnings.warn(f"{file.path}: video track {number} is not read: {reason.message}", ReadWarning, stacklevel=2)

    def _opened(self, file: PositionalFile, track: int) -> Demultiplexed:
        from ..engine.video import demultiplex

        is_asset = self.mp4_mode == "asset"
        return demultiplex(
            file,
            track=track,
            b_frames="keep" if is_asset else cast("BFrames", self.b_frames),
            codec=None if self.output_codec is None else _CODECS[self.output_codec],
            keyframe_interval=self.gop_size,
            reads_all=not is_asset,
        )

    def _times(self, track: VideoTrack, path: str, ticks: Ticks) -> dict[str, pa.Array]:
        return self._line([track.nanoseconds(tick) for tick in ticks.tolist()], path)

    def _line(self, times: Sequence[int], path: str) -> dict[str, pa.Array]:
        import pyarrow as pa

        if times and max(map(abs, times)) >= 1 << 63:
            raise ReadError(
                "the display time of a sample does not fit into 64 bits of nanoseconds", path=path, offset=0, hint=_HINT
            )
        kind = pa.timestamp("ns") if self.mp4_timeline_type == "timestamp_ns" else pa.duration("ns")
        return {self.timeline_name: pa.array(times, pa.int64()).view(kind)}

    def _asset(self, file: PositionalFile) -> Iterator[Chunk]:
        import numpy as np

        from ..engine.limits import MAX_CHUNK_UNCOMPRESSED, check_limit
        from ..engine.video import NotPlainError, asset_chunks, read_boxes, shown_frames

        try:
            boxes = read_boxes(file)
        except UnsupportedError as error:
            hint = 'An asset must be an MP4 or QuickTime file; mode="stream" also supports Matroska and WebM.'
            raise UnsupportedError(error.message, path=file.path, offset=error.offset, hint=hint) from error
        what = "the length of a video as one asset"
        check_limit(file.size, MAX_CHUNK_UNCOMPRESSED, path=file.path, offset=0, what=what)
        with self._opened(file, 0) as opened:
            try:
                if boxes.movie is None or b"moof" in boxes.kinds:
                    raise NotPlainError("its index is fragmented")
                shown, timestamps = shown_frames(boxes.movie, 0).nanoseconds()
            except NotPlainError:
                pts = np.sort(np.concatenate([np.zeros(0, np.int64), *(batch.pts for batch in opened.batches())]))
                if not len(pts):
                    raise ReadError("the video has no samples", path=file.path, offset=0, hint=_HINT) from None
                moments = self._times(opened.track, file.path, pts)[self.timeline_name].view("int64").to_numpy()
                shown, timestamps = moments[moments >= 0], (moments - moments[0])[moments >= 0]
        content = file.read(0, file.size, what="the video")
        yield from asset_chunks(self.entity, content, timestamps, self._line(shown.tolist(), file.path))


@dataclass(frozen=True, kw_only=True)
class Mp4TranscodeOptions:
    """Options for re-encoding a video, which loses some detail.

    ``output_codec`` is Rerun's ``VideoCodec`` or its number, as in ``VideoStream:codec``; by default the codec of the
    file. ``gop_size`` is the exact number of frames per group of pictures. PyAV encodes on the CPU, without a program
    ``ffmpeg``. ``try_gpu`` and ``ffmpeg_override`` therefore have no effect and give a ``ReadWarning``.

    Raises ``TypeError`` for a codec of another type, and ``UsageError`` for VP8, which cannot be encoded, and for a
    ``gop_size`` below 1.
    """

    output_codec: Any = None
    gop_size: int | None = None
    try_gpu: bool = False
    ffmpeg_override: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        """Check them."""
        number = getattr(self.output_codec, "value", self.output_codec)
        if number is not None and number not in _CODECS.values():
            kind = type(self.output_codec).__name__
            raise TypeError(f"output_codec must be a rerun.components.VideoCodec, got {kind}")
        if self.codec_name == "vp8":
            raise UsageError("there is no encoder for VP8", hint="Encode as H.264, H.265, AV1 or VP9.")
        if self.gop_size is not None and not 0 < self.gop_size < 1 << 31:
            raise UsageError(f"gop_size must be at least 1, not {self.gop_size}")
        for name in ("try_gpu", "ffmpeg_override"):
            if getattr(self, name):
                text = f"{name} has no effect: PyAV encodes on the CPU, without the ffmpeg program"
                warnings.warn(text, ReadWarning, stacklevel=4)

    @property
    def codec_name(self) -> str | None:
        """The name of the codec, such as ``h264``, or None for the codec of the file."""
        number = getattr(self.output_codec, "value", self.output_codec)
        return next((name for name, value in _CODECS.items() if value == number), None)


class Mp4Reader(FrameReader):
    """Read chunks from an MP4, QuickTime (``.mov``), Matroska (``.mkv``) or WebM file, which may be fragmented.

    With ``mode="stream"``, a video track becomes a ``VideoStream``: a static codec, one chunk per group of pictures
    (with ``chunk_by_gop=False``, per sample), and one true value per key frame. Nothing is decoded. H.264 and H.265 are
    in Annex B form with parameter sets at each key frame; AV1, VP8 and VP9 are unchanged. The first track is at
    ``entity_path``, the others are at ``track_1`` … below it. With ``mode="asset"``, the file becomes an
    ``AssetVideo``, and each frame of its first track becomes a ``VideoFrameReference``.

    Times are nanoseconds since the start of the presentation, by the file's edit list. Earlier samples that are only
    needed for decoding have negative times. A ``ReadWarning`` reports a rotated video, and audio tracks, which are not
    read. Videos with B-frames are re-encoded, or refused with ``b_frames="error"``.

    Plain MP4 files need no extra; other files need the extra ``video`` (PyAV). Errors in the file are raised when the
    stream is read.

    Parameters
    ----------
    path
        The file, or its URL.
    mode
        ``"stream"`` or ``"asset"``.
    chunk_by_gop
        Whether a chunk holds a group of pictures; otherwise it holds one sample.
    timeline_name
        The name of the timeline.
    timeline_type
        ``"duration_ns"``, or ``"timestamp_ns"`` for the same numbers as timestamps since 1970.
    transcode
        How to re-encode the video; by default only videos with B-frames are re-encoded.
    entity_path
        By default the absolute path of the file.
    b_frames
        ``"reencode"`` or ``"error"``.

    Raises
    ------
    FileNotFoundError
        There is no such file (``SourceMissingError``).
    ValueError
        An option has an invalid value, or cannot be combined with ``mode="asset"`` (``UsageError``).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: Literal["asset", "stream"] = "stream",
        chunk_by_gop: bool = True,
        timeline_name: str = "video",
        timeline_type: Literal["duration_ns", "timestamp_ns", "duration", "timestamp"] = "duration_ns",
        transcode: Mp4TranscodeOptions | None = None,
        entity_path: str | None = None,
        b_frames: Literal["reencode", "error"] = "reencode",
    ) -> None:
        kind = _ALIASES.get(timeline_type, timeline_type)
        if mode not in _MODES:
            raise UsageError(f'Invalid mode: "{mode}". Expected "asset" or "stream"')
        if kind not in _TIMELINE_TYPES:
            raise UsageError(
                f'Invalid timeline_type: "{timeline_type}". Expected "duration_ns" or "timestamp_ns" ("duration" and'
                ' "timestamp" are also accepted)'
            )
        if b_frames not in ("reencode", "error"):
            raise UsageError(f"b_frames is {b_frames!r}, not 'reencode' or 'error'")
        if mode == "asset" and transcode is not None:
            raise UsageError('`transcode` is only valid with `mode="stream"`')
        place = located(path)
        _check_exists(place)
        self._file = Mp4Recording(
            place,
            mp4_mode=mode,
            chunk_by_gop=chunk_by_gop,
            timeline_name=timeline_name,
            mp4_timeline_type=kind,
            entity_path=entity_path,
            output_codec=None if transcode is None else transcode.codec_name,
            gop_size=None if transcode is None else transcode.gop_size,
            b_frames=b_frames,
        )

    @property
    def path(self) -> Location:
        """The file."""
        return self._file.path

    @property
    def entity_path(self) -> str:
        """The entity of the first video track."""
        return self._file.entity

    def stream(self) -> LazyChunkStream:
        """A lazy stream of the chunks; each terminal reads the file again."""
        return self._file.stream()

    def __repr__(self) -> str:
        return f"Mp4Reader({self.path})"
