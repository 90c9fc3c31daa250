"""An S3 server on loopback that keeps its objects in files: ``python s3_on_disk.py PORT FOLDER [PREFIX=FOLDER ...]``.

It answers the requests that chunkmill sends: ranges, uploads in one and in many parts, parts copied inside the store,
listings. (moto, which the tests use, reads an object whole for each range of it; with 4 GB that never ends.) Bytes go
from files to sockets by the kernel. Nothing is signed, encrypted, or kept when it ends. ``PREFIX=FOLDER`` offers the
files of a folder as objects ``/bench/PREFIX/...``. ``GET /requests`` tells how many requests came, by kind. Each is
answered after ``CHUNKMILL_BENCH_DELAY`` seconds, by default none.
"""

from __future__ import annotations

import email.utils
import itertools
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

BUCKET = "bench"
_DELAY = float(os.environ.get("CHUNKMILL_BENCH_DELAY", "0"))
_PAGE = 1000
_PIECE = 1 << 20
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


@dataclass(frozen=True)
class Stored:
    """An object: files one behind the other, their sizes, and a tag that no other content has had."""

    files: tuple[tuple[Path, int], ...]
    tag: str

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(size for _, size in self.files)

    def send(self, out: Any, start: int, stop: int) -> None:
        """Bytes ``start`` to before ``stop``, into a file or socket."""
        at = 0
        for path, size in self.files:
            first, last = max(start - at, 0), min(stop - at, size)
            if first < last:
                with path.open("rb") as file:
                    while first < last:
                        first += os.sendfile(out.fileno(), file.fileno(), first, min(last - first, 1 << 30))
            at += size


