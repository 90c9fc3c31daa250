"""Lance tables: made without writing over another's, appended to by many at once, and errors of our own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.errors import ReadError, WriteError
from chunkmill.engine.lance import FixedTable

SCHEMA = pa.schema([("name", pa.string()), ("count", pa.int64())])


def table_at(path: Path) -> FixedTable:
    return FixedTable(path, SCHEMA, name="the table of counts", unread="Move it away.", unwritten="Try again.")


def rows(*names: str) -> pa.Table:
    return pa.table([list(names), [len(name) for name in names]], schema=SCHEMA)


def test_who_makes_a_table_writes_over_none(tmp_path: Path) -> None:
    first, second = table_at(tmp_path / "t"), table_at(tmp_path / "t")
    assert first.versions() == frozenset()
    first.append(rows("a"))
    second.make(SCHEMA)
    assert second.rows(second.open()).to_pylist() == [{"name": "a", "count": 1}]


def test_all_who_append_at_once_to_a_table_that_is_not_there_are_heard(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda name: table_at(tmp_path / "t").append(rows(name)), "abcd"))
    assert sorted(lance.dataset(str(tmp_path / "t")).to_table()["name"].to_pylist()) == list("abcd")


def test_a_merge_goes_on_top_of_the_version_that_was_read_or_not_at_all(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.append(rows("a", "b"))
    seen = table.open()
    table.merge(table.open(), "name", pa.table([["a"], [10]], schema=SCHEMA))
    with pytest.raises(WriteError, match="the table of counts cannot be written"):
        table.merge(seen, "name", pa.table([["a"], [20]], schema=SCHEMA))
    table.delete(table.open(), "name", ["b"])
    assert table.rows(table.open()).to_pylist() == [{"name": "a", "count": 10}]


def test_errors_name_the_table_and_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("no table")
    with pytest.raises(WriteError, match=r"the table of counts cannot be written: .*Try again"):
        table_at(tmp_path / "t").append(rows("a"))
    with pytest.raises(ReadError, match=r"the table of counts cannot be read: .*Move it away\."):
        table_at(tmp_path / "t").versions()
    lance.write_dataset(pa.table({"other": [1]}), str(tmp_path / "other"))
    with pytest.raises(ReadError, match="its columns or their types differ") as caught:
        table_at(tmp_path / "other").open()
    assert caught.value.path == str(tmp_path / "other")
