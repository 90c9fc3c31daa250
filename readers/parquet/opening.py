"""The one place in which a Parquet file is opened."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ...engine.errors import ReadError, SourceMissingError
from ...engine.objects import RemoteFile, is_url


def open_input(path: str, version: str | None = None) -> tuple[pa.NativeFile, str | None]:
    """The bytes of ``path`` as a seekable file of known size, and their version where they are an object in a store.

    Raises ``ReadError``, also where an object has another version than the given one.
    """
    if is_url(path):
        remote = RemoteFile(path, version)
        return pa.PythonFile(remote, mode="r"), remote.version
    try:
        return pa.OSFile(path, "rb"), None
    except FileNotFoundError as error:
        raise SourceMissingError(
            f"Parquet file not found: {path}", path=path, hint="Check the spelling of the path."
        ) from error
    except OSError as error:
        reason = "Is a directory (os error 21)" if Path(path).is_dir() else error.strerror or str(error)
        raise ReadError(
            f"Parquet error: External: {reason}", path=path, hint="Check that it is a file that may be read."
        ) from error
