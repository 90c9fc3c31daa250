"""The decoder ``urdf``: robot descriptions as static chunks, from an XML parser that reads no entities and files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...engine.chunk import Chunk, ComponentDescriptor, join_parts
from ...engine.errors import ReadWarning
from ...engine.limits import MAX_MESH, MAX_SCHEMA_BYTES
from .decoding import blobs
from .file import McapFile, Summary
from .file_level import FileDecoder, FileFacts, MessageIndex, Schemas, described, static_chunk
from .records import HEAD, MESSAGE_FIXED, Bytes, Channel, McapSchema, MessageHeads, Registry

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_MAX_DEPTH: Final = 64


def _parse_xml(text: str) -> Element:
    """Return the root element of a document. Raises ``UrdfError``, also if the document defines entities.

    >>> [(child.tag, child.attrib) for child in _parse_xml("<a><b x='1'/></a>")]
    [('b', {'x': '1'})]
    """
    from xml.etree.ElementTree import TreeBuilder
    from xml.parsers import expat

    tree = TreeBuilder()
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise UrdfError(f"its elements are nested more than {_MAX_DEPTH} deep")
        tree.start(name, attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        tree.end(name)

    def doctype(_name: str, _system: str | None, _public: str | None, has_definitions: bool) -> None:
        if has_definitions:
            raise UrdfError("it has a document type definition (DTD), which is not supported")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text.lstrip("\ufeff \t\r\n"), True)
    except (expat.ExpatError, UnicodeError) as error:
        raise UrdfError(str(error)) from error
    return tree.close()


Vector = tuple[float, ...]

_JOINT_TYPES: Final = frozenset({"revolute", "continuous", "prismatic", "fixed", "floating", "planar", "spherical"})
WHITE: Final = (1.0, 1.0, 1.0, 1.0)

_NUMBERS: Final[Mapping[str, Mapping[str, int]]] = {
    "box": {"size": 3},
    "cylinder": {"radius": 1, "length": 1},
    "capsule": {"radius": 1, "length": 1},
    "sphere": {"radius": 1},
    "mesh": {},
}
"""The attributes that each geometry must have, and the number of their numbers."""


class UrdfError(ValueError):
    """A text that is not a usable robot description."""


class Shape(NamedTuple):
    """A visual or collision geometry of a link.

    ``kind`` is ``box``, ``cylinder``, ``capsule``, ``sphere`` or ``mesh``. ``numbers`` are its attributes in metres,
    including the ``scale`` of a mesh. ``position`` (m) and ``rpy`` (roll, pitch, yaw in rad) are its place in the link.
    ``color`` is RGBA, linear, 0 to 1; None if the description gives none.
    """

    name: str | None
    kind: str
    numbers: Mapping[str, Vector]
    filename: str
    position: Vector
    rpy: Vector
    color: Vector | None


class Link(NamedTuple):
    """A link: a coordinate frame, and the shapes fixed to it."""

    name: str
    visuals: tuple[Shape, ...]
    collisions: tuple[Shape, ...]


class Robot(NamedTuple):
    """``links`` are in depth-first order from the root, with children in the order of their joints."""

    name: str
    links: tuple[Link, ...]


def parse_urdf(text: str) -> Robot:
    """Parse a robot description. Raises ``UrdfError``."""
    root = _parse_xml(text)
    if root.tag != "robot":
        raise UrdfError(f"its root element is {root.tag!r}, not 'robot'")
    materials = {m.attrib["name"]: _color(m) for m in root.findall("material") if "name" in m.attrib}
    links = {link.name: link for link in (_link(e, materials) for e in root.findall("link"))}
    return Robot(root.attrib.get("name", ""), tuple(_ordered(links, _children(root, links))))


def _children(root: Element, links: Mapping[str, Link]) -> dict[str, list[str]]:
    """The names of the links below each link."""
    children: dict[str, list[str]] = {name: [] for name in links}
    for joint in root.findall("joint"):
        kind = _required(joint, "type")
        if kind not in _JOINT_TYPES:
            raise UrdfError(f"a joint has the unknown type {kind!r}")
        ends = [_required(_child(joint, end), "link") for end in ("parent", "child")]
        for end in ends:
            if end not in links:
                raise UrdfError(f"a joint refers to the missing link {end!r}")
        children[ends[0]].append(ends[1])
    return children


def _ordered(links: Mapping[str, Link], children: Mapping[str, list[str]]) -> Iterator[Link]:
    below = {name for names in children.values() for name in names}
    roots = [name for name in links if name not in below]
    if len(roots) != 1:
        raise UrdfError(f"it has {len(roots)} root links instead of one")
    waiting, done = [roots[0]], set()
    while waiting:
        name = waiting.pop()
        if name not in done:
            done.add(name)
            yield links[name]
            waiting.extend(reversed(children[name]))


def _link(element: Element, materials: Mapping[str, Vector | None]) -> Link:
    return Link(
        _required(element, "name"),
        tuple(_shape(e, materials) for e in element.findall("visual")),
        tuple(_shape(e, {}) for e in element.findall("collision")),
    )


def _shape(element: Element, materials: Mapping[str, Vector | None]) -> Shape:
    geometry = _child(element, "geometry")
    if len(geometry) != 1:
        raise UrdfError(f"a geometry has {len(geometry)} shapes instead of one")
    form = geometry[0]
    if form.tag not in _NUMBERS:
        raise UrdfError(f"a geometry has the unknown shape {form.tag!r}")
    numbers = {name: _vector(_required(form, name), count) for name, count in _NUMBERS[form.tag].items()}
    if form.tag == "mesh" and "scale" in form.attrib:
        numbers["scale"] = _vector(form.attrib["scale"], 3)
    origin = element.find("origin")
    place = origin.attrib if origin is not None else {}
    return Shape(
        element.attrib.get("name") or None,
        form.tag,
        numbers,
        _required(form, "filename") if form.tag == "mesh" else "",
        _vector(place.get("xyz", "0 0 0"), 3),
        _vector(place.get("rpy", "0 0 0"), 3),
        _color_of(element, materials),
    )


def _color_of(element: Element, materials: Mapping[str, Vector | None]) -> Vector | None:
    """Return the colour of a shape's own material, or else of the robot's material with that name."""
    material = element.find("material")
    if material is None:
        return None
    return _color(material) or materials.get(material.attrib.get("name", ""))


def _color(material: Element) -> Vector | None:
    color = material.find("color")
    return None if color is None else _vector(_required(color, "rgba"), 4)


def _child(element: Element, name: str) -> Element:
    child = element.find(name)
    if child is None:
        raise UrdfError(f"a {element.tag} has no {name}")
    return child


def _required(element: Element, attribute: str) -> str:
    try:
        return element.attrib[attribute]
    except KeyError:
        raise UrdfError(f"a {element.tag} has no attribute {attribute!r}") from None


def _vector(text: str, count: int) -> Vector:
    try:
        values = tuple(float(word) for word in text.split())
    except ValueError:
        raise UrdfError(f"{text[:80]!r} are not {count} numbers") from None
    if len(values) != count:
        raise UrdfError(f"{text[:80]!r} are {len(values)} numbers instead of {count}")
    return values


_MEDIA_TYPES: Final = {
    ".dae": "model/vnd.collada+xml",
    ".glb": "model/gltf-binary",
    ".gltf": "model/gltf+json",
    ".obj": "model/obj",
    ".stl": "model/stl",
}
"""The files that may be read as meshes; a recording must not access other files on the machine."""


class MeshError(ValueError):
    """A mesh that cannot be found or may not be read."""


class _Mesh(NamedTuple):
    """The bytes of a mesh file."""

    data: bytes
    media_type: str


def load_mesh(uri: str) -> _Mesh:
    """Read the file that ``uri`` names: ``file:///…``, or ``package://name/…`` below ``ROS_PACKAGE_PATH`` or
    ``AMENT_PREFIX_PATH``. Raises ``MeshError``.
    """
    media_type = _MEDIA_TYPES.get(PurePosixPath(uri).suffix.lower())
    if media_type is None:
        raise MeshError(f"the mesh {uri!r} is not one of {', '.join(_MEDIA_TYPES)}")
    for path in _places(uri):
        if path.is_file():
            return _Mesh(_read(path), media_type)
    raise MeshError(f"the mesh {uri!r} was not found")


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
        raise MeshError("the name of a mesh contains a NUL")
    for name in dict.fromkeys((rest, unquote(rest))):
        if scheme == "file":
            yield Path(name)
        else:
            yield from _in_package(name)


def _in_package(name: str) -> Iterator[Path]:
    package, *inside = PurePosixPath(name).parts
    if ".." in (package, *inside) or PurePosixPath(name).is_absolute():
        raise MeshError(f"the mesh 'package://{name}' is outside its package")
    for folder in _folders("ROS_PACKAGE_PATH"):
        if folder.name == package:
            yield folder.joinpath(*inside)
        yield folder.joinpath(package, *inside)
    for prefix in _folders("AMENT_PREFIX_PATH"):
        yield prefix.joinpath("share", package, *inside)


def _folders(variable: str) -> list[Path]:
    return [Path(folder) for folder in os.environ.get(variable, "").split(os.pathsep) if folder]


_Floats = npt.NDArray[np.float32]


def quaternion(rpy: Vector) -> _Floats:
    """The rotation by roll about x, then pitch about y, then yaw about z (rad), as (x, y, z, w) in single precision.

    The formula is that of Ken Shoemake (Euler Angle Conversion, Graphics Gems IV, 1994).

    >>> quaternion((0.0, 0.0, 0.0)).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    half = (np.asarray(rpy, np.float32) * np.float32(0.5)).astype(np.float64)
    (sx, sy, sz), (cx, cy, cz) = np.sin(half).astype(np.float32), np.cos(half).astype(np.float32)
    cc, cs, sc, ss = cx * cz, cx * sz, sx * cz, sx * sz
    return np.array([cy * sc - sy * cs, cy * ss + sy * cc, cy * cs - sy * sc, cy * cc + sy * ss], np.float32)


