"""Events of a served lake: entries that come and go are told to all who watch, by one look at the catalog."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import Call, CatalogService, ProtocolError, ServiceOptions, Status, lake, start
from chunkmill.engine.catalog.server.protocol import SERVICE, cloud, entry_id_message
from chunkmill.engine.errors import UnreachableError

WATCHERS = 12
PATH = f"/{SERVICE}/WatchEvents"


class Looks(CatalogClient):
    """A catalog that counts how often it is looked at, and may fail to be."""

    count = 0
    fails = False

    def entries(self, *, include_hidden: bool = False) -> Any:
        self.count += 1
        if self.fails:
            raise UnreachableError("the disk is away")
        return super().entries(include_hidden=include_hidden)


@pytest.fixture
def catalog(tmp_path: Path) -> Looks:
    return Looks(tmp_path / "lake")


class Watcher:
    """One that watches until it is stopped, in this thread."""

    def __init__(self, service: CatalogService, **fields: Any) -> None:
        method = service.methods[PATH]
        self.stopped = threading.Event()
        call = Call(is_active=lambda: not self.stopped.is_set())
        self.events: Iterator[Any] = method.handler(method.request(**fields), call)


@pytest.mark.parametrize("fields", [{}, {"kinds": [{"entry": {}}]}])
def test_entries_that_come_and_go_are_told(catalog: Looks, fields: dict[str, Any]) -> None:
    watcher = Watcher(CatalogService(catalog), **fields)
    threading.Timer(0.1, lambda: CatalogClient(catalog.url.removeprefix("rerun+")).create_dataset("new")).start()
    created = next(watcher.events)
    new = catalog.get_dataset("new")
    assert created.entry_created.id == entry_id_message(new.id)
    new.make_asset_dataset()  # nobody sees it, or the one with its blueprints
    new.set_name("other")
    new.delete()
    assert next(watcher.events).entry_deleted.id == entry_id_message(new.id)
    watcher.stopped.set()
    assert list(watcher.events) == []


def test_a_catalog_that_is_away_for_a_while_is_looked_at_again(
    catalog: Looks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lake, "_LOOK_SECONDS", 0.01)
    watcher = Watcher(CatalogService(catalog))
    threading.Timer(0.1, lambda: catalog.create_dataset("first")).start()
    next(watcher.events)
    catalog.fails = True
    catalog.create_dataset("second")
    time.sleep(0.1)
    catalog.fails = False
    assert next(watcher.events).entry_created.id == entry_id_message(catalog.get_dataset("second").id)
    assert "the disk is away" in caplog.text
    watcher.stopped.set()


def test_kinds_that_are_none_and_too_many_watchers_are_refused(catalog: Looks) -> None:
    service = CatalogService(catalog)
    with pytest.raises(ProtocolError) as caught:
        next(Watcher(service, kinds=[{}]).events)
    assert caught.value.code is Status.INVALID_ARGUMENT
    with pytest.raises(ProtocolError) as caught:
        next(Watcher(CatalogService(catalog, ServiceOptions(most_watchers=0))).events)
    assert caught.value.code is Status.RESOURCE_EXHAUSTED


def test_watchers_take_no_thread_of_others_and_share_one_look(catalog: Looks) -> None:
    grpc = pytest.importorskip("grpc")
    service = CatalogService(catalog)
    with start(service, threads=2) as server, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        watch = channel.unary_stream(PATH, None, cloud("WatchEventsResponse").FromString)
        answer = cloud("CreateDatasetEntryResponse").FromString
        create = channel.unary_unary(f"/{SERVICE}/CreateDatasetEntry", None, answer)
        streams = [watch(b"", timeout=30) for _ in range(WATCHERS)]
        while len(service.lake.events._watchers) < WATCHERS:
            time.sleep(0.01)
        before, began = catalog.count, time.monotonic()
        made = create(cloud("CreateDatasetEntryRequest")(name="new").SerializeToString(), timeout=20).dataset
        assert [next(stream).entry_created.id for stream in streams] == [made.details.id] * WATCHERS
        assert catalog.count - before <= 2 + (time.monotonic() - began) / lake._LOOK_SECONDS
        for stream in streams:
            stream.cancel()
