"""The catalog by the names of Rerun 0.27: the public names of :mod:`chunkmill.engine.catalog.v0_27`."""

from .engine.lazy_names import lazy_names

_HOMES = {"..engine.catalog.v0_27": "*"}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