def _packed_color(rgba: Vector) -> int:
    """A linear colour (0 to 1, not premultiplied) as 0xRRGGBBAA in sRGB.

    As in Rerun, colours are converted by way of premultiplied 8-bit values, which makes translucent colours less exact.

    >>> hex(_packed_color((1.0, 0.0, 0.0, 1.0))), hex(_packed_color((0.5, 0.25, 0.0, 0.5)))
    ('0xff0000ff', '0xbb890080')
    """
    alpha = _byte(rgba[3] * 255)
    if rgba[3] <= 0 or alpha == 0:
        return 0
    channels = [_gamma(channel) for channel in rgba[:3]]
    if alpha < 255:
        channels = [_byte(_byte(channel * alpha / 255) * 255 / alpha) for channel in channels]
    red, green, blue = channels
    return red << 24 | green << 16 | blue << 8 | alpha


def _gamma(linear: float) -> int:
    """The sRGB transfer function (IEC 61966-2-1), times 255."""
    if not linear > 0:
        return 0
    if linear <= 0.0031308:
        return _byte(12.92 * 255 * linear)
    return _byte(255 * (1.055 * min(linear, 1.0) ** (1 / 2.4) - 0.055))


def _byte(value: float) -> int:
    return int(min(max(value, 0.0), 255.0) + 0.5) if value == value else 0


