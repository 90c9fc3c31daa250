"""By its name Spark finds this module, and in it the data source ``chunkmill.hdf5``."""

from chunkmill.engine.data_sources import data_source_of

DefaultSource = data_source_of("hdf5")
