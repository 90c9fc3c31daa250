"""The command line and the readers over URLs: files, prefixes and patterns."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.data_sources.reading import input_files
from chunkmill.engine.errors import ReadError, SourceMissingError
from chunkmill.engine.ingest.checkpoint import Checkpoint
from chunkmill.readers import FORMATS, McapReader, ParquetReader, RrdReader
from click.testing import CliRunner, Result
from s3_server import S3Server

MCAP = "mcap/rosbag2__cdr_test_0.mcap"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, list(arguments))


def names(s3: S3Server, bucket: str) -> list[str]:
    return [o["Key"] for o in s3.client.list_objects_v2(Bucket=bucket[5:]).get("Contents", [])]


@pytest.fixture
def logs(data: Path, bucket: str, s3: S3Server) -> str:
    """Three recordings below a prefix, and what is none."""
    recording = (data / "demo.mcap").read_bytes()
    for key in ("logs/a.mcap", "logs/day 1/b.mcap", "logs/day 1/.hidden.mcap", "logs/notes.txt"):
        s3.client.put_object(Bucket=bucket[5:], Key=key, Body=recording)
    return f"{bucket}/logs"


def test_convert_from_a_store_and_into_one_on_spark(logs: str, bucket: str, s3: S3Server, tmp_path: Path) -> None:
    main = "from chunkmill.engine.cli import main; main()"
    command = [sys.executable, "-c", main, "convert", f"{logs}/a.mcap", "-o", f"{bucket}/out/a.rrd"]
    environment = {**os.environ, "CHUNKMILL_SCRATCH": str(tmp_path)}
    done = subprocess.run(
        [*command, "--executor", "spark", "--master", "local[1]"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"{logs}/a.mcap -> {bucket}/out/a.rrd: 3," in done.stderr
    assert [s.recording_id for s in RrdReader(f"{bucket}/out/a.rrd").recordings()] == ["a"]
    assert [n for n in names(s3, bucket) if not n.startswith("logs/")] == ["out/a.rrd"]


def test_convert_a_prefix_keeps_the_paths_below_it(logs: str, bucket: str, s3: S3Server) -> None:
    done = run("convert", logs, "-o", f"{bucket}/out/", "--executor", "inline", "-q")
    assert done.exit_code == 0, done.stderr
    assert [n for n in names(s3, bucket) if n.startswith("out/")] == ["out/a.rrd", "out/day 1/b.rrd"]


def test_convert_a_pattern_into_a_local_folder(logs: str, tmp_path: Path) -> None:
    done = run("convert", f"{logs}/*/*.mcap", "-o", str(tmp_path / "out"), "--executor", "inline", "-q")
    assert done.exit_code == 0, done.stderr
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.rrd")] == ["out/day 1/b.rrd"]


def test_inspect_looks_into_objects(logs: str, bucket: str, s3: S3Server) -> None:
    report = json.loads(run("inspect", f"{logs}/a.mcap", "--json").stdout)
    assert (report["path"], report["format"]) == (f"{logs}/a.mcap", "mcap")
    McapReader(f"{logs}/a.mcap").stream().write_rrd(f"{bucket}/noname", application_id="a", recording_id="r")
    assert json.loads(run("inspect", f"{bucket}/noname", "--json").stdout)["format"] == "rrd"


def test_what_is_missing_is_one_line(logs: str) -> None:
    done = run("inspect", f"{logs}/none.mcap")
    assert done.exit_code == 1
    assert f"{logs}/none.mcap" in done.stderr
    assert "Traceback" not in done.stderr
    assert run("convert", f"{logs}/none/", "-o", "out/", "--executor", "inline").exit_code == 1


def test_readers_say_that_an_object_is_missing(bucket: str) -> None:
    for reader in (McapReader, RrdReader, ParquetReader):
        with pytest.raises(SourceMissingError, match=f"{bucket}/none"):
            reader(f"{bucket}/none")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("logs", ["logs/a.mcap", "logs/day 1/b.mcap"]),
        ("logs/a.mcap", ["logs/a.mcap"]),
        ("logs/**/*.mcap", ["logs/a.mcap", "logs/day 1/b.mcap"]),
        ("logs/*.mcap", ["logs/a.mcap"]),
        ("*/day*/[a-c].mcap", ["logs/day 1/b.mcap"]),
        ("logs/day ?/[!b].mcap", None),
        ("other", None),
    ],
)
def test_files_of_prefixes_and_patterns(pattern: str, found: list[str] | None, logs: str, bucket: str) -> None:
    if found is None:
        with pytest.raises(SourceMissingError):
            input_files([f"{bucket}/{pattern}"], FORMATS["mcap"])
    else:
        assert input_files([f"{bucket}/{pattern}"], FORMATS["mcap"]) == [f"{bucket}/{key}" for key in found]


def test_parquet_is_read_from_a_store_like_from_a_folder(bucket: str, s3: S3Server, tmp_path: Path) -> None:
    for site in ("north", "south"):
        folder = tmp_path / "set" / f"site={site}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"arm_x": [1.0, 2.0], "arm_y": [3.0, 4.0]}), folder / "a.parquet")
        s3.client.upload_file(str(folder / "a.parquet"), bucket[5:], f"set/site={site}/a.parquet")
    for below in ("set", "set/site=north/a.parquet", "set/*/a.parquet"):
        there = ParquetReader(f"{bucket}/{below}").stream().to_chunks(executor="inline")
        here = ParquetReader(tmp_path / below).stream().to_chunks(executor="inline")
        assert [(c.entity_path, c.num_rows) for c in there] == [(c.entity_path, c.num_rows) for c in here]
        for a, b in zip(there, here, strict=True):
            left, right = a.to_record_batch(), b.to_record_batch()
            assert [left.column(n) for n in left.schema.names[1:]] == [right.column(n) for n in right.schema.names[1:]]


@pytest.mark.parametrize("suffix", ["mcap", "rrd", "parquet"])
def test_an_object_that_is_replaced_after_planning_is_noticed(
    suffix: str, data: Path, bucket: str, s3: S3Server, tmp_path: Path
) -> None:
    key, url = f"a.{suffix}", f"{bucket}/a.{suffix}"
    McapReader(data / "demo.mcap").stream().write_rrd(
        tmp_path / "a.rrd", application_id="a", recording_id="r", executor="inline"
    )
    pq.write_table(pa.table({"arm_x": [1.0, 2.0]}), tmp_path / "a.parquet")
    original = (data / "demo.mcap" if suffix == "mcap" else tmp_path / key).read_bytes()
    s3.client.put_object(Bucket=bucket[5:], Key=key, Body=original)
    reader = {"mcap": McapReader, "rrd": RrdReader, "parquet": ParquetReader}[suffix](url)
    plan = reader.stream()._plan("inline")
    copy = pickle.loads(pickle.dumps(plan))
    s3.client.put_object(Bucket=bucket[5:], Key=key, Body=original + b" ")
    with pytest.raises(ReadError, match=rf"a\.{suffix}: the object was changed while it was read"):
        [chunk.to_record_batch() for task in copy.tasks for chunk in copy.run(task.index)]


class TestStores:
    """The commands that look at stores of recordings, over one in an object store."""

    @pytest.fixture
    def lake(self, data: Path, bucket: str, s3: S3Server, tmp_path: Path) -> str:
        """Two recordings, ingested from a prefix."""
        for name, chunks in (
            ("one", McapReader(data / "demo.mcap").stream()),
            ("two", McapReader(data / MCAP).stream()),
        ):
            path = tmp_path / f"{name}.rrd"
            chunks.write_rrd(path, application_id="tests", recording_id=name, executor="inline")
            s3.client.upload_file(str(path), bucket[5:], f"landing/{name}.rrd")
        options = ["--once", "--settle", "0s", "--executor", "inline", "-q", "--checkpoint", str(tmp_path / "progress")]
        done = run("ingest", f"{bucket}/landing", "--into", f"{bucket}/lake", *options)
        assert done.exit_code == 0, done.output
        return f"{bucket}/lake"

    def test_they_are_listed_and_shown(self, lake: str) -> None:
        listed = [json.loads(line) for line in run("ls", lake, "--json").stdout.splitlines()]
        assert sorted(one["recording_id"] for one in listed) == ["one", "two"]
        for words in (["ls", lake], ["show", lake, "one"], ["inspect", lake], ["print", lake, "--headers"]):
            done = run(*words)
            assert done.exit_code == 0, done.output
            assert "one" in done.stdout
        assert "/nissan/gps/duro/imu" in run("show", lake, "one").stdout

    def test_they_are_verified_compared_and_exported(self, lake: str, bucket: str, tmp_path: Path) -> None:
        assert "all digests match" in run("verify", lake).output
        done = run("export", lake, "one", "-o", f"{bucket}/out/one.rrd", "--executor", "inline", "-q")
        assert done.exit_code == 0, done.output
        assert run("compare", f"{bucket}/out/one.rrd", str(tmp_path / "one.rrd")).exit_code == 0
        done = run("convert", lake, "-o", f"{bucket}/all/", "--executor", "inline", "-q")
        assert done.exit_code == 0, done.output
        for name in ("one", "two"):
            assert [s.recording_id for s in RrdReader(f"{bucket}/all/{name}.rrd").recordings()] == [name]

    def test_they_are_compacted_and_vacuumed(self, lake: str) -> None:
        assert run("compact", lake, "--executor", "inline").exit_code == 0
        assert "freed" in run("vacuum", lake).output
        assert "all digests match" in run("verify", lake).output

    @pytest.mark.parametrize("words", [["ls", "{}"], ["show", "{}", "one"], ["export", "{}", "-o", "out.rrd"]])
    def test_where_there_is_none_it_is_one_line(self, words: list[str], bucket: str) -> None:
        done = run(*(word.format(f"{bucket}/none") for word in words))
        assert (done.exit_code, f"{bucket}/none" in done.stderr) == (1, True), done.output
        assert "Traceback" not in done.stderr


def test_objects_that_are_no_rrds_are_not_replaced(data: Path, bucket: str, s3: S3Server, tmp_path: Path) -> None:
    for number in range(20):
        shutil.copy(data / MCAP, tmp_path / f"{number}.mcap")
    for key in ("one.rrd", "many/7.rrd"):
        s3.client.put_object(Bucket=bucket[5:], Key=key, Body=b"years of work")
    for source, out in ((data / MCAP, f"{bucket}/one.rrd"), (tmp_path, f"{bucket}/many")):
        done = run("convert", str(source), "-o", out, "--executor", "inline")
        assert (done.exit_code, "this file exists, and is not an RRD" in done.stderr) == (2, True), done.output
    assert names(s3, bucket) == ["many/7.rrd", "one.rrd"]
    for options in (["--overwrite"], []):  # what is there for the second is an RRD
        done = run("convert", str(data / MCAP), "-o", f"{bucket}/one.rrd", "--executor", "inline", *options)
        assert done.exit_code == 0, done.output


def test_a_bucket_that_is_not_there_is_called_so(data: Path, s3: S3Server, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    for words in (
        ["inspect", "s3://no-such-bucket/a.mcap"],
        ["convert", "s3://no-such-bucket/logs/", "-o", str(tmp_path / "out")],
        ["convert", str(data / MCAP), "-o", "s3://no-such-bucket/a.rrd", "--executor", "inline"],
        ["convert", str(data / MCAP), str(data / "demo.mcap"), "-o", "s3://no-such-bucket/out", "--executor", "inline"],
        ["convert", str(data / MCAP), "-o", "s3://no-such-bucket/out", "--shards", "--executor", "inline"],
        ["merge", str(data / MCAP), "-o", "s3://no-such-bucket/a.rrd", "--executor", "inline"],
        ["verify", "s3://no-such-bucket/store"],
        ["query", "s3://no-such-bucket/a.rrd", "--index", "log_time"],
        ["ls", "s3://no-such-bucket/store"],
        ["vacuum", "s3://no-such-bucket/store"],
        ["catalog", "ls", "s3://no-such-bucket/lake"],
        ["catalog", "create", "s3://no-such-bucket/lake", "drives"],
        ["register", "s3://no-such-bucket/lake", "drives", str(data / MCAP)],
        ["sql", "s3://no-such-bucket/lake", "select 1"],
        ["tables", "backfill", "s3://no-such-bucket/t.lance", "c", "--executor", "inline"],
        ["status", "s3://no-such-bucket/store"],
        ["ingest", "s3://no-such-bucket/in", "--into", str(tmp_path / "s"), "--once", "--executor", "inline"],
        [
            *("ingest", str(tmp_path / "landing"), "--into", "s3://no-such-bucket/s", "--once", "--executor", "inline"),
            *("--checkpoint", str(tmp_path / "progress")),
        ],
    ):
        done = run(*words)
        assert (done.exit_code, "there is no such bucket" in " ".join(done.output.split())) == (1, True), (
            words,
            done.output,
        )


def test_a_wrong_checkpoint_leaves_no_dataset(data: Path, bucket: str, s3: S3Server, tmp_path: Path) -> None:
    Checkpoint(tmp_path / "other").begin(tmp_path)
    s3.client.put_object(Bucket=bucket[5:], Key="landing/a.mcap", Body=(data / MCAP).read_bytes())
    options = ["--dataset", "drives", "--once", "--settle", "0s", "--executor", "inline", "-q"]
    for checkpoint in ([], ["--checkpoint", str(tmp_path / "other")]):
        done = run("ingest", f"{bucket}/landing", "--into", f"{bucket}/lake", *options, *checkpoint)
        assert (done.exit_code, "checkpoint" in done.stderr) == (2, True), done.output
    assert names(s3, bucket) == ["landing/a.mcap"]
    done = run("ingest", f"{bucket}/landing", "--into", f"{bucket}/lake", *options, "--checkpoint", str(tmp_path / "c"))
    assert done.exit_code == 0, done.output
