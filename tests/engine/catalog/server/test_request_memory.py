"""The memory that requests take: within a budget of all calls, given back, and not waited for by clients that left."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import lz4.block
import pyarrow as pa
import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import Access, Call, CatalogService, ProtocolError, ServiceOptions, Status, start
from chunkmill.engine.catalog.server.protocol import SERVICE, part_of, protocol_error, rows_in, schema_message, shared
from chunkmill.engine.catalog.server.reception import MEMORY_BUDGET, MemoryBudget, Reception, clear_traceback
from chunkmill.engine.errors import UsageError
from chunkmill.engine.limits import MAX_SCHEMA_FIELDS
from served import Caller

MIB = 1 << 20


def part(payload: bytes, size: int, compression: int = 2) -> Any:
    return shared("DataframePart")(encoder_version=1, payload=payload, compression=compression, uncompressed_size=size)


def stream(rows: pa.Table, codec: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def zeros(mib: int) -> pa.Table:
    return pa.table({"data": pa.array([bytes(MIB)] * mib, pa.large_binary())})


def squeezed(rows: pa.Table) -> Any:
    data = stream(rows)
    return part(lz4.block.compress(data, store_size=False), len(data))


def within(rows: pa.Table, codec: str) -> Any:
    return part(stream(rows, codec), 0, compression=1)


def nobody() -> None:
    """Somebody waits still."""


FORMS = [squeezed, lambda rows: within(rows, "lz4"), lambda rows: within(rows, "zstd")]


@pytest.mark.parametrize("form", FORMS)
def test_what_a_part_expands_to_is_claimed_as_long_as_it_is_there(form: Any) -> None:
    budget, rows = MemoryBudget(), zeros(20)
    found = rows_in(form(rows), Call(claim=budget.claim))
    assert found == rows
    assert 20 * MIB <= budget.used < 21 * MIB
    column = found["data"].chunk(0).slice(19)
    del found
    assert budget.used > 20 * MIB
    del column
    assert budget.used == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_part_that_expands_beyond_the_budget_is_refused_before_it_does(form: Any) -> None:
    budget, given = MemoryBudget(16 * MIB), form(zeros(100))
    with pytest.raises(ProtocolError, match=r"--request-memory") as caught:
        rows_in(given, Call(claim=budget.claim))
    assert caught.value.code is Status.RESOURCE_EXHAUSTED
    clear_traceback(caught.value)
    assert budget.used == 0


@pytest.mark.parametrize("mib", [1, 3, 20])
@pytest.mark.parametrize("more", [-9, -1, 1, 9])
def test_a_block_expands_to_what_it_says_exactly(mib: int, more: int) -> None:
    """Whatever memory there was before would be the end of a shorter one."""
    data, budget = stream(zeros(mib)), MemoryBudget()
    with pytest.raises(ProtocolError) as caught:
        rows_in(part(lz4.block.compress(data, store_size=False), len(data) + more), Call(claim=budget.claim))
    assert caught.value.code is Status.INVALID_ARGUMENT
    clear_traceback(caught.value)
    assert budget.used == 0


def test_dictionaries_count_as_well() -> None:
    words = pa.array([str(number) * 100_000 for number in range(10)] * 2).dictionary_encode()
    columns = {f"c{number}": words for number in range(60)}
    with pytest.raises(ProtocolError, match=r"expand to|budget") as caught:
        rows_in(within(pa.table(columns), "zstd"), Call(claim=MemoryBudget(64 * MIB).claim))
    assert caught.value.code in (Status.RESOURCE_EXHAUSTED, Status.INVALID_ARGUMENT)


def test_claims_wait_for_each_other_in_order() -> None:
    budget, order = MemoryBudget(100 * MIB), []
    first = budget.claim(60 * MIB, nobody)

    def claim(name: str, size: int) -> None:
        held = budget.claim(size, nobody)
        order.append(name)
        held.release()

    threads = [threading.Thread(target=claim, args=given) for given in (("large", 70 * MIB), ("other", 20 * MIB))]
    for thread in threads:
        thread.start()
        time.sleep(0.2)
    budget.claim(MIB, nobody).release()  # a small one does not wait behind them
    assert not order
    first.release()
    for thread in threads:
        thread.join(10)
    assert order == ["large", "other"]
    assert budget.used == 0


def test_a_client_that_left_is_not_waited_for() -> None:
    budget = MemoryBudget(100 * MIB)
    held = budget.claim(80 * MIB, nobody)
    given, gone = squeezed(zeros(40)), threading.Event()
    threading.Timer(0.3, gone.set).start()
    began = time.monotonic()
    with pytest.raises(ProtocolError) as caught:
        rows_in(given, Call(claim=budget.claim, is_active=lambda: not gone.is_set()))
    assert caught.value.code is Status.CANCELLED
    assert 0.2 < time.monotonic() - began < 5
    with pytest.raises(ProtocolError) as caught:
        rows_in(given, Call(claim=budget.claim, deadline=time.monotonic() + 0.2))
    assert caught.value.code is Status.DEADLINE_EXCEEDED
    held.release()
    assert rows_in(given, Call(claim=budget.claim)).num_rows == 40


def test_few_calls_wait_and_others_are_refused_at_once() -> None:
    budget, over = MemoryBudget(100 * MIB), threading.Event()
    held = budget.claim(80 * MIB, nobody)

    def check() -> None:
        if over.is_set():
            raise ProtocolError(Status.CANCELLED, "over")

    def wait() -> None:
        with pytest.raises(ProtocolError, match="over"):
            budget.claim(50 * MIB, check)

    threads = [threading.Thread(target=wait) for _ in range(16)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    began = time.monotonic()
    with pytest.raises(ProtocolError, match="in use; try again later") as caught:
        budget.claim(50 * MIB, check)
    assert caught.value.code is Status.RESOURCE_EXHAUSTED
    assert time.monotonic() - began < 0.2
    over.set()
    for thread in threads:
        thread.join(10)
    held.release()
    assert budget.used == 0


@pytest.mark.heavy
def test_requests_hold_their_bytes_until_the_call_goes_on(tmp_path: Any) -> None:
    catalog = CatalogClient(tmp_path / "lake")
    table = catalog.create_table("t", pa.schema([("data", pa.large_binary())]))
    method = CatalogService(catalog).methods[f"/{SERVICE}/WriteTable"]
    reception = Reception(Access(), MemoryBudget(64 * MIB))
    data = method.request(dataframe_part=part(stream(zeros(8)), 0, compression=1)).SerializeToString()
    most = []

    def requests() -> Iterator[bytes]:
        for _ in range(20):  # of more than the budget all together
            yield data
            gc.collect()
            most.append(reception.budget.used)

    headers = {"x-rerun-entry-id": str(table.id)}
    assert len(list(reception.run(method, requests(), headers))) == 1
    assert sum(batch.num_rows for batch in table.to_arrow_reader()) == 160
    gc.collect()
    assert reception.budget.used == 0
    assert max(most) <= 64 * MIB
    large = method.request(dataframe_part=part(bytes(70 * MIB), 0, compression=1)).SerializeToString()
    with pytest.raises(ProtocolError, match="--request-memory"):
        list(reception.run(method, iter([large]), headers))
    assert reception.budget.used == 0


@pytest.mark.parametrize("web", [False, True])
def test_a_server_keeps_to_its_budget(tmp_path: Any, web: bool) -> None:
    grpc = pytest.importorskip("grpc")
    from test_front import WEB, asked

    catalog = CatalogClient(tmp_path / "lake")
    dataset = catalog.create_dataset("drives")
    service = CatalogService(catalog, ServiceOptions(request_memory=32 * MIB))
    method = service.methods[f"/{SERVICE}/FetchChunks"]
    request = method.request(chunk_infos=[squeezed(zeros(40))]).SerializeToString()
    plain = method.request(chunk_infos=[part(bytes(40 * MIB), 0, compression=1)]).SerializeToString()
    about = {"x-rerun-entry-id": str(dataset.id)}
    with start(service) as server:
        for data in (request, plain):
            if web:
                body = b"\0" + len(data).to_bytes(4, "big") + data
                answer = asked(server.port, "POST", method.path, body, **WEB, **about)[2]
                assert b"grpc-status:8" in answer
                continue
            with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel, pytest.raises(grpc.RpcError) as caught:
                list(channel.unary_stream(method.path)(data, metadata=list(about.items()), timeout=20))
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_the_default_fits_the_largest_part() -> None:
    budget = MemoryBudget()
    assert budget.most == MEMORY_BUDGET
    assert budget.most_at_once >= 512 * MIB + 256 * MIB


WIDE = 200_000


@pytest.mark.heavy
def test_a_table_of_very_many_columns_is_refused(tmp_path: Any) -> None:
    catalog = CatalogClient(tmp_path / "lake")
    wide = pa.schema([(f"c{number}", pa.int8()) for number in range(WIDE)])
    with pytest.raises(UsageError, match=r"200,000 columns: MAX_SCHEMA_FIELDS is 65,536"):
        catalog.create_table("wide", wide)
    with pytest.raises(ProtocolError, match=r"200,000 columns, more than MAX_SCHEMA_FIELDS \(65,536\)"):
        Caller(catalog)("CreateTableEntry", name="wide", schema=schema_message(wide))
    assert catalog.table_names() == []
    table = catalog.create_table("t", pa.schema([("a", pa.int8())]))
    call = Caller(catalog, **{"x-rerun-entry-id": str(table.id)})
    with pytest.raises(ProtocolError, match="MAX_SCHEMA_FIELDS"):
        call.upload("WriteTable", [{"dataframe_part": part_of(wide.empty_table()), "insert_mode": 2}])
    with pytest.raises(UsageError, match="MAX_SCHEMA_FIELDS"):
        table.overwrite(wide.empty_table())
    assert table.arrow_schema().names == ["a"]


def test_columns_within_columns_count_too(tmp_path: Any) -> None:
    catalog = CatalogClient(tmp_path / "lake")
    deep = pa.schema([("s", pa.struct([(f"c{number}", pa.int8()) for number in range(MAX_SCHEMA_FIELDS)]))])
    with pytest.raises(UsageError, match=r"65,537 columns: MAX_SCHEMA_FIELDS"):
        catalog.create_table("deep", deep)
    with pytest.raises((UsageError, ProtocolError), match="MAX_SCHEMA_FIELDS") as caught:
        Caller(catalog)("CreateTableEntry", name="deep", schema=schema_message(deep))
    assert protocol_error(caught.value).code is Status.INVALID_ARGUMENT
