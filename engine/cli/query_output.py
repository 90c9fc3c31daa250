"""The rows of a query, in the order of segments and of the index, and their files: one, or one for each segment."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import has_magic
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import DataFrame, Expr, SessionConfig, SessionContext, col, lit

from ...readers import STORE, RrdReader, detect_format, format_of_name
from .. import inputs
from ..catalog import Queried, chosen_segments, is_catalog, queried_at
from ..errors import ChunkmillError, UnsupportedError, UsageError, writing
from ..execution import RunOptions, Staging, replace_file
from ..frames import Explanation, QueryFrame, explain_frame, missing_column
from ..limits import MIB
from ..locations import exists, local_path, located
from ..query import (
    SEGMENT_ID,
    AnswerColumns,
    HeldRecording,
    QueriedSegment,
    Query,
    QuerySemantics,
    no_column,
    queried_recordings,
)
from ..rrd import RrdFile
from ..storage.folder import sync_folder
from ..store import ChunkStore, LazyStore
from ..units import counted, size
from .complaints import warnings_as_lines
from .jobs import Input, distinct_inputs
from .options import QueryOptions
from .outputs import check_apart

_IN_ORDER: Final = "datafusion.optimizer.enable_round_robin_repartition"
"""The setting by which DataFusion distributes the rows of a partition to other partitions."""


@dataclass(frozen=True)
class AnswerRows:
    """The rows that the options select from these segments."""

    columns: AnswerColumns
    segments: Sequence[QueriedSegment]
    options: QueryOptions

    @classmethod
    def of(cls, queried: Queried, options: QueryOptions) -> AnswerRows:
        """The rows of segments. Raises ``UsageError`` for missing columns."""
        columns, segments = queried
        for name in options.columns:
            if name not in columns.arrow.names:
                raise no_column(name, columns.arrow.names, where="--columns: ")
        return cls(columns, segments, replace(options, index=columns.query.index))

    @property
    def names(self) -> list[str]:
        """The selected columns: the segment and the index, and then the chosen columns, or all."""
        names: list[str] = self.columns.arrow.names
        if not self.options.columns:
            return names
        first = [name for name in (SEGMENT_ID, self.options.index) if name is not None]
        return list(dict.fromkeys([*first, *self.options.columns]))

    @property
    def schema(self) -> pa.Schema:
        """The selected columns, with Rerun's metadata."""
        whole = self.columns.arrow
        return pa.schema([whole.field(name) for name in self.names], whole.metadata)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows. Raises ``UsageError`` for conditions that cannot be evaluated, ``ReadError``."""
        left = self.options.limit
        if left == 0:
            return
        run = RunOptions(self.options.executor, self.options.master, dict(self.options.conf) or None)
        context = SessionContext(SessionConfig().set(_IN_ORDER, "false"))
        frame = self.asked(QueryFrame.of(self.columns, self.segments, run, context=context))
        schema = self.schema
        with self._explained():
            for stream in frame.execute_stream_partitioned():
                for some in stream:
                    batch = some.to_pyarrow()[:left]
                    if len(batch):
                        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                    if left is not None:
                        left -= len(batch)
                        if not left:
                            return

    def explanation(self) -> Explanation:
        """The chunks to read for the rows; raises as :meth:`batches` does."""
        with self._explained():
            return explain_frame(self.columns, self.segments, self.asked)

    def asked(self, frame: DataFrame) -> DataFrame:
        """The rows and columns of a frame that the options select."""
        index, options = self.options.index, self.options
        if index is not None:
            kind = self.columns.arrow.field(index).type
            start, end = (
                None if tick is None else lit(pa.scalar(tick, pa.int64()).cast(kind))
                for tick in (options.start, options.end)
            )
            if start is not None:
                frame = frame.filter(_column(index) >= start)
            if end is not None:
                frame = frame.filter(_column(index) < end)
        with self._explained():
            for condition in options.where:
                try:
                    frame = frame.filter(condition)
                except UsageError as error:
                    raise UsageError(_WHERE + error.message, hint=error.hint) from error
            frame = frame.select(*map(_column, self.names))
            if options.where:
                frame.optimized_logical_plan()
        return frame

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Report a condition that DataFusion refuses, in words of the command line."""
        try:
            yield
        except ChunkmillError:
            raise
        except Exception as error:
            if not self.options.where or not str(error).startswith("DataFusion error"):
                raise
            missing = missing_column(error, self.columns.arrow.names, where=_WHERE)
            if missing is not None:
                raise missing from error
            text = re.sub(r"\s+", " ", str(error).removeprefix("DataFusion error: "))[:_LONGEST]
            raise UsageError(
                _WHERE + text,
                hint="A condition is SQL. Column names are in double quotes, and values are lists: "
                "'\"/speed:value\"[1] > 3'.",
            ) from error


