"""Chunks in a live Rerun viewer. Needs rerun-sdk, the extra ``viewer``; the rest of chunkmill does not."""

from .client import ViewerClient, send_chunks

__all__ = ["ViewerClient", "send_chunks"]
