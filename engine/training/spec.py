"""A specification of samples in a YAML file: index, fields, order.

All of it is checked before anything is read. An error names the key and its line, as in ``fields.action.window``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..errors import UsageError
from ..specs import SpecKeys, read_spec
from .fields import Field, FixedRateSampling, ImageDecoder, NumericDecoder, RowSampling, TextDecoder, VideoFrameDecoder
from .job import TrainingJob
from .plan import RUN, BlockShuffle, NoShuffle, SampleShuffle, ShuffleStrategy
from .samples import BLOCK, CACHE_BYTES
from .source import DataSource


@dataclass(frozen=True)
class SampleSpec:
    """The specification of samples and their order in a file: the arguments of :class:`IterableSamples`.

    Examples
    --------
    >>> spec = SampleSpec.of({"index": "frame", "fields": {"arm": {"path": "/arm:Scalars:scalars", "window": [0, 1]}}})
    >>> spec.fields["arm"].window, spec.arguments["batch_size"]
    ((0, 1), 32)
    """

    index: str
    fields: Mapping[str, Field]
    timeline_sampling: FixedRateSampling | RowSampling | None = None
    shuffle: ShuffleStrategy | None = None
    seed: int = 0
    batch_size: int = RUN
    block_size: int = BLOCK
    segments: tuple[str, ...] | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SampleSpec:
        """Read a specification from a YAML or JSON file.

        Raises
        ------
        SourceMissingError, ReadError
            The file is missing or not YAML.
        MissingExtraError
            PyYAML is not installed.
        ValueError
            As for :meth:`of`, with the line of the key.
        """
        given, lines = read_spec(path, "index: frame", "training")
        return cls._of(_Keys(given, "", lines))

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SampleSpec:
        """Create a specification from a mapping with the structure of the YAML files.

        Raises ``ValueError`` for a missing, unknown or invalid key, which the message names.
        """
        return cls._of(_Keys(given, ""))

    @classmethod
    def _of(cls, keys: _Keys) -> SampleSpec:
        index = keys.take("index", str, required=True)
        named = keys.take("fields", dict, required=True)
        segments = keys.take("segments", list)
        if segments is not None and not all(isinstance(some, str) for some in segments):
            raise keys.wrong("segments", f"{segments!r} is not a list of ids")
        made = cls(
            index,
            {str(name): _field(keys.inner(value, f"fields.{name}")) for name, value in named.items()},
            _sampling(keys),
            _shuffle(keys),
            keys.take("seed", int, 0),
            keys.count("batch_size", RUN),
            keys.count("block_size", BLOCK),
            None if segments is None else tuple(segments),
        )
        keys.close()
        if not named:
            raise keys.wrong("fields", "there is none")
        return made

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of :class:`IterableSamples` and of :func:`samples_frame`, without the source."""
        names = ("index", "fields", "timeline_sampling", "shuffle", "seed", "batch_size", "block_size")
        return {name: getattr(self, name) for name in names}

    def source(self, dataset: Any) -> DataSource:
        """Return a dataset's segments that the specification names, or all."""
        return DataSource(dataset, self.segments)

    def job(self, dataset: Any) -> TrainingJob:
        """Return the job with a dataset's samples. Raises the errors of :meth:`SampleIndex.build`."""
        arguments = self.arguments
        return TrainingJob.of(
            self.source(dataset), run=arguments.pop("batch_size"), cache_bytes=CACHE_BYTES, **arguments
        )


class _Keys(SpecKeys):
    hint = "See docs/training.md for the keys of a specification."

    def inner(self, given: Any, place: str) -> _Keys:
        return _Keys(given, place, self.lines)

    def count(self, key: str, default: int) -> Any:
        value = self.take(key, int, default)
        if value < 1:
            raise self.wrong(key, f"{value!r} must be at least 1")
        return value

    def chosen(self, key: str, makers: Mapping[str, Callable[[_Keys], Any]]) -> Any:
        """Make an object from its name, ``decode: image``, or with options, ``decode: {by: image, size: [96, 96]}``."""
        given = self.take(key, (str, dict))
        if given is None:
            return None
        options = self.inner({"by": given} if isinstance(given, str) else given, self.at(key))
        name = options.take("by", str, required=True)
        if name not in makers:
            raise self.wrong(key, f"{name!r} is not one of {', '.join(makers)}")
        made = _made(options, lambda: makers[name](options))
        options.close()
        return made


def _made(keys: _Keys, make: Callable[[], Any]) -> Any:
    """Make an object from the values of keys. Raises ``UsageError`` with the key for invalid values."""
    try:
        return make()
    except UsageError as error:
        raise error if error.hint == keys.hint else keys.wrong("", error.message) from None


def _part(keys: _Keys) -> dict[str, Any]:
    """Return the wanted part of a picture and its size. The decoder checks them."""
    given = {name: keys.take(name, list) for name in ("size", "crop")}
    return {name: tuple(value) for name, value in given.items() if value is not None}


_DECODERS: Final[Mapping[str, Callable[[_Keys], Any]]] = {
    "numeric": lambda keys: NumericDecoder(keys.take("dtype", str)),
    "text": lambda _: TextDecoder(),
    "image": lambda keys: ImageDecoder(**_part(keys)),
    "video": lambda keys: VideoFrameDecoder(keys.count("threads", 1), **_part(keys)),
}

_SHUFFLES: Final[Mapping[str, Callable[[_Keys], ShuffleStrategy]]] = {
    "none": lambda _: NoShuffle(),
    "sample": lambda _: SampleShuffle(),
    "block": lambda keys: BlockShuffle(keys.take("buffer_size", int, 1024), keys.take("lanes", int, 8)),
}


def _shuffle(keys: _Keys) -> ShuffleStrategy | None:
    made: ShuffleStrategy | None = keys.chosen("shuffle", _SHUFFLES)
    return made


def _sampling(keys: _Keys) -> FixedRateSampling | RowSampling | None:
    given = keys.take("timeline_sampling", dict)
    if given is None:
        return None
    inner = keys.inner(given, keys.at("timeline_sampling"))
    rate, rows = inner.take("rate_hz", (int, float)), inner.take("rows", str)
    inner.close()
    if (rate is None) == (rows is None):
        raise keys.wrong("timeline_sampling", "give either rate_hz or rows")
    made: FixedRateSampling | RowSampling
    made = RowSampling(rows) if rate is None else _made(inner, lambda: FixedRateSampling(float(rate)))
    return made


def _field(keys: _Keys) -> Field:
    window = keys.take("window", list)
    if window is not None and not all(type(offset) in (int, float) for offset in window):
        raise keys.wrong("window", f"{window!r} is not a list of numbers")
    path, select = keys.take("path", str, required=True), keys.take("select", str)
    decode = keys.chosen("decode", _DECODERS) or NumericDecoder()
    staleness = keys.take("max_staleness", (int, float))
    fill, edges = keys.take("fill", str), keys.take("edges", str)
    keys.close()
    if select is not None:
        _check_selector(keys, select)
    made: Field = _made(keys, lambda: Field(path, decode, select, window, staleness, fill, edges))
    return made


def _check_selector(keys: _Keys, text: str) -> None:
    from ...lenses import Selector

    try:
        Selector(text)
    except ValueError as error:
        raise keys.wrong("select", f"{text!r} is not a selector: {getattr(error, 'message', error)}") from None
