"""Video streams laid out by groups of pictures, and what tells where these start."""

from .codecs import detect_gop_start, is_annex_b, length_prefixed_to_annex_b
from .rebatching import rebatch_video, rebatch_videos, video_groups

__all__ = [
    "detect_gop_start",
    "is_annex_b",
    "length_prefixed_to_annex_b",
    "rebatch_video",
    "rebatch_videos",
    "video_groups",
]
