"""What a run did: figures, where the time went, and a page that shows it."""

from .histogram import SizeHistogram
from .report import EntityReport, RunReport, TaskReport
from .saving import save_report

__all__ = ["EntityReport", "RunReport", "SizeHistogram", "TaskReport", "save_report"]
