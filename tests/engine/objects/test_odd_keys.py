"""Keys that no request can name: they stop nothing, and are told of."""

from __future__ import annotations

import glob
import warnings
from pathlib import Path

import pytest
from chunkmill.engine.errors import ReadError, ReadWarning
from chunkmill.engine.ingest.landing import Lister
from chunkmill.engine.storage import ObjectUrl, RemoteFile, bucket_of, find_objects, upload_to
from s3_server import S3Server

ODD = ["p/a//b.mcap", "p/a/../b.mcap", "p/./b.mcap", "p/a/b\x01.mcap"]


def put(s3: S3Server, bucket: str, *keys: str) -> None:
    for key in keys:
        s3.client.put_object(Bucket=ObjectUrl.of(bucket).bucket, Key=key, Body=b"1")


def listed(prefix: str) -> tuple[list[str], list[str]]:
    url, odd = ObjectUrl.of(prefix), list[str]()
    found = bucket_of(url).list(url.key, odd=lambda one, _: odd.append(one.key))
    return [one.url.key for one in found], odd


@pytest.mark.parametrize("key", ODD)
def test_the_rest_is_listed(key: str, s3: S3Server, bucket: str) -> None:
    rest = ["p/0.mcap", "p/a/a.mcap", "p/a/z.mcap", "p/z.mcap"]
    put(s3, bucket, key, *rest)
    assert listed(f"{bucket}/p") == (rest, [key])


def test_nothing_is_listed_twice_or_left_out_where_a_page_ends(
    s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page ends with empty objects; of one that stands for a folder the library leaves out the slash."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "50")
    first = [*(f"p/0/{i:02d}.mcap" for i in range(46)), "p/1-b.mcap", "p/1.mcap", "p/1.txt"]
    rest = ["p/3.mcap", "p/4.mcap"]
    put(s3, bucket, *first, "p/2//b.mcap", *rest)
    for empty in ("p/1.txt", "p/1/"):
        s3.client.put_object(Bucket=ObjectUrl.of(bucket).bucket, Key=empty, Body=b"")
    assert listed(f"{bucket}/p") == ([*first, "p/1", *rest], ["p/2//b.mcap"])


def test_what_is_listed_again_tells_the_same_as_what_was_listed_at_first(s3: S3Server, bucket: str) -> None:
    put(s3, bucket, "p/a.mcap")
    url = ObjectUrl.of(f"{bucket}/p")
    before = list(bucket_of(url).list("p"))
    put(s3, bucket, "p//b.mcap")
    with pytest.warns(ReadWarning, match="p//b.mcap' cannot be read"):
        assert list(bucket_of(url).list("p")) == before


def test_a_landing_folder_goes_on_and_tells_once(s3: S3Server, bucket: str) -> None:
    put(s3, bucket, "landing/a//b.mcap", "landing/a/../c.mcap", "landing/a//b.txt", "landing/_old//b.mcap")
    put(s3, bucket, "landing/drive.mcap")
    lister = Lister(f"{bucket}/landing", settle_seconds=0, suffixes=(".mcap",))
    with pytest.warns(ReadWarning) as told:
        looks = [lister.look() for _ in range(3)]
    assert [[file.path for file in look.ready] for look in looks] == [[f"{bucket}/landing/drive.mcap"]] * 3
    assert [look.problem for look in looks] == [None] * 3
    assert [str(one.message).partition("'")[2].partition("'")[0] for one in told] == [
        f"{bucket}/landing/a/../c.mcap",
        f"{bucket}/landing/a//b.mcap",
    ]


@pytest.mark.parametrize(("what", "tells"), [("p", True), ("p/**/*.mcap", True), ("p/*.mcap", False)])
def test_inputs_of_a_conversion(what: str, tells: bool, s3: S3Server, bucket: str) -> None:
    put(s3, bucket, "p/a.mcap", "p/a//b.mcap", "p/a//b.txt")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = find_objects(ObjectUrl.of(f"{bucket}/{what}"), (".mcap",))
    assert [one.url.key for one in found] == ["p/a.mcap"]
    assert ["p/a//b.mcap" in str(one.message) for one in told] == [True] * tells


def test_another_store_says_which_key_it_is(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for S3 is there a second client."""
    from chunkmill.engine.storage import bucket as module

    put(s3, bucket, "p/a//b.mcap")
    monkeypatch.setattr(module, "EXTRAS", {"s3": "gcs"})
    with pytest.raises(ReadError, match=r"the key 'p/a//b.mcap' has an empty or relative part"):
        list(bucket_of(ObjectUrl.of(bucket)).list("p"))


@pytest.mark.parametrize("name", ["a b", "100%", "a%20b", "ü+&=;@", "a#b?c"])
def test_keys_that_a_url_writes_otherwise_are_keys_like_others(name: str, s3: S3Server, bucket: str) -> None:
    opened, key = bucket_of(ObjectUrl.of(bucket)), f"p/{name}/{name}.rrd"
    opened.put(key, b"one")
    assert s3.client.get_object(Bucket=opened.url.bucket, Key=key)["Body"].read() == b"one"
    assert [one.url.key for one in opened.list("p")] == [key]
    assert [one.url.key for one in opened.list(f"p/{name}")] == [key]
    with RemoteFile(f"{bucket}/{key}") as file:
        assert file.pread(0, 3) == b"one"
    upload = upload_to(ObjectUrl(opened.url.scheme, opened.url.bucket, key))
    upload.write(b"two")
    upload.finish()
    assert opened.get(key) == b"two"
    assert not opened.create(key, b"three")
    opened.delete([key])
    assert not list(opened.list("p"))


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("p/**/*.mcap", ["a.mcap", "d/b.mcap", "d/e/c^.mcap"]),
        ("p/*.mcap", ["a.mcap"]),
        ("p/**/[a-b].mcap", ["a.mcap", "d/b.mcap"]),
        ("p/**/[!a].mcap", ["d/b.mcap"]),
        ("p/**/?[^x].mcap", ["d/e/c^.mcap"]),  # no negation, as in a pattern of files
        ("p/**/[]b].mcap", ["d/b.mcap"]),
        ("p/d/**", ["d/b.mcap", "d/e/c^.mcap"]),
    ],
)
def test_patterns_mean_keys_as_they_mean_files(
    pattern: str, meant: list[str], s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    names = ["a.mcap", "d/b.mcap", "d/e/c^.mcap"]
    put(s3, bucket, *(f"p/{name}" for name in names))
    for name in names:
        path = tmp_path / "p" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    files = [Path(one) for one in glob.glob(str(tmp_path / pattern), recursive=True)]  # noqa: PTH207
    assert sorted(str(p.relative_to(tmp_path / "p")) for p in files if p.is_file()) == meant
    found = find_objects(ObjectUrl.of(f"{bucket}/{pattern}"), (".mcap",))
    assert [one.url.key for one in found] == [f"p/{name}" for name in meant]
