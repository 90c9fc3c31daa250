"""A store of many recordings: how long it takes to open, and what an entry costs the driver.

    python benchmarks/scale_catalog.py [--entries 1000 10000] [--schemas 16]
    python benchmarks/scale_catalog.py --recordings FOLDER [--entries 1000 10000]

Each size has a store of its own, written through the writer in commits of 256, and a process that opens it: seconds
until the live entries are there as columns; of the columns of a segment table; of the union of the schemas; and bytes
of Arrow memory an entry, of which there are no objects. Guards: 10,000 entries in 0.3 s together, 2 kB each, no more
than linear. Ends with 1 where one is missed. (0.12 s and 1.3 kB on 2 cores, 24 GiB; 1,000 entries 0.05 s.)

With ``--recordings`` that many RRDs of 38 kB, made in FOLDER unless they are there, are registered with a catalog in
place by one process: milliseconds of its processors and bytes of its memory for each file. Another one opens it:
seconds until it has the ids of all segments, and of their segment table and schema, as in the beginning and when asked
again. Guards: 3 ms and 2 kB a file, linear; 10,000 segments are open in 0.5 s, and their tables there in 0.3 s.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from chunkmill import CatalogClient
from chunkmill.engine.chunk import Chunk, ComponentColumn, ComponentColumnDescriptor, IndexColumnDescriptor, Schema
from chunkmill.engine.recordings import (
    Commit,
    IndexRange,
    RecordingEntry,
    RecordingsFolder,
    SchemaFiles,
    StoreWriter,
    properties_of,
)
from made_recordings import write_drive

SECONDS, BYTES, SLACK = 0.3, 2_000, 1.5
OPENED, CPU = 0.5, 0.003
COLUMNS: Final = ("recording_id", "layer", "source", "added", "chunks", "bytes", "schema", "ranges", "properties")
GROUP: Final = 256


def entry_of(number: int, schemas: list[str], properties: bytes) -> RecordingEntry:
    """An entry as an ingestion of a drive makes it."""
    return RecordingEntry(
        recording_id=f"{number:08x}-0000-4000-8000-000000000000",
        application_id="fleet",
        kind="recording",
        segment_version=1,
        source=f"/data/landing/2026/robot-{number % 40:02d}/drive-{number:06d}.mcap",
        source_size=38_000,
        source_modified_ns=1_700_000_000_000_000_000 + number,
        source_digest=f"{number:032x}",
        source_kept=True,
        rrd=None,
        manifest=f"{number // GROUP:032x}.arrows",
        manifest_offset=number % GROUP * 5000,
        manifest_size=5000,
        manifest_digest=f"{number:032x}",
        shards=(f"{number // GROUP:032x}.rrd",),
        chunks=20,
        rows=400,
        bytes=38_000,
        query_id="fleet",
        batch=number // GROUP,
        added=1_700_000_000.0 + number,
        schema=schemas[number % len(schemas)],
        ranges=(IndexRange("log_tick", "sequence", 0, number), IndexRange("log_time", "timestamp", number, 2 * number)),
        properties=properties,
    )


def made(home: Path, count: int, schemas: int) -> None:
    """A store with ``count`` entries of ``schemas`` distinct schemas of 100 columns."""
    folder = RecordingsFolder(home)
    writer = StoreWriter(folder)
    files = SchemaFiles(folder)
    line = IndexColumnDescriptor("log_time")
    digests = []
    for which in range(schemas):
        columns = [
            ComponentColumnDescriptor(f"/robot/joint{at}", f"v{which % 4}", datatype=pa.list_(pa.float64()))
            for at in range(100 + which)
        ]
        digests.append(files.put(Schema([line], columns).to_arrow()))
    static = Chunk.from_columns("/__properties", [], [ComponentColumn("RecordingInfo:start_time", [[1]])])
    properties = properties_of([static])
    for first in range(0, count, GROUP):
        entries = [entry_of(n, digests, properties) for n in range(first, min(first + GROUP, count))]
        writer.publish([replace(e) for e in entries], Commit("ingest", "fleet", first // GROUP + 1))


def opened(home: str, answers: Any) -> None:
    """Open a store, five times, and tell the medians."""
    told = []
    warm = RecordingsFolder(home)
    warm.version()
    for _ in range(5):
        gc.collect()
        arrow = pa.total_allocated_bytes()
        began = time.perf_counter()
        folder = RecordingsFolder(home)
        live = folder.live(folder.version())
        seconds = [time.perf_counter() - began]
        began = time.perf_counter()
        table = live.columns(*COLUMNS)
        segments = table.group_by("recording_id").aggregate([("chunks", "sum"), ("bytes", "sum"), ("added", "max")])
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        union = SchemaFiles(folder).union(pc.unique(table["schema"]).to_pylist())
        seconds.append(time.perf_counter() - began)
        told.append((seconds, pa.total_allocated_bytes() - arrow, len(segments), len(union)))
        del live, table, segments
    told.sort(key=lambda one: sum(one[0]))
    seconds, _, segments, columns = told[2]
    answers.put((seconds, max(taken for _, taken, _, _ in told), segments, columns))


def registered(home: str, files: list[str], answers: Any) -> None:
    """Register files, and tell what each cost this process: seconds, seconds of processors, bytes."""
    client = CatalogClient(home)
    client.create_dataset("warm").register(files[:50]).wait()
    dataset = client.create_dataset("drives")
    gc.collect()
    before, began, cpu = peak_memory(), time.perf_counter(), time.process_time()
    dataset.register(files).wait()
    spent = time.perf_counter() - began, time.process_time() - cpu, peak_memory() - before
    answers.put([one / len(files) for one in spent])


def peak_memory() -> int:
    """Bytes that this process had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def asked(home: str, answers: Any) -> None:
    """Open a catalog: seconds until the ids of the segments are there, and of their tables, at once and once more."""
    CatalogClient(home).get_dataset("warm").segment_table().to_arrow_table()
    seconds = []
    began = time.perf_counter()
    dataset = CatalogClient(home).get_dataset("drives")
    ids = dataset.segment_ids()
    seconds.append(time.perf_counter() - began)
    for _ in range(2):
        began = time.perf_counter()
        assert len(dataset.segment_table().to_arrow_table()) == len(ids)
        dataset.schema()
        seconds.append(time.perf_counter() - began)
    answers.put(seconds)


