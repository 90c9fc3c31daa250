"""A server of Rerun's catalog protocol over a lake: the public names of :mod:`chunkmill.engine.catalog.server`."""

from .engine.lazy_names import lazy_names

_HOMES = {"..engine.catalog.server": "*"}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
