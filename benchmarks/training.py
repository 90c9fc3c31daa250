"""Samples for training beside rerun-sdk's loader: samples a second, processor time, memory, time to the first batch.

    python -m tests.run benchmarks training --folder FOLDER [--data small] [--cases numbers jpeg video] [--rounds 3]
    python -m tests.run benchmarks training --folder FOLDER --data large --waste

Each row of a segment has 14 and 7 numbers, and of most data a JPEG and an H.264 frame, ten frames a group. ``--data``
is one of these, and ``--cache`` the MiB of values that a process keeps; all but ``small`` are 20 times that or more:

    small    100 segments of 100 rows, 128 x 128 pixels; 93 MB
    large    100 segments of 480 rows, 256 x 256 pixels; 970 MB of JPEG, 670 MB of video, --cache 32
    numbers  1,000 segments of 6,000 rows, no pictures; 840 MB and 410 MB, --cache 32
    many     1,000 segments of 100 rows, 64 x 64 pixels, no JPEG; 118 MB, --cache 4

Rerun's loader asks a server: ``rerun server``, or ``chunkmill serve``; ours reads the folder of the lake. Each case
runs in a process of its own, one after the other, batches of 32. Memory is the largest sum of a process and of those
that it has started. ``default`` is the ratio to Rerun's default, SampleShuffle. It needs torch, torchvision and
rerun-sdk. ``--waste`` counts what an epoch fetches and decodes by BlockShuffle, without Rerun and torch.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from served_lake import SCRIPTS, served

GROUP, BATCH = 10, 32
DATA: dict[str, tuple[int, int, int, tuple[str, ...], int]] = {
    "small": (100, 100, 128, ("jpeg", "video"), 256),
    "large": (100, 480, 256, ("jpeg", "video"), 32),
    "numbers": (1000, 6000, 8, (), 32),
    "many": (1000, 100, 64, ("video",), 4),
}
"""Segments, rows, pixels of a side, what there is beside numbers, and MiB that are kept."""
CASES = {"numbers": ["state"], "window": ["state", "action"], "jpeg": ["state", "jpeg"], "video": ["state", "video"]}
ORDERS = ("none", "block", "sample")
SIDES = ("ours", "rerun", "rerun-on-ours")


def make(folder: Path, segments: int, rows: int, side: int, parts: Sequence[str]) -> list[Path]:
    """Write the recordings that are not there yet: numbers, and of ``parts`` pictures (jpeg) and video."""
    from chunkmill import Chunk, LazyChunkStream, OptimizationProfile
    from chunkmill.engine.chunk import ComponentDescriptor
    from chunkmill.engine.video import SampleBatch, VideoFrame, VideoTrack, encode, stream_chunks
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    track = VideoTrack(0x61766331, side, side, Fraction(1, 30), Fraction(30))
    blob = ComponentDescriptor("EncodedImage:blob", "rerun.archetypes.EncodedImage", "rerun.components.Blob")
    scalars = ComponentDescriptor("Scalars:scalars", "rerun.archetypes.Scalars", "rerun.components.Scalar")
    paths = [folder / f"segment_{number:05}.rrd" for number in range(segments)]
    for number, path in enumerate(paths):
        if path.exists():
            continue
        random = np.random.default_rng(number)
        lines = {"frame": pa.array(np.arange(rows))}
        chunks = [
            Chunk.build(f"/{name}", lines, [(scalars, _lists(random.normal(size=(rows, width))))])
            for name, width in (("state", 14), ("action", 7))
        ]
        smooth = np.kron(random.integers(0, 255, (side // 8, side // 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
        noise = random.integers(0, 40, (side, side, 3)).astype(np.uint8)
        shown = [np.roll(smooth, 3 * n, 1) // 2 + np.roll(noise, n, 0) for n in range(rows if parts else 0)]
        if "jpeg" in parts:
            pictures = []
            for image in shown:
                out = io.BytesIO()
                Image.fromarray(image).save(out, "JPEG", quality=80)
                pictures.append([np.frombuffer(out.getvalue(), np.uint8)])
            chunks.append(Chunk.build("/jpeg", lines, [(blob, pa.array(pictures, pa.list_(pa.list_(pa.uint8()))))]))
        if "video" in parts:
            samples = encode(track, [VideoFrame(n, image) for n, image in enumerate(shown)], keyframe_interval=GROUP)
            some = [SampleBatch.of(samples)]
            chunks += stream_chunks("/video", track, some, lambda ticks: {"frame": pa.array(ticks)})
        store = LazyChunkStream.from_iter(chunks).collect(optimize=OptimizationProfile.OBJECT_STORE, executor="inline")
        store.write_rrd(path, application_id="training", recording_id=path.stem)
    return paths


def _lists(values: Any) -> pa.ListArray:
    """Numbers of shape ``(n, d)`` as rows of lists."""
    ends = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(values.ravel()))


def fields_of(case: str) -> dict[str, Any]:
    """Our fields of a case."""
    from chunkmill import training as t

    fields = {
        "state": t.Field("/state:Scalars:scalars", t.NumericDecoder()),
        "action": t.Field("/action:Scalars:scalars", t.NumericDecoder(), window=tuple(range(16)), edges="trim"),
        "jpeg": t.Field("/jpeg:EncodedImage:blob", t.ImageDecoder()),
        "video": t.Field("/video:VideoStream:sample", t.VideoFrameDecoder(threads=1)),
    }
    return {name: fields[name] for name in CASES[case]}


def ours(where: str, case: str, order: str, given: argparse.Namespace) -> Any:
    """Batches of our own loader, out of the folder of the lake."""
    from chunkmill import CatalogClient
    from chunkmill import training as t

    strategy = {"none": t.NoShuffle(), "block": t.BlockShuffle(1000), "sample": t.SampleShuffle()}[order]
    samples = t.IterableSamples(
        t.DataSource(CatalogClient(where).get_dataset("training")),
        "frame",
        fields_of(case),
        shuffle=strategy,
        batch_size=BATCH,
        cache_bytes=given.cache << 20,
    )
    return t.loader(samples, num_workers=given.workers, pin_memory=_pins(given), device=given.device)


def theirs(where: str, case: str, order: str, given: argparse.Namespace) -> Any:
    """Batches of Rerun's loader, from a server."""
    import torch
    from rerun.catalog import CatalogClient
    from rerun.experimental import dataloader as d

    fields = {
        "state": d.Field("/state:Scalars:scalars", decode=d.NumericDecoder()),
        "action": d.Field("/action:Scalars:scalars", decode=d.NumericDecoder(), window=tuple(range(16))),
        "jpeg": d.Field("/jpeg:EncodedImage:blob", decode=d.ImageDecoder()),
        "video": d.Field("/video:VideoStream:sample", decode=d.VideoFrameDecoder()),
    }
    strategy = {"none": d.NoShuffle(), "block": d.BlockShuffle(1000), "sample": d.SampleShuffle()}[order]
    source = d.DataSource(CatalogClient(where).get_dataset("training"))
    chosen = {name: fields[name] for name in CASES[case]}
    samples = d.RerunIterableDataset(source, "frame", chosen, shuffle_strategy=strategy)
    context = "spawn" if given.workers else None
    batches = torch.utils.data.DataLoader(
        samples, BATCH, num_workers=given.workers, pin_memory=_pins(given), multiprocessing_context=context
    )
    return (
        {
            name: value.to(given.device, non_blocking=True) if hasattr(value, "to") else value
            for name, value in b.items()
        }
        for b in batches
    )


