"""Folders for parts, shards and versions: on a file system, or below a prefix of an object store."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from ..errors import ReadError, WriteError
from ..faults import reach
from ..locations import Location, located
from ..task_context import asked_for, fetched
from . import ObjectUrl, Upload, bucket_of, clear_uploads, is_url, upload_to

OPEN_SUFFIX = ".open"
"""The suffix of a local file while it is written."""

_LARGE_FILE = 32 << 20


class FolderFile(NamedTuple):
    """A file of a folder: its name and its size in bytes."""

    name: str
    size: int


class NewFile(ABC):
    """A new file, written through ``file``; it gets its name when it is finished."""

    file: BinaryIO

    @abstractmethod
    def seal(self) -> None:
        """Complete all writes, without making the file appear."""

    @abstractmethod
    def finish(self) -> None:
        """Make the file appear as a whole."""

    @abstractmethod
    def discard(self) -> None:
        """Discard the written bytes; after :meth:`finish` this does nothing."""


class Folder(ABC):
    """Files under one path or URL. Local operations raise ``OSError``, others ``ReadError`` and ``WriteError``."""

    location: Location

    @staticmethod
    def at(location: str | os.PathLike[str]) -> Folder:
        """Return the folder at a path or URL."""
        place = located(location)
        return ObjectFolder(place) if isinstance(place, ObjectUrl) else LocalFolder(place)

    def place(self, name: str) -> str:
        """The path or URL of a file in the folder, or of any file if ``name`` is absolute."""
        return name if name.startswith("/") or is_url(name) else str(self.location / name)

    def sub(self, name: str) -> Folder:
        """Return a subfolder."""
        return Folder.at(self.location / name)

    @abstractmethod
    def make(self) -> None:
        """Make the folder and its missing parents."""

    @abstractmethod
    def exists(self, name: str | None = None) -> bool:
        """Return True if the folder, or a file in it, exists."""

    @abstractmethod
    def names(self) -> Iterator[str]:
        """The names of the files directly in the folder, unordered."""

    @abstractmethod
    def folders(self) -> list[str]:
        """The names of the subfolders, sorted; none if the folder does not exist."""

    @abstractmethod
    def size(self, name: str) -> int:
        """The size of a file, in bytes."""

    def entries(self) -> list[FolderFile]:
        """The files directly in the folder, sorted, without files that are removed meanwhile."""
        files = []
        for name in self.names():
            with contextlib.suppress(FileNotFoundError):
                files.append(FolderFile(name, self.size(name)))
        return sorted(files)

    @abstractmethod
    def get(self, name: str) -> bytes:
        """Read a whole file."""

    @abstractmethod
    def get_range(self, name: str, offset: int, size: int) -> bytes:
        """Read bytes of a file; fewer if it ends before."""

    @abstractmethod
    def put(self, name: str, data: bytes | memoryview, *, durable: bool = True) -> None:
        """Write a whole file; if ``durable``, sync it."""

    @abstractmethod
    def create(self, name: str, data: bytes, points: tuple[str, str] | None = None) -> bool:
        """Write a whole file, durably and in one step; return False if it already exists.

        ``points`` are the fault points (:mod:`..faults`) after the draft and after the rename.
        """

    @abstractmethod
    def replace(self, name: str, data: bytes, point: str, *, durable: bool = True) -> None:
        """Write or replace a whole file in one step; if ``durable``, sync it.

        ``point`` is the fault point (:mod:`..faults`) after the draft. A killed process leaves the draft
        ``<name>.….open``.
        """

    @abstractmethod
    def new(self, name: str) -> NewFile:
        """Open a new file for writing."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Remove files."""

    @abstractmethod
    def total(self) -> int:
        """The total size of all files in the folder and its subfolders, in bytes."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the folder and as much of its content as possible."""


