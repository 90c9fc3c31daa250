"""``ros2idl`` and ``omgidl`` schema text to the tree of types that messages become."""

from __future__ import annotations

from typing import Final

from ....engine.limits import MAX_NESTING, MAX_SCHEMA_FIELDS
from .decoded import SchemaError
from .idl_text import Declaration, Name, StructDecl, Type, candidates, read_idl
from .message_types import PRIMITIVES, TIME, Node, Sequence, Struct, Text
from .ros_interfaces import KNOWN, Fields, event_of, generated_around
from .ros_types import LARGEST, fixed_array, known

_BUILTINS: Final[dict[Name, Struct]] = {
    ("builtin_interfaces", "msg", "Time"): TIME,
    ("builtin_interfaces", "msg", "Duration"): Struct("builtin_interfaces/Duration", TIME.fields),
    **{(name.split("/")[0], "msg", name.split("/")[1]): known(name) for name in KNOWN},
}


def parse_idl(schema_name: str, schema_data: bytes) -> Struct:
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
    node = _Resolver(declared).declared(name)[0]
    if not isinstance(node, Struct):
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
    """Turns declarations into types, each once; counts what they expand to."""

    def __init__(self, declared: dict[Name, Declaration]) -> None:
        self._declared = declared
        self._done: dict[Name, tuple[Node, int, int]] = {}
        self._open: list[Name] = []

    def declared(self, name: Name) -> tuple[Node, int, int]:
        """The type of that full name, the number of its leaf columns and its depth."""
        text = "::".join(name)
        if name in self._open:
            raise SchemaError(f"{text} contains itself")
        if name in self._done:
            return self._done[name]
        if len(self._open) >= MAX_NESTING:
            raise SchemaError(f"it nests deeper than {MAX_NESTING} levels")
        self._open.append(name)
        declaration = self._declared[name]
        if isinstance(declaration, StructDecl):
            built = self._struct(declaration, text)
        else:
            built = self._type(declaration.type, declaration.scope, text)
        self._open.pop()
        if built[0].least > LARGEST:
            raise SchemaError(f"{text} is larger than any message can be")
        self._done[name] = built
        return built

    def _struct(self, struct: StructDecl, text: str) -> tuple[Node, int, int]:
        if struct.why:
            raise SchemaError(f"{text}: {struct.why}")
        fields: list[tuple[str, Node]] = []
        leaves, depth = 1, 1
        if struct.base is not None:
            base, leaves, depth = self._named(struct.base, struct.scope, text)
            if not isinstance(base, Struct):
                raise SchemaError(f"the base of {text} is not a struct")
            fields += base.fields
        for name, type_ in struct.members:
            node, some, deep = self._type(type_, struct.scope, f"{text}.{name}")
            leaves, depth = leaves + some, max(depth, deep + 1)
            if leaves > MAX_SCHEMA_FIELDS or depth > MAX_NESTING:
                raise SchemaError(f"{text} expands to more than {MAX_SCHEMA_FIELDS:,} fields or {MAX_NESTING} levels")
            fields.append((name, node))
        if len({name for name, _ in fields}) < len(fields):
            raise SchemaError(f"{text} has a member twice")
        return Struct(text, tuple(fields)), leaves, depth

    def _type(self, type_: Type, scope: Name, where: str) -> tuple[Node, int, int]:
        node, leaves, depth = self._single(type_, scope, where)
        for length in reversed(type_.lengths):
            node, depth = fixed_array(node, length, where), depth + 1
        return node, leaves, depth

    def _single(self, type_: Type, scope: Name, where: str) -> tuple[Node, int, int]:
        if type_.kind in PRIMITIVES:
            return PRIMITIVES[type_.kind], 1, 1
        if type_.kind in ("string", "wstring"):
            return Text(wide=type_.kind == "wstring"), 1, 1
        if type_.kind == "sequence":
            assert type_.element is not None
            element, leaves, depth = self._type(type_.element, scope, f"{where}[]")
            return Sequence(element), leaves, depth + 1
        if type_.kind == "name":
            return self._named(type_.name, scope, where)
        raise SchemaError(f"{where}: a {type_.word} cannot be read")

    def _named(self, name: Name, scope: Name, where: str) -> tuple[Node, int, int]:
        for full in candidates(name, scope):
            if full in self._declared:
                return self.declared(full)
            if full in _BUILTINS:
                return _BUILTINS[full], 2, 2
        raise SchemaError(f"{where}: {'::'.join(name)} is not declared")
