"""Files that clients upload, whole or in parts, to a folder of the catalog, to register them there."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ..errors import AlreadyExistsError, CommitUnknownError, NoSpaceError, UsageError, writing
from ..execution import sync_folder
from ..faults import reach
from ..limits import MIB

_UPLOADS: Final = "uploads"
DRAFT: Final = ".draft"
"""The suffix of the names of incomplete files."""
_KEY: Final = re.compile(r"[\w-][\w.+ =@-]*(/[\w-][\w.+ =@-]*)*", re.ASCII)
_LONGEST_KEY: Final = 512
_LONGEST_NAME: Final = 200
_RECORDING: Final = re.compile(rb"RRF[0-2]")
_OF_TABLE: Final = re.compile(
    r"""(.+/)?[^/]+\.lance/(tree/[^/]+/)?(
        _versions/\d+\.manifest | data/[\w-]+\.lance | _indices/[\w-]+/[\w-]+\.(lance|idx)
      | _versions/latest_version_hint\.json | data/[\w-]+/\w+\.blob | _transactions/[\w-]+\.txn
      | _deletions/[\w-]+\.(arrow|bin) | _refs/(tags|branches)/[\w.-]+\.json
    )""",
    re.VERBOSE | re.ASCII,
)
"""The keys of files of Lance tables."""
_OF_LANCE: Final = (".lance", ".manifest", ".idx")
_END_OF_LANCE: Final = b"LANC"
_SYNCED: Final = 64 * MIB
_KEPT_FREE: Final = 64 * MIB


class Uploads:
    """The uploaded files of the catalog in a folder, by their keys: relative paths such as ``project/drive.rrd``."""

    def __init__(self, catalog: Path) -> None:
        self.folder = catalog / _UPLOADS

    def place(self, key: str) -> Path:
        """The path of an existing or future file. Raises ``UsageError`` for an invalid key."""
        names = key.split("/")
        if len(key) > _LONGEST_KEY or not _KEY.fullmatch(key) or max(map(len, names)) > _LONGEST_NAME:
            raise UsageError(
                f"{key[:100]!r} is not a key of an upload",
                hint="Keys are relative paths of letters, digits and -_.+=@, whose parts do not begin with a dot.",
            )
        return self.folder.joinpath(*names)

    def begin(self, key: str, size: int | None = None) -> NewUpload:
        """Open a file to write. It is visible only when it is complete.

        Raises
        ------
        AlreadyExistsError
            There is such a file.
        NoSpaceError
            The disk has no space for ``size`` bytes.
        WriteError
            It cannot be written.
        """
        place = self.place(key)
        check_new(place)
        folder = self.with_space_for(size)
        with writing(str(place)):
            return NewUpload(folder / f".{uuid.uuid4().hex}{DRAFT}", place, key)

    def with_space_for(self, size: int | None) -> Path:
        """Create the folder of uploads, and return it. Raises ``NoSpaceError`` if ``size`` bytes don't fit."""
        with writing(str(self.folder)):
            if not self.folder.is_dir():  # the catalog's folder may also be missing
                self.folder.mkdir(parents=True, exist_ok=True)
                for folder in self.folder.parents[:2]:
                    sync_folder(folder)
            free = shutil.disk_usage(self.folder).free
        if size is not None and size > free - _KEPT_FREE:
            raise NoSpaceError(
                f"{size} bytes do not fit on the catalog's disk", path=str(self.folder), hint="Free some space."
            )
        return self.folder


def check_new(place: Path) -> None:
    """Raise ``AlreadyExistsError`` if the file was uploaded before: others may have registered it."""
    above = next(folder for folder in place.parents if folder.exists())
    if os.path.lexists(place) or not above.is_dir():
        raise _exists()


def _exists() -> AlreadyExistsError:
    return AlreadyExistsError("cannot issue write access grant: object already exists")


def _check_content(key: str, draft: Path) -> None:
    """Raise ``UsageError`` for a file that is neither an RRD nor a file of a Lance table.

    The content of a table's files is checked when the table is registered, and each time it is opened.
    """
    with draft.open("rb") as file:
        head = file.read(len(_END_OF_LANCE))
        file.seek(max(0, draft.stat().st_size - len(_END_OF_LANCE)))
        tail = file.read()
    is_of_table = _OF_TABLE.fullmatch(key) is not None
    if _RECORDING.fullmatch(head) or (is_of_table and (tail == _END_OF_LANCE or not key.endswith(_OF_LANCE))):
        return
    raise UsageError(
        f"the upload {key[:100]!r} is refused: it begins with {head!r}, so it is not an RRD",
        hint="Upload recordings as RRDs, and Lance tables file by file below NAME.lance/.",
    )


