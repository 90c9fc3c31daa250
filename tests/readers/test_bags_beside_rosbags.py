"""Bags of ROS 1 and databases of rosbag2, published and made: message by message what the library rosbags reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import bag_bytes
import pytest
from chunkmill.engine import Chunk
from chunkmill.readers import BagReader, Rosbag2Reader
from places import recordings
from rosbags.rosbag1 import Reader
from rosbags.rosbag2.storage_sqlite3 import Sqlite3Reader
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.base import TypesysError
from rosbags.typesys.store import Typestore

pytestmark = pytest.mark.heavy

REFLECTED = "ros2_reflection"
PLACEHOLDER = "structure_needs_at_least_one_member"


class Theirs(NamedTuple):
    """What rosbags reads of a message: its topic, its time, its bytes, and its fields or why there are none."""

    topic: str
    time: int
    data: bytes
    value: Any


def plain(value: Any, store: Typestore | None = None) -> Any:
    """A message of rosbags, whose types are in a store, or of ours, as plain values; without constants."""
    if hasattr(value, "__msgtype__"):
        assert store is not None
        fields = {name: kind for name, kind in store.get_msgdef(value.__msgtype__).fields if name != PLACEHOLDER}
        values = {name: plain(getattr(value, name), store) for name in fields}
        octets = (name for name, kind in fields.items() if "'byte'" in repr(kind) and isinstance(values[name], list))
        return values | {name: [octet % 256 for octet in values[name]] for name in octets}  # it reads them signed
    if isinstance(value, Mapping):
        return {name: plain(v) for name, v in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(v, store) for v in value] if isinstance(value, list | tuple) else value


def registered(store: Typestore, name: str, definition: str, language: str) -> bool:
    """Make a type known to rosbags as a file defines it; false where it cannot parse the definition."""
    try:
        types = get_types_from_idl(definition) if language == "ros2idl" else get_types_from_msg(definition, name)
        store.register({other: fields for other, fields in types.items() if other == name or other not in store.types})
    except Exception:  # noqa: BLE001 (whatever its parser raises)
        return False
    return name in store.types


def of_bag(path: Path) -> Iterator[Theirs]:
    """The messages of an indexed bag of ROS 1, as rosbags reads them."""
    store = get_typestore(Stores.EMPTY)
    with Reader(path) as reader:
        for c in reader.connections:
            assert registered(store, c.msgtype, c.msgdef.data, "ros1msg"), c
        for connection, time, data in reader.messages():
            value = store.deserialize_ros1(data, connection.msgtype)
            yield Theirs(connection.topic, time, bytes(data), [plain(value, store)])


def of_database(path: Path) -> Iterator[Theirs]:
    """The messages of a database, as rosbags reads them; those of types that nothing defines by their bytes alone."""
    reader = Sqlite3Reader(path)
    reader.open()
    defines = any(c.msgdef.data for c in reader.connections)  # a file may define a type otherwise than ROS does
    store = get_typestore(Stores.EMPTY if defines else Stores.ROS2_HUMBLE)
    for c in reader.connections:
        if c.msgdef.data:
            registered(store, c.msgtype, c.msgdef.data, "ros2idl" if c.msgdef.format.name == "IDL" else "ros2msg")
    for connection, time, data in reader.messages(reader.connections):
        value = None
        if connection.msgtype in store.types:
            with contextlib.suppress(SerdeError, TypesysError, KeyError):
                value = [plain(store.deserialize_cdr(data, connection.msgtype), store)]
        yield Theirs(connection.topic, time, bytes(data), value)
    reader.close()


def rows(chunks: list[Chunk], end: str) -> list[tuple[str, int, Any]]:
    """The rows of components with this end of their names: entity, time and value."""
    out = []
    for chunk in chunks:
        times = {t.name: t.ticks.tolist() for t in chunk.data.timelines}.get("message_log_time")
        for column in chunk.data.components if times else ():
            if str(column.descriptor.component).endswith(end):
                values = map(plain, column.values.to_pylist())
                out += [(chunk.entity_path, t, v) for t, v in zip(times, values, strict=True)]
    return sorted(out, key=repr)


def entity(topic: str) -> str:
    return "/" + topic.strip("/")


def check(theirs: list[Theirs], read: Callable[[str], list[Chunk]]) -> None:
    """Compare the bytes of every message, and the fields of those that rosbags decodes."""
    data = sorted(((entity(m.topic), m.time, [list(m.data)]) for m in theirs), key=repr)
    assert list(map(repr, rows(read("raw"), "data"))) == list(map(repr, data))
    fields = sorted(((entity(m.topic), m.time, m.value) for m in theirs if m.value is not None), key=repr)
    decoded = {(topic, time) for topic, time, _ in fields}
    ours = [row for row in rows(read(REFLECTED), "message") if row[:2] in decoded]
    assert list(map(repr, ours)) == list(map(repr, fields))


@pytest.mark.parametrize("path", recordings("bag/*.bag"), ids=lambda path: path.name)
def test_published_bags(path: Path) -> None:
    theirs = list(of_bag(path))
    check(theirs, lambda name: BagReader(path, decoders=[name]).stream().to_chunks(executor="inline"))
    assert BagReader(path).info().messages == len(theirs)


@pytest.mark.parametrize("path", recordings("rosbag2/*.db3"), ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore::chunkmill.engine.ReadWarning")
def test_published_databases(path: Path) -> None:
    theirs = list(of_database(path))
    check(
        theirs,
        lambda name: Rosbag2Reader(path, decoders=[name], types="humble").stream().to_chunks(executor="inline"),
    )
    assert Rosbag2Reader(path).info().messages == len(theirs)


@pytest.mark.parametrize("compression", ["none", "bz2", "lz4"])
@pytest.mark.parametrize("publishers", [1, 2])
def test_made_bags_with_and_without_an_index(tmp_path: Path, compression: str, publishers: int) -> None:
    """Two connections of one topic, one of them latched; rosbags reads none without an index."""
    paths = []
    for indexed in (True, False):
        paths.append(tmp_path / f"{indexed}.bag")
        paths[-1].write_bytes(bag_bytes.recording(compression, indexed=indexed, count=300, publishers=publishers))
    theirs = list(of_bag(paths[0]))
    assert len(theirs) == 300
    for path in paths:
        check(theirs, lambda name, path=path: BagReader(path, decoders=[name]).stream().to_chunks(executor="inline"))
