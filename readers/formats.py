"""The registry of formats, with one row per format. Everything else about formats is derived from these rows.

A row has the names and first bytes of files, and the class for one file. The fields of that class are the options. The
rows make the options of ``chunkmill convert`` and ``ingest``, of Spark's data sources and of :class:`Ingest`. They also
say which files are searched for in folders, and what ``chunkmill inspect`` shows. :func:`register` adds a row, and so
does each entry point of the group ``chunkmill.readers`` in an installed package.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from ..engine.errors import ReadError, ReadWarning, SourceMissingError, UnsupportedError, UsageError
from ..engine.locations import Location, exists, located
from .bag import BagRecording
from .hdf5 import Hdf5Recording
from .lerobot import LeRobotRecording
from .mcap.recording import McapRecording
from .mp4 import Mp4Recording
from .parquet import ParquetRecording
from .recording_file import Option, RecordingFile
from .rosbag2 import Rosbag2Recording
from .rrd_recording import RrdRecording
from .store_recording import StoreRecording

if TYPE_CHECKING:
    from .inspection import FileReport

_MAGIC_SIZE = 16
ENTRY_POINTS = "chunkmill.readers"
"""The group of entry points by which packages add formats; each names a :class:`Format`."""

_OURS = "chunkmill"


@dataclass(frozen=True, slots=True)
class Format:
    """A format: one row of the registry.

    ``name`` is also the name in Spark's data source (``chunkmill.name``). ``title`` is used in messages (``an MCAP``).
    ``suffixes`` (in lower case) and ``magic`` (the first bytes) identify files. With a ``marker``, the format is a
    folder that contains a file with this path or pattern. ``file`` is the class for one file; its fields are the
    options.
    """

    name: str
    title: str
    file: type[RecordingFile]
    suffixes: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    marker: str | None = None

    @property
    def options(self) -> tuple[Option, ...]:
        """The options of the format."""
        return self.file.options()

    @property
    def has_episodes(self) -> bool:
        """Whether a file or a folder contains recordings that are separate inputs."""
        return self.file.episodes is not RecordingFile.episodes

    def open(self, path: Location, given: Mapping[str, Any] | None = None) -> RecordingFile:
        """Open one file of the format; ``given`` options of other formats are ignored."""
        own = {o.name: given[o.name] for o in self.options if o.name in given} if given else {}
        return self.file(path, **own)

    def inspect(self, path: Location, given: Mapping[str, Any] | None = None) -> FileReport:
        """Return the report on a file, opened with options. Raises ``ReadError`` if the file is missing or damaged."""
        return replace(self.open(path, given).report(), format=self.name)

    def choosing(self, episode: int | str | None) -> dict[str, Any]:
        """Return the option that selects an episode by its number; empty for None."""
        return {} if episode is None else {self.file.episode_option: episode}

    def begins(self, path: Location) -> bool:
        """Return True if a file begins with the magic bytes of this format. Its name is not used."""
        return bool(self.magic) and _first_bytes(path).startswith(self.magic)

    def is_dataset(self, folder: Location) -> bool:
        """Return True if a folder, or a prefix of an object store, is one input of this format."""
        return self.marker is not None and self.file.is_one_input(folder, self.marker)


_rows: dict[str, Format] = {}
_of_suffix: dict[str, Format] = {}
_installed: set[EntryPoint] = set()


class _Formats(Mapping[str, Format]):
    """The rows, including those of installed packages."""

    def __getitem__(self, name: str) -> Format:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> Mapping[str, Format]:
        _load_installed()
        return _rows


FORMATS: Mapping[str, Format] = _Formats()
"""All formats, by their names; :func:`register` adds to them."""


def register(row: Format) -> None:
    """Add a format to all commands, later ingestions and new Spark sessions.

    The code of its class is sent to Spark's workers. Call this when a program starts: running Spark sessions and tasks
    do not see new formats. Raises ``UsageError`` if the name, a suffix or an option belongs to another format.
    """
    if FORMATS.get(row.name) is row:  # added by its entry point
        return
    for other in FORMATS.values():
        _check_apart(row, other)
    if row.file.__module__.partition(".")[0] != _OURS and row.file.__module__ in sys.modules:
        from ..engine.execution import send_by_value  # not loaded for the command line's help

        send_by_value(sys.modules[row.file.__module__])
    _add(row)


def _load_installed() -> None:
    """Add the formats of installed packages. A format that cannot be added is left out with a ``ReadWarning``.

    This happens when the registry is first used and not when it is imported, as a package's own module imports it.
    """
    for point in _entry_points():
        if point in _installed:
            continue
        _installed.add(point)
        package = point.dist.name if point.dist is not None else point.value
        try:
            row = point.load()
            if not isinstance(row, Format):
                raise UsageError(f"{point.value} is not a chunkmill.readers.Format")
            if _rows.get(row.name) is row:  # its module registers it, too
                continue
            for other in _rows.values():
                _check_apart(row, other)
        except Exception as error:  # noqa: BLE001 (whatever a foreign module does, the others are read)
            why = f"{type(error).__name__}: {error}"
            text = f"the format {point.name!r} of the package {package} is ignored: {why}"
            warnings.warn(text, ReadWarning, stacklevel=4)
        else:
            _add(row)


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=ENTRY_POINTS)))


def unregister(name: str) -> None:
    """Remove a format that :func:`register` added. Raises ``KeyError`` if there is no format of this name."""
    row = _rows.pop(name)
    for suffix in row.suffixes:
        del _of_suffix[suffix]


def _add(row: Format) -> None:
    _rows[row.name] = row
    _of_suffix.update(dict.fromkeys(row.suffixes, row))


def _check_apart(row: Format, other: Format) -> None:
    if row.name == other.name:
        raise UsageError(f"there is already a format {row.name!r}")
    for suffix in row.suffixes:
        if suffix in other.suffixes or suffix != suffix.lower() or not suffix.startswith("."):
            raise UsageError(
                f"format {row.name!r}: {suffix!r} is the suffix of another format, or not a suffix",
                hint="A suffix begins with a dot, is in lower case, and belongs to one format only.",
            )
    theirs = {o.name: o for o in other.options} | {o.flag: o for o in other.options if o.flag}
    for option in row.options:
        for other_option in (theirs.get(option.name), theirs.get(option.flag) if option.flag else None):
            if other_option is not None and other_option != option:
                raise UsageError(
                    f"format {row.name!r}: its option {option.name!r} differs from the option of {other.name!r}",
                    hint="Rename the option and its flag, or reuse the option of the other format.",
                )


def all_suffixes() -> tuple[str, ...]:
    """The suffixes of all formats, sorted. Folders are searched for files with these suffixes."""
    _load_installed()
    return tuple(sorted(_of_suffix))


def all_options() -> list[Option]:
    """The options of all formats, without duplicates."""
    return list({o.name: o for row in FORMATS.values() for o in row.options}.values())


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options, by field name or flag, to options by field name.

    None and empty values are left out. Raises ``TypeError`` for a name that no format has.
    """
    options = {o.name: o for o in all_options()}
    options |= {o.keyword: o for o in options.values() if o.keyword is not None}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in options:
            raise TypeError(f"no format has an option {name!r}; there are {', '.join(sorted(options))}")
        if value is not None and value != ():
            is_one = isinstance(value, str) or not isinstance(value, Iterable)
            many = options[name].many
            values[options[name].name] = value if not many else (value,) if is_one else tuple(value)
    return values


