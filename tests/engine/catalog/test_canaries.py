"""Data is never code: what would run if anybody unpickled, evaluated or formatted it comes back as it was."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from chunkmill import Chunk, LazyChunkStream
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.errors import ChunkmillError, UsageError
from datafusion import col, lit


class _Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self._path), "w"))


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that is there once something has run; that it would be is made sure of."""
    path = tmp_path / "canary"
    pickle.loads(pickle.dumps(_Canary(path))).close()  # it is to run, once
    path.unlink()
    return path


def payloads(path: Path) -> dict[bytes, bytes]:
    """Values of metadata that would make the file."""
    call = f"open({str(path)!r}, 'w')"
    pickled = pickle.dumps(_Canary(path))
    return {
        b"text": call.encode(),
        b"pickle": pickled.hex().encode(),
        b"yaml": f"!!python/object/apply:builtins.open [{path}, w]".encode(),
        b"json": json.dumps({"py/reduce": ["builtins.open", [str(path), "w"]], "__reduce__": call}).encode(),
        b"pandas": json.dumps({"index_columns": [call], "columns": [{"metadata": call, "numpy_type": call}]}).encode(),
        b"template": f"{{0.__init__.__globals__[__builtins__][open]({path})}} ${{{call}}} `touch {path}`".encode(),
        b"lance-encoding:udf": pickled.hex().encode(),
    }


def names(path: Path) -> list[str]:
    """Names that would make the file, or do away with a table."""
    return [
        f"__import__('os').system('touch {path}')",
        "'; DROP TABLE victim; --",
        '"; DELETE FROM victim; --',
        f"$(touch {path})",
        "key) OR (1=1",
    ]


def _extension(type_: str, path: Path) -> dict[bytes, bytes]:
    return {b"ARROW:extension:name": type_.encode(), b"ARROW:extension:metadata": pickle.dumps(_Canary(path), 0)}


def test_metadata_and_names_of_tables_are_data(tmp_path: Path, canary: Path) -> None:
    client = CatalogClient(tmp_path / "lake")
    client.create_table("victim", pa.schema([("a", pa.int64())])).append(a=[1, 2])
    odd = [name for name in names(canary) if ("'" not in name or "DROP" in name) and "." not in name]
    fields = [pa.field("key", pa.int64(), metadata={"rerun:is_table_index": "true", **payloads(canary)})]
    fields += [pa.field(name, pa.string(), metadata=payloads(canary)) for name in odd]
    schema = pa.schema(fields, payloads(canary))
    table = client.create_table("t", schema)
    row: dict[str, Any] = {"key": 1, **dict.fromkeys(odd, names(canary)[0])}
    rows = pa.Table.from_pylist([row], pa.schema([pa.field(f.name, f.type) for f in schema]))
    table.append(rows)
    table.upsert(rows)
    assert client.ctx.sql("SELECT * FROM t").to_pylist() == [row]
    assert table.reader().filter(col("key") == lit(1)).to_pylist() == [row]
    for name in odd:
        assert table.reader().select(col(f'"{name.replace(chr(34), 2 * chr(34))}"')).to_pydict() == {name: [row[name]]}
    dataset = lance.dataset(table.storage_url)
    dataset.update_config({key.decode(): value.decode() for key, value in payloads(canary).items()})
    read = table.to_arrow_reader()
    assert read.read_all().to_pylist() == [row]
    assert payloads(canary).items() <= read.schema.metadata.items()
    assert all(payloads(canary).items() <= field.metadata.items() for field in table.arrow_schema())
    table.do_maintenance(compact_fragments=True)
    for name in names(canary):
        with pytest.raises(ChunkmillError):
            client.create_table(name, schema)
        with pytest.raises(ChunkmillError):
            client.get_table(name)
    assert client.get_table("victim").reader().count() == 2
    assert not client.check() and not canary.exists()


