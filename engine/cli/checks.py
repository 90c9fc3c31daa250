"""Checks of files, stores and tables (``verify``), of recorded data (``doctor``) and of pipelines (``check``)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ...readers import format_of_name
from .. import execution
from ..errors import SourceMissingError, UsageError, writing
from ..inputs import is_table, verify
from ..lance import LanceTable, TableVerification
from ..locations import Location, local_path, located, reading_location
from ..rrd import Findings, Verification, verify_file
from ..storage import ObjectUrl
from ..units import counted, rows_in_chunks
from .catalogs import place_at
from .complaints import FAILED, complain, echo_json, error_facts, exit_code, show, warnings_as_lines
from .inspection import Heading, print_columns
from .jobs import ConversionJob, find_inputs, stores_of
from .options import ConvertOptions, chosen_executor
from .outputs import is_mcap
from .standard_streams import as_given, as_known

if TYPE_CHECKING:
    from ..doctor import Diagnosis
    from ..pipelines import Pipeline
    from ..stream import LazyChunkStream, Node

_TABLE: Final = ".lance"


def verify_all(arguments: Iterable[str], *, as_json: bool, quiet: bool, debug: bool) -> None:
    """Verify files, stores and tables: print a line on each, or on each fault; exit with code 1 if there are faults.

    ``as_json``: an object on each, with its faults.
    """
    codes: list[int] = []
    count = faults = 0
    total, tables = Findings(), list[TableVerification]()
    for path, look in _inputs(arguments):
        count += 1
        try:
            with warnings_as_lines(path):
                verification = look()
        except Exception as error:  # noqa: BLE001 (the other files are verified all the same)
            show(error, debug=debug, path=path)
            codes.append(exit_code(error))
            faults += 1
            if as_json:
                echo_json(_facts(path, Verification(), error))
            continue
        for fault in verification.faults:
            show(fault, debug=debug, path=path)
        if verification.more_faults:
            complain(f"{path}: and {verification.more_faults:,} more faults")
        if verification.faults:
            codes.append(FAILED)
        elif not quiet and not as_json:
            line = _table_line(verification) if isinstance(verification, TableVerification) else _line(verification)
            click.echo(f"{as_known(str(path))}: {line}")
        if as_json:
            echo_json(_facts(path, verification))
        if isinstance(verification, TableVerification):
            tables.append(verification)
        else:
            total.add(verification)
        faults += len(verification.faults) + verification.more_faults
    if count > 1 and not quiet and not as_json:
        click.echo(_total(count, len(codes), faults, total.verification(), tables))
    if codes:
        raise click.exceptions.Exit(min(codes))


def diagnose_all(
    arguments: Sequence[str],
    *,
    dataset: str | None,
    segments: tuple[str, ...],
    kinds: tuple[str, ...],
    reading: dict[str, Any],
    executor: str | None,
    master: str | None,
    conf: dict[str, str],
    html: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Diagnose inputs: print a line and a table on each, and write a page of all; exit with code 1 if there are faults.

    ``as_json``: an object on each finding.
    """
    from ..doctor import diagnose, joined

    run: dict[str, Any] = {"executor": chosen_executor(executor, master, conf), "master": master, "conf": conf or None}
    results: list[Diagnosis] = []
    codes: list[int] = []
    for path in _recordings_of(arguments, dataset):
        try:
            with warnings_as_lines(path):
                result = diagnose(path, segments=segments or None, kinds=kinds or None, options=reading, **run)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 (the other files are examined all the same)
            show(error, debug=debug, path=path)
            codes.append(exit_code(error))
            continue
        results.append(result)
        if result.of_severity("error", "warning"):
            codes.append(FAILED)
        if as_json:
            for finding in result:
                echo_json({**finding.to_dict(), "source": as_given(finding.source)})
        elif result.findings or not quiet:
            _show_diagnosis(path, result)
    if html is not None and results:
        joined(results).save_html(html)
    if codes:
        raise click.exceptions.Exit(min(codes))


def _recordings_of(arguments: Sequence[str], dataset: str | None) -> Iterator[Location]:
    """The files and stores of arguments, each once, or the store of a dataset."""
    if dataset is None:
        yield from dict.fromkeys(item.path for argument in arguments for item in find_inputs(argument))
        return
    if len(arguments) != 1:
        raise UsageError(
            "--dataset needs one catalog, and nothing else",
            hint="Give only the catalog, or leave out --dataset to read all datasets.",
        )
    yield place_at(arguments[0], dataset)