_WHERE: Final = "--where: "
_LONGEST: Final = 300
"""The most characters of DataFusion's message on a condition."""


def _column(name: str) -> Expr:
    escaped = name.replace('"', '""')
    return col(f'"{escaped}"')


_GROUP_ROWS: Final = 1 << 20
"""The most rows in a Parquet row group."""
_GROUP_BYTES: Final = 128 * MIB
"""The most bytes of rows gathered for a row group."""

_Writer = pq.ParquetWriter | pa.ipc.RecordBatchFileWriter


def write_rows(answer: AnswerRows, output: str, *, overwrite: bool, quiet: bool) -> tuple[int, int]:
    """Write the rows, all at once or not at all; return their number, and the bytes of the output.

    One segment gives a file. Several give a folder, with a file in ``rerun_segment_id=ID`` for each segment with rows;
    the id is percent-encoded there, and not a column of the files. Raises ``ReadError``, ``WriteError``.
    """
    path = local_path(output)
    is_folder = len(answer.segments) > 1
    rows = 0
    with Staging.beside(path) as staging:
        made = staging.local / f"rows{path.suffix.lower()}"
        with writing(output):
            if is_folder:
                made.mkdir()
        schema = _without_segment(answer.schema) if is_folder else answer.schema
        for segment_id, batches in groupby(_by_segment(answer), key=lambda pair: pair[0]):
            file = made / f"{SEGMENT_ID}={quote(segment_id, safe='')}" / made.name if is_folder else made
            with writing(output):
                file.parent.mkdir(exist_ok=True)
            rows += _write(file, schema, (batch.select(schema.names) for _, batch in batches), output)
        if not is_folder and not made.exists():
            _write(made, schema, iter(()), output)
        num_bytes = sum(file.stat().st_size for file in [made, *made.rglob("*")] if file.is_file())
        staging.check()
        _publish(made, path, overwrite=overwrite)
    if not quiet:
        summary = f"{counted(rows, 'row')} of {counted(len(answer.segments), 'segment')}, {size(num_bytes)}"
        click.echo(f"{output}: {summary}", err=True)
    return rows, num_bytes


def write_table(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], output: str, *, overwrite: bool
) -> tuple[int, int]:
    """Write rows as one file, all at once or not at all; return their number, and the file's bytes.

    Raises ``WriteError``, ``UnsupportedError``.
    """
    path = local_path(output)
    with Staging.beside(path) as staging:
        made = staging.local / f"rows{path.suffix.lower()}"
        rows = _write(made, schema, batches, output)
        num_bytes = made.stat().st_size
        staging.check()
        _publish(made, path, overwrite=overwrite)
    return rows, num_bytes


def _publish(made: Path, path: Path, *, overwrite: bool) -> None:
    """Move the output to its final name, and replace an earlier one."""
    with writing(str(path)):
        if overwrite and path.is_dir() and not path.is_symlink():
            path.rename(made.with_name("replaced"))
        elif os.path.lexists(path) and made.is_dir():
            path.unlink()
        replace_file(made, path)
        sync_folder(path.parent)


def _without_segment(schema: pa.Schema) -> pa.Schema:
    at = schema.get_field_index(SEGMENT_ID)
    return schema if at < 0 else schema.remove(at)


