"""Where files are: local paths, and what else a user may write for one."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .errors import UsageError

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


def local_path(location: str | os.PathLike[str]) -> Path:
    """The absolute path that ``location`` names: a path or a ``file://`` URL.

    Raises ``UsageError`` for the URL of an object store, which would otherwise become a strange local folder.

    >>> str(local_path("file:///data/a%20b.rrd"))
    '/data/a b.rrd'
    """
    text = os.fspath(location)
    if not _URL.match(text):
        return Path(text).absolute()
    url = urlsplit(text)
    if url.scheme != "file" or url.netloc not in ("", "localhost"):
        raise UsageError(
            f"{text} is not a local path, and only those can be read and written so far",
            hint="Copy it to a folder that all workers see, or mount it there.",
        )
    return Path(unquote(url.path))
