"""Numbered versions that appear whole, and the one loop in which changes are committed.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .versions import RESTORE, VersionFiles, has_files, name_of, publish, unreadable

_HOMES = {".versions": "RESTORE VersionFiles has_files name_of publish unreadable"}

__all__ = ["RESTORE", "VersionFiles", "has_files", "name_of", "publish", "unreadable"]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
