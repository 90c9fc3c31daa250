"""Samples of video, with and without decoding: the public names of :mod:`chunkmill.engine.video`."""

from .engine.lazy_names import lazy_names

_HOMES = {"..engine.video": "*"}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
