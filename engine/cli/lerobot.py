"""``chunkmill export lerobot``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .complaints import echo_json, reported
from .options import CONTENT, DEBUG, EXECUTOR, QUIET, SPARK, ConvertOptions, ReadingCommand, chosen_executor

if TYPE_CHECKING:
    from ..writers import ExportedRecording, ExportReport
    from .jobs import Input


@click.command(cls=ReadingCommand, name="export-lerobot", hidden=True)
@click.argument("spec", metavar="SPEC.yaml")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("-o", "--output", metavar="FOLDER", help="The folder of the dataset, which is new or empty.")
@click.option("--append", is_flag=True, help="Add to the dataset; recordings that it has are left out.")
@click.option("--draft", is_flag=True, help="Print a specification for the first INPUT instead; SPEC is its rate.")
@CONTENT
@EXECUTOR
@SPARK
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON.")
@click.option("--report", metavar="FILE", help="Save the account as FILE.json, or as a page FILE.html.")
@DEBUG
@QUIET
def export_lerobot(
    spec: str,
    inputs: tuple[str, ...],
    output: str | None,
    append: bool,
    draft: bool,
    as_json: bool,
    report: str | None,
    debug: bool,
    **given: Any,
) -> None:
    """Write recordings as a LeRobot dataset of version 3.0, aligned to one rate.

    SPEC.yaml says what becomes a feature, by which clock and rule, and what an episode is. INPUT is as for
    `chunkmill convert`. `chunkmill export lerobot 30 INPUT --draft` prints one to begin with.
    """
    with reported(debug=debug):
        from ..errors import UsageError
        from ..execution import RunOptions, is_auto
        from ..writers import ExportSpec, check_account, draft_spec, save_account, write_lerobot
        from .jobs import distinct_inputs, progress_bar

        given["executor"] = chosen_executor(given["executor"], given["master"], given["conf"])
        options = ConvertOptions(debug=debug, **given)
        if draft:
            if not spec.isdecimal():
                raise UsageError(
                    f"{spec!r} is not a rate", hint="Give the frames a second: export lerobot 30 … --draft."
                )
            import json

            first = _recordings(distinct_inputs(inputs[:1])[0], options)[0]
            click.echo(json.dumps(draft_spec(first.stream, fps=int(spec)), indent=2))  # which is YAML, too
            return
        if output is None:
            raise UsageError("there is no output", hint="Name a folder with -o.")
        if report is not None:
            check_account(report)
        chosen = ExportSpec.load(spec)
        recordings = [each for item in distinct_inputs(inputs) for each in _recordings(item, options)]
        executor = "inline" if is_auto(options.executor) else options.executor
        run = RunOptions(executor, options.master, options.conf or None)
        with progress_bar(output, quiet=options.quiet) as bar:
            outcome = write_lerobot(
                recordings, output, chosen, executor=run.executor, master=run.master, append=append, progress=bar
            )
        if report is not None:
            save_account(outcome, report)
        if as_json:
            echo_json(_facts(outcome))
        elif not options.quiet:
            _show(outcome)


def _recordings(item: Input, options: ConvertOptions) -> list[ExportedRecording]:
    """Return the recordings of an input, with the digest of a file."""
    import hashlib
    from pathlib import Path

    from ..inputs import SourceOptions, stores_of
    from ..writers import ExportedRecording

    name = "-".join(item.name.parts)
    found = stores_of(item.path, name, SourceOptions(content=options.content, reading=options.reading), item.episode)
    digest = None
    if isinstance(item.path, Path) and item.path.is_file():
        with item.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    recordings = [(store, stream) for store, stream in found if store is None or store.kind == "recording"]
    names = [name] if len(recordings) == 1 else [f"{name}-{store.recording_id}" for store, _ in recordings]
    return [ExportedRecording(each, stream, digest) for each, (_, stream) in zip(names, recordings, strict=True)]


def _facts(report: ExportReport) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(report)


def _show(report: ExportReport) -> None:
    """Print the account: an episode a row, and the worst feature of each."""
    from rich.console import Console
    from rich.table import Table

    from ..units import counted

    table = Table("recording", "start", "wanted", "written", "dropped", "re-encoded", "held", "stalest", box=None)
    for each in report.accounts:
        held = sum(feature.held for feature in each.features.values())
        name, worst = max(((f.staleness, n) for n, f in each.features.items()), default=(0, ""))[::-1]
        figures = (each.wanted, each.written, each.dropped, each.reencoded, held)
        stale = each.reason or f"{name} {worst / 1e6:,.1f} ms"
        table.add_row(each.recording, f"{each.start / 1e9:.3f}", *map(str, figures), stale)
    Console(stderr=True, width=None).print(table)
    frames, episodes = counted(report.frames, "frame"), counted(report.episodes, "episode")
    skipped = f"; {counted(len(report.skipped), 'recording')} left out, as they are in it" if report.skipped else ""
    click.echo(f"{report.destination}: {episodes}, {frames}{skipped}", err=True)