_Columns = list[tuple[ComponentDescriptor, pa.Array]]


def _robot_chunks(robot: Robot, *, path: str) -> Iterator[Chunk]:
    """Yield the chunks of a robot at ``/<its name>``.

    An unreadable mesh is left out with a ``ReadWarning`` that names ``path``; the rest of the robot stays.
    """
    root = [robot.name] if robot.name else []
    yield _frame(join_parts(root), robot.links[0].name)
    for link in robot.links:
        for i, shape in enumerate(link.visuals):
            entity = join_parts([*root, "visual_geometries", link.name, shape.name or f"visual_{i}"])
            yield from _shape_chunks(entity, link, shape, path)
        for i, shape in enumerate(link.collisions):
            name = shape.name or f"collision_{i}"
            entity = join_parts([*root, "collision_geometries", shape.kind, link.name, name])
            yield from _shape_chunks(entity, link, shape, path)


def _shape_chunks(entity: str, link: Link, shape: Shape, path: str) -> Iterator[Chunk]:
    yield static_chunk(entity, _pose(shape))
    yield _frame(entity, link.name)
    try:
        columns = _mesh(shape) if shape.kind == "mesh" else _geometry(shape)
    except MeshError as error:
        warnings.warn(f"{path}: {error}; {entity} has no geometry", ReadWarning, stacklevel=3)
        return
    yield static_chunk(entity, columns)


