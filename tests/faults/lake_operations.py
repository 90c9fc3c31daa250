"""Every operation that writes to a lake, by its name, on one small lake; and all that the lake has, to be compared."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from catalog_writers import prepare, write_file
from chunkmill.engine import Ingest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.uploads import NewUpload, UploadParts, Uploads
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.recordings import RecordingsFolder
from chunkmill.engine.rrd import RrdWriter, StoreEntry
from chunkmill.engine.store import RecordingStore
from chunkmill.engine.tables import TableConnection, connect, remember, udf
from fault_content import kept_content

State = dict[str, Any]
"""The entries, and what each has, by its name."""

ROWS: Final = 300
LENGTH: Final = 16
UPLOADED: Final = b"RRF2" + b"uploaded" * 5_000
WORDS: Final = "/words:Text:text"
VECTORS: Final = "/vectors:Vector:values"


@udf
def squared(v: int) -> int:
    """The square of a value."""
    return v * v


@udf
def doubled(v: int) -> int:
    """Twice a value, of more bytes than fit where a disk is full."""
    return v * 2


class Lake:
    """A lake in a folder; what its operations read lies beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.place = root / "disk" / "lake"
        self.client = CatalogClient(self.place)

    @property
    def tables(self) -> TableConnection:
        """The tables outside the catalog, with views."""
        remember(squared)
        remember(doubled)
        return connect(str(self.place.parent / "tables"), executor="inline")

    def register(self, *names: str, **options: Any) -> None:
        """Register files with the dataset."""
        places = [str(self.root / "files" / name) for name in names]
        self.client.get_dataset("drives").register(places, **options).wait()

    def ingest(self, name: str, into: Any) -> None:
        """Ingest a folder once."""
        query = Ingest(
            self.root / name,
            into=into,
            checkpoint=self.place.parent / f"checkpoint-{name}",
            settle=0,
            executor="inline",
            optimize=None,
        ).start(once=True)
        if not query.await_termination(30):
            raise TimeoutError("the ingestion does not end")

    def upload(self, key: str, *, in_parts: bool) -> None:
        """Upload a file as the server does for a client."""
        uploads = Uploads(self.place)
        if not in_parts:
            _sent(uploads.begin(key, len(UPLOADED)))
            return
        parts, etags = UploadParts(uploads, "ab12"), {}
        for number in (1, 2):
            part = parts.begin(number, len(UPLOADED))
            _sent(part)
            etags[number] = part.etag
        parts.join(key, etags, None, 1 << 30, lambda: None)


def _sent(upload: NewUpload) -> None:
    try:
        upload.write(UPLOADED)
        upload.publish()
    finally:
        upload.discard()


def make_files(root: Path) -> None:
    """Write what operations read."""
    prepare(root)
    _searchable(root / "files" / "searchable.rrd", "words-1", 50)
    _searchable(root / "files" / "more.rrd", "words-2", 20)
    (root / "landing").mkdir()
    write_file(root / "landing" / "landed-1.rrd", "landed 1")
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": range(ROWS), "extra": [float(n) for n in range(ROWS)]}), root / "extra.parquet")


def _searchable(path: Path, id_: str, rows: int) -> None:
    ticks = TimeColumn("tick", sequence=range(rows))
    words = ComponentColumn("Text:text", [f"word {n % 7} of {id_}" for n in range(rows)])
    numbers = [[float((n * k) % 11) for k in range(LENGTH)] for n in range(rows)]
    with RrdWriter(path) as writer:
        store = StoreEntry("recording", "tests", id_)
        writer.begin_store(store)
        writer.append(store, Chunk.from_columns("/words", [ticks], [words]))
        writer.append(store, Chunk.from_columns("/vectors", [ticks], [ComponentColumn("Vector:values", numbers)]))
        writer.finish()


def _rows(first: int, count: int) -> Any:
    import pyarrow as pa

    numbers = range(first, first + count)
    vectors = pa.array([[float((n * k) % 13) for k in range(LENGTH)] for n in numbers], pa.list_(pa.float32(), LENGTH))
    columns = {"id": numbers, "v": [n % 50 for n in numbers], "note": [f"note {n} of {n % 9}" for n in numbers]}
    return pa.table(
        {**columns, "vector": vectors},
        pa.schema([("id", pa.int64()), ("v", pa.int64()), ("note", pa.string()), ("vector", vectors.type)]),
    )


def _keyed(*, nullable: bool) -> Any:
    import pyarrow as pa

    key = pa.field("key", pa.int64(), nullable=nullable, metadata={"rerun:is_table_index": "true"})
    return pa.schema([key, pa.field("v", pa.string())])


