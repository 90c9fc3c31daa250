"""AllowedPlaces that clients may name: files to register, and folders for tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...locations import is_below, true_place
from ..entry_log import OWN_FOLDERS
from .methods import ProtocolError, Status

_OWN_FILES: tuple[str, ...] = tuple(name for name in OWN_FOLDERS if name != "datasets")
"""What of a catalog's folder has no file to register; a dataset may have those of another one."""


class AllowedPlaces(NamedTuple):
    """The places that clients may name: below the catalog's folder, its ``root``, and some others; None: anywhere."""

    root: str
    others: tuple[str, ...] | None

    def check_tables(self, urls: Iterable[str]) -> None:
        """Raise :class:`ProtocolError` unless tables may be at each path or URL; see :meth:`check_files`."""
        self._check(urls, OWN_FOLDERS)

    def check_files(self, urls: Iterable[str]) -> None:
        """Raise :class:`ProtocolError` unless each path or URL names a file that may be registered.

        Local paths are compared as they are once their links are followed.
        """
        self._check(urls, _OWN_FILES)

    def _check(self, urls: Iterable[str], own: Iterable[str]) -> None:
        roots = None if self.others is None else [true_place(root) for root in (self.root, *self.others)]
        closed = [true_place(f"{self.root.rstrip('/')}/{name}") for name in own]
        for url in urls:
            if "\0" in url:
                raise ProtocolError(Status.INVALID_ARGUMENT, f"{url[:500]!r} is no path, nor a URL")
            place = true_place(url)
            if roots is not None and not any(is_below(place, root) for root in roots):
                text = f"this server does not open {url[:500]!r}: it lies in no folder that --allow names"
                raise ProtocolError(Status.PERMISSION_DENIED, text)
            if any(is_below(place, folder) for folder in closed):
                text = f"this server does not open {url[:500]!r}: the lake has that folder for itself"
                raise ProtocolError(Status.PERMISSION_DENIED, text)
