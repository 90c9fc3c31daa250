"""Manifests: the samples of an epoch in order, as a table to inspect and share."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from ..chunk import TimelineKind
from ..errors import ForeignFileError, UnsupportedError, UsageError
from .fields import Field, Fill, FixedRateSampling, NumericDecoder, VideoFrameDecoder, flat_numbers, ticks_of
from .job import TrainingJob
from .plan import RUN, Blocks, BlockShuffle, Epoch, Integers, Mask, NoShuffle, SamplePlan, ShuffleStrategy, Steps
from .samples import BLOCK, SampleIndex, selected
from .source import DataSource, SegmentReader, is_fresh

_FORMAT: Final = 1
_HEADER: Final = b"chunkmill.manifest"


@dataclass(frozen=True)
class StepSampling(FixedRateSampling):
    """Times with a fixed step, as in Rerun: the step is rounded to a nanosecond.

    The first sample is where the windows of all fields are within the segment.
    """

    before: int = 0
    after: int = 0
    tolerance: ClassVar[int] = 0

    def times(self, first: int, last: int) -> Integers:
        """Return the times of samples between two times."""
        return np.arange(first + self.before, last - self.after + 1, self.step)

    @property
    def step(self) -> int:
        """Nanoseconds from one sample to the next."""
        return max(round(1e9 / self.rate_hz), 1)

    @classmethod
    def of(cls, sampling: FixedRateSampling, fields: Mapping[str, Field]) -> StepSampling:
        """Return the times at which the windows of all fields are within the segment."""
        ends = [offset for some in fields.values() if some.edges == "trim" for offset in some.window or ()]
        before, after = max([0.0, *(-end for end in ends)]), max([0.0, *ends])
        return cls(sampling.rate_hz, ticks_of(before, "window", is_time=True), ticks_of(after, "window", is_time=True))


def like_rerun(fields: Mapping[str, Field], fill: Fill = "skip") -> dict[str, Field]:
    """Return fields with Rerun's defaults: they leave out samples without a value, or beyond a segment's ends.

    >>> from .fields import NumericDecoder
    >>> like_rerun({"arm": Field("/arm", NumericDecoder())})["arm"].edges
    'trim'
    """
    return {name: replace(some, fill=some.fill or fill, edges=some.edges or "trim") for name, some in fields.items()}


def job_like_rerun(
    source: DataSource,
    index: str,
    fields: Mapping[str, Field],
    *,
    timeline_sampling: FixedRateSampling | None,
    fetch_block_size: int,
    shuffle: ShuffleStrategy | None,
    fill: Fill = "skip",
) -> TrainingJob:
    """Return the job of a dataset with Rerun's names. Raises the errors of :meth:`SampleIndex.build`."""
    chosen = like_rerun(fields, fill)
    if isinstance(timeline_sampling, FixedRateSampling) and not isinstance(timeline_sampling, StepSampling):
        timeline_sampling = StepSampling.of(timeline_sampling, chosen)
    return TrainingJob.of(
        source,
        index,
        chosen,
        timeline_sampling=timeline_sampling,
        shuffle=shuffle,
        block_size=fetch_block_size,
        by_chunks=False,  # a manifest lists samples before the shuffle
    )


@dataclass(frozen=True)
class ListedPlan(SamplePlan):
    """A plan in which every epoch is the samples of a manifest."""

    samples: Integers = field(default_factory=lambda: np.empty(0, np.int64), repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.samples)

    def epoch(self, number: int) -> Epoch:  # noqa: ARG002
        """Return the listed samples."""
        return Epoch(self.samples, np.zeros(len(self.samples), np.bool_))


@dataclass(frozen=True)
class ManifestMeta:
    """Facts of a manifest.

    ``recipe`` describes the fields, and ``sampling`` the times of samples. ``contents`` is a digest of the segments'
    content: a manifest is valid only for this content.
    """

    dataset_name: str
    dataset_id: str
    index_name: str
    recipe: dict[str, Any]
    required_fields: list[str]
    fetch_block_size: int
    num_ranks: int
    num_workers_per_rank: int
    contents: str
    samples: int
    dropped: int
    """The number of samples that were dropped because a required field has no value."""
    sampling: dict[str, Any] | None = None
    ns_per_sample: int | None = None
    ns_dtype: str | None = None
    shuffle_strategy: str = "NoShuffle()"
    buffer_size: int | None = None
    min_fill: int | None = None
    seed: int = 0
    format_version: str = str(_FORMAT)


