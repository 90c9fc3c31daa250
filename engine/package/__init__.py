"""chunkmill: robot recordings as streams of chunks, on Apache Spark.

The file of the package itself: every public name of :mod:`chunkmill.engine`, the readers, lenses and selectors, each
loaded when it is first used, so that importing is quick.

>>> import chunkmill
>>> chunkmill.McapReader is chunkmill.readers.McapReader
True
"""

from .engine.lazy_names import lazy_names, name_terminals

__version__ = "0.1.0"

_HOMES = {
    "": "engine lenses readers",
    ".engine": "*",
    ".lenses": "DeriveLens Lens MutateLens OnError OutputMode Quarantine Selector",
    ".readers": (
        "BagReader ColumnRule IndexColumn LeRobotDataset LeRobotReader McapInfo McapReader Mp4Reader "
        "Mp4TranscodeOptions ParquetReader Rosbag2Reader RrdReader"
    ),
}

name_terminals(__name__, {".lenses": "LensSet apply_lenses apply_selector"})

__all__, __getattr__, __dir__ = lazy_names(__name__, _HOMES)
__all__ = sorted([*__all__, "__version__"])
