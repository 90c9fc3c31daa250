"""A slice of ``slept_writers.py``."""

from __future__ import annotations

import pytest
from slept_writers import main


def test_who_is_stopped_at_any_step_spoils_nothing_when_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--every", "80"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("how", ["stopped", "doubted", "late"])
def test_a_version_that_arrives_late_spoils_nothing(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("obstore")
    pytest.importorskip("moto.server")
    arguments = ["--where", "s3", "--first", "ingest", "--second", "vacuum", "--how", how]
    assert main([*arguments, "--at", "/versions/00000005.json"]) == 0, capsys.readouterr().out
    assert "0 passed" not in capsys.readouterr().out