class SampleManifest:
    """The samples of one epoch in order, one per row.

    The columns are ``rank``, ``worker``, ``place`` in the epoch, ``sample`` (its number in the index), ``segment_id``,
    ``anchor`` (the index value; nanoseconds for times) and ``block`` (samples of the same block are read together).
    Rows are sorted by place. Create one by :meth:`generate` or :meth:`from_parquet`.
    """

    def __init__(self, table: pa.Table, metadata: ManifestMeta) -> None:
        self._table = table
        self._metadata = metadata

    @classmethod
    def generate(
        cls,
        source: DataSource,
        index: str,
        fields: Mapping[str, Field],
        *,
        timeline_sampling: FixedRateSampling | None = None,
        fetch_block_size: int = BLOCK,
        num_ranks: int = 1,
        num_workers_per_rank: int = 1,
        required_fields: Sequence[str] | None = None,
        scan_max_workers: int | None = None,  # noqa: ARG003
    ) -> SampleManifest:
        """List the samples of a source in recorded order.

        Parameters
        ----------
        source, index, fields, timeline_sampling, fetch_block_size
            As in ``RerunIterableDataset``.
        num_ranks, num_workers_per_rank
            The numbers of ranks and workers that share the samples.
        required_fields
            The fields that need a value in each sample, no older than their ``max_staleness``; by default all. For
            video, that is the age of the last marked key frame, or of the beginning of the chunk if none is marked.
        scan_max_workers
            Accepted for scripts written for Rerun, without effect.

        Raises
        ------
        TypeError, ValueError
            As in ``RerunIterableDataset``, or a required field does not exist.
        """
        job = job_like_rerun(
            source,
            index,
            fields,
            timeline_sampling=timeline_sampling,
            fetch_block_size=fetch_block_size,
            shuffle=NoShuffle(),
        )
        samples = job.indexes[0]
        if samples.source.episodes is not None:
            raise UsageError(
                "a manifest lists samples of segments, but the source has episodes",
                hint="Use IterableSamples: its order depends only on the seed.",
            )
        required = sorted(fields) if required_fields is None else sorted(set(required_fields))
        if not set(required) <= set(fields):
            raise UsageError(f"required_fields: there is no field {min(set(required) - set(fields))!r}")
        if num_ranks < 1 or num_workers_per_rank < 1:
            raise UsageError(f"expected 1 or more ranks and workers, got {num_ranks} x {num_workers_per_rank}")
        kept = np.flatnonzero(_has_values(samples, required))
        owners = samples.segments_of(kept)
        names = pa.array([segment.segment_id for segment in samples.source.segments], pa.string())
        table = pa.table(
            {
                "sample": kept,
                "segment_id": pa.DictionaryArray.from_arrays(pa.array(owners, pa.int32()), names),
                "anchor": samples.times[kept],
                "block": samples.blocks.of(kept),
            }
        )
        sampling = timeline_sampling if samples.is_time else None
        if sampling is not None and not isinstance(sampling, StepSampling):
            sampling = StepSampling.of(sampling, like_rerun(fields))
        metadata = ManifestMeta(
            dataset_name=str(getattr(source.dataset, "name", "")),
            dataset_id=str(getattr(source.dataset, "id", "")),
            index_name=index,
            recipe={name: _recipe(some) for name, some in samples.fields.items()},
            required_fields=required,
            fetch_block_size=fetch_block_size,
            num_ranks=num_ranks,
            num_workers_per_rank=num_workers_per_rank,
            contents=samples.source.digest,
            samples=len(samples),
            dropped=len(samples) - len(kept),
            sampling=None if sampling is None else asdict(sampling),
            ns_per_sample=None if sampling is None else sampling.step,
            ns_dtype=_DTYPES.get(samples.source.kind),
        )
        return cls._ordered(table, np.arange(len(kept)), metadata)

    @classmethod
    def _ordered(cls, samples: pa.Table, order: Integers, metadata: ManifestMeta) -> SampleManifest:
        """Assign samples in order: runs of places to ranks in turn, and a rank's runs to its workers in turn."""
        ranks, workers = np.zeros(len(order), np.int32), np.zeros(len(order), np.int32)
        for rank in range(metadata.num_ranks):
            steps = Steps(len(order), 0, RUN, rank, metadata.num_ranks, drop_last=False)
            for number in range(len(steps)):
                places = steps[number].places[: steps[number].distinct]
                ranks[places], workers[places] = rank, number % metadata.num_workers_per_rank
        dealt = {"rank": ranks, "worker": workers, "place": np.arange(len(order))}
        ordered = samples.take(pa.array(order))
        return cls(pa.table({**dealt, **{name: ordered[name] for name in ordered.column_names}}), metadata)

    def shuffle(self, strategy: ShuffleStrategy | None = None, *, seed: int = 0) -> SampleManifest:
        """Return the same samples in another order.

        If no sample was dropped, the order is that of a live dataset in the epoch ``seed``.

        Parameters
        ----------
        strategy
            By default :class:`BlockShuffle`.
        seed
            The seed of the order.
        """
        strategy = BlockShuffle() if strategy is None else strategy
        samples = self._table.select(["sample", "segment_id", "anchor", "block"])
        samples = samples.take(pc.sort_indices(samples["sample"]))
        block = samples["block"].to_numpy()
        starts = np.concatenate([np.flatnonzero(np.diff(block, prepend=-1)), [len(block)]])
        order = strategy.order(Blocks(starts.astype(np.int64)), RUN, 0, 0, seed)
        metadata = replace(
            self._metadata,
            shuffle_strategy=repr(strategy),
            buffer_size=getattr(strategy, "buffer_size", None),
            min_fill=getattr(strategy, "min_fill", None),
            seed=seed,
        )
        return self._ordered(samples, order, metadata)

    # --- files

    @classmethod
    def from_parquet(cls, path: str | os.PathLike[str]) -> SampleManifest:
        """Read a manifest.

        Raises
        ------
        ForeignFileError
            The file is not a manifest of chunkmill; it may be a manifest of Rerun.
        """
        table = pq.read_table(path)
        header = (table.schema.metadata or {}).get(_HEADER)
        if header is None:
            raise ForeignFileError(
                f"{os.fspath(path)} is not a manifest of chunkmill",
                hint="Read manifests of Rerun with Rerun, or create one by Manifest.generate.",
            )
        facts = json.loads(header)
        if facts.get("format_version") != str(_FORMAT):
            raise UnsupportedError(
                f"{os.fspath(path)}: the manifest has format {facts.get('format_version')}, not {_FORMAT}",
                hint="Create it again, or read it with the release that wrote it.",
            )
        return cls(table.replace_schema_metadata(None), ManifestMeta(**facts))

    def write_parquet(self, path: str | os.PathLike[str], *, row_group_size: int = 1 << 16) -> None:
        """Write the manifest as Parquet. The metadata of the schema describes its source."""
        pq.write_table(self.to_arrow(), path, compression="zstd", row_group_size=row_group_size)

    # --- contents

    @property
    def metadata(self) -> ManifestMeta:
        """The facts of the manifest."""
        return self._metadata

    @property
    def num_rows(self) -> int:
        """The number of samples."""
        return int(self._table.num_rows)

    def to_arrow(self) -> pa.Table:
        """Return the manifest as a table."""
        return self._table.replace_schema_metadata({_HEADER: json.dumps(asdict(self._metadata))})

    def worker_assignments(self, rank: int, worker: int) -> pa.Table:
        """Return the rows of one worker of a rank, in order."""
        return self._table.filter(pc.and_(pc.equal(self._table["rank"], rank), pc.equal(self._table["worker"], worker)))

    def validate_topology(self, num_ranks: int, num_workers_per_rank: int) -> None:
        """Raise ``ValueError`` if ``rank`` and ``worker`` were assigned for another topology.

        A dataset can have any topology: it assigns places again.
        """
        made = self._metadata.num_ranks, self._metadata.num_workers_per_rank
        if made != (num_ranks, num_workers_per_rank):
            raise UsageError(
                f"the manifest assigns samples to {made[0]} x {made[1]} (ranks x workers), not to {num_ranks} x "
                f"{num_workers_per_rank}"
            )

    def job(self, source: DataSource, fields: Mapping[str, Field], fill: Fill = "skip") -> TrainingJob:
        """Return a job that reads the samples in the order of the manifest.

        Raises
        ------
        ValueError
            The source has other contents than the manifest's source, or the fields have no such samples.
        """
        meta = self._metadata
        job = job_like_rerun(
            source,
            meta.index_name,
            fields,
            timeline_sampling=None if meta.sampling is None else StepSampling(**meta.sampling),
            fetch_block_size=meta.fetch_block_size,
            shuffle=NoShuffle(),
            fill=fill,
        )
        samples = job.indexes[0]
        if samples.source.digest != meta.contents:
            raise UsageError(
                f"the manifest of {meta.dataset_name!r} was made for other contents of the dataset",
                hint="Open the version that the manifest was made for, or create the manifest again.",
            )
        numbers = self._numbers(samples)
        digest = xxhash.xxh3_128_hexdigest(numbers.tobytes())
        plan = ListedPlan(job.plan.blocks, NoShuffle(), run=RUN, samples=numbers)
        return replace(job, plan=replace(plan, strategy=_Listed(digest)))

    def _numbers(self, samples: SampleIndex) -> Integers:
        """Return the numbers of the samples in an index, whose fields may differ."""
        segments = {segment.segment_id: number for number, segment in enumerate(samples.source.segments)}
        column = self._table["segment_id"].combine_chunks()
        owners = np.array([segments[name] for name in column.dictionary.to_pylist()], np.int64)
        owner = owners[column.indices.to_numpy()] if len(column) else np.empty(0, np.int64)
        anchors = self._table["anchor"].to_numpy()
        starts, numbers = samples.segment_offsets, np.empty(len(anchors), np.int64)
        for number in np.unique(owner).tolist():
            mine = owner == number
            times = samples.times[starts[number] : starts[number + 1]]
            near = np.searchsorted(times, anchors[mine])
            is_there = near < len(times)
            is_there[is_there] = times[near[is_there]] == anchors[mine][is_there]
            if not is_there.all():
                segment_id = samples.source.segments[number].segment_id
                raise UsageError(
                    f"the fields have no sample at {anchors[mine][~is_there][0]} in segment {segment_id}",
                    hint="Give the fields of the manifest, or some of them.",
                )
            numbers[mine] = starts[number] + near
        return numbers


