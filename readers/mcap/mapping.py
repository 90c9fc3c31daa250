"""Decoded messages made into what they mean: lenses over one channel's chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...engine.chunk import Chunk, ChunkData, Timeline, TimelineKind, mint
from ...engine.errors import LensError
from ...lenses import DeriveLens, LensOutput, LensSet
from .options import McapOptions

LOG_TIME: Final = "message_log_time"
PUBLISH_TIME: Final = "message_publish_time"

_MAX_SINGLE_FAULTS: Final = 32
"""Messages of one chunk that are found to fail one by one; beyond, what is left of their part fails as a whole."""

_NO_SUCH_MEANING: Final = "it has values that have no such meaning"

_LATEST: Final = 2**63 - 1

Rows = npt.NDArray[np.int64]


class Mapping:
    """Applies lenses to the chunks of decoded messages of one channel.

    A message that the lenses are not for, or that they fail on, stays as it was decoded, and is counted; those that
    the lenses fail on come in a chunk of their own. What a lens says of all messages comes once.
    """

    def __init__(self, lenses: Sequence[DeriveLens], options: McapOptions) -> None:
        self._lenses = _lens_set(tuple(lenses))
        self._otherwise = next((lens.otherwise for lens in lenses if lens.otherwise), _NO_SUCH_MEANING)
        self._options = options
        self._constants: list[Chunk] = []
        self.unmapped = 0
        self.reason = ""

    def chunks(self, chunk: Chunk) -> Iterator[Chunk]:
        """What comes of a chunk: what the messages mean, and those that stayed as they are."""
        outputs = list(self._lenses.outputs(chunk))
        error = _error_in(outputs)
        if error is None:
            yield from self._made(chunk, outputs)
            return
        good, bad = self._parted(chunk.data, error)
        count = sum(map(len, bad))
        if count == chunk.num_rows:
            self._count(count, error)
            yield chunk
            return
        for rows in self._joined(chunk.data, good):
            part = Chunk.from_data(chunk.data.take(rows))
            yield from self._made(part, list(self._lenses.outputs(part)))
        if bad:
            self._count(count, error)
            yield Chunk.from_data(replace(chunk.data.take(np.concatenate(bad)), chunk_id=mint()))

    def _parted(self, data: ChunkData, error: LensError) -> tuple[list[Rows], list[Rows]]:
        """The messages (int64, ascending) that the lenses work on, and those that they fail on, with ``error`` for all.

        Where they fail on no message at all just so, it is for the type, and they fail on all.
        """
        every = np.arange(data.num_rows)
        without = self._error_on(data, every[:0])
        if without is not None and without.message == error.message:
            return [], [every]
        good: list[Rows] = []
        bad: list[Rows] = []
        open_parts = [every]
        while open_parts:
            rows = open_parts.pop()
            if rows is not every and self._error_on(data, rows) is None:
                good.append(rows)
            elif len(rows) == 1 or len(bad) >= _MAX_SINGLE_FAULTS:
                bad.append(rows)
            else:
                half = len(rows) // 2
                open_parts += [rows[half:], rows[:half]]
        return good, bad

    def _joined(self, data: ChunkData, parts: list[Rows]) -> list[Rows]:
        """The parts as one, unless the lenses fail on all of them together, as where columns would grow too long."""
        whole = np.concatenate(parts)
        return [whole] if len(parts) == 1 or self._error_on(data, whole) is None else parts

    def _error_on(self, data: ChunkData, rows: Rows) -> LensError | None:
        return _error_in(self._lenses.outputs(Chunk.from_data(data.take(rows))))

    def _made(self, chunk: Chunk, outputs: list[LensOutput]) -> Iterator[Chunk]:
        inputs = self._lenses.inputs
        for output in outputs:
            made = output.chunk
            if made is None or (output.constant and self._seen(made)):
                continue
            if any(c.descriptor.component in inputs for c in made.data.components):
                self._count(made.num_rows, None)
            yield made if output.constant or made is chunk else _timed(made, self._options)

    def _seen(self, constant: Chunk) -> bool:
        for known in self._constants:
            if (known.entity_path, known.data.components) == (constant.entity_path, constant.data.components):
                return True
        self._constants.append(constant)
        return False

    def _count(self, messages: int, error: LensError | None) -> None:
        self.unmapped += messages
        if not self.reason:
            self.reason = self._otherwise if error is None else error.message


def _error_in(outputs: Iterable[LensOutput]) -> LensError | None:
    return next((error for output in outputs for error in output.errors), None)


def shifted(ticks: np.ndarray, options: McapOptions) -> np.ndarray:
    """Times (int64, ns) with the reader's offset, saturating."""
    if options.offset_ns == 0:
        return ticks
    room = _LATEST - np.maximum(ticks, 0) if options.offset_ns > 0 else -_LATEST - 1 - np.minimum(ticks, 0)
    bounded = (np.minimum if options.offset_ns > 0 else np.maximum)(options.offset_ns, room)
    moved: np.ndarray = ticks + bounded
    return moved


def _timed(chunk: Chunk, options: McapOptions) -> Chunk:
    """The timelines that came of the messages as the reader was asked for them: of its type, with its offset."""
    data = chunk.data
    kind = TimelineKind.TIMESTAMP if options.timeline_type == "timestamp" else TimelineKind.DURATION
    if options.offset_ns == 0 and all(t.kind is kind for t in data.timelines):
        return chunk
    return Chunk.from_data(replace(data, timelines=tuple(_line(t, kind, options) for t in data.timelines)))


def _line(line: Timeline, kind: TimelineKind, options: McapOptions) -> Timeline:
    if line.name in (LOG_TIME, PUBLISH_TIME) or line.kind is TimelineKind.SEQUENCE:
        return line
    return Timeline(line.name, kind, pa.array(shifted(line.ticks, options)).view(kind.arrow_type))


def entities_of(lenses: Sequence[DeriveLens], entity_path: str) -> set[str]:
    """The entities at which messages at ``entity_path`` may come out, mapped or not."""
    derives = _lens_set(tuple(lenses)).compiled.derives if lenses else ()
    return {entity_path, *(lens.target(entity_path) for lens in derives)}


@lru_cache(maxsize=256)
def _lens_set(lenses: tuple[DeriveLens, ...]) -> LensSet:
    """The lenses, compiled once in a process: parts of files have the same channels."""
    return LensSet(lenses, "forward_unmatched")
