"""``write_parquet``: the same chunks again, values that DuckDB, polars and Spark agree on, and what is refused."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill import Chunk, LazyChunkStream, McapReader, ReadError, UsageError, WriteError
from chunkmill.engine.chunk import ComponentDescriptor, from_portable, portable_type, to_portable
from chunkmill.engine.cli import commands
from chunkmill.engine.errors import ReadWarning, UnsupportedError
from chunkmill.engine.rrd import StoreEntry
from chunkmill.engine.writers import parquet as writing
from chunkmill.engine.writers import write_parquet
from chunkmill.readers import ParquetReader, RrdReader, detect_format
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from places import recordings

NS = pa.timestamp("ns")
BYTES = pa.list_(pa.field("item", pa.uint8(), nullable=False))
UNION = pa.UnionArray.from_dense(
    pa.array([0, 1, 1, 0], pa.int8()),
    pa.array([0, 0, 1, 1], pa.int32()),
    [pa.array([7, None], pa.int8()), pa.array([[1], [2, 3]], BYTES)],
    ["small", "blob"],
)
ODD = {
    "bytes": pa.array([[1, 2], None, [], [255]], BYTES),
    "time": pa.array([1, None, -1, 2**62], NS),
    "zoned": pa.array([1, None, -1, 5], pa.timestamp("ns", "UTC")),
    "day": pa.array([1, None, 2, 3], pa.time64("us")),
    "half": pa.array([1.5, None, math.inf, -2.0], pa.float32()).cast(pa.float16()),
    "wide": pa.array([Decimal("1.25"), None, Decimal(10) ** 40, Decimal(0)], pa.decimal256(60, 2)),
    "union": UNION,
    "empty": pa.array([{}, None, {}, {}], pa.struct([])),
    "nothing": pa.nulls(4),
    "words": pa.array(["a", "b", "a", None]).dictionary_encode(),
    "unsigned": pa.array([2**64 - 1, None, 0, 1], pa.uint64()),
    "point": pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)),
    "view": pa.array(["a", None, "", "long enough to be out of line"], pa.string_view()),
    "struct": pa.array(
        [{"t": 1, "s": "x"}, None, {"t": None, "s": ""}, {"t": 3, "s": "y"}], pa.struct([("t", NS), ("s", pa.string())])
    ),
    "map": pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int8())),
    "length": pa.array([1, None, 2, 3], pa.duration("ns")),
    "date": pa.array([86_400_000, None, 0, -86_400_000], pa.date64()),
}


def column(values: pa.Array) -> pa.ListArray:
    """Rows of one value, of two, of none, and a null."""
    offsets, mask = pa.array([0, 1, 3, 3, 4, 4], pa.int32()), pa.array([False, False, False, False, True])
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def odd_chunk(entity: str = "/odd") -> Chunk:
    """A chunk with a component of each type."""
    ticks = np.array([5, 1_700_000_000_123_456_789, 7, -1, 1999])
    lines = {
        "clock": pa.array(ticks).cast(NS),
        "since": pa.array(ticks).cast(pa.duration("ns")),
        "frame": pa.array(ticks),
    }
    return Chunk.build(entity, lines, [(ComponentDescriptor(name), column(v)) for name, v in ODD.items()])


def numbers(entity: str, ticks: Any, values: Any, component: str = "Scalars:scalars") -> Chunk:
    """A chunk of a number in each row."""
    rows = pa.array([[float(v)] for v in values], pa.list_(pa.float64()))
    return Chunk.build(
        entity, {"frame": pa.array(np.asarray(ticks, np.int64))}, [(ComponentDescriptor(component), rows)]
    )


def export(place: Path, chunks: Any, recording_id: str = "drive", **more: Any) -> list[Chunk]:
    """Write chunks, and read them again."""
    stream = chunks if isinstance(chunks, LazyChunkStream) else LazyChunkStream.from_iter(chunks)
    stream.write_parquet(place, recording_id=recording_id, executor="inline", **more)
    return ParquetReader(place).stream().to_chunks(executor="inline")


def check_same(given: Any, wanted: Any) -> None:
    """Check that chunks are equal in ids, times, types and values."""
    key = lambda chunk: (chunk.entity_path, chunk.id)  # noqa: E731
    given, wanted = sorted(given, key=key), sorted(wanted, key=key)
    assert [key(chunk) for chunk in given] == [key(chunk) for chunk in wanted]
    for one, other in zip((c.data for c in given), (c.data for c in wanted), strict=True):
        assert one.shape == other.shape and list(map(str, one.types)) == list(map(str, other.types))
        assert one.row_ids.equals(other.row_ids)
        assert [t.times for t in one.timelines] == [t.times for t in other.timelines]
        for mine, theirs in zip(one.components, other.components, strict=True):
            mine.values.validate(full=True)
            assert repr(mine.values.to_pylist()) == repr(theirs.values.to_pylist())


@pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")
@pytest.mark.parametrize("path", recordings("rrd/*.rrd"), ids=lambda path: path.name)
def test_recordings_come_again_as_they_were(path: Path, tmp_path: Path) -> None:
    try:
        chunks = RrdReader(path).stream().to_chunks(executor="inline")
    except ReadError:
        pytest.skip("no RRD that can be read")
    check_same(export(tmp_path / "out", chunks), chunks)


def test_messages_come_again_as_they_were(data: Path, tmp_path: Path) -> None:
    chunks = McapReader(data / "demo.mcap").stream().to_chunks(executor="inline")
    check_same(export(tmp_path / "out", chunks), chunks)


def test_values_of_every_type_come_again(tmp_path: Path) -> None:
    chunks = [odd_chunk(), odd_chunk(), odd_chunk("/other")]
    check_same(export(tmp_path / "out", chunks), chunks)


@given(st.data())
@settings(deadline=None)
def test_the_portable_form_of_any_slice_is_undone(data: st.DataObject) -> None:
    values = column(ODD[data.draw(st.sampled_from(sorted(ODD)))])
    start = data.draw(st.integers(0, len(values)))
    some = values[start : data.draw(st.integers(start, len(values)))]
    form = to_portable(some)
    form.validate(full=True)
    assert form.type == portable_type(some.type)
    again = from_portable(form, some.type)
    again.validate(full=True)
    assert str(again.type) == str(some.type) and repr(again.to_pylist()) == repr(some.to_pylist())


def plain(value: Any) -> Any:
    """A value as all readers give it: numbers of times, lists of bytes as bytes, and so on."""
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, datetime.datetime):
        return round(
            (value.replace(tzinfo=datetime.UTC) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
            / datetime.timedelta(microseconds=1)
        )
    if isinstance(value, datetime.timedelta):
        return value / datetime.timedelta(microseconds=1)
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    if hasattr(value, "asDict"):
        return plain(value.asDict())
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(each) for each in value]
    return value


def expected(folder: Path, name: str) -> list[Any]:
    """The values of a column of a table, by Arrow's reader."""
    files = sorted(folder.rglob("*.parquet"))
    return [plain(v) for file in files for v in pq.ParquetFile(file).read([name]).column(0).to_pylist()]


