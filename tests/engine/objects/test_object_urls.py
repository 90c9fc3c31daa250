"""URLs of objects, and what is refused of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from chunkmill.engine.errors import MissingExtraError, UsageError
from chunkmill.engine.locations import local_path, located
from chunkmill.engine.storage import ObjectUrl, bucket_of


@pytest.mark.parametrize(
    ("text", "bucket", "key"),
    [
        ("s3://fleet/a/b.mcap", "fleet", "a/b.mcap"),
        ("S3://fleet/a/b.mcap/", "fleet", "a/b.mcap"),
        ("s3a://fleet/ä b%20?x#y.rrd", "fleet", "ä b%20?x#y.rrd"),
        ("gs://fleet/a", "fleet", "a"),
        ("abfs://fleet@account.dfs.core.windows.net/a/b", "fleet@account.dfs.core.windows.net", "a/b"),
        ("s3://fleet", "fleet", ""),
    ],
)
def test_a_url_is_a_bucket_and_a_key(text: str, bucket: str, key: str) -> None:
    url = ObjectUrl.of(text)
    assert (url.bucket, url.key) == (bucket, key)
    assert ObjectUrl.of(os.fspath(url)) == url


@pytest.mark.parametrize(
    "text", ["s3:///a", "s3://fleet/a//b", "s3://fleet/a/../b", "ftp://host/a", "http://me:hidden@host/a"]
)
def test_what_names_no_object_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        located(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIA:hidden@fleet/a",
        "abfs://fleet:hidden@account/a",
        "az://fleet/a?sv=1&sig=hidden",
        "s3://hidden@fleet/a",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        located(text)
    assert "hidden" not in str(caught.value)
    assert "environment" in str(caught.value)


def test_a_file_url_is_a_local_path() -> None:
    assert located("file:///data/a%20b.rrd") == Path("/data/a b.rrd")
    with pytest.raises(UsageError, match="not a local path"):
        local_path("s3://fleet/a.rrd")


@pytest.mark.parametrize(("url", "package", "extra"), [("s3://b/k", "boto3", "s3"), ("gs://b/k", "obstore", "gcs")])
def test_a_missing_package_is_an_import_error_that_names_the_extra(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv("AWS_MISSING_EXTRA", package)
    with pytest.raises(ImportError, match=rf"pip install '\.\[{extra}\]'") as caught:
        bucket_of(ObjectUrl.of(url))
    assert isinstance(caught.value, MissingExtraError)
