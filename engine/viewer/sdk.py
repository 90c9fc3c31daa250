"""rerun-sdk: the one place that imports it, and chunks sent into a live recording of its."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from ..chunk import Chunk
from ..errors import UsageError
from ..store import ChunkStore, LazyStore
from ..stream import LazyChunkStream

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


def send_chunks(
    chunks: Chunk | LazyChunkStream | LazyStore | ChunkStore | Iterable[Chunk], *, recording: Any | None = None
) -> None:
    """Send chunks into a recording stream of rerun-sdk, and return when each is in its queue.

    A stream is run for it, a lazy store loaded, one chunk in memory at a time. Ids of chunks and rows stay; the
    application and recording ids are those of ``recording``.

    Guarantee: chunks are queued in their order. Where something fails, those before it were sent. A chunk of rows and
    times without any component, which no recording stream takes, is left out with a warning.

    Parameters
    ----------
    chunks
        A chunk, an iterable of chunks, a stream, or a store.
    recording
        The ``rerun.RecordingStream``; by default the active one.

    Raises
    ------
    ImportError
        rerun-sdk is not installed: ``pip install "chunkmill[viewer]"``.
    TypeError
        Something is no chunk, or ``recording`` no recording stream.
    UsageError
        There is no active recording; nothing would arrive anywhere.
    ReadError
        A source of the stream or store is damaged.
    """
    rerun = rerun_sdk("send_chunks")
    if recording is None:
        recording = rerun.get_data_recording()
        if recording is None:
            raise UsageError("there is no active recording", hint="Call rr.init(…), or pass recording=….")
    if not isinstance(recording, rerun.RecordingStream):
        raise TypeError(f"argument 'recording': a rerun.RecordingStream was expected, got {_name(recording)}")
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
            text = "has rows but no component; a recording stream takes no such chunk, so it was left out"
            warnings.warn(f"{chunk.entity_path}: {chunk.id} {text}", UserWarning, stacklevel=2)
        return
    theirs = make(chunk.to_record_batch())
    yield from theirs if isinstance(theirs, list) else (theirs,)  # before 0.34 it gives one chunk


def _name(thing: object) -> str:
    return repr(type(thing).__name__)
