"""Reads one damaged file after another, in a process of its own that may die of it.

A line of JSON comes in for each file and a line of JSON goes out: what was read, as a digest of all values, or how it
was refused. Run by ``fuzz_recordings.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from chunkmill.engine.chunk import Chunk
from chunkmill.engine.errors import ReadError, ReadWarning, UsageError
from chunkmill.engine.recordings import RecordingsFolder, times_in
from chunkmill.engine.rrd import RecoveringFile, RrdFile
from chunkmill.engine.store import ChunkStore
from chunkmill.readers import BagReader, LeRobotReader
from chunkmill.readers.hdf5 import Hdf5Reader
from chunkmill.readers.lerobot import LeRobotRecording
from chunkmill.readers.mcap import McapReader
from chunkmill.readers.parquet import ParquetReader
from chunkmill.readers.rosbag2 import Rosbag2Reader
from chunkmill.readers.rrd import RrdSource

MIB = 1024 * 1024
BACKSTOP = 4096 * MIB
"""Address space above what the process has at its start; only keeps the machine alive, the bar is on memory used."""


def read_rrd(path: str) -> Iterator[str]:
    """All chunks of all stores, as tasks read them."""
    for store in RrdFile(path).stores():
        yield repr(store)
        source = RrdSource(path, store)
        for split in source.splits():
            for chunk in source.read(split):
                yield chunk_digest(chunk)


def recover_rrd(path: str) -> None:
    """What is left of a damaged file; may only be refused as ``read_rrd`` may."""
    file = RecoveringFile(path)
    for store in file.stores():
        for chunk in file.chunks(store, file.report()):
            chunk.to_record_batch()


def read_mcap(path: str) -> Iterator[str]:
    """All chunks of a recording; their ids are made anew by each reading, and is left out."""
    source = McapReader(path).source()
    for split in source.splits():
        for chunk in source.read(split):
            yield chunk_digest(chunk, ids=False)


def read_bag(path: str) -> Iterator[str]:
    """All chunks of a bag; their ids are made anew by each reading, and is left out."""
    yield from _chunks_of_bag(path)


def read_recovered_bag(path: str) -> Iterator[str]:
    """What is left of a damaged bag."""
    yield from _chunks_of_bag(path, recover=True)


def _chunks_of_bag(path: str, *, recover: bool = False) -> Iterator[str]:
    source = BagReader(path, recover=recover).source()
    for split in source.splits():
        for chunk in source.read(split):
            yield chunk_digest(chunk, ids=False)


def read_parquet(path: str) -> Iterator[str]:
    """All chunks of a file; their ids are made anew by each reading, and is left out."""
    source = ParquetReader(path).source()
    for split in source.splits():
        for chunk in source.read(split):
            yield chunk_digest(chunk, ids=False)


def read_rosbag2(path: str) -> Iterator[str]:
    """All chunks of a database; their ids are made anew by each reading, and is left out."""
    source = Rosbag2Reader(path).source()
    for split in source.splits():
        for chunk in source.read(split):
            yield chunk_digest(chunk, ids=False)


def read_hdf5(path: str) -> Iterator[str]:
    """All chunks of a file; their ids are made anew by each reading, and is left out."""
    source = Hdf5Reader(path).source()
    try:
        _ = source.plan
    except UsageError as error:  # a shape that is damaged does not fit the others, which options can mend
        raise ReadError(error.message, path=error.path, hint=error.hint) from error
    for split in source.splits():
        for chunk in source.read(split):
            yield chunk_digest(chunk, ids=False)


def read_lerobot(path: str) -> Iterator[str]:
    """What ``meta`` says, and the chunks of all episodes with their videos; ids are left out."""
    reader = LeRobotReader(path)
    yield chunk_digest(reader.metadata(), ids=False)
    yield str(LeRobotRecording(Path(path)).report())
    for episode in reader.episodes():
        for chunk in reader.stream(episode).to_chunks(executor="inline"):
            yield chunk_digest(chunk, ids=False)


def read_store(path: str) -> Iterator[str]:
    """The newest version of a kept store, what its manifest says, all chunks and their times."""
    store = ChunkStore.open(path)
    yield f"{store.version}{store.summary()}{store.schema()}"
    for chunk in store:
        yield chunk_digest(chunk)
    folder = RecordingsFolder(path)
    for entry in folder.newest_live()[1]:
        times = times_in(folder, entry)
        if times is not None:
            times.check()
            yield f"{times.num_rows()}{times.timelines()}"


READERS: dict[str, Callable[[str], Iterator[str]]] = {
    "rrd": read_rrd,
    "mcap": read_mcap,
    "bag": read_bag,
    "recovered_bag": read_recovered_bag,
    "parquet": read_parquet,
    "rosbag2": read_rosbag2,
    "hdf5": read_hdf5,
    "lerobot": read_lerobot,
    "store": read_store,
}


def chunk_digest(chunk: Chunk, *, ids: bool = True) -> str:
    """Entity, columns with their metadata, and values."""
    batch = chunk.to_record_batch()
    found = hashlib.blake2b(digest_size=16)
    metadata = {k: v for k, v in (batch.schema.metadata or {}).items() if ids or k != b"rerun:id"}
    found.update(
        repr((chunk.entity_path, chunk.num_rows, sorted(metadata.items()))).encode("utf-8", "backslashreplace")
    )
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not ids and field.type == pa.binary(16):
            continue
        found.update(repr((str(field), sorted((field.metadata or {}).items()))).encode("utf-8", "backslashreplace"))
        found.update(values_of(column))
    return found.hexdigest()


def values_of(column: pa.Array) -> bytes:
    """The values of a column as text; of types that have none in Python, the bytes of its buffers."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    try:
        return repr(column.to_pylist()).encode("utf-8", "backslashreplace")
    except (ValueError, KeyError, OverflowError, TypeError, pa.ArrowException):
        return b"".join(b.to_pybytes() for b in column.buffers() if b is not None)


def attempt(kind: str, path: str) -> dict[str, Any]:
    """Read ``path``: the outcome with time and memory."""
    return measured(lambda: _outcome(kind, path))


def measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``work`` gives, with time, memory and warnings."""
    base = _reset_peak()
    begin = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = work()
    outcome["warned"] = [str(w.message) for w in caught if issubclass(w.category, ReadWarning)]
    outcome["seconds"] = time.process_time() - begin
    outcome["mib"] = (_status("VmHWM") - base) / MIB
    return outcome


def _outcome(kind: str, path: str) -> dict[str, Any]:
    try:
        try:
            return {"outcome": "read", "digest": hashlib.blake2b("\n".join(READERS[kind](path)).encode()).hexdigest()}
        except ReadError as error:
            if kind == "rrd":
                with contextlib.suppress(ReadError):
                    recover_rrd(path)
            if kind == "bag":
                with contextlib.suppress(ReadError):
                    list(read_recovered_bag(path))
            return {"outcome": "refused", "text": str(error), **error.to_dict()}
    except BaseException:  # noqa: BLE001 - to tell of it is what this is for
        return {"outcome": "foreign", "text": traceback.format_exc()}


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _reset_peak() -> int:
    """Forget the peak of memory so far; gives what is in use."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def serve(attempt: Callable[[str, str], dict[str, Any]]) -> None:
    """Serve until the input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    limit = _status("VmSize") + BACKSTOP
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(attempt(job["kind"], job["path"])), file=answers, flush=True)


if __name__ == "__main__":
    serve(attempt)
