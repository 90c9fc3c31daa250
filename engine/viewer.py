"""A live Rerun viewer: a client, and chunks sent into a recording that the viewer shows.

Only this module imports rerun-sdk.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast
from urllib.parse import urlsplit

import pyarrow as pa

from .chunk import Chunk
from .errors import UsageError, extra_command
from .store import ChunkStore, LazyStore
from .stream import LazyChunkStream

if TYPE_CHECKING:
    from uuid import UUID


def rerun_sdk(wanted_by: str) -> Any:
    """The module ``rerun`` with its submodule ``experimental``.

    Raises ``ImportError``, with the command that installs it, if rerun-sdk is missing or older than 0.33.
    """
    try:
        import rerun
        import rerun.experimental
    except ModuleNotFoundError as error:
        if error.name == "rerun":
            raise ImportError(f"{wanted_by} needs rerun-sdk: {extra_command('viewer')}", name="rerun") from error
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
    return ImportError(f"{wanted_by} needs rerun-sdk 0.33 or newer ({why}): pip install -U rerun-sdk", name="rerun")


def send_chunks(
    chunks: Chunk | LazyChunkStream | LazyStore | ChunkStore | Iterable[Chunk], *, recording: Any | None = None
) -> None:
    """Send chunks into a recording stream of rerun-sdk, and return when each is in its queue.

    A stream is run, or a lazy store is loaded, one chunk at a time. Ids of chunks and rows are kept; the application
    and recording ids are those of ``recording``.

    Guarantee: chunks are queued in their order. If something fails, the chunks before the failure have been sent. A
    chunk without any component cannot be sent to a recording stream; it is left out with a warning.

    Parameters
    ----------
    chunks
        A chunk, an iterable of chunks, a stream, or a store.
    recording
        The ``rerun.RecordingStream``; by default the active one.

    Raises
    ------
    ImportError
        rerun-sdk is not installed: install the extra ``viewer``.
    TypeError
        An element is not a chunk, or ``recording`` is not a recording stream.
    UsageError
        There is no active recording.
    ReadError
        A source of the stream or store is damaged.
    """
    rerun = rerun_sdk("send_chunks")
    if recording is None:
        recording = rerun.get_data_recording()
        if recording is None:
            raise UsageError("there is no active recording", hint="Call rr.init(…), or pass recording=….")
    if not isinstance(recording, rerun.RecordingStream):
        raise TypeError(f"argument 'recording': expected a rerun.RecordingStream, got {_name(recording)}")
    send = getattr(rerun, "send_chunks", None) or rerun.experimental.send_chunks
    make = chunk_api("send_chunks").Chunk.from_record_batch
    send((theirs for chunk in _each(chunks) for theirs in _converted(chunk, make)), recording=recording)


def _each(chunks: Any) -> Iterator[Chunk]:
    if isinstance(chunks, Chunk):
        return iter((chunks,))
    if isinstance(chunks, LazyStore | ChunkStore):
        return iter(chunks.stream())
    if not isinstance(chunks, Iterable):
        raise TypeError(f"send_chunks expects a chunk, a stream, a store or an iterable of chunks, got {_name(chunks)}")
    return iter(chunks)


def _converted(chunk: Any, make: Callable[[pa.RecordBatch], Any]) -> Iterator[Any]:
    if not isinstance(chunk, Chunk):
        raise TypeError(f"send_chunks expects Chunk objects in the iterable, got {_name(chunk)}")
    if not chunk.data.components:
        if chunk.num_rows:
            text = "has rows but no component, and cannot be sent; it was left out"
            warnings.warn(f"{chunk.entity_path}: {chunk.id} {text}", UserWarning, stacklevel=2)
        return
    theirs = make(chunk.to_record_batch())
    yield from theirs if isinstance(theirs, list) else (theirs,)  # before 0.34 it gives one chunk


def _name(thing: object) -> str:
    return repr(type(thing).__name__)


DEFAULT_URL = "rerun+http://127.0.0.1:9876/proxy"

_SCHEMES = ("rerun", "rerun+http", "rerun+https")


class ViewerClient:
    """A connection to a Rerun viewer: :meth:`connect` to a running one, or :meth:`spawn` a new one.

    How a spawned viewer ends:

    - :meth:`quit` always ends it, as does :meth:`close` without arguments.
    - An attached viewer (``detach_process=False``) also ends with the ``with`` block, and when the client is
    garbage-collected.
    - A detached viewer runs until one of these calls.

    Experimental, like the API of rerun-sdk that it uses. Other methods of the installed version's client (its state,
    logs and commands, closing recordings) are available under the same names.

    Raises
    ------
    ImportError
        rerun-sdk is not installed: install the extra ``viewer``.
    UsageError
        The URL is not that of a viewer.
    ConnectionError
        No viewer answers at the URL.
    """

    def __init__(self, url: str = DEFAULT_URL, *, _pid: int | None = None, _kill_on_exit: bool = False) -> None:
        self._owns_viewer = False
        self._kill_on_exit = _kill_on_exit
        made = _viewer_client()
        _check_url(url)
        try:
            self._client = made(url, _pid=_pid, _kill_on_exit=_kill_on_exit)
        except ConnectionError as error:
            raise ConnectionError(
                f"no Rerun viewer answers at {url} ({error}). Start one with `rerun` or ViewerClient.spawn(), or check"
                " host and port."
            ) from error
        self._url = url
        self._owns_viewer = _pid is not None

    @classmethod
    def connect(cls, url: str = DEFAULT_URL) -> Self:
        """Connect to a running viewer.

        ``url`` is ``rerun://…/proxy``, ``rerun+http://…/proxy`` or ``rerun+https://…/proxy``, as for
        ``rerun.connect_grpc``.
        """
        return cls(url)

    @classmethod
    def spawn(
        cls,
        *,
        headless: bool = False,
        port: int = 9876,
        memory_limit: str = "75%",
        server_memory_limit: str = "1GiB",
        hide_welcome_screen: bool = False,
        detach_process: bool | None = None,
        executable_name: str = "rerun",
        executable_path: str | None = None,
    ) -> Self:
        """Start a viewer and connect to it.

        Parameters
        ----------
        headless
            Run without a window, for screenshots. This still needs a graphics driver; a software driver (Mesa's
            lavapipe) is enough.
        port
            The port on which it listens.
        memory_limit, server_memory_limit
            The memory limits of the viewer, and of the server in it (``"16GB"``, ``"50%"``). Above them, the oldest
            data is dropped.
        hide_welcome_screen
            Start with an empty window.
        detach_process
            Whether the viewer outlives this process and the client. By default it does so only if it has a window.
        executable_name
            The program, searched on ``PATH`` and next to this Python.
        executable_path
            The path of the program, instead of a search.

        Raises
        ------
        RuntimeError
            The program was not found, or ended before it responded.
        """
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise UsageError(f"argument 'port': expected a number from 1 to 65535, got {port!r}")
        detached = not headless if detach_process is None else detach_process
        client = _viewer_client().spawn(
            headless=headless,
            port=port,
            memory_limit=memory_limit,
            server_memory_limit=server_memory_limit,
            hide_welcome_screen=hide_welcome_screen,
            detach_process=detached,
            executable_name=executable_name,
            executable_path=executable_path or _beside_python(executable_name),
        )
        return cls._around(client, not detached)

    @classmethod
    def _around(cls, client: Any, kill_on_exit: bool) -> Self:
        self = cls.__new__(cls)
        self._client = client
        self._url = client.url
        self._owns_viewer = True
        self._kill_on_exit = kill_on_exit
        return self

    @property
    def url(self) -> str:
        """The ``rerun+http://…/proxy`` URL of the viewer."""
        return self._url

    def send_table(self, name: str, table: Any) -> None:
        """Show a table in the viewer. It replaces an earlier table with the same ``name``.

        ``table`` is a record batch, a list of them, a ``pyarrow.Table``, or a DataFrame of DataFusion.
        """
        if not isinstance(name, str):
            raise TypeError(f"argument 'name': expected a str, got {type(name).__name__!r}")
        if isinstance(table, pa.Table):
            table = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        self._client.send_table(name, table)

    def save_screenshot(self, file_path: str, view_id: str | UUID | None = None) -> None:
        """Save a screenshot of the viewer, or of one view, as ``file_path`` on the viewer's own machine.

        Raises ``TimeoutError`` if the viewer does not respond within 15 s, and ``ConnectionError`` if it cannot be
        reached.
        """
        self._client.save_screenshot(file_path, view_id)

    def open(self, urls: str | Sequence[str], *, navigate: bool = True) -> Any:
        """Open recordings, blueprints or catalog entries by their URLs or paths, like the viewer's own dialog.

        Returns Rerun's ``OpenResult``: the ids of the opened items, and the items that are still loading. Without
        ``navigate`` the viewer keeps its current view. This and the four methods below need rerun-sdk 0.41
        (``ImportError``).
        """
        return self._newer("open")(urls if isinstance(urls, str) else list(urls), navigate=navigate)

    def set_time(
        self,
        timeline: str | None = None,
        *,
        sequence: int | None = None,
        duration: Any = None,
        timestamp: Any = None,
        play_state: Literal["paused", "playing", "following"] | None = None,
        recording: str | None = None,
    ) -> None:
        """Move the time cursor of a recording, by default the active one, and play or pause it.

        Give at most one of ``sequence``, a number; ``duration``, in seconds or as a ``timedelta`` (also of numpy); and
        ``timestamp``, in seconds since 1970 or as a ``datetime``.
        """
        times = {"sequence": sequence, "duration": duration, "timestamp": timestamp}
        self._newer("set_time")(timeline, **times, play_state=play_state, recording=recording)

    def take_screenshot(self, view_id: str | UUID | None = None, *, max_size: int | None = None) -> bytes:
        """Return a screenshot of the viewer, or of one view, as PNG, with no side longer than ``max_size`` pixels."""
        picture: bytes = self._newer("take_screenshot")(view_id, max_size=max_size)
        return picture

    def get_blueprint(
        self,
        of: Literal["recording", "table"] | None = None,
        *,
        store_id: str | None = None,
        table_url: str | None = None,
    ) -> Any:
        """Return the blueprint that a recording or a table is shown with, as Rerun's ``Blueprint``."""
        return self._newer("get_blueprint")(of, store_id=store_id, table_url=table_url)

    def set_blueprint(
        self,
        blueprint: dict[str, Any],
        of: Literal["recording", "table"] | None = None,
        *,
        store_id: str | None = None,
        table_url: str | None = None,
    ) -> Any:
        """Show a recording or a table with a blueprint, in the form that :meth:`get_blueprint` gives.

        Return Rerun's ``BlueprintInfo``.
        """
        return self._newer("set_blueprint")(blueprint, of, store_id=store_id, table_url=table_url)

    def _newer(self, name: str) -> Callable[..., Any]:
        """A method of the SDK's client that older releases lack."""
        method = getattr(self._client, name, None)
        if method is None:
            raise ImportError(f"ViewerClient.{name} needs rerun-sdk 0.41 or newer", name="rerun")
        return cast("Callable[..., Any]", method)

    def quit(self, *, wait: bool = True, timeout: float = 5.0) -> None:
        """End the spawned viewer.

        If no viewer is running, only warn (``UserWarning``). With ``wait``, return when the viewer has ended. If it is
        still running after ``timeout`` seconds, it is killed (by rerun-sdk 0.41 and newer). Raises ``RuntimeError`` if
        it is still running after another ``timeout`` seconds.
        """
        if not self._owns_viewer:
            warnings.warn(
                "there is no viewer to stop: this client did not start one, or has already stopped it",
                UserWarning,
                stacklevel=2,
            )
            return
        if hasattr(self._client, "quit"):
            self._client.quit(wait=wait, timeout=timeout)
        else:
            self._client.close()
            if wait:
                _wait_for_silence(self._url, timeout)
        self._owns_viewer = False

    def close(self, urls: str | Iterable[str] | None = None, *, store_ids: Iterable[str] | None = None) -> list[str]:
        """End the spawned viewer like :meth:`quit`; with arguments, only close recordings in it.

        ``urls`` are the URLs from which recordings were loaded (``"current"`` for the active recording, ``"all"`` for
        every one), and ``store_ids`` are their ids. Returns the ids of the closed recordings. Needs rerun-sdk 0.41
        (``ImportError``).
        """
        if urls is None and store_ids is None:
            self.quit()
            return []
        if not hasattr(self._client, "quit"):
            raise ImportError("closing recordings needs rerun-sdk 0.41 or newer", name="rerun")
        given = urls if urls is None or isinstance(urls, str) else list(urls)
        closed: list[str] = self._client.close(given, store_ids=None if store_ids is None else list(store_ids))
        return closed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self._client, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._kill_on_exit and self._owns_viewer:
            self.quit()

    def __del__(self) -> None:
        if getattr(self, "_kill_on_exit", False) and getattr(self, "_owns_viewer", False):
            with contextlib.suppress(Exception):  # while Python ends, modules that this needs may be gone
                self.quit()

    def __repr__(self) -> str:
        return f"ViewerClient({self._url!r})"


def _viewer_client() -> Any:
    return rerun_sdk("ViewerClient").experimental.ViewerClient


def _wait_for_silence(url: str, timeout: float) -> None:
    """Return when no process listens at ``url`` any more."""
    parts = urlsplit(url)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex((parts.hostname, parts.port)):
                return
        time.sleep(0.02)
    raise RuntimeError(f"the viewer at {url} is still running {timeout:g} s after the request to stop")


def _check_url(url: str) -> None:
    if not isinstance(url, str):
        raise TypeError(f"argument 'url': expected a str, got {type(url).__name__!r}")
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or parts.path != "/proxy" or not parts.hostname:
        raise UsageError(f"{url!r} is not the URL of a viewer", hint=f"It looks like {DEFAULT_URL}.")


def _beside_python(name: str) -> str | None:
    """The program among the scripts of this Python's environment, if it is not on ``PATH``."""
    return None if shutil.which(name) else shutil.which(name, path=str(Path(sysconfig.get_path("scripts"))))
