"""PyTorch datasets and a loader."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..errors import MissingExtraError, ReadError, ReadWarning, UsageError, extra_command
from .fields import Field, FixedRateSampling, RowSampling
from .job import JobReader, Mixture, ReaderShare, TrainingJob, decoders
from .normalisation import Normalisation
from .plan import RUN, Integers, NoShuffle, ShuffleStrategy
from .samples import BLOCK, CACHE_BYTES, Sample
from .source import DataSource, SourceVersion

try:
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

    from .yuv import Yuv420Frame
except ImportError as failure:
    raise MissingExtraError("datasets of PyTorch need torch", hint=extra_command("training")) from failure

Collate = Callable[[list[Sample]], Any]

_STATE: Final = 1


def collated(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return samples as one batch: a tensor of shape ``(n, ...)`` for a field of numbers, a list for a field of text.

    YUV planes are stacked into one :class:`Yuv420Frame`.

    Raises ``ValueError`` for values of different shapes.
    """
    batch: dict[str, Any] = {}
    for name in samples[0]:
        values = [sample[name] for sample in samples]
        if isinstance(values[0], torch.Tensor):
            batch[name] = torch.stack(values)
        elif isinstance(values[0], Yuv420Frame):
            batch[name] = Yuv420Frame.stack(values)
        elif isinstance(values[0], np.ndarray):
            if values[0].dtype.kind == "O":
                batch[name] = [value.tolist() for value in values]
                continue
            try:
                batch[name] = torch.from_numpy(np.stack(values))
            except ValueError as error:
                shapes = sorted({value.shape for value in values})
                raise UsageError(
                    f"the field {name!r} has values of different shapes: {shapes[:3]}",
                    hint="Give your own `collate`, which pads the values or keeps them separate.",
                ) from error
        else:
            batch[name] = torch.tensor(values)
    return batch


def as_tensors(sample: Sample) -> dict[str, Any]:
    """Return a sample with tensors instead of arrays."""
    made: dict[str, Any] = {}
    for name, value in sample.items():
        if not isinstance(value, np.ndarray):
            made[name] = value
        else:
            made[name] = value.tolist() if value.dtype.kind == "O" else torch.from_numpy(np.ascontiguousarray(value))
    return made


def _repeated(samples: Sequence[Sample]) -> list[Sample]:
    """Return samples again, marked as repeats. Raises ``ValueError`` if there are none."""
    if not samples:
        raise UsageError("all samples of this rank's first batch are skipped, but other ranks have samples")
    return [{**sample, "is_repeat": True} for sample in samples]


def topology(rank: int | None, world: int | None) -> tuple[int, int]:
    """Return this process's rank and the number of ranks: as given, from ``torch.distributed``, or 0 of 1."""
    if rank is not None and world is not None:
        return rank, world
    if rank is not None or world is not None:
        raise UsageError("rank and world must be given together")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


