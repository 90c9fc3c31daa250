"""The commands that show contents: ``inspect`` and ``query`` for files, ``ls``, ``show`` and ``export`` for a store.

As in ``commands``, click alone is imported. Only ``query`` and ``export`` start a JVM.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import SourceMissingError, UsageError
from ..units import counted
from .catalogs import home_at, store_words
from .complaints import exit_code, reported
from .complaints import show as show_error
from .options import (
    CONTENT,
    DATASET,
    DEBUG,
    EXECUTOR,
    QUIET,
    SPARK,
    ConvertOptions,
    QueryOptions,
    ReadingCommand,
    check_place,
    chosen_executor,
    parse_tick,
)
from .outputs import RECORDINGS, REPORT, ROWS, WritingCommand, output_option
from .standard_streams import as_given, from_standard_input
from .start import leave_out_what_nothing_needs, resolve_executor

if TYPE_CHECKING:
    from ...readers import Episode, FileReport
    from ..locations import Location
    from ..recordings import RecordingEntry
    from ..store import RecordingStore

_VERSION = click.option("--version", type=click.IntRange(1), metavar="N", help="Version to read. Default: the newest.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


_ALL = click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also show channels, components, static data, and data about the recording.",
)


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="FILE...")
@_ALL
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of tables; for several files, one object per line."
)
@click.option(
    "--orders", is_flag=True, help="Read all chunks, and show entities whose rows are not in the order of their times."
)
@DEBUG
def inspect(inputs: tuple[str, ...], everything: bool, as_json: bool, orders: bool, debug: bool) -> None:
    """Show what FILE contains: topics or entities with rows, rates, gaps and bytes, and timelines.

    FILE is a recording, a store, a folder or a pattern. Several recordings are listed one per line, or in full with
    --all. Only the summary or footer of a file is read, if it has one. '-' is standard input.
    """
    with reported(debug=debug), from_standard_input(inputs) as arguments:
        leave_out_what_nothing_needs()
        from .inspection import print_files, show_report

        files = _files(arguments)
        reports, codes = [], []
        for path in files:
            try:
                reports.append(_report_of(path, orders=orders))
            except Exception as error:
                if len(files) == 1:
                    raise
                show_error(error, debug=debug, path=path)
                codes.append(exit_code(error))
                continue
            if as_json:
                click.echo(reports[-1].to_json(indent=None if len(files) > 1 else 2))
            elif everything or len(files) == 1:
                click.echo("\n" if len(reports) > 1 else "", nl=False)
                show_report(reports[-1], everything=everything)
        if len(files) > 1 and reports and not as_json and not everything:
            print_files(reports)
        if codes:
            raise click.exceptions.Exit(min(codes))


@click.command()
@click.argument("store", callback=check_place)
@DATASET
@_VERSION
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per recording.")
@DEBUG
def ls(store: str, dataset: str | None, version: int | None, as_json: bool, debug: bool) -> None:
    """List the recordings of STORE, in the order of arrival.

    STORE is the destination of `chunkmill ingest` (--into or --rrds), or of `collect(into=…)`.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        opened = _opened(store, dataset, version)
        entries = [*opened.recordings(), *opened.blueprints()]
        if as_json:
            for entry in entries:
                click.echo(json.dumps({**entry.to_dict(), "version": opened.version.number}, ensure_ascii=False))
        else:
            _print_list(store, opened, entries)


