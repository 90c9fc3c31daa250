"""Expressions of SQL that users give, and what Lance says of those that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import UsageError
from .place import shortened

if TYPE_CHECKING:
    from types import TracebackType

_BAD_SQL: Final = (
    "parsing",
    "Schema error",
    "No field named",
    "sql parser",
    "Invalid user input",
    "type_coercion",
    "Error during planning",
    "Cast error",
    "This feature is not implemented",
)


class asking:  # noqa: N801 (reads as a word: `with asking(where):`)
    """In the block, what Lance says of an expression is a ``UsageError``."""

    def __init__(self, expression: str | None, kind: str = "condition") -> None:
        self._expression = expression
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._expression is None or not isinstance(error, (OSError, ValueError)) or isinstance(error, UsageError):
            return
        said = shortened(error)
        if any(word in said for word in _BAD_SQL):
            raise UsageError(
                f"{self._expression!r} is no {self._kind} on this table: {said}",
                hint="Write it as SQL over the table's columns.",
            ) from None
