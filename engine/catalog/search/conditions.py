"""Conditions on values: their text, their truth in rows, and the truth that statistics allow in chunks.

::

    condition   :=  term { OR term }
    term        :=  factor { AND factor }
    factor      :=  NOT factor | "(" condition ")" | comparison
    comparison  :=  leaf OP constant | constant OP leaf | leaf [NOT] BETWEEN constant AND constant
                  | leaf [NOT] IN "(" constant { "," constant } ")" | leaf IS [NOT] NULL
    OP          :=  "<" | "<=" | ">" | ">=" | "=" | "==" | "!=" | "<>"
    constant    :=  number | 'text' | TRUE | FALSE
    leaf        :=  a column name, bare or "between quotes", with a selector of a value in the column

Truth has three values, as in SQL. In a row, a comparison is true if it is true for one of the leaf's values, null if
the leaf has no value, and otherwise false. Numbers are compared exactly. NaN differs from each number, as in IEEE 754.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....lenses.selector import Each, FieldAccess, Identity, Index, Selector
from ...errors import SelectorError, SelectorSyntaxError, UsageError
from ...query import no_column
from ...rrd import MOST_ELEMENTS, LeafStatistics, field_path, leaf_paths

Mask = npt.NDArray[np.bool_]
Outcomes = npt.NDArray[np.uint8]
"""The possible truth values of a condition in each chunk, as bits."""

TRUE: Final = 1
FALSE: Final = 2
NULL: Final = 4
ANY: Final = TRUE | FALSE | NULL

Constant = int | float | str
_MOST_CHARACTERS: Final = 10_000
_DEEPEST: Final = 100
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_SPELLINGS: Final = {"==": "=", "<>": "!="}
_KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"})
_SHAPE: Final = 'Write comparisons such as "/imu:Imu:accel[0]" > 9.8, joined by AND, OR and NOT.'


class Truth(NamedTuple):
    """The truth of a condition in each row: true, null, or else false."""

    is_true: Mask
    is_null: Mask


class Values(NamedTuple):
    """The values of a leaf that are not null, each with its row."""

    values: npt.NDArray[Any]
    owners: npt.NDArray[np.int64]
    rows: int


@dataclass(frozen=True)
class ValueLeaf:
    """A value in a column: ``text`` is its name, ``selector`` its path, and ``kind`` its type."""

    text: str
    column: str
    selector: str
    column_type: pa.DataType
    kind: pa.DataType

    @property
    def is_text(self) -> bool:
        """Whether its values are texts."""
        return bool(pa.types.is_string(self.kind) or pa.types.is_large_string(self.kind))

    def values(self, column: pa.Array) -> Values:
        """The values of the leaf in the rows of its column."""
        lists = Selector(self.selector).execute_per_row(column)
        if lists is None:
            return Values(np.empty(0), np.empty(0, np.int64), len(column))
        lengths = np.asarray(lists.value_lengths().fill_null(0)).astype(np.int64)
        owners = np.repeat(np.arange(len(lists)), lengths)
        flat = lists.flatten()
        if flat.null_count:
            is_valid = flat.is_valid()
            owners = owners[is_valid.to_numpy(zero_copy_only=False)]
            flat = flat.filter(is_valid)
        if pa.types.is_boolean(flat.type):
            flat = flat.cast(pa.uint8())
        return Values(flat.to_numpy(zero_copy_only=False), owners, len(column))

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths of its values in statistics; empty if unknown."""
        return tuple(path for path, _ in self._places)

    @cached_property
    def _places(self) -> list[tuple[str, bool]]:
        return _paths_of(self.column_type.value_type, Selector(self.selector).pipeline.nodes)

    @property
    def may_lack(self) -> bool:
        """Whether a row may lack a value without a null, as lists may be too short for the element."""
        return any(lacks for _, lacks in self._places)


