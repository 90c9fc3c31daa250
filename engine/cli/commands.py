"""The commands and their options. Only click is imported here: readers, rich and Spark come when a command runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from ..locations import located
from .catalogs import catalog, find, place_at, register, samples, sql, store_words, unregister
from .compare import compare, print_chunks
from .complaints import FAILED, reported
from .computed_tables import label, tables
from .lerobot import export_lerobot
from .looking import export, inspect, ls, query, show
from .options import (
    APPLICATION_ID,
    CONTENT,
    DATASET,
    DEBUG,
    EXECUTOR,
    EXECUTORS,
    LAYOUT,
    MCAP,
    PROFILES,
    QUIET,
    RECORDING_ID,
    SPARK,
    TIMES,
    CommandGroup,
    ConvertOptions,
    ReadingCommand,
    bounds_of,
    check_id,
    check_place,
    chosen_executor,
    complete_places,
    together,
)
from .outputs import PICTURES, RECORDINGS, REPORT, WritingCommand, format_in_folder, output_option
from .serving import mcp, serve
from .start import leave_out_what_nothing_needs, resolve_executor


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chunkmill", prog_name="chunkmill", message="%(prog)s %(version)s")
def commands() -> None:
    """Convert robot recordings into clean, well-chunked RRD files, on Apache Spark."""
    files = os.environ.get("CHUNKMILL_FORMATS")
    if files:
        with reported(debug=False):
            from .options import load_formats

            load_formats(files)


@commands.command(cls=ReadingCommand)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@output_option(
    "-o",
    "--output",
    required=True,
    writes=RECORDINGS,
    folder=True,
    piped=True,
    metavar="OUT",
    help="A file for one input (.rrd or .mcap), a folder for several.",
)
@click.option(
    "--to",
    "target_format",
    type=click.Choice(["rrd", "mcap", "parquet"]),
    help="Format of a folder OUT: an RRD or MCAP per input, or Parquet files of all recordings. Default: rrd. For a "
    "file, its suffix decides.",
)
@CONTENT
@click.option(
    "--pipeline",
    metavar="FILE.py[:NAME]",
    help="Apply a function from a Python file to the stream of each recording.",
)
@APPLICATION_ID
@RECORDING_ID
@TIMES
@LAYOUT
@click.option("--shards", is_flag=True, help="Write one recording as a folder OUT of RRD shards.")
@MCAP
@click.option("--verify", is_flag=True, help="Read back and decode each output; remove it if that fails.")
@EXECUTOR
@SPARK
@click.option("--stats", is_flag=True, help="Print the time of each phase, and the bytes read and written.")
@REPORT
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per input.")
@DEBUG
@QUIET
def convert(
    inputs: tuple[str, ...],
    output: str,
    target_format: str | None,
    pipeline: str | None,
    debug: bool,
    start: Any,
    end: Any,
    **given: Any,
) -> None:
    """Convert recordings of any format to RRD, MCAP or Parquet.

    INPUT is a file, a pattern such as 'logs/**/*.mcap', or a folder, which is searched for recordings of every format.
    Each episode of a LeRobot dataset and each recording of a store is a separate input. For patterns and folders, OUT
    is a folder. Each input becomes one RRD in it (one MCAP with --to mcap), under the same relative path. '-' is
    standard input, or standard output for OUT. An MCAP holds one recording. Messages of MCAPs, bags and rosbag2 are
    copied as they are stored unless a pipeline, or --start or --end on a timeline other than the log time, changes
    them.
    """
    with reported(debug=debug):
        from .standard_streams import from_standard_input, to_standard_output

        given["executor"] = chosen_executor(given["executor"], given["master"], given["conf"])
        options = ConvertOptions(debug=debug, bounds=bounds_of(start, end), **given)
        with from_standard_input(inputs) as arguments, to_standard_output(output) as target:
            _convert(arguments, target, pipeline, options, target_format)


def _convert(
    inputs: Sequence[str], output: str, pipeline: str | None, options: ConvertOptions, target_format: str | None
) -> None:
    from ..execution import is_auto

    kind = format_in_folder(output, target_format)
    jobs = None
    if is_auto(options.executor):
        from .jobs import plan_jobs

        jobs = plan_jobs(inputs, output, None if kind == "parquet" else kind)
    options = resolve_executor(options, jobs, own_functions=pipeline is not None)
    if pipeline is not None:
        from ..pipelines import load_pipeline

        options = replace(options, pipeline=load_pipeline(pipeline))
    from .convert import convert_all, convert_to_parquet

    if kind == "parquet":
        convert_to_parquet(inputs, output, options)
    else:
        convert_all(inputs, output, options, jobs, kind)


@commands.command(cls=ReadingCommand)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@output_option(
    "-o",
    "--output",
    required=True,
    writes=RECORDINGS,
    piped=True,
    metavar="OUT",
    help="The RRD or MCAP to write; '-' for standard output.",
)
@CONTENT
@TIMES
@LAYOUT
@APPLICATION_ID
@click.option(
    "--recording-id",
    metavar="ID",
    callback=check_id,
    help="Merge everything into one recording of this id. Default: recordings with the same id are merged; files "
    "without ids become one recording named after OUT.",
)
@MCAP
@EXECUTOR
@SPARK
@click.option("--stats", is_flag=True, help="Print the time of each phase, and the bytes read and written.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object about the RRD.")
@DEBUG
@QUIET
def merge(inputs: tuple[str, ...], output: str, debug: bool, start: Any, end: Any, **given: Any) -> None:
    """Merge recordings and stores, of any formats, into one RRD or MCAP.

    INPUT is as for `chunkmill convert`. Recordings with the same id and application id become one, such as the parts of
    a split recording. Chunks of RRDs are copied unchanged. An MCAP gets the messages of all inputs.
    """
    with reported(debug=debug):
        given["executor"] = chosen_executor(given["executor"], given["master"], given["conf"])
        options = ConvertOptions(debug=debug, bounds=bounds_of(start, end), **given)
        from .convert import merge_all
        from .standard_streams import from_standard_input, to_standard_output

        with from_standard_input(inputs) as arguments, to_standard_output(output) as target:
            merge_all(arguments, target, options)


@commands.command(cls=WritingCommand)
@click.argument("pipeline", metavar="FILE.py[:NAME]")
@click.argument("input", required=False, metavar="[INPUT]", callback=check_place)
@output_option("--svg", writes=PICTURES, metavar="FILE.svg", help="Also draw the plan.")
@DEBUG
def check(
    pipeline: str,
    input: str | None,  # noqa: A002 (its name in the help)
    svg: str | None,
    debug: bool,
    overwrite: bool,  # noqa: ARG001 (it was checked)
) -> None:
    """Check that a pipeline can run, and show its plan, without running it.

    FILE.py defines the function `pipeline` (or NAME), which takes the stream of a recording and returns a stream. With
    an INPUT, the plan shows how that input is split.
    """
    with reported(debug=debug):
        from .checks import check_pipeline

        check_pipeline(pipeline, input, svg)


@commands.command()
@click.argument("inputs", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per file.")
@DEBUG
@QUIET
def verify(inputs: tuple[str, ...], as_json: bool, debug: bool, quiet: bool) -> None:
    """Read recordings, stores and tables completely, and report every fault.

    FILE is a file of any format, a pattern, a folder that is searched for recordings and tables, a store of recordings,
    a table, or a lake with all its datasets and tables. Every chunk is decoded, every checksum and digest is verified,
    and footers, indexes and manifests are compared with the data. Table files that other programs wrote have no
    digests; their number is reported. Each fault is one line; the exit code is 1 if there is any.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        from .checks import verify_all
        from .standard_streams import from_standard_input

        with from_standard_input(inputs) as arguments:
            verify_all(arguments, as_json=as_json, quiet=quiet, debug=debug)


