"""The commands of catalogs: ``catalog``, ``register``, ``unregister``, ``sql``, ``find``, ``samples``; their display.

As in ``commands``, click alone is imported. A JVM is started only for ``register --executor spark``.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import ChunkmillError, NotFoundError, ReadError, SourceMissingError, UsageError
from ..locations import exists, located
from ..spark import Terminated
from ..units import counted, duration, size
from .complaints import FAILED, complain, echo_json, exit_code, reported, warnings_as_lines
from .complaints import show as show_error
from .history import add_version_commands
from .options import DEBUG, EXECUTORS, QUIET, CommandGroup, check_place, together
from .outputs import ROWS, WritingCommand, output_option
from .standard_streams import name_place
from .start import leave_out_what_nothing_needs

if TYPE_CHECKING:
    import pyarrow as pa
    from datafusion import DataFrame

    from ..catalog import CatalogClient, DatasetEntry, RegistrationHandle, SegmentRegistrationResult, TableEntry
    from ..locations import Location
    from ..training import PassFigures, SampleSpec, TrainingJob

_LAKE = click.argument("lake", callback=check_place)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


@click.group(cls=CommandGroup)
def catalog() -> None:
    """Show and change the entries of a catalog, and check the files of its datasets.

    LAKE is the folder or URL of a catalog: the destination of `chunkmill ingest --into LAKE --dataset NAME`.
    """


@catalog.command("ls")
@_LAKE
@click.option("--all", "everything", is_flag=True, help="Also list hidden entries, such as datasets of blueprints.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per entry.")
@DEBUG
def list_entries(lake: str, everything: bool, as_json: bool, debug: bool) -> None:
    """List the datasets of LAKE, with the segments and bytes of each, and its tables."""
    from .catalog_display import facts_of, kind_of, print_entries

    with reported(debug=debug):
        leave_out_what_nothing_needs()

        entries = opened_catalog(lake).entries(include_hidden=everything)
        facts, codes = [], []
        for entry in entries:
            try:
                facts.append(facts_of(entry))
            except (ReadError, NotFoundError) as error:
                show_error(error, debug=debug)
                codes.append(exit_code(error))
                facts.append({"name": entry.name, "id": str(entry.id), "kind": kind_of(entry)})
        if as_json:
            for fact in facts:
                click.echo(json.dumps(fact, ensure_ascii=False))
        else:
            print_entries(lake, facts)
        if codes:
            raise click.exceptions.Exit(min(codes))


@catalog.command("show")
@_LAKE
@click.argument("dataset", required=False, metavar="[DATASET]")
@click.option("--all", "everything", is_flag=True, help="Also show the columns, and the files of each layer.")
@_JSON
@DEBUG
def show_dataset(lake: str, dataset: str | None, everything: bool, as_json: bool, debug: bool) -> None:
    """Show the segments and layers of one DATASET of LAKE.

    DATASET may be omitted if there is only one. No recording is opened.
    """
    from .catalog_display import show_segments

    with reported(debug=debug):
        leave_out_what_nothing_needs()

        show_segments(lake, one_dataset_at(lake, dataset), everything=everything, as_json=as_json)


@catalog.command("create")
@_LAKE
@click.argument("name")
@click.option("--url", metavar="STORE", help="An existing store of recordings to use, in place, as the dataset.")
@click.option("--exist-ok", is_flag=True, help="Succeed if the dataset already exists.")
@DEBUG
def create_dataset(lake: str, name: str, url: str | None, exist_ok: bool, debug: bool) -> None:
    """Create a dataset in LAKE, empty or from a store; the catalog is created if missing."""
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        made = _client(lake).create_dataset(name, exist_ok=exist_ok, url=url)
        click.echo(f"dataset {made.name!r} is at {made.manifest_url}")


@catalog.command("rename")
@_LAKE
@click.argument("entry")
@click.argument("name")
@DEBUG
def rename_entry(lake: str, entry: str, name: str, debug: bool) -> None:
    """Rename ENTRY of LAKE, a dataset or a table, to NAME."""
    from .catalog_display import kind_of

    with reported(debug=debug):
        leave_out_what_nothing_needs()

        opened = _entry(lake, entry)
        opened.set_name(name)
        click.echo(f"{kind_of(opened)} {entry!r} is now {name!r}")


@catalog.command("rm")
@_LAKE
@click.argument("entries", nargs=-1, required=True, metavar="ENTRY...")
@DEBUG
def remove_entries(lake: str, entries: tuple[str, ...], debug: bool) -> None:
    """Remove entries, datasets or tables, from LAKE.

    Recordings outside the catalog's folder and the data of tables are not deleted. Recordings in the catalog's folder
    are kept for at least a week; until then `chunkmill catalog create --url` restores them.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        from ..catalog import DatasetEntry

        for entry in [_entry(lake, name) for name in dict.fromkeys(entries)]:
            if isinstance(entry, DatasetEntry):
                summary = f"dataset {entry.name!r}; its store stays at {os.fspath(entry)}"
            else:
                summary = f"table {entry.name!r}; its data stays at {entry.storage_url}"
            entry.delete()
            click.echo(f"removed {summary}")


