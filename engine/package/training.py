"""Samples for training, out of recordings: the public names of :mod:`chunkmill.engine.training`."""

from .engine.lazy_names import lazy_names

_HOMES = {"..engine.training": "*"}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