class LocalFolder(Folder):
    """A folder of a file system."""

    def __init__(self, path: Path) -> None:
        self.location: Path = path
        self._text = str(path)

    def place(self, name: str) -> str:
        """The path of a file, without the cost of a path object."""
        return super().place(name) if name.startswith("/") or is_url(name) else os.path.join(self._text, name)  # noqa: PTH118

    def make(self) -> None:
        """Make the folder and its missing parents."""
        self.location.mkdir(parents=True, exist_ok=True)

    def exists(self, name: str | None = None) -> bool:
        """Return True if the folder, or a file in it, exists."""
        return self.location.is_dir() if name is None else (self.location / name).exists()

    def names(self) -> Iterator[str]:
        """The names of the files directly in the folder, unordered."""
        with os.scandir(self.location) as entries:
            yield from (f.name for f in entries if f.is_file())

    def folders(self) -> list[str]:
        """The names of the subfolders, sorted; none if the folder does not exist."""
        try:
            with os.scandir(self.location) as entries:
                return sorted(f.name for f in entries if f.is_dir())
        except FileNotFoundError:
            return []

    def size(self, name: str) -> int:
        """The size of a file, in bytes."""
        return (self.location / name).stat().st_size

    def get(self, name: str) -> bytes:
        """Read a whole file."""
        return _counted((self.location / name).read_bytes())

    def get_range(self, name: str, offset: int, size: int) -> bytes:
        """Read bytes of a file; fewer if it ends before."""
        with (self.location / name).open("rb", buffering=0) as file:  # a buffer would read beyond the range
            file.seek(offset)
            data = file.read(size)
            while len(data) < size and (more := file.read(size - len(data))):
                data += more
            return _counted(data)

    def put(self, name: str, data: bytes | memoryview, *, durable: bool = True) -> None:
        """Write a whole file; if ``durable``, sync it to disk."""
        with (self.location / name).open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())

    def create(self, name: str, data: bytes, points: tuple[str, str] | None = None) -> bool:
        """Write a file under a temporary name, and link it to its own."""
        while True:
            draft = self.location / f".{uuid.uuid4().hex}.draft"
            try:
                self.put(draft.name, data)
                if points:
                    reach(points[0], draft)
                os.link(draft, self.location / name)
                if points:
                    reach(points[1])
                sync_folder(self.location)
            except FileExistsError:
                return False
            except FileNotFoundError:
                if draft.exists() or not self.location.is_dir():
                    raise
                continue  # others took the draft for a dead process's, and removed it
            finally:
                draft.unlink(missing_ok=True)
            return True

    def replace(self, name: str, data: bytes, point: str, *, durable: bool = True) -> None:
        """Write a file under a temporary name, and rename it."""
        while True:
            draft = self.location / f"{name}.{uuid.uuid4().hex}{OPEN_SUFFIX}"
            try:
                self.put(draft.name, data, durable=durable)
                reach(point, draft)
                if durable:
                    replace_file(draft, self.location / name)
                else:
                    draft.replace(self.location / name)
            except FileNotFoundError:
                if draft.exists() or not self.location.is_dir():
                    raise
                continue  # others took the draft for a dead process's, and removed it
            finally:
                draft.unlink(missing_ok=True)
            return

    def new(self, name: str) -> NewFile:
        """Open a new file for writing, with a temporary name until it is finished."""
        return _NewLocalFile(self.location / name)

    def delete(self, names: Iterable[str]) -> None:
        """Remove files."""
        for name in names:
            (self.location / name).unlink(missing_ok=True)

    def total(self) -> int:
        """The total size of all files in the folder and its subfolders, in bytes."""
        return sum(path.stat().st_size for path in self.location.rglob("*") if path.is_file())

    def remove(self) -> None:
        """Remove the folder and as much of its content as possible."""
        shutil.rmtree(self.location, ignore_errors=True)


