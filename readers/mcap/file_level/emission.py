"""The chunks of the file level, in their order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from typing import Final

from ....engine.chunk import Chunk
from ....engine.errors import ReadWarning
from ..file import McapFile
from ..options import McapOptions
from .attachments import attachments_chunk
from .definitions import schema_chunks
from .facts import FileFacts
from .metadata import metadata_chunk
from .static import ATTACHMENTS_ENTITY, METADATA_ENTITY, PROPERTIES
from .statistics import recording_info_chunk, statistics_chunk

FILE_LEVEL: Final = ("attachments", "metadata", "recording_info", "schema", "stats")
"""The decoders of the file level, in the order of their chunks."""


def file_level_chunks(
    file: McapFile,
    decoders: Collection[str],
    facts: FileFacts,
    options: McapOptions,
    wanted: Callable[[str], bool],
) -> Iterator[Chunk]:
    """The chunks of ``decoders`` at the entities that are ``wanted``. Raises ``ReadError`` on damage."""
    if "attachments" in decoders and wanted(ATTACHMENTS_ENTITY):
        yield from _if_any(attachments_chunk(file, facts.attachments))
    if "metadata" in decoders and wanted(METADATA_ENTITY):
        yield from _if_any(metadata_chunk(file, facts.metadata))
    if "recording_info" in decoders and wanted(PROPERTIES):
        yield recording_info_chunk(facts.statistics)
    if "schema" in decoders:
        yield from (chunk for chunk in schema_chunks(facts, options) if wanted(chunk.entity_path))
    if "stats" in decoders and wanted(PROPERTIES):
        if facts.statistics is None:
            _warn_of_statistics(file.path)
        else:
            yield statistics_chunk(facts.statistics)


def _if_any(chunk: Chunk | None) -> Iterator[Chunk]:
    if chunk is not None:
        yield chunk


def _warn_of_statistics(path: str) -> None:
    warnings.warn(
        f"{path}: the summary has no Statistics record; the decoders stats and recording_info have nothing to tell",
        ReadWarning,
        stacklevel=2,
    )
