"""Samples for training beside rerun-sdk's loader: samples a second, processor time, memory, time to the first batch.

    python -m tests.run benchmarks training --folder FOLDER [--segments 100] [--cases numbers jpeg video] [--rounds 3]

Each segment has 14 and 7 numbers, a JPEG and an H.264 frame of 128 x 128 in each of 100 rows, ten frames a group.
Rerun's loader asks a server: ``rerun server``, or ``chunkmill serve``; ours reads the folder of the lake. Each case
runs in a process of its own, one after the other, batches of 32. It needs torch, torchvision and rerun-sdk.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from served_lake import SCRIPTS, served

ROWS, SIDE, GROUP, BATCH = 100, 128, 10, 32
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


def ours(where: str, case: str, order: str) -> Any:
    """Batches of our own loader, out of the folder of the lake."""
    from chunkmill import CatalogClient
    from chunkmill import training as t

    fields = {
        "state": t.Field("/state:Scalars:scalars", t.NumericDecoder()),
        "action": t.Field("/action:Scalars:scalars", t.NumericDecoder(), window=tuple(range(16)), edges="trim"),
        "jpeg": t.Field("/jpeg:EncodedImage:blob", t.ImageDecoder()),
        "video": t.Field("/video:VideoStream:sample", t.VideoFrameDecoder(threads=1)),
    }
    strategy = {"none": t.NoShuffle(), "block": t.BlockShuffle(1000), "sample": t.SampleShuffle()}[order]
    source = t.DataSource(CatalogClient(where).get_dataset("training"))
    chosen = {name: fields[name] for name in CASES[case]}
    return t.loader(t.IterableSamples(source, "frame", chosen, shuffle=strategy, batch_size=BATCH))


def theirs(where: str, case: str, order: str) -> Any:
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
    return torch.utils.data.DataLoader(samples, batch_size=BATCH)


def measure(side: str, where: str, case: str, order: str, most: int) -> dict[str, float]:
    """One pass over a case, or over so many batches of it."""
    batches = ours(where, case, order) if side == "ours" else theirs(where, case, order)
    began, cpu = time.perf_counter(), _cpu()
    first = count = 0.0
    for number, batch in enumerate(batches):
        first = first or time.perf_counter() - began
        count += len(batch["state"])
        if number + 1 == most:
            break
    wall, used = time.perf_counter() - began, _cpu() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"samples": count, "rate": count / wall, "cpu": 1e3 * used / count, "first": first, "memory": memory}


def _cpu() -> float:
    """The processor time of this process and of those that it has started, in seconds."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(some.user + some.system for some in times)


def _cpu_below(process: int) -> float:
    root = psutil.Process(process)
    times = [some.cpu_times() for some in (root, *root.children(recursive=True))]
    return sum(some.user + some.system for some in times)


def run(side: str, where: str, case: str, order: str, most: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--measure", side, where, case, order, "--batches", str(most)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{side} {case} {order}:\n{done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where recordings are, or are made")
    parser.add_argument("--segments", type=int, default=100)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--orders", nargs="+", default=list(ORDERS), choices=ORDERS)
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=0, help="the most batches of a pass; 0: all")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(*given.measure, given.batches)))
        return 0
    if given.folder is None:
        parser.error("--folder is missing")
    from chunkmill import CatalogClient
    from rerun.catalog import CatalogClient as RerunClient

    paths = [path.resolve() for path in make(given.folder / "recordings", given.segments)]
    uris = [path.as_uri() for path in paths]
    lake = given.folder / f"lake_{given.segments}"
    if not lake.exists():
        CatalogClient(lake).create_dataset("training").register(uris).wait()
    rerun = served(given.folder / "rerun.log", SCRIPTS / "rerun", "server")
    mill = served(given.folder / "mill.log", SCRIPTS / "chunkmill", "serve", lake, "--allow", paths[0].parent)
    with rerun as peer, mill as own:
        RerunClient(peer.url).create_dataset("training").register(uris).wait()
        places = {"ours": (str(lake), None), "rerun": (peer.url, peer.process), "rerun-on-ours": (own.url, own.process)}
        print(f"{'case':9} {'order':7} {'side':14} samples/s  CPU ms  server  first s  MB    ratio")
        for case in given.cases:
            for order in given.orders:
                _compare(case, order, {side: places[side] for side in given.sides}, given)
    return 0


def _compare(case: str, order: str, places: dict[str, tuple[str, int | None]], given: argparse.Namespace) -> None:
    seen: dict[str, list[dict[str, float]]] = {side: [] for side in places}
    for turn in range(given.rounds):
        for side, (where, server) in _turned(places, turn):
            before = 0.0 if server is None else _cpu_below(server)
            found = run(side, where, case, order, given.batches)
            found["server"] = 0.0 if server is None else 1e3 * (_cpu_below(server) - before) / found["samples"]
            seen[side].append(found)
    rates = {side: statistics.median(found["rate"] for found in some) for side, some in seen.items()}
    for side, some in seen.items():
        middle = {name: statistics.median(found[name] for found in some) for name in some[0]}
        ratio = rates[side] / rates["rerun"] if "rerun" in rates else float("nan")
        print(
            f"{case:9} {order:7} {side:14} {middle['rate']:9.0f} {middle['cpu']:7.2f} {middle['server']:7.2f} "
            f"{middle['first']:8.2f} {middle['memory']:5.0f} {ratio:6.2f}",
            flush=True,
        )


def _turned(places: dict[str, tuple[str, int | None]], turn: int) -> Iterator[tuple[str, tuple[str, int | None]]]:
    names = list(places)
    for name in names[turn % len(names) :] + names[: turn % len(names)]:
        yield name, places[name]


if __name__ == "__main__":
    sys.exit(main())