class ObjectFolder(Folder):
    """The objects whose keys begin with one prefix."""

    def __init__(self, url: ObjectUrl) -> None:
        self.location: ObjectUrl = url

    def make(self) -> None:
        """Do nothing: a store has no folders. Raises for a missing bucket, or an object in the way."""
        next(self._listed(), None)

    def exists(self, name: str | None = None) -> bool:
        """Return True if there is any object below the prefix, or the object ``name``."""
        if name is None:
            return next(bucket_of(self.location).list(self.location.key), None) is not None
        return bucket_of(self.location).exists(self._key(name))

    def names(self) -> Iterator[str]:
        """The names of the objects directly below the prefix."""
        return (entry.name for entry in self._listed())

    def folders(self) -> list[str]:
        """The names of subfolders, sorted; this lists all objects below the prefix."""
        begin = f"{self.location.key.rstrip('/')}/"
        keys = (info.url.key.removeprefix(begin) for info in bucket_of(self.location).list(self.location.key))
        return sorted({key.partition("/")[0] for key in keys if "/" in key})

    def size(self, name: str) -> int:
        """The size of an object, in bytes."""
        return bucket_of(self.location).head(self._key(name)).size

    def entries(self) -> list[FolderFile]:
        """The objects directly below the prefix, sorted, by one listing."""
        return sorted(self._listed())

    def _listed(self) -> Iterator[FolderFile]:
        for info in bucket_of(self.location).list(self.location.key):
            if info.url.parent == self.location:
                yield FolderFile(info.url.name, info.size)

    def get(self, name: str) -> bytes:
        """Read a whole object."""
        return _counted(bucket_of(self.location).get(self._key(name)))

    def get_range(self, name: str, offset: int, size: int) -> bytes:
        """Read bytes of an object; fewer if it ends earlier."""
        return _counted(bytes(bucket_of(self.location).read(self._key(name), offset, offset + size, None)))

    def put(self, name: str, data: bytes | memoryview, *, durable: bool = True) -> None:  # noqa: ARG002 (an object always is)
        """Write a whole object."""
        bucket_of(self.location).put(self._key(name), bytes(data))

    def create(self, name: str, data: bytes, points: tuple[str, str] | None = None) -> bool:
        """Write an object on the condition that its name is free."""
        if points:
            reach(points[0])
        made = bucket_of(self.location).create(self._key(name), data)
        if points:
            reach(points[1])
        return made

    def replace(self, name: str, data: bytes, point: str, *, durable: bool = True) -> None:  # noqa: ARG002 (it always is)
        """Write an object."""
        reach(point)
        self.put(name, data)

    def new(self, name: str) -> NewFile:
        """Return an upload."""
        return _NewObject(upload_to(self.location / name))

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects."""
        keys = [self._key(name) for name in names]
        if keys:
            bucket_of(self.location).delete(keys)

    def total(self) -> int:
        """The total size of all objects below the prefix, in bytes."""
        return sum(info.size for info in bucket_of(self.location).list(self.location.key))

    def remove(self) -> None:
        """Remove as many objects below the prefix as possible."""
        bucket = bucket_of(self.location)
        try:
            keys = [info.url.key for info in bucket.list(self.location.key)]
            if keys:
                bucket.delete(keys)
            clear_uploads(self.location)
        except (ReadError, WriteError):
            return  # the next run to the same destination removes the rest

    def _key(self, name: str) -> str:
        return (self.location / name).key


class _NewLocalFile(NewFile):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = path.with_name(path.name + OPEN_SUFFIX)
        self.file = self._open.open("wb", buffering=0)

    def seal(self) -> None:
        self.file.close()

    def finish(self) -> None:
        self.file.close()
        self._open.rename(self._path)

    def discard(self) -> None:
        self.file.close()
        self._open.unlink(missing_ok=True)


class _NewObject(NewFile):
    def __init__(self, upload: Upload) -> None:
        self._upload: Upload | None = upload
        self.file = cast("BinaryIO", upload)

    def seal(self) -> None:
        if self._upload is not None:
            self._upload.seal()

    def finish(self) -> None:
        if self._upload is not None:
            self._upload.finish()
            self._upload = None

    def discard(self) -> None:
        if self._upload is not None:
            self._upload.abort()
            self._upload = None


def _counted(data: bytes) -> bytes:
    asked_for()
    fetched(len(data))
    return data


def replace_file(new: Path, target: Path) -> None:
    """Rename ``new`` to ``target``, durably. The space of a large old file is freed in the background.

    The file system frees a file at its last close, which takes long for a gigabyte.
    """
    try:
        before = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        before = -1
    try:
        new.replace(target)
        sync_folder(target.parent)
    finally:
        if before >= 0 and os.fstat(before).st_size > _LARGE_FILE:
            threading.Thread(target=os.close, args=(before,), name="chunkmill-close", daemon=True).start()
        elif before >= 0:
            os.close(before)


def sync_folder(folder: Path) -> None:
    """Make a rename within ``folder`` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
