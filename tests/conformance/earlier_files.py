"""Write a lake, tables, a store and the checkpoint of an ingestion, as this build does, for later builds to open.

    PYTHON -m tests.run conformance earlier_files ARCHIVE.tar.xz

PYTHON is of an environment with the build that is to write. ``tests/data/README.md`` says which build has written each
``tests/data/earlier_*.tar.xz``. All places are named by way of ``/proc/self/cwd``, so that a process which works in a
copy finds the files that the copy names.
"""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa
from chunkmill import CatalogClient, Chunk, Ingest, LazyChunkStream, RrdReader, udf
from chunkmill.engine.chunk import ComponentDescriptor
from chunkmill.engine.tables import connect

HERE = Path("/proc/self/cwd")
NOTES = {"monday": "Rain, then fog.", "tuesday": "Sun all day; no fog", "friday": "Snow"}
LONG_AGO = 1_700_000_000.0
"""The time of files in landing folders: they have settled."""


@udf(data_type=pa.float64())
def speed(meters: float, seconds: float) -> float:
    """Compute a column of the table and of the view."""
    return meters / seconds


@udf(data_type=pa.int64())
def length(note: str) -> int:
    """Compute a column of the catalog's table."""
    return len(note)


def recording(path: Path, name: str, rows: int = 3) -> str:
    """Write an RRD with numbers, vectors, and a note, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    vectors = [[[float(row + at) for at in range(4)]] for row in range(rows)]
    numbers = [[float(row)] for row in range(rows)]
    frames = {"frame": pa.array(range(rows))}
    chunks = [
        Chunk.build(
            "/camera",
            frames,
            [(ComponentDescriptor("embedding"), pa.array(vectors, pa.list_(pa.list_(pa.float32(), 4))))],
        ),
        Chunk.build("/signal", frames, [(ComponentDescriptor("value"), pa.array(numbers))]),
        Chunk.build("/notes", {"frame": pa.array([1])}, [(ComponentDescriptor("text"), pa.array([[NOTES[name]]]))]),
    ]
    draft = path.with_name(f".{path.name}")
    LazyChunkStream.from_iter(chunks).write_rrd(draft, application_id="fleet", recording_id=name, executor="inline")
    os.utime(draft, (LONG_AGO, LONG_AGO))
    draft.rename(path)
    return str(path)


def layer(path: Path, name: str) -> str:
    """Write an RRD with numbers of another entity, for a second layer of a segment, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    grip = Chunk.build("/grip", {"frame": pa.array(range(3))}, [(ComponentDescriptor("force"), pa.array([[7.0]] * 3))])
    LazyChunkStream.from_iter([grip]).write_rrd(path, application_id="fleet", recording_id=name, executor="inline")
    return str(path)


def write_lake(place: Path) -> None:
    """Write a catalog with a dataset of two layers and an index of words, and a table with a computed column."""
    client = CatalogClient(place)
    dataset = client.create_dataset("drives")
    dataset.register([recording(HERE / "recordings" / f"{name}.rrd", name) for name in ("monday", "tuesday")]).wait()
    dataset.register(layer(HERE / "recordings" / "grip.rrd", "monday"), layer_name="grip", copy=True).wait()
    dataset.create_fts_search_index(column="/notes:text", time_index="frame")
    labels = client.create_table("labels", pa.schema([("drive", pa.string()), ("note", pa.string())]))
    labels.append(drive=list(NOTES)[:2], note=list(NOTES.values())[:2])
    computed = labels.computed(executor="inline")
    computed.add_columns({"length": length})
    computed.backfill("length")


def write_tables(place: Path) -> None:
    """Write a table with a computed column, an index of words, and a view of it."""
    tables = connect(place, executor="inline")
    rides = tables.create_table(
        "rides",
        [{"ride": n, "meters": 1000.0 * n, "seconds": 250.0, "note": NOTES["monday"]} for n in range(1, 6)],
    )
    rides.add_columns({"speed": speed})
    rides.backfill("speed")
    rides.create_fts_index("note")
    query = rides.search(None).where("meters >= 2000").select({"ride": "ride", "pace": (speed, ["seconds", "meters"])})
    tables.create_materialized_view("fast", query).refresh()


def ingest(landing: Path, into: Path) -> None:
    """Ingest a recording, and a file that goes into quarantine, by a streaming query of Spark."""
    recording(landing / "monday.rrd", "monday")
    (landing / "broken.mcap").write_bytes(b"broken")
    os.utime(landing / "broken.mcap", (LONG_AGO, LONG_AGO))
    query = Ingest(landing, into=into, settle=0.2).start(once=True)
    if not query.await_termination(300):
        raise RuntimeError("the ingestion took more than five minutes")


def write_all() -> None:
    """Write everything below the working directory."""
    write_lake(HERE / "lake")
    write_tables(HERE / "tables")
    ingest(HERE / "landing", HERE / "drives")
    for content in ("/signal", None):  # two versions
        stream = RrdReader(HERE / "recordings" / "monday.rrd").stream()
        kept = stream.filter(content=content) if content else stream
        kept.collect(into=HERE / "kept", executor="inline")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    archive = parser.parse_args().archive.absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_all()
        with tarfile.open(archive, "w:xz", preset=9) as tar:
            tar.add(".", filter=nobodys)
        os.chdir("/")
    return 0


def nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a file of an archive without who wrote it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    import earlier_files  # so that functions of tables are of this module

    sys.exit(earlier_files.main())
