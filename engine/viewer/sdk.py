"""rerun-sdk, imported where something is asked of it: the one place that does."""

from __future__ import annotations

from typing import Any

_INSTALL = 'pip install "chunkmill[viewer]"'


def rerun_sdk(wanted_by: str) -> Any:
    """The module ``rerun`` with its submodules ``chunk`` and ``experimental``.

    Raises ``ImportError``, with the command that installs it, where rerun-sdk is missing or too old.
    """
    try:
        import rerun
        import rerun.chunk
        import rerun.experimental
    except ModuleNotFoundError as error:
        if error.name == "rerun":
            raise ImportError(f"{wanted_by} needs rerun-sdk: {_INSTALL}", name="rerun") from error
        raise ImportError(f"{wanted_by} needs a newer rerun-sdk ({error}): {_INSTALL}", name=error.name) from error
    return rerun
