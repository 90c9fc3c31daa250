"""SQL over datasets: names, the function ``reader``, what is pushed down, errors, and statements that are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill import CatalogClient, Chunk, LazyChunkStream
from chunkmill.engine import query_metrics
from chunkmill.engine.catalog.statements import tokens_of
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.cli.catalogs import sql
from chunkmill.engine.errors import ChunkmillError, NotFoundError, ReadError, UnsupportedError, UsageError
from click.testing import CliRunner
from datafusion import SQLOptions
from sql_statements import SECOND, chunk, lake_at

VALUE = ComponentDescriptor("value")


def floats(*values: float) -> pa.Array:
    return pa.array([[value] for value in values], pa.list_(pa.float64()))


def recording(folder: Path, name: str, *chunks: Chunk) -> str:
    path = folder / f"{name}.rrd"
    stream = LazyChunkStream.from_iter(chunks)
    stream.write_rrd(path, application_id="tests", recording_id=name, executor="inline")
    return str(path)


@pytest.fixture
def client(tmp_path: Path) -> CatalogClient:
    """Three segments of two chunks each, and a table of labels."""
    paths = [
        recording(tmp_path, name, chunk("/speed", [1, 2, 4], floats(10, 20, 40)), chunk("/gear", [2, 9], floats(1, 2)))
        for name in ("a", "b", "c")
    ]
    client = CatalogClient(tmp_path / "lake")
    client.create_dataset("drives").register(paths).wait()
    schema = pa.schema([("drive", pa.string()), ("label", pa.string())])
    client.create_table("labels", schema).append(drive=["a", "b", "elsewhere"], label=["sun", "fog", "fog"])
    return client


def rows(client: CatalogClient, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in client.ctx.sql(statement).to_arrow_table().to_pylist()]


# --- names


def test_a_dataset_is_the_table_of_its_segments(client: CatalogClient, tmp_path: Path) -> None:
    drives = client.get_dataset("drives")
    found = client.ctx.sql("SELECT * FROM drives").to_arrow_table()
    assert found.equals(drives.segment_table().to_arrow_table().cast(found.schema))
    drives.register(recording(tmp_path, "d", chunk("/speed", [7], floats(1)))).wait()
    assert rows(client, 'SELECT rerun_segment_id FROM drives WHERE "frame:start" > 1') == [("d",)]


@pytest.mark.parametrize(
    ("name", "references"),
    [
        ("My Drives:x-1", ['"My Drives:x-1"']),
        ("Runs", ["runs", "RUNS", '"Runs"', "public.runs", 'datafusion.public."Runs"']),
        ("lab.fleet.Runs", ["lab.fleet.runs", 'lab.fleet."Runs"', '"lab.fleet.Runs"']),
        ("fleet.2026-05", ['fleet."2026-05"', '"fleet.2026-05"']),
        ("a.b.c.d.e", ['"a.b.c.d.e"']),
        (".hidden..", ['".hidden.."']),
        ("select", ['"select"']),
        ("[x]", ['"[x]"']),
    ],
)
def test_names_of_datasets(client: CatalogClient, name: str, references: list[str]) -> None:
    drives = client.get_dataset("drives")
    drives.set_name(name)
    for reference in references:
        assert rows(client, f"SELECT count(*) FROM {reference}") == [(3,)], reference
        assert rows(client, f"SELECT count(*) FROM reader({reference}, frame)") == [(12,)], reference
    assert rows(client, f"SELECT count(*) FROM reader('{name}', index => 'frame')") == [(12,)]
    wrong = references[-1].replace('"', "").swapcase()
    with pytest.raises(NotFoundError, match="there is no table or dataset"):
        client.ctx.sql(f'SELECT count(*) FROM "{wrong}"')


def test_entries_are_listed_but_for_hidden_datasets(client: CatalogClient) -> None:
    shown = client.ctx.sql("SHOW TABLES").to_pydict()["table_name"]
    assert {"drives", "labels", "__entries"} <= set(shown)
    assert not [name for name in shown if name.startswith(("__bp_", "__as_"))]
    hidden = next(entry.name for entry in client.datasets(include_hidden=True) if entry.name.startswith("__bp_"))
    assert rows(client, f'SELECT count(*) FROM "{hidden}"') == [(0,)]


def test_a_session_does_not_hide_a_dataset(client: CatalogClient) -> None:
    with pytest.raises(Exception, match="already exists"):
        client.ctx.register_record_batches("drives", [[pa.record_batch({"id": [2]})]])
    with pytest.raises(Exception, match="drives"):
        client.ctx.sql("CREATE TABLE drives AS SELECT 1")
    assert rows(client, "SELECT count(*) FROM drives") == [(3,)]


# --- reader


def test_arguments_are_those_of_reader(client: CatalogClient) -> None:
    drives = client.get_dataset("drives")
    for text, frame in (
        ("reader('drives', 'frame')", drives.reader("frame")),
        ("READER(drives, index => frame)", drives.reader("frame")),
        ("\"reader\"(dataset => drives, INDEX => 'log_time')", drives.reader("log_time")),
        ("reader(drives, index := NULL)", drives.reader(None)),
        ("reader(drives, frame, contents => '/speed')", drives.filter_contents("/speed").reader("frame")),
        (
            "reader(drives, frame, contents => ['/**', '-/gear'])",
            drives.filter_contents(["/**", "-/gear"]).reader("frame"),
        ),
        ("reader(drives, frame, fill => true)", drives.reader("frame", fill_latest_at=True)),
        ("reader(drives, frame, fill_latest_at => 1 = 1)", drives.reader("frame", fill_latest_at=True)),
        (
            "reader(drives, frame, include_semantically_empty_columns => true, include_tombstone_columns => true)",
            drives.reader("frame", include_semantically_empty_columns=True, include_tombstone_columns=True),
        ),
        ("reader(drives, frame, segments => 'a')", drives.filter_segments("a").reader("frame")),
        ("reader(drives, frame, segments => ['a', '[bc]'])", drives.reader("frame")),
        ("reader(drives, frame, executor => 'inline')", drives.reader("frame", executor="inline")),
        (
            "reader(drives, frame, using_index_values => [3, 5], fill => true)",
            drives.reader("frame", using_index_values=[3, 5], fill_latest_at=True),
        ),
        (
            "reader(drives, frame, using_index_values => MAP {'a': [3], 'c': [4]})",
            drives.reader("frame", using_index_values={"a": [3], "c": [4]}),
        ),
        (
            "reader(drives, log_time, using_index_values => [TIMESTAMP '1970-01-01 00:00:03'], fill => true)",
            drives.reader("log_time", using_index_values=[3 * SECOND], fill_latest_at=True),
        ),
    ):
        found = client.ctx.sql(f"SELECT * FROM {text}").to_arrow_table()
        wanted = frame.to_arrow_table()
        assert found.column_names == wanted.column_names, text
        assert found.num_rows == wanted.num_rows > 0, text
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, wanted.to_pylist())), text


def test_arguments_may_be_queries(client: CatalogClient) -> None:
    fog = "segments => (SELECT drive FROM labels WHERE label = 'fog')"
    assert rows(client, f"SELECT DISTINCT rerun_segment_id FROM reader(drives, frame, {fog})") == [("b",)]
    late = "using_index_values => (SELECT max(frame) - 1 FROM reader(drives, frame, contents => '/speed'))"
    assert rows(client, f"SELECT DISTINCT frame FROM reader(drives, frame, {late}, fill => true)") == [(3,)]
    each = (
        "using_index_values => (SELECT rerun_segment_id, min(frame) AS frame FROM reader(drives, frame) "
        "WHERE rerun_segment_id < 'c' GROUP BY rerun_segment_id)"
    )
    statement = f"SELECT rerun_segment_id, frame FROM reader(drives, frame, {each}) ORDER BY 1"
    assert rows(client, statement) == [("a", 1), ("b", 1)]
    none = "segments => (SELECT drive FROM labels WHERE label = 'snow')"
    assert rows(client, f"SELECT * FROM reader(drives, frame, {none})") == []


def test_only_calls_in_place_of_tables_are_rewritten(client: CatalogClient) -> None:
    assert rows(client, "WITH reader(a, b) AS (SELECT 1, 2) SELECT a, b FROM reader") == [(1, 2)]
    assert rows(client, "WITH x AS (SELECT 1), reader(a, b) AS (SELECT 1, 2) SELECT a, b FROM reader") == [(1, 2)]
    assert rows(client, "SELECT reader.a FROM (SELECT 5) AS reader(a)") == [(5,)]
    text = "SELECT 'from reader(x => 1)' AS \"from reader(y)\" /* from reader( /* z => 1 */ ) */ -- from reader(\n"
    assert client.ctx.sql(text).to_pylist() == [{"from reader(y)": "from reader(x => 1)"}]
    assert rows(client, "SELECT count(*) FROM (reader(drives, frame) r JOIN drives USING (rerun_segment_id))") == [
        (12,)
    ]
    assert rows(client, "SELECT count(*) FROM labels, LATERAL (SELECT * FROM reader(drives, frame)) x") == [(36,)]


def test_tokens_end_where_datafusions_do() -> None:
    text = """SELECT E'it\\'s', 'it''s', "a""b", `c`, $$ d' $$, $x$ $$ $x$, 1.5e3 -- 'e\n/* /* " */ */ FROM r => f"""
    assert [token.source for token in tokens_of(text)] == [
        *("SELECT", "E'it\\'s'", ",", "'it''s'", ",", '"a""b"', ",", "`c`", ",", "$$ d' $$", ",", "$x$ $$ $x$", ","),
        *("1.5e3", "FROM", "r", "=>", "f"),
    ]
    assert [token.name for token in tokens_of('A "B""c"')] == ["a", 'B"c']
    assert tokens_of("/* never") == tokens_of("'never") == tokens_of("") == []