def _frame(entity: str, frame: str) -> Chunk:
    return static_chunk(
        entity, [(described("CoordinateFrame", "frame", "TransformFrameId"), pa.array([frame], pa.string()))]
    )


def _pose(shape: Shape) -> _Columns:
    columns = [
        (described("InstancePoses3D", "translations", "Translation3D"), _vectors(shape.position)),
        (described("InstancePoses3D", "quaternions", "RotationQuat"), _vectors(quaternion(shape.rpy))),
    ]
    if "scale" in shape.numbers:
        columns.append((described("InstancePoses3D", "scales", "Scale3D"), _vectors(shape.numbers["scale"])))
    return columns


def _geometry(shape: Shape) -> _Columns:
    numbers = shape.numbers
    if shape.kind == "box":
        archetype = "Boxes3D"
        columns = [(described(archetype, "half_sizes", "HalfSize3D"), _vectors([s / 2 for s in numbers["size"]]))]
    elif shape.kind == "sphere":
        archetype = "Ellipsoids3D"
        columns = [(described(archetype, "half_sizes", "HalfSize3D"), _vectors(numbers["radius"] * 3))]
    else:
        archetype = "Cylinders3D" if shape.kind == "cylinder" else "Capsules3D"
        columns = [
            (described(archetype, "lengths", "Length"), pa.array(numbers["length"], pa.float32())),
            (described(archetype, "radii", "Radius"), pa.array(numbers["radius"], pa.float32())),
        ]
    return [*columns, (described(archetype, "colors", "Color"), _colors(shape.color or WHITE))]


def _mesh(shape: Shape) -> _Columns:
    mesh = load_mesh(shape.filename)
    columns = [
        (described("Asset3D", "blob", "Blob"), blobs(mesh.data, [len(mesh.data)])),
        (described("Asset3D", "media_type", "MediaType"), pa.array([mesh.media_type], pa.string())),
    ]
    if shape.color is not None:
        columns.append((described("Asset3D", "albedo_factor", "AlbedoFactor"), _colors(shape.color)))
    return columns


def _colors(color: Vector) -> pa.Array:
    return pa.array([_packed_color(color)], pa.uint32())


def _vectors(values: object) -> pa.Array:
    """One vector as a column of single precision."""
    numbers = np.asarray(values, np.float32)
    item = pa.field("item", pa.float32(), nullable=False)
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers), type=pa.list_(item, len(numbers)))


_TOPIC_PART: Final = "robot_description"
_STRINGS: Final = (("std_msgs/msg/String", "ros2msg"), ("std_msgs/String", "ros1msg"))


