"""ROS 1 bags in an object store: read where they are, by readers, commands, ingestion and registration."""

from __future__ import annotations

from pathlib import Path

import pytest
from bag_bytes import recording
from chunkmill.engine import Ingest, RecordingStore
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.engine.ingest import Outcome
from chunkmill.readers import BagReader, RrdReader
from click.testing import CliRunner
from comparison import cells
from s3_server import S3Server

BAGS = {
    "plain.bag": recording("none", publishers=1),
    "small.bag": recording("bz2", publishers=1),
    "day 1/quick.bag": recording("lz4", publishers=1),
    "open.bag.active": recording("lz4", indexed=False, publishers=1),
}


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")


@pytest.fixture
def prefix(s3: S3Server, bucket: str) -> str:
    for key, data in BAGS.items():
        s3.client.put_object(Bucket=bucket[5:], Key=f"in/{key}", Body=data)
    return f"{bucket}/in"


def local(tmp_path: Path, key: str) -> Path:
    path = tmp_path / "local" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(BAGS[key])
    return path


@pytest.mark.parametrize("key", BAGS)
def test_readers_give_what_the_local_file_gives(prefix: str, tmp_path: Path, key: str) -> None:
    here, there = BagReader(local(tmp_path, key)), BagReader(f"{prefix}/{key}")
    assert cells(there.stream().to_chunks()) == cells(here.stream().to_chunks())
    frame = there.frame("/words")
    assert len(frame) == 40 and frame.equals(here.frame("/words"))
    assert there.info().messages == here.info().messages == 60


def test_a_range_of_times(prefix: str) -> None:
    start = 1_600_000_000_000_000_000
    bag = BagReader(f"{prefix}/small.bag", start_time_ns=start, end_time_ns=start + 1_000_000)
    assert len(bag.frame("/words")) == 1


def test_convert(prefix: str, s3: S3Server, bucket: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(commands, ["convert", prefix, "-o", f"{bucket}/out/", "-q"])
    assert done.exit_code == 0, done.stderr
    written = {o["Key"] for o in s3.client.list_objects_v2(Bucket=bucket[5:], Prefix="out/")["Contents"]}
    assert written == {"out/plain.rrd", "out/small.rrd", "out/day 1/quick.rrd", "out/open.rrd"}
    (tmp_path / "a.rrd").write_bytes(s3.client.get_object(Bucket=bucket[5:], Key="out/plain.rrd")["Body"].read())
    assert len(RrdReader(tmp_path / "a.rrd").frame("/words")) == 40
    shown = CliRunner().invoke(commands, ["inspect", f"{prefix}/small.bag"])
    assert shown.exit_code == 0 and "/words" in shown.stdout


def test_ingest(prefix: str, s3: S3Server, bucket: str, tmp_path: Path) -> None:
    s3.client.put_object(Bucket=bucket[5:], Key="in/bad.bag", Body=b"no recording")

    def run() -> dict[str, Outcome]:
        ingest = Ingest(prefix, into=f"{bucket}/lake", checkpoint=tmp_path / "checkpoint", settle=0)
        query = ingest.start(once=True)
        query.await_termination(60)
        return {r.file.path.removeprefix(f"{prefix}/"): r.outcome for b in query.recent for r in b.files}

    assert run() == {**dict.fromkeys(BAGS, Outcome.ADDED), "bad.bag": Outcome.QUARANTINED}
    store = RecordingStore.open(f"{bucket}/lake")
    assert {entry.source.removeprefix(f"{prefix}/") for entry in store} == set(BAGS)
    assert run() == {}


def test_register(prefix: str, s3: S3Server, bucket: str, tmp_path: Path) -> None:
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    dataset.register(f"{prefix}/plain.bag").wait(60)
    dataset.register_prefix(prefix, on_duplicate="skip").wait(60)
    assert sorted(dataset.segment_ids()) == ["day 1-quick", "open", "plain", "small"]
    for key in BAGS:  # they were copied
        s3.client.delete_object(Bucket=bucket[5:], Key=f"in/{key}")
    assert sum(chunk.num_rows for chunk in dataset.segment_store("plain") if not chunk.is_static) >= 60


def test_a_cut_bag_is_recovered(s3: S3Server, bucket: str) -> None:
    s3.client.put_object(Bucket=bucket[5:], Key="cut.bag", Body=BAGS["small.bag"][:-900])
    with pytest.raises(ReadError) as caught:
        BagReader(f"{bucket}/cut.bag").stream().to_chunks()
    assert caught.value.path == f"{bucket}/cut.bag" and caught.value.offset is not None
    with pytest.warns(ReadWarning):
        assert BagReader(f"{bucket}/cut.bag", recover=True).stream().to_chunks()
