"""``ros2idl`` and ``omgidl`` schema text to the tree of types that messages become."""

from __future__ import annotations

from typing import Final

from .cdr_types import PRIMITIVES, TIME, MessageType, Sequence, Text
from .columns import SchemaError
from .idl_text import Declaration, Name, StructDecl, Type, candidates, read_idl
from .ros_definitions import (
    KNOWN,
    Built,
    Fields,
    TypeBuilder,
    event_of,
    fixed_array,
    generated_around,
    known,
    struct_of,
)

_BUILTINS: Final[dict[Name, MessageType]] = {
    ("builtin_interfaces", "msg", "Time"): TIME,
    ("builtin_interfaces", "msg", "Duration"): MessageType("builtin_interfaces/Duration", TIME.fields),
    **{(name.split("/")[0], "msg", name.split("/")[1]): known(name) for name in KNOWN},
}


def parse_idl(schema_name: str, schema_data: bytes) -> MessageType:
    """The struct that ``schema_data`` declares for ``schema_name``, ``pkg/msg/Type`` or ``pkg::msg::Type``.

    Modules, structs (with a base), typedefs, sequences and strings with their bounds, arrays, constants, enums (their
    number, int32) and bitmasks are read, annotations skipped. Messages that ROS generates around the parts of a service
    or action are known by name. Unions, maps, ``wchar``, ``long double``, and members that are optional or of a mutable
    struct raise :class:`SchemaError`: these lie otherwise in a message.

    >>> text = b"module my { typedef double Three[3]; struct Point { Three at; string<8> name; }; };"
    >>> parse_idl("my/Point", text).arrow
    StructType(struct<at: list<item: double>, name: string>)
    """
    declared = read_idl(schema_name, schema_data)
    _generate(declared)
    name = tuple(part for part in schema_name.replace("/", "::").split("::") if part)
    if name not in declared:
        same = [full for full in declared if name and full[-1] == name[-1]]
        if len(same) != 1:
            raise SchemaError(f"it does not declare {schema_name}")
        name = same[0]
    node = _Resolver(declared).declared(name).node
    if not isinstance(node, MessageType):
        raise SchemaError(f"{schema_name} is not a struct")
    return node


def _generate(declared: dict[Name, Declaration]) -> None:
    """Declare what ROS generates around the parts of services and actions, which their IDL lacks."""
    for name in list(declared):
        if name[-1].endswith("_Feedback"):
            action = name[-1].removesuffix("_Feedback")
            for suffix, fields in generated_around(action).items():
                _declare(declared, (*name[:-1], action + suffix), fields)
    for name in list(declared):
        if name[-1].endswith("_Request"):
            service = name[-1].removesuffix("_Request")
            _declare(declared, (*name[:-1], f"{service}_Event"), event_of(service))


def _declare(declared: dict[Name, Declaration], name: Name, fields: Fields) -> None:
    scope = name[:-1]
    members = [(field, _type_of(kind, array)) for field, kind, array in fields]
    declared.setdefault(name, StructDecl(scope, members=members))


def _type_of(kind: str, array: str | None) -> Type:
    package, _, rest = kind.partition("/")
    single = Type(kind) if kind in PRIMITIVES else Type("name", name=(package, "msg", rest) if rest else (kind,))
    return single if array is None else Type("sequence", element=single)


class _Resolver:
    """Turns declarations into types."""

    def __init__(self, declared: dict[Name, Declaration]) -> None:
        self._declared = declared
        self._types = TypeBuilder()

    def declared(self, name: Name) -> Built:
        """Return the type of that full name."""
        return self._types.once("::".join(name), lambda: self._build(name))

    def _build(self, name: Name) -> Built:
        declaration, text = self._declared[name], "::".join(name)
        if isinstance(declaration, StructDecl):
            return self._struct(declaration, text)
        return self._type(declaration.type, declaration.scope, text)

    def _struct(self, struct: StructDecl, text: str) -> Built:
        if struct.why:
            raise SchemaError(f"{text}: {struct.why}")
        base = None if struct.base is None else self._named(struct.base, struct.scope, text)
        if base is not None and not isinstance(base.node, MessageType):
            raise SchemaError(f"the base of {text} is not a struct")
        members = ((name, self._type(type_, struct.scope, f"{text}.{name}")) for name, type_ in struct.members)
        built = struct_of(text, members, base=base)
        assert isinstance(built.node, MessageType)
        if len({name for name, _ in built.node.fields}) < len(built.node.fields):
            raise SchemaError(f"{text} has a member twice")
        return built

    def _type(self, type_: Type, scope: Name, where: str) -> Built:
        built = self._single(type_, scope, where)
        for length in reversed(type_.lengths):
            built = Built(fixed_array(built.node, length, where), built.leaves, built.depth + 1)
        return built

    def _single(self, type_: Type, scope: Name, where: str) -> Built:
        if type_.kind in PRIMITIVES:
            return Built(PRIMITIVES[type_.kind])
        if type_.kind in ("string", "wstring"):
            return Built(Text(wide=type_.kind == "wstring"))
        if type_.kind == "sequence":
            assert type_.element is not None
            element = self._type(type_.element, scope, f"{where}[]")
            return Built(Sequence(element.node), element.leaves, element.depth + 1)
        if type_.kind == "name":
            return self._named(type_.name, scope, where)
        raise SchemaError(f"{where}: a {type_.word} cannot be read")

    def _named(self, name: Name, scope: Name, where: str) -> Built:
        for full in candidates(name, scope):
            if full in self._declared:
                return self.declared(full)
            if full in _BUILTINS:
                return Built(_BUILTINS[full], 2, 2)
        raise SchemaError(f"{where}: {'::'.join(name)} is not declared")