@pytest.mark.parametrize("type_", ["arrow.py_extension_type", "pandas.period", "geoarrow.point"])
def test_types_of_extensions_run_nothing(tmp_path: Path, canary: Path, type_: str) -> None:
    table = CatalogClient(tmp_path / "lake").create_table(
        "t", pa.schema([pa.field("a", pa.binary(), metadata=_extension(type_, canary))])
    )
    table.append(pa.table({"a": pa.array([b"x"], pa.binary())}))
    assert table.to_arrow_reader().read_all().to_pylist() == [{"a": b"x"}]
    assert table.reader().to_pydict() == {"a": [b"x"]}
    assert table.arrow_schema().field("a").metadata == _extension(type_, canary)
    assert not canary.exists()


def test_a_type_that_arrow_cannot_make_is_refused(tmp_path: Path, canary: Path) -> None:
    client = CatalogClient(tmp_path / "lake")
    odd = pa.field("odd", pa.binary(), metadata=_extension("arrow.opaque", canary))
    for field in (odd, pa.field("odd", pa.list_(odd)), odd.with_metadata({b"ARROW:extension:name": b"arrow.uuid"})):
        with pytest.raises(UsageError, match="table 't' cannot have the column 'odd', which could not be read back"):
            client.create_table("t", pa.schema([("a", pa.int64()), field]))
        good = client.create_table("good", pa.schema([("a", pa.int64())]))
        with pytest.raises(UsageError, match="table 'good' cannot have the column 'odd', which could not be read back"):
            good.overwrite(pa.schema([field]).empty_table())
        good.append(a=[1])
        assert client.get_table("good").to_arrow_reader().read_all().to_pylist() == [{"a": 1}]
        good.delete()
    assert not client.tables() and not canary.exists()


@pytest.mark.parametrize("text", [b"column", b"told_key", b"told_value", b"of_all", b"value_of_all", b"Zurich"])
def test_text_that_is_none_is_refused(tmp_path: Path, text: bytes) -> None:
    zoned = pa.field("column", pa.timestamp("us", tz="Europe/Zurich"), metadata={"told_key": "told_value"})
    schema = pa.schema([("a", pa.int64()), pa.field("n", pa.list_(zoned))], metadata={"of_all": "value_of_all"})
    raw = schema.serialize().to_pybytes()
    bad = pa.ipc.read_schema(pa.py_buffer(raw.replace(text, text[:-1] + b"\xff")))
    client = CatalogClient(tmp_path / "lake")
    with pytest.raises(UsageError, match=r"table 't' cannot have .*, which is not UTF-8"):
        client.create_table("t", bad)
    assert not client.tables()
    table = client.create_table("t", schema.remove(1))
    with pytest.raises(UsageError, match="which is not UTF-8"):
        table.overwrite(bad.empty_table())
    assert table.arrow_schema().names == ["a"]


def test_names_and_words_of_search_are_data(tmp_path: Path, canary: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("d")
    words = [*names(canary), *(value.decode() for value in payloads(canary).values())]
    chunk = Chunk.build(
        "/txt", {"frame": pa.array(range(len(words)))}, [(ComponentDescriptor("text"), pa.array([[w] for w in words]))]
    )
    for number, name in enumerate(names(canary)):
        file = tmp_path / f"{number}.rrd"
        LazyChunkStream.from_iter([chunk]).write_rrd(file, application_id=name, recording_id=name)
        dataset.register(str(file), layer_name=name).wait()
    dataset.create_fts_search_index(column="/txt:text", time_index="frame")
    made = dataset.list_search_indexes()
    for query in names(canary):
        found = dataset.search_fts(query, "/txt:text").to_pydict()
        assert set(found["rerun_segment_id"]) == set(names(canary))
        assert set(found["instance"]) <= set(words)
    dataset.unregister(segments_to_drop=names(canary)[1])
    dataset.do_maintenance(optimize_indexes=True)
    assert json.loads(made[0].statistics) and len(dataset.list_search_indexes()) == 1
    assert sorted(dataset.segment_ids()) == sorted(n for n in names(canary) if n != names(canary)[1])
    assert not canary.exists()
