"""Errors of the operating system, turned into the project's own."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import NoSpaceError, WriteError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Raise an ``OSError`` from within as :class:`NoSpaceError` or :class:`WriteError` that names ``path``."""
    try:
        yield
    except OSError as error:
        raise write_error(error, path) from error


def write_error(error: OSError, path: str) -> WriteError:
    """The error to raise when writing for ``path`` failed with ``error``."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return NoSpaceError(
            f"cannot be written: {reason}",
            path=path,
            hint="Nothing was left there. Free some space, or choose a destination with more, and run it again.",
        )
    return WriteError(
        f"cannot be written: {reason} (os error {error.errno})",
        path=path,
        hint="Nothing was left there. Check that the folder exists and may be written to.",
    )
