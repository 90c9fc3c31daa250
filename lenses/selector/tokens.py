"""Queries as tokens."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, NoReturn

from ...engine.errors import SelectorSyntaxError
from . import characters
from .syntax import quoted

_LARGEST_INDEX = 2**64 - 1
_ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "t": "\t"}
_WHITESPACE = " \t\r\n"
_SINGLE = "[]()|;?!"
_DIGITS = "0123456789"


class Kind(Enum):
    """What a token is; single characters are their own kind."""

    FIELD = "field"
    DOT = "."
    NAME = "name"
    INTEGER = "integer"
    STRING = "string"
    SYMBOL = "symbol"


class Token(NamedTuple):
    """One token: ``text`` is a field's or function's name, a string's content, a number's digits, or the symbol."""

    kind: Kind
    text: str
    position: int

    @property
    def shown(self) -> str:
        """The token as written."""
        if self.kind is Kind.FIELD:
            return f".{self.text}"
        return quoted(self.text) if self.kind is Kind.STRING else self.text

    def is_symbol(self, text: str) -> bool:
        """Whether this is the given bracket, bar or mark."""
        return self.kind is Kind.SYMBOL and self.text == text


def tokenise(query: str) -> list[Token]:
    """The tokens of ``query``. Raises :class:`SelectorSyntaxError` at the first character that starts none."""
    return list(_Lexer(query).tokens())


class _Lexer:
    """Walks over the query; ``at`` is the next character, ``packs`` whether there can be commas by now."""

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
            self.packs = self.packs or (previous.kind is Kind.NAME and previous.text == "pack")
            yield previous

    def _token(self, c: str, previous: Token | None) -> Token:
        start = self.at
        self.at += 1
        if c == ".":
            if characters.is_alphabetic(self._next()):
                return Token(Kind.FIELD, self._run(self.at), start)
            return Token(Kind.DOT, c, start)
        if c in _SINGLE or (c == "," and self.packs):
            return Token(Kind.SYMBOL, c, start)
        if c == '"':
            return Token(Kind.STRING, self._string(), start)
        negative = c == "-" and previous is not None and previous.is_symbol("[") and self._next() in _DIGITS
        if c in _DIGITS or negative:
            return Token(Kind.INTEGER, self._integer(start), start)
        if c == "_" or characters.is_alphabetic(c):
            return Token(Kind.NAME, self._run(start), start)
        return self._fail(f"unexpected character `{c}`", start)

    def _next(self) -> str:
        return self.query[self.at : self.at + 1] or "\0"

    def _run(self, start: int) -> str:
        while characters.is_name_part(self._next()):
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
