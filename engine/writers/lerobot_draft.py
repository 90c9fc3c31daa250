"""A proposal of a specification: what a recording has that can be a feature, as a mapping for YAML."""

from __future__ import annotations

from copy import copy
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..chunk import Chunk, TimelineKind
from ..errors import UsageError
from ..stream import LazyChunkStream

_PICTURES: Final = {"EncodedImage:blob": "image", "Image:buffer": "image", "VideoStream:sample": "video"}
_CLOCKS: Final = ("ros2_timestamp", "timestamp", "message_publish_time", "message_log_time")
"""Timelines, the best one first: stamps of the sensors, then those of the recorder."""
_MOST_NUMBERS: Final = 64


def draft_spec(stream: LazyChunkStream, *, fps: int = 30) -> dict[str, Any]:
    """Propose a specification for recordings such as this one, for :meth:`ExportSpec.of`.

    Images and videos become cameras, short lists of numbers the state, and fields of messages features of their own.
    Which of them is the action, a recording does not say. Its first chunk of each component is looked at.

    Raises ``UsageError`` where there is neither.
    """
    features: dict[str, dict[str, Any]] = {}
    clocks: dict[str, set[str]] = {}
    for chunk in copy(stream):
        lines = [line.name for line in chunk.header.timelines if line.kind is not TimelineKind.SEQUENCE]
        if lines:
            for name, feature in _proposed(chunk).items():
                features.setdefault(name, feature)
                clocks.setdefault(name, set(lines))
    if not features:
        raise UsageError("the recording has neither numbers nor images", hint="chunkmill inspect shows what it has.")
    shared = set.intersection(*clocks.values())  # clocks are not mixed: their zeros may differ by years
    timeline = next((name for name in _CLOCKS if name in shared), min(shared, default=None))
    start = {"fps": fps, "timeline": timeline, "task": "", "episodes": "recording", "minimum": 1.0}
    return {**start, "features": features}


def _proposed(chunk: Chunk) -> dict[str, dict[str, Any]]:
    entity = chunk.entity_path
    name = entity.strip("/").replace("/", ".") or "root"
    features: dict[str, dict[str, Any]] = {}
    for component in chunk.data.components:
        component_name = component.descriptor.component
        source = {"entity": entity, "component": component_name}
        if component_name in _PICTURES:
            features[f"observation.images.{name}"] = {**source, "dtype": _PICTURES[component_name], "rule": "nearest"}
            continue
        for selector, size in _numbers(component.values):
            ending = selector.strip(".").replace(".", "_")
            key = f"observation.{name}{'.' + ending if ending else ''}"
            more = {"selector": selector} if selector else {}
            features[key] = {**source, **more, "dtype": "float32", "shape": [size], "rule": "linear", "tolerance": 0.1}
    return features


def _numbers(values: pa.ListArray) -> list[tuple[str, int]]:
    """Return the selectors that give as many numbers for each row, and how many."""
    inner = values.type.value_type
    if pa.types.is_floating(inner):
        lengths = pc.unique(pc.list_value_length(values).drop_null()).to_pylist()
        return [("", lengths[0])] if len(lengths) == 1 and 0 < lengths[0] <= _MOST_NUMBERS else []
    if not pa.types.is_struct(inner):
        return []
    numbers = [f.name for f in inner if pa.types.is_floating(f.type) and f.name.isidentifier()]
    return [(f".{name}", 1) for name in numbers]
