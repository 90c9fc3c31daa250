"""McapReader: its arguments, and what becomes of channels and messages."""

from __future__ import annotations

import pickle
import struct
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.engine.chunk import Chunk, parse_entity_path
from chunkmill.engine.errors import ReadWarning, SourceMissingError
from chunkmill.readers import McapReader, StreamingReader
from chunkmill.readers.mcap import McapSource

from tests.conftest import DATA
from tests.readers.mcap.mcap_bytes import (
    channel,
    chunk_of,
    chunks_of,
    mcap,
    message,
    schema,
    statistics,
    written,
)

DEMO = DATA / "demo.mcap"
SCHEMA = b"int32 x\nstring s\n"
ALL = (
    '["attachments", "foxglove", "metadata", "protobuf", "raw", "recording_info", "ros2_reflection", "ros2msg", '
    '"schema", "stats", "urdf"]'
)


def cdr(x: int, s: str) -> bytes:
    return b"\0\1\0\0" + struct.pack("<iI", x, len(s) + 1) + s.encode() + b"\0"


def components(chunks: list[Chunk]) -> list[tuple[str, str, int]]:
    return [(c.entity_path, str(k), c.num_rows) for c in chunks for k in [h.descriptor for h in c.header.components]]


class TestArguments:
    def test_the_file_must_exist(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="MCAP file not found"):
            McapReader(tmp_path / "missing.mcap")
        with pytest.raises(SourceMissingError):
            McapReader(str(tmp_path / "missing.mcap"))

    @pytest.mark.parametrize(
        ("options", "error", "text"),
        [
            ({"timeline_type": "sequence"}, ValueError, 'Invalid timeline_type: "sequence". Expected "timestamp" or'),
            ({"decoders": ["raw", "nope", "no"]}, ValueError, f'Unknown decoder: "nope". Valid decoders: {ALL}'),
            ({"decoders": "raw"}, ValueError, 'Unknown decoder: "r"'),
            (
                {"include_topic_regex": ["ok", "["]},
                ValueError,
                'Invalid include topic regex "[": found unclosed character class',
            ),
            (
                {"exclude_topic_regex": ["("]},
                ValueError,
                "Invalid exclude topic regex \"(\": found open group without closing ')'",
            ),
            ({"include_topic_regex": [r"(a)\1"]}, ValueError, "backreferences are not supported"),
            ({"include_topic_regex": ["(?=a)"]}, ValueError, "look-around is not supported"),
            ({"timestamp_offset_ns": "1"}, TypeError, "argument 'timestamp_offset_ns': 'str' object cannot be"),
            ({"timestamp_offset_ns": 1.0}, TypeError, "argument 'timestamp_offset_ns': 'float' object cannot be"),
            ({"timestamp_offset_ns": 2**63}, OverflowError, "argument 'timestamp_offset_ns'"),
        ],
    )
    def test_wrong_ones(self, options: dict[str, object], error: type[Exception], text: str) -> None:
        with pytest.raises(error) as caught:
            McapReader(DEMO, **options)  # type: ignore[arg-type]
        assert str(caught.value).startswith(text) or text in str(caught.value)

    def test_what_a_reader_says_of_itself(self) -> None:
        reader = McapReader(str(DEMO))
        assert reader.path == DEMO
        assert repr(reader) == f"McapReader({DEMO})"
        assert isinstance(reader, StreamingReader)
        assert McapReader.available_decoders() == sorted(McapReader.available_decoders())
        assert len(McapReader.available_decoders()) == 11

    def test_every_decoder_is_accepted(self) -> None:
        for name in McapReader.available_decoders():
            McapReader(DEMO, decoders=[name])

    def test_a_stream_can_be_asked_for_again(self) -> None:
        reader = McapReader(DEMO, decoders=["raw"])
        first, second = (sum(c.num_rows for c in reader.stream().to_chunks(executor="inline")) for _ in range(2))
        assert first == second > 0


