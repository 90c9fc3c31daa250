"""Video streams laid out by groups of pictures."""

from .rebatching import rebatch_video, rebatch_videos, video_groups

__all__ = ["rebatch_video", "rebatch_videos", "video_groups"]
