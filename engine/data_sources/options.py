"""The options of the data sources, checked: what is read, and of that what is wanted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from ...readers import Format, all_options
from ..errors import UsageError
from ..execution import COLUMNS, WITHOUT_PAYLOAD

NAME: Final = "chunkmill"
"""The name of the data source of every format; those of one begin with it."""


def source_name(row: Format | None) -> str:
    """The name of the data source of a format; None: of all of them."""
    return NAME if row is None else f"{NAME}.{row.name}"


class Wanted(NamedTuple):
    """A filter that Spark pushed down: chunks of these entities, or static (or temporal) ones; None: all."""

    entity_paths: tuple[str, ...] | None = None
    is_static: bool | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a data source, checked. ``columns`` are in the order of the schema.

    ``row`` is the format, None for whatever a file is; ``given`` holds the options of formats, by their names.
    """

    row: Format | None
    paths: tuple[str, ...]
    content: str | None
    columns: tuple[str, ...]
    given: Mapping[str, Any]
    pushed: tuple[Wanted, ...] = field(default=())

    @classmethod
    def of(cls, row: Format | None, options: Mapping[str, str], more: Sequence[str] = ()) -> Request:
        """Check the options given to a data source, of which others look at ``more``. Raises ``UsageError``."""
        own = {o.name.lower(): o for o in (all_options() if row is None else row.options) if o.parse is not None}
        known = ("path", "paths", "content", "payload", "columns", *more, *own)
        unknown = sorted(set(options) - {name.lower() for name in known})
        if unknown:
            raise UsageError(
                f"{source_name(row)} has no option {', '.join(map(repr, unknown))}",
                hint=f"Options: {', '.join(known)}.",
            )
        paths = (*json.loads(options.get("paths", "[]")), *filter(None, [options.get("path")]))
        if not paths:
            raise UsageError(f"{source_name(row)} needs a path", hint='spark.read.format("…").load("drive.mcap")')
        given = {o.name: o.from_text(options[name]) for name, o in own.items() if name in options}
        return cls(row, tuple(paths), options.get("content"), _columns(options), given)

    def with_columns(self, names: Sequence[str]) -> Request:
        """The same with the columns of a schema that the user gave."""
        return replace(self, columns=_known(names))

    def pushing(self, wanted: Wanted) -> Request:
        """The same with one more filter."""
        return replace(self, pushed=(*self.pushed, wanted))


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    payload = flag("payload", options)
    chosen = _known(_listed(options["columns"])) if "columns" in options else WITHOUT_PAYLOAD
    return tuple(c for c in COLUMNS if c in chosen or (c == "payload" and payload))


def flag(name: str, options: Mapping[str, str]) -> bool:
    """The value of an option that is ``true`` or ``false``, which it is when not given. Raises ``UsageError``."""
    text = options.get(name.lower(), "false").strip().lower()
    if text not in ("true", "false"):
        raise UsageError(f"option {name!r}: 'true' or 'false' was expected, got {text!r}")
    return text == "true"


def _known(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}", hint=f"Columns: {', '.join(COLUMNS)}.")
    return tuple(names)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