MAPS = {"map"}
"""Columns that readers give in forms of their own."""
TICKS = {"length", "since", "clock"}


def check_values(folder: Path, rows: dict[str, list[Any]], *, but: set[str] = MAPS) -> None:
    """Check the columns of a table that another reader gave."""
    names = pq.ParquetFile(next(folder.rglob("*.parquet"))).schema_arrow.names
    assert set(rows) == {*names, "recording"}
    for name in names:
        if name not in but and name not in TICKS:
            assert sorted(map(repr, map(plain, rows[name]))) == sorted(map(repr, expected(folder, name))), name


def test_duckdb_and_polars_give_the_same_values(tmp_path: Path) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    stream = lambda: LazyChunkStream.from_iter([odd_chunk(), odd_chunk()])  # noqa: E731
    write_parquet({"007": stream(), "008": stream()}, tmp_path / "out", executor="inline")
    folder = tmp_path / "out" / "odd"
    table = duckdb.sql(f"select * from '{folder}/**/*.parquet'").fetchall()
    names = duckdb.sql(f"select * from '{folder}/**/*.parquet'").columns
    check_values(folder, dict(zip(names, map(list, zip(*table, strict=True)), strict=True)))
    frame = polars.scan_parquet(folder).collect()
    assert frame["recording_id"].to_list() == ["007"] * 10 + ["008"] * 10
    rows = {name: frame[name].to_list() for name in frame.columns}
    check_values(folder, rows)


