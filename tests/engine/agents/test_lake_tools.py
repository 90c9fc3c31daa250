"""The tools of agents, as their process answers calls, but in this one."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunkmill import CatalogClient, LazyChunkStream
from chunkmill.engine.agents.answers import AnswerPage, shown_value, thinned
from chunkmill.engine.agents.tools import LakeTools
from chunkmill.engine.agents.worker import answered
from chunkmill.engine.errors import UsageError
from lake_of_drives import IMU, RATES, SECONDS, SPEED, chunk, make

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("secret_place")
    make(folder)
    return folder / "lake"


@pytest.fixture
def ask(lake: Path) -> Ask:
    return asking(lake)


def asking(lake: Path | str, rows: int = 1_000, size: int = 100_000) -> Ask:
    """A function that calls tools: it gives the answer, or the text of the error."""
    tools = LakeTools(CatalogClient(lake).for_clients(()), rows, size)

    def ask(tool: str, **arguments: Any) -> Any:
        answer = answered(tools, {"tool": tool, "arguments": arguments}, str(lake))
        assert str(lake) not in json.dumps(answer), "it says where the lake is"
        if "png" in answer:
            return base64.b64decode(answer["png"])
        return json.loads(answer["text"]) if "text" in answer else answer["error"]

    return ask


# --- answers


def test_entries_and_their_columns_are_described(ask: Ask) -> None:
    assert ask("list_entries")["rows"] == [
        {"name": "drives", "kind": "dataset", "num_segments": 3},
        {"name": "labels", "kind": "table", "num_rows": 2},
    ]
    drives = ask("describe", name="drives")
    assert drives["columns"] == [
        {"name": "/camera:blob", "type": "list<item: binary>"},
        {"name": SPEED, "type": "list<item: double>"},
        {"name": IMU, "type": "list<item: double>"},
    ]
    assert drives["indexes"] == [
        {
            "name": "time",
            "type": "timestamp[ns]",
            "start": "1970-01-01T00:00:00.000000000",
            "end": "1970-01-01T00:00:07.980000000",
        }
    ]
    assert [c["name"] for c in ask("describe", name="drives", contents=["/imu"])["columns"]] == [IMU]
    labels = ask("describe", name="labels")
    assert labels["num_rows"] == 2 and labels["columns"][1] == {"name": "good", "type": "bool"}


def test_rates_are_those_of_the_rows(ask: Ask) -> None:
    rows = ask("rates", dataset="drives")["rows"]
    found = {(row["rerun_segment_id"], row["column"]): row for row in rows}
    assert len(found) == len(rows) == 3 * 3 - 1
    for name, rate in RATES.items():
        row = found[name, IMU]
        assert row["rate_hz"] == rate and row["rows"] == rate * SECONDS[name]
        assert row["start"] == "1970-01-01T00:00:00.000000000"
    assert ("blind", "/camera:blob") not in found
    some = ask("rates", dataset="drives", contents=["/imu"], segments=["c*"])["rows"]
    assert [(row["rerun_segment_id"], row["column"]) for row in some] == [("calm", IMU)]


def test_rates_count_only_rows_with_values_along_the_chosen_index(tmp_path: Path) -> None:
    """Chunks with two indexes and two components, of which one has nulls; a layer more; an index of numbers."""
    from chunkmill import Chunk
    from chunkmill.engine.chunk import ComponentDescriptor

    random = np.random.default_rng(3)
    ticks = np.sort(random.integers(0, 10**12, 300))
    has = random.random(300) < 0.3
    lists = pa.array([[1.0] if value else None for value in has], pa.list_(pa.float64()))
    chunks = [
        Chunk.build(
            "/a",
            {"frame": pa.array(range(at, at + 100)), "time": pa.array(ticks[at : at + 100], pa.timestamp("ns"))},
            [
                (ComponentDescriptor("full"), pa.array([[1.0]] * 100)),
                (ComponentDescriptor("some"), lists[at : at + 100]),
            ],
        )
        for at in (0, 100, 200)
    ]
    lake = CatalogClient(tmp_path / "lake")
    drives = lake.create_dataset("d")
    for layer, some in {"base": chunks[:2], "more": chunks[2:]}.items():
        path = tmp_path / f"{layer}.rrd"
        LazyChunkStream.from_iter(some).write_rrd(path, application_id="t", recording_id="s", executor="inline")
        drives.register(str(path), layer_name=layer).wait()
    ask = asking(tmp_path / "lake")
    assert "There are: frame, time." in ask("rates", dataset="d")
    full, some = ask("rates", dataset="d", index="time")["rows"]
    assert (full["rows"], some["rows"]) == (300, has.sum())
    assert full["rate_hz"] == pytest.approx(299e9 / (ticks[-1] - ticks[0]), rel=1e-5)
    assert some["rate_hz"] == pytest.approx((has.sum() - 1) * 1e9 / np.ptp(ticks[has]), rel=1e-5)
    frames = ask("rates", dataset="d", index="frame")["rows"]
    assert next((row["rows"], row["start"], row["end"], row["rate_hz"]) for row in frames) == (300, 0, 299, None)


def test_rows_come_in_order_with_filters(ask: Ask) -> None:
    rows = ask("rows", dataset="drives", contents=["/car"], where=f'"{SPEED}"[1] < 10.5')["rows"]
    assert {row["rerun_segment_id"] for row in rows} == {"hard"} and rows[-1][SPEED] == [10.0]
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    blob = ask("rows", dataset="drives", contents=["/camera"], columns=["/camera:blob"], segments=["hard"], limit=1)
    assert blob["rows"][0]["/camera:blob"] == ["5,000 bytes"]


def test_events_are_found_and_notes_come_along(ask: Ask) -> None:
    found = ask("find", dataset="drives", condition=f"{IMU} < -5", window="1s")
    (event,) = found["rows"]
    assert found["num_events"] == 1 and event["rerun_segment_id"] == "hard"
    assert event["peak"] == pytest.approx(-10 * 100 / 99, rel=1e-6)
    assert "no statistics" in found["notes"][0]
    assert ask("find", dataset="drives", condition=f"{IMU} > 900")["rows"] == []


def test_a_plot_is_a_picture(ask: Ask) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    picture = ask("plot", dataset="drives", segment="hard", column=SPEED)
    with pillow.open(io.BytesIO(picture)) as image:
        assert image.format == "PNG" and image.size == (1000, 400)
        colours = image.convert("RGB").getcolors(1 << 20)
    assert colours is not None and len(colours) > 10, "a line is drawn"
    assert "not numbers" in ask("plot", dataset="drives", segment="hard", column="/camera:blob")


def test_a_plot_takes_names_that_look_like_formulas_and_gaps(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    times = pa.array(range(5), pa.timestamp("ns"))
    name = "/$\\frac{a}$ 漢"
    chunks = [chunk(name, "x", times, [[1.0], [float("nan")], None, [float("inf")], [2.0, 3.0]])]
    path = tmp_path / "a.rrd"
    LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="t", recording_id="$^$", executor="inline")
    CatalogClient(tmp_path / "lake").create_dataset("d").register(str(path)).wait()
    ask = asking(tmp_path / "lake")
    (column,) = [c["name"] for c in ask("describe", name="d")["columns"]]
    assert ask("plot", dataset="d", segment="$^$", column=column).startswith(b"\x89PNG")


def test_thinning_keeps_every_peak() -> None:
    y = np.random.default_rng(1).normal(size=100_003)
    y[[5, 70_000]] = 50, -50
    y[10:20] = np.nan
    x, kept = thinned(np.arange(len(y)), y, 4_000)
    assert len(kept) <= 4_100 and {5, 70_000} <= set(x.tolist())
    assert (np.diff(x) > 0).all() and np.array_equal(kept, y[x], equal_nan=True)


# --- limits


def test_what_is_cut_is_the_beginning_of_the_rest(lake: Path) -> None:
    ask = asking(lake, rows=70)
    whole = asking(lake, size=1 << 20)("rows", dataset="drives", contents=["/car"], segments=["hard"], limit=1_000)
    assert "cut" not in whole and len(whole["rows"]) == 300
    for arguments in (
        {"tool": "rows", "dataset": "drives", "contents": ["/car"], "segments": ["hard"], "limit": 1_000},
        {
            "tool": "sql",
            "statement": f"""SELECT rerun_segment_id, time, "{SPEED}" FROM reader('drives', index => 'time',
          contents => '/car', segments => 'hard') ORDER BY time""",
            "limit": 90,
        },
    ):
        rows: list[Any] = []
        answer: dict[str, Any] = {"cut": ""}
        while "cut" in answer:
            answer = ask(offset=len(rows), **arguments)
            rows += answer["rows"]
            assert len(answer["rows"]) <= 70
            assert "cut" not in answer or f"with offset {len(rows)}" in answer["cut"]
        assert rows == whole["rows"]
    for tool in ("segments", "rates", "find", "list_entries"):
        more = {"list_entries": {}, "find": {"dataset": "drives", "condition": f"{IMU} < 90"}}
        arguments = more.get(tool, {"dataset": "drives"})
        first, rest = ask(tool, limit=1, **arguments), ask(tool, offset=1, **arguments)
        assert first["rows"] + rest["rows"] == ask(tool, **arguments)["rows"] and "cut" in first
    assert "cut" in ask("describe", name="drives", limit=2)


def test_an_answer_has_no_more_bytes_than_it_may(lake: Path) -> None:
    ask = asking(lake, size=2_000)
    answer = ask("rows", dataset="drives", contents=["/car"])
    assert 0 < len(answer["rows"]) < 30 and "2,000 bytes" in answer["cut"]
    assert len(json.dumps(answer["rows"])) < 2_200
    assert "alone has more than 2,000 bytes" in ask("sql", statement="SELECT repeat('é', 1500)")
    assert ask("sql", statement="SELECT repeat('é', 500) AS e")["rows"] == [{"e": "é" * 500}]


def test_long_values_are_cut_and_say_so() -> None:
    assert shown_value(pa.scalar([list(range(70))]))[0][-1] == "… 6 more"
    assert shown_value(pa.scalar(bytes(3_000))) == "3,000 bytes"
    assert shown_value(pa.scalar([0] * 100, pa.list_(pa.uint8()))) == "100 bytes"
    assert shown_value(pa.scalar({"a": [1.5, None]})) == {"a": [1.5, None]}
    assert shown_value(pa.scalar("x" * 3_000)).endswith("1,000 more characters")
    assert shown_value(pa.scalar([("k", 1)], pa.map_(pa.string(), pa.int64()))) == [{"key": "k", "value": 1}]
    assert shown_value(pa.array(["a"]).dictionary_encode()[0]) == "a"
    with pytest.raises(UsageError, match="at least 1"):
        AnswerPage(0, 0, 1, 1)


# --- nothing is written, and nothing else is named

ROWS = "SELECT * FROM reader('drives', index => 'time'"
HOSTILE = {
    # the call: what the error says
    ("describe", "../../etc/passwd"): "there is no dataset '../../etc/passwd'",
    ("describe", "file:///etc/passwd"): "there is no dataset",
    ("describe", "s3://bucket/lake"): "there is no dataset",
    ("describe", "__entries"): "there is no dataset",
    ("describe", "drives\x00"): "there is no dataset",
    ("describe", "\ud800"): "there is no dataset",
    ("segments", "drives", "true) UNION SELECT * FROM '/etc/passwd' --"): "",
    ("segments", "drives", "rerun_storage_urls[1] LIKE '%'"): "no column 'rerun_storage_urls'",
    ("segments", "drives", "1 = 1; DROP TABLE labels"): "",
    ("rows", "/etc/passwd"): "there is no dataset",
    ("rows", "drives", "/etc/passwd"): "there is no index",
    ("rows", "drives", "time", "/etc/passwd"): "",
    ("rows", "drives", "time", "/car", '/car:speed" FROM x --'): "there is no column",
    ("find", "drives", "'/etc/passwd' = 1"): "",
    ("find", "drives", "/imu:acceleration < (SELECT 1)"): "",
    ("plot", "drives", "../calm", SPEED): "there is no segment",
    ("plot", "drives", "calm", "/etc/passwd"): "there is no column",
    ("plot", "drives", "calm", SPEED, "time", "input"): "is not a path",
    ("plot", "drives", "calm", SPEED, "time", 'import "/etc/passwd" as $d; $d'): "is not a path",
    ("plot", "drives", "calm", SPEED, "time", "env.PATH"): "is not a path",
    ("rates", "drives", "/imu", "../time"): "there is no index",
    **{
        ("sql", statement): error
        for statement, error in {
            "": "only read",
            "INSERT INTO labels VALUES ('x', true)": "only read",
            "UPDATE labels SET good = true": "only read",
            "DELETE FROM labels": "only read",
            "DROP TABLE labels": "only read",
            "/* SELECT */ DROP TABLE labels": "only read",
            "-- SELECT\nDROP TABLE labels": "only read",
            "CREATE TABLE x AS SELECT 1": "only read",
            "CREATE VIEW x AS SELECT 1": "only read",
            "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'": "only read",
            "COPY labels TO 'OUT.csv'": "only read",
            "COPY (SELECT 1) TO 'OUT.csv' STORED AS CSV": "only read",
            "SET datafusion.execution.batch_size = 1": "only read",
            "PREPARE p AS SELECT 1": "only read",
            "BEGIN": "only read",
            "(DROP TABLE labels)": "only read",
            "SELECT 1; DROP TABLE labels": "",
            "WITH x AS (SELECT 1) INSERT INTO labels VALUES ('x', true)": "",
            "EXPLAIN INSERT INTO labels VALUES ('x', true)": "",
            "EXPLAIN ANALYZE INSERT INTO labels VALUES ('x', true)": "",
            "EXPLAIN ANALYZE COPY labels TO 'OUT.csv'": "",
            "SELECT 1 INTO labels": "",
            "SELECT * FROM '/etc/passwd'": "there is no table or dataset",
            'SELECT * FROM "file:///etc/passwd"': "there is no table or dataset",
            "SELECT * FROM 'https://example.com/x.csv'": "there is no table or dataset",
            "SELECT * FROM read_csv('/etc/passwd')": "there is no table function",
            "SELECT * FROM parquet_metadata('/etc/passwd')": "there is no table function",
            "SELECT * FROM __entries": "there is no table or dataset",
            "SELECT rerun_storage_urls FROM drives": "no column 'rerun_storage_urls'",
            "SELECT read_file('/etc/passwd')": "",
            "SELECT * FROM reader('/etc/passwd', index => 'time')": "there is no dataset",
            "SELECT * FROM reader('../drives', index => 'time')": "there is no dataset",
            f"{ROWS}, executor => 'spark')": "cannot have an executor",
            f"{ROWS}, \"executor\" := 'spark')": "cannot have an executor",
            f"{ROWS}, segments => (WITH x AS (SELECT 1) INSERT INTO labels VALUES ('z', true)))": "",
            f"{ROWS}, segments => (SELECT * FROM '/etc/passwd'))": "there is no table or dataset",
            "SELECT " + "(" * 3_000 + "1" + ")" * 3_000: "",
        }.items()
    },
}


def digest(folder: Path) -> str:
    """The names and the bytes of all files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()


