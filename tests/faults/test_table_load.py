"""A slice of ``table_load.py``, and that its model finds what is not so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from table_load import History, Writer


@pytest.mark.slow
def test_all_who_use_a_table_at_once_see_versions_of_it() -> None:
    script = str(Path(__file__).with_name("table_load.py"))
    command = [sys.executable, script, "--minutes", "0.05", "--age", "1", "--writers", "2", "--readers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


def test_rows_that_no_operations_have_made_are_none_of_a_writer() -> None:
    writer, history = Writer(1, 7), History(1, 7)
    for number, _ in zip(range(1, 20), writer.operations(), strict=False):
        rows = dict(writer.rows)
        assert number in history.numbers(rows, 0, number + 3)
        if rows:
            key = next(iter(rows))
            assert not history.numbers({**rows, key: rows[key] + 1}, 0, number)
            assert number not in history.numbers({k: v for k, v in rows.items() if k != key}, 0, number)