def test_spark_gives_the_same_values(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "out"
    chunks = [odd_chunk(), odd_chunk()]
    LazyChunkStream.from_iter(chunks).write_parquet(place, recording_id="007", executor="spark")
    check_same(ParquetReader(place).stream().to_chunks(executor="spark"), chunks)
    frame = spark.read.parquet(str(place / "odd"))
    rows = [row.asDict() for row in frame.collect()]
    check_values(place / "odd", {name: [row[name] for row in rows] for name in frame.columns})
    ticks = [row["clock_nanoseconds"] for row in rows]
    assert ticks == chunks[0].data.timelines[0].ticks.tolist() * 2
    assert [plain(row["clock"]) for row in rows] == [tick // 1000 for tick in ticks]


def test_row_groups_end_with_chunks_and_have_page_indexes_and_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "GROUP_BYTES", 20_000)
    monkeypatch.setattr(writing, "_FILE_BYTES", 100_000)
    from chunkmill.readers.parquet import exported

    monkeypatch.setattr(exported, "SPLIT_BYTES", 30_000)
    chunks = [numbers("/a", range(i * 300, i * 300 + 300), range(300)) for i in range(30)]
    chunks.append(numbers("/a", range(2_000), range(2_000)))  # larger than a row group
    check_same(export(tmp_path / "out", chunks), chunks)
    files = sorted((tmp_path / "out/a").rglob("*.parquet"))
    assert len(files) > 2
    groups = 0
    for file in files:
        metadata = pq.ParquetFile(file, page_checksum_verification=True).metadata
        groups += metadata.num_row_groups
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            assert group.column(0).has_offset_index and group.column(0).has_column_index
            assert group.num_rows % 100 == 0 or group.num_rows < 2_000
    assert groups > len(files)
    splits = ParquetReader(tmp_path / "out").source().splits()
    assert len(splits) > len(files)


def test_chunks_of_an_entity_share_a_table_whatever_their_columns(tmp_path: Path) -> None:
    text = Chunk.build("/a", {}, [(ComponentDescriptor("note"), pa.array([["static"]]))])
    whole = pa.array([[1]], pa.list_(pa.int64()))
    other = Chunk.build("/a", {"frame": pa.array([9])}, [(ComponentDescriptor("Scalars:scalars"), whole)])
    empty = Chunk.build(
        "/a", {"frame": pa.array([3])}, [(ComponentDescriptor("none"), pa.nulls(1, pa.list_(pa.int8())))]
    )
    chunks = [
        numbers("/a", [1, 2], [1, 2]),
        text,
        other,
        empty,
        numbers("/a", [], []),
        numbers("/a", [0], [5], "FRAME"),
    ]
    check_same(export(tmp_path / "out", chunks), chunks)
    (file,) = (tmp_path / "out/a").rglob("*.parquet")
    assert pq.read_schema(file).names == [
        "recording_id", "row_id", "frame", "FRAME~2", "Scalars:scalars", "Scalars:scalars~2", "none", "note",
    ]  # fmt: skip


def test_folders_are_named_after_entities_and_recordings(tmp_path: Path) -> None:
    long = "/" + "/".join(["deep"] * 60)
    paths = ["/", "/camera/front", "/Camera/front", "/a.b", r"/we\ ird\=x", "/__properties", long]
    made = {
        name: LazyChunkStream.from_iter([numbers(path, [1], [2]) for path in paths]) for name in ("a/b=c", "x" * 300)
    }
    write_parquet(made, tmp_path / "out", executor="inline")
    folders = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert {"%2F", "a%2Eb", "we%20ird%3Dx", "%5F_properties"} <= set(folders) and len(folders) == len(paths)
    assert len({name.casefold() for name in folders}) == len(paths) and max(map(len, folders)) < 200
    assert (tmp_path / "out/%2F/recording=a%2Fb%3Dc/part-00000.parquet").exists()
    for name in made:
        stream = ParquetReader(tmp_path / "out").stream(recording_id=name)
        assert {chunk.entity_path for chunk in stream.to_chunks(executor="inline")} == {
            c.entity_path for c in (numbers(path, [1], [2]) for path in paths)
        }


def test_recordings_are_chosen_and_entities_narrowed(tmp_path: Path) -> None:
    made = {
        name: LazyChunkStream.from_iter([numbers("/a", [1], [i]), numbers("/b", [1], [i])])
        for i, name in enumerate("xy")
    }
    write_parquet(made, tmp_path / "out", application_id="app", executor="inline")
    reader = ParquetReader(tmp_path / "out")
    assert reader.recordings() == [StoreEntry("recording", "app", "x"), StoreEntry("recording", "app", "y")]
    with pytest.warns(ReadWarning, match="has 2 recordings; x is read"):
        assert len(reader.stream().to_chunks(executor="inline")) == 2
    stream = reader.stream(recording_id="y").filter(content="/b")
    (chunk,) = stream.to_chunks(executor="inline")
    assert chunk.data.components[0].values.to_pylist() == [[1.0]]
    for path in (tmp_path / "out/a").rglob("*.parquet"):
        path.unlink()
    assert len(reader.stream(recording_id="y").filter(content="/b").to_chunks(executor="inline")) == 1
    with pytest.raises(UsageError, match="no recording 'z'"):
        reader.stream(recording_id="z").to_chunks(executor="inline")
    with pytest.raises(UsageError, match="without options"):
        reader.stream(column_grouping="individual")


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    stream = LazyChunkStream.from_iter([numbers("/a", [1], [2])])
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").write_text("")
    with pytest.raises(WriteError, match="is there already"):
        export(tmp_path / "taken", stream)
    with pytest.raises(UnsupportedError, match="local folders"):
        export("s3://bucket/out", stream)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="compression must be one of"):
        export(tmp_path / "out", stream, compression="lzo")
    with pytest.raises(UsageError, match="the same id: a"):
        write_parquet(
            [(StoreEntry("recording", name, "a"), stream) for name in "pq"], tmp_path / "out", executor="inline"
        )
    with pytest.raises(UsageError, match="no recording"):
        write_parquet({}, tmp_path / "out", executor="inline")
    interval = pa.array([[(1, 2, 3)]], pa.list_(pa.month_day_nano_interval()))
    odd = Chunk.build("/a", {}, [(ComponentDescriptor("span"), interval)])
    with pytest.raises(UnsupportedError, match=r"component span of /a: .*interval.* cannot be written to Parquet"):
        export(tmp_path / "out", [odd])
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def damage(place: Path, change: Any) -> None:
    """Change the manifest."""
    path = place / "_chunkmill.json"
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=2), "has version 2"),
        (lambda m: m.update(format="x"), "has another format"),
        (lambda m: m.pop("tables"), "cannot be read: KeyError"),
        (lambda m: m["recordings"].clear(), "cannot be read: IndexError"),
        (lambda m: m["tables"][0]["files"][0].update(path="../secret.parquet"), "outside the folder"),
        (lambda m: m["tables"][0]["files"][0].update(path="/etc/passwd"), "outside the folder"),
        (lambda m: m["tables"][0]["files"][0].update(recording=-1), "-1 is not a count"),
        (lambda m: m["tables"][0]["files"][0].update(bytes=1), "differs from its description in the manifest"),
        (lambda m: m["tables"][0]["files"][0].update(chunks=5), "list of its chunks is damaged"),
    ],
)
def test_a_damaged_manifest_is_an_error(change: Any, message: str, tmp_path: Path) -> None:
    export(tmp_path / "out", [numbers("/a", [1], [2])])
    damage(tmp_path / "out", change)
    with pytest.raises(ReadError, match=message) as caught:
        ParquetReader(tmp_path / "out").stream().to_chunks(executor="inline")
    assert caught.value.path and caught.value.hint