@pytest.fixture(scope="module")
def before(lake: Path) -> str:
    return digest(lake.parent)


@pytest.mark.parametrize("call", HOSTILE, ids=lambda call: ascii(call)[:60])
def test_nothing_is_written_and_nothing_else_is_named(
    ask: Ask, lake: Path, before: str, call: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tool, *given = call
    names = {
        "describe": ["name"],
        "segments": ["dataset", "where"],
        "rows": ["dataset", "index", "contents", "columns"],
        "find": ["dataset", "condition"],
        "plot": ["dataset", "segment", "column", "index", "select"],
        "rates": ["dataset", "contents", "index"],
        "sql": ["statement"],
    }[tool]
    arguments = dict(zip(names, given, strict=False))
    for name in ("contents", "columns"):
        if isinstance(arguments.get(name), str):
            arguments[name] = [arguments[name]]
    answer = ask(tool, **arguments)
    if tool == "rows" and len(given) == 3:
        assert isinstance(answer, str) or answer["rows"] == []  # an entity may have such a name
    else:
        assert isinstance(answer, str) and HOSTILE[call] in answer, answer
    assert "root:" not in str(answer) and str(lake.parent) not in str(answer)
    assert digest(lake.parent) == before and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["INSERT INTO labels", "CREATE TABLE x AS", "COPY", "DROP TABLE", "SET", "DELETE"])