_MOST_OF_A_KIND: Final = 20
_HEADINGS: Final = ("severity", "kind", "segment", "place", "when", "value", "expected", "times")


def _show_diagnosis(path: Location, diagnosis: Diagnosis) -> None:
    """Print a line on an input, a table of its findings, and what to do about each kind."""
    from ..doctor import KINDS

    click.echo(f"{as_known(str(path))}: {diagnosis.summary}")
    if not diagnosis.findings:
        return
    of_kind: Counter[str] = Counter()
    rows = []
    for finding in diagnosis:
        of_kind[finding.kind] += 1
        if of_kind[finding.kind] <= _MOST_OF_A_KIND:
            place = " ".join(filter(None, (finding.entity_path, finding.subject)))
            times = f"{finding.count:,}" if finding.count > 1 else ""
            facts = (finding.severity, finding.kind, finding.segment or "", place, finding.when)
            rows.append((*facts, finding.value, finding.expected, times))
    if len({row[2] for row in rows}) == 1:
        rows = [(*row[:2], "", *row[3:]) for row in rows]
    print_columns([Heading(name, is_number=name == "times") for name in _HEADINGS], rows)
    for kind, count in of_kind.items():
        more = f" --json shows {count - _MOST_OF_A_KIND:,} more." if count > _MOST_OF_A_KIND else ""
        click.echo(f"{kind}: {KINDS[kind].meaning}. {KINDS[kind].hint}{more}")


def verify_output(job: ConversionJob) -> None:
    """Read the output of a conversion; if it is no readable RRD, remove it and raise ``ReadError``."""
    try:
        with warnings_as_lines(job.destination):
            (verify if is_mcap(job.destination) else verify_file)(str(job.destination)).checked()
    except Exception:
        with writing(str(job.destination)):
            if isinstance(job.destination, ObjectUrl):
                execution.Folder.at(job.destination.parent).delete([job.destination.name])
            else:
                job.destination.unlink(missing_ok=True)
        raise


def _inputs(arguments: Iterable[str]) -> Iterator[tuple[Location, Callable[[], Verification]]]:
    """The stores, files and tables of arguments, each once, with the function that verifies it."""
    for argument in arguments:
        tables = _tables(reading_location(argument))
        paths: Iterable[Location] = ()
        try:
            paths = dict.fromkeys(item.path for item in find_inputs(argument))
        except SourceMissingError:
            if not tables:
                raise
        yield from ((path, partial(verify, path)) for path in paths if path not in tables)
        yield from ((path, table.verify) for path, table in tables.items())


def _tables(location: Location) -> dict[Location, LanceTable]:
    """The tables of a catalog (wherever they are stored), the tables directly in a folder, or the table itself."""
    if isinstance(location, Path) and not location.is_dir():
        return {}
    if isinstance(location, ObjectUrl) and (format_of_name(location.name) is not None or location.is_pattern):
        return {}
    from ..catalog import CatalogClient, is_catalog

    if is_table(location):
        return {location: LanceTable(location, location.name.removesuffix(_TABLE))}
    if is_catalog(location):
        places = {entry.name: located(entry.storage_url) for entry in CatalogClient(str(location)).tables()}
    else:
        names = [name for name in execution.Folder.at(location).folders() if name.endswith(_TABLE)]
        places = {name.removesuffix(_TABLE): location / name for name in names if is_table(location / name)}
    return {place: LanceTable(place, name) for name, place in places.items()}


def _total(
    count: int, failed: int, faults: int, verification: Verification, tables: Sequence[TableVerification]
) -> str:
    """The line below the results of several files.

    >>> _total(3, 1, 2, Verification(18, 3513, 18), [])
    '3 verified, 1 with faults (2 in all): 3,513 rows in 18 chunks are readable'
    >>> _total(3, 0, 0, Verification(), [TableVerification(9, 4, 9), TableVerification(2, 1, 2)])
    '3 verified, no faults: 5 rows in 2 tables are readable'
    """
    wrong = f", {failed} with faults ({faults:,} in all)" if faults else ", no faults"
    read = [rows_in_chunks(verification.rows, verification.chunks)] if verification.chunks or not tables else []
    if tables:
        rows = sum(table.rows for table in tables)
        read.append(f"{counted(rows, 'row')} in {counted(len(tables), 'table')}")
    return f"{count} verified{wrong}: {' and '.join(read)} are readable"


