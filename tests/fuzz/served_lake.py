"""A small lake behind ``chunkmill serve``, in its own process, beside files nobody may read, and ways to call it."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import grpc
from chunkmill.engine.catalog import CatalogClient, DatasetEntry
from chunkmill.engine.catalog.server import CatalogService, Kind, Method, secret_of, secret_place, token
from chunkmill.engine.catalog.server.protocol import ENTRY_ID_HEADER
from chunkmill.engine.chunk import Chunk, ComponentColumn, TimeColumn
from chunkmill.engine.rrd import RrdWriter, StoreEntry

SECRET: Final = "a secret outside of the lake"
TOO_LATE: Final = 4
"""The status of a call that its client gave up."""
_PATIENCE: Final = 60.0
_STATUS: Final = re.compile(rb"grpc-status: ?(\d+)")
_MESSAGE: Final = re.compile(rb"grpc-message: ?([^\r]*)")


class Reply(NamedTuple):
    """How a call ended: its status, its text, and the messages before that."""

    status: int
    text: str
    messages: tuple[bytes, ...] = ()


class Served:
    """The lake, its server, and tokens of every kind by what they are."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder / "lake"
        self._digests: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self.outside = folder / "outside"
        self.catalog = CatalogClient(self.folder)
        self.drives = self.new_dataset("drives", "one", "two")
        self.other = CatalogClient(folder / "other")
        _registered(self.other, folder / "other" / "files", "drives", "three")
        _write(self.outside / "secret.rrd", SECRET)
        (self.folder / "link.rrd").symlink_to(self.outside / "secret.rrd")
        (self.folder / "links").symlink_to(self.outside)
        self.service = CatalogService(self.catalog)
        self.secret = secret_of(secret_place(str(self.folder)), make=True)
        self.tokens = _tokens(self.secret)
        command = [sys.executable, "-m", "chunkmill", "serve", str(self.folder), "--port", "0", "--tokens", *options]
        self._log = folder / "log"
        with self._log.open("w") as sink:
            self.process = subprocess.Popen(command, stdout=sink, stderr=sink)
        deadline = time.monotonic() + 60
        while (found := re.search(r"is served at \S+:(\d+)", self.log())) is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self.log())
            time.sleep(0.02)
        self.port = int(found[1])
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}", [("grpc.max_receive_message_length", -1)])

    def new_dataset(self, name: str, *segments: str) -> DatasetEntry:
        """A dataset with recordings that lie in the lake's folder."""
        return _registered(self.catalog, self.folder / "files", name, *segments)

    def log(self) -> str:
        """What the server said."""
        return self._log.read_text()

    def memory(self) -> int:
        """Bytes of memory that the server has."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def handles(self) -> int:
        """Handles that the server has."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def digest(self) -> str:
        """A digest of all files of the lake, by their names and contents, but of the logs of what was called."""
        found = hashlib.sha256()
        for path, state in sorted(_files_below(os.fspath(self.folder))):
            if (path, state) not in self._digests:
                try:
                    self._digests[path, state] = hashlib.sha256(Path(path).read_bytes()).digest()
                except FileNotFoundError:
                    return f"{path} went away while it was looked at"
            found.update(os.fsencode(path) + self._digests[path, state])
        return found.hexdigest()

    def by_grpc(
        self, method: Method, requests: Sequence[bytes], headers: Mapping[str, str], patience: float = _PATIENCE
    ) -> Reply:
        """What a call by gRPC is answered."""
        given: dict[str, Any] = {"metadata": list(headers.items()), "timeout": patience}
        found: list[bytes] = []
        try:
            if method.kind is Kind.STREAM:
                found.extend(self.channel.stream_stream(method.path)(iter(requests), **given))
            else:
                found.append(self.channel.stream_unary(method.path)(iter(requests), **given))
        except grpc.RpcError as error:
            return Reply(error.code().value[0], error.details() or "", tuple(found))
        return Reply(0, "", tuple(found))

    def by_web(
        self,
        method: Method,
        data: bytes,
        headers: Mapping[str, str],
        size: int | None = None,
        patience: float = _PATIENCE,
    ) -> Reply:
        """What a call by gRPC-web is answered, whose frame says that it has ``size`` bytes."""
        length = len(data) if size is None else size
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        sent = {"content-type": "application/grpc-web+proto", **headers}
        try:
            line.request("POST", method.path, b"\0" + length.to_bytes(4, "big") + data, sent)
            body = line.getresponse().read()
        except TimeoutError:
            return Reply(TOO_LATE, "")
        finally:
            line.close()
        messages, trailers = _frames(body)
        status = _STATUS.search(trailers)
        text = _MESSAGE.search(trailers)
        return Reply(int(status[1]) if status else -1, unquote(text[1].decode()) if text else "", messages)

    def put(self, path: str, data: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        """The status of HTTP of an upload, the headers, and the answer."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            line.request("PUT", path, data, dict(headers))
            answer = line.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            line.close()

    def bare(self, data: bytes, is_answer: Callable[[bytes], bool] | None = None) -> bytes:
        """What comes back for bytes on a connection: until ``is_answer`` is content, or all where the bytes end it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=_PATIENCE) as line:
            found = b""
            try:
                line.sendall(data)
                if is_answer is None:
                    line.shutdown(socket.SHUT_WR)
                while (is_answer is None or not is_answer(found)) and (some := line.recv(65536)):
                    found += some
            except OSError as error:
                if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
                    raise
            return found

    def bearing(self, kind: str, **headers: str) -> dict[str, str]:
        """Headers with a token of some kind."""
        given = self.tokens[kind]
        return {**headers, **({"authorization": given} if given else {})}

    def close(self) -> None:
        """End the server."""
        self.channel.close()
        self.process.terminate()
        self.process.wait(30)