def test_files_of_other_content_are_errors(tmp_path: Path) -> None:
    place = tmp_path / "out"
    export(place, [odd_chunk()])
    (file,) = place.rglob("*.parquet")
    whole = file.read_bytes()

    def rewritten(change: Any) -> None:
        table = pq.ParquetFile(pa.BufferReader(whole)).read()
        pq.write_table(change(table), file)
        damage(place, lambda m: m["tables"][0]["files"][0].update(bytes=file.stat().st_size))

    metadata = pq.ParquetFile(pa.BufferReader(whole)).metadata.metadata
    changes = [
        (lambda t: t.replace_schema_metadata(None), "list of its chunks cannot be read"),
        (lambda t: t.replace_schema_metadata({**metadata, b"chunkmill:chunks": b"AAAA"}), "list of chunks|list of its"),
        (lambda t: t.replace_schema_metadata({**metadata, b"chunkmill:kinds": b"[]"}), "list of its chunks"),
        (lambda t: t.drop_columns("row_id").replace_schema_metadata(metadata), "no column 'row_id'"),
        (
            lambda t: t.set_column(t.column_names.index("union"), "union", pa.array([1] * 5)).replace_schema_metadata(
                metadata
            ),
            "has type int64",
        ),
        (
            lambda t: t.set_column(
                t.column_names.index("frame"), "frame", pa.nulls(5, pa.int64())
            ).replace_schema_metadata(metadata),
            "has no times",
        ),
    ]
    for change, message in changes:
        rewritten(change)
        with pytest.raises(ReadError, match=message):
            ParquetReader(place).stream().to_chunks(executor="inline")
    file.write_bytes(whole)
    file.unlink()
    with pytest.raises(ReadError):
        ParquetReader(place).stream().to_chunks(executor="inline")