def _table_line(verification: TableVerification) -> str:
    """The line on a table without a fault.

    >>> _table_line(TableVerification(9, 4, 9, version=3))
    '4 rows of version 3; 9 files, all digests match'
    >>> _table_line(TableVerification(5, 4, 3, version=3, undigested=("_versions/1.manifest", "data/a.lance")))
    '4 rows of version 3; 3 files match their digests, 2 have none (of another program or a killed one)'
    """
    read = f"{counted(verification.rows, 'row')} of version {verification.version}"
    digests, others = verification.digests or 0, len(verification.undigested)
    if not others:
        return f"{read}; {counted(digests, 'file')}, all digests match"
    return f"{read}; {digests:,} files match their digests, {others:,} have none (of another program or a killed one)"


def _line(verification: Verification) -> str:
    """The line on a file or store without a fault.

    >>> _line(Verification(18, 3513, 18)), _line(Verification(2, 7, 0))
    ('3,513 rows in 18 chunks, all digests match', '7 rows in 2 chunks, all readable; no chunk has a digest')
    """
    read = rows_in_chunks(verification.rows, verification.chunks)
    if verification.digests is None:
        return f"{read}, all decoded; all checksums match"
    if verification.digests == verification.chunks:
        return f"{read}, all digests match"
    if verification.digests == 0:
        return f"{read}, all readable; no chunk has a digest"
    return f"{read}, all readable; {verification.chunks - verification.digests:,} without a digest"


def check_pipeline(location: str, argument: str | None, svg: str | None) -> None:
    """Load a pipeline, apply it to the first recording of ``argument`` or to none, and print and draw its plan.

    No chunk is read. Raises ``UsageError`` and ``PipelineError`` if the pipeline cannot run, ``ReadError`` if the
    input cannot be opened, ``WriteError`` if the picture cannot be written.
    """
    from ..pipelines import load_pipeline
    from ..stream import LazyChunkStream, PlaceholderSource, compile_plan, explain_plan, nodes_of, sink_of

    pipeline = load_pipeline(location)
    stream = LazyChunkStream.from_source(PlaceholderSource()) if argument is None else _first_recording(argument)
    source = sink_of(stream)
    result = pipeline.apply(stream)
    pipeline.check_travels(result)
    sink = sink_of(result)
    text = explain_plan(sink, compile_plan(sink))
    if svg is not None:
        _draw(sink, pipeline, svg)
    click.echo(f"{pipeline} can be run")
    click.echo(text)
    if source not in nodes_of(sink):
        complain(f"{pipeline}: the returned stream does not use the given stream", kind="warning")


def _first_recording(argument: str) -> LazyChunkStream:
    """The stream of the first recording of ``argument``."""
    first = next(find_inputs(argument))
    with warnings_as_lines(first.path):
        stores = stores_of(
            ConversionJob(first.path, first.path, first.path.stem, episode=first.episode), ConvertOptions()
        )
    for store, stream in stores:
        if store.kind == "recording":
            return stream
    raise UsageError("the file contains no recording to run the pipeline on", path=str(first.path))


def _draw(sink: Node, pipeline: Pipeline, svg: str | os.PathLike[str]) -> None:
    from ..stream import draw_plan

    path = local_path(svg)
    with writing(str(path)):
        path.write_text(draw_plan(sink, str(pipeline)), encoding="utf-8")


def _facts(path: Location, verification: Verification, error: Exception | None = None) -> dict[str, Any]:
    """The result of one file as JSON data; ``error``: the reason why it could not be read at all."""
    return {
        "path": as_given(str(path)),
        "rows": verification.rows,
        "chunks": verification.chunks,
        "digests": verification.digests,
        "faults": [error_facts(fault) for fault in (*verification.faults, *([] if error is None else [error]))],
        "more_faults": verification.more_faults,
        **(
            {"version": verification.version, "undigested": verification.undigested}
            if isinstance(verification, TableVerification)
            else {}
        ),
    }
