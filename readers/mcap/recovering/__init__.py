"""Reading cut and damaged files: everything that is still there, and a report of what is not."""

from __future__ import annotations

from .report import McapRecoveryReport
from .salvage import plan_salvage, recovery_report

__all__ = ["McapRecoveryReport", "plan_salvage", "recovery_report"]
