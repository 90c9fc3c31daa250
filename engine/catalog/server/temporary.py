"""``Server``: a temporary catalog, in a temporary or a permanent folder, optionally on a port."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from ...errors import UsageError
from ...locations import located
from ...storage import HostLimit
from ..client import CatalogClient
from ..deprecated import replaced_by, warn_renamed

if TYPE_CHECKING:
    from .transport import RunningServer

PathLike = str | os.PathLike[str]

_THIS_MACHINE: Final = "127.0.0.1"
_GRACE_SECONDS: Final = 1.0


class Server:
    """A catalog that exists until its shutdown::

        with Server() as server:
            dataset = server.client().create_dataset("drives")

    :meth:`client` returns a client that reads and writes the folder directly. With a ``port`` the catalog is also
    served at :meth:`url`, for Rerun's SDK and viewer; this needs the extra ``serve``.

    Parameters
    ----------
    host
        The address of the port. By default only this machine can call. If other machines can reach the address, each
        call needs a token from ``chunkmill serve token``.
    port
        The port to open, or 0 for any free port. By default no port is opened.
    datasets
        Datasets to create, by name: a list of RRDs for each, or a folder whose RRDs are all registered.
    tables
        Lance tables to register, by name.
    addr
        The deprecated name of ``host``.
    folder
        The folder of the catalog, which is kept. By default a temporary folder, which is removed at the shutdown.
    allow
        Folders and URLs below which clients of the port may register files and tables, besides the catalog's own
        folder.

    Raises
    ------
    ImportError
        A port is given, but the package ``grpcio`` or ``uvicorn`` is not installed.
    ValueError
        A path in ``datasets`` is neither a folder nor an RRD, or the port is taken.
    """

    def __init__(
        self,
        *,
        host: str = _THIS_MACHINE,
        port: int | None = None,
        datasets: Mapping[str, PathLike | Sequence[PathLike]] | None = None,
        tables: Mapping[str, PathLike] | None = None,
        addr: str | None = None,
        folder: PathLike | None = None,
        allow: Sequence[PathLike] = (),
    ) -> None:
        if addr is not None:
            warn_renamed("addr", "host")
        self._host = host if addr is None else addr
        self._running: RunningServer | None = None
        self._limit: HostLimit | None = None
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
            if port is not None:
                self._running = self._opened(port, allow)
        except BaseException:
            self._remove()
            raise

    def url(self) -> str:
        """The address of the port for Rerun's client; without a port, the folder for a client in this process."""
        if self._folder is None:
            raise RuntimeError("the server was shut down")
        return self._folder if self._running is None else self._running.url

    @replaced_by("url")
    def address(self) -> str:
        """The earlier name of :meth:`url`."""
        return self.url()

    def host(self) -> str:
        """The given address."""
        return self._host

    def client(self) -> CatalogClient:
        """A client of the catalog. Raises ``RuntimeError`` after the shutdown."""
        if self._folder is None:
            raise RuntimeError("Cannot create client: server is not running.")
        return CatalogClient(self._folder)

    def is_running(self) -> bool:
        """Whether the server has not been shut down."""
        return self._folder is not None

    def shutdown(self) -> None:
        """Shut down, and remove a temporary folder. Raises ``RuntimeError`` if it was already shut down."""
        if self._folder is None:
            raise RuntimeError("the server is not running")
        self._remove()

    def _register(self, name: str, uris: str | list[str]) -> None:
        dataset = self.client().create_dataset(name, exist_ok=not self._is_temporary)
        handle = dataset.register_prefix(uris) if isinstance(uris, str) else dataset.register(uris)
        handle.wait()

    def _opened(self, port: int, allow: Sequence[PathLike]) -> RunningServer:
        from .call_log import CallLogs
        from .lake import ServiceOptions
        from .service import CatalogService
        from .tokens import Access, TokenFolder, secret_of, secret_place
        from .transport import is_loopback, start

        client = self.client()
        access = Access()
        if not is_loopback(self._host):
            secret = secret_of(secret_place(client.url), make=True)
            access = Access(secret, tokens=TokenFolder.of(client.url, None))
        logs = CallLogs.of(client.url)
        service = CatalogService(client, ServiceOptions(readable=[str(located(place)) for place in allow]))
        limit = HostLimit([os.fspath(place) for place in allow])
        try:
            running = start(service, port, self._host, access=access, logs=logs)
        except BaseException:
            limit.lift()
            raise
        self._limit = limit
        return running

    def _remove(self) -> None:
        if self._running is not None:
            self._running.stop(_GRACE_SECONDS)
            self._running = None
            if self._limit is not None:
                self._limit.lift()
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
        return f"Server({'shut down' if self._folder is None else self.url()})"


def _recordings(name: str, given: PathLike | Sequence[PathLike]) -> str | list[str]:
    """The prefix or the URIs to register. Raises ``UsageError``."""
    if isinstance(given, str | os.PathLike):
        if not Path(given).is_dir():
            raise UsageError(f"Prefix path '{os.fspath(given)}' for dataset '{name}' must be a directory.")
        return Path(given).absolute().as_uri()
    for path in given:
        if not Path(path).is_file():
            raise UsageError(f"Path '{os.fspath(path)}' for dataset '{name}' must be a RRD file.")
    return [Path(path).absolute().as_uri() for path in given]
