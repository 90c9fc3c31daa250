"""Does all that one does with tables and search, in a process of its own that may die of it.

A line of JSON comes in for each catalog with a damaged file, and one goes out: what each call gave, or how it was
refused. Run by ``fuzz_tables.py``.
"""

from __future__ import annotations

import hashlib
import os
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow.compute as pc
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.lance import indexes
from datafusion import col, lit
from fuzz_worker import measured, serve

VECTOR: Final = "/emb:vec"
TEXT: Final = "/txt:TextDocument:text"
DIMENSION: Final = 8

Calls = dict[str, Callable[[CatalogClient], object]]


def _cleaned(client: CatalogClient) -> None:
    client.get_table("t").do_maintenance(
        compact_fragments=True, cleanup_before=datetime.now(UTC), unsafe_allow_recent_cleanup=True
    )


def _read(client: CatalogClient) -> object:
    rows = client.get_table("t").to_arrow_reader().read_all()
    rows.validate(full=True)
    return rows.to_pylist()


TABLES: Final[Calls] = {
    "schema": lambda c: c.get_table("t").arrow_schema().to_string(),
    "read": _read,
    "reader": lambda c: c.get_table("t").reader().to_pydict(),
    "count": lambda c: c.get_table("t").reader().count(),
    "filter": lambda c: c.get_table("t").reader().filter(col("key") == lit(7)).to_pydict(),
    "null": lambda c: list(c.get_table("t").snapshot().batches(["v"], pc.field("v") == "v9")),
    "sql": lambda c: c.ctx.sql("SELECT v, count(*) FROM t GROUP BY v ORDER BY v").to_pydict(),
    "check": lambda c: [str(fault) for fault in c.check()],
    "append": lambda c: c.get_table("t").append(key=[900], v=["new"], l=[[0.5]]),
    "upsert": lambda c: c.get_table("t").upsert(key=[7, 901], v=["new", "newer"], l=[[0.5], [0.25]]),
    "after": _read,
    "upkeep": _cleaned,
    "overwrite": lambda c: c.get_table("t").overwrite(key=[1], v=["o"], l=[[0.5]]),
}
SEARCH: Final[Calls] = {
    "list": lambda c: [index.properties for index in c.get_dataset("d").list_search_indexes()],
    "vector": lambda c: c.get_dataset("d").search_vector([0.5] * DIMENSION, VECTOR, 5).to_pydict(),
    "text": lambda c: c.get_dataset("d").search_fts("frame 7", TEXT).to_pydict(),
    "check": lambda c: [str(fault) for fault in c.check()],
    "upkeep": lambda c: c.get_dataset("d").do_maintenance(optimize_indexes=True, retrain_indexes=False),
    "retrain": lambda c: c.get_dataset("d").do_maintenance(optimize_indexes=True, retrain_indexes=True),
    "again": lambda c: c.get_dataset("d").search_fts("frame 7", TEXT).to_pydict(),
}
CALLS: Final = {"tables": TABLES, "search": SEARCH}


def attempt(kind: str, path: str) -> dict[str, Any]:
    """Do everything: what came of each call, and which was the first that raised what is not ours."""
    indexes._FLAT_ROWS = 0  # type: ignore[misc]
    indexes._kept.cache_clear()
    client, said, refused = CatalogClient(path), {}, {}
    slowest = ("", 0.0)
    for name, call in CALLS[kind].items():
        begin = time.monotonic()
        try:
            said[name] = hashlib.blake2b(repr(call(client)).encode("utf-8", "backslashreplace")).hexdigest()
        except ChunkmillError as error:
            refused[name] = {"text": str(error), **error.to_dict()}
        except BaseException:  # noqa: BLE001 - to tell of it is what this is for
            return {"outcome": "foreign", "text": f"{name}: {traceback.format_exc()}"}
        slowest = max(slowest, (name, time.monotonic() - begin), key=lambda one: one[1])
    return {"outcome": "refused" if refused else "read", "said": said, "refused": refused, "slowest": slowest}


if __name__ == "__main__":
    os.environ["CHUNKMILL_EXECUTOR"] = "inline"
    serve(lambda kind, path: measured(lambda: attempt(kind, path)))