@click.command()
@click.argument("store", callback=check_place)
@click.argument("recording", required=False, metavar="[RECORDING]")
@DATASET
@_VERSION
@_ALL
@_JSON
@DEBUG
def show(
    store: str, recording: str | None, dataset: str | None, version: int | None, debug: bool, **shown: bool
) -> None:
    """Show the entities and timelines of one RECORDING of STORE.

    RECORDING is an id, or the name of the source file, as listed by `chunkmill ls`; it may be omitted if there is only
    one. Chunks are not read.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        from .inspection import show_report

        show_report(_recording_report(store, recording, dataset, version), **shown)


@click.command(cls=WritingCommand)
@click.argument("store", callback=check_place)
@click.argument("recordings", nargs=-1, metavar="[RECORDING]...")
@output_option(
    "-o",
    "--output",
    required=True,
    writes=RECORDINGS,
    folder=True,
    metavar="OUT",
    help="An RRD file (or .mcap) for one recording, a folder for several.",
)
@DATASET
@_VERSION
@CONTENT
@EXECUTOR
@SPARK
@click.option("--stats", is_flag=True, help="Print the time of each phase, and the bytes read and written.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per recording.")
@DEBUG
@QUIET
def export(
    store: str,
    recordings: tuple[str, ...],
    output: str,
    dataset: str | None,
    version: int | None,
    debug: bool,
    **given: Any,
) -> None:
    """Write recordings of STORE to RRD files, or one to an MCAP.

    RECORDING is an id, the name of the source file, or a pattern such as 'drive-*'. Without it, all recordings are
    written. Chunks are copied unchanged; the blueprints of a file are written with its recordings. An RRD gets the name
    of the source file, or else of the recording.
    """
    with reported(debug=debug):
        given["executor"] = chosen_executor(given["executor"], given["master"], given["conf"])
        reading = {} if version is None else {"version": version}
        options = ConvertOptions(debug=debug, reading=reading, **given)
        from .convert import convert_all
        from .jobs import Input, jobs_of

        opened = _opened(store, dataset, version)
        chosen = _chosen(store_words(store, dataset), opened, recordings)
        inputs = [Input(opened.path, PurePath(episode.name), episode.number) for episode in chosen]
        jobs = jobs_of(inputs, output, many=len(inputs) > 1)
        convert_all([store, *recordings], output, resolve_executor(options, jobs), jobs)


def _files(arguments: Sequence[str]) -> list[Location]:
    """The files and folders that are one input each; a named file is one, even if it is missing."""
    from .jobs import find_inputs

    return list(dict.fromkeys(item.path for argument in arguments for item in find_inputs(argument)))


def _report_of(path: Location, *, orders: bool = False) -> FileReport:
    """The report on a file, under its given name; with ``orders``, it covers the order of its rows, too."""
    from ...readers import detect_format
    from .complaints import warnings_as_lines

    with warnings_as_lines(path):
        row = detect_format(path)
        report = row.inspect(path)
        if orders:
            report = replace(report, orders=row.open(path).orders())
    return replace(report, path=as_given(report.path))


def _opened(store: str, dataset: str | None, version: int | None) -> RecordingStore:
    from ..store import RecordingStore

    return RecordingStore.open(home_at(store, dataset), version=version)


def _recording_report(store: str, recording: str | None, dataset: str | None, version: int | None) -> FileReport:
    """The report on one recording. Raises ``UsageError`` if several could be meant."""
    from ...readers import STORE

    opened = _opened(store, dataset, version)
    store = store_words(store, dataset)
    if recording is None:
        ids = {entry.recording_id for entry in opened}
        if len(ids) != 1:
            raise UsageError(
                f"no recording is given, but the store holds {len(ids)}",
                path=store,
                hint=f"Give one: `chunkmill ls {store}` lists them.",
            )
        (recording,) = ids
    else:
        matches = _ids_of(store, [recording], opened)
        if len(matches) > 1:
            raise UsageError(f"{recording!r} matches {len(matches)} recordings", path=store, hint="Give the id of one.")
        recording = matches[0]
    return STORE.inspect(opened.path, {"recording": recording, "version": opened.version.number})


def _chosen(store: str, opened: RecordingStore, words: Sequence[str]) -> list[Episode]:
    """The recordings to export, in the order of their arrival."""
    from ...readers import STORE

    episodes = STORE.open(opened.path, {"version": opened.version.number}).episodes()
    wanted = _ids_of(store, words, opened) if words else [episode.number for episode in episodes]
    if not wanted:
        raise SourceMissingError("the store holds no recording", path=store)
    return [episode for episode in episodes if episode.number in wanted]


def _ids_of(store: str, words: Sequence[str], opened: RecordingStore) -> list[str]:
    """The ids of the recordings that words mean: by id, by the name of a file, or by a pattern of either.

    ``store``: the words that name the store on the command line.

    Raises ``SourceMissingError`` for a word that matches none.
    """
    names: dict[str, list[str]] = {}
    for entry in opened:
        names.setdefault(entry.recording_id, [entry.recording_id])
        names[entry.recording_id] += [entry.source, entry.source.rpartition("/")[2]]
    ids: list[str] = []
    for word in words:
        matching = [word] if word in names else [k for k, all_of in names.items() if fnmatch.filter(all_of, word)]
        if not matching:
            close = difflib.get_close_matches(word, {n for all_of in names.values() for n in all_of if n}, 1)
            meant = f"Did you mean {close[0]!r}? " if close else ""
            raise SourceMissingError(
                f"there is no recording {word!r} in this version",
                path=store,
                hint=f"{meant}`chunkmill ls {store}` lists all {len(names):,}.",
            )
        ids += matching
    return ids


def _print_list(store: str, opened: RecordingStore, entries: Sequence[RecordingEntry]) -> None:
    """Print a line on the version, and a table of its recordings."""
    from ..units import size, utc_time
    from .inspection import Heading, print_columns

    version = opened.version
    click.echo(
        f"{store}: version {version.number} of {utc_time(version.created, 'seconds')}, by {version.operation}: "
        f"{counted(version.recordings, 'recording')}, {counted(version.rows, 'row')}, {size(version.bytes)}"
    )
    if not entries:
        return
    click.echo()
    shared = {entry.application_id for entry in entries}
    layers = {entry.layer for entry in entries}
    rows = [
        (
            entry.recording_id + (" (blueprint)" if entry.kind == "blueprint" else ""),
            entry.layer if len(layers) > 1 else "",
            entry.source.rstrip("/").rpartition("/")[2],
            f"{entry.rows:,}",
            f"{entry.chunks:,}",
            size(entry.bytes),
            utc_time(entry.added, "seconds"),
            entry.application_id if len(shared) > 1 else "",
        )
        for entry in entries
    ]
    headings = [Heading("recording"), Heading("layer"), Heading("source"), Heading("rows", 0, is_number=True)]
    headings += [Heading("chunks", 3, is_number=True), Heading("bytes", 1, is_number=True)]
    print_columns([*headings, Heading("added", 2), Heading("application", 4)], rows)


_SHOWN: Final = 20
"""The number of rows shown without a limit, as Rerun's frames show them."""


