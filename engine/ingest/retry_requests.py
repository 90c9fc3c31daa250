"""Requests to try files again, left for the ingestion by whoever asks for it."""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Collection
from typing import Final

from ..errors import ReadWarning
from ..execution.folders import Folder
from ..failing import writing
from ..locations import Location

_LARGEST: Final = 64 << 20
_SUFFIX: Final = ".json"


class RetryRequests:
    """The requests in one folder, each an immutable JSON file with the paths to try again."""

    def __init__(self, folder: Location) -> None:
        self._folder = Folder.at(folder)

    def add(self, paths: Collection[str]) -> None:
        """Ask for ``paths``; the request appears in one step. Raises ``WriteError``."""
        if not paths:
            return
        name = f"{uuid.uuid4().hex}{_SUFFIX}"
        with writing(self._folder.place(name)):
            self._folder.make()
            self._folder.create(name, json.dumps({"paths": sorted(paths)}).encode())

    def pending(self) -> dict[str, list[str]]:
        """The paths of each request, by its name. What is no request is warned of, and passed over."""
        found = {}
        for name, size in self._entries():
            try:
                if size > _LARGEST:
                    raise ValueError(f"it has {size:,} bytes")
                found[name] = _paths(self._folder.get(name))
            except FileNotFoundError:
                continue  # done, or withdrawn, in this moment
            except (ValueError, RecursionError) as error:
                place = self._folder.place(name)
                warnings.warn(
                    f"{place} is no request to try files again ({error}); remove it", ReadWarning, stacklevel=2
                )
        return found

    def withdraw(self, paths: Collection[str]) -> None:
        """Leave ``paths`` out of every request."""
        for name, asked in self.pending().items():
            kept = [path for path in asked if path not in paths]
            if len(kept) < len(asked):
                self.add(kept)
                with writing(self._folder.place(name)):
                    self._folder.delete([name])

    def _entries(self) -> list[tuple[str, int]]:
        try:
            return [entry for entry in self._folder.entries() if entry.name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return []


def _paths(data: bytes) -> list[str]:
    request = json.loads(data)
    paths = request.get("paths") if isinstance(request, dict) else None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError("it names no paths")
    return paths
