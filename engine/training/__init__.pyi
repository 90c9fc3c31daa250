# Made of the table in __init__.py: python -m tests.run house stubs
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
from .frames import samples_frame as samples_frame
from .frames import samples_table as samples_table
from .job import Mixture as Mixture
from .job import PassFigures as PassFigures
from .job import TrainingJob as TrainingJob
from .plan import BlockShuffle as BlockShuffle
from .plan import NoShuffle as NoShuffle
from .plan import SampleShuffle as SampleShuffle
from .plan import ShuffleStrategy as ShuffleStrategy
from .samples import SampleIndex as SampleIndex
from .samples import SampleReader as SampleReader
from .source import DataSource as DataSource
from .spec import SampleSpec as SampleSpec

__all__: list[str]
