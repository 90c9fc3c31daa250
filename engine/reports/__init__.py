"""Reports of runs: figures, where the time went, and a page that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names
from .report import EntityReport, RunReport, SizeHistogram, TaskReport

if TYPE_CHECKING:
    from .page import report_panel, save_report

__all__ = ["EntityReport", "RunReport", "SizeHistogram", "TaskReport", "report_panel", "save_report"]

__getattr__, __dir__ = lazy_names(__name__, {".page": ("report_panel", "save_report")})