def make_lake(lake: Lake) -> None:
    """Make the lake on which every operation runs."""
    client, tables = lake.client, lake.tables
    client.create_dataset("drives")
    lake.register("s0-0.rrd", "s1-0.rrd", "searchable.rrd")
    lake.register("s2-0.rrd", copy=True)
    lake.register("s3-0.rrd", copy=True)
    client.create_dataset("spare")
    searched = client.create_dataset("searched")
    searched.register(str(lake.root / "files" / "searchable.rrd")).wait()
    searched.create_fts_search_index(column=WORDS, time_index="tick")
    searched.register(str(lake.root / "files" / "more.rrd")).wait()
    for name, nullable in (("leased", True), ("keyed", False)):
        client.create_table(name, _keyed(nullable=nullable)).upsert(key=[1, 2], v=["a", "b"])
        client.get_table(name).append(key=[3, 4], v=["c", "d"])
    source = tables.create_table("source", _rows(0, ROWS))
    source.add(_rows(ROWS, ROWS))
    source.create_scalar_index("id")
    source.add_columns({"square": squared})
    view = tables.create_materialized_view(
        "view", source.search(None).where("v % 5 != 1").select({"v": "v", "c": doubled})
    )
    view.refresh()
    source.add(_rows(2 * ROWS, 40))


def _upkeep(entry: Any, **options: Any) -> None:
    entry.do_maintenance(cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True, **options)


def _deleted(lake: Lake) -> None:
    if "spare" in lake.client.dataset_names():
        lake.client.get_dataset("spare").delete()


def _renamed(lake: Lake) -> None:
    if "spare" in lake.client.dataset_names():
        lake.client.get_dataset("spare").set_name("other")


def _dropped(lake: Lake) -> None:
    if "view" in lake.tables.table_names():
        lake.tables.drop_table("view")


def _added(lake: Lake, transforms: Mapping[str, Any]) -> None:
    source = lake.tables.open_table("source")
    if not set(transforms) <= set(source.schema.names):
        source.add_columns(dict(transforms))


def _made_view(lake: Lake) -> None:
    query = lake.tables.open_table("source").search(None).select({"v": "v", "c": doubled})
    if "second" not in lake.tables.table_names():
        lake.tables.create_materialized_view("second", query)


def _registered_table(lake: Lake) -> None:
    lake.client.register_table("outside", str(lake.place.parent / "tables" / "source.lance"))


def _source(lake: Lake) -> Any:
    return lake.tables.open_table("source")


def _drives(lake: Lake) -> Any:
    return lake.client.get_dataset("drives")


Operation = Callable[[Lake], object]

_OFTEN: Final[dict[str, Any]] = {"checkpoint_size": 100, "batch_checkpoint_flush_interval_seconds": 0}

