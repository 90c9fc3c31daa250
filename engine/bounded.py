"""The few helpers through which bytes of a file, with lengths that the file itself declares, are read."""

from __future__ import annotations

from typing import BinaryIO

from .errors import ReadError
from .limits import FREE_EXPANSION, MAX_CHUNK_UNCOMPRESSED, MAX_COMPRESSION_RATIO


def read_exact(file: BinaryIO, size: int, *, path: str, what: str) -> bytes:
    """Read exactly ``size`` bytes from where ``file`` stands, or raise a :class:`ReadError` saying what was cut."""
    start = file.tell()
    data = file.read(size)
    if len(data) != size:
        raise ReadError(
            f"the file ends inside {what}: {size} bytes expected, {len(data)} left",
            path=path,
            offset=start,
            hint="The file is cut short; copy it again, or read it with recover=True.",
        )
    return data


def read_sized(file: BinaryIO, size: int, *, path: str, what: str, file_size: int, cap: int) -> bytes:
    """Like :func:`read_exact`, for a ``size`` that the file declares: it is checked before memory is taken."""
    start = file.tell()
    check_limit(size, min(cap, file_size - start), path=path, offset=start, what=f"the length of {what}")
    return read_exact(file, size, path=path, what=what)


def check_limit(value: int, cap: int, *, path: str, offset: int | None, what: str) -> int:
    """Return ``value`` if it lies in ``0..cap``, else raise a :class:`ReadError`."""
    if not 0 <= value <= cap:
        raise ReadError(
            f"{what} is {value:,}, more than the {max(cap, 0):,} possible here",
            path=path,
            offset=offset,
            hint="The file is damaged or was made to harm.",
        )
    return value


def check_expansion(compressed: int, uncompressed: int, *, path: str, offset: int | None, what: str) -> int:
    """Return the declared ``uncompressed`` size if it is believable for ``compressed`` bytes, else raise."""
    cap = min(MAX_CHUNK_UNCOMPRESSED, max(FREE_EXPANSION, compressed * MAX_COMPRESSION_RATIO))
    return check_limit(uncompressed, cap, path=path, offset=offset, what=f"the uncompressed size of {what}")


def is_text(name: str) -> bool:
    """Whether a name from outside is text that can be written: with half a pair of surrogates, it is not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
