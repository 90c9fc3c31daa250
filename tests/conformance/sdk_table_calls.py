"""The calls of Rerun's SDK that make tables, write and read them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
from datafusion import col, functions, lit
from sdk_recording_calls import Calls
from sdk_sides import ROWS, Side, attribute_calls, texts_of


def table_calls(side: Side) -> Calls:
    """Tables: made, read, asked by SQL, registered, named anew, and deleted."""
    client = side.client
    yield "create", lambda: client.create_table("rows", ROWS)
    yield "create again", partial(client.create_table, "rows", ROWS)
    yield (
        "create at a place",
        lambda: client.create_table("placed", ROWS, (side.own / "tables").absolute().as_uri()).name,
    )
    yield "create as a dataset", partial(client.create_dataset, "rows")
    yield "create without columns", lambda: client.create_table("bare", pa.schema([])).name
    table = client.get_table("rows")
    yield from attribute_calls(table)
    yield "storage url", lambda: table.storage_url.partition(":")[0]
    yield "schema", table.arrow_schema
    yield "reader of nothing", table.reader
    batch = pa.record_batch([[1, 2, 3], ["a", None, "c"], [[1.5], [], None]], schema=ROWS)
    yield "append", partial(table.append, batch)
    yield "rows", table.reader
    yield "as Arrow", table.to_arrow_reader
    yield "SQL", lambda: client.ctx.sql("SELECT text, id * 2 AS twice FROM rows WHERE id > 1")
    yield "SQL that groups", lambda: client.ctx.sql("SELECT count(*) AS n, max(id) AS most FROM rows")
    yield "SQL that joins", lambda: client.ctx.sql("SELECT a.id FROM rows a JOIN rows b ON a.id = b.id + 1")
    yield "SQL of no such table", lambda: client.ctx.sql("SELECT * FROM nope")
    yield "SQL that is none", lambda: client.ctx.sql("SELEKT 1")
    yield "as a provider", lambda: provided(client, table)
    yield "entries", lambda: client.get_table("__entries").reader().select("name", "entry_kind").filter(visible())
    yield "schema of entries", lambda: client.get_table("__entries").arrow_schema()
    yield "delete entries", lambda: client.get_table("__entries").delete()
    yield "write to entries", lambda: client.get_table("__entries").append(name=["x"])
    yield "register", lambda: client.register_table("again", table.storage_url).reader()
    yield "register under a taken name", lambda: client.register_table("rows", table.storage_url)
    yield "register no table", partial(client.register_table, "none", side.uri("empty"))
    yield "register what is not there", partial(client.register_table, "none", side.uri("nope"))
    yield "as a dataset", partial(client.get_dataset, "rows")
    yield "set name", partial(table.set_name, "lines")
    yield "SQL by the new name", lambda: client.ctx.sql("SELECT count(*) AS n FROM lines")
    yield "rows by the new name", lambda: client.get_table("lines").reader()
    yield "update", partial(table.update, name="rows")
    yield "by id", lambda: client.get_table(id=table.id).name
    yield "delete", table.delete
    yield "rows of a deleted table", table.reader
    yield "append to a deleted table", partial(table.append, id=[1])
    yield "by name after deletion", partial(client.get_table, "rows")
    yield "rows of the one that was registered", lambda: client.get_table("again").reader()
    for name in client.table_names():
        client.get_table(name).delete()


def visible() -> Any:
    """The entries that no other has made."""
    return ~functions.starts_with(col("name"), lit("__"))


def provided(client: Any, table: Any) -> Any:
    """The rows of a table that is given to a session of DataFusion."""
    client.ctx.register_table("provided", table)
    return client.ctx.sql("SELECT * FROM provided")


def write_calls(side: Side) -> Calls:
    """All ways to write rows, and what they refuse."""
    one, two = (pa.record_batch([[n], [f"row {n}"], [[n / 2]]], schema=ROWS) for n in (1, 2))
    other = pa.record_batch([["x"]], ["nope"])
    for way in ("append", "overwrite", "upsert"):
        table = side.client.create_table(f"by_{way}", ROWS)
        write, reader = getattr(table, way), pa.RecordBatchReader.from_batches(ROWS, [two])
        yield f"{way} a batch", partial(write, one)
        yield f"{way} a list", partial(write, [one, two])
        yield f"{way} lists", partial(write, [[one], [two]])
        yield f"{way} a reader", partial(write, reader)
        yield f"rows after {way}", table.reader
        yield f"{way} by names", partial(write, id=[1, 5], text=["new", "five"], numbers=[[1.0], None])
        yield f"{way} some columns", partial(write, id=[7])
        yield f"{way} one row", partial(write, id=8, text="eight", numbers=[[1.0, 2.0]])
        yield f"rows after {way} by names", table.reader
        yield f"{way} columns of another length", partial(write, id=[1, 2], text=["x"])
        yield f"{way} no such column", partial(write, nope=[1])
        yield f"{way} nothing", partial(write, [])
        yield f"{way} no rows", partial(write, id=[])
        yield f"{way} both", partial(write, one, id=[1])
        yield f"{way} of another schema", partial(write, other)
        yield f"{way} a number", partial(write, 5)
        yield f"{way} a key twice", partial(write, id=[30, 30], text=["x", "y"], numbers=[None, None])
        yield f"rows after {way} of what is refused", table.reader
        table.delete()
    keyless = side.client.create_table("keyless", pa.schema([("id", pa.int64())]))
    yield "upsert without a key", partial(keyless.upsert, id=[1])
    yield "rows without a key", keyless.reader
    yield "insert by SQL", lambda: side.client.ctx.sql("INSERT INTO keyless VALUES (4), (5)").collect()
    yield "rows after SQL", keyless.reader
    keyless.delete()


def table_blueprint_calls(side: Side) -> Calls:
    """Blueprints of a table, from 0.35 on."""
    table = side.client.create_table("shown", ROWS)
    yield "kind", lambda: table.blueprint_dataset().kind
    yield "none", table.blueprints
    yield "no default", table.default_blueprint
    yield "register", partial(table.register_blueprint, side.uri("plain.rbl"))
    yield "is default", lambda: [table.default_blueprint()] == table.blueprints()
    yield "set no default", partial(table.set_default_blueprint, None)
    yield "default after that", table.default_blueprint
    yield "set an unknown default", partial(table.set_default_blueprint, "nope")
    yield "delete", table.delete
    yield "names after deletion", partial(texts_of, side.client.entry_names, include_hidden=True)
