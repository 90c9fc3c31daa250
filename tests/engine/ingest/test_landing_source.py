"""The data source `chunkmill.landing`: offsets of constant size, an entry a batch, gone on with after a restart."""

from __future__ import annotations

import json

import pytest
from chunkmill.engine.errors import ReadError, UsageError
from chunkmill.engine.ingest.files import LandedFile
from chunkmill.engine.ingest.landing_log import LandingLog
from chunkmill.engine.ingest.spark_query import LandingReader, LandingSource, register_landing


def file(number: int) -> LandedFile:
    return LandedFile(f"/landing/ß{number}.mcap", 1 << 40, number)


@pytest.fixture
def log(tmp_path) -> LandingLog:
    return LandingLog(tmp_path / "log")


@pytest.fixture
def reader(tmp_path) -> LandingReader:
    return LandingReader(str(tmp_path / "log"))


def rows(reader: LandingReader, start: int, end: int) -> list[tuple]:
    """What Spark would get between two offsets."""
    parts = reader.partitions({"entry": start}, {"entry": end})
    return [tuple(row.values()) for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


class TestReader:
    def test_a_batch_is_one_entry(self, log, reader) -> None:
        assert reader.initialOffset() == {"entry": 0}
        assert reader.latestOffset({"entry": 0}, None) == {"entry": 0}
        for number in (1, 2, 3):
            log.append([file(number), file(10 + number)])
        assert [reader.latestOffset({"entry": n}, None)["entry"] for n in (0, 1, 2, 3)] == [1, 2, 3, 3]
        assert rows(reader, 1, 2) == [(2, "/landing/ß2.mcap", 1 << 40, 2), (2, "/landing/ß12.mcap", 1 << 40, 12)]

    def test_without_a_start_all_that_is_new_is_one_batch(self, log, reader) -> None:
        for number in (1, 2, 3):
            log.append([file(number)])
        assert reader.latestOffset() == {"entry": 3}
        assert [row[0] for row in rows(reader, 1, 3)] == [2, 3]

    def test_what_comes_later_is_not_given_to_a_query_of_what_there_is(self, log, reader) -> None:
        log.append([file(1)])
        log.append([file(2)])
        reader.prepareForTriggerAvailableNow()
        log.append([file(3)])
        assert [reader.latestOffset({"entry": n}, None)["entry"] for n in (0, 1, 2)] == [1, 2, 2]
        assert reader.latestOffset() == {"entry": 2}

    def test_a_log_that_ends_before_the_checkpoint_is_refused(self, log, reader) -> None:
        log.append([file(1)])
        with pytest.raises(
            ReadError, match="damaged: Spark was given entry 2 of a landing log that ends at 1"
        ) as caught:
            reader.latestOffset({"entry": 2}, None)
        assert any("chunkmill.read" in note for note in caught.value.__notes__)

    def test_offsets_stay_when_entries_are_merged(self, log, reader) -> None:
        for number in (1, 2, 3):
            log.append([file(number)])
        log.compact(3, None)
        assert reader.latestOffset({"entry": 2}, None) == {"entry": 3}
        assert rows(reader, 2, 3) == [(3, "/landing/ß3.mcap", 1 << 40, 3)]

    def test_large_entries_come_in_batches(self, log, reader) -> None:
        log.append([file(number) for number in range(25_000)])
        (part,) = reader.partitions({"entry": 0}, {"entry": 1})
        assert [batch.num_rows for batch in reader.read(part)] == [10_000, 10_000, 5_000]

    def test_an_option_that_is_not_known_is_refused(self) -> None:
        for options in ({}, {"path": "x", "maxFiles": "3"}):
            with pytest.raises(UsageError):
                LandingSource(options).streamReader(None)


def test_spark_goes_on_after_a_restart_with_what_it_has_not_had(spark, log, tmp_path) -> None:
    register_landing(spark)
    checkpoint, had, failures = tmp_path / "checkpoint", [], []

    def batch(frame, number) -> None:
        rows = [tuple(row) for row in frame.collect()]
        if 3 in {entry for entry, *_ in rows} and not failures:
            failures.append(number)
            raise RuntimeError("planned")
        had.extend(rows)

    def run() -> None:
        frame = spark.readStream.format("chunkmill.landing").load(str(tmp_path / "log"))
        query = (
            frame.writeStream.foreachBatch(batch)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)

    for number in (1, 2, 3):
        log.append([file(number), file(10 + number)])
    with pytest.raises(Exception, match="planned"):
        run()
    log.append([file(4)])
    run()
    if had[-1][0] == 3:
        run()  # before 4.2 a run of what there is takes one batch: the one that failed
    expected = [(entry, i) for entry in (1, 2, 3) for i in (entry, 10 + entry)] + [(4, 4)]
    assert had == [(entry, f"/landing/ß{i}.mcap", 1 << 40, i) for entry, i in expected]
    logged = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets = [json.loads(path.read_text().splitlines()[-1]) for path in logged]
    # Before 4.2 Spark does not tell the source where it is, and all that is new is one batch.
    assert offsets in ([{"entry": n} for n in (1, 2, 3, 4)], [{"entry": 3}, {"entry": 4}])
