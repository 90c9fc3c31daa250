"""An HTTP server of files that behaves as badly as asked for, and a Hub."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

REVISION = "main"


class FileServer(ThreadingHTTPServer):
    """Serves ``files`` by name: ``/WAY/NAME``, where the way says how it behaves. ``requests`` lists what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.tag = 1
        self.elsewhere = ""
        self.signed_uses = 3
        self.requests: list[tuple[str, str | None, str | None]] = []
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()

    def handle_error(self, *_: object) -> None:
        """Nothing: clients hang up, as some answers are not what they want."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FileServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        server, url = self.server, urlsplit(self.path)
        with server.lock:
            server.requests.append((self.path, self.headers["Range"], self.headers["Authorization"]))
            server.counts[self.path] += 1
            count = server.counts[self.path]
        way, _, name = url.path.lstrip("/").partition("/")
        hub = re.fullmatch(r"/datasets/me/set/resolve/([^/]+)/(.+)", url.path)
        if way == "api":
            self._list(url.path)
        elif hub is not None:
            if hub[2] not in server.files:
                self._send(404, b"Entry not found")
            else:
                self._redirect(f"/signed/{hub[2]}?Signature={count}")
        elif way == "redirect":
            self._redirect(f"/plain/{name}")
        elif way == "loop":
            self._redirect(f"/loop/{count}")
        elif way == "away":
            self._redirect(f"{server.elsewhere}/plain/{name}")
        elif way == "file":
            self._redirect("file:///etc/passwd")
        elif way == "denied":
            self._send(403, b"no")
        elif unquote(name) not in server.files:
            self._send(404, b"nothing")
        elif way == "signed" and count > server.signed_uses:
            self._send(403, b"expired")
        elif way == "flaky" and count % 3 == 1:
            self._send(503, b"later")
        else:
            self._file(way, server.files[unquote(name)], count)

    def _redirect(self, target: str) -> None:
        self._send(302, b"", {"Location": target})

    def _list(self, path: str) -> None:
        prefix = path.removeprefix(f"/api/datasets/me/set/tree/{REVISION}").strip("/")
        entries: list[dict[str, Any]] = [{"type": "directory", "path": "data", "oid": "x"}]
        entries += [
            {"type": "file", "path": name, "size": len(data), "oid": "x"}
            for name, data in self.server.files.items()
            if name.startswith(f"{prefix}/" if prefix else "")
        ]
        half = len(entries) // 2
        if "cursor" in self.path or half == 0:
            self._send(200, json.dumps(entries[half:]).encode())
        else:
            link = f'<{self.server.url}{path}?recursive=true&cursor=1>; rel="next"'
            self._send(200, json.dumps(entries[:half]).encode(), {"Link": link})

    def _file(self, way: str, data: bytes, count: int) -> None:
        headers = {} if way == "nameless" else {"ETag": f'"{self.server.tag}"'}
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["Range"] or "")
        if way in ("whole", "chunked") or match is None:
            self._send(200, data, headers, hides_size=way == "chunked")
            return
        if match[1]:
            begin, end = int(match[1]), min(int(match[2]) if match[2] else len(data) - 1, len(data) - 1)
        else:
            begin, end = max(len(data) - int(match[2]), 0), len(data) - 1
        if begin > end:
            self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            return
        size = "*" if way in ("hidden", "endless") else f"{len(data)}"
        if way == "shifted" and end > begin:
            begin -= 1
        headers["Content-Range"] = f"bytes {begin}-{end}/{size}"
        if way == "endless" and not match[1]:
            self._send(416, b"", {})
        elif way == "broken" and count % 2:
            self._send(206, data[begin : end + 1], headers, cut=True)
        else:
            self._send(206, data[begin : end + 1], headers)

    def _send(
        self,
        status: int,
        data: bytes,
        headers: dict[str, str] | None = None,
        *,
        hides_size: bool = False,
        cut: bool = False,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if hides_size:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut or hides_size:
            self.close_connection = True


@contextmanager
def serving() -> Iterator[FileServer]:
    """Run a server on a free port."""
    server = FileServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
