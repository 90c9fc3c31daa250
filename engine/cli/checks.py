"""Checks: are files what was written (``verify``, ``convert --verify``), and is a pipeline fit to run (``check``)?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import click

from ...readers import detect_format, is_rrd
from ..errors import UsageError, writing
from ..execution import Folder
from ..locations import Location, local_path, reading_location
from ..objects import ObjectUrl
from ..pipelines import Pipeline, load_pipeline
from ..rrd import WholeFile, verify_file
from ..stream import LazyChunkStream, Node, PlaceholderSource, compile_plan, explain_plan, nodes_of, sink_of
from .complaints import complain, exit_code, show, warnings_as_lines
from .jobs import Job, find_inputs, stores_of
from .options import ConvertOptions


def verify_all(arguments: Iterable[str], *, quiet: bool, debug: bool) -> None:
    """Verify every RRD, and print a line on each; leaves with exit code 1 where one is not what was written."""
    codes = []
    for path in _files(arguments):
        try:
            if detect_format(path).name != "rrd":
                raise UsageError(
                    "is no RRD", path=str(path), hint="Other formats are checked as `chunkmill convert` reads them."
                )
            with warnings_as_lines(path):
                found = verify_file(str(path))
        except Exception as error:  # noqa: BLE001 (the other files are verified all the same)
            show(error, debug=debug, path=path)
            codes.append(exit_code(error))
            continue
        if not quiet:
            click.echo(f"{path}: {_line(found)}")
    if codes:
        raise click.exceptions.Exit(min(codes))


def verify_output(job: Job) -> None:
    """Read what a conversion wrote; where that is no RRD that can be read, it is removed, and ``ReadError`` raised."""
    try:
        with warnings_as_lines(job.destination):
            verify_file(str(job.destination))
    except Exception:
        with writing(str(job.destination)):
            if isinstance(job.destination, ObjectUrl):
                Folder.at(job.destination.parent).delete([job.destination.name])
            else:
                job.destination.unlink(missing_ok=True)
        raise


def _files(arguments: Iterable[str]) -> Iterator[Location]:
    """The files that are named, and the RRDs among those that folders and patterns stand for."""
    for argument in arguments:
        for found in find_inputs(argument):
            if found.path == reading_location(argument) or is_rrd(found.path.name):
                yield found.path


def _line(found: WholeFile) -> str:
    """The line on a file that was verified.

    >>> _line(WholeFile(18, 3513, 18)), _line(WholeFile(2, 7, 0))
    ('3,513 rows in 18 chunks, each as its digest says', '7 rows in 2 chunks, which can be read; 2 have no digest')
    """
    read = f"{found.rows:,} rows in {found.chunks:,} chunks"
    if found.digests == found.chunks:
        return f"{read}, each as its digest says"
    return f"{read}, which can be read; {found.chunks - found.digests:,} have no digest"


def check_pipeline(location: str, argument: str | None, svg: str | None) -> None:
    """Load a pipeline, apply it to the first recording of ``argument``, or to none, and print and draw its plan.

    No chunk is read. Raises ``UsageError`` and ``PipelineError`` where it is not fit to run, ``ReadError`` where the
    input cannot be opened, ``WriteError`` where the picture cannot be written.
    """
    pipeline = load_pipeline(location)
    stream = LazyChunkStream.from_source(PlaceholderSource()) if argument is None else _first_recording(argument)
    source = sink_of(stream)
    result = pipeline.apply(stream)
    pipeline.check_travels(result)
    sink = sink_of(result)
    text = explain_plan(sink, compile_plan(sink))
    if svg is not None:
        _draw(sink, pipeline, svg)
    click.echo(f"{pipeline} can be run")
    click.echo(text)
    if source not in nodes_of(sink):
        complain(f"{pipeline}: what it returns has nothing of the stream that it was given", kind="warning")


def _first_recording(argument: str) -> LazyChunkStream:
    """The stream of the first recording that ``argument`` stands for."""
    first = next(find_inputs(argument))
    with warnings_as_lines(first.path):
        stores = stores_of(Job(first.path, first.path, first.path.stem, episode=first.episode), ConvertOptions())
    for store, stream in stores:
        if store.kind == "recording":
            return stream
    raise UsageError("the file holds no recording, and pipelines are for those", path=str(first.path))


def _draw(sink: Node, pipeline: Pipeline, svg: str | os.PathLike[str]) -> None:
    from ..stream import draw_plan

    path = local_path(svg)
    with writing(str(path)):
        path.write_text(draw_plan(sink, str(pipeline)), encoding="utf-8")