def test_parameters_and_views(client: CatalogClient, tmp_path: Path) -> None:
    found = client.ctx.sql(
        "SELECT count(*) AS n FROM reader(drives, frame) WHERE rerun_segment_id = $name", param_values={"name": "b"}
    )
    assert found.to_pydict() == {"n": [4]}
    client.ctx.sql("CREATE VIEW fast AS SELECT * FROM reader(drives, frame, contents => '/speed')")
    frame = client.ctx.sql("SELECT count(*) AS n FROM fast")
    assert frame.to_pydict() == {"n": [9]}
    client.get_dataset("drives").register(recording(tmp_path, "d", chunk("/speed", [7], floats(1)))).wait()
    assert frame.to_pydict() == {"n": [10]}, "rows are those of the newest version"
    client.get_dataset("drives").unregister(segments_to_drop=["a", "b", "c"])
    assert rows(client, "SELECT count(*) FROM fast") == [(1,)]
    client.ctx.sql("CREATE VIEW geared AS SELECT * FROM reader(drives, frame)")


def test_a_view_notices_that_columns_are_gone(client: CatalogClient, tmp_path: Path) -> None:
    drives = client.get_dataset("drives")
    client.ctx.sql("CREATE VIEW geared AS SELECT * FROM reader(drives, frame)")
    drives.register(recording(tmp_path, "d", chunk("/speed", [7], floats(1)))).wait()
    drives.unregister(segments_to_drop=["a", "b", "c"])
    with pytest.raises(ReadError, match="has lost columns since the query was planned: /gear:value"):
        client.ctx.sql("SELECT * FROM geared").collect()


