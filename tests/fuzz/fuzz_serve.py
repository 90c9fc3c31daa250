"""Send requests that nobody in good faith makes to a server in its own process, and see what it answers.

    python tests/fuzz/fuzz_serve.py [--requests 2000] [--connections 10000] [--seed 1]

First, each call is tried with tokens of every kind that is none: none is answered, and nothing of the lake changes;
with one to read, calls that write are refused, and with one to write all are answered. Then come requests for files
outside of the lake, chunks of another, blocks that expand without end and ids of nothing, which are refused; and valid
requests of every call that are damaged, replaced by noise, or about another entry: by gRPC, by gRPC-web and with lying
sizes. Each is answered with a status that says nothing of the code; no file changes by a call that reads or is refused;
no answer has bytes of a file outside, and a chunk is one of the lake. Then bytes on bare connections, pings on an idle
one, and connections that are opened and dropped. In the end the server lives, answers, has no more handles, has not
grown, and the catalog is without fault. Prints what is wrong, and ends with 1 where something is.
"""

from __future__ import annotations

import argparse
import random
import re
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from bare_lines import lines_that_lie, pings, replies_in
from chunkmill.engine.catalog import CatalogClient
from chunkmill.engine.catalog.server import Kind, Method
from chunkmill.engine.catalog.server.protocol import SERVICE
from mutation import LengthField, from_varint, mutate
from served_corpus import Corpus, Request, bombs, planned
from served_lake import SECRET, TOO_LATE, Reply, Served, about

MOST_GROWTH: Final = 200 << 20
"""Bytes of memory that the server may grow by."""
MOST_AT_ONCE: Final = 3 << 29
"""Bytes that it may grow by for a while, whoever sends whatever."""
FINE: Final = frozenset({0, 3, 5, 6, 7, 8, 9, 11, 12})
"""The statuses of requests that a client has made wrong."""
_ENDLESS: Final = "WatchEvents"
_MORE: Final = {_ENDLESS: TOO_LATE}
"""Another status that a call may have."""
_PATIENCE: Final = {_ENDLESS: 0.3, "DoGlobalMaintenance": 600.0}
"""Seconds that a client waits for calls that go on, or go over all that a run has made."""
_TRACE: Final = re.compile(r"Traceback|File \"|\.py\b|line \d+|the server failed")
_UNAUTHENTICATED, _DENIED = 16, 7


