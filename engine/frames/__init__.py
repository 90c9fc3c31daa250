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
    from .plan import RowRequest, TaskShares
    from .query_frame import QueryFrame, missing_column
    from .spark_frame import SparkColumns, rows_for_spark, spark_tasks

_HOMES = {
    ".calls": "UserCall calling current_call",
    ".explanation": "Explanation SegmentReads explain_frame",
    ".metrics": "MetricsCollector QueryMetrics query_metrics",
    ".plan": "RowRequest TaskShares",
    ".query_frame": "QueryFrame missing_column",
    ".spark_frame": "SparkColumns rows_for_spark spark_tasks",
}

__all__ = [
    "Explanation",
    "MetricsCollector",
    "QueryFrame",
    "QueryMetrics",
    "RowRequest",
    "SegmentReads",
    "SparkColumns",
    "TaskShares",
    "UserCall",
    "calling",
    "current_call",
    "explain_frame",
    "missing_column",
    "query_metrics",
    "rows_for_spark",
    "spark_tasks",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
