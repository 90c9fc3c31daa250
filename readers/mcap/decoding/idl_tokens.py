"""The words of OMG IDL, and integer expressions made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from ....engine.limits import MAX_NESTING
from .decoded import SchemaError

_TOKEN: Final = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*|"
    r"(?P<word>[A-Za-z_]\w*|\d(?:[\w.]|(?<=[eE])[+-])*|L?\"(?:[^\"\\\n]|\\.)*\"|L?'(?:[^'\\\n]|\\.)+'|::|<<|>>|.)",
    re.DOTALL | re.ASCII,
)
_INTEGER: Final = re.compile(r"0[xX][0-9a-fA-F]{1,16}|\d{1,20}")
_LEVELS: Final[tuple[dict[str, Callable[[int, int], int]], ...]] = (
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"<<": lambda a, b: a << min(b, 64) if b >= 0 else 0, ">>": lambda a, b: a >> b if b >= 0 else 0},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: a // b if b else 0, "%": lambda a, b: a % b if b else 0},
)
_SUMS: Final = 4
_MOST_WORDS: Final = 1 << 20
_LARGEST: Final = 1 << 64


class Tokens:
    """A text's words, read one after the other; comments and preprocessor lines are left out."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = self._find()
        self._place = 0
        self.next = ""
        self.step()

    def _find(self) -> Iterator[str]:
        count = 0
        for match in _TOKEN.finditer(self._text):
            if match["word"] is not None:
                count += 1
                if count > _MOST_WORDS:
                    raise SchemaError(f"it has more than {_MOST_WORDS:,} words")
                self._place = match.start()
                yield match["word"]

    def step(self) -> str:
        """The word that was next; :attr:`next` is then the one behind it, empty at the end."""
        word, self.next = self.next, next(self._words, "")
        return word

    def take(self, word: str) -> bool:
        """Step over ``word`` if it is next."""
        if self.next == word:
            self.step()
            return True
        return False

    def expect(self, *words: str) -> None:
        """Step over ``words``; raises :class:`SchemaError` if others come."""
        for word in words:
            if not self.take(word):
                raise self.error(f"expected {word!r}")

    def name(self) -> str:
        """Step over a name."""
        if not (self.next[:1].isalpha() or self.next[:1] == "_"):
            raise self.error("expected a name")
        return self.step()

    def scoped(self) -> tuple[str, ...]:
        """``a::b::c``; a leading ``::`` becomes an empty part."""
        parts = [""] if self.next == "::" else [self.name()]
        while self.take("::"):
            parts.append(self.name())
        return tuple(parts)

    def skip_group(self, opening: str, closing: str) -> None:
        """Step over what brackets hold, brackets within it too."""
        self.expect(opening)
        depth = 1
        while depth:
            if not self.next:
                raise self.error(f"expected {closing!r}")
            word = self.step()
            depth += (word == opening) - (word == closing)

    def error(self, what: str) -> SchemaError:
        """An error that says where."""
        line = self._text.count("\n", 0, self._place) + 1
        return SchemaError(f"line {line}: {what}, found {self.next[:40]!r}" if self.next else f"it ends: {what}")

    def integer(self, value_of: Callable[[tuple[str, ...]], int | None], depth: int = 0) -> int:
        """An integer expression; ``value_of`` knows the constants."""
        return self._operation(0, value_of, depth)

    def bound(self, value_of: Callable[[tuple[str, ...]], int | None]) -> int:
        """The same within angle brackets, where ``>>`` closes two."""
        return self._operation(_SUMS, value_of, 0)

    def close_angle(self) -> None:
        """Step over ``>``, also where it is the first half of ``>>``."""
        if self.next == ">>":
            self.next = ">"
        else:
            self.expect(">")

    def _operation(self, level: int, value_of: Callable[[tuple[str, ...]], int | None], depth: int) -> int:
        if level == len(_LEVELS):
            return self._operand(value_of, depth)
        value = self._operation(level + 1, value_of, depth)
        while self.next in _LEVELS[level]:
            operator = _LEVELS[level][self.step()]
            value = operator(value, self._operation(level + 1, value_of, depth))
            if abs(value) > _LARGEST:
                raise self.error("the number is too large")
        return value

    def _operand(self, value_of: Callable[[tuple[str, ...]], int | None], depth: int) -> int:
        if depth > MAX_NESTING:
            raise self.error("the expression is nested too deeply")
        if self.take("("):
            value = self.integer(value_of, depth + 1)
            self.expect(")")
            return value
        if self.next in ("-", "+", "~"):
            sign = self.step()
            value = self._operand(value_of, depth + 1)
            return {"-": -value, "+": value, "~": ~value}[sign]
        if _INTEGER.fullmatch(self.next):
            word = self.step()
            return int(word, 16 if word[1:2] in ("x", "X") else 8 if word[0] == "0" else 10) if word != "0" else 0
        value_or_none = value_of(self.scoped())
        if value_or_none is None:
            raise self.error("expected a whole number")
        return value_or_none
