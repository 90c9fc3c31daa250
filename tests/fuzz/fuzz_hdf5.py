"""HDF5 files that are damaged: both layouts of groups; datasets, text, attributes and a link."""

from __future__ import annotations

import io
from typing import Any

import h5py
import numpy as np
from fuzz_sources import Source


def hdf5_sources() -> list[Source]:
    """Values are without a checksum in both formats; the newer one has them for what describes them."""
    made = {"earliest": _file(libver="earliest"), "latest": _file(libver="latest")}
    return [Source(name, data, (), ((0, len(data)),), suffix=".hdf5") for name, data in made.items()]


def _file(**options: Any) -> bytes:
    out = io.BytesIO()
    with h5py.File(out, "w", **options) as file:
        file.create_dataset("g/zip", data=np.arange(90).reshape(30, 3), chunks=(7, 2), compression="gzip", shuffle=True)
        file.create_dataset("g/lzf", data=np.arange(30), chunks=(8,), compression="lzf")
        file["g/text"] = [f"row {i}" for i in range(30)]
        file["g/pairs"] = np.zeros(30, [("a", "i4"), ("b", "f8")])
        file["x/plain"] = np.arange(120, dtype="u1").reshape(30, 2, 2)
        file["x/same"] = h5py.SoftLink("/x/plain")
        file["rate"] = 50.0
        file.attrs["task"] = "pick"
    return out.getvalue()
