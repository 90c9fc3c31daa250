"""Uploads to stores whose parts only their own protocol can join: the bytes go through this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..limits import MIB
from .failing import writing_object
from .upload import Upload
from .url import ObjectUrl

if TYPE_CHECKING:
    from .bucket import Bucket

_PART = 8 * MIB
_AT_ONCE = 3


class StreamUpload(Upload):
    """An object on its way to a store, in parts of 8 MiB, three at once."""

    def __init__(self, url: ObjectUrl, bucket: Bucket) -> None:
        super().__init__(url)
        self._writer = bucket.open_writer(url.key, _PART, _AT_ONCE)

    def write(self, data: Any, /) -> int:
        """Append bytes."""
        view = memoryview(data).cast("B")
        with writing_object(str(self.url)):
            for begin in range(0, len(view), _PART):
                # The library holds on to what it is given, and the caller's buffer changes.
                self._writer.write(bytes(view[begin : begin + _PART]))
        return len(view)

    def finish(self) -> None:
        """Let the object appear."""
        with writing_object(str(self.url)):
            self._writer.close()

    def abort(self) -> None:
        """Leave the upload unfinished: the store throws such away by itself."""
        self._writer = None
