"""Digests of the contents of files, which tell two files of the same content from two of the same name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import xxhash

from ..errors import ChunkmillError, ReadError, SourceMissingError
from ..execution.choice import executor_name
from ..execution.chunk_rows import SPARK_SCHEMA, RowWriter, parse_rows
from ..execution.failures import failure_from_dict, failure_to_dict
from ..execution.runner import RunOptions
from ..limits import MIB
from ..locations import located
from ..objects import ObjectUrl, bucket_of
from ..rrd.opening import open_positional
from .files import LandedFile

_WINDOW: Final = 4 * MIB
_ON_DRIVER: Final = 256 * MIB
"""Bytes up to which digests are taken where the ingestion runs; what is more is shared among Spark's workers."""


def landed(path: str) -> LandedFile | None:
    """The file that is at a path or URL now; None where there is none."""
    found = located(path)
    try:
        if isinstance(found, ObjectUrl):
            info = bucket_of(found).head(found.key)
            return LandedFile(path, info.size, info.modified_ns)
        stat = found.stat()
    except (FileNotFoundError, NotADirectoryError, SourceMissingError):
        return None
    return LandedFile(path, stat.st_size, stat.st_mtime_ns)


def digest_of_file(file: LandedFile) -> str:
    """XXH3-128 of a file's content, hexadecimal. Raises ``ReadError``; a transient one where the file has changed."""
    digest = xxhash.xxh3_128()
    with open_positional(file.path) as source:
        if source.size != file.size:
            raise ReadError(
                f"the file has {source.size:,} bytes now, and had {file.size:,} when it was seen",
                path=file.path,
                transient=True,
            )
        for offset in range(0, file.size, _WINDOW):
            digest.update(source.read(offset, min(_WINDOW, file.size - offset), what="the file"))
    return digest.hexdigest()


def digest_files(files: Sequence[LandedFile], options: RunOptions) -> list[str | Exception]:
    """The digest of each file, or the error for which it has none."""
    if executor_name(options.executor) == "inline" or sum(f.size for f in files) <= _ON_DRIVER:
        with ThreadPoolExecutor(max_workers=2, thread_name_prefix="chunkmill-digest") as pool:
            return list(pool.map(_tried, files))
    from ..execution.spark_stage import rows_of, stage_of
    from ..spark import running_session

    spark = running_session(options.master, options.conf)
    stage = stage_of(spark, _DigestJob(tuple(files)), range(len(files) + 1), SPARK_SCHEMA)
    _, notes = parse_rows(rows_of(spark, stage))
    found: dict[int, str | Exception] = {}
    for note in notes:
        error = failure_from_dict(note.data) if note.kind == "failure" else None
        found[note.task] = error if isinstance(error, Exception) else note.data["digest"]
    return [found[i] for i in range(len(files))]


def _tried(file: LandedFile) -> str | Exception:
    try:
        return digest_of_file(file)
    except (ChunkmillError, OSError) as error:
        return error


@dataclass(frozen=True, slots=True)
class _DigestJob:
    files: tuple[LandedFile, ...]

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """One row, of kind ``digest`` or ``failure``."""
        rows = RowWriter(index)
        found = _tried(self.files[index])
        if isinstance(found, str):
            rows.note("digest", {"digest": found})
        else:
            rows.note("failure", failure_to_dict(found, self.files[index].path))
        yield rows.batch()
