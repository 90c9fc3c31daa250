"""What every upload can do."""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import Any, Final

from ..limits import MIB
from .url import ObjectUrl

SMALLEST_PART: Final = 5 * MIB
"""Ranges below this are not worth a request to copy them, and S3 takes no smaller part but the last."""


class Upload(io.RawIOBase):
    """A new object, written front to end.

    Guarantee: the object appears whole when :meth:`finish` returns, and not at all before; after :meth:`abort`, and
    when neither is called, what was there before stays. Errors are ``WriteError``.
    """

    def __init__(self, url: ObjectUrl) -> None:
        self.url = url

    def writable(self) -> bool:
        """True."""
        return True

    @abstractmethod
    def write(self, data: Any, /) -> int:
        """Append bytes; gives their number."""

    def copy(self, source: ObjectUrl, version: str | None, offset: int, size: int) -> bool:  # noqa: ARG002
        """Append a range of another object without fetching it; False where the store cannot do that."""
        return False

    def seal(self) -> None:
        """Let everything written arrive, so that :meth:`finish` has nothing left to send."""

    @abstractmethod
    def finish(self) -> None:
        """Let the object appear."""

    @abstractmethod
    def abort(self) -> None:
        """Throw away what was written."""
