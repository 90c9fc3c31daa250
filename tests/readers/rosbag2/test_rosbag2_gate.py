"""Databases that are forged: what SQLite would do with them does not happen, and each is refused with its reason."""

from __future__ import annotations

import re
import sqlite3
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from chunkmill.engine import ReadError, ReadWarning
from chunkmill.readers import Rosbag2Reader
from rosbag2_making import KINDS, MESSAGES, STRING, TABLES, Kind, Message, compress, some, write_bag, write_database

ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)"


def made(path: Path, *statements: str) -> Path:
    """A database of these statements alone."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def rewritten(path: Path, name: str, sql: str, kind: str = "table") -> None:
    """Change the text of a table in the list of tables, as no statement would."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute("UPDATE sqlite_master SET sql = ?, type = ? WHERE name = ?", (sql, kind, name))
    connection.commit()
    connection.close()


def patched(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


def root_of(path: Path, name: str) -> int:
    """The byte at which the first page of a table begins."""
    connection = sqlite3.connect(path)
    ((page,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchall()
    connection.close()
    return (page - 1) * 4096


def view_of_messages(path: Path) -> None:
    select = f"{ENDLESS} SELECT x AS id, 1 AS topic_id, x AS timestamp, x'00' AS data FROM r"
    made(path, TABLES[1], f"CREATE VIEW messages AS {select}")


def view_of_topics(path: Path) -> None:
    made(path, MESSAGES, f"CREATE VIEW topics AS {ENDLESS} SELECT x AS id, 'a' AS name, 'b' AS type FROM r")


def view_of_definitions(path: Path) -> None:
    view = f"{ENDLESS} SELECT 'a' AS topic_type, 'ros2msg' AS encoding, 'x' AS encoded_message_definition FROM r"
    write_database(path, some(4), schema=3, statements=[f"CREATE VIEW message_definitions AS {view}"])


def virtual_messages(path: Path) -> None:
    made(path, TABLES[1], "CREATE VIRTUAL TABLE messages USING fts5(topic_id, timestamp, data)")


def computed_data(path: Path) -> None:
    columns = "id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER"
    made(
        path,
        TABLES[1],
        f"CREATE TABLE messages({columns}, data BLOB GENERATED ALWAYS AS (zeroblob(900000000)) VIRTUAL)",
        "INSERT INTO messages (topic_id, timestamp) VALUES (1, 1)",
    )


def computed_name(path: Path) -> None:
    columns = "id INTEGER PRIMARY KEY, type TEXT, serialization_format TEXT"
    made(path, MESSAGES, f"CREATE TABLE topics({columns}, name TEXT AS (hex(zeroblob(90000000))) STORED)")


def table_that_became_a_view(path: Path) -> None:
    write_database(path, some(4))
    rewritten(path, "messages", f"CREATE VIEW messages AS {ENDLESS} SELECT x AS topic_id FROM r", "view")


def table_text_of_a_view(path: Path) -> None:
    """The list of tables says table, and its text a view."""
    write_database(path, some(4))
    select = f"{ENDLESS} SELECT x AS id, 1 AS topic_id, x AS timestamp, x'00' AS data FROM r"
    rewritten(path, "messages", f"CREATE VIEW messages AS {select}")


def without_row_ids(path: Path) -> None:
    made(path, TABLES[1], MESSAGES.replace("PRIMARY KEY", "NOT NULL PRIMARY KEY") + " WITHOUT ROWID")


def two_tables_of_one_name(path: Path) -> None:
    write_database(path, some(4), statements=["CREATE TABLE other(id INTEGER, topic_id INTEGER)"])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute("UPDATE sqlite_master SET name = 'MESSAGES' WHERE name = 'other'")
    connection.commit()
    connection.close()


def no_messages(path: Path) -> None:
    made(path, TABLES[1])


def columns_missing(path: Path) -> None:
    made(path, TABLES[1], "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER)")


def topic_twice_by_a_lost_key(path: Path) -> None:
    made(
        path,
        MESSAGES,
        TABLES[1].replace("INTEGER PRIMARY KEY", "INTEGER"),
        "INSERT INTO topics VALUES (1, '/a', 'a/msg/A', 'cdr'), (1, '/b', 'a/msg/B', 'cdr')",
    )


def text_for_data(path: Path) -> None:
    write_database(path, some(4), statements=["UPDATE messages SET data = 'text' WHERE id = 3"])


def real_for_a_time(path: Path) -> None:
    write_database(path, some(4), statements=["UPDATE messages SET timestamp = 1.5 WHERE id = 3"])


def time_before_1970(path: Path) -> None:
    write_database(path, some(4), statements=["UPDATE messages SET timestamp = -5 WHERE id = 3"])


def message_of_no_topic(path: Path) -> None:
    write_database(path, some(4), statements=["UPDATE messages SET topic_id = 77 WHERE id = 3"])


def name_that_is_no_text(path: Path) -> None:
    write_database(path, some(4), statements=["UPDATE topics SET name = x'ff00ff'"])


def name_that_is_no_utf8(path: Path) -> None:
    write_database(path, some(4), statements=["UPDATE topics SET name = CAST(x'ff41ff' AS TEXT)"])


def too_many_topics(path: Path) -> None:
    write_database(
        path,
        some(4),
        statements=[
            f"INSERT INTO topics {ENDLESS} SELECT x + 9, '/t' || x, 'a/msg/A', 'cdr', '', '' FROM r LIMIT 70000"
        ],
    )


def length_of_a_gigabyte(path: Path) -> None:
    """The last cell of the messages declares a payload of 900 MB."""
    write_database(path, [Message(0, 5, b"x" * 9000)], [STRING])
    at = root_of(path, "messages")
    content = path.read_bytes()
    (cell,) = struct.unpack_from(">H", content, at + 8)
    patched(path, at + cell, bytes([0x83, 0xAD, 0x92, 0xA4, 0x00]))


def pages_that_point_at_one(path: Path) -> None:
    """An inner page all of whose children are one leaf, on each of several levels."""
    write_database(path, some(2000))
    at = root_of(path, "messages")
    content = path.read_bytes()
    assert content[at] == 5
    (count,) = struct.unpack_from(">H", content, at + 3)
    cells = struct.unpack_from(f">{count}H", content, at + 12)
    first = content[at + cells[0] : at + cells[0] + 4]
    for cell in cells[1:]:
        patched(path, at + cell, first)
    patched(path, at + 8, first)


def page_that_points_at_itself(path: Path) -> None:
    write_database(path, some(2000))
    at = root_of(path, "messages")
    patched(path, at + 8, struct.pack(">I", at // 4096 + 1))


def cut_in_half(path: Path) -> None:
    write_database(path, some(2000))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def nothing_but_the_magic(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def another_format(path: Path) -> None:
    path.write_bytes(b"#ROSBAG V2.0\n" + bytes(200))


FORGED: dict[Callable[[Path], object], str] = {
    view_of_messages: "messages is a view, not a table",
    view_of_topics: "topics is a view, not a table",
    view_of_definitions: "message_definitions is a view, not a table",
    virtual_messages: "messages is a virtual table, not a table",
    computed_data: "the column data of messages is computed",
    computed_name: "the column name of topics is computed",
    table_that_became_a_view: "messages is a view|SQLite cannot read",
    table_text_of_a_view: "not a plain table|SQLite cannot read|takes more steps",
    without_row_ids: "no such column: rowid",
    two_tables_of_one_name: "messages is several|SQLite cannot read",
    no_messages: "it has no table messages",
    columns_missing: "it has no column of the table messages called data",
    topic_twice_by_a_lost_key: "the topic 1 occurs twice",
    text_for_data: "the data of row 3 of messages is not a blob",
    real_for_a_time: "row 3 of messages has no numeric topic or timestamp",
    time_before_1970: "the timestamp of row 3 of messages is -5, before 1970",
    message_of_no_topic: "row 3 of messages has topic 77, which is not in the table topics",
    name_that_is_no_text: "the topic 1 has a value of another type",
    name_that_is_no_utf8: "SQLite cannot read the table topics: .*UTF-8",
    too_many_topics: "the number of topics is 65,536",
    length_of_a_gigabyte: "is longer than the file|SQLite cannot read .* malformed",
    pages_that_point_at_one: "the rows of messages are not in order after row|malformed",
    page_that_points_at_itself: "SQLite cannot read .*messages.*malformed",
    cut_in_half: "the file is truncated: it has",
    nothing_but_the_magic: "ends in its header",
    empty: "the file is empty",
    another_format: "does not begin as an SQLite database does",
}


@pytest.mark.parametrize("forge", list(FORGED), ids=lambda forge: forge.__name__)
def test_forged_files_are_refused_quickly(tmp_path: Path, forge: Callable[[Path], object]) -> None:
    path = tmp_path / "forged.db3"
    forge(path)
    begin = time.process_time()
    with pytest.raises(ReadError, match=FORGED[forge]) as caught:
        Rosbag2Reader(path).stream().to_chunks(executor="inline")
    assert time.process_time() - begin < 5
    assert "forged.db3" in str(caught.value) and caught.value.hint
    if forge is not text_for_data:  # of which no data is looked at
        with pytest.raises(ReadError):
            Rosbag2Reader(path).info()


def test_there_are_twenty() -> None:
    assert len(FORGED) >= 20


@pytest.mark.parametrize("damage", ["leaf", "cut"])
def test_recovery_is_left_to_sqlite(tmp_path: Path, damage: str) -> None:
    """With ``recover`` a damaged database is an error all the same, which says what may print its rest."""
    path = write_database(tmp_path / "a.db3", some(4000))
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2 // 4096 * 4096])
    else:
        patched(path, len(content) // 2 // 4096 * 4096, b"\xff" * 4096)
    with pytest.raises(ReadError) as caught:
        Rosbag2Reader(path, recover=True).stream().to_chunks(executor="inline")
    assert "`sqlite3 x.db3 .recover`" in (caught.value.hint or "")


def test_a_journal_that_names_another_file_removes_nothing(tmp_path: Path) -> None:
    """SQLite, opening a database with such a journal, removes the file that the journal names."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"somebody's work")
    path = write_database(tmp_path / "a.db3", some(4))
    name = str(victim).encode()
    checksum = sum(struct.unpack(f"{len(name)}b", name)) & 0xFFFFFFFF
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + struct.pack(">IIIII", 0, 0, path.stat().st_size // 4096, 512, 4096)
    tail = struct.pack(">I", 0x40000000 // 4096 + 1) + name + struct.pack(">II", len(name), checksum) + magic
    (tmp_path / "a.db3-journal").write_bytes(head.ljust(512, b"\0") + tail)
    with pytest.raises(ReadError, match=r"its journal a\.db3-journal belongs to several databases"):
        Rosbag2Reader(path).stream().to_chunks(executor="inline")
    assert victim.read_bytes() == b"somebody's work"


def test_triggers_and_defaults_do_nothing(tmp_path: Path) -> None:
    path = write_database(
        tmp_path / "a.db3",
        some(4),
        statements=["CREATE TRIGGER t AFTER INSERT ON messages BEGIN DELETE FROM messages; END"],
    )
    assert len(Rosbag2Reader(path).frame("/chatter")) == 2


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    from zstandard import ZstdCompressor

    path = tmp_path / "bomb.db3.zstd"
    with path.open("wb") as file, ZstdCompressor(level=19).stream_writer(file) as writer:
        writer.write(b"SQLite format 3\0")
        for _ in range(300):
            writer.write(bytes(2**20))
    with pytest.raises(ReadError, match="the uncompressed size is"):
        Rosbag2Reader(path).stream().to_chunks(executor="inline")


def test_links_and_paths_of_metadata_stay_in_the_folder(tmp_path: Path) -> None:
    write_bag(tmp_path / "secret", [some()])
    folder = write_bag(tmp_path / "drive", [some(4)])
    text = (folder / "metadata.yaml").read_text().replace("drive_0.db3", str(tmp_path / "secret" / "secret_0.db3"))
    (folder / "metadata.yaml").write_text(text)
    with (
        pytest.warns(ReadWarning, match=r"lacks secret_0\.db3, which metadata\.yaml lists"),
        pytest.warns(ReadWarning, match=r"does not list are read, too: drive_0\.db3"),
    ):
        assert len(Rosbag2Reader(folder).frame("/chatter")) == 2


def test_a_replaced_file_is_noticed(tmp_path: Path) -> None:
    path = write_database(tmp_path / "a.db3", some(4))
    source = Rosbag2Reader(path).source()
    (split,) = source.splits()
    write_database(tmp_path / "b.db3", some(40)).replace(path)
    with pytest.raises(ReadError, match="was replaced since it was opened"):
        list(source.read(split))


def test_definitions_of_types_are_bounded(tmp_path: Path) -> None:
    path = write_database(tmp_path / "a.db3", [Message(0, 5, b"\0\1\0\0")], [Kind("/a", "a/msg/A0", "", "")], schema=3)
    (tmp_path / "a" / "msg").mkdir(parents=True)
    for i in range(50):
        (tmp_path / "a" / "msg" / f"A{i}.msg").write_text(f"A{(i + 1) % 50} a\nA{(i + 2) % 50} b\n")
    with pytest.warns(ReadWarning, match=re.escape("the schema a/msg/A0 cannot be used")):
        Rosbag2Reader(path, types=tmp_path).stream().to_chunks(executor="inline")
    (tmp_path / "a" / "msg" / "A0.msg").write_bytes(b"#" * (17 * 2**20))
    with pytest.raises(ReadError, match="the length of the definition is"):
        Rosbag2Reader(path, types=tmp_path).stream().to_chunks(executor="inline")


def test_nothing_of_a_copy_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gc
    import tempfile

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    folder = write_bag(tmp_path / "drive", [some(), some()], KINDS)
    for file in sorted(folder.glob("*.db3")):
        compress(file)
    assert len(Rosbag2Reader(folder).frame("/chatter")) == 40
    gc.collect()
    assert list(scratch.iterdir()) == []
