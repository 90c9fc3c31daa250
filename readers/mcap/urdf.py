"""A robot as its URDF describes it, read by an XML parser to which a document can do nothing: no entities, no files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_MAX_DEPTH: Final = 64


def _parse_xml(text: str) -> Element:
    """Return the root element of a document. Raises ``UrdfError``, also where it has definitions of its own.

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
            raise UrdfError("it has definitions of its own (DTD), which are not read")

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
"""The attributes that each geometry must have, with how many numbers."""


class UrdfError(ValueError):
    """A text that is no usable robot description."""


class Shape(NamedTuple):
    """A visual or collision geometry of a link.

    ``kind`` is ``box``, ``cylinder``, ``capsule``, ``sphere`` or ``mesh``; ``numbers`` its attributes in metres, the
    ``scale`` of a mesh among them; ``position`` (m) and ``rpy`` (roll, pitch, yaw in rad) its place in the link;
    ``color`` RGBA, linear, 0 to 1, None when the description gives none.
    """

    name: str | None
    kind: str
    numbers: Mapping[str, Vector]
    filename: str
    position: Vector
    rpy: Vector
    color: Vector | None


class Link(NamedTuple):
    """A link, which is a coordinate frame, and what is fixed to it."""

    name: str
    visuals: tuple[Shape, ...]
    collisions: tuple[Shape, ...]


class Robot(NamedTuple):
    """``links`` are depth first from the root, which is the first; children in the order of their joints."""

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
            raise UrdfError(f"a joint is of type {kind!r}, which does not exist")
        ends = [_required(_child(joint, end), "link") for end in ("parent", "child")]
        for end in ends:
            if end not in links:
                raise UrdfError(f"a joint is at a link {end!r}, which does not exist")
        children[ends[0]].append(ends[1])
    return children


def _ordered(links: Mapping[str, Link], children: Mapping[str, list[str]]) -> Iterator[Link]:
    below = {name for names in children.values() for name in names}
    roots = [name for name in links if name not in below]
    if len(roots) != 1:
        raise UrdfError(f"it has {len(roots)} root links where one is needed")
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
        raise UrdfError(f"a geometry has {len(geometry)} shapes where one is needed")
    form = geometry[0]
    if form.tag not in _NUMBERS:
        raise UrdfError(f"a geometry is a {form.tag!r}, which does not exist")
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
    """The colour that a shape's own material has, else the robot's material of that name."""
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
        raise UrdfError(f"{text[:80]!r} are {len(values)} numbers where {count} are needed")
    return values
