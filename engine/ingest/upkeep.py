"""The upkeep of the store between the batches of an ingestion: small files are joined, old versions go."""

from __future__ import annotations

import logging
import time
import warnings
from typing import Final

from ..errors import ReadError, ReadWarning
from ..recordings import StoreWriter, compact_store
from ..units import size as shown_size

logger = logging.getLogger("chunkmill.ingest")

_KEPT: Final = 10
"""Versions that stay, however old they are."""


class Upkeep:
    """Compacts the store after every ``compact_every`` batches, and vacuums it after the first and every so often.

    ``keep_seconds`` is how long old versions stay for those who read them.
    """

    def __init__(self, writer: StoreWriter, keep_seconds: float, compact_every: int | None = None) -> None:
        self._writer = writer
        self._keep = keep_seconds
        self._compact_every = compact_every
        self._batches = 0
        self._next = time.monotonic()  # whoever is killed, or run by cron, does not live to the next time

    @property
    def _pause(self) -> float:
        return min(max(self._keep / 4, 60.0), 3600.0)

    def after_batch(self) -> None:
        """A batch is committed; do what is due. Raises ``WriteError``."""
        self._batches += 1
        if self._compact_every is not None and self._batches >= self._compact_every:
            self._batches = 0
            self._compact()
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._pause
            self._writer.vacuum(keep=_KEPT, older_than_seconds=self._keep)

    def _compact(self) -> None:
        """Join small files where that is worth it. What is damaged of old recordings does not stop new ones."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ReadWarning)
            try:
                report = compact_store(self._writer, thorough=False)
            except ReadError as error:
                logger.warning("the store was not compacted: %s", error)
                return
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            logger.warning("%s", text)
        if report.versions:
            logger.info(
                "compacted: %d shards -> %d, %s written in %.1f s",
                report.shards_before,
                report.shards_after,
                shown_size(report.written),
                report.seconds,
            )
