"""Fills a column, loads one, and refreshes a view in the Spark of ``CHUNKMILL_MASTER``; prints what came of it.

CHUNKMILL_MASTER=spark://… python tables_session.py FOLDER
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from chunkmill import udf
from chunkmill.engine.tables import connect

ROWS, FRAGMENTS = 4000, 4


@udf
def half(volts: float) -> float:
    """Half of it."""
    return volts / 2


def main() -> int:
    """Do it all once."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    tables = connect(str(folder / "tables"))
    rows = [{"id": number, "volts": float(number)} for number in range(ROWS)]
    table = tables.create_table("readings", rows[: ROWS // FRAGMENTS])
    for start in range(ROWS // FRAGMENTS, ROWS, ROWS // FRAGMENTS):
        table.add(rows[start : start + ROWS // FRAGMENTS])
    table.add_columns({"half": half})
    filled = table.backfill("half").columns["half"].rows_processed
    names = folder / "names.parquet"
    pq.write_table(pa.table({"id": range(0, ROWS, 2), "name": [f"n{n}" for n in range(0, ROWS, 2)]}), names)
    table.load_columns(str(names), "id", ["name"])
    query = table.search(None).where("id % 10 = 0").select({"id": "id", "quarter": (half, ["half"])})
    view = tables.create_materialized_view("tens", query)
    refreshed = view.refresh().rows_refreshed
    got = table.to_arrow().to_pydict()
    seen = view.to_arrow().to_pydict()
    told = {
        "filled": filled,
        "refreshed": refreshed,
        "halves": got["half"] == [volts / 2 for volts in got["volts"]],
        "names": got["name"] == [None if id_ % 2 else f"n{id_}" for id_ in got["id"]],
        "quarters": sorted(zip(seen["id"], seen["quarter"], strict=True)) == [(n, n / 4) for n in range(0, ROWS, 10)],
        "again": table.backfill("half").columns["half"].rows_processed + view.refresh().rows_refreshed,
        "jobs": sorted({job.status for job in table.jobs()}),
    }
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
