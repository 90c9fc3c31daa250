"""Rows of a query as Parquet or Arrow: one file, or for many segments a folder with a file for each."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import UnsupportedError, writing
from ..execution import Staging, replace_file
from ..folders import sync_folder
from ..limits import MIB
from ..locations import local_path
from ..query import SEGMENT_ID
from ..units import counted, size
from .query_rows import AnswerRows

_GROUP_ROWS: Final = 1 << 20
"""Rows of a row group of Parquet, at most."""
_GROUP_BYTES: Final = 64 * MIB
"""Bytes of rows that are gathered for one."""

_Writer = pq.ParquetWriter | pa.ipc.RecordBatchFileWriter


def write_rows(answer: AnswerRows, output: str, *, overwrite: bool, quiet: bool) -> tuple[int, int]:
    """Write the rows, so that they appear at once, or not at all; gives how many, and the bytes of the output.

    Of one segment they are a file. Of several they are a folder, with a file in ``rerun_segment_id=ID`` for each that
    has rows; the id is percent-encoded there, and not a column of the files. Raises ``ReadError``, ``WriteError``.
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
        told = f"{counted(rows, 'row')} of {counted(len(answer.segments), 'segment')}, {size(num_bytes)}"
        click.echo(f"{output}: {told}", err=True)
    return rows, num_bytes


def write_table(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], output: str, *, overwrite: bool
) -> tuple[int, int]:
    """Write rows as one file, so that it appears at once, or not at all; gives how many, and its bytes.

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
    """Give what was made its name, in place of what is there."""
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
    """A file for Arrow's writers, of which each writes its end as well when it is closed after a failure.

    So what fails first is kept, and what comes then is dropped.
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
        """Raise what failed, if anything has."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Let everything be on the disk."""
        self.check()
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, for whatever it is worth: what matters was finished before."""
        with contextlib.suppress(OSError):
            self._file.close()
        super().close()


def _write(file: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch], output: str) -> int:
    """Write a file of ``output`` durably; gives its rows. Raises ``UnsupportedError`` for types that Parquet lacks."""
    rows = 0
    with writing(output):
        target = _Target(file)
    with contextlib.closing(target):
        try:
            writer = pq.ParquetWriter(target, schema) if file.suffix == ".parquet" else pa.ipc.new_file(target, schema)
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
    """Batches joined, so that small ones make few row groups."""
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
