"""Files that were compressed as a whole: ``drive.mcap.zst`` and the like."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO, Final, cast

import lz4.frame
import zstandard

from ...engine.errors import ReadError
from ...engine.failing import writing
from ...engine.limits import FREE_EXPANSION, MAX_COMPRESSION_RATIO, MIB
from .records import DAMAGED_HINT

_MAGIC: Final = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
MAGIC_SIZE: Final = 4


def wrapping_of(begin: bytes) -> str | None:
    """What a file that begins with these four bytes is compressed with, ``zstd`` or ``lz4``; None: it is not."""
    return _MAGIC.get(begin)


def unwrapped(file: IO[bytes], wrapping: str, *, path: str, size: int) -> IO[bytes]:
    """The content of ``file``, ``size`` bytes long, in a scratch file that nobody else sees and that goes with it.

    It lies in ``CHUNKMILL_SCRATCH`` where that is a folder, else in the system's temporary one. Raises ``ReadError``
    when the data is damaged or becomes more than ``MAX_COMPRESSION_RATIO`` times as large, ``WriteError`` when there
    is no space.
    """
    most = max(FREE_EXPANSION, size * MAX_COMPRESSION_RATIO)
    given = os.environ.get("CHUNKMILL_SCRATCH")
    folder = Path(given) if given and Path(given).is_dir() else None
    with writing(path):
        out = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (the caller closes it)
    try:
        file.seek(0)
        stream = _zstd(file) if wrapping == "zstd" else cast("IO[bytes]", lz4.frame.open(file, "rb"))
        done = 0
        while part := _read(stream, path, done):
            done += len(part)
            if done > most:
                raise ReadError(
                    f"it is compressed as a whole and expands to more than {most:,} bytes",
                    path=path,
                    offset=0,
                    hint="The file is damaged or was made to harm; decompress it yourself if you trust it.",
                )
            with writing(path):
                out.write(part)
        with writing(path):
            out.flush()
    except BaseException:
        out.close()
        raise
    return out


def _zstd(file: IO[bytes]) -> IO[bytes]:
    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
    return cast("IO[bytes]", reader)


def _read(stream: IO[bytes], path: str, done: int) -> bytes:
    """The next bytes; none at the end, also where a stream is cut: the recording in it shows that."""
    try:
        return stream.read(MIB)
    except EOFError:
        return b""
    except (zstandard.ZstdError, RuntimeError) as error:
        why = f"it is compressed as a whole, and cannot be decompressed beyond {done:,} bytes: {error}"
        raise ReadError(why, path=path, hint=DAMAGED_HINT) from error
