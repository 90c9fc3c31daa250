"""XML read without anything that a document can make a parser do: no entities of its own, no other files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

_MAX_DEPTH: Final = 64


class XmlError(ValueError):
    """A text that is no XML, or that defines entities."""


@dataclass(slots=True)
class Element:
    """An element: its name, its attributes and the elements in it. Text between them is not kept."""

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)

    def all(self, name: str) -> list[Element]:
        """The children of one name."""
        return [child for child in self.children if child.name == name]

    def first(self, name: str) -> Element | None:
        """The first child of one name."""
        return next((child for child in self.children if child.name == name), None)


def parse_xml(text: str) -> Element:
    """The root element of a document.

    >>> parse_xml("<a><b x='1'/></a>").children
    [Element(name='b', attributes={'x': '1'}, children=[])]
    """
    top = Element("", {})
    open_: list[Element] = [top]

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(open_) > _MAX_DEPTH:
            raise XmlError(f"its elements are nested more than {_MAX_DEPTH} deep")
        element = Element(name, attributes)
        open_[-1].children.append(element)
        open_.append(element)

    def end(_name: str) -> None:
        open_.pop()

    def doctype(_name: str, _system: str | None, _public: str | None, has_definitions: bool) -> None:
        if has_definitions:
            raise XmlError("it has definitions of its own (DTD), which are not read")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text.lstrip("\ufeff \t\r\n"), True)
    except (expat.ExpatError, UnicodeError) as error:
        raise XmlError(str(error)) from error
    return top.children[0]
