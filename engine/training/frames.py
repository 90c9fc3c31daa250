"""Samples of an epoch as a Spark DataFrame. Each task reads the samples of one range of places in the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chunk import TimelineKind
from ..errors import UsageError
from ..execution import cores_of, noting_task, stage_of
from ..frames import NANOSECONDS_SUFFIX
from ..limits import MIB
from ..spark import arrow_of, running_session, spark_array, spark_form, spark_schema
from .episodes import EPISODE
from .fields import Field, FixedRateSampling, RowSampling
from .job import JobReader, Mixture, TrainingJob
from .plan import RUN, Epoch, Integers, ShuffleStrategy
from .samples import BLOCK, CACHE_BYTES, Sample
from .source import DataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PLACE: Final = ("place", "sample", "segment_id")
_IS_REPEAT: Final = "is_repeat"
_BATCH_ROWS: Final = 1024
_BATCH_BYTES: Final = 4 * MIB
_TASK_PLACES: Final = 4096
_TEXT: Final = "OU"
_NUMBERS: Final = "biuf"


class FieldForm(NamedTuple):
    """The type of a field's values, and the shape of the first value."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, name: str, value: npt.NDArray[Any]) -> FieldForm:
        """Return the form of a value. Raises ``UsageError`` if Spark has no type for it."""
        if value.dtype.kind not in _NUMBERS + _TEXT:
            raise UsageError(
                f"the field {name!r} has values of {value.dtype}",
                hint="Spark columns can have numbers, booleans and text.",
            )
        return cls(name, np.dtype(object) if value.dtype.kind in _TEXT else value.dtype, value.shape)

    @property
    def is_picture(self) -> bool:
        """Whether values are bytes in two dimensions or more, which are stored unchanged."""
        return self.dtype == np.uint8 and len(self.shape) > 1

    @property
    def type(self) -> pa.DataType:
        """The column's Arrow type."""
        if self.is_picture:
            return pa.struct([("shape", pa.list_(pa.int32())), ("data", pa.binary())])
        kind = pa.string() if self.dtype == object else pa.from_numpy_dtype(self.dtype)
        for _ in self.shape:
            kind = pa.list_(kind)
        return kind

    def array(self, values: Sequence[npt.NDArray[Any]]) -> pa.Array:
        """Return values as a column. Raises ``UsageError`` for a value of another type or number of dimensions."""
        for value in values:
            own = FieldForm.of(self.name, value)
            if own.dtype != self.dtype or len(own.shape) != len(self.shape):
                raise UsageError(
                    f"the field {self.name!r} has values of {own.dtype} in {len(own.shape)} dimensions, and values of "
                    f"{self.dtype} in {len(self.shape)}",
                    hint="A column has a single type: choose a `decode` or a `select` with this type.",
                )
        if self.is_picture:
            shapes = pa.array([value.shape for value in values], pa.list_(pa.int32()))
            data = pa.array([np.ascontiguousarray(value).data.cast("B") for value in values], pa.binary())
            return pa.StructArray.from_arrays([shapes, data], fields=list(self.type))
        return _nested(values, len(self.shape))


def _nested(values: Sequence[npt.NDArray[Any]], dimensions: int) -> pa.Array:
    """Return arrays with ``dimensions`` dimensions, of any shapes, as nested lists."""
    flat = np.concatenate([value.ravel() for value in values])
    made = pa.array(flat.tolist(), pa.string()) if flat.dtype.kind in _TEXT else pa.array(flat)
    shapes = np.array([value.shape for value in values], np.int64).reshape(len(values), dimensions)
    for depth in reversed(range(dimensions)):
        lengths = np.repeat(shapes[:, depth], shapes[:, :depth].prod(axis=1))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        made = pa.ListArray.from_arrays(pa.array(offsets), made)
    return made


class Row(NamedTuple):
    """A sample, its place in the epoch, and its segment and index value."""

    place: int
    segment_id: str
    time: int
    sample: Sample


