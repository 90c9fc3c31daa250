"""chunkmill: robot recordings as streams of chunks, on Apache Spark.

Import every public name from here. Each is loaded when it is first used, so that importing is quick. Some topics have
a module of their own: ``alignment``, ``catalog_0_27``, ``catalog_server``, ``readers`` (formats), ``training``,
``video``.

>>> import chunkmill
>>> chunkmill.McapReader is chunkmill.readers.McapReader
True
"""

from .engine.lazy_names import lazy_names, name_terminals

__version__ = "0.1.0"

_HOMES = {
    ".engine": "*",
    ".lenses": (
        "ContentPredicate DeriveLens Lens LensOutput LensSet MutateLens OnError OutputMode Quarantine Selector "
        "TIMELINE_TYPES UNITS apply_lenses apply_selector archetypes unit_factor"
    ),
    ".lenses.foxglove": "foxglove_lenses",
    ".lenses.ros2": "at_stamp ros2_lenses",
    ".readers": (
        "BagInfo BagReader ColumnReport ColumnRule EntitySummary FileReport FrameReader Hdf5DatasetInfo Hdf5Demo "
        "Hdf5Reader IndexColumn IndexedReader LeRobotDataset LeRobotReader McapChannelInfo McapChunkInfo "
        "McapCompressionInfo McapInfo McapReader McapSchemaInfo Mp4Reader Mp4TranscodeOptions OrderReport "
        "ParquetReader Rosbag2Reader RrdReader StoreReport StreamingReader TimelineReport inspect struct_encoder"
    ),
    ".readers.lerobot": "LeRobotEpisode",
    ".readers.mcap": "ChannelInfo ChannelTiming McapRecoveryReport",
    ".readers.parquet": "ColumnInfo ParquetInfo",
    "": "alignment catalog_0_27 catalog_server engine lenses readers training video",  # after the module of engine
}

name_terminals(__name__, {".lenses": "LensSet apply_lenses apply_selector"})

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
__all__ = sorted([*__all__, "__version__"])
