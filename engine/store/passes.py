"""What a profile asks for after the first pass: columns apart by size, more passes, video by groups of pictures."""

from __future__ import annotations

from collections.abc import Iterable

from ..chunk import Chunk
from .insertion import ChunkInserter
from .pending import Pending
from .profile import OptimizationProfile, Settings
from .splitting import split_columns
from .video import rebatch_videos


def optimised(chunks: Iterable[Chunk], profile: OptimizationProfile | None = None) -> list[Chunk]:
    """The chunks that ``collect(optimize=profile)`` leaves of a whole recording, by ascending chunk id.

    Keeps every row (but for static chunks overwritten whole by newer ones), its id, times and values. With
    ``split_size_ratio`` a row may stand in several chunks, each with other components.

    Raises :class:`ReadError` for chunks whose row ids do not ascend, and as :func:`rebatch_videos` does.
    """
    settings = Settings.of(profile)
    store = ChunkInserter(settings)
    for chunk in chunks:
        store.insert(chunk)
    left = converge(store).chunks()
    return rebatch_videos(left, settings) if settings.gop_batching else left


def converge(store: ChunkInserter) -> ChunkInserter:
    """A store with the same rows: columns apart by size, then inserted anew as long as that leaves fewer chunks."""
    if store.settings.split_size_ratio is not None:
        store = _with_columns_apart(store, store.settings.split_size_ratio)
    for _ in range(store.settings.extra_passes):
        again = ChunkInserter(store.settings)
        for pending in store.in_order():
            again.adopt(pending.copy())
        if len(again) >= len(store):
            break
        store = again
    return store


def columns_apart(chunk: Chunk, ratio: float) -> list[Chunk]:
    """A chunk as :func:`split_columns` splits it; itself where there is nothing to split."""
    pieces = split_columns(chunk.data, ratio)
    return [chunk] if len(pieces) == 1 else [Chunk.from_data(piece) for piece in pieces]


def _with_columns_apart(store: ChunkInserter, ratio: float) -> ChunkInserter:
    apart = ChunkInserter(store.settings)
    for pending in store.in_order():
        whole = pending.chunks()
        for chunk in whole:
            pieces = columns_apart(chunk, ratio)
            if len(pieces) == len(whole) == 1:
                apart.adopt(pending.copy())
            else:
                for piece in pieces:
                    apart.adopt(Pending(piece))
    return apart
