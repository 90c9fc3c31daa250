"""Parse a query into stages.

::

    query   := expr END
    expr    := term ("|" term)*
    term    := "map" "(" expr ")"
             | "pack" "(" path ("," path)* ")"
             | STRING
             | NAME [ "(" [ STRING (";" STRING)* ] ")" ]
             | "(" expr ")" mark* segment*
             | "."
             | ["."] segment+
    segment := ( FIELD | "." STRING | "[" STRING "]" | "[" "]" | "[" INTEGER "]" ) mark*
    mark    := "?" | "!"
    path    := an expr of ``.``, FIELD and ``[`` INTEGER ``]`` alone, with their marks

Parentheses, quoted fields and negative integers are chunkmill's own; everything else has the same meaning as in Rerun.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, NoReturn

from ...engine.errors import SelectorSyntaxError
from ...engine.limits import MAX_NESTING
from .syntax import (
    Constant,
    Each,
    FieldAccess,
    FunctionCall,
    Identity,
    Index,
    MapEach,
    Marked,
    Nested,
    Node,
    Pack,
    PipelineStep,
    SelectorPipeline,
    inner_nodes,
    is_alphabetic,
    is_name_part,
    quoted,
)

_LARGEST_INDEX = 2**64 - 1
_ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "t": "\t"}
_WHITESPACE = " \t\r\n"
_SINGLE = "[]()|;?!"
_DIGITS = "0123456789"


class TokenKind(Enum):
    """The kind of a token; single characters are their own kind."""

    FIELD = "field"
    DOT = "."
    NAME = "name"
    INTEGER = "integer"
    STRING = "string"
    SYMBOL = "symbol"


class Token(NamedTuple):
    """One token: ``text`` is a field's or function's name, a string's content, a number's digits, or the symbol."""

    kind: TokenKind
    text: str
    position: int

    @property
    def shown(self) -> str:
        """The token as written."""
        if self.kind is TokenKind.FIELD:
            return f".{self.text}"
        return quoted(self.text) if self.kind is TokenKind.STRING else self.text

    def is_symbol(self, text: str) -> bool:
        """Return whether this is the given bracket, bar or mark."""
        return self.kind is TokenKind.SYMBOL and self.text == text


def tokenise(query: str) -> list[Token]:
    """Return the tokens of ``query``. Raises :class:`SelectorSyntaxError` at the first character that starts none."""
    return list(_Lexer(query).tokens())


class _Lexer:
    """Walks over the query. ``at`` is the next character; after a ``pack``, ``packs`` allows commas."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.at = 0
        self.packs = False

    def tokens(self) -> Iterator[Token]:
        previous: Token | None = None
        while self.at < len(self.query):
            c = self.query[self.at]
            if c in _WHITESPACE:
                self.at += 1
                continue
            previous = self._token(c, previous)
            self.packs = self.packs or (previous.kind is TokenKind.NAME and previous.text == "pack")
            yield previous

    def _token(self, c: str, previous: Token | None) -> Token:
        start = self.at
        self.at += 1
        if c == ".":
            if is_alphabetic(self._next()):
                return Token(TokenKind.FIELD, self._run(self.at), start)
            return Token(TokenKind.DOT, c, start)
        if c in _SINGLE or (c == "," and self.packs):
            return Token(TokenKind.SYMBOL, c, start)
        if c == '"':
            return Token(TokenKind.STRING, self._string(), start)
        negative = c == "-" and previous is not None and previous.is_symbol("[") and self._next() in _DIGITS
        if c in _DIGITS or negative:
            return Token(TokenKind.INTEGER, self._integer(start), start)
        if c == "_" or is_alphabetic(c):
            return Token(TokenKind.NAME, self._run(start), start)
        return self._fail(f"unexpected character `{c}`", start)

    def _next(self) -> str:
        return self.query[self.at : self.at + 1] or "\0"

    def _run(self, start: int) -> str:
        while is_name_part(self._next()):
            self.at += 1
        return self.query[start : self.at]

    def _integer(self, start: int) -> str:
        while self._next() in _DIGITS:
            self.at += 1
        digits = self.query[start : self.at]
        if len(digits.lstrip("-0")) > 20 or abs(int(digits)) > _LARGEST_INDEX:
            message = f"failed to parse `{digits}` as integer: number too large to fit in target type"
            raise SelectorSyntaxError(message, query=self.query, position=start)
        return digits

    def _string(self) -> str:
        opening = self.at
        out: list[str] = []
        while True:
            c = self.query[self.at : self.at + 1]
            if not c:
                self._fail("unterminated string", opening)
            self.at += 1
            if c == '"':
                return "".join(out)
            if c == "\\":
                escape = self.query[self.at : self.at + 1]
                if not escape:
                    self._fail("unterminated string", opening)
                if escape not in _ESCAPES:
                    self._fail(f"invalid escape sequence `\\{escape}`", self.at)
                c = _ESCAPES[escape]
                self.at += 1
            out.append(c)

    def _fail(self, what: str, position: int) -> NoReturn:
        before = self.query[:position]
        line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
        raise SelectorSyntaxError(f"{what} at line {line}, column {column}", query=self.query, position=position)