@dataclass(frozen=True)
class SampleColumns:
    """The columns of samples: the place in the epoch, the segment and index value, and the fields."""

    index: str
    kind: TimelineKind
    fields: tuple[FieldForm, ...]

    @classmethod
    def of(cls, job: TrainingJob, epoch: Epoch) -> SampleColumns:
        """Return the columns of an epoch's samples, by its first sample. Raises as :func:`samples_frame` does."""
        kinds = {some.source.kind for some in job.indexes}
        index = job.indexes[0].source.columns.query.index
        assert index is not None
        episodes = job.indexes[0].source.episodes
        extra = [] if episodes is None else [EPISODE, *episodes.columns]
        _check_names(index, job.indexes[0].fields, extra)
        if len(kinds) > 1:
            raise UsageError(
                f"the index {index!r} has different types in the sources: {', '.join(sorted(map(str, kinds)))}"
            )
        first = _first_sample(job, epoch)
        fields = [some for name in job.indexes[0].fields for some in (name, f"{name}_is_pad") if some in first]
        names = [*extra, *fields]
        for name in names:
            if not isinstance(first[name], np.ndarray | bool | int | float):
                raise UsageError(
                    f"the field {name!r} has values of {type(first[name]).__name__}, which cannot be columns",
                    hint='output_format="rgb" gives arrays.',
                )
        return cls(index, kinds.pop(), tuple(FieldForm.of(name, np.asarray(first[name])) for name in names))

    @cached_property
    def given(self) -> pa.Schema:
        """The columns in their original types. The metadata of each field has the shape of its first value."""
        ids = [*zip(_PLACE, (pa.int64(), pa.int64(), pa.string()), strict=True), (self.index, self.kind.arrow_type)]
        values = [pa.field(form.name, form.type, metadata={"shape": f"{[*form.shape]}"}) for form in self.fields]
        return pa.schema([*(pa.field(*some) for some in ids), pa.field(_IS_REPEAT, pa.bool_()), *values])

    @cached_property
    def _origins(self) -> dict[str, pa.Field]:
        """For each Spark column, its original column: an index of times has a second column, with the exact value."""
        origins: dict[str, pa.Field] = {}
        for column in self.given:
            origins[column.name] = column
            if column.name == self.index and self.kind is not TimelineKind.SEQUENCE:
                origins[f"{self.index}{NANOSECONDS_SUFFIX}"] = column
        return origins

    @cached_property
    def schema(self) -> StructType:
        """The columns in Spark's types. The metadata of each field has the shape of its first value."""
        forms = {name: spark_form(some.type, nanoseconds=some.name != name) for name, some in self._origins.items()}
        schema = spark_schema(pa.schema(list(forms.items())))
        for form in self.fields:
            schema[form.name].metadata = {"shape": list(form.shape)}
        return schema

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns in the Arrow types that Spark expects."""
        return arrow_of(self.schema)

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Return rows in their original types: each sample's place, segment, index value and fields."""
        if not rows:
            return self.given.empty_table()
        places, segments, times, samples = zip(*rows, strict=True)
        made = [
            pa.array(places, pa.int64()),
            pa.array([sample["sample"] for sample in samples], pa.int64()),
            pa.array(segments, pa.string()),
            pa.array(times, pa.int64()).cast(self.kind.arrow_type),
            pa.array([sample[_IS_REPEAT] for sample in samples], pa.bool_()),
            *(form.array([np.asarray(sample[form.name]) for sample in samples]) for form in self.fields),
        ]
        return pa.table(made, schema=self.given)

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Return rows in Spark's types."""
        (given,) = self.table(rows).to_batches()
        values = zip(self._origins.values(), self.arrow, strict=True)
        columns = [spark_array(given[origin.name], column.type) for origin, column in values]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)


@dataclass(frozen=True)
class EpochJob:
    """The function of a Spark task that reads the samples of a range of places of an epoch. Picklable."""

    job: TrainingJob
    epoch: Epoch
    starts: tuple[int, ...]
    columns: SampleColumns

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """Yield the samples of a task in the order of their places; skipped samples are left out."""
        first, stop = self.starts[index : index + 2]
        with noting_task(f"places {first:,} to {stop - 1:,} of the epoch"):
            rows: list[Row] = []
            size = 0
            for row in rows_of(self.job, self.epoch, np.arange(first, stop)):
                rows.append(row)
                size += sum(value.nbytes for value in row.sample.values() if isinstance(value, np.ndarray))
                if size > _BATCH_BYTES or len(rows) == _BATCH_ROWS:
                    yield self.columns.batch(rows)
                    rows, size = [], 0
            if rows:
                yield self.columns.batch(rows)


def rows_of(job: TrainingJob, epoch: Epoch, places: Integers) -> Iterator[Row]:
    """Yield the samples of consecutive places; skipped samples are left out."""
    with closing(JobReader(job)) as reader:
        for place, sample in zip(places.tolist(), reader.in_order(epoch, places), strict=True):
            if sample is not None:
                sample[_IS_REPEAT] = bool(epoch.is_repeat[place])
                yield Row(place, *job.place(sample["sample"]), sample)


def samples_table(job: TrainingJob, epoch: int = 0, limit: int = 5) -> pa.Table:
    """Return the first samples of an epoch as an Arrow table with the columns of :func:`samples_frame`, not widened.

    The metadata of each field has the ``shape`` of the first value. Skipped samples do not count. Raises the errors of
    :func:`samples_frame`.
    """
    order = job.plan.epoch(epoch)
    columns = SampleColumns.of(job, order)
    rows: list[Row] = []
    for first in range(0, len(order), limit):  # no more places than are wanted: all their blocks would be read
        rows += rows_of(job, order, np.arange(first, min(first + limit, len(order))))
        if len(rows) >= limit:
            break
    return columns.table(rows[:limit])


