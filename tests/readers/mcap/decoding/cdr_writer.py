"""A small writer of CDR and ROS 1, and strategies for message types and their values."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from chunkmill.readers.mcap.decoding import Decoded
from chunkmill.readers.mcap.decoding.columns import (
    PRIMITIVES,
    MessageType,
    Node,
    Primitive,
    SequenceType,
    Text,
)
from hypothesis import strategies as st


class Writer:
    """Writes one message; ``order`` is ``"<"`` or ``">"``."""

    def __init__(
        self, order: str, *, max_align: int = 8, headed: bool = False, wide_unit: int = 2, end: bytes = b"\0"
    ) -> None:
        self.out = bytearray()
        self.order = order
        self.max_align = max_align
        self.headed = headed
        self.wide_unit = wide_unit
        self.end = end

    def number(self, code: str, value: float) -> None:
        raw = np.array([value], f"{self.order}{code}").tobytes()
        self.out += bytes(-len(self.out) % min(len(raw), self.max_align)) + raw

    def write(self, node: Node, value: Any) -> None:
        if isinstance(node, Primitive):
            self.number(node.code, value)
        elif isinstance(node, Text):
            self.text(node, value)
        elif isinstance(node, MessageType):
            for name, child in node.fields:
                self.write(child, value[name])
            if node.has_filler:
                self.number("u1", 0)
        else:
            if self.headed and not isinstance(node.element, Primitive):
                self.number("u4", 0)
            if node.length is None:
                self.number("u4", len(value))
            for element in value:
                self.write(node.element, element)

    def text(self, node: Text, value: str) -> None:
        if node.wide:
            units = np.frombuffer(value.encode("utf-16-le"), "<u2")
            self.number("u4", len(units))
            self.out += units.astype(f"{self.order}u{self.wide_unit}").tobytes()
        else:
            raw = value.encode() + self.end
            self.number("u4", len(raw))
            self.out += raw


def message(node: Node, value: Any, order: str = "<", label: int | None = None, **options: Any) -> bytes:
    """One CDR message with its header."""
    writer = Writer(order, **options)
    writer.write(node, value)
    return struct.pack(">BBH", 0, int(order == "<") if label is None else label, 0) + bytes(writer.out)


def ros1_message(node: Node, value: Any) -> bytes:
    """One message in the serialization of ROS 1."""
    writer = Writer("<", max_align=1, end=b"")
    writer.write(node, value)
    return bytes(writer.out)


def schema_text(node: MessageType) -> bytes:
    """The ``ros2msg`` definition of ``node``."""
    sections: dict[str, str] = {}
    main = "\n".join(f"{_type_name(child, sections)} {name}" for name, child in node.fields)
    return ("\n".join([main, *(f"{'=' * 80}\nMSG: {name}\n{body}" for name, body in sections.items())])).encode()


def _type_name(node: Node, sections: dict[str, str]) -> str:
    if isinstance(node, SequenceType):
        return f"{_type_name(node.element, sections)}[{'' if node.length is None else node.length}]"
    if isinstance(node, MessageType):
        sections[node.name] = "\n".join(f"{_type_name(child, sections)} {name}" for name, child in node.fields)
        return node.name
    return node.name if isinstance(node, Primitive) else "wstring" if node.wide else "string"


def same(one: Decoded, other: Decoded) -> None:
    """Check that two ways of decoding agree, on values and on which messages are bad."""
    one.values.validate(full=True)
    other.values.validate(full=True)
    assert one.values.type == other.values.type
    assert one.bad.tolist() == other.bad.tolist()
    assert len(one.reasons) == len(one.bad)
    # Through text, so that NaN equals NaN.
    assert repr(one.values.to_pylist()) == repr(other.values.to_pylist())


def join(messages: Iterable[bytes], gap: bytes = b"\x7f\x80\xff") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Messages in one buffer with ``gap`` between them: data, starts and ends."""
    out, starts, ends = bytearray(gap), [], []
    for raw in messages:
        starts.append(len(out))
        out += raw
        ends.append(len(out))
        out += gap
    return np.frombuffer(bytes(out), np.uint8), np.array(starts, np.int64), np.array(ends, np.int64)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


def message_types() -> st.SearchStrategy[MessageType]:
    """Message types of a few fields, nested up to two deep."""
    return _structs(2).map(lambda node: _named(node, "p/T"))


def _structs(depth: int) -> st.SearchStrategy[MessageType]:
    return st.lists(_nodes(depth), max_size=4).map(
        lambda nodes: MessageType("", tuple((f"f{index}", node) for index, node in enumerate(nodes)))
    )


def _nodes(depth: int) -> st.SearchStrategy[Node]:
    single: st.SearchStrategy[Node] = st.one_of(st.sampled_from(list(PRIMITIVES.values())), st.just(Text()))
    if depth:
        single = st.one_of(single, _structs(depth - 1))
    return st.one_of(single, st.builds(SequenceType, single, st.one_of(st.none(), st.integers(1, 3))))


def _named(node: Any, name: str) -> Any:
    """The same type with names that tell all its structs apart."""
    if isinstance(node, SequenceType):
        return SequenceType(_named(node.element, name), node.length)
    if not isinstance(node, MessageType):
        return node
    return MessageType(name, tuple((field, _named(child, f"{name}_{field}")) for field, child in node.fields))


def values(node: Node) -> st.SearchStrategy[Any]:
    """Values of a type, as Python objects."""
    if isinstance(node, Text):
        return texts
    if isinstance(node, MessageType):
        return st.fixed_dictionaries({name: values(child) for name, child in node.fields})
    if isinstance(node, SequenceType):
        least, most = (0, 3) if node.length is None else (node.length, node.length)
        return st.lists(values(node.element), min_size=least, max_size=most)
    if node.is_bool:
        return st.booleans()
    if node.code[0] == "f":
        return st.floats(width=8 * node.size, allow_nan=False)  # type: ignore[arg-type]
    info = np.iinfo(node.code)
    return st.integers(int(info.min), int(info.max))
