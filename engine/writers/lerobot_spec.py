"""The specification of an export to LeRobot: its features, their clocks, and its episodes.

It is checked completely before anything runs; an error names the key, as in ``features.action.rule``.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeVar

import numpy as np

from ..chunk import parse_entity_path
from ..errors import UsageError
from ..specs import SpecKeys, read_spec
from .alignment import Alignment, Outside, Rule

IMAGE: Final = "image"
VIDEO: Final = "video"
STRING: Final = "string"
_INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS: Final = ("bool", "float32", "float64", *_INTEGERS)
DTYPES: Final = (*NUMBERS, STRING, IMAGE, VIDEO)
OWN_COLUMNS: Final = ("timestamp", "frame_index", "episode_index", "index", "task_index")
"""The columns that every dataset has."""
DESCRIPTIONS: Final = ("CoordinateFrame", "SeriesLines", "SeriesPoints")
"""Archetypes that describe other values of their entity."""
TRANSFORM_ENTITIES: Final = ("/tf", "/tf_static")
TRANSFORM_KINDS: Final = ("point", "vector", "rotation", "pose")

_COLUMN_KEYS: Final = (
    *("entity", "component", "selector", "timeline"),
    *("rule", "tolerance", "outside", "offset", "transform"),
)
_MOST_FPS: Final = 10_000
_MOST_SECONDS: Final = 9e9
_Choice = TypeVar("_Choice", Rule, Outside)


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """Values of a recording: a component of an entity, or the result of a selector on it.

    Without a ``component``, it is the entity's only one, apart from static ones and ``DESCRIPTIONS``. Without a
    ``timeline``, it is that of the whole export.
    """

    entity: str
    component: str | None = None
    selector: str | None = None
    timeline: str | None = None


@dataclass(frozen=True, slots=True)
class FrameTransform:
    """A transform of values from one coordinate frame to another, by the transforms in the recording.

    ``kind`` is the kind of values: a ``point`` (x, y, z), a free ``vector``, a ``rotation`` (a quaternion x, y, z,
    w), or a ``pose`` (a point, then a rotation). Without it, three numbers are a point, four a rotation, seven a pose.
    ``entities`` have the transforms; without a ``timeline``, it is that of the values.
    """

    source_frame: str
    target_frame: str
    kind: str | None = None
    entities: tuple[str, ...] = TRANSFORM_ENTITIES
    timeline: str | None = None


@dataclass(frozen=True, slots=True)
class FeatureColumn:
    """A column of a feature: the source of its values, their alignment, and their transform to a coordinate frame."""

    source: ColumnSpec
    alignment: Alignment = field(default_factory=Alignment)
    transform: FrameTransform | None = None


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One feature: the columns of its values, their type, shape, names and units.

    The numbers of several columns are joined to one vector. Without a ``shape``, it is that of the first value. Units
    become part of the names of the numbers' metadata in ``meta/chunkmill.json``; LeRobot has no place for them.
    """

    name: str
    columns: tuple[FeatureColumn, ...]
    dtype: str = "float32"
    shape: tuple[int, ...] | None = None
    names: tuple[str, ...] = ()
    units: str | None = None

    @property
    def source(self) -> ColumnSpec:
        """The source of its only column, for images and texts."""
        (column,) = self.columns
        return column.source

    @property
    def is_picture(self) -> bool:
        """Whether its values are images."""
        return self.dtype in (IMAGE, VIDEO)


@dataclass(frozen=True, slots=True)
class WholeRecording:
    """Each recording is an episode."""


