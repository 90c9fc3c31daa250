"""Value rows: equal to ``to_arrow``, in Spark's types, and only what is asked for is decoded."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.data_sources.options import Request
from chunkmill.engine.data_sources.reading import ValueReader, value_row_schema
from chunkmill.engine.errors import ChunkmillError, SourceMissingError, UsageError
from chunkmill.engine.spark import arrow_of, spark_schema
from chunkmill.readers.mcap.decoders import compile_decoder
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from tests.conformance.spark_values import difference, has_one_recording, in_spark, opened, recordings, rows

IMU = "mcap/rerun__rosbag2_2025_09_10-13_03_56_0.mcap"


@pytest.mark.filterwarnings("ignore::chunkmill.engine.errors.ReadWarning")  # of damaged files
@pytest.mark.heavy
def test_values_are_those_of_to_arrow(data: Path) -> None:
    compared = 0
    for number, path in enumerate(recordings(data)):
        with suppress(ChunkmillError):
            if not has_one_recording(path):
                continue
        assert difference(path, rows, "nanoseconds" if number % 2 else "timestamp") is None, path
        compared += 1
    assert compared > 10


def test_a_topic_has_its_fields_and_times_as_columns(data: Path) -> None:
    found = rows(data / IMU, topic="/imu")
    assert found.column_names[:3] == ["recording_id", "message_log_time", "message_publish_time"]
    assert found.schema.field("message_log_time").type == pa.timestamp("us", tz="UTC")
    assert found.schema.field("linear_acceleration").type == pa.struct([(n, pa.float64()) for n in "xyz"])
    assert set(found["recording_id"].to_pylist()) == {"rerun__rosbag2_2025_09_10-13_03_56_0"}
    flat = rows(data / IMU, topic="imu", flatten="true", columns="recording_id,linear_acceleration.x")
    assert flat.column_names == ["recording_id", "linear_acceleration.x"]
    assert flat["linear_acceleration.x"].to_pylist() == [v["x"] for v in found["linear_acceleration"].to_pylist()]
    both = rows(data / IMU, contents="/imu/**")
    assert set(both["entity_path"].to_pylist()) == {"/imu"}


@pytest.mark.filterwarnings("ignore:.*(keeps nothing|no message is):chunkmill.engine.errors.ReadWarning")
def test_filters_on_time_and_entity_reach_the_reader(data: Path) -> None:
    everything = rows(data / IMU, topic="/imu", times="nanoseconds")["message_log_time"].to_pylist()
    first, last = everything[len(everything) // 3], everything[2 * len(everything) // 3]
    inside = [t for t in everything if first <= t < last]
    chosen = rows(data / IMU, topic="/imu", times="nanoseconds", start=str(first), end=str(last))
    assert chosen["message_log_time"].to_pylist() == inside
    bounds = [GreaterThanOrEqual(("log_time",), first), LessThan(("log_time",), last)]
    pushed = rows(data / IMU, bounds, topic="/imu", times="nanoseconds")["message_log_time"].to_pylist()
    assert set(inside) <= set(pushed) <= {*inside, last}
    moments = [datetime.fromtimestamp(t // 10**9, UTC) for t in (first + 10**9, last)]
    some = rows(
        data / IMU, [GreaterThanOrEqual(("log_time",), moments[0]), LessThan(("log_time",), moments[1])], topic="/imu"
    )
    kept = [t for t in some["message_log_time"].to_pylist() if moments[0] <= t < moments[1]]
    whole = rows(data / IMU, topic="/imu")["message_log_time"].to_pylist()
    assert kept == [t for t in whole if moments[0] <= t < moments[1]]
    assert len(some) < len(whole)
    assert len(rows(data / IMU, [EqualTo(("entity_path",), "/nothing")], contents="/imu/**")) == 0


def test_nothing_else_is_decoded(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[str, list[str]]] = []

    def counted(channel: Any, *rest: Any, **more: Any) -> Any:
        decoder = compile_decoder(channel, *rest, **more)
        compiled.append((channel.topic, decoder.datatype.names))
        return decoder

    wanted = rows(data / IMU, topic="/imu", flatten="true")["linear_acceleration.x"]
    given = {"path": str(data / IMU), "topic": "/imu", "columns": "linear_acceleration.x"}
    request = Request.of(None, given)
    reader = ValueReader(request, value_row_schema(request))
    parts = reader.partitions()
    monkeypatch.setattr("chunkmill.readers.mcap.reader.compile_decoder", counted)
    found = pa.Table.from_batches([b for part in parts for b in reader.read(part)])
    assert found.column_names == ["linear_acceleration.x"]
    assert found["linear_acceleration.x"].to_pylist() == wanted.to_pylist()
    assert set(map(str, compiled)) == {"('/imu', ['linear_acceleration'])"}


def test_several_recordings_have_one_schema(data: Path, tmp_path: Path) -> None:
    mcaps = [p for p in recordings(data) if p.suffix == ".mcap"][:3]
    made = [data / IMU, *(p for p in mcaps if p.name != Path(IMU).name)]
    found = rows(made, contents="/**")
    assert len(set(found["recording_id"].to_pylist())) == len(made)
    alone = opened(data / IMU).values().to_arrow("/imu", executor="inline")
    mine = rows(made, topic="/imu").drop_columns(["recording_id"])
    assert mine.equals(in_spark(alone))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "/imu", "contents": "/imu"}, "exclude each other"),
        ({"topic": "/imu", "times": "utc"}, "'timestamp' or 'nanoseconds'"),
        ({"topic": "/imu", "payload": "true"}, "no option 'payload'"),
        ({"index": "log_time"}, "no option 'index'"),
        ({"topic": "/imu", "columns": "linear"}, "no column 'linear'"),
        ({"topic": "/imo"}, "no rows on /imo"),
        ({"topic": "/imu", "start": "yesterday"}, "start"),
        ({"topic": "/imu", "index": "frame"}, "no timeline 'frame'"),
    ],
)
def test_options_are_checked(data: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        value_row_schema(Request.of(None, {"path": str(data / IMU), **options}))


def test_an_empty_landing_folder_needs_an_example(data: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="schemaFrom"):
        value_row_schema(Request.of(None, {"path": str(tmp_path), "topic": "/imu"}))
    given = {"path": str(tmp_path), "topic": "/imu", "schemafrom": str(data / IMU)}
    assert "linear_acceleration" in value_row_schema(Request.of(None, given)).fieldNames()


def test_in_sql_and_as_a_stream(spark: Any, data: Path, tmp_path: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW imu USING chunkmill OPTIONS (path '{data / IMU}', topic '/imu')")
    (row,) = spark.sql(
        "SELECT count(*) AS n, max(linear_acceleration.x) AS x, min(message_log_time) AS t FROM imu"
    ).collect()
    wanted = opened(data / IMU).values().to_arrow("/imu", executor="inline")
    assert row.n == len(wanted)
    assert row.x == max(v["x"] for v in wanted["linear_acceleration"].to_pylist())
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.mcap").symlink_to(data / IMU)
    stream = spark.readStream.format("chunkmill").option("topic", "/imu").option("settle", "0s")
    frame = stream.load(str(tmp_path / "landing")).groupBy("recording_id").count()
    query = frame.writeStream.format("memory").queryName("counts").outputMode("complete")
    query.trigger(availableNow=True).start().awaitTermination(120)
    assert [tuple(r) for r in spark.table("counts").collect()] == [("a", len(wanted))]


def test_a_schema_of_the_user_has_its_columns_alone(spark: Any, data: Path) -> None:
    frame = spark.read.format("chunkmill").schema("recording_id string, log_time timestamp").option("topic", "/imu")
    assert frame.load(str(data / IMU)).dropDuplicates(["recording_id"]).count() == 1


@pytest.mark.parametrize("name", ["log_time", "message_log_time"])
def test_the_log_time_has_one_name_and_a_short_one(data: Path, name: str) -> None:
    everything = rows(data / IMU, topic="/imu", times="nanoseconds")
    times = everything["message_log_time"].to_pylist()
    first = times[len(times) // 2]
    some = rows(data / IMU, topic="/imu", times="nanoseconds", index=name, start=str(first))
    assert some.column_names == everything.column_names
    assert sorted(some["message_log_time"].to_pylist()) == sorted(t for t in times if t >= first)
    chosen = rows(data / IMU, topic="/imu", times="nanoseconds", columns=name)
    assert chosen.column_names == [name] and chosen[name].to_pylist() == times


def test_what_stands_for_types_is_said_for_all(data: Path) -> None:
    table = LazyChunkStream.merge(*(opened(p).values() for p in list(recordings(data))[:2]))
    known = table.to_arrow(executor="inline")
    assert arrow_of(spark_schema(known.schema)).names == known.schema.names
