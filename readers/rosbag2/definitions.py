"""Definitions of message types that a recording lacks, from folders of ``.msg`` and ``.idl`` or from a distribution.

Recordings of Foxy to Humble have no definitions. A definition is the text of a type and of all types that it uses, as
recorders write it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ...engine.errors import MissingExtraError, ReadError, UsageError, extra_command
from ...engine.limits import MAX_SCHEMA_BYTES, check_limit
from ..mcap.decoding.columns import PRIMITIVES
from .folder import EXTRA

_SUFFIXES: Final = (".msg", ".srv", ".action", ".idl")
_SEPARATOR: Final = "=" * 80
_FIELD: Final = re.compile(r"^[ \t]*([A-Za-z]\w*(?:/\w+)*)(?:<=\d+)?(?:\[[^\]]*\])?[ \t]+[A-Za-z_]\w*", re.MULTILINE)
_INCLUDE: Final = re.compile(r'^[ \t]*#[ \t]*include[ \t]+[<"]([\w/]+)\.idl[>"]', re.MULTILINE)
_BUILTIN: Final = ("string", "wstring", "time", "duration")
_MAX_FILES: Final = 100_000
_MAX_TYPES: Final = 4_096

Definition = tuple[str, bytes]
"""The encoding (``ros2msg`` or ``ros2idl``) and the text."""


def checked_types(types: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return folders as absolute paths, and names of distributions. Raises ``UsageError`` for anything else."""
    return tuple(_checked(os.fspath(one)) for one in types)


def _checked(word: str) -> str:
    if Path(word).is_dir():
        return str(Path(word).absolute())
    if re.fullmatch(r"(ros2_)?[a-z]+", word) and not Path(word).exists():
        return word
    raise UsageError(
        f"types: {word!r} is neither a folder nor the name of a distribution",
        hint="Give a folder of .msg or .idl files, such as /opt/ros/humble/share, or a name, such as humble.",
    )


class TypeDefinitions:
    """The types of some folders and distributions; the first one that has a type is used."""

    def __init__(self, types: Sequence[str]) -> None:
        lookups = (_folder(Path(one)) if Path(one).is_dir() else _distribution(one) for one in types)
        self._lookups: list[Callable[[str], Definition | None]] = list(lookups)

    def of(self, type_name: str) -> Definition | None:
        """The definition of a type, such as ``std_msgs/msg/Header``; None if there is none. Raises ``ReadError``."""
        return next(filter(None, (lookup(type_name) for lookup in self._lookups)), None)


def _distribution(name: str) -> Callable[[str], Definition | None]:
    try:
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        raise MissingExtraError(
            f"the types of the distribution {name!r} need the library rosbags, which is not installed",
            hint=f"{extra_command(EXTRA)}; or give a folder of .msg files.",
        ) from error
    stores = {store.value: store for store in Stores if store.value.startswith("ros2_")}
    store = stores.get(name if name.startswith("ros2_") else f"ros2_{name}")
    if store is None:
        names = ", ".join(sorted(value.removeprefix("ros2_") for value in stores))
        raise UsageError(f"types: there is no distribution {name!r}", hint=f"Give {names}, or a folder.")
    typestore = get_typestore(store)

    def lookup(type_name: str) -> Definition | None:
        if type_name not in typestore.fielddefs:
            return None
        return "ros2msg", typestore.generate_msgdef(type_name, ros_version=2)[0].encode()

    return lookup


def _folder(folder: Path) -> Callable[[str], Definition | None]:
    files = dict(_files(folder))

    def lookup(type_name: str) -> Definition | None:
        key = _key(type_name)
        for suffix, encoding in ((key[2], "ros2msg"), (".idl", "ros2idl")):
            name = key[1]
            while name:
                if (key[0], name, suffix) in files:
                    return encoding, _definition(files, (key[0], name, suffix), type_name)
                # Messages of a service or action add an underscore and a suffix to its name.
                name = name.rpartition("_")[0] if key[2] != ".msg" else ""
        return None

    return lookup


_Key = tuple[str, str, str]
"""Package, name and suffix."""


def _key(type_name: str) -> _Key:
    """The package, the name and the suffix of a type's file.

    >>> _key("std_msgs/msg/Header"), _key("std_msgs/Header"), _key("std_srvs/srv/Empty_Request")
    (('std_msgs', 'Header', '.msg'), ('std_msgs', 'Header', '.msg'), ('std_srvs', 'Empty_Request', '.srv'))
    """
    parts = [part for part in type_name.replace("::", "/").split("/") if part]
    kind = parts[1] if len(parts) > 2 else "msg"
    return (parts[0] if len(parts) > 1 else "", parts[-1] if parts else "", f".{kind}")


def _files(folder: Path) -> Iterator[tuple[_Key, Path]]:
    """Yield the definitions below a folder; if two have the same name, the first by path counts."""
    seen: set[_Key] = set()
    count = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        parts = Path(place).parts
        package = parts[-2] if len(parts) > 1 and parts[-1] in ("msg", "srv", "action") else parts[-1]
        for name in sorted(names):
            stem, dot, suffix = name.rpartition(".")
            key = (package, stem, dot + suffix)
            if key[2] in _SUFFIXES and key not in seen:
                count += 1
                check_limit(count, _MAX_FILES, path=str(folder), offset=None, what="the number of definitions")
                seen.add(key)
                yield key, Path(place, name)


def _definition(files: dict[_Key, Path], key: _Key, type_name: str) -> bytes:
    """Return the text of a file and the texts of the types that it uses; the decoder reports missing ones."""
    own = _text(files[key])
    texts, waiting, seen = [own], list(_uses(key, own)), {key}
    size = len(own)
    while waiting:
        used = waiting.pop(0)
        if used in seen or used not in files:
            continue
        seen.add(used)
        text = _text(files[used])
        size += len(text)
        check_limit(size, MAX_SCHEMA_BYTES, path=str(files[key]), offset=None, what=f"the definition of {type_name}")
        check_limit(len(seen), _MAX_TYPES, path=str(files[key]), offset=None, what=f"the types in {type_name}")
        head = f"IDL: {used[0]}/msg/{used[1]}" if used[2] == ".idl" else f"MSG: {used[0]}/{used[1]}"
        texts.append(f"{head}\n{text}")
        waiting += _uses(used, text)
    return f"\n{_SEPARATOR}\n".join(texts).encode()


def _uses(key: _Key, text: str) -> Iterator[_Key]:
    """Yield the files of the types that a text uses."""
    package, _, suffix = key
    if suffix == ".idl":
        for path in _INCLUDE.findall(text):
            used = _key(path)
            yield (used[0], used[1], ".idl")
        return
    for name in _FIELD.findall(text):
        if name in PRIMITIVES or name in _BUILTIN:
            continue
        if "/" in name:
            yield _key(name)
        else:
            yield (package, name, ".msg")
            if name == "Header":
                yield ("std_msgs", name, ".msg")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCHEMA_BYTES + 1)
    except OSError as error:
        raise ReadError(f"the definition cannot be read: {error.strerror}", path=str(path)) from error
    check_limit(len(data), MAX_SCHEMA_BYTES, path=str(path), offset=None, what="the length of the definition")
    return data.decode("utf-8", errors="replace").replace("\r", "")
