"""Readers: recordings as streams of chunks.

Names are loaded when they are first used, so that a program that reads one format does not load the others.
"""

from ..engine.lazy_names import lazy_names

_HOMES = {
    ".bag": "BagInfo BagReader",
    ".formats": (
        "FORMATS Format STORE all_options all_suffixes checked_options dataset_format detect_format format_of_name "
        "inspect is_rrd lands_whole register rrd_suffix stem_of unregister"
    ),
    ".hdf5": "Hdf5DatasetInfo Hdf5Demo Hdf5Reader",
    ".inspection": "ColumnReport EntitySummary FileReport OrderReport StoreReport TimelineReport",
    ".lerobot": "LeRobotDataset LeRobotReader",
    ".mcap": "McapInfo McapReader",
    ".mcap.decoding.structs": "struct_encoder",
    ".mcap.info": "McapChannelInfo McapChunkInfo McapCompressionInfo McapSchemaInfo",
    ".mp4": "Mp4Reader Mp4TranscodeOptions",
    ".parquet": "ColumnRule IndexColumn ParquetReader",
    ".recording_file": "Episode FileSource FrameReader IndexedReader Option RecordingFile StreamingReader option",
    ".rosbag2": "Rosbag2Reader",
    ".rrd": "RrdReader",
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