OPERATIONS: Final[dict[str, Operation]] = {
    "create_dataset": lambda lake: lake.client.create_dataset("new", exist_ok=True),
    "rename_dataset": _renamed,
    "delete_dataset": _deleted,
    "register": lambda lake: lake.register("s4-0.rrd", "s1-1.rrd"),
    "register_verified": lambda lake: lake.register("s4-0.rrd", verify=True, times=True),
    "register_copy": lambda lake: lake.register("s4-0.rrd", "more.rrd", copy=True),
    "register_blueprint": lambda lake: _drives(lake).register_blueprint(str(lake.root / "files" / "look-0.rbl")),
    "unregister": lambda lake: _drives(lake).unregister(segments_to_drop="s1"),
    "compact_dataset": lambda lake: _drives(lake).do_maintenance(compact_fragments=True),
    "vacuum_dataset": lambda lake: _upkeep(_drives(lake)),
    "maintain_dataset": lambda lake: _upkeep(_drives(lake), optimize_indexes=True, compact_fragments=True),
    "index_words": lambda lake: _drives(lake).create_fts_search_index(column=WORDS, time_index="tick"),
    "index_vectors": lambda lake: _drives(lake).create_vector_search_index(column=VECTORS, time_index="tick"),
    "update_indexes": lambda lake: lake.client.get_dataset("searched").do_maintenance(optimize_indexes=True),
    "ingest": lambda lake: lake.ingest("landing", _drives(lake)),
    "ingest_store": lambda lake: lake.ingest("landing", lake.place.parent / "store"),
    "upload": lambda lake: lake.upload("a.rrd", in_parts=False),
    "upload_parts": lambda lake: lake.upload("b/c.rrd", in_parts=True),
    "create_table": lambda lake: lake.client.create_table("new", _keyed(nullable=True)),
    "register_table": _registered_table,
    "append": lambda lake: lake.client.get_table("keyed").append(key=[7], v=["g" * 9_000]),
    "overwrite": lambda lake: lake.client.get_table("keyed").overwrite(key=[8], v=["h" * 9_000]),
    "upsert": lambda lake: lake.client.get_table("keyed").upsert(key=[2, 9], v=["i" * 9_000, "j"]),
    "upsert_leased": lambda lake: lake.client.get_table("leased").upsert(key=[2, 9], v=["i" * 9_000, "j"]),
    "update_rows": lambda lake: lake.client.get_table("keyed").update_rows(key=[2], v=["k" * 9_000]),
    "compact_table": lambda lake: lake.client.get_table("keyed").do_maintenance(compact_fragments=True),
    "vacuum_table": lambda lake: _upkeep(lake.client.get_table("keyed")),
    "maintain_lake": lambda lake: lake.client.do_global_maintenance(),
    "make_table": lambda lake: lake.tables.create_table("made", _rows(0, 50), exist_ok=True),
    "add_rows": lambda lake: _source(lake).add(_rows(5_000, 50)),
    "update": lambda lake: _source(lake).update("id < 40", {"note": "changed"}),
    "delete": lambda lake: _source(lake).delete("id % 10 = 3"),
    "add_sql_column": partial(_added, transforms={"sum": "id + v"}),
    "add_function_column": partial(_added, transforms={"double": doubled}),
    "drop_column": lambda lake: "note" in _source(lake).schema.names and _source(lake).drop_columns(["note"]),
    "index_table_words": lambda lake: _source(lake).create_fts_index("note", replace=True),
    "index_table_vectors": lambda lake: _source(lake).create_index(index_type="IVF_FLAT", num_partitions=2),
    "index_table_values": lambda lake: _source(lake).create_scalar_index("v"),
    "backfill": lambda lake: _source(lake).backfill("square", **_OFTEN),
    "load_columns": lambda lake: _source(lake).load_columns(str(lake.root / "extra.parquet"), "id", ["extra"]),
    "create_view": _made_view,
    "refresh": lambda lake: lake.tables.open_table("view").refresh(**_OFTEN),
    "optimize": lambda lake: _source(lake).optimize(cleanup_older_than=timedelta()),
    "drop_table": _dropped,
}  # fmt: skip
"""The operations, each of which may be run again where it failed."""


def state_of(lake: Lake) -> State:
    """What there is."""
    found: State = {}
    client, tables = lake.client, lake.tables
    for dataset in client.datasets(include_hidden=True):
        hidden = not dataset.name or dataset.name.startswith("__")
        name = "blueprints" if hidden and _stored(os.fspath(dataset)) else "" if hidden else f"dataset {dataset.name}"
        if name:
            indexes = sorted(f"{one.properties}" for one in dataset.list_search_indexes()) if not hidden else []
            found[name] = [_stored(os.fspath(dataset)), len(indexes)]
    for table in client.tables():
        found[f"table {table.name}"] = _content(table.to_arrow_reader().read_all())
    for name in tables.table_names():
        table = tables.open_table(name)
        found[f"lance {name}"] = [_content(table.to_arrow()), _indexes_of(table.uri)]
    store = lake.place.parent / "store"
    if RecordingsFolder(store).newest() is not None:
        found["store"] = _stored(str(store))
    for path in sorted(p for p in (lake.place / "uploads").rglob("*") if p.is_file() and p.name[0] != "."):
        found[f"upload {path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _stored(place: str) -> dict[str, str]:
    if RecordingsFolder(place).newest() is None:
        return {}
    store = RecordingStore.open(place)
    return {f"{e.recording_id} {e.layer}": kept_content(store, e) for e in [*store, *store.blueprints()]}


def _content(rows: Any) -> list[str]:
    # A load adds its column in a commit of its own: where it fails after that, the column stays empty until it is
    # repeated.
    filled = [name for name in rows.schema.names if not rows.num_rows or rows[name].null_count < rows.num_rows]
    names = sorted(name for name in filled if not name.startswith("__"))
    kept = sorted(str(row) for row in rows.select(names).to_pylist())
    return [str(names), hashlib.sha256("\n".join(kept).encode()).hexdigest()]


def _indexes_of(uri: str) -> list[str]:
    import lance

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(one["name"] for one in lance.dataset(uri).list_indices())
