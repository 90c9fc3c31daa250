"""Answers of queries as frames of DataFusion and Spark.

The names below are loaded when they are first used, so that DataFusion is not imported before a frame is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .calls import UserCall, calling, current_call
    from .explanation import Explanation, SegmentReads, explain_frame
    from .metrics import MetricsCollector, QueryMetrics, query_metrics
    from .query_frame import QueryFrame

_HOMES = {
    ".calls": "UserCall calling current_call",
    ".explanation": "Explanation SegmentReads explain_frame",
    ".metrics": "MetricsCollector QueryMetrics query_metrics",
    ".query_frame": "QueryFrame",
}

__all__ = [
    "Explanation",
    "MetricsCollector",
    "QueryFrame",
    "QueryMetrics",
    "SegmentReads",
    "UserCall",
    "calling",
    "current_call",
    "explain_frame",
    "query_metrics",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