@dataclass(frozen=True, slots=True)
class TimeRanges:
    """An episode for each range, in seconds from the recording's first frame on."""

    ranges: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class WhereTrue:
    """An episode for each stretch of time in which the last value of a column is true, or ``equals`` a value."""

    column: ColumnSpec
    equals: float | str | bool | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A moment: a row of a column; with ``equals``, a row with that value after a row without it."""

    column: ColumnSpec
    equals: float | str | bool | None = None


@dataclass(frozen=True, slots=True)
class BetweenEvents:
    """An episode from each start to the first end after it; a start without an end gives none."""

    start: Event
    end: Event


@dataclass(frozen=True, slots=True)
class Labels:
    """An episode for each row of a table; with ``keep``, only for rows with one of these verdicts.

    The table, CSV or Parquet, has the columns ``recording`` (or ``rerun_segment_id``), ``start`` and ``end`` (seconds
    from the recording's first frame on, or times of its timeline), and may have ``verdict`` and ``task``.
    """

    path: str
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GivenEpisodes:
    """An episode for each row of a table that is given with the export."""

    by: str = "table"


Episodes = WholeRecording | TimeRanges | WhereTrue | BetweenEvents | Labels | GivenEpisodes


@dataclass(frozen=True, slots=True)
class ExportSpec:
    """The specification of an export: ``fps`` frames per second, with values of ``features``.

    ``task`` is the task's text, or its source.

    Raises
    ------
    UsageError
        A key is missing, unknown or invalid. The constructors raise it; the message names the key.
    """

    fps: int
    features: tuple[FeatureSpec, ...]
    task: str | ColumnSpec = ""
    timeline: str | None = None
    episodes: Episodes = field(default_factory=WholeRecording)
    minimum: float = 0.0
    robot_type: str | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ExportSpec:
        """Read a specification from a YAML or JSON file.

        Raises
        ------
        SourceMissingError, ReadError
            The file is missing or not YAML.
        MissingExtraError
            PyYAML is not installed.
        UsageError
            As for :meth:`of`.
        """
        return cls.of(read_spec(path, "fps: 30", "lerobot")[0])

    @classmethod
    def given(cls, spec: ExportSpec | Mapping[str, Any] | str | os.PathLike[str]) -> ExportSpec:
        """Return the argument itself, or a specification made from a mapping (:meth:`of`) or a file (:meth:`load`)."""
        if isinstance(spec, ExportSpec):
            return spec
        return cls.of(spec) if isinstance(spec, Mapping) else cls.load(spec)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ExportSpec:
        """Create a specification from a mapping with the structure of the YAML files."""
        keys = _Keys(given, "")
        fps = keys.take("fps", int, required=True)
        if not 0 < fps <= _MOST_FPS:
            raise _wrong("fps", f"{fps} is not a number of frames per second from 1 to {_MOST_FPS:,}")
        named = keys.take("features", dict, required=True)
        if not named:
            raise _wrong("features", "there is none")
        features = tuple(_feature(str(name), _Keys(value, f"features.{name}")) for name, value in named.items())
        task = keys.take("task", (str, dict), "")
        minimum = keys.seconds("minimum", 0.0)
        made = cls(
            fps,
            features,
            task if isinstance(task, str) else _column(_Keys(task, "task"), closes=True),
            keys.take("timeline", str, None),
            _episodes(keys.take("episodes", (str, dict), "recording")),
            minimum,
            keys.take("robot_type", str, None),
        )
        keys.close()
        if minimum < 0:
            raise _wrong("minimum", "it cannot be negative")
        return made

    @property
    def entities(self) -> tuple[str, ...]:
        """All entities that the export reads."""
        transforms = (column.transform for feature in self.features for column in feature.columns)
        frames = {entity for transform in transforms if transform is not None for entity in transform.entities}
        return tuple(sorted(frames | {column.entity for column in self.columns}))

    @property
    def columns(self) -> tuple[ColumnSpec, ...]:
        """All columns that the export reads."""
        columns = [column.source for feature in self.features for column in feature.columns]
        if isinstance(self.task, ColumnSpec):
            columns.append(self.task)
        match self.episodes:
            case WhereTrue(column, _):
                columns.append(column)
            case BetweenEvents(start, end):
                columns += [start.column, end.column]
            case _:
                pass
        return tuple(columns)

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of the features with statistics: all except texts."""
        return tuple(feature.name for feature in self.features if feature.dtype != STRING)

    @property
    def digest(self) -> str:
        """A digest of all settings that affect the output."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True, default=str).encode()).hexdigest()

    def with_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> ExportSpec:
        """Return the specification with the shapes of features that lack one."""
        return replace(self, features=tuple(replace(f, shape=f.shape or shapes.get(f.name)) for f in self.features))


class _Keys(SpecKeys):
    hint = "See docs/lerobot.md for the keys of a specification."

    def seconds(self, key: str, default: float | None = None) -> Any:
        value = self.take(key, (int, float), default)
        if value is not None and not (math.isfinite(value) and abs(value) < _MOST_SECONDS):
            raise self.wrong(key, f"{value!r} is not a number of seconds")
        return value

    def choice(self, key: str, choices: type[_Choice], default: _Choice) -> _Choice:
        value = self.take(key, str, default.value)
        if value not in [choice.value for choice in choices]:
            raise self.wrong(key, f"{value!r} is not one of {', '.join(choice.value for choice in choices)}")
        return choices(value)


def _wrong(key: str, reason: str) -> UsageError:
    return UsageError(f"{key}: {reason}", hint=_Keys.hint)


def _entity(entity: str, key: str) -> str:
    try:
        return parse_entity_path(entity)
    except ValueError as error:
        raise _wrong(key, str(error)) from None


def _column(keys: _Keys, *, closes: bool) -> ColumnSpec:
    entity = _entity(keys.take("entity", str, required=True), keys.at("entity"))
    texts = [keys.take(key, str) for key in ("component", "selector", "timeline")]
    if closes:
        keys.close()
    return ColumnSpec(entity, *texts)


def _feature(name: str, keys: _Keys) -> FeatureSpec:
    if not name or "/" in name or name in OWN_COLUMNS:
        raise _wrong(
            f"features.{name}",
            "a feature's name must not contain a slash, or be the name of a standard column of LeRobot",
        )
    columns = _feature_columns(keys)
    dtype = keys.take("dtype", str, "float32")
    if dtype not in DTYPES:
        raise _wrong(keys.at("dtype"), f"{dtype!r} is not one of {', '.join(DTYPES)}")
    shape = keys.take("shape", (list, tuple))
    if shape is not None and not (shape and all(type(n) is int and 0 < n < 2**31 for n in shape)):
        raise _wrong(keys.at("shape"), f"{shape!r} is not a list of numbers above zero")
    if shape is not None and len(shape) > 5:
        raise _wrong(keys.at("shape"), "LeRobot supports at most five dimensions")
    names = keys.take("names", (list, tuple), ())
    if not all(isinstance(each, str) for each in names):
        raise _wrong(keys.at("names"), "a name must be text")
    feature = FeatureSpec(
        name,
        columns,
        dtype,
        None if shape is None else tuple(shape),
        tuple(names),
        keys.take("units", str),
    )
    keys.close()
    _check_feature(feature, keys)
    return feature


def _alignment(keys: _Keys) -> Alignment:
    rule = keys.choice("rule", Rule, Rule.LATEST)
    tolerance, offset = keys.seconds("tolerance"), keys.seconds("offset", 0.0)
    if tolerance is not None and tolerance < 0:
        raise _wrong(keys.at("tolerance"), "it cannot be negative")
    outside = keys.choice("outside", Outside, Outside.HOLD)
    return Alignment(rule, None if tolerance is None else round(tolerance * 1e9), outside, round(offset * 1e9))


def _feature_columns(keys: _Keys) -> tuple[FeatureColumn, ...]:
    """Take the column of a feature, or the list of its columns: a column inherits missing keys from the feature."""
    listed = keys.take("columns", (list, tuple))
    if listed is None:
        return (_feature_column(keys),)
    if not listed:
        raise _wrong(keys.at("columns"), "there is none")
    shared = {key: keys.take(key, object) for key in _COLUMN_KEYS}
    columns = []
    for number, given in enumerate(listed):
        column = {"entity": given} if isinstance(given, str) else given
        place = keys.at(f"columns.{number}")
        each = _Keys(shared | dict(column) if isinstance(column, Mapping) else column, place)
        columns.append(_feature_column(each))
        each.close()
    return tuple(columns)


def _feature_column(keys: _Keys) -> FeatureColumn:
    source, alignment = _column(keys, closes=False), _alignment(keys)
    given = keys.take("transform", dict)
    return FeatureColumn(source, alignment, None if given is None else _transform(_Keys(given, keys.at("transform"))))


def _transform(keys: _Keys) -> FrameTransform:
    source, target = (keys.take(key, str, required=True) for key in ("source_frame", "target_frame"))
    kind, timeline = keys.take("kind", str), keys.take("timeline", str)
    if kind not in (None, *TRANSFORM_KINDS):
        raise _wrong(keys.at("kind"), f"{kind!r} is not one of {', '.join(TRANSFORM_KINDS)}")
    entities = keys.take("entities", (list, tuple), TRANSFORM_ENTITIES)
    if not entities or not all(isinstance(entity, str) for entity in entities):
        raise _wrong(keys.at("entities"), f"{entities!r} is not a list of entities")
    keys.close()
    paths = tuple(_entity(each, keys.at("entities")) for each in entities)
    return FrameTransform(source, target, kind, paths, timeline)


def _check_columns(feature: FeatureSpec, keys: _Keys) -> None:
    is_float = feature.dtype.startswith("float")
    for column in feature.columns:
        rule = column.alignment.rule
        if rule in (Rule.LINEAR, Rule.SLERP) and not is_float:
            raise _wrong(keys.at("rule"), f"{rule.value} interpolates values, which {feature.dtype} does not support")
        if column.transform is not None and not is_float:
            raise _wrong(keys.at("transform"), f"it makes numbers, which {feature.dtype} does not support")
    if len(feature.columns) > 1:
        if feature.is_picture or feature.dtype == STRING:
            raise _wrong(keys.at("columns"), f"a frame has a single {feature.dtype}, from a single column")
        return
    if rule is Rule.SLERP and feature.shape is not None and math.prod(feature.shape) not in (4, 7):
        raise _wrong(
            keys.at("rule"), f"slerp is for quaternions (4 numbers) and poses (7), but the shape is {feature.shape}"
        )


def _check_feature(feature: FeatureSpec, keys: _Keys) -> None:
    _check_columns(feature, keys)
    size = None if feature.shape is None else math.prod(feature.shape)
    if feature.dtype == STRING:
        if feature.shape not in (None, (1,)):
            raise _wrong(keys.at("shape"), f"a frame has a single text, but the shape is {list(feature.shape or ())}")
        if feature.names:
            raise _wrong(keys.at("names"), "texts have none")
    if feature.is_picture:
        if feature.shape is not None and (len(feature.shape) != 3 or feature.shape[2] not in (1, 3)):
            raise _wrong(keys.at("shape"), f"an image has the shape [height, width, 3], not {list(feature.shape)}")
        if feature.names:
            raise _wrong(keys.at("names"), "images have none")
    elif feature.names and size is not None and len(feature.names) != size:
        raise _wrong(keys.at("names"), f"there are {len(feature.names)} names for {size} numbers")


def _episodes(given: str | Mapping[str, Any]) -> Episodes:
    keys = _Keys({"by": given} if isinstance(given, str) else given, "episodes")
    by = keys.take("by", str, "recording")
    made: Episodes
    if by == "recording":
        made = WholeRecording()
    elif by == "ranges":
        made = TimeRanges(tuple(_range(pair, keys.at("ranges")) for pair in keys.take("ranges", list, required=True)))
    elif by == "column":
        made = WhereTrue(_column(keys, closes=False), keys.take("equals", (bool, int, float, str)))
    elif by == "events":
        made = BetweenEvents(*(_event(keys.take(key, dict, required=True), keys.at(key)) for key in ("start", "end")))
    elif by == "labels":
        keep = keys.take("keep", list, [])
        made = Labels(keys.take("table", str, required=True), tuple(map(str, keep)))
    else:
        raise _wrong("episodes.by", f"{by!r} is not one of recording, ranges, column, events, labels")
    keys.close()
    return made


def _range(pair: Any, key: str) -> tuple[float, float]:
    is_pair = isinstance(pair, Sequence) and len(pair) == 2 and all(type(n) in (int, float) for n in pair)
    if not is_pair or not np.isfinite(pair).all() or not -_MOST_SECONDS < pair[0] < pair[1] < _MOST_SECONDS:
        raise _wrong(key, f"{pair!r} is not a start and a later end, in seconds")
    return float(pair[0]), float(pair[1])


def _event(given: Mapping[str, Any], place: str) -> Event:
    keys = _Keys(given, place)
    column, equals = _column(keys, closes=False), keys.take("equals", (bool, int, float, str))
    keys.close()
    return Event(column, equals)