# --- datasets that are unlike others


def test_an_empty_dataset(client: CatalogClient) -> None:
    client.create_dataset("nothing")
    assert rows(client, "SELECT * FROM nothing") == []
    assert rows(client, "SELECT count(*), max(rerun_num_chunks) FROM nothing WHERE rerun_segment_id > 'a'") == [
        (0, None)
    ]
    assert rows(client, "SELECT * FROM reader(nothing, index => NULL)") == []
    assert rows(
        client, "SELECT drive FROM labels LEFT JOIN nothing ON drive = rerun_segment_id WHERE label = 'sun'"
    ) == [("a",)]
    with pytest.raises(UsageError, match="Index 'frame' does not exist"):
        client.ctx.sql("SELECT * FROM reader(nothing, frame)")


def test_segments_of_changing_schemas(client: CatalogClient, tmp_path: Path) -> None:
    other = [
        chunk("/speed", [1], floats(5)),
        chunk("/name", [1], pa.array([["x"]], pa.list_(pa.string()))),
        Chunk.build("/tick", {"tick": pa.array([3], pa.int64())}, [(VALUE, floats(1))]),
        chunk("/__properties/info", [], pa.array([["wet"]], pa.list_(pa.string()))),
    ]
    client.get_dataset("drives").register(recording(tmp_path, "z", *other)).wait()
    statement = (
        'SELECT rerun_segment_id, "/name:value"[1], "/gear:value"[1], tick FROM reader(drives, frame) WHERE frame = 1'
    )
    assert sorted(rows(client, statement)) == [(name, None, None, None) for name in "abc"] + [("z", "x", None, None)]
    assert rows(client, "SELECT rerun_segment_id, tick FROM reader(drives, tick)") == [("z", 3)]
    where = 'WHERE "property:info:value" IS NULL'
    assert rows(client, f"SELECT count(*) FROM drives {where}") == [(3,)]
    assert rows(client, 'SELECT "property:info:value" FROM drives WHERE "tick:end" = 3') == [(["wet"],)]
    assert rows(client, "SELECT count(*) FROM drives WHERE \"property:info:value\"[1] NOT IN ('dry')") == [(1,)]


