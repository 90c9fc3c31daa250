# Made of the table in __init__.py: python -m tests.run house stubs
from .column_decoders import ColumnDecoder as ColumnDecoder
from .column_decoders import DecodeRequest as DecodeRequest
from .column_decoders import FieldBatch as FieldBatch
from .column_decoders import IndexValue as IndexValue
from .datasets import IterableSamples as IterableSamples
from .datasets import Loader as Loader
from .datasets import MapSamples as MapSamples
from .datasets import collated as collated
from .datasets import loader as loader
from .fields import Field as Field
from .fields import FixedRateSampling as FixedRateSampling
from .fields import ImageDecoder as ImageDecoder
from .fields import NumericDecoder as NumericDecoder
from .fields import RowSampling as RowSampling
from .fields import TextDecoder as TextDecoder
from .fields import VideoFrameDecoder as VideoFrameDecoder
from .job import Mixture as Mixture
from .job import TrainingJob as TrainingJob
from .manifest import Manifest as Manifest
from .manifest import ManifestMeta as ManifestMeta
from .plan import BlockShuffle as BlockShuffle
from .plan import NoShuffle as NoShuffle
from .plan import SampleShuffle as SampleShuffle
from .plan import ShuffleStrategy as ShuffleStrategy
from .rerun_datasets import RerunIterableDataset as RerunIterableDataset
from .rerun_datasets import RerunMapDataset as RerunMapDataset
from .samples import SampleIndex as SampleIndex
from .samples import SampleReader as SampleReader
from .samples import SegmentMetadata as SegmentMetadata
from .source import DataSource as DataSource
from .yuv import PooledBatchCollator as PooledBatchCollator
from .yuv import Yuv420Collator as Yuv420Collator
from .yuv import Yuv420Frame as Yuv420Frame

__all__: list[str]
