"""chunkmill: robot recordings as streams of chunks, on Apache Spark.

The file of the package itself: every public name of :mod:`chunkmill.engine`, the readers, lenses and selectors, each
loaded when it is first used, so that importing is quick.

>>> import chunkmill
>>> chunkmill.McapReader is chunkmill.readers.McapReader
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import engine
from .engine.lazy_names import lazy_names, name_terminals

if TYPE_CHECKING:
    from . import lenses, readers
    from .engine import *  # noqa: F403 - whatever its __all__ names
    from .lenses import DeriveLens, Lens, MutateLens, OnError, OutputMode, Quarantine, Selector
    from .readers import (
        ColumnRule,
        IndexColumn,
        LeRobotDataset,
        LeRobotReader,
        McapInfo,
        McapReader,
        ParquetReader,
        RrdReader,
    )

__version__ = "0.1.0"

_HOMES = {
    "": "lenses readers",
    ".engine": engine.__all__,
    ".lenses": "DeriveLens Lens MutateLens OnError OutputMode Quarantine Selector",
    ".readers": "ColumnRule IndexColumn LeRobotDataset LeRobotReader McapInfo McapReader ParquetReader RrdReader",
}

__all__ = [
    "ColumnRule",
    "DeriveLens",
    "IndexColumn",
    "LeRobotDataset",
    "LeRobotReader",
    "Lens",
    "McapInfo",
    "McapReader",
    "MutateLens",
    "OnError",
    "OutputMode",
    "ParquetReader",
    "Quarantine",
    "RrdReader",
    "Selector",
    "__version__",
    "engine",
    "lenses",
    "readers",
]
__all__ += engine.__all__
__all__.sort()

name_terminals(__name__, {".lenses": "LensSet apply_lenses apply_selector"})

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