def test_names_with_quotes_and_slashes(client: CatalogClient, tmp_path: Path) -> None:
    odd = 'it\'s "odd"/%'
    entity = '/a b/"c"/d\'e'
    made = Chunk.build(entity, {odd: pa.array([1], pa.int64())}, [(VALUE, floats(7))])
    client.create_dataset("odd").register(recording(tmp_path, "x'; DROP TABLE labels; --", made)).wait()
    index, text = odd.replace('"', '""'), odd.replace("'", "''")
    column = next(name for name in client.get_dataset("odd").reader(odd).schema().names if name.endswith(":value"))
    quoted = column.replace('"', '""')
    for reference in (f"'{text}'", f'"{index}"'):
        statement = f'SELECT rerun_segment_id, "{index}", "{quoted}"[1] FROM reader(odd, index => {reference})'
        assert rows(client, statement) == [("x'; DROP TABLE labels; --", 1, 7.0)]
    assert rows(
        client, "SELECT count(*) FROM reader(odd, '" + text + "', segments => 'x''; DROP TABLE labels; --')"
    ) == [(1,)]
    assert client.table_names() == ["labels"]


# --- what is read


READS = {
    "SELECT * FROM reader(drives, frame)": lambda d: d.reader("frame"),
    "SELECT * FROM reader(drives, frame) WHERE rerun_segment_id = 'b'": (
        lambda d: d.reader("frame").filter("rerun_segment_id = 'b'")
    ),
    "SELECT * FROM reader(drives, frame) WHERE rerun_segment_id IN ('a', 'c') AND frame > 5": (
        lambda d: d.reader("frame").filter("rerun_segment_id IN ('a', 'c') AND frame > 5")
    ),
    "SELECT x.frame FROM (SELECT * FROM reader(drives, frame)) x WHERE frame > 5": (
        lambda d: d.reader("frame").filter("frame > 5").select("frame")
    ),
    'WITH r AS (SELECT * FROM reader(drives, frame)) SELECT frame FROM r WHERE "/gear:value" IS NOT NULL': (
        lambda d: d.reader("frame").filter('"/gear:value" IS NOT NULL').select("frame")
    ),
    "SELECT * FROM reader(drives, frame, segments => ['a'], contents => '/speed')": (
        lambda d: d.filter_segments("a").filter_contents("/speed").reader("frame")
    ),
    "SELECT count(*) FROM reader(drives, log_time) WHERE log_time >= TIMESTAMP '1970-01-01 00:00:06'": (
        lambda d: d.reader("log_time").filter("log_time >= TIMESTAMP '1970-01-01 00:00:06'").select("log_time")
    ),
    "SELECT * FROM reader(drives, frame) WHERE frame > 100": lambda d: d.reader("frame").filter("frame > 100"),
    "SELECT r.frame FROM labels JOIN reader(drives, frame) r ON drive = rerun_segment_id AND drive = 'a'": (
        lambda d: d.reader("frame").filter("rerun_segment_id = 'a'").select("frame")
    ),
}


def read(frame: Callable[[], Any]) -> tuple[int, int, int]:
    """The segments, chunks and bytes that an execution needs."""
    with query_metrics() as metrics:
        frame().collect()
    query = metrics.last_query()
    return (0, 0, 0) if query is None else (query.query_segments, query.query_chunks, query.query_bytes)


@pytest.mark.parametrize("statement", READS)
def test_what_a_statement_leaves_out_is_not_read(client: CatalogClient, statement: str) -> None:
    drives = client.get_dataset("drives")
    segments, chunks, num_bytes = read(lambda: client.ctx.sql(statement))
    assert (segments, chunks, num_bytes) == read(lambda: READS[statement](drives)), "as with reader"
    whole = read(lambda: drives.reader("frame"))
    assert whole[:2] == (3, 6)
    if " WHERE " in statement or "=" in statement:
        assert segments < 3 or chunks < 6 or "gear" in statement


