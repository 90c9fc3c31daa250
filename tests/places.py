"""Where the tests find recordings."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

DATA = REPOSITORY / "tests" / "data"
"""The recordings that are part of the repository; ``tests/data/README.md`` lists them."""

SHARED_DATA = Path(os.environ.get("CHUNKMILL_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
"""The wide collection of recordings; not part of the repository, so it may be missing."""
