"""How a file is divided into splits, from its heads and its summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePath

import numpy as np

from ...engine.limits import SPLIT_BYTES
from .file import McapFile
from .file_level import told_by
from .file_level.emission import FILE_LEVEL
from .indexed import Piece, UnusableIndexError, check_channels, describes_robots, indexed_pieces
from .layout import Layout
from .options import McapOptions
from .split import McapSplit
from .times import TimeRange

URDF = "urdf"


def plan_splits(file: McapFile, layout: Layout, options: McapOptions) -> list[McapSplit]:
    """Divide the data section into runs of chunks of about ``SPLIT_BYTES`` uncompressed.

    A file whose index is missing, incomplete or wrong is one split, read from front to end. The splits follow each
    other without a gap, so that nothing is lost whatever the index says; they depend on the file and the options alone.
    With a range of times, stretches without a chunk that overlaps it are left out.

    The CRC of the whole data section can be checked by a reader of the whole only. A file is divided, and that check
    left out, where every message lies in a chunk with a CRC of its own (or the writer computed none for the section).

    Chunks of the file level come first where the summary tells all of them, else behind the messages, in one split.
    """
    summary = layout.summary
    if (
        summary is None
        or layout.data_crc is None
        or sum(entry.uncompressed_size for entry in summary.chunks) <= SPLIT_BYTES
    ):
        return [whole(file, layout, options)]
    try:
        pieces = indexed_pieces(file, layout, options)
        check_channels(summary)
    except UnusableIndexError:
        return [whole(file, layout, options)]
    return _cut(file, layout, options, pieces)


def whole(file: McapFile, layout: Layout, options: McapOptions) -> McapSplit:
    """The file as one split."""
    told = told_by(layout.summary)
    selected = _selected(FILE_LEVEL, options)
    late = tuple(d for d in selected if d not in told)
    split = McapSplit(
        PurePath(file.path).name,
        layout.data_end - layout.data_start,
        layout.data_start,
        layout.data_end,
        check_data_crc=layout.data_crc != 0,
        times=_times_to_skip_by(layout, options, late),
        before=tuple(d for d in selected if d in told),
        after=(*late, *_selected((URDF,), options)),
        is_whole=True,
    )
    if options.reads_messages or late or (split.after and _may_describe_robots(layout, options)):
        return split
    return replace(split, end=split.start, check_data_crc=False, is_whole=False)


def _may_describe_robots(layout: Layout, options: McapOptions) -> bool:
    summary = layout.summary
    return summary is None or "schema" not in told_by(summary) or describes_robots(summary, options)


def _cut(file: McapFile, layout: Layout, options: McapOptions, pieces: list[Piece]) -> list[McapSplit]:
    """Runs of equal uncompressed size, as near as chunk borders allow."""
    before, after = _selected(FILE_LEVEL, options), _selected((URDF,), options)
    runs = _runs(pieces) if options.reads_messages else []
    if len(runs) == 1 and len(runs[0]) == len(pieces):
        return [whole(file, layout, options)]
    ends = {piece.offset: end.offset for piece, end in pairwise(pieces)}
    number = len(runs)
    name = PurePath(file.path).name
    splits = []
    for i, run in enumerate(runs):
        start = layout.data_start if run[0] is pieces[0] else run[0].offset
        end = ends.get(run[-1].offset, layout.data_end)
        counts = [piece.messages for piece in run if piece.is_wanted]
        splits.append(
            McapSplit(
                f"{name} [{i + 1}/{number}]",
                end - start,
                start,
                end,
                chunks=len(run),
                messages=None if None in counts else sum(c for c in counts if c is not None),
                times=options.times,
            )
        )
    if not splits:
        splits = [McapSplit(name, 0, layout.data_start, layout.data_start)]
    splits[0] = replace(splits[0], before=before)
    splits[-1] = replace(splits[-1], after=after)
    return splits


def _runs(pieces: list[Piece]) -> list[list[Piece]]:
    """Neighbouring pieces of about ``SPLIT_BYTES`` together, without stretches of which nothing is wanted."""
    total = np.cumsum([piece.uncompressed if piece.is_wanted else 0 for piece in pieces])
    count = max(1, -(-int(total[-1]) // SPLIT_BYTES))
    wanted = total[-1] * np.arange(1, count) / count
    firsts = [0, *dict.fromkeys(int(i) for i in np.searchsorted(total, wanted) + 1 if i < len(pieces)), len(pieces)]
    runs = (pieces[first:last] for first, last in pairwise(firsts))
    return [trimmed for run in runs if (trimmed := _trimmed(run))]


def _trimmed(run: list[Piece]) -> list[Piece]:
    wanted = [i for i, piece in enumerate(run) if piece.is_wanted]
    return run[wanted[0] : wanted[-1] + 1] if wanted else []


def _selected(decoders: Sequence[str], options: McapOptions) -> tuple[str, ...]:
    return tuple(d for d in decoders if d in options.decoders)


def _times_to_skip_by(layout: Layout, options: McapOptions, late: Sequence[str]) -> TimeRange | None:
    """The range of times if nothing is needed of the chunks outside of it.

    The summary repeats every channel then, and tells all that the file level needs but what is in ``late``.
    """
    summary = layout.summary
    if options.times is None or summary is None or late:
        return None
    try:
        check_channels(summary)
    except UnusableIndexError:
        return None
    return None if describes_robots(summary, options) else options.times
