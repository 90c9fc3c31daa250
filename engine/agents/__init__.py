"""A lake for agents: tools that read it, and the server that offers them over the Model Context Protocol.

The names below are loaded when they are first used.
"""

from ..lazy_names import lazy_names

_HOMES = {".server": "CallLimits lake_server"}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
