"""Statistics of samples' fields, and the normalisation of values by these."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ..errors import UsageError
from ..execution import cores_of, query_executor, stage_of
from ..limits import MIB
from ..spark import running_session
from ..statistics import QUANTILES, PixelCounts, Statistics, pixel_step, sampled_frames
from .fields import Field, FixedRateSampling, ImageDecoder, NumericDecoder, RowSampling, VideoFrameDecoder
from .plan import Integers
from .samples import Sample, SampleIndex, SampleReader
from .source import DataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mode = Literal["mean_std", "min_max", "quantile"]

_MODES: Final = ("mean_std", "min_max", "quantile")
_EXACT: Final = 1 << 20
"""The maximum number of values per dimension for exact quantiles."""

_OF_PIECE: Final = 1 << 16
_READ: Final = 4096
_PICTURES: Final = 32
_PIECE: Final = pa.schema(
    [
        ("field", pa.string()),
        ("shape", pa.list_(pa.int64())),
        ("dimension", pa.int64()),
        ("samples", pa.int64()),
        ("values", pa.int64()),
        *((name, pa.float64()) for name in ("minimum", "maximum", "mean", "squares")),
        ("points", pa.list_(pa.float64())),
    ]
)
_SPARK: Final = (
    "field string, shape array<bigint>, dimension bigint, samples bigint, values bigint, minimum double, "
    "maximum double, mean double, squares double, points array<double>"
)
_FIGURES: Final = ("mean", "std", "min", "max", *(f"q{round(q * 100):02d}" for q in QUANTILES))
_KEPT: Final = pa.schema(
    [
        ("source", pa.string()),
        ("index", pa.string()),
        ("field", pa.string()),
        ("shape", pa.list_(pa.int64())),
        ("count", pa.list_(pa.int64())),
        *((name, pa.list_(pa.float64())) for name in _FIGURES),
    ]
)


@dataclass(frozen=True)
class FieldStatistics:
    """The statistics of one field. They have the shape of its values; for pictures, one number per channel.

    ``count`` is the number of values of each statistic, without missing values and NaN.
    """

    shape: tuple[int, ...]
    count: npt.NDArray[np.int64]
    figures: Mapping[str, npt.NDArray[np.float64]]
    """The statistics by LeRobot's names: ``mean``, ``std``, ``min``, ``max``, ``q01`` to ``q99``."""

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        return self.figures[name]

    def to_json(self, scale: float = 1.0) -> dict[str, Any]:
        """The statistics in the format of LeRobot's ``meta/stats.json``, divided by ``scale`` (255 for pictures)."""
        shown = {name: (figure / scale).tolist() for name, figure in self.figures.items()}
        return {**shown, "count": [int(self.count.max(initial=0))]}

    def row(self) -> dict[str, Any]:
        """Return the table row of these statistics."""
        flat = {name: figure.ravel().tolist() for name, figure in self.figures.items()}
        return {"shape": list(self.shape), "count": self.count.ravel().tolist(), **flat}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> FieldStatistics:
        """Return the statistics of a table's row."""
        shape = tuple(row["shape"])
        figures = {name: np.array(row[name], np.float64).reshape(shape) for name in _FIGURES}
        return cls(shape, np.array(row["count"], np.int64).reshape(shape), figures)