@commands.command(cls=ReadingCommand)
@click.argument("inputs", nargs=-1, required=True, metavar="FILE...")
@click.option("--dataset", metavar="NAME", help="The dataset to examine, if FILE is a catalog. Default: all.")
@click.option("--segments", multiple=True, metavar="ID", help="Only these segments; repeatable.")
@click.option("--kinds", multiple=True, metavar="KIND", help="Report only this kind of fault; repeatable.")
@click.option(
    "--executor", type=EXECUTORS, help="Where to read a dataset: in this process, on Spark, or wherever it is quicker."
)
@SPARK
@output_option("--html", writes=(".html",), metavar="FILE.html", help="Also write the findings as an HTML page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")
@DEBUG
@QUIET
def doctor(
    inputs: tuple[str, ...],
    overwrite: bool,  # noqa: ARG001 (it was checked)
    debug: bool,
    **given: Any,
) -> None:
    """Check the data of recordings: clocks, rates, gaps, cameras, sensors, transforms, LeRobot metadata.

    FILE is a file of any format, a pattern, a folder that is searched for recordings, a LeRobot dataset, a store of
    recordings, or a lake. Files are read in this process, datasets with one task per segment. The exit code is 1 if
    there is an error or a warning; notes do not count. For damaged files, see `chunkmill verify`.
    """
    with reported(debug=debug):
        from .checks import diagnose_all

        diagnose_all(inputs, debug=debug, **given)