def parse(query: str) -> SelectorPipeline:
    """The pipeline that ``query`` means. Raises :class:`SelectorSyntaxError`."""
    return _Parser(query).whole()


class _Parser:
    """Takes tokens from the left; ``at`` is the next one."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.tokens = tokenise(query)
        self.at = 0
        self.depth = 0

    def whole(self) -> SelectorPipeline:
        pipeline = self._expression()
        if self._peek() is not None:
            self._unexpected()
        return pipeline

    def _expression(self) -> SelectorPipeline:
        self.depth += 1
        if self.depth > MAX_NESTING:
            self._fail(f"nested deeper than {MAX_NESTING} levels", self._position())
        stages = self._term(False)
        while self._take("|"):
            stages += self._term(True)
        self.depth -= 1
        return SelectorPipeline(tuple(stages))

    def _term(self, piped: bool) -> list[PipelineStep]:
        token = self._peek()
        if token is not None and token.kind is TokenKind.NAME:
            self.at += 1
            return [PipelineStep(self._call(token.text), piped)]
        if token is not None and token.kind is TokenKind.STRING:
            self.at += 1
            return [PipelineStep(Constant(token.text), piped)]
        if self._symbol("("):
            return [PipelineStep(self._marked(Nested(self._in_parentheses())), piped), *self._segments(False)]
        bare_dot = token is not None and token.kind is TokenKind.DOT and not self._string_follows()
        if bare_dot:
            self.at += 1
        stages = self._segments(piped)
        if stages:
            return stages
        if bare_dot:
            return [PipelineStep(Identity(), piped)]
        return self._unexpected()

    def _segments(self, piped: bool) -> list[PipelineStep]:
        stages: list[PipelineStep] = []
        while (node := self._segment()) is not None:
            stages.append(PipelineStep(self._marked(node), piped and not stages))
        return stages

    def _segment(self) -> Node | None:
        token = self._peek()
        if token is None:
            return None
        if token.kind is TokenKind.FIELD:
            self.at += 1
            return FieldAccess(token.text)
        if token.kind is TokenKind.DOT and self._string_follows():
            self.at += 2
            return FieldAccess(self.tokens[self.at - 1].text)
        return self._brackets() if self._take("[") else None

    def _brackets(self) -> Node:
        token = self._peek()
        if self._take("]"):
            return Each()
        if token is None or token.kind not in (TokenKind.INTEGER, TokenKind.STRING):
            return self._unexpected()
        self.at += 1
        self._expect("]")
        return Index(int(token.text)) if token.kind is TokenKind.INTEGER else FieldAccess(token.text)

    def _marked(self, node: Node) -> Node:
        marks = ""
        while self._symbol("?") or self._symbol("!"):
            marks += self.tokens[self.at].text
            self.at += 1
        return Marked(node, marks) if marks else node

    def _in_parentheses(self) -> SelectorPipeline:
        self._expect("(")
        body = self._expression()
        self._expect(")")
        return body

    def _pack(self) -> Node:
        self._expect("(")
        parts = [self._path()]
        while self._take(","):
            parts.append(self._path())
        self._expect(")")
        return Pack(tuple(parts), None, 1.0, whole=True, by_position=False)

    def _path(self) -> SelectorPipeline:
        start = self._position()
        path = self._expression()
        if not all(isinstance(n, (FieldAccess, Identity, Index, Marked)) for n in inner_nodes(path)):
            self._fail("`pack` takes fields and elements: `.`, `.name`, `[n]`, with `?` and `!`", start)
        return path

    def _call(self, name: str) -> Node:
        if name == "map":
            return MapEach(self._in_parentheses())
        if name == "pack":
            return self._pack()
        if not self._take("("):
            return FunctionCall(name, None)
        arguments: list[str] = []
        while not (self._symbol(")") and not arguments):
            token = self._peek()
            if token is None or token.kind is not TokenKind.STRING:
                return self._unexpected()
            arguments.append(token.text)
            self.at += 1
            if not self._take(";"):
                break
        self._expect(")")
        return FunctionCall(name, tuple(arguments))

    # --- tokens

    def _peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _symbol(self, text: str) -> bool:
        token = self._peek()
        return token is not None and token.is_symbol(text)

    def _take(self, text: str) -> bool:
        """Return whether the symbol is next; if so, consume it."""
        is_next = self._symbol(text)
        self.at += is_next
        return is_next

    def _string_follows(self) -> bool:
        return self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].kind is TokenKind.STRING

    def _expect(self, text: str) -> None:
        token = self._peek()
        if token is None:
            self._unexpected()
        if not token.is_symbol(text):
            self._fail(f"expected `{text}` but found `{token.shown}`", token.position)
        self.at += 1

    def _position(self) -> int:
        token = self._peek()
        return len(self.query) if token is None else token.position

    def _unexpected(self) -> NoReturn:
        token = self._peek()
        if token is None:
            self._fail("unexpected end of input", len(self.query))
        self._fail(f"unexpected symbol `{token.shown}`", token.position)

    def _fail(self, what: str, position: int) -> NoReturn:
        raise SelectorSyntaxError(what, query=self.query, position=position)
