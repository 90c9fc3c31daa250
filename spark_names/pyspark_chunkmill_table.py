"""By its name Spark finds this module, and in it the data source ``chunkmill.table``."""

from chunkmill.engine.data_sources import data_source_of

DefaultSource = data_source_of("table")