def samples_frame(
    source: DataSource | Mixture,
    index: str,
    fields: Mapping[str, Field],
    *,
    timeline_sampling: FixedRateSampling | RowSampling | None = None,
    shuffle: ShuffleStrategy | None = None,
    seed: int = 0,
    epoch: int = 0,
    batch_size: int = RUN,
    block_size: int = BLOCK,
    cache_bytes: int = CACHE_BYTES,
    partitions: int | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Return the samples of an epoch as a lazy Spark DataFrame, in the order in which a trainer would get them.

    A row is a sample. ``place`` is its place in the epoch, ``sample`` its number, ``segment_id`` and the index column
    its origin, and ``is_repeat`` is true if a mixture repeats it. An index of times is a ``timestamp`` or an ``interval
    day to second`` in microseconds; ``<index>_nanoseconds`` has the exact value. Numbers are arrays, nested as often as
    the field has dimensions, and text is a ``string``. Pictures and other bytes of two dimensions or more are a struct:
    ``data`` has the bytes in C order, and ``shape`` has their shape. The metadata of a column has the ``shape`` of the
    first value. Types that Spark lacks are widened.

    Each task reads the samples of one range of places. The ranges are consecutive, so the rows of the DataFrame are in
    the order of ``place``. Skipped samples (``fill="skip"``) have no row. The call pins the segments and reads one
    sample; each action reads again. Errors of tasks are Spark's ``PythonException``, with the text of the original
    error.

    Parameters
    ----------
    source
        A :class:`DataSource`, or several as a :class:`Mixture`. ``index``, ``fields``, ``timeline_sampling``,
        ``shuffle``, ``seed``, ``block_size`` and ``cache_bytes`` are those of :class:`IterableSamples`. Equal arguments
        give the same order.
    epoch
        The number of the epoch.
    batch_size
        The ``batch_size`` of an :class:`IterableSamples` with the same order.
    partitions
        The number of tasks. By default, a task has a few thousand places: blocks that two tasks share are read twice.
    spark
        The session to use, by default the active one, or a new one.

    Raises
    ------
    TypeError, ValueError
        As in :meth:`SampleIndex.build`; also for a field with the name of another column, and for values without a
        Spark type.
    ReadError
        Recordings are damaged or missing.

    Examples
    --------
    >>> samples_frame(DataSource(dataset), "frame", {"joints": Field("/arm:Scalars:scalars", NumericDecoder())})
    ...     .where("not is_repeat").write.parquet("samples")  # doctest: +SKIP
    """
    job = TrainingJob.of(
        source,
        index,
        fields,
        timeline_sampling=timeline_sampling,
        shuffle=shuffle,
        seed=seed,
        run=batch_size,
        block_size=block_size,
        cache_bytes=cache_bytes,
    )
    chosen = job.plan.epoch(epoch)
    columns = SampleColumns.of(job, chosen)
    session = spark or running_session()
    starts = _starts(len(chosen), min(job.plan.horizons), partitions, cores_of(session))
    work = EpochJob(job, chosen, starts, columns)
    return stage_of(session, work, range(len(starts)), columns.schema)


def _check_names(index: str, fields: Mapping[str, Field], extra: Sequence[str]) -> None:
    """Raise ``UsageError`` for a field with another column's name. Spark ignores case in names."""
    masks = [f"{name}_is_pad" for name, field in fields.items() if field.window is not None and field.edges != "trim"]
    seen: set[str] = set()
    for name in (*_PLACE, _IS_REPEAT, index, f"{index}{NANOSECONDS_SUFFIX}", *extra, *fields, *masks):
        if name.lower() in seen:
            raise UsageError(f"two columns would have the name {name!r}", hint="Give the field another name.")
        seen.add(name.lower())


def _first_sample(job: TrainingJob, epoch: Epoch) -> Sample:
    """Return the first sample of an epoch that is not skipped."""
    first, count = 0, 1
    with closing(JobReader(job)) as reader:
        while first < len(epoch):
            numbers: Integers = epoch.samples[first : first + count]
            samples = reader.read(numbers)
            for number in numbers.tolist():
                if number in samples:
                    return samples[number]
            first, count = first + count, 2 * count
    raise UsageError(f"each of the {len(epoch):,} samples lacks a value")


def _starts(total: int, horizon: int, partitions: int | None, cores: int | None) -> tuple[int, ...]:
    """Return the first place of each task, and the end of the last one."""
    if partitions is None:
        most = max(4 * horizon, _TASK_PLACES)
        size = min(most, max(horizon, -(-total // (cores or 1))))
        partitions = max(1, round(total / size))
    if partitions < 1:
        raise UsageError(f"partitions: expected 1 or more, got {partitions}")
    return tuple(int(start) for start in np.linspace(0, total, min(partitions, total) + 1))
