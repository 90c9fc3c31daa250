"""The one place in which a Parquet file is opened."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ...engine.errors import ReadError, SourceMissingError
from ...engine.objects import RemoteFile, is_url


def open_input(path: str) -> pa.NativeFile:
    """The bytes of ``path``, or of an object in a store, as a seekable file of known size. Raises ``ReadError``."""
    if is_url(path):
        return pa.PythonFile(RemoteFile(path), mode="r")
    try:
        return pa.OSFile(path, "rb")
    except FileNotFoundError as error:
        raise SourceMissingError(
            f"Parquet file not found: {path}", path=path, hint="Check the spelling of the path."
        ) from error
    except OSError as error:
        reason = "Is a directory (os error 21)" if Path(path).is_dir() else error.strerror or str(error)
        raise ReadError(
            f"Parquet error: External: {reason}", path=path, hint="Check that it is a file that may be read."
        ) from error