class IterableSamples(IterableDataset[Any]):
    """Samples in the order of a plan, for a ``DataLoader``, for :func:`loader`, or for direct iteration.

    The order depends only on ``seed``, the epoch and the contents of the source. Over all ranks and workers, an epoch
    has every sample once, and all ranks have the same number of steps. With several ranks, if all samples of a batch
    are skipped, the rank repeats its previous batch, marked by ``is_repeat``. Each pass is the next epoch. With the
    workers of a plain ``DataLoader``, call :meth:`set_epoch` before each pass, as for the samplers of PyTorch.

    Parameters
    ----------
    source
        The source of the samples: a :class:`DataSource`, or several as a :class:`Mixture`.
    index
        The index (timeline) on which samples are taken.
    fields
        The fields of a sample by their names.
    timeline_sampling
        The times of samples, if the index has times.
    shuffle
        The order: by default :class:`BlockShuffle` with video, otherwise :class:`SampleShuffle`.
    seed
        The seed of the order.
    batch_size
        The number of samples of a batch. A batch is a dict of tensors of shape ``(batch_size, ...)``. None: single
        samples.
    rank, world
        The number of this process, and the number of processes; by default from ``torch.distributed``.
    drop_last
        Leave out the last samples if they do not fill a step of all ranks. By default the last batch is smaller, and at
        most ``world - 1`` samples come twice, marked by ``is_repeat``.
    block_size
        The least number of samples that are read together. In sources larger than 256 MiB, a block with half as many
        may end at the end of a chunk.
    cache_bytes
        Bytes of values that each process caches.
    decode_threads
        Threads of each process that decode pictures and video, by default its share of the cores, four at most.
    collate
        A function that makes a batch from a list of samples.
    normalisation
        Normalises fields. The state identifies its statistics.

    Raises
    ------
    TypeError, ValueError
        As in :meth:`SampleIndex.build`.
    """

    def __init__(
        self,
        source: DataSource | Mixture,
        index: str,
        fields: Mapping[str, Field],
        *,
        timeline_sampling: FixedRateSampling | RowSampling | None = None,
        shuffle: ShuffleStrategy | None = None,
        seed: int = 0,
        batch_size: int | None = None,
        rank: int | None = None,
        world: int | None = None,
        drop_last: bool = False,
        block_size: int = BLOCK,
        cache_bytes: int = CACHE_BYTES,
        decode_threads: int | None = None,
        collate: Collate = collated,
        normalisation: Normalisation | None = None,
    ) -> None:
        super().__init__()
        if batch_size is not None and batch_size < 1:
            raise UsageError(f"batch_size: expected 1 or more, got {batch_size}")
        job = TrainingJob.of(
            source,
            index,
            fields,
            timeline_sampling=timeline_sampling,
            shuffle=shuffle,
            seed=seed,
            run=batch_size or RUN,
            block_size=block_size,
            cache_bytes=cache_bytes,
            normalisation=normalisation,
        )
        self._begin_job(job, batch_size, (rank, world), drop_last, decode_threads, collate)

    def _begin_job(
        self,
        job: TrainingJob,
        batch_size: int | None,
        ranks: tuple[int | None, int | None],
        drop_last: bool,
        decode_threads: int | None,
        collate: Collate,
    ) -> None:
        self.job = job
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.collate = collate
        self.decode_threads = decode_threads
        self._topology = ranks
        # Shared with workers: the epoch, the place, the plan's run, and the passes of workers from this place.
        self._position = torch.tensor([0, 0, self.job.plan.run, 0]).share_memory_()
        self._resumed = (0, 0)
        self._resumed_by: list[int] | None = None
        self._taken = 0
        self.gives_empty = False
        self._reader: JobReader | None = None

    # --- epochs and state

    @property
    def epoch(self) -> int:
        """The number of the running epoch, or of the next one."""
        return int(self._position[0])

    @property
    def part(self) -> ReaderShare:
        """The share of this process, with all its workers."""
        rank, world = topology(*self._topology)
        epoch, start, *_ = self._position.tolist()
        return ReaderShare(epoch, start, self.batch_size or RUN, rank, world, self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch. If it is already running, continue at its place."""
        if epoch < 0:
            raise UsageError(f"epoch: expected 0 or more, got {epoch}")
        if epoch != self.epoch:
            self.begin(epoch, 0)

    def begin(self, epoch: int, place: int) -> None:
        """Continue at a place of an epoch."""
        self._position[[0, 1, 3]] = torch.tensor([epoch, place, 0])
        self._resumed, self._taken = (0, 0), 0

    def __len__(self) -> int:
        """The number of samples (with ``batch_size``, of batches) that this rank still has in the epoch."""
        steps = self.part.steps(len(self.job.plan))
        return steps.samples if self.batch_size is None else len(steps)

    def state_dict(self) -> dict[str, Any]:
        """The state after the samples that this object has returned, as JSON data.

        In a worker, it is this worker's state, for the same number of workers. A :class:`Loader` has the state of all.
        In another process, batches from workers do not count, with a ``ReadWarning``.
        """
        part, worker = self.part, get_worker_info()
        if worker is None and self._position[3]:
            text = "state_dict() of the dataset does not count batches from workers; use state_dict() of loader(...)"
            warnings.warn(ReadWarning(text), stacklevel=2)
        done, within = divmod(self._taken, part.batch_size) if self.batch_size is None else (self._taken, 0)
        if worker is None and not within:
            return self.state_behind(done)
        if worker is None and part.world == 1:
            return {**self.state_behind(0), "place": part.start + self._taken}
        return {**self.state_behind(0), "done": done, "within": within, "reader": self._reader_of(part)}

    def _reader_of(self, part: ReaderShare) -> list[int]:
        """The numbers of ranks and workers, and the batch size, for which the state of a single reader is valid."""
        worker = get_worker_info()
        return [part.world, 1 if worker is None else worker.num_workers, part.batch_size]

    def state_behind(self, steps: int) -> dict[str, Any]:
        """The state after some steps of all ranks, counted from where this object began."""
        part = self.part
        place = part.steps(len(self.job.plan)).consumed(steps) if steps else part.start
        state = {"version": _STATE, **self.job.fingerprint, "run": int(self._position[2]), "epoch": part.epoch}
        return {**state, "dataset_versions": self.job.versions, "place": place, "done": 0, "within": 0, "reader": None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after a state. The number of ranks and workers may differ.

        Exception: a state of one of several readers (single samples of several ranks, or a state from a worker) needs
        the same number of readers. Otherwise the first sample raises an error.

        Raises
        ------
        ValueError
            The state is of other sources, blocks, seed or strategy.
        """
        if state.get("version") != _STATE:
            raise UsageError(f"this is not the state of a job, or it is from another release: {state.get('version')!r}")
        for name, value in self.job.fingerprint.items():
            if state.get(name) != value:
                raise UsageError(
                    f"the state is of another job: its {name} is {state.get(name)!r}, not {value!r}",
                    hint=_how_to_resume(state.get("dataset_versions"), self.job.versions)
                    if name in ("sources", "samples", "blocks")
                    else None,
                )
        place, total = int(state["place"]), len(self.job.plan)
        if not 0 <= place <= total:
            raise UsageError(f"the state is at place {place:,}, but an epoch has {total:,} samples")
        self._position[2] = int(state["run"])
        self.begin(int(state["epoch"]), place)
        done, within = int(state["done"]), int(state["within"])
        self._resumed, self._resumed_by = (done, within), state.get("reader")
        self._taken = done if self.batch_size is not None else done * self.part.batch_size + within

    # --- samples

    def __iter__(self) -> Iterator[Any]:
        part, within, reader = self._begin_pass()
        is_repeat = part.worker == 0 and self._position[3] == 2 and not self.gives_empty
        if is_repeat and not isinstance(self.job.plan.strategy, NoShuffle):
            text = f"epoch {part.epoch} is read again in the same order; call set_epoch() before each pass"
            warnings.warn(ReadWarning(text), stacklevel=2)
        last: list[Sample] = []
        for step in reader.steps(part):
            if self.batch_size is None:
                for sample in step[within:]:
                    self._taken += 1
                    if sample is not None:
                        yield as_tensors(sample)
                within = 0
            else:
                self._taken += 1
                batch = [sample for sample in step if sample is not None]
                if not batch and part.world > 1:
                    batch = _repeated(last)
                if batch or self.gives_empty:
                    yield self.collate(batch) if batch else None
                last = batch or last
        self._end_pass(part.epoch, part.epoch + 1)

    def _begin_pass(self) -> tuple[ReaderShare, int, JobReader]:
        """The share of this reader, the number of samples to leave out in its first step, and the job's reader."""
        worker = get_worker_info()
        number, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if number == 0:
            self._position[3] = 0 if worker is None else self._position[3] + 1
        done, within = self._resumed
        part = self.part._replace(worker=number, workers=count, done=done)
        if (done or within) and self._resumed_by != self._reader_of(part):
            raise UsageError(
                f"the state belongs to one of several readers (ranks, workers, samples per step: {self._resumed_by}), "
                f"but this reader has {self._reader_of(part)}",
                hint="The state of a loader() is for all readers: any number of ranks and workers can continue from "
                "it.",
            )
        run = int(self._position[2])
        if self._reader is None or not self._reader.is_usable or self.job.plan.run != run:
            self.job = self.job.with_run(run)
            is_stacked = self.collate is collated
            self._reader = JobReader(self.job, self.decode_threads or decoders(count), stacked=is_stacked)
        self._taken = done if self.batch_size is not None else done * part.batch_size + within
        return part, within, self._reader

    def _end_pass(self, epoch: int, following: int) -> None:
        """Go to the following epoch, unless :meth:`set_epoch` has set another one meanwhile."""
        self._resumed = (0, 0)
        if get_worker_info() is None and self.epoch == epoch:
            self.begin(following, 0)

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker has no process group, and has the rank of this process.
        is_ranked = torch.distributed.is_available() and torch.distributed.is_initialized()
        ranks = topology(*self._topology) if is_ranked else self._topology
        return {**self.__dict__, "_reader": None, "_topology": ranks}


class MapSamples(Dataset[Any]):
    """Samples by number, for PyTorch's samplers. A batch of a ``DataLoader`` is read at once.

    Parameters
    ----------
    source, index, fields, timeline_sampling, cache_bytes, normalisation
        As in :class:`IterableSamples`.

    Raises
    ------
    TypeError, ValueError
        As in :meth:`SampleIndex.build`, and for fields with ``fill="skip"``.
    """

    def __init__(
        self,
        source: DataSource,
        index: str,
        fields: Mapping[str, Field],
        *,
        timeline_sampling: FixedRateSampling | RowSampling | None = None,
        cache_bytes: int = CACHE_BYTES,
        normalisation: Normalisation | None = None,
    ) -> None:
        skipping = [name for name, field in fields.items() if field.fill == "skip"]
        if skipping:
            raise UsageError(
                f'the field {skipping[0]!r} has fill="skip", but samples selected by number cannot be skipped',
                hint='fill="none" gives None instead of the value.',
            )
        self.job = TrainingJob.of(
            source,
            index,
            fields,
            timeline_sampling=timeline_sampling,
            cache_bytes=cache_bytes,
            normalisation=normalisation,
        )
        self.decode_threads: int | None = None
        self._reader: JobReader | None = None

    def __len__(self) -> int:
        return len(self.job.plan)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return samples in the order of ``numbers``. Raises ``IndexError`` beyond the last sample."""
        size = len(self)
        wanted = [number + size if number < 0 else number for number in numbers]
        if not all(0 <= number < size for number in wanted):
            raise IndexError(f"there are {size:,} samples, numbered from 0, but not all of {numbers}")
        if self._reader is None or not self._reader.is_usable:
            worker = get_worker_info()
            threads = self.decode_threads or decoders(1 if worker is None else worker.num_workers)
            self._reader = JobReader(self.job, threads)
        chosen = self._numbered(np.array(wanted, np.int64))
        samples = self._reader.read(chosen)
        return [as_tensors(samples[number]) for number in chosen.tolist() if number in samples]

    def _numbered(self, wanted: Integers) -> Integers:
        """Return the job's numbers of wanted samples."""
        return wanted

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}