def test_the_session_refuses_writes_by_itself(
    lake: Path, before: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first word of a statement is looked at; this is what holds if somebody gets past that."""
    monkeypatch.setattr("chunkmill.engine.agents.tools._READING", re.compile(""))
    statements = [call[1] for call in HOSTILE if call[0] == "sql" and call[1].startswith(word)]
    assert statements
    for statement in statements:
        assert isinstance(asking(lake)("sql", statement=statement), str)
    assert digest(lake.parent) == before


def test_no_answer_says_where_files_are(ask: Ask, lake: Path) -> None:
    answers = [
        ask("segments", dataset="drives"),
        ask("describe", name="drives"),
        ask("sql", statement="SELECT * FROM drives"),
        ask("sql", statement="EXPLAIN ANALYZE SELECT * FROM labels"),
        ask("sql", statement=f"EXPLAIN ANALYZE {ROWS})"),
        ask("sql", statement="SELECT * FROM information_schema.df_settings", limit=500),
        ask("sql", statement="SHOW TABLES"),
        ask("sql", statement="SELECT * FROM information_schema.columns", limit=500),
    ]
    for answer in answers:
        assert "rows" in answer or "columns" in answer, answer
        assert "cut" not in answer
        text = json.dumps(answer)
        assert "secret_place" not in text and "rerun_storage_urls" not in text and ".rrd" not in text


def test_a_lake_that_is_damaged_says_so_without_a_place(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make(tmp_path)
    (tmp_path / "calm.rrd").unlink()
    ask = asking(tmp_path / "lake")
    error = ask("rows", dataset="drives", contents=["/car"], segments=["calm"])
    assert isinstance(error, str) and "the lake cannot be read" in error and str(tmp_path) not in error
    assert str(tmp_path) in capfd.readouterr().err
    assert len(ask("rows", dataset="drives", contents=["/car"], segments=["hard"], limit=5)["rows"]) == 5


def test_an_entry_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    make(tmp_path)
    other = CatalogClient(tmp_path / "other").create_table("t", pa.schema([("word", pa.string())]))
    other.append(pa.table({"word": ["there"]}))
    CatalogClient(tmp_path / "lake").register_table("t", other.storage_url)
    ask = asking(tmp_path / "lake")
    assert ask("sql", statement="SELECT * FROM t") == {"rows": [{"word": "there"}]}, "who made the lake registered it"
    shutil.rmtree(tmp_path / "other")
    for answer in (ask("sql", statement="SELECT * FROM t"), ask("describe", name="t")):
        assert isinstance(answer, str) and str(tmp_path) not in answer
    entries = {row["name"]: row for row in ask("list_entries")["rows"]}
    assert "error" in entries["t"] and entries["labels"]["num_rows"] == 2


def test_an_empty_lake_and_strange_names_are_described(tmp_path: Path) -> None:
    lake = CatalogClient(tmp_path / "lake")
    lake.create_dataset("a [b] c.d:e")
    ask = asking(tmp_path / "lake")
    assert ask("list_entries")["rows"] == [{"name": "a [b] c.d:e", "kind": "dataset", "num_segments": 0}]
    assert ask("segments", dataset="a [b] c.d:e") == {"rows": []}
    assert ask("describe", name="a [b] c.d:e")["columns"] == []
    assert "The dataset has none" in ask("rows", dataset="a [b] c.d:e")
