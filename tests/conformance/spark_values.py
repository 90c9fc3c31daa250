"""Value rows of Spark beside ``to_arrow``, for every recording below folders: a line for each that differs.

python tests/conformance/spark_values.py FOLDER ... [--executor inline] [--start N] [--every N]

With ``--executor inline`` the data source plans and reads as Spark has it do, in this process; else a session does.
Of 232 recordings (51 MCAPs and 13 RRDs of many recorders, 5 Parquets, the others made for tests) a session of Spark 4.3
gives what ``to_arrow`` gives, or its error, but for one: PySpark refuses two columns of one name in a struct.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from chunkmill.engine import get_session
from chunkmill.engine.data_sources.options import Request
from chunkmill.engine.data_sources.reading import ValueReader, value_row_schema
from chunkmill.engine.errors import ChunkmillError
from chunkmill.engine.spark import arrow_of, spark_array, spark_form
from chunkmill.readers import RecordingFile, detect_format
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.datasource import Filter

Rows = Callable[..., pa.Table]


def rows(path: Path | list[Path], filters: list[Filter] | None = None, **options: str) -> pa.Table:
    """The rows that Spark gets: its schema, planning, and tasks in other processes."""
    first, *more = path if isinstance(path, list) else [path]
    given = {"path": str(first), "paths": str([str(p) for p in more]).replace("'", '"')}
    request = Request.of(None, {**given, **{name.lower(): value for name, value in options.items()}})
    schema = value_row_schema(request)
    reader = ValueReader(request, schema)
    if filters:
        assert reader.pushFilters(filters) == filters
    parts = cloudpickle.loads(cloudpickle.dumps(reader.partitions()))
    far = cloudpickle.loads(cloudpickle.dumps(reader))
    return pa.Table.from_batches([b for part in parts for b in far.read(part)], arrow_of(schema))


def rows_of_session(path: Path, **options: str) -> pa.Table:
    """The rows as a session of Spark gives them, in the types of its schema."""
    frame = get_session().read.format("chunkmill").options(**options).load(str(path))
    return frame.toArrow().cast(arrow_of(frame.schema))


def opened(path: Path) -> RecordingFile:
    return detect_format(path).open(path)


def in_spark(table: pa.Table, *, nanoseconds: bool = False) -> pa.Table:
    """A table in the types that Spark has for it."""
    forms = [(f.name, spark_form(f.type, nanoseconds=nanoseconds)) for f in table.schema]
    columns = [spark_array(table[name].combine_chunks(), form) for name, form in forms]
    return pa.table([pa.chunked_array([c]) for c in columns], schema=pa.schema(forms))


def recordings(folder: Path) -> Iterator[Path]:
    return (p for p in sorted(folder.rglob("*")) if p.suffix in (".mcap", ".rrd", ".parquet") and p.is_file())


def has_one_recording(path: Path) -> bool:
    return sum(store is None or store.kind == "recording" for store, _ in opened(path).stores()) == 1


def difference(path: Path, rows: Rows, times: str) -> str | None:
    """In what the rows of a recording differ from ``to_arrow``; None: in nothing, an error is the same error, too."""
    try:
        wanted = opened(path).values().to_arrow("/**", executor="inline")
    except ChunkmillError as error:
        try:
            return f"{rows(path, contents='/**').num_rows} rows where to_arrow raises {error!r}"
        except (ChunkmillError, PySparkException) as other:
            is_same = type(other) is type(error) or all(t in str(other) for t in (type(error).__name__, error.message))
            return None if is_same else f"{other} where to_arrow raises {error!r}"
    try:
        found = rows(path, contents="/**", times=times).drop_columns(["recording_id"])
    except (ChunkmillError, PySparkException) as error:
        return f"{error} where to_arrow gives {wanted.num_rows} rows"
    same = in_spark(wanted, nanoseconds=times == "nanoseconds")
    if found.column_names != same.column_names:
        return f"columns {found.column_names} where to_arrow has {same.column_names}"
    if not found.schema.equals(same.schema):
        return f"types {found.schema} where to_arrow has {same.schema}"
    for name in same.column_names:
        one, other = found[name].combine_chunks(), same[name].combine_chunks()
        if not one.equals(other) and repr(one.to_pylist()) != repr(other.to_pylist()):  # NaN
            return f"column {name!r}: {one.slice(0, 3)} where to_arrow has {other.slice(0, 3)}"
    return None


def main() -> int:
    """Compare; the number of recordings that differ is printed, and makes the exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", metavar="FOLDER", type=Path, nargs="+", help="or a recording")
    parser.add_argument("--executor", choices=["inline", "spark"], default="spark")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    compared = differing = 0
    paths = [path for folder in args.folders for path in ([folder] if folder.is_file() else recordings(folder))]
    for number, path in itertools.islice(enumerate(paths), args.start, None, args.every):
        reason: str | None
        try:
            if not has_one_recording(path):
                print(f"{number} {path}: left out, as it does not hold one recording", flush=True)
                continue
        except ChunkmillError:
            pass  # both have to say so
        table_rows = rows if args.executor == "inline" else rows_of_session
        reason = difference(path, table_rows, "nanoseconds" if number % 2 else "timestamp")
        compared += 1
        if reason is not None:
            differing += 1
            print(f"{number} {path}: {reason}", flush=True)
    print(f"{compared} recordings compared, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
