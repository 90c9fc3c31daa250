"""Metrics of an ingestion, as Prometheus's own parser reads them."""

from __future__ import annotations

import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from chunkmill.engine.errors import UsageError
from chunkmill.engine.ingest import BatchResult, FileResult, Ingest, LandedFile, Outcome
from chunkmill.engine.ingest.metrics import IngestMetrics, MetricsServer
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

PREFIX = "chunkmill_ingest_"


def fetched(server: MetricsServer) -> dict[str, float]:
    with urllib.request.urlopen(server.url, timeout=10) as answer:
        return parsed(answer.read())


def parsed(text: bytes) -> dict[str, float]:
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(sample.labels[name] for name in sorted(sample.labels))
            samples[sample.name.removeprefix(PREFIX) + (f"[{labels}]" if labels else "")] = sample.value
    return samples


def values(metrics: IngestMetrics) -> dict[str, float]:
    return parsed(generate_latest(metrics.registry))


def file(outcome: Outcome, size: int = 1000, **more: int) -> FileResult:
    recordings = ("a",) if outcome in (Outcome.ADDED, Outcome.REPLACED) else ()
    return FileResult(LandedFile(f"/landing/{outcome}.mcap", size, 1), outcome, recordings=recordings, **more)


def batch(number: int, *files: FileResult, replayed: bool = False, seconds: float = 2.0) -> BatchResult:
    return BatchResult("q", number, number + 1, files, seconds, replayed)


def test_files_are_counted_by_outcome_and_sizes_of_what_was_kept() -> None:
    metrics = IngestMetrics()
    metrics.batch_done(
        batch(
            4,
            file(Outcome.ADDED, 1000, chunks=3, rows=30, bytes_out=700),
            file(Outcome.ADDED, 500, chunks=1, rows=10, bytes_out=300),
            file(Outcome.REPLACED, 10, chunks=1, rows=1, bytes_out=5),
            file(Outcome.QUARANTINED, 99),
            file(Outcome.DUPLICATE, 1000),
        )
    )
    found = values(metrics)
    outcomes = {outcome.value: found[f"files_total[{outcome}]"] for outcome in Outcome}
    assert outcomes == {"added": 2, "replaced": 1, "duplicate": 1, "quarantined": 1, "vanished": 0, "changed": 0}
    sums = ("recordings", "chunks", "rows", "read_bytes", "written_bytes", "batches")
    assert [found[f"{name}_total"] for name in sums] == [3, 5, 41, 1510, 1005, 1]
    assert (found["last_batch_number"], found["store_version"]) == (4, 5)
    assert abs(found["last_batch_timestamp_seconds"] - time.time()) < 60


def test_the_time_of_batches_is_a_histogram() -> None:
    metrics = IngestMetrics()
    for seconds in (0.2, 2.0, 4000.0):
        metrics.batch_done(batch(1, seconds=seconds))
    found = values(metrics)
    buckets = [found[f"batch_seconds_bucket[{edge}]"] for edge in ("0.1", "0.25", "2.5", "1800.0", "+Inf")]
    assert buckets == [0, 1, 2, 2, 3]
    assert found["batch_seconds_sum"] == pytest.approx(4002.2)


def test_a_replayed_batch_does_not_count_its_files_again() -> None:
    metrics = IngestMetrics()
    metrics.batch_done(batch(1, file(Outcome.ADDED, chunks=3), replayed=True))
    found = values(metrics)
    assert (found["batches_replayed_total"], found["batches_total"], found["files_total[added]"]) == (1, 0, 0)
    assert found["chunks_total"] == 0


def test_what_waits_and_what_runs_are_gauges() -> None:
    metrics = IngestMetrics()
    metrics.looked(7, 2, 12.5)
    metrics.batch_began(1, 5, 5000)
    with MetricsServer(metrics, 0) as server:
        found = fetched(server)
    assert (found["ready_files"], found["waiting_files"], found["oldest_waiting_seconds"]) == (7, 2, 12.5)
    assert (found["running_batch_files"], found["running_batch_bytes"]) == (5, 5000)
    assert abs(found["last_look_timestamp_seconds"] - time.time()) < 60


