"""What a LeRobot dataset is known by."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

INFO: Final = "meta/info.json"
"""The file that describes a dataset."""


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is a LeRobot dataset, by its ``meta/info.json``."""
    return (Path(path) / INFO).is_file()
