# Made of the table in __init__.py: python -m tests.run house stubs
from .curation import DatasetCuration as DatasetCuration
from .curation import label_schema as label_schema
from .curation import segments_in as segments_in
from .finding import ValueSearch as ValueSearch
from .indexes import SearchIndexes as SearchIndexes
from .searching import AnyComponentColumn as AnyComponentColumn
from .searching import DatasetSearch as DatasetSearch
from .searching import IndexConfig as IndexConfig
from .searching import IndexProperties as IndexProperties
from .searching import IndexingResult as IndexingResult
from .searching import VectorDistanceMetric as VectorDistanceMetric
from .searching import VectorDistanceMetricLike as VectorDistanceMetricLike

__all__: list[str]
