"""Where the tests find recordings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

DATA = REPOSITORY / "tests" / "data"
"""The recordings that are part of the repository; ``tests/data/README.md`` lists them."""

WIDE_DATA = Path(os.environ.get("CHUNKMILL_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
"""The wide collection: what the repository has, by the same names, and what is too large for it. It may be missing."""

SHARED = WIDE_DATA.parent
"""Where pages of the API and recorded answers lie beside the wide collection. Tests of them carry ``wide``, too."""


def recordings(*patterns: str) -> list[Any]:
    """What the patterns find, as parameters of a test: in the repository, then in the wide collection alone.

    A test of a recording that only the wide collection has carries the marker ``wide``.
    """
    found: dict[str, Any] = {}
    for folder, marks in ((DATA, ()), (WIDE_DATA, pytest.mark.wide)):
        for path in sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}):
            name = str(path.relative_to(folder))
            found.setdefault(name, pytest.param(path, id=name, marks=marks))
    return list(found.values())
