"""``chunkmill status``: how an ingestion stands. Only click is imported here."""

from __future__ import annotations

import click

from ..locations import located
from .failures import FAILED, reported


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
        from ..ingest.status import StatusReader
        from .status_display import show_once, watch_status

        reader = StatusReader(located(store), None if checkpoint is None else located(checkpoint))
        if watch:
            watch_status(reader, store, as_json=as_json)
        elif not show_once(reader.read(), store, as_json=as_json):
            raise click.exceptions.Exit(FAILED)
