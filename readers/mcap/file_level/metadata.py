"""The decoder ``metadata``: all Metadata records of a file as one chunk."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from mcap.records import Metadata

from ....engine.chunk import Chunk, ComponentDescriptor
from ....engine.errors import ReadWarning
from ....engine.limits import MAX_METADATA, check_limit
from ..file import McapFile
from ..layout import Summary
from ..records import HEAD, METADATA, Place, parse_record
from .decoder import PAIRS, FileDecoder, check_place, pairs, static_chunk
from .facts import FileFacts

_ENTITY: Final = "/__mcap_metadata"
_WRITTEN_TWICE: Final = ("rosbag2", "serialized_metadata")
"""rosbag2 writes its metadata when it opens a file, empty, and again when it closes it: only the second counts."""


class MetadataRecords(FileDecoder):
    """The decoder ``metadata``."""

    name = "metadata"
    entity = _ENTITY
    opcode = METADATA

    @classmethod
    def is_told_by(cls, summary: Summary) -> bool:
        """Whether the summary says where all records are."""
        statistics = summary.statistics
        return statistics is not None and statistics.metadata_count == len(summary.metadata)

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:
        """One chunk, if there are any records."""
        if facts.metadata:
            yield _metadata_chunk(file, facts.metadata)


def _metadata_chunk(file: McapFile, places: Sequence[Place]) -> Chunk:
    """One column for each name, its pairs sorted by key.

    Records of one name are merged: of two values of a key the later stays, with a ``ReadWarning``.
    """
    merged: dict[str, dict[str, str]] = {}
    left = MAX_METADATA
    for place in places:
        left -= check_limit(place.length, left, path=file.path, offset=place.offset, what="the length of metadata")
        record = read_metadata(file, place)
        known = merged.setdefault(record.name, {})
        for key in sorted(record.metadata.keys() & known.keys()):
            if known[key] != record.metadata[key] and (record.name, key) != _WRITTEN_TWICE:
                _warn(file.path, record.name, key, known[key], record.metadata[key])
        known.update(record.metadata)
    return static_chunk(
        _ENTITY,
        [(_described(name), pa.array([pairs(dict(sorted(values.items())))], PAIRS)) for name, values in merged.items()],
    )


def read_metadata(file: McapFile, place: Place) -> Metadata:
    """Parse the Metadata record at ``place``. Raises ``ReadError`` when there is none."""
    check_place(file, place, METADATA)
    size = place.length - HEAD.size
    body = file.read_at(place.offset + HEAD.size, size, what="a metadata record")
    record: Metadata = parse_record(Metadata.read, METADATA, body, path=file.path, offset=place.offset)
    return record


def _described(name: str) -> ComponentDescriptor:
    return ComponentDescriptor(name, archetype="McapMetadata", component_type="rerun.components.KeyValuePairs")


def _warn(path: str, name: str, key: str, old: str, new: str) -> None:
    warnings.warn(
        f"{path}: metadata records named {name!r} give {key!r} twice: {_short(new)} replaces {_short(old)}",
        ReadWarning,
        stacklevel=4,
    )


def _short(value: str) -> str:
    return repr(value if len(value) <= 60 else value[:57] + "...")
