"""``Server``: a catalog for a while, in a temporary folder or in one that stays."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from ...errors import UsageError
from ..client import CatalogClient
from ..deprecated import replaced_by, warn_renamed

PathLike = str | os.PathLike[str]

_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 (what Rerun's server takes by default; nothing is bound here)


class Server:
    """A catalog that is there until it is shut down.

    ::

        with Server() as server:
            dataset = server.client().create_dataset("drives")

    It opens no port: its clients read and write the folder themselves, from this process or another.

    Parameters
    ----------
    host, port
        Taken as Rerun's server takes them, and of no effect yet.
    datasets
        Datasets to make, by their names: of each a folder, all of whose RRDs are registered, or a list of RRDs.
    tables
        Tables of Lance to register, by their names.
    addr
        The deprecated name of ``host``.
    folder
        Where the catalog is, and stays. By default it is a temporary folder, which goes when the server is shut down.

    Raises
    ------
    ValueError
        A path in ``datasets`` is none of these.
    """

    def __init__(
        self,
        *,
        host: str = _EVERYWHERE,
        port: int | None = None,
        datasets: Mapping[str, PathLike | Sequence[PathLike]] | None = None,
        tables: Mapping[str, PathLike] | None = None,
        addr: str | None = None,
        folder: PathLike | None = None,
    ) -> None:
        if addr is not None:
            warn_renamed("addr", "host")
        self._host = host if addr is None else addr
        self._port = port
        wanted = {name: _recordings(name, given) for name, given in (datasets or {}).items()}
        self._is_temporary = folder is None
        self._folder: str | None = (
            tempfile.mkdtemp(prefix="chunkmill-catalog-") if folder is None else os.fspath(folder)
        )
        try:
            for name, uris in wanted.items():
                self._register(name, uris)
            for name, table in (tables or {}).items():
                self.client().register_table(name, Path(table).absolute())
        except BaseException:
            self._remove()
            raise

    def url(self) -> str:
        """The place of the catalog, which a client opens."""
        if self._folder is None:
            raise RuntimeError("the server was shut down")
        return self._folder

    @replaced_by("url")
    def address(self) -> str:
        """The same as :meth:`url`, by its earlier name."""
        return self.url()

    def host(self) -> str:
        """The address that was given."""
        return self._host

    def client(self) -> CatalogClient:
        """A client of the catalog. Raises ``RuntimeError`` when the server was shut down."""
        if self._folder is None:
            raise RuntimeError("Cannot create client: server is not running.")
        return CatalogClient(self._folder)

    def is_running(self) -> bool:
        """Whether the server was not shut down yet."""
        return self._folder is not None

    def shutdown(self) -> None:
        """End it, and remove a temporary folder. Raises ``RuntimeError`` when it was shut down before."""
        if self._folder is None:
            raise RuntimeError("the server is not running")
        self._remove()

    def _register(self, name: str, uris: str | list[str]) -> None:
        dataset = self.client().create_dataset(name, exist_ok=not self._is_temporary)
        handle = dataset.register_prefix(uris) if isinstance(uris, str) else dataset.register(uris)
        handle.wait()

    def _remove(self) -> None:
        if self._is_temporary and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self.shutdown()

    def __repr__(self) -> str:
        return f"Server({self._folder or 'shut down'})"


def _recordings(name: str, given: PathLike | Sequence[PathLike]) -> str | list[str]:
    """The prefix or the URIs that are to be registered. Raises ``UsageError``."""
    if isinstance(given, str | os.PathLike):
        if not Path(given).is_dir():
            raise UsageError(f"Prefix path '{os.fspath(given)}' for dataset '{name}' must be a directory.")
        return Path(given).absolute().as_uri()
    for path in given:
        if not Path(path).is_file():
            raise UsageError(f"Path '{os.fspath(path)}' for dataset '{name}' must be a RRD file.")
    return [Path(path).absolute().as_uri() for path in given]
