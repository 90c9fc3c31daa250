"""Files below a folder or prefix: listed, digested and copied elsewhere, piece by piece."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import xxhash

from ..errors import ReadError, writing
from ..limits import MIB
from ..locations import Location
from .folder import Folder, LocalFolder, sync_folder
from .objects import bucket_of
from .url import ObjectUrl

_PIECE: Final = 8 * MIB


class PlacedFile(NamedTuple):
    """A file below a place: its relative path, with slashes, and its size in bytes."""

    path: str
    size: int


def files_at(place: Location) -> list[PlacedFile]:
    """Return all files below a folder or prefix, sorted; none if it is missing. Links to folders are not followed.

    Raises ``ReadError`` if an object store cannot be listed.
    """
    if isinstance(place, ObjectUrl):
        begin = f"{place.key.rstrip('/')}/" if place.key else ""
        infos = bucket_of(place).list(place.key)
        return sorted(PlacedFile(info.url.key.removeprefix(begin), info.size) for info in infos)
    files = []
    for here, _, names in os.walk(place):
        below = os.path.relpath(here, place)
        for name in names:
            try:
                size = Path(here, name).stat().st_size
            except OSError:
                continue  # it was removed meanwhile, or is a broken link
            files.append(PlacedFile(name if below == "." else f"{below}/{name}", size))
    return sorted(files)


def folder_and_name(place: Location, path: str) -> tuple[Folder, str]:
    """Return the folder of a file below a place, and its name."""
    above, _, name = path.rpartition("/")
    return Folder.at(place / above if above else place), name


def digest_at(place: Location, file: PlacedFile) -> str:
    """Return the XXH3-128 of a file, hexadecimal. Raises ``ReadError``, or for a local folder ``OSError``."""
    digest = xxhash.xxh3_128()
    for piece in _pieces(*folder_and_name(place, file.path), file.size):
        digest.update(piece)
    return digest.hexdigest()


def copy_file(source: Location, file: PlacedFile, target: Location) -> str:
    """Copy a file to the same path below another place, durably, and return its XXH3-128, hexadecimal.

    The copy appears whole. Raises ``ReadError`` if the file's size has changed, ``WriteError`` if writing fails.
    """
    origin, name = folder_and_name(source, file.path)
    folder, _ = folder_and_name(target, file.path)
    digest = xxhash.xxh3_128()
    with writing(folder.place(name)):
        folder.make()
        new = folder.new(name)
    try:
        for piece in _pieces(origin, name, file.size):
            digest.update(piece)
            with writing(folder.place(name)):
                new.file.write(piece)
        with writing(folder.place(name)):
            if isinstance(folder, LocalFolder):
                os.fsync(new.file.fileno())
            new.finish()
            if isinstance(folder, LocalFolder):
                sync_folder(folder.location)
    except BaseException:
        new.discard()
        raise
    return digest.hexdigest()


def _pieces(folder: Folder, name: str, size: int) -> Iterator[bytes]:
    offset = 0
    while offset < size:
        piece = folder.get_range(name, offset, min(_PIECE, size - offset))
        if not piece:
            break
        yield piece
        offset += len(piece)
    if offset != size:
        raise ReadError(f"the file ended at {offset:,} of {size:,} bytes", path=folder.place(name))
