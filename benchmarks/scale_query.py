"""Planning of queries over many large segments: manifests are made, payloads are not.

    python benchmarks/scale_query.py [--segments 1000 10000] [--chunks 10000]

Each size has a dataset of its own whose segments follow each other in time. A new process asks for the rows of ten of
them by a range of the index: seconds until the reader is there, until DataFusion has its plan, and until it is known
which chunks are needed; once, and again in the same process; and the bytes that the process took. Guards: 1 s together
for 10,000 segments of 10,000 chunks the first time, growing no more than linearly, within 300 MB. Ends with 1 where one
is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from chunkmill import CatalogClient, Chunk
from chunkmill.engine.chunk import ComponentDescriptor, Schema
from chunkmill.engine.recordings import Commit, IndexRange, SchemaFiles, StoreWriter
from chunkmill.engine.recordings.folder import manifest_bytes
from chunkmill.engine.rrd import ChunkEntry, ChunkTable
from scale_catalog import GROUP, SLACK, entry_of, in_process, peak_memory

SECONDS, MEGABYTES, TOUCHED = 1.0, 300, 10
_SPAN: Final = 3_600_000_000_000
_CHUNK: Final = 1_000_000
"""Bytes of a chunk: 10,000 of them are a segment of 10 GB."""


def chunks_of(count: int) -> list[ChunkEntry]:
    """Chunks of 40 entities that would lie in a file, one behind the other; within the hour from 0 on."""
    found = []
    for number in range(count):
        turn = number // 40
        ends = np.array([turn, turn + 1]) * (_SPAN // (count // 40 + 1)) - np.array([0, 1])
        values = pa.array([[1.0], [2.0]])
        times = {"log_time": pa.array(ends).view(pa.timestamp("ns"))}
        chunk = Chunk.build(f"/robot/joint_{number % 40}", times, [(ComponentDescriptor("scalars"), values)])
        found.append(ChunkEntry(chunk.header, 1000 + number * _CHUNK, _CHUNK - 16, 2 * _CHUNK))
    return found


def span_of(number: int) -> tuple[int, int]:
    """The hour of a segment. All have the manifest of the first hour, in which ten are."""
    begin = _SPAN * (number // TOUCHED)
    return begin, begin + _SPAN - 1


def made(home: str, segments: int, chunks: int) -> None:
    """A catalog with a dataset of so many segments."""
    dataset = CatalogClient(home).create_dataset("drives")
    folder = dataset._folder()
    writer = StoreWriter(folder)
    entries = chunks_of(chunks)
    digest = SchemaFiles(folder).put(Schema.from_headers(entry.header for entry in entries[:40]).to_arrow())
    shard = f"{0:032x}.rrd"
    data = manifest_bytes(ChunkTable.of(entries, shard))
    name = hashlib.sha256(data).hexdigest()[:32] + ".arrows"
    folder.manifests.make()
    folder.manifests.put(name, data)
    for first in range(0, segments, GROUP):
        some = []
        for number in range(first, min(first + GROUP, segments)):
            known = {
                "manifest": name,
                "manifest_offset": 0,
                "manifest_size": len(data),
                "manifest_digest": xxhash.xxh3_128_hexdigest(data),
                "shards": (shard,),
                "chunks": chunks,
                "rows": 2 * chunks,
                "bytes": chunks * _CHUNK,
                "ranges": (IndexRange("log_time", "timestamp", *span_of(number)),),
            }
            some.append(replace(entry_of(number, [digest], b""), properties=None, **known))
        writer.publish(some, Commit("ingest", "fleet", first // GROUP + 1))


def asked(home: str, answers: Any) -> None:
    """Plan a query of ten segments, twice."""
    from chunkmill.engine.frames.answer import possible_segments
    from chunkmill.engine.frames.plan import RowRequest, needed_bytes, stored_bytes
    from datafusion import col, lit

    told = []
    until = pa.scalar(_SPAN // 100, pa.timestamp("ns"))
    predicate = pc.field("log_time") < until
    warm = CatalogClient(home).create_dataset("empty")
    warm.segment_table().to_arrow_table()
    dataset = CatalogClient(home).get_dataset("drives")
    for _ in range(2):
        began = time.perf_counter()
        frame = dataset.reader("log_time")
        seconds = [time.perf_counter() - began]
        frame.filter(col("log_time") < lit(until)).execution_plan()
        seconds.append(time.perf_counter() - began)
        answer = frame._answer
        segments = possible_segments(answer.columns, answer.segments, predicate)
        needed = needed_bytes(segments, RowRequest(None, predicate), stored_bytes(segments))
        seconds.append(time.perf_counter() - began)
        told.append((seconds, len(segments), int(needed.sum())))
    answers.put((told, peak_memory()))


def main() -> int:
    """Print a line for each size; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--chunks", type=int, default=10_000)
    options = parser.parse_args()
    per_segment, missed = [], False
    print("segments reader s   plan s needed s  again s  touched MB needed MB taken")
    for count in options.segments:
        with tempfile.TemporaryDirectory() as home:
            made(home, count, options.chunks)
            ((first, touched, needed), (again, _, _)), taken = in_process(asked, home)
        per_segment.append(max(first[-1] - 0.2, 0.0) / count)
        print(f"{count:8,} {first[0]:8.3f} {first[1]:8.3f} {first[2]:8.3f} {again[2]:8.3f} {touched:8,} ", end="")
        print(f"{needed / 1e6:9.1f} {taken / 1e6:8.0f}")
        missed |= touched != TOUCHED or first[-1] > SECONDS * max(1.0, count / 10_000) or taken > MEGABYTES * 1e6
    missed |= len(per_segment) > 1 and per_segment[-1] > SLACK * max(per_segment[0], 1e-5)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