@commands.command(cls=ReadingCommand)
@click.argument("landing", callback=check_place)
@click.option("--into", metavar="STORE", help="The store of recordings, a folder or URL; created if missing.")
@click.option("--dataset", metavar="NAME", help="The dataset of the catalog at --into; created if missing.")
@click.option("--rrds", metavar="FOLDER", help="A folder for one RRD per file, with or without --into.")
@click.option(
    "--pipeline", metavar="FILE.py[:NAME]", help="Apply a function from a Python file to the stream of each recording."
)
@click.option("--once", is_flag=True, help="Ingest the files that are there, and exit.")
@click.option("--every", metavar="TIME", help="How often to check for files. Default: 1s.")
@click.option(
    "--settle",
    default="1s",
    show_default=True,
    metavar="TIME",
    help="How long a file must stay unchanged before it is read.",
)
@click.option(
    "--max-files",
    "max_files_per_trigger",
    type=click.IntRange(1),
    default=256,
    metavar="N",
    help="Maximum number of files in a batch. Default: 256.",
)
@click.option(
    "--max-bytes", default="4GiB", metavar="SIZE", help="Maximum size of a batch, such as 2GB. Default: 4 GiB."
)
@click.option(
    "--source-done",
    type=click.Choice(["keep", "archive", "delete"]),
    default="keep",
    show_default=True,
    help="What to do with a file after it is ingested.",
)
@click.option(
    "--archive",
    metavar="FOLDER",
    help="Destination of --source-done archive: a folder, or a prefix of the same bucket.",
)
@click.option("--checkpoint", metavar="FOLDER", help="Where the progress is kept. Default: in the store.")
@click.option(
    "--optimize",
    type=PROFILES,
    default="object-store",
    show_default=True,
    help="Chunk layout of the recordings.",
)
@click.option("--replace-same-id", is_flag=True, help="Let a recording replace one with the same id from another file.")
@click.option(
    "--diagnose",
    type=click.Choice(["warn", "quarantine"]),
    help="Check the data of each file, like `chunkmill doctor`: warn of faults, or also put files with errors into "
    "quarantine.",
)
@click.option(
    "--keep-versions", default="1h", show_default=True, metavar="TIME", help="How long old versions are kept."
)
@click.option("--compact-every", type=click.IntRange(1), metavar="N", help="Join small shards every N batches.")
@click.option(
    "--lerobot", metavar="FOLDER", help="Also keep a LeRobot dataset of the store's recordings in this folder."
)
@click.option("--lerobot-spec", metavar="SPEC.yaml", help="The specification of the LeRobot dataset.")
@CONTENT
@APPLICATION_ID
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve Prometheus metrics on this port."
)
@click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to serve metrics on."
)
@click.option("--json", "as_json", is_flag=True, help="With --once: print a JSON object at the end.")
@click.option("--log-json", is_flag=True, help="Log one JSON object per line.")
@EXECUTOR
@SPARK
@DEBUG
@click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors only.")
def ingest(debug: bool, **options: Any) -> None:
    """Ingest every recording that arrives in the folder LANDING into a store, exactly once.

    MCAP, RRD and Parquet files are ingested once they stop changing; names such as 'drive.mcap.tmp' are ignored. A file
    that fails goes into quarantine: see `chunkmill quarantine`. On Ctrl-C or SIGTERM, the running batch is finished
    first.
    """
    with reported(debug=debug):
        from .ingest import run_ingest

        run_ingest(**options)


@commands.command()
@click.argument("store", callback=check_place)
@DATASET
@click.option(
    "--keep", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Number of versions to keep."
)
@click.option(
    "--older-than", default="0s", show_default=True, metavar="TIME", help="Remove only versions older than this."
)
@DEBUG
def vacuum(store: str, dataset: str | None, keep: int, older_than: str, debug: bool) -> None:
    """Remove old versions of STORE, and files left by crashed runs.

    This is refused while an ingestion or a compaction is writing to the store.
    """
    with reported(debug=debug):
        from .ingest import vacuum_store

        vacuum_store(store, dataset, keep, older_than)


