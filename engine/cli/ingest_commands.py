"""The commands on an ingestion and its store: ``ingest``, ``compact``, ``vacuum``, ``quarantine``, ``status``.

Only click is imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..locations import located
from .complaints import FAILED, reported
from .options import ReadingCommand, check_id, parse_conf


@click.command(cls=ReadingCommand)
@click.argument("landing")
@click.option("--into", metavar="STORE", help="The store of recordings, a folder or URL; made when there is none.")
@click.option("--rrds", metavar="FOLDER", help="A folder that gets an RRD for each file, beside the store or alone.")
@click.option("--pipeline", metavar="FILE.py[:NAME]", help="A function that each recording's stream goes through.")
@click.option("--once", is_flag=True, help="Take what is there, and end.")
@click.option("--every", metavar="TIME", help="How often to look for files. Default: 1s.")
@click.option("--settle", default="1s", show_default=True, metavar="TIME", help="How long a file must not change.")
@click.option("--max-files", type=click.IntRange(1), metavar="N", help="Files of one batch, at most. Default: 256.")
@click.option("--max-bytes", metavar="SIZE", help="Bytes of one batch, at most, such as 2GB. Default: 4 GiB.")
@click.option(
    "--source-done",
    type=click.Choice(["keep", "archive", "delete"]),
    default="keep",
    show_default=True,
    help="What becomes of a file that is in the store.",
)
@click.option(
    "--archive",
    metavar="FOLDER",
    help="Where files go with --source-done archive; for objects a prefix of their bucket.",
)
@click.option("--checkpoint", metavar="FOLDER", help="What is known of the progress. Default: in the store.")
@click.option(
    "--optimize",
    type=click.Choice(["object-store", "live", "none"]),
    default="object-store",
    show_default=True,
    help="How chunks are laid out.",
)
@click.option("--replace-same-id", is_flag=True, help="Let a recording replace another file's of the same id.")
@click.option("--keep-versions", default="1h", show_default=True, metavar="TIME", help="How long old versions stay.")
@click.option("--compact-every", type=click.IntRange(1), metavar="N", help="Join small shards after every N batches.")
@click.option("--content", multiple=True, metavar="EXPR", help="Entities to keep, such as '/imu/**'; may be repeated.")
@click.option(
    "--application-id",
    metavar="ID",
    callback=check_id,
    help="Default: the RRD's own; 'chunkmill' for other formats.",
)
@click.option("--metrics-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve metrics for Prometheus.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help="At which address.")
@click.option("--log-json", is_flag=True, help="Log JSON objects, one a line.")
@click.option("--executor", type=click.Choice(["spark", "inline"]), help="Where it runs. Default: spark.")
@click.option("--master", metavar="URL", help="Spark master, such as 'local[4]'. Default: local[*].")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", callback=parse_conf, help="A setting for Spark.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors only.")
def ingest(debug: bool, **options: Any) -> None:
    """Bring every recording that lands in the folder LANDING into a store, once.

    MCAP, RRD and Parquet files are taken when they have settled; what is being written under a name such as
    'drive.mcap.tmp' is left alone. A file that fails goes into quarantine: see `chunkmill quarantine`. Ctrl-C and
    SIGTERM let the running batch come to its end first.
    """
    with reported(debug=debug):
        from .ingestion import run_ingest

        run_ingest(**options)


@click.command()
@click.argument("store")
@click.option("--keep", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Versions that stay.")
@click.option(
    "--older-than", default="0s", show_default=True, metavar="TIME", help="Remove only versions that are this old."
)
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
def vacuum(store: str, keep: int, older_than: str, debug: bool) -> None:
    """Remove what only old versions of STORE need, and what crashed runs left.

    Refused while an ingestion or a compaction writes to the store.
    """
    with reported(debug=debug):
        from .ingestion import vacuum_store

        vacuum_store(store, keep, older_than)


@click.command()
@click.argument("store")
@click.option(
    "--optimize",
    type=click.Choice(["object-store", "live", "none"]),
    default="none",
    show_default=True,
    help="Lay out recordings anew whose chunks are smaller than this wants.",
)
@click.option("--min-shard", default="64MiB", show_default=True, metavar="SIZE", help="Join shards below this size.")
@click.option("--executor", type=click.Choice(["spark", "inline"]), help="Where chunks are laid out. Default: spark.")
@click.option("--master", metavar="URL", help="Spark master, such as 'local[4]'. Default: local[*].")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", callback=parse_conf, help="A setting for Spark.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
def compact(debug: bool, **options: Any) -> None:
    """Write the files of STORE anew, fewer and without what is dead: a version with the same recordings.

    Who reads an older version is not disturbed; `chunkmill vacuum` removes those. Refused while an ingestion writes to
    the store: see `chunkmill ingest --compact-every`.
    """
    with reported(debug=debug):
        from .ingestion import compact_recordings

        compact_recordings(**options)


_QUARANTINE_OPTIONS = (
    click.argument("store"),
    click.argument("paths", nargs=-1, metavar="[PATH]..."),
    click.option("--json", "as_json", is_flag=True, help="Print the files as JSON, one a line."),
    click.option("--debug", is_flag=True, help="Show the whole trace of an error."),
)


def _quarantine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_QUARANTINE_OPTIONS):
        command = option(command)
    return command


@click.group()
def quarantine() -> None:
    """Show, retry or drop files that failed to be ingested.

    STORE is what stands after --into of `chunkmill ingest`: a store of recordings, or a folder of RRDs.
    """


@quarantine.command("list")
@_quarantine_options
def list_files(store: str, paths: tuple[str, ...], as_json: bool, debug: bool) -> None:
    """Show the files in quarantine (or those at PATH) with their errors."""
    with reported(debug=debug):
        from .quarantine_display import list_quarantined

        list_quarantined(located(store), paths, as_json=as_json)


@quarantine.command()
@_quarantine_options
@click.option("--all", "everything", is_flag=True, help="All files in quarantine.")
def retry(store: str, paths: tuple[str, ...], as_json: bool, debug: bool, everything: bool) -> None:
    """Have the ingestion try files again: those at PATH, or all with --all.

    They stay in quarantine until they have come through.
    """
    with reported(debug=debug):
        from .quarantine_display import retry_quarantined

        retry_quarantined(located(store), paths, everything=everything, as_json=as_json)


@quarantine.command()
@_quarantine_options
@click.option("--all", "everything", is_flag=True, help="All files in quarantine.")
def drop(store: str, paths: tuple[str, ...], as_json: bool, debug: bool, everything: bool) -> None:
    """Forget files in quarantine: those at PATH, or all with --all.

    The files themselves stay where they are. They are not tried again until their content changes.
    """
    with reported(debug=debug):
        from .quarantine_display import drop_quarantined

        drop_quarantined(located(store), paths, everything=everything, as_json=as_json)


@click.command()
@click.argument("store")
@click.option("--checkpoint", metavar="FOLDER", help="The checkpoint, where it is not in the store.")
@click.option("--watch", is_flag=True, help="Go on telling, every two seconds, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object; with --watch, one a line.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
def status(store: str, checkpoint: str | None, watch: bool, as_json: bool, debug: bool) -> None:
    """Show how the ingestion into STORE stands: what it did, what waits, who writes.

    STORE is what stands after --into (or --rrds) of `chunkmill ingest`. Nothing is changed, and the ingestion need
    not run. The exit code is 1 where something could not be read.
    """
    with reported(debug=debug):
        from ..ingest import StatusReader
        from .status_display import show_once, watch_status

        reader = StatusReader(located(store), None if checkpoint is None else located(checkpoint))
        if watch:
            watch_status(reader, store, as_json=as_json)
        elif not show_once(reader.read(), store, as_json=as_json):
            raise click.exceptions.Exit(FAILED)
