"""``chunkmill export-lerobot``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .complaints import echo_json, reported
from .options import CONTENT, DEBUG, EXECUTOR, QUIET, SPARK, ConvertOptions, ReadingCommand, chosen_executor
from .outputs import REPORTS, output_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..locations import Location
    from ..writers import ExportedRecording, ExportedStore, ExportReport
    from .jobs import Input


@click.command(cls=ReadingCommand, name="export-lerobot")
@click.argument("spec", metavar="SPEC.yaml")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@output_option("-o", "--output", writes=(), metavar="FOLDER", help="The folder of the dataset, which is new or empty.")
@click.option("--append", is_flag=True, help="Add to an existing dataset; skip recordings that it has.")
@click.option("--push", metavar="HUB_ID", help="Then upload the dataset to the Hugging Face Hub, as owner/name.")
@click.option(
    "--draft",
    is_flag=True,
    help="Instead, print a JSON specification (valid YAML) for the first INPUT; SPEC is then the frame rate.",
)
@CONTENT
@EXECUTOR
@SPARK
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@output_option(
    "--report",
    writes=REPORTS,
    metavar="FILE",
    help="Save the report as FILE.json, or as a page FILE.html.",
)
@DEBUG
@QUIET
def export_lerobot(
    spec: str,
    inputs: tuple[str, ...],
    output: str | None,
    append: bool,
    push: str | None,
    draft: bool,
    as_json: bool,
    report: str | None,
    debug: bool,
    **given: Any,
) -> None:
    """Write recordings as a LeRobot dataset of version 3.0, aligned to one rate.

    SPEC.yaml defines the features, their clocks and rules, and the episodes. INPUT is as for `chunkmill convert`.
    `chunkmill export-lerobot 30 INPUT --draft` prints a first SPEC.yaml.
    """
    with reported(debug=debug):
        from ..errors import UsageError
        from ..execution import RunOptions, is_auto
        from ..writers import (
            ExportSpec,
            check_account,
            check_hub,
            draft_spec,
            push_lerobot,
            recordings_of,
            save_account,
            write_lerobot,
        )
        from .jobs import distinct_inputs, progress_bar

        given["executor"] = chosen_executor(given["executor"], given["master"], given["conf"])
        options = ConvertOptions(debug=debug, **given)
        if draft:
            if not spec.isdecimal():
                raise UsageError(
                    f"{spec!r} is not a rate", hint="Give the frames per second: export-lerobot 30 … --draft."
                )
            import json

            first = recordings_of(_recordings(distinct_inputs(inputs[:1])[:1], options))[0][0]
            click.echo(json.dumps(draft_spec(first.opened(), fps=int(spec)), indent=2))
            return
        if output is None:
            raise UsageError("there is no output", hint="Name a folder with -o.")
        if push is not None:
            check_hub(push)
        if report is not None:
            check_account(report)
        chosen = ExportSpec.load(spec)
        recordings = _recordings(distinct_inputs(inputs), options)
        executor = "inline" if is_auto(options.executor) else options.executor
        run = RunOptions(executor, options.master, options.conf or None)
        with progress_bar(output, quiet=options.quiet) as bar:
            outcome = write_lerobot(
                recordings, output, chosen, executor=run.executor, master=run.master, append=append, progress=bar
            )
        address = None if push is None else push_lerobot(output, push)
        if report is not None:
            save_account(outcome, report)
        if as_json:
            echo_json(_facts(outcome) | ({} if address is None else {"pushed": address}))
        elif not options.quiet:
            _show(outcome)
            if address is not None:
                click.echo(f"{output} -> {address}", err=True)


def _recordings(items: Sequence[Input], options: ConvertOptions) -> list[ExportedRecording | ExportedStore]:
    """Return the recordings of inputs: those of files, with digests of contents and options, and stores as a whole."""
    from ...readers import STORE, detect_format
    from ..recordings import RecordingsFolder
    from ..writers import exported_entries

    recordings: list[ExportedRecording | ExportedStore] = []
    digests: dict[Location, str | None] = {}
    for item in items:
        if detect_format(item.path) is not STORE:
            if item.path not in digests:
                digests[item.path] = _digest_of(item.path)
            recordings += _recordings_of(item, options, digests[item.path])
        elif item.path not in digests:
            digests[item.path] = None
            folder = RecordingsFolder(item.path)
            live = folder.live(folder.version(options.reading.get("version")))
            recordings.append(exported_entries(folder, live, contents=options.content or None))
    return recordings


def _recordings_of(item: Input, options: ConvertOptions, digest: str | None) -> list[ExportedRecording]:
    import hashlib
    from pathlib import Path

    from ..inputs import SourceOptions, stores_of
    from ..writers import ExportedRecording

    name = "-".join(item.name.parts)
    found = stores_of(item.path, name, SourceOptions(content=options.content, reading=options.reading), item.episode)
    if digest is not None:
        read_with = repr((digest, item.episode, sorted(options.content), sorted(options.reading.items())))
        digest = hashlib.sha256(read_with.encode()).hexdigest()
    recordings = [(store, stream) for store, stream in found if store is None or store.kind == "recording"]
    names = [name] if len(recordings) == 1 else [f"{name}-{store.recording_id}" for store, _ in recordings]
    place = item.path.resolve() if isinstance(item.path, Path) else item.path
    origin = hashlib.sha256(str(place).encode()).hexdigest()
    return [
        ExportedRecording(name, stream, digest, origin) for name, (_, stream) in zip(names, recordings, strict=True)
    ]


def _digest_of(place: Location) -> str | None:
    """Return a digest of a file or of a folder's files, or the URL and version of an object; None without a version."""
    import hashlib
    from pathlib import Path

    from ..errors import SourceMissingError
    from ..storage import bucket_of

    if not isinstance(place, Path):
        try:
            version = bucket_of(place).head(place.key).version
        except SourceMissingError:
            return None  # a folder in an object store, which is exported again
        return None if version is None else f"{place} {version}"
    whole = hashlib.sha256()
    for path in sorted(each for each in place.rglob("*") if each.is_file()) if place.is_dir() else [place]:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(repr((str(path.relative_to(place)), digest)).encode())
    return whole.hexdigest()


def _facts(report: ExportReport) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(report)


def _show(report: ExportReport) -> None:
    """Print the report: a row for each episode, with its stalest feature."""
    from rich.markup import escape
    from rich.table import Table

    from ..units import counted
    from .complaints import one_line
    from .inspection import wide_console

    table = Table("recording", "start", "wanted", "written", "dropped", "re-encoded", "held", "stalest", box=None)
    for each in report.accounts:
        held = sum(feature.held for feature in each.features.values())
        name, worst = max(((f.staleness, n) for n, f in each.features.items()), default=(0, ""))[::-1]
        figures = (each.wanted, each.written, each.dropped, each.reencoded, held)
        stale = each.reason or f"{name} {worst / 1e6:,.1f} ms"
        cells = (each.recording, f"{each.start / 1e9:.3f}", *map(str, figures), stale)
        table.add_row(*(escape(one_line(cell)) for cell in cells))
    wide_console(stderr=True).print(table)
    frames, episodes = counted(report.frames, "frame"), counted(report.episodes, "episode")
    skipped = f"; {counted(len(report.skipped), 'recording')} already in it" if report.skipped else ""
    skipped += f"; {counted(len(report.removed), 'recording')} removed" if report.removed else ""
    click.echo(f"{report.destination}: {episodes}, {frames}{skipped}", err=True)
