"""What the recordings, labels and tables of ``lake_hour.py`` hold, all of it from the number of a drive."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from chunkmill import udf
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.rrd import RrdWriter, StoreEntry

TICKS: Final = 20
PHOTO_BYTES: Final = 2_000
WIDTH: Final = 4
KEY: Final = {"rerun:is_table_index": "true"}
FRAMES: Final = pa.schema(
    [
        pa.field("drive", pa.string(), nullable=False, metadata=KEY),
        pa.field("tick", pa.int64(), nullable=False, metadata=KEY),
        pa.field("photo", pa.binary()),
    ]
)


def segment_of(number: int) -> str:
    """The id of the recording of a drive."""
    return f"drive-{number:06d}"


def number_of(segment: str) -> int:
    """The number of a drive by the id of its recording."""
    return int(segment.rpartition("-")[2])


def photo_of(number: int, tick: int) -> bytes:
    """Some bytes that no other tick of any drive has."""
    return hashlib.shake_128(f"{number}:{tick}".encode()).digest(PHOTO_BYTES)


def label_of(number: int) -> str:
    """What the layer of labels says of a drive."""
    return f"kind {number % 7}"


@udf(data_type=pa.list_(pa.float32(), WIDTH), version="1")
def embedding(photo: bytes) -> Any:
    """The first bytes of a photo, as numbers below 1."""
    return [byte / 256 for byte in photo[:WIDTH]]


@udf(data_type=pa.int64(), version="1")
def brightness(photo: bytes) -> Any:
    """The sum of a photo's bytes."""
    return sum(photo)


def drive_rows(number: int) -> Iterator[tuple[int, float, bytes]]:
    """The rows of a drive's recording: tick, x and photo."""
    for tick in range(TICKS):
        yield tick, float(number * 1000 + tick), photo_of(number, tick)


def write_drive(path: Path, number: int) -> None:
    """The recording of a drive."""
    ticks, values, photos = zip(*drive_rows(number), strict=True)
    columns = [ComponentColumn("x", values), ComponentColumn("photo", photos)]
    _write(path, number, Chunk.from_columns("/pose", [TimeColumn("tick", sequence=ticks)], columns))


def write_labels(path: Path, number: int) -> None:
    """The layer of labels of a drive."""
    columns = [ComponentColumn("label", [label_of(number)])]
    _write(path, number, Chunk.from_columns("/labels", [TimeColumn("tick", sequence=[0])], columns))


def _write(path: Path, number: int, chunk: Chunk) -> None:
    store = StoreEntry("recording", "lake", segment_of(number))
    with RrdWriter(path) as writer:
        writer.begin_store(store)
        writer.append(store, chunk)
        writer.finish()


def wrong_rows(number: int, rows: Iterator[Mapping[str, Any]]) -> str | None:
    """What is wrong with the rows that a query gave of a drive, if anything is."""
    found = [(row["tick"], *(row[name][0] for name in ("/pose:x", "/pose:photo"))) for row in rows]
    expected = list(drive_rows(number))
    if found == expected:
        return None
    ticks = [row[0] for row in found]
    return f"{segment_of(number)} has {len(found)} rows, of ticks {ticks[:30]}, not {len(expected)}, or other values"


def wrong_frames(rows: pa.Table, *, complete: bool) -> str | None:
    """What is wrong with the rows of the table of frames: a value, a row twice, or, at the end, a null."""
    seen: set[tuple[str, int]] = set()
    for row in rows.to_pylist():
        at, photo = (row["drive"], row["tick"]), photo_of(number_of(row["drive"]), row["tick"])
        if at in seen:
            return f"{at} is there twice"
        seen.add(at)
        if row["photo"] != photo:
            return f"{at} has another photo"
        value = row.get("embedding")
        if value is None and complete:
            return f"{at} has no embedding"
        if value is not None and value != [byte / 256 for byte in photo[:WIDTH]]:
            return f"{at} has the embedding {value}"
    return None


def wrong_view(rows: pa.Table, drives: Iterable[int] | None) -> str | None:
    """What is wrong with the view of every other frame, which has all of some drives if they are given."""
    found = {(row["drive"], row["tick"]): row["light"] for row in rows.to_pylist() if row["__is_set"]}
    for (segment, tick), light in found.items():
        expected = sum(photo_of(number_of(segment), tick))
        if tick % 2 or light != expected:
            return f"the view has {light} for tick {tick} of {segment}, not {expected}"
    wanted = None if drives is None else {(segment_of(n), tick) for n in drives for tick in range(0, TICKS, 2)}
    if wanted is not None and (found.keys() != wanted or rows.num_rows != len(wanted)):
        return f"the view has {rows.num_rows} rows, {len(found)} of them computed, of {len(wanted)}"
    return None
