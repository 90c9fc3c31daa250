"""What the library rosbags decodes, as plain Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
from rosbags.typesys.store import Typestore


def rosbag_plain(value: Any, store: Typestore) -> Any:
    """Messages as dicts, arrays as lists; without the constants, which are attributes too."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list):
        return [rosbag_plain(element, store) for element in value]
    if hasattr(value, "__msgtype__"):
        _, fields = store.fielddefs[value.__msgtype__]
        return {name: rosbag_plain(getattr(value, name), store) for name, _ in fields}
    return value
