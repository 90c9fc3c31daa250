"""AllowedPlaces that clients may name: files to register, and folders for tables."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...errors import WriteError
from ...locations import is_below, located, true_place
from ..entry_log import OWN_FOLDERS
from .methods import Call, ProtocolError, Status

_Handler = Callable[[Any, Call], Any]
_NO_PLACES: Final = (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
_PACKAGE: Final = Path(__file__).parents[3]

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


def naming_places(handler: _Handler) -> _Handler:
    """A handler whose requests name places: where the system has no such place, that is the client's mistake."""

    @wraps(handler)
    def handled(request: Any, call: Call) -> Any:
        try:
            return handler(request, call)
        except (OSError, WriteError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in _NO_PLACES:
                raise
            text = f"no file or table can be at this place: {cause.strerror}"
            raise ProtocolError(Status.INVALID_ARGUMENT, text) from error

    return handled


def known_roots(allowed: Iterable[str]) -> tuple[str, ...]:
    """The local folders of which no client is to know where they are: those that it may name, and the server's own."""
    home = os.path.expanduser("~")  # noqa: PTH111 (which leaves it as it is for a user without a home)
    own = (tempfile.gettempdir(), os.fspath(Path.cwd()), home, os.fspath(_PACKAGE))
    places = [located(root) for root in (*allowed, *own)]
    local = {form for one in places if isinstance(one, Path) for form in (os.fspath(one), os.path.realpath(one))}
    return tuple(sorted(local - {"/", "~"}, key=len, reverse=True))


def without_places(text: str, roots: Sequence[str]) -> str:
    """A text for a client, in which paths begin with the name of a known folder, and not with where that is.

    URLs stay: they are what clients name, and what the answers of other calls hold.

    >>> without_places("/srv/lake/a.rrd: it is cut, unlike /srv/lakes", ["/srv/lake"])
    'lake/a.rrd: it is cut, unlike /srv/lakes'
    """
    for root in roots:
        text = re.sub(rf"(?<![\w/.-]){re.escape(root)}(?![\w.-])", Path(root).name, text)
    return text
