"""Mesh files that a robot description names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import unquote

from ....engine.limits import MAX_MESH

MEDIA_TYPES: Final = {
    ".dae": "model/vnd.collada+xml",
    ".glb": "model/gltf-binary",
    ".gltf": "model/gltf+json",
    ".obj": "model/obj",
    ".stl": "model/stl",
}
"""The files that are read as meshes, and nothing else: a recording must not get at other files of the machine."""


class MeshError(ValueError):
    """A mesh that cannot be found or is not to be read."""


class Mesh(NamedTuple):
    """The bytes of a mesh file."""

    data: bytes
    media_type: str


def load_mesh(uri: str) -> Mesh:
    """Read the file that ``uri`` names: ``file:///…``, or ``package://name/…`` below ``ROS_PACKAGE_PATH`` or
    ``AMENT_PREFIX_PATH``. Raises ``MeshError``.
    """
    media_type = MEDIA_TYPES.get(PurePosixPath(uri).suffix.lower())
    if media_type is None:
        raise MeshError(f"the mesh {uri!r} is none of {', '.join(MEDIA_TYPES)}")
    for path in _places(uri):
        if path.is_file():
            return Mesh(_read(path), media_type)
    raise MeshError(f"the mesh {uri!r} is not here")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MESH + 1)
    except OSError as error:
        raise MeshError(f"the mesh {str(path)!r} cannot be read: {error.strerror}") from error
    if len(data) > MAX_MESH:
        raise MeshError(f"the mesh {str(path)!r} has more than {MAX_MESH:,} bytes")
    return data


def _places(uri: str) -> Iterator[Path]:
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in ("file", "package"):
        raise MeshError(f"the mesh {uri!r} is neither a file:// nor a package://")
    if "\0" in rest:
        raise MeshError("the name of a mesh holds a NUL")
    for name in dict.fromkeys((rest, unquote(rest))):
        if scheme == "file":
            yield Path(name)
        else:
            yield from _in_package(name)


def _in_package(name: str) -> Iterator[Path]:
    package, *inside = PurePosixPath(name).parts
    if ".." in (package, *inside) or PurePosixPath(name).is_absolute():
        raise MeshError(f"the mesh 'package://{name}' lies outside of its package")
    for folder in _folders("ROS_PACKAGE_PATH"):
        if folder.name == package:
            yield folder.joinpath(*inside)
        yield folder.joinpath(package, *inside)
    for prefix in _folders("AMENT_PREFIX_PATH"):
        yield prefix.joinpath("share", package, *inside)


def _folders(variable: str) -> list[Path]:
    return [Path(folder) for folder in os.environ.get(variable, "").split(os.pathsep) if folder]
