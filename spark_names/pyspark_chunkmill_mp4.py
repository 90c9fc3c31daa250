"""By its name Spark finds this module, and in it the data source ``chunkmill.mp4``."""

from chunkmill.engine.data_sources import data_source_of

DefaultSource = data_source_of("mp4")