def test_mutants_of_a_folder_are_errors_or_chunks(tmp_path: Path) -> None:
    place = tmp_path / "out"
    export(place, [odd_chunk(), numbers("/b", [1, 2], [3, 4])])
    random = np.random.default_rng(1)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    for number in range(150):
        file = files[number % len(files)]
        whole = bytearray(file.read_bytes())
        before = bytes(whole)
        for at in random.integers(0, len(whole), 1 + number % 3):
            whole[at] = random.integers(256)
        file.write_bytes(whole)
        try:
            for chunk in ParquetReader(place).stream().to_chunks(executor="inline"):
                assert chunk.data.num_rows >= 0
        except ReadError:
            pass
        file.write_bytes(before)


def test_the_command_line_converts_to_parquet_and_back(data: Path, tmp_path: Path) -> None:
    run = CliRunner()
    given = ["convert", str(data / "demo.mcap"), "-o", str(tmp_path / "out"), "--to", "parquet", "--executor", "inline"]
    done = run.invoke(commands.commands, given)
    assert done.exit_code == 0 and "3,523 rows in 16 chunks" in done.output, done.output
    assert detect_format(tmp_path / "out").name == "parquet"
    back = str(tmp_path / "back.rrd")
    done = run.invoke(commands.commands, ["convert", str(tmp_path / "out"), "-o", back, "--executor", "inline"])
    assert done.exit_code == 0, done.output
    (store,) = RrdReader(Path(back)).recordings()
    assert (store.application_id, store.recording_id) == ("chunkmill", "demo")
    done = run.invoke(commands.commands, ["inspect", str(tmp_path / "out"), "--json"])
    assert json.loads(done.output)["recordings"][0]["rows"] == 3523
    done = run.invoke(commands.commands, given)
    assert done.exit_code != 0 and "is there already" in done.output
    done = run.invoke(commands.commands, [*given, "--shards"])
    assert done.exit_code == 2 and "for RRDs" in done.output


def test_rows_of_a_query_have_page_indexes_and_checksums(data: Path, tmp_path: Path) -> None:
    given = ["query", str(data / "demo.mcap"), "--index", "message_log_time", "--contents", "/nissan/vehicle_speed"]
    done = CliRunner().invoke(commands.commands, [*given, "-o", str(tmp_path / "rows.parquet"), "--executor", "inline"])
    assert done.exit_code == 0, done.output
    file = pq.ParquetFile(tmp_path / "rows.parquet", page_checksum_verification=True)
    column = file.metadata.row_group(0).column(0)
    assert column.has_offset_index and column.has_column_index and file.read().num_rows == 470
