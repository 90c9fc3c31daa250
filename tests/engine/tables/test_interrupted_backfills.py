"""Ctrl-C in a backfill: it ends at once, says how to go on, and the next run takes what was computed before."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from chunkmill.engine.tables import UDF, Table, udf

ROWS = 120
SLOW = """
import time
from pathlib import Path
from chunkmill import udf

@udf(version="1", max_checkpoint_size=5)
def doubled(a: int) -> int:
    with Path("calls").open("a") as file:
        file.write(f"{a}\\n")
    time.sleep(0.02)
    return a * 2
"""
COMMAND = "from chunkmill.engine.cli import main; main()"


def started(folder: Path, executor: str) -> subprocess.Popen[str]:
    """A backfill in a folder, and a process group of its own, as a shell starts one."""
    environment = {**os.environ, "CHUNKMILL_EXECUTOR": executor, "CHUNKMILL_MASTER": "local[2]"}
    words = ("tables", "backfill", "t.lance", "d", "--module", "slow_rows", "--task-size", "40")
    command = [sys.executable, "-c", COMMAND, *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def calls(folder: Path) -> list[int]:
    """The rows that the function was called for."""
    path = folder / "calls"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.mark.parametrize("executor", ["inline", pytest.param("spark", marks=pytest.mark.slow)])
def test_a_backfill_ends_by_ctrl_c_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    (tmp_path / "slow_rows.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "slow_rows", raising=False)
    lance.write_dataset(
        pa.table({"a": range(ROWS)}), tmp_path / "t.lance", max_rows_per_file=40, enable_stable_row_ids=True
    )
    table = Table(str(tmp_path / "t.lance"), executor="inline", udf_modules=["slow_rows"])
    table.add_columns({"d": importlib.import_module("slow_rows").doubled})
    process = started(tmp_path, executor)
    until = time.monotonic() + 120
    while len(calls(tmp_path)) < 60 and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    said, complained = process.communicate(timeout=60)
    assert process.returncode == 130 and time.monotonic() - began < 20, (said, complained)
    assert len(complained.splitlines()) == 1 and "Run the same again to continue" in complained
    assert "fragments of 'd' are committed, and checkpoints of others are kept" in complained
    before = len(calls(tmp_path))
    assert before < ROWS
    assert [(job.status, job.error) for job in table.jobs()] == [("FAILED", "it was interrupted")]
    if executor == "inline":
        monkeypatch.chdir(tmp_path)  # where the calls are noted
        table.backfill("d")
    else:
        process = started(tmp_path, executor)
        said, complained = process.communicate(timeout=120)
        assert (process.returncode, complained) == (0, "") and f"{ROWS} rows computed" in said, (said, complained)
    assert table.to_arrow()["d"].to_pylist() == [2 * a for a in range(ROWS)]
    again = len(calls(tmp_path)) - ROWS
    assert again <= (5 if executor == "inline" else before), f"{again} rows were computed again"


def test_a_backfill_that_is_waited_for_a_while_ends_by_ctrl_c_too(tmp_path: Path, slow: UDF) -> None:
    lance.write_dataset(pa.table({"a": range(500)}), tmp_path / "t.lance", enable_stable_row_ids=True)
    table = Table(str(tmp_path / "t.lance"), executor="inline")
    table.add_columns({"d": slow})
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # commands that ran in this process left theirs
    interrupt = threading.Timer(0.5, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    interrupt.start()
    try:
        with pytest.raises(KeyboardInterrupt, match="Run the same again"):
            table.backfill("d", timeout=timedelta(minutes=5))
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
    assert [job.status for job in table.jobs()] == ["FAILED"]
    assert not [one for one in threading.enumerate() if one.name.startswith("chunkmill-job")]


@pytest.fixture
def slow() -> UDF:
    @udf(version="1", max_checkpoint_size=5)
    def doubled(a: int) -> int:
        time.sleep(0.02)
        return a * 2

    return doubled