def _paths_of(kind: pa.DataType, nodes: Sequence[Any]) -> list[tuple[str, bool]]:
    """The paths of a selector's leaves, each with whether lists may lack the element; empty if unknown."""
    reached = [("", kind, False)]
    for node in nodes:
        reached_next: list[tuple[str, pa.DataType, bool]] = []
        for path, some, lacks in reached:
            if isinstance(node, Identity):
                reached_next.append((path, some, lacks))
            elif isinstance(node, FieldAccess) and pa.types.is_struct(some):
                place = some.get_field_index(node.name)
                if place < 0:
                    return []
                reached_next.append((path + field_path(node.name), some.field(place).type, lacks))
            elif isinstance(node, (Index, Each)) and hasattr(some, "value_type"):
                size = getattr(some, "list_size", 0)
                if not 0 < size <= MOST_ELEMENTS:
                    is_one = isinstance(node, Index)
                    reached_next.append((path + "[]", some.value_type, lacks or is_one))
                    continue
                places = range(size)
                if isinstance(node, Index):
                    at = node.position + size if node.position < 0 else node.position
                    if not 0 <= at < size:
                        return []
                    places = range(at, at + 1)
                reached_next += [(f"{path}[{place}]", some.value_type, lacks) for place in places]
            else:
                return []
        reached = reached_next
    return [(path, lacks) for path, _, lacks in reached]


class Condition(Protocol):
    """A condition on leaves."""

    def leaves(self) -> Iterator[ValueLeaf]:
        """The compared leaves."""
        ...

    def truth(self, values: Callable[[ValueLeaf], Values]) -> Truth:
        """Return the truth in rows with some values."""
        ...

    def outcomes(self, statistics: Callable[[ValueLeaf], LeafStatistics]) -> Outcomes:
        """Return the truth values possible in chunks with some statistics."""
        ...


@dataclass(frozen=True)
class LeafComparison:
    """A comparison of a leaf with constants. ``op`` is ``between``, ``in``, ``null`` or a key of :data:`_FLIPPED`."""

    leaf: ValueLeaf
    op: str
    constants: tuple[Constant, ...] = ()

    def leaves(self) -> Iterator[ValueLeaf]:
        """The leaf."""
        yield self.leaf

    def truth(self, values: Callable[[ValueLeaf], Values]) -> Truth:
        """True in rows in which at least one value fulfils the comparison."""
        some = values(self.leaf)
        has_value = np.zeros(some.rows, np.bool_)
        has_value[some.owners] = True
        if self.op == "null":
            return Truth(~has_value, np.zeros(some.rows, np.bool_))
        is_true = np.zeros(some.rows, np.bool_)
        is_true[some.owners[self.holds(some.values)]] = True
        return Truth(is_true, ~has_value)

    def holds(self, values: npt.NDArray[Any]) -> Mask:
        """The mask of the values that fulfil the comparison."""
        if self.op == "between":
            low, high = self.constants
            return _compared(values, ">=", low) & _compared(values, "<=", high)
        if self.op == "in":
            return reduce(np.logical_or, (_compared(values, "=", constant) for constant in self.constants))
        return _compared(values, self.op, self.constants[0])

    def outcomes(self, statistics: Callable[[ValueLeaf], LeafStatistics]) -> Outcomes:
        """Return the truth values that the bounds or the texts of the values allow."""
        leaf = statistics(self.leaf)
        has_values = leaf.num_values > 0
        may_be_null = leaf.nulls > 0
        if self.op == "null":
            can_true, can_false, can_null = may_be_null | ~has_values, has_values, np.zeros_like(has_values)
        elif self.leaf.is_text:
            can_true, can_false, can_null = *self._of_texts(leaf.texts), may_be_null | ~has_values
        else:
            can_true, can_false = self._of_bounds(leaf)
            can_true, can_false, can_null = can_true & has_values, can_false & has_values, may_be_null | ~has_values
        possible = can_true * np.uint8(TRUE) | can_false * np.uint8(FALSE) | can_null * np.uint8(NULL)
        return np.where(leaf.is_known, possible, np.uint8(ANY))

    def _of_texts(self, texts: Sequence[frozenset[str] | None]) -> tuple[Mask, Mask]:
        can = np.ones((2, len(texts)), np.bool_)
        for at, some in enumerate(texts):
            if some is not None:
                holds = self.holds(np.array(sorted(some), object))
                can[:, at] = holds.any(), not holds.all()
        return can[0], can[1]

    def _of_bounds(self, leaf: LeafStatistics) -> tuple[Mask, Mask]:
        below, above = zip(*map(_around, self.constants), strict=True)
        low, high = leaf.low, leaf.high
        is_number = low <= high
        if self.op in ("=", "in"):
            meets = [(low <= up) & (high >= down) for down, up in zip(below, above, strict=True)]
            is_one = [(low == down) & (high == up) for down, up in zip(below, above, strict=True)]
            can_true, must = reduce(np.logical_or, meets), reduce(np.logical_or, is_one)
        elif self.op == "!=":
            meets_it = (low <= above[0]) & (high >= below[0])
            can_true = ~((low == below[0]) & (high == above[0]))
            return (can_true & is_number) | leaf.has_nan, meets_it & is_number
        elif self.op == "between":
            can_true = (low <= above[1]) & (high >= below[0])
            must = (low >= above[0]) & (high <= below[1])
        elif self.op in ("<", "<="):
            can_true = low <= above[0] if self.op == "<=" else low < above[0]
            must = high <= below[0] if self.op == "<=" else high < below[0]
        else:
            can_true = high >= below[0] if self.op == ">=" else high > below[0]
            must = low >= above[0] if self.op == ">=" else low > above[0]
        return can_true & is_number, ~must | leaf.has_nan | ~is_number


