"""How rows of tables are handed over: in batches that fit in memory, by one thread that an interrupt ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.lance import TableSnapshot


@pytest.fixture
def client(tmp_path: Path) -> CatalogClient:
    return CatalogClient(tmp_path / "lake")


@pytest.mark.heavy
def test_batches_of_large_rows_have_few_of_them(client: CatalogClient) -> None:
    table = client.create_table("t", pa.schema([("payload", pa.binary())]))
    table.append(pa.table({"payload": [bytes([number % 256]) * 65_536 for number in range(2000)]}))
    read = list(table.to_arrow_reader())
    assert [value[0] for one in read for value in one["payload"].to_pylist()] == [
        number % 256 for number in range(2000)
    ]
    assert max(one.nbytes for one in read) <= 2**25


def test_one_thread_waits_for_all_batches_of_a_stream_and_an_interrupt_ends_it(
    client: CatalogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = client.create_table("t", pa.schema([("id", pa.int32())]))
    begun = threading.Event()

    def slowly(*_: Any, **__: Any) -> Any:
        yield from (pa.record_batch({"id": pa.array([number], pa.int32())}) for number in range(3))
        begun.set()
        time.sleep(1)

    monkeypatch.setattr(TableSnapshot, "batches", slowly)
    monkeypatch.setattr(TableSnapshot, "parts", lambda *_: [[0]])
    before, waiters = signal.getsignal(signal.SIGINT), set[threading.Thread]()

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    def read() -> None:
        for _ in table.reader().execute_stream():
            waiters.update(thread for thread in threading.enumerate() if thread.name == "chunkmill-query")

    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            read()
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(waiters) == 1
    for thread in waiters:
        thread.join(10)
        assert not thread.is_alive()
