"""Every answer of Rerun's server about tables is ours too, or is one that differs on purpose.

The answers are those of ``../shared/golden/query/tables_0.33.1.json``: 88 calls, one after the other, on tables that
those before have changed. They are made once; each is compared with what was recorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import AlreadyExistsError, CatalogClient, NotFoundError, TableEntry
from datafusion import DataFrame, col, lit
from places import SHARED

RECORDED = SHARED / "golden" / "query" / "tables_0.33.1.json"

pytestmark = [pytest.mark.wide, pytest.mark.skipif(not RECORDED.exists(), reason="the recorded calls are not at hand")]

INDEX = {"rerun:is_table_index": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int32(), metadata=INDEX), ("v", pa.string()), ("l", pa.list_(pa.int64()))])
TWO = pa.schema(
    [pa.field("a", pa.int32(), metadata=INDEX), pa.field("b", pa.int32(), metadata=INDEX), ("v", pa.string())]
)


def batch(ids: list[Any], values: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": ids, "v": values, "l": [[1]] * len(ids)}, schema=SCHEMA)


def two(a: list[int], b: list[int], v: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"a": a, "b": b, "v": v}, schema=TWO)


class World:
    """The catalog of the recorded calls, and its tables."""

    def __init__(self, folder: Path) -> None:
        self.url = (folder / "data").as_uri()
        self.client = CatalogClient(folder / "lake")
        self.t = self.make("t", SCHEMA)
        self.foreign = folder / "foreign"
        self.empty = folder / "empty"
        self.empty.mkdir()
        lance.write_dataset(pa.table({"k": [1, 2], "s": ["a", "b"]}), self.foreign)

    def make(self, name: str, schema: pa.Schema = SCHEMA, url: str | None = None) -> TableEntry:
        return self.client.create_table(name, schema, url or self.url)

    def rows(self, table: TableEntry | None = None, **where: Any) -> str:
        frame = (table or self.t).reader()
        for name, value in where.items():
            frame = frame.filter(col(name) == lit(value))
        names = [name for name in ("a", "b", "id", "v") if name in frame.schema().names]
        return repr(frame.sort(*map(col, names)).to_pylist())

    def pairs(self) -> str:
        return repr(self.t.reader().select("id", "v").sort(col("id"), col("v")).to_pylist())


Call = Callable[[World], Any]

AMBIGUOUS = "UsageError: Ambiguous merge inserts are prohibited"
"""The answer to a key that is given twice, new or not; the reference refuses only one that a row has."""


def overwritten(w: World) -> Any:
    return w.t.overwrite(pa.record_batch({"zz": [1]}))


CALLS: list[tuple[str, Call, str | type[Exception] | None]] = [
    ("repr", lambda w: repr(w.t), None),
    ("str", lambda w: repr(str(w.t)), None),
    ("kind", lambda w: w.t.kind, None),
    ("storage_url", lambda w: repr(w.t.storage_url.replace(w.url, "<U>").replace(str(w.t.id), ID)), None),
    ("arrow_schema", lambda w: w.t.arrow_schema(), None),
    ("reader type", lambda w: isinstance(w.t.reader(), DataFrame), "True"),
    ("rows", World.rows, None),
    ("create no url", lambda w: w.client.create_table("t2", SCHEMA).storage_url.startswith("file://"), "True"),
    ("create dup", lambda w: w.make("t"), AlreadyExistsError),
    ("create bad url", lambda w: w.make("x", SCHEMA, "relative"), ValueError),
    ("create bad name", lambda w: w.make("a-b"), ValueError),
    ("create name space", lambda w: w.make("a b"), ValueError),
    ("create name dots", lambda w: repr(w.make("c.s.tt").name), None),
    ("create name digits", lambda w: w.make("1t"), ValueError),
    ("create name empty", lambda w: w.make(""), ValueError),
    ("create name hidden", lambda w: w.make("__x"), "UsageError: invalid entry name: name '__x' begins with '__'"),
    ("table_names", lambda w: w.client.table_names(), None),
    ("table_names hidden", lambda w: w.client.table_names(include_hidden=True), "['__entries', 'c.s.tt', 't', 't2']"),
    ("create empty schema", lambda w: w.make("es", pa.schema([])).arrow_schema(), None),
    ("append batch", lambda w: w.t.append(batch([1, 2, 3], ["a", "b", "c"])), None),
    ("rows", World.rows, None),
    ("append named scalar", lambda w: w.t.append(id=4, v="d"), None),
    ("append named lists", lambda w: w.t.append(id=[5, 6], v=["e", "f"], l=[[1, 2], [3]]), None),
    ("append named mismatch", lambda w: w.t.append(id=[7, 8], v="x"), ValueError),
    ("append list col wrong", lambda w: w.t.append(id=9, l=[1, 2]), None),
    ("append list col ok", lambda w: w.t.append(id=9, l=[[1, 2]]), None),
    ("append unknown col", lambda w: w.t.append(zzz=1), KeyError),
    ("append both", lambda w: w.t.append(batch([1], ["a"]), id=1), TypeError),
    ("append nothing", lambda w: w.t.append(), None),
    ("append []", lambda w: w.t.append([]), None),
    ("append empty list", lambda w: w.t.append(id=[]), None),
    ("append bad type", lambda w: w.t.append(5), "TypeError: Unexpected type: <class 'int'>"),
    ("append pa.Table", lambda w: w.t.append(pa.Table.from_batches([batch([], [])])), "None"),
    ("append dict", lambda w: w.t.append({"id": [1]}), TypeError),
    ("append overflow", lambda w: w.t.append(id=2**40), pa.ArrowInvalid),
    ("append wrong dtype", lambda w: w.t.append(id="zz"), pa.ArrowInvalid),
    ("append subset batch", lambda w: w.t.append(pa.record_batch({"id": pa.array([20], pa.int32())})), None),
    ("append wrong type batch", lambda w: w.t.append(pa.record_batch({"id": [21]})), RuntimeError),
    (
        "append extra col batch",
        lambda w: w.t.append(batch([1], ["a"]).append_column("x", pa.array([1]))),
        RuntimeError,
    ),
    ("append reordered batch", lambda w: w.t.append(batch([22], ["q"]).select(["l", "v", "id"])), None),
    ("rows", World.rows, None),
    ("upsert", lambda w: w.t.upsert(batch([1, 2, 100], ["A", "B", "new"])), None),
    ("rows", World.pairs, None),
    ("upsert named partial", lambda w: w.t.upsert(id=3, v="C"), None),
    ("rows3", lambda w: w.rows(id=3), None),
    ("upsert subset batch", lambda w: w.t.upsert(batch([4], ["D"]).select(["id", "v"])), None),
    ("rows4", lambda w: w.rows(id=4), None),
    ("upsert dup source keys", lambda w: w.t.upsert(batch([50, 50], ["x", "y"])), AMBIGUOUS),
    ("rows50", lambda w: w.rows(id=50), "[]"),
    ("upsert dup src keys match", lambda w: w.t.upsert(batch([1, 1], ["x", "y"])), AMBIGUOUS),
    ("rows1", lambda w: w.rows(id=1), None),
    ("upsert null key", lambda w: w.t.upsert(batch([None], ["n"])), None),
    ("upsert null key again", lambda w: w.t.upsert(batch([None], ["n"])), None),
    ("rows null", lambda w: w.rows(id=None), None),
    ("append dup keys", lambda w: w.t.append(batch([1, 1], ["p", "q"])), None),
    ("rows1", lambda w: w.rows(id=1), None),
    ("upsert key dup in target", lambda w: w.t.upsert(batch([1], ["Z"])), None),
    ("rows1", lambda w: w.rows(id=1), None),
    ("overwrite", lambda w: w.t.overwrite(batch([1], ["only"])), None),
    ("rows", World.rows, None),
    ("overwrite other schema", overwritten, None),
    ("arrow_schema after", lambda w: w.t.arrow_schema(), None),
    ("get_table schema after", lambda w: w.client.get_table("t").arrow_schema(), None),
    ("rows", lambda w: w.t.reader().to_pylist(), None),
    ("overwrite []", lambda w: w.t.overwrite([]), None),
    ("overwrite multi batch", lambda w: w.t.overwrite([batch([], []), batch([2], ["b"])]), None),
    ("rows", World.rows, None),
    (
        "overwrite reader",
        lambda w: w.t.overwrite(pa.RecordBatchReader.from_batches(SCHEMA, [batch([2], ["b"])])),
        None,
    ),
    ("rows", World.rows, None),
    ("upsert no idx", lambda w: w.make("noidx", pa.schema([("a", pa.int32())])).upsert(a=1), ValueError),
    ("append", lambda w: w.make("idx2", TWO).append(two([1, 1, 2], [1, 2, 1], ["x", "y", "z"])), None),
    ("upsert 2keys", lambda w: w.client.get_table("idx2").upsert(two([1, 3], [2, 3], ["Y", "W"])), None),
    ("rows", lambda w: w.rows(w.client.get_table("idx2")), None),
    ("to_arrow_reader", lambda w: w.client.get_table("idx2").to_arrow_reader().read_all().num_rows, None),
    ("sql", lambda w: w.client.ctx.sql("select count(*) as n from idx2").to_pylist(), None),
    ("register_table", lambda w: registered(w), None),
    ("register_table dup", lambda w: w.client.register_table("foreign", str(w.foreign)), AlreadyExistsError),
    ("register_table missing", lambda w: w.client.register_table("f2", str(w.foreign) + "x"), NotFoundError),
    ("register_table notlance", lambda w: w.client.register_table("f3", w.empty), NotFoundError),
    ("register_table bad url", lambda w: w.client.register_table("f4", "relative"), ValueError),
    ("append foreign", lambda w: appended(w), None),
    ("external change visible?", lambda w: changed(w), "{'k': 3, 's': 'c'}, {'k': 4, 's': 'd'}]"),
    ("delete foreign", lambda w: (w.client.get_table("foreign").delete(), w.foreign.exists()), None),
    ("delete t", lambda w: deleted(w), "(None, True)"),
    ("reader after delete", lambda w: w.t.reader(), NotFoundError),
    ("hash", lambda w: hash(w.t), TypeError),
    ("dataset named", lambda w: w.client.create_dataset("noidx"), AlreadyExistsError),
    ("entries rows", lambda w: entries(w), "['__entries', 'c.s.tt', 'es', 'idx2', 'noidx', 't2']"),
]
"""Each call, how it is made, and what is expected instead of the recorded answer: another one, or a kind of error."""

ID = "18E9F1BD285A50D42262724f74536e15"
"""The id of the recorded table."""

OTHER_WORDS = {
    "upsert no idx": "table 'noidx' has no key: a merge insert operation requires join keys",
    "register_table missing": "there is no Lance table here",
    "register_table notlance": "there is no Lance table here",
}
"""What our errors say that say something else."""


def registered(w: World) -> Any:
    entry = w.client.register_table("foreign", str(w.foreign))
    return entry, entry.reader().to_pylist(), entry.storage_url.replace(w.foreign.parent.as_uri(), "<U>")


def appended(w: World) -> Any:
    entry = w.client.get_table("foreign")
    return entry.append(k=3, s="c"), entry.reader().count()


def changed(w: World) -> Any:
    entry = w.client.get_table("foreign")
    before = entry.reader().count()
    lance.write_dataset(pa.table({"k": [4], "s": ["d"]}), w.foreign, mode="append")
    return before, entry.reader().sort(col("k")).to_pylist()


def deleted(w: World) -> Any:
    place = Path(w.t.storage_url.removeprefix("file://"))
    return w.t.delete(), place.is_dir()


def entries(w: World) -> Any:
    return sorted(w.client.get_table("__entries").reader().to_pydict()["name"])


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    world = World(tmp_path_factory.mktemp("recorded"))
    found: list[Any] = []
    for _, call, _ in CALLS:
        try:
            found.append(str(call(world)))
        except Exception as error:  # noqa: BLE001 (it is compared)
            found.append(error)
    return found


def recorded() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RECORDED.read_text()) if RECORDED.exists() else []
    return found


def test_every_recorded_call_is_here() -> None:
    assert [row["call"] for row in recorded()] == [name for name, _, _ in CALLS]


@pytest.mark.parametrize("number", range(len(CALLS)), ids=[f"{n}-{name}" for n, (name, _, _) in enumerate(CALLS)])
def test_an_answer_is_the_recorded_one(number: int, answers: list[Any]) -> None:
    _, _, instead = CALLS[number]
    answer, expected = answers[number], recorded()[number]
    if isinstance(instead, str):
        shown = f"{type(answer).__name__}: {answer}" if isinstance(answer, Exception) else answer
        assert instead in re.sub(r"CM\d{3}: ", "", str(shown))
    elif instead is None:
        assert answer == expected["result"]
    else:
        assert isinstance(answer, instead)
        said = getattr(answer, "message", None) or str(answer)
        assert (said and said in expected["error"]) or said == OTHER_WORDS[CALLS[number][0]]
