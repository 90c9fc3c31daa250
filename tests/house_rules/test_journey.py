"""The modules that five journeys pass, each made a second time: few enough to keep in mind."""

from __future__ import annotations

import inspect
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
from chunk_making import made
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import Access, CatalogService
from chunkmill.engine.catalog.server.protocol import ENTRY_ID_HEADER, SERVICE
from chunkmill.engine.catalog.server.reception import Reception
from chunkmill.engine.ingest import Ingest
from chunkmill.engine.tables import connect, udf
from chunkmill.readers import McapReader
from source_tree import modules


def passed_by(journey: Callable[[], None]) -> set[str]:
    """The modules whose functions a journey calls, when it is made again."""
    journey()  # what is imported and looked up once
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code, file = frame.f_code, frame.f_globals.get("__file__")
        if event == "call" and code.co_filename == file and code.co_flags & inspect.CO_OPTIMIZED:  # no class bodies
            called.add(frame.f_globals["__name__"])

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        journey()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return {name.removeprefix("chunkmill.") for name in called} & modules().keys()


def test_an_imu_message_passes_few_modules(data: Path, tmp_path: Path) -> None:
    def convert() -> None:
        reader = McapReader(data / "demo.mcap", include_topic_regex=["/nissan/gps/duro/imu"])
        reader.stream().write_rrd(tmp_path / "imu.rrd", application_id="a", recording_id="r", executor="inline")

    passed = passed_by(convert)
    assert {"readers.mcap.decoders", "lenses.lens_set", "engine.rrd.writer"} <= passed
    assert len(passed) <= 45, sorted(passed)


def test_an_ingested_file_passes_few_modules(data: Path, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    names = iter("ab")

    def ingest() -> None:
        shutil.copy(data / "demo.mcap", tmp_path / "landing" / f"{next(names)}.mcap")
        landing = Ingest(tmp_path / "landing", into=tmp_path / "store", settle=0, executor="inline")
        landing.start(once=True).await_termination()

    passed = passed_by(ingest)
    assert {"engine.ingest.batch", "engine.recordings.writer"} <= passed
    assert len(passed) <= 75, sorted(passed)


def test_a_query_to_pandas_passes_few_modules(data: Path) -> None:
    imu = McapReader(data / "demo.mcap", include_topic_regex=["/nissan/gps/duro/imu"])
    store = imu.stream().collect(executor="inline")

    def query() -> None:
        assert len(store.reader(index="message_log_time").to_pandas())

    passed = passed_by(query)
    assert "engine.query.rows" in passed  # by a thread of the frame
    assert len(passed) <= 36, sorted(passed)


def test_a_backfill_passes_few_modules(tmp_path: Path) -> None:
    table = connect(tmp_path / "tables").create_table("numbers", pa.table({"x": range(10)}))
    names = iter(("once", "again"))

    def backfill() -> None:
        name = next(names)
        table.add_columns({name: udf(_doubled)})
        table.backfill(name, executor="inline")

    passed = passed_by(backfill)
    assert "engine.tables.fill" in passed
    assert len(passed) <= 40, sorted(passed)


def _doubled(x: int) -> int:
    return 2 * x


def test_a_query_of_a_served_dataset_passes_few_modules(tmp_path: Path) -> None:
    recording = tmp_path / "one.rrd"
    LazyChunkStream.from_iter([made(range(3))]).write_rrd(recording, application_id="a", recording_id="one")
    catalog = CatalogClient(tmp_path / "lake")
    dataset = catalog.create_dataset("drives")
    dataset.register(recording, copy=True, executor="inline").wait()
    service, reception = CatalogService(catalog), Reception(Access())
    sent: list[bytes] = []

    def answers_to(name: str, **fields: Any) -> list[Any]:
        method = service.methods[f"/{SERVICE}/{name}"]
        request = method.request(**fields).SerializeToString()
        return list(reception.run(method, iter([request]), {ENTRY_ID_HEADER: str(dataset.id)}))

    def query() -> None:
        planned = service.methods[f"/{SERVICE}/QueryDataset"].response
        plans = answers_to("QueryDataset", select_all_entity_paths=True)
        infos = [planned.FromString(plan).data for plan in plans]
        sent.extend(answers_to("FetchChunks", chunk_infos=infos))

    passed = passed_by(query)
    assert sent
    assert {"engine.catalog.server.chunks", "engine.catalog.server.reception"} <= passed
    assert len(passed) <= 24, sorted(passed)