@pytest.mark.parametrize(
    "end",
    [
        lambda metrics: metrics.batch_done(batch(1)),
        lambda metrics: metrics.batch_failed(1, OSError("no")),
        lambda metrics: metrics.stopped("done"),
    ],
)
def test_nothing_runs_after_a_batch(end: Callable[[IngestMetrics], None]) -> None:
    metrics = IngestMetrics()
    metrics.batch_began(1, 5, 5000)
    end(metrics)
    found = values(metrics)
    assert (found["running_batch_files"], found["running_batch_bytes"]) == (0, 0)


def test_failed_batches_are_counted() -> None:
    metrics = IngestMetrics()
    metrics.batch_failed(3, RuntimeError("no"))
    assert values(metrics)["batch_failures_total"] == 1


def test_up_says_whether_it_runs() -> None:
    metrics = IngestMetrics()
    ups = [values(metrics)["up"]]
    metrics.started("q", "landing", "lake")
    ups.append(values(metrics)["up"])
    metrics.stopped("asked to")
    ups.append(values(metrics)["up"])
    assert ups == [0, 1, 0]


def test_a_source_that_is_no_text_breaks_nothing() -> None:
    metrics = IngestMetrics()
    metrics.started("q", '/landing/\udcff\n"quoted"', "lake")
    found = values(metrics)
    assert found['info[q,/landing/\\udcff\n"quoted",lake]'] == 1


def test_the_quarantine_is_asked_when_the_metrics_are_fetched() -> None:
    sizes = [3, 5]
    metrics = IngestMetrics(lambda: sizes.pop(0))
    with MetricsServer(metrics, 0) as server:
        assert [fetched(server)["quarantined_files"] for _ in range(2)] == [3, 5]
        broken = fetched(server)
    assert broken["quarantined_files"] != broken["quarantined_files"]
    assert broken["up"] == 0


def test_two_ingestions_of_a_process_do_not_mix() -> None:
    first, second = IngestMetrics(), IngestMetrics()
    first.batch_done(batch(1, file(Outcome.ADDED)))
    assert values(first)["files_total[added]"] == 1
    assert values(second)["files_total[added]"] == 0


def test_a_used_port_is_a_usage_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="in use") as error:
        MetricsServer(IngestMetrics(), taken.getsockname()[1])
    assert "--metrics-port" in str(error.value)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("203.0.113.1", 0), ("no such host.invalid", 0)])
def test_an_impossible_address_is_a_usage_error(host: str, port: int) -> None:
    with pytest.raises(UsageError, match="metrics cannot be served"):
        MetricsServer(IngestMetrics(), port, host)


def test_a_closed_server_leaves_no_thread_and_gives_its_port_back() -> None:
    before = threading.active_count()
    server = MetricsServer(IngestMetrics(), 0)
    fetched(server)
    server.close()
    server.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.url, timeout=5)
    MetricsServer(IngestMetrics(), server.port).close()
    assert threading.active_count() <= before


def test_an_ingestion_is_counted(tmp_path: Path, data: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    shutil.copy(data / "demo.mcap", landing / "a.mcap")
    (landing / "bad.mcap").write_bytes(b"no recording")
    metrics = IngestMetrics()
    ingest = Ingest(landing, into=tmp_path / "lake", executor="inline", settle=0, listeners=[metrics])
    ingest.start(once=True).await_termination(60)
    found = values(metrics)
    assert (found["files_total[added]"], found["files_total[quarantined]"]) == (1, 1)
    assert (found["recordings_total"], found["rows_total"], found["read_bytes_total"]) == (1, 3523, 782496)
    assert (found["batches_total"], found["batch_failures_total"], found["up"]) == (1, 0, 0)
    assert found["last_look_timestamp_seconds"] > 0
