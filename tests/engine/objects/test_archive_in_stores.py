"""Sources of an ingestion that are moved to an archive in the same bucket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chunkmill.engine import Ingest, RecordingStore
from chunkmill.engine.errors import UsageError, WriteError
from chunkmill.engine.faults import LOG, PLAN
from chunkmill.engine.ingest import files as disposals
from chunkmill.engine.ingest.files import Disposal, LandedFile, SourceDone, file_at
from chunkmill.engine.locations import located
from chunkmill.engine.storage import ObjectInfo, ObjectUrl, bucket_of, uploads
from s3_server import S3Server
from test_disturbed_stores import DENIED, status
from test_ingest_in_stores import parquet_bytes, put

INGEST = """
import sys
from chunkmill.engine import Ingest
bucket, checkpoint = sys.argv[1:]
Ingest(f"{bucket}/landing", into=f"{bucket}/lake", checkpoint=checkpoint, executor="inline", settle=0,
       source_done="archive", archive=f"{bucket}/old").start(once=True).await_termination(60)
"""
LOST = status("500 Internal Server Error", b"<Error><Code>InternalError</Code></Error>")


def keys(s3: S3Server, bucket: str, folder: str) -> dict[str, bytes]:
    """What lies below a folder of the bucket, by the rest of the key."""
    found = s3.client.list_objects_v2(Bucket=bucket[5:], Prefix=f"{folder}/").get("Contents", ())
    whole = {one["Key"]: s3.client.get_object(Bucket=bucket[5:], Key=one["Key"])["Body"].read() for one in found}
    return {key.removeprefix(f"{folder}/"): data for key, data in whole.items()}


def land(url: str, data: bytes) -> LandedFile:
    put(url, data)
    file = file_at(url)
    assert file is not None
    return file


def archived(bucket: str) -> Disposal:
    return Disposal(SourceDone.ARCHIVE, located(f"{bucket}/landing"), located(f"{bucket}/old"))


def ingest(bucket: str, checkpoint: Path) -> None:
    query = Ingest(
        f"{bucket}/landing",
        into=f"{bucket}/lake",
        checkpoint=checkpoint,
        executor="inline",
        settle=0,
        source_done="archive",
        archive=f"{bucket}/old",
    ).start(once=True)
    assert query.await_termination(60)


class TestIngestion:
    def test_sources_keep_their_place_and_nothing_is_written_over(
        self, s3: S3Server, bucket: str, tmp_path: Path
    ) -> None:
        first, second = parquet_bytes(3), parquet_bytes(4)
        put(f"{bucket}/landing/day/a.parquet", first)
        put(f"{bucket}/landing/bad.mcap", b"no recording")
        ingest(bucket, tmp_path / "checkpoint")
        assert keys(s3, bucket, "old") == {"day/a.parquet": first}
        assert keys(s3, bucket, "landing") == {"bad.mcap": b"no recording"}
        put(f"{bucket}/landing/day/a.parquet", second)
        ingest(bucket, tmp_path / "checkpoint")
        assert keys(s3, bucket, "old") == {"day/a.parquet": first, "day/a-2.parquet": second}
        assert keys(s3, bucket, "landing") == {"bad.mcap": b"no recording"}
        assert RecordingStore.open(f"{bucket}/lake").version.recordings == 2

    @pytest.mark.parametrize("point", ["source.archive", "source.dispose"])
    def test_a_run_that_is_killed_leaves_one_of_each_file_to_the_next(
        self, point: str, s3: S3Server, bucket: str, tmp_path: Path
    ) -> None:
        files = {f"{name}.parquet": parquet_bytes(rows) for name, rows in (("a", 3), ("b", 4), ("c", 5))}
        for name, data in files.items():
            put(f"{bucket}/landing/{name}", data)
        put(f"{bucket}/old/b.parquet", b"x" * len(files["b.parquet"]))
        (tmp_path / "log").mkdir()
        run = subprocess.run(
            [sys.executable, "-c", INGEST, bucket, str(tmp_path / "checkpoint")],
            env={**os.environ, PLAN: f"{point}:kill:2", LOG: str(tmp_path / "log")},
            timeout=60,
            check=False,
        )
        assert run.returncode == -signal.SIGKILL
        assert set(keys(s3, bucket, "old")) == {"a.parquet", "b.parquet", "b-2.parquet"}
        both = {"b.parquet"} if point == "source.archive" else set()
        assert set(keys(s3, bucket, "landing")) == both | {"c.parquet"}
        ingest(bucket, tmp_path / "checkpoint")
        assert keys(s3, bucket, "landing") == {}
        expected = {**files, "b-2.parquet": files["b.parquet"], "b.parquet": b"x" * len(files["b.parquet"])}
        assert keys(s3, bucket, "old") == expected
        assert RecordingStore.open(f"{bucket}/lake").version.recordings == 3


class TestCopies:
    def test_no_bytes_are_fetched_and_what_is_kept_of_an_object_stays(self, s3: S3Server, bucket: str) -> None:
        place = {"Bucket": bucket[5:], "Key": "landing/a ü+%.mcap"}
        s3.client.put_object(**place, Body=b"one", Metadata={"robot": "r2"}, Tagging="fleet=north")
        file = file_at(f"{bucket}/landing/a ü+%.mcap")
        assert file is not None
        s3.requests.clear()
        archived(bucket).dispose(file)
        assert s3.requests["GET"] == s3.requests["POST"] == 0
        place["Key"] = "old/a ü+%.mcap"
        assert s3.client.head_object(**place)["Metadata"] == {"robot": "r2"}
        assert s3.client.get_object_tagging(**place)["TagSet"] == [{"Key": "fleet", "Value": "north"}]
        assert keys(s3, bucket, "landing") == {}

    @pytest.mark.usefixtures("small_parts")
    def test_a_large_object_is_copied_in_parts(
        self, s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(uploads, "LARGEST_COPY", 100 * 1024)
        data = os.urandom(1300 * 1024)
        place = {"Bucket": bucket[5:], "Key": "landing/a.mcap"}
        s3.client.put_object(
            **place, Body=data, ContentType="robot/log", Metadata={"robot": "r2"}, Tagging="fleet=north&on=a%2Bb"
        )
        file = file_at(f"{bucket}/landing/a.mcap")
        assert file is not None
        s3.log.clear()
        archived(bucket).dispose(file)
        assert keys(s3, bucket, "old") == {"a.mcap": data}
        assert keys(s3, bucket, "landing") == {}
        assert sum("bytes=" in line and line.startswith("PUT") for line in s3.log) == 3
        place["Key"] = "old/a.mcap"
        head = s3.client.head_object(**place)
        assert (head["ContentType"], head["Metadata"]) == ("robot/log", {"robot": "r2"})
        tags = s3.client.get_object_tagging(**place)["TagSet"]
        assert {tag["Key"]: tag["Value"] for tag in tags} == {"fleet": "north", "on": "a+b"}

    def test_the_copy_of_a_cut_run_is_known_by_its_content(self, s3: S3Server, bucket: str) -> None:
        """Whatever the store says of it: copied in parts, it has another ETag."""
        file = land(f"{bucket}/landing/a.mcap", b"one")
        begun = s3.client.create_multipart_upload(Bucket=bucket[5:], Key="old/a.mcap")
        part = {"Bucket": bucket[5:], "Key": "old/a.mcap", "UploadId": begun["UploadId"], "PartNumber": 1}
        tag = s3.client.upload_part(**part, Body=b"one")["ETag"]
        del part["PartNumber"]
        s3.client.complete_multipart_upload(**part, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]})
        archived(bucket).dispose(file)
        assert keys(s3, bucket, "old") == {"a.mcap": b"one"}
        assert keys(s3, bucket, "landing") == {}

    def test_another_object_of_that_size_is_not_taken_for_the_copy(self, s3: S3Server, bucket: str) -> None:
        put(f"{bucket}/old/a.mcap.zst", b"two")
        put(f"{bucket}/old/a-2.mcap.zst", b"ONE")
        archived(bucket).dispose(land(f"{bucket}/landing/a.mcap.zst", b"one"))
        assert keys(s3, bucket, "old") == {"a.mcap.zst": b"two", "a-2.mcap.zst": b"ONE", "a-3.mcap.zst": b"one"}
        assert keys(s3, bucket, "landing") == {}

    def test_a_copy_whose_answer_is_lost_is_made_once(
        self, s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.001)
        file = land(f"{bucket}/landing/a.mcap", b"one")
        s3.disturb("PUT", LOST, times=1, path="old/a.mcap", after=True)
        archived(bucket).dispose(file)
        assert keys(s3, bucket, "old") == {"a.mcap": b"one"}
        assert keys(s3, bucket, "landing") == {}

    def test_a_copy_that_is_denied_is_an_error_and_removes_nothing(self, s3: S3Server, bucket: str) -> None:
        file = land(f"{bucket}/landing/a.mcap", b"one")
        s3.disturb("PUT", DENIED, times=1)
        with pytest.raises(WriteError, match=r"old/a\.mcap: cannot be written: access denied"):
            archived(bucket).dispose(file)
        assert keys(s3, bucket, "landing") == {"a.mcap": b"one"}

    @pytest.mark.usefixtures("small_parts")
    @pytest.mark.parametrize("large", [False, True])
    def test_a_name_that_somebody_takes_in_that_moment_is_theirs(
        self, large: bool, s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(uploads, "LARGEST_COPY", 100 * 1024 if large else 1 << 30)
        data = os.urandom(200 * 1024)
        file = land(f"{bucket}/landing/a.mcap", data)

        def theirs(*_: ObjectInfo | ObjectUrl) -> None:
            put(f"{bucket}/old/a.mcap", b"theirs")

        before_copying(monkeypatch, theirs)
        archived(bucket).dispose(file)
        assert keys(s3, bucket, "old") == {"a.mcap": b"theirs", "a-2.mcap": data}
        assert keys(s3, bucket, "landing") == {}


class TestSourcesThatChange:
    @pytest.mark.parametrize("kind", [SourceDone.ARCHIVE, SourceDone.DELETE])
    def test_one_that_is_another_by_now_stays(self, kind: SourceDone, s3: S3Server, bucket: str) -> None:
        disposal = Disposal(kind, located(f"{bucket}/landing"), located(f"{bucket}/old"))
        file = land(f"{bucket}/landing/a.mcap", b"one")
        put(f"{bucket}/landing/a.mcap", b"another")
        disposal.dispose(file)
        assert keys(s3, bucket, "landing") == {"a.mcap": b"another"}
        assert keys(s3, bucket, "old") == {}

    @pytest.mark.parametrize("kind", [SourceDone.ARCHIVE, SourceDone.DELETE])
    def test_one_that_is_gone_is_fine(self, kind: SourceDone, s3: S3Server, bucket: str) -> None:
        file = land(f"{bucket}/landing/a.mcap", b"one")
        s3.client.delete_object(Bucket=bucket[5:], Key="landing/a.mcap")
        Disposal(kind, located(f"{bucket}/landing"), located(f"{bucket}/old")).dispose(file)
        assert keys(s3, bucket, "old") == {}

    @pytest.mark.parametrize("checks", [True, False], ids=["checking", "ignoring"])
    def test_one_that_is_replaced_before_it_is_copied_stays(
        self, checks: bool, s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        s3.checks_copies = checks
        file = land(f"{bucket}/landing/a.mcap", b"one")
        before_copying(monkeypatch, lambda *_: put(f"{bucket}/landing/a.mcap", b"another"))
        archived(bucket).dispose(file)
        assert keys(s3, bucket, "old") == ({} if checks else {"a.mcap": b"another"})
        assert keys(s3, bucket, "landing") == {"a.mcap": b"another"}

    def test_one_that_is_replaced_before_it_is_removed_stays(
        self, s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = land(f"{bucket}/landing/a.mcap", b"one")
        remove = disposals.remove_object

        def removing(found: ObjectInfo) -> None:
            put(f"{bucket}/landing/a.mcap", b"two")  # of the same size, in the same second
            remove(found)

        monkeypatch.setattr(disposals, "remove_object", removing)
        archived(bucket).dispose(file)
        assert keys(s3, bucket, "old") == {"a.mcap": b"one"}
        assert keys(s3, bucket, "landing") == {"a.mcap": b"two"}

    @pytest.mark.parametrize("method", ["PUT", "DELETE"])
    def test_a_server_that_knows_no_such_condition_is_asked_without(
        self, method: str, s3: S3Server, bucket: str
    ) -> None:
        file = land(f"{bucket}/landing/a.mcap", b"one")
        s3.disturb(method, status("501 Not Implemented", b"<Error><Code>NotImplemented</Code></Error>"), times=1)
        archived(bucket).dispose(file)
        assert s3.disturbances == []
        assert keys(s3, bucket, "old") == {"a.mcap": b"one"}
        assert keys(s3, bucket, "landing") == {}


class TestOtherStores:
    """Of which one in memory stands for all: no server of theirs runs here."""

    @pytest.fixture
    def container(self, monkeypatch: pytest.MonkeyPatch) -> str:
        store = pytest.importorskip("obstore.store")
        from chunkmill.engine.storage import bucket, objects

        memory = store.MemoryStore()
        monkeypatch.setattr(objects, "_open", {})
        monkeypatch.setattr(bucket, "_open_other", lambda _: memory)
        return "az://fleet"

    def test_names_that_are_taken_and_a_copy_of_a_cut_run(self, container: str) -> None:
        put(f"{container}/old/day/a.mcap", b"two")
        for _ in range(2):
            file = land(f"{container}/landing/day/a.mcap", b"one")
            archived(container).dispose(file)
            found = {one.url.key: one.size for one in bucket_of(ObjectUrl.of(container)).list("")}
            assert found == {"old/day/a.mcap": 3, "old/day/a-2.mcap": 3}

    def test_a_source_that_is_replaced_meanwhile_stays(self, container: str, monkeypatch: pytest.MonkeyPatch) -> None:
        file = land(f"{container}/landing/a.mcap", b"one")
        before_copying(monkeypatch, lambda *_: put(f"{container}/landing/a.mcap", b"another"))
        archived(container).dispose(file)
        assert bucket_of(ObjectUrl.of(container)).get("landing/a.mcap") == b"another"

    @pytest.mark.parametrize("ends", [True, False])
    def test_a_copy_that_the_store_has_only_begun_is_waited_for(
        self, ends: bool, container: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from chunkmill.engine.storage import Bucket

        monkeypatch.setattr(uploads, "_PATIENCE", 30 if ends else 0.1)
        looks = list[str]()
        find = Bucket.find

        def beginning(bucket: Bucket, source: str, target: str) -> None:
            bucket.put(target, b"")

        def looking(bucket: Bucket, key: str) -> ObjectInfo | None:
            looks.append(key)
            if ends and looks.count("old/a.mcap") == 4:
                bucket.put("old/a.mcap", b"one")
            return find(bucket, key)

        file = land(f"{container}/landing/a.mcap", b"one")
        monkeypatch.setattr(Bucket, "copy", beginning)
        monkeypatch.setattr(Bucket, "find", looking)
        bucket = bucket_of(ObjectUrl.of(container))
        if ends:
            archived(container).dispose(file)
            assert bucket.get("old/a.mcap") == b"one"
            assert not bucket.exists("landing/a.mcap")
        else:
            with pytest.raises(WriteError, match="has 0 bytes of 3"):
                archived(container).dispose(file)
            assert bucket.get("landing/a.mcap") == b"one"


@pytest.mark.parametrize(
    ("source", "archive", "said"),
    [
        ("s3://fleet/landing", "s3://fleet/landing/old", "is in the landing folder"),
        ("s3://fleet/landing", "s3a://fleet/landing", "is in the landing folder"),
        ("s3://fleet", "s3://fleet/old", "is in the landing folder"),
        ("s3://fleet/landing", "s3://other/old", "same bucket"),
        ("s3://fleet/landing", "gs://fleet/old", "same bucket"),
        ("s3://fleet/landing", "/data/old", "same bucket"),
        ("/data/landing", "s3://fleet/old", "same bucket"),
    ],
)
def test_archives_that_are_refused(source: str, archive: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        Disposal(SourceDone.ARCHIVE, located(source), located(archive))
    assert caught.value.path == archive
    assert caught.value.hint


@pytest.mark.parametrize("archive", ["s3://fleet/landing-old", "s3a://fleet/old", "s3://fleet"])
def test_archives_beside_the_landing_folder(archive: str) -> None:
    assert not Disposal(SourceDone.ARCHIVE, located("s3://fleet/landing"), located(archive)).keeps


def before_copying(monkeypatch: pytest.MonkeyPatch, what: Callable[..., Any]) -> None:
    """Let something happen right before the first copy."""
    copy, done = disposals.copy_object, list[bool]()

    def copying(source: ObjectInfo, target: ObjectUrl) -> None:
        if not done:
            done.append(True)
            what(source, target)
        copy(source, target)

    monkeypatch.setattr(disposals, "copy_object", copying)