Manifest = SampleManifest
"""Rerun's name for :class:`SampleManifest`."""


@dataclass(frozen=True)
class _Listed(NoShuffle):
    """The order of a manifest, identified by its digest."""

    digest: str = ""

    def horizon(self, blocks: Blocks, run: int) -> int:
        """Return a number that suits any order."""
        return BlockShuffle().horizon(blocks, run)


_DTYPES: Final = {TimelineKind.TIMESTAMP: "datetime64[ns]", TimelineKind.DURATION: "timedelta64[ns]"}


def _recipe(some: Field) -> dict[str, Any]:
    shown: npt.NDArray[Any] | None = None if some.window is None else np.array(some.window)
    return {
        "path": some.path,
        "window": None if shown is None else shown.tolist(),
        "max_staleness": some.max_staleness,
        "decoder": repr(some.decode),
        "select": None if some.select is None else str(some.select),
    }


def _has_values(samples: SampleIndex, required: Sequence[str]) -> Mask:
    """Return whether each sample has a value of all required fields."""
    has: Mask = np.ones(len(samples), np.bool_)
    starts = samples.segment_offsets
    for number, segment in enumerate(samples.source.segments):
        mine = slice(int(starts[number]), int(starts[number + 1]))
        if mine.start == mine.stop:
            continue
        reader = SegmentReader(segment)
        for name in required:
            some = samples.fields[name]
            wanted = samples.times[mine, None] + some.offsets(is_time=samples.is_time)
            low, high = samples.edges[number].tolist()
            wanted = wanted if some.edges == "trim" else np.clip(wanted, low, high)
            column = samples.source.column(some.path)
            if isinstance(some.decode, VideoFrameDecoder):
                times = reader.groups(column)
            else:
                series = reader.series(column, reader.needed(column, int(wanted.min()), int(wanted.max())))
                values = series.values if some.select is None else selected(some, series.values)
                counts = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
                times, filled = series.times, counts > 0
                if isinstance(some.decode, NumericDecoder) and filled.any():
                    _, ends, has_null = flat_numbers(values)
                    filled = (np.diff(ends) > 0) & ~has_null
            latest = np.searchsorted(times, wanted, side="right") - 1
            is_there = latest >= 0
            if len(times):
                if not isinstance(some.decode, VideoFrameDecoder):
                    is_there &= filled[np.maximum(latest, 0)]
                is_there &= is_fresh(some, times[np.maximum(latest, 0)], wanted, is_time=samples.is_time)
            has[mine] &= is_there.all(axis=1)
    return has
