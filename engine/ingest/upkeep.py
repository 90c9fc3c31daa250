"""What an ingestion does for its store between batches: old versions go."""

from __future__ import annotations

import time
from typing import Final

from ..recordings import StoreWriter
from ..recordings.vacuuming import vacuum_folder

_KEPT: Final = 10
"""Versions that stay, however old they are."""


class Upkeep:
    """Vacuums the store every so often; ``keep_seconds`` is how long old versions stay for those who read them."""

    def __init__(
        self,
        writer: StoreWriter,
        keep_seconds: float,
    ) -> None:
        self._writer = writer
        self._keep = keep_seconds
        self._next = time.monotonic() + self._pause

    @property
    def _pause(self) -> float:
        return min(max(self._keep / 4, 60.0), 3600.0)

    def after_batch(self) -> None:
        """A batch is committed; do what is due. Raises ``WriteError``."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._pause
            vacuum_folder(self._writer.folder, keep=_KEPT, older_than_seconds=self._keep, staging=False)
