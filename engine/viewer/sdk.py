"""rerun-sdk, imported where something is asked of it: the one place that does."""

from __future__ import annotations

from typing import Any

_EXTRA = '"chunkmill[viewer]"'
_INSTALL = f"pip install {_EXTRA}"


def rerun_sdk(wanted_by: str) -> Any:
    """The module ``rerun`` with its submodule ``experimental``.

    Raises ``ImportError``, with the command that installs it, where rerun-sdk is missing or older than 0.33.
    """
    try:
        import rerun
        import rerun.experimental
    except ModuleNotFoundError as error:
        if error.name == "rerun":
            raise ImportError(f"{wanted_by} needs rerun-sdk: {_INSTALL}", name="rerun") from error
        raise _too_old(wanted_by, str(error)) from error
    if not hasattr(rerun.RecordingStream, "send_chunks"):
        raise _too_old(wanted_by, f"this is {rerun.__version__}")
    return rerun


def chunk_api(wanted_by: str) -> Any:
    """The module that has the SDK's own ``Chunk``: ``rerun.chunk``, before 0.37 ``rerun.experimental``."""
    rerun = rerun_sdk(wanted_by)
    try:
        import rerun.chunk
    except ModuleNotFoundError:
        return rerun.experimental
    return rerun.chunk


def _too_old(wanted_by: str, why: str) -> ImportError:
    return ImportError(f"{wanted_by} needs rerun-sdk 0.33 or newer ({why}): pip install -U {_EXTRA}", name="rerun")
