"""``chunkmill compare``, ``print``, ``verify`` and ``check``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..locations import reading_location
from .complaints import FAILED, echo_json, reported
from .options import CONTENT, DEBUG, QUIET, ReadingCommand

if TYPE_CHECKING:
    from ..chunk import Chunk
    from ..inputs import Comparison


_PIPED_WIDTH = 240
_FRAME = 4
"""Columns that the frame around a chunk's table takes."""


@click.command(cls=ReadingCommand)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@CONTENT
@click.option(
    "--ignore-timeline",
    "ignore_timelines",
    multiple=True,
    metavar="NAME",
    help="A timeline to leave out; repeatable.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=0.0,
    metavar="X",
    help="Allowed difference of floating-point numbers. Default: 0.",
)
@click.option("--chunks", is_flag=True, help="Also compare the order and boundaries of chunks.")
@click.option(
    "--limit", type=click.IntRange(0), default=10, metavar="N", help="Rows to show per component. Default: 10."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as a JSON object.")
@DEBUG
@QUIET
def compare(
    first: str,
    second: str,
    content: tuple[str, ...],
    reading: Mapping[str, Any],
    as_json: bool,
    debug: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Compare the content of two recordings or stores, of any formats.

    Each difference is one line with entity, component, time, the value in A and the value in B; the exit code is 1 if
    there is any. Ids, and the order and boundaries of chunks, do not count as content. If A and B contain several
    recordings, they are matched by their ids.
    """
    with reported(debug=debug):
        from ..inputs import compare as compared
        from .complaints import warnings_as_lines
        from .standard_streams import from_standard_input

        with from_standard_input([first, second]) as paths, warnings_as_lines(reading_location(first)):
            comparison = compared(
                *paths,
                content=content or None,
                ignore_timelines=given["ignore_timelines"],
                tolerance=given["tolerance"],
                chunks=given["chunks"],
                most=given["limit"],
                options=reading,
            )
        if as_json:
            echo_json(_facts(first, second, comparison))
        for difference in comparison.differences if not as_json else ():
            click.echo(str(difference))
        if not comparison:
            raise click.exceptions.Exit(FAILED)
        if not quiet and not as_json:
            click.echo(
                f"{first} and {second} have the same content: {comparison.rows:,} values of {comparison.components:,} "
                "components"
            )


@click.command("print", cls=ReadingCommand)
@click.argument("file")
@CONTENT
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum number of chunks. Default: all.")
@click.option("--headers", is_flag=True, help="Print one line per chunk, without rows.")
@click.option(
    "--width",
    type=click.IntRange(20),
    metavar="N",
    help="Width of a table in characters. Default: the terminal's, or 240.",
)
@DEBUG
def print_chunks(
    file: str,
    content: tuple[str, ...],
    reading: Mapping[str, Any],
    limit: int | None,
    headers: bool,
    width: int | None,
    debug: bool,
) -> None:
    """Print the chunks of FILE as tables.

    FILE is a recording of any format, or a store. Cells are cut after 100 characters.
    """
    with reported(debug=debug):
        from rich.console import Console

        from ..chunk import summarise_chunks
        from .complaints import warnings_as_lines
        from .standard_streams import from_standard_input

        location = reading_location(file)
        console = Console()
        columns = width or (console.width - _FRAME if console.is_terminal else _PIPED_WIDTH)
        with from_standard_input([file]) as (path,), warnings_as_lines(location):
            printed = 0
            for heading, chunks in _recordings(path, content, reading):
                if printed == limit:
                    break
                click.echo(heading)
                for chunk in chunks:
                    click.echo(summarise_chunks([chunk.header]) if headers else chunk.format(width=columns))
                    printed += 1
                    if printed == limit:
                        break


def _facts(first: str, second: str, comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON data; a timeline has its name and its kind."""
    differences = []
    for difference in comparison.differences:
        facts = asdict(difference)
        if difference.timeline is not None:
            name, kind = difference.timeline
            facts["timeline"] = {"name": name, "kind": kind.value}
        differences.append(facts)
    return {
        "first": first,
        "second": second,
        "same": bool(comparison),
        "rows": comparison.rows,
        "components": comparison.components,
        "differences": differences,
    }


def _recordings(
    file: str, content: tuple[str, ...], reading: Mapping[str, Any]
) -> Iterator[tuple[str, Iterator[Chunk]]]:
    """The recordings of an input, each with a heading and its chunks, one after the other."""
    from ...readers import stem_of
    from ..inputs import SourceOptions, stores_of
    from ..stream import single_tasks

    options = SourceOptions(content=content, reading=reading, executor="inline")
    from .jobs import find_inputs

    for item in find_inputs(file):
        for store, stream in stores_of(item.path, stem_of(item.path.name), options, item.episode):
            heading = f"{store.kind} {store.recording_id!r} of application {store.application_id!r}"
            yield heading, (chunk for task in single_tasks(stream) for chunk in task.run(0))