def _how_to_resume(wanted: Any, present: Sequence[list[Any] | None]) -> str:
    """Return a hint: which versions a state has, if the job has others."""
    pairs = zip(wanted or (), present, strict=False)
    others = [(SourceVersion(*then), SourceVersion(*now)) for then, now in pairs if then and now and then != now]
    if not others:
        return "Open the same version of the same dataset with the same arguments."
    then, now = others[0]
    return (
        f"The state is of {then}, not of {now}: give DataSource(dataset.at({then.version})). If that version was "
        "removed, the job cannot continue. DataSource(…, keep=NAME) tags a job's version, so that it is kept."
    )


class Loader:
    """Batches of an :class:`IterableSamples`, read by workers, with a state that counts the trainer's batches.

    Made by :func:`loader`. Each pass is the next epoch.
    """

    def __init__(self, dataset: IterableSamples, batches: DataLoader[Any], on_device: Callable[[Any], Any]) -> None:
        self.dataset = dataset
        self._batches = batches
        self._on_device = on_device
        self._given = 0

    def __len__(self) -> int:
        return len(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch. If it is already running, continue at its place."""
        if epoch != self.dataset.epoch:
            self._given = 0
        self.dataset.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        self._given = 0
        epoch = self.dataset.epoch
        batches = iter(self._batches)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                break
            except (OSError, EOFError) as error:
                raise ReadError(
                    f"a worker ended while it sent a batch: {error}",
                    hint="Create the loader again, and continue from state_dict().",
                ) from error
            self._given += 1
            if batch is not None:
                yield self._on_device(batch)
        self._given = 0
        if self.dataset.epoch == epoch:
            self.dataset.begin(epoch + 1, 0)

    def state_dict(self) -> dict[str, Any]:
        """The state after the last batch that the trainer received. Batches that workers have prepared do not count."""
        return self.dataset.state_behind(self._given)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after a state; see :meth:`IterableSamples.load_state_dict`."""
        self._given = 0
        self.dataset.load_state_dict(state)


def loader(
    dataset: IterableSamples,
    *,
    num_workers: int = 0,
    prefetch_factor: int | None = None,
    pin_memory: bool = False,
    device: torch.device | str | None = None,
) -> Loader:
    """Read the batches of a dataset with workers, which are kept for all epochs.

    Parameters
    ----------
    dataset
        The samples, with a ``batch_size``.
    num_workers
        Processes that read and decode. 0: this process.
    prefetch_factor
        Batches that each worker prepares in advance, by default 2.
    pin_memory
        Copy batches into pinned memory, from which a GPU copies them without waiting.
    device
        The device to which tensors are moved, without waiting.

    Raises
    ------
    ValueError
        The dataset has no ``batch_size``.
    """
    if dataset.batch_size is None:
        raise UsageError("the dataset gives single samples", hint="IterableSamples(..., batch_size=32) gives batches.")
    dataset.gives_empty = True
    batches: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=None,
        num_workers=num_workers,
        prefetch_factor=prefetch_factor if num_workers else None,
        pin_memory=pin_memory,
        persistent_workers=num_workers > 0,
        multiprocessing_context="spawn" if num_workers else None,
    )
    return Loader(dataset, batches, _mover(device))


def _mover(device: torch.device | str | None) -> Callable[[Any], Any]:
    if device is None:
        return lambda batch: batch

    def moved(batch: Any) -> Any:
        if isinstance(batch, torch.Tensor | Yuv420Frame):
            return batch.to(device, non_blocking=True)
        if isinstance(batch, Mapping):
            return {name: moved(value) for name, value in batch.items()}
        return batch

    return moved
