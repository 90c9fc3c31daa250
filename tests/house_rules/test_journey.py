"""The modules that an IMU message passes on its way from an MCAP into an RRD: few enough to hold in the head."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from chunkmill.readers import McapReader
from source_tree import modules

MOST = 66
"""Modules whose functions are called, for what is done once a file among them. It may only become less, towards 45."""


def test_an_imu_message_passes_few_modules(data: Path, tmp_path: Path) -> None:
    def convert() -> None:
        reader = McapReader(data / "demo.mcap", include_topic_regex=["/nissan/gps/duro/imu"])
        reader.stream().write_rrd(tmp_path / "imu.rrd", application_id="a", recording_id="r", executor="inline")

    convert()  # what is imported and looked up once
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code, file = frame.f_code, frame.f_globals.get("__file__")
        if event == "call" and code.co_filename == file and code.co_flags & inspect.CO_OPTIMIZED:  # no class bodies
            called.add(frame.f_globals["__name__"])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        convert()
    finally:
        sys.setprofile(before)
    passed = {name.removeprefix("chunkmill.") for name in called} & modules().keys()
    assert {"readers.mcap.channel_chunks", "lenses.lens_set", "engine.rrd.writer"} <= passed
    assert len(passed) <= MOST, sorted(passed)