def _listed(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The words of an option that may be repeated, or have several words separated by commas."""
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


def _ticks(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """The index values of an option, which are separated by commas."""
    if value is None:
        return None
    ticks = [parse_tick(context, option, word.strip()) for word in value.split(",") if word.strip()]
    return tuple(tick for tick in ticks if tick is not None)


@click.command(cls=ReadingCommand)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--index", required=True, metavar="NAME", help="The timeline of the rows; 'none' for static data.")
@click.option("--contents", multiple=True, metavar="EXPR", help="Entities to show, such as '/imu/**'; repeatable.")
@click.option(
    "--segments", multiple=True, metavar="ID", help="Only these segments; an id or a pattern such as 'drive-*'."
)
@click.option(
    "--start",
    metavar="TIME",
    callback=parse_tick,
    help="Only rows from this index value on: nanoseconds, a sequence number, or 2026-01-23T10:43:30.",
)
@click.option("--end", metavar="TIME", callback=parse_tick, help="Only rows before this index value.")
@click.option(
    "--values",
    metavar="TIME,...",
    callback=_ticks,
    help="Make rows at these index values, not at those in the data.",
)
@click.option("--fill", is_flag=True, help="Fill missing values with the latest earlier value.")
@click.option("--where", multiple=True, metavar="SQL", help="Only rows that match a condition on columns; repeatable.")
@click.option("--columns", multiple=True, metavar="NAME,...", callback=_listed, help="Only these columns of values.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Maximum rows. Default: 20, or all with -o.")
@output_option(
    "-o",
    "--output",
    writes=ROWS,
    metavar="OUT",
    help="Write OUT.parquet or OUT.arrow, or a folder for many segments. Times are in nanoseconds; Spark reads "
    "them only as numbers, with spark.sql.legacy.parquet.nanosAsLong.",
)
@click.option(
    "--semantics",
    type=click.Choice(["contract", "rerun-0.33"]),
    help="Query semantics. Default: CHUNKMILL_CATALOG_SEMANTICS, or contract.",
)
@click.option("--explain", is_flag=True, help="Show which segments, chunks and bytes would be read.")
@EXECUTOR
@SPARK
@click.option("--stats", is_flag=True, help="Print the bytes read, and the time.")
@REPORT
@DEBUG
@QUIET
def query(
    inputs: tuple[str, ...],
    output: str | None,
    debug: bool,
    quiet: bool,
    overwrite: bool,
    stats: bool,
    report: str | None,
    explain: bool,
    **given: Any,
) -> None:
    """Show the rows of recordings by an index, or write them as Parquet or Arrow.

    INPUT is a catalog and one of its datasets, a store of recordings, or recordings of any format: files, folders and
    patterns. There is one row for each index value of each segment (recording), with the value of each component.
    Conditions are SQL, with names of columns in double quotes: --where '"/imu:accel" IS NOT NULL'.
    """
    from .query_output import queried, write_rows

    with reported(debug=debug):
        given["executor"] = chosen_executor(given["executor"], given["master"], given["conf"])
        given["index"] = None if given["index"].lower() == "none" else given["index"]
        options = QueryOptions(output=output, **given)
        _check(options)
        from ..frames import query_metrics
        from ..reports import save_report
        from .query_display import query_report, show_plan, show_rows, show_stats
        from .query_output import AnswerRows
        from .standard_streams import from_standard_input

        with from_standard_input(inputs) as arguments, query_metrics() as metrics:
            began, rows, num_bytes = time.time(), 0, 0
            answer = AnswerRows.of(queried(arguments, options), options)
            if explain:
                show_plan(answer)
            elif output is not None:
                rows, num_bytes = write_rows(answer, output, overwrite=overwrite, quiet=quiet)
            else:
                rows = show_rows(answer, _SHOWN if options.limit is None else options.limit)
        if stats:
            show_stats(metrics.last_query())
        if report is not None:
            save_report(query_report(metrics.last_query(), began, output, rows, num_bytes), report)


def _check(options: QueryOptions) -> None:
    """Raise ``UsageError`` for options that do not go together."""
    if options.index is None and (options.start, options.end, options.values) != (None, None, None):
        raise UsageError("--start, --end and --values need an index, but --index is none")
    if options.start is not None and options.end is not None and options.start >= options.end:
        raise UsageError("--end has to be later than --start")