def _pins(given: argparse.Namespace) -> bool:
    return not given.device.startswith("cpu")


def measure(side: str, where: str, case: str, order: str, given: argparse.Namespace) -> dict[str, float]:
    """One pass over a case, or over so many batches of it. The first batch is there after so many seconds in all."""
    import torch

    if side == "ours":  # programs have these before they begin
        from chunkmill import CatalogClient
        from chunkmill.training import IterableSamples  # noqa: F401
    else:
        from rerun.catalog import CatalogClient  # noqa: F401
        from rerun.experimental import dataloader  # noqa: F401
    began, cpu = time.perf_counter(), _cpu()
    batches = (ours if side == "ours" else theirs)(where, case, order, given)
    first = count = started = 0.0
    for number, batch in enumerate(batches):
        if not number:
            first, started = time.perf_counter() - began, time.perf_counter()
        count += len(batch["state"])
        if number + 1 == given.batches:
            break
    if not given.device.startswith("cpu"):
        torch.accelerator.synchronize()
    wall, used = time.perf_counter() - started, _cpu() - cpu
    print(json.dumps({"samples": count, "rate": (count - BATCH) / wall, "cpu": 1e3 * used / count, "first": first}))
    sys.stdout.flush()
    os._exit(0)  # workers are not waited for


def _cpu() -> float:
    """The processor time of this process and of those that it has started, in seconds."""
    return _cpu_below(os.getpid())


def _cpu_below(process: int) -> float:
    root = psutil.Process(process)
    times = [some.cpu_times() for some in (root, *root.children(recursive=True))]
    return sum(some.user + some.system for some in times)


