"""Video: samples in containers, key frames in samples, frames encoded and decoded.

The names below are loaded when they are first used.
"""

from ..lazy_names import lazy_names

_HOMES = {
    "..storage.positional": "open_positional",
    ".bitstream": (
        "DETECTORS H265_END H265_OPEN H265_SKIPPED IsKeyframe detect_gop_start h265_picture is_annex_b "
        "length_prefixed_to_annex_b"
    ),
    ".chunks": "asset_chunks pack_groups stream_chunks",
    ".coding": (
        "BFrames Demultiplexed FrameOutput FramePlanes QUALITY VideoFrame VideoTrack decode decode_planes demultiplex "
        "encode has_video_extra mux transcode"
    ),
    ".mp4": "CODECS NotPlainError read_boxes shown_frames",
    ".samples": "SampleBatch Ticks VideoSample",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
