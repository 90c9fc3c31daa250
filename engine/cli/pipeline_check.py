"""``chunkmill check``: is a pipeline fit to run, and what would it do?"""

from __future__ import annotations

import os

import click

from ..errors import UsageError, writing
from ..locations import local_path
from ..pipelines import Pipeline, load_pipeline
from ..stream import LazyChunkStream, Node, PlaceholderSource, compile_plan, draw_plan, explain_plan, nodes_of, sink_of
from .complaints import complain, warnings_as_lines
from .jobs import Job, find_inputs, stores_of
from .options import ConvertOptions


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
    path = local_path(svg)
    with writing(str(path)):
        path.write_text(draw_plan(sink, str(pipeline)), encoding="utf-8")