def _memory_below(process: int) -> float:
    """The resident MB of a process and of those that it has started; what they share counts for each."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(process)
        for some in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += some.memory_info().rss / 1e6
    return total


def run(side: str, where: str, case: str, order: str, given: argparse.Namespace) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--measure", side, where, case, order]
    for name in ("batches", "cache", "workers", "device"):
        command += [f"--{name}", str(getattr(given, name))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment)
        memory = 0.0
        while process.poll() is None:
            memory = max(memory, _memory_below(process.pid))
            time.sleep(0.05)
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"{side} {case} {order}:\n{said.read()[-3000:]}")
    found: dict[str, float] = {**json.loads(lines[-1]), "memory": memory}
    return found


def waste(lake: Path, given: argparse.Namespace) -> None:
    """Print what an epoch by BlockShuffle fetches and decodes, in this process."""
    from chunkmill import CatalogClient
    from chunkmill import training as t
    from chunkmill.engine.training.job import TrainingJob

    source = t.DataSource(CatalogClient(lake).get_dataset("training"))
    print("case      samples  chunks MB  times the cache  fetched a byte  decoded a group of pictures  frames")
    for case in given.cases:
        options = {"shuffle": t.BlockShuffle(1000), "cache_bytes": given.cache << 20}
        job = TrainingJob.of(source, "frame", fields_of(case), **options)
        found = job.measure(limit=given.batches * BATCH or None)
        groups = found.decoded_groups / (found.used_frames / GROUP) if found.used_frames else 0.0
        print(
            f"{case:9} {found.samples:7} {found.chunk_bytes / 1e6:10.1f} "
            f"{found.chunk_bytes / (given.cache << 20):16.1f} {found.fetched_per_byte or 0:15.2f} "
            f"{groups:28.2f} {found.decoded_per_frame or 0:7.2f}",
            flush=True,
        )


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where recordings are, or are made")
    parser.add_argument("--data", default="small", choices=DATA)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), help="by default all that the data has")
    parser.add_argument("--orders", nargs="+", default=list(ORDERS), choices=ORDERS)
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=0, help="the most batches of a pass; 0: all")
    parser.add_argument("--cache", type=int, help="MiB of values that a process of ours keeps")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where batches are moved to, through pinned memory: cuda")
    parser.add_argument("--waste", action="store_true", help="count what ours fetches and decodes")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(*given.measure, given)
    if given.folder is None:
        parser.error("--folder is missing")
    from chunkmill import CatalogClient

    *shape, parts, cache = DATA[given.data]
    given.cache = given.cache or cache
    given.cases = given.cases or [
        case for case, fields in CASES.items() if set(fields) & {"jpeg", "video"} <= set(parts)
    ]
    folder = given.folder / given.data
    paths = [path.resolve() for path in make(folder / "recordings", *shape, parts)]
    uris = [path.as_uri() for path in paths]
    lake = folder / "lake"
    if not lake.exists():
        CatalogClient(lake).create_dataset("training").register(uris).wait()
    if given.waste:
        waste(lake, given)
        return 0
    from rerun.catalog import CatalogClient as RerunClient

    with ExitStack() as servers:
        places: dict[str, tuple[str, int | None]] = {"ours": (str(lake), None)}
        if "rerun" in given.sides:
            peer = servers.enter_context(served(folder / "rerun.log", SCRIPTS / "rerun", "server"))
            RerunClient(peer.url).create_dataset("training").register(uris).wait()
            places["rerun"] = peer.url, peer.process
        if "rerun-on-ours" in given.sides:
            command = [SCRIPTS / "chunkmill", "serve", lake, "--allow", paths[0].parent]
            own = servers.enter_context(served(folder / "mill.log", *command))
            places["rerun-on-ours"] = own.url, own.process
        print(f"{'case':9} {'order':7} {'side':14} samples/s  CPU ms  server  first s   MB  ratio  to default")
        for case in given.cases:
            _compare(case, {side: places[side] for side in given.sides}, given)
    return 0


def _compare(case: str, places: dict[str, tuple[str, int | None]], given: argparse.Namespace) -> None:
    seen: dict[tuple[str, str], list[dict[str, float]]] = {}
    for turn in range(given.rounds):
        for order in given.orders:
            for side, (where, server) in _turned(places, turn):
                before = 0.0 if server is None else _cpu_below(server)
                found = run(side, where, case, order, given)
                found["server"] = 0.0 if server is None else 1e3 * (_cpu_below(server) - before) / found["samples"]
                seen.setdefault((order, side), []).append(found)
    rates = {key: statistics.median(found["rate"] for found in some) for key, some in seen.items()}
    for (order, side), some in seen.items():
        middle = {name: statistics.median(found[name] for found in some) for name in some[0]}
        ratios = [rates[order, side] / rates.get((other, "rerun"), float("nan")) for other in (order, "sample")]
        print(
            f"{case:9} {order:7} {side:14} {middle['rate']:9.0f} {middle['cpu']:7.2f} {middle['server']:7.2f} "
            f"{middle['first']:8.2f} {middle['memory']:4.0f} {ratios[0]:6.2f} {ratios[1]:11.2f}",
            flush=True,
        )


def _turned(places: dict[str, tuple[str, int | None]], turn: int) -> Iterator[tuple[str, tuple[str, int | None]]]:
    names = list(places)
    for name in names[turn % len(names) :] + names[: turn % len(names)]:
        yield name, places[name]


if __name__ == "__main__":
    sys.exit(main())
