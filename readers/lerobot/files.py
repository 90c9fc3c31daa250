"""The files of a LeRobot dataset. A dataset may be hostile: only files in its folder are opened, within limits."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, Final

from ...engine.errors import ReadError, SourceMissingError
from ...engine.limits import MAX_EPISODES, MAX_METADATA, MAX_SCHEMA_BYTES, MIB, check_limit

HINT: Final = "The dataset is damaged or incomplete; copy it again."
_LINK_HINT: Final = "Links out of a dataset are not followed, for security. Copy the file into the dataset."


def file_in(root: Path, place: Path) -> Path:
    """Return ``place``, a file in a dataset, if it may be opened.

    Raises ``SourceMissingError`` if it does not exist, and ``ReadError`` for a link that leaves the dataset and for
    anything but a file, such as a pipe.
    """
    try:
        mode = inside(root, place).stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceMissingError("there is no such file in the dataset", path=str(place), hint=HINT) from error
    except (OSError, ValueError) as error:
        raise ReadError(f"cannot be read: {error}", path=str(place), hint=HINT) from error
    if not stat.S_ISREG(mode):
        raise ReadError("is not a file, but a folder, a pipe or a device", path=str(place), hint=HINT)
    return place


def inside(root: Path, place: Path) -> Path:
    """Return ``place`` if all links in its path stay in a dataset.

    In a snapshot of Hugging Face's cache, links may point to the cache's blobs. Raises ``ReadError`` for other links.
    """
    real, home = Path(os.path.realpath(place)), Path(os.path.realpath(root))
    blobs = [home.parent.parent / "blobs"] if home.parent.name == "snapshots" else []
    if not any(real.is_relative_to(folder) for folder in (home, *blobs)):
        raise ReadError("is a link to a place outside the dataset", path=str(place), hint=_LINK_HINT)
    return place


def read_text(root: Path, place: Path, cap: int = MAX_METADATA) -> str:
    """Return the text of a file of at most ``cap`` bytes. Raises ``ReadError``."""
    file = file_in(root, place)
    try:
        check_limit(file.stat().st_size, cap, path=str(file), offset=None, what="the size of the file")
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(f"cannot be read: {error}", path=str(file), hint=HINT) from error


def read_json(root: Path, place: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ``ReadError``."""
    return _parsed(read_text(root, place, MAX_SCHEMA_BYTES), place, None)


def read_json_lines(root: Path, place: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each line. Raises ``ReadError`` with the byte at which the line begins."""
    at = 0
    try:
        with file_in(root, place).open("rb") as file:
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(MIB), b""))
            check_limit(lines, MAX_EPISODES, path=str(place), offset=None, what="the number of lines")
            file.seek(0)
            while line := file.readline(MIB + 1):
                check_limit(len(line), MIB, path=str(place), offset=at, what="the length of the line")
                text = line.decode("utf-8" if at else "utf-8-sig").strip()
                if text:
                    yield _parsed(text, place, at)
                at += len(line)
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(f"cannot be read: {error}", path=str(place), offset=at, hint=HINT) from error


def _parsed(text: str, path: Path, at: int | None) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReadError(f"is not JSON: {error}", path=str(path), offset=at, hint=HINT) from None
    if not isinstance(content, dict):
        raise ReadError("is not a JSON object", path=str(path), offset=at, hint=HINT)
    return content


def number_in(entries: Mapping[str, Any], key: str, path: Path) -> int:
    """Return a number that is at least 0. Raises ``ReadError``."""
    value = entries.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ReadError(f"{key!r} is {shortened(value)}, which is not a number", path=str(path), hint=HINT)
    return value


MOST_SECONDS: Final = 9e9
"""The largest time; in nanoseconds it fits into 64 bits."""


def seconds_in(entries: Mapping[str, Any], key: str, path: Path) -> float | None:
    """Return a time that is at least 0, or None if it is missing. Raises ``ReadError``."""
    value = entries.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < MOST_SECONDS:
        raise ReadError(f"{key!r} is {shortened(value)}, which is not a number of seconds", path=str(path), hint=HINT)
    return float(value)


def texts_in(entries: Mapping[str, Any], key: str, path: Path) -> tuple[str, ...]:
    """Return one, several or no texts. Numbers are also texts. Raises ``ReadError``."""
    value = entries.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(text, str | int | float) for text in values):
        raise ReadError(f"{key!r} is {shortened(value)}, which is not text", path=str(path), hint=HINT)
    return tuple(map(str, values))
