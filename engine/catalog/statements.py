"""SQL statements before DataFusion plans them: their tokens, the arguments of ``reader``, and places for errors.

DataFusion parses named arguments of table functions, but does not plan them. So the argument ``index => 'frame'`` of
``reader`` is passed as the pair ``':index', 'frame'``. DataFusion would plan a query in brackets as a single value, so
it is passed as text: ``'query:segments', '(SELECT ...)'``. This module divides the statement into tokens like
DataFusion. Everything except the arguments of ``reader`` reaches DataFusion's parser unchanged.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ..errors import ChunkmillError, NotFoundError, UnsupportedError, UsageError

READER: Final = "reader"
"""The table function for rows of a dataset."""

_TOKEN: Final = re.compile(
    r"""
    (?P<space> \s+ | --[^\n]* )
  | (?P<comment> /\* )
  | (?P<text> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | \$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$ )
  | (?P<quoted> "(?:[^"]|"")*" | `(?:[^`]|``)*` )
  | (?P<word> [^\W\d][\w$@\#]* )
  | (?P<number> \d[\w.]* )
  | (?P<symbol> => | := | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT: Final = re.compile(r"/\*|\*/")
_OPENING: Final = ("(", "[", "{")
_CLOSING: Final = (")", "]", "}")
_BEFORE_A_TABLE: Final = ("from", "join", "lateral", ",", "(")
_CONSTANTS: Final = ("true", "false", "null")
_QUERIES: Final = ("select", "with", "values", "table", "(")

QUERY: Final = "query"
"""The first item of a pair whose value is a query."""


class SqlToken(NamedTuple):
    """A token: its kind (``text``, ``quoted`` for a name, ``word``, ``number``, ``symbol``), characters and place."""

    kind: str
    source: str
    start: int

    @property
    def end(self) -> int:
        """The place after the token."""
        return self.start + len(self.source)

    @property
    def name(self) -> str:
        """The token as an SQL name: in lower case, unless it has quotes."""
        if self.kind == "quoted":
            mark = self.source[0]
            return self.source[1:-1].replace(mark * 2, mark)
        return self.source.lower()

    @property
    def is_name(self) -> bool:
        """Whether the token may be a name."""
        return self.kind in ("quoted", "word")


def tokens_of(text: str) -> list[SqlToken]:
    """The tokens of a statement, without spaces and comments, up to a comment or quote without an end.

    >>> [token.source for token in tokens_of("select 'it''s' /* a /* b */ */ -- c")]
    ['select', "'it''s'"]
    """
    tokens: list[SqlToken] = []
    place = 0
    while found := _TOKEN.match(text, place):
        kind = found.lastgroup if found.lastgroup != "tag" else "text"
        place = found.end()
        if kind == "comment":
            place = _end_of_comment(text, place)
        elif kind == "symbol" and found[0] in ("'", '"', "`"):
            break
        elif kind != "space":
            tokens.append(SqlToken(kind or "", found[0], found.start()))
    return tokens


def _end_of_comment(text: str, place: int) -> int:
    """The end of a comment that began before ``place``; comments nest."""
    depth = 1
    while depth and (mark := _COMMENT.search(text, place)):
        depth += 1 if mark[0] == "/*" else -1
        place = mark.end()
    return len(text) if depth else place


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


class Statement:
    """A statement of a user."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens_of(text)
        self._edits: list[_Edit] = []

    def planned(self, arguments: Sequence[str]) -> str:
        """The statement for DataFusion, in which ``reader`` calls have pairs of names and values.

        Raises ``UsageError`` for a name that is not in ``arguments``.
        """
        self._edits = sorted(self._edits_of_readers(arguments))
        return self._edited()

    def _edited(self) -> str:
        parts, place = [], 0
        for edit in self._edits:
            parts += [self.text[place : edit.start], edit.text]
            place = edit.end
        return "".join([*parts, self.text[place:]])

    def place(self, line: int, column: int) -> str:
        """Text with the place in the user's statement for a line and column, from 1, of the planned statement."""
        lines = self._edited().split("\n")
        offset = sum(len(some) + 1 for some in lines[: line - 1]) + column - 1
        moved = 0
        for edit in self._edits:
            start = edit.start + moved
            if offset < start:
                break
            if offset < start + len(edit.text):
                offset, moved = edit.start, 0
                break
            moved += len(edit.text) - (edit.end - edit.start)
        return self._place_at(offset - moved)

    def place_of(self, *names: str) -> str:
        """Text with the place of a name, or of names joined by dots; empty unless it occurs exactly once."""
        count, places = len(names), []
        only = [token for token in self.tokens if token.source != "."]
        for at in range(len(only) - count + 1):
            some = only[at : at + count]
            if all(token.is_name and token.name == name for token, name in zip(some, names, strict=True)):
                places.append(some[0].start)
        return self._place_at(places[0]) if len(places) == 1 else ""

    def _place_at(self, offset: int) -> str:
        before = self.text[:offset]
        return f" (line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))})"

    # --- calls of reader

    def _edits_of_readers(self, names: Sequence[str]) -> Iterator[_Edit]:
        inside = 0  # calls in a query argument stay part of its text
        for at in range(len(self.tokens) - 1):
            if self.tokens[at].start >= inside and self._is_reader(at):
                token = self.tokens[at]
                if token.source != READER:
                    yield _Edit(token.start, token.end, READER)
                for argument in filter(None, self._arguments(at + 2)):
                    if _is_named(argument) and argument[0].name not in names:
                        raise self._no_argument(argument[0], names)
                    for edit in self._edits_of(argument):
                        inside = max(inside, edit.end)
                        yield edit

    def _edits_of(self, argument: Sequence[SqlToken]) -> Iterator[_Edit]:
        """The edits that turn an argument into a pair, and a value that is a name or a query into text."""
        name, value = "", argument
        if _is_named(argument):
            name, value = argument[0].name, argument[2:]
        start = value[0].start if value else argument[1].end
        text = _text_of(value)
        if value and _is_query(value):
            text = re.sub(r"\S", " ", self.text[:start]) + self.text[start : value[-1].end]  # keeps places valid
        kind = QUERY if value and _is_query(value) else ""
        yield _Edit(argument[0].start, start, f"{_as_text(f'{kind}:{name}')}, ")
        if text is not None:
            yield _Edit(start, value[-1].end, _as_text(text))

    def _no_argument(self, token: SqlToken, names: Sequence[str]) -> UsageError:
        close = difflib.get_close_matches(token.name, names, 1)
        return UsageError(
            f"reader has no argument {token.name!r}{self._place_at(token.start)}",
            hint=(f"Did you mean {close[0]!r}? " if close else "") + f"There are: {', '.join(names)}.",
        )

    def _is_reader(self, at: int) -> bool:
        """Return whether token ``at`` begins a ``reader`` call as a table, and not a named list of columns."""
        tokens = self.tokens
        if not tokens[at].is_name or tokens[at].name != READER or tokens[at + 1].source != "(":
            return False
        if at == 0 or tokens[at - 1].source.lower() not in _BEFORE_A_TABLE:
            return False
        arguments = self._arguments(at + 2)
        end = arguments[-1][-1].end if arguments and arguments[-1] else tokens[at + 1].end
        after = [token.source.lower() for token in tokens if token.start >= end][1:3]
        return after[:1] != ["as"] or after[1:] not in (["("], ["materialized"], ["not"])

    def _arguments(self, at: int) -> list[list[SqlToken]]:
        """The tokens of each argument of a call; ``at`` is the first token in its brackets."""
        arguments: list[list[SqlToken]] = [[]]
        depth = 0
        for token in self.tokens[at:]:
            if token.source in _CLOSING:
                if not depth:
                    break
                depth -= 1
            if token.source == "," and not depth:
                arguments.append([])
                continue
            if token.source in _OPENING:
                depth += 1
            arguments[-1].append(token)
        return arguments if arguments != [[]] else []


def _is_named(argument: Sequence[SqlToken]) -> bool:
    return len(argument) > 1 and argument[0].is_name and argument[1].source in ("=>", ":=")


def _is_query(value: Sequence[SqlToken]) -> bool:
    """Return whether a value is a query in brackets."""
    if len(value) < 3 or value[0].source != "(" or value[1].source.lower() not in _QUERIES:
        return False
    depth = 0
    for number, token in enumerate(value):
        depth += (token.source in _OPENING) - (token.source in _CLOSING)
        if not depth:
            return number == len(value) - 1
    return False


def _text_of(value: Sequence[SqlToken]) -> str | None:
    """The text of a value that is a name, perhaps with dots; None for another value."""
    is_path = len(value) % 2 == 1 and all(
        token.source == "." if number % 2 else token.is_name for number, token in enumerate(value)
    )
    if not is_path or value[0].source.lower() in _CONSTANTS:
        return None
    return "".join(token.name if token.kind == "quoted" else token.source for token in value)


def _as_text(value: str) -> str:
    escaped = value.replace("'", "''")
    return f"'{escaped}'"


# --- errors

_LONGEST: Final = 400
"""The most characters of a DataFusion message."""
_KINDS: Final = re.compile(
    r"^(?:DataFusion error: |Error during planning: |This feature is not implemented: |Schema error: |SQL error: "
    r"|Execution error: |Arrow error: |External error: |Exception: |Internal error: |Optimizer rule '\w+' failed\s+"
    r"|caused by\s+|type_coercion\s+|Analyzer rule '\w+' failed\s+|Invalid or Unsupported Configuration: )+"
)
"""Prefixes that DataFusion adds to messages."""
_NO_TABLE: Final = re.compile(
    r"table '(.+)' not found|No table named '(.+)'|failed to resolve (?:schema|catalog): ([^\"]+)"
)
_NO_FUNCTION: Final = re.compile(r"table function '(.+)' not found")
_NO_FIELD: Final = re.compile(r"No field named ((?:\"(?:[^\"]|\"\")*\"|[^\s\"])+?)\.(?:\s(.*)|$)", re.DOTALL)
_VALID: Final = re.compile(r"Valid fields are (.+?)\.?\s*$", re.DOTALL)
_MEANT: Final = re.compile(r"Did you mean '(.+)'\?")
_AMBIGUOUS: Final = re.compile(r"Ambiguous reference to unqualified field (\S+)")
_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*")
_PARSER: Final = re.compile(r'^(?:\w+\()?"?(.*?)"?\)?$', re.DOTALL)
_AT: Final = re.compile(r" at Line: (\d+), Column: (\d+)")
_DOT: Final = re.compile(r'Dot access not supported .*?value: "(.+?)", .*?Location\((\d+),(\d+)\).*', re.DOTALL)
_ANYWHERE: Final = re.compile(r", errors: .*|Error during planning: |Internal error: ", re.DOTALL)
"""Parts of a message without information."""
_PYTHON: Final = re.compile(r"Python error PyErr \{ type: .*?, value: \w+\([\"'](.*)[\"']\), traceback: ", re.DOTALL)
_REFUSED: Final = re.compile(r"(DDL|DML|Statement) not supported: (.+)")
_UNNAMED: Final = re.compile(r'"?reader\(\)"?')
_BUG: Final = "This issue was likely caused by a bug in DataFusion"


class Refusal(NamedTuple):
    """A statement that options refuse: its ``group`` (DDL, DML or Statement), and its kind, such as COPY."""

    group: str
    what: str


def refusal_of(error: Exception) -> Refusal | None:
    """Return the refused statement that an error names, or None for another error."""
    found = _REFUSED.search(str(error))
    return None if found is None else Refusal(found[1], found[2].strip())


def explained(error: BaseException, statement: Statement | None = None, entries: Sequence[str] = ()) -> ChunkmillError:
    """Return chunkmill's error for a DataFusion error, with similar names, and the place if known.

    ``entries`` are the names of the entries that SQL may name.
    """
    text = str(error).split(_BUG)[0].strip()
    message = _ANYWHERE.sub("", _KINDS.sub("", text))
    if found := _PYTHON.search(message):
        message = found[1]
    if type(error).__name__ == "PanicException":
        return UnsupportedError(
            f"DataFusion cannot execute this statement: {message.splitlines()[0][:_LONGEST]}",
            hint="Rewrite the statement.",
        )
    if found := _NO_TABLE.search(message):
        return _no_entry(next(name for name in found.groups() if name), statement, entries)
    if found := _NO_FUNCTION.search(message):
        place = "" if statement is None else statement.place_of(found[1].strip('"').lower())
        return UsageError(
            f"there is no table function {found[1]!r}{place}", hint="Use reader('DATASET', index => 'INDEX')."
        )
    if found := _NO_FIELD.search(message):
        return _no_field(found[1], found[2] or "", statement)
    place = ""
    if found := _AT.search(message):
        message = message.replace(found[0], "")
        place = "" if statement is None else statement.place(int(found[1]), int(found[2]))
    if "ParserError" in text or "TokenizerError" in text:
        message = (_PARSER.match(message) or [message, message])[1].replace('\\"', '"')
    hint = None
    if found := _AMBIGUOUS.search(message):
        hint = f"Write TABLE.{found[1]}."
        place = "" if statement is None else statement.place_of(found[1].strip('"'))
    elif found := _DOT.search(message):
        message, hint = f"the field {found[1]!r} needs brackets", f"Write [{found[1]!r}] instead of .{found[1]}."
        place = "" if statement is None else statement.place(int(found[2]), int(found[3]))
    elif re.search(r"\bList\(", message):
        hint = "Values of components and properties are lists: '\"/speed:value\"[1] > 3'."
    elif _UNNAMED.search(message):
        message, hint = _UNNAMED.sub(READER, message), "Give each reader(...) a name: FROM reader(...) AS r."
    message = re.sub(r"\s+", " ", message)
    return UsageError(f"{message[:_LONGEST]}{place}", hint=hint)


def _no_entry(reference: str, statement: Statement | None, entries: Sequence[str]) -> NotFoundError:
    """The error for a missing table; ``reference`` is its name in DataFusion's message."""
    name = reference.strip("'\"").removeprefix("datafusion.").removeprefix("public.").strip('"')
    place = ""
    if statement is not None:
        place = statement.place_of(name) or statement.place_of(*name.split("."))
    return no_entry(name, entries, "table or dataset", place)


def no_entry(name: str, entries: Sequence[str], what: str, place: str = "") -> NotFoundError:
    """The error for a missing entry, with similar names."""
    close = difflib.get_close_matches(name, entries, 3) or [
        entry for entry in entries if entry.lower() == name.lower() or entry.lower().endswith(f".{name.lower()}")
    ]
    if close:
        hint = f"Did you mean {' or '.join(map(reference_of, close))}?"
    else:
        shown = [reference_of(entry) for entry in entries if not entry.startswith("__")]
        more = f" and {len(shown) - 8:,} more" if len(shown) > 8 else ""
        hint = f"There are: {', '.join(shown[:8])}{more}." if shown else "The catalog has none yet."
    return NotFoundError(f"there is no {what} {name!r}{place}", hint=hint)


def reference_of(name: str) -> str:
    """An entry's name in SQL, with quotes if needed."""
    parts = name.split(".")
    return name if len(parts) < 4 and all(map(_PLAIN.fullmatch, parts)) else _quoted(name)


def _no_field(reference: str, rest: str, statement: Statement | None) -> UsageError:
    """The error for a missing column; ``rest`` is the part of DataFusion's message about existing columns."""
    paths = _paths(reference)
    parts = paths[0] if paths else [reference]
    place = "" if statement is None else statement.place_of(*parts) or statement.place_of(parts[-1])
    columns: list[list[str]] = []
    if meant := _MEANT.search(rest):  # a table and a column without quotes
        table, slash, entity = meant[1].partition("./")
        if not slash:
            table, _, entity = meant[1].rpartition(".")
        columns.append([*filter(None, [table.removesuffix("()")]), f"/{entity}" if slash else entity])
    valid = _VALID.search(rest)
    columns += _paths(valid[1]) if valid else []
    names = list(dict.fromkeys(path[-1] for path in columns))
    if len(parts) > 1 and parts[-1] in names:
        tables = [".".join(path[:-1]) for path in columns if path[-1] == parts[-1]]
        return UsageError(
            f"there is no table {'.'.join(parts[:-1])!r} with a column {parts[-1]!r}{place}",
            hint=f"It is a column of {' and '.join(dict.fromkeys(tables))}.",
        )
    close = difflib.get_close_matches(parts[-1], names, 1) or [
        name for name in names if name.endswith(parts[-1]) or name.lower() == parts[-1].lower()
    ]
    listed = ", ".join(map(_quoted, names[:8])) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")
    hint = (f"Did you mean {_quoted(close[0])}? " if close else "") + (
        "" if meant or not names else f"There are: {listed}."
    )
    return UsageError(f"there is no column {parts[-1]!r}{place}", hint=hint.strip() or None)


def _quoted(name: str) -> str:
    """A column's name in SQL, with quotes if needed."""
    escaped = name.replace('"', '""')
    return name if _PLAIN.fullmatch(name) else f'"{escaped}"'


def _paths(text: str) -> list[list[str]]:
    """The comma-separated names of a DataFusion message, each split at its dots.

    >>> _paths('r.a, "reader()"."/imu:x"')
    [['r', 'a'], ['reader()', '/imu:x']]
    """
    paths: list[list[str]] = [[]]
    for token in tokens_of(text):
        if token.source == ",":
            paths.append([])
        elif token.source != ".":
            paths[-1].append(token.name if token.kind == "quoted" else token.source)
    return [path for path in paths if path]