@catalog.command("check")
@_LAKE
@click.argument("entries", nargs=-1, metavar="[ENTRY]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per fault.")
@DEBUG
@QUIET
def check_catalog(lake: str, entries: tuple[str, ...], as_json: bool, debug: bool, quiet: bool) -> None:
    """Check the files of LAKE, or of some of its datasets and tables.

    This reports replaced or removed registered files; damaged or missing files of the catalog, its stores and its
    tables; and incompletely created tables. Files of tables are compared with their digests. Chunks are not read:
    `chunkmill verify LAKE` reads them. The exit code is 1 if there is any fault.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        raise click.exceptions.Exit(_check(lake, entries, as_json=as_json, debug=debug, quiet=quiet))


@catalog.command("maintain")
@_LAKE
@DEBUG
def maintain_catalog(lake: str, debug: bool) -> None:
    """Compact all of LAKE, and remove files that have been unused for a week.

    Unused files include incomplete files of killed processes. Registered tables are not changed. Missing times and
    statistics of recordings are computed, on Spark if they need many bytes.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        opened_catalog(lake).do_global_maintenance()


@catalog.command("forget")
@_LAKE
@click.argument("dataset")
@click.argument("segments", nargs=-1, required=True, metavar="SEGMENT...")
@click.option("--force", is_flag=True, help="Remove tags of versions that contain these segments.")
@click.option(
    "--export", "exports", multiple=True, metavar="FOLDER", help="Look for exports below this folder too; repeatable."
)
@_JSON
@DEBUG
def forget_segments(
    lake: str,
    dataset: str,
    segments: tuple[str, ...],
    force: bool,
    exports: tuple[str, ...],
    as_json: bool,
    debug: bool,
) -> None:
    """Remove all data of each SEGMENT of DATASET from LAKE permanently, and report data that is out of reach.

    This removes chunks, earlier versions of the dataset, search indexes, properties, rows of tables and views, and
    files of the segment in the folder of LAKE. If the command is interrupted, run it again to complete it. The exit
    code is 1 if something is left in the folder of LAKE.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        with warnings_as_lines(lake):
            report = dataset_at(lake, dataset).forget(segments, force=force, exports=exports)
        if as_json:
            echo_json(report.to_dict())
        else:
            click.echo(str(report))
        if not report.is_complete:
            raise click.exceptions.Exit(FAILED)


@catalog.command("copy")
@_LAKE
@click.argument("destination", metavar="DEST", callback=check_place)
@_JSON
@DEBUG
@QUIET
def copy_catalog(lake: str, destination: str, as_json: bool, debug: bool, quiet: bool) -> None:
    """Copy LAKE to DEST, a folder or a URL, or update the copy there; then check the copy.

    The copy has one version of LAKE. Each file is verified by its digest. If the command is interrupted, run it again
    to complete it. Recordings that were registered in place are not copied; a warning names them.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        with warnings_as_lines(lake):
            report = opened_catalog(lake).copy_to(destination)
        if as_json:
            echo_json(report.to_dict())
        elif not quiet:
            click.echo(str(report))
        raise click.exceptions.Exit(_check(destination, (), as_json=as_json, debug=debug, quiet=True))


add_version_commands(
    catalog,
    together(_LAKE, click.argument("entry")),
    lambda lake, entry: _entry(lake, entry),
    together(_LAKE, click.argument("entry", required=False, metavar="[ENTRY]")),
    lambda lake, entry: opened_catalog(lake) if entry is None else _entry(lake, entry),
)


