"""Send requests that nobody in good faith makes to a server in its own process, and see what it answers.

    python tests/fuzz/fuzz_serve.py [--requests 2000] [--connections 10000] [--seed 1]

Valid requests of every call are damaged, replaced by noise, or ask for blocks that expand without end, chunks of
another lake and files outside of this one; they go by gRPC, by gRPC-web and as bytes on a bare connection. Each is
answered with a status whose text has no trace of the code; no file of the lake changes by a call that only reads or is
refused; no answer has bytes of a file outside. In the end the server lives, answers, and has not grown. Prints what is
wrong, and ends with 1 where something is.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import grpc
import pyarrow as pa
from chunkmill.engine import LazyChunkStream
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import Call, CatalogService, Kind, Method
from chunkmill.engine.catalog.server.envelopes import part_of
from chunkmill.engine.catalog.server.methods import SERVICE
from mutation import mutate

MOST_GROWTH: Final = 200 << 20
"""Bytes of memory that the server may grow by."""
SECRET: Final = b"a secret outside of the lake"
_LEFT_OUT: Final = {"WatchEvents", "QueryTasksOnCompletion"}  # they wait as long as the client likes
_TRACE: Final = re.compile(r"Traceback|File \"|\.py\b|line \d+|the server failed")
_STATUS: Final = re.compile(rb"grpc-status: ?(\d+)")
_PATHS: Final = ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/..\\..\\etc\\passwd", "/\0")


class Served:
    """A small lake behind ``chunkmill serve``, beside a file that nobody may read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lake"
        (folder / "outside.rrd").write_bytes(SECRET)
        self.catalog = _lake(self.folder, folder / "files", "one", "two")
        other = _lake(folder / "other", folder / "others", "three")
        self.service = CatalogService(self.catalog)
        self.entry = str(self.catalog.get_dataset("drives").id)
        self.foreign = _planned(CatalogService(other), str(other.get_dataset("drives").id))
        command = [sys.executable, "-m", "chunkmill", "serve", str(self.folder), "--port", "0"]
        log = folder / "log"
        with log.open("w") as sink:
            self.process = subprocess.Popen(command, stdout=sink, stderr=sink)
        deadline = time.monotonic() + 60
        while (found := re.search(r"is served at \S+:(\d+)", log.read_text())) is None:
            assert self.process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        self.port = int(found[1])
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")

    def memory(self) -> int:
        """Bytes of memory that the server has."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def digest(self) -> str:
        """A digest of all files of the lake, by their names and contents."""
        found = hashlib.sha256()
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            found.update(os.fsencode(path) + path.read_bytes())
        return found.hexdigest()

    def by_grpc(self, method: Method, data: bytes) -> tuple[int, str, bytes]:
        """The status, the text and the answer of a call."""
        given: dict[str, Any] = {"metadata": [("x-rerun-entry-id", self.entry)], "timeout": 20}
        try:
            if method.kind is Kind.STREAM:
                return 0, "", b"".join(self.channel.unary_stream(method.path)(data, **given))
            if method.kind is Kind.UPLOAD:
                return 0, "", self.channel.stream_unary(method.path)(iter([data]), **given)
            return 0, "", self.channel.unary_unary(method.path)(data, **given)
        except grpc.RpcError as error:
            return error.code().value[0], error.details() or "", b""

    def by_web(self, method: Method, data: bytes, size: int) -> tuple[int, str, bytes]:
        """The same by gRPC-web, in a frame that says it has ``size`` bytes."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {"content-type": "application/grpc-web+proto", "x-rerun-entry-id": self.entry}
        line.request("POST", method.path, b"\0" + size.to_bytes(4, "big") + data, headers)
        response = line.getresponse()
        body = response.read()
        line.close()
        status = response.headers.get("grpc-status") or next(iter(_STATUS.findall(body)), b"").decode()
        text = (response.headers.get("grpc-message") or "") + body.decode("latin-1") * (status != "0")
        return int(status or -1 if response.status == 200 else status or 0), unquote(text), body

    def bare(self, data: bytes) -> bytes:
        """What comes back for bytes on a connection that then ends."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as line:
            try:
                line.sendall(data)
                line.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: line.recv(65536), b""))
            except ConnectionError:
                return b""

    def close(self) -> None:
        """End the server."""
        self.channel.close()
        self.process.terminate()
        self.process.wait(30)


def _lake(folder: Path, files: Path, *names: str) -> CatalogClient:
    from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn

    files.mkdir()
    catalog = CatalogClient(folder)
    dataset = catalog.create_dataset("drives")
    for name in names:
        chunk = Chunk.from_columns("/at", [TimeColumn("tick", sequence=[0])], [ComponentColumn("value", [1.0])])
        LazyChunkStream.from_iter([chunk]).write_rrd(files / name, application_id="tests", recording_id=name)
        dataset.register([files / name], executor="inline", copy=True).wait()
    return catalog


def _planned(service: CatalogService, entry: str) -> list[Any]:
    method = service.methods[f"/{SERVICE}/QueryDataset"]
    request = method.request(select_all_entity_paths=True)
    return [found.data for found in method.handler(request, Call({"x-rerun-entry-id": entry}))]


def requests(served: Served) -> dict[str, list[bytes]]:
    """Requests by the names of their calls: valid ones, and some that ask for what is outside."""
    chunk_keys = pa.table({"chunk_key": pa.array([b"../../../../../../../etc/passwd\0\0\0\0\0"], pa.binary())})
    bomb = part_of(pa.table({"chunk_key": pa.array([b"x" * 36] * 1000, pa.binary())}))
    bomb.uncompressed_size = 1 << 62
    places = ["file:///etc/passwd", "file:///etc/../etc/passwd", (served.folder.parent / "outside.rrd").as_uri()]
    everything: dict[str, Any] = {"all": {}}
    fields: dict[str, list[dict[str, Any]]] = {
        "QueryDataset": [{"select_all_entity_paths": True, "query": {"latest_at": {"at": 3}}}],
        "FindChunks": [{"contents": everything, "range": {"timeline": "tick", "fill_mode": 1, "segments": everything}}],
        "FetchChunks": [
            {"chunk_infos": _planned(served.service, served.entry)},
            {"chunk_infos": served.foreign},
            {"chunk_infos": [part_of(chunk_keys)]},
            {"chunk_infos": [bomb]},
        ],
        "GetRrdManifest": [{"segment_id": {"id": "one"}}, {"segment_id": {"id": "../../../outside.rrd"}}],
        "ScanSegmentTable": [{"columns": ["rerun_segment_id"]}],
        "ScanDatasetManifest": [{"columns": ["rerun_segment_id"]}],
        "RegisterWithDataset": [
            {"data_sources": [{"storage_url": place, "typ": 1, "prefix": prefix}], "on_duplicate": 3}
            for place in places
            for prefix in (False, True)
        ],
    }
    found = {}
    for method in served.service.methods.values():
        if method.name not in _LEFT_OUT and "Maintenance" not in method.name:
            given = fields.get(method.name, [{}])
            found[method.name] = [method.request(**one).SerializeToString() for one in given]
    return found


def wrong_requests(served: Served, number: int, start: int) -> list[str]:
    """Send so many requests; what is wrong."""
    draw, wrong, known = random.Random(start), [], requests(served)
    names, before, memory = sorted(known), served.digest(), served.memory()
    for at in range(number):
        name = draw.choice(names)
        method = served.service.methods[f"/{SERVICE}/{name}"]
        data = draw.choice(known[name])
        kind = draw.randrange(4)
        if kind == 1:
            data = draw.randbytes(draw.randrange(200))
        elif kind > 1 and data:
            data = mutate(draw, data, ()).data
        way = draw.randrange(5)
        what = f"request {at}, {name}, way {way}, {data[:40]!r}"
        try:
            if way < 2:
                status, text, answer = served.by_grpc(method, data)
            elif way < 4:
                size = draw.choice((len(data), len(data), 0, len(data) + 1, 2**31, 2**32 - 1))
                status, text, answer = served.by_web(method, data, size)
            else:
                status, text, answer = 3, "", served.bare(_bare(draw, method, data))
        except (OSError, http.client.HTTPException) as error:
            wrong.append(f"{what}: {type(error).__name__}: {error}")
            continue
        if not 0 <= status <= 16 or status == 4:
            wrong.append(f"{what}: status {status} is none, or the call had no end")
        if _TRACE.search(text) or b"Traceback" in answer:
            wrong.append(f"{what}: status {status} says {text[:200]}")
        if SECRET in answer or b"root:x:" in answer:
            wrong.append(f"{what}: gives a file outside of the lake")
        if not method.writes or status:
            after = served.digest()
            if after != before:
                wrong.append(f"{what}: status {status} changes the lake")
            before = after
        else:
            before = served.digest()
    return wrong + _wrong_in_the_end(served, memory)


def _bare(draw: random.Random, method: Method, data: bytes) -> bytes:
    path = draw.choice((*_PATHS, method.path))
    length = draw.choice((len(data), 2**63, -1))
    return draw.choice(
        (
            draw.randbytes(draw.randrange(1, 300)),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + draw.randbytes(draw.randrange(300)),
            f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode(),
            f"PUT /upload{path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n".encode() + data,
        )
    )


def wrong_connections(served: Served, number: int) -> list[str]:
    """Open and drop so many connections, of which every other says something first; what is wrong."""
    memory = served.memory()
    for at in range(number):
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as line:
            if at % 2:
                line.sendall(b"PRI * HTTP/2.0\r\n" if at % 4 == 1 else b"POST / HT")
    return _wrong_in_the_end(served, memory)


def _wrong_in_the_end(served: Served, memory: int) -> list[str]:
    wrong = []
    if served.process.poll() is not None:
        return [f"the server ended with {served.process.returncode}"]
    status, text, _ = served.by_grpc(served.service.methods[f"/{SERVICE}/WhoAmI"], b"")
    if status:
        wrong.append(f"in the end the server says {status}, {text}")
    if served.memory() - memory > MOST_GROWTH:
        wrong.append(f"the server grew by {served.memory() - memory} bytes")
    return wrong


def main() -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        served = Served(Path(folder))
        try:
            wrong = wrong_requests(served, options.requests, options.seed)
            wrong += wrong_connections(served, options.connections)
        finally:
            served.close()
    print("\n".join(wrong[:50]) or f"{options.requests} requests, {options.connections} connections: nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
