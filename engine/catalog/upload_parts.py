"""Uploads in parts: each part is a draft of its own, named by its content, and the file is made of them at the end.

::

    uploads/.<upload>-00003-<digest>.draft     the third part

So a part that is sent again takes nobody's place, and nothing but these files is to be remembered.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ..errors import AlreadyExistsError, UsageError, writing
from ..limits import MIB
from .uploads import DRAFT, NewUpload, Uploads

_PIECE: Final = 8 * MIB


class NewPart(NewUpload):
    """A part that is being uploaded; when it is published, its ``etag`` names its content."""

    def __init__(self, draft: Path, upload: str, number: int) -> None:
        super().__init__(draft, draft)
        self._digest = hashlib.sha256()
        self._upload = upload
        self._number = number

    @property
    def etag(self) -> str:
        """The name of what was written so far."""
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        """Append to it. Raises ``WriteError``."""
        super().write(data)
        self._digest.update(data)

    def publish(self) -> None:
        """Give it its name. Raises ``CommitUnknownError`` or ``WriteError``."""
        self._place = _place(self._draft.parent, self._upload, self._number, self.etag)
        try:
            super().publish()
        except AlreadyExistsError:
            return  # the same bytes came before


class UploadParts:
    """The parts of an upload, which is known by a number in hex digits."""

    def __init__(self, uploads: Uploads, upload: str) -> None:
        self._uploads = uploads
        self._upload = upload

    def begin(self, number: int, size: int | None = None) -> NewPart:
        """A part to write, of so many bytes if that is known. Raises ``NoSpaceError`` or ``WriteError``."""
        folder = self._uploads.with_space_for(size)
        with writing(str(folder)):
            return NewPart(folder / f".{uuid.uuid4().hex}{DRAFT}", self._upload, number)

    def join(self, key: str, etags: Mapping[int, str], size: int | None, most: int, check: Callable[[], None]) -> None:
        """Make the file of its parts, in the order of their numbers, and remove them; ``check`` may stop it.

        It has ``size`` bytes if that is known, and no more than ``most``.

        Raises
        ------
        AlreadyExistsError
            There is such a file.
        UsageError
            A part is missing, or they have other sizes together.
        NoSpaceError, CommitUnknownError, WriteError
            The file cannot be written, or nobody knows.
        """
        if list(etags) != list(range(1, len(etags) + 1)) or not etags:
            raise UsageError(f"the parts of an upload are numbered from 1, in order, not {list(etags)[:20]}")
        folder = self._uploads.folder
        parts = [_place(folder, self._upload, number, etag) for number, etag in etags.items()]
        for number, part in enumerate(parts, 1):
            if not part.is_file():
                raise UsageError(f"part {number} was not uploaded, or has another etag")
        total = sum(part.stat().st_size for part in parts)
        if size is not None and total != size:
            raise UsageError(f"the parts have {total} bytes, and not {size}")
        if total > most:
            raise UsageError(f"the parts have {total} bytes, more than the {most} that an upload may have")
        new = self._uploads.begin(key, total)
        try:
            for part in parts:
                with part.open("rb") as file:
                    while data := file.read(_PIECE):
                        check()
                        new.write(data)
            new.publish()
        finally:
            new.discard()
        self.remove()

    def remove(self) -> None:
        """Remove all parts."""
        for path in self._uploads.folder.glob(f".{self._upload}-*{DRAFT}"):
            path.unlink(missing_ok=True)


def _place(folder: Path, upload: str, number: int, etag: str) -> Path:
    if len(etag) != hashlib.sha256().digest_size * 2 or not set(etag) <= set("0123456789abcdef"):
        raise UsageError(f"{etag[:80]!r} is no etag of a part")
    return folder / f".{upload}-{number:05}-{etag}{DRAFT}"
