"""The files of a recording: those of a folder, by its ``metadata.yaml`` if that is usable, else by their names."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...engine.errors import ReadError, ReadWarning, SourceMissingError, UnsupportedError, extra_command
from ...engine.limits import MIB
from ...engine.locations import Location
from ...engine.storage import ObjectUrl

ZSTD: Final = (".zstd", ".zst")
"""The suffixes of storage files that are compressed as a whole."""

BESIDE: Final = ("-wal", "-journal")
"""The suffixes of files next to a database with changes that are not yet applied."""

METADATA: Final = "metadata.yaml"
KEY: Final = "rosbag2_bagfile_information"
EXTRA: Final = "rosbag2"

_MAX_METADATA: Final = 8 * MIB
_MAX_DEPTH: Final = 32
_MAX_NODES: Final = 500_000
_STORAGE: Final = (".db3", ".mcap")
_NUMBER: Final = re.compile(r"(.*?)_?(\d{1,9})")
_PEEK: Final = 64 * 1024


def is_compressed(name: str) -> bool:
    """Return True if a file name is that of a file compressed as a whole."""
    return name.lower().endswith(ZSTD)


class MetadataError(ValueError):
    """A ``metadata.yaml`` with nothing usable."""


class BagMetadata(NamedTuple):
    """The relevant content of ``metadata.yaml``: names of files without folders, in order; None: not given."""

    version: int | None
    files: tuple[str, ...]
    messages: int | None
    compression: str
    distribution: str


def storage_of(name: str) -> str | None:
    """The storage of a file by its name, ``.db3`` or ``.mcap``, also if the file is compressed as a whole.

    >>> storage_of("drive_0.db3.zstd"), storage_of("drive_0.MCAP"), storage_of("drive_0.db3-wal")
    ('.db3', '.mcap', None)
    """
    plain = _plain(name).lower()
    return next((suffix for suffix in _STORAGE if plain.endswith(suffix)), None)


def _plain(name: str) -> str:
    """A name without the suffix of compressed files."""
    return next((name[: -len(end)] for end in ZSTD if name.lower().endswith(end)), name)


def parse_metadata(text: bytes) -> BagMetadata:
    """Parse a ``metadata.yaml``. Raises ``MetadataError``, and ``ImportError`` without PyYAML.

    Values are read as text, from a parser's events, so that YAML cannot make objects.
    """
    import yaml

    if len(text) > _MAX_METADATA:
        raise MetadataError(f"it has {len(text):,} bytes, more than the limit of {_MAX_METADATA:,}")
    try:
        root = _value_of(yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)))
    except (yaml.YAMLError, ValueError) as error:
        raise MetadataError(" ".join(str(error).split())[:300]) from error
    bag = root.get(KEY) if isinstance(root, Mapping) else None
    if not isinstance(bag, Mapping):
        raise MetadataError(f"it has no {KEY}")
    return BagMetadata(
        _number(bag.get("version")),
        _files(bag),
        _number(bag.get("message_count")),
        _text(bag.get("compression_format")).lower(),
        _text(bag.get("ros_distro")),
    )


def _value_of(events: Iterator[Any]) -> Any:
    """Return the first document of events as texts, lists and mappings, built without recursion.

    Refuses deep nesting, and aliases, with which few bytes can become many values.
    """
    root: list[Any] = []
    open_lists = [root]
    for count, event in enumerate(events):
        kind = type(event).__name__
        if len(open_lists) > _MAX_DEPTH or count > _MAX_NODES or kind == "AliasEvent":
            raise MetadataError("it is nested too deeply, has too many values, or refers to itself")
        if kind == "ScalarEvent":
            open_lists[-1].append(event.value)
        elif kind in ("SequenceStartEvent", "MappingStartEvent"):
            open_lists.append([])
        elif kind in ("SequenceEndEvent", "MappingEndEvent"):
            items = open_lists.pop()
            is_list = kind == "SequenceEndEvent"
            open_lists[-1].append(items if is_list else _mapping_of(items))
        elif kind == "DocumentEndEvent":
            break
    return root[0] if root else None


def _mapping_of(items: list[Any]) -> dict[str, Any]:
    """Return alternating keys and values as a mapping; keys that are not texts are ignored."""
    return {key: value for key, value in zip(items[::2], items[1::2], strict=True) if isinstance(key, str)}


def _files(bag: Mapping[Any, Any]) -> tuple[str, ...]:
    """The names of the files, without the folder's name, which old recorders write before them."""
    paths = bag.get("relative_file_paths")
    if not paths and isinstance(bag.get("files"), Sequence):
        paths = [file.get("path") for file in bag["files"] if isinstance(file, Mapping)]
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise MetadataError("it lists no files")
    names = (path.replace("\\", "/").rstrip("/").rpartition("/")[2] for path in paths)
    return tuple(dict.fromkeys(name for name in names if name not in ("", ".", "..")))


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,19}", value) else None


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def names_in(folder: Location) -> list[str]:
    """The names of the files in a folder, sorted, without hidden files. Raises ``ReadError``."""
    if isinstance(folder, ObjectUrl):
        from ...engine.execution import Folder

        return sorted(name for name in Folder.at(folder).names() if not name.startswith("."))
    try:
        return sorted(p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    except OSError as error:
        raise SourceMissingError(f"cannot be listed: {error.strerror}", path=str(folder)) from error


def is_bag(folder: Location) -> bool:
    """Return True for a folder that is one recording of rosbag2.

    Its storage files have a ``metadata.yaml`` of rosbag2. Without it, as after an interrupted recording, they must all
    be named after the folder (``drive/drive_0.mcap``), or be the parts of one database, numbered from 0.
    """
    if isinstance(folder, Path) and not folder.is_dir():
        return False
    names = names_in(folder)
    stored = [name for name in names if storage_of(name)]
    if not stored:
        return False
    storages = {storage_of(name) for name in stored}
    if len(storages) == 1 and all(re.fullmatch(rf"{re.escape(folder.name)}_\d{{1,9}}", _stem(name)) for name in stored):
        return True
    if METADATA in names:
        return KEY.encode() in _read(folder, _PEEK)
    parts = [re.fullmatch(r"(.+)_(\d{1,9})", _stem(name)) for name in _without_copies(stored)]
    numbers = sorted(int(part[2]) for part in parts if part is not None)
    is_one = len({part[1] for part in parts if part is not None}) == 1 and numbers == list(range(len(parts)))
    return is_one and storages == {".db3"}


def _stem(name: str) -> str:
    return _plain(name).rpartition(".")[0]


def _read(folder: Location, size: int) -> bytes:
    place = folder / METADATA
    if isinstance(place, Path):
        with place.open("rb") as file:
            return file.read(size)
    from ...engine.storage import RemoteFile

    with RemoteFile(place) as remote:
        return remote.read(size)


def read_metadata(folder: Location, names: Sequence[str]) -> BagMetadata | None:
    """Return the content of ``metadata.yaml``; None if it is missing or, with a ``ReadWarning``, unusable."""
    if METADATA not in names:
        return None
    derived = "the files of the folder are read in the order of their numbers"
    try:
        return parse_metadata(_read(folder, _MAX_METADATA + 1))
    except MetadataError as error:
        warnings.warn(f"{folder}: {METADATA} cannot be used: {error}; {derived}", ReadWarning, stacklevel=2)
    except ImportError:
        warnings.warn(
            f"{folder}: {METADATA} needs PyYAML, which is not installed: {extra_command(EXTRA)}; {derived}",
            ReadWarning,
            stacklevel=2,
        )
    return None


class BagFiles(NamedTuple):
    """The storage files of a recording in order, all with one storage (``.db3`` or ``.mcap``), and its metadata."""

    files: tuple[Location, ...]
    storage: str
    metadata: BagMetadata | None


def bag_files(place: Location) -> BagFiles:
    """The files of a folder, or a single file. Raises ``ReadError``. Warns if metadata and folder differ."""
    if storage_of(place.name) and (isinstance(place, ObjectUrl) or place.is_file()):
        return _checked(BagFiles((place,), str(storage_of(place.name)), None), place)
    if isinstance(place, Path) and place.is_file():
        return BagFiles((place,), ".db3", None)
    names = names_in(place)
    metadata = read_metadata(place, names)
    stored = _without_copies([name for name in names if storage_of(name)])
    if metadata is not None and metadata.compression not in ("", "zstd"):
        raise UnsupportedError(
            f"it has the compression {metadata.compression!r}",
            path=str(place),
            hint="Only zstd is supported; decompress it with the plugin that wrote it (`ros2 bag convert`).",
        )
    ordered = _by_metadata(place, metadata, stored) if metadata is not None else sorted(stored, key=_order)
    if not ordered:
        raise SourceMissingError(
            "the folder contains no recording of rosbag2",
            path=str(place),
            hint=f"Expected files {', '.join(_STORAGE)}, plain or compressed with Zstandard.",
        )
    storages = {str(storage_of(name)) for name in ordered}
    if len(storages) > 1:
        raise ReadError(
            "the folder contains databases and MCAPs",
            path=str(place),
            hint="A recording has files of one kind. Give one file, or move the others away.",
        )
    return _checked(BagFiles(tuple(place / name for name in ordered), storages.pop(), metadata), place)


def _checked(found: BagFiles, place: Location) -> BagFiles:
    if found.storage == ".db3" and isinstance(place, ObjectUrl):
        raise UnsupportedError(
            "a database of rosbag2 must be in a local folder",
            path=str(place),
            hint="SQLite needs local files: copy the recording to this machine. Only MCAPs can be remote.",
        )
    return found


def _without_copies(names: Sequence[str]) -> list[str]:
    """The names without compressed files that the folder also has decompressed, as some players leave them."""
    plain = {name for name in names if not is_compressed(name)}
    return [name for name in names if name in plain or _plain(name) not in plain]


def _by_metadata(folder: Location, metadata: BagMetadata, stored: Sequence[str]) -> list[str]:
    of_plain = {_plain(name): name for name in stored}
    ordered = list(dict.fromkeys(of_plain[p] for name in metadata.files if (p := _plain(name)) in of_plain))
    missing = [name for name in metadata.files if _plain(name) not in of_plain]
    if missing:
        _warn(folder, f"the folder lacks {_listed(missing)}, which {METADATA} lists: the recording has a gap")
    more = sorted((name for name in stored if name not in ordered), key=_order)
    if more:
        _warn(folder, f"files that {METADATA} does not list are read, too: {_listed(more)}")
    return sorted([*ordered, *more], key=_order) if more else ordered


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _warn(folder: Location, text: str) -> None:
    warnings.warn(f"{folder}: {text}", ReadWarning, stacklevel=2)


def _order(name: str) -> tuple[str, int, str]:
    """A sort key that orders parts by number: ``drive_2.db3`` comes before ``drive_10.db3``."""
    match = _NUMBER.fullmatch(_stem(name))
    return (match[1], int(match[2]), name) if match else (_stem(name), -1, name)
