"""The decoder ``urdf``: robot descriptions that were recorded as messages, as chunks."""

from __future__ import annotations

from .descriptions import Descriptions, description_channels

__all__ = ["Descriptions", "description_channels"]