class Fuzz:
    """The requests of a run, a ``whole`` one by every way that there is, and what was wrong with their answers."""

    def __init__(self, served: Served, seed: int, *, whole: bool) -> None:
        self.served = served
        self._is_whole = whole
        self.draw = random.Random(seed)
        self.corpus = Corpus(served)
        self.wrong: list[str] = []
        self.statuses: Counter[int] = Counter()
        self._chunks = self._left = set(self._chunks_in(self._sent(self._fetch(), "read")))
        self._hidden = [SECRET.encode(), served.secret, b"root:x:"]
        self._digest = served.digest()

    # --- who may call

    def access(self) -> None:
        """Try each call with every kind of token."""
        requests = [*self.corpus.reading, *map(self.corpus.written, self.corpus.writing)]
        self._digest = self.served.digest()
        for kind in self.served.tokens:
            for request in requests:
                writes = self._method(request).writes
                expected = {"read": _DENIED if writes else 0, "write": 0}.get(kind, _UNAUTHENTICATED)
                ways = [False] if kind == "write" and writes else self._ways(request)
                for by_web in ways:
                    reply = self._sent(request, kind, by_web=by_web)
                    status = 0 if request.name == _ENDLESS and reply.status == TOO_LATE else reply.status
                    if status != expected:
                        self._complain(request, f"with {kind} token", reply, f"is not {expected}")
                    if expected and reply.messages:
                        self._complain(request, f"with {kind} token", reply, "has messages")
            if kind == "write":
                self._digest = self.served.digest()
            self._look(f"calls with {kind} token")
        self._uploads()

    def _uploads(self) -> None:
        granted = self._sent(self.corpus.written("GetWriteAccessGrant"), "write").messages[0]
        method = self.served.service.methods[f"/{SERVICE}/GetWriteAccessGrant"]
        path = method.response.FromString(granted).grant.http_request.url
        self._digest = self.served.digest()
        tokens = [text.rpartition(" ")[2] for text in self.served.tokens.values()]
        for given in (*tokens, path[8:-1], f"{path[8:]}x", path[8:].rpartition(".")[0], "", "../../../etc/passwd"):
            status, _, answer = self.served.put(f"/upload/{given}", b"nine byte", self.served.bearing("write"))
            if status != 401:
                self.wrong.append(f"an upload by the grant {given[:60]!r} is answered by {status}, {answer[:100]!r}")
        for data in (b"", b"nine bytes", b"x" * 100):
            status, _, answer = self.served.put(path, data, {})
            if status != 400:
                self.wrong.append(f"an upload of {len(data)} bytes in place of 9 is answered by {status}, {answer!r}")
        self._look("uploads that were not granted")

    # --- what is asked for

    def hostile(self, mib: int) -> None:
        """Send well-formed requests for what nobody may have; blocks expand to ``mib``, and several at once."""
        for request in self.corpus.hostile(mib):
            if "Multipart" in request.name:  # of an upload that was begun for it
                self._digest = self.served.digest()
            for by_web in self._ways(request):
                reply = self._sent(request, "write", by_web=by_web)
                if reply.status not in request.statuses:
                    self._complain(request, "is hostile", reply, f"is none of {sorted(request.statuses)}")
                self._judge(request, "hostile", reply)
        before, most = self.served.memory(), 0
        requests = [self.corpus.request("FetchChunks", {}, {"chunk_infos": [bomb]}) for bomb in bombs(mib)]
        with ThreadPoolExecutor(16) as pool:
            replies = [pool.submit(self._sent, request, "read") for request in requests * 4]
            while not all(reply.done() for reply in replies):
                most = max(most, self.served.memory() - before)
                time.sleep(0.005)
        for request, reply in zip(requests * 4, replies, strict=True):
            if reply.result().status not in (3, 8):
                self._complain(request, "is one of several bombs", reply.result(), "is not 3 or 8")
        if most > MOST_AT_ONCE:
            self.wrong.append(f"blocks that expand took {most >> 20} MiB at once")

    def mutants(self, number: int) -> None:
        """Send so many damaged requests, and some that are not."""
        for at in range(number):
            writes = self.draw.random() < 0.35
            if writes:
                request = self.corpus.written(self.draw.choice(self.corpus.writing))
                self._digest = self.served.digest()
            else:
                request = self.draw.choice(self.corpus.reading)
            what, request = self._damaged(request)
            by_web = self.draw.random() < 0.4 and self._method(request).kind is not Kind.UPLOAD
            size = None
            if by_web and self.draw.random() < 0.3:
                size = self.draw.choice((0, len(b"".join(request.messages)) + 1, 2**31, 2**32 - 1))
            reply = self._sent(request, "write", by_web=by_web, size=size)
            what = f"request {at}, {what}, {'web' if by_web else 'gRPC'}, size {size}"
            more = _MORE.get(request.name, _UNAUTHENTICATED if "Multipart" in request.name else 0)
            if reply.status not in FINE | {more}:
                self._complain(request, what, reply, "is none that it may have")
            self._judge(request, what, reply)

    def _damaged(self, request: Request) -> tuple[str, Request]:
        """A request with something wrong, and what."""
        draw, messages = self.draw, request.messages
        way = draw.choices(("nothing", "noise", "bits", "about", "number"), (3, 2, 10, 2, 1))[0]
        if way == "noise":
            return way, request._replace(messages=(draw.randbytes(draw.randrange(300)),))
        if way == "about":
            other = draw.choice((about(self.served.drives), about(self.corpus.notes), {}, {"x-rerun-entry-id": "zz"}))
            return way, request._replace(headers=other)
        if way == "number":
            return way, request._replace(messages=draw.choice(((), messages * 2, messages * 50)))
        if way == "bits" and any(messages):
            at = draw.choice([at for at, data in enumerate(messages) if data])
            mutant = mutate(draw, messages[at], lengths_in(messages[at]))
            return mutant.what, request._replace(messages=(*messages[:at], mutant.data, *messages[at + 1 :]))
        return "nothing", request

    # --- lines

    def lines(self, number: int) -> None:
        """Send bytes on bare connections, each of which is answered, or ended."""
        for at in range(number):
            line = lines_that_lie(self.draw, self.served.bearing("write")["authorization"])
            try:
                waits = None if line.ends else (lambda reply, line=line: not replies_in(reply, line))
                reply = self.served.bare(line.data, waits)
            except OSError as error:
                self.wrong.append(f"line {at}, {line.what}: {type(error).__name__}: {error}")
                continue
            if wrong := replies_in(reply, line):
                self.wrong.append(f"line {at}, {line.what}, {line.data[:60]!r}: {wrong}: {reply[:200]!r}")
            if any(hidden in reply for hidden in self._hidden) or _TRACE.search(reply.decode("latin-1")):
                self.wrong.append(f"line {at}, {line.what}: tells {reply[:300]!r}")
        if wrong := pings(self.served.port, 100):
            self.wrong.append(wrong)
        self._look("bare lines")

    def connections(self, number: int) -> None:
        """Open and drop so many connections, of which most say something first."""
        memory, handles = self.served.memory(), self.served.handles()
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        said = (b"", preface[:9], b"POST / HT", preface + bytes(3) + b"\4" + bytes(5), b"\x16\x03\x01")
        for at in range(number):
            with socket.create_connection(("127.0.0.1", self.served.port), timeout=20) as line:
                line.sendall(said[at % len(said)])
                if at % 3 == 0:  # a reset, and no end
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until = time.monotonic() + 15
        while (left := self.served.handles() - handles) > 8 and time.monotonic() < until:
            time.sleep(0.05)
        if left > 8:
            self.wrong.append(f"{left} handles are left of {number} connections")
        if self.served.memory() - memory > MOST_GROWTH:
            self.wrong.append(f"{number} connections let the server grow by {self.served.memory() - memory} bytes")
        self._look("connections")

    # --- judging

    def end(self, memory: int) -> list[str]:
        """Look whether all is as it should be; what was wrong from the beginning."""
        if self.served.process.poll() is not None:
            return [*self.wrong, f"the server ended with {self.served.process.returncode}: {self.served.log()[-3000:]}"]
        reply = self._sent(self._fetch(), "read")
        if reply.status or set(self._chunks_in(reply)) != self._left:
            self.wrong.append(f"in the end other chunks are answered with {reply.status}, {reply.text}")
        if self.served.memory() - memory > MOST_GROWTH:
            self.wrong.append(f"the server grew by {self.served.memory() - memory} bytes")
        if "Traceback" in self.served.log():
            self.wrong.append(f"the server's log has {self.served.log()[-3000:]}")
        self.wrong += [f"the catalog: {fault}" for fault in CatalogClient(self.served.folder).check()]
        return self.wrong

    def _fetch(self) -> Request:
        return self.corpus.request(
            "FetchChunks", {}, {"chunk_infos": planned(self.served.service, about(self.served.drives))}
        )

    def _ways(self, request: Request) -> list[bool]:
        """By gRPC, by gRPC-web, or both: whether by the latter."""
        if self._method(request).kind is Kind.UPLOAD:
            return [False]
        return [False, True] if self._is_whole else [self.draw.random() < 0.5]

    def _method(self, request: Request) -> Method:
        return self.served.service.methods[f"/{SERVICE}/{request.name}"]

    def _sent(self, request: Request, kind: str, *, by_web: bool = False, size: int | None = None) -> Reply:
        method, headers = self._method(request), self.served.bearing(kind, **request.headers)
        patience = {"patience": _PATIENCE[request.name]} if request.name in _PATIENCE else {}
        if by_web:
            reply = self.served.by_web(method, b"".join(request.messages), headers, size, **patience)
        else:
            reply = self.served.by_grpc(method, request.messages, headers, **patience)
        self.statuses[reply.status] += 1
        return reply

    def _chunks_in(self, reply: Reply) -> list[bytes]:
        response = self.served.service.methods[f"/{SERVICE}/FetchChunks"].response
        return [chunk.payload for data in reply.messages for chunk in response.FromString(data).chunks]

    def _judge(self, request: Request, what: str, reply: Reply) -> None:
        if _TRACE.search(reply.text):
            self._complain(request, what, reply, "tells of the code")
        told = reply.text.encode() + b"".join(reply.messages)
        if any(hidden in told for hidden in self._hidden):
            self._complain(request, what, reply, "gives what is outside of the lake")
        if request.name == "FetchChunks" and not {*self._chunks_in(reply)} <= self._chunks:
            self._complain(request, what, reply, "gives chunks that are none of the lake's")
        if reply.status or not self._method(request).writes:
            self._look(f"{request.name}, {what}, status {reply.status} {reply.text[:100]}")
        else:
            self._digest = self.served.digest()
            if request.headers == about(self.served.drives):  # as one of another entry may be, by its damage
                self._left = set(self._chunks_in(self._sent(self._fetch(), "read")))

    def _look(self, what: str) -> None:
        after = self.served.digest()
        if after != self._digest:
            self.wrong.append(f"{what}: changes the lake{after[64:] and f', {after}'}")
        self._digest = after

    def _complain(self, request: Request, what: str, reply: Reply, wrong: str) -> None:
        data = [message[:60] for message in request.messages[:3]]
        self.wrong.append(f"{request.name} {data}, {what}: status {reply.status}, {reply.text[:200]!r}, {wrong}")