@dataclass(frozen=True)
class Not:
    """The opposite of a condition; null if the condition is null."""

    part: Condition

    def leaves(self) -> Iterator[ValueLeaf]:
        """The leaves of the condition."""
        yield from self.part.leaves()

    def truth(self, values: Callable[[ValueLeaf], Values]) -> Truth:
        """True in rows in which the condition is false."""
        is_true, is_null = self.part.truth(values)
        return Truth(~is_true & ~is_null, is_null)

    def outcomes(self, statistics: Callable[[ValueLeaf], LeafStatistics]) -> Outcomes:
        """The opposites of the condition's outcomes."""
        some = self.part.outcomes(statistics)
        turned: Outcomes = ((some & NULL) | ((some & TRUE) << 1) | ((some & FALSE) >> 1)).astype(np.uint8)
        return turned


@dataclass(frozen=True)
class Joined:
    """Conditions that must all be true; with ``is_any``, at least one of them."""

    parts: tuple[Condition, ...]
    is_any: bool

    def leaves(self) -> Iterator[ValueLeaf]:
        """The leaves of all conditions."""
        for part in self.parts:
            yield from part.leaves()

    def truth(self, values: Callable[[ValueLeaf], Values]) -> Truth:
        """Truth as in SQL: true or false if the parts that are not null decide it, else null."""
        truths = [part.truth(values) for part in self.parts]
        decided = [t.is_true if self.is_any else ~t.is_true & ~t.is_null for t in truths]
        is_decided = reduce(np.logical_or, decided)
        is_null = reduce(np.logical_or, [t.is_null for t in truths]) & ~is_decided
        return Truth(is_decided if self.is_any else ~is_decided & ~is_null, is_null)

    def outcomes(self, statistics: Callable[[ValueLeaf], LeafStatistics]) -> Outcomes:
        """Combine the possible truth values of the parts."""
        some = [part.outcomes(statistics) for part in self.parts]
        decides, other = (TRUE, FALSE) if self.is_any else (FALSE, TRUE)
        can_decide = reduce(np.logical_or, [(part & decides) > 0 for part in some])
        all_other = reduce(np.logical_and, [(part & other) > 0 for part in some])
        rest = reduce(np.logical_and, [(part & (other | NULL)) > 0 for part in some])
        can_null = rest & reduce(np.logical_or, [(part & NULL) > 0 for part in some])
        outcomes: Outcomes = (
            can_decide * np.uint8(decides) | all_other * np.uint8(other) | can_null * np.uint8(NULL)
        ).astype(np.uint8)
        return outcomes


# --- exact comparisons


def _around(constant: Constant) -> tuple[float, float]:
    """The floats next to a number: the one at or below it, and the one at or above it."""
    try:
        near = float(constant)
    except OverflowError:
        return (math.nextafter(math.inf, 0), math.inf) if constant > 0 else (-math.inf, math.nextafter(-math.inf, 0))  # type: ignore[operator]
    if near > constant:  # type: ignore[operator]
        return math.nextafter(near, -math.inf), near
    return near, math.nextafter(near, math.inf) if near < constant else near  # type: ignore[operator]


_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "!=": np.not_equal,
}


