"""The options of ``convert`` that are for Parquet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class ParquetChoices:
    """What ``ParquetReader`` is asked for, as parsed. ``None`` and empty mean: not given."""

    index_columns: tuple[tuple[str, ...], ...] = ()
    static_columns: tuple[str, ...] = ()
    entity_path_prefix: str | None = None
    column_grouping: str | None = None
    delimiter: str | None = None
    flat: bool = False

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments for the reader: those that were given."""
        given = {
            "index_columns": self.index_columns or None,
            "static_columns": self.static_columns or None,
            "entity_path_prefix": self.entity_path_prefix,
            "column_grouping": self.column_grouping,
            "delimiter": self.delimiter,
            "use_structs": False if self.flat else None,
        }
        return {name: value for name, value in given.items() if value is not None}


def parse_index(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[Any, ...]:
    """Turn ``NAME:TYPE`` or ``NAME:TYPE:UNIT`` into the reader's tuples; a name may hold colons."""
    parsed = []
    for value in values:
        parts = value.rsplit(":", 2)
        if len(parts) == 3 and parts[1] not in _TYPES:
            parts = [":".join(parts[:2]), parts[2]]
        if len(parts) < 2 or not parts[0] or parts[1] not in _TYPES or (len(parts) == 3 and parts[2] not in _UNITS):
            raise click.BadParameter(
                f"{value!r} is not of the form NAME:TYPE[:UNIT] with a type of {', '.join(_TYPES)}"
                f" and a unit of {', '.join(_UNITS)}"
            )
        parsed.append(tuple(parts))
    return tuple(parsed)


_TYPES = ("timestamp", "duration", "sequence")
_UNITS = ("ns", "us", "ms", "s")

_OPTIONS = (
    click.option(
        "--index-column",
        "index_columns",
        multiple=True,
        metavar="NAME:TYPE[:UNIT]",
        callback=parse_index,
        help="Column of a Parquet file that is a timeline, such as 'stamp:timestamp:us'; may be repeated.",
    ),
    click.option(
        "--static-column",
        "static_columns",
        multiple=True,
        metavar="NAME",
        help="Column of a Parquet file that is the same in every row; may be repeated.",
    ),
    click.option("--entity-path-prefix", metavar="PATH", help="Stands before the entities of a Parquet file."),
    click.option(
        "--column-grouping",
        type=click.Choice(["prefix", "individual"]),
        help="Whether columns of a Parquet file with one prefix share an entity. Default: prefix.",
    ),
    click.option("--delimiter", metavar="CHAR", help="Ends the prefix of a Parquet file's columns. Default: '_'."),
    click.option("--flat", is_flag=True, help="Make each column of a Parquet file a component, and no structs."),
)


def parquet_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as one argument ``parquet``."""

    @wraps(command)
    def gathered(**given: Any) -> None:
        names = ParquetChoices.__dataclass_fields__
        choices = ParquetChoices(**{name: given.pop(name) for name in names})
        command(**given, parquet=choices)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered
