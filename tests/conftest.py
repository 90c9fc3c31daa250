"""What every test can ask for: real recordings, and one Spark session for the whole suite."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from places import DATA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("CHUNKMILL_EXECUTOR", "inline")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of recordings inside the repository."""
    return DATA


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The one Spark session of the suite: two cores, one retry of a failed task."""
    from chunkmill.engine import get_session

    return get_session(master="local[2,4]")


@pytest.fixture(params=["inline", "spark"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each executor, as the default."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    monkeypatch.setenv("CHUNKMILL_EXECUTOR", request.param)
    name: str = request.param
    return name
