"""Reading cut and damaged files: everything that is still there, and a report of what is not."""

from __future__ import annotations

from .salvage import plan_salvage, recovery_report
from .section import McapRecoveryReport

__all__ = ["McapRecoveryReport", "plan_salvage", "recovery_report"]
