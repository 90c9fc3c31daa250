"""A lake of a dataset and a table, and statements over them that DuckDB executes, too, over the same as Parquet.

A statement names the rows of the dataset ``{rows}``, its segments ``{segments}`` and the table ``labels``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from chunkmill import CatalogClient, Chunk, LazyChunkStream
from chunkmill.engine.chunk import ComponentDescriptor

SECOND = 1_000_000_000
READER = "reader(drives, index => 'frame')"
SPEED, GEAR, NAME = '"/speed:value"', '"/gear:value"', '"/name:value"'


def chunk(entity: str, frames: list[int], values: pa.Array) -> Chunk:
    """A chunk of one component at some frames, and at the times that go with them; static where there are none."""
    times = pa.array([SECOND * frame + 1_000 for frame in frames], pa.timestamp("ns"))
    indexes = {"frame": pa.array(frames, pa.int64()), "log_time": times} if frames else {}
    return Chunk.build(entity, indexes, [(ComponentDescriptor("value"), values)])


def lake_at(folder: Path, seed: int = 1, segments: int = 6) -> CatalogClient:
    """A lake with the dataset ``drives``, whose values have nulls and lists of any length, and the table ``labels``."""
    random_ = random.Random(seed)
    names = [f"drive-{number}" for number in range(segments)]
    paths = []
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / f"{name}.rrd"
        stream = LazyChunkStream.from_iter(_chunks(random_))
        stream.write_rrd(path, application_id="tests", recording_id=name, executor="inline")
        paths.append(str(path))
    client = CatalogClient(folder / "lake")
    client.create_dataset("drives").register(paths).wait()
    schema = pa.schema([("drive", pa.string()), ("label", pa.string()), ("score", pa.float64()), ("stars", pa.int64())])
    rows = [
        {
            "drive": random_.choice([*names, "elsewhere", None]),
            "label": random_.choice(["sun", "fog", "snow", "Fog", "", None]),
            "score": random_.choice([None, 0.0, 0.5, 1.25, -3.5]),
            "stars": random_.choice([None, 1, 2, 3, 50]),
        }
        for _ in range(14)
    ]
    client.create_table("labels", schema).append(pa.Table.from_pylist(rows, schema))
    return client


def _chunks(random_: random.Random) -> Iterator[Chunk]:
    def frames() -> list[int]:
        return sorted(random_.sample(range(-5, 60), random_.randint(1, 25)))

    for _ in range(random_.randint(1, 3)):
        some = frames()
        numbers = [random_.choice([None, [], [n / 4], [n / 4, None], [n / 2, float(-n)]]) for n in some]
        yield chunk("/speed", some, pa.array(numbers, pa.list_(pa.float64())))
    some = frames()
    gears = [random_.choice([None, [], [random_.randint(0, 5)], [1, 2, 3]]) for _ in some]
    yield chunk("/gear", some, pa.array(gears, pa.list_(pa.int32())))
    some = frames()
    words = [random_.choice([None, ["a"], ["b", "B"], [""], ["it's"]]) for _ in some]
    yield chunk("/name", some, pa.array(words, pa.list_(pa.string())))
    if random_.random() < 0.7:
        weather = random_.choice(["dry", "wet"])
        yield chunk("/__properties/info", [], pa.array([[weather]], pa.list_(pa.string())))


def duck_of(client: CatalogClient, folder: Path) -> Any:
    """A connection to DuckDB with the views ``rows``, ``segments`` and ``labels`` over Parquet."""
    import duckdb

    dataset, folder = client.get_dataset("drives"), folder / "parquet"
    folder.mkdir(exist_ok=True)
    tables = {
        "rows": dataset.reader("frame", executor="inline"),
        "segments": dataset.segment_table(),
        "labels": client.get_table("labels").reader(),
    }
    connection = duckdb.connect()
    for name, frame in tables.items():
        pq.write_table(frame.to_arrow_table(), folder / f"{name}.parquet")
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{folder / name}.parquet')")
    return connection


def ours(client: CatalogClient, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a statement over the lake."""
    return rows_of(client.ctx.sql(statement.format(rows=READER, segments="drives")).to_arrow_table())