class TestTopics:
    TOPICS = ("/imu/data", "/imu/raw", "/tf", "/tf_static")

    def kept(self, tmp_path: Path, **options: object) -> list[str]:
        parts = [channel(i, t) + message(i, 0) for i, t in enumerate(self.TOPICS)]
        return [c.entity_path for c in chunks_of(written(tmp_path, mcap(parts)), decoders=["raw"], **options)]

    def test_regexes_search(self, tmp_path: Path) -> None:
        assert self.kept(tmp_path, include_topic_regex=["tf"]) == ["/tf", "/tf_static"]
        assert self.kept(tmp_path, include_topic_regex=["^/tf$", "RAW", "(?i)DATA"]) == ["/imu/data", "/tf"]
        assert self.kept(tmp_path, exclude_topic_regex=["imu"]) == ["/tf", "/tf_static"]
        assert self.kept(tmp_path, include_topic_regex=["imu"], exclude_topic_regex=[r"\braw"]) == ["/imu/data"]
        assert self.kept(tmp_path, include_topic_regex=[]) == list(self.TOPICS)
        assert self.kept(tmp_path, include_topic_regex=[""]) == list(self.TOPICS)
        with pytest.warns(ReadWarning, match="no topic matches '-'"):
            assert self.kept(tmp_path, exclude_topic_regex=[""]) == []

    @pytest.mark.parametrize("topic", ["chatter", "/a//b/", "", "/we ird/x!", "/ü/日本"])
    def test_a_topic_becomes_an_entity_path(self, tmp_path: Path, topic: str) -> None:
        (chunk,) = chunks_of(written(tmp_path, mcap([channel(1, topic), message(1, 0)])))
        assert chunk.entity_path == parse_entity_path(topic)


@pytest.mark.filterwarnings("ignore:.*clamped to the latest time:chunkmill.engine.errors.ReadWarning")
class TestTimes:
    TIMES = (0, 5, 2**63 - 1, 2**63, 2**64 - 1)

    def read(self, tmp_path: Path, **options: object) -> dict[str, pa.Array]:
        data = [channel(1), *(message(1, t, b"", 7) for t in self.TIMES)]
        (chunk,) = chunks_of(written(tmp_path, mcap(data)), **options)
        return {line: chunk.to_record_batch().column(line) for line in ("message_log_time", "message_publish_time")}

    def test_they_saturate(self, tmp_path: Path) -> None:
        lines = self.read(tmp_path)
        assert {a.type for a in lines.values()} == {pa.timestamp("ns")}
        assert lines["message_log_time"].cast("int64").to_pylist() == [0, 5, *[2**63 - 1] * 3]
        assert lines["message_publish_time"].cast("int64").to_pylist() == [7] * 5

    @pytest.mark.parametrize(
        ("offset", "shifted"),
        [
            (10, [10, 15, *[2**63 - 1] * 3]),
            (-10, [-10, -5, *[2**63 - 11] * 3]),
            (2**63 - 1, [2**63 - 1] * 5),
            (-(2**63), [-(2**63), 5 - 2**63, -1, -1, -1]),
        ],
    )
    def test_the_offset(self, tmp_path: Path, offset: int, shifted: list[int]) -> None:
        lines = self.read(tmp_path, timestamp_offset_ns=offset)
        assert lines["message_log_time"].cast("int64").to_pylist() == shifted

    def test_durations_have_no_offset(self, tmp_path: Path) -> None:
        lines = self.read(tmp_path, timeline_type="duration", timestamp_offset_ns=10)
        assert {a.type for a in lines.values()} == {pa.duration("ns")}
        assert lines["message_log_time"].cast("int64").to_pylist()[:2] == [0, 5]


