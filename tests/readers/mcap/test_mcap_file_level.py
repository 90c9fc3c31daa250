"""The chunks about a file as a whole: what they hold, where they come, and what is read for them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.engine.stream import LazyChunkStream
from chunkmill.readers import McapReader
from chunkmill.readers.mcap import McapSource
from chunkmill.readers.mcap.decoders import McapOptions
from chunkmill.readers.mcap.file import McapFile

from tests.readers.mcap.mcap_bytes import (
    MAGIC,
    ChunkOf,
    attachment,
    channel,
    chunk_of,
    chunks_of,
    header,
    mcap,
    message,
    record,
    schema,
    statistics,
    text,
    written,
)

FILE_LEVEL = ["attachments", "metadata", "recording_info", "schema", "stats"]
DEFINITIONS = (schema(1, "S", "jsonschema", b"{}"), channel(1, "/a", "json", 1), channel(2, "/b//", "cbor"))
ARCHETYPES = "rerun.archetypes"
PAIRS = pa.list_(
    pa.field(
        "item",
        pa.struct([pa.field("first", pa.string(), nullable=False), pa.field("second", pa.string(), nullable=False)]),
        nullable=False,
    )
)
BLOB = pa.list_(pa.field("item", pa.uint8(), nullable=False))


def metadata(name: str, **pairs: str) -> bytes:
    body = b"".join(text(k) + text(v) for k, v in pairs.items())
    return record(12, text(name) + struct.pack("<I", len(body)) + body)


def attachment_index(offset: int, length: int) -> bytes:
    return record(10, struct.pack("<QQQQQ", offset, length, 1, 2, 0) + text("name") + text("text/plain"))


def metadata_index(offset: int, length: int, name: str) -> bytes:
    return record(13, struct.pack("<QQ", offset, length) + text(name))


def counted(attachments: int = 0, records: int = 0, counts: dict[int, int] | None = None, chunks: int = 1) -> bytes:
    """A Statistics record of a recording from 5 to 9 ns."""
    counts = {1: 2} if counts is None else counts
    pairs = b"".join(struct.pack("<HQ", *pair) for pair in counts.items())
    head = struct.pack("<QHIIIIQQI", sum(counts.values()), 1, 2, attachments, records, chunks, 5, 9, len(pairs))
    return record(11, head + pairs)


RUN = chunk_of([*DEFINITIONS, message(1, 5), message(1, 9)])


def with_extras(extras: Sequence[bytes], stats: bytes | None = None, indexed: Sequence[bytes] | None = None) -> bytes:
    """A file of ``extras`` (attachments and metadata records) before one chunk, indexed unless told otherwise."""
    at, found = len(MAGIC + header()), []
    for extra in extras:
        entry = attachment_index(at, len(extra)) if extra[0] == 9 else metadata_index(at, len(extra), "?")
        found.append(entry)
        at += len(extra)
    attachments = sum(extra[0] == 9 for extra in extras)
    stats = counted(attachments, len(extras) - attachments) if stats is None else stats
    return mcap([*extras, RUN], [*DEFINITIONS, stats, *(found if indexed is None else indexed)])


def names(chunk: Chunk) -> list[str]:
    return [str(c.descriptor) for c in chunk.header.components]


def value(chunk: Chunk, name: str) -> object:
    (row,) = chunk.to_record_batch().column(name).to_pylist()
    return row


class TestWhatTheyHold:
    def test_recording_info(self, tmp_path: Path) -> None:
        (chunk,) = chunks_of(written(tmp_path, with_extras([])), decoders=["recording_info"])
        assert (chunk.entity_path, chunk.is_static, chunk.num_rows) == ("/__mcap_properties", True, 1)
        assert names(chunk) == ["RecordingInfo:start_time"]
        assert value(chunk, "RecordingInfo:start_time") == [5]
        (column,) = chunk.header.components
        assert column.descriptor.archetype == f"{ARCHETYPES}.RecordingInfo"
        assert column.descriptor.component_type == "rerun.components.Timestamp"

    def test_stats(self, tmp_path: Path) -> None:
        (chunk,) = chunks_of(written(tmp_path, with_extras([], counted(0, 0, {2: 1, 1: 2**40}))), decoders=["stats"])
        batch = chunk.to_record_batch()
        found = {n.removeprefix("McapStatistics:"): batch.column(n)[0].as_py() for n in names(chunk)}
        assert found == {
            "attachment_count": [0],
            "channel_count": [2],
            "channel_message_counts": [
                [{"channel_id": 1, "message_count": 2**40}, {"channel_id": 2, "message_count": 1}]
            ],
            "chunk_count": [1],
            "message_count": [2**40 + 1],
            "message_end_time": [9],
            "message_start_time": [5],
            "metadata_count": [0],
            "schema_count": [1],
        }
        assert batch.schema.field("McapStatistics:message_count").type == pa.list_(pa.uint64())
        assert batch.schema.field("McapStatistics:message_end_time").type == pa.list_(pa.int64())

    def test_schema(self, tmp_path: Path) -> None:
        first, second = chunks_of(written(tmp_path, with_extras([], counted(0, 0, {2: 1, 1: 1}))), decoders=["schema"])
        assert (first.entity_path, second.entity_path) == ("/a", "/b")
        batch = first.to_record_batch()
        assert {n: batch.column(n)[0].as_py() for n in names(first)} == {
            "McapChannel:id": [1],
            "McapChannel:message_encoding": ["json"],
            "McapChannel:metadata": [[]],
            "McapChannel:topic": ["/a"],
            "McapSchema:data": [list(b"{}")],
            "McapSchema:encoding": ["jsonschema"],
            "McapSchema:id": [1],
            "McapSchema:name": ["S"],
        }
        assert batch.schema.field("McapChannel:metadata").type == pa.list_(PAIRS)
        assert batch.schema.field("McapSchema:data").type == pa.list_(BLOB)
        assert names(second) == [n for n in names(first) if n.startswith("McapChannel")]

    def test_channels_without_messages_have_no_schema_chunk(self, tmp_path: Path) -> None:
        chunks = chunks_of(written(tmp_path, with_extras([])), decoders=["schema"])
        assert [c.entity_path for c in chunks] == ["/a"]

    def test_topics_are_selected_for_schemas_only(self, tmp_path: Path) -> None:
        path = written(tmp_path, with_extras([attachment(b"x"), metadata("m", k="v")]))
        chunks = chunks_of(path, decoders=FILE_LEVEL, exclude_topic_regex=["a"])
        assert [c.entity_path for c in chunks] == [
            "/__mcap_attachments",
            "/__mcap_metadata",
            "/__mcap_properties",
            "/__mcap_properties",
        ]

    def test_metadata(self, tmp_path: Path) -> None:
        extras = [metadata("b", k="1", z="2"), metadata("a/ ä"), metadata("b", a="3", k="4")]
        with pytest.warns(ReadWarning, match="records named 'b' give 'k' twice: '4' replaces '1'"):
            (chunk,) = chunks_of(written(tmp_path, with_extras(extras)), decoders=["metadata"])
        assert (chunk.entity_path, names(chunk)) == ("/__mcap_metadata", ["a/ ä", "b"])
        pairs = [{"first": "a", "second": "3"}, {"first": "k", "second": "4"}, {"first": "z", "second": "2"}]
        assert value(chunk, "b") == [pairs]
        assert value(chunk, "a/ ä") == [[]]
        assert {c.descriptor.archetype for c in chunk.header.components} == {"McapMetadata"}

    def test_nothing_is_said_of_metadata_that_rosbag2_writes_twice(self, tmp_path: Path) -> None:
        extras = [metadata("rosbag2", serialized_metadata="0"), metadata("rosbag2", serialized_metadata="1")]
        (chunk,) = chunks_of(written(tmp_path, with_extras(extras)), decoders=["metadata"])
        assert value(chunk, "rosbag2") == [[{"first": "serialized_metadata", "second": "1"}]]

    def test_attachments(self, tmp_path: Path) -> None:
        (chunk,) = chunks_of(
            written(tmp_path, with_extras([attachment(b"abc"), attachment(b"")])), decoders=FILE_LEVEL[:1]
        )
        assert (chunk.entity_path, names(chunk)) == ("/__mcap_attachments", ["data", "media_type", "metadata"])
        assert value(chunk, "data") == [[97, 98, 99], []]
        assert value(chunk, "media_type") == ["text/plain", "text/plain"]
        first, second = value(chunk, "metadata")  # type: ignore[misc]
        assert [tuple(pair.values()) for pair in first] == [
            ("name", "name"),
            ("media_type", "text/plain"),
            ("log_time", "1"),
            ("create_time", "2"),
            ("data_size", "3"),
            ("offset", str(len(MAGIC + header()))),
        ]
        assert second[4] == {"first": "data_size", "second": "0"}
        assert chunk.to_record_batch().schema.field("data").type == pa.list_(BLOB)
        assert {c.descriptor.archetype for c in chunk.header.components} == {"McapAttachment"}


class TestWhereTheyCome:
    def test_first_and_in_order(self, tmp_path: Path) -> None:
        path = written(tmp_path, with_extras([metadata("m"), attachment(b"x")]))
        chunks = chunks_of(path, decoders=[*FILE_LEVEL, "raw", "urdf"])
        assert [(c.entity_path, names(c)[0]) for c in chunks] == [
            ("/__mcap_attachments", "data"),
            ("/__mcap_metadata", "m"),
            ("/__mcap_properties", "RecordingInfo:start_time"),
            ("/a", "McapChannel:id"),
            ("/__mcap_properties", "McapStatistics:attachment_count"),
            ("/a", names(chunks[-1])[0]),
        ]

    def test_the_same_for_any_number_of_splits(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = [chunk_of([message(1, t)]) for t in range(6)]
        extra = attachment(b"x")
        index = attachment_index(len(MAGIC + header()), len(extra))
        stats = counted(1, 0, {1: 6}, chunks=6)
        path = written(tmp_path, mcap([extra, *DEFINITIONS, *runs], [*DEFINITIONS, stats, index]))

        def read(split_bytes: int) -> list[tuple[str, str, int]]:
            monkeypatch.setattr("chunkmill.readers.mcap.plan.SPLIT_BYTES", split_bytes)
            source = McapSource(str(path), McapOptions.checked(decoders=[*FILE_LEVEL, "raw"]))
            splits = source.splits()
            assert (len(splits) > 1) == (split_bytes < 100)
            found = [(c.entity_path, names(c)[0], c.num_rows) for split in splits for c in source.read(split)]
            return [chunk for chunk in found if chunk[1] != "McapMessage:data"] + [
                (entity, name, sum(c[2] for c in found if c[1] == name))
                for entity, name in dict.fromkeys(c[:2] for c in found if c[1] == "McapMessage:data")
            ]

        assert read(10) == read(50) == read(10**6)
        assert next(c[1] for c in read(10)) == "data"

    def test_behind_the_messages_without_a_summary(self, tmp_path: Path) -> None:
        extras = [metadata("m", k="v"), attachment(b"x")]
        path = written(tmp_path, mcap([*extras, RUN, chunk_of([message(1, 3)])]))
        chunks = chunks_of(path, decoders=[*FILE_LEVEL, "raw"])
        assert [names(c)[0] for c in chunks] == [
            "McapMessage:data",
            "data",
            "m",
            "RecordingInfo:start_time",
            "McapChannel:id",
            "McapStatistics:attachment_count",
        ]
        stats = chunks[-1].to_record_batch()
        assert stats.column("McapStatistics:message_count").to_pylist() == [[3]]
        assert stats.column("McapStatistics:message_start_time").to_pylist() == [[3]]
        assert stats.column("McapStatistics:chunk_count").to_pylist() == [[2]]
        assert value(chunks[3], "RecordingInfo:start_time") == [3]

    @pytest.mark.parametrize("stats", [b"", counted(1, 1)])
    def test_what_the_summary_does_not_index_is_found_all_the_same(self, tmp_path: Path, stats: bytes) -> None:
        path = written(tmp_path, with_extras([metadata("m", k="v"), attachment(b"x")], stats, indexed=[]))
        chunks = chunks_of(path, decoders=["attachments", "metadata", "raw"])
        assert [names(c)[0] for c in chunks] == ["McapMessage:data", "data", "m"]

    def test_unindexed_attachments_of_a_large_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("chunkmill.readers.mcap.plan.SPLIT_BYTES", 10)
        path = written(tmp_path, with_extras([attachment(b"x")], indexed=[]))
        assert [names(c)[0] for c in chunks_of(path, decoders=["attachments"])] == ["data"]

    def test_a_summary_without_statistics(self, tmp_path: Path) -> None:
        path = written(tmp_path, mcap([RUN], DEFINITIONS))
        with pytest.warns(ReadWarning, match="no Statistics record"):
            chunks = chunks_of(path, decoders=["recording_info", "stats"])
        assert [(c.entity_path, c.num_rows, names(c)) for c in chunks] == [("/__mcap_properties", 1, [])]

    def test_statistics_that_count_no_channels(self, tmp_path: Path) -> None:
        path = written(tmp_path, mcap([RUN], [*DEFINITIONS, statistics(2, 2, 1)]))
        assert [c.entity_path for c in chunks_of(path, decoders=["schema"])] == ["/a"]


class TestWhatIsRead:
    def test_no_message_for_the_file_level_alone(self, tmp_path: Path) -> None:
        runs: list[ChunkOf] = [chunk_of([*DEFINITIONS, message(1, 5), message(1, 9)], data=b"no zstd")]
        path = written(tmp_path, mcap(runs, [*DEFINITIONS, counted()]))
        assert len(chunks_of(path, decoders=FILE_LEVEL)) == 3
        with pytest.raises(ReadError):
            chunks_of(path, decoders=[*FILE_LEVEL, "raw"])

    def test_the_data_of_an_attachment_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = written(tmp_path, with_extras([attachment(bytes(100_000))]))
        read = [0]
        plain_at, plain_into = McapFile.read_at, McapFile.read_into

        def read_at(file: McapFile, offset: int, size: int, **rest: object) -> bytes:
            read[0] += size
            return plain_at(file, offset, size, **rest)  # type: ignore[arg-type]

        def read_into(file: McapFile, offset: int, out: memoryview, **rest: object) -> None:
            read[0] += len(out)
            plain_into(file, offset, out, **rest)  # type: ignore[arg-type]

        monkeypatch.setattr(McapFile, "read_at", read_at)
        monkeypatch.setattr(McapFile, "read_into", read_into)
        chunks_of(path, decoders=[*FILE_LEVEL, "raw"])
        assert 100_000 < read[0] < 110_000

    def test_nothing_that_a_filter_drops(self, tmp_path: Path) -> None:
        path = written(tmp_path, with_extras([attachment(b"x", crc=1), metadata("m")]))
        with pytest.raises(ReadError, match="CRC of an attachment"):
            McapReader(path, decoders=["attachments"]).stream().to_chunks()
        kept = McapReader(path, decoders=FILE_LEVEL).stream().filter(content="/__mcap_metadata")
        assert isinstance(kept, LazyChunkStream)
        assert [names(c) for c in kept.to_chunks()] == [["m"]]


class TestDamage:
    def test_a_wrong_crc(self, tmp_path: Path) -> None:
        path = written(tmp_path, with_extras([attachment(b"abc", crc=7)]))
        for decoders in (["attachments"], ["raw"]):
            with pytest.raises(ReadError, match="the CRC of an attachment") as caught:
                chunks_of(path, decoders=decoders)
            assert caught.value.offset == len(MAGIC + header())

    @pytest.mark.parametrize("shift", [-1, 1, 10**6])
    def test_an_index_that_points_elsewhere(self, tmp_path: Path, shift: int) -> None:
        at = len(MAGIC + header())
        for extra, entry in (
            (attachment(b"x"), attachment_index(at + shift, len(attachment(b"x")))),
            (metadata("m"), metadata_index(at + shift, len(metadata("m")), "m")),
        ):
            with pytest.raises(ReadError):
                chunks_of(written(tmp_path, with_extras([extra], indexed=[entry])), decoders=FILE_LEVEL)

    def test_more_attachments_than_one_chunk_can_hold(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("chunkmill.readers.mcap.file_level.MAX_ATTACHMENTS", 5)
        path = written(tmp_path, with_extras([attachment(b"abc"), attachment(b"def")]))
        with pytest.raises(ReadError, match=r"have 6 bytes in total, more than the limit of 5 .* out of decoders="):
            chunks_of(path, decoders=["attachments"])

    def test_a_metadata_record_that_is_cut(self, tmp_path: Path) -> None:
        path = written(tmp_path, with_extras([record(12, text("m") + struct.pack("<I", 99))]))
        with pytest.raises(ReadError, match="a Metadata record is malformed"):
            chunks_of(path, decoders=["metadata"])
