"""Recordings of rosbag2 made for tests, and MCAPs of the same messages."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from mcap.reader import make_reader
from mcap.writer import Writer
from zstandard import ZstdCompressor

TABLES = {
    1: "CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,"
    "serialization_format TEXT NOT NULL)",
    2: "CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,"
    "serialization_format TEXT NOT NULL,offered_qos_profiles TEXT NOT NULL)",
    4: "CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,"
    "serialization_format TEXT NOT NULL,offered_qos_profiles TEXT NOT NULL,type_description_hash TEXT NOT NULL)",
}
MESSAGES = (
    "CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,timestamp INTEGER NOT NULL,"
    "data BLOB NOT NULL)"
)
DEFINITIONS = (
    "CREATE TABLE message_definitions(id INTEGER PRIMARY KEY,topic_type TEXT NOT NULL,encoding TEXT NOT NULL,"
    "encoded_message_definition TEXT NOT NULL,type_description_hash TEXT NOT NULL)"
)
EXTRAS = {
    3: (
        "CREATE TABLE schema(schema_version INTEGER PRIMARY KEY,ros_distro TEXT NOT NULL)",
        "CREATE TABLE metadata(id INTEGER PRIMARY KEY,metadata_version INTEGER NOT NULL,metadata TEXT NOT NULL)",
    )
}


class Kind(NamedTuple):
    """A topic: its name, its type, the encoding and the text of its definition."""

    topic: str
    type: str
    encoding: str
    definition: str


class Message(NamedTuple):
    """A message: the number of its topic, its time in ns, and CDR."""

    topic: int
    time: int
    data: bytes


STRING = Kind("/chatter", "std_msgs/msg/String", "ros2msg", "string data\n")
POINT = Kind("/point", "geometry_msgs/msg/Point", "ros2msg", "float64 x\nfloat64 y\nfloat64 z\n")
HEADER = b"\x00\x01\x00\x00"


def text(value: str) -> bytes:
    """A ``std_msgs/msg/String`` in CDR."""
    data = value.encode() + b"\0"
    return HEADER + len(data).to_bytes(4, "little") + data


def point(*values: float) -> bytes:
    """A ``geometry_msgs/msg/Point`` in CDR."""
    import struct

    return HEADER + struct.pack("<3d", *values)


def some(count: int = 40, start: int = 1_000_000_000) -> list[Message]:
    """Messages of both topics, whose times step back now and then."""
    return [
        Message(
            i % 2,
            start + i * 10_000_000 - 15_000_000 * (i % 7 == 0),
            text(f"n{i}") if i % 2 == 0 else point(i, -i, 0.5),
        )
        for i in range(count)
    ]


KINDS = (STRING, POINT)


def write_mcap(path: Path, messages: Iterable[Message], kinds: Sequence[Kind] = KINDS) -> Path:
    """The messages as an MCAP whose publish times are the log times, in one chunk."""
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=2**30)
        writer.start(profile="ros2")
        schemas: dict[tuple[str, str, str], int] = {}
        channels = []
        for kind in kinds:
            if kind[1:] not in schemas:
                schemas[kind[1:]] = writer.register_schema(kind.type, kind.encoding, kind.definition.encode())
            channels.append(writer.register_channel(kind.topic, "cdr", schemas[kind[1:]]))
        for message in messages:
            writer.add_message(channels[message.topic], message.time, message.data, message.time)
        writer.finish()
    return path


def write_database(
    path: Path,
    messages: Iterable[Message],
    kinds: Sequence[Kind] = KINDS,
    *,
    schema: int = 4,
    definitions: bool = True,
    first_topic: int = 1,
    statements: Sequence[str] = (),
) -> Path:
    """The messages as a database of a schema version; ``first_topic`` is the id of the first topic."""
    connection = sqlite3.connect(path)
    connection.execute(TABLES[1 if schema < 2 else 2 if schema < 4 else 4])
    connection.execute(MESSAGES)
    connection.execute("CREATE INDEX timestamp_idx ON messages (timestamp ASC)")
    for statement in EXTRAS[3] if schema >= 3 else ():
        connection.execute(statement)
    if schema >= 4:
        connection.execute(DEFINITIONS)
        for kind in dict.fromkeys(kind[1:] for kind in kinds) if definitions else ():
            connection.execute("INSERT INTO message_definitions VALUES (NULL,?,?,?,'')", kind)
    for number, kind in enumerate(kinds):
        row = (number + first_topic, kind.topic, kind.type, "cdr", "", "")[
            : 4 if schema < 2 else 5 if schema < 4 else 6
        ]
        connection.execute(f"INSERT INTO topics VALUES ({','.join('?' * len(row))})", row)
    rows = ((m.topic + first_topic, m.time, m.data) for m in messages)
    connection.executemany("INSERT INTO messages (topic_id,timestamp,data) VALUES (?,?,?)", rows)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def metadata(
    names: Sequence[str], *, version: int = 9, count: int = 0, storage: str = "sqlite3", more: str = ""
) -> str:
    """A ``metadata.yaml`` that names some files."""
    lines = "".join(f"    - {name}\n" for name in names)
    return (
        f"rosbag2_bagfile_information:\n  version: {version}\n  storage_identifier: {storage}\n"
        f"  duration:\n    nanoseconds: 5\n  starting_time:\n    nanoseconds_since_epoch: 7\n"
        f"  message_count: {count}\n  topics_with_message_count: []\n"
        f'  relative_file_paths:\n{lines}  compression_format: ""\n  compression_mode: ""\n{more}'
    )


def write_bag(
    folder: Path, parts: Sequence[Sequence[Message]], kinds: Sequence[Kind] = KINDS, *, version: int = 9
) -> Path:
    """A folder with a database for each part, in which the topics have other ids."""
    folder.mkdir(parents=True)
    names = [f"{folder.name}_{i}.db3" for i in range(len(parts))]
    for i, (name, part) in enumerate(zip(names, parts, strict=True)):
        write_database(folder / name, part, kinds, first_topic=1 + 3 * i)
    count = sum(map(len, parts))
    prefix = f"{folder.name}/" if version == 1 else ""
    (folder / "metadata.yaml").write_text(metadata([prefix + name for name in names], version=version, count=count))
    return folder


def compress(path: Path) -> Path:
    """Replace a file by itself, compressed as a whole."""
    packed = path.with_name(path.name + ".zstd")
    packed.write_bytes(ZstdCompressor().compress(path.read_bytes()))
    path.unlink()
    return packed


def of_mcap(path: Path) -> tuple[list[Kind], list[Message]]:
    """The topics and messages of an MCAP of ROS 2, in the order of the file."""
    with path.open("rb") as file:
        reader = make_reader(file)
        summary = reader.get_summary()
        assert summary is not None
        ids = sorted(summary.channels)
        kinds = [
            Kind(c.topic, s.name, s.encoding, s.data.decode())
            for c in (summary.channels[id_] for id_ in ids)
            for s in (summary.schemas[c.schema_id],)
        ]
        messages = [
            Message(ids.index(channel.id), message.log_time, message.data)
            for _, channel, message in reader.iter_messages(log_time_order=False)
        ]
    return kinds, messages