def theirs(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    """The rows that DuckDB has for it."""
    return rows_of(connection.sql(statement.format(rows="rows", segments="segments")).to_arrow_table())


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows as plain values, without the types in which engines differ."""
    columns = [_plain_column(column) for column in table.columns]
    return list(zip(*columns, strict=True))


def _plain_column(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ns")).cast(pa.int64())
    return [_plain(value) for value in column.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float | Decimal):
        return float(f"{float(value):.9g}") + 0.0
    return value


def in_any_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows in an order that does not depend on whoever made them."""
    return sorted(rows, key=repr)


class Statements:
    """Statements of a seed. Each has few rows in an order that is known, or is compared in any order."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._forms: list[Callable[[], str]] = [
            self._plain,
            self._grouped,
            self._joined,
            self._with_cte,
            self._windowed,
            self._of_segments,
            self._of_labels,
            self._nested,
            self._combined,
        ]

    def one(self) -> str:
        """One statement."""
        return self._random.choice(self._forms)()

    # --- conditions

    def _of_rows(self, r: str = "r") -> str:
        n, choose = self._random.randint(-6, 60), self._random.choice
        drive = f"drive-{self._random.randint(0, 7)}"
        return choose(
            [
                f"{r}.frame {choose(['<', '<=', '>', '>=', '=', '<>'])} {n}",
                f"{r}.frame BETWEEN {n} AND {n + self._random.randint(-3, 30)}",
                f"{r}.frame {choose(['IN', 'NOT IN'])} ({n}, {n + 1}, {n + 7})",
                f"{r}.log_time {choose(['<', '>=', '>'])} TIMESTAMP '1970-01-01 00:00:{abs(n) % 60:02}.000001'",
                f"{r}.rerun_segment_id {choose(['=', '<>', '<', '>='])} '{drive}'",
                f"{r}.rerun_segment_id {choose(['IN', 'NOT IN'])} ('{drive}', 'drive-2', 'x')",
                f"{r}.rerun_segment_id LIKE '%-{self._random.randint(0, 5)}'",
                f"{r}.{SPEED}[1] {choose(['<', '>', '=', '<>'])} {n / 4}",
                f"{r}.{SPEED}[2] {choose(['IS NULL', 'IS NOT NULL'])}",
                f"{r}.{GEAR}[{self._random.randint(1, 3)}] {choose(['IN', 'NOT IN'])} (1, 2, 5)",
                f"{r}.{choose([SPEED, GEAR, NAME])} {choose(['IS NULL', 'IS NOT NULL'])}",
                f"{r}.{NAME}[1] {choose(['=', '<>', '>'])} {choose(['chr(97)', repr('b'), repr('')])}",
                f"coalesce({r}.{GEAR}[1], -1) > {self._random.randint(-2, 4)}",
                f"{r}.{SPEED}[1] > {r}.{GEAR}[1]",
                f"abs({r}.{SPEED}[1]) * 2 < {abs(n)}",
                f"{r}.frame % 3 = {self._random.randint(0, 2)}",
            ]
        )

    def _of_labels_rows(self, x: str = "l") -> str:
        choose = self._random.choice
        return choose(
            [
                f"{x}.label {choose(['=', '<>', '<'])} {choose([repr('fog'), repr('sun'), repr('')])}",
                f"{x}.label {choose(['IS NULL', 'IS NOT NULL'])}",
                f"{x}.label {choose(['IN', 'NOT IN'])} ('fog', 'snow')",
                f"{x}.score {choose(['<', '>='])} {choose([0, 0.5, 1])}",
                f"{x}.stars {choose(['IN', 'NOT IN'])} (1, 50)",
                f"{x}.stars + 1 > coalesce({x}.score, 2)",
                f"upper({x}.label) = 'FOG'",
                f"{x}.drive {choose(['IS NULL', 'IS NOT NULL'])}",
            ]
        )

    def _of_segment_rows(self, s: str = "s") -> str:
        n, choose = self._random.randint(-6, 60), self._random.choice
        return choose(
            [
                f'{s}."frame:start" {choose(["<", ">="])} {n}',
                f'{s}."frame:end" - {s}."frame:start" > {n}',
                f"{s}.rerun_num_chunks {choose(['=', '>'])} {self._random.randint(3, 6)}",
                f"{s}.rerun_segment_id {choose(['IN', 'NOT IN'])} ('drive-0', 'drive-4')",
                f'{s}."property:info:value" {choose(["IS NULL", "IS NOT NULL"])}',
                f"{s}.\"property:info:value\"[1] {choose(['=', '<>'])} 'wet'",
                f"{s}.\"property:info:value\"[1] {choose(['IN', 'NOT IN'])} ('wet', 'icy')",
                f"{s}.\"log_time:end\" > TIMESTAMP '1970-01-01 00:00:{abs(n) % 60:02}'",
            ]
        )

    def _where(self, condition: Callable[..., str], *names: str) -> str:
        """A condition of up to three parts."""
        parts = [condition(*names) for _ in range(self._random.randint(1, 3))]
        text = parts[0]
        for part in parts[1:]:
            text = f"{text} {self._random.choice(['AND', 'AND', 'OR'])} {part}"
        # DataFusion 54 takes "x IN (1) AND x NOT IN (1)" for false, also where x is null
        is_negated = self._random.random() < 0.15 and text.count("IN (") < 2
        return f"NOT ({text})" if is_negated else f"({text})"

    def _limit(self) -> str:
        if self._random.random() < 0.5:
            return ""
        return f" LIMIT {self._random.randint(0, 9)}" + (" OFFSET 3" if self._random.random() < 0.3 else "")

    # --- forms

    def _plain(self) -> str:
        names = ["rerun_segment_id", "frame", "log_time", SPEED, GEAR, NAME, f"{GEAR}[1] AS g", f"{SPEED}[2] * 2 AS d"]
        chosen = ", ".join(self._random.sample(names, self._random.randint(1, len(names))))
        way = self._random.choice(["", " DESC"])
        order = f" ORDER BY r.rerun_segment_id{way}, r.frame" + self._limit()
        chosen = "*" if self._random.random() < 0.2 else chosen
        return f"SELECT {chosen} FROM {{rows}} AS r WHERE {self._where(self._of_rows)}{order}"

    def _grouped(self) -> str:
        key = self._random.choice(["rerun_segment_id", "frame % 4", f"{GEAR}[1]", f"{NAME}[1]", "frame > 20"])
        value = self._random.choice([f"{SPEED}[1]", f"{GEAR}[1]", "frame"])
        what = self._random.choice(["count", "sum", "min", "max", "avg", "count(DISTINCT"])
        call = f"{what} {value})" if "(" in what else f"{what}({value})"
        having = f" HAVING count(*) > {self._random.randint(1, 6)}" if self._random.random() < 0.4 else ""
        return (
            f"SELECT {key} AS k, count(*) AS n, {call} AS v FROM {{rows}} AS r "
            f"WHERE {self._where(self._of_rows)} GROUP BY {key}{having}"
        )

    def _joined(self) -> str:
        kind = self._random.choice(["JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN"])
        table, on, condition = self._random.choice(
            [
                ("labels AS l", "r.rerun_segment_id = l.drive", f"coalesce({self._of_labels_rows()}, true)"),
                ("{segments} AS s", "r.rerun_segment_id = s.rerun_segment_id", self._of_segment_rows()),
                ("{rows} AS q", "r.frame = q.frame AND r.rerun_segment_id > q.rerun_segment_id", self._of_rows("q")),
            ]
        )
        other = {
            "l": "l.label, l.stars",
            "s": 's."frame:start", s.rerun_num_chunks',
            "q": f"q.rerun_segment_id, q.{GEAR}",
        }
        return (
            f"SELECT r.rerun_segment_id, r.frame, r.{SPEED}, {other[table[-1]]} "
            f"FROM {{rows}} AS r {kind} {table} ON {on} WHERE {self._where(self._of_rows)} AND {condition}"
        )

    def _with_cte(self) -> str:
        return (
            f"WITH a AS (SELECT rerun_segment_id AS id, count(*) AS n, max({SPEED}[1]) AS top FROM {{rows}} AS r "
            f"WHERE {self._where(self._of_rows)} GROUP BY rerun_segment_id), "
            f'b AS (SELECT s.rerun_segment_id AS id, s."property:info:value"[1] AS weather FROM {{segments}} AS s '
            f"WHERE {self._where(self._of_segment_rows)}) "
            f"SELECT b.id, b.weather, a.n, a.top, l.label FROM b LEFT JOIN a ON a.id = b.id "
            f"LEFT JOIN labels AS l ON l.drive = b.id AND {self._of_labels_rows()}"
        )

    def _windowed(self) -> str:
        window = self._random.choice(
            [
                f"lag({SPEED}[1]) OVER w",
                f"sum({GEAR}[1]) OVER (PARTITION BY rerun_segment_id ORDER BY frame ROWS 2 PRECEDING)",
                "row_number() OVER w",
                "first_value(frame) OVER w - frame",
                "count(*) OVER (PARTITION BY rerun_segment_id)",
                f"max({SPEED}[1]) OVER w",
                "rank() OVER (PARTITION BY frame % 5 ORDER BY frame)",
            ]
        )
        return (
            f"SELECT * FROM (SELECT rerun_segment_id, frame, {window} AS x FROM {{rows}} AS r "
            f"WHERE {self._where(self._of_rows)} WINDOW w AS (PARTITION BY rerun_segment_id ORDER BY frame)) AS t "
            f"ORDER BY rerun_segment_id, frame{self._limit()}"
        )

    def _of_segments(self) -> str:
        chosen = self._random.choice(
            [
                "*",
                'rerun_segment_id, "property:info:value", "frame:start"',
                'rerun_segment_id, rerun_layer_names[1], "log_time:start"',
                'rerun_segment_id, "frame:end" - "frame:start" AS span',
            ]
        )
        return (
            f"SELECT {chosen} FROM {{segments}} AS s WHERE {self._where(self._of_segment_rows)} "
            f"ORDER BY rerun_segment_id{self._limit()}"
        )

    def _of_labels(self) -> str:
        return (
            "SELECT label, count(*), sum(stars), min(score) FROM labels AS l "
            f"WHERE {self._where(self._of_labels_rows)} GROUP BY label ORDER BY label NULLS FIRST"
        )

    def _nested(self) -> str:
        inner = self._random.choice(
            [
                f"SELECT drive FROM labels AS l WHERE drive IS NOT NULL AND {self._of_labels_rows()}",
                f"SELECT rerun_segment_id FROM {{segments}} AS s WHERE {self._of_segment_rows()}",
                f"SELECT rerun_segment_id FROM {{rows}} AS q WHERE {self._of_rows('q')}",
            ]
        )
        test = self._random.choice(["IN", "NOT IN"])
        top = f"(SELECT max(frame) FROM {{rows}} AS q WHERE {self._of_rows('q')})"
        return (
            f"SELECT r.rerun_segment_id, count(*) AS n, {top} AS top FROM {{rows}} AS r "
            f"WHERE r.rerun_segment_id {test} ({inner}) AND {self._of_rows()} GROUP BY r.rerun_segment_id"
        )

    def _combined(self) -> str:
        way = self._random.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
        return (
            f"SELECT rerun_segment_id FROM {{rows}} AS r WHERE {self._where(self._of_rows)} {way} "
            f"SELECT drive FROM labels AS l WHERE {self._of_labels_rows()}"
        )