def suffix_of(name: str) -> str:
    """Return the suffix of a recording's file name with its upper and lower case, or "" for any other name."""
    _load_installed()
    lower = name.lower()
    size = max((len(suffix) for suffix in _of_suffix if lower.endswith(suffix)), default=0)
    return name[len(name) - size :]


def format_of_name(name: str) -> Format | None:
    """The format of a file by its name, or None."""
    return _of_suffix.get(suffix_of(name).lower())


def is_rrd(name: str) -> bool:
    """Return True if a file name is the name of an RRD."""
    return format_of_name(name) is RRD


def rrd_suffix(name: str) -> str:
    """Return the suffix for the RRD of a file; a blueprint keeps its suffix."""
    return ".rbl" if name.lower().endswith(".rbl") else ".rrd"


def stem_of(name: str) -> str:
    """Return the name of a file without the suffix of its format, or else without its last suffix.

    >>> stem_of("drive.v2.mcap.zst"), stem_of("drive.v2.txt")
    ('drive.v2', 'drive.v2')
    """
    suffix = suffix_of(name) or PurePath(name).suffix
    return name[: len(name) - len(suffix)] or name


def dataset_format(folder: Location) -> Format | None:
    """The format of a folder that is one input, or None for any other folder."""
    return next((row for row in FORMATS.values() if row.is_dataset(folder)), None)


