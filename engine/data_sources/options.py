"""The options of the data sources, checked: the inputs, and the requested part of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from ...readers import Format, all_options
from ..errors import UsageError
from ..execution import COLUMNS, WITHOUT_PAYLOAD
from ..stream import FrameRequest

NAME: Final = "chunkmill"
"""The name of the data source of every format; the names of single formats begin with it."""

DATASET_NAME: Final = f"{NAME}.dataset"
"""The name of the data source of datasets."""

TABLE_NAME: Final = f"{NAME}.table"
"""The name of the data source of tables, and of the segments of datasets."""

VALUES: Final = ("index", "start", "end", "flatten", "static", "lists", "times", "schemaFrom")
"""The options of value rows, besides those that select entities."""

_INDEX: Final = "log_time"
"""The timeline of ``start`` and ``end``, if neither the options nor the format name one."""


def source_name(row: Format | None) -> str:
    """The name of the data source of a format; None: of all of them."""
    return NAME if row is None else f"{NAME}.{row.name}"


class PushedFilter(NamedTuple):
    """A filter that Spark pushed down: entity paths, or whether chunks are static; None: all.

    Or the range of the column ``time``, from ``start`` to before ``end``, in ticks of its timeline; None: open.
    """

    entity_paths: tuple[str, ...] | None = None
    is_static: bool | None = None
    time: str | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a data source, checked. ``columns`` are in the order of the schema.

    ``row`` is the format, None for any; ``given`` holds the options of formats, by their names. ``frame`` requests
    value rows; then ``columns`` are those of the option, if given, times are ``nanoseconds`` or Spark's own, and
    ``schema_from`` is the recording that defines the columns (by default, all do).
    """

    row: Format | None
    paths: tuple[str, ...]
    content: str | None
    columns: tuple[str, ...]
    given: Mapping[str, Any]
    frame: FrameRequest | None = None
    nanoseconds: bool = False
    schema_from: str | None = None
    pushed: tuple[PushedFilter, ...] = field(default=())

    @classmethod
    def of(cls, row: Format | None, options: Mapping[str, str], more: Sequence[str] = ()) -> Request:
        """Check the options given to a data source; those named in ``more`` are handled elsewhere. Raises
        ``UsageError``.
        """
        own = {o.name.lower(): o for o in (all_options() if row is None else row.options) if o.parse is not None}
        is_values = "topic" in options or "contents" in options
        shape = VALUES if is_values else ("content", "payload")
        names = ("path", "paths", "topic", "contents", "columns", *shape, *more, *own)
        unknown = sorted(set(options) - {name.lower() for name in names})
        if unknown:
            raise UsageError(
                f"{source_name(row)} has no option {', '.join(map(repr, unknown))}",
                hint=f"Options: {', '.join(names)}.",
            )
        paths = (*json.loads(options.get("paths", "[]")), *filter(None, [options.get("path")]))
        if not paths:
            raise UsageError(f"{source_name(row)} needs a path", hint='spark.read.format("…").load("drive.mcap")')
        given = {o.name: o.from_text(options[name]) for name, o in own.items() if name in options}
        if is_values:
            return cls(row, tuple(paths), None, (), given, *_values(row, options))
        return cls(row, tuple(paths), options.get("content"), _columns(options), given)

    def with_columns(self, names: Sequence[str]) -> Request:
        """The same with the columns of a schema that the user gave."""
        return replace(self, columns=_known(names))

    def pushing(self, wanted: PushedFilter) -> Request:
        """The same with one more filter."""
        return replace(self, pushed=(*self.pushed, wanted))


def _values(row: Format | None, options: Mapping[str, str]) -> tuple[FrameRequest, bool, str | None]:
    """Return the choices for value rows: the frame, whether times are in ns, and the recording with the schema."""
    if "topic" in options and "contents" in options:
        raise UsageError("options 'topic' and 'contents' exclude each other", hint="Give one of them.")
    topics = [name if name.startswith("/") else f"/{name}" for name in listed(options.get("topic", ""))]
    contents = topics or [options.get("contents", "/**")]
    times = options.get("times", "timestamp")
    if times not in ("timestamp", "nanoseconds"):
        raise UsageError(f"option 'times': expected 'timestamp' or 'nanoseconds', got {times!r}")
    start, end = (_moment(options.get(name)) for name in ("start", "end"))
    index = options.get("index")
    if index is None and (start is not None or end is not None):
        index = (None if row is None else row.file.frame_index) or _INDEX
    frame = FrameRequest.of(
        contents,
        index=index,
        columns=listed(options["columns"]) if "columns" in options else None,
        start=start,
        end=end,
        flatten=flag("flatten", options),
        static=flag("static", options),
        lists=flag("lists", options) if "lists" in options else None,
    )
    return frame, times == "nanoseconds", options.get("schemafrom")


def _moment(text: str | None) -> int | str | None:
    return int(text) if text is not None and is_whole(text) else text


def is_whole(text: str) -> bool:
    """Return whether a text is a whole number: nanoseconds, or a number of a sequence.

    >>> [is_whole(text) for text in ("5", "-5", "--5", "2024-05-01")]
    [True, True, False, False]
    """
    return text.removeprefix("-").isdecimal()


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    payload = flag("payload", options)
    chosen = _known(listed(options["columns"])) if "columns" in options else WITHOUT_PAYLOAD
    return tuple(c for c in COLUMNS if c in chosen or (c == "payload" and payload))


def flag(name: str, options: Mapping[str, str]) -> bool:
    """Return the value of an option that is ``true`` or ``false`` (the default). Raises ``UsageError``."""
    text = options.get(name.lower(), "false").strip().lower()
    if text not in ("true", "false"):
        raise UsageError(f"option {name!r}: expected 'true' or 'false', got {text!r}")
    return text == "true"


def _known(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}", hint=f"Columns: {', '.join(COLUMNS)}.")
    return tuple(names)


def listed(text: str) -> tuple[str, ...]:
    """The words of an option, which are separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
