"""The language beyond Rerun's, parse errors with their caret, text, pickling."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from chunkmill.engine.errors import SelectorError, SelectorSyntaxError, error_from_dict
from chunkmill.lenses import Selector
from hypothesis import given
from hypothesis import strategies as st

ODD = pa.array(
    [{"odd name": 1, "_x": {"0": 5}}, None], pa.struct({"odd name": pa.int64(), "_x": pa.struct({"0": pa.int64()})})
)
LISTS = pa.array([[1, 2, 3], [4], [], None], pa.list_(pa.int64()))
VECTORS = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2))


@pytest.mark.parametrize(
    ("query", "text", "source", "expected"),
    [
        ('."odd name"', '."odd name"', ODD, [1, None]),
        ('.["odd name"]', '."odd name"', ODD, [1, None]),
        ('."_x"."0"', '."_x"."0"', ODD, [5, None]),
        ('."_x"["0"]', '."_x"."0"', ODD, [5, None]),
        ('. "odd name"', '."odd name"', ODD, [1, None]),
        ('."missing one".x', '."missing one".x', ODD, None),
        ('(."_x" | ."0")', '(."_x" | ."0")', ODD, [5, None]),
        ("[-1]", "[-1]", LISTS, [3, 4, None, None]),
        (".[-3]", "[-3]", LISTS, [1, None, None, None]),
        (".[-4]", "[-4]", LISTS, [None] * 4),
        (".[-9223372036854775809]", "[-9223372036854775809]", LISTS, [None] * 4),
        ("[18446744073709551615]", "[18446744073709551615]", LISTS, [None] * 4),
        ("[1]", "[1]", VECTORS, [2, None, None]),
        ("[-1]", "[-1]", VECTORS, [2, None, None]),
        ("[-2]", "[-2]", VECTORS, [1, None, 3]),
        ("[2]", "[2]", VECTORS, [None, None, None]),
        ("[-3]", "[-3]", VECTORS, [None, None, None]),
        ("[]", "[]", VECTORS, [1, 2, None, None, 3, None]),
        ("[1]", "[1]", VECTORS.slice(2), [None]),
        ("[0]", "[0]", VECTORS.slice(2), [3]),
        ("(.x)?", "(.x)?", LISTS, None),
        ("(foo)?", "(foo)?", LISTS, None),
        ("(.)[0]", "(.)[0]", LISTS, [1, 4, None, None]),
        ("((.)) | (.)", "((.)) | (.)", LISTS, LISTS.to_pylist()),
        ("map((.))", "map((.))", LISTS, LISTS.to_pylist()),
    ],
)
def test_the_larger_grammar(query: str, text: str, source: pa.Array, expected: list | None) -> None:
    selector = Selector(query)
    found = selector.execute(source)
    assert (None if found is None else found.to_pylist()) == expected
    assert str(selector) == text
    assert str(Selector(text)) == text


@pytest.mark.parametrize("expression", ['string_prefix("image/")', '. | string_prefix("image/")'])
def test_a_prefix_stands_before_each_string(expression: str) -> None:
    assert Selector(expression).execute(pa.array(["jpeg", None, ""])).to_pylist() == ["image/jpeg", None, "image/"]
    assert Selector(expression).execute(pa.array([], pa.string())).type == pa.string()


@pytest.mark.parametrize(
    ("expression", "values", "message"),
    [
        ("string_prefix()", pa.array(["a"]), "Wrong arguments for function: `string_prefix`"),
        ('string_prefix("a"; "b")', pa.array(["a"]), "Wrong arguments for function: `string_prefix`"),
        ('string_prefix("a")', pa.array([1]), "Type mismatch in string_prefix input: expected StringArray, got Int64"),
    ],
)
def test_a_prefix_is_for_strings(expression: str, values: pa.Array, message: str) -> None:
    with pytest.raises(SelectorError, match=message):
        Selector(expression).execute(values)


def test_fixed_size_lists_in_rows() -> None:
    rows = pa.array([[[1, 2], [3, 4]], [None], [], None], pa.list_(pa.list_(pa.int64(), 2)))
    assert Selector("[0]").execute_per_row(rows).to_pylist() == [[1, 3], [None], [], None]
    assert Selector("[-1]!").execute_per_row(rows).to_pylist() == [[2, 4], None, [], None]
    assert Selector("[]").execute_per_row(rows.slice(1)).to_pylist() == [None, [], None]


@pytest.mark.parametrize(
    ("query", "message", "shown", "column"),
    [
        (".foo@", "unexpected character `@` at line 1, column 5", ".foo@", 4),
        (".foo |", "unexpected end of input", ".foo |", 6),
        ("", "unexpected end of input", "", 0),
        (".a\n.b c\n.d", "unexpected symbol `c`", ".b c", 3),
        ("\n\n  @", "unexpected character `@` at line 3, column 3", "  @", 2),
        (".日本 @", "unexpected character `@` at line 1, column 5", ".日本 @", 6),
        (".[1 foo]", "expected `]` but found `foo`", ".[1 foo]", 4),
        ("map .x", "expected `(` but found `.x`", "map .x", 4),
        ('f("a" "b")', 'expected `)` but found `"b"`', 'f("a" "b")', 6),
        ('f("a', "unterminated string at line 1, column 4", 'f("a', 3),
        ('f("\\q")', "invalid escape sequence `\\q` at line 1, column 5", 'f("\\q")', 4),
        (".x@ .foo bar", "unexpected character `@` at line 1, column 3", ".x@ .foo bar", 2),
        (".foo bar @", "unexpected character `@` at line 1, column 10", ".foo bar @", 9),
        (".[-]", "unexpected character `-` at line 1, column 3", ".[-]", 2),
        ("-1", "unexpected character `-` at line 1, column 1", "-1", 0),
        ("(.a", "unexpected end of input", "(.a", 3),
        ("()", "unexpected symbol `)`", "()", 1),
        (".a.()", "unexpected symbol `.`", ".a.()", 2),
        ('.a "b"', 'unexpected symbol `"b"`', '.a "b"', 3),
        (".\t.a %", "unexpected character `%` at line 1, column 6", ". .a %", 5),
    ],
)
def test_a_parse_error_points_at_the_place(query: str, message: str, shown: str, column: int) -> None:
    with pytest.raises(SelectorSyntaxError) as caught:
        Selector(query)
    assert str(caught.value) == f"CM502: Failed to parse selector: {message}\n    {shown}\n    {' ' * column}^"
    again = error_from_dict(caught.value.to_dict())
    assert isinstance(again, ValueError)
    assert str(again) == str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.heavy
def test_nesting_is_bounded_and_long_chains_are_not() -> None:
    with pytest.raises(ValueError, match="nested deeper than 64 levels"):
        Selector("map(" * 5000 + "." + ")" * 5000)
    with pytest.raises(ValueError, match="nested deeper than 64 levels"):
        Selector("(" * 5000 + "." + ")" * 5000)
    chain = Selector(".a" * 20_000 + "?" * 20_000 + " | ." * 20_000)
    assert pickle.loads(pickle.dumps(chain)).execute(ODD) is None
    assert len(str(chain)) == 40_000 + 20_000 + 80_000


@pytest.mark.parametrize("query", [".a.b", ".x | .y", 'f("a\rb"; "\\n")', ".[0][]?!", 'map(."x y") | (.[-1])', "."])
def test_written_selectors_pickle_as_their_text(query: str) -> None:
    selector = Selector(query)
    assert selector.__reduce__() == (Selector, (str(selector),))
    assert str(pickle.loads(pickle.dumps(selector))) == str(selector)


def test_piped_selectors_pickle_and_those_with_callables_do_not() -> None:
    piped = Selector(".a").pipe(Selector(".b | .c"))
    assert str(pickle.loads(pickle.dumps(piped))) == ".a | .b | .c"
    with pytest.raises(TypeError, match=r"^Cannot pickle Selector containing a Python callable from \.pipe\(\)"):
        pickle.dumps(Selector(".a").pipe(lambda a: a))


@pytest.mark.parametrize(
    "selector",
    [
        Selector(".").scaled("mm"),
        Selector(".").cast("float32"),
        Selector(".").nanoseconds(),
        Selector.jq(". + 1", type="int64"),
    ],
    ids=str,
)
def test_what_no_query_can_say_pickles_too(selector: Selector) -> None:
    again = pickle.loads(pickle.dumps(selector))
    assert again.pipeline == selector.pipeline
    assert str(again) == str(selector)


def test_equality_is_identity() -> None:
    a = Selector(".x")
    assert a != Selector(".x")
    assert len({a, a, Selector(".x")}) == 2


def test_text_with_callables() -> None:
    selector = Selector(".x").pipe(lambda a: a).pipe(Selector(".y"))
    assert str(selector) == ".x | <function> | .y"
    assert repr(selector) == 'Selector(".x | <function> | .y")'


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="argument 'query'"):
        Selector(5)
    for wrong in (5, ".y"):
        with pytest.raises(TypeError, match=r"^pipe\(\) argument must be a callable or a Selector$"):
            Selector(".").pipe(wrong)
    for wrong in (pa.chunked_array([[1]]), [1], None):
        with pytest.raises(TypeError, match=r"^argument 'source': Expected instance of pyarrow.lib.Array, got "):
            Selector(".").execute(wrong)
    with pytest.raises(ValueError, match="is not an Arrow type"):
        Selector(".").cast("float31")


def test_an_execution_error_keeps_its_reason() -> None:
    with pytest.raises(SelectorError) as caught:
        Selector("foo").execute(LISTS)
    assert caught.value.reason == "Unknown function: `foo`"
    again = error_from_dict(caught.value.to_dict())
    assert (str(again), again.reason) == (str(caught.value), caught.value.reason)


@given(st.text(max_size=20))
def test_any_text_is_a_selector_or_a_value_error(text: str) -> None:
    try:
        selector = Selector(text)
    except SelectorSyntaxError:
        return
    assert str(Selector(str(selector))) == str(selector)


_QUERIES = st.recursive(
    st.sampled_from([".", ".a", '."b c"', "[]", "[0]", "[-2]", "f", 'f("x")']),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(" | ".join),
        inner.map("map({})".format),
        st.tuples(inner, st.text("?!", max_size=3)).map(lambda p: f"({p[0]}){p[1]}"),
    ),
    max_leaves=8,
)


@given(_QUERIES)
def test_text_and_selector_are_the_same(query: str) -> None:
    selector = Selector(query)
    assert Selector(str(selector)).pipeline == selector.pipeline
