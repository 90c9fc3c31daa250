# Made of the table in __init__.py: python -m tests.run house stubs
from ..chunk import ComponentColumnDescriptor as ComponentColumnDescriptor
from ..chunk import ComponentColumnSelector as ComponentColumnSelector
from ..chunk import IndexColumnDescriptor as IndexColumnDescriptor
from ..chunk import IndexColumnSelector as IndexColumnSelector
from ..chunk import Schema as Schema
from ..errors import AlreadyExistsError as AlreadyExistsError
from ..errors import NotFoundError as NotFoundError
from ..recordings import is_catalog as is_catalog
from ..stream import ContentFilter as ContentFilter
from .blueprints import Recording as Recording
from .client import CatalogClient as CatalogClient
from .client import Queried as Queried
from .client import VersionInfo as VersionInfo
from .client import chosen_segments as chosen_segments
from .client import one_dataset as one_dataset
from .client import queried_at as queried_at
from .dataset import DatasetEntry as DatasetEntry
from .dataset import DatasetView as DatasetView
from .deprecated import TableInsertMode as TableInsertMode
from .entries import EntryId as EntryId
from .entries import EntryKind as EntryKind
from .entry_log import Entry as Entry
from .layers import OnDuplicateSegmentLayer as OnDuplicateSegmentLayer
from .maintenance import CatalogFault as CatalogFault
from .registration import RegistrationHandle as RegistrationHandle
from .registration import RegistrationResult as RegistrationResult
from .registration import SegmentRegistrationResult as SegmentRegistrationResult
from .row_view import IndexValuesLike as IndexValuesLike
from .search import IndexConfig as IndexConfig
from .search import IndexProperties as IndexProperties
from .search import IndexingResult as IndexingResult
from .search import VectorDistanceMetric as VectorDistanceMetric
from .search import VectorDistanceMetricLike as VectorDistanceMetricLike
from .server import Server as Server
from .table import TableEntry as TableEntry

__all__: list[str]
