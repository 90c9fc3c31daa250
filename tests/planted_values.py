"""A lake with planted values, and where bytes of them are below it, in files of any format."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from chunkmill.engine import Ingest, LazyChunkStream
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.catalog.segments import SegmentProperties
from chunkmill.engine.chunk import Chunk, ComponentDescriptor
from chunkmill.engine.locations import Location
from chunkmill.engine.rrd import RrdFile
from chunkmill.engine.storage import PlacedFile, files_at, folder_and_name
from chunkmill.engine.tables import connect, udf

SECRET = "zebrafish"
"""The word that the segment to be forgotten has everywhere, and no other."""
NUMBER = 0x5E_C2_E7_A1_1D_00_57_31
MARKS = (SECRET.encode(), NUMBER.to_bytes(8, "little"), b"carol")
"""The bytes of a text, of a number, and of the segment's id: none of them may be left."""
GOING = "carol's/1\""
STAYING = ("alice", "bob", "dave")


@udf(data_type=pa.string())
def shout(note: str) -> str:
    """Compute a column that has the planted word, too."""
    return f"{note}!"


def recording(path: Path, name: str, *, layer: str = "base", rows: int = 6) -> Path:
    """An RRD whose values have the planted ones if it is of the segment that goes."""
    word = SECRET if name == GOING else f"{name}-word"
    number = NUMBER if name == GOING else len(name)
    frames = {"frame": pa.array(range(rows)), "ticks": pa.array([number + at for at in range(rows)])}
    texts = [[f"{word} {layer} {at}"] for at in range(rows)]
    chunks = [
        Chunk.build(f"/{layer}/notes", frames, [(ComponentDescriptor("text"), pa.array(texts))]),
        Chunk.build(f"/{layer}/numbers", frames, [(ComponentDescriptor("n"), pa.array([[number]] * rows))]),
        Chunk.build(
            f"/{layer}/vectors",
            frames,
            [
                (
                    ComponentDescriptor("v"),
                    pa.array([[[float(at), 1.0, 2.0, 3.0]] for at in range(rows)], pa.list_(pa.list_(pa.float32(), 4))),
                )
            ],
        ),
        Chunk.build("/__properties", {}, [(ComponentDescriptor("driver"), pa.array([[f"{word} driver"]]))]),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    LazyChunkStream.from_iter(chunks).write_rrd(path, application_id="tests", recording_id=name, executor="inline")
    return path


def lake_of(root: Location | str, scratch: Path) -> DatasetEntry:
    """A dataset with shards of several segments, layers, versions, indexes, properties, tables, and views of these."""
    client = CatalogClient(str(root))
    dataset = client.create_dataset("drives")
    landing = scratch / "landing"
    names = [*STAYING[:2], GOING, STAYING[2]]
    for name in names:
        recording(landing / f"{name}-drive.rrd" if name != GOING else landing / "x.rrd", name)
    query = Ingest(landing, into=dataset, settle=0, executor="inline", optimize=None, checkpoint=scratch / "at")
    assert query.start(once=True).await_termination(60)
    more = [recording(scratch / "more" / f"{at}.rrd", name, layer="extra") for at, name in enumerate(names)]
    dataset.register(list(map(str, more)), layer_name="extra", copy=True).wait()
    again = recording(scratch / "again" / "y.rrd", GOING, layer="extra", rows=9)
    dataset.register(str(again), layer_name="extra", copy=True).wait()
    dataset.create_fts_search_index(column="/base/notes:text", time_index="frame")
    dataset.create_vector_search_index(
        column="/base/vectors:v", time_index="frame", target_partition_num_rows=4096, num_sub_vectors=2,
        distance_metric="L2",
    )  # fmt: skip
    properties = SegmentProperties(dataset)
    for name in names:
        for at in range(3):
            row = pa.record_batch({"property:seen": pa.array([f"{SECRET if name == GOING else name} {at}"])})
            assert properties.replace(name, properties.of(name), row)
    assert properties.delete_all({name: properties.of(name) for name in (GOING, "alice")})
    assert properties.replace(GOING, properties.of(GOING), row.set_column(0, "property:seen", pa.array([SECRET])))
    asset = Chunk.build("/mesh", {}, [(ComponentDescriptor("text"), pa.array([["a mesh"]]))])
    mesh = scratch / "mesh.rrd"
    LazyChunkStream.from_iter([asset]).write_rrd(mesh, application_id="tests", recording_id="mesh", executor="inline")
    dataset.register_asset(mesh, segments=[GOING, "bob"])
    return dataset


def with_tables(dataset: DatasetEntry, place: Location | str) -> None:
    """Tables of the dataset's rows, with a computed column, an index of words, and a view of a view."""
    tables = connect(place, executor="inline")
    rows = dataset.rows_table(tables, "rows", "frame", columns=["/base/notes:text", "/base/numbers:n"])
    column = next(name for name in rows.schema.names if "text" in name)
    query = rows.search(None).select({"frame": "frame", "note": f"`{column}`[1]"})
    notes = tables.create_materialized_view("notes", query)
    notes.refresh()
    notes.add_columns({"loud": (shout, ["note"])})
    notes.backfill("loud")
    notes.create_fts_index("note")
    tables.create_materialized_view("louder", notes.search(None).select({"l": "loud"})).refresh()


def traces(root: Location, marks: tuple[bytes, ...] = MARKS) -> dict[str, set[bytes]]:
    """The files below a place that have one of the marks: as they are, or once they are decompressed."""
    found: dict[str, set[bytes]] = {}
    for file in files_at(root):
        has = {mark for data in _contents(root, file) for mark in marks if mark in data}
        has |= {mark for mark in marks if mark in file.path.encode()}
        if has:
            found[file.path] = has
    return found


def _contents(root: Location, file: PlacedFile) -> Iterator[bytes]:
    folder, name = folder_and_name(root, file.path)
    raw = folder.get(name)
    yield raw
    if name.endswith(".rrd"):
        reader = RrdFile(folder.place(name))
        for store in reader.stores():
            for chunk in reader.chunks(store):
                yield from _bytes_of(pa.Table.from_batches([chunk.to_record_batch()]))
    elif name.endswith((".arrow", ".arrows")) and raw[:6] == b"ARROW1":
        for piece in _arrow_files(raw):
            yield from _bytes_of(piece)
    elif name.endswith(".json"):
        yield from _texts(raw)
    elif name.endswith(".lance"):
        yield from _lance(folder.place(name))


def _arrow_files(raw: bytes) -> Iterator[pa.Table]:
    try:
        yield pa.ipc.open_file(pa.py_buffer(raw)).read_all()
    except pa.ArrowException:
        at = 0
        while (at := raw.find(b"ARROW1\0\0", at)) >= 0:  # several behind each other, with times between
            end = raw.find(b"ARROW1", at + 8)
            if end < 0:
                return
            yield pa.ipc.open_file(pa.py_buffer(raw[at : end + 6])).read_all()
            at = end + 6


def _bytes_of(table: pa.Table) -> Iterator[bytes]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    yield sink.getvalue().to_pybytes()


def _texts(raw: bytes) -> Iterator[bytes]:
    """The texts in JSON, and what they are in base64 or hex."""

    def walk(value: Any) -> Iterator[bytes]:
        if isinstance(value, dict):
            for key, part in value.items():
                yield key.encode()
                yield from walk(part)
        elif isinstance(value, list):
            for part in value:
                yield from walk(part)
        elif isinstance(value, str):
            yield value.encode()
            try:
                yield base64.b64decode(value, validate=True)
            except ValueError:
                return

    try:
        yield from walk(json.loads(raw))
    except ValueError:
        for line in raw.splitlines():
            try:
                yield from walk(json.loads(line))
            except ValueError:
                yield line


def _lance(place: str) -> Iterator[bytes]:
    import lance.file

    try:
        options = None
        if "://" in place:
            from chunkmill.engine.storage import ObjectUrl, storage_options

            options = storage_options(ObjectUrl.of(place))
        reader = lance.file.LanceFileReader(place, storage_options=options)
        yield from _bytes_of(reader.read_all().to_table())
    except Exception as error:
        yield f"unread {place}: {error!r}".encode()
        raise