@dataclass
class Store:
    """The one bucket."""

    folder: Path
    objects: dict[str, Stored] = field(default_factory=dict)
    uploads: dict[str, tuple[str, dict[int, Stored]]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    lock: Any = field(default_factory=threading.RLock)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    def new_file(self) -> Path:
        """A path for a part or an object."""
        with self.lock:
            return self.folder / f"{next(self.numbers):08d}"

    def offer(self, prefix: str, folder: Path) -> None:
        """Let the files of a folder be objects."""
        for path in folder.iterdir():
            real = path.resolve()
            self.objects[f"{prefix}/{path.name}"] = Stored(((real, real.stat().st_size),), f'"offered-{path.name}"')

    def drop(self, stored: Stored) -> None:
        """Remove the files of what nobody refers to any more."""
        for path, _ in stored.files:
            if path.parent == self.folder:
                path.unlink(missing_ok=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(6, 1, 1)  # TCP_NODELAY: head and body are two writes

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:
        self._count("HeadObject")
        self._give(self._found(), with_body=False)

    def do_GET(self) -> None:
        if self.path == "/requests":
            self._answer(200, json.dumps(self.store.requests).encode())
        elif "uploads" in self._query:
            self._count("ListMultipartUploads")
            self._list_uploads()
        elif self._key:
            self._count("GetObject")
            self._give(self._found(), with_body=True)
        else:
            self._count("ListObjectsV2")
            self._list()

    def do_PUT(self) -> None:
        upload = self._query.get("uploadId", [""])[0]
        if not upload:
            self._count("PutObject")
            self._put()
            return
        copied = self.headers.get("x-amz-copy-source")
        self._count("UploadPartCopy" if copied else "UploadPart")
        part = self._copied(copied) if copied else self._received()
        with self.store.lock:
            self.store.uploads[upload][1][int(self._query["partNumber"][0])] = part
        result = f"<CopyPartResult><ETag>{escape(part.tag)}</ETag></CopyPartResult>" if copied else ""
        self._answer(200, result.encode(), ETag=part.tag)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "uploads" in self._query:
            self._count("CreateMultipartUpload")
            with self.store.lock:
                upload = f"upload-{next(self.store.numbers)}"
                self.store.uploads[upload] = self._key, {}
            self._xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
        elif "delete" in self._query:
            self._count("DeleteObjects")
            for key in ElementTree.fromstring(body).iter():
                if key.tag.endswith("Key"):
                    self._remove(key.text or "")
            self._xml("DeleteResult", "")
        else:
            self._count("CompleteMultipartUpload")
            with self.store.lock:
                key, parts = self.store.uploads.pop(self._query["uploadId"][0])
                files = tuple(file for _, part in sorted(parts.items()) for file in part.files)
                whole = self._replace(key, Stored(files, f'"{next(self.store.numbers)}-{len(parts)}"'))
            self._xml("CompleteMultipartUploadResult", f"<ETag>{escape(whole.tag)}</ETag>")

    def do_DELETE(self) -> None:
        self._count("DeleteObject")
        upload = self._query.get("uploadId", [""])[0]
        if upload:
            for part in self.store.uploads.pop(upload, ("", {}))[1].values():
                self.store.drop(part)
        else:
            self._remove(self._key)
        self._answer(204, b"")

    @property
    def _query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query, keep_blank_values=True)

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")

    def _count(self, kind: str) -> None:
        with self.store.lock:
            self.store.requests[kind] += 1
        time.sleep(_DELAY)

    def _found(self) -> Stored | None:
        return self.store.objects.get(self._key)

    def _give(self, stored: Stored | None, *, with_body: bool) -> None:
        if stored is None:
            self._answer(404, b"" if not with_body else b"<Error><Code>NoSuchKey</Code></Error>")
            return
        if self.headers.get("If-Match", stored.tag) != stored.tag:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        start, stop, status = 0, stored.size, 200
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, stop, status = int(asked[1]), min(int(asked[2] or stop) + 1, stop), 206
            if start >= stored.size:
                self._answer(416, b"<Error><Code>InvalidRange</Code></Error>")
                return
        self.send_response(status)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", stored.tag)
        self.send_header("Last-Modified", email.utils.formatdate(0, usegmt=True))
        self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{stored.size}")
        self.end_headers()
        if with_body:
            self.wfile.flush()
            stored.send(self.connection, start, stop)

    def _put(self) -> None:
        if self.headers.get("If-None-Match") == "*" and self._found() is not None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        received = self._received()
        with self.store.lock:
            self._replace(self._key, received)
        self._answer(200, b"", ETag=received.tag)

    def _received(self) -> Stored:
        path, left = self.store.new_file(), int(self.headers["Content-Length"])
        size = left
        with path.open("wb") as file:
            while left:
                left -= file.write(self.rfile.read(min(left, _PIECE)))
        return Stored(((path, size),), f'"{path.name}"')

    def _copied(self, source: str) -> Stored:
        stored = self.store.objects[unquote(source).lstrip("/").removeprefix(f"{BUCKET}/")]
        first, last = map(int, self.headers["x-amz-copy-source-range"].removeprefix("bytes=").split("-"))
        path = self.store.new_file()
        with path.open("wb") as file:
            stored.send(file, first, last + 1)
        return Stored(((path, last + 1 - first),), f'"{path.name}"')

    def _replace(self, key: str, new: Stored) -> Stored:
        self._remove(key)
        self.store.objects[key] = new
        return new

    def _remove(self, key: str) -> None:
        with self.store.lock:
            stored = self.store.objects.pop(key, None)
        if stored is not None:
            self.store.drop(stored)

    def _list(self) -> None:
        prefix = self._query.get("prefix", [""])[0]
        after = self._query.get("continuation-token", self._query.get("start-after", [""]))[0]
        with self.store.lock:
            keys = sorted(key for key in self.store.objects if key.startswith(prefix) and key > after)
            page = [(key, self.store.objects[key]) for key in keys[:_PAGE]]
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2000-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(stored.tag)}</ETag><Size>{stored.size}</Size></Contents>"
            for key, stored in page
        )
        more = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if len(keys) > _PAGE else ""
        told = f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
        self._xml("ListBucketResult", f"{told}<IsTruncated>{str(len(keys) > _PAGE).lower()}</IsTruncated>{more}{items}")

    def _list_uploads(self) -> None:
        prefix = self._query.get("prefix", [""])[0]
        with self.store.lock:
            found = [(key, upload) for upload, (key, _) in self.store.uploads.items() if key.startswith(prefix)]
        items = "".join(f"<Upload><Key>{escape(k)}</Key><UploadId>{u}</UploadId></Upload>" for k, u in found)
        self._xml("ListMultipartUploadsResult", f"<IsTruncated>false</IsTruncated>{items}")

    def _xml(self, name: str, inside: str) -> None:
        self._answer(200, f'<?xml version="1.0"?><{name} xmlns="{_NAMESPACE}">{inside}</{name}>'.encode())

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve until it is told to end."""
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(folder.resolve())
    for offered in sys.argv[3:]:
        prefix, _, where = offered.partition("=")
        store.offer(prefix, Path(where))
    handler = type("Handler", (_Handler,), {"store": store})
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()


if __name__ == "__main__":
    main()