def lengths_in(data: bytes) -> tuple[LengthField, ...]:
    """Where a message says how long its fields are, those of messages in it, too."""
    found: list[LengthField] = []
    _note_lengths(data, 0, len(data), found)
    return tuple(found)


def _note_lengths(data: bytes, at: int, end: int, found: list[LengthField]) -> bool:
    while at < end:
        first = at
        at = _after_varint(data, at)
        kind = data[first] & 7
        if kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind in (0, 2):
            place, at = at, _after_varint(data, at)
            if kind == 2:
                size = from_varint(data[place:at])
                if at + size > end:
                    return False
                found.append(LengthField(place, at - place, varint=True))
                inner: list[LengthField] = []
                if size and _note_lengths(data, at, at + size, inner):
                    found += inner
                at += size
        else:
            return False
    return at == end


def _after_varint(data: bytes, at: int) -> int:
    while at < len(data) and data[at] & 0x80:
        at += 1
    return at + 1


def fuzzed(served: Served, requests: int, connections: int, seed: int, mib: int, *, whole: bool) -> list[str]:
    """Do all of it; what is wrong."""
    fuzz = Fuzz(served, seed, whole=whole)
    fuzz.access()  # with which the server has loaded what it needs
    memory = served.memory()
    steps: Sequence[Callable[[], Any]] = (
        lambda: fuzz.hostile(mib),
        lambda: fuzz.mutants(requests),
        lambda: fuzz.lines(requests // 10 + 20),
        lambda: fuzz.connections(connections),
    )
    for step in steps:
        step()
        if served.process.poll() is not None:
            break
    print(f"statuses: {dict(sorted(fuzz.statuses.items()))}; it grew by {(served.memory() - memory) >> 20} MiB")
    return fuzz.end(memory)


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
            wrong = fuzzed(served, options.requests, options.connections, options.seed, 500, whole=True)
        finally:
            served.close()
    print("\n".join(wrong[:50]) or f"{options.requests} requests, {options.connections} connections: nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
