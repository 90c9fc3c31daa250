"""Tools with which agents read a lake, and the server that offers them over the Model Context Protocol.

Each name below is loaded on first use.
"""

from ..lazy_names import lazy_names

_HOMES = {".server": "CallLimits lake_server"}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
