"""Rerun's native viewer on a served lake, on a virtual screen or without a window."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_viewer import free_port

DRIVERS = Path("/usr/share/vulkan/icd.d"), Path("/etc/vulkan/icd.d")


@pytest.mark.slow
def test_the_native_viewer_shows_a_served_lake(tmp_path: Path) -> None:
    for package in ("rerun", "grpc", "uvicorn"):
        pytest.importorskip(package)
    import viewers

    if viewers.rerun_program() is None:
        pytest.skip("this rerun-sdk has no viewer")
    if not any(path for folder in DRIVERS for path in folder.glob("*.json")):
        pytest.skip("no driver for Vulkan: mesa-vulkan-drivers is not installed")
    viewers.write_files(tmp_path / "files")
    seen = viewers.looked("chunkmill", "native", tmp_path, free_port())
    shown = {name: {text.partition(" ")[2] for text in texts} for name, texts in seen.texts.items()}
    assert {"drives", "designed", "Dataset"} <= shown["catalog"]
    assert {"drive-1", "drive-2", "drive-3", "3"} <= shown["segments"]
    # what the default views and the blueprint's make of an image, points, transforms, plots and a log
    assert {"camera", "plots/speed", "cloud", "robot", "frame 30", "100%"} <= shown["segment"]
    assert {"the world", "the camera", "the plots", "the log", "frame 30"} <= shown["designed"]
    assert {"drive-4", "meanwhile"} <= shown["changed"]
    assert seen.notes == {
        "a new segment shows by itself": False,
        "a new segment shows when the table is read again": True,
        "a new dataset shows by itself": True,
    }
    # warnings are about the machine, or what is out of reach on it
    assert not [told for told in seen.complaints if not told.startswith("WARN")]
