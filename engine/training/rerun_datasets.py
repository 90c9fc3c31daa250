"""Datasets with the names and arguments of Rerun's loader."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ..errors import MissingExtraError, ReadWarning, UsageError, extra_command
from .datasets import IterableSamples, MapSamples, as_tensors, collated
from .episodes import EPISODE
from .fields import Field, Fill, FixedRateSampling
from .job import JobReader, TrainingJob
from .manifest import ListedPlan, Manifest, job_like_rerun
from .plan import Blocks, Integers, SampleShuffle, ShuffleStrategy
from .samples import BLOCK, Sample, SampleIndex
from .source import DataSource

try:
    from torch.utils.data import Dataset, IterableDataset
except ImportError as failure:
    raise MissingExtraError("datasets of PyTorch need torch", hint=extra_command("training")) from failure

_MOST_SKIPPED: Final = 1000


def _job(
    source: DataSource,
    index: str,
    fields: Mapping[str, Field],
    timeline_sampling: FixedRateSampling | None,
    fetch_block_size: int,
    shuffle: ShuffleStrategy | None,
    fill: Fill = "skip",
) -> TrainingJob:
    own = shuffle if callable(getattr(shuffle, "epoch_order", None)) else None
    job = job_like_rerun(
        source,
        index,
        fields,
        timeline_sampling=timeline_sampling,
        fetch_block_size=fetch_block_size,
        shuffle=SampleShuffle() if own is not None or shuffle is None else shuffle,
        fill=fill,
    )
    if timeline_sampling is not None and not job.indexes[0].is_time:
        text = f"{timeline_sampling} has no effect: the index {index!r} is a sequence, with a sample at each number"
        warnings.warn(ReadWarning(text), stacklevel=3)
    if own is None:
        return job
    return replace(job, plan=replace(job.plan, strategy=_OwnOrder(own, job.indexes[0], fetch_block_size)))


@dataclass(frozen=True, repr=False)
class _OwnOrder:
    """The order of a user-defined strategy, which has ``epoch_order`` like Rerun's strategies."""

    strategy: Any
    samples: SampleIndex
    fetch_block_size: int

    def __repr__(self) -> str:
        return repr(self.strategy)

    def order(self, blocks: Blocks, run: int, *seeds: int) -> Integers:  # noqa: ARG002
        """Return all samples in the strategy's order. The seed is the number of the epoch.

        Raises ``ValueError`` unless the order has each sample once.
        """
        made = self.strategy.epoch_order(self.samples, fetch_block_size=self.fetch_block_size, seed=seeds[-1])
        order: Integers = np.asarray(made[0], np.int64)
        if not np.array_equal(np.sort(order), np.arange(len(self.samples))):
            raise UsageError(f"{self!r}: epoch_order must have each of {len(self.samples):,} samples exactly once")
        return order

    def horizon(self, blocks: Blocks, run: int) -> int:  # noqa: ARG002
        """Return the number of places that are read at once."""
        return max(self.fetch_block_size, run)