def _by_segment(answer: AnswerRows) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows in batches of one segment each."""
    for batch in answer.batches():
        ids = batch.column(SEGMENT_ID)
        codes = np.asarray(ids.dictionary_encode().indices)
        starts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()]
        for start, stop in zip(starts, [*starts[1:], len(batch)], strict=True):
            yield ids[start].as_py(), batch[start:stop]


class _Target(io.RawIOBase):
    """A file for Arrow's writers, which write a file's end even when they are closed after a failure.

    So it keeps the first error, and drops later writes.
    """

    def __init__(self, file: Path) -> None:
        self._file = file.open("wb")
        self._failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._failure is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._failure = error
        return len(data)

    def check(self) -> None:
        """Raise the error of a failed write, if there was one."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Write everything to the disk."""
        self.check()
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; errors do not matter, as :meth:`finish` ran before."""
        with contextlib.suppress(OSError):
            self._file.close()
        super().close()


def _write(file: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch], output: str) -> int:
    """Write a file of ``output`` durably; return its rows. Raises ``UnsupportedError`` for types Parquet lacks."""
    rows = 0
    with writing(output):
        target = _Target(file)
    with contextlib.closing(target):
        try:
            writer = (
                pq.ParquetWriter(target, schema, write_page_index=True, write_page_checksum=True)
                if file.suffix == ".parquet"
                else pa.ipc.new_file(target, schema)
            )
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise UnsupportedError(
                f"Parquet cannot hold these columns: {error}", path=output, hint="Write OUT.arrow instead."
            ) from error
        with writer:
            for table in _grouped(batches, schema):
                writer.write_table(table)
                with writing(output):
                    target.check()
                rows += len(table)
        with writing(output):
            target.finish()
    return rows


def _grouped(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches, joined so that small ones make few row groups."""
    some: list[pa.RecordBatch] = []
    rows = num_bytes = 0
    for batch in batches:
        some.append(batch)
        rows, num_bytes = rows + len(batch), num_bytes + batch.nbytes
        if rows >= _GROUP_ROWS or num_bytes >= _GROUP_BYTES:
            yield pa.Table.from_batches(some, schema)
            some, rows, num_bytes = [], 0, 0
    if some:
        yield pa.Table.from_batches(some, schema)


def queried(arguments: Sequence[str], options: QueryOptions) -> Queried:
    """The columns of the answer, and the segments that arguments mean. Raises ``ChunkmillError``."""
    query = Query.of(
        options.index,
        options.contents or None,
        fill_latest_at=options.fill,
        using_index_values=options.values,
        semantics=QuerySemantics.of(options.semantics),
    )
    first = located(arguments[0])
    if is_catalog(first):
        if len(arguments) > 2:
            raise UsageError(
                f"a catalog and {len(arguments) - 1} more inputs were given",
                path=arguments[0],
                hint="Give a catalog and one of its datasets.",
            )
        return queried_at(first, arguments[1] if len(arguments) == 2 else None, query, options.segments)
    if len(arguments) == 2 and not (exists(first) or has_magic(arguments[0]) or format_of_name(first.name)):
        from .catalog_display import no_catalog

        raise no_catalog(arguments[0])
    if len(arguments) == 1 and STORE.is_dataset(first):
        return queried_at(first, None, query, options.segments)
    recordings = _recordings(arguments, options)
    chosen = chosen_segments(options.segments, list(recordings)) if options.segments else recordings
    held = [recordings[segment_id] for segment_id in chosen]
    if options.contents and not any(recording.chunks for recording in held):
        query = replace(query, index=None, values=None)  # only chunks name indexes; a warning says that none is kept
    return queried_recordings(query, held)


def _recordings(arguments: Sequence[str], options: QueryOptions) -> dict[str, HeldRecording]:
    """The recordings of files, by their ids; those with the same id are joined."""
    parts_by_id: dict[str, list[HeldRecording]] = {}
    items = distinct_inputs(arguments)
    if options.output is not None:
        check_apart(options.output, (item.path for item in items))
    for item in items:
        with warnings_as_lines(item.path):
            for segment_id, store in _stores_of(item, options):
                parts_by_id.setdefault(segment_id, []).append(store.segment(segment_id))
    return {segment_id: HeldRecording.of(parts) for segment_id, parts in parts_by_id.items()}


def _stores_of(item: Input, options: QueryOptions) -> Iterator[tuple[str, LazyStore | ChunkStore]]:
    """The recordings of an input: an RRD with a footer is read by its manifest, others by chunks in scratch."""
    row = detect_format(item.path)
    has_options = any(option.name in options.reading for option in row.options)
    if row.name == "rrd" and not has_options and RrdFile(item.path).has_footer:
        reader = RrdReader(item.path)
        for store in reader.recordings():
            yield store.recording_id, reader.store(store=store)
        return
    executor = options.executor or os.environ.get("CHUNKMILL_EXECUTOR") or "auto"
    choices = inputs.SourceOptions(content=options.contents, reading=options.reading, executor=executor)
    for store, stream in inputs.stores_of(item.path, "-".join(item.name.parts), choices, item.episode):
        if store.kind == "recording":
            yield store.recording_id, stream.collect(executor=executor, master=options.master)
