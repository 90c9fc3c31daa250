"""What the RRDs of landed files are called."""

from __future__ import annotations

from typing import Any

import pytest
from chunkmill.engine.ingest.batch import RrdNames
from chunkmill.engine.ingest.files import LandedFile
from chunkmill.engine.locations import located


class Live:
    """A store without recordings."""

    def of_rrd(self, _: str) -> Any:
        return None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("drive.mcap", "drive.rrd"),
        ("day/drive.MCAP.zst", "day/drive.rrd"),
        ("drive.mcap.lz4", "drive.rrd"),
        ("v1.2.parquet", "v1.2.rrd"),
        ("view.rbl", "view.rbl"),
    ],
)
def test_the_name_is_that_of_the_file_without_what_makes_it_a_recording(tmp_path, name, expected):
    names = RrdNames(located(tmp_path / "landing"), located(tmp_path / "out"), Live())
    file = LandedFile(str(tmp_path / "landing" / name), 1, 1)
    assert names.name_for(file, "0123456789abcdef", [], []) == expected
    assert names.name_for(file, "0123456789abcdef", [], []) == f"{name}{expected[-4:]}"
