"""Video streams laid out by groups of pictures."""

from __future__ import annotations

def rebatch_videos(chunks, settings): return chunks
