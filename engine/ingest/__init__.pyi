# Made of the table in __init__.py: python -m tests.run house stubs
from .checkpoint import home_of as home_of
from .files import BatchResult as BatchResult
from .files import FileResult as FileResult
from .files import LandedFile as LandedFile
from .files import Outcome as Outcome
from .files import file_at as file_at
from .ingest import Ingest as Ingest
from .ingest import MAX_BYTES as MAX_BYTES
from .ingest import MAX_FILES as MAX_FILES
from .landing import Landing as Landing
from .landing import Lister as Lister
from .landing_log import LandingLog as LandingLog
from .monitoring import IngestListener as IngestListener
from .monitoring import IngestLog as IngestLog
from .monitoring import IngestMetrics as IngestMetrics
from .monitoring import IngestStatus as IngestStatus
from .monitoring import MetricsServer as MetricsServer
from .monitoring import Rate as Rate
from .monitoring import StatusReader as StatusReader
from .monitoring import logging_to as logging_to
from .quarantine import FileQuarantine as FileQuarantine
from .quarantine import QuarantinedFile as QuarantinedFile
from .query import IngestQuery as IngestQuery
from .spark_query import LandingReader as LandingReader
from .spark_query import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow

__all__: list[str]
