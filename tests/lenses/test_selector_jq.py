"""jq programs: what they see, how their outputs are typed, and that they can be stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from chunkmill.engine.errors import SelectorError
from chunkmill.lenses import Selector
from chunkmill.lenses.selector import jq_program
from hypothesis import given, settings
from hypothesis import strategies as st

ROWS = pa.array(
    [[{"x": 1, "t": "a"}, {"x": 4, "t": "b"}], [], None, [None]],
    pa.list_(pa.struct({"x": pa.int64(), "t": pa.string()})),
)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (".x", [[1, 4], [], None, [None]]),
        ("select(.x > 1) | .t", [["b"], [], None, []]),
        ("empty", [[], [], None, []]),
        (".x, .x", [[1, 1, 4, 4], [], None, [None, None]]),
        ("{n: .t, d: (.x // 0 | . * 2)}", [[{"n": "a", "d": 2}, {"n": "b", "d": 8}], [], None, [{"n": None, "d": 0}]]),
        ("[.x, 1.5]", [[[1.0, 1.5], [4.0, 1.5]], [], None, [[None, 1.5]]]),
        ("def f: .x; f # twice", [[1, 4], [], None, [None]]),
    ],
)
def test_outputs_take_the_place_of_each_element(program: str, expected: list) -> None:
    found = Selector.jq(program).execute_per_row(ROWS)
    found.validate(full=True)
    assert found.to_pylist() == expected


def test_it_composes() -> None:
    selector = Selector(".x").pipe(Selector.jq("[range(. // 0)]")).pipe(Selector("[-1]")).scaled(10)
    assert selector.execute_per_row(ROWS).to_pylist() == [[0.0, 30.0], [], None, [None]]
    assert str(selector) == '.x | jq("[range(. // 0)]") | [-1] | <scaled 10>'


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.float32(), [1, 2.5, None], [1.0, 2.5, None]),
        ("int16", [1, 2], [1, 2]),
        (pa.timestamp("ns"), [5], [5]),
        (pa.list_(pa.float64(), 2), [[1, 2]], [[1.0, 2.0]]),
    ],
)
def test_the_type_can_be_given(kind: pa.DataType | str, values: list, expected: list) -> None:
    found = Selector.jq(".", type=kind).execute(pa.array(values))
    assert found.type == (pa.int16() if kind == "int16" else kind)
    shown = found.cast(pa.int64()) if pa.types.is_timestamp(found.type) else found
    assert shown.to_pylist() == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (pa.array([5, None], pa.timestamp("us", "UTC")), [5, None]),
        (pa.array([5], pa.duration("ms")), [5]),
        (pa.array([date(1970, 1, 3)]), [2]),
        (pa.array([b"abc"]), ["YWJj"]),
        (pa.array([Decimal("1.20")]), ["1.20"]),
        (pa.array(["a", "a"]).dictionary_encode(), ["a", "a"]),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), ["k"]),
        (pa.array([float("nan"), 1.0]), [None, 1.0]),
        (pa.array([[1.0, float("-inf")]]), [1.0]),
        (pa.array([[{"t": 1}]], pa.list_(pa.struct({"t": pa.timestamp("ns")}))), [{"t": 1}]),
        (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), [1]),
    ],
)
def test_the_json_form(source: pa.Array, expected: list) -> None:
    program = 'if type == "array" then (.[0] | if type == "array" then .[0] else . end) else . end'
    assert Selector.jq(program).execute(source).to_pylist() == expected


def test_a_program_that_loops_is_stopped() -> None:
    begun = time.monotonic()
    with pytest.raises(SelectorError, match=r"did not finish within 0\.3 s and was stopped"):
        Selector.jq("def f: f; f", timeout=0.3).execute_per_row(ROWS)
    assert time.monotonic() - begun < 20
    assert Selector.jq(".x").execute_per_row(ROWS).to_pylist()[0] == [1, 4]


@pytest.mark.heavy
def test_a_program_that_wants_all_memory_is_stopped() -> None:
    with pytest.raises(SelectorError, match=r"stopped|used too much memory|failed"):
        Selector.jq('reduce range(1000) as $i ("x" * 10000000; . + .)', timeout=60).execute_per_row(ROWS)
    assert Selector.jq(".x").execute_per_row(ROWS).to_pylist()[0] == [1, 4]


def test_the_default_limit_is_two_seconds() -> None:
    (stage,) = Selector.jq(".").pipeline.stages
    assert stage.node.seconds == 2.0


@pytest.mark.parametrize("program", ["env", "$ENV", "env | keys", "$ENV | to_entries", "[env, $ENV] | add"])
def test_programs_see_no_environment(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    for process in jq_program._running:  # one that was started before has an older environment
        process.stop()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH", "/lib"))
    found = Selector.jq(f"{program} | length", type="int64").execute(pa.array([1, 2]))
    assert found.to_pylist() == [0, 0]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("halt", "ended with `halt`"),
        ("halt_error", "ended with `halt`"),
        ('"boo" | halt_error', "ended with `halt`"),
        ("halt_error(5)", "ended with `halt`"),
        ("if . == 3 then halt else . end", "ended with `halt`"),
        ("try halt catch .", "ended with `halt`"),
        ("first(halt)", "ended with `halt`"),
        ("label $out | 1, halt, break $out", "ended with `halt`"),
        ('error("")', "an error without a message"),
        ("error(null)", "failed: null"),
        ("error({a: 1})", 'failed: {"a": 1}'),
        ("input", "jq program failed"),
        ("input_line_number", "jq program failed"),
        ("reduce range(5000) as $i (1; [.])", "nested too deeply"),
        ("reduce range(20000) as $i (1; {a: .})", "nested too deeply"),
        ("9" * 30, "do not fit one type"),
        ('"xxxxxxxxxx" * 1e8', "out of memory|used too much memory|did not finish"),
    ],
)
def test_every_end_of_a_program_is_an_error_of_the_selector(program: str, message: str) -> None:
    with pytest.raises(SelectorError, match=message):
        Selector.jq(program).execute(pa.array([1, 3, 4]))
    assert Selector.jq(". + 1").execute(pa.array([1])).to_pylist() == [2]


@pytest.mark.parametrize("program", ['"xxxxxxxxxx" * 2e8 | length', '("x" * 5e8) + ("y" * 5e8) | length'])
def test_constants_are_folded_within_the_limits_of_the_helper(program: str) -> None:
    code = (
        "import resource, sys\n"
        "from chunkmill.lenses import Selector\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    Selector.jq(sys.argv[1]).execute(__import__('pyarrow').array([1]))\n"
        "except Exception as error:\n    print(type(error).__name__)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, program], capture_output=True, text=True, check=True)
    ended, own, helper = done.stdout.split()
    assert ended == "SelectorError"
    assert int(own) < 64 * 1024, "compiled in the caller's process"
    assert int(helper) < 1.1 * 1024 * 1024


def test_an_interrupt_leaves_no_answer_to_the_next_program(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = Selector.jq(".")

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(jq_program.JqProcess, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            selector.execute(pa.array([1]))
    assert selector.execute(pa.array([2])).to_pylist() == [2]


def test_a_comment_may_end_in_a_backslash() -> None:
    assert Selector.jq(". + 1 # one more \\").execute(pa.array([1])).to_pylist() == [2]


@pytest.mark.parametrize("program", [".[", ".) | (.", "# nothing", "1] | [2", ".\0 | nothing"])
def test_what_is_no_program_is_refused_when_it_is_given(program: str) -> None:
    with pytest.raises(ValueError, match=r"^CM501: not a jq program: "):
        Selector.jq(program)


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="argument 'program'"):
        Selector.jq(5)
    with pytest.raises(ValueError, match="positive number of seconds"):
        Selector.jq(".", timeout=0)
    with pytest.raises(ValueError, match="is not an Arrow type"):
        Selector.jq(".", type="real")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ('error("boo")', "jq program failed: boo"),
        (".x.y", "jq program failed: Cannot index number"),
        ("if .x == 1 then 1 else .t end", "do not fit one type; give `type=`"),
    ],
)
def test_failures_are_the_selectors(program: str, message: str) -> None:
    with pytest.raises(SelectorError, match=message):
        Selector.jq(program).execute_per_row(ROWS)


def test_outputs_that_are_not_of_the_type_given() -> None:
    with pytest.raises(SelectorError, match="do not fit Int64"):
        Selector.jq(".t", type="int64").execute_per_row(ROWS)


def test_more_elements_than_one_request_holds() -> None:
    source = pa.array(range(5000))
    found = Selector.jq("select(. % 2 == 0)").execute_per_row(
        pa.ListArray.from_arrays(pa.array([0, 3, 5000], pa.int32()), source)
    )
    assert found.to_pylist() == [[0, 2], list(range(4, 5000, 2))]


def test_a_dead_helper_is_replaced() -> None:
    Selector.jq(".").execute(pa.array([1]))
    jq_program._running[0].stop()
    assert Selector.jq(".").execute(pa.array([1])).to_pylist() == [1]


# --- where both languages mean the same

_LEAF = pa.int64()
_TYPES = st.recursive(
    st.just(_LEAF),
    lambda inner: st.one_of(
        inner.map(pa.list_), st.tuples(inner, inner).map(lambda p: pa.struct({"a": p[0], "b": p[1]}))
    ),
    max_leaves=5,
)


def values_of(kind: pa.DataType, null_lists: bool) -> st.SearchStrategy:
    if pa.types.is_list(kind):
        inner = st.lists(values_of(kind.value_type, null_lists), max_size=3)
        return st.none() | inner if null_lists else inner
    if pa.types.is_struct(kind):
        inner = st.fixed_dictionaries({f.name: values_of(f.type, null_lists) for f in kind})
        return st.none() | inner if null_lists else inner
    return st.none() | st.integers(-(2**31), 2**31)


@st.composite
def queries(draw: st.DrawFn) -> tuple[pa.Array, str, str]:
    """An array, a query that fits its type, and the jq program that means the same.

    Inside ``map``, ``[]`` makes a list whose lists are all null a null, and jq an empty array: so one or the other.
    """
    kind = draw(_TYPES)
    null_lists = draw(st.booleans())
    source = pa.array(draw(st.lists(values_of(kind, null_lists), max_size=5)), kind)
    query, program = draw(steps(kind, False, not null_lists))
    return source, query or ".", program or "."


@st.composite
def steps(draw: st.DrawFn, kind: pa.DataType, in_map: bool, each_in_map: bool) -> tuple[str, str]:
    """Stages that fit ``kind``: jq stops at a null where a selector goes on, so ``[]`` is given an alternative."""
    if pa.types.is_struct(kind) and draw(st.booleans()):
        name = draw(st.sampled_from(["a", "b"]))
        query, program = draw(steps(kind.field(name).type, in_map, each_in_map))
        written = draw(st.sampled_from([f".{name}", f'."{name}"', f'.["{name}"]', f"(.{name})"]))
        return joined(written, query), joined(f".{name}", program)
    if pa.types.is_list(kind) and draw(st.booleans()):
        how = draw(st.sampled_from(["each", "index", "map"] if each_in_map or not in_map else ["index", "map"]))
        inner = steps(kind.value_type, in_map or how == "map", each_in_map and how != "index")
        inner_query, inner_program = draw(inner)
        if how == "each":
            return joined("[]", inner_query), joined("(. // [])[]", inner_program)
        if how == "index":
            n = draw(st.integers(-3, 3))
            return joined(f"[{n}]", inner_query), joined(f".[{n}]", inner_program)
        return f"map({inner_query or '.'})", f"if . == null then null else map({inner_program or '.'}) end"
    return "", ""


def joined(first: str, rest: str) -> str:
    return f"{first} | {rest}" if rest else first


@settings(max_examples=150, deadline=None)
@given(queries())
def test_columnar_evaluation_is_what_jq_says(case: tuple[pa.Array, str, str]) -> None:
    source, query, program = case
    found = Selector(query).execute(source)
    found.validate(full=True)
    assert found.to_pylist() == Selector.jq(program, type=found.type).execute(source).to_pylist()


@settings(max_examples=100, deadline=None)
@given(queries(), st.integers(1, 3))
def test_rows_hold_what_jq_says(case: tuple[pa.Array, str, str], size: int) -> None:
    source, query, program = case
    bounds = [*range(0, len(source), size), len(source)]
    rows = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), source)
    found = Selector(query).execute_per_row(rows)
    found.validate(full=True)
    expected = Selector.jq(program, type=found.type.value_type).execute_per_row(rows).to_pylist()
    # A row whose lists are all null is null here; in jq it has no outputs.
    assert [row or [] for row in found.to_pylist()] == expected
    assert found.slice(1).to_pylist() == Selector(query).execute_per_row(rows.slice(1)).to_pylist()
