"""``chunkmill quarantine``: the files that failed as a table or as JSON, and those that are to be tried again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..errors import UsageError
from ..ingest import FileQuarantine, QuarantinedFile, home_of
from ..locations import Location
from .complaints import one_line, warnings_as_lines

_PLAIN_WIDTH = 200
_HEADINGS = ("file", "error", "message", "at byte", "tries", "first seen")
_SHORTEST = 12


def list_quarantined(store: Location, paths: Sequence[str], *, as_json: bool) -> None:
    """Print the files in quarantine, or those that ``paths`` name. Raises ``UsageError`` for one that is not there."""
    files = FileQuarantine(home_of(store)).rows()
    if paths:
        files = _named(files, paths)
    if as_json:
        _print_json(files)
    elif not files:
        click.echo("No files in quarantine.")
    else:
        _print_table(files)
        click.echo(f"{_files(len(files))} in quarantine; --json shows messages whole, and what to do.")


def retry_quarantined(store: Location, paths: Sequence[str], *, everything: bool, as_json: bool) -> None:
    """Ask for files to be tried again, and say what happens next."""
    quarantine = FileQuarantine(home_of(store))
    files = _acted_on(quarantine, quarantine.request_retry, store, paths, everything=everything)
    _tell(
        files,
        "will be tried again: by the ingestion that runs, with one of its next batches, or else by the next that is "
        "started. What has come through leaves the quarantine.",
        as_json=as_json,
    )


def drop_quarantined(store: Location, paths: Sequence[str], *, everything: bool, as_json: bool) -> None:
    """Forget files, and say what becomes of them."""
    quarantine = FileQuarantine(home_of(store))
    files = _acted_on(quarantine, quarantine.drop, store, paths, everything=everything)
    _tell(
        files,
        "dropped from quarantine: left in place, and not tried again before the content changes.",
        as_json=as_json,
    )


def _tell(files: Sequence[QuarantinedFile], what: str, *, as_json: bool) -> None:
    """Print what happens to the files that were chosen."""
    if as_json:
        _print_json(files)
    elif not files:
        click.echo("No files in quarantine.")
    else:
        click.echo(f"{_files(len(files))} {what}")


def _acted_on(
    quarantine: FileQuarantine,
    act: Callable[[Iterable[str]], list[str]],
    store: Location,
    paths: Sequence[str],
    *,
    everything: bool,
) -> list[QuarantinedFile]:
    """The files that were chosen, after ``act`` was called with their paths."""
    if bool(paths) == everything:
        raise UsageError(
            "files are chosen by their paths or by --all" if everything else "no file is chosen",
            hint="Leave one of them out." if everything else "Name paths, or --all for all that are in quarantine.",
        )
    files = quarantine.rows()
    chosen = files if everything else _named(files, paths)
    with warnings_as_lines(store):
        act([file.path for file in chosen])
    return chosen


def _named(files: Sequence[QuarantinedFile], paths: Sequence[str]) -> list[QuarantinedFile]:
    """The files that ``paths`` name, each as it stands in the quarantine, or as a path from the current folder."""
    by_path = {file.path: file for file in files}
    chosen = {}
    for path in paths:
        spellings = (path, os.path.abspath(path), str(Path(path).resolve()))  # noqa: PTH100 (takes `..` away as text)
        found = next((by_path[spelling] for spelling in spellings if spelling in by_path), None)
        if found is None:
            raise UsageError(f"{path} is not in quarantine", hint="`chunkmill quarantine list` shows what is.")
        chosen[found.path] = found
    return list(chosen.values())


def _print_json(files: Sequence[QuarantinedFile]) -> None:
    """One object a line; times are ISO 8601 in UTC, ``modified_ns`` nanoseconds since 1970, sizes and offsets bytes."""
    for file in files:
        times = {name: getattr(file, name).isoformat() for name in ("first_seen", "last_seen")}
        click.echo(json.dumps({**asdict(file), **times}, ensure_ascii=False))


def _print_table(files: Sequence[QuarantinedFile]) -> None:
    console = Console(highlight=False)
    terminal = console.is_terminal
    if not terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    cells = [_cells(file) for file in files]
    table = Table(*_HEADINGS)
    for column in table.columns[:3]:
        column.overflow = "fold"
    if terminal:
        cells = _shortened(cells, console.width)
        table.columns[2].no_wrap = True
    for column in table.columns[3:5]:
        column.justify = "right"
    for row in cells:
        table.add_row(*map(escape, row))
    console.print(table)


def _cells(file: QuarantinedFile) -> list[str]:
    return [
        one_line(file.path),
        file.code.removeprefix("chunkmill."),
        one_line(file.message),
        "" if file.offset is None else f"{file.offset:,}",
        f"{file.tries:,}",
        f"{file.first_seen:%Y-%m-%d %H:%MZ}",
    ]


def _shortened(cells: list[list[str]], width: int) -> list[list[str]]:
    """The rows with messages cut to one line of what a terminal of ``width`` columns has left beside the rest.

    Paths are never cut; they get half of the room at most, and take as many lines as they need.
    """
    widest = [max(map(cell_len, column)) for column in zip(_HEADINGS, *cells, strict=True)]
    frame = 3 * len(widest) + 1
    room = width - frame - sum(widest) + widest[0] + widest[2]
    room = max(room - min(widest[0], room // 2), _SHORTEST)
    return [
        [*row[:2], row[2] if cell_len(row[2]) <= room else set_cell_size(row[2], room - 1) + "…", *row[3:]]
        for row in cells
    ]


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"
