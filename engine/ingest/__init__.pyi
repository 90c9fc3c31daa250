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
from .metrics import IngestListener as IngestListener
from .metrics import IngestLog as IngestLog
from .metrics import IngestMetrics as IngestMetrics
from .metrics import IngestStatus as IngestStatus
from .metrics import MetricsServer as MetricsServer
from .metrics import Rate as Rate
from .metrics import StatusReader as StatusReader
from .metrics import logging_to as logging_to
from .quarantine import FileQuarantine as FileQuarantine
from .quarantine import QuarantinedFile as QuarantinedFile
from .query import IngestQuery as IngestQuery
from .spark_query import LandingReader as LandingReader
from .spark_query import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow

__all__: list[str]