@commands.command()
@click.argument("store", callback=check_place)
@DATASET
@click.option(
    "--optimize",
    type=PROFILES,
    default="none",
    show_default=True,
    help="Also compact recordings whose chunks are smaller than in this layout.",
)
@click.option("--min-shard", default="64MiB", show_default=True, metavar="SIZE", help="Join shards smaller than this.")
@click.option("--executor", type=EXECUTORS, help="Where chunks are compacted. Default: spark.")
@SPARK
@DEBUG
def compact(debug: bool, **options: Any) -> None:
    """Join the small files of STORE, and drop replaced recordings.

    This adds a version with the same recordings. Readers of older versions are not affected; `chunkmill vacuum` removes
    those versions. This is refused while an ingestion is writing to the store; use `chunkmill ingest --compact-every`
    instead.
    """
    with reported(debug=debug):
        from .ingest import compact_recordings

        compact_recordings(**options)


_FAILED_FILES = together(
    click.argument("store", callback=check_place),
    click.argument("paths", nargs=-1, metavar="[PATH]..."),
    DATASET,
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object per file."),
    DEBUG,
)
_ALL_FILES = click.option("--all", "everything", is_flag=True, help="All files in quarantine.")


@commands.group(cls=CommandGroup)
def quarantine() -> None:
    """Show, retry or drop files that failed to be ingested.

    STORE is the destination of `chunkmill ingest`: a store of recordings, or a folder of RRDs.
    """


@quarantine.command("list")
@_FAILED_FILES
def list_files(store: str, paths: tuple[str, ...], dataset: str | None, as_json: bool, debug: bool) -> None:
    """Show the files in quarantine, or only those at PATH, with their errors."""
    with reported(debug=debug):
        from .ingest import list_quarantined

        list_quarantined(place_at(store, dataset), paths, as_json=as_json)


@quarantine.command()
@_FAILED_FILES
@_ALL_FILES
def retry(
    store: str, paths: tuple[str, ...], dataset: str | None, as_json: bool, debug: bool, everything: bool
) -> None:
    """Request a retry of files: those at PATH, or all with --all.

    The ingestion retries them. They stay in quarantine until they succeed.
    """
    with reported(debug=debug):
        from .ingest import retry_quarantined

        retry_quarantined(place_at(store, dataset), paths, everything=everything, as_json=as_json)


@quarantine.command()
@_FAILED_FILES
@_ALL_FILES
def drop(store: str, paths: tuple[str, ...], dataset: str | None, as_json: bool, debug: bool, everything: bool) -> None:
    """Remove files from quarantine: those at PATH, or all with --all.

    The files are not deleted. They are retried only if their content changes.
    """
    with reported(debug=debug):
        from .ingest import drop_quarantined

        drop_quarantined(place_at(store, dataset), paths, everything=everything, as_json=as_json)


@commands.command()
@click.argument("store", callback=check_place)
@DATASET
@click.option("--checkpoint", metavar="FOLDER", help="The checkpoint, if it is not in the store.")
@click.option("--watch", is_flag=True, help="Repeat every two seconds, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object; with --watch, one per line.")
@DEBUG
def status(store: str, dataset: str | None, checkpoint: str | None, watch: bool, as_json: bool, debug: bool) -> None:
    """Show the state of the ingestion into STORE: batches, waiting files, writer.

    STORE is the destination of `chunkmill ingest` (--into or --rrds). This command changes nothing, and works whether
    or not the ingestion is running. The exit code is 1 if something could not be read.
    """
    with reported(debug=debug):
        from ..ingest import StatusReader
        from .ingest import show_once, watch_status

        reader = StatusReader(place_at(store, dataset), None if checkpoint is None else located(checkpoint))
        if watch:
            watch_status(reader, store_words(store, dataset), as_json=as_json)
        elif not show_once(reader.read(), store_words(store, dataset), as_json=as_json):
            raise click.exceptions.Exit(FAILED)


for _command in (
    inspect,
    ls,
    show,
    export,
    export_lerobot,
    compare,
    print_chunks,
    query,
    catalog,
    register,
    unregister,
    samples,
    serve,
    mcp,
    sql,
    find,
    label,
    tables,
):
    commands.add_command(_command)
complete_places(commands)
