"""Recordings of rosbag2 in an object store: MCAPs are read where they are, databases are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import UnsupportedError
from chunkmill.readers import Rosbag2Reader
from click.testing import CliRunner
from comparison import cells
from rosbag2_making import metadata, some, write_bag, write_mcap
from s3_server import S3Server


def put(s3: S3Server, bucket: str, folder: Path) -> str:
    """A folder under its name in a bucket, as a URL."""
    for file in folder.iterdir():
        s3.client.put_object(Bucket=bucket[5:], Key=f"in/{folder.name}/{file.name}", Body=file.read_bytes())
    return f"{bucket}/in/{folder.name}"


def mcaps(folder: Path) -> Path:
    folder.mkdir()
    names = [f"{folder.name}_{i}.mcap" for i in (0, 1)]
    for i, name in enumerate(names):
        write_mcap(folder / name, some(20, 10**9 * (1 + i)))
    (folder / "metadata.yaml").write_text(metadata(names, storage="mcap"))
    return folder


def test_mcaps_are_one_recording(s3: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", "inline")
    folder = mcaps(tmp_path / "drive")
    url = put(s3, bucket, folder)
    assert cells(Rosbag2Reader(url).stream().to_chunks()) == cells(Rosbag2Reader(folder).stream().to_chunks())
    done = CliRunner().invoke(commands, ["convert", url, "-o", str(tmp_path / "out.rrd")])
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out.rrd").is_file()
    s3.client.put_object(Bucket=bucket[5:], Key="in/other/metadata.yaml", Body=b"a: 1")
    s3.client.put_object(Bucket=bucket[5:], Key="in/other/x.mcap", Body=(folder / "drive_0.mcap").read_bytes())
    dataset = CatalogClient(tmp_path / "lake").create_dataset("drives")
    assert sorted(dataset.register_prefix(f"{bucket}/in").wait(60).segment_ids) == ["drive", "other-x"]


def test_databases_are_refused(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    url = put(s3, bucket, write_bag(tmp_path / "drive", [some(20)]))
    for place in (url, f"{url}/drive_0.db3"):
        with pytest.raises(UnsupportedError, match="SQLite needs local files"):
            Rosbag2Reader(place).stream().to_chunks(executor="inline")
        done = CliRunner().invoke(commands, ["convert", place, "-o", str(tmp_path / "out.rrd"), "--executor", "inline"])
        assert done.exit_code != 0 and "SQLite needs local files" in done.stderr