def _compared(values: npt.NDArray[Any], op: str, constant: Constant) -> Mask:
    """Compare each value with a constant, exactly."""
    if not len(values):
        return np.zeros(0, np.bool_)
    if isinstance(constant, str):
        return np.asarray(_COMPARE[op](values.astype(object), constant), np.bool_)
    if values.dtype.kind == "f":
        below, above = _around(constant)
        exact = values.astype(np.float64)
        if below == above:
            return np.asarray(_COMPARE[op](exact, below), np.bool_)
        if op in ("=", "!="):
            return np.full(len(values), op == "!=")
        return np.asarray(exact >= above if op in (">", ">=") else exact <= below, np.bool_)
    limits = np.iinfo(values.dtype)
    if op in ("=", "!="):
        if constant != math.floor(constant) or not limits.min <= constant <= limits.max:
            return np.full(len(values), op == "!=")
        return np.asarray(_COMPARE[op](values, values.dtype.type(int(constant))), np.bool_)
    bound = math.floor(constant) if op in (">", "<=") else math.ceil(constant)
    if not limits.min <= bound <= limits.max:
        return np.full(len(values), (bound < limits.min) == (op in (">", ">=")))
    return np.asarray(_COMPARE[op](values, values.dtype.type(bound)), np.bool_)


# --- text

