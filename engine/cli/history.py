"""``versions``, ``tag``, ``restore`` and ``diff`` of ``chunkmill catalog`` and ``chunkmill tables``.

As in ``commands``, click alone is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import UsageError
from ..units import counted, size, utc_time
from .complaints import reported
from .options import DEBUG, Decorator
from .start import leave_out_what_nothing_needs

if TYPE_CHECKING:
    import pyarrow as pa

_TEXTS: Final = ("author", "operation", "tags", "made_at", "kind", "name", "id", "earlier_name", "change", "_change")
_POINT: Final = "a number, a tag, or a time such as 2026-11-29T12:00:00Z"
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")


def add_version_commands(
    group: click.Group,
    target: Decorator,
    opened: Callable[..., Any],
    target_of_list: Decorator | None = None,
    opened_to_list: Callable[..., Any] | None = None,
) -> None:
    """Add the commands to a group.

    ``target`` adds the arguments with which ``opened`` opens a dataset or a table. ``versions`` may have other
    arguments.
    """

    @group.command("versions")
    @(target_of_list or target)
    @_JSON
    @DEBUG
    def list_versions(as_json: bool, debug: bool, **where: Any) -> None:
        """List versions, with the author, time, operation, tags and counts of each."""
        with reported(debug=debug):
            leave_out_what_nothing_needs()
            _print((opened_to_list or opened)(**where).list_versions(), as_json=as_json)

    named = f"Tag a version; the version is kept until the tag is removed.\n\nVERSION is {_POINT}."

    @group.command("tag", help=f"{named} Default: the newest.")
    @target
    @click.argument("tag")
    @click.argument("version", required=False, metavar="[VERSION]")
    @click.option("--move", is_flag=True, help="Move TAG if it exists.")
    @click.option("--remove", is_flag=True, help="Remove TAG.")
    @DEBUG
    def tag_version(tag: str, version: str | None, move: bool, remove: bool, debug: bool, **where: Any) -> None:
        with reported(debug=debug):
            leave_out_what_nothing_needs()
            if remove and (move or version is not None):
                raise UsageError("--remove takes only a tag")
            entry = opened(**where)
            if remove:
                entry.untag(tag)
                click.echo(f"{entry.name}: tag {tag!r} is removed")
            else:
                number = entry.tag(tag, None if version is None else _point(version), move=move)
                click.echo(f"{entry.name}: tag {tag!r} names version {number}")

    @group.command("restore", help=f"Restore the content of VERSION, as a new version.\n\nVERSION is {_POINT}.")
    @target
    @click.argument("version")
    @DEBUG
    def restore_version(version: str, debug: bool, **where: Any) -> None:
        with reported(debug=debug):
            leave_out_what_nothing_needs()
            entry = opened(**where)
            number = entry.restore(_point(version))
            click.echo(f"{entry.name}: version {number}, the newest, has the content of {version}")

    compared = f"List the differences between two versions.\n\nBEFORE and AFTER are {_POINT}."

    @group.command("diff", help=f"{compared} Default for AFTER: the newest.")
    @target
    @click.argument("before")
    @click.argument("after", required=False, metavar="[AFTER]")
    @_JSON
    @DEBUG
    def diff_versions(before: str, after: str | None, as_json: bool, debug: bool, **where: Any) -> None:
        with reported(debug=debug):
            leave_out_what_nothing_needs()
            changes = opened(**where).diff(_point(before), None if after is None else _point(after))
            _print(changes, as_json=as_json)


def _point(text: str) -> int | str:
    """A version as it is given on the command line."""
    return int(text) if text.isdigit() else text


def _print(table: pa.Table, *, as_json: bool) -> None:
    from .inspection import Heading, print_columns

    rows = table.to_pylist()
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False, default=_text))
        return
    names = table.column_names
    headings = [Heading(name.strip("_"), at, is_number=name not in _TEXTS) for at, name in enumerate(names)]
    if rows:
        print_columns(headings, [[_shown(name, row[name]) for name in names] for row in rows])
        click.echo()
    click.echo(counted(len(rows), "row"))


def _text(value: Any) -> str:
    return utc_time(value.timestamp(), "microseconds") if isinstance(value, datetime) else str(value)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in ("bytes", "bytes_before", "bytes_after"):
        return size(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else _text(value)
