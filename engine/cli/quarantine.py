"""``chunkmill quarantine``: files that failed on their way into a store. Only click is imported here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..locations import located
from .failures import reported

_OPTIONS = (
    click.argument("store"),
    click.argument("paths", nargs=-1, metavar="[PATH]..."),
    click.option("--json", "as_json", is_flag=True, help="Print the files as JSON, one a line."),
    click.option("--debug", is_flag=True, help="Show the whole trace of an error."),
)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.group()
def quarantine() -> None:
    """Show, retry or drop files that failed to be ingested.

    STORE is what stands after --into of `chunkmill ingest`: a store of recordings, or a folder of RRDs.
    """


@quarantine.command("list")
@_options
def list_files(store: str, paths: tuple[str, ...], as_json: bool, debug: bool) -> None:
    """Show the files in quarantine (or those at PATH) with their errors."""
    with reported(debug=debug):
        from .quarantined import list_quarantined

        list_quarantined(located(store), paths, as_json=as_json)


@quarantine.command()
@_options
@click.option("--all", "everything", is_flag=True, help="All files in quarantine.")
def retry(store: str, paths: tuple[str, ...], as_json: bool, debug: bool, everything: bool) -> None:
    """Have the ingestion try files again: those at PATH, or all with --all.

    They stay in quarantine until they have come through.
    """
    with reported(debug=debug):
        from .quarantined import retry_quarantined

        retry_quarantined(located(store), paths, everything=everything, as_json=as_json)


@quarantine.command()
@_options
@click.option("--all", "everything", is_flag=True, help="All files in quarantine.")
def drop(store: str, paths: tuple[str, ...], as_json: bool, debug: bool, everything: bool) -> None:
    """Forget files in quarantine: those at PATH, or all with --all.

    The files themselves stay where they are. They are not tried again until their content changes.
    """
    with reported(debug=debug):
        from .quarantined import drop_quarantined

        drop_quarantined(located(store), paths, everything=everything, as_json=as_json)