_TOKEN: Final = re.compile(
    r"""(?P<text>'(?:[^']|'')*')
    |   (?P<quoted>"(?:[^"]|"")*"(?:[.\[][^\s()<>=!,'"]*)?)
    |   (?P<op><=|>=|<>|!=|==|[=<>])
    |   (?P<mark>[(),])
    |   (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?=[\s()<>=!,]|$))
    |   (?P<word>[^\s()<>=!,'"]+)""",
    re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse_condition(text: str, columns: Mapping[str, pa.DataType]) -> Condition:
    """Parse a condition on columns with these names and types. The types are lists.

    Raises ``UsageError`` for text that is not a condition, missing columns and leaves, and constants of wrong types.
    """
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(f"the condition has {len(text):,} characters", hint=f"The limit is {_MOST_CHARACTERS:,}.")
    return _Parser(text, columns).whole()


class _Parser:
    def __init__(self, text: str, columns: Mapping[str, pa.DataType]) -> None:
        self._text = text
        self._columns = columns
        self._tokens = list(self._tokenised())
        self._at = self._depth = 0

    def _tokenised(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._text):
            if self._text[at].isspace():
                at += 1
                continue
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise self._wrong(
                    at, "a quote is not closed" if self._text[at] in "'\"" else "this is not part of a condition"
                )
            kind = match.lastgroup or ""
            word = match[0].upper()
            yield _Token("key" if kind == "word" and word in _KEYWORDS else kind, match[0], at)
            at = match.end()

    def _wrong(self, at: int, what: str) -> UsageError:
        return UsageError(f"the condition is wrong at character {at + 1}: {what}: {self._text}", hint=_SHAPE)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _Token("end", "", len(self._text))

    def _take(self, kind: str, *texts: str) -> _Token | None:
        token = self._next
        if token.kind != kind or (texts and token.text.upper() not in texts):
            return None
        self._at += 1
        return token

    def _expect(self, kind: str, text: str) -> None:
        if self._take(kind, text) is None:
            raise self._unexpected(f"{text} is missing")

    def _unexpected(self, what: str) -> UsageError:
        token = self._next
        return self._wrong(token.position, what + (f" before {token.text}" if token.text else " at its end"))

    def whole(self) -> Condition:
        condition = self._any()
        if self._next.kind != "end":
            raise self._unexpected("AND or OR is missing")
        return condition

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._take("key", "OR"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Joined(tuple(parts), is_any=True)

    def _all(self) -> Condition:
        parts = [self._factor()]
        while self._take("key", "AND"):
            parts.append(self._factor())
        return parts[0] if len(parts) == 1 else Joined(tuple(parts), is_any=False)

    def _factor(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(self._next.position, f"the nesting is deeper than {_DEEPEST}")
        try:
            if self._take("key", "NOT"):
                return Not(self._factor())
            if self._take("mark", "("):
                condition = self._any()
                self._expect("mark", ")")
                return condition
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Condition:
        if self._next.kind in ("number", "text") or self._next.text.upper() in ("TRUE", "FALSE"):
            constant = self._constant()
            op = self._operator()
            return self._checked(self._leaf(), _FLIPPED[op], constant)
        leaf = self._leaf()
        if self._take("key", "IS"):
            is_not = self._take("key", "NOT") is not None
            self._expect("key", "NULL")
            comparison: Condition = LeafComparison(leaf, "null")
        else:
            is_not = self._take("key", "NOT") is not None
            if self._take("key", "BETWEEN"):
                low = self._constant()
                self._expect("key", "AND")
                comparison = self._checked(leaf, "between", low, self._constant())
            elif self._take("key", "IN"):
                comparison = self._checked(leaf, "in", *self._constants())
            elif is_not:
                raise self._unexpected("BETWEEN or IN is missing")
            else:
                comparison = self._checked(leaf, self._operator(), self._constant())
        return Not(comparison) if is_not else comparison

    def _operator(self) -> str:
        token = self._take("op")
        if token is None:
            raise self._unexpected("a comparison is missing")
        return _SPELLINGS.get(token.text, token.text)

    def _constants(self) -> Iterator[Constant]:
        self._expect("mark", "(")
        yield self._constant()
        while self._take("mark", ","):
            yield self._constant()
        self._expect("mark", ")")

    def _constant(self) -> Constant:
        if number := self._take("number"):
            if number.text.lstrip("+-").isdigit():
                return int(number.text)
            if math.isinf(float(number.text)):
                raise self._wrong(number.position, f"{number.text} is too large")
            return float(number.text)
        if text := self._take("text"):
            return text.text[1:-1].replace("''", "'")
        if word := self._take("key", "TRUE", "FALSE"):
            return int(word.text.upper() == "TRUE")
        raise self._unexpected("a number, a 'text', TRUE or FALSE is missing")

    def _checked(self, leaf: ValueLeaf, op: str, *constants: Constant) -> LeafComparison:
        for constant in constants:
            if isinstance(constant, str) != leaf.is_text:
                holds = "texts" if leaf.is_text else f"values of {leaf.kind}"
                raise UsageError(
                    f"{leaf.text} holds {holds}, which cannot be compared with {constant!r}",
                    hint="Put texts in single quotes, and numbers without quotes.",
                )
        if leaf.is_text and op not in ("=", "!=", "in"):
            raise UsageError(f"{leaf.text} holds texts, which can only be compared by =, !=, IN and IS NULL")
        return LeafComparison(leaf, op, constants)

    def _leaf(self) -> ValueLeaf:
        token = self._take("quoted") or self._take("word")
        if token is None:
            raise self._unexpected("a column is missing")
        text, rest = token.text, ""
        if token.kind == "quoted":
            end = re.match(r'"(?:[^"]|"")*"', text)
            assert end is not None
            text, rest = end[0][1:-1].replace('""', '"'), text[end.end() :]
        names = [n for n in self._columns if text == n or (text.startswith(n) and text[len(n)] in ".[")]
        if not names:
            raise no_column(text, list(self._columns), where="the condition: ")
        name = max(names, key=len)
        return leaf_of(name, text[len(name) :] + rest, self._columns[name])


def leaf_of(column: str, path: str, kind: pa.DataType) -> ValueLeaf:
    """The leaf at a path of a column. If it is missing, raises a ``UsageError`` with similar names."""
    text = column + path
    paths = [column + some for some in leaf_paths(kind.value_type)]
    close = difflib.get_close_matches(text, paths, 1)
    listed = ", ".join(paths[:8]) + (f" and {len(paths) - 8:,} more" if len(paths) > 8 else "")
    hint = (f"Did you mean {close[0]!r}? " if close else "") + (f"There are: {listed}." if paths else "")
    selector = path if path.startswith(".") else f".{path}"
    try:
        selected = Selector(selector).execute_per_row(pa.array([], kind))
    except (SelectorError, SelectorSyntaxError) as error:
        raise UsageError(f"{text}: {error.message}", hint=hint or None) from error
    if selected is None:
        raise UsageError(f"there is no {text!r}", hint=hint or None)
    leaf = selected.type.value_type
    is_one = pa.types.is_integer(leaf) or pa.types.is_floating(leaf) or pa.types.is_boolean(leaf)
    if not is_one and not (pa.types.is_string(leaf) or pa.types.is_large_string(leaf)):
        raise UsageError(
            f"{text} holds {leaf}, which cannot be compared", hint=hint or "Only numbers and texts can be compared."
        )
    return ValueLeaf(text, column, selector, kind, leaf)