def lands_whole(folder: Path) -> bool:
    """Return True if an ingestion treats a folder as one input."""
    return any(row.file.lands_whole and row.is_dataset(folder) for row in FORMATS.values())


def detect_format(path: Location) -> Format:
    """Return the format of ``path`` by its suffix, or else by its first bytes.

    The suffix comes first, so that the reader of the format can report the fault of a damaged recording. Raises
    ``SourceMissingError``, ``UnsupportedError``, and ``ReadError`` for pipes and devices.
    """
    is_folder = path.is_dir() if isinstance(path, Path) else format_of_name(path.name) is None
    dataset = dataset_format(path) if is_folder else None
    if dataset is not None:
        return dataset
    if is_folder and isinstance(path, Path):
        raise SourceMissingError("this is a folder", path=str(path), hint="Give a recording in it.")
    if not exists(path):
        raise SourceMissingError("there is no such file", path=str(path), hint="Check the spelling of the path.")
    if isinstance(path, Path) and not path.is_file():
        raise ReadError(
            "this is a pipe or a device, but recordings need random access",
            path=str(path),
            hint="Write it to a file first.",
        )
    named_format = format_of_name(path.name)
    if named_format is not None:
        return named_format
    magic = _first_bytes(path)
    for row in FORMATS.values():
        if row.magic and magic.startswith(row.magic):
            return row
    files = [row.title for row in FORMATS.values() if row.marker is None or row.suffixes]
    raise UnsupportedError(
        f"this is neither {' nor '.join(files)}",
        path=str(path),
        offset=0,
        hint=f"chunkmill reads these {len(files)} formats; a package with an entry point {ENTRY_POINTS!r} adds others.",
    )


def inspect(path: str | os.PathLike[str]) -> FileReport:
    """Describe a recording as ``chunkmill inspect`` does: entities or topics, columns, counts, times.

    Raises ``SourceMissingError``, ``UnsupportedError``, and ``ReadError`` for a damaged file.
    """
    place = located(path)
    return detect_format(place).inspect(place)


def _first_bytes(path: Location) -> bytes:
    if isinstance(path, Path):
        with path.open("rb") as file:
            return file.read(_MAGIC_SIZE)
    from ..engine.storage import RemoteFile

    with RemoteFile(path) as remote:
        return remote.read(_MAGIC_SIZE)


RRD = Format("rrd", "an RRD", RrdRecording, (".rrd", ".rbl"), (b"RRF", b"RRIO"))

STORE = Format("store", "a store of recordings", StoreRecording, marker="versions/[0-9]*.json")

for _row in (
    Format(
        "mcap",
        "an MCAP",
        McapRecording,
        (".mcap", ".mcap.lz4", ".mcap.zst", ".mcap.zstd"),
        # Its own magic, and those of Zstandard and LZ4, as a whole MCAP may be compressed.
        (b"\x89MCAP", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"),
    ),
    RRD,
    Format(
        "parquet",
        "a Parquet file",
        ParquetRecording,
        (".parquet", ".parq", ".pq"),
        (b"PAR1", b"PARE"),
        marker="_chunkmill.json",
    ),
    Format("lerobot", "a LeRobot dataset", LeRobotRecording, marker="meta/info.json"),
    STORE,
    Format("bag", "a ROS 1 bag", BagRecording, (".bag", ".bag.active"), (b"#ROSBAG", b"#ROSRECORD", b"#ROSLOG")),
    Format(
        "rosbag2",
        "a rosbag2 database",
        Rosbag2Recording,
        (".db3", ".db3.zstd", ".db3.zst"),
        (b"SQLite format 3\0",),
        marker="metadata.yaml",
    ),
    Format(
        "mp4",
        "an MP4 or Matroska file",
        Mp4Recording,
        (".mp4", ".m4v", ".mov", ".mkv", ".webm"),
        (b"\x1aE\xdf\xa3", *(bytes((0, 0, 0, size)) + b"ftyp" for size in range(16, 68, 4))),
    ),
    Format("hdf5", "an HDF5 file", Hdf5Recording, (".hdf5", ".h5", ".hdf"), (b"\x89HDF\r\n\x1a\n",)),
):
    _add(_row)
