"""A job: sources, and a plan that readers share. It does not need torch."""

from __future__ import annotations

import os
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import xxhash

from ..errors import ChunkmillError, ReadWarning, UsageError
from ..limits import MIB
from ..query import SegmentFigures
from ..task_context import Fetches, TaskContext
from .fields import Field, FixedRateSampling, RowSampling, VideoFrameDecoder
from .normalisation import Normalisation
from .plan import (
    FETCHED,
    RUN,
    Blocks,
    BlockShuffle,
    Epoch,
    Integers,
    NoShuffle,
    SamplePlan,
    SampleShuffle,
    ShuffleStrategy,
    Steps,
    check_mixture,
)
from .samples import BLOCK, CACHE_BYTES, Sample, SampleIndex, SampleReader
from .source import DataSource


@dataclass(frozen=True)
class Mixture:
    """Several sources with fixed shares of an epoch.

    Parameters
    ----------
    sources
        The sources, by name.
    weights
        The share of each source, by the same names. The sum need not be 1.
    epoch_size
        The number of samples of an epoch. Shares are exact to one sample.

    Raises
    ------
    ValueError
        The names differ, a weight is not positive and finite, or the size is not a whole number.
    """

    sources: Mapping[str, DataSource]
    weights: Mapping[str, float]
    epoch_size: int

    def __post_init__(self) -> None:
        if set(self.sources) != set(self.weights) or not self.sources:
            raise UsageError(
                f"a mixture needs a weight for each source: sources {sorted(self.sources)}, "
                f"weights {sorted(self.weights)}"
            )
        check_mixture(self.weights.values(), self.epoch_size)


class ReaderShare(NamedTuple):
    """A reader's share of an epoch: from ``start`` on, its worker's steps among the steps of its rank."""

    epoch: int = 0
    start: int = 0
    batch_size: int = 32
    rank: int = 0
    world: int = 1
    drop_last: bool = False
    worker: int = 0
    workers: int = 1
    done: int = 0
    """The number of this worker's steps to leave out at the beginning."""

    def steps(self, total: int) -> Steps:
        """The steps of the rank."""
        return Steps(total, self.start, self.batch_size, self.rank, self.world, drop_last=self.drop_last)


