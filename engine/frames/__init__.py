"""Answers of queries as frames of DataFusion and Spark.

The names below are loaded when they are first used, so that DataFusion is not imported before a frame is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .metrics import MetricsCollector, QueryMetrics, query_metrics
    from .query_frame import QueryFrame

_HOMES = {
    ".metrics": "MetricsCollector QueryMetrics query_metrics",
    ".query_frame": "QueryFrame",
}

__all__ = [
    "MetricsCollector",
    "QueryFrame",
    "QueryMetrics",
    "query_metrics",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
