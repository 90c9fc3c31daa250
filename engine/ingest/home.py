"""Where the state of an ingestion lies."""

from __future__ import annotations

from typing import Final

from ..errors import SourceMissingError
from ..execution.folders import Folder
from ..locations import Location

HIDDEN_HOME: Final = ".chunkmill"
"""The folder within a folder of RRDs that is the home of the ingestion into it."""

_SIGNS: Final = ("versions", "quarantine", "lease")


def home_of(location: Location) -> Location:
    """The home of the ingestion into a store of recordings, or into a folder of RRDs.

    Raises ``SourceMissingError`` where nothing was ingested.
    """
    for home in (location, location / HIDDEN_HOME):
        if any(Folder.at(home / sign).exists() for sign in _SIGNS):
            return home
    raise SourceMissingError(
        "there is neither a store of recordings nor a folder of RRDs that were ingested",
        path=str(location),
        hint="Name what stands after --into of `chunkmill ingest`.",
    )
