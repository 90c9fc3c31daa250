"""Chunks in a live Rerun viewer. Needs rerun-sdk, the extra ``viewer``; all else of chunkmill does without."""

from .client import ViewerClient, send_chunks

__all__ = ["ViewerClient", "send_chunks"]