class TestDecoders:
    def file(self, tmp_path: Path, *messages: bytes, definition: bytes = SCHEMA, encoding: str = "cdr") -> Path:
        definitions = [schema(1, "p/msg/T", "ros2msg", definition), channel(1, "/t", encoding, 1)]
        return written(tmp_path, mcap([*definitions, chunk_of([message(1, i, m) for i, m in enumerate(messages)])]))

    def test_ros2_by_reflection(self, tmp_path: Path) -> None:
        path = self.file(tmp_path, cdr(1, "a"), cdr(2, "b"))
        for options in ({}, {"decoders": ["ros2_reflection"]}, {"decoders": ["ros2msg", "ros2_reflection", "raw"]}):
            (chunk,) = chunks_of(path, **options)
            assert components([chunk]) == [("/t", "p.msg.T:message", 2)]
            column = chunk.to_record_batch().column("p.msg.T:message")
            assert column.to_pylist() == [[{"x": 1, "s": "a"}], [{"x": 2, "s": "b"}]]

    @pytest.mark.parametrize(
        ("decoders", "kinds"),
        [
            (["raw"], ["McapMessage:data"]),
            (["protobuf", "raw"], ["McapMessage:data"]),
            (["protobuf"], []),
            (["ros2msg"], []),
            (["urdf", "foxglove", "metadata", "attachments"], []),
            ([], []),
        ],
    )
    def test_deselected(self, tmp_path: Path, decoders: list[str], kinds: list[str]) -> None:
        found = components(chunks_of(self.file(tmp_path, cdr(1, "a")), decoders=decoders))
        assert [kind for _, kind, _ in found] == kinds

    def test_a_raw_column(self, tmp_path: Path) -> None:
        (chunk,) = chunks_of(self.file(tmp_path, b"ab", b"", b"c"), decoders=["raw"])
        field = chunk.to_record_batch().schema.field("McapMessage:data")
        inner = pa.list_(pa.field("item", pa.uint8(), nullable=False))
        assert field.type == pa.list_(pa.field("item", inner, nullable=False))
        assert chunk.to_record_batch().column("McapMessage:data").to_pylist() == [[[97, 98]], [[]], [[99]]]
        (header,) = chunk.header.components
        assert header.descriptor.archetype == "rerun.archetypes.McapMessage"
        assert header.descriptor.component_type == "rerun.components.Blob"

    def test_an_unusable_schema_costs_its_own_channel_the_decoding(self, tmp_path: Path) -> None:
        good = [schema(2, "p/msg/Good", "ros2msg", SCHEMA), channel(2, "/good", "cdr", 2), message(2, 0, cdr(1, "a"))]
        bad = [schema(1, "p/msg/Bad", "ros2msg", b"foo bar baz\nint32[ y"), channel(1, "/bad", "cdr", 1)]
        path = written(tmp_path, mcap([*bad, *good, message(1, 0, b"xyz"), message(1, 1, b"")]))
        with pytest.warns(ReadWarning, match=r"topic /bad: the schema p/msg/Bad cannot be used: .*raw bytes") as seen:
            chunks = chunks_of(path)
        assert len(seen) == 1
        assert components(chunks) == [("/bad", "McapMessage:data", 2), ("/good", "p.msg.Good:message", 1)]

    def test_messages_that_cannot_be_decoded_come_out_raw(self, tmp_path: Path) -> None:
        path = self.file(tmp_path, cdr(1, "a"), b"", cdr(3, "c"), cdr(4, "d")[:-3], cdr(5, "e"))
        with pytest.warns(ReadWarning, match=r"topic /t: 2 messages could not be decoded .*the first: .+") as seen:
            good, bad = chunks_of(path)
        assert len(seen) == 1
        assert components([good, bad]) == [("/t", "p.msg.T:message", 3), ("/t", "McapMessage:data", 2)]
        batch = bad.to_record_batch()
        assert batch.column("message_log_time").cast("int64").to_pylist() == [1, 3]
        assert batch.column("McapMessage:data").to_pylist() == [[[]], [list(cdr(4, "d")[:-3])]]
        times = good.to_record_batch().column("message_log_time").cast("int64").to_pylist()
        assert times == [0, 2, 4]

    def test_only_messages_that_cannot_be_decoded(self, tmp_path: Path) -> None:
        with pytest.warns(ReadWarning, match="1 messages"):
            assert components(chunks_of(self.file(tmp_path, b"?"))) == [("/t", "McapMessage:data", 1)]

    @pytest.mark.parametrize("encoding", ["json", ""])
    def test_ros2_messages_that_are_not_cdr(self, tmp_path: Path, encoding: str) -> None:
        with pytest.warns(ReadWarning, match=f"have the encoding '{encoding}', not CDR"):
            assert components(chunks_of(self.file(tmp_path, b"{}", encoding=encoding)))[0][1] == "McapMessage:data"

    def test_cdr_in_capitals(self, tmp_path: Path) -> None:
        assert components(chunks_of(self.file(tmp_path, cdr(1, "a"), encoding="CDR")))[0][1] == "p.msg.T:message"

    def test_a_schema_that_is_not_there(self, tmp_path: Path) -> None:
        path = written(tmp_path, mcap([channel(1, "/t", "cdr", 9), message(1, 0)]))
        with pytest.warns(ReadWarning, match="its schema 9 is not in the file"):
            assert components(chunks_of(path)) == [("/t", "McapMessage:data", 1)]

    def test_channels_of_one_topic_keep_their_own_schemas(self, tmp_path: Path) -> None:
        definitions = [
            schema(1, "p/msg/A", "ros2msg", b"int32 a"),
            schema(2, "p/msg/B", "ros2msg", b"string b"),
            channel(1, "/t", "cdr", 1),
            channel(2, "/t", "cdr", 2),
        ]
        messages = [message(1, 0, b"\0\1\0\0" + struct.pack("<i", 7)), message(2, 1, b"\0\1\0\0\2\0\0\0z\0")]
        chunks = chunks_of(written(tmp_path, mcap([*definitions, *messages])))
        assert [c.to_record_batch().columns[-1].to_pylist() for c in chunks] == [[[{"a": 7}]], [[{"b": "z"}]]]

    def test_nothing_is_said_of_channels_read_raw_on_purpose(self, tmp_path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            chunks_of(self.file(tmp_path, b"{}", encoding="json"), decoders=["raw"])


class TestSource:
    def test_it_travels(self) -> None:
        source = McapSource(str(DEMO))
        splits = source.splits()
        there, split = pickle.loads(pickle.dumps((source, splits[0])))
        assert sum(c.num_rows for c in there.read(split)) == sum(c.num_rows for c in source.read(splits[0]))
        assert there.describe() == f"McapReader({DEMO})"

    def test_a_split_can_be_read_by_a_source_that_never_planned(self) -> None:
        (split,) = McapSource(str(DEMO)).splits()
        assert sum(c.num_rows for c in McapSource(str(DEMO)).read(split)) > 0

    def test_two_reads_give_the_same(self) -> None:
        def read() -> list[tuple[str, str, int]]:
            return components(chunks_of(DEMO))

        assert read() == read()


class TestInfo:
    RUN = (message(1, 5), message(2, 3), message(1, 9))
    CHANNELS = (schema(1, "S", "jsonschema"), channel(1, "/a", "json", 1), channel(2, "/b", "cbor"))

    def test_by_the_summary(self, tmp_path: Path) -> None:
        stats = bytearray(statistics(3, 2, 1))
        stats[9 + 26 : 9 + 42] = struct.pack("<QQ", 3, 9)
        counts = struct.pack("<IHQHQ", 20, 1, 2, 2, 1)
        stats = stats[:-4] + counts
        stats[1:9] = struct.pack("<Q", len(stats) - 9)
        path = written(tmp_path, mcap([*self.CHANNELS, chunk_of(self.RUN)], [*self.CHANNELS, bytes(stats)]))
        self.check(path, scanned=False)

    def test_without_a_summary(self, tmp_path: Path) -> None:
        self.check(written(tmp_path, mcap([chunk_of([*self.CHANNELS, *self.RUN])])), scanned=True)

    def check(self, path: Path, *, scanned: bool) -> None:
        info = McapReader(path).info()
        assert info.scanned is scanned
        assert [(c.topic, c.schema, c.schema_encoding, c.message_encoding, c.count) for c in info.channels] == [
            ("/a", "S", "jsonschema", "json", 2),
            ("/b", None, None, "cbor", 1),
        ]
        assert (info.start_time, info.end_time, info.messages) == (3, 9, 3)
        assert (info.chunks, dict(info.compression)) == (1, {"zstd": 1})
        assert (info.profile, info.library, info.bytes) == ("profile", "library", path.stat().st_size)

    def test_of_a_recording(self) -> None:
        info = McapReader(DEMO).info()
        assert info.messages == sum(c.count or 0 for c in info.channels) > 0
        assert info.start_time is not None
        assert info.end_time is not None
        assert info.start_time < info.end_time