def test_a_query_as_an_argument_decides_what_is_read(client: CatalogClient) -> None:
    fog = "segments => (SELECT drive FROM labels WHERE label = 'fog'), contents => '/speed'"
    assert read(lambda: client.ctx.sql(f"SELECT * FROM reader(drives, frame, {fog})"))[:2] == (1, 1)


def test_a_limit_ends_the_read(tmp_path: Path) -> None:
    """Rows of one segment are made as far as they are taken."""
    frames = [list(range(start, start + 1000)) for start in range(0, 200_000, 1000)]
    client = CatalogClient(tmp_path / "lake")
    chunks = (chunk("/speed", some, floats(*map(float, some))) for some in frames)
    client.create_dataset("long").register(recording(tmp_path, "a", *chunks)).wait()

    def made(statement: str) -> int:
        with query_metrics() as metrics:
            client.ctx.sql(statement).collect()
        return metrics.last_query().delivered_rows

    assert made("SELECT * FROM reader(long, frame)") == 200_000
    assert made("SELECT * FROM reader(long, frame) LIMIT 10") < 100_000


def test_an_explanation_shows_what_is_pushed_down(client: CatalogClient) -> None:
    plans = client.ctx.sql("EXPLAIN SELECT frame FROM reader(drives, frame) WHERE frame >= 4").to_pydict()["plan"]
    assert "projection=[frame], full_filters=[reader().frame >= Int64(4)]" in plans[0]
    assert "filter_expr=(frame >= 4)" in plans[1]


