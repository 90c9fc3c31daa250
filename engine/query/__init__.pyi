# Made of the table in __init__.py: python -m tests.run house stubs
from .episodes import EPISODES_HINT as EPISODES_HINT
from .episodes import episodes_table as episodes_table
from .episodes import in_nanoseconds as in_nanoseconds
from .episodes import segment_column as segment_column
from .groups import GROUP_BYTES as GROUP_BYTES
from .groups import SegmentGroup as SegmentGroup
from .groups import grouped as grouped
from .layers import HeldRecording as HeldRecording
from .layers import SegmentLayers as SegmentLayers
from .layers import queried_recordings as queried_recordings
from .query import AnswerColumns as AnswerColumns
from .query import ComponentFilter as ComponentFilter
from .query import IndexValues as IndexValues
from .query import Query as Query
from .query import QuerySemantics as QuerySemantics
from .query import RowFilter as RowFilter
from .query import SEGMENT_ID as SEGMENT_ID
from .query import SegmentFigures as SegmentFigures
from .query import no_column as no_column
from .rows import BATCH_BYTES as BATCH_BYTES
from .rows import SegmentRows as SegmentRows
from .segment_chunks import SegmentChunks as SegmentChunks
from .segment_chunks import Windows as Windows
from .segment_chunks import lacking_guarantee as lacking_guarantee
from .segment_chunks import satisfiable as satisfiable
from .segment_chunks import segment_guarantee as segment_guarantee
from .segment_chunks import windows_of as windows_of
from .events import SegmentEvents as SegmentEvents
from .events import StaticValues as StaticValues
from .segments import LayerChunks as LayerChunks
from .segments import OpenSegment as OpenSegment
from .segments import PIECE_BYTES as PIECE_BYTES
from .segments import QueriedSegment as QueriedSegment
from .segments import SegmentSource as SegmentSource
from .segments import StoreSource as StoreSource

__all__: list[str]
