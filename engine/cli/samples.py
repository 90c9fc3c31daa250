"""``chunkmill samples``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from .catalogs import dataset_at
from .complaints import echo_json, reported
from .options import DEBUG, check_place
from .start import leave_out_what_nothing_needs

if TYPE_CHECKING:
    import pyarrow as pa

    from ..training import Job, PassFigures, SampleSpec

_SHOWN: Final = 5
"""The number of samples shown without a limit."""


@click.command()
@click.argument("lake", callback=check_place)
@click.argument("dataset")
@click.option("--spec", required=True, metavar="SPEC.yaml", help="What samples consist of, and their order.")
@click.option("--epoch", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="The epoch to read.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="At most so many samples. Default: 5; with --bench all."
)
@click.option("--bench", is_flag=True, help="Read the epoch once in this process, and show what that takes.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@DEBUG
def samples(
    lake: str, dataset: str, spec: str, epoch: int, limit: int | None, bench: bool, as_json: bool, debug: bool
) -> None:
    """Show the samples that a training takes of DATASET of LAKE, or measure a pass over them.

    SPEC.yaml names the index, the fields with their decoders, and the order. Without --bench, the fields with their
    shapes, the number of samples and blocks, and the first samples of an epoch are shown.
    """
    with reported(debug=debug):
        leave_out_what_nothing_needs()
        from ..training import SampleSpec
        from .complaints import warnings_as_lines

        chosen = SampleSpec.load(spec)
        with warnings_as_lines(lake):
            job = chosen.job(dataset_at(lake, dataset))
            if bench:
                _show_pass(job.measure(epoch, limit), as_json=as_json)
            else:
                _show_samples(dataset, chosen, job, epoch, limit or _SHOWN, as_json=as_json)


def _show_samples(dataset: str, spec: SampleSpec, job: Job, epoch: int, limit: int, *, as_json: bool) -> None:
    """Print what a job has: its samples and their order, its fields, and the first samples of an epoch."""
    import pyarrow as pa

    from ..training import samples_table
    from ..units import counted
    from .inspection import Heading, print_columns
    from .query_display import json_of, print_table

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
    """Print what a pass took."""
    from ..units import counted, duration, size

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
            f"{counted(figures.decoded_frames, 'frame')} of {counted(figures.decoded_groups, 'group')} of pictures "
            f"decoded, for {counted(figures.used_frames, 'frame')} in samples: "
            f"{_ratio(figures.decoded_per_frame)} per frame"
        )


def _ratio(value: Any) -> str:
    return "no" if value is None else f"{value:.2f}"