def test_a_dataset_is_not_read_for_a_list_of_tables(client: CatalogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from chunkmill.engine.catalog.segments import SegmentTables

    def refuse(*_: Any) -> Any:
        raise AssertionError("it is read")

    monkeypatch.setattr(SegmentTables, "segment_table", refuse)
    assert "drives" in client.ctx.sql("SHOW TABLES").to_pydict()["table_name"]


# --- errors


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM drivs", "there is no table or dataset 'drivs' (line 1, column 15). Did you mean drives?"),
        ("SELECT *\n  FROM public.lables", "'lables' (line 2, column 15). Did you mean labels?"),
        ("SELECT * FROM x.y.z", "there is no table or dataset 'x.y.z' (line 1, column 15). There are: drives, labels."),
        ('SELECT * FROM "Drives"', "'Drives' (line 1, column 15). Did you mean drives?"),
        ("SELECT * FROM '/etc/passwd'", "there is no table or dataset '/etc/passwd'"),
        ("SELECT * FROM 'drives.parquet'", "there is no table or dataset 'drives.parquet'"),
        ("SELECT * FROM read_csv('/etc/passwd')", "there is no table function 'read_csv' (line 1, column 15)"),
        ("SELECT nope FROM labels", "there is no column 'nope' (line 1, column 8). There are: drive, label."),
        ("SELECT lable\nFROM labels", "'lable' (line 1, column 8). Did you mean label?"),
        (
            'SELECT "/sped:value" FROM reader(drives, frame)',
            "'/sped:value' (line 1, column 8). Did you mean \"/speed:value\"?",
        ),
        (
            'SELECT r."/sped:value" FROM reader(drives, frame) r WHERE frame > 1',
            "there is no column '/sped:value' (line 1, column 8). Did you mean",
        ),
        (
            "SELECT x.label FROM labels l",
            "there is no table 'x' with a column 'label' (line 1, column 8). It is a column of l.",
        ),
        ("SELECT rerun_segment_id FROM drives, reader(drives, frame) r", "Write TABLE.rerun_segment_id."),
        ("SELECT * FROM reader(drives, frame), reader(drives, frame)", "Give each reader(...) a name"),
        ("SELEC 1", "found: SELEC (line 1, column 1)"),
        ("SELECT 1 FROM\n  reader(drives, index => frame) FROM x", "(line 2, column 34)"),
        ("SELECT 'never", "Unterminated string literal (line 1, column 8)"),
        ("SELECT nope(1)", "Invalid function 'nope'"),
        ("SELECT * FROM reader()", "reader: dataset is missing"),
        ("SELECT * FROM reader(drives)", "reader: index is missing. 'drives' has: frame, log_time."),
        ("SELECT * FROM reader(drives, index => 'fram')", "Did you mean 'frame'?"),
        (
            "SELECT * FROM reader(drives, index => 'frame',\n content => '/x')",
            "reader has no argument 'content' (line 2, column 2). Did you mean 'contents'? There are: dataset, index,",
        ),
        ("SELECT * FROM reader(drivs, frame)", "there is no dataset 'drivs'. Did you mean drives?"),
        ("SELECT * FROM reader(labels, frame)", "'labels' is a table, not a dataset"),
        ("SELECT * FROM reader(5, frame)", "reader: dataset takes text, not 5"),
        ("SELECT * FROM reader(drives, 5)", "reader: index takes text, not 5"),
        ("SELECT * FROM reader(drives, frame, fill => 'yes')", "fill_latest_at takes TRUE or FALSE, not 'yes'"),
        ("SELECT * FROM reader(drives, frame, contents => 5)", "contents takes text, or a list of texts, not 5"),
        ("SELECT * FROM reader(drives, frame, segments => 'd')", "there is no segment 'd'"),
        ("SELECT * FROM reader(drives, frame, index => 'x')", "reader: index is given twice"),
        ("SELECT * FROM reader(drives, frame, true)", "reader: argument 3 has no name"),
        ("SELECT * FROM reader(index => frame, drives)", "reader: index is given twice"),
        ("SELECT * FROM reader(drives, frame, executor => 'cloud')", "cloud"),
        ("SELECT * FROM reader(drives, frame, segments => )", "Expected: an expression"),
        ("SELECT * FROM reader(drives, frame, segments => (SELECT x FROM labels))", "'x' (line 1, column 57)"),
        ("SELECT * FROM reader(drives, frame, segments => (SELECT 5))", "segments takes text"),
        ("SELECT * FROM reader(drives, frame, fill => random() < 2)", "reader: fill_latest_at is not a constant"),
        ("SELECT * FROM reader(drives, frame, using_index_values => ['a'])", "IndexValuesLike must be"),
        ("SELECT * FROM reader(drives, frame, using_index_values => [1, 1])", "unique"),
        ("SELECT 1 / 0", "Divide by zero"),
        (
            'SELECT * FROM reader(drives, frame) WHERE "/speed:value" > 3',
            "List(Float64) > Int64. Values of components and properties are lists: '\"/speed:value\"[1] > 3'.",
        ),
        (
            'SELECT frame,\n  "/speed:value"[1].data FROM reader(drives, frame)',
            "the field 'data' needs brackets (line 2, column 21). Write ['data'] instead of .data.",
        ),
        ("SELECT CAST('x' AS INT)", "Cannot cast string 'x'"),
        ("SELECT * FROM reader(drives, log_time) WHERE log_time > 'noon'", "noon"),
        ("SELECT sum(label) FROM labels", "sum"),
        ("SELECT frame FROM reader(drives, frame) GROUP BY rerun_segment_id", "GROUP BY"),
        ("", "No SQL statements were provided"),
        ("SELECT 1; SELECT 2", "single SQL statement"),
    ],
)
def test_errors_say_what_is_meant_and_where(client: CatalogClient, statement: str, message: str) -> None:
    with pytest.raises((ChunkmillError, TypeError), match=re.escape(message)) as raised:
        client.ctx.sql(statement).collect()
    assert not re.search(
        r"DataFusion error|ParserError|issue tracker|Error during|SchemaError|panic|UDTF", str(raised.value)
    )


def test_a_place_is_of_a_name_that_occurs_once(client: CatalogClient) -> None:
    with pytest.raises(UsageError, match="there is no column 'nope'\\. There") as raised:
        client.ctx.sql("SELECT nope FROM labels WHERE nope > 1")
    assert "line" not in str(raised.value)


def test_errors_of_reading_are_those_of_reading(client: CatalogClient, tmp_path: Path) -> None:
    path = tmp_path / "b.rrd"
    path.write_bytes(path.read_bytes()[:40] + bytes(path.stat().st_size - 40))
    with pytest.raises(ReadError, match="segment b"):
        client.ctx.sql("SELECT * FROM reader(drives, frame) ORDER BY frame").collect()


# --- statements that write


