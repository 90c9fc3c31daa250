"""Query results as DataFrames of DataFusion and Spark.

Each name below is loaded on first use, so that DataFusion is imported only with the first frame.
"""

from ..lazy_names import lazy_names

_HOMES = {
    ".answer": "Answer UserCall calling current_call rows_of",
    ".filters": "ValueFilter conjuncts_of",
    ".explanation": "Explanation SegmentReads explain_frame",
    ".metrics": "MetricsCollector Measuring QueryMetrics query_metrics",
    ".plan": "RowRequest TaskShares",
    ".query_frame": "QueryFrame missing_column",
    ".spark_frame": "NANOSECONDS_SUFFIX SparkColumns rows_for_spark spark_tasks",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