class Robots(FileDecoder):
    """The decoder ``urdf``: the last readable robot description of each channel, as a robot.

    It reads the messages that it receives; if these are not all, it finds messages by the file's index.
    """

    name = "urdf"
    looks_at_messages = True

    def __init__(self, registry: Registry, selects: Callable[[str], bool]) -> None:
        super().__init__(registry, selects)
        self._texts: dict[int, str] = {}

    @classmethod
    def is_told_by(cls, summary: Summary) -> bool:
        """Return whether the summary shows if there may be robots: it must have all channels."""
        return Schemas.is_told_by(summary)

    @classmethod
    def has_messages(cls, summary: Summary, selects: Callable[[str], bool]) -> bool:
        """Return whether the summary has a channel of robot descriptions."""
        schemas = {schema.id: schema for schema in summary.schemas}
        return bool(_description_channels({channel.id: channel for channel in summary.channels}, schemas, selects))

    def add(self, arena: Bytes, messages: MessageHeads) -> None:
        """Search the next messages."""
        self._look(arena, messages, self._channels())

    def chunks(self, file: McapFile, facts: FileFacts) -> Iterator[Chunk]:  # noqa: ARG002
        """Yield the robots, by channel id, with a ``ReadWarning`` for an unreadable one."""
        for id_, text in sorted(self._texts.items()):
            try:
                robot = parse_urdf(text)
            except UrdfError as error:
                topic = self._registry.channels[id_].topic
                warnings.warn(
                    f"{file.path}: topic {topic}: the robot description cannot be read: {error}",
                    ReadWarning,
                    stacklevel=2,
                )
                continue
            yield from _robot_chunks(robot, path=file.path)

    def look_up(self, index: MessageIndex) -> None:
        """Find each channel's last readable message: its chunks are searched from the last to the first."""
        if not self._missing():
            return
        for entry in reversed(index.chunks()):
            missing = self._missing()
            if not missing:
                return
            held = set(np.frombuffer(entry.channel_ids, "<u2").tolist())
            if held and not held & missing:
                continue
            for arena, messages in reversed(list(index.messages(entry, self._registry))):
                self._look(arena, messages, self._missing())

    def _channels(self) -> frozenset[int]:
        """The ids of the known channels with descriptions."""
        return _description_channels(self._registry.channels, self._registry.schemas, self._selects)

    def _missing(self) -> frozenset[int]:
        """Return the channels still without a description."""
        return self._channels() - self._texts.keys()

    def _look(self, arena: Bytes, messages: MessageHeads, ids: frozenset[int]) -> None:
        channels = messages.heads["channel"]
        for id_ in ids:
            encoding = self._registry.channels[id_].message_encoding.lower()
            for i in np.flatnonzero(channels == id_)[::-1].tolist():
                begin = int(messages.offsets[i]) + HEAD.size + MESSAGE_FIXED
                end = int(messages.offsets[i]) + HEAD.size + int(messages.heads["length"][i])
                if end - begin > MAX_SCHEMA_BYTES:
                    continue
                text = _string_of(arena[begin:end].tobytes(), encoding)
                if text is not None:
                    self._texts[id_] = text
                    break


def _description_channels(
    channels: Mapping[int, Channel], schemas: Mapping[int, McapSchema], selects: Callable[[str], bool]
) -> frozenset[int]:
    """The ids of the channels with robot descriptions: ROS strings at a topic with such a name."""
    return frozenset(
        c.id
        for c in channels.values()
        if _TOPIC_PART in c.topic and _is_string(schemas.get(c.schema_id)) and selects(c.topic)
    )


def _is_string(schema: McapSchema | None) -> bool:
    return schema is not None and (schema.name, schema.encoding) in _STRINGS


def _string_of(data: bytes, encoding: str) -> str | None:
    """The text of a ``std_msgs/String``, in CDR or ROS 1's encoding; None if the data is invalid."""
    if encoding == "ros1":
        data = b"\0\1\0\0" + data
    if len(data) < 8 or data[0] != 0:
        return None
    size = int.from_bytes(data[4:8], "little" if data[1] & 1 else "big")
    if size > len(data) - 8:
        return None
    try:
        return data[8 : 8 + size].rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return None