@pytest.mark.parametrize(
    "statement",
    [
        "COPY drives TO '{file}'",
        "COPY (SELECT 1) TO '{file}' STORED AS CSV",
        "EXPLAIN ANALYZE COPY drives TO '{file}'",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{file}'",
        "CREATE UNBOUNDED EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION 'http://127.0.0.1:1/x'",
        "INSERT INTO drives SELECT * FROM drives",
        "INSERT OVERWRITE drives SELECT * FROM drives",
        "DELETE FROM drives",
        "UPDATE drives SET rerun_segment_id = 'x'",
        "TRUNCATE TABLE drives",
        "PREPARE p AS INSERT INTO labels VALUES ('x', 'y')",
        "CREATE FUNCTION f(INT) RETURNS INT RETURN $1",
        "LOAD '{file}'",
        "SET datafusion.runtime.temp_directory = '{file}'",
        "SET \"datafusion.runtime.temp_directory\" = '{file}'",
        "SET datafusion.runtime.TEMP_DIRECTORY TO '{file}'",
    ],
)
def test_statements_reach_no_files_and_write_to_no_dataset(
    client: CatalogClient, tmp_path: Path, statement: str
) -> None:
    file = tmp_path / "out"
    for options in (None, SQLOptions()):
        with pytest.raises(ChunkmillError):
            client.ctx.sql(statement.format(file=file), options).collect()
    assert not file.exists()
    assert rows(client, "SELECT count(*) FROM drives") == [(3,)]
    assert client.get_table("labels").reader().count() == 3
    with pytest.raises(ChunkmillError):
        client.ctx.sql("SELECT * FROM x")


def test_a_dataset_is_not_written_or_removed_by_its_name(client: CatalogClient) -> None:
    with pytest.raises(UnsupportedError, match="'drives' is a dataset; SQL can only write to tables"):
        client.ctx.sql("SELECT * FROM drives").write_table("drives")
    with pytest.raises(Exception, match="'drives' is an entry of the catalog"):
        client.ctx.deregister_table("drives")
    with pytest.raises(UnsupportedError, match="SQL in a catalog cannot write files: COPY"):
        client.ctx.sql("COPY drives TO '/tmp/x.csv'")
    with pytest.raises(ChunkmillError, match="DML not supported"):
        client.ctx.sql_with_options("INSERT INTO labels VALUES ('x', 'y')", SQLOptions().with_allow_dml(False))
    assert client.ctx.sql("INSERT INTO labels SELECT rerun_segment_id, 'new' FROM drives").to_pydict() == {"count": [3]}
    client.ctx.sql("PREPARE p AS SELECT count(*) AS n FROM drives")
    assert client.ctx.sql("EXECUTE p").to_pydict() == {"n": [3]}


# --- the command


def test_the_command_shows_segments_and_rows(client: CatalogClient, tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(sql, [client.url, *arguments])

    top = (
        'SELECT rerun_segment_id AS id, max("/speed:value"[1]) AS top FROM reader(drives, frame) GROUP BY 1 ORDER BY 1'
    )
    assert run(top, "--json", "--limit", "1").output == '{"id": "a", "top": 40.0}\n'
    shown = run("SELECT rerun_segment_id FROM drives WHERE rerun_segment_id > 'b'")
    assert shown.output.split() == ["rerun_segment_id", "c"]
    for statement, message in (("SELECT * FROM drivs", "Did you mean drives?"), ("SELECT 1 / 0", "Divide by zero")):
        failed = run(statement)
        assert failed.exit_code != 0
        assert message in failed.output
        assert "DataFusion" not in failed.output
    plan = run("EXPLAIN SELECT frame FROM reader(drives, frame) WHERE frame > 3").output
    assert plan.startswith("logical_plan:\n  TableScan: reader() projection=[frame], full_filters=[")
    out = tmp_path / "rows.parquet"
    assert run(f"COPY drives TO '{out}'").exit_code != 0
    assert not out.exists()
    both = "SELECT * FROM reader(drives, frame) UNION ALL SELECT * FROM reader(drives, frame)"
    assert run(both, "-o", str(out)).exit_code == 0
    assert pq.read_table(out).num_rows == 24


def test_lakes_of_the_comparison_have_all_that_differs(tmp_path: Path) -> None:
    client = lake_at(tmp_path)
    values = client.ctx.sql('SELECT "/speed:value" AS v FROM reader(drives, frame)').to_pydict()["v"]
    assert None in values and [] in values and any(value and None in value for value in values)