@click.command()
@_LAKE
@click.argument("dataset")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "--prefix", "prefixes", multiple=True, metavar="URL", help="Register all recordings below this prefix; repeatable."
)
@click.option("--layer", metavar="NAME", help="Layer to register each recording as. Default: base.")
@click.option(
    "--on-duplicate",
    type=click.Choice(["replace", "skip", "error"]),
    default="replace",
    show_default=True,
    help="What to do with an existing layer.",
)
@click.option("--verify", is_flag=True, help="Read each chunk, and store its digest.")
@click.option("--copy", is_flag=True, help="Copy RRDs into the dataset, too.")
@click.option("--times", is_flag=True, help="Read each chunk, and store its times, which speeds up queries.")
@click.option(
    "--executor",
    type=EXECUTORS,
    help="Where files are read and copied. Default: inline to read a few footers, else spark.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per recording.")
@DEBUG
@QUIET
def register(
    lake: str,
    dataset: str,
    files: tuple[str, ...],
    prefixes: tuple[str, ...],
    as_json: bool,
    debug: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Register recordings with DATASET of LAKE, each as a layer of the segment with the same id.

    FILE is a recording of any format, a pattern such as 'runs/**/*.rrd', or a folder, which is searched. RRDs are used
    in place, and must stay there unchanged; recordings of other formats are copied. The dataset is created if missing.
    A file that fails does not affect the others.
    """
    with reported(debug=debug):
        if options["executor"] == "inline":
            leave_out_what_nothing_needs()
        layer = options.pop("layer")
        uris, below = _requested(files, prefixes)
        client = _client(lake)
        if dataset not in client.dataset_names():
            _check_requests(uris, below, layer)
        entry = client.create_dataset(dataset, exist_ok=True)
        handles = chain(
            (entry.register(some, layer_name=layer or "base", **options) for some in [uris] if some),
            (entry.register_prefix(prefix, layer, **options) for prefix in below),
        )
        _follow(handles, dataset, as_json=as_json, quiet=quiet)


@click.command()
@_LAKE
@click.argument("dataset")
@click.option("--segment", "segments", multiple=True, metavar="ID", help="Only layers of this segment; repeatable.")
@click.option("--layer", "layers", multiple=True, metavar="NAME", help="Only layers of this name; repeatable.")
@click.option("--force", is_flag=True, help="No effect; for compatibility.")
@DEBUG
def unregister(
    lake: str, dataset: str, segments: tuple[str, ...], layers: tuple[str, ...], force: bool, debug: bool
) -> None:
    """Remove segments or layers from DATASET of LAKE.

    With --segment, all layers of the segment are removed; with --layer, this layer of all segments; with both, this
    layer of this segment. Registered files are never touched.
    """
    from .catalog_display import layers_of

    with reported(debug=debug):
        leave_out_what_nothing_needs()
        if not segments and not layers:
            raise UsageError("no segment or layer is given", hint="Give --segment or --layer.")

        entry = dataset_at(lake, dataset)
        before = layers_of(entry)
        _check_known("segment", segments, {layer.recording_id for layer in before}, lake, dataset)
        _check_known("layer", layers, {layer.layer for layer in before}, lake, dataset)
        entry.unregister(segments_to_drop=segments, layers_to_drop=layers, force=force)
        left = {(layer.recording_id, layer.layer) for layer in layers_of(entry)}
        gone = [layer for layer in before if (layer.recording_id, layer.layer) not in left]
        ids = {layer.recording_id for layer in gone}
        click.echo(f"{counted(len(gone), 'layer')} of {counted(len(ids), 'segment')} removed from {dataset!r}")


_PLAN: Final = ["plan_type", "plan"]
"""The columns of an explanation."""
_SHOWN: Final = 20
"""The number of rows of a table shown without a limit."""


@click.command(cls=WritingCommand)
@_LAKE
@click.argument("statement")
@click.option(
    "--limit", type=click.IntRange(0), metavar="N", help="Maximum rows. Default: 20, or all with -o or --json."
)
@output_option("-o", "--output", writes=ROWS, metavar="OUT", help="Write the rows as OUT.parquet or OUT.arrow.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@DEBUG
@QUIET
def sql(
    lake: str,
    statement: str,
    limit: int | None,
    output: str | None,
    overwrite: bool,
    as_json: bool,
    debug: bool,
    quiet: bool,
) -> None:
    """Show the rows of an SQL query over the datasets and tables of LAKE, or write them as Parquet or Arrow.

    Use tables by name: chunkmill sql lake 'select count(*) from labels'. The name of a dataset is the table of its
    segments; reader('drives', index => 'log_time') is the table of its rows. `show tables` lists names, and `explain
    select ...` shows which data is read.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        if output is not None and as_json:
            raise UsageError("-o and --json exclude each other")
        import pyarrow as pa

        from .query_display import first_rows, print_objects, print_table
        from .query_output import write_table

        with warnings_as_lines(""), _failing():
            frame = opened_catalog(lake).ctx.sql(statement)
            schema = frame.schema()
        shown = _SHOWN if limit is None else limit
        if output is not None:
            rows, num_bytes = write_table(schema, _rows(frame, limit), output, overwrite=overwrite)
            if not quiet:
                click.echo(f"{output}: {counted(rows, 'row')}, {size(num_bytes)}", err=True)
        elif as_json:
            print_objects(_rows(frame, limit))
        elif schema.names == _PLAN:
            for kind, plan in (row.values() for batch in _rows(frame, limit) for row in batch.to_pylist()):
                click.echo(f"{kind}:\n{textwrap.indent(plan.rstrip(), '  ')}")
        else:
            table = pa.Table.from_batches(first_rows(_rows(frame, None), shown + 1), schema)
            print_table(table, shown, ("--limit N shows more rows, -o writes all", "select fewer"))


def _rows(frame: DataFrame, limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first ``limit`` rows of the answer to a query; all of them for None."""
    left = limit
    with _failing():
        for batch in frame.execute_stream() if left != 0 else ():
            some = batch.to_pyarrow()[:left]
            yield some
            left = None if left is None else left - len(some)
            if left == 0:
                return


@contextmanager
def _failing() -> Iterator[None]:
    """Raise DataFusion's errors, which have no kinds, as ``UsageError``."""
    try:
        yield
    except (ChunkmillError, OSError, MemoryError):
        raise
    except Exception as error:
        raise UsageError(f"the query fails: {error}") from error


@click.command(cls=WritingCommand)
@_LAKE
@click.argument("dataset")
@click.argument("condition")
@click.option("--index", metavar="NAME", help="The timeline of the rows. Default: the only one.")
@click.option("--window", metavar="TIME", help="Maximum gap between rows of one event: 10s, or a number of steps.")
@click.option("--contents", multiple=True, metavar="EXPR", help="Only columns of these entities; repeatable.")
@click.option("--segments", multiple=True, metavar="ID", help="Only these segments; repeatable.")
@click.option("--executor", type=EXECUTORS, help="Where to read. Default: wherever it is quicker.")
@output_option("-o", "--output", writes=ROWS, metavar="OUT", help="Write the events as OUT.parquet or OUT.arrow.")
@click.option("--into-table", metavar="NAME", help="Append the events to this table of LAKE; create it if missing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@DEBUG
@QUIET
def find(
    lake: str,
    dataset: str,
    condition: str,
    index: str | None,
    window: str | None,
    contents: tuple[str, ...],
    segments: tuple[str, ...],
    executor: str | None,
    output: str | None,
    overwrite: bool,
    into_table: str | None,
    as_json: bool,
    debug: bool,
    quiet: bool,
) -> None:
    """Find events in DATASET of LAKE: runs of rows in which CONDITION is true.

    CONDITION compares columns, or values in them, with constants: "/imu:Imu:accel[0] > 9.8 AND /robot:mode = 'auto'".
    Segments and chunks are skipped if the statistics of their values rule them out.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        if output is not None and as_json:
            raise UsageError("-o and --json exclude each other")
        from ..catalog import chosen_segments
        from .query_display import print_objects, print_table
        from .query_output import write_table

        entry = dataset_at(lake, dataset)
        with warnings_as_lines(lake):
            frame = entry.find(
                condition,
                index=index,
                window=window,
                contents=contents or None,
                segments=list(chosen_segments(segments, entry.segment_ids())) if segments else None,
                executor=executor,
            )
            events = frame.to_arrow_table()
        if into_table is not None:
            if into_table not in (client := opened_catalog(lake)).table_names(include_hidden=True):
                client.create_table(into_table, events.schema)
            client.get_table(into_table).append(events)
            if not quiet:
                click.echo(f"{into_table}: {counted(len(events), 'event')} appended", err=True)
        if output is not None:
            rows, num_bytes = write_table(events.schema, iter(events.to_batches()), output, overwrite=overwrite)
            if not quiet:
                click.echo(f"{output}: {counted(rows, 'event')}, {size(num_bytes)}", err=True)
        elif as_json:
            print_objects(events.to_batches())
        elif into_table is None:
            print_table(events, _SHOWN, ("-o and --json give all", "--json gives all"))


_FIRST: Final = 5
"""The number of samples shown without a limit."""


@click.command()
@_LAKE
@click.argument("dataset")
@click.option("--spec", required=True, metavar="SPEC.yaml", help="The fields of samples, and their order.")
@click.option("--epoch", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="The epoch to read.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="Maximum number of samples. Default: 5, or all with --bench."
)
@click.option("--bench", is_flag=True, help="Read the epoch in this process, and show time and bytes.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@DEBUG
def samples(
    lake: str, dataset: str, spec: str, epoch: int, limit: int | None, bench: bool, as_json: bool, debug: bool
) -> None:
    """Show the training samples of DATASET of LAKE, or measure a pass over them.

    SPEC.yaml names the index, the fields with their decoders, and the order. Without --bench, this shows the fields
    with their shapes, the number of samples and blocks, and the first samples of an epoch.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        from ..training import SampleSpec

        chosen = SampleSpec.load(spec)
        with warnings_as_lines(lake):
            job = chosen.job(dataset_at(lake, dataset))
            if bench:
                _show_pass(job.measure(epoch, limit), as_json=as_json)
            else:
                _show_samples(dataset, chosen, job, epoch, limit or _FIRST, as_json=as_json)


def _show_samples(dataset: str, spec: SampleSpec, job: TrainingJob, epoch: int, limit: int, *, as_json: bool) -> None:
    """Print the content of a job: its samples and their order, its fields, and the first samples of an epoch."""
    import pyarrow as pa

    from ..chunk import json_of
    from ..training import samples_table
    from .inspection import Heading, print_columns
    from .query_display import print_table

    table = samples_table(job, epoch, limit)
    values = list(table.schema)[table.column_names.index("is_repeat") + 1 :]
    shapes = {field.name: json.loads(field.metadata[b"shape"]) for field in values}
    kinds = {field.name: _kind(field.type) for field in values}
    blocks = sum(map(len, job.plan.blocks))
    segments = sum(len(index.source.segments) for index in job.indexes)
    if as_json:
        plain = [name for name in table.column_names if not pa.types.is_struct(table.field(name).type)]  # no pictures
        rows = [{name: json_of(table[name][at]) for name in plain} for at in range(len(table))]
        fields = {name: {"shape": shapes[name], "type": kinds[name]} for name in shapes}
        facts = {"dataset": dataset, "index": spec.index, "segments": segments, "samples": len(job.plan)}
        order = {"order": str(job.plan.strategy), "seed": spec.seed, "epoch": epoch}
        echo_json({**facts, "blocks": blocks, **order, "fields": fields, "first": rows})
        return
    click.echo(
        f"{dataset}: {counted(len(job.plan), 'sample')} of {counted(segments, 'segment')} along {spec.index}, in "
        f"{counted(blocks, 'block')}"
    )
    click.echo(f"epoch {epoch} by {job.plan.strategy}, seed {spec.seed}, batches of {spec.batch_size}")
    click.echo()
    cells = [
        (
            name,
            " x ".join(map(str, shapes[name])),
            kinds[name],
            spec.fields[name].path if name in spec.fields else "",
        )
        for name in shapes
    ]
    print_columns([Heading("field"), Heading("shape"), Heading("type", 2), Heading("column", 1)], cells)
    click.echo()
    print_table(table, limit, ("--limit shows more", "--json shows all"), index=spec.index)


def _kind(kind: pa.DataType) -> str:
    """The type of the values in lists, or of a picture."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return "uint8"
    return _kind(kind.value_type) if pa.types.is_list(kind) else str(kind)


def _show_pass(figures: PassFigures, *, as_json: bool) -> None:
    """Print the figures of a pass."""
    if as_json:
        ratios = ("samples_per_second", "fetched_per_byte", "decoded_per_frame")
        echo_json({**figures._asdict(), **{name: getattr(figures, name) for name in ratios}})
        return
    skipped = f", {counted(figures.skipped, 'sample')} left out" if figures.skipped else ""
    click.echo(
        f"{counted(figures.samples, 'sample')} in {duration(figures.seconds)}: "
        f"{figures.samples_per_second:,.0f} samples/s, the first after {duration(figures.first_seconds)}{skipped}"
    )
    click.echo(
        f"{size(figures.fetched_bytes)} fetched in {counted(figures.requests, 'read')}, for "
        f"{size(figures.chunk_bytes)} in {counted(figures.chunks, 'chunk')}: "
        f"{_ratio(figures.fetched_per_byte)} bytes per byte"
    )
    if figures.used_frames:
        click.echo(
            f"{counted(figures.decoded_frames, 'frame')} in {counted(figures.decoded_groups, 'group')} of pictures "
            f"decoded, for {counted(figures.used_frames, 'frame')} in samples: "
            f"{_ratio(figures.decoded_per_frame)} per frame"
        )


def _ratio(value: Any) -> str:
    return "no" if value is None else f"{value:.2f}"


# --- catalogs and stores that are named


def place_at(store: str, dataset: str | None) -> Location:
    """The place of a store, or of the given dataset of a catalog.

    Raises ``UsageError`` for a catalog without a dataset, ``NotFoundError`` for a missing dataset.
    """
    if dataset is not None:
        place = located(dataset_at(store, dataset))
        name_place(place, store_words(store, dataset))
        return place
    from ..catalog import is_catalog

    if is_catalog(located(store)):
        raise UsageError(
            "this is a catalog, not a store of recordings",
            path=store,
            hint=f"Name one of its datasets with --dataset; `chunkmill catalog ls {shlex.quote(store)}` lists them.",
        )
    return located(store)


def store_words(store: str, dataset: str | None) -> str:
    """The words that name a store, or a dataset of a catalog, on the command line."""
    return shlex.quote(store) if dataset is None else f"{shlex.quote(store)} --dataset {shlex.quote(dataset)}"


def home_at(store: str, dataset: str | None) -> Location:
    """The home of an ingestion, found like :func:`place_at`. Raises ``SourceMissingError`` if there is none."""
    from ..ingest import home_of

    place = place_at(store, dataset)
    try:
        return home_of(place)
    except SourceMissingError:
        if dataset is None:
            raise
        raise SourceMissingError(
            f"dataset {dataset!r} is empty",
            path=store,
            hint="`chunkmill register` and `chunkmill ingest --into` add recordings to it.",
        ) from None


def _client(lake: str) -> CatalogClient:
    from ..catalog import CatalogClient

    return CatalogClient(lake)


def opened_catalog(lake: str, or_else: str = "") -> CatalogClient:
    """Open an existing catalog. Raises ``SourceMissingError`` if there is none; its hint ends with ``or_else``."""
    from ..catalog import is_catalog

    client = _client(lake)
    if not is_catalog(located(lake)):
        from .catalog_display import no_catalog

        raise no_catalog(lake, or_else)
    return client


def dataset_at(lake: str, name: str) -> DatasetEntry:
    """A dataset of an existing catalog. Raises ``SourceMissingError``, ``NotFoundError`` if there is none."""
    return opened_catalog(lake).get_dataset(name)


def _entry(lake: str, name: str) -> DatasetEntry | TableEntry:
    client = opened_catalog(lake)
    is_table = name in client.table_names(include_hidden=True)
    return client.get_table(name) if is_table else client.get_dataset(name)


def one_dataset_at(lake: str, name: str | None) -> DatasetEntry:
    """The named dataset, or the only one. Raises ``UsageError`` if no name is given and there are several."""
    from ..catalog import one_dataset

    return one_dataset(opened_catalog(lake), name)


def _check_known(what: str, given: Sequence[str], names: Iterable[str], lake: str, dataset: str) -> None:
    existing = set(names)
    words = f"{shlex.quote(lake)} {shlex.quote(dataset)}"
    for name in given:
        if name not in existing:
            close = difflib.get_close_matches(name, existing, 1)
            raise NotFoundError(
                f"there is no {what} {name!r} in dataset {dataset!r}",
                hint=f"Did you mean {close[0]!r}?" if close else f"`chunkmill catalog show {words}` lists them.",
            )


def _requested(files: Sequence[str], prefixes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files that paths and patterns name, and the folders and prefixes, all as URLs or absolute paths.

    Raises ``UsageError`` if nothing is named, ``SourceMissingError`` for a missing file.
    """
    from glob import has_magic

    from ...readers import dataset_format
    from ..inputs import search_inputs
    from ..storage import ObjectUrl, is_one_object

    if not files and not prefixes:
        raise UsageError("no file is given", hint="Give recordings, folders or patterns, or --prefix.")
    uris, below = dict[str, None](), dict.fromkeys(str(located(prefix)) for prefix in prefixes)
    for given in files:
        place = located(given)
        if (place.is_pattern if isinstance(place, ObjectUrl) else has_magic(str(place))) and not exists(place):
            uris.update(dict.fromkeys(str(located(match.path)) for match in search_inputs(place, tell=_skipped)))
            continue
        is_file = is_one_object(place) if isinstance(place, ObjectUrl) else not place.is_dir()
        if is_file and not exists(place):
            raise SourceMissingError("there is no such file", path=given, hint="Nothing was registered.")
        (uris if is_file or dataset_format(place) is not None else below)[str(place)] = None
    return list(uris), list(below)


def _check_requests(uris: Sequence[str], prefixes: Iterable[str], layer: str | None) -> None:
    """Raise the errors of these requests, before a dataset is created for them."""
    from ..catalog import requests_below, requests_of

    if uris:
        requests_of(uris, layer or "base")
    for prefix in prefixes:
        requests_below(prefix, layer)


def _skipped(path: str, why: str) -> None:
    complain(f"{path} {why}", kind="warning")


def _follow(handles: Iterable[RegistrationHandle], dataset: str, *, as_json: bool, quiet: bool) -> None:
    """Report each file as soon as it is done; exit with code 1 if one fails."""
    done = failed = 0
    for handle in handles:
        try:
            with warnings_as_lines(""):
                for result in handle.iter_results():
                    done, failed = done + result.is_success, failed + result.is_error
                    _tell(result, as_json=as_json, quiet=quiet)
        except (KeyboardInterrupt, Terminated) as interrupt:
            handle.cancel()
            # The process waits in any case for files that are being committed.
            count = sum(result.is_success for result in handle.iter_results())
            raise type(interrupt)(
                f"{counted(count, 'recording')} registered; to register the rest, repeat with --on-duplicate skip"
            ) from None
    if not quiet and not as_json and done + failed > 1:
        click.echo(
            f"{counted(done, 'recording')} registered with {dataset!r}" + (f", {failed:,} failed" * bool(failed))
        )
    if failed:
        raise click.exceptions.Exit(FAILED)


def _tell(result: SegmentRegistrationResult, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        click.echo(json.dumps(asdict(result), ensure_ascii=False))
        return
    place = str(located(result.uri))
    if result.error is not None:
        complain(result.error if place in result.error else f"{place}: {result.error}")
    elif not quiet:
        click.echo(f"{place} -> {result.segment_id}{' (replaced)' * result.replaced}")


def _check(lake: str, names: Sequence[str], *, as_json: bool, debug: bool, quiet: bool) -> int:
    """Check entries, print each fault, or the entries without one, and return the exit code."""
    client = opened_catalog(lake)
    faults = client.check(names or None)
    for fault in faults if as_json else ():
        click.echo(json.dumps(fault.to_dict(), ensure_ascii=False))
    if not as_json:
        # Layers of one file, or recordings of one shard, have one fault.
        different = {(fault.dataset or fault.table, str(fault.error)): fault.error for fault in faults}
        for error in different.values():
            show_error(error, debug=debug)
        count = Counter(entry for entry, _ in different)
        for name in () if quiet else names or client.entry_names():
            click.echo(f"{name}: {counted(count[name], 'fault') if count[name] else 'no faults'}")
    return FAILED if faults else 0
