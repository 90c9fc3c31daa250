"""Digests of the contents of files, which tell two files of the same content from two of the same name."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import xxhash

from ..errors import ChunkmillError, ReadError, SourceMissingError
from ..execution.choice import executor_name
from ..execution.stage import RunOptions, Stage, TaskRun
from ..execution.work import Task
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
    tasks = [Task(i, file.path, file.size) for i, file in enumerate(files)]
    ran = Stage(_DigestBody(tuple(files)), tasks).run(replace(options, progress=None))
    return [told if isinstance(told, Exception) else str(told["digest"]) for told in ran.outcomes()]


def _tried(file: LandedFile) -> str | Exception:
    try:
        return digest_of_file(file)
    except (ChunkmillError, OSError) as error:
        return error


@dataclass(frozen=True, slots=True)
class _DigestBody:
    files: tuple[LandedFile, ...]

    def label(self, index: int) -> str:
        return self.files[index].path

    def run(self, task: TaskRun) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        yield from ()
        return {"digest": digest_of_file(self.files[task.index])}
