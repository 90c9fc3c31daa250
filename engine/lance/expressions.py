"""Expressions of SQL that users give, and what Lance says of those that are none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from ..errors import UsageError
from .faults import shortened

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
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|`[^`]*`|\"((?:[^\"]|\"\")*)\"|;|--|/\*")
"""Texts and names between quotes, the latter as a group, and what would end an expression."""
_NO_FIELD: Final = re.compile(r"No field named (.+?)\.(?: Did you mean (.+?)\?| Valid fields are .*|$)")
_PREFIX: Final = re.compile(r"^(?:Invalid user input: |Schema error: )+")
_PLAN: Final = re.compile(r"does not support logical expression (\w+)")
_TIME: Final = re.compile(r"Received literal Utf8.* literal of type '(?:Timestamp|Date)")
_NAME: Final = re.compile(r"`[^`]*`|[A-Za-z_]\w*")
_HINT: Final = "Write it as SQL over the table's columns."


class HasSchema(Protocol):
    """A version of a table, or another thing that has columns."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        ...


class asking:  # noqa: N801 (reads as a word: `with asking(reader, where):`)
    """In the block, what Lance says of SQL over the columns of ``source`` is a ``UsageError``.

    Raises one, too, for SQL of which Lance would take a part, and for a column between double quotes, which is text to
    it: a condition would be true in all rows, or in none.
    """

    def __init__(self, source: HasSchema, *expressions: str, where: str | None = None) -> None:
        self._source = source
        self._where = where
        self._expressions = expressions if where is None else (*expressions, where)

    def __enter__(self) -> None:
        for expression in self._expressions:
            for token in _TOKEN.finditer(expression):
                name, said = token[1], token[0]
                if said in (";", "--", "/*"):
                    raise UsageError(
                        f"{self._told([expression])}: it goes on after {said!r}",
                        hint="Write one expression of SQL, without comments.",
                    )
                if name is not None and name in self._source.schema.names:
                    raise UsageError(
                        f"{self._told([expression])}: {said} would be text, and not the column",
                        hint=f"Write `{name}` for the column, and '{name}' for text.",
                    )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._expressions or not isinstance(error, (OSError, ValueError)) or isinstance(error, UsageError):
            return
        said = shortened(error)
        if "INVERTED index" in said:
            raise UsageError(
                "no column has an index of words", hint="Make one, create_fts_index(column), or name fts_columns=."
            ) from None
        if "request at least one column" in said:
            raise UsageError("what is asked for names no column of the table", hint="Ask for one, too.") from None
        if "Lance file" in said or not any(word in said for word in _BAD_SQL):
            return  # a file is damaged
        told = [one for one in self._expressions if one == self._where or not _NAME.fullmatch(one)]
        reason, hint = _PREFIX.sub("", said), _HINT
        if plan := _PLAN.search(said):
            reason = f"{plan[1]} is not of one row"
        if _TIME.search(said):
            hint = "Write a time as timestamp '2026-01-31 12:00:00', and a day as date '2026-01-31'."
        if missing := _NO_FIELD.search(said):
            name = missing[1].strip('"')
            told = [one for one in told if name.lower() in one.lower()]
            meant = f"; did you mean {missing[2]}?" if missing[2] else ""
            reason, hint = f"there is no column {name!r}{meant}", f"There are: {', '.join(self._source.schema.names)}."
        raise UsageError(f"{self._told(told)}: {reason}" if told else reason, hint=hint) from None

    def _told(self, expressions: list[str]) -> str:
        kind = "condition" if expressions == [self._where] else "expression"
        return f"{', '.join(expressions)!r} is no {kind} on this table"