@dataclass(frozen=True)
class Normalisation:
    """Statistics of fields, with a mode of normalisation for each field.

    ``mean_std`` maps the mean to 0 and the standard deviation to 1. ``min_max`` maps the minimum to -1 and the maximum
    to 1. ``quantile`` maps the quantiles 0.01 and 0.99 to -1 and 1, and does not clip other values. A constant becomes
    0. Values become ``float32``. Create one by :meth:`of`. ``IterableSamples(..., normalisation=...)`` returns
    normalised values, and its state identifies the statistics. To normalise on the GPU instead, call the object on
    batches there.

    Examples
    --------
    >>> figures = {name: np.array([float(n)]) for n, name in enumerate(["min", "mean", "std", "max"])}
    >>> made = Normalisation({"arm": FieldStatistics((1,), np.array([9]), figures)}, {"arm": "min_max"})
    >>> made({"arm": np.array([0.0, 3.0]), "task": "lift"})["arm"].tolist()
    [-1.0, 1.0]
    """

    statistics: Mapping[str, FieldStatistics]
    modes: Mapping[str, Mode]

    @classmethod
    def of(
        cls,
        source: DataSource,
        index: str,
        fields: Mapping[str, Field],
        modes: Mapping[str, Mode] | Mode = "mean_std",
        *,
        timeline_sampling: FixedRateSampling | RowSampling | None = None,
        table: str | None = None,
        executor: str | None = None,
        spark: SparkSession | None = None,
    ) -> Normalisation:
        """Compute statistics of fields over the samples of the present version of a source.

        Each sample contributes the value at its time; windows and padding do not count. Mean, deviation, minimum and
        maximum are exact. Quantiles are exact up to a million values, and otherwise within 0.002 of their rank.
        Pictures have one number per channel, from the frames and pixels that LeRobot uses: 100 to 10,000 frames of each
        segment, or all if there are fewer.

        Parameters
        ----------
        source, index, fields, timeline_sampling
            As in :class:`IterableSamples`.
        modes
            The mode of each field to normalise. A single mode applies to all fields of numbers, but not to pictures.
        table
            The name of a table for statistics in the dataset's catalog. Statistics of the same contents and fields are
            read from the table; others are computed and added to it. None: always compute.
        executor
            The executor that reads: ``spark`` or ``inline``, by default as for queries.
        spark
            The session to use, by default the active one, or a new one.

        Raises
        ------
        ValueError
            There is no such field or mode; or a field has no values, an infinite value, or values that are not numbers.
        ReadError
            Recordings are damaged.
        """
        if isinstance(modes, str):
            modes = {name: modes for name, some in fields.items() if isinstance(some.decode, NumericDecoder)}
        for name, mode in modes.items():
            if name not in fields:
                raise UsageError(f"modes: there is no field {name!r}")
            if mode not in _MODES:
                raise UsageError(f"modes: expected one of {', '.join(_MODES)}, got {mode!r}")
        if not modes:
            raise UsageError("modes: there is no field of numbers", hint="Give the fields to normalise.")
        chosen = {name: _plain(name, fields[name]) for name in modes}
        samples = SampleIndex.build(source, index, chosen, timeline_sampling=timeline_sampling)
        if table is None:
            statistics: dict[str, FieldStatistics] = {}
        else:
            keys = {name: _key(index, timeline_sampling, name, some) for name, some in chosen.items()}
            statistics = _kept(source, table, samples.source.digest, keys)
        missing = {name: some for name, some in chosen.items() if name not in statistics}
        if missing:
            computed = _computed(replace(samples, fields=missing), executor, spark)
            if table is not None:
                rows = [
                    {"source": samples.source.digest, "index": index, "field": keys[name], **some.row()}
                    for name, some in computed.items()
                ]
                _table(source, table).append(pa.Table.from_pylist(rows, _KEPT).to_batches())
            statistics |= computed
        return cls({name: statistics[name] for name in modes}, dict(modes))

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return a sample or batch with normalised fields. Arrays stay arrays, and tensors stay tensors."""
        return {name: self._moved(name, value, back=False) for name, value in batch.items()}

    def undone(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values before normalisation, for example for actions that a model returns."""
        return {name: self._moved(name, value, back=True) for name, value in batch.items()}

    @property
    def version(self) -> str:
        """A digest of the statistics and modes, for the state of a job."""
        state = xxhash.xxh3_128()
        for name in sorted(self.modes):
            state.update(f"{name}\0{self.modes[name]}\0{self.statistics[name].shape}".encode())
            for figure in _FIGURES:
                values = self.statistics[name].figures.get(figure)
                state.update(b"" if values is None else values.tobytes())
        return state.hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The statistics of each field in the format of LeRobot's ``meta/stats.json``; pictures from 0 to 1."""
        return {name: some.to_json(255.0 if len(some.shape) == 3 else 1.0) for name, some in self.statistics.items()}

    def _moved(self, name: str, value: Any, *, back: bool) -> Any:
        if name not in self.modes or value is None:
            return value
        offset, scale = self._line(name)
        if isinstance(value, np.ndarray):
            moved = value * scale + offset if back else (value - offset) / scale
            return moved.astype(np.float32)
        import torch

        kind = torch.float64 if value.dtype == torch.float64 else torch.float32
        by, to = (torch.as_tensor(some, dtype=kind, device=value.device) for some in (scale, offset))
        values = value.to(kind)
        return (values * by + to if back else (values - to) / by).to(torch.float32)

    def _line(self, name: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        figures, mode = self.statistics[name].figures, self.modes[name]
        if mode == "mean_std":
            offset, scale = figures["mean"], figures["std"]
        else:
            low, high = (figures[end] for end in (("min", "max") if mode == "min_max" else ("q01", "q99")))
            offset, scale = (low + high) / 2, (high - low) / 2
        return offset, np.where(scale > 0, scale, 1.0)


def _plain(name: str, field: Field) -> Field:
    """Return the field without its window."""
    decoder = field.decode
    is_picture = isinstance(decoder, ImageDecoder | VideoFrameDecoder) and decoder.output_format == "rgb"
    if not is_picture and not isinstance(decoder, NumericDecoder):
        raise UsageError(f"there are no statistics for the field {name!r}, which is decoded by {decoder!r}")
    return replace(field, window=None, fill="none", edges="pad")


def _key(index: str, sampling: FixedRateSampling | RowSampling | None, name: str, field: Field) -> str:
    """Return the facts that, with the source's contents, identify a field's statistics."""
    if field.select is not None and not isinstance(field.select, str):
        raise UsageError(
            f"the selector of the field {name!r} has Python functions, which a table cannot identify",
            hint="Omit table, or give the selector as text.",
        )
    facts = {
        "path": field.path, "decode": repr(field.decode), "select": field.select, "max_staleness": field.max_staleness,
        "index": index, "sampling": None if sampling is None else [type(sampling).__name__, asdict(sampling)],
    }  # fmt: skip
    return json.dumps(facts, sort_keys=True)


# --- stored in a table


def _table(source: DataSource, name: str) -> Any:
    dataset = source.dataset
    catalog = getattr(dataset, "catalog", None) or getattr(getattr(dataset, "dataset", None), "catalog", None)
    if catalog is None:
        raise UsageError(f"the table {name!r} needs a dataset of a catalog, not {type(dataset).__name__}")
    if name not in catalog.table_names():
        return catalog.create_table(name, _KEPT)
    table = catalog.get_table(name)
    lacking = sorted(set(_KEPT.names) - set(table.arrow_schema().names))
    if lacking:
        raise UsageError(f"the table {name!r} is not a table of statistics: it has no column {lacking[0]!r}")
    return table


def _kept(source: DataSource, name: str, digest: str, keys: Mapping[str, str]) -> dict[str, FieldStatistics]:
    """Return a table's statistics of some contents."""
    rows = _table(source, name).to_arrow_reader().read_all().to_pylist()
    by_key = {row["field"]: row for row in rows if row["source"] == digest}
    return {name: FieldStatistics.of_row(by_key[key]) for name, key in keys.items() if key in by_key}


# --- computed


@dataclass(frozen=True)
class StatisticsJob:
    """The function of a task that computes the statistics of one segment's fields. Picklable."""

    index: SampleIndex

    def run(self, index: int) -> Iterator[pa.RecordBatch]:
        """Yield a row for each dimension of each field with values in a segment."""
        first, end = self.index.segment_offsets[index : index + 2].tolist()
        rows: list[dict[str, Any]] = []
        for name, field in self.index.fields.items():
            with closing(SampleReader(replace(self.index, fields={name: field}))) as reader:
                make = _of_numbers if isinstance(field.decode, NumericDecoder) else _of_pictures
                rows += make(name, reader, np.arange(first, end))
        if rows:
            yield from pa.Table.from_pylist(rows, _PIECE).to_batches()


def _of_numbers(name: str, reader: SampleReader, samples: Integers) -> list[dict[str, Any]]:
    values = [value for some in _values(name, reader, samples, _READ) for value in some]
    if not values:
        return []
    shapes = {value.shape for value in values}
    if len(shapes) > 1:
        raise UsageError(f"the field {name!r} has values of different shapes: {sorted(shapes)[:3]}")
    numbers = np.stack(values).reshape(len(values), -1).astype(np.float64)
    rows = []
    for dimension, column in enumerate(numbers.T):
        column = column[~np.isnan(column)]
        if len(column):
            try:
                statistics = Statistics.of(column)
            except UsageError as error:
                raise UsageError(f"the field {name!r} has an infinite value", hint=error.hint) from error
            points = np.sort(column) if len(column) <= _OF_PIECE else statistics.points[:, 0]
            rows.append(_row(name, next(iter(shapes)), dimension, len(values), statistics, points))
    return rows


def _of_pictures(name: str, reader: SampleReader, samples: Integers) -> list[dict[str, Any]]:
    counts: PixelCounts | None = None
    channels = 0
    if not len(samples):
        return []
    chosen = samples[sampled_frames(len(samples))]
    for pictures in _values(name, reader, chosen, _PICTURES):
        for picture in pictures:
            if picture.dtype != np.uint8:
                raise UsageError(f"the field {name!r} has pictures of {picture.dtype}, but statistics need 8 bits")
            if counts is None:
                channels = len(picture)
                counts = PixelCounts(channels)
            if len(picture) != channels:
                raise UsageError(f"the field {name!r} has pictures of {channels} and of {len(picture)} channels")
            step = pixel_step(*picture.shape[1:])
            counts.add(picture.transpose(1, 2, 0)[::step, ::step])
    if counts is None:
        return []
    whole = counts.statistics()
    return [
        _row(name, (channels, 1, 1), channel, whole.samples, whole, whole.points[:, channel], channel)
        for channel in range(channels)
    ]


def _values(name: str, reader: SampleReader, samples: Integers, count: int) -> Iterator[list[npt.NDArray[Any]]]:
    """Yield the existing values of a field, for ``count`` samples at a time."""
    for begin in range(0, len(samples), count):
        made: Iterable[Sample] = reader.read(samples[begin : begin + count]).values()
        yield [sample[name] for sample in made if sample[name] is not None]


def _row(
    name: str,
    shape: tuple[int, ...],
    dimension: int,
    samples: int,
    statistics: Statistics,
    points: npt.NDArray[np.float64],
    at: int = 0,
) -> dict[str, Any]:
    figures = {figure: float(getattr(statistics, figure)[at]) for figure in ("minimum", "maximum", "mean", "squares")}
    facts = {"field": name, "shape": list(shape), "dimension": dimension, "samples": samples}
    return {**facts, "values": statistics.values, **figures, "points": points}


def _computed(index: SampleIndex, executor: str | None, spark: SparkSession | None) -> dict[str, FieldStatistics]:
    job = StatisticsJob(index)
    count = len(index.source.segments)
    size = sum(segment.stored_bytes for segment in index.source.segments)
    if spark is None and query_executor(executor, lambda: size) == "inline":
        pieces = [batch for number in range(count) for batch in job.run(number)]
    else:
        session = spark or running_session()
        tasks = min(count, max(4 * (cores_of(session) or 1), size // (64 * MIB)))
        starts = [int(start) for start in np.linspace(0, count, tasks + 1)]
        pieces = stage_of(session, job, starts, _SPARK).toArrow().to_batches()
    rows = pa.Table.from_batches(pieces).to_pylist() if pieces else []
    return {name: _joined(name, [row for row in rows if row["field"] == name]) for name in index.fields}


def _joined(name: str, rows: Sequence[Mapping[str, Any]]) -> FieldStatistics:
    """Join the statistics of a field over segments. Raises ``UsageError`` if there are none."""
    shapes = sorted({tuple(row["shape"]) for row in rows})
    if not shapes:
        raise UsageError(f"the field {name!r} has no values, so no statistics")
    if len(shapes) > 1:
        raise UsageError(f"the values of the field {name!r} differ in shape between segments: {shapes[:3]}")
    size = int(np.prod(shapes[0]))
    count = np.zeros(size, np.int64)
    figures = {figure: np.full(size, np.nan) for figure in _FIGURES}
    for dimension in range(size):
        of_it = [row for row in rows if row["dimension"] == dimension]
        if not of_it:
            continue
        whole = Statistics.joined([_statistics(row) for row in of_it])
        count[dimension] = whole.values
        figures["mean"][dimension], figures["std"][dimension] = whole.mean[0], whole.deviation[0]
        figures["min"][dimension], figures["max"][dimension] = whole.minimum[0], whole.maximum[0]
        points = [np.array(row["points"]) for row in of_it]
        is_exact = whole.values <= _EXACT and all(len(p) == row["values"] for p, row in zip(points, of_it, strict=True))
        ranked = np.concatenate(points) if is_exact else whole.points[:, 0]
        for q in QUANTILES:
            figures[f"q{round(q * 100):02d}"][dimension] = np.quantile(ranked, q)
    shaped = {figure: values.reshape(shapes[0]) for figure, values in figures.items()}
    return FieldStatistics(shapes[0], count.reshape(shapes[0]), shaped)


def _statistics(row: Mapping[str, Any]) -> Statistics:
    low, high, mean, squares = (np.array([row[name]]) for name in ("minimum", "maximum", "mean", "squares"))
    return Statistics(row["samples"], row["values"], low, high, mean, squares, np.array(row["points"])[:, None])