def in_process(function: Any, *arguments: Any) -> Any:
    """What a function tells in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    process = spawn.Process(target=function, args=(*arguments, answers))
    process.start()
    told = answers.get(timeout=100)
    process.join()
    return told


def registrations(recordings: Path, counts: list[int]) -> bool:
    """A line for each size; whether a bar is missed."""
    recordings.mkdir(parents=True, exist_ok=True)
    files = [recordings / f"{number:06d}.rrd" for number in range(max(counts))]
    for number, path in enumerate(files):
        if not path.exists():
            write_drive(path, number)
    print(f"{'files':>8} {'s':>8} {'cpu ms':>8} {'bytes each':>10} {'open s':>8} {'tables s':>8} {'again s':>8}")
    each, missed = [], False
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            seconds, cpu, taken = in_process(registered, folder, list(map(str, files[:count])))
            opens, tables, again = medians([in_process(asked, folder) for _ in range(5)])
        each.append((count, cpu, taken * count))
        print(
            f"{count:8,} {seconds * count:8.2f} {cpu * 1e3:8.2f} {taken:10,.0f} {opens:8.3f} {tables:8.3f} {again:8.3f}"
        )
        missed |= cpu > CPU or opens > OPENED * max(1.0, count / 10_000) or tables > SECONDS * max(1.0, count / 10_000)
    (first, _, least), (last, cpu, most) = each[0], each[-1]
    kept = (most - least) / (last - first) if last > first else most / last
    print(f"{kept:,.0f} bytes for each file more, {cpu / each[0][1]:.2f} of the time of each")
    return missed or kept > BYTES or cpu > SLACK * each[0][1]


def medians(rounds: list[list[float]]) -> list[float]:
    """The median of each figure."""
    return [statistics.median(figures) for figures in zip(*rounds, strict=True)]


def main() -> int:
    """Print a line for each size; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--schemas", type=int, default=16)
    parser.add_argument("--recordings", type=Path)
    options = parser.parse_args()
    if options.recordings is not None:
        return int(registrations(options.recordings, options.entries))
    per_entry, missed = [], False
    print(
        f"{'entries':>8} {'open s':>8} {'table s':>8} {'schema s':>8} {'bytes each':>10} {'segments':>8} {'columns':>8}"
    )
    for count in options.entries:
        with tempfile.TemporaryDirectory() as folder:
            made(Path(folder), count, options.schemas)
            seconds, taken, segments, columns = in_process(opened, folder)
        whole = sum(seconds)
        per_entry.append(max(whole - 0.02, 0.0) / count)
        print(f"{count:8,} {seconds[0]:8.3f} {seconds[1]:8.3f} {seconds[2]:8.3f} {taken / count:10,.0f} ", end="")
        print(f"{segments:8,} {columns:8,}")
        missed |= whole > SECONDS * max(1.0, count / 10_000) or taken > BYTES * count
    missed |= len(per_entry) > 1 and per_entry[-1] > SLACK * max(per_entry[0], 1e-6)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
