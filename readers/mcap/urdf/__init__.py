"""The decoder ``urdf``: robot descriptions that were recorded as messages, as chunks."""

from __future__ import annotations

from .robots import Robots

__all__ = ["Robots"]
