"""The conformance files of the format: attachments, metadata and definitions beside the official library's."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import ReadWarning
from chunkmill.readers.mcap.decoders import FILE_DECODERS
from mcap.records import Attachment, Channel, Message, Metadata
from mcap.stream_reader import StreamReader
from places import DATA

from tests.readers.mcap.mcap_bytes import chunks_of

FILES = sorted((DATA / "mcap" / "conformance").rglob("*.mcap"))


def records(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return list(StreamReader(file, skip_magic=False, validate_crcs=True).records)


def told(path: Path) -> dict[str, list[Chunk]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadWarning)
        chunks = chunks_of(path, decoders=FILE_DECODERS)
    found: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        assert chunk.is_static and chunk.num_rows == 1
        found.setdefault(chunk.entity_path, []).append(chunk)
    return found


def row(chunk: Chunk) -> dict[str, Any]:
    batch = chunk.to_record_batch()
    return {str(c.descriptor): batch.column(str(c.descriptor))[0].as_py() for c in chunk.header.components}


@pytest.mark.parametrize("kind", sorted({path.parent.name for path in FILES}))
def test_what_files_say_of_themselves(kind: str) -> None:
    for path in (path for path in FILES if path.parent.name == kind):
        found, expected = told(path), records(path)
        attachments = [r for r in expected if isinstance(r, Attachment)]
        blobs = [bytes(b) for chunk in found.pop("/__mcap_attachments", []) for b in row(chunk)["data"]]
        assert blobs == [a.data for a in attachments], path
        metadata = {r.name: r.metadata for r in expected if isinstance(r, Metadata)}
        pairs = {
            name: {p["first"]: p["second"] for p in values[0]}
            for chunk in found.pop("/__mcap_metadata", [])
            for name, values in row(chunk).items()
        }
        assert pairs == metadata, path
        properties = {k: v for chunk in found.pop("/__mcap_properties") for k, v in row(chunk).items()}
        messages = Counter(r.channel_id for r in expected if isinstance(r, Message))
        if properties:
            assert properties["McapStatistics:message_count"] == [messages.total()], path
        channels = {r.id: r for r in expected if isinstance(r, Channel)}
        ids = [row(chunk)["McapChannel:id"][0] for chunks in found.values() for chunk in chunks]
        assert {channels[i].topic for i in ids} == {channels[i].topic for i in messages}, path