class RerunIterableDataset(IterableSamples):
    """Single samples like those of Rerun's class with this name, for a ``DataLoader``, which makes batches.

    A sample is a dict of only its fields. Samples without a value of a field are left out, with a warning; windows stay
    within the segment. The order depends only on the epoch, and stays the same until :meth:`set_epoch` sets another.
    Each sample comes once over all ranks and workers. Ranks may differ in length, by less than the number of ranks plus
    the samples that are left out.

    Parameters
    ----------
    source
        The source of the samples.
    index
        The index (timeline) on which samples are taken.
    fields
        The fields of a sample by their names.
    timeline_sampling
        The times of samples, if the index has times.
    fetch_block_size
        The least number of samples that are read together.
    shuffle_strategy
        The order, by default :class:`SampleShuffle`. Your own strategy needs Rerun's method ``epoch_order``.
    decode_threads
        Threads of each process that decode pictures and video.
    max_consecutive_skipped_samples
        How many samples in a row one reader may leave out. None: any number.

    Raises
    ------
    TypeError, ValueError
        As in :meth:`SampleIndex.build`, and for a negative number.
    """

    def __init__(
        self,
        source: DataSource,
        index: str,
        fields: Mapping[str, Field],
        *,
        timeline_sampling: FixedRateSampling | None = None,
        fetch_block_size: int = BLOCK,
        shuffle_strategy: ShuffleStrategy | None = None,
        decode_threads: int | None = None,
        max_consecutive_skipped_samples: int | None = _MOST_SKIPPED,
    ) -> None:
        if (max_consecutive_skipped_samples or 0) < 0:
            raise UsageError(
                f"max_consecutive_skipped_samples: expected 0 or more, got {max_consecutive_skipped_samples}"
            )
        job = _job(source, index, fields, timeline_sampling, fetch_block_size, shuffle_strategy)
        self.begin_with(job, decode_threads, max_consecutive_skipped_samples)

    @classmethod
    def from_manifest(
        cls,
        manifest: Manifest,
        source: DataSource,
        fields: Mapping[str, Field],
        *,
        decode_threads: int | None = None,
    ) -> RerunIterableDataset:
        """Read the samples of a manifest in its order, in every epoch, by any number of ranks and workers.

        A required field without a value raises ``RuntimeError``.

        Raises
        ------
        ValueError
            The source has other contents than the source of the manifest.
        """
        made = cls.__new__(cls)
        made.begin_with(manifest.job(source, fields), decode_threads, None)
        made.required = [name for name in manifest.metadata.required_fields if name in fields]
        return made

    def begin_with(self, job: TrainingJob, decode_threads: int | None, most_skipped: int | None) -> None:
        """Read the samples of a job."""
        IterableDataset.__init__(self)
        self._begin_job(job, None, (None, None), False, decode_threads, collated)
        self._most_skipped = most_skipped
        self.required: list[str] = []
        """The fields that must have a value in each sample, according to a manifest."""

    @property
    def sample_index(self) -> SampleIndex:
        """The index of the samples: the segment and index value of each."""
        return self.job.indexes[0]

    def __len__(self) -> int:
        """The number of samples in an epoch, over all ranks."""
        return len(self.job.plan)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        part, within, reader = self._begin_pass()
        epoch = self.job.plan.epoch(part.epoch)
        steps = part.steps(len(epoch))
        mine = [steps[step] for step in range(part.worker + part.done * part.workers, len(steps), part.workers)]
        places = np.concatenate([np.empty(0, np.int64), *(step.places[: step.distinct] for step in mine)])[within:]
        for sample in self._complete(reader, reader.in_order(epoch, places)):
            yield as_tensors({name: value for name, value in sample.items() if name not in _OURS})
        self._end_pass(part.epoch, part.epoch)

    def _complete(self, reader: JobReader, samples: Iterator[Sample | None]) -> Iterator[Sample]:
        """Yield the samples that have a value of each field."""
        in_a_row, before, warned = 0, reader.missing, set[str]()
        for sample in samples:
            self._taken += 1
            if sample is not None:
                in_a_row = 0
                yield sample
                continue
            in_a_row += 1
            missing = reader.missing - before
            for name in sorted(set(missing) - warned):
                if name in self.required:
                    raise RuntimeError(f"the manifest requires the field {name!r}, but a sample has no value of it")
                warnings.warn(f"samples without a value of the field {name!r} are skipped", RuntimeWarning, 3)
            warned |= set(missing)
            if self._most_skipped is not None and in_a_row > self._most_skipped:
                counts = ", ".join(f"{name}: {count:,}" for name, count in sorted(missing.items()))
                raise RuntimeError(
                    f"{in_a_row:,} samples in a row have no value of a field, "
                    f"more than max_consecutive_skipped_samples={self._most_skipped} ({counts})"
                )


_OURS: Final = ("sample", "is_repeat", EPISODE)


class RerunMapDataset(MapSamples):
    """Samples by number, like those of Rerun's class with this name. The samples of a batch are read together.

    A sample is a dict of only its fields; a field without a value is None.

    Parameters
    ----------
    source, index, fields, timeline_sampling, decode_threads
        As in :class:`RerunIterableDataset`.

    Raises
    ------
    TypeError, ValueError
        As in :meth:`SampleIndex.build`.
    """

    def __init__(
        self,
        source: DataSource,
        index: str,
        fields: Mapping[str, Field],
        *,
        timeline_sampling: FixedRateSampling | None = None,
        decode_threads: int | None = None,
    ) -> None:
        self.begin_with(_job(source, index, fields, timeline_sampling, BLOCK, None, "none"), decode_threads)

    @classmethod
    def from_manifest(
        cls,
        manifest: Manifest,
        source: DataSource,
        fields: Mapping[str, Field],
        *,
        decode_threads: int | None = None,
    ) -> RerunMapDataset:
        """Create a dataset of a manifest's samples, by their places in the manifest.

        Raises
        ------
        ValueError
            The source has other contents than the source of the manifest.
        """
        made = cls.__new__(cls)
        made.begin_with(manifest.job(source, fields, "none"), decode_threads)
        return made

    def begin_with(self, job: TrainingJob, decode_threads: int | None) -> None:
        """Read the samples of a job."""
        Dataset.__init__(self)
        self.job = job
        self._reader = None
        self.decode_threads = decode_threads

    @property
    def sample_index(self) -> SampleIndex:
        """The index of the samples: the segment and index value of each."""
        return self.job.indexes[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return samples in the order of ``numbers``. Raises ``IndexError`` beyond the last sample."""
        return [
            {name: value for name, value in sample.items() if name not in _OURS}
            for sample in super().__getitems__(numbers)
        ]

    def _numbered(self, wanted: Integers) -> Integers:
        return self.job.plan.samples[wanted] if isinstance(self.job.plan, ListedPlan) else wanted
