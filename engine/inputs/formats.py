"""Which format a file has."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path, PurePath

from ...readers.lerobot import is_dataset
from ..errors import ReadError, SourceMissingError, UnsupportedError
from ..locations import Location, exists
from ..objects import RemoteFile

_MAGIC_SIZE = 8
_MCAP_MAGIC = (b"\x89MCAP", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")
"""That of the format, and those of Zstandard and LZ4, with which a whole MCAP may be compressed."""
_PARQUET_MAGIC = (b"PAR1", b"PARE")
_RRD_MAGIC = (b"RRF", b"RRIO")


class Format(StrEnum):
    """The formats the command line reads."""

    LEROBOT = "lerobot"
    MCAP = "mcap"
    PARQUET = "parquet"
    RRD = "rrd"


FORMAT_OF_SUFFIX = {
    ".mcap": Format.MCAP,
    ".mcap.lz4": Format.MCAP,
    ".mcap.zst": Format.MCAP,
    ".mcap.zstd": Format.MCAP,
    ".parquet": Format.PARQUET,
    ".rbl": Format.RRD,
    ".rrd": Format.RRD,
}
"""What a folder is searched for, and what each suffix (in lower case) promises."""


def suffix_of(name: str) -> str:
    """The suffix that makes a file of this name a recording, as it is written there; empty where none does."""
    lower = name.lower()
    size = max((len(suffix) for suffix in FORMAT_OF_SUFFIX if lower.endswith(suffix)), default=0)
    return name[len(name) - size :]


def format_of_name(name: str) -> Format | None:
    """The format that a file's name promises, if it does."""
    return FORMAT_OF_SUFFIX.get(suffix_of(name).lower())


def stem_of(name: str) -> str:
    """A file's name without what makes it a recording, else without its last suffix."""
    suffix = suffix_of(name) or PurePath(name).suffix
    return name[: len(name) - len(suffix)] or name


def detect_format(path: Location) -> Format:
    """The format of ``path`` by its suffix, else by its first bytes.

    The suffix comes first so that a damaged recording is refused by the reader that knows what is wrong with it.
    Raises ``SourceMissingError``, ``UnsupportedError``, and ``ReadError`` for what is no file.
    """
    if isinstance(path, Path) and path.is_dir():
        if is_dataset(path):
            return Format.LEROBOT
        raise SourceMissingError("this is a folder", path=str(path), hint="Name a recording in it.")
    if not exists(path):
        raise SourceMissingError("there is no such file", path=str(path), hint="Check the spelling of the path.")
    if isinstance(path, Path) and not path.is_file():
        raise ReadError(
            "this is a pipe or a device, and recordings are read by position",
            path=str(path),
            hint="Write it to a file, and name that.",
        )
    known = format_of_name(path.name)
    if known is not None:
        return known
    magic = _first_bytes(path)
    if magic.startswith(_MCAP_MAGIC):
        return Format.MCAP
    if magic.startswith(_RRD_MAGIC):
        return Format.RRD
    if magic.startswith(_PARQUET_MAGIC):
        return Format.PARQUET
    raise UnsupportedError(
        "this is neither an MCAP nor an RRD nor a Parquet file",
        path=str(path),
        offset=0,
        hint="chunkmill reads these three formats.",
    )


def _first_bytes(path: Location) -> bytes:
    with path.open("rb") if isinstance(path, Path) else RemoteFile(path) as file:
        return file.read(_MAGIC_SIZE)