class NewUpload:
    """A file that is being uploaded; end it by :meth:`publish` or :meth:`discard`.

    A file with a ``key`` is published only if it is an RRD, or a file of a Lance table.
    """

    def __init__(self, draft: Path, place: Path, key: str | None = None) -> None:
        self._draft = draft
        self._place = place
        self._key = key
        self._file = draft.open("xb", buffering=0)
        self.size = 0
        self._unsynced = 0

    def write(self, data: bytes) -> None:
        """Append to the file. Raises ``WriteError``."""
        with writing(str(self._place)):
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
            self.size += len(data)
            self._unsynced += len(data)
            if self._unsynced > _SYNCED:  # at intervals, so that the last sync is short
                self._unsynced = 0
                os.fdatasync(self._file.fileno())
            reach("upload.draft", self._draft)

    def publish(self) -> None:
        """Give the file its final name.

        Raises
        ------
        AlreadyExistsError
            The name is now taken.
        UsageError
            The file is neither an RRD nor a file of a Lance table.
        CommitUnknownError
            The file has its name, but a crash may undo this.
        WriteError
            The file cannot be written, and does not have its name.
        """
        with writing(str(self._place)):
            os.fsync(self._file.fileno())
            self._file.close()
            reach("upload.whole", self._draft)
            if self._key is not None:
                _check_content(self._key, self._draft)
            self._place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(self._draft, self._place)  # unlike a rename, it replaces nothing
            except FileExistsError as error:
                raise _exists() from error
        try:
            reach("upload.publish", self._place)
            self._draft.unlink()
            folder = self._place.parent
            while folder != self._draft.parent.parent:
                sync_folder(folder)
                folder = folder.parent
        except OSError as error:
            raise CommitUnknownError(
                f"has been renamed, but the new name may not be on the disk: {error.strerror}",
                path=str(self._place),
                hint="Check whether the file exists before you upload it again with another key.",
            ) from error
        reach("upload.done")

    def discard(self) -> None:
        """Remove the file, unless it was published."""
        self._file.close()
        self._draft.unlink(missing_ok=True)


_PIECE: Final = 8 * MIB


class NewPart(NewUpload):
    """A part that is being uploaded; once it is published, its ``etag`` identifies its content."""

    def __init__(self, draft: Path, upload: str, number: int) -> None:
        super().__init__(draft, draft)
        self._digest = hashlib.sha256()
        self._upload = upload
        self._number = number

    @property
    def etag(self) -> str:
        """The ETag of the bytes so far."""
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        """Append to the file. Raises ``WriteError``."""
        super().write(data)
        self._digest.update(data)

    def publish(self) -> None:
        """Give the part its name. Raises ``CommitUnknownError`` or ``WriteError``."""
        self._place = _place(self._draft.parent, self._upload, self._number, self.etag)
        try:
            super().publish()
        except AlreadyExistsError:
            return  # the same bytes were uploaded before


class UploadParts:
    """The parts of an upload, which a number in hex digits identifies."""

    def __init__(self, uploads: Uploads, upload: str) -> None:
        self._uploads = uploads
        self._upload = upload

    def begin(self, number: int, size: int | None = None) -> NewPart:
        """Open a part to write; ``size`` is its bytes, if known. Raises ``NoSpaceError`` or ``WriteError``."""
        folder = self._uploads.with_space_for(size)
        with writing(str(folder)):
            return NewPart(folder / f".{uuid.uuid4().hex}{DRAFT}", self._upload, number)

    def join(self, key: str, etags: Mapping[int, str], size: int | None, most: int, check: Callable[[], None]) -> None:
        """Join the parts, in the order of their numbers, into the file, and remove the parts; ``check`` may stop this.

        The file must have ``size`` bytes, if known, and at most ``most``.

        Raises
        ------
        AlreadyExistsError
            There is such a file.
        UsageError
            A part is missing, or the sum of the sizes is wrong.
        NoSpaceError, CommitUnknownError, WriteError
            The file cannot be written, or the outcome is unknown.
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
            raise UsageError(f"the parts have {total} bytes, not {size}")
        if total > most:
            raise UsageError(f"the parts have {total} bytes, more than the limit of {most} for an upload")
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
        raise UsageError(f"{etag[:80]!r} is not an etag of a part")
    return folder / f".{upload}-{number:05}-{etag}{DRAFT}"
