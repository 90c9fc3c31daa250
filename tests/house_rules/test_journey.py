"""The modules that a message passes from an MCAP into an RRD, and a query in a server: few enough to keep in mind."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from chunk_making import made
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import Access, CatalogService
from chunkmill.engine.catalog.server.protocol import ENTRY_ID_HEADER, SERVICE
from chunkmill.engine.catalog.server.reception import Reception
from chunkmill.readers import McapReader
from source_tree import modules

MOST = 66
"""Modules whose functions are called, for what is done once a file among them. It may only become less, towards 45."""
MOST_OF_A_QUERY = 24
"""The same for a query of a served dataset, and its chunks."""


def passed_by(journey: Callable[[], None]) -> set[str]:
    """The modules whose functions a journey calls, when it is made again."""
    journey()  # what is imported and looked up once
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code, file = frame.f_code, frame.f_globals.get("__file__")
        if event == "call" and code.co_filename == file and code.co_flags & inspect.CO_OPTIMIZED:  # no class bodies
            called.add(frame.f_globals["__name__"])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        journey()
    finally:
        sys.setprofile(before)
    return {name.removeprefix("chunkmill.") for name in called} & modules().keys()


def test_an_imu_message_passes_few_modules(data: Path, tmp_path: Path) -> None:
    def convert() -> None:
        reader = McapReader(data / "demo.mcap", include_topic_regex=["/nissan/gps/duro/imu"])
        reader.stream().write_rrd(tmp_path / "imu.rrd", application_id="a", recording_id="r", executor="inline")

    passed = passed_by(convert)
    assert {"readers.mcap.channel_chunks", "lenses.lens_set", "engine.rrd.writer"} <= passed
    assert len(passed) <= MOST, sorted(passed)


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
    assert len(passed) <= MOST_OF_A_QUERY, sorted(passed)
