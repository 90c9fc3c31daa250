"""A slice of ``fuzz_serve.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("grpc")
pytest.importorskip("uvicorn")


@pytest.mark.slow
def test_hostile_requests_are_answered_with_a_status_and_change_nothing(tmp_path: Path) -> None:
    from fuzz_serve import Served, wrong_connections, wrong_requests

    served = Served(tmp_path)
    try:
        assert wrong_requests(served, 120, 1) == []
        assert wrong_connections(served, 200) == []
    finally:
        served.close()
