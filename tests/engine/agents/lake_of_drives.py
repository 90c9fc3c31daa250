"""A lake whose answers are known: three drives, of which one brakes hard, one is the longest, and one has no camera."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from chunkmill import CatalogClient, Chunk, LazyChunkStream
from chunkmill.engine.chunk import ComponentDescriptor

SPEED = "/car:speed"
IMU = "/imu:acceleration"
RATES = {"calm": 50, "hard": 100, "blind": 25}
SECONDS = {"calm": 8, "hard": 3, "blind": 4}


def make(folder: Path) -> CatalogClient:
    """The lake ``folder/lake``, of recordings beside it, with a table ``labels``."""
    lake = CatalogClient(folder / "lake")
    drives = lake.create_dataset("drives")
    for name in RATES:
        path = folder / f"{name}.rrd"
        LazyChunkStream.from_iter(drive(name)).write_rrd(path, application_id="t", recording_id=name, executor="inline")
        drives.register(str(path)).wait()
    labels = lake.create_table("labels", pa.schema([("drive", pa.string()), ("good", pa.bool_())]))
    labels.append(pa.table({"drive": ["calm", "hard"], "good": [True, False]}))
    return lake


def drive(name: str) -> list[Chunk]:
    """The chunks of a drive. The one that brakes hard slows down by 10 m/s in its last second."""
    rate, seconds = RATES[name], SECONDS[name]
    times = pa.array(np.arange(seconds * rate) * (1_000_000_000 // rate), pa.timestamp("ns"))
    speed = np.full(len(times), 20.0)
    speed[-rate:] -= np.linspace(0, 10, rate) if name == "hard" else 0
    chunks = [
        chunk("/car", "speed", times, [[value] for value in speed.tolist()]),
        chunk("/imu", "acceleration", times, [[value] for value in np.gradient(speed, 1 / rate).tolist()]),
    ]
    if name != "blind":
        chunks.append(chunk("/camera", "blob", times[:3], [[b"\xff" * 5000]] * 3))
    return chunks


def chunk(entity: str, component: str, times: pa.Array, lists: Any) -> Chunk:
    return Chunk.build(entity, {"time": times}, [(ComponentDescriptor(component), pa.array(lists))])
