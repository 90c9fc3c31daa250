"""Send blocks that expand to very much from many clients at once, and see what the server has in memory meanwhile.

    python tests/fuzz/bombs_at_once.py [--clients 64] [--seconds 60] [--rest 60] [--mib 500]

Each client has a connection of its own and sends one bomb after the other: LZ4 blocks of zeros, blocks that say less or
more than they expand to, and Arrow streams whose buffers are compressed within. Beside them one client calls what every
client calls, five times a second, and half of the bombs are given up by their client while they are worked on. Prints
what the server had in memory before, at most, and after the rest; how long the ordinary calls took; and the statuses
that the bombs got. Ends with 1 where the memory exceeded the server's budget by more than 300 MiB, an ordinary call
took more than a second or failed, or the memory is not back within a tenth of what it was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import numpy as np
import pyarrow as pa
from chunkmill.engine.catalog.server.protocol import SERVICE, cloud, shared
from chunkmill.engine.catalog.server.reception import MEMORY_BUDGET
from served_corpus import bombs
from served_lake import Served, about

PATIENCE: Final = 1.0
"""Seconds within which an ordinary call is to be answered."""
BESIDE: Final = 300 << 20
"""Bytes that the server may have beside its budget."""
LEFT: Final = 0.1
"""The part by which its memory may be larger after the rest."""
FINE: Final = frozenset({1, 3, 4, 8})
"""The statuses that a bomb may get: given up, invalid, too late, and no memory for it."""
_THREADS: Final = 16
_ALONE: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))


class Figures(NamedTuple):
    """What a run has seen; bytes, seconds, and statuses by how often they were given."""

    budget: int
    before: int
    most: int
    after: int
    seconds: list[float]
    statuses: Counter[int]
    failed: list[str]

    def faults(self) -> list[str]:
        """What is wrong with them."""
        found = [*self.failed]
        if self.most > self.budget + BESIDE:
            found.append(f"the server had {self.most >> 20} MiB, more than {self.budget + BESIDE >> 20}")
        if self.after > self.before * (1 + LEFT):
            found.append(f"the server has {self.after >> 20} MiB afterwards, and had {self.before >> 20}")
        if max(self.seconds, default=PATIENCE + 1) > PATIENCE:
            found.append(f"an ordinary call took {max(self.seconds, default=0):.2f} s")
        if wrong := {status: count for status, count in self.statuses.items() if status not in FINE}:
            found.append(f"bombs were answered with the statuses {wrong}")
        if not self.statuses[3]:
            found.append("no bomb was expanded")
        return found

    def __str__(self) -> str:
        p50, p99, worst = np.percentile(self.seconds or [0], [50, 99, 100]) * 1000
        return (
            f"memory: {self.before >> 20} MiB, at most {self.most >> 20}, afterwards {self.after >> 20}; "
            f"{len(self.seconds)} ordinary calls: {p50:.0f} ms, 99 of 100 within {p99:.0f}, all within {worst:.0f}; "
            f"bombs by status: {dict(sorted(self.statuses.items()))}"
        )


def bombed(served: Served, clients: int, seconds: float, rest: float, mib: int, budget: int = MEMORY_BUDGET) -> Figures:
    """Let so many clients bomb a server that has this budget for a while, and let it rest."""
    drives = about(served.drives)
    ordinary = _ordinary_calls(served, drives)
    for _ in range(20):  # with which the server has loaded what it needs
        failed = ordinary()
        if failed:
            raise RuntimeError(failed)
    request = Path(served.folder.parent, "requests.json")
    request.write_text(json.dumps({"port": served.port, "headers": served.bearing("write", **drives), "mib": mib}))
    before = served.memory()
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--as-clients", request, str(min(_THREADS, clients - at)), str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for at in range(0, clients, _THREADS)
    ]
    ended, samples, taken, failures = threading.Event(), [before], [], []

    def watch() -> None:
        while not ended.wait(0.02):
            samples.append(served.memory())

    thread = threading.Thread(target=watch)
    thread.start()
    while any(process.poll() is None for process in processes):
        began = time.perf_counter()
        failures += filter(None, [ordinary()])
        taken.append(time.perf_counter() - began)
        time.sleep(0.2)
    ended.set()
    thread.join()
    statuses = Counter[int]()
    for process in processes:
        statuses.update({int(status): count for status, count in json.loads(process.communicate()[0]).items()})
    until = time.monotonic() + rest
    while time.monotonic() < until and served.memory() > before * (1 + LEFT):
        time.sleep(0.5)
    return Figures(budget, before, max(samples), served.memory(), taken, statuses, failures)


def _ordinary_calls(served: Served, drives: dict[str, str]) -> Callable[[], str]:
    """What a client asks for again and again; gives what is wrong."""
    asked: list[tuple[str, dict[str, Any]]] = [
        ("FindEntries", {}),
        ("ReadDatasetEntry", {}),
        ("QueryDataset", {"select_all_entity_paths": True}),
    ]
    number = 0

    def call() -> str:
        nonlocal number
        number += 1
        name, fields = asked[number % len(asked)]
        method = served.service.methods[f"/{SERVICE}/{name}"]
        reply = served.by_grpc(method, [method.request(**fields).SerializeToString()], served.bearing("read", **drives))
        return f"{name} is answered with {reply.status}, {reply.text}" if reply.status else ""

    return call


def requests(mib: int) -> list[bytes]:
    """Requests with bombs, of which all are refused."""
    parts = list(bombs(mib))[:5]
    for codec in ("lz4", "zstd"):
        sink = pa.BufferOutputStream()
        rows = pa.table({"chunk_key": pa.array([bytes(1 << 20)] * min(mib, 200), pa.large_binary())})
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_table(rows)
        payload = sink.getvalue().to_pybytes()
        parts.append(shared("DataframePart")(encoder_version=1, payload=payload, compression=1))
    return [cloud("FetchChunksRequest")(chunk_infos=[part]).SerializeToString() for part in parts]


def clients(asked: dict[str, Any], count: int, seconds: float) -> Counter[int]:
    """The statuses that some clients get for their bombs, each in a thread."""
    found, lock = Counter[int](), threading.Lock()
    data, until = requests(asked["mib"]), time.monotonic() + seconds

    def run(number: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{asked['port']}", _ALONE) as channel:
            call = channel.unary_stream(f"/{SERVICE}/FetchChunks")
            while time.monotonic() < until:
                number += 1
                patience = 0.5 if number % 2 else 60.0
                try:
                    for _ in call(data[number % len(data)], metadata=list(asked["headers"].items()), timeout=patience):
                        pass
                    status = 0
                except grpc.RpcError as error:
                    status = error.code().value[0]
                with lock:
                    found[status] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main() -> int:
    """Run it, or one of its processes of clients."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rest", type=float, default=60)
    parser.add_argument("--mib", type=int, default=500)
    parser.add_argument("--as-clients", nargs=3, metavar=("FILE", "COUNT", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_clients:
        os.nice(10)  # clients are on other machines as a rule, and take no cores of the server's
        asked, count, seconds = options.as_clients
        print(json.dumps(clients(json.loads(Path(asked).read_text()), int(count), float(seconds))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        served = Served(Path(folder))
        try:
            figures = bombed(served, options.clients, options.seconds, options.rest, options.mib)
        finally:
            served.close()
    print(figures)
    faults = figures.faults()
    print("\n".join(faults) or f"{options.clients} clients for {options.seconds:g} s: nothing is wrong")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