def decoders(workers: int) -> int:
    """Return the number of decoding threads of each worker."""
    return max(1, min(os.cpu_count() or 1, 4) // workers)


class PassFigures(NamedTuple):
    """Figures of a pass over samples, in one process and without a trainer.

    >>> figures = PassFigures(100, 0, 0.5, 0.1, 7, 3000, 2, 1500, 10, 100, 50)
    >>> figures.samples_per_second, figures.fetched_per_byte, figures.decoded_per_frame
    (200.0, 2.0, 2.0)
    """

    samples: int
    skipped: int
    """The number of samples that were skipped because a field had no value."""
    seconds: float
    first_seconds: float
    """Seconds until the first sample."""
    requests: int
    """The number of file reads and object store requests."""
    fetched_bytes: int
    chunks: int
    """The number of chunks with values of the samples."""
    chunk_bytes: int
    decoded_groups: int
    """The number of decoded groups of pictures. A group that was decoded twice counts twice."""
    decoded_frames: int
    used_frames: int
    """The number of frames in the samples."""

    @property
    def samples_per_second(self) -> float:
        """Samples a second, from the first to the last."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def fetched_per_byte(self) -> float | None:
        """The fetched bytes per byte of the chunks: more than 1 if chunks are read again."""
        return self.fetched_bytes / self.chunk_bytes if self.chunk_bytes else None

    @property
    def decoded_per_frame(self) -> float | None:
        """The decoded frames per frame in the samples."""
        return self.decoded_frames / self.used_frames if self.used_frames else None


@dataclass(frozen=True)
class TrainingJob:
    """Pinned sources, and the plan of their samples. The object can be pickled."""

    indexes: tuple[SampleIndex, ...]
    plan: SamplePlan
    cache_bytes: int = CACHE_BYTES
    names: tuple[str, ...] = ()
    """The names of the sources of a mixture."""
    normalisation: Normalisation | None = None

    @classmethod
    def of(
        cls,
        source: DataSource | Mixture,
        index: str,
        fields: Mapping[str, Field],
        *,
        timeline_sampling: FixedRateSampling | RowSampling | None = None,
        shuffle: ShuffleStrategy | None = None,
        seed: int = 0,
        run: int = RUN,
        block_size: int = BLOCK,
        cache_bytes: int = CACHE_BYTES,
        normalisation: Normalisation | None = None,
        by_chunks: bool = True,
    ) -> TrainingJob:
        """Create a job: find all samples and their order.

        With ``by_chunks``, :class:`BlockShuffle` keeps the samples of a chunk near each other. Raises the errors of
        :meth:`SampleIndex.build`.
        """
        unknown = sorted(set(normalisation.modes) - set(fields)) if normalisation is not None else []
        if unknown:
            raise UsageError(f"normalisation: there is no field {unknown[0]!r}")
        sources = source.sources.values() if isinstance(source, Mixture) else [source]
        has_video = any(isinstance(field.decode, VideoFrameDecoder) for field in fields.values())
        strategy = shuffle or (BlockShuffle() if has_video else SampleShuffle())
        by_chunks = by_chunks and isinstance(strategy, BlockShuffle)
        indexes = tuple(
            SampleIndex.build(
                some, index, fields, timeline_sampling=timeline_sampling, block_size=block_size, by_chunks=by_chunks
            )
            for some in sources
        )
        shapes = {(some.episodes is None, *some.episode_columns) for some in sources}
        if len(shapes) > 1:
            raise UsageError(
                "all sources of a mixture must have episodes with the same episode_columns, or none may have episodes"
            )
        if not any(map(len, indexes)):
            raise UsageError(
                "there are no samples: no segment of the source has the index, or all are shorter than the windows "
                "of the fields"
            )
        if len({some.source.kind for some in indexes}) > 1:
            raise UsageError(f"the index {index!r} has different kinds in the sources of the mixture")
        weights = tuple(source.weights[name] for name in source.sources) if isinstance(source, Mixture) else None
        size = source.epoch_size if isinstance(source, Mixture) else None
        firsts = np.cumsum([0, *map(len, indexes)]).tolist()
        blocks = tuple(
            Blocks(some.blocks.starts + first, some.blocks.groups) for some, first in zip(indexes, firsts, strict=False)
        )
        names = tuple(source.sources) if isinstance(source, Mixture) else ()
        return cls(indexes, SamplePlan(blocks, strategy, seed, run, weights, size), cache_bytes, names, normalisation)

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Digests of the contents and the order of the samples. They must be the same when a job continues."""
        keeps_blocks = not isinstance(self.plan.strategy, (NoShuffle, SampleShuffle))
        blocks = [
            xxhash.xxh3_64_hexdigest(some.starts.tobytes() + (b"" if some.groups is None else some.groups.tobytes()))
            for some in self.plan.blocks
            if keeps_blocks
        ]
        return {
            "blocks": blocks,
            "sources": [index.source.digest for index in self.indexes],
            "samples": [len(index) for index in self.indexes],
            "order": repr((self.plan.strategy, self.plan.weights, self.plan.epoch_size)),
            "seed": self.plan.seed,
            "statistics": None if self.normalisation is None else self.normalisation.version,
        }

    @property
    def versions(self) -> list[list[Any] | None]:
        """The dataset and the version of each source, as JSON data."""
        return [None if index.source.version is None else [*index.source.version] for index in self.indexes]

    def with_run(self, run: int) -> TrainingJob:
        """Return the same job, with ``run`` consecutive places that readers take at a time."""
        return self if run == self.plan.run else replace(self, plan=replace(self.plan, run=run))

    def place(self, sample: int) -> tuple[str, int]:
        """Return the segment and the index value of a sample, given its number across all sources."""
        left = sample
        for index in self.indexes:
            if 0 <= left < len(index):
                return index.place(left)
            left -= len(index)
        raise IndexError(f"there are {sum(map(len, self.indexes)):,} samples, numbered from 0, but no sample {sample}")

    def measure(self, epoch: int = 0, limit: int | None = None) -> PassFigures:
        """Read an epoch, or its first samples, in this process, and measure its time, bytes and decoded frames.

        Raises ``ReadError`` for damaged data, and ``ValueError`` for a field without a value.
        """
        order = self.plan.epoch(epoch)
        places = np.arange(len(order) if limit is None else min(limit, len(order)))
        fields = self.indexes[0].fields.items()
        videos = [(name, f.window is not None) for name, f in fields if isinstance(f.decode, VideoFrameDecoder)]
        fetches, needed, reader = Fetches(), SegmentFigures(), JobReader(self, decoders(1))
        began = time.perf_counter()
        first, samples, used = 0.0, 0, 0
        with TaskContext(fetches, needed).entered(), closing(reader):
            for sample in reader.in_order(order, places):
                first = first or time.perf_counter() - began
                if sample is not None:
                    samples += 1
                    used += sum(len(sample[name]) if has_window else 1 for name, has_window in videos)
        sizes = [size for layers in needed.chunks.values() for some in layers.values() for size in some.values()]
        return PassFigures(
            samples,
            len(places) - samples,
            time.perf_counter() - began,
            first,
            fetches.requests,
            fetches.bytes,
            len(sizes),
            sum(sizes),
            reader.decoded_groups,
            reader.decoded_frames,
            used,
        )


class JobReader:
    """Reads a job's samples in the order of its plan.

    It is an error if a field's values have different types or dimensions in two sources of a mixture, or, with
    ``stacked``, different shapes.
    """

    def __init__(self, job: TrainingJob, threads: int = 1, *, stacked: bool = False) -> None:
        self._job = job
        self._stacked = stacked
        self._forms: dict[str, tuple[int, Any]] = {}
        self._compared: set[int] = set()
        self._owner = os.getpid()
        self._firsts = np.cumsum([0, *map(len, job.indexes)])
        self._readers = [SampleReader(index, job.cache_bytes, threads) for index in job.indexes]
        self._blocks = Blocks(np.unique(np.concatenate([blocks.starts for blocks in job.plan.blocks])))

    @property
    def is_usable(self) -> bool:
        """Whether this process created the reader: threads and open files do not work in a forked process."""
        return self._owner == os.getpid()

    @property
    def decoded_frames(self) -> int:
        """The number of decoded video frames."""
        return sum(reader.decoded_frames for reader in self._readers)

    @property
    def missing(self) -> Counter[str]:
        """The numbers of samples that were left out, by the field without a value."""
        return sum((reader.missing for reader in self._readers), Counter())

    @property
    def decoded_groups(self) -> int:
        """The number of groups of pictures from which frames were decoded."""
        return sum(reader.decoded_groups for reader in self._readers)

    def close(self) -> None:
        """Close open files."""
        for reader in self._readers:
            reader.close()

    def read(self, samples: Integers) -> dict[int, Sample]:
        """Return samples by their numbers across all sources; see :meth:`SampleReader.read`."""
        return self.begin(samples)()

    def begin(self, samples: Integers) -> Callable[[], dict[int, Sample]]:
        """Begin to read and decode samples; see :meth:`SampleReader.begin`."""
        owners = np.searchsorted(self._firsts, samples, side="right") - 1
        begun = [
            (owner, self._readers[owner].begin(samples[owners == owner] - self._firsts[owner]))
            for owner in np.unique(owners).tolist()
        ]

        def finish() -> dict[int, Sample]:
            made: dict[int, Sample] = {}
            for owner, some in begun:
                first = int(self._firsts[owner])
                read = some()
                if len(self._readers) > 1 and owner not in self._compared and read:
                    self._compare(owner, next(iter(read.values())))
                if self._job.normalisation is not None:
                    read = {n: self._job.normalisation(sample) for n, sample in read.items()}
                made.update({n + first: {**sample, "sample": n + first} for n, sample in read.items()})
            return made

        return finish

    def _compare(self, owner: int, sample: Sample) -> None:
        """Raise ``UsageError`` if the first sample of a source differs in form from those of earlier sources."""
        self._compared.add(owner)
        for name, value in sample.items():
            if not isinstance(value, np.ndarray):
                continue
            form = value.dtype, value.shape if self._stacked and value.dtype != object else value.ndim
            other, expected = self._forms.setdefault(name, (owner, form))
            if form != expected:
                names = self._job.names or [str(number) for number in range(len(self._readers))]
                shown = [
                    f"{dtype} {shape} in {names[at]!r}" for at, (dtype, shape) in ((other, expected), (owner, form))
                ]
                what = "types and shapes" if self._stacked else "types and numbers of dimensions"
                raise UsageError(
                    f"the sources of a mixture have different {what} of the field {name!r}: {' and '.join(shown)}",
                    hint="Set `size` or `dtype` of the decoders, or choose values by `select`.",
                )

    def batches(self, part: ReaderShare) -> Iterator[list[Sample]]:
        """Yield the samples of each step. In each sample, ``is_repeat`` is True for a repeat."""
        for step in self.steps(part):
            yield [sample for sample in step if sample is not None]

    def steps(self, part: ReaderShare) -> Iterator[list[Sample | None]]:
        """Yield the same as :meth:`batches`, but None for each sample that is left out."""
        epoch = self._job.plan.epoch(part.epoch)
        steps = part.steps(len(epoch))
        places, repeats, sizes = steps.of(range(part.worker + part.done * part.workers, len(steps), part.workers))
        samples = self.in_order(epoch, places)
        position = skipped = 0
        for size in sizes:
            batch = []
            for _ in range(size):
                sample = next(samples)
                if sample is None:
                    skipped += 1
                else:
                    sample["is_repeat"] = bool(repeats[position] or epoch.is_repeat[places[position]])
                batch.append(sample)
                position += 1
            yield batch
        if skipped:
            text = f"{skipped:,} of {len(places):,} samples were skipped, because a field has no value there"
            warnings.warn(ReadWarning(text), stacklevel=2)

    def in_order(self, epoch: Epoch, places: Integers) -> Iterator[Sample | None]:
        """Yield the sample of each place, or None if it is skipped.

        A block is read for all of its samples within the horizon of the strategy. In random order, more and more places
        are read at once, up to a part of the cached bytes, so that some have the same block. The next samples are read
        and decoded while the previous ones are used.
        """
        numbers = epoch.samples[places]
        strategy, run = self._job.plan.strategy, self._job.plan.run
        ahead: _Ahead
        if isinstance(strategy, SampleShuffle):
            ahead = _Mixed(self, numbers, run, max(self._job.cache_bytes // _SHARE, _LEAST_BYTES))
        else:
            owners = np.searchsorted(self._firsts, self._blocks.starts[:-1], side="right") - 1
            horizons = np.array(self._job.plan.horizons)[owners]
            ahead = _ByBlocks(self, numbers, self._blocks.of(numbers), places, run, horizons)
        for position in range(len(places)):
            while position not in ahead.ready:
                if not ahead.waiting:
                    ahead.begin()
                ahead.finish()
            if not ahead.waiting and position >= run:
                ahead.begin()
            yield ahead.ready.pop(position)


class _Ahead(ABC):
    """Samples that are read in advance, initially for ``first`` places."""

    def __init__(self, reader: JobReader, numbers: Integers, first: int) -> None:
        self._reader = reader
        self._numbers = numbers
        self._count = min(first, FETCHED)
        self._next = 0
        self.ready: dict[int, Sample | None] = {}
        self.waiting: list[tuple[list[int], Callable[[], dict[int, Sample]]]] = []

    @abstractmethod
    def begin(self) -> None:
        """Begin to read the next samples."""

    def _read(self, positions: Integers) -> None:
        try:
            finish = self._reader.begin(self._numbers[positions])
        except ChunkmillError as error:
            finish = _failed(error)  # raised when its places are reached
        self.waiting.append((positions.tolist(), finish))

    def finish(self) -> None:
        """Wait for the oldest unfinished read."""
        positions, finish = self.waiting.pop(0)
        samples = finish()
        for position in positions:
            sample = samples.get(int(self._numbers[position]))
            self.ready[position] = None if sample is None else dict(sample)


class _ByBlocks(_Ahead):
    """Samples that are read by blocks: each block of the next places, for its samples within the source's horizon."""

    def __init__(
        self, reader: JobReader, numbers: Integers, block: Integers, places: Integers, first: int, horizons: Integers
    ) -> None:
        super().__init__(reader, numbers, first)
        self._block, self._places, self._horizons = block, places, horizons
        self._by_block = np.argsort(block, kind="stable")
        self._sorted = block[self._by_block]
        self._begun = np.zeros(len(numbers), np.bool_)

    def begin(self) -> None:
        while self._next < len(self._begun) and self._begun[self._next]:
            self._next += 1
        wanted: list[Integers] = []
        for some in np.unique(self._block[self._next : self._next + self._count]).tolist():
            low, high = np.searchsorted(self._sorted, [some, some + 1])
            of_block = self._by_block[low:high]
            of_block = of_block[~self._begun[of_block]]
            if len(of_block):
                wanted.append(of_block[self._places[of_block] < self._places[of_block[0]] + self._horizons[some]])
        self._count = FETCHED
        if wanted:
            positions = np.concatenate(wanted)
            self._begun[positions] = True
            self._read(positions)


class _Mixed(_Ahead):
    """Samples in random order: each read has four times as many places as the previous one."""

    def __init__(self, reader: JobReader, numbers: Integers, first: int, most_bytes: int) -> None:
        super().__init__(reader, numbers, first)
        self._most_bytes = most_bytes

    def begin(self) -> None:
        positions = np.arange(self._next, min(self._next + self._count, len(self._numbers)))
        if len(positions):
            self._next += len(positions)
            self._read(positions)

    def finish(self) -> None:
        """Wait for the oldest unfinished read; then read more at a time if samples are small."""
        super().finish()
        some = next((sample for sample in self.ready.values() if sample is not None), {})
        size = _SAMPLE_BYTES + sum(getattr(value, "nbytes", 0) for value in some.values())
        self._count = max(FETCHED, min(4 * self._count, _MOST_AHEAD, self._most_bytes // size))


_MOST_AHEAD: Final = 8192
_SHARE: Final = 4
"""The divisor of the cached bytes for samples that are read at once; as many are in use meanwhile."""

_LEAST_BYTES: Final = 16 * MIB
"""The bytes that samples read at once may always take."""

_SAMPLE_BYTES: Final = 1024
"""The bytes of a sample besides its values."""


def _failed(error: ChunkmillError) -> Callable[[], dict[int, Sample]]:
    def fail() -> dict[int, Sample]:
        raise error

    return fail
