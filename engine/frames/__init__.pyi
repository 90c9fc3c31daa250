# Made of the table in __init__.py: python -m tests.run house stubs
from .answer import Answer as Answer
from .answer import UserCall as UserCall
from .answer import calling as calling
from .answer import current_call as current_call
from .answer import rows_of as rows_of
from .filters import ValueFilter as ValueFilter
from .filters import conjuncts_of as conjuncts_of
from .explanation import Explanation as Explanation
from .explanation import SegmentReads as SegmentReads
from .explanation import explain_frame as explain_frame
from .metrics import MetricsCollector as MetricsCollector
from .metrics import Measuring as Measuring
from .metrics import QueryMetrics as QueryMetrics
from .metrics import query_metrics as query_metrics
from .plan import RowRequest as RowRequest
from .plan import TaskShares as TaskShares
from .query_frame import QueryFrame as QueryFrame
from .query_frame import missing_column as missing_column
from .spark_frame import NANOSECONDS_SUFFIX as NANOSECONDS_SUFFIX
from .spark_frame import SparkColumns as SparkColumns
from .spark_frame import rows_for_spark as rows_for_spark
from .spark_frame import spark_tasks as spark_tasks

__all__: list[str]
