# Made of the table in __init__.py: python -m tests.run house stubs
from .indexes import SearchIndexes as SearchIndexes
from .metrics import AnyComponentColumn as AnyComponentColumn
from .metrics import IndexConfig as IndexConfig
from .metrics import IndexProperties as IndexProperties
from .metrics import IndexingResult as IndexingResult
from .metrics import VectorDistanceMetric as VectorDistanceMetric
from .metrics import VectorDistanceMetricLike as VectorDistanceMetricLike
from .searching import DatasetSearch as DatasetSearch

__all__: list[str]
