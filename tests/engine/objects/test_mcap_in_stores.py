"""MCAPs in an object store: the same as local ones, in few requests, and without the bytes that nobody wants."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from chunkmill.engine.cli import convert
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.stream import MOST_PLANNED, LazyChunkStream, task_plan
from chunkmill.readers import McapReader, RrdReader
from chunkmill.readers.mcap import plan
from click.testing import CliRunner
from comparison import cells
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
from s3_server import S3Server

TOPICS = ("/early", "/late", "/often")
MESSAGES = 3000
SPLIT_BYTES = 1 << 18
WHOLE = 1 << 26


def recording(*, crcs: bool = True) -> bytes:
    """A file of 1.5 MB: two topics one after the other, a message of the third now and then, chunks of 8 kB."""
    out, rng = io.BytesIO(), random.Random(5)
    writer = Writer(out, chunk_size=8192, compression=CompressionType.NONE, enable_crcs=crcs)
    writer.start()
    channels = {topic: writer.register_channel(topic, "opaque", 0) for topic in TOPICS}
    for i in range(MESSAGES):
        topic = "/often" if i % 100 == 0 else "/early" if i < MESSAGES // 5 else "/late"
        writer.add_message(channels[topic], i, rng.randbytes(500), i)
    writer.finish()
    return out.getvalue()


DATA = recording()

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")
    monkeypatch.setattr(plan, "SPLIT_BYTES", SPLIT_BYTES)
    monkeypatch.setattr("chunkmill.engine.storage.remote_file._JOINED_GAP", 4096)


def both(s3: S3Server, bucket: str, folder: Path, data: bytes) -> tuple[Path, str]:
    """The file here and there."""
    (folder / "x.mcap").write_bytes(data)
    s3.client.put_object(Bucket=bucket[5:], Key="x.mcap", Body=data)
    s3.requests.clear()
    s3.log.clear()
    return folder / "x.mcap", f"{bucket}/x.mcap"


def rows(path: Path | str, content: str | None = None, **options: int) -> list[tuple[str, int, bytes]]:
    """Entity, time and payload of each message, however they are divided into chunks."""
    stream = McapReader(path, **options).stream()
    chunks = (stream if content is None else stream.filter(content=content)).to_chunks()
    return sorted(
        (chunk.entity_path, tick, bytes(values[0]))
        for chunk in chunks
        for column in chunk.data.components
        if column.descriptor.component == "McapMessage:data"
        for tick, values in zip(chunk.data.timelines[0].ticks.tolist(), column.values.to_pylist(), strict=True)
    )


def fetched(s3: S3Server) -> int:
    ranges = [line.rpartition("bytes=")[2].partition("-") for line in s3.log if line.startswith("GET")]
    return sum(int(stop) - int(start) + 1 for start, _, stop in ranges)


def test_all_of_it_comes_in_few_requests(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    here, there = both(s3, bucket, tmp_path, DATA)
    assert cells(McapReader(there).stream().to_chunks()) == cells(McapReader(here).stream().to_chunks())
    assert s3.requests["GET"] <= 4 + 2 * len(DATA) // SPLIT_BYTES + len(DATA) // (80 * 1024)
    assert s3.requests["HEAD"] <= 2


@pytest.mark.parametrize("split_bytes", [SPLIT_BYTES, WHOLE])
@pytest.mark.parametrize(("topic", "share"), [("/early", 0.3), ("/late", 0.9), ("/often", 0.6)])
def test_chunks_without_a_wanted_topic_are_not_fetched(
    topic: str,
    share: float,
    split_bytes: int,
    s3: S3Server,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "SPLIT_BYTES", split_bytes)
    here, there = both(s3, bucket, tmp_path, DATA)
    found = rows(there, topic)
    assert found and found == rows(here, topic)
    assert 0 < fetched(s3) <= share * len(DATA) + 100 * 1024


@pytest.mark.parametrize("window", [(1, 100), (1000, 1200), (MESSAGES - 1, MESSAGES), (0, MESSAGES)])
def test_chunks_outside_of_the_times_are_not_fetched(
    window: tuple[int, int], s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    here, there = both(s3, bucket, tmp_path, DATA)
    times = {"start_time_ns": window[0], "end_time_ns": window[1]}
    assert rows(there, **times) == rows(here, **times)
    assert fetched(s3) <= (window[1] - window[0]) * 600 + 200 * 1024


def test_a_file_whose_index_is_wrong_is_read_front_to_end(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    """The index has all chunks 8 bytes too early: those that begin a split show it."""
    data = bytearray(recording(crcs=False))
    summary = make_reader(io.BytesIO(data)).get_summary()
    assert summary is not None
    for entry in summary.chunk_indexes:
        times = entry.message_start_time.to_bytes(8, "little") + entry.message_end_time.to_bytes(8, "little")
        at = data.rindex(times + entry.chunk_start_offset.to_bytes(8, "little"))
        data[at + 16 : at + 24] = (entry.chunk_start_offset - 8).to_bytes(8, "little")
    here, there = both(s3, bucket, tmp_path, bytes(data))
    assert cells(McapReader(there).stream().to_chunks()) == cells(McapReader(here).stream().to_chunks())


def test_very_many_are_planned_by_their_tasks(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    count = MOST_PLANNED + 1
    for i in range(count):
        s3.client.put_object(Bucket=bucket[5:], Key=f"many/{i:03d}.mcap", Body=DATA)
    merged = LazyChunkStream.merge(
        *(McapReader(f"{bucket}/many/{i:03d}.mcap").stream().filter(content="/often") for i in range(count))
    )
    s3.requests.clear()
    planned = task_plan(merged)
    assert len(planned.tasks) == count
    assert not s3.requests
    found = sum(c.num_rows for c in planned.run(count - 1) if c.entity_path == "/often" and not c.is_static)
    assert found == MESSAGES // 100


def test_a_conversion_of_very_many_asks_for_nothing_before_its_tasks(
    s3: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkmill.engine.cli.convert.MOST_PLANNED", 2)
    both(s3, bucket, tmp_path, DATA)
    for i in range(3):
        s3.client.put_object(Bucket=bucket[5:], Key=f"many/{i:03d}.mcap", Body=DATA)
    seen: list[int] = []
    written = convert.write_recordings

    def spy(recordings, *arguments):
        planned = list(recordings)
        seen.append(sum(line.startswith(("GET", "HEAD")) and "/many/0" in line for line in s3.log))
        return written(planned, *arguments)

    monkeypatch.setattr(convert, "write_recordings", spy)
    done = CliRunner().invoke(commands, ["convert", f"{bucket}/many", "-o", str(tmp_path / "out"), "-q"])
    assert done.exit_code == 0, done.stderr
    assert seen == [0], s3.log
    assert len(RrdReader(tmp_path / "out" / "002.rrd").stream().to_chunks()) > 0


def test_the_report_counts_what_tasks_fetched(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    _, there = both(s3, bucket, tmp_path, DATA)
    stream = McapReader(there).stream().filter(content="/late")
    report = stream.write_rrd(tmp_path / "x.rrd", application_id="a", recording_id="r")
    assert report.tasks[0].requests > 0
    assert report.requests == sum(task.requests for task in report.tasks) <= s3.requests["GET"]
    assert 0 < report.bytes_read == sum(task.bytes_read for task in report.tasks) <= fetched(s3) < len(DATA)
    assert f"in {report.requests} requests" in report._repr_html_()
