"""What Rerun's own selectors answered, query by query and array by array.

``golden/selector_queries.txt`` has one query and its outcome a line, ``golden/selector_values.txt`` one evaluation.
Where chunkmill means more (its grammar is larger), or Rerun died or is known to be wrong, the tables below say what is
expected instead.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pyarrow as pa
import pytest
from chunkmill.lenses import Selector

GOLDEN = Path(__file__).parent / "golden"

MEANS_MORE_HERE = {
    ".[-1]": "[-1]",
    '.["foo"]': ".foo",
    '."foo"': ".foo",
    '.foo["bar"]': ".foo.bar",
    "(.foo)": "(.foo)",
    ".foo | (.bar)": ".foo | (.bar)",
    '"abc"': '"abc"',
}

QUERIES = [
    re.match(r"(.+?)\s{2,}(OK|ValueError:) +(.*)$", line).groups()
    for line in (GOLDEN / "selector_queries.txt").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize(("literal", "outcome", "rest"), QUERIES, ids=[q[0] for q in QUERIES])
def test_a_query_parses_as_in_rerun(literal: str, outcome: str, rest: str) -> None:
    query = ast.literal_eval(literal)
    if query in MEANS_MORE_HERE:
        assert str(Selector(query)) == MEANS_MORE_HERE[query]
    elif outcome == "OK":
        text, representation = re.match(r"str=('.*?'|\".*?\") repr=(.*)$", rest).groups()
        assert str(Selector(query)) == ast.literal_eval(text)
        assert repr(Selector(query)) == representation
    else:
        with pytest.raises(ValueError, match=r"^CM502: Failed to parse selector: ") as caught:
            Selector(query)
        first, shown, caret = str(caught.value).split("\n")
        assert first == f"CM502: {rest}"
        assert shown.startswith("    ")
        assert caret.strip() == "^"


def int_list(rows: list) -> pa.Array:
    return pa.array(rows, pa.list_(pa.int64()))


X = pa.struct({"x": pa.int64()})
P = pa.struct({"p": pa.list_(X)})
B = pa.struct({"a": pa.struct({"b": pa.int64()})})
STRUCT = pa.array([{"x": 1, "y": None}, {"x": None, "y": 2}, None], pa.struct({"x": pa.int64(), "y": pa.int64()}))
PRIM = pa.array([1, 2, None])
LISTS = int_list([[1, 2, 3], [4], [], None, [None]])
FSL = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
STRUCTS = pa.array([[{"x": 1}, {"x": 2}], [{"x": None}], [], None, [None, {"x": 5}], [None]], pa.list_(X))


def plists(*rows: list) -> pa.Array:
    """Rows of structs with one list ``p`` of structs with one number ``x`` each."""
    values = [
        None if row is None else [{"p": None if p is None else [{"x": x} for x in p]} for p in row] for row in rows
    ]
    return pa.array(values, pa.list_(P))


STORED_NULL = pa.ListArray.from_arrays(
    pa.array([0, 2, 4], pa.int32()), pa.array([1, 2, 3, 4]), mask=pa.array([False, True])
)

SOURCES = {
    "struct": STRUCT,
    "prim": PRIM,
    "list<i64>": LISTS,
    "list<list<i64>>": pa.array([[[1, 2], [3]], [[]], [], None, [None, [4, None]]], pa.list_(pa.list_(pa.int64()))),
    "list<struct>": STRUCTS,
    "fsl": FSL,
    "list<fsl>": pa.array([[[1, 2], [3, 4]], [None], [], None], pa.list_(pa.list_(pa.int64(), 2))),
    "large_list": pa.array([[1, 2], None], pa.large_list(pa.int64())),
    "list_view": pa.array([[1, 2], None], pa.list_view(pa.int64())),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "dict": pa.array(["a", "b", "a"]).dictionary_encode(),
    "union": pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
    ),
    "function": STRUCT,
    "nested struct": pa.array([{"a": {"b": 1}}, {"a": None}, None, {"a": {"b": None}}], B),
    "list nested struct": pa.array(
        [[{"a": {"b": 1}}, {"a": None}], [{"a": None}], [{"a": {"b": None}}], [], None], pa.list_(B)
    ),
    "list struct plist": plists([[1, None], []], [None], [[None]], [], None, [[None], [3]]),
    "empty list arr": int_list([]),
    "all empty": int_list([[], [], []]),
    "null type": pa.nulls(3),
    "per_row on prim": PRIM,
    "per_row on fsl": FSL,
    "sliced": STRUCTS.slice(1, 3),
    "no-null p": plists([[1, None, 2]], [[None]], [[5]], [[]]),
    "no-null p b": plists([[None, None, 2]], [[4]], [[5]], [[]]),
    "no-null p c": plists([[None, None]], [[4]], [[]]),
    "try on prim list": int_list([[1]]),
    "try order": pa.array([[{"q": 1}]], pa.list_(pa.struct({"q": pa.int64()}))),
    "dup field": pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]),
    "null w/ storage": STORED_NULL,
}

EXPECTED_INSTEAD = {
    # Fixed-size lists can be indexed here.
    ("fsl", ".[0]", "execute"): [1, None, 3],
    ("fsl", ".[0]?", "execute"): [1, None, 3],
    ("list<fsl>", ".[0]", "execute_per_row"): [[1, 3], [None], [], None],
    ("list<fsl>", ".[0][]", "execute_per_row"): RuntimeError,
    # Rerun died.
    ("list<fsl>", ".[][]", "execute"): [1, 2, 3, 4, None, None],
    ("list struct plist", ".p[].x!", "execute_per_row"): [[1, None], None, None, [], None, [None, 3]],
    # Rerun counted lists where it meant elements.
    ("no-null p", ".p[].x!", "execute_per_row"): [[1, None, 2], None, [5], []],
    ("no-null p", ".p | .[] | .x!", "execute_per_row"): [[1, None, 2], None, [5], []],
    ("no-null p", ".p[] | .x!", "execute_per_row"): [[1, None, 2], None, [5], []],
    ("no-null p", ".p[]!.x!", "execute_per_row"): [[1, None, 2], None, [5], []],
    ("no-null p b", ".p[].x!", "execute_per_row"): [[None, None, 2], [4], [5], []],
    ("no-null p c", ".p[].x!", "execute_per_row"): [None, [4], []],
    # Rerun shows what lies in the buffer outside the slice, under null rows, in null slots.
    ("sliced", ".[].x", "execute"): [None],
    ("null w/ storage", ".[]", "execute"): [1, 2],
    ("list<fsl>", ".[0][]", "execute"): [1, 2, None, None, None, None, None, None],
}


def evaluations() -> list[tuple[str, str, str, str]]:
    pattern = re.compile(r"^(\S.*?)\s{2,}(\S.*?)\s{2,}(execute|execute_per_row)\s+-> (.*)$")
    lines = (GOLDEN / "selector_values.txt").read_text(encoding="utf-8").splitlines()
    return [pattern.match(line).groups() for line in lines]


def source_of(name: str) -> pa.Array:
    if name in SOURCES:
        return SOURCES[name]
    return next(SOURCES[key] for key in sorted(SOURCES, key=len, reverse=True) if name.startswith(key))


@pytest.mark.parametrize(("name", "query", "method", "outcome"), evaluations())
def test_an_evaluation_gives_what_rerun_gives(name: str, query: str, method: str, outcome: str) -> None:
    run = getattr(Selector(query), method)
    source = source_of(name)
    if (name, query, method) in EXPECTED_INSTEAD:
        expected = EXPECTED_INSTEAD[name, query, method]
        if isinstance(expected, type):
            with pytest.raises(expected):
                run(source)
        else:
            assert run(source).to_pylist() == expected
    elif outcome == "None":
        assert run(source) is None
    elif outcome.startswith("builtins."):
        kind, _, message = outcome.removeprefix("builtins.").partition(": ")
        with pytest.raises({"RuntimeError": RuntimeError, "TypeError": TypeError}[kind]) as caught:
            run(source)
        shown = message.partition(", got ")[0] if kind == "TypeError" else message
        said = caught.value.args[0]
        assert said.startswith(shown)
        assert kind == "TypeError" or said == message
    else:
        datatype, length, values = re.match(r"(.*) len=(\d+) (.*)$", outcome).groups()
        found = run(source)
        assert (str(found.type), len(found)) == (datatype, int(length))
        assert found.to_pylist() == ast.literal_eval(values)
        found.validate(full=True)
