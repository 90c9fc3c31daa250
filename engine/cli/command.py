"""The commands and their options. Only click is imported here: readers, rich and Spark come when a command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import click

from ..locations import reading_location
from .complaints import reported
from .ingest_commands import compact, ingest, quarantine, status, vacuum
from .options import ConvertOptions, ReadingCommand, check_id, check_report, check_svg, parse_conf


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chunkmill", prog_name="chunkmill", message="%(prog)s %(version)s")
def commands() -> None:
    """Turn recordings of robots into clean, well-chunked RRD files, on Apache Spark."""
    files = os.environ.get("CHUNKMILL_FORMATS")
    if files:
        with reported(debug=False):
            from .options import load_formats

            load_formats(files)


@commands.command(cls=ReadingCommand)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("-o", "--output", required=True, metavar="OUT", help="A file for one input, or a folder for many.")
@click.option("--content", multiple=True, metavar="EXPR", help="Entities to keep, such as '/imu/**'; may be repeated.")
@click.option(
    "--pipeline",
    metavar="FILE.py[:NAME]",
    help="A function of a Python file that each recording's stream goes through.",
)
@click.option(
    "--application-id",
    metavar="ID",
    callback=check_id,
    help="Default: the RRD's own; 'chunkmill' for other formats.",
)
@click.option(
    "--recording-id",
    metavar="ID",
    callback=check_id,
    help="Default: the RRD's own; the file's name for other formats.",
)
@click.option("--verify", is_flag=True, help="Read and decode each output; one that can't be read is removed.")
@click.option("--executor", type=click.Choice(["spark", "inline"]), help="Where it runs. Default: spark.")
@click.option("--master", metavar="URL", help="Spark master, such as 'local[4]'. Default: local[*].")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", callback=parse_conf, help="A setting for Spark.")
@click.option("--stats", is_flag=True, help="Print where the time went, and what was read and written.")
@click.option(
    "--report", metavar="FILE", callback=check_report, help="Keep that as FILE.json, or draw it as FILE.html."
)
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors and warnings only.")
def convert(
    inputs: tuple[str, ...],
    output: str,
    content: tuple[str, ...],
    pipeline: str | None,
    reading: dict[str, Any],
    application_id: str | None,
    recording_id: str | None,
    verify: bool,
    executor: str | None,
    master: str | None,
    conf: dict[str, str],
    stats: bool,
    report: str | None,
    debug: bool,
    quiet: bool,
) -> None:
    """Convert MCAP, Parquet or RRD recordings to RRD.

    INPUT is a file, a pattern such as 'logs/**/*.mcap' or a folder, which is searched for recordings
    of every format; of a LeRobot dataset, each episode becomes a recording.
    Patterns and folders give one RRD per input below the folder OUT, under the path the input has below its folder.
    """
    options = ConvertOptions(
        content=content,
        reading=reading,
        application_id=application_id,
        recording_id=recording_id,
        verify=verify,
        executor=executor,
        master=master,
        conf=conf,
        stats=stats,
        report=report,
        debug=debug,
        quiet=quiet,
    )
    with reported(debug=debug):
        starts_spark = _start_spark_ahead(options)
        if pipeline is not None:
            from ..pipelines import load_pipeline

            options = replace(options, pipeline=load_pipeline(pipeline))
        elif not starts_spark:
            _leave_pandas_out()
        from .conversion import convert_all

        convert_all(inputs, output, options)


def _start_spark_ahead(options: ConvertOptions) -> bool:
    """Let Spark's JVM boot, where it is wanted, while readers are imported and the inputs are looked at."""
    from ..execution import executor_name
    from ..spark import start_ahead

    wanted = executor_name(options.executor) == "spark"
    if wanted:
        start_ahead(options.master, options.conf)
    return wanted


class _NoPandas:
    """Lets pandas not be found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name == "pandas":
            raise ImportError(name)
        return None


def _leave_pandas_out() -> None:
    """Keep pyarrow from loading pandas, which it looks for when it first converts a Python object.

    That takes a fifth of a second, and nothing on the way from a file to an RRD needs it. For the program only: in a
    user's own process pyarrow would not know pandas any more. Does nothing where pandas is loaded already.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)


@commands.command()
@click.argument("pipeline", metavar="FILE.py[:NAME]")
@click.argument("input", required=False, metavar="[INPUT]")
@click.option("--svg", metavar="FILE.svg", callback=check_svg, help="Draw the plan, too.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
def check(pipeline: str, input: str | None, svg: str | None, debug: bool) -> None:  # noqa: A002 (its name in the help)
    """Check that a pipeline is fit to run, and show its plan, for INPUT where one is given. Nothing is run.

    FILE.py defines the function `pipeline` (or NAME), which takes the stream of a recording and returns one.
    """
    with reported(debug=debug):
        from .pipeline_check import check_pipeline

        check_pipeline(pipeline, input, svg)


@commands.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
def inspect(file: str, as_json: bool, debug: bool) -> None:
    """Show what FILE holds: recordings, entities, timelines with their ranges, rows and bytes."""
    with reported(debug=debug):
        from ...readers import detect_format
        from .complaints import warnings_as_lines

        location = reading_location(file)
        with warnings_as_lines(location):
            report = detect_format(location).inspect(location)
        if as_json:
            click.echo(report.to_json())
        else:
            from .inspection_table import print_tables

            print_tables(report)


@commands.command()
@click.argument("inputs", nargs=-1, required=True, metavar="FILE...")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors and warnings only.")
def verify(inputs: tuple[str, ...], debug: bool, quiet: bool) -> None:
    """Read all of each RRD, and say whether it is what was written.

    FILE is a file, a pattern or a folder, which is searched for .rrd and .rbl files. Every chunk is decoded, and
    compared with what the footer says of it, its digest among that.
    """
    with reported(debug=debug):
        from .verification import verify_all

        verify_all(inputs, quiet=quiet, debug=debug)


commands.add_command(quarantine)
commands.add_command(ingest)
commands.add_command(compact)
commands.add_command(vacuum)
commands.add_command(status)