def _files_below(folder: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """All files by their paths, each with what changes with its content."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(entry.path)
            elif entry.is_file() and not entry.name.startswith("audit"):
                state = entry.stat()
                yield entry.path, (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def about(entry: Any) -> dict[str, str]:
    """Headers that name an entry."""
    return {ENTRY_ID_HEADER: str(entry.id)}


def _frames(body: bytes) -> tuple[tuple[bytes, ...], bytes]:
    messages, at = [], 0
    while at + 5 <= len(body) and body[at] == 0:
        end = at + 5 + int.from_bytes(body[at + 1 : at + 5], "big")
        messages.append(body[at + 5 : end])
        at = end
    return tuple(messages), body[at:]


def _tokens(secret: bytes) -> dict[str, str]:
    """Headers of callers: those with a right to read, or to write too, and those with none."""
    import jwt

    fixed: dict[str, Any] = {"hosts": ["127.0.0.1"], "subject": "fuzz"}
    made = {
        "read": token(secret, can_write=False, seconds=3600, **fixed),
        "write": token(secret, can_write=True, seconds=3600, **fixed),
        "expired": token(secret, can_write=True, seconds=-60, **fixed),
        "wrongly signed": token(secret[::-1], can_write=True, seconds=3600, **fixed),
    }
    claims = jwt.decode(made["write"], options={"verify_signature": False})
    made["unsigned"] = jwt.encode(claims, None, algorithm="none")
    made["for uploads"] = jwt.encode({**claims, "aud": "upload"}, secret, algorithm="HS256")
    made["endless"] = jwt.encode({k: v for k, v in claims.items() if k != "exp"}, secret, algorithm="HS256")
    head, body, signature = made["write"].split(".")
    made["cut"] = f"{head}.{body}."
    made["changed"] = (
        f"{head}.{jwt.encode({**claims, 'sub': 'root'}, secret, algorithm='HS256').split('.')[1]}.{signature}"
    )
    made["noise"] = "x" * 5000
    return {kind: f"Bearer {text}" for kind, text in made.items()} | {"no": "", "basic": f"Basic {made['write']}"}


def _registered(catalog: CatalogClient, folder: Path, name: str, *segments: str) -> DatasetEntry:
    dataset = catalog.create_dataset(name)
    for segment in segments:
        path = folder / f"{name}-{segment}.rrd"
        _write(path, segment)
        dataset.register([path], executor="inline").wait()
    return dataset


def _write(path: Path, name: str) -> None:
    """A recording whose id is the stem of the path's last part, and whose one value is its name."""
    path.parent.mkdir(exist_ok=True)
    chunk = Chunk.from_columns("/at", [TimeColumn("tick", sequence=[0])], [ComponentColumn("value", [name])])
    store = StoreEntry("recording", "tests", path.stem.rpartition("-")[2])
    with RrdWriter(path) as writer:
        writer.begin_store(store)
        writer.append(store, chunk)
        writer.finish()
