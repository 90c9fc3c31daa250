"""A slice of ``serve_points.py``, and that it finds an upload that is not safe, and points that are never reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc")
pytest.importorskip("uvicorn")

SCRIPT = Path(__file__).with_name("serve_points.py")
SAFE = ("create/entry.publish:kill:1", "upload/upload.publish:kill:1")
WRONG = ("upload/upload.draft:torn:1:unsafe", "create/entry.publish:kill:3")


def test_a_call_that_writes_is_there_whole_or_not_at_all_wherever_its_server_is_killed() -> None:
    environment = {**os.environ, "CHUNKMILL_EXECUTOR": "inline"}
    command = [sys.executable, str(SCRIPT), "--case", ",".join([*SAFE, *WRONG])]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert f"{len(SAFE)} passed, {len(WRONG)} failed" in ran.stdout, ran.stdout + ran.stderr
    assert [f"FAILED {case}" in ran.stdout for case in WRONG] == [True, True]
    assert "lake/uploads/project/short.rrd" in ran.stdout and "entry.publish was not reached so often" in ran.stdout
