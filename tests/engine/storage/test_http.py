"""Files of HTTP servers and of the Hub: ranges, retries, redirects, hidden sizes, and hosts that may not be called."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from chunkmill import Ingest, McapReader, Mp4Reader, RrdReader
from chunkmill.engine.cli.commands import commands
from chunkmill.engine.errors import ReadError, ReadWarning, SourceMissingError, UsageError
from chunkmill.engine.locations import located, true_place
from chunkmill.engine.storage import HostLimit, ObjectUrl, RemoteFile, bucket_of, http
from chunkmill.readers import detect_format, inspect
from click.testing import CliRunner
from comparison import cells
from http_server import FileServer, serving
from video_files import video

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Random(4).randbytes(1_500_000)
WAYS = ("plain", "redirect", "hidden", "flaky", "broken", "nameless", "whole", "chunked", "endless")
COPIED = ("whole", "chunked", "endless")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.delenv(http.HOSTS_VARIABLE, raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(http, "_PATIENCE", 1.5)
    with serving() as made:
        made.files["a b.bin"] = DATA
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_bytes_are_those_of_the_file(way: str, server: FileServer) -> None:
    url = f"{server.url}/{way}/a%20b.bin"
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", ReadWarning)
        with RemoteFile(url) as file:
            assert file.size == len(DATA)
            for offset, size in ((0, 10), (1_400_000, 100_000), (700_000, 300_000), (5, 0), (len(DATA) - 3, 10)):
                assert file.pread(offset, size) == DATA[offset : offset + size]
            assert file.read() == DATA
    said = [str(warning.message) for warning in raised if "the whole file is downloaded" in str(warning.message)]
    assert len(said) == (way in COPIED)
    if way not in COPIED:
        assert max(server.counts.values()) < 40
        assert all(each for _, each, _ in server.requests)
    assert bucket_of(ObjectUrl.of(url)).get(ObjectUrl.of(url).key) == DATA


def test_a_file_that_is_missing_denied_or_empty(server: FileServer) -> None:
    server.files["empty.bin"] = b""
    with pytest.raises(SourceMissingError, match="no such object"):
        RemoteFile(f"{server.url}/plain/none.bin")
    with pytest.raises(ReadError, match=r"access denied \(403\)"):
        RemoteFile(f"{server.url}/denied/a.bin")
    for way in ("plain", "whole"):
        assert RemoteFile(f"{server.url}/{way}/empty.bin").read() == b""


@pytest.mark.heavy
def test_a_server_that_is_away_or_fails_for_long_is_a_transient_error(server: FileServer) -> None:
    with serving() as other:
        url = other.url
    begin = time.monotonic()
    with pytest.raises(ReadError, match="cannot be reached") as raised:
        RemoteFile(f"{url}/plain/a.bin")
    assert raised.value.transient and time.monotonic() - begin < 8
    assert str(url) in str(raised.value.path)


def test_a_file_that_is_replaced_or_of_wrong_ranges_is_an_error(server: FileServer) -> None:
    for way in ("plain", "redirect"):
        with RemoteFile(f"{server.url}/{way}/a%20b.bin") as file:
            assert file.pread(0, 10) == DATA[:10]
            server.tag += 1
            with pytest.raises(ReadError, match="was changed while it was read"):
                file.pread(900_000, 10)
    with RemoteFile(f"{server.url}/shifted/a%20b.bin") as file, pytest.raises(ReadError, match="bytes from"):
        file.pread(900_000, 10)


def test_redirects_are_bounded_and_lead_to_http_alone(server: FileServer) -> None:
    with pytest.raises(ReadError, match="more than 10 redirects"):
        RemoteFile(f"{server.url}/loop/a.bin")
    with pytest.raises(ReadError, match="an address that is not HTTP"):
        RemoteFile(f"{server.url}/file/a.bin")
    with pytest.raises(ReadError, match="unencrypted connection"):
        http._redirected("https://a.example/x", "http://a.example/x", "x")


def test_only_allowed_hosts_are_asked_also_after_a_redirect(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(http.HOSTS_VARIABLE, "")
    with serving() as other:
        other.files["a b.bin"] = DATA
        server.elsewhere = other.url
        limits = [HostLimit([f"{server.url}/away/", "/a/folder", "s3://bucket/x"])]
        with pytest.raises(ReadError, match=f"requests to {other.url} are not allowed"):
            RemoteFile(f"{server.url}/away/a%20b.bin")
        assert other.requests == []
        with pytest.raises(ReadError, match="are not allowed"):
            RemoteFile(f"{other.url}/plain/a%20b.bin")
        assert other.requests == []
        assert RemoteFile(f"{server.url}/redirect/a%20b.bin").read() == DATA
        limits.append(HostLimit([other.url + "/x"]))
        assert RemoteFile(f"{server.url}/away/a%20b.bin").read() == DATA
        limits.pop(0).lift()
        with pytest.raises(ReadError, match="are not allowed"):
            RemoteFile(f"{server.url}/plain/a%20b.bin")
        limits.pop().lift()
        assert os.environ[http.HOSTS_VARIABLE] == ""


def test_a_limit_without_hosts_allows_none_until_it_is_lifted(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(http.HOSTS_VARIABLE, raising=False)
    limit = HostLimit([])
    with pytest.raises(ReadError, match="are not allowed"):
        RemoteFile(f"{server.url}/plain/a%20b.bin")
    limit.lift()
    assert http.HOSTS_VARIABLE not in os.environ
    assert RemoteFile(f"{server.url}/plain/a%20b.bin").read() == DATA


def test_the_hub_is_asked_with_its_token_which_goes_nowhere_else(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    server.files["data/x.bin"] = DATA
    for _ in range(3):
        with RemoteFile("hf://datasets/me/set/data/x.bin") as file:
            assert file.read() == DATA
    assert all(token == "Bearer hf_secret" for path, _, token in server.requests if path.startswith("/datasets/"))
    signed = [path for path, _, _ in server.requests if path.startswith("/signed/")]
    assert len(set(signed)) > 1, "an address that expired is asked for again"
    with serving() as other:
        other.files["x.bin"] = DATA
        assert RemoteFile(f"{other.url}/plain/x.bin").read() == DATA
        assert {token for _, _, token in other.requests} == {None}
    with pytest.raises(SourceMissingError):
        RemoteFile("hf://datasets/me/set/data/none.bin")


def test_urls() -> None:
    for text, place in (
        ("HTTPS://Data.Example:443/a%20b/x.mcap?v=2#top", "https://data.example/a%20b/x.mcap?v=2"),
        ("http://h:8080/x.mp4", "http://h:8080/x.mp4"),
        ("hf://datasets/o/n@v1/a/x y.mcap", "hf://datasets/o/n@v1/a/x y.mcap"),
    ):
        assert str(located(text)) == place and str(located(place)) == place
    url = ObjectUrl.of("https://h/a/x.mcap?v=2")
    assert (url.name, url.suffix, url.stem, str(url.parent), url.is_pattern) == (
        "x.mcap", ".mcap", "x", "https://h/a", False,
    )  # fmt: skip
    for text in (
        "https://me:pw@h/x.mcap",
        "https://h/x.mcap?X-Amz-Signature=1",
        "https://h/x.mcap?token=1",
    ):
        with pytest.raises(UsageError, match="contains credentials") as raised:
            located(text)
        assert "pw" not in str(raised.value) and "=1" not in str(raised.value)
    for text in ("https://h/a/../x", "https://h/a/%2e%2e/x", "https://h/a%2Fx", "https://h/a//x", "https:///x"):
        with pytest.raises(UsageError, match="does not name a file"):
            located(text)
    for text in ("hf://models/a/b/x", "hf://datasets/a"):
        with pytest.raises(UsageError, match="does not name a dataset"):
            located(text)
    assert true_place("https://H/a/x") == "https:/h/a/x"


@pytest.mark.spark
def test_tasks_of_spark_read_them(spark: SparkSession, server: FileServer, data: Path) -> None:
    server.files["demo.mcap"] = (data / "demo.mcap").read_bytes()
    expected = cells(McapReader(data / "demo.mcap").stream().to_chunks(executor="inline"))
    for way in ("redirect", "whole"):
        stream = McapReader(f"{server.url}/{way}/demo.mcap").stream()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReadWarning)
            assert cells(stream.to_chunks(executor="spark")) == expected


def test_nothing_is_written(server: FileServer, tmp_path: Path, data: Path) -> None:
    stream = McapReader(data / "demo.mcap").stream()
    with pytest.raises(UsageError, match="can only be read, not written"):
        stream.write_rrd(f"{server.url}/plain/x.rrd", application_id="a", recording_id="r", executor="inline")
    with pytest.raises(UsageError, match="can only be read, not written"):
        stream.collect(into="hf://datasets/me/set/x", application_id="a", recording_id="r", executor="inline")
    with pytest.raises(UsageError, match="can only be read, not written"):
        Ingest(f"{server.url}/plain/", into=tmp_path / "lake", executor="inline").start(once=True)
    for output in (f"{server.url}/out/", f"{server.url}/x.rrd"):
        done = CliRunner().invoke(commands, ["convert", str(data / "demo.mcap"), "-o", output])
        assert done.exit_code == 2 and "can only be read, not written" in done.stderr


@pytest.mark.heavy
def test_recordings_are_read_through_every_front(server: FileServer, tmp_path: Path, data: Path) -> None:
    server.files["demo.mcap"] = (data / "demo.mcap").read_bytes()
    server.files["data/v.mp4"] = video("h264", 12)
    expected = cells(McapReader(data / "demo.mcap").stream().to_chunks(executor="inline"))
    for url in (f"{server.url}/flaky/demo.mcap", "hf://datasets/me/set/demo.mcap", f"{server.url}/plain/demo.mcap?v=1"):
        assert cells(McapReader(url).stream().to_chunks(executor="inline")) == expected
    url = f"{server.url}/redirect/demo.mcap"
    assert inspect(url).format == "mcap"
    done = CliRunner().invoke(commands, ["convert", url, "-o", str(tmp_path / "out.rrd"), "--executor", "inline"])
    assert done.exit_code == 0, done.stderr
    assert cells(RrdReader(tmp_path / "out.rrd").stream().to_chunks(executor="inline")) == expected
    done = CliRunner().invoke(
        commands, ["convert", "hf://datasets/me/set", "-o", str(tmp_path / "out"), "--executor", "inline"]
    )
    assert done.exit_code == 0, done.stderr
    made = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.rrd"))
    assert made == ["data/v.rrd", "demo.rrd"]
    reader = Mp4Reader("hf://datasets/me/set/data/v.mp4")
    assert reader.entity_path == "/datasets/me/set/data/v.mp4"
    assert sum(chunk.num_rows for chunk in reader.stream().to_chunks(executor="inline")) == 1 + 12 + 2
    server.files["noname"] = server.files["demo.mcap"]
    assert detect_format(located(f"{server.url}/plain/noname?id=5")).name == "mcap"
